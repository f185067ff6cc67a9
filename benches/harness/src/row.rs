//! What is measured: rows, each with an input, our side, and the others', and series.

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

/// One work done in several ways, or on inputs of several sizes, by nobody but us.
pub struct Series {
    pub name: &'static str,
    pub work: &'static str,
    /// Makes an input for each case; cases may share one.
    pub inputs: fn(&Setup) -> Result<Vec<Input>>,
    pub cases: &'static [Case],
    pub repeat: usize,
    pub cache: Cache,
    /// Which times are compared: those of loads, or of loads and reading every byte.
    pub timed: Timed,
    /// What they are divided by.
    pub per: Per,
    /// How many times as long as the fastest case the slowest may take, divided so.
    pub within: Option<f64>,
}

pub struct Case {
    pub name: &'static str,
    pub side: Side,
}

/// Whether files are in the page cache when a side starts.
#[derive(Clone, Copy)]
pub enum Cache {
    Warm,
    Cold,
}

#[derive(Clone, Copy)]
pub enum Timed {
    Load,
    LoadAndRead,
}

#[derive(Clone, Copy)]
pub enum Per {
    Tensor,
    Byte,
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

impl Row {
    /// Whether our side copies tensors into memory of their own: those loads have threads.
    pub fn is_owned_load(&self) -> bool {
        self.has_threads
    }

    /// Ours, ours with one thread, and the others, each with its number of threads.
    pub fn sides(&self) -> Vec<(Side, usize)> {
        let mut sides = vec![(self.ours, 0)];
        if self.has_threads {
            sides.push((self.ours, 1));
        }
        sides.extend(self.peers.iter().map(|peer| (peer.side, 0)));
        sides
    }
}
