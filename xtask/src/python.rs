//! The packages of the peers that are written in Python.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::fetch;

/// torch brings 4 GB of CUDA with it, and does not start without.
const PACKAGES: [&str; 3] = ["safetensors==0.8.0", "numpy==2.4.6", "torch==2.13.0"];

/// A folder that python3 can import them from, fetched once.
pub(crate) fn packages() -> Result<PathBuf> {
    // What is in it is built for one version of Python.
    let python = version()?;
    fetch::folder(
        &format!("python-{python}-{}", PACKAGES.join("-")),
        |_, into| {
            eprintln!("installing {}", PACKAGES.join(", "));
            let mut install = fetch::pip();
            install
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .args(["--no-cache-dir", "--only-binary=:all:", "--target"])
                .arg(into)
                .args(PACKAGES);
            fetch::run_pip(
                &mut install,
                "pip cannot install them; is the machine offline?",
            )
        },
    )
}

fn version() -> Result<String> {
    let output = Command::new("python3")
        .args([
            "-c",
            "import sys; print(*sys.version_info[:2], sep='.', end='')",
        ])
        .output()
        .context("cannot run python3")?;
    ensure!(output.status.success(), "python3: {}", output.status);
    String::from_utf8(output.stdout).context("python3 has no version")
}
