//! The same work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::error::Result;

/// One per processor.
pub(crate) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `work` on this thread and, at the same time, on others, until all of them return.
///
/// Where no thread can be had, those there are do all the work, so `work` has to go on until there
/// is nothing left to do.
pub(crate) fn run(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, &work);
        }
        work();
    });
}

/// Does the same for all items and keeps their order; the first item's error counts. No more
/// threads do it than said; 0 is one per processor.
pub(crate) fn map<T: Sync, U: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    let next = AtomicUsize::new(0);
    let first_failed = AtomicUsize::new(usize::MAX);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let threads = match threads {
        0 => count(),
        threads => threads,
    };
    run(threads.min(items.len()), || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let item = match items.get(at) {
                // What comes after a failure is not needed any more.
                Some(item) if at < first_failed.load(Ordering::Relaxed) => item,
                _ => return,
            };
            let result = work(item);
            if result.is_err() {
                first_failed.fetch_min(at, Ordering::Relaxed);
            }
            lock(&done).push((at, result));
        }
    });
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Nothing under a lock here is left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}
