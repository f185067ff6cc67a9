//! `cargo xtask counts`: how many instructions parsing a header and loading tensors take.
//!
//! Times vary from run to run; these counts repeat to a few hundredths of a percent. Counted is
//! what callgrind sees in the program itself (`benches/counts`), while it runs the function that
//! does the work, in a release build with one thread. What libc does is left out: its version is
//! the machine's, and so is the choice of its `memcpy`, by what the processor has.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};

use crate::command;
use crate::valgrind::Valgrind;

/// The package that is counted, and its program.
const PROGRAM: &str = "counts";

const EXPECTED: &str = "benches/counts/expected.txt";

const HEADER: &str = "\
# Instructions that each work of `counts` takes on x86-64 Linux.
# Written by `cargo xtask counts --renew`.
";

/// What is counted: an argument of the program, and the name of the function that it runs.
const WORKS: [&str; 2] = ["parse", "load"];

/// By how many percent a count may differ from what is expected. Compilers are not the same
/// everywhere; one line more in a loop over tensors is seen nevertheless.
const TOLERANCE: u64 = 3;

type Counts = BTreeMap<String, u64>;

/// Counts, and compares with what is expected. Where nothing can be counted, it says so.
pub(crate) fn check() -> Result<()> {
    if let Some(found) = count()? {
        let path = command::root().join(EXPECTED);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {EXPECTED}"))?;
        compare(&expected(&text)?, &found)?;
    }
    Ok(())
}

/// Counts, and writes down what is found as what is expected from now on.
pub(crate) fn renew() -> Result<()> {
    let found = count()?.context("nothing is renewed")?;
    let mut text = HEADER.to_owned();
    for (work, instructions) in &found {
        text += &format!("{work} {instructions}\n");
    }
    fs::write(command::root().join(EXPECTED), text)?;
    Ok(())
}

/// None where the machine, or what it lacks, does not allow it.
fn count() -> Result<Option<Counts>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        eprintln!("instructions are not counted: they are on x86-64 Linux only");
        return Ok(None);
    }
    let valgrind = match Valgrind::find() {
        Ok(valgrind) => valgrind,
        Err(error) => {
            eprintln!("instructions are not counted: {error:#}");
            return Ok(None);
        }
    };
    let mut found = Counts::new();
    for work in WORKS {
        let instructions = count_one(&valgrind, work)?;
        println!("{work}: {instructions} instructions");
        found.insert(work.to_owned(), instructions);
    }
    Ok(Some(found))
}

fn count_one(valgrind: &Valgrind, work: &str) -> Result<u64> {
    let profile = env::temp_dir().join(format!("counts-{work}-{}", process::id()));
    let mut counts = command::cargo();
    counts.args(["run", "--release", "-p", PROGRAM]);
    valgrind.run_by(
        &mut counts,
        &[
            "--quiet",
            "--tool=callgrind",
            "--compress-strings=no",
            &format!("--toggle-collect={PROGRAM}::{work}"),
            &format!("--callgrind-out-file={}", profile.display()),
        ],
    );
    let counted = command::run(counts.args(["--", work]))
        .and_then(|()| Ok(fs::read_to_string(&profile)?))
        .and_then(|profile| own_instructions(&profile));
    // There is none where nothing was counted.
    fs::remove_file(&profile).ok();
    let counted = counted?;
    ensure!(counted > 0, "valgrind has not found {PROGRAM}::{work}");
    Ok(counted)
}

/// The instructions in functions of the program itself, out of callgrind's profile.
fn own_instructions(profile: &str) -> Result<u64> {
    let mut total = 0;
    let mut own = false;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(object) = line.strip_prefix("ob=") {
            own = Path::new(object).ends_with(PROGRAM);
        } else if line.starts_with("calls=") {
            // The next line has what the function called took.
            lines.next();
        } else if own
            && line.starts_with(|start: char| "+-*".contains(start) || start.is_ascii_digit())
        {
            let count = line
                .split(' ')
                .nth(1)
                .context("a line of the profile has no count")?;
            total += count.parse::<u64>()?;
        }
    }
    Ok(total)
}

fn expected(text: &str) -> Result<Counts> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (work, count) = line.split_once(' ').context("no count")?;
            Ok((work.to_owned(), count.parse()?))
        })
        .collect::<Result<_>>()
        .with_context(|| format!("cannot read {EXPECTED}"))
}

fn compare(expected: &Counts, found: &Counts) -> Result<()> {
    let mut faults = Vec::new();
    for (work, &found) in found {
        let expected = *expected
            .get(work)
            .with_context(|| format!("{EXPECTED} has no {work}"))?;
        if found.abs_diff(expected) * 100 > expected * TOLERANCE {
            let percent = (found as f64 / expected as f64 - 1.0) * 100.0;
            faults.push(format!(
                "{work}: {expected} instructions expected, {found} found ({percent:+.1} %)"
            ));
        }
    }
    ensure!(
        faults.is_empty(),
        "{}; where this is meant, or comes with another compiler, `cargo xtask counts --renew`",
        faults.join("; ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_program_itself_does_is_counted() {
        let profile = "\
events: Ir
summary: 1111

ob=/lib/libc.so.6
fn=malloc
10 500
ob=/target/release/counts
fn=counts::parse
20 7
+1 30
cob=/lib/libc.so.6
cfn=malloc
calls=1 10
* 500
-1 4
";
        assert_eq!(own_instructions(profile).unwrap(), 41);
    }

    #[test]
    fn a_count_may_differ_by_the_tolerance_and_no_more() {
        let counts = |load| Counts::from([("load".to_owned(), load)]);
        for found in [970, 1000, 1030] {
            compare(&counts(1000), &counts(found)).unwrap();
        }
        for (found, percent) in [(969, "-3.1"), (1031, "+3.1")] {
            let error = compare(&counts(1000), &counts(found)).unwrap_err();
            let expected = format!("load: 1000 instructions expected, {found} found ({percent} %)");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn what_is_expected_is_read_line_by_line() {
        let text = format!("{HEADER}load 12\nparse 345\n");
        let counts = [("load".to_owned(), 12), ("parse".to_owned(), 345)];
        assert_eq!(expected(&text).unwrap(), Counts::from(counts));
        assert!(expected("load\n").is_err());
        assert!(expected("load many\n").is_err());
    }
}
