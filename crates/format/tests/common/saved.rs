//! Tensors that are saved, and what is in a directory then.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use st_format::{Checkpoint, Raw, Saver, TensorView};

use super::Tensor;

pub(crate) fn saver() -> Saver<Raw> {
    Saver::new()
}

pub(crate) fn view(tensor: &Tensor) -> (&str, TensorView<'_>) {
    let Tensor {
        name,
        dtype,
        shape,
        data,
    } = tensor;
    (name, TensorView::new(name, *dtype, shape, data).unwrap())
}

pub(crate) fn views(tensors: &[Tensor]) -> Vec<(&str, TensorView<'_>)> {
    tensors.iter().map(view).collect()
}

/// The checkpoint at the path has these tensors and no other, whatever their order.
#[track_caller]
pub(crate) fn assert_holds(path: &Path, tensors: &[Tensor]) {
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"));
    assert_is(&checkpoint, tensors);
}

/// As [`assert_holds`], for one that is open.
#[track_caller]
pub(crate) fn assert_is(checkpoint: &Checkpoint, tensors: &[Tensor]) {
    let mut names: Vec<&str> = checkpoint.iter().map(|info| info.name()).collect();
    let mut expected: Vec<&str> = tensors.iter().map(|tensor| &*tensor.name).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    for tensor in tensors {
        let info = checkpoint.info(&tensor.name).unwrap();
        let expected = (tensor.dtype, &*tensor.shape);
        assert_eq!((info.dtype(), info.shape()), expected, "{}", tensor.name);
        // Too much of it to be shown.
        let is_same = checkpoint.read(&tensor.name).unwrap() == tensor.data;
        assert!(is_same, "{}: other bytes", tensor.name);
    }
}

/// The names of all that is in a directory, sorted.
pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    snapshot(dir).into_keys().collect()
}

/// All that is in a directory: names and contents, hidden files included.
pub(crate) fn snapshot(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // None for directories, and for links that lead nowhere.
            (name, fs::read(entry.path()).ok())
        })
        .collect()
}
