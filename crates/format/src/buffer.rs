//! Memory that a read fills and a tensor then owns.

use std::alloc::{Layout, alloc, dealloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::error::{Error, ErrorKind, Result};
use crate::{Dtype, huge_pages};

/// Memory that a load reads into: a [`Buffer`], or what a framework allocates itself.
pub trait Memory: Send {
    /// The memory as bytes, which need not be initialised. The same bytes at every call.
    fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>];

    /// Says that the bytes are all written now.
    ///
    /// # Safety
    ///
    /// Every byte of [`bytes_mut`](Memory::bytes_mut) has been initialised.
    unsafe fn assume_filled(&mut self);
}

/// An allocation for elements of one dtype, which becomes a `Vec` of them without a copy.
///
/// Its memory is not zeroed first, and may lie on huge pages where the system has them.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    /// Of the allocation, which may be longer than what is used of it.
    layout: Layout,
    len: usize,
    filled: bool,
}

// SAFETY: a Buffer is the only owner of its allocation, as a `Vec<u8>` is.
unsafe impl Send for Buffer {}
// SAFETY: nothing is read or written through a shared reference.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of `bytes` bytes for elements of `dtype`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    pub fn new(dtype: Dtype, bytes: u64) -> Result<Buffer> {
        let out_of_memory = || {
            let message = format!("cannot allocate {bytes} bytes");
            Error::new(ErrorKind::OutOfMemory, message)
        };
        let len = usize::try_from(bytes).map_err(|_| out_of_memory())?;
        let layout = Layout::from_size_align(huge_pages::allocation_len(len), dtype.alignment())
            .map_err(|_| out_of_memory())?;
        let start = match len {
            0 => NonNull::dangling(),
            // SAFETY: the size is not zero, as it is at least `len`.
            _ => NonNull::new(unsafe { alloc(layout) }).ok_or_else(out_of_memory)?,
        };
        Ok(Buffer {
            start,
            layout,
            len,
            filled: false,
        })
    }

    /// The elements.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where the buffer has not been read into, or
    /// `T` has another size or alignment than the buffer was made for.
    pub fn into_vec<T: Pod>(self) -> Result<Vec<T>> {
        if self.len == 0 {
            return Ok(Vec::new());
        }
        let (size, align) = (size_of::<T>(), align_of::<T>());
        let fits = size != 0
            && self.len.is_multiple_of(size)
            && self.layout.size().is_multiple_of(size)
            && self.layout.align() == align;
        if !fits || !self.filled {
            let message = match fits {
                true => "the buffer has not been filled".to_owned(),
                false => format!(
                    "{} bytes with alignment {} are no {}s",
                    self.len,
                    self.layout.align(),
                    std::any::type_name::<T>()
                ),
            };
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let (len, capacity) = (self.len / size, self.layout.size() / size);
        let start = self.start.cast::<T>().as_ptr();
        std::mem::forget(self);
        // SAFETY: the memory comes from the global allocator with the layout of an array of
        // `capacity` Ts: the sizes multiply to the allocation's, the alignment is T's. The bytes
        // of the first `len` Ts, which are no more than that, are initialised (`filled`), and any
        // bytes are valid Ts (`Pod`). `self` is forgotten, so the Vec is the only owner.
        Ok(unsafe { Vec::from_raw_parts(start, len, capacity) })
    }
}

impl Memory for Buffer {
    fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let start = self.start.cast::<MaybeUninit<u8>>().as_ptr();
        // SAFETY: `start` is valid for `len` bytes (and dangling only where that is 0),
        // MaybeUninit needs no initialisation, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }

    unsafe fn assume_filled(&mut self) {
        self.filled = true;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: allocated in `new` with this layout, and owned until now.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// Memory of the caller's that is initialised already.
pub(crate) struct Initialised<'a>(pub(crate) &'a mut [u8]);

impl Memory for Initialised<'_> {
    fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        as_uninit(self.0)
    }

    unsafe fn assume_filled(&mut self) {}
}

/// Initialised bytes, seen as memory that need not be.
pub(crate) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: same place, length and layout. The slice stays inside this crate, whose readers
    // only ever write initialised bytes to it.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}
