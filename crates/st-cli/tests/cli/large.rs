//! A hundred thousand tensors, and readers that have seen enough of them.

use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::files::write_file;
use crate::run::{args, command, run};

const TENSORS: usize = 100_000;

fn write_large(dir: &Path) -> PathBuf {
    let mut header = String::from("{");
    for at in 0..TENSORS {
        let comma = if at > 0 { "," } else { "" };
        let (begin, end) = (at * 2, at * 2 + 2);
        write!(
            header,
            r#"{comma}"layers.{at}.weight":{{"dtype":"BF16","shape":[1,1],"data_offsets":[{begin},{end}]}}"#
        )
        .unwrap();
    }
    header += "}";
    write_file(&dir.join("large.safetensors"), &header, TENSORS * 2)
}

#[test]
fn all_of_them_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_large(dir.path());
    let shown = run(args!["inspect", &path]).fine();
    assert_eq!(shown.lines().count(), TENSORS + 9);
    assert!(shown.ends_with("\n100.0 thousand parameters, 195.3 KiB\n"));

    let json = run(args!["inspect", "--json", &path]).fine();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tensors"].as_array().unwrap().len(), TENSORS);

    let checked = run(args!["verify", &path]).fine();
    assert!(checked.ends_with(": ok (100000 tensors, 200000 bytes)\n"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_large(dir.path());
    for json in [None, Some("--json")] {
        let mut child = command()
            .args(["inspect".as_ref(), path.as_os_str()])
            .args(json)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::with_capacity(16, child.stdout.take().unwrap());
        // Both outputs are far longer than a pipe holds, so that the command is still writing.
        match json {
            None => assert!(reader.read_line(&mut String::new()).unwrap() > 0),
            Some(_) => reader.read_exact(&mut [0; 16]).unwrap(),
        }
        drop(reader);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn verify_goes_on_when_its_reader_left() {
    let dir = tempfile::tempdir().unwrap();
    let large = write_large(dir.path());
    let broken = write_file(&dir.path().join("broken"), "{", 0);
    let mut child = command()
        .args(["verify".as_ref(), large.as_os_str(), broken.as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), "{}", 0);
    for verb in ["inspect", "verify"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command()
            .args([verb.as_ref(), path.as_os_str()])
            .stdout(full)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("error: cannot write"), "{stderr}");
        assert_eq!(output.status.code(), Some(2));
    }
}
