//! Running the sides of a row in turn, a fresh process each.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::measure::{Measured, Run, median};
use crate::row::{Input, Row, Side};

/// A side that takes longer than this is run in the first round only.
pub const TOO_LONG: Duration = Duration::from_secs(10);

/// Medians over all rounds.
pub struct Results {
    pub ours: Measured,
    pub ours_one_thread: Option<Measured>,
    pub peers: Vec<Measured>,
}

pub fn run(row: &Row, input: &Input, rounds: usize) -> Result<Results> {
    warm_page_cache(&input.dir)?;
    let sides = sides(row);
    let mut measured: Vec<Vec<Measured>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let before = measured[side].first().map_or(0, |first| first.load_ns);
            if Duration::from_nanos(before) <= TOO_LONG {
                measured[side].push(start_side(row, side, &input.dir)?);
            }
        }
    }
    let first = &measured[0][0];
    let same = measured
        .iter()
        .flatten()
        .all(|other| other.sum == first.sum);
    ensure!(same, "{}: the sides have not read the same", row.name);
    let mut medians = measured.iter().map(|side| median_of(side));
    let mut next = || medians.next().context("a side without a result");
    let ours = next()?;
    let ours_one_thread = if row.has_threads { Some(next()?) } else { None };
    Ok(Results {
        ours,
        ours_one_thread,
        peers: medians.collect(),
    })
}

/// Runs one side in this process and prints what it measured.
pub fn run_side(row: &Row, side: usize, input: &Path) -> Result<()> {
    let (run, threads) = *sides(row).get(side).context("there is no such side")?;
    let measured = run(&Run {
        input,
        threads,
        repeat: row.repeat,
    })?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Ours, ours with one thread, and the others, each with its number of threads.
fn sides(row: &Row) -> Vec<(Side, usize)> {
    let mut sides = vec![(row.ours, 0)];
    if row.has_threads {
        sides.push((row.ours, 1));
    }
    sides.extend(row.peers.iter().map(|peer| (peer.side, 0)));
    sides
}

fn start_side(row: &Row, side: usize, input: &Path) -> Result<Measured> {
    let output = Command::new(env::current_exe()?)
        .arg(row.name)
        .args(["--side", &side.to_string()])
        .arg("--input")
        .arg(input)
        .stderr(Stdio::inherit())
        .output()?;
    let status = output.status;
    ensure!(status.success(), "{}, side {side}: {status}", row.name);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}, side {side}: what it printed", row.name))
}

fn median_of(measured: &[Measured]) -> Measured {
    let of = |value: fn(&Measured) -> u64| median(measured.iter().map(value).collect());
    Measured {
        load_ns: of(|measured| measured.load_ns),
        load_and_read_ns: of(|measured| measured.load_and_read_ns),
        sum: of(|measured| measured.sum),
        peak_rss: of(|measured| measured.peak_rss),
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

fn is_sparse(file: &File) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok(metadata.blocks() * 512 < metadata.len())
}
