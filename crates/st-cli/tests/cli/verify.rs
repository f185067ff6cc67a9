//! What `verify` says, and its exit status.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{SMALL, SMALL_DATA, header_of, write_file, write_sharded};
use crate::run::{args, run};

fn fine(dir: &Path) -> PathBuf {
    write_file(&dir.join("fine.safetensors"), SMALL, SMALL_DATA)
}

fn broken(dir: &Path) -> PathBuf {
    write_file(&dir.join("broken.safetensors"), SMALL, SMALL_DATA - 1)
}

#[test]
fn all_is_well() {
    let dir = tempfile::tempdir().unwrap();
    let file = fine(dir.path());
    let sharded = dir.path().join("sharded");
    fs::create_dir(&sharded).unwrap();
    write_sharded(&sharded);
    let index = sharded.join("model.safetensors.index.json");
    let expected = format!(
        "{}: ok (4 tensors, 40 bytes)\n{}: ok (3 tensors, 3 bytes)\n{}: ok (3 tensors, 3 bytes)\n",
        file.display(),
        sharded.display(),
        index.display()
    );
    assert_eq!(
        run(args!["verify", &file, &sharded, &index]).fine(),
        expected
    );
    assert_eq!(run(args!["verify", "--quiet", &file, &sharded]).fine(), "");
}

#[test]
fn something_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let (broken, fine) = (broken(dir.path()), fine(dir.path()));
    let shown = run(args!["verify", &broken, &fine]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(1), ""));
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert!(lines[0].starts_with(&format!("{}: ", broken.display())));
    assert!(lines[0].contains("1 missing"), "{}", lines[0]);
    assert!(lines[1].contains(": ok ("), "{}", lines[1]);
    assert_eq!(lines.len(), 2);

    let quiet = run(args!["verify", "-q", &broken, &fine]);
    assert_eq!(quiet.stdout, format!("{}\n", lines[0]));
}

#[test]
fn something_cannot_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let fine = fine(dir.path());
    let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    let shown = run(args!["verify", &missing, &empty, &fine]);
    assert_eq!(shown.code, Some(2));
    assert!(shown.stdout.contains(": ok ("), "{}", shown.stdout);
    assert_eq!(shown.stdout.lines().count(), 1, "{}", shown.stdout);
    let complaints: Vec<&str> = shown.stderr.lines().collect();
    assert!(complaints[0].starts_with(&format!("error: {}: ", missing.display())));
    assert!(complaints[1].starts_with(&format!("error: {}: ", empty.display())));
    assert_eq!(complaints.len(), 2);
}

#[test]
fn broken_outweighs_unseen_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let (fine, broken) = (fine(dir.path()), broken(dir.path()));
    let missing = dir.path().join("missing");
    for paths in [
        [&fine, &broken, &missing],
        [&missing, &broken, &fine],
        [&broken, &missing, &fine],
    ] {
        let shown = run(args!["verify", paths[0], paths[1], paths[2]]);
        assert_eq!(shown.code, Some(1));
        assert_eq!(shown.stdout.lines().count(), 2, "{}", shown.stdout);
        assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
    }
}

#[test]
fn a_directory_of_several_files_says_so() {
    let dir = tempfile::tempdir().unwrap();
    fine(dir.path());
    broken(dir.path());
    let shown = run(args!["verify", dir.path()]);
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(2), ""));
    assert!(
        shown
            .stderr
            .contains("broken.safetensors, fine.safetensors"),
        "{}",
        shown.stderr
    );
}

#[test]
fn a_missing_shard_breaks_the_index() {
    let dir = tempfile::tempdir().unwrap();
    write_sharded(dir.path());
    fs::remove_file(dir.path().join("two.safetensors")).unwrap();
    let shown = run(args!["verify", dir.path()]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(1), ""));
    assert!(shown.stdout.contains("two.safetensors"), "{}", shown.stdout);
}

#[test]
fn warnings_are_allowed_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let header = r#" {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":"hello"}}"#;
    let odd = write_file(&dir.path().join("odd.safetensors"), header, 1);
    let shown = run(args!["verify", &odd]).fine();
    let (first, warnings) = shown.split_once('\n').unwrap();
    assert_eq!(first, format!("{}: ok (1 tensor, 1 byte)", odd.display()));
    let start = format!("warning: {}: ", odd.display());
    assert!(warnings.lines().all(|line| line.starts_with(&start)));
    assert!(warnings.contains("white space"), "{warnings}");
    assert!(warnings.contains(r#""note""#), "{warnings}");
    assert_eq!(run(args!["verify", "--quiet", &odd]).fine(), "");
}

#[test]
fn shards_the_index_leaves_out_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    write_sharded(dir.path());
    let header = header_of(&["b.x", "left.out"]);
    write_file(&dir.path().join("two.safetensors"), &header, 2);
    let shown = run(args!["verify", dir.path()]).fine();
    assert!(shown.contains(": ok (3 tensors, 3 bytes)\n"), "{shown}");
    assert!(shown.contains(r#""left.out""#), "{shown}");
}
