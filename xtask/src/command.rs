//! Running other programs: each is shown before it runs, and has to succeed.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The cargo that runs this task, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let status = command
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// Runs a command to its end, and hands on each line that it prints.
pub(crate) fn run_for_lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<()> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let mut running = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    if let Some(output) = running.stdout.take() {
        for line in BufReader::new(output).lines() {
            each(&line?);
        }
    }
    let status = running.wait()?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
