//! What the table was measured on.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use crate::python;

/// The packages whose versions are of interest, and the Cargo.lock that says them.
pub struct Packages {
    pub names: &'static [&'static str],
    pub lock: &'static str,
}

/// The type of the file system that a folder is on.
pub fn filesystem(folder: &Path) -> Result<String> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("{}", folder.display()))?;
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    // The last of those that lie deepest is the one that shows.
    let (_, filesystem) = mounts
        .filter(|(mount, _)| folder.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .context("no file system holds the folder")?;
    Ok(filesystem.to_owned())
}

/// Those of the libraries that are compared.
pub fn versions(packages: &Packages, python: Option<&Path>) -> String {
    let names = packages.names.iter();
    let mut versions: Vec<String> = names
        .map(|name| format!("{name} {}", locked_version(name, packages.lock)))
        .collect();
    versions.push(match python.map(python::versions) {
        Some(Ok(versions)) => versions,
        Some(Err(error)) => format!("no Python ({error:#})"),
        None => "no Python".to_owned(),
    });
    format!("{}.", versions.join(", "))
}

pub fn describe(filesystem: &str) -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let cpu = field("/proc/cpuinfo", "model name");
    let memory = field("/proc/meminfo", "MemTotal");
    let kernel = line("/proc/sys/kernel/osrelease");
    let huge_pages = line("/sys/kernel/mm/transparent_hugepage/enabled");
    format!(
        "{cores} cores, {cpu}, {memory} of memory, transparent huge pages {huge_pages}, \
         Linux {kernel}, {filesystem}, {}.",
        rustc()
    )
}

fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let value = fields.find(|(other, _)| other.trim() == name);
    value.map_or(String::new(), |(_, value)| value.trim().to_owned())
}

fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn locked_version<'a>(name: &str, lock: &'a str) -> &'a str {
    let mut lines = lock.lines();
    let wanted = format!("name = \"{name}\"");
    lines.find(|line| *line == wanted);
    let version = lines.next().and_then(|line| line.split('"').nth(1));
    version.unwrap_or("?")
}
