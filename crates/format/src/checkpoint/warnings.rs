//! What is odd about a checkpoint though it can be loaded.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Checkpoint;
use super::index::TotalSize;
use crate::error::{Quoted, ShownPath};

/// Something that is accepted and yet not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    path: PathBuf,
    message: String,
}

impl Warning {
    /// The file it is about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is odd.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", ShownPath(&self.path), self.message)
    }
}

pub(super) fn of(checkpoint: &Checkpoint) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |path: &Path, message| {
        let path = path.to_owned();
        warnings.push(Warning { path, message });
    };
    let mut taken = vec![0; checkpoint.shards.len()];
    for (shard, _) in checkpoint.iter_with_shard() {
        taken[shard] += 1;
    }
    for (number, shard) in checkpoint.shards.iter().enumerate() {
        for message in shard.header.oddities() {
            warn(&shard.path, message);
        }
        if taken[number] < shard.header.len() {
            warn(&shard.path, not_taken(checkpoint, number, taken[number]));
        }
    }
    let found = checkpoint.byte_len();
    match checkpoint.total_size {
        None => {}
        Some(TotalSize::Bytes(said)) if said == found => {}
        Some(TotalSize::Bytes(said)) => warn(
            &checkpoint.path,
            format!("metadata.total_size is {said}, the tensors take {found} bytes"),
        ),
        Some(TotalSize::NotANumber) => {
            let message = "metadata.total_size is no whole number of bytes";
            warn(&checkpoint.path, message.to_owned());
        }
        Some(TotalSize::Missing) => {
            let message = "there is no metadata.total_size";
            warn(&checkpoint.path, message.to_owned());
        }
    }
    warnings
}

/// About the tensors that a shard holds and the index does not give it.
fn not_taken(checkpoint: &Checkpoint, number: usize, taken: usize) -> String {
    let header = &checkpoint.shards[number].header;
    let untaken = header.len() - taken;
    let place_of = |name: &str| checkpoint.routes.as_ref()?.find(name, &checkpoint.shards);
    let elsewhere = header.iter().find_map(|info| match place_of(info.name()) {
        Some((shard, _)) if shard == number => None,
        place => Some((info.name(), place.map(|(shard, _)| shard))),
    });
    let example = match elsewhere {
        Some((name, Some(shard))) => format!(
            ", such as {}, which the index places in {}",
            Quoted(name),
            ShownPath(&checkpoint.shards[shard].path)
        ),
        Some((name, None)) => format!(", such as {}, which the index does not name", Quoted(name)),
        None => String::new(),
    };
    let tensors = match untaken {
        1 => "1 tensor of this shard is",
        _ => &format!("{untaken} tensors of this shard are"),
    };
    format!("{tensors} not loaded{example}")
}
