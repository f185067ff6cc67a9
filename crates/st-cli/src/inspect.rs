//! `safetensors inspect`: shows what a checkpoint holds.

mod report;
mod text;
mod totals;

use std::io::{self, Write};

use st_format::Checkpoint;

use crate::args::Inspect;
use crate::json;
use crate::output::fail;
use crate::verdict::Verdict;
use report::{Report, shard_names};

pub(crate) fn run(args: &Inspect, out: &mut impl Write) -> io::Result<Verdict> {
    let checkpoint = match Checkpoint::open(&args.path) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return Ok(fail(&error)),
    };
    let shards = shard_names(&checkpoint);
    let report = Report::of(&checkpoint, &shards, args.filter.as_ref());
    match args.json {
        true => json::write_line(out, &report)?,
        false => text::write(out, &report)?,
    }
    Ok(Verdict::Ok)
}
