//! candle's tensors become a checkpoint.

use std::borrow::Borrow;
use std::path::Path;

use candle_core::{CpuStorage, Device, Layout, Storage as CandleStorage, Tensor};
use st_format::{Dtype, Error, ErrorKind, Framework, Result, SaveFrom, Storage};

use crate::Candle;
use crate::dtype::from_candle;
use crate::load::candle_error;

/// Saves candle tensors, by policies that are values of the saver.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use st_candle::Saver;
/// use st_format::{Dtype, byte_size};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model");
/// let embedding = Tensor::ones((8, 4), DType::F32, &Device::Cpu)?;
/// let bias = Tensor::zeros(8, DType::F32, &Device::Cpu)?;
/// // The output layer is tied to the embedding, and is not saved twice.
/// let tensors = [("wte", &embedding), ("lm_head", &embedding), ("bias", &bias)];
/// let report = Saver::new()
///     .metadata("format", "pt")
///     .cast_floats(Dtype::BF16)
///     .max_shard_size(byte_size("5GB")?)
///     .save(&path, tensors)?;
/// assert_eq!(report.files, [path.join("model.safetensors")]);
/// assert_eq!(report.aliases, [("wte".to_owned(), "lm_head".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Saver = st_format::Saver<Candle>;

/// Writes tensors to a file, which appears, or replaces what is there, when it is complete.
///
/// They may lie on any device and have any strides; each is brought over or made contiguous where
/// it has to be, one at a time. Nothing is cast. Tensors that are the same view of one storage are
/// saved once ([`st_format::Saver`]).
///
/// ```
/// use candle_core::{Device, Tensor};
/// use st_candle::{load_into_candle, save_from_candle};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let weight = Tensor::new(&[[1.5f32, 2.0], [0.0, -1.0]], &Device::Cpu)?;
/// save_from_candle(&path, [("weight", weight.t()?)])?;
///
/// let loaded = load_into_candle(&path, &Device::Cpu)?;
/// assert_eq!(loaded["weight"].to_vec2::<f32>()?, [[1.5, 0.0], [2.0, -1.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Saver::save`]; [`Unsupported`](ErrorKind::Unsupported), or candle's own error,
/// for part of a tensor of F4 and F6 kinds and F8_E8M0, which candle only keeps.
pub fn save_from_candle<N, T>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()>
where
    N: AsRef<str>,
    T: Borrow<Tensor>,
{
    Saver::new().save(path, tensors).map(drop)
}

impl<T: Borrow<Tensor>> SaveFrom<T> for Candle {
    fn dtype(tensor: &T) -> Result<Dtype> {
        let dtype = tensor.borrow().dtype();
        let name = dtype.as_str();
        from_candle(dtype).ok_or_else(|| Error::unknown_to_format(Candle::NAME, name))
    }

    fn shape(tensor: &T) -> Vec<usize> {
        tensor.borrow().dims().to_vec()
    }

    fn storage(tensor: &T) -> Option<Storage> {
        let (storage, layout) = tensor.borrow().storage_and_layout();
        Some(Storage {
            allocation: std::ptr::from_ref(&*storage).addr(),
            offset: layout.start_offset(),
            strides: layout.stride().to_vec(),
        })
    }

    fn bytes(tensor: &T, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let tensor = tensor.borrow();
        if tensor.device().is_cpu() && tensor.is_contiguous() {
            return bytes_in_order(tensor, write);
        }
        let on_cpu = tensor.to_device(&Device::Cpu);
        let in_order = on_cpu.and_then(|tensor| tensor.contiguous());
        bytes_in_order(&in_order.map_err(candle_error)?, write)
    }
}

/// Gives the bytes of a tensor that has them in memory, one after the other.
fn bytes_in_order(tensor: &Tensor, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (storage, layout) = tensor.storage_and_layout();
    let CandleStorage::Cpu(storage) = &*storage else {
        let message = "the tensor did not come to the CPU";
        return Err(Error::new(ErrorKind::Framework, message));
    };
    match storage {
        CpuStorage::U8(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::U32(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::I16(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::I32(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::I64(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::BF16(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::F16(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::F32(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::F64(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::F8E4M3(elements) => write(in_bytes(elements, layout)?),
        CpuStorage::F4(bytes)
        | CpuStorage::F6E2M3(bytes)
        | CpuStorage::F6E3M2(bytes)
        | CpuStorage::F8E8M0(bytes) => {
            // Elements may share bytes, and candle does not say where a part of them begins.
            let bits = from_candle(tensor.dtype()).map_or(0, |dtype| dtype.bits() as usize);
            let is_whole = layout.start_offset() == 0
                && layout.shape().elem_count().checked_mul(bits) == bytes.len().checked_mul(8);
            match is_whole {
                true => write(bytes),
                false => {
                    let message = format!(
                        "part of a tensor of {}'s {:?}",
                        Candle::NAME,
                        tensor.dtype()
                    );
                    Err(Error::new(ErrorKind::Unsupported, message))
                }
            }
        }
    }
}

fn in_bytes<'a, T: bytemuck::Pod>(elements: &'a [T], layout: &Layout) -> Result<&'a [u8]> {
    let range = layout.contiguous_offsets();
    let elements = range.and_then(|(start, end)| elements.get(start..end));
    elements.map(bytemuck::cast_slice).ok_or_else(|| {
        let message = format!("{}'s tensor is not contiguous", Candle::NAME);
        Error::new(ErrorKind::Framework, message)
    })
}
