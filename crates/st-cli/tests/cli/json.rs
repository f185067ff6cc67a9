//! What `--json` prints: the objects that the help documents.

use std::fs;

use serde_json::{Value, json};

use crate::files::{SMALL, SMALL_DATA, header_of, write_file, write_sharded, write_with_aliases};
use crate::run::{args, run};

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn inspect_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), SMALL, SMALL_DATA);
    let shown = run(args!["inspect", &path, "--json", "--filter", "h.*"]).fine();
    assert!(shown.ends_with("}\n"));
    assert_eq!(
        parse(&shown),
        json!({
            "path": path,
            "metadata": {"format": "pt", "author": "nobody"},
            "aliases": {},
            "tensors": [
                {"name": "h.0.weight", "dtype": "F32", "shape": [2, 3], "bytes": 24,
                 "shard": "m.safetensors", "data_offsets": [0, 24]},
                {"name": "h.0.bias", "dtype": "F32", "shape": [], "bytes": 4,
                 "shard": "m.safetensors", "data_offsets": [24, 28]},
            ],
            "totals": {
                "tensors": 2, "parameters": 7, "bytes": 28,
                "dtypes": {"F32": {"tensors": 2, "parameters": 7, "bytes": 28}},
            },
        })
    );
}

#[test]
fn inspect_the_shards_of_an_index() {
    let dir = tempfile::tempdir().unwrap();
    write_sharded(dir.path());
    let shown = parse(&run(args!["inspect", dir.path(), "--json"]).fine());
    assert_eq!(
        shown["path"],
        json!(dir.path().join("model.safetensors.index.json"))
    );
    assert_eq!(shown["tensors"][2]["name"], "b.x");
    assert_eq!(shown["tensors"][2]["shard"], "two.safetensors");
    assert_eq!(shown["totals"]["bytes"], 3);
}

#[test]
fn inspect_aliases_and_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_with_aliases(dir.path());
    let shown = parse(&run(args!["inspect", &path, "--json"]).fine());
    let aliases = json!({"head": "embedding", "head.again": "embedding", "tail": "end"});
    assert_eq!(shown["aliases"], aliases);
    assert_eq!(shown["metadata"]["head"], "embedding");
    assert_eq!(shown["metadata"]["sha256:end"], "0");
    let tail = parse(&run(args!["inspect", &path, "--json", "-f", "tail"]).fine());
    assert_eq!(tail["aliases"], json!({"tail": "end"}));
    assert_eq!(tail["tensors"], json!([]));
}

#[test]
fn inspect_cuts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(10_000);
    let header = format!(r#"{{"__metadata__":{{"{long}":"{long}"}}}}"#);
    let path = write_file(&dir.path().join("m.safetensors"), &header, 0);
    let shown = parse(&run(args!["inspect", &path, "--json"]).fine());
    assert_eq!(shown["metadata"][&long], long);
}

#[test]
fn verify_has_a_line_for_each_path() {
    let dir = tempfile::tempdir().unwrap();
    let fine = write_file(&dir.path().join("fine.safetensors"), SMALL, SMALL_DATA);
    let odd = write_file(
        &dir.path().join("odd"),
        &format!(" {}", header_of(&["a"])),
        1,
    );
    let broken = dir.path().join("broken");
    fs::write(&broken, b"").unwrap();
    let missing = dir.path().join("missing");

    let paths = args!["verify", "--json", &fine, &odd, &broken, &missing];
    let shown = run(paths);
    assert_eq!(shown.code, Some(1));
    let lines: Vec<Value> = shown.stdout.lines().map(parse).collect();
    assert_eq!(
        lines[0],
        json!({"path": fine, "verdict": "ok", "tensors": 4, "bytes": 40, "warnings": []})
    );
    assert_eq!(lines[1]["verdict"], "ok");
    assert_eq!(lines[1]["warnings"].as_array().unwrap().len(), 1);
    let error = format!("{}: the file is empty", broken.display());
    assert_eq!(
        lines[2],
        json!({"path": broken, "verdict": "broken", "error": error})
    );
    assert_eq!(lines[3]["verdict"], "unseen");
    assert_eq!(lines.len(), 4);
    assert!(shown.stderr.contains("missing"), "{}", shown.stderr);

    let quiet = run(args!["verify", "--json", "--quiet", &fine, &broken]);
    assert_eq!(quiet.stdout.lines().count(), 1, "{}", quiet.stdout);
}
