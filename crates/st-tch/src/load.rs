//! Checkpoints are read into tch's tensors.

use std::collections::HashMap;
use std::path::Path;

use st_format::{Checkpoint, Dtype, Framework, Part, Result};
use tch::{Device, Tensor};

use crate::dtype::to_tch;
use crate::error::tch_error;
use crate::memory::TorchMemory;
use crate::tensor::in_memory;

/// tch as the place a checkpoint is loaded into: the device.
#[derive(Clone, Copy, Debug)]
pub struct Tch {
    device: Device,
}

impl From<Device> for Tch {
    fn from(device: Device) -> Tch {
        Tch { device }
    }
}

/// Loads checkpoints into tch's tensors, by policies that are values of the loader.
///
/// ```
/// use st_tch::Loader;
/// use st_tch::format::{Dtype, Slice};
/// use st_tch::tch::{Device, Kind};
///
#[doc = include_str!("doc_setup.txt")]
/// // The second of two ranks takes its half of each weight's rows. tch has no U32.
/// let (tensors, report) = Loader::new(Device::Cpu)
///     .filter(|name| !name.starts_with("optimizer."))
///     .rename(|name| name.replace("model.", ""))
///     .cast(|info| match info.dtype() {
///         Dtype::U32 => Some(Dtype::I64),
///         dtype => dtype.is_float().then_some(Dtype::BF16),
///     })
///     .slice(|info| match info.shape() {
///         [_, _] => Slice::all().share(0, 1, 2),
///         _ => Slice::all(),
///     })
///     .load_with_report(&path)?;
/// assert_eq!(tensors["weight"].size(), [1, 3]);
/// assert_eq!(tensors["weight"].kind(), Kind::BFloat16);
/// assert_eq!(report.loaded, ["weight"]);
/// # Ok::<(), st_tch::format::Error>(())
/// ```
pub type Loader = st_format::Loader<Tch>;

/// Loads all tensors of a checkpoint: a file, an index, or the directory of either.
///
/// ```
/// use st_tch::load_into_tch;
/// use st_tch::tch::Device;
///
#[doc = include_str!("doc_setup.txt")]
/// let tensors = load_into_tch(&path, Device::Cpu)?;
/// assert_eq!(tensors["model.weight"].size(), [2, 3]);
/// # Ok::<(), st_tch::format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Loader::load`]. A dtype that tch lacks (see the table in the
/// [crate's documentation](crate)) is an [`Unsupported`](st_format::ErrorKind::Unsupported)
/// error; a [`Loader`] can cast such tensors, or leave them out. A BOOL tensor that holds anything
/// but 0 and 1 is an [`InvalidData`](st_format::ErrorKind::InvalidData) error.
pub fn load_into_tch(path: impl AsRef<Path>, device: Device) -> Result<HashMap<String, Tensor>> {
    Loader::new(device).load(path)
}

/// Loads one tensor of a checkpoint, reading nothing but the headers and its own bytes.
///
/// To load several, open the [`Checkpoint`] once and use [`st_format::Loader::load_tensor`].
///
/// # Errors
///
/// As [`load_into_tch`], and [`NotFound`](st_format::ErrorKind::NotFound).
pub fn load_tensor_into_tch(path: impl AsRef<Path>, name: &str, device: Device) -> Result<Tensor> {
    Loader::new(device).load_tensor(&Checkpoint::open(path)?, name)
}

impl Framework for Tch {
    const NAME: &'static str = "tch";
    type Tensor = Tensor;
    type Memory = TorchMemory;

    fn held_as(&self, dtype: Dtype) -> Option<Dtype> {
        to_tch(dtype).map(|_| dtype)
    }

    fn shares_memory(&self, _: Dtype) -> bool {
        !self.is_staging()
    }

    fn is_staging(&self) -> bool {
        self.device != Device::Cpu
    }

    fn allocate(&self, _: Dtype, bytes: u64) -> Result<TorchMemory> {
        TorchMemory::new(bytes)
    }

    fn tensors(
        &self,
        memory: TorchMemory,
        dtype: Dtype,
        parts: &[Part<'_>],
    ) -> Vec<Result<Tensor>> {
        let memory = memory.into_tensor();
        let tensor = |part: &Part| {
            let tensor = in_memory(&memory, part.bytes.clone(), dtype, &part.shape)?;
            match self.device {
                Device::Cpu => Ok(tensor),
                device => tensor.f_to_device(device).map_err(tch_error),
            }
        };
        parts.iter().map(tensor).collect()
    }
    fn share(&self, tensor: &Tensor) -> Tensor {
        tensor.shallow_clone()
    }
}
