//! The `safetensors` command: looks into checkpoints, checks, copies and edits them.
//!
//! All it does is st-format's doing; what it knows beyond that library is how to show things to a
//! person (text) and to a program (`--json`).
#![forbid(unsafe_code)]

mod args;
mod copy;
mod edit;
mod escape;
mod inspect;
mod json;
mod output;
mod progress;
mod table;
mod units;
mod verdict;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use verdict::Verdict;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = output::stdout();
    match run(&cli, &mut out) {
        Ok(verdict) => verdict.into(),
        Err(error) => {
            output::complain(&format!("cannot write the output: {error}"));
            Verdict::Unseen.into()
        }
    }
}

fn run(cli: &Cli, out: &mut impl Write) -> io::Result<Verdict> {
    let verdict = match &cli.command {
        Command::Inspect(args) => inspect::run(args, out)?,
        Command::Verify(args) => verify::run(args, out)?,
        Command::Copy(args) => copy::run(args, out)?,
        Command::Edit(args) => edit::run(args, out)?,
    };
    out.flush()?;
    Ok(verdict)
}
