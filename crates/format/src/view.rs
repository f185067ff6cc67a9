//! A tensor borrowed from bytes that are already in memory.

use bytemuck::PodCastError;

use crate::error::{Error, ErrorKind, Result};
use crate::writer::byte_len;
use crate::{Dtype, Element, TensorInfo, element};

/// A tensor and its bytes, borrowed from a [`SafeTensors`](crate::SafeTensors) archive.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    info: TensorInfo<'a>,
    data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A tensor of bytes in memory, to be saved.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where there are not as many bytes as the
    /// dtype and shape need.
    pub fn new(
        name: &'a str,
        dtype: Dtype,
        shape: &'a [usize],
        data: &'a [u8],
    ) -> Result<TensorView<'a>> {
        let found = data.len() as u64;
        let needed = byte_len(dtype, shape).map_err(|error| error.with_tensor(name))?;
        if found != needed {
            let message = format!("the data is {found} bytes, {dtype} {shape:?} needs {needed}");
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(name));
        }
        Ok(TensorView {
            info: TensorInfo::new(name, dtype, shape, 0..needed),
            data,
        })
    }

    /// A tensor of an archive, whose header has been checked.
    pub(crate) fn of_archive(info: TensorInfo<'a>, data: &'a [u8]) -> Self {
        TensorView { info, data }
    }

    /// The tensor's entry in the header.
    pub fn info(&self) -> TensorInfo<'a> {
        self.info
    }

    /// The tensor's name.
    pub fn name(&self) -> &'a str {
        self.info.name()
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.info.dtype()
    }

    /// The size of each dimension, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.info.shape()
    }

    /// The bytes as they stand in the file: little-endian, row-major, not necessarily aligned.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The elements, without a copy.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where `T` is not the tensor's dtype, and
    /// [`Misaligned`](ErrorKind::Misaligned) where the data does not lie on a multiple of `T`'s
    /// alignment, which is legal in the format and common: copy [`data`](TensorView::data) then.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        element::check::<T>(self.dtype()).map_err(|error| error.with_tensor(self.name()))?;
        if self.data.is_empty() {
            // No element can be misaligned.
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(self.data).map_err(|error| {
            let kind = match error {
                PodCastError::TargetAlignmentGreaterAndInputNotAligned => ErrorKind::Misaligned,
                _ => ErrorKind::InvalidRequest,
            };
            let message = format!(
                "data at {:p} cannot be viewed as {}, which has alignment {}",
                self.data,
                std::any::type_name::<T>(),
                align_of::<T>()
            );
            Error::new(kind, message).with_tensor(self.name())
        })
    }
}

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorView")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
