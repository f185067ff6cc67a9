//! What a load and a save cost in memory, measured on a process that does nothing else.

use std::process::Command;

use st_format::Dtype;

use crate::file::{self, Tensor};
use crate::{Adapter, loader, saver};

const MIB: usize = 1 << 20;
const PATH: &str = "ST_CONFORMANCE_PATH";

/// The most memory a load ever has in use is that of the tensors.
///
/// The check starts the test's own program once more, to load in it; `test` is its name there.
pub fn peak_memory_is_the_tensors<A: Adapter>(test: &str) {
    if let Some(path) = std::env::var_os(PATH) {
        use_once::<A>();
        let before = peak();
        let loaded = loader::<A>().load(path);
        let used = peak() - before;
        drop(loaded.unwrap_or_else(|error| panic!("{error}")));
        println!("used {used} bytes");
        return;
    }
    let (used, needed) = measured(test);
    assert!(
        used >= needed,
        "{used} bytes for {needed}: the measure is wrong"
    );
    // What threads and pieces need does not depend on the size of the file.
    assert!(used <= needed + 4 * MIB, "{used} bytes for {needed}");
}

/// A save holds no second copy of the tensors, nor of any large one.
pub fn a_save_needs_next_to_no_memory<A: Adapter>(test: &str) {
    if let Some(path) = std::env::var_os(PATH) {
        use_once::<A>();
        let loaded = loader::<A>().load(&path);
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
        let before = peak();
        let saved = saver::<A>().save(path, &loaded);
        saved.unwrap_or_else(|error| panic!("{error}"));
        println!("used {} bytes", peak() - before);
        return;
    }
    let (used, needed) = measured(test);
    assert!(used <= 4 * MIB, "{used} bytes to save {needed}");
}

/// Has the framework load and save something small, so that its code is in memory: pages of
/// programs count as well.
fn use_once<A: Adapter>() {
    let dir = tempfile::tempdir().expect("cannot make a test directory");
    let tensors = [Dtype::U8, Dtype::F32].map(|dtype| Tensor::new(dtype.name(), dtype, &[8]));
    let path = file::write(dir.path(), "small.safetensors", &tensors);
    let loaded = loader::<A>().load(&path);
    let saved = loaded.and_then(|loaded| saver::<A>().save(&path, &loaded));
    saved.unwrap_or_else(|error| panic!("{error}"));
}

/// What the test used in a process of its own, and the bytes of the tensors it is given.
fn measured(test: &str) -> (usize, usize) {
    // One byte first, so that nothing is aligned; a large tensor; a run of small ones.
    let mut tensors = vec![Tensor::new("shift", Dtype::U8, &[1])];
    tensors.push(Tensor::new("large", Dtype::F32, &[12, MIB]));
    tensors.extend((0..64).map(|at| Tensor::new(&format!("{at}"), Dtype::F32, &[MIB / 32])));
    let needed: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let dir = tempfile::tempdir().expect("cannot make a test directory");
    let path = file::write(dir.path(), "model.safetensors", &tensors);

    let program = std::env::current_exe().expect("the test's own program");
    let child = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(PATH, path)
        .output()
        .expect("cannot start the test's own program");
    let output = String::from_utf8_lossy(&child.stdout);
    let used = output
        .split_once("used ")
        .and_then(|(_, rest)| rest.split_once(" bytes"));
    let used = used.and_then(|(used, _)| used.parse::<usize>().ok());
    let used = used.unwrap_or_else(|| panic!("no result: {child:?}"));
    (used, needed)
}

/// The most memory this process has ever had in use, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.expect("VmHWM in kB") * 1024
}
