//! What `copy` makes of a checkpoint, and its exit status.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use st_format::{Checkpoint, Dtype, Raw, Saver};

use crate::files::{SMALL, SMALL_DATA, damage, small_tensors, write_file, write_sharded};
use crate::run::{args, run};

fn save(path: &Path, saver: Saver<Raw>) -> PathBuf {
    saver.save(path, small_tensors()).unwrap();
    path.to_owned()
}

/// The names in a directory, sorted, hidden ones included.
fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn assert_same_tensors(path: &Path) {
    let checkpoint = Checkpoint::open(path).unwrap();
    for (name, tensor) in small_tensors() {
        let info = checkpoint.info(name).unwrap();
        assert_eq!(
            (info.dtype(), info.shape()),
            (tensor.dtype(), tensor.shape())
        );
        assert_eq!(checkpoint.read(name).unwrap(), tensor.data());
    }
    assert_eq!(checkpoint.len(), small_tensors().len());
}

#[test]
fn a_file() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(
        &dir.path().join("from.safetensors"),
        Saver::new().metadata("format", "pt"),
    );
    let to = dir.path().join("to.safetensors");
    let shown = run(args!["copy", &from, &to]).fine();
    assert_eq!(shown, format!("{}\n40 bytes of tensors\n", to.display()));
    assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
    assert_eq!(names_in(dir.path()), ["from.safetensors", "to.safetensors"]);
}

#[test]
fn into_shards_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(&dir.path().join("from.safetensors"), Saver::new());
    let shards = dir.path().join("shards");
    let shown = run(args!["copy", &from, &shards, "--max-shard-size", "32B"]).fine();
    let names = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ];
    let mut expected = names
        .map(|name| format!("{}\n", shards.join(name).display()))
        .concat();
    expected += "40 bytes of tensors\n";
    assert_eq!(shown, expected);
    assert_eq!(names_in(&shards), names);
    assert_same_tensors(&shards);

    let merged = dir.path().join("merged.safetensors");
    run(args!["copy", &shards, &merged]).fine();
    assert_eq!(fs::read(&from).unwrap(), fs::read(&merged).unwrap());
}

#[test]
fn onto_itself() {
    let dir = tempfile::tempdir().unwrap();
    save(&dir.path().join("model.safetensors"), Saver::new());
    let split = args!["copy", dir.path(), dir.path(), "--max-shard-size", "8"];
    run(split).fine();
    assert_eq!(names_in(dir.path()).len(), 4);
    assert_same_tensors(dir.path());

    run(args!["copy", dir.path(), dir.path()]).fine();
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);
    assert_same_tensors(dir.path());
}

#[test]
fn cast() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(&dir.path().join("from.safetensors"), Saver::new());
    let to = dir.path().join("to.safetensors");
    for dtype in ["BF16", "bf16"] {
        let shown = run(args!["copy", &from, &to, "--cast-floats", dtype]).fine();
        assert!(shown.ends_with("\n24 bytes of tensors\n"), "{shown}");
        let copy = Checkpoint::open(&to).unwrap();
        assert_eq!(copy.info("h.0.bias").unwrap().dtype(), Dtype::BF16);
        assert_eq!(copy.read("h.0.bias").unwrap(), [64, 64, 0, 0]);
        assert_eq!(copy.info("steps").unwrap().dtype(), Dtype::I64);
    }
}

#[test]
fn metadata_of_any_characters() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(
        &dir.path().join("from.safetensors"),
        Saver::new()
            .metadata("format", "pt")
            .metadata("kept", "yes"),
    );
    let to = dir.path().join("to.safetensors");
    run(args![
        "copy",
        &from,
        &to,
        "--metadata",
        "a=b",
        "--c=d",
        "--metadata",
        "format",
        "",
        "--durable",
    ])
    .fine();
    let copy = Checkpoint::open(&to).unwrap();
    let metadata: Vec<_> = copy.metadata().into_iter().collect();
    assert_eq!(
        metadata,
        [("a=b", "--c=d"), ("format", ""), ("kept", "yes")]
    );
}

#[test]
fn layout_options() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(&dir.path().join("from.safetensors"), Saver::new());
    let to = dir.path().join("to.safetensors");
    let data_start = || {
        Checkpoint::open(&to).unwrap().shards()[0]
            .header()
            .data_start()
    };
    run(args!["copy", &from, &to, "--align", "4096"]).fine();
    assert_eq!(data_start(), 4096);
    run(args!["copy", &from, &to, "--reserve", "5000"]).fine();
    assert!(data_start() > 5000, "{}", data_start());
    assert_same_tensors(&to);
}

#[test]
fn checksums_are_recorded_and_kept_up() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(&dir.path().join("from.safetensors"), Saver::new());
    let (with, cast) = (dir.path().join("with"), dir.path().join("cast"));
    run(args!["copy", &from, &with, "--checksums"]).fine();
    run(args!["verify", "--checksums", &with]).fine();
    run(args!["copy", &with, &cast, "--cast-floats", "F16"]).fine();
    run(args!["verify", "--checksums", &cast]).fine();

    damage(&with, "steps");
    let before = fs::read(&cast).unwrap();
    let shown = run(args!["copy", &with, &cast]);
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(1), ""));
    let start = format!(
        "error: {}: tensor \"steps\": its SHA-256 is",
        with.display()
    );
    assert!(shown.stderr.starts_with(&start), "{}", shown.stderr);
    assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
    assert_eq!(fs::read(&cast).unwrap(), before);
    assert_eq!(names_in(dir.path()), ["cast", "from.safetensors", "with"]);
}

#[test]
fn aliases_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from.safetensors");
    let header = r#"{"__metadata__":{"head":"embedding"},
        "embedding":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    write_file(&from, header, 1);
    let to = dir.path().join("to.safetensors");
    run(args!["copy", &from, &to]).fine();
    let copy = Checkpoint::open(&to).unwrap();
    assert_eq!(copy.resolve("head"), "embedding");
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(&dir.path().join("from.safetensors"), Saver::new());
    let broken = dir.path().join("broken");
    write_file(&broken, SMALL, SMALL_DATA - 1);
    let fp4 = write_file(
        &dir.path().join("fp4"),
        r#"{"blocks":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#,
        1,
    );
    let (to, missing) = (dir.path().join("to"), dir.path().join("missing"));
    fs::write(&to, "what was there").unwrap();
    let copy = |from: &Path, to: &Path, options: &[&str]| {
        let paths = ["copy".as_ref(), from.as_os_str(), to.as_os_str()];
        run(paths.into_iter().chain(options.iter().map(OsStr::new)))
    };
    for (shown, code, says) in [
        (copy(&broken, &to, &[]), 1, "1 missing"),
        (copy(&missing, &to, &[]), 2, "missing"),
        (copy(&from, &missing.join("to"), &[]), 2, "cannot create"),
        (copy(&from, &to, &["--align", "3"]), 2, "no power of 2"),
        (
            copy(&from, &to, &["--reserve", "100000000"]),
            2,
            "100000000",
        ),
        (
            copy(&fp4, &to, &["--cast-floats", "BF16"]),
            2,
            "tensor \"blocks\": there is no cast",
        ),
    ] {
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(code), ""));
        assert!(shown.stderr.starts_with("error: "), "{}", shown.stderr);
        assert!(shown.stderr.contains(says), "{}", shown.stderr);
        assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
    }
    assert_eq!(fs::read(&to).unwrap(), b"what was there");
    let names = ["broken", "fp4", "from.safetensors", "to"];
    assert_eq!(names_in(dir.path()), names);
}

#[test]
fn a_directory_of_several_files_is_no_target() {
    let dir = tempfile::tempdir().unwrap();
    let from = save(&dir.path().join("a.safetensors"), Saver::new());
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    write_sharded(&full);
    fs::remove_file(full.join("model.safetensors.index.json")).unwrap();
    let shown = run(args!["copy", &from, &full]);
    assert_eq!(shown.code, Some(2));
    assert!(
        shown.stderr.contains("one.safetensors, two.safetensors"),
        "{}",
        shown.stderr
    );
    assert_eq!(names_in(&full), ["one.safetensors", "two.safetensors"]);
}
