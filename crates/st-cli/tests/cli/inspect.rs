//! What `inspect` shows as text.

use std::fs;

use crate::files::{SMALL, SMALL_DATA, header_of, write_file, write_sharded, write_with_aliases};
use crate::run::{args, run};

#[test]
fn a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), SMALL, SMALL_DATA);
    let shown = run(args!["inspect", &path]).fine();
    let expected = format!(
        "\
{}: 4 tensors

metadata
author  nobody
format  pt

name        dtype  shape   bytes
h.0.weight  F32    [2, 3]     24
h.0.bias    F32    []          4
pad         F32    [1]         4
steps       I64    [1]         8

dtype  tensors  parameters  bytes
F32          3           8     32
I64          1           1      8
total        4           9     40

9 parameters, 40 B
",
        path.display()
    );
    assert_eq!(shown, expected);
}

#[test]
fn a_filter_also_narrows_the_totals() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), SMALL, SMALL_DATA);
    let shown = run(args!["inspect", &path, "--filter", "h*"]).fine();
    assert!(shown.contains(": 2 of 4 tensors\n"), "{shown}");
    assert!(shown.contains("h.0.weight"), "{shown}");
    assert!(!shown.contains("steps"), "{shown}");
    assert!(
        shown.contains("total        2           7     28\n"),
        "{shown}"
    );
}

#[test]
fn globs() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["h.0.q.weight", "h.0.k.weight", "h.1.q.bias", "x/y", "[0]"];
    let path = write_file(&dir.path().join("m.safetensors"), &header_of(&names), 5);
    let count_of = |glob: &str| {
        let shown = run(args!["inspect", &path, "-f", glob]).fine();
        names.iter().filter(|name| shown.contains(*name)).count()
    };
    assert_eq!(count_of("*"), 5);
    assert_eq!(count_of("*.weight"), 2);
    assert_eq!(count_of("h.?.q.*"), 2);
    assert_eq!(count_of("*.{q,k}.weight"), 2);
    assert_eq!(count_of("h.[1-9].*"), 1);
    assert_eq!(count_of("x*"), 1);
    assert_eq!(count_of(r"\[0\]"), 1);
    assert_eq!(count_of("weight"), 0);
}

#[test]
fn shards_are_named_where_there_are_several() {
    let dir = tempfile::tempdir().unwrap();
    write_sharded(dir.path());
    let of_dir = run(args!["inspect", dir.path()]).fine();
    let index = dir.path().join("model.safetensors.index.json");
    let expected = format!(
        "\
{}: 3 tensors in 2 shards

name  dtype  shape  bytes  shard
a.x   U8     [1]        1  one.safetensors
a.y   U8     [1]        1  one.safetensors
b.x   U8     [1]        1  two.safetensors

dtype  tensors  parameters  bytes
U8           3           3      3
total        3           3      3

3 parameters, 3 B
",
        index.display()
    );
    assert_eq!(of_dir, expected);
    assert_eq!(run(args!["inspect", &index]).fine(), expected);
}

#[test]
fn aliases_are_listed_and_checksums_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_with_aliases(dir.path());
    let shown = run(args!["inspect", &path]).fine();
    let expected = "
metadata
format    pt
sha256:…  2 checksums

aliases
head        embedding
head.again  embedding
tail        end

name       dtype  shape  bytes
";
    assert!(shown.contains(expected), "{shown}");

    let filtered = run(args!["inspect", &path, "-f", "e*d"]).fine();
    assert!(!filtered.contains("head"), "{filtered}");
    assert!(filtered.contains("\naliases\ntail  end\n\n"), "{filtered}");
}

#[test]
fn no_tensor_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), "{}", 0);
    let shown = run(args!["inspect", &path]).fine();
    assert!(shown.contains(": 0 tensors\n\ndtype"), "{shown}");
    assert!(shown.ends_with("\n0 parameters, 0 B\n"), "{shown}");
}

#[test]
fn long_metadata_is_cut_to_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let header = format!(
        r#"{{"__metadata__":{{"long":"{}","lines":"one\ntwo","none":""}}}}"#,
        "é".repeat(1000)
    );
    let path = write_file(&dir.path().join("m.safetensors"), &header, 0);
    let shown = run(args!["inspect", &path]).fine();
    let cut = format!("long   {}… (2000 bytes)\n", "é".repeat(100));
    assert!(shown.contains(&cut), "{shown}");
    assert!(shown.contains("lines  one\\ntwo\n"), "{shown}");
    assert!(shown.contains("none\n"), "{shown}");
}

#[test]
fn wide_characters_keep_the_columns() {
    let dir = tempfile::tempdir().unwrap();
    let header = header_of(&["层", "ab"]);
    let path = write_file(&dir.path().join("m.safetensors"), &header, 2);
    let shown = run(args!["inspect", &path]).fine();
    assert!(shown.contains("\n层    U8 "), "{shown}");
    assert!(shown.contains("\nab    U8 "), "{shown}");
}

#[test]
fn what_is_broken_is_told_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_file(&dir.path().join("m.safetensors"), SMALL, SMALL_DATA - 1);
    let broken = run(args!["inspect", &path]);
    assert_eq!((broken.code, broken.stdout.as_str()), (Some(1), ""));
    let start = format!("error: {}: ", path.display());
    assert!(broken.stderr.starts_with(&start), "{}", broken.stderr);
    assert_eq!(broken.stderr.lines().count(), 1, "{}", broken.stderr);

    let missing = run(args!["inspect", &dir.path().join("missing.safetensors")]);
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(2), ""));

    fs::copy(&path, dir.path().join("n.safetensors")).unwrap();
    let ambiguous = run(args!["inspect", dir.path()]);
    assert_eq!((ambiguous.code, ambiguous.stdout.as_str()), (Some(2), ""));
    assert!(ambiguous.stderr.contains("m.safetensors, n.safetensors"));
}
