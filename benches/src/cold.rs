//! Reading a file that is not in the page cache, in several ways.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use anyhow::{Result, ensure};
use harness::input::{self, FILE};
use harness::{Cache, Case, Input, Measured, Per, Run, Series, Setup, Timed, sum};
use memmap2::{Advice, Mmap, MmapMut};
use st_format::Header;

use crate::candle;

pub const COLD: Series = Series {
    name: "cold",
    work: "F32 tensors of 8 MiB that are not in the page cache",
    inputs,
    cases: &[
        Case {
            name: "ours, into candle",
            side: candle::load,
        },
        Case {
            name: "buffered reads",
            side: |run| read(run, 0),
        },
        Case {
            name: "O_DIRECT reads",
            side: |run| read(run, libc::O_DIRECT),
        },
        Case {
            name: "mapped",
            side: map,
        },
    ],
    repeat: 1,
    cache: Cache::Cold,
    timed: Timed::LoadAndRead,
    per: Per::Byte,
    within: None,
};

/// The same for each case.
fn inputs(setup: &Setup) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    if let Some(input) = input::large(setup)? {
        for _ in COLD.cases {
            inputs.push(Input {
                dir: input.dir.clone(),
                ..input
            });
        }
    }
    Ok(inputs)
}

/// What each read asks for.
const PIECE: usize = 4 << 20;

/// Reads the whole file into fresh memory, by as many threads as there are processors.
fn read(run: &Run, flags: i32) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(
        || {
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(&path)?;
            let len = file.metadata()?.len() as usize;
            // Pages of a map are aligned as O_DIRECT wants memory, and so are pieces.
            let mut memory = MmapMut::map_anon(len.next_multiple_of(PIECE))?;
            memory.advise(Advice::HugePage)?;
            read_by_threads(&file, &mut memory, len)?;
            Ok(memory)
        },
        |memory| Ok(sum(&memory[data_of(&path)?])),
    )
}

fn read_by_threads(file: &File, memory: &mut [u8], len: usize) -> Result<()> {
    let threads = thread::available_parallelism()?.get();
    let each = memory.len().div_ceil(threads).next_multiple_of(PIECE);
    thread::scope(|scope| {
        let parts = memory.chunks_mut(each).enumerate();
        let parts: Vec<_> = parts
            .map(|(at, part)| scope.spawn(move || read_part(file, part, at * each, len)))
            .collect();
        parts
            .into_iter()
            .try_for_each(|part| part.join().expect("a reading thread does not panic"))
    })
}

fn read_part(file: &File, part: &mut [u8], begin: usize, len: usize) -> Result<()> {
    for (at, piece) in part.chunks_mut(PIECE).enumerate() {
        let begin = begin + at * PIECE;
        let read = file.read_at(piece, begin as u64)?;
        let expected = PIECE.min(len.saturating_sub(begin));
        ensure!(read == expected, "{read} bytes were read of {expected}");
    }
    Ok(())
}

/// It is read when the bytes are.
fn map(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(
        || {
            let file = File::open(&path)?;
            // SAFETY: the input was written for this run, and nothing writes to it any more.
            Ok(unsafe { Mmap::map(&file) }?)
        },
        |map| Ok(sum(&map[data_of(&path)?])),
    )
}

/// Where the tensors are in the file.
fn data_of(path: &Path) -> Result<Range<usize>> {
    let header = Header::read(path)?;
    Ok(header.data_start() as usize..header.file_len() as usize)
}
