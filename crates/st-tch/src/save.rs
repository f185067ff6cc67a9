//! tch's tensors become a file.

use std::borrow::Borrow;
use std::path::Path;

#[cfg(doc)]
use st_format::ErrorKind;
use st_format::{Dtype, Error, Framework, Result, SaveFrom, Storage};
use tch::{Device, TchError, Tensor};

use crate::Tch;
use crate::dtype::from_tch;
use crate::error::tch_error;

/// Saves tch tensors, by policies that are values of the saver.
///
/// ```
/// use st_tch::Saver;
/// use st_tch::format::{Dtype, byte_size};
/// use st_tch::tch::{Device, Kind, Tensor};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model");
/// let embedding = Tensor::ones([8, 4], (Kind::Float, Device::Cpu));
/// // The output layer is tied to the embedding, and is not saved twice.
/// let report = Saver::new()
///     .metadata("format", "pt")
///     .cast_floats(Dtype::BF16)
///     .max_shard_size(byte_size("5GB")?)
///     .save(&path, [("wte", &embedding), ("lm_head", &embedding)])?;
/// assert_eq!(report.files, [path.join("model.safetensors")]);
/// assert_eq!(report.aliases, [("wte".to_owned(), "lm_head".to_owned())]);
/// # Ok::<(), st_tch::format::Error>(())
/// ```
pub type Saver = st_format::Saver<Tch>;

/// Writes tensors to a file, which appears, or replaces what is there, when it is complete.
///
/// They may lie on any device and have any strides; each is brought over or made contiguous where
/// it has to be, one at a time. Nothing is cast. Tensors that are the same view of one memory are
/// saved once ([`st_format::Saver`]).
///
/// ```
/// use st_tch::tch::{Device, Tensor};
/// use st_tch::{load_into_tch, save_from_tch};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let weight = Tensor::from_slice(&[1.5f32, 2.0, 0.0, -1.0]).view([2, 2]);
/// save_from_tch(&path, [("weight", weight.transpose(0, 1))])?;
/// assert_eq!(load_into_tch(&path, Device::Cpu)?["weight"], weight.transpose(0, 1));
/// # Ok::<(), st_tch::format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Saver::save`]; [`Unsupported`](ErrorKind::Unsupported) for kinds that the format
/// has no dtype for (see the [crate's documentation](crate)), and
/// [`Framework`](ErrorKind::Framework) where libtorch refuses, as for sparse tensors.
pub fn save_from_tch<N, T>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, T)>,
) -> Result<()>
where
    N: AsRef<str>,
    T: Borrow<Tensor>,
{
    Saver::new().save(path, tensors).map(drop)
}

impl<T: Borrow<Tensor>> SaveFrom<T> for Tch {
    fn dtype(tensor: &T) -> Result<Dtype> {
        dtype_of(tensor.borrow())
    }

    fn shape(tensor: &T) -> Vec<usize> {
        shape_of(tensor.borrow())
    }

    fn storage(tensor: &T) -> Option<Storage> {
        let tensor = tensor.borrow();
        // Others have no memory of their elements, or not in that order, or are yet to be negated.
        let is_plain =
            is_strided(tensor) && !tensor.f_is_conj().ok()? && !tensor.f_is_neg().ok()?;
        is_plain.then(|| Storage {
            allocation: tensor.data_ptr().addr(),
            offset: 0,
            strides: tensor
                .stride()
                .into_iter()
                .map(|stride| stride as usize)
                .collect(),
        })
    }

    fn bytes(tensor: &T, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for_each_block(tensor.borrow(), write)
    }
}

/// The format's dtype for what a tensor holds.
pub(crate) fn dtype_of(tensor: &Tensor) -> Result<Dtype> {
    let kind = tensor.f_kind().map_err(tch_error)?;
    from_tch(kind).ok_or_else(|| Error::unknown_to_format(Tch::NAME, &format!("{kind:?}")))
}

pub(crate) fn shape_of(tensor: &Tensor) -> Vec<usize> {
    // libtorch's sizes are never negative.
    tensor.size().into_iter().map(|dim| dim as usize).collect()
}

/// Whether a tensor has its elements in memory, by strides: only then can tch be asked where,
/// without a panic.
pub(crate) fn is_strided(tensor: &Tensor) -> bool {
    // Of compressed sparse tensors, `is_sparse` knows nothing.
    !tensor.is_sparse() && !tensor.is_mkldnn() && matches!(tensor.f_sparse_dim(), Ok(0))
}

/// Gives the elements' bytes in row-major order, block by block.
///
/// A copy that stays in the processor's cache costs little, and spares a look into memory that
/// libtorch may share with anyone.
fn for_each_block(tensor: &Tensor, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    const BLOCK: usize = 256 << 10;

    let flat = || -> Result<Tensor, TchError> {
        let tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?;
        // Conjugation and negation may be pending: bits that say how memory is to be read.
        tensor
            .f_resolve_conj()?
            .f_resolve_neg()?
            .f_contiguous()?
            .f_view(-1)
    };
    let size = dtype_of(tensor)?.bytes().unwrap_or(1);
    let len = shape_of(tensor).iter().product::<usize>();
    if len == 0 {
        return Ok(());
    }
    let flat = flat().map_err(tch_error)?;
    let at_a_time = BLOCK / size;
    let mut block = vec![0; BLOCK.min(len * size)];
    for begin in (0..len).step_by(at_a_time) {
        let elements = at_a_time.min(len - begin);
        let bytes = &mut block[..elements * size];
        flat.f_narrow(0, begin as i64, elements as i64)
            .and_then(|piece| piece.f_copy_data_u8(bytes, elements))
            .map_err(tch_error)?;
        each(bytes)?;
    }
    Ok(())
}
