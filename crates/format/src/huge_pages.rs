//! Huge pages for memory that a load fills.
//!
//! What bounds a load is not the disk cache but the first touch of fresh memory, page by page. On
//! Linux, huge pages make that several times as fast, if they are asked for and the memory lies
//! right. Elsewhere nothing is done.

use std::mem::MaybeUninit;

/// On most machines. Where it is another, the rules below are only of less use.
const HUGE_PAGE: usize = 2 << 20;

/// How many bytes to allocate for `len` that a load is going to fill, so that huge pages can lie
/// behind them: for a [`Framework`](crate::Framework) whose memory is not a
/// [`Buffer`](crate::Buffer), which does so itself.
///
/// Linux places a mapping at the start of a huge page only if it is as long as whole ones, and
/// allocators (glibc's, for one) map a large allocation by itself. What is allocated more than
/// asked for is address space that is never touched.
pub fn allocation_len(len: usize) -> usize {
    /// What an allocator keeps beside a large allocation, and loses to alignment, at most.
    const BOOKKEEPING: usize = 128;

    if len < HUGE_PAGE || !cfg!(target_os = "linux") {
        return len;
    }
    let pages = len
        .checked_add(BOOKKEEPING)
        .and_then(|len| len.checked_next_multiple_of(HUGE_PAGE));
    pages.map_or(len, |pages| pages - BOOKKEEPING)
}

/// An empty vector with room for `len` elements that are about to be pushed, on huge pages where
/// it is long enough for them.
pub(crate) fn vec<T>(len: usize) -> Vec<T> {
    let size = size_of::<T>();
    let bytes = allocation_len(len.saturating_mul(size));
    let mut vec = Vec::with_capacity(bytes / size);
    let memory = &mut vec.spare_capacity_mut()[..len];
    ask_for(memory);
    collapse_first(memory);
    vec
}

/// Asks for huge pages behind memory that is about to be written; nothing is promised.
pub(crate) fn ask_for<T>(memory: &mut [MaybeUninit<T>]) {
    let len = size_of_val(memory);
    if len < HUGE_PAGE {
        return;
    }
    let start = memory.as_ptr().addr();
    let end = start + len;
    // A huge page used only in part is memory lost, so the last one is asked for only if little
    // of it stays unused.
    let used = end % HUGE_PAGE;
    let end = match HUGE_PAGE - used <= len / 32 {
        true => end - used + HUGE_PAGE,
        false => end - used,
    };
    advise(memory, end - start, Advice::HugePage);
}

/// Makes the first huge page behind memory one, if it is not: an allocator that keeps its notes
/// in front of the memory has touched it before it could be asked for. Takes as long as touching
/// the huge page would, so it is left to the thread that is about to write there.
pub(crate) fn collapse_first<T>(memory: &mut [MaybeUninit<T>]) {
    if size_of_val(memory) >= HUGE_PAGE {
        advise(memory, HUGE_PAGE, Advice::Collapse);
    }
}

#[derive(Clone, Copy)]
enum Advice {
    HugePage,
    Collapse,
}

/// Gives advice about the first `len` bytes of memory, from the start of the page they begin in:
/// a huge page that were cut there would not be one.
#[cfg(target_os = "linux")]
fn advise<T>(memory: &mut [MaybeUninit<T>], len: usize, advice: Advice) {
    let start = memory.as_mut_ptr().cast::<u8>();
    let before = start.addr() % rustix::param::page_size();
    let advice = match advice {
        Advice::HugePage => libc::MADV_HUGEPAGE,
        Advice::Collapse => libc::MADV_COLLAPSE,
    };
    let start = start.wrapping_sub(before).cast();
    // SAFETY: neither advice changes what memory holds or who may use it, only which pages lie
    // behind it; so it is harmless too where the range leaves the slice, which it does in the
    // first page and in the last huge page. A refusal is no error.
    let _ = unsafe { libc::madvise(start, before + len, advice) };
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &mut [MaybeUninit<T>], _: usize, _: Advice) {}
