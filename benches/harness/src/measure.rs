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
    /// The folder with the packages of the peers that are written in Python.
    pub python: Option<&'a Path>,
}

/// What it found, printed as a line of JSON.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    /// Of the load, or of the save.
    pub load_ns: u64,
    /// The load, and then reading every byte.
    pub load_and_read_ns: u64,
    pub found: Found,
    /// The peak of resident memory, above what was resident before the work.
    pub peak_rss: u64,
}

/// What proves that all sides of a row have done the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Found {
    /// Of all bytes that were loaded.
    Sum(u64),
    /// Of the file that was saved.
    FileLen(u64),
}

impl Found {
    pub fn agrees_with(self, other: Found) -> bool {
        match (self, other) {
            // Headers may be padded, and say more or less about the same tensors.
            (Found::FileLen(one), Found::FileLen(other)) => one.abs_diff(other) <= one / 100,
            (one, other) => one == other,
        }
    }
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
        let memory = Memory::now()?;
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
            found: Found::Sum(sum),
            peak_rss: memory.peak_above()?,
        })
    }

    /// Measures `save`, which writes tensors that are in memory already to a file, a new one each
    /// time.
    pub fn measure_save(&self, mut save: impl FnMut(&Path) -> Result<()>) -> Result<Measured> {
        let path = self.input.join(format!("saved-{}", std::process::id()));
        let mut saves = Vec::new();
        let mut file_len = 0;
        let memory = Memory::now()?;
        for _ in 0..self.repeat {
            let start = Instant::now();
            save(&path)?;
            saves.push(start.elapsed());
            file_len = fs::metadata(&path)?.len();
            fs::remove_file(&path)?;
        }
        let save_ns = median(saves).as_nanos() as u64;
        Ok(Measured {
            load_ns: save_ns,
            load_and_read_ns: save_ns,
            found: Found::FileLen(file_len),
            peak_rss: memory.peak_above()?,
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

/// The sum of all tensors' bytes.
pub fn sum_of_all<'a>(tensors: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let sums = tensors.into_iter().map(sum);
    sums.fold(0, u64::wrapping_add)
}

/// The sum of the first page of each tensor.
pub fn sum_of_pages<'a>(tensors: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    const PAGE: usize = 4096;
    sum_of_all(tensors.into_iter().map(|bytes| &bytes[..PAGE]))
}

/// What is resident when the work begins.
struct Memory {
    before: u64,
}

impl Memory {
    fn now() -> Result<Memory> {
        // Sets the peak back to what is resident now; proc(5).
        fs::write("/proc/self/clear_refs", "5").context("cannot set back the peak RSS")?;
        Ok(Memory {
            before: status("VmRSS:")?,
        })
    }

    fn peak_above(&self) -> Result<u64> {
        Ok(status("VmHWM:")?.saturating_sub(self.before))
    }
}

/// Bytes of memory that the system counts for this process.
fn status(field: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read the RSS")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_suffix("kB"))
        .with_context(|| format!("/proc/self/status has no {field}"))?;
    let kib: u64 = kib.trim().parse()?;
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: &Path) -> Run<'_> {
        Run {
            input,
            threads: 0,
            repeat: 3,
            python: None,
        }
    }

    #[test]
    fn a_save_leaves_nothing_behind_and_is_known_by_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let save = |path: &Path| Ok(fs::write(path, vec![1; 1 << 20])?);
        let measured = run(dir.path()).measure_save(save).unwrap();
        assert_eq!(measured.found, Found::FileLen(1 << 20));
        assert!(measured.load_ns > 0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_from_before_is_not_counted() {
        let before = vec![1_u8; 64 << 20];
        let dir = tempfile::tempdir().unwrap();
        let load = || Ok(vec![1_u8; 32 << 20]);
        let measured = run(dir.path())
            .measure(load, |bytes| Ok(sum(bytes)))
            .unwrap();
        assert_eq!(sum(&before), measured_sum(&measured).wrapping_mul(2));
        // The system counts each processor's last pages late.
        let peak = measured.peak_rss;
        assert!((30 << 20..48 << 20).contains(&peak), "{peak}");
    }

    fn measured_sum(measured: &Measured) -> u64 {
        match measured.found {
            Found::Sum(sum) => sum,
            Found::FileLen(_) => panic!("a load has saved"),
        }
    }

    #[test]
    fn lengths_of_saved_files_may_differ_a_little() {
        assert!(Found::FileLen(1000).agrees_with(Found::FileLen(1008)));
        assert!(!Found::FileLen(1000).agrees_with(Found::FileLen(1100)));
        assert!(!Found::Sum(1000).agrees_with(Found::Sum(1001)));
    }
}
