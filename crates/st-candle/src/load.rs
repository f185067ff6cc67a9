//! Filled memory becomes candle tensors.

use std::collections::HashMap;
use std::path::Path;

use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, Device, Storage, Tensor, WithDType};
use float8::F8E4M3;
use half::{bf16, f16};
use st_format::{Buffer, Checkpoint, Dtype, Error, Framework, Part, Result};

use crate::dtype::{held_as, is_opaque, to_candle};

/// candle as the place a checkpoint is loaded into: the device.
#[derive(Clone, Debug)]
pub struct Candle {
    device: Device,
}

impl From<&Device> for Candle {
    fn from(device: &Device) -> Candle {
        Candle {
            device: device.clone(),
        }
    }
}

/// Loads checkpoints into candle tensors, by policies that are values of the loader.
///
/// ```
/// use candle_core::{DType, Device};
/// use st_candle::Loader;
/// use st_format::{Dtype, Slice};
///
#[doc = include_str!("doc_setup.txt")]
/// // The second of two ranks takes its half of each weight's rows, in F16.
/// let (tensors, report) = Loader::new(&Device::Cpu)
///     .filter(|name| !name.starts_with("optimizer."))
///     .rename(|name| name.replace("model.", ""))
///     .cast_floats(Dtype::F16)
///     .slice(|info| match info.shape() {
///         [_, _] => Slice::all().share(0, 1, 2),
///         _ => Slice::all(),
///     })
///     .load_with_report(&path)?;
/// assert_eq!(tensors["weight"].dims(), [1, 3]);
/// assert_eq!(tensors["weight"].dtype(), DType::F16);
/// assert_eq!(report.loaded, ["weight"]);
/// # Ok::<(), st_format::Error>(())
/// ```
pub type Loader = st_format::Loader<Candle>;

/// Loads all tensors of a checkpoint: a file, an index, or the directory of either.
///
/// ```
/// use candle_core::Device;
/// use st_candle::load_into_candle;
///
#[doc = include_str!("doc_setup.txt")]
/// let tensors = load_into_candle(&path, &Device::Cpu)?;
/// assert_eq!(tensors["model.weight"].dims(), [2, 3]);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Loader::load`]. A dtype that candle neither has nor can hold exactly (see the
/// table in the [crate's documentation](crate)) is an
/// [`Unsupported`](st_format::ErrorKind::Unsupported) error; a [`Loader`] can leave such tensors
/// out instead.
pub fn load_into_candle(
    path: impl AsRef<Path>,
    device: &Device,
) -> Result<HashMap<String, Tensor>> {
    Loader::new(device).load(path)
}

/// Loads one tensor of a checkpoint, reading nothing but the headers and its own bytes.
///
/// To load several, open the [`Checkpoint`] once and use [`st_format::Loader::load_tensor`].
///
/// # Errors
///
/// As [`load_into_candle`], and [`NotFound`](st_format::ErrorKind::NotFound).
pub fn load_tensor_into_candle(
    path: impl AsRef<Path>,
    name: &str,
    device: &Device,
) -> Result<Tensor> {
    Loader::new(device).load_tensor(&Checkpoint::open(path)?, name)
}

impl Framework for Candle {
    const NAME: &'static str = "candle";
    type Tensor = Tensor;
    type Memory = Buffer;

    fn held_as(&self, dtype: Dtype) -> Option<Dtype> {
        held_as(dtype)
    }

    fn shares_memory(&self, dtype: Dtype) -> bool {
        // Who looks into storage that candle only keeps may not heed a view's offset.
        self.device.is_cpu() && !is_opaque(dtype)
    }

    fn is_staging(&self) -> bool {
        !self.device.is_cpu()
    }

    fn allocate(&self, dtype: Dtype, bytes: u64) -> Result<Buffer> {
        Buffer::new(dtype, bytes)
    }

    fn tensors(&self, memory: Buffer, dtype: Dtype, parts: &[Part<'_>]) -> Vec<Result<Tensor>> {
        match self.whole(memory, dtype, parts) {
            Ok(whole) => {
                let mut begin = 0;
                let view = |part: &Part| {
                    let len = part.shape.iter().product();
                    let view = whole.narrow(0, begin, len)?.reshape(&*part.shape);
                    begin += len;
                    view
                };
                let views = parts.iter().map(view);
                views.map(|view| view.map_err(candle_error)).collect()
            }
            // One allocation, so all its tensors fail; the first error is what the load returns.
            Err(error) => vec![Err(error)],
        }
    }

    fn share(&self, tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}

impl Candle {
    /// All the memory as one tensor of rank 1.
    fn whole(&self, memory: Buffer, dtype: Dtype, parts: &[Part]) -> Result<Tensor> {
        let elements = |part: &Part| part.shape.iter().product::<usize>();
        let len = parts.iter().map(elements).sum();
        match dtype {
            Dtype::U8 => self.elements::<u8>(memory),
            Dtype::U32 => self.elements::<u32>(memory),
            Dtype::I16 => self.elements::<i16>(memory),
            Dtype::I32 => self.elements::<i32>(memory),
            Dtype::I64 => self.elements::<i64>(memory),
            Dtype::BF16 => self.elements::<bf16>(memory),
            Dtype::F16 => self.elements::<f16>(memory),
            Dtype::F32 => self.elements::<f32>(memory),
            Dtype::F64 => self.elements::<f64>(memory),
            Dtype::F8E4M3 => self.elements::<F8E4M3>(memory),
            opaque if is_opaque(opaque) => self.opaque(memory.into_vec()?, opaque, len),
            other => Err(Error::unsupported(other, Self::NAME)),
        }
    }

    fn elements<T: WithDType + bytemuck::Pod>(&self, memory: Buffer) -> Result<Tensor> {
        let elements = memory.into_vec::<T>()?;
        let len = elements.len();
        Tensor::from_vec(elements, len, &self.device).map_err(candle_error)
    }

    /// A tensor of a dtype whose bytes candle keeps without looking into them.
    fn opaque(&self, bytes: Vec<u8>, dtype: Dtype, len: usize) -> Result<Tensor> {
        let storage = match (dtype, &self.device) {
            (Dtype::F4, Device::Cpu) => CpuStorage::F4(bytes),
            (Dtype::F6E2M3, Device::Cpu) => CpuStorage::F6E2M3(bytes),
            (Dtype::F6E3M2, Device::Cpu) => CpuStorage::F6E3M2(bytes),
            (Dtype::F8E8M0, Device::Cpu) => CpuStorage::F8E8M0(bytes),
            _ => {
                let dtype =
                    to_candle(dtype).ok_or_else(|| Error::unsupported(dtype, Self::NAME))?;
                return Tensor::from_raw_buffer(&bytes, dtype, &[len], &self.device)
                    .map_err(candle_error);
            }
        };
        let (storage, op) = (Storage::Cpu(storage), BackpropOp::none());
        Ok(Tensor::from_storage(storage, len, op, false))
    }
}

pub(crate) fn candle_error(error: candle_core::Error) -> Error {
    Error::framework(Candle::NAME, error)
}
