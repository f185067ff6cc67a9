//! Measuring a side within its process.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What a side is given.
pub struct Run<'a> {
    pub input: &'a Path,
    /// As in `ReadOptions`: 0 is one per processor.
    pub threads: usize,
    pub repeat: usize,
}

/// What it found, printed as a line of JSON.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    pub load_ns: u64,
    /// The load, and then reading every byte.
    pub load_and_read_ns: u64,
    /// Of all that was read; all sides of a row have the same.
    pub sum: u64,
    pub peak_rss: u64,
}

impl Run<'_> {
    /// Measures `load`, and then `read`, which reads all that was loaded and sums it up.
    pub fn measure<T>(
        &self,
        mut load: impl FnMut() -> Result<T>,
        read: impl Fn(&T) -> Result<u64>,
    ) -> Result<Measured> {
        let (mut loads, mut loads_and_reads) = (Vec::new(), Vec::new());
        let mut sum = 0;
        for _ in 0..self.repeat {
            let start = Instant::now();
            let loaded = load()?;
            loads.push(start.elapsed());
            sum = read(&loaded)?;
            loads_and_reads.push(start.elapsed());
        }
        Ok(Measured {
            load_ns: median(loads).as_nanos() as u64,
            load_and_read_ns: median(loads_and_reads).as_nanos() as u64,
            sum,
            peak_rss: peak_rss()?,
        })
    }
}

pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort();
    values[values.len() / 2]
}

/// The sum of bytes, taken as 64-bit words.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|&word| u64::from_le_bytes(word));
    let rest = rest.iter().map(|&byte| u64::from(byte));
    words.chain(rest).fold(0, u64::wrapping_add)
}

fn peak_rss() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read the peak RSS")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"))
        .context("/proc/self/status has no VmHWM")?;
    let peak: u64 = kib.trim().parse()?;
    Ok(peak << 10)
}
