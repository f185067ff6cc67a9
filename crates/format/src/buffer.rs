//! Memory that a read fills and a tensor then owns.

use std::alloc::{Layout, alloc, dealloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::Dtype;
use crate::error::{Error, ErrorKind, Result};

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
/// Its memory is not zeroed first, and huge pages are asked for where the system has them:
/// touching fresh memory page by page is what bounds a load.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
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
        let layout = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| Layout::from_size_align(bytes, dtype.alignment()).ok())
            .ok_or_else(out_of_memory)?;
        let start = match layout.size() {
            0 => NonNull::dangling(),
            // SAFETY: the size is not zero.
            _ => NonNull::new(unsafe { alloc(layout) }).ok_or_else(out_of_memory)?,
        };
        advise_huge_pages(start, layout.size());
        Ok(Buffer {
            start,
            layout,
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
        let bytes = self.layout.size();
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let fits = size_of::<T>() != 0
            && bytes.is_multiple_of(size_of::<T>())
            && self.layout.align() == align_of::<T>();
        if !fits || !self.filled {
            let message = match fits {
                true => "the buffer has not been filled".to_owned(),
                false => format!(
                    "{bytes} bytes with alignment {} are no {}s",
                    self.layout.align(),
                    std::any::type_name::<T>()
                ),
            };
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let count = bytes / size_of::<T>();
        let start = self.start.cast::<T>().as_ptr();
        std::mem::forget(self);
        // SAFETY: the memory comes from the global allocator with the layout of an array of
        // `count` Ts: the sizes multiply to the size, the alignment is T's. All bytes are
        // initialised (`filled`), and any bytes are valid Ts (`Pod`). `self` is forgotten, so the
        // Vec is the only owner.
        Ok(unsafe { Vec::from_raw_parts(start, count, count) })
    }
}

impl Memory for Buffer {
    fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let start = self.start.cast::<MaybeUninit<u8>>().as_ptr();
        // SAFETY: `start` is valid for the size of the layout (dangling only where that is 0),
        // MaybeUninit needs no initialisation, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, self.layout.size()) }
    }

    unsafe fn assume_filled(&mut self) {
        self.filled = true;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: allocated in `new` with this layout, and owned until now.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// Asks for huge pages behind a large allocation; nothing is promised, and failure is harmless.
fn advise_huge_pages(start: NonNull<u8>, len: usize) {
    #[cfg(target_os = "linux")]
    {
        /// Of the pages asked for, on most machines; smaller allocations hold none.
        const HUGE_PAGE: usize = 2 << 20;
        if len < HUGE_PAGE {
            return;
        }
        // The advice takes whole pages, so it goes to those inside.
        let page = rustix::param::page_size();
        let skip = start.as_ptr().align_offset(page);
        let Some(inside) = len.checked_sub(skip).map(|len| len / page * page) else {
            return;
        };
        // SAFETY: skip ≤ len, so this is inside the allocation or at its end.
        let first = unsafe { start.as_ptr().add(skip) };
        // SAFETY: the pages belong to this allocation, and the advice does not change what they
        // hold.
        let _ =
            unsafe { rustix::mm::madvise(first.cast(), inside, rustix::mm::Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
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
