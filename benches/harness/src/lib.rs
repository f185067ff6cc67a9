//! Loading with these libraries compared with others, and the tables that say how.
//!
//! Each side of a row runs in a process of its own, several times, in turn with the others. What
//! it measures is the work alone, not the start of the process. Files are in the page cache,
//! unless a series says otherwise.

pub mod input;
mod machine;
mod measure;
mod python;
mod rounds;
mod row;
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;

pub use crate::machine::Packages;
pub use crate::measure::{Found, Measured, Run, sum, sum_of_all, sum_of_pages};
use crate::rounds::Rounds;
pub use crate::row::{Cache, Case, Input, Peer, Per, Row, Series, Setup, Side, Timed};

/// Compares loading with other libraries, and prints tables of it in Markdown.
#[derive(Parser)]
struct Arguments {
    /// Smaller inputs and fewer rounds: to see that it works, not to publish
    #[arg(long)]
    quick: bool,
    /// How often each side runs [default: 7, or 3 if quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// The folder with the files of all-MiniLM-L6-v2; rows that need it are left out otherwise
    #[arg(long)]
    minilm: Option<PathBuf>,
    /// The folder with numpy, torch and safetensors for Python; peers that are written in it are
    /// left out otherwise
    #[arg(long)]
    python: Option<PathBuf>,
    /// Where inputs are written: a folder on a disk [default: that of this program]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Prints no notes on how the tables are to be read
    #[arg(long)]
    no_notes: bool,
    /// Only rows and series whose name begins so
    rows: Vec<String>,
    /// In a process started for it: the one side that runs here
    #[arg(long, hide = true, requires = "input")]
    side: Option<usize>,
    /// The folder with that side's input
    #[arg(long, hide = true)]
    input: Option<PathBuf>,
}

/// The whole of a program that has these rows and series.
pub fn main(rows: &[&[Row]], series: &[Series], packages: &Packages) -> Result<()> {
    let arguments = Arguments::parse();
    let rows = rows.iter().copied().flatten();
    let rows: Vec<&Row> = rows.filter(|row| arguments.wants(row.name)).collect();
    let series = series.iter();
    let series: Vec<&Series> = series.filter(|one| arguments.wants(one.name)).collect();
    ensure!(
        !rows.is_empty() || !series.is_empty(),
        "there is no such row"
    );
    match (arguments.side, &arguments.input) {
        (Some(side), Some(input)) => run_side(&rows, &series, side, input, &arguments),
        _ => compare(&rows, &series, packages, &arguments),
    }
}

impl Arguments {
    fn wants(&self, row: &str) -> bool {
        let mut names = self.rows.iter();
        match self.side {
            Some(_) => names.any(|name| row == name),
            None => names.len() == 0 || names.any(|name| row.starts_with(name.as_str())),
        }
    }
}

/// Runs one side of the one row or series in this process, and prints what it measured.
fn run_side(
    rows: &[&Row],
    series: &[&Series],
    side: usize,
    input: &Path,
    arguments: &Arguments,
) -> Result<()> {
    let of_rows = rows
        .iter()
        .flat_map(|row| row.sides().into_iter().map(|side| (side, row.repeat)));
    let of_series = series.iter().flat_map(|series| {
        let cases = series.cases.iter();
        cases.map(|case| ((case.side, 0), series.repeat))
    });
    let mut sides = of_rows.chain(of_series);
    let ((run, threads), repeat) = sides.nth(side).context("there is no such side")?;
    let measured = run(&Run {
        input,
        threads,
        repeat,
        python: arguments.python.as_deref(),
    })?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn compare(
    rows: &[&Row],
    series: &[&Series],
    packages: &Packages,
    arguments: &Arguments,
) -> Result<()> {
    let program = env::current_exe()?;
    let beside = program.parent().context("this program is in no folder")?;
    let dir: &Path = arguments.dir.as_deref().unwrap_or(beside);
    let filesystem = machine::filesystem(dir)?;
    ensure!(
        filesystem != "tmpfs",
        "{} is in memory, not on a disk: choose another --dir",
        dir.display()
    );
    let python = arguments.python.as_deref();
    // Before anything is measured, so that what is wrong with Python shows once.
    let versions = machine::versions(packages, python);
    let rounds = Rounds {
        count: arguments
            .rounds
            .unwrap_or(if arguments.quick { 3 } else { 7 }),
        python,
    };
    let mut failed = Vec::new();
    // One that fails does not end the others.
    let mut print =
        |name: &'static str, work: &str, lines: &dyn Fn(&Setup) -> Result<Vec<String>>| {
            eprintln!("{name}: {work}");
            let start = Instant::now();
            let lines = tempfile::tempdir_in(dir)
                .map_err(Into::into)
                .and_then(|dir| {
                    lines(&Setup {
                        dir: dir.path(),
                        quick: arguments.quick,
                        minilm: arguments.minilm.as_deref(),
                    })
                });
            match lines {
                Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
                Err(error) => {
                    eprintln!("{name}: failed: {error:#}");
                    failed.push(name);
                }
            }
            eprintln!("{name}: took {:.0?}", start.elapsed());
        };
    if !rows.is_empty() {
        println!("{}", table::head_of_rows());
    }
    for row in rows {
        print(row.name, row.work, &|setup| {
            lines_of_row(row, setup, &rounds)
        });
    }
    if !series.is_empty() {
        println!("\n{}", table::head_of_series());
    }
    for series in series {
        print(series.name, series.work, &|setup| {
            lines_of_series(series, setup, &rounds)
        });
    }
    println!("\n{versions}");
    if !arguments.no_notes {
        println!("\n## Method and machine");
        println!("\n{}", table::notes(rounds.count, arguments.quick));
        println!("\n{}", machine::describe(&filesystem));
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn lines_of_row(row: &Row, setup: &Setup, rounds: &Rounds) -> Result<Vec<String>> {
    let Some(input) = (row.input)(setup).context("making its input")? else {
        eprintln!("{}: left out, its input is not there", row.name);
        return Ok(Vec::new());
    };
    let inputs: Vec<&Path> = row.sides().iter().map(|_| &*input.dir).collect();
    let results = rounds.run(row.name, Cache::Warm, &inputs)?;
    Ok(table::lines_of_row(row, &input, &results))
}

fn lines_of_series(series: &Series, setup: &Setup, rounds: &Rounds) -> Result<Vec<String>> {
    let inputs = (series.inputs)(setup).context("making its inputs")?;
    let dirs: Vec<&Path> = inputs.iter().map(|input| &*input.dir).collect();
    let results = rounds.run(series.name, series.cache, &dirs)?;
    Ok(table::lines_of_series(series, &inputs, &results))
}
