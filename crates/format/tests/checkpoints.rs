//! What a path means: files, directories and indexes, and what is wrong with them.

mod common;

use std::path::Path;

use common::{Dir, Tensor, counting, file, file_of, rejected};
use st_format::{Checkpoint, Dtype, ErrorKind, Header, Read, ReadOptions, Slice};

use ErrorKind::{
    Ambiguous, InvalidIndex, InvalidLayout, InvalidRequest, Io, NotFound, NotSafetensors,
    Unsupported,
};

fn names(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint.iter().map(|info| info.name()).collect()
}

fn warnings(checkpoint: &Checkpoint) -> Vec<String> {
    let warnings = checkpoint.warnings();
    warnings.iter().map(|warning| warning.to_string()).collect()
}

// Files and directories.

#[test]
fn a_file_whatever_it_is_called() {
    let dir = Dir::new();
    for name in ["model.safetensors", "weights.bin", "no extension"] {
        let path = dir.shard(name, &["a", "b"]);
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.path(), path);
        assert_eq!(checkpoint.shards().len(), 1);
        assert_eq!(checkpoint.shards()[0].path(), path);
        assert_eq!(names(&checkpoint), ["a", "b"]);
        assert_eq!((checkpoint.len(), checkpoint.byte_len()), (2, 8));
        assert_eq!(warnings(&checkpoint), Vec::<String>::new());
    }
}

#[test]
fn a_directory_with_one_file() {
    let dir = Dir::new();
    let path = dir.shard("anything.safetensors", &["a"]);
    dir.write("config.json", "{}");
    dir.write("README.md", "about");
    dir.shard("below/other.safetensors", &["b"]);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.path(), path);
    assert_eq!(names(&checkpoint), ["a"]);
}

#[test]
fn a_directory_with_an_index_beside_other_files() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a"]);
    dir.shard("2.safetensors", &["b"]);
    dir.shard("consolidated.safetensors", &["a", "b", "c"]);
    let index = dir.index_of(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
    for path in [dir.path(), &index] {
        let checkpoint = Checkpoint::open(path).unwrap();
        assert_eq!(checkpoint.path(), index);
        assert_eq!(names(&checkpoint), ["a", "b"]);
        assert_eq!(warnings(&checkpoint), Vec::<String>::new());
    }
}

#[test]
fn a_directory_with_several_files_and_no_index() {
    let dir = Dir::new();
    dir.shard("b.safetensors", &["b"]);
    dir.shard("a.safetensors", &["a"]);
    let error = rejected(
        Checkpoint::open(dir.path()),
        Ambiguous,
        "several .safetensors files and no index: a.safetensors, b.safetensors",
    );
    assert_eq!(error.path(), Some(dir.path()));
}

#[test]
fn a_directory_with_several_indexes() {
    let dir = Dir::new();
    dir.shard("model.safetensors", &["a"]);
    dir.index_of(&[("a", "model.safetensors")]);
    dir.write("model.fp16.safetensors.index.json", "{}");
    let error = rejected(
        Checkpoint::open(dir.path()),
        Ambiguous,
        "several indexes: model.fp16.safetensors.index.json, model.safetensors.index.json",
    );
    assert_eq!(error.path(), Some(dir.path()));
}

#[test]
fn a_directory_without_weights() {
    let dir = Dir::new();
    rejected(
        Checkpoint::open(dir.path()),
        NotFound,
        "no .safetensors file or index in this directory: it is empty",
    );
    dir.write("pytorch_model.bin", "PK");
    dir.write("config.json", "{}");
    dir.write("pytorch_model.bin.index.json", "{}");
    let error = rejected(
        Checkpoint::open(dir.path()),
        NotFound,
        "which holds config.json, pytorch_model.bin, pytorch_model.bin.index.json",
    );
    assert_eq!(error.path(), Some(dir.path()));
    for number in 10..30 {
        dir.write(format!("{number}.txt"), "");
    }
    rejected(Checkpoint::open(dir.path()), NotFound, "13.txt, 14.txt, ");
    rejected(Checkpoint::open(dir.path()), NotFound, "19.txt and 13 more");
}

#[test]
fn hidden_files_are_no_part_of_a_directory() {
    let dir = Dir::new();
    dir.shard("model.safetensors", &["a"]);
    dir.write(".model.safetensors", "unfinished");
    dir.write("._model.safetensors", "what macOS adds");
    dir.write(".model.safetensors.index.json", "{}");
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(names(&checkpoint), ["a"]);

    let only_hidden = Dir::new();
    only_hidden.shard(".hidden.safetensors", &["a"]);
    let message = "this directory: it is empty";
    rejected(Checkpoint::open(only_hidden.path()), NotFound, message);
}

#[test]
fn a_path_where_nothing_is() {
    let dir = Dir::new();
    for name in ["model.safetensors", "model.safetensors.index.json", "a/b"] {
        let path = dir.join(name);
        let error = rejected(Checkpoint::open(&path), Io, "cannot open");
        assert_eq!(error.path(), Some(&*path));
        let source = std::error::Error::source(&error).unwrap();
        let source = source.downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    }
}

#[test]
fn several_files_without_an_index() {
    let dir = Dir::new();
    let first = dir.shard("1.safetensors", &["b", "a"]);
    let second = dir.shard("2.safetensors", &["c"]);
    let checkpoint = Checkpoint::open_files([&second, &first]).unwrap();
    assert_eq!(names(&checkpoint), ["c", "b", "a"]);
    assert_eq!(warnings(&checkpoint), Vec::<String>::new());
    let by_shard: Vec<_> = checkpoint
        .iter_with_shard()
        .map(|(shard, info)| (shard, info.name()))
        .collect();
    assert_eq!(by_shard, [(0, "c"), (1, "b"), (1, "a")]);
    assert_eq!(checkpoint.read("a").unwrap(), counting(4));

    let none = Checkpoint::open_files(<[&Path; 0]>::default()).unwrap();
    assert!(none.is_empty() && none.get("a").is_none());
    rejected(none.read("a"), NotFound, "no such tensor");
}

#[test]
fn several_files_that_hold_the_same_name() {
    let dir = Dir::new();
    let first = dir.shard("1.safetensors", &["a", "b"]);
    let second = dir.shard("2.safetensors", &["c", "b"]);
    let error = rejected(
        Checkpoint::open_files([&first, &second]),
        Ambiguous,
        "also held by",
    );
    assert_eq!(error.path(), Some(&*second));
    assert_eq!(error.tensor(), Some("b"));
    assert!(error.to_string().contains(first.to_str().unwrap()));

    rejected(
        Checkpoint::open_files([&first, &first]),
        Ambiguous,
        "also held by",
    );
}

// Indexes.

#[test]
fn an_index_gives_tensors_shard_by_shard_in_file_order() {
    let dir = Dir::new();
    dir.shard("one.safetensors", &["b", "a"]);
    dir.shard("sub/two.safetensors", &["d", "c"]);
    let index = dir.index_of(&[
        ("a", "one.safetensors"),
        ("c", "sub/two.safetensors"),
        ("b", "one.safetensors"),
        ("d", "sub/two.safetensors"),
    ]);
    let checkpoint = Checkpoint::open(&index).unwrap();
    assert_eq!(names(&checkpoint), ["b", "a", "d", "c"]);
    assert_eq!((checkpoint.len(), checkpoint.byte_len()), (4, 16));
    let shards: Vec<_> = checkpoint
        .shards()
        .iter()
        .map(|shard| shard.path().to_owned())
        .collect();
    let expected = ["one.safetensors", "sub/two.safetensors"].map(|name| dir.join(name));
    assert_eq!(shards, expected);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(checkpoint.get(name).unwrap().name(), name);
        assert_eq!(checkpoint.read(name).unwrap(), counting(4));
    }
    assert_eq!(warnings(&checkpoint), Vec::<String>::new());
}

#[test]
fn metadata_is_that_of_the_shards_and_the_first_one_counts() {
    let dir = Dir::new();
    let shard = |name: &str, metadata: &str| {
        let tensor = format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#);
        let json = format!(r#"{{"__metadata__":{metadata},{tensor}}}"#);
        dir.write(format!("{name}.safetensors"), file(&json, &[0]));
    };
    shard("a", r#"{"format":"pt","z":"1"}"#);
    shard("b", r#"{"format":"mlx","b":"2"}"#);
    let index = dir.index_of(&[("a", "a.safetensors"), ("b", "b.safetensors")]);
    let checkpoint = Checkpoint::open(index).unwrap();
    let metadata: Vec<_> = checkpoint.metadata().into_iter().collect();
    assert_eq!(metadata, [("b", "2"), ("format", "pt"), ("z", "1")]);
}

#[test]
fn a_missing_shard() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a"]);
    let index = dir.index_of(&[
        ("a", "1.safetensors"),
        ("b", "2.safetensors"),
        ("c", "2.safetensors"),
    ]);
    let error = rejected(
        Checkpoint::open(&index),
        InvalidIndex,
        "its shard is not there",
    );
    assert_eq!(error.path(), Some(&*index));
    assert_eq!(error.tensor(), Some("b"));
    let missing = dir.join("2.safetensors");
    assert!(error.to_string().contains(missing.to_str().unwrap()));
}

#[test]
fn of_many_faulty_shards_the_first_is_named() {
    let dir = Dir::new();
    let files: Vec<_> = (0..50)
        .map(|at| (format!("t{at}"), format!("{at}.safetensors")))
        .collect();
    let map: Vec<_> = files
        .iter()
        .map(|(name, shard)| (&**name, &**shard))
        .collect();
    for (name, shard) in &map[..20] {
        dir.shard(shard, &[name]);
    }
    dir.write("33.safetensors", "GGUF");
    let index = dir.index_of(&map);
    for _ in 0..20 {
        let error = rejected(Checkpoint::open(&index), InvalidIndex, "not there");
        assert_eq!(error.tensor(), Some("t20"));
    }
    for (name, shard) in &map[20..] {
        dir.shard(shard, &[name]);
    }
    let checkpoint = Checkpoint::open(&index).unwrap();
    let in_order: Vec<_> = map.iter().map(|&(name, _)| name).collect();
    assert_eq!(names(&checkpoint), in_order);
}

#[test]
fn a_shard_that_does_not_hold_the_tensor() {
    let dir = Dir::new();
    let shard = dir.shard("1.safetensors", &["a"]);
    let index = dir.index_of(&[("a", "1.safetensors"), ("b", "1.safetensors")]);
    let error = rejected(
        Checkpoint::open(&index),
        InvalidIndex,
        "which does not hold it",
    );
    assert_eq!(error.path(), Some(&*index));
    assert_eq!(error.tensor(), Some("b"));
    assert!(error.to_string().contains(shard.to_str().unwrap()));
}

#[test]
fn a_shard_that_is_broken_or_something_else() {
    let dir = Dir::new();
    let index = dir.index_of(&[("a", "1.safetensors")]);
    let path = dir.write("1.safetensors", &file_of(&[Tensor::bytes("a", 4)])[1..]);
    let error = Checkpoint::open(&index).unwrap_err();
    assert_eq!(error.path(), Some(&*path));

    dir.write(
        "1.safetensors",
        "version https://git-lfs.github.com/spec/v1\n",
    );
    let error = rejected(Checkpoint::open(&index), NotSafetensors, "Git LFS pointer");
    assert_eq!(error.path(), Some(&*path));

    let mut short = file_of(&[Tensor::bytes("a", 4)]);
    short.pop();
    dir.write("1.safetensors", short);
    let error = rejected(Checkpoint::open(&index), InvalidLayout, "1 missing");
    assert_eq!(error.path(), Some(&*path));

    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = rejected(Checkpoint::open(&index), NotSafetensors, "is a directory");
    assert_eq!(error.path(), Some(&*path));
}

#[test]
fn a_shard_lies_beside_the_index_or_below() {
    let dir = Dir::new();
    let outside = dir.shard("outside.safetensors", &["a"]);
    dir.shard("model/sub/inside.safetensors", &["a"]);
    let absolute = outside.to_str().unwrap().to_owned();
    let file_url = format!("file://{absolute}");
    for (name, fault) in [
        ("", "is empty"),
        (".", "names no file"),
        ("./", "names no file"),
        ("..", "leads out"),
        ("../outside.safetensors", "leads out"),
        ("./../outside.safetensors", "leads out"),
        ("sub/../../outside.safetensors", "leads out"),
        ("sub/../sub/inside.safetensors", "leads out"),
        (&absolute, "is an absolute path"),
        ("https://example.com/model.safetensors", "is a URL"),
        (&file_url, "is a URL"),
        ("s3://bucket/../model.safetensors", "is a URL"),
    ] {
        let json = format!(r#"{{"weight_map":{{"a":{name:?}}}}}"#);
        let index = dir.write("model/model.safetensors.index.json", json);
        let error = rejected(Checkpoint::open(&index), InvalidIndex, fault);
        assert_eq!(error.path(), Some(&*index));
        assert_eq!(error.tensor(), Some("a"));
        assert!(
            error.to_string().contains(&format!("{name:?}")),
            "{error} does not say {name:?}"
        );
    }
    for name in ["sub/inside.safetensors", "./sub/./inside.safetensors"] {
        let json = format!(r#"{{"weight_map":{{"a":{name:?}}}}}"#);
        let index = dir.write("model/model.safetensors.index.json", json);
        assert_eq!(names(&Checkpoint::open(index).unwrap()), ["a"]);
    }
    // Escapes are read before the name is judged.
    let json = r#"{"weight_map":{"a":"\u002e\u002e\/outside.safetensors"}}"#;
    let index = dir.write("model/model.safetensors.index.json", json);
    rejected(Checkpoint::open(index), InvalidIndex, "leads out");
}

#[test]
fn a_shard_name_that_no_file_can_have() {
    let dir = Dir::new();
    let index = dir.index(r#"{"weight_map":{"a":"\u0000.safetensors"}}"#);
    rejected(
        Checkpoint::open(index),
        InvalidIndex,
        "has control characters",
    );
    let long = "x".repeat(100_000);
    let index = dir.index_of(&[("a", &long)]);
    let error = rejected(
        Checkpoint::open(index),
        InvalidIndex,
        "its shard is not there",
    );
    assert_eq!(error.tensor(), Some("a"));
}

#[test]
fn a_tensor_the_index_names_twice() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a", "b"]);
    dir.shard("2.safetensors", &["a"]);
    for map in [
        r#""a":"1.safetensors","b":"1.safetensors","a":"1.safetensors""#,
        r#""a":"1.safetensors","a":"2.safetensors""#,
        r#""a":"1.safetensors","\u0061":"2.safetensors""#,
        r#""\u0061":"1.safetensors","a":"1.safetensors""#,
    ] {
        let index = dir.index(&format!(r#"{{"weight_map":{{{map}}}}}"#));
        let error = rejected(
            Checkpoint::open(&index),
            InvalidIndex,
            "the index names this tensor twice",
        );
        assert_eq!(error.path(), Some(&*index));
        assert_eq!(error.tensor(), Some("a"));
    }
}

#[test]
fn an_index_that_is_not_of_the_right_form() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a"]);
    let map = r#""weight_map":{"a":"1.safetensors"}"#;
    for (json, fault) in [
        ("", "index byte 0: expected '{', found the end"),
        ("[]", "expected '{', found '['"),
        ("{}", "no weight_map: this JSON is no index"),
        (
            r#"{"metadata":{"total_size":0}}"#,
            "no weight_map: this JSON is no index",
        ),
        (r#"{"weight_map":{}}"#, "the weight_map is empty"),
        (
            r#"{"weight_map":[]}"#,
            "expected an object as weight_map, found '['",
        ),
        (r#"{"weight_map":null}"#, "expected an object as weight_map"),
        (
            r#"{"weight_map":{"a":1}}"#,
            r#"tensor "a": index byte 19: expected a shard's file name"#,
        ),
        (
            r#"{"weight_map":{"a":null}}"#,
            "expected a shard's file name",
        ),
        (
            r#"{"weight_map":{"a":["1.safetensors"]}}"#,
            "expected a shard's file name",
        ),
        (
            r#"{"weight_map":{"a":"1.safetensors",}}"#,
            "expected a key in quotes",
        ),
        (
            r#"{"weight_map":{"a":"1.safetensors"}"#,
            "expected ',' or '}', found the end",
        ),
        (
            &format!("{{{map},{map}}}"),
            r#""weight_map" is given twice"#,
        ),
        (
            &format!(r#"{{{map},"\u0077eight_map":{{}}}}"#),
            r#""weight_map" is given twice"#,
        ),
        (
            &format!(r#"{{"metadata":{{}},{map},"metadata":{{}}}}"#),
            r#""metadata" is given twice"#,
        ),
        (
            &format!("{{{map}}}}}"),
            "expected nothing after the closing '}'",
        ),
        (&format!(r#"{{{map},"x":nul}}"#), "expected a JSON value"),
        (
            &format!(r#"{{{map},"x":{}}}"#, "[".repeat(5000)),
            "nested more than 127 levels deep",
        ),
    ] {
        let index = dir.index(json);
        let error = rejected(Checkpoint::open(&index), InvalidIndex, fault);
        assert_eq!(error.path(), Some(&*index));
    }
}

#[test]
fn what_an_index_may_hold_besides() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a"]);
    let index = dir.index(
        r#" { "metadata": {"total_size": 4, "total_parameters": 1.5e9, "x": [{}]},
              "weight_map": {"\u0061": "1.safetensors"}, "written_by": null } "#,
    );
    let checkpoint = Checkpoint::open(index).unwrap();
    assert_eq!(names(&checkpoint), ["a"]);
    assert_eq!(warnings(&checkpoint), Vec::<String>::new());
}

#[test]
fn an_index_that_is_not_utf8() {
    let dir = Dir::new();
    let index = dir.write("x.json", b"{\"weight_map\":{\"\xff\":\"1.safetensors\"}}");
    let error = rejected(Checkpoint::open(&index), InvalidIndex, "not UTF-8");
    assert_eq!(error.path(), Some(&*index));
}

#[test]
fn an_index_that_is_something_else_is_named() {
    let dir = Dir::new();
    for (bytes, what) in [
        (
            "version https://git-lfs.github.com/spec/v1\n",
            "this is no index but a Git LFS pointer",
        ),
        (
            "<!DOCTYPE html><title>404</title>",
            "this is no index but an HTML page",
        ),
    ] {
        let index = dir.index(bytes);
        let error = rejected(Checkpoint::open(&index), InvalidIndex, what);
        assert_eq!(error.path(), Some(&*index));
    }
}

#[test]
fn an_index_that_is_too_long() {
    let dir = Dir::new();
    let index = dir.index("{}");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&index)
        .unwrap();
    file.set_len(st_format::MAX_HEADER_LEN + 1).unwrap();
    let error = rejected(
        Checkpoint::open(&index),
        InvalidIndex,
        "the index is 100000001 bytes long, the limit is 100000000",
    );
    assert_eq!(error.path(), Some(&*index));
}

#[test]
fn a_total_size_that_is_wrong_or_missing_is_warned_of() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["a"]);
    let map = r#""weight_map":{"a":"1.safetensors"}"#;
    let not_a_number = "metadata.total_size is no whole number of bytes";
    let missing = "there is no metadata.total_size";
    for (metadata, warning) in [
        (
            r#""metadata":{"total_size":5},"#,
            "metadata.total_size is 5, the tensors take 4 bytes",
        ),
        (
            r#""metadata":{"total_size":0},"#,
            "metadata.total_size is 0, the tensors take 4 bytes",
        ),
        (r#""metadata":{"total_size":"4"},"#, not_a_number),
        (r#""metadata":{"total_size":4.0},"#, not_a_number),
        (r#""metadata":{"total_size":-4},"#, not_a_number),
        (
            r#""metadata":{"total_size":18446744073709551616},"#,
            not_a_number,
        ),
        (r#""metadata":{"total_size":null},"#, not_a_number),
        (r#""metadata":{"total_size":{}},"#, not_a_number),
        (r#""metadata":{},"#, missing),
        (r#""metadata":null,"#, missing),
        (r#""metadata":[4],"#, missing),
        ("", missing),
    ] {
        let index = dir.index(&format!("{{{metadata}{map}}}"));
        let checkpoint = Checkpoint::open(&index).unwrap();
        assert_eq!(checkpoint.read("a").unwrap(), counting(4));
        let [found] = &checkpoint.warnings()[..] else {
            panic!("{metadata}: {:?}", checkpoint.warnings());
        };
        assert_eq!(found.path(), index);
        assert_eq!(found.message(), warning, "{metadata}");
    }
}

#[test]
fn a_tensor_the_index_does_not_name_is_not_loaded_and_warned_of() {
    let dir = Dir::new();
    let shard = dir.shard("1.safetensors", &["a", "b", "c"]);
    let index = dir.index_of(&[("b", "1.safetensors")]);
    let checkpoint = Checkpoint::open(index).unwrap();
    assert_eq!(names(&checkpoint), ["b"]);
    assert_eq!((checkpoint.len(), checkpoint.byte_len()), (1, 4));
    assert!(checkpoint.get("a").is_none());
    rejected(checkpoint.read("a"), NotFound, "no such tensor");
    assert_eq!(checkpoint.shards()[0].header().len(), 3);

    let [warning] = &checkpoint.warnings()[..] else {
        panic!("{:?}", checkpoint.warnings());
    };
    assert_eq!(warning.path(), shard);
    assert_eq!(
        warning.message(),
        r#"2 tensors of this shard are not loaded, such as "a", which the index does not name"#
    );
}

#[test]
fn a_tensor_that_the_index_places_in_another_shard_is_read_from_there() {
    let dir = Dir::new();
    let stale = Tensor::new("a", Dtype::U8, &[2], [9, 9]);
    let first = dir.write("1.safetensors", file_of(&[stale, Tensor::bytes("b", 4)]));
    let second = dir.shard("2.safetensors", &["a"]);
    let index = dir.index_of(&[("b", "1.safetensors"), ("a", "2.safetensors")]);
    let checkpoint = Checkpoint::open(index).unwrap();
    assert_eq!(names(&checkpoint), ["b", "a"]);
    assert_eq!(checkpoint.read("a").unwrap(), counting(4));
    assert_eq!(checkpoint.info("a").unwrap().shape(), [4]);
    let [warning] = &checkpoint.warnings()[..] else {
        panic!("{:?}", checkpoint.warnings());
    };
    assert_eq!(warning.path(), first);
    let expected = format!(
        r#"1 tensor of this shard is not loaded, such as "a", which the index places in {}"#,
        second.display()
    );
    assert_eq!(warning.message(), expected);
}

#[test]
fn the_warnings_of_a_shard_are_those_of_its_file() {
    let dir = Dir::new();
    let json = r#" {"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let odd = dir.write("odd.safetensors", file(json, &[0; 4]));
    dir.shard("good.safetensors", &["b"]);
    let index = dir.index_of(&[("b", "good.safetensors"), ("a", "odd.safetensors")]);
    let checkpoint = Checkpoint::open(index).unwrap();
    let [warning] = &checkpoint.warnings()[..] else {
        panic!("{:?}", checkpoint.warnings());
    };
    assert_eq!(warning.path(), odd);
    assert!(warning.message().contains("white space"));
}

// Errors say what they are about.

#[test]
fn errors_name_the_file_and_the_tensor() {
    let dir = Dir::new();
    dir.shard("1.safetensors", &["attn.weight", "attn.bias"]);
    let shard = dir.shard("2.safetensors", &["mlp.weight"]);
    let index = dir.index_of(&[
        ("attn.weight", "1.safetensors"),
        ("attn.bias", "1.safetensors"),
        ("mlp.weight", "2.safetensors"),
    ]);
    let checkpoint = Checkpoint::open(&index).unwrap();

    let error = rejected(
        checkpoint.read("atn.weight"),
        NotFound,
        r#"no such tensor; nearest: "attn.weight", "mlp.weight""#,
    );
    assert_eq!(error.path(), Some(&*index));
    assert_eq!(error.tensor(), Some("atn.weight"));
    assert_eq!(checkpoint.info("x").unwrap_err().kind(), NotFound);
    assert_eq!(checkpoint.bytes("x").unwrap_err().kind(), NotFound);

    let options = ReadOptions::new();
    let mut into = [0; 5];
    let too_long = Read::new("mlp.weight", &mut into);
    let error = rejected(
        checkpoint.read_into([too_long], &options),
        InvalidRequest,
        "takes 4 bytes, not 5",
    );
    assert_eq!(error.path(), Some(&*shard));
    assert_eq!(error.tensor(), Some("mlp.weight"));

    let uncastable = Read::new("mlp.weight", &mut into[..4]).cast(Dtype::I8);
    let error = rejected(
        checkpoint.read_into([uncastable], &options),
        Unsupported,
        "from U8 to I8",
    );
    assert_eq!(error.path(), Some(&*shard));
    assert_eq!(error.tensor(), Some("mlp.weight"));

    let outside = Slice::all().dim(0, 3..5);
    let error = rejected(
        checkpoint.read_slice("mlp.weight", &outside),
        InvalidRequest,
        "range 3..5 is not within 0..4",
    );
    assert_eq!(error.path(), Some(&*shard));
    assert_eq!(error.tensor(), Some("mlp.weight"));
    let whole = format!("{}: tensor \"mlp.weight\": ", shard.display());
    assert!(error.to_string().starts_with(&whole), "{error}");
}

#[test]
fn an_error_about_elements_names_the_shard() {
    let dir = Dir::new();
    let shard = dir.shard("1.safetensors", &["a"]);
    let index = dir.index_of(&[("a", "1.safetensors")]);
    let checkpoint = Checkpoint::open(index).unwrap();
    let found = checkpoint.read_elements::<f32>("a");
    let error = rejected(found, InvalidRequest, "dtype is U8");
    assert_eq!(error.path(), Some(&*shard));
    assert_eq!(error.tensor(), Some("a"));
}

#[test]
fn nothing_is_read_where_one_of_several_reads_is_impossible() {
    let dir = Dir::new();
    let path = dir.shard("model.safetensors", &["a", "b"]);
    let checkpoint = Checkpoint::open(path).unwrap();
    let (mut good, mut short) = ([0; 4], [0; 3]);
    let reads = [Read::new("a", &mut good), Read::new("b", &mut short)];
    rejected(
        checkpoint.read_into(reads, &ReadOptions::new()),
        InvalidRequest,
        "takes 4 bytes, not 3",
    );
    assert_eq!(good, [0; 4]);
}

#[test]
fn an_error_shows_a_hostile_name_in_one_short_line() {
    let dir = Dir::new();
    let name = format!("a\n\u{1b}[31m{}", "x".repeat(1_000_000));
    let json = format!(
        "{{{}:{{\"dtype\":\"Q\",\"shape\":[1],\"data_offsets\":[0,1]}}}}",
        serde_json::to_string(&name).unwrap()
    );
    let path = dir.write("model.safetensors", file(&json, &[0]));
    let error = Checkpoint::open(path).unwrap_err();
    assert_eq!(error.tensor(), Some(&*name));
    let message = error.to_string();
    assert!(message.len() < 1000, "{} bytes", message.len());
    assert!(!message.contains(char::is_control), "{message}");
}

// Files that change.

#[test]
#[cfg(unix)]
fn an_open_checkpoint_reads_what_was_opened() {
    let dir = Dir::new();
    let path = dir.shard("model.safetensors", &["a"]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let other = Tensor::new("a", Dtype::U8, &[4], [9; 4]);
    let new = dir.write("new.safetensors", file_of(&[other]));
    std::fs::rename(new, &path).unwrap();
    assert_eq!(checkpoint.read("a").unwrap(), counting(4));
    assert_eq!(Checkpoint::open(&path).unwrap().read("a").unwrap(), [9; 4]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(checkpoint.read("a").unwrap(), counting(4));
}

#[test]
fn a_file_that_is_truncated_after_opening() {
    const LEN: usize = 9 << 20;
    let dir = Dir::new();
    let tensors = [
        Tensor::bytes("first", 100),
        Tensor::bytes("large", LEN),
        Tensor::bytes("last", 4),
    ];
    let path = dir.write("model.safetensors", file_of(&tensors));
    let checkpoint = Checkpoint::open(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let data_start = checkpoint.shards()[0].header().data_start();
    file.set_len(data_start + 5_000_000).unwrap();

    assert_eq!(checkpoint.read("first").unwrap(), counting(100));
    let beginning = Slice::all().dim(0, ..4_000_000);
    let expected = counting(4_000_000);
    assert!(checkpoint.read_slice("large", &beginning).unwrap() == expected);
    for name in ["large", "last"] {
        let error = rejected(checkpoint.read(name), Io, "cannot read the data");
        assert_eq!(error.path(), Some(&*path));
        assert_eq!(error.tensor(), Some(name));
    }
    let mut into = vec![0; LEN];
    let short_runs = Slice::all().dim_step(0, .., 3);
    for threads in [1, 4] {
        let options = ReadOptions::new().threads(threads);
        let whole = Read::new("large", &mut into);
        rejected(checkpoint.read_into([whole], &options), Io, "large");
        let part = Read::new("large", &mut into[..LEN.div_ceil(3)]).slice(short_runs.clone());
        rejected(checkpoint.read_into([part], &options), Io, "large");
        let cast = Read::new("last", &mut into[..16]).cast(Dtype::F32);
        rejected(checkpoint.read_into([cast], &options), Io, "last");
    }
}

// Links and what is no file.

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// `blobs` holds the files, `snapshots/<commit>` links to them.
    fn hugging_face_cache(dir: &Dir, files: &[(&str, &[u8])]) -> PathBuf {
        let snapshot = dir.join("snapshots/6f0b8d");
        std::fs::create_dir_all(&snapshot).unwrap();
        for (number, (name, bytes)) in files.iter().enumerate() {
            let blob = format!("{number:064x}");
            dir.write(format!("blobs/{blob}"), bytes);
            symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
        }
        snapshot
    }

    #[test]
    fn linked_shards_and_index_as_in_hugging_faces_cache() {
        let dir = Dir::new();
        let map = r#"{"a":"1.safetensors","b":"2.safetensors"}"#;
        let index = format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{map}}}"#);
        let snapshot = hugging_face_cache(
            &dir,
            &[
                ("model.safetensors.index.json", index.as_bytes()),
                ("1.safetensors", &file_of(&[Tensor::bytes("a", 4)])),
                ("2.safetensors", &file_of(&[Tensor::bytes("b", 4)])),
                ("config.json", b"{}"),
            ],
        );
        let index = snapshot.join("model.safetensors.index.json");
        for path in [&snapshot, &index] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert_eq!(checkpoint.path(), index);
            assert_eq!(names(&checkpoint), ["a", "b"]);
            assert_eq!(checkpoint.read("b").unwrap(), counting(4));
            assert_eq!(warnings(&checkpoint), Vec::<String>::new());
        }
        let link = dir.join("link to the snapshot");
        symlink(&snapshot, &link).unwrap();
        assert_eq!(names(&Checkpoint::open(link).unwrap()), ["a", "b"]);
    }

    #[test]
    fn a_linked_file() {
        let dir = Dir::new();
        let bytes = file_of(&[Tensor::bytes("a", 4)]);
        let snapshot = hugging_face_cache(&dir, &[("model.safetensors", &bytes)]);
        for path in [snapshot.clone(), snapshot.join("model.safetensors")] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert_eq!(checkpoint.read("a").unwrap(), counting(4));
        }
    }

    #[test]
    fn a_link_to_nothing() {
        let dir = Dir::new();
        let path = dir.join("model.safetensors");
        symlink("blobs/gone", &path).unwrap();
        for path in [dir.path(), &path] {
            let error = rejected(Checkpoint::open(path), Io, "cannot open");
            assert!(error.path().is_some());
        }
    }

    #[test]
    fn a_shard_that_is_there_and_cannot_be_opened() {
        let dir = Dir::new();
        symlink("1.safetensors", dir.join("1.safetensors")).unwrap();
        let index = dir.index_of(&[("a", "1.safetensors")]);
        let error = rejected(Checkpoint::open(index), Io, "cannot open");
        assert_eq!(error.path(), Some(&*dir.join("1.safetensors")));
        assert!(!error.to_string().contains("not there"), "{error}");
    }

    #[test]
    fn a_path_with_control_characters_is_shown_in_one_line() {
        let dir = Dir::new();
        let name = "a\n\u{1b}[31m\u{7f}.safetensors";
        let path = dir.write(name, file(" {}", b""));
        let other = dir.write("other\n.safetensors", "GGUF");
        let checkpoint = Checkpoint::open(&path).unwrap();
        for message in [
            checkpoint.warnings()[0].to_string(),
            checkpoint.read("x").unwrap_err().to_string(),
            Checkpoint::open(other).unwrap_err().to_string(),
            Checkpoint::open(dir.path()).unwrap_err().to_string(),
        ] {
            assert!(!message.contains(char::is_control), "{message:?}");
            assert!(message.contains("\\n"), "{message:?}");
        }
    }

    /// Fails instead of waiting for ever.
    fn soon<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(f()));
        receive
            .recv_timeout(Duration::from_secs(30))
            .expect("it hangs")
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = Dir::new();
        let make_pipe = |name| {
            let path = dir.join(name);
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
            path
        };
        let pipe = make_pipe("model.safetensors");
        let index_pipe = make_pipe("pipe.json");
        dir.shard("good.safetensors", &["b"]);
        let index = dir.index_of(&[("b", "good.safetensors"), ("a", "model.safetensors")]);

        let path = pipe.clone();
        let error = soon(move || Checkpoint::open(path).unwrap_err());
        assert_eq!(error.path(), Some(&*pipe));
        rejected(Err::<(), _>(error), NotSafetensors, "is no regular file");
        let path = pipe.clone();
        let error = soon(move || Header::read(path).unwrap_err());
        rejected(Err::<(), _>(error), NotSafetensors, "is no regular file");
        // SAFETY: it is never mapped.
        let error = soon(move || unsafe { Checkpoint::map(pipe) }.unwrap_err());
        rejected(Err::<(), _>(error), NotSafetensors, "is no regular file");
        let error = soon(move || Checkpoint::open(index).unwrap_err());
        rejected(Err::<(), _>(error), NotSafetensors, "is no regular file");
        let error = soon(move || Checkpoint::open(index_pipe).unwrap_err());
        rejected(Err::<(), _>(error), NotSafetensors, "is no regular file");
    }

    #[test]
    fn a_device_is_no_file() {
        let message = "is no regular file";
        rejected(Checkpoint::open("/dev/zero"), NotSafetensors, message);
        rejected(Header::read("/dev/null"), NotSafetensors, message);
    }

    #[test]
    fn a_path_that_is_not_utf8() {
        use std::os::unix::ffi::OsStrExt;

        let dir = Dir::new();
        let name = std::ffi::OsStr::from_bytes(b"\xff.safetensors");
        let path = dir.write(name, file_of(&[Tensor::bytes("a", 4)]));
        for path in [dir.path(), &path] {
            let checkpoint = Checkpoint::open(path).unwrap();
            assert_eq!(checkpoint.path(), dir.join(name));
            assert_eq!(checkpoint.read("a").unwrap(), counting(4));
        }
    }
}

#[test]
fn a_directory_named_like_a_file_is_no_file() {
    let dir = Dir::new();
    dir.write("old.safetensors/note", "");
    let file = dir.write("model.safetensors", file("{}", b""));
    assert_eq!(
        Checkpoint::open(file.parent().unwrap()).unwrap().path(),
        file
    );
}
