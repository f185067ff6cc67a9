//! valgrind, which counts instructions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};

use crate::{command, fetch};

pub(crate) struct Valgrind {
    program: String,
    /// Where its tools are, if it cannot know.
    tools: Option<PathBuf>,
}

impl Valgrind {
    /// That of the machine, or else Debian's package, unpacked into the cache: this needs neither
    /// root nor the libc6-dbg that the package depends on, for it is callgrind that runs.
    pub(crate) fn find() -> Result<Valgrind> {
        let installed = Command::new("valgrind").arg("--version").output();
        if installed.is_ok_and(|output| output.status.success()) {
            return Ok(Valgrind {
                program: "valgrind".to_owned(),
                tools: None,
            });
        }
        let package = fetch::folder("valgrind", download).context("there is no valgrind")?;
        Ok(Valgrind {
            program: package
                .join("usr/bin/valgrind")
                .into_os_string()
                .into_string()
                .map_err(|path| anyhow!("{} is not UTF-8", path.display()))?,
            tools: Some(package.join("usr/libexec/valgrind")),
        })
    }

    /// Lets cargo run what it builds in valgrind.
    pub(crate) fn run_by(&self, cargo: &mut Command, options: &[&str]) {
        let mut runner = vec![self.program.as_str()];
        runner.extend(options);
        // A list in Rust's notation is one in TOML's.
        cargo
            .arg("--config")
            .arg(format!("target.'cfg(all())'.runner = {runner:?}"));
        if let Some(tools) = &self.tools {
            cargo.env("VALGRIND_LIB", tools);
        }
    }
}

fn download(scratch: &Path, unpacked: &Path) -> Result<()> {
    // Lists of packages of its own: those of the machine may be missing, and are root's to renew.
    let state = scratch.join("state");
    let cache = scratch.join("cache");
    fs::create_dir_all(state.join("lists/partial"))?;
    fs::create_dir_all(cache.join("archives/partial"))?;
    let apt = |verb: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.current_dir(scratch)
            .stdout(Stdio::null())
            .args(["-qq", "-o", "APT::Sandbox::User="])
            .args(["-o", "Dir::State::status=/var/lib/dpkg/status"])
            .args(["-o", &format!("Dir::State={}", state.display())])
            .args(["-o", &format!("Dir::Cache={}", cache.display())])
            .args(verb);
        command::run(&mut apt)
    };
    apt(&["update"])?;
    apt(&["download", "valgrind"])?;
    let packages = fs::read_dir(scratch)?.collect::<Result<Vec<_>, _>>()?;
    let package = packages
        .iter()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|is| is == "deb"))
        .context("apt-get downloaded no package")?;
    let mut unpack = Command::new("dpkg");
    unpack.arg("-x").arg(package).arg(unpacked);
    command::run(&mut unpack)
}
