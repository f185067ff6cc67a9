//! What a load costs in memory, measured on a process that does nothing else.

#![cfg(target_os = "linux")]

use std::process::Command;

use st_conformance::file::{self, Tensor};
use st_format::Dtype;
use st_tch::load_into_tch;
use tch::Device;

const MIB: usize = 1 << 20;
const PATH: &str = "PATH_TO_LOAD";

/// The most memory this process has ever had in use, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() * 1024
}

#[test]
fn peak_memory_is_the_tensors() {
    if let Some(path) = std::env::var_os(PATH) {
        let before = peak();
        let _tensors = load_into_tch(path, Device::Cpu).unwrap();
        println!("used {} bytes", peak() - before);
        return;
    }
    // One byte first, so that nothing is aligned; a large tensor; a run of small ones.
    let mut tensors = vec![Tensor::new("shift", Dtype::U8, &[1])];
    tensors.push(Tensor::new("large", Dtype::F32, &[12, MIB]));
    tensors.extend((0..64).map(|at| Tensor::new(&format!("{at}"), Dtype::F32, &[MIB / 32])));
    let needed: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let dir = tempfile::tempdir().unwrap();
    let path = file::write(dir.path(), "model.safetensors", &tensors);

    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "peak_memory_is_the_tensors", "--nocapture"])
        .env(PATH, path)
        .output()
        .unwrap();
    let output = String::from_utf8(child.stdout).unwrap();
    let used = output
        .split_once("used ")
        .and_then(|(_, rest)| rest.split_once(" bytes"));
    let used: usize = used
        .unwrap_or_else(|| panic!("{output}"))
        .0
        .parse()
        .unwrap();
    assert!(
        used >= needed,
        "{used} bytes for {needed}: the measure is wrong"
    );
    // What threads and pieces need does not depend on the size of the file.
    assert!(used <= needed + 4 * MIB, "{used} bytes for {needed}");
}
