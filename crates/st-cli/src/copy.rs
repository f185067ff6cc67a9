//! `safetensors copy`: saves a checkpoint once more, somewhere else or otherwise.

use std::io::{self, Write};

use st_format::{Checkpoint, Raw, Result, SaveReport, Saver};

use crate::args::{Copy, pairs};
use crate::escape::escape;
use crate::output::fail;
use crate::progress;
use crate::units::exactly;
use crate::verdict::Verdict;

pub(crate) fn run(args: &Copy, out: &mut impl Write) -> io::Result<Verdict> {
    let checkpoint = match Checkpoint::open(&args.from) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return Ok(fail(&error)),
    };
    match save(args, &checkpoint) {
        Ok(report) => {
            write_text(out, &report)?;
            Ok(Verdict::Ok)
        }
        Err(error) => Ok(fail(&error)),
    }
}

fn save(args: &Copy, checkpoint: &Checkpoint) -> Result<SaveReport> {
    let mut saver = Saver::<Raw>::new();
    if let Some(bytes) = args.max_shard_size {
        saver = saver.max_shard_size(bytes);
    }
    if let Some(dtype) = args.cast_floats {
        saver = saver.cast_floats(dtype);
    }
    for [key, value] in pairs(&args.metadata) {
        saver = saver.metadata(key, value);
    }
    if args.checksums {
        saver = saver.checksums();
    }
    if let Some(bytes) = args.align {
        saver = saver.align_data(bytes);
    }
    if let Some(bytes) = args.reserve {
        saver = saver.reserve_header(bytes);
    }
    if args.durable {
        saver = saver.durable();
    }
    progress::shown(|progress| {
        let saver = saver.progress(progress);
        saver.save_checkpoint(&args.to, checkpoint)
    })
}

/// A line for each file there is now; an index comes last.
fn write_text(out: &mut impl Write, report: &SaveReport) -> io::Result<()> {
    for file in &report.files {
        writeln!(out, "{}", escape(&file.to_string_lossy()))?;
    }
    let bytes = exactly(report.bytes, "byte");
    writeln!(out, "{bytes} of tensors")
}
