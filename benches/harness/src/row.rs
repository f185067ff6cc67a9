//! What one row of the table is: an input, our side, and the others'.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::measure::{Measured, Run};

pub struct Row {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is done.
    pub work: &'static str,
    /// Makes the input; none where something it is made of is not there.
    pub input: fn(&Setup) -> Result<Option<Input>>,
    /// How often the work is done within one process; its median counts.
    pub repeat: usize,
    pub ours: Side,
    /// Whether our side can also be run with one thread.
    pub has_threads: bool,
    pub peers: &'static [Peer],
}

/// One way of doing the work, in a process of its own.
pub type Side = fn(&Run) -> Result<Measured>;

pub struct Peer {
    pub name: &'static str,
    /// How many times as long as ours it should take.
    pub target: f64,
    pub side: Side,
}

/// What inputs are made from.
pub struct Setup<'a> {
    /// An empty folder.
    pub dir: &'a Path,
    pub quick: bool,
    pub minilm: Option<&'a Path>,
}

pub struct Input {
    /// The folder that the sides are given.
    pub dir: PathBuf,
    pub tensors: usize,
    /// The bytes that are in memory when all is loaded, or the length of all headers where only
    /// they are.
    pub bytes: u64,
}
