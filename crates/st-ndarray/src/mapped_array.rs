//! An array that keeps its file mapped.

use std::fmt;
use std::ops::Deref;

use ndarray::{ArcArray, ArrayD, ArrayRef, IxDyn};

use crate::Element;
use crate::owning_view::OwningView;

/// An array whose elements lie in a mapped file, which stays mapped as long as the array, or a
/// clone of it, lives.
///
/// It is read as any array, through [`ArrayRef`]. A clone copies no elements;
/// [`to_owned`](MappedArray::to_owned) does.
///
/// Made by [`MappedTensor::array`](crate::MappedTensor::array), which copies where the file's data
/// is not aligned; [`is_mapped`](MappedArray::is_mapped) tells.
///
/// ```
/// # use st_ndarray::map_into_ndarray;
#[doc = include_str!("doc_setup.txt")]
/// # // SAFETY: nobody writes to this file, or truncates it, while it is mapped.
/// # let tensors = unsafe { map_into_ndarray(&path) }?;
/// let weight = tensors["model.weight"].array::<f32>()?;
/// assert!(weight.is_mapped());
/// let doubled = &*weight * 2.0;
/// assert_eq!(doubled[[1, 2]], 3.0);
/// let mut copy = weight.to_owned();
/// copy.fill(0.0);
/// assert_eq!(weight[[1, 2]], 1.5);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// A view of it borrows from it, so this does not compile:
///
/// ```compile_fail,E0505
/// # fn f(weight: st_ndarray::MappedArray<f32>) {
/// let view = weight.view();
/// drop(weight);
/// view.sum();
/// # }
/// ```
#[derive(Clone)]
pub struct MappedArray<T: Element>(Memory<T>);

#[derive(Clone)]
enum Memory<T: Element> {
    Mapped(OwningView<T>),
    Copied(ArcArray<T, IxDyn>),
}

impl<T: Element> MappedArray<T> {
    pub(crate) fn mapped(view: OwningView<T>) -> MappedArray<T> {
        MappedArray(Memory::Mapped(view))
    }

    pub(crate) fn copied(array: ArrayD<T>) -> MappedArray<T> {
        MappedArray(Memory::Copied(array.into_shared()))
    }

    /// Whether the elements lie in the file's map. Otherwise they are a copy, and the file plays
    /// no part any more.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Memory::Mapped(_))
    }

    /// A copy that can be written to and needs no file.
    pub fn to_owned(&self) -> ArrayD<T> {
        (**self).to_owned()
    }
}

impl<T: Element> Deref for MappedArray<T> {
    type Target = ArrayRef<T, IxDyn>;

    fn deref(&self) -> &ArrayRef<T, IxDyn> {
        match &self.0 {
            Memory::Mapped(view) => view.as_array(),
            Memory::Copied(array) => array,
        }
    }
}

impl<T: Element> fmt::Debug for MappedArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
