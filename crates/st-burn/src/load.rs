//! Checkpoints are read into burn's tensors.

use std::collections::HashMap;
use std::path::Path;

use burn_core::tensor::TensorData;
use st_format::{Buffer, Checkpoint, Dtype, Framework, Part, Result};

use crate::dtype::held_as;
use crate::memory;

/// burn as the place a checkpoint is loaded into. Its [`TensorData`] is on no device yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Burn;

/// Loads checkpoints into burn's tensors, by policies that are values of the loader.
///
/// ```
/// use burn::tensor::{DType, shape};
/// use st_burn::{Burn, Loader};
/// use st_format::{Dtype, Slice};
///
#[doc = include_str!("doc_setup.txt")]
/// // The second of two ranks takes its half of each weight's rows, in F16.
/// let (tensors, report) = Loader::new(Burn)
///     .filter(|name| !name.starts_with("optimizer."))
///     .rename(|name| name.replace("model.", ""))
///     .cast_floats(Dtype::F16)
///     .slice(|info| match info.shape() {
///         [_, _] => Slice::all().share(0, 1, 2),
///         _ => Slice::all(),
///     })
///     .load_with_report(&path)?;
/// assert_eq!(*tensors["weight"].shape(), shape![1, 3]);
/// assert_eq!(tensors["weight"].dtype(), DType::F16);
/// assert_eq!(report.loaded, ["weight"]);
/// # Ok::<(), st_format::Error>(())
/// ```
pub type Loader = st_format::Loader<Burn>;

/// Loads all tensors of a checkpoint: a file, an index, or the directory of either.
///
/// ```
/// use burn::tensor::shape;
/// use st_burn::load_into_burn;
///
#[doc = include_str!("doc_setup.txt")]
/// let tensors = load_into_burn(&path)?;
/// assert_eq!(*tensors["model.weight"].shape(), shape![2, 3]);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Loader::load`]. A dtype that burn neither has nor can hold exactly (see the
/// table in the [crate's documentation](crate)) is an
/// [`Unsupported`](st_format::ErrorKind::Unsupported) error; a [`Loader`] can leave such tensors
/// out instead.
pub fn load_into_burn(path: impl AsRef<Path>) -> Result<HashMap<String, TensorData>> {
    Loader::new(Burn).load(path)
}

/// Loads one tensor of a checkpoint, reading nothing but the headers and its own bytes.
///
/// To load several, open the [`Checkpoint`] once and use [`st_format::Loader::load_tensor`].
///
/// # Errors
///
/// As [`load_into_burn`], and [`NotFound`](st_format::ErrorKind::NotFound).
pub fn load_tensor_into_burn(path: impl AsRef<Path>, name: &str) -> Result<TensorData> {
    Loader::new(Burn).load_tensor(&Checkpoint::open(path)?, name)
}

impl Framework for Burn {
    const NAME: &'static str = "burn";
    type Tensor = TensorData;
    type Memory = Buffer;

    fn held_as(&self, dtype: Dtype) -> Option<Dtype> {
        held_as(dtype)
    }

    fn shares_memory(&self, _: Dtype) -> bool {
        true
    }

    fn is_staging(&self) -> bool {
        false
    }

    fn allocate(&self, dtype: Dtype, bytes: u64) -> Result<Buffer> {
        Buffer::new(dtype, bytes)
    }

    fn tensors(&self, memory: Buffer, dtype: Dtype, parts: &[Part<'_>]) -> Vec<Result<TensorData>> {
        // One allocation, so all its tensors fail; the first error is what the load returns.
        memory::tensors(memory, dtype, parts).unwrap_or_else(|error| vec![Err(error)])
    }
    fn share(&self, tensor: &TensorData) -> TensorData {
        tensor.clone()
    }
}
