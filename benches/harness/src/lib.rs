//! Loading with these libraries compared with others, and the table that says how.
//!
//! Each side of a row runs in a process of its own, several times, in turn with the others. What
//! it measures is the work alone, not the start of the process. Files are in the page cache.

pub mod input;
mod machine;
mod measure;
mod rounds;
mod row;
mod table;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;

pub use crate::machine::Packages;
pub use crate::measure::{Measured, Run, sum};
pub use crate::row::{Input, Peer, Row, Setup, Side};

/// Compares loading with other libraries, and prints a table of it in Markdown.
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
    /// Where inputs are written: a folder on a disk [default: that of this program]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Only rows whose name begins so
    rows: Vec<String>,
    /// In a process started for it: the one side that runs here
    #[arg(long, hide = true, requires = "input")]
    side: Option<usize>,
    /// The folder with that side's input
    #[arg(long, hide = true)]
    input: Option<PathBuf>,
}

/// The whole of a program that has these rows.
pub fn main(rows: &[&[Row]], packages: &Packages) -> Result<()> {
    let arguments = Arguments::parse();
    let rows: Vec<&Row> = rows
        .iter()
        .copied()
        .flatten()
        .filter(|row| arguments.wants(row.name))
        .collect();
    ensure!(!rows.is_empty(), "there is no such row");
    match (arguments.side, &arguments.input) {
        (Some(side), Some(input)) => rounds::run_side(rows[0], side, input),
        _ => compare(&rows, packages, &arguments),
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

fn compare(rows: &[&Row], packages: &Packages, arguments: &Arguments) -> Result<()> {
    let program = env::current_exe()?;
    let beside = program.parent().context("this program is in no folder")?;
    let dir: &Path = arguments.dir.as_deref().unwrap_or(beside);
    let filesystem = machine::filesystem(dir)?;
    ensure!(
        filesystem != "tmpfs",
        "{} is in memory, not on a disk: choose another --dir",
        dir.display()
    );
    let rounds = arguments
        .rounds
        .unwrap_or(if arguments.quick { 3 } else { 7 });
    println!("{}", table::head());
    for row in rows {
        eprintln!("{}: {}", row.name, row.work);
        let dir = tempfile::tempdir_in(dir)?;
        let setup = Setup {
            dir: dir.path(),
            quick: arguments.quick,
            minilm: arguments.minilm.as_deref(),
        };
        let input = (row.input)(&setup).with_context(|| format!("input of {}", row.name))?;
        let Some(input) = input else {
            eprintln!("{}: left out, its input is not there", row.name);
            continue;
        };
        let results = rounds::run(row, &input, rounds)?;
        for line in table::lines(row, &input, &results) {
            println!("{line}");
        }
    }
    println!("\n{}", table::notes(rounds, arguments.quick));
    println!("\n{}", machine::describe(&filesystem, packages));
    Ok(())
}
