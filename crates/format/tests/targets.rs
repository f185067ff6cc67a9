//! Where a file may be saved to, and what becomes of what is there.

#![cfg(unix)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use common::saved::{assert_holds, assert_is, names_in, saver, snapshot, views};
use common::{Dir, Tensor, child, rejected};
use st_format::{Checkpoint, ErrorKind, Layout, Writer};

fn tensors(generation: u8) -> Vec<Tensor> {
    ["a", "b", "c"]
        .map(|name| Tensor::new(name, st_format::Dtype::U8, &[100], vec![generation; 100]))
        .to_vec()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn who_reads_or_maps_the_old_file_keeps_it() {
    let dir = Dir::new();
    for limit in [u64::MAX, 100] {
        let path = dir.join(limit.to_string());
        let saver = saver().max_shard_size(limit);
        saver.save(&path, views(&tensors(1))).unwrap();
        let open = Checkpoint::open(&path).unwrap();
        // SAFETY: saves replace files, and nothing else touches them.
        let mapped = unsafe { Checkpoint::map(&path) }.unwrap();
        let bytes = mapped.bytes("a").unwrap().unwrap();
        for generation in 2..4 {
            saver.save(&path, views(&tensors(generation))).unwrap();
            assert_is(&open, &tensors(1));
            assert_is(&mapped, &tensors(1));
            assert_eq!(*bytes, [1; 100]);
            assert_holds(&path, &tensors(generation));
        }
        // From the map, over the file that is mapped.
        saver.save_checkpoint(&path, &mapped).unwrap();
        assert_holds(&path, &tensors(1));
    }
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    saver().save(&path, views(&tensors(0))).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for generation in 1..=200 {
                saver().save(&path, views(&tensors(generation))).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let checkpoint = Checkpoint::open(&path).unwrap();
            let generation = checkpoint.read("b").unwrap()[7];
            assert_is(&checkpoint, &tensors(generation));
            assert!(generation >= last);
            last = generation;
        }
    });
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);
}

/// In shards, in one file, and from one to the other.
#[test]
fn a_reader_sees_the_old_checkpoint_or_the_new_one() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let dir = Dir::new();
    let save = |generation: u8| {
        let limit = match generation % 4 {
            0 => u64::MAX,
            _ => 100,
        };
        let saver = saver().max_shard_size(limit);
        saver.save(dir.path(), views(&tensors(generation))).unwrap();
    };
    save(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..=200).for_each(save);
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            match Checkpoint::open(dir.path()) {
                Ok(checkpoint) => {
                    let generation = checkpoint.read("b").unwrap()[7];
                    assert_is(&checkpoint, &tensors(generation));
                }
                // Which may be where one save comes right after the other.
                Err(error) => assert!(error.to_string().contains("again and again"), "{error}"),
            }
        }
    });
}

#[test]
fn an_index_of_another_name_is_not_replaced_by_tensors() {
    let dir = Dir::new();
    saver()
        .max_shard_size(100)
        .save(dir.path(), views(&tensors(1)))
        .unwrap();
    let index = dir.join("weights.json");
    fs::rename(dir.join("model.safetensors.index.json"), &index).unwrap();
    let before = names_in(dir.path());
    for saver in [saver(), saver().max_shard_size(100)] {
        let error = saver.save_checkpoint(&index, &Checkpoint::open(&index).unwrap());
        let error = error.unwrap_err();
        assert_eq!(
            (error.kind(), error.path()),
            (ErrorKind::InvalidRequest, Some(&*index))
        );
        assert_eq!(names_in(dir.path()), before);
        assert_is(&Checkpoint::open(&index).unwrap(), &tensors(1));
    }
}

#[test]
fn a_path_that_no_file_can_have_is_refused_before_anything_is_written() {
    let dir = Dir::new();
    for path in [dir.join("none/"), Path::new("").to_owned()] {
        let error = saver().save(&path, views(&tensors(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert_eq!(error.path(), Some(&*path));
        assert!(names_in(dir.path()).is_empty());
    }
}

#[test]
fn permissions_are_those_of_the_old_file_or_the_umask() {
    const TEST: &str = "permissions_are_those_of_the_old_file_or_the_umask";
    if let Some(dir) = child::task() {
        let dir = Path::new(&dir);
        let plain = dir.join("plain");
        fs::write(&plain, "").unwrap();
        for shards in [u64::MAX, 100] {
            let new = dir.join(format!("new {shards}"));
            let report = saver()
                .max_shard_size(shards)
                .save(&new, views(&tensors(1)));
            for file in report.unwrap().files {
                assert_eq!(mode(&file), mode(&plain), "{file:?}");
            }
        }
        for permissions in [0o600, 0o640, 0o444, 0o666, 0o755] {
            let path = dir.join(format!("{permissions:o}.safetensors"));
            saver().save(&path, views(&tensors(1))).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(permissions)).unwrap();
            saver().save(&path, views(&tensors(2))).unwrap();
            assert_eq!(mode(&path), permissions);
        }
        return;
    }
    for umask in ["0000", "0022", "0027", "0077"] {
        let dir = Dir::new();
        let script = format!("umask {umask}; exec \"$@\"");
        let output = child::by_script(&[], &script, TEST, dir.path()).output();
        child::assert_passed(&output.unwrap());
    }
}

/// The temporary file is never open to more than the old one is.
#[test]
fn a_private_file_is_private_from_the_start() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    saver().save(&path, views(&tensors(1))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut layout = Layout::new();
    layout.tensor("a", st_format::Dtype::U8, &[1]).unwrap();
    let writer = Writer::create(&path, layout).unwrap();
    let temporary = names_in(dir.path());
    assert_eq!(temporary.len(), 2);
    assert_eq!(mode(&dir.join(&temporary[0])), 0o600);
    drop(writer);
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);
}

/// What links lead to is replaced, however many there are; the links stay.
#[test]
fn links_to_a_file_stay() {
    let dir = Dir::new();
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    for (at, exists) in [(0, true), (1, false)] {
        let file = dir.join(format!("deep/er/{at}.safetensors"));
        if exists {
            saver().save(&file, views(&tensors(1))).unwrap();
        }
        // Relative to where each of them is.
        let first = dir.join(format!("first {at}"));
        let second = dir.join(format!("deep/second {at}"));
        symlink(format!("deep/second {at}"), &first).unwrap();
        symlink(format!("../deep/er/{at}.safetensors"), &second).unwrap();
        saver().save(&first, views(&tensors(2))).unwrap();
        assert!(fs::symlink_metadata(&first).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&second).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert_holds(&file, &tensors(2));
        assert_holds(&first, &tensors(2));
    }
    assert_eq!(
        names_in(&dir.join("deep/er")),
        ["0.safetensors", "1.safetensors"]
    );
}

#[test]
fn links_that_lead_nowhere_are_errors() {
    let dir = Dir::new();
    for (name, target) in [
        ("loop", "loop"),
        ("one", "other"),
        ("other", "one"),
        ("missing directory", "nowhere/model.safetensors"),
    ] {
        symlink(target, dir.join(name)).unwrap();
    }
    fs::create_dir(dir.join("directory")).unwrap();
    symlink("directory", dir.join("to directory")).unwrap();
    let before = snapshot(dir.path());
    for name in ["loop", "one", "missing directory"] {
        let error = saver()
            .save(dir.join(name), views(&tensors(1)))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(error.path(), Some(&*dir.join(name)));
    }
    assert!(snapshot(dir.path()) == before);
    // A link to a directory is the directory.
    saver()
        .save(dir.join("to directory"), views(&tensors(1)))
        .unwrap();
    assert_eq!(names_in(&dir.join("directory")), ["model.safetensors"]);
}

/// As `huggingface_hub` lays its cache out: blobs that snapshots of several revisions link to.
#[test]
fn blobs_that_snapshots_link_to_are_not_touched() {
    let dir = Dir::new();
    let snapshot_dir = dir.join("snapshots/revision");
    saver()
        .max_shard_size(100)
        .save(&snapshot_dir, views(&tensors(1)))
        .unwrap();
    fs::create_dir(dir.join("blobs")).unwrap();
    for name in names_in(&snapshot_dir) {
        let blob = Path::new("../../blobs").join(&name);
        fs::rename(snapshot_dir.join(&name), snapshot_dir.join(&blob)).unwrap();
        symlink(&blob, snapshot_dir.join(&name)).unwrap();
    }
    let blobs = snapshot(&dir.join("blobs"));
    assert_eq!(blobs.len(), 4);
    assert_holds(&snapshot_dir, &tensors(1));

    for (limit, files) in [(100, 4), (200, 3), (u64::MAX, 1)] {
        let saver = saver().max_shard_size(limit);
        saver.save(&snapshot_dir, views(&tensors(2))).unwrap();
        assert_holds(&snapshot_dir, &tensors(2));
        assert!(snapshot(&dir.join("blobs")) == blobs, "{limit}");
        assert_eq!(names_in(&snapshot_dir).len(), files);
        assert_eq!(names_in(&dir.join("blobs")).len(), 4);
    }
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let dir = Dir::new();
    fs::create_dir(dir.join("directory")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let layout = || {
        let mut layout = Layout::new();
        layout.tensor("a", st_format::Dtype::U8, &[1]).unwrap();
        layout
    };
    let before = snapshot_of_names(dir.path());
    for (path, message) in [
        (dir.join("directory"), "is a directory, expected a file"),
        (dir.join("pipe"), "is no regular file"),
        (PathBuf::from("/dev/null"), "is no regular file"),
    ] {
        let error = rejected(
            Writer::create(&path, layout()),
            ErrorKind::InvalidRequest,
            message,
        );
        assert_eq!(error.path(), Some(&*path));
        if !path.is_dir() {
            let saved = saver().save(&path, views(&tensors(1)));
            rejected(saved, ErrorKind::InvalidRequest, message);
        }
    }
    assert_eq!(snapshot_of_names(dir.path()), before);

    // In the way of a shard or of the index.
    for in_the_way in [
        "model-00002-of-00003.safetensors",
        "model.safetensors.index.json",
    ] {
        let dir = Dir::new();
        saver().save(dir.path(), views(&tensors(1))).unwrap();
        fs::create_dir(dir.join(in_the_way)).unwrap();
        let before = snapshot(dir.path());
        let saved = saver()
            .max_shard_size(100)
            .save(dir.path(), views(&tensors(2)));
        let error = rejected(saved, ErrorKind::InvalidRequest, "is a directory");
        assert_eq!(error.path(), Some(&*dir.join(in_the_way)));
        assert!(snapshot(dir.path()) == before, "{:?}", names_in(dir.path()));
    }
}

/// Without reading any of it: a pipe would wait.
fn snapshot_of_names(dir: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn names_may_be_as_long_as_the_system_allows() {
    let dir = Dir::new();
    for name in ["n".repeat(255), "é".repeat(127), "\u{1F980}".repeat(63)] {
        let path = dir.join(&name);
        for generation in 1..3 {
            saver().save(&path, views(&tensors(generation))).unwrap();
            assert_holds(&path, &tensors(generation));
        }
    }
    assert_eq!(names_in(dir.path()).len(), 3);

    // Shards' names are longer than that of the one file.
    let stem = "n".repeat(243);
    let path = dir.join(format!("{stem}.safetensors"));
    saver().save(&path, views(&tensors(1))).unwrap();
    let before = snapshot(dir.path());
    for path in [dir.join("n".repeat(256)), path] {
        let error = saver()
            .max_shard_size(100)
            .save(&path, views(&tensors(2)))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("File name too long"), "{error}");
        assert!(snapshot(dir.path()) == before);
    }
}

#[test]
fn paths_may_be_relative() {
    const TEST: &str = "paths_may_be_relative";
    if child::task().is_some() {
        saver()
            .save("model.safetensors", views(&tensors(1)))
            .unwrap();
        saver()
            .save("./model.safetensors", views(&tensors(2)))
            .unwrap();
        saver().save(".", views(&tensors(3))).unwrap();
        assert_holds("model.safetensors".as_ref(), &tensors(3));
        assert_eq!(names_in(".".as_ref()), ["model.safetensors"]);
        fs::remove_file("model.safetensors").unwrap();
        for path in ["model.safetensors.index.json", ".", "./model.safetensors"] {
            let saver = saver().max_shard_size(100).durable();
            saver.save(path, views(&tensors(4))).unwrap();
            assert_holds(".".as_ref(), &tensors(4));
            assert_eq!(names_in(".".as_ref()).len(), 4);
        }
        let empty = saver().save("", views(&tensors(1))).unwrap_err();
        assert_eq!(empty.kind(), ErrorKind::InvalidRequest, "{empty}");
        assert_eq!(names_in(".".as_ref()).len(), 4);
        return;
    }
    let dir = Dir::new();
    let output = child::command(TEST, "").current_dir(dir.path()).output();
    child::assert_passed(&output.unwrap());
}

#[test]
fn names_need_not_be_utf_8() {
    let dir = Dir::new();
    let path = dir.join(OsStr::from_bytes(b"\xff\xfe.safetensors"));
    saver().save(&path, views(&tensors(1))).unwrap();
    saver().save(&path, views(&tensors(2))).unwrap();
    assert_holds(&path, &tensors(2));
    assert_eq!(names_in(dir.path()).len(), 1);
    // The index, which names shards, is UTF-8.
    let saved = saver().save(dir.path(), views(&tensors(3)));
    let error = rejected(saved, ErrorKind::InvalidRequest, "is not UTF-8");
    assert_eq!(error.path(), Some(dir.path()));
    assert_holds(&path, &tensors(2));

    let sub = dir.join(OsStr::from_bytes(b"\xffdirectory"));
    let saver = saver().max_shard_size(100);
    saver.save(&sub, views(&tensors(4))).unwrap();
    saver.save(&sub, views(&tensors(5))).unwrap();
    assert_holds(&sub, &tensors(5));
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_takes_no_files_is_an_error() {
    // Where not even root may make files.
    for (path, limit) in [
        ("/proc/self/model.safetensors", None),
        ("/proc/self/model.safetensors", Some(1)),
        ("/proc/self/models", Some(1)),
        ("/nowhere/at/all/model.safetensors", None),
    ] {
        let saver = match limit {
            Some(limit) => saver().max_shard_size(limit),
            None => saver(),
        };
        let error = saver.save(path, views(&tensors(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(
            error
                .path()
                .unwrap()
                .starts_with(Path::new(path).parent().unwrap())
        );
    }
}

#[test]
fn another_hard_link_keeps_the_old_file() {
    let dir = Dir::new();
    let (path, other) = (dir.join("model.safetensors"), dir.join("other.safetensors"));
    saver().save(&path, views(&tensors(1))).unwrap();
    fs::hard_link(&path, &other).unwrap();
    saver().save(&path, views(&tensors(2))).unwrap();
    assert_holds(&other, &tensors(1));
    assert_holds(&path, &tensors(2));
    assert_ne!(
        fs::metadata(&path).unwrap().ino(),
        fs::metadata(&other).unwrap().ino()
    );
}
