//! Files are written whole or not at all, with the reference's bytes.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use safetensors::tensor::TensorView;
use st_format::{Checkpoint, Dtype, ErrorKind, Layout, Writer};

use common::saved::names_in;

fn reference_dtype(dtype: Dtype) -> safetensors::Dtype {
    serde_json::from_value(dtype.name().into()).unwrap()
}

fn one_tensor() -> Layout {
    let mut layout = Layout::new();
    layout.tensor("a", Dtype::U8, &[4]).unwrap();
    layout
}

fn write_one(path: &Path, bytes: &[u8]) {
    let mut writer = Writer::create(path, one_tensor()).unwrap();
    writer.write("a", bytes).unwrap();
    writer.finish().unwrap();
}

proptest! {
    #[test]
    fn bytes_are_those_of_the_reference(
        tensors in proptest::collection::btree_map(
            ".{0,12}",
            (proptest::sample::select(Dtype::ALL), proptest::collection::vec(0..4_usize, 0..4)),
            0..12,
        ),
        metadata in proptest::option::of((".{0,9}", ".{0,9}")),
        backwards: bool,
    ) {
        let whole = |dtype: Dtype, shape: &[usize]| {
            (shape.iter().product::<usize>() * dtype.bits() as usize).is_multiple_of(8)
        };
        let tensors: Vec<_> = tensors
            .into_iter()
            .filter(|(name, (dtype, shape))| name != "__metadata__" && whole(*dtype, shape))
            .enumerate()
            .map(|(at, (name, (dtype, shape)))| {
                let bits = shape.iter().product::<usize>() * dtype.bits() as usize;
                (name, dtype, shape, vec![at as u8; bits / 8])
            })
            .collect();

        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name.clone(), TensorView::new(reference_dtype(*dtype), shape.clone(), bytes).unwrap())
        });
        let reference_metadata = metadata.clone().map(|pair| HashMap::from([pair]));
        let expected = safetensors::serialize(views, reference_metadata).unwrap();

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let mut layout = Layout::new();
        if let Some((key, value)) = metadata {
            layout.metadata(key, value);
        }
        for (name, dtype, shape, _) in &tensors {
            layout.tensor(name, *dtype, shape).unwrap();
        }
        let mut writer = Writer::create(&path, layout).unwrap();
        let order: Vec<_> = match backwards {
            true => tensors.iter().rev().collect(),
            false => tensors.iter().collect(),
        };
        for (name, _, _, bytes) in order {
            // In two pieces.
            let (first, second) = bytes.split_at(bytes.len() / 2);
            writer.write(name, first).unwrap();
            writer.write(name, second).unwrap();
        }
        writer.finish().unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), expected);
    }
}

#[test]
fn what_was_there_stays_until_the_file_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    write_one(&path, &[1; 4]);
    let old = Checkpoint::open(&path).unwrap();

    let mut writer = Writer::create(&path, one_tensor()).unwrap();
    writer.write("a", &[2; 4]).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().read("a").unwrap(), [1; 4]);
    drop(writer);
    assert_eq!(Checkpoint::open(&path).unwrap().read("a").unwrap(), [1; 4]);
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);

    write_one(&path, &[3; 4]);
    assert_eq!(old.read("a").unwrap(), [1; 4]);
    assert_eq!(Checkpoint::open(&path).unwrap().read("a").unwrap(), [3; 4]);
    assert_eq!(names_in(dir.path()), ["model.safetensors"]);
}

#[test]
fn too_much_too_little_and_the_unknown_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let mut writer = Writer::create(&path, one_tensor()).unwrap();
    let error = writer.write("b", &[0]).unwrap_err();
    assert_eq!(
        (error.kind(), error.tensor()),
        (ErrorKind::NotFound, Some("b"))
    );
    writer.write("a", &[0; 3]).unwrap();
    let error = writer.write("a", &[0; 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(
        error
            .to_string()
            .ends_with("tensor \"a\": written 5 bytes, U8 [4] has 4"),
        "{error}"
    );
    let error = writer.finish().unwrap_err();
    assert_eq!((error.path(), error.tensor()), (Some(&*path), Some("a")));
    assert!(
        error
            .to_string()
            .contains("only 3 bytes were written, U8 [4] has 4"),
        "{error}"
    );
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn names_are_declared_once_and_metadata_is_no_tensor() {
    let mut layout = one_tensor();
    for name in ["a", "__metadata__"] {
        let error = layout.tensor(name, Dtype::U8, &[1]).unwrap_err();
        assert_eq!(
            (error.kind(), error.tensor()),
            (ErrorKind::InvalidRequest, Some(name))
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    for shape in [vec![3], vec![usize::MAX, 2]] {
        let mut layout = Layout::new();
        layout.tensor("half a byte", Dtype::F4, &shape).unwrap();
        let error = Writer::create(&path, layout).unwrap_err();
        assert_eq!(
            (error.kind(), error.tensor()),
            (ErrorKind::InvalidRequest, Some("half a byte"))
        );
    }
    assert!(names_in(dir.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn permissions_and_links_are_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (plain, path) = (
        dir.path().join("plain"),
        dir.path().join("model.safetensors"),
    );
    fs::write(&plain, "").unwrap();
    write_one(&path, &[1; 4]);
    assert_eq!(mode(&path), mode(&plain));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = dir.path().join("link.safetensors");
    symlink("model.safetensors", &link).unwrap();
    write_one(&link, &[2; 4]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Checkpoint::open(&path).unwrap().read("a").unwrap(), [2; 4]);
    assert_eq!(mode(&path), 0o640);

    let dangling = dir.path().join("dangling.safetensors");
    symlink("new.safetensors", &dangling).unwrap();
    write_one(&dangling, &[3; 4]);
    let new = Checkpoint::open(dir.path().join("new.safetensors")).unwrap();
    assert_eq!(new.read("a").unwrap(), [3; 4]);
}
