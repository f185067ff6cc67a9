//! Files that would like to write to the terminal themselves.

use std::fs;

use crate::files::{header_of, write_file};
use crate::run::{args, run};

/// ESC and CSI, a bell, a line break, a carriage return, DEL, right-to-left, zero width.
const NAME: &str = "a\u{1b}[31m\u{9b}2J\u{7}\n\r\u{7f}\u{202e}\u{200b}\"\\z";

const SHOWN: &str = r#""a\u{1b}[31m\u{9b}2J\u{7}\n\r\u{7f}\u{202e}\u{200b}\"\\z""#;

/// The same name in JSON, where more is escaped than JSON asks for.
const SHOWN_IN_JSON: &str = r#""a\u001b[31m\u009b2J\u0007\n\r\u007f\u202e\u200b\"\\z""#;

fn assert_harmless(text: &str) {
    let harmful = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{200b}".contains(c));
    assert!(!text.contains(harmful), "{text:?}");
}

#[test]
fn names_and_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let quoted = serde_json::to_string(NAME).unwrap();
    let alias = serde_json::to_string(&format!("{NAME}2")).unwrap();
    let entries = header_of(&[NAME, "plain", " edge ", ""]);
    let header = entries.replacen(
        '{',
        &format!(r#"{{"__metadata__":{{{quoted}:{quoted},{alias}:{quoted}}},"#),
        1,
    );
    let path = write_file(&dir.path().join("m.safetensors"), &header, 4);

    let shown = run(args!["inspect", &path]).fine();
    assert_harmless(&shown);
    for line in [
        &format!("\n{SHOWN}"),
        "\nplain ",
        "\n\" edge \" ",
        "\n\"\" ",
        &format!("z2\"  {SHOWN}\n"),
    ] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
    assert_eq!(shown.lines().count(), 19, "{shown}");

    let json = run(args!["inspect", "--json", &path]).fine();
    assert_harmless(&json);
    assert!(json.contains(SHOWN_IN_JSON), "{json}");
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed["tensors"][0]["name"], NAME);
    assert_eq!(parsed["metadata"][NAME], NAME);
}

#[test]
fn astral_characters_stay_whole_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let name = "😊\u{e0041}!";
    let path = write_file(&dir.path().join("m.safetensors"), &header_of(&[name]), 1);
    let json = run(args!["inspect", "--json", &path]).fine();
    assert!(json.contains(r#""😊\udb40\udc41!""#), "{json}");
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed["tensors"][0]["name"], name);
}

#[test]
fn errors_and_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let quoted = serde_json::to_string(NAME).unwrap();
    let wrong = format!(r#"{{{quoted}:{{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}}}"#);
    let wrong = write_file(&dir.path().join("wrong"), &wrong, 1);
    let odd =
        format!(r#"{{{quoted}:{{"dtype":"U8","shape":[1],"data_offsets":[0,1],{quoted}:0}}}}"#);
    let odd = write_file(&dir.path().join("odd"), &odd, 1);
    let shown = run(args!["verify", &wrong, &odd]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(1), ""));
    assert_harmless(&shown.stdout);
    assert_eq!(shown.stdout.lines().count(), 3, "{}", shown.stdout);
}

#[test]
fn recorded_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let quoted = serde_json::to_string(NAME).unwrap();
    let key = serde_json::to_string(&format!("sha256:{NAME}")).unwrap();
    let entries = header_of(&[NAME, "plain"]);
    let header = entries.replacen('{', &format!(r#"{{"__metadata__":{{{key}:{quoted}}},"#), 1);
    let path = write_file(&dir.path().join("m.safetensors"), &header, 2);
    let shown = run(args!["verify", "--checksums", &path]);
    assert_eq!(shown.code, Some(1));
    for text in [&shown.stdout, &shown.stderr] {
        assert_harmless(text);
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let json = run(args!["verify", "--checksums", "--json", &path]).stdout;
    assert_harmless(&json);
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed["errors"].as_array().unwrap().len(), 2);
}

#[test]
fn copies_and_edits() {
    let dir = tempfile::tempdir().unwrap();
    let quoted = serde_json::to_string(NAME).unwrap();
    let fp4 = format!(r#"{{{quoted}:{{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}}}"#);
    let path = write_file(&dir.path().join("a\u{1b}[31m"), &fp4, 1);
    let to = dir.path().join("b\u{1b}[31m");

    for fine in [
        args!["copy", &path, &to].to_vec(),
        args!["edit", &to, "--set", NAME, NAME].to_vec(),
        args!["edit", &to, "--rename", NAME, "plain"].to_vec(),
        args!["edit", &to, "--rename", "plain", NAME].to_vec(),
    ] {
        assert_harmless(&run(fine).fine());
    }
    for wrong in [
        args!["copy", &path, &to, "--cast-floats", "F32"].to_vec(),
        args!["edit", &path, "--remove", NAME].to_vec(),
        args!["edit", &path, "--rename", "missing\u{1b}", NAME].to_vec(),
        args!["edit", &path, "--rename", NAME, "__metadata__"].to_vec(),
    ] {
        let shown = run(wrong);
        assert_eq!((shown.code, shown.stdout.as_str()), (Some(2), ""));
        assert_harmless(&shown.stderr);
        assert_eq!(shown.stderr.lines().count(), 1, "{}", shown.stderr);
    }
    let metadata = run(args!["inspect", "--json", &to]).fine();
    let parsed: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(parsed["metadata"][NAME], NAME);
    assert_eq!(parsed["tensors"][0]["name"], NAME);
}

#[test]
fn shard_names_of_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("model.safetensors.index.json");
    let json = r#"{"weight_map": {"a": "\u001b[31m\nfake: ok.safetensors"}}"#;
    fs::write(&index, json).unwrap();
    let shown = run(args!["verify", &index]);
    assert_eq!(shown.code, Some(1));
    assert_harmless(&shown.stdout);
    assert_eq!(shown.stdout.lines().count(), 1, "{}", shown.stdout);
}

// Other systems have no such paths.
#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_text() {
    use std::os::unix::ffi::OsStrExt;

    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff\x1b[31m.safetensors");
    let path = dir.path().join(name);
    let missing = run(args!["verify", &path]);
    assert_eq!(missing.code, Some(2));
    assert_harmless(&missing.stderr);
    write_file(&path, "{}", 0);
    for args in [args!["verify", &path], args!["inspect", &path]] {
        let shown = run(args).fine();
        assert_harmless(&shown);
        assert!(
            shown.contains("\u{fffd}\\u{1b}[31m.safetensors: "),
            "{shown}"
        );
    }
}
