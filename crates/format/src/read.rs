//! The parallel reader: from any number of places in files to memory that the caller owns.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::buffer::{Memory, as_uninit};
use crate::cast::Cast;
use crate::checkpoint::Shard;
use crate::error::{Error, ErrorKind, Result};
use crate::slice::Runs;
use crate::source::Source;
use crate::threads::lock;
use crate::{huge_pages, threads};

/// How reads are done: by how many threads, and who is told of their progress.
///
/// Data is read in file order, in large pieces, through the system's page cache. Where it is not
/// there yet, the disk is what takes time, and how it is asked changes little: 1 GiB took 0.47 s
/// this way until every byte was read, 0.45 s by `O_DIRECT` and 0.40 s from a map (the row `cold`
/// of BENCHMARKS.md). Buffered reads leave the file in the cache for the next process, which then
/// reads it four times as fast; they need no aligned offsets, as `O_DIRECT` does; and they stay
/// sound where somebody changes the file, as a map does not.
#[derive(Clone, Default)]
pub struct ReadOptions {
    threads: usize,
    progress: Option<Arc<dyn Fn(u64, u64) + Send + Sync>>,
}

impl ReadOptions {
    /// One thread per processor, and no report of progress.
    pub fn new() -> ReadOptions {
        ReadOptions::default()
    }

    /// Reads by this many threads at most; 0 is one per processor.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> ReadOptions {
        self.threads = threads;
        self
    }

    pub(crate) fn thread_limit(&self) -> usize {
        self.threads
    }

    /// Calls `progress(done, total)` now and then, with bytes of the files, from any of the
    /// reading threads, so that calls may overtake each other. One of them has `done == total`,
    /// unless there is nothing to read.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> ReadOptions {
        self.progress = Some(Arc::new(progress));
        self
    }
}

impl std::fmt::Debug for ReadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadOptions")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Counts bytes of files that have been read, out of a total.
pub(crate) struct Meter {
    done: AtomicU64,
    total: u64,
}

impl Meter {
    pub(crate) fn new(total: u64) -> Meter {
        Meter {
            done: AtomicU64::new(0),
            total,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    fn add(&self, bytes: u64) -> u64 {
        self.done.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

/// Bytes of one file that belong somewhere in memory.
pub(crate) struct Transfer<'a, M> {
    pub(crate) shard: &'a Shard,
    /// What an error is about; the first one, where several tensors are read at once.
    pub(crate) tensor: &'a str,
    pub(crate) runs: Runs,
    pub(crate) cast: Option<Cast>,
    pub(crate) memory: M,
}

/// What one thread reads at a time: large enough for the system to read ahead, small enough to
/// share a single tensor among threads.
const PIECE: u64 = 4 << 20;

/// Reads shorter than this are gathered through a buffer where they lie close together. The
/// system reads whole pages anyway.
const PAGE: u64 = 4096;

/// What is read at once on the way to a cast or to short runs; it stays in the processor's cache.
const BLOCK: u64 = 256 << 10;

/// The bytes of files that are to be read, or `u64::MAX` if they are more.
pub(crate) fn total<M>(transfers: &[Transfer<'_, M>]) -> u64 {
    let lengths = transfers.iter().map(|transfer| transfer.runs.byte_len());
    lengths.fold(0, u64::saturating_add)
}

/// Reads everything, or returns the first error; then some of the memory may be unwritten.
pub(crate) fn read_all<M: Memory>(
    transfers: &mut [Transfer<'_, M>],
    options: &ReadOptions,
    meter: &Meter,
) -> Result<()> {
    let total = total(transfers);
    let threads = match options.threads {
        0 => threads::count(),
        threads => threads,
    };
    // A thread that would not fill one piece is not worth starting.
    let threads = threads
        .min(usize::try_from(total / PIECE).unwrap_or(usize::MAX))
        .max(1);

    let mut in_file_order: Vec<_> = transfers.iter_mut().collect();
    in_file_order
        .sort_by_key(|transfer| (std::ptr::from_ref(transfer.shard), transfer.runs.offset(0)));
    let mut cut = Vec::with_capacity(in_file_order.len());
    for transfer in in_file_order {
        cut.push(Rest::new(transfer)?);
    }
    let pieces = Mutex::new(cut.into_iter().flatten());

    let failed = Mutex::new(None);
    let work = || {
        let mut scratch = Scratch::default();
        while lock(&failed).is_none() {
            // Taken in a statement of its own: the lock must not be held while reading.
            let next = lock(&pieces).next();
            let Some(piece) = next else { return };
            let len = piece.bytes.end - piece.bytes.start;
            match piece.read(&mut scratch) {
                Err(error) => drop(lock(&failed).get_or_insert(error)),
                Ok(()) => {
                    if let Some(progress) = &options.progress {
                        progress(meter.add(len), meter.total());
                    }
                }
            }
        }
    };
    threads::run(threads, work);
    let failed = lock(&failed).take();
    if let Some(error) = failed {
        return Err(error);
    }
    drop(pieces);
    for transfer in transfers {
        // SAFETY: the pieces of each transfer cover its memory (`Rest`), all of them have been
        // taken, for the threads return only when none is left, and each has been read without an
        // error, which writes all of its bytes.
        unsafe { transfer.memory.assume_filled() };
    }
    Ok(())
}

/// The length in memory of some bytes of a file.
pub(crate) fn output_len(cast: Option<&Cast>, bytes: u64) -> Result<u64> {
    let len = match cast {
        Some(cast) => cast.output_len(bytes),
        None => Some(bytes),
    };
    len.ok_or_else(|| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("a cast of {bytes} bytes takes more than 2^64"),
        )
    })
}

/// What is left of a transfer to be cut into pieces.
struct Rest<'a> {
    shard: &'a Shard,
    tensor: &'a str,
    runs: &'a Runs,
    cast: Option<Cast>,
    begin: u64,
    into: &'a mut [MaybeUninit<u8>],
}

impl<'a> Rest<'a> {
    fn new<M: Memory>(transfer: &'a mut Transfer<'_, M>) -> Result<Rest<'a>> {
        let expected = output_len(transfer.cast.as_ref(), transfer.runs.byte_len())?;
        let into = transfer.memory.bytes_mut();
        if into.len() as u64 != expected {
            let message = format!("memory of {} bytes for {expected}", into.len());
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(transfer.tensor));
        }
        huge_pages::ask_for(into);
        Ok(Rest {
            shard: transfer.shard,
            tensor: transfer.tensor,
            runs: &transfer.runs,
            cast: transfer.cast,
            begin: 0,
            into,
        })
    }
}

impl<'a> Iterator for Rest<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let total = self.runs.byte_len();
        if self.begin == total {
            return None;
        }
        let bytes = self.begin..total.min(self.begin + PIECE);
        self.begin = bytes.end;
        let len = (bytes.end - bytes.start) as usize;
        let len = self.cast.map_or(len, |cast| cast.output_len_of_block(len));
        let (into, rest) = std::mem::take(&mut self.into).split_at_mut(len);
        self.into = rest;
        Some(Piece {
            shard: self.shard,
            tensor: self.tensor,
            runs: self.runs,
            cast: self.cast,
            bytes,
            into,
        })
    }
}

/// Part of a transfer: `bytes` of all its runs' bytes.
struct Piece<'a> {
    shard: &'a Shard,
    tensor: &'a str,
    runs: &'a Runs,
    cast: Option<Cast>,
    bytes: Range<u64>,
    into: &'a mut [MaybeUninit<u8>],
}

impl Piece<'_> {
    fn read(self, scratch: &mut Scratch) -> Result<()> {
        let failed = |error| {
            Error::io("cannot read the data", error)
                .with_path(self.shard.path())
                .with_tensor(self.tensor)
        };
        let source = &self.shard.source;
        if self.bytes.start == 0 {
            huge_pages::collapse_first(self.into);
        }
        let Some(cast) = &self.cast else {
            return gather(source, self.runs, self.bytes, self.into, scratch).map_err(failed);
        };
        let mut block = std::mem::take(&mut scratch.block);
        block.resize(BLOCK as usize, 0);
        let mut into = self.into;
        let mut begin = self.bytes.start;
        while begin < self.bytes.end {
            let end = self.bytes.end.min(begin + BLOCK);
            let from = &mut block[..(end - begin) as usize];
            gather(source, self.runs, begin..end, as_uninit(from), scratch).map_err(failed)?;
            let (converted, rest) = into.split_at_mut(cast.output_len_of_block(from.len()));
            cast.apply(from, converted);
            into = rest;
            begin = end;
        }
        scratch.block = block;
        Ok(())
    }
}

/// Memory that a thread uses again for each piece.
#[derive(Default)]
struct Scratch {
    block: Vec<u8>,
    window: Vec<u8>,
    close_runs: Vec<(u64, usize)>,
}

/// Reads `bytes` of all the runs' bytes, wherever they lie.
fn gather(
    source: &Source,
    runs: &Runs,
    bytes: Range<u64>,
    mut into: &mut [MaybeUninit<u8>],
    scratch: &mut Scratch,
) -> io::Result<()> {
    let run_len = runs.run_len();
    // Where the bytes at `at` lie, and how many of them lie together.
    let place = |at: u64| {
        let within = at % run_len;
        let len = (run_len - within).min(bytes.end - at);
        (runs.offset(at / run_len) + within, len)
    };
    let mut at = bytes.start;
    while at < bytes.end {
        let (offset, len) = place(at);
        if len >= PAGE || !source.prefers_large_reads() {
            let (run, rest) = into.split_at_mut(len as usize);
            source.read_at(offset, run)?;
            into = rest;
            at += len;
            continue;
        }
        // Short runs that lie close together are read at once, with what lies between them.
        let Scratch {
            window, close_runs, ..
        } = scratch;
        close_runs.clear();
        let mut end = offset;
        while at < bytes.end {
            let (next, len) = place(at);
            if next - end >= PAGE || next + len - offset > BLOCK {
                break;
            }
            close_runs.push((next - offset, len as usize));
            end = next + len;
            at += len;
        }
        window.resize(window.len().max((end - offset) as usize), 0);
        let window = &mut window[..(end - offset) as usize];
        source.read_at(offset, as_uninit(window))?;
        for &(start, len) in &*close_runs {
            let (run, rest) = into.split_at_mut(len);
            run.write_copy_of_slice(&window[start as usize..][..len]);
            into = rest;
        }
    }
    Ok(())
}
