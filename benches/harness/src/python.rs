//! Peers that are written in Python: their sides are in `peers.py`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure::{Measured, Run};

const PEERS: &str = include_str!("peers.py");

impl Run<'_> {
    /// Lets one of the functions in `peers.py` measure, in a process of its own.
    pub fn measure_python(&self, side: &str, environment: &[(&str, &str)]) -> Result<Measured> {
        let packages = self.python.context("there are no packages for Python")?;
        let mut python = python(packages);
        python
            .arg(side)
            .arg(self.input)
            .arg(self.repeat.to_string());
        python.envs(environment.iter().copied());
        let line = output_of(&mut python)?;
        serde_json::from_slice(&line).context("what Python printed")
    }
}

/// The versions of what the peers are.
pub fn versions(packages: &Path) -> Result<String> {
    let line = output_of(python(packages).arg("versions"))?;
    Ok(String::from_utf8(line)?.trim().to_owned())
}

fn python(packages: &Path) -> Command {
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).args(["-c", PEERS]);
    // Where the libtorch of our side is; Python's torch has its own.
    python.env_remove("LD_LIBRARY_PATH");
    python
}

fn output_of(python: &mut Command) -> Result<Vec<u8>> {
    let output = python
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run python3")?;
    ensure!(output.status.success(), "Python: {}", output.status);
    Ok(output.stdout)
}
