//! Bytes that are already in memory, seen as an array.

use ndarray::{ArrayViewD, IxDyn};
use st_format::{Dtype, Error, Framework, Result, TensorView};

use crate::dtype::wrong_type;
use crate::{Element, NdArray};

/// Sees a tensor's bytes as an array, without a copy.
///
/// ```
/// use st_format::{Mapped, SafeTensors};
/// use st_ndarray::view_as_ndarray;
///
#[doc = include_str!("doc_setup.txt")]
/// // SAFETY: nobody writes to this file, or truncates it, while it is mapped.
/// let tensors = SafeTensors::new(unsafe { Mapped::open(&path) }?)?;
/// let weight = view_as_ndarray::<f32>(tensors.tensor("model.weight")?)?;
/// assert_eq!(weight.shape(), [2, 3]);
/// assert_eq!(weight.sum(), 9.0);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidRequest`](st_format::ErrorKind::InvalidRequest) where `T` is not the type of the
/// tensor's dtype, [`Misaligned`](st_format::ErrorKind::Misaligned) where the data does not lie on
/// a multiple of `T`'s alignment, which is legal in the format and common, and
/// [`InvalidData`](st_format::ErrorKind::InvalidData) where BOOL data is not all 0 or 1.
pub fn view_as_ndarray<'a, T: Element>(tensor: TensorView<'a>) -> Result<ArrayViewD<'a, T>> {
    view(tensor.dtype(), tensor.shape(), tensor.data())
        .map_err(|error| error.with_tensor(tensor.name()))
}

pub(crate) fn view<'a, T: Element>(
    dtype: Dtype,
    shape: &[usize],
    bytes: &'a [u8],
) -> Result<ArrayViewD<'a, T>> {
    if dtype != T::DTYPE {
        return Err(wrong_type::<T>(dtype));
    }
    ArrayViewD::from_shape(IxDyn(shape), T::from_bytes(bytes)?)
        .map_err(|error| Error::framework(NdArray::NAME, error))
}
