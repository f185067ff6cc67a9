//! A view of memory that it keeps alive itself.

use bytes::Bytes;
use ndarray::{ArrayRef, ArrayViewD, IxDyn};
use st_format::{Dtype, Result};

use crate::Element;
use crate::view::view;

/// An array whose elements lie in memory that it owns a share of. A clone shares them.
#[derive(Clone)]
pub(crate) struct OwningView<T: Element> {
    /// Never handed out by itself: its lifetime is longer than the truth.
    array: ArrayViewD<'static, T>,
    /// What `array` borrows from.
    _owner: Bytes,
}

impl<T: Element> OwningView<T> {
    pub(crate) fn new(dtype: Dtype, shape: &[usize], owner: Bytes) -> Result<OwningView<T>> {
        let array = view::<T>(dtype, shape, &owner)?.raw_view();
        // SAFETY: `array` came from a view that borrows from `owner`, so its elements are aligned,
        // initialised and valid, and lie in `owner`'s memory, if there are any. It remains to show
        // that this is so whenever anyone reads through it:
        // - It is there. The memory of a `Bytes` is freed with the last handle to it and does not
        //   move with a handle, which only points to it. `_owner` is one: each value of this type,
        //   clones too, has its own beside its `array`, private and never replaced.
        // - It does not change. A `Bytes` gives nobody leave to write to its memory while there is
        //   another handle to it; and where it is a mapped file, whoever mapped it has promised
        //   that nobody writes to the file while such a handle is left.
        // - Nobody reads later. `array` leaves this module only by reference, as an `ArrayRef`
        //   whose lifetime is that of a borrow of the whole value; what can be had of an
        //   `ArrayRef` without a copy borrows from that.
        let array = unsafe { array.deref_into_view::<'static>() };
        Ok(OwningView {
            array,
            _owner: owner,
        })
    }

    pub(crate) fn as_array(&self) -> &ArrayRef<T, IxDyn> {
        &self.array
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;

    struct Memory(Arc<Vec<f32>>);

    impl AsRef<[u8]> for Memory {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }

    /// Here for Miri, which cannot map files.
    #[test]
    fn the_memory_lives_until_the_last_clone_is_dropped() {
        let memory = Arc::new(vec![1.0, 2.0, 3.0, 4.0]);
        let watch: Weak<Vec<f32>> = Arc::downgrade(&memory);
        let bytes = Bytes::from_owner(Memory(memory));
        let last_three = bytes.slice(4..);
        let view = OwningView::<f32>::new(Dtype::F32, &[3, 1], last_three).unwrap();
        drop(bytes);
        let clones = vec![view.clone(), view.clone()];
        drop(view);
        let moved = std::thread::spawn(move || {
            assert_eq!(clones[0].as_array().sum(), 9.0);
            clones
        });
        let mut clones = moved.join().unwrap();
        clones.remove(0);
        assert_eq!(clones[0].as_array()[[2, 0]], 4.0);
        assert!(watch.upgrade().is_some());
        drop(clones);
        assert!(watch.upgrade().is_none());
    }
}
