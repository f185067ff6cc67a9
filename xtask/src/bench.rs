//! `cargo xtask bench`: builds and runs the benchmarks, a workspace of their own.

use anyhow::Result;

use crate::{command, minilm};

pub(crate) fn run(quick: bool, rows: &[String]) -> Result<()> {
    let mut benches = command::cargo();
    benches.args([
        "run",
        "--release",
        "--manifest-path",
        "benches/Cargo.toml",
        "--",
    ]);
    if quick {
        benches.arg("--quick");
    }
    if let Some(model) = minilm::WHEEL.cached()? {
        benches.arg("--minilm").arg(model);
    }
    benches.args(rows);
    command::run(&mut benches)
}
