//! A tensor of a mapped checkpoint.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ndarray::ArrayViewD;
use st_format::{Checkpoint, Dtype, Error, ErrorKind, Result};

use crate::owning_view::OwningView;
use crate::view::view;
use crate::{Element, Loader, MappedArray, NdArray};

/// A tensor in a mapped file, made by [`map_into_ndarray`](crate::map_into_ndarray).
///
/// It keeps the whole checkpoint mapped; an array made of it keeps only its own file.
///
/// ```
/// # use st_format::Dtype;
/// # use st_ndarray::map_into_ndarray;
#[doc = include_str!("doc_setup.txt")]
/// # // SAFETY: nobody writes to this file, or truncates it, while it is mapped.
/// # let tensors = unsafe { map_into_ndarray(&path) }?;
/// let weight = &tensors["model.weight"];
/// assert_eq!((weight.dtype(), weight.shape()), (Dtype::F32, &[2, 3][..]));
/// assert_eq!(weight.bytes()[..4], 1.5f32.to_le_bytes());
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Clone)]
pub struct MappedTensor {
    checkpoint: Arc<Checkpoint>,
    /// The file's number in the checkpoint.
    shard: usize,
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Bytes,
}

impl MappedTensor {
    /// All tensors of a mapped checkpoint, by their names.
    pub(crate) fn all_of(checkpoint: Checkpoint) -> Result<HashMap<String, MappedTensor>> {
        let checkpoint = Arc::new(checkpoint);
        let tensors = checkpoint.iter_with_shard().map(|(shard, info)| {
            let bytes = checkpoint.bytes(info.name())?.ok_or_else(|| {
                let error = Error::new(ErrorKind::InvalidRequest, "the checkpoint is not mapped");
                error.with_path(checkpoint.path())
            })?;
            let tensor = MappedTensor {
                checkpoint: Arc::clone(&checkpoint),
                shard,
                name: info.name().to_owned(),
                dtype: info.dtype(),
                shape: info.shape().to_vec(),
                bytes,
            };
            Ok((info.name().to_owned(), tensor))
        });
        tensors.collect()
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The size of each dimension, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes as they stand in the file: little-endian, row-major, not necessarily aligned.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as an array that keeps their file mapped: without a copy where they are
    /// aligned, and otherwise copied.
    ///
    /// ```
    /// # use st_ndarray::map_into_ndarray;
    #[doc = include_str!("doc_setup.txt")]
    /// # // SAFETY: nobody writes to this file, or truncates it, while it is mapped.
    /// # let tensors = unsafe { map_into_ndarray(&path) }?;
    /// let weight = tensors["model.weight"].array::<f32>()?;
    /// // Any function on arrays takes it.
    /// fn mean_of_rows(weight: &ndarray::ArrayRef<f32, ndarray::IxDyn>) -> Vec<f32> {
    ///     weight.outer_iter().map(|row| row.sum() / row.len() as f32).collect()
    /// }
    /// assert_eq!(mean_of_rows(&weight), [1.5, 1.5]);
    /// # Ok::<(), st_format::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where `T` is not the type of the tensor's
    /// dtype, [`InvalidData`](ErrorKind::InvalidData) where BOOL data is not all 0 or 1, and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) where a copy cannot be made.
    pub fn array<T: Element>(&self) -> Result<MappedArray<T>> {
        match OwningView::new(self.dtype, &self.shape, self.bytes.clone()) {
            Ok(view) => Ok(MappedArray::mapped(view)),
            Err(error) if error.kind() == ErrorKind::Misaligned => {
                let copy = Loader::new(NdArray).load_tensor(&self.checkpoint, &self.name)?;
                Ok(MappedArray::copied(copy.into_array()?))
            }
            Err(error) => Err(self.at(error)),
        }
    }

    /// The elements as a borrowed array, never copied.
    ///
    /// ```
    /// # use st_ndarray::map_into_ndarray;
    #[doc = include_str!("doc_setup.txt")]
    /// # // SAFETY: nobody writes to this file, or truncates it, while it is mapped.
    /// # let tensors = unsafe { map_into_ndarray(&path) }?;
    /// let weight = tensors["model.weight"].view::<f32>()?;
    /// assert_eq!(weight.as_ptr().cast(), tensors["model.weight"].bytes().as_ptr());
    /// # Ok::<(), st_format::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`view_as_ndarray`](crate::view_as_ndarray).
    pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        view(self.dtype, &self.shape, &self.bytes).map_err(|error| self.at(error))
    }

    fn at(&self, error: Error) -> Error {
        let file = self.checkpoint.shards()[self.shard].path();
        error.with_path(file).with_tensor(&self.name)
    }
}

impl fmt::Debug for MappedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedTensor")
            .field("name", &self.name)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
