//! burn's tensors become a file.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::path::Path;

use burn_core::tensor::{BoolStore, DType, TensorData};
use burn_store::{bridge, burn_pack};
#[cfg(doc)]
use st_format::ErrorKind;
use st_format::{Dtype, Error, Framework, Result, SaveFrom, Storage};

use crate::Burn;
use crate::dtype::from_burn;

/// Saves burn's tensors, by policies that are values of the saver.
///
/// ```
/// use st_burn::{Saver, TensorData};
/// use st_burn::format::{Dtype, byte_size};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model");
/// let weight = TensorData::from([[1.5f32, 2.0], [0.0, -1.0]]);
/// let report = Saver::new()
///     .metadata("format", "pt")
///     .cast_floats(Dtype::BF16)
///     .max_shard_size(byte_size("5GB")?)
///     .save(&path, [("weight", &weight)])?;
/// assert_eq!(report.files, [path.join("model.safetensors")]);
/// # Ok::<(), st_burn::format::Error>(())
/// ```
pub type Saver = st_format::Saver<Burn>;

/// Writes tensors to a file, which appears, or replaces what is there, when it is complete.
///
/// ```
/// use st_burn::{TensorData, load_into_burn, save_from_burn};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let weight = TensorData::from([[1.5f32, 2.0], [0.0, -1.0]]);
/// save_from_burn(&path, [("weight", &weight)])?;
/// assert_eq!(load_into_burn(&path)?["weight"], weight);
/// # Ok::<(), st_burn::format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Saver::save`]; [`Unsupported`](ErrorKind::Unsupported) for quantized tensors,
/// which the format has no dtype for.
pub fn save_from_burn<N, T>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()>
where
    N: AsRef<str>,
    T: Borrow<TensorData>,
{
    Saver::new().save(path, tensors).map(drop)
}

impl<T: Borrow<TensorData>> SaveFrom<T> for Burn {
    fn dtype(tensor: &T) -> Result<Dtype> {
        dtype_of(tensor.borrow().dtype())
    }

    fn shape(tensor: &T) -> Vec<usize> {
        tensor.borrow().shape().to_vec()
    }

    fn storage(tensor: &T) -> Option<Storage> {
        Some(Storage {
            allocation: tensor.borrow().as_bytes().as_ptr().addr(),
            offset: 0,
            strides: Vec::new(),
        })
    }

    fn bytes(tensor: &T, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        bytes_of(tensor.borrow(), write)
    }
}

fn dtype_of(dtype: DType) -> Result<Dtype> {
    from_burn(dtype).ok_or_else(|| Error::unknown_to_format(Burn::NAME, dtype.name()))
}

fn bytes_of(tensor: &TensorData, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    if tensor.dtype() == DType::Bool(BoolStore::U32) {
        let bytes: Vec<u8> = tensor.iter::<bool>().map(u8::from).collect();
        return write(&bytes);
    }
    write(tensor.as_bytes())
}

/// A parameter of a module, whose elements are fetched when they are written.
pub(crate) struct Parameter {
    tensor: burn_pack::Tensor,
    /// A number that parameters share which are one.
    number: usize,
}

impl Parameter {
    /// The parameters of a module. Those of one id and the same elements are one: an id alone is
    /// shared by clones that have gone their own ways, and by what an adapter has transposed.
    pub(crate) fn of_module(tensors: Vec<burn_pack::Tensor>) -> Result<Vec<Parameter>> {
        let mut by_id: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut parameters: Vec<Parameter> = Vec::with_capacity(tensors.len());
        for (at, tensor) in tensors.into_iter().enumerate() {
            let mut parameter = Parameter { tensor, number: at };
            let alike = match parameter.tensor.param_id {
                Some(id) => by_id.entry(id).or_default(),
                None => &mut Vec::new(),
            };
            let mut other = None;
            for &number in alike.iter() {
                if parameter.equals(&parameters[number])? {
                    other = Some(number);
                    break;
                }
            }
            match other {
                Some(number) => parameter.number = number,
                None => alike.push(at),
            }
            parameters.push(parameter);
        }
        Ok(parameters)
    }

    fn equals(&self, other: &Parameter) -> Result<bool> {
        let like = |tensor: &burn_pack::Tensor| (tensor.dtype, tensor.shape.clone());
        Ok(like(&self.tensor) == like(&other.tensor)
            && self.data()?.as_bytes() == other.data()?.as_bytes())
    }

    fn data(&self) -> Result<TensorData> {
        bridge::into_data(self.tensor.clone())
            .map_err(|error| Error::framework(Burn::NAME, error).with_tensor(&self.tensor.name))
    }
}

impl SaveFrom<Parameter> for Burn {
    fn dtype(parameter: &Parameter) -> Result<Dtype> {
        dtype_of(parameter.tensor.dtype)
    }

    fn shape(parameter: &Parameter) -> Vec<usize> {
        parameter.tensor.shape.to_vec()
    }

    fn storage(parameter: &Parameter) -> Option<Storage> {
        Some(Storage {
            allocation: parameter.number,
            offset: 0,
            strides: Vec::new(),
        })
    }

    fn bytes(parameter: &Parameter, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        bytes_of(&parameter.data()?, write)
    }
}
