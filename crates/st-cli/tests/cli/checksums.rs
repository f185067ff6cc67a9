//! What `verify --checksums` says, and its exit status.

use std::path::Path;

use serde_json::{Value, json};
use st_format::{Editor, Raw, Saver};

use crate::files::{SMALL, SMALL_DATA, damage, small_tensors, write_file};
use crate::run::{args, run};

fn save(path: &Path, saver: Saver<Raw>) {
    saver.checksums().save(path, small_tensors()).unwrap();
}

#[test]
fn all_is_as_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    save(&path, Saver::new());
    let shown = run(args!["verify", "--checksums", &path]).fine();
    let path = path.display();
    assert_eq!(
        shown,
        format!("{path}: ok (3 tensors, 40 bytes, 3 checksums)\n")
    );
}

#[test]
fn every_damaged_tensor_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    save(&path, Saver::new());
    damage(&path, "h.0.weight");
    damage(&path, "steps");
    let headers_only = run(args!["verify", &path]).fine();
    assert!(
        headers_only.ends_with(": ok (3 tensors, 40 bytes)\n"),
        "{headers_only}"
    );

    let shown = run(args!["verify", "--checksums", &path]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(1), ""));
    let lines: Vec<&str> = shown.stdout.lines().collect();
    for (line, tensor) in lines.iter().zip(["steps", "h.0.weight"]) {
        let start = format!("{}: tensor \"{tensor}\": its SHA-256 is ", path.display());
        assert!(line.starts_with(&start), "{line}");
    }
    assert_eq!(lines.len(), 2);
    assert_eq!(
        run(args!["verify", "--checksums", "-q", &path]).stdout,
        shown.stdout
    );
}

#[test]
fn shards_are_read_too() {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), Saver::new().max_shard_size(32));
    let fine = run(args!["verify", "--checksums", dir.path()]).fine();
    assert!(fine.contains("3 checksums"), "{fine}");

    let second = dir.path().join("model-00002-of-00002.safetensors");
    damage(&second, "steps");
    let shown = run(args!["verify", "--checksums", dir.path()]);
    assert_eq!(shown.code, Some(1));
    let start = format!("{}: tensor \"steps\": ", second.display());
    assert!(shown.stdout.starts_with(&start), "{}", shown.stdout);
}

#[test]
fn without_checksums_nothing_can_be_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), SMALL, SMALL_DATA);
    let shown = run(args!["verify", "--checksums", &path]);
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(2), ""));
    let expected = format!(
        "error: {}: tensor \"h.0.weight\": no checksum of it is recorded, nor of 3 other tensors\n",
        path.display()
    );
    assert_eq!(shown.stderr, expected);

    let shown = run(args!["verify", "--checksums", "--json", &path]);
    let json: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(json["verdict"], "unseen");
    assert_eq!(json.get("errors"), None);
}

#[test]
fn what_is_damaged_outweighs_what_has_no_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    save(&path, Saver::new());
    damage(&path, "h.0.bias");
    let mut editor = Editor::open(&path).unwrap();
    editor.remove_metadata("sha256:steps").unwrap();
    editor.save().unwrap();

    let shown = run(args!["verify", "--checksums", &path]);
    assert_eq!(shown.code, Some(1));
    assert!(shown.stdout.contains("\"h.0.bias\""), "{}", shown.stdout);
    assert_eq!(shown.stdout.lines().count(), 1, "{}", shown.stdout);
    let without = format!(
        "{}: tensor \"steps\": no checksum of it is recorded",
        path.display()
    );
    assert_eq!(shown.stderr, format!("error: {without}\n"));

    let in_json = run(args!["verify", "--checksums", "--json", &path]);
    assert_eq!(in_json.code, Some(1));
    let broken = shown.stdout.trim_end();
    let expected = json!({
        "path": path, "verdict": "broken", "error": broken, "errors": [broken, without],
    });
    let json: Value = serde_json::from_str(&in_json.stdout).unwrap();
    assert_eq!(json, expected);
}

#[test]
fn json_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    save(&path, Saver::new());
    let shown = run(args!["verify", "--checksums", "--json", &path]).fine();
    let expected = json!({
        "path": path, "verdict": "ok", "tensors": 3, "bytes": 40, "checksums": 3, "warnings": [],
    });
    let json: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(json, expected);
}
