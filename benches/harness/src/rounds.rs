//! Running sides in turn, a fresh process each.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use crate::measure::{Measured, median};
use crate::row::Cache;

/// A side that takes longer than this is run in the first round only.
pub const TOO_LONG: Duration = Duration::from_secs(10);

/// How sides are run.
pub struct Rounds<'a> {
    pub count: usize,
    pub python: Option<&'a Path>,
}

impl Rounds<'_> {
    /// The medians of each side of `name`, given its input; none for a side that failed, which
    /// the first may not.
    pub fn run(&self, name: &str, cache: Cache, inputs: &[&Path]) -> Result<Vec<Option<Measured>>> {
        let mut sides: Vec<_> = inputs.iter().map(|input| Runs::new(input)).collect();
        if let Cache::Warm = cache {
            inputs.iter().try_for_each(|input| warm_page_cache(input))?;
        }
        for round in 0..self.count {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let side = &mut sides[at];
                if side.failed || side.is_too_long() {
                    continue;
                }
                if let Cache::Cold = cache {
                    drop_from_page_cache(side.input)?;
                }
                match self.start_side(name, at, side.input) {
                    Ok(measured) => side.measured.push(measured),
                    Err(error) if at == 0 => return Err(error),
                    Err(error) => {
                        eprintln!("{name}: side {at} is left out: {error:#}");
                        side.failed = true;
                    }
                }
            }
        }
        for one in &sides {
            let others = sides.iter().filter(|other| other.input == one.input);
            let mut others = others.flat_map(|other| &other.measured);
            let same = one
                .measured
                .first()
                .is_none_or(|one| others.all(|other| one.found.agrees_with(other.found)));
            ensure!(same, "the sides have not done the same");
        }
        Ok(sides.iter().map(Runs::medians).collect())
    }

    fn start_side(&self, name: &str, side: usize, input: &Path) -> Result<Measured> {
        let mut process = Command::new(env::current_exe()?);
        process
            .arg(name)
            .args(["--side", &side.to_string()])
            .arg("--input")
            .arg(input)
            .stderr(Stdio::inherit());
        if let Some(python) = self.python {
            process.arg("--python").arg(python);
        }
        let output = process.output()?;
        ensure!(output.status.success(), "{}", output.status);
        serde_json::from_slice(&output.stdout).context("what it printed")
    }
}

/// What a side has measured so far.
struct Runs<'a> {
    input: &'a Path,
    measured: Vec<Measured>,
    failed: bool,
}

impl<'a> Runs<'a> {
    fn new(input: &'a Path) -> Runs<'a> {
        Runs {
            input,
            measured: Vec::new(),
            failed: false,
        }
    }

    fn is_too_long(&self) -> bool {
        let first = self.measured.first().map_or(0, |first| first.load_ns);
        Duration::from_nanos(first) > TOO_LONG
    }

    fn medians(&self) -> Option<Measured> {
        if self.failed {
            return None;
        }
        let of = |value: fn(&Measured) -> u64| median(self.measured.iter().map(value).collect());
        Some(Measured {
            load_ns: of(|measured| measured.load_ns),
            load_and_read_ns: of(|measured| measured.load_and_read_ns),
            found: self.measured.first()?.found,
            peak_rss: of(|measured| measured.peak_rss),
        })
    }
}

fn warm_page_cache(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let mut file = File::open(entry?.path())?;
        // Of a sparse file only its header is read.
        if !is_sparse(&file)? {
            io::copy(&mut file, &mut io::sink())?;
        }
    }
    Ok(())
}

/// What was written is on the disk already, so the system may drop all of it.
fn drop_from_page_cache(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let file = File::open(entry?.path())?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn is_sparse(file: &File) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok(metadata.blocks() * 512 < metadata.len())
}
