//! Tensors that share their storage are saved once, under the first of their names.

mod common;

use std::collections::{BTreeMap, HashMap};

use common::saved::{assert_holds, saver, view};
use common::{Dir, Tensor, rejected};
use proptest::prelude::*;
use st_format::{Checkpoint, Dtype, ErrorKind, TensorView};

#[test]
fn the_first_name_is_kept_whatever_the_order() {
    let tensor = Tensor::bytes("", 24);
    let names = ["d", "b", "a", "c"];
    for first in 0..4 {
        for saver in [saver(), saver().in_given_order()] {
            let dir = Dir::new();
            let mut names = names;
            names.rotate_left(first);
            let given = names.map(|name| (name, view(&tensor).1));
            let report = saver.save(dir.join("model.safetensors"), given).unwrap();
            let aliases = ["b", "c", "d"].map(|alias| (alias.to_owned(), "a".to_owned()));
            assert_eq!(report.aliases, aliases);
            assert_eq!(report.bytes, 24);
            let checkpoint = Checkpoint::open(dir.path()).unwrap();
            assert_eq!(checkpoint.len(), 1);
            assert_eq!(
                checkpoint.aliases(),
                BTreeMap::from([("b", "a"), ("c", "a"), ("d", "a")])
            );
            for name in names {
                assert_eq!(checkpoint.resolve(name), "a");
            }
            assert_eq!(checkpoint.resolve("e"), "e");
        }
    }
}

proptest! {
    /// Views of one buffer: those of the same bytes, dtype and shape are tied, no others.
    #[test]
    fn what_is_tied_is_one_tensor(
        views in proptest::collection::btree_map(
            "[a-z]{1,3}",
            (0..3_usize, 0..3_usize, proptest::sample::select(vec![Dtype::U8, Dtype::I8, Dtype::U16]), 0..3),
            0..12,
        ),
        shards in proptest::option::of(0..20_u64),
        untied: bool,
    ) {
        let buffer = common::counting(16);
        let views: BTreeMap<String, (Dtype, Vec<usize>, &[u8])> = views
            .into_iter()
            .map(|(name, (begin, pairs, dtype, form))| {
                let bytes = &buffer[begin..begin + 2 * pairs];
                let elements = bytes.len() / dtype.bytes().unwrap();
                let shape = match form {
                    0 => vec![elements],
                    1 => vec![1, elements],
                    _ => vec![elements, 1],
                };
                (name, (dtype, shape, bytes))
            })
            .collect();
        let mut kept: HashMap<(Dtype, &[usize], *const u8), &str> = HashMap::new();
        let mut aliases = Vec::new();
        let mut tensors = Vec::new();
        for (name, (dtype, shape, bytes)) in &views {
            let identity = (*dtype, &shape[..], bytes.as_ptr());
            match kept.get(&identity) {
                Some(kept) if !bytes.is_empty() && !untied => {
                    aliases.push((name.clone(), kept.to_string()));
                }
                _ => {
                    kept.insert(identity, name);
                    tensors.push(Tensor::new(name, *dtype, shape, *bytes));
                }
            }
        }

        let dir = Dir::new();
        let mut saver = saver();
        if let Some(limit) = shards {
            saver = saver.max_shard_size(limit);
        }
        if untied {
            saver = saver.untied();
        }
        let given = views.iter().map(|(name, (dtype, shape, bytes))| {
            (name, TensorView::new(name, *dtype, shape, bytes).unwrap())
        });
        let report = saver.save(dir.path(), given).unwrap();
        prop_assert_eq!(&report.aliases, &aliases);
        assert_holds(dir.path(), &tensors);
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let recorded: Vec<(String, String)> = checkpoint
            .aliases()
            .into_iter()
            .map(|(alias, kept)| (alias.to_owned(), kept.to_owned()))
            .collect();
        prop_assert_eq!(recorded, aliases);
        for (name, (_, _, bytes)) in &views {
            prop_assert_eq!(&checkpoint.read(checkpoint.resolve(name)).unwrap(), bytes);
        }
    }
}

#[test]
fn one_tensor_cast_to_two_dtypes_is_two() {
    let tensor = Tensor::new("", Dtype::F32, &[2], [0, 0, 128, 63, 0, 0, 0, 64]);
    let given = ["a", "b", "c"].map(|name| (name, view(&tensor).1));
    let saver = saver().cast(|info| (info.name() == "b").then_some(Dtype::F64));
    let dir = Dir::new();
    let report = saver.save(dir.join("model.safetensors"), given).unwrap();
    assert_eq!(report.aliases, [("c".to_owned(), "a".to_owned())]);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.read_elements::<f32>("a").unwrap(), [1.0, 2.0]);
    assert_eq!(checkpoint.read_elements::<f64>("b").unwrap(), [1.0, 2.0]);
}

#[test]
fn an_alias_and_other_metadata_of_its_key_exclude_each_other() {
    let tensor = Tensor::bytes("", 4);
    let given = ["a", "b"].map(|name| (name, view(&tensor).1));
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let saved = saver().metadata("b", "free text").save(&path, given);
    let message =
        r#"tied to "a", which is to stand under its name in the metadata, where "free text" does"#;
    let error = rejected(saved, ErrorKind::InvalidRequest, message);
    assert_eq!((error.path(), error.tensor()), (Some(&*path), Some("b")));
    assert!(!path.exists());
    // The same text is none; and where both are written, neither stands in the other's place.
    saver().metadata("b", "a").save(&path, given).unwrap();
    saver()
        .metadata("b", "free text")
        .untied()
        .save(&path, given)
        .unwrap();
    assert_eq!(
        Checkpoint::open(&path).unwrap().metadata(),
        [("b", "free text")].into()
    );
    assert!(Checkpoint::open(&path).unwrap().aliases().is_empty());
}

/// A key cannot be both an alias and a checksum.
#[test]
fn an_alias_that_looks_like_a_checksum_is_an_error() {
    let (tensor, other) = (Tensor::bytes("", 4), Tensor::bytes("", 4));
    let given = [
        ("a", view(&tensor).1),
        ("sha256:b", view(&tensor).1),
        ("b", view(&other).1),
    ];
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    for saver in [saver(), saver().checksums()] {
        let message = "the metadata keeps keys such as its name for checksums";
        let error = rejected(saver.save(&path, given), ErrorKind::InvalidRequest, message);
        assert_eq!(error.tensor(), Some("sha256:b"));
        saver.untied().save(&path, given).unwrap();
        assert_eq!(Checkpoint::open(&path).unwrap().len(), 3);
    }
}

#[test]
fn metadata_is_an_alias_only_where_it_names_a_tensor_and_is_none() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let tensors = [
        Tensor::bytes("a", 4),
        Tensor::bytes("b", 5),
        Tensor::bytes("pt", 6),
    ];
    saver()
        .metadata("a", "b")
        .metadata("b", "b")
        .metadata("chain", "alias")
        .metadata("alias", "a")
        .metadata("nobody", "nothing")
        .metadata("format", "pt")
        .save(&path, common::saved::views(&tensors))
        .unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    // Nothing tells the format "pt" from an alias of the tensor "pt".
    let expected = BTreeMap::from([("alias", "a"), ("format", "pt")]);
    assert_eq!(checkpoint.aliases(), expected);
    for (name, resolved) in [
        ("a", "a"),
        ("b", "b"),
        ("alias", "a"),
        ("chain", "chain"),
        ("nobody", "nobody"),
    ] {
        assert_eq!(checkpoint.resolve(name), resolved);
    }
}
