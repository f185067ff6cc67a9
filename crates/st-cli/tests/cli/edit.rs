//! What `edit` changes, and its exit status.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use st_format::{Checkpoint, Raw, Saver};

use crate::files::{SMALL, SMALL_DATA, small_tensors, write_file, write_sharded};
use crate::run::{args, run};

/// With metadata, checksums, and room for so many bytes in the header.
fn save(dir: &Path, room: usize) -> PathBuf {
    let path = dir.join("m.safetensors");
    let saver = Saver::<Raw>::new().metadata("format", "pt").checksums();
    let saver = saver.reserve_header(room);
    saver.save(&path, small_tensors()).unwrap();
    path
}

fn metadata(path: &Path) -> Vec<(String, String)> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let metadata = checkpoint.metadata().into_iter();
    let metadata = metadata.filter(|(key, _)| !key.starts_with("sha256:"));
    metadata
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn entry(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), 200);
    let len = fs::metadata(&path).unwrap().len();
    let shown = run(args![
        "edit",
        &path,
        "--set",
        "a=b",
        "c=d",
        "--set",
        "--empty",
        "",
        "--remove",
        "format",
        "--durable",
    ])
    .fine();
    assert_eq!(shown, format!("{}: changed in place\n", path.display()));
    assert_eq!(metadata(&path), [entry("--empty", ""), entry("a=b", "c=d")]);
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
    run(args!["verify", "--checksums", &path]).fine();
}

#[test]
fn rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), 0);
    let long = "x".repeat(1000);
    let shown = run(args!["edit", &path, "--set", "note", &long]).fine();
    let start = format!("{}: rewritten, ", path.display());
    assert!(shown.starts_with(&start), "{shown}");
    assert_eq!(
        metadata(&path),
        [entry("format", "pt"), entry("note", &long)]
    );
    run(args!["verify", "--checksums", &path]).fine();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_is_removed_can_be_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), 0);
    run(args![
        "edit", &path, "--set", "format", "np", "--remove", "format"
    ])
    .fine();
    assert_eq!(metadata(&path), [entry("format", "np")]);
}

#[test]
fn names_are_changed_and_exchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), 100);
    let [(weight, tensor), (bias, _), (steps, _)] = small_tensors();
    run(args![
        "edit", &path, "--rename", weight, "a=b", "--rename", bias, steps, "--rename", steps, bias,
    ])
    .fine();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.read("a=b").unwrap(), tensor.data());
    assert_eq!(checkpoint.info(steps).unwrap().shape(), [2]);
    assert_eq!(checkpoint.info(bias).unwrap().shape(), [1]);
    assert_eq!(checkpoint.len(), 3);
    run(args!["verify", "--checksums", &path]).fine();
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), 100);
    let before = fs::read(&path).unwrap();
    let edit = |changes: &[&str]| {
        let command = ["edit".as_ref(), path.as_os_str()].into_iter();
        run(command.chain(changes.iter().map(OsStr::new)))
    };
    for (shown, says) in [
        (
            edit(&["--remove", "format", "--remove", "fromat"]),
            "there is no metadata \"fromat\"",
        ),
        (
            edit(&["--set", "a", "b", "--rename", "steps", "h.0.bias"]),
            "two tensors would have this name",
        ),
        (
            edit(&["--set", "a", "b", "--rename", "step", "s"]),
            "tensor \"step\": no such tensor",
        ),
    ] {
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(2), ""));
        let start = format!("error: {}: ", path.display());
        assert!(shown.stderr.starts_with(&start), "{}", shown.stderr);
        assert!(shown.stderr.contains(says), "{}", shown.stderr);
        assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn files_that_cannot_be_edited() {
    let dir = tempfile::tempdir().unwrap();
    let broken = write_file(&dir.path().join("broken"), SMALL, SMALL_DATA - 1);
    write_sharded(dir.path());
    let index = dir.path().join("model.safetensors.index.json");
    let missing = dir.path().join("missing");
    for (path, code) in [
        (broken.as_path(), 1),
        (index.as_path(), 1),
        (missing.as_path(), 2),
        (dir.path(), 1),
    ] {
        let shown = run(args!["edit", path, "--set", "key", "value"]);
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(code), ""));
        let start = format!("error: {}: ", path.display());
        assert!(shown.stderr.starts_with(&start), "{}", shown.stderr);
        assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
    }
}
