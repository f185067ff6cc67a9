//! Filled memory becomes arrays.

use std::collections::HashMap;
use std::path::Path;

use st_format::{Buffer, Checkpoint, Dtype, Error, ErrorKind, Framework, Part, Result};

use crate::AnyArray;

/// ndarray as the place a checkpoint is loaded into.
#[derive(Clone, Copy, Debug)]
pub struct NdArray;

/// Loads checkpoints into arrays, by policies that are values of the loader.
///
/// ```
/// use st_format::{Dtype, Slice};
/// use st_ndarray::{Loader, NdArray, half::f16};
///
#[doc = include_str!("doc_setup.txt")]
/// // The second of two ranks takes its half of each weight's rows, in F16.
/// let (arrays, report) = Loader::new(NdArray)
///     .filter(|name| !name.starts_with("optimizer."))
///     .rename(|name| name.replace("model.", ""))
///     .cast_floats(Dtype::F16)
///     .slice(|info| match info.shape() {
///         [_, _] => Slice::all().share(0, 1, 2),
///         _ => Slice::all(),
///     })
///     .load_with_report(&path)?;
/// assert_eq!(arrays["weight"].as_array::<f16>()?.shape(), [1, 3]);
/// assert_eq!(report.loaded, ["weight"]);
/// # Ok::<(), st_format::Error>(())
/// ```
pub type Loader = st_format::Loader<NdArray>;

/// Loads all tensors of a checkpoint: a file, an index, or the directory of either.
///
/// ```
/// use st_ndarray::load_into_ndarray;
///
#[doc = include_str!("doc_setup.txt")]
/// let arrays = load_into_ndarray(&path)?;
/// let weight = arrays["model.weight"].as_array::<f32>()?;
/// assert_eq!(weight.shape(), [2, 3]);
/// assert_eq!(weight[[1, 2]], 1.5);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Loader::load`], and [`InvalidData`](ErrorKind::InvalidData) for a BOOL tensor
/// with a byte that is neither 0 nor 1. No dtype is unsupported.
pub fn load_into_ndarray(path: impl AsRef<Path>) -> Result<HashMap<String, AnyArray>> {
    Loader::new(NdArray).load(path)
}

/// Loads one tensor of a checkpoint, reading nothing but the headers and its own bytes.
///
/// To load several, open the [`Checkpoint`] once and use [`st_format::Loader::load_tensor`].
///
/// ```
/// use st_ndarray::load_tensor_into_ndarray;
///
#[doc = include_str!("doc_setup.txt")]
/// let weight = load_tensor_into_ndarray(&path, "model.weight")?.into_array::<f32>()?;
/// assert_eq!(weight.sum(), 9.0);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// As [`load_into_ndarray`], and [`NotFound`](ErrorKind::NotFound).
pub fn load_tensor_into_ndarray(path: impl AsRef<Path>, name: &str) -> Result<AnyArray> {
    Loader::new(NdArray).load_tensor(&Checkpoint::open(path)?, name)
}

impl Framework for NdArray {
    const NAME: &'static str = "ndarray";
    type Tensor = AnyArray;
    type Memory = Buffer;

    fn held_as(&self, dtype: Dtype) -> Option<Dtype> {
        Some(dtype)
    }

    fn shares_memory(&self, _: Dtype) -> bool {
        false
    }

    fn is_staging(&self) -> bool {
        false
    }

    fn allocate(&self, dtype: Dtype, bytes: u64) -> Result<Buffer> {
        Buffer::new(dtype, bytes)
    }

    fn tensors(&self, memory: Buffer, dtype: Dtype, parts: &[Part<'_>]) -> Vec<Result<AnyArray>> {
        let [whole] = parts else {
            let message = format!("{} arrays cannot share memory", parts.len());
            return vec![Err(Error::new(ErrorKind::InvalidRequest, message))];
        };
        vec![AnyArray::from_memory(memory, dtype, &whole.shape)]
    }
    fn share(&self, array: &AnyArray) -> AnyArray {
        array.clone()
    }
}
