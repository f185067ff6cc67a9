//! Metadata and names are changed in a file that is there; its data stays what it is.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use common::saved::{assert_holds, names_in, saver, view, views};
use common::{Dir, Tensor, entry, file, rejected};
use proptest::prelude::*;
use st_format::{Checkpoint, Dtype, Edited, Editor, ErrorKind, Header, Raw, Saver};

#[derive(Clone, Debug)]
enum Edit {
    Set(String, String),
    Remove(String),
    Rename(String, String),
}

/// Few names, so that they meet; tensors are `a` to `f`.
fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let key = || proptest::sample::select(vec!["a", "b", "g", "h", "key", "format", "\u{1F980}\n"]);
    let tensor = || proptest::sample::select(vec!["a", "b", "c", "d", "e", "f"]);
    let new_name = || {
        proptest::sample::select(vec![
            "a",
            "b",
            "c",
            "d",
            "e",
            "f",
            "g",
            "h",
            "",
            "a much longer name",
        ])
    };
    let edit = prop_oneof![
        (key(), ".{0,20}").prop_map(|(key, value)| Edit::Set(key.to_owned(), value)),
        key().prop_map(|key| Edit::Remove(key.to_owned())),
        (tensor(), new_name()).prop_map(|(from, to)| Edit::Rename(from.to_owned(), to.to_owned())),
    ];
    proptest::collection::vec(edit, 0..6)
}

proptest! {
    #[test]
    fn edits_do_what_they_say(
        metadata in proptest::collection::btree_map("key|format|x", ".{0,20}", 0..3),
        reserved in 0..120_usize,
        checksums: bool,
        edits in edits(),
    ) {
        let tensors = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .enumerate()
            .map(|(at, name)| Tensor::bytes(name, 8 * at))
            .collect::<Vec<_>>();
        let dir = Dir::new();
        let path = dir.join("model.safetensors");
        let mut saver = saver().reserve_header(reserved);
        if checksums {
            saver = saver.checksums();
        }
        for (key, value) in &metadata {
            saver = saver.metadata(key, value);
        }
        saver.save(&path, views(&tensors)).unwrap();
        let before = fs::read(&path).unwrap();
        let old = Header::parse(&before).unwrap();

        let mut metadata = metadata;
        let mut names: BTreeMap<String, String> =
            tensors.iter().map(|tensor| (tensor.name.clone(), tensor.name.clone())).collect();
        let mut editor = Editor::open(&path).unwrap();
        for edit in &edits {
            match edit {
                Edit::Set(key, value) => {
                    editor.set_metadata(key, value);
                    metadata.insert(key.clone(), value.clone());
                }
                Edit::Remove(key) => {
                    prop_assert_eq!(editor.remove_metadata(key), metadata.remove(key));
                }
                Edit::Rename(from, to) => {
                    editor.rename(from, to.as_str()).unwrap();
                    names.insert(from.clone(), to.clone());
                }
            }
        }
        let edited = editor.save();
        let distinct: BTreeSet<&String> = names.values().collect();
        if distinct.len() < names.len() {
            let message = "two tensors would have this name";
            rejected(edited, ErrorKind::InvalidRequest, message);
            prop_assert!(fs::read(&path).unwrap() == before);
            return Ok(());
        }

        let after = fs::read(&path).unwrap();
        let new = Header::parse(&after).unwrap();
        let renamed: Vec<Tensor> = tensors
            .iter()
            .map(|tensor| Tensor { name: names[&tensor.name].clone(), ..tensor.clone() })
            .collect();
        assert_holds(&path, &renamed);
        let mut found = new.metadata().clone();
        if checksums {
            Checkpoint::open(&path).unwrap().verify_checksums().unwrap();
            for tensor in &renamed {
                let key = format!("sha256:{}", tensor.name);
                prop_assert!(found.remove(&key).is_some());
            }
        }
        prop_assert_eq!(found, metadata);
        // The data is where it was if the header fits, and no byte of it is another one.
        let text = &after[8..new.data_start() as usize];
        let fits = text.trim_ascii_end().len() as u64 <= old.data_start() - 8;
        prop_assert_eq!(edited.unwrap(), if fits { Edited::InPlace } else { Edited::Rewritten });
        prop_assert!(!fits || new.data_start() == old.data_start());
        prop_assert!(after[new.data_start() as usize..] == before[old.data_start() as usize..]);
        prop_assert_eq!(new.data_start() % 8, 0);
        prop_assert_eq!(names_in(dir.path()), ["model.safetensors"]);
    }

    /// However the header is written: its order, white space, escapes.
    #[test]
    fn any_header_can_be_edited_and_its_file_saved_again(
        tensors in common::text::tensors(),
        metadata in common::text::metadata(),
        seed: u64,
        text in ".{0,60}",
    ) {
        let (json, _) = common::text::Choices::new(seed).header(&tensors, &metadata);
        let data: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.data.clone()).collect();
        let dir = Dir::new();
        let path = dir.write("model.safetensors", file(&json, &data));
        let again = dir.join("again.safetensors");
        saver().save_checkpoint(&again, &Checkpoint::open(&path).unwrap()).unwrap();
        assert_holds(&again, &tensors);

        let mut expected = metadata.unwrap_or_default();
        let mut editor = Editor::open(&path).unwrap();
        editor.set_metadata("text", &text);
        expected.insert("text".to_owned(), text);
        editor.save().unwrap();
        assert_holds(&path, &tensors);
        let header = Header::read(&path).unwrap();
        prop_assert_eq!(header.metadata(), &expected);
        prop_assert!(fs::read(&path).unwrap()[header.data_start() as usize..] == data);
    }
}

/// Old names and new ones.
type Renames<'a> = &'a [(&'a str, &'a str)];

/// `a` and `b`, and their aliases `of a`, `of a too` and `of b`.
fn with_aliases(dir: &Dir, checksums: bool) -> (std::path::PathBuf, [Tensor; 2]) {
    let tensors = [Tensor::bytes("a", 6), Tensor::bytes("b", 7)];
    let path = dir.join("model.safetensors");
    let saver = match checksums {
        true => saver().checksums(),
        false => saver(),
    };
    let given = [
        ("a", 0),
        ("b", 1),
        ("of a", 0),
        ("of a too", 0),
        ("of b", 1),
    ];
    let given = given.map(|(name, at)| (name, view(&tensors[at]).1));
    saver.metadata("format", "pt").save(&path, given).unwrap();
    (path, tensors)
}

fn edited(path: &Path, renames: Renames) -> st_format::Result<Edited> {
    let mut editor = Editor::open(path).unwrap();
    for (from, to) in renames {
        editor.rename(from, *to).unwrap();
    }
    editor.save()
}

#[test]
fn aliases_and_checksums_follow() {
    // Renames, then for `of a`, `of a too`, `of b`, `a` and `b` what they are called now.
    let cases: [(Renames, [&str; 5]); 8] = [
        (&[], ["of a", "of a too", "of b", "a", "b"]),
        (&[("a", "A")], ["of a", "of a too", "of b", "A", "b"]),
        (
            &[("a", "b"), ("b", "a")],
            ["of a", "of a too", "of b", "b", "a"],
        ),
        (&[("of a", "x")], ["x", "of a too", "of b", "a", "b"]),
        (
            &[("of a", "of b"), ("of b", "of a")],
            ["of b", "of a too", "of a", "a", "b"],
        ),
        (
            &[("of a", "of a too"), ("of a too", "of a")],
            ["of a too", "of a", "of b", "a", "b"],
        ),
        (
            &[("a", "of a"), ("of a", "a")],
            ["a", "of a too", "of b", "of a", "b"],
        ),
        (
            &[("a", "b"), ("b", "of a"), ("of a", "of b"), ("of b", "a")],
            ["of b", "of a too", "a", "b", "of a"],
        ),
    ];
    for (renames, [of_a, of_a_too, of_b, a, b]) in cases {
        for checksums in [false, true] {
            let dir = Dir::new();
            let (path, tensors) = with_aliases(&dir, checksums);
            edited(&path, renames).unwrap();
            let [first, second] = tensors;
            let renamed = [
                Tensor {
                    name: a.to_owned(),
                    ..first
                },
                Tensor {
                    name: b.to_owned(),
                    ..second
                },
            ];
            assert_holds(&path, &renamed);
            let checkpoint = Checkpoint::open(&path).unwrap();
            let expected = BTreeMap::from([(of_a, a), (of_a_too, a), (of_b, b)]);
            assert_eq!(checkpoint.aliases(), expected, "{renames:?}");
            assert_eq!(checkpoint.metadata()["format"], "pt");
            let entries = if checksums { 6 } else { 4 };
            assert_eq!(checkpoint.metadata().len(), entries, "{renames:?}");
            if checksums {
                checkpoint.verify_checksums().unwrap();
            }
        }
    }
}

#[test]
fn no_name_is_given_twice_nor_taken_from_metadata() {
    let cases: [(Renames, &str, &str); 10] = [
        (&[("a", "b")], "b", "two tensors would have this name"),
        (
            &[("a", "__metadata__")],
            "a",
            "the format keeps this name for metadata",
        ),
        (
            &[("of a", "__metadata__")],
            "of a",
            "the format keeps this name for metadata",
        ),
        (&[("of a", "b")], "of a", "two tensors would have this name"),
        (
            &[("of a", "of b")],
            "of b",
            "two tensors would have this name",
        ),
        (&[("of a", "a")], "of a", "two tensors would have this name"),
        (&[("a", "of b")], "of b", "two tensors would have this name"),
        (&[("a", "of a")], "of a", "two tensors would have this name"),
        (
            &[("of a", "format")],
            "of a",
            "the metadata has a text under this name",
        ),
        (
            &[("of a", "sha256:b")],
            "of a",
            "the metadata keeps keys such as this name for checksums",
        ),
    ];
    for (renames, tensor, message) in cases {
        let dir = Dir::new();
        let (path, _) = with_aliases(&dir, false);
        let before = fs::read(&path).unwrap();
        let error = rejected(edited(&path, renames), ErrorKind::InvalidRequest, message);
        assert_eq!(
            (error.path(), error.tensor()),
            (Some(&*path), Some(tensor)),
            "{error}"
        );
        assert!(fs::read(&path).unwrap() == before);
    }
}

#[test]
fn an_alias_that_was_set_or_removed_is_as_it_was_left() {
    let dir = Dir::new();
    let (path, _) = with_aliases(&dir, false);
    let mut editor = Editor::open(&path).unwrap();
    assert_eq!(editor.remove_metadata("of a"), Some("a".to_owned()));
    editor.set_metadata("of a too", "free text");
    editor.rename("a", "A").unwrap();
    editor.save().unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.aliases(), [("of b", "b")].into());
    assert_eq!(checkpoint.metadata()["of a too"], "free text");
}

#[test]
fn what_is_not_there_cannot_be_renamed() {
    let dir = Dir::new();
    let (path, _) = with_aliases(&dir, false);
    let mut editor = Editor::open(&path).unwrap();
    for name in ["c", "format", "pt", "__metadata__", ""] {
        let error = rejected(
            editor.rename(name, "d"),
            ErrorKind::NotFound,
            "no such tensor or alias",
        );
        assert_eq!((error.path(), error.tensor()), (Some(&*path), Some(name)));
    }
}

#[test]
fn what_is_no_file_cannot_be_edited() {
    let dir = Dir::new();
    let text = dir.write(
        "text.safetensors",
        "version https://git-lfs.github.com/spec/v1\n",
    );
    for (path, kind, message) in [
        (
            dir.join("nothing.safetensors"),
            ErrorKind::Io,
            "No such file",
        ),
        (
            dir.path().to_owned(),
            ErrorKind::NotSafetensors,
            "is a directory, expected a file",
        ),
        (text, ErrorKind::NotSafetensors, "Git LFS pointer"),
        (
            "/dev/null".into(),
            ErrorKind::NotSafetensors,
            "is no regular file",
        ),
    ] {
        let error = rejected(Editor::open(&path), kind, message);
        assert_eq!(error.path(), Some(&*path));
    }
}

/// White space before the header and unknown fields are accepted, and not kept; nor is the order
/// in which a header names its tensors. Data that is not aligned stays as it is.
#[test]
fn odd_headers_can_be_edited() {
    let a = entry("a", Dtype::U8, &[3], 0, 3);
    let b = entry("b", Dtype::F32, &[1], 3, 7).replace('}', r#","extra":[1,{"x":"}"}]}"#);
    let json = format!(" \n{{{b},{a},\"__metadata__\":null}}");
    let data = [1, 2, 3, 4, 5, 6, 7];
    let tensors = [
        Tensor::new("a", Dtype::U8, &[3], &data[..3]),
        Tensor::new("c", Dtype::F32, &[1], &data[3..]),
    ];
    for (text, how) in [
        ("short", Edited::InPlace),
        (&"long".repeat(99), Edited::Rewritten),
    ] {
        let dir = Dir::new();
        let path = dir.write("model.safetensors", file(&json, &data));
        let mut editor = Editor::open(&path).unwrap();
        assert_eq!(editor.header().len(), 2);
        editor.set_metadata("text", text);
        editor.rename("b", "c").unwrap();
        assert_eq!(editor.save_durably().unwrap(), how);
        assert_holds(&path, &tensors);
        let header = Header::read(&path).unwrap();
        assert_eq!(header.metadata()["text"], text);
        let warnings = Checkpoint::open(&path).unwrap().warnings();
        assert!(
            warnings
                .iter()
                .all(|warning| warning.message().contains("not aligned"))
        );
    }
}

#[test]
fn a_header_over_the_limit_changes_nothing() {
    let dir = Dir::new();
    let (path, _) = with_aliases(&dir, false);
    let before = fs::read(&path).unwrap();
    let mut editor = Editor::open(&path).unwrap();
    editor.set_metadata("text", "x".repeat(st_format::MAX_HEADER_LEN as usize));
    let error = rejected(
        editor.save(),
        ErrorKind::InvalidRequest,
        "the limit is 100000000",
    );
    assert_eq!(error.path(), Some(&*path));
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);
}

/// The longest text that the header has room for goes in place, one byte more does not.
#[test]
fn in_place_goes_what_fits_to_the_byte() {
    let tensors = [Tensor::bytes("a", 100)];
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let saver = saver().reserve_header(64).metadata("text", "");
    saver.save(&path, views(&tensors)).unwrap();
    let before = fs::read(&path).unwrap();
    let header = Header::parse(&before).unwrap();
    let text = &before[8..header.data_start() as usize];
    let room = text.len() - text.trim_ascii_end().len();
    assert!((64..72).contains(&room));
    for (len, how) in [(room, Edited::InPlace), (room + 1, Edited::Rewritten)] {
        fs::write(&path, &before).unwrap();
        let mut editor = Editor::open(&path).unwrap();
        editor.set_metadata("text", "x".repeat(len));
        assert_eq!(editor.save().unwrap(), how);
        assert_holds(&path, &tensors);
    }
}

/// Who asked for aligned data still has it when the header has outgrown its place.
#[test]
fn a_rewrite_keeps_the_alignment() {
    let tensors = [Tensor::bytes("a", 100)];
    for alignment in [8, 64, 4096] {
        let dir = Dir::new();
        let path = dir.join("model.safetensors");
        let saver = saver().align_data(alignment);
        saver.save(&path, views(&tensors)).unwrap();
        let mut editor = Editor::open(&path).unwrap();
        editor.set_metadata("text", "x".repeat(5001));
        assert_eq!(editor.save().unwrap(), Edited::Rewritten);
        let start = Header::read(&path).unwrap().data_start();
        assert_eq!(start % alignment as u64, 0);
        assert!(start < 5200 + alignment as u64, "{start}");
        assert_holds(&path, &tensors);
    }
}

/// The reference implementation's files, too.
#[test]
fn files_of_the_reference_can_be_edited() {
    let dir = Dir::new();
    let data = [7_u8; 8];
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], &data);
    let bytes = safetensors::serialize([("a", view.unwrap())], None).unwrap();
    let path = dir.write("model.safetensors", bytes);
    let mut editor = Editor::open(&path).unwrap();
    editor.rename("a", "layers.0.weight").unwrap();
    editor.save().unwrap();
    let bytes = fs::read(&path).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.tensor("layers.0.weight").unwrap().data(), data);
}

/// Whatever else is in the file, no byte of it changes.
#[test]
fn an_overwrite_writes_its_bytes_and_no_others() {
    let tensors: Vec<Tensor> = [("a", 5), ("b", 9), ("c", 0), ("d", 1)]
        .map(|(name, len)| Tensor::bytes(name, len))
        .to_vec();
    for checksums in [false, true] {
        for tensor in &tensors {
            let dir = Dir::new();
            let mut saver = saver().max_shard_size(10);
            if checksums {
                saver = saver.checksums();
            }
            saver.save(dir.path(), views(&tensors)).unwrap();
            let checkpoint = Checkpoint::open(dir.path()).unwrap();
            let before: Vec<(std::path::PathBuf, Vec<u8>)> = checkpoint
                .shards()
                .iter()
                .map(|shard| (shard.path().to_owned(), fs::read(shard.path()).unwrap()))
                .collect();

            let new = Tensor {
                data: vec![0xee; tensor.data.len()],
                ..tensor.clone()
            };
            let (_, new_view) = view(&new);
            Saver::<Raw>::new()
                .overwrite(dir.path(), &tensor.name, new_view)
                .unwrap();

            let mut expected = tensors.clone();
            expected
                .iter_mut()
                .filter(|other| other.name == tensor.name)
                .for_each(|other| *other = new.clone());
            assert_holds(dir.path(), &expected);
            for (path, before) in before {
                let after = fs::read(&path).unwrap();
                assert_eq!(after.len(), before.len());
                let header = Header::parse(&before).unwrap();
                let start = header.data_start();
                let mut may_change = vec![false; before.len()];
                if let Some(info) = header.get(&tensor.name) {
                    let offsets = info.data_offsets();
                    may_change[(start + offsets.start) as usize..(start + offsets.end) as usize]
                        .fill(true);
                    if checksums {
                        let key = format!("sha256:{}\":\"", tensor.name);
                        let at = before
                            .windows(key.len())
                            .position(|window| window == key.as_bytes());
                        let at = at.unwrap() + key.len();
                        may_change[at..at + 64].fill(true);
                    }
                }
                for (at, may_change) in may_change.into_iter().enumerate() {
                    assert!(
                        may_change || before[at] == after[at],
                        "byte {at} of {path:?}"
                    );
                }
            }
            if checksums {
                Checkpoint::open(dir.path())
                    .unwrap()
                    .verify_checksums()
                    .unwrap();
            }
        }
    }
}

#[test]
fn an_overwrite_casts_and_finds_its_tensor() {
    let dir = Dir::new();
    let tensor = Tensor::new("a", Dtype::BF16, &[2], [0; 4]);
    let path = dir.join("model.safetensors");
    saver()
        .save(&path, views(std::slice::from_ref(&tensor)))
        .unwrap();
    let floats = Tensor::new("any", Dtype::F32, &[2], [0, 0, 128, 63, 0, 0, 0, 64]);
    let (_, floats) = view(&floats);
    let refused = saver().overwrite(&path, "a", floats);
    let message = "it is BF16 [2], not to be overwritten by F32 [2]";
    rejected(refused, ErrorKind::InvalidRequest, message);
    saver()
        .cast_floats(Dtype::BF16)
        .overwrite(&path, "a", floats)
        .unwrap();
    assert_eq!(
        Checkpoint::open(&path).unwrap().read("a").unwrap(),
        [128, 63, 0, 64]
    );
    let error = rejected(
        saver().overwrite(&path, "b", floats),
        ErrorKind::NotFound,
        "no such tensor",
    );
    assert_eq!((error.path(), error.tensor()), (Some(&*path), Some("b")));
}

#[test]
fn an_alias_that_is_set_follows_a_rename_of_the_same_edit() {
    let dir = Dir::new();
    let (path, _) = with_aliases(&dir, false);
    let kept = Checkpoint::open(&path).unwrap();
    let kept = kept.iter().next().unwrap().name().to_owned();
    let mut editor = Editor::open(&path).unwrap();
    editor.set_metadata("new alias", &kept);
    editor.rename(&kept, "new name").unwrap();
    editor.rename("new alias", "newer alias").unwrap();
    editor.save().unwrap();
    let edited = Checkpoint::open(&path).unwrap();
    assert_eq!(edited.aliases()["newer alias"], "new name");
    assert!(!edited.metadata().contains_key("new alias"));
}
