//! Arrays become a checkpoint.

use std::path::Path;

use ndarray::{ArrayBase, Data, Dimension};
use st_format::{Dtype, Result, SaveFrom, Storage};

use crate::{AnyArray, Element, MappedTensor, NdArray, OpaqueArray};

/// Saves arrays, by policies that are values of the saver.
///
/// ```
/// use ndarray::array;
/// use st_format::{Dtype, byte_size};
/// use st_ndarray::{Savable, Saver};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model");
/// let (weight, ids) = (array![[1.5f32, 2.0], [0.0, -1.0]], array![1i64, 2, 3]);
/// // Arrays of several types are borrowed as what they have in common.
/// let arrays: [(_, &dyn Savable); 2] = [("weight", &weight), ("ids", &ids)];
/// let report = Saver::new()
///     .metadata("format", "np")
///     .cast_floats(Dtype::F16)
///     .max_shard_size(byte_size("5GB")?)
///     .save(&path, arrays)?;
/// assert_eq!(report.files, [path.join("model.safetensors")]);
/// # Ok::<(), st_format::Error>(())
/// ```
pub type Saver = st_format::Saver<NdArray>;

/// Writes arrays to a file, which appears, or replaces what is there, when it is complete.
///
/// Arrays, views of them and [`AnyArray`]s are taken as they are, in any memory layout; nothing is
/// copied but, block by block, what does not lie in row-major order. Nothing is cast. Views of the
/// same elements are saved once ([`st_format::Saver`]).
///
/// ```
/// use ndarray::array;
/// use st_ndarray::{load_into_ndarray, save_from_ndarray};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let weight = array![[1.5f32, 2.0], [0.0, -1.0]];
/// save_from_ndarray(&path, [("weight", weight.t())])?;
///
/// let loaded = load_into_ndarray(&path)?;
/// assert_eq!(*loaded["weight"].as_array::<f32>()?, weight.t().into_dyn());
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// As [`st_format::Saver::save`].
pub fn save_from_ndarray<N: AsRef<str>, T: Savable>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (N, T)>,
) -> Result<()> {
    Saver::new().save(path, arrays).map(drop)
}

/// What can be saved as a tensor: arrays and views of every [`Element`] type, [`AnyArray`],
/// [`OpaqueArray`] and [`MappedTensor`].
pub trait Savable {
    /// The element type, as the format names it.
    fn dtype(&self) -> Dtype;

    /// The size of each dimension, outermost first.
    fn shape(&self) -> &[usize];

    /// Where the elements lie.
    fn storage(&self) -> Storage;

    /// Gives the elements' bytes to `write`, in row-major order, in pieces of whole elements.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    fn bytes(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

impl<T: Savable> SaveFrom<T> for NdArray {
    fn dtype(array: &T) -> Result<Dtype> {
        Ok(array.dtype())
    }

    fn shape(array: &T) -> Vec<usize> {
        array.shape().to_vec()
    }

    fn storage(array: &T) -> Option<Storage> {
        Some(array.storage())
    }

    fn bytes(array: &T, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        array.bytes(write)
    }
}

impl<A: Element, S: Data<Elem = A>, D: Dimension> Savable for ArrayBase<S, D> {
    fn dtype(&self) -> Dtype {
        A::DTYPE
    }

    fn shape(&self) -> &[usize] {
        ArrayBase::shape(self)
    }

    fn storage(&self) -> Storage {
        Storage {
            allocation: self.as_ptr().addr(),
            offset: 0,
            strides: self
                .strides()
                .iter()
                .map(|&stride| stride as usize)
                .collect(),
        }
    }

    fn bytes(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        /// In elements: what is gathered stays in the processor's cache.
        const BLOCK: usize = 16 << 10;

        if let Some(elements) = self.as_slice() {
            return write(bytemuck::cast_slice(elements));
        }
        let mut block = Vec::with_capacity(BLOCK.min(self.len()));
        for &element in self {
            block.push(element);
            if block.len() == BLOCK {
                write(bytemuck::cast_slice(&block))?;
                block.clear();
            }
        }
        write(bytemuck::cast_slice(&block))
    }
}

/// Implements what is the bytes of a value, one after the other, with methods of its own for the
/// rest.
macro_rules! in_row_major_order {
    ($($array:ty),*) => {
        $(impl Savable for $array {
            fn dtype(&self) -> Dtype {
                <$array>::dtype(self)
            }

            fn shape(&self) -> &[usize] {
                <$array>::shape(self)
            }

            fn storage(&self) -> Storage {
                Storage {
                    allocation: <$array>::bytes(self).as_ptr().addr(),
                    offset: 0,
                    strides: Vec::new(),
                }
            }

            fn bytes(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
                write(<$array>::bytes(self))
            }
        })*
    };
}

in_row_major_order!(OpaqueArray, MappedTensor);

/// Implements what leads to something else that can be saved.
macro_rules! forwarded {
    ($(<$($t:ident: $bound:path)?> $array:ty, $self:ident => $to:expr;)*) => {
        $(impl<$($t: $bound + ?Sized)?> Savable for $array {
            fn dtype(&$self) -> Dtype {
                $to.dtype()
            }

            fn shape(&$self) -> &[usize] {
                $to.shape()
            }

            fn storage(&$self) -> Storage {
                $to.storage()
            }

            fn bytes(&$self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
                $to.bytes(write)
            }
        })*
    };
}

forwarded! {
    <> AnyArray, self => self.savable();
    <T: Savable> &T, self => **self;
}
