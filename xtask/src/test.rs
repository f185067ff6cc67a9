//! `cargo xtask test`: all that has to hold before a change lands.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{command, counts, demo, libtorch};

type Step = (&'static str, fn() -> Result<()>);

/// In this order; each may need what the ones before it have set up.
const STEPS: [Step; 3] = [
    ("unit, integration and documentation tests", cargo_test),
    ("the demo", demo::run),
    ("instruction counts", counts::check),
];

pub(crate) fn run() -> Result<()> {
    for (at, (name, step)) in STEPS.iter().enumerate() {
        eprintln!("== {} of {}: {name}", at + 1, STEPS.len());
        let start = Instant::now();
        step().with_context(|| format!("{name} failed"))?;
        eprintln!("== {name}: done in {:.0?}", start.elapsed());
    }
    Ok(())
}

fn cargo_test() -> Result<()> {
    let mut test = command::cargo();
    test.args(["test", "--workspace", "--all-features"]);
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        test.env("RUST_BACKTRACE", "1");
    }
    libtorch::provide(&mut test)?;
    command::run(&mut test)
}
