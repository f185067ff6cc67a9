//! The checks. Each panics where the adapter does not keep a promise.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use st_format::{Checkpoint, Dtype, ErrorKind, Framework, LoadReport, Loader, Slice};

use crate::file::{self, Tensor};
use crate::{Adapter, Held, loader, model};

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("cannot make a test directory")
}

/// A tensor whose elements take every bit pattern of their first byte.
pub(crate) fn of_dtype(dtype: Dtype) -> Tensor {
    let name = format!("of.{dtype}");
    match dtype.bits() {
        8 if dtype != Dtype::Bool => {
            Tensor::new(&name, dtype, &[4, 64]).with_bytes((0..=255).collect())
        }
        _ => Tensor::new(&name, dtype, &[4, 64]),
    }
}

pub(crate) fn every_dtype() -> Vec<Tensor> {
    Dtype::ALL.iter().map(|&dtype| of_dtype(dtype)).collect()
}

pub(crate) fn held_by<A: Adapter>(tensors: &[Tensor]) -> Vec<Tensor> {
    let held = |tensor: &&Tensor| A::promised(tensor.dtype).is_some();
    tensors.iter().filter(held).cloned().collect()
}

/// The dtypes the framework holds as they are.
pub(crate) fn native<A: Adapter>() -> impl Iterator<Item = Dtype> {
    let dtypes = Dtype::ALL.iter().copied();
    dtypes.filter(|&dtype| A::promised(dtype) == Some(dtype))
}

pub(crate) fn expected<A: Adapter>(tensor: &Tensor) -> Held {
    let dtype = A::promised(tensor.dtype).expect("a dtype the framework holds");
    Held {
        dtype,
        shape: tensor.shape.clone(),
        bytes: model::convert(tensor.dtype, dtype, &tensor.bytes),
    }
}

pub(crate) fn assert_same(found: &Held, expected: &Held, what: &str) {
    assert_eq!(
        (found.dtype, &found.shape),
        (expected.dtype, &expected.shape),
        "{what}"
    );
    assert!(
        model::same(found.dtype, &found.bytes, &expected.bytes),
        "{what}: other bytes"
    );
}

pub(crate) fn assert_holds<A: Adapter>(loaded: &HashMap<String, A::Tensor>, tensors: &[Tensor]) {
    assert_eq!(loaded.len(), tensors.len());
    for tensor in tensors {
        let found = A::look(&loaded[&tensor.name]);
        assert_same(&found, &expected::<A>(tensor), &tensor.name);
    }
}

pub(crate) fn load<A: Adapter>(path: &Path) -> HashMap<String, A::Tensor> {
    loader::<A>()
        .load(path)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Every dtype becomes the promised one with all its values, or an error that names the tensor,
/// the dtype and the framework.
pub fn every_dtype_is_held_as_promised<A: Adapter>() {
    let dir = directory();
    for tensor in every_dtype() {
        let path = file::write(dir.path(), "one.safetensors", std::slice::from_ref(&tensor));
        if A::promised(tensor.dtype).is_some() {
            assert_holds::<A>(&load::<A>(&path), std::slice::from_ref(&tensor));
            continue;
        }
        let Err(error) = loader::<A>().load(&path) else {
            panic!("{} was loaded, though the framework lacks it", tensor.dtype);
        };
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.path(), Some(&*path), "{error}");
        assert_eq!(error.tensor(), Some(&*tensor.name), "{error}");
        let message = error.to_string();
        assert!(message.contains(tensor.dtype.name()), "{message}");
        assert!(message.contains(A::Framework::NAME), "{message}");
    }
}

/// Ranks 0 to 8, and a dimension of size 0 at either end.
pub fn every_rank_and_empty_dimensions<A: Adapter>() {
    let mut tensors = Vec::new();
    for rank in 0..=8 {
        for dtype in native::<A>() {
            // Two elements innermost keep sub-byte dtypes at whole bytes.
            let mut shape = vec![2; rank];
            if let Some(outermost) = shape.first_mut() {
                *outermost = 4;
            }
            if dtype.bytes().is_some() || rank > 0 {
                tensors.push(Tensor::new(&format!("full.{rank}.{dtype}"), dtype, &shape));
            }
            if rank > 0 {
                let mut empty = shape.clone();
                empty[0] = 0;
                tensors.push(Tensor::new(&format!("first.{rank}.{dtype}"), dtype, &empty));
                let mut empty = shape;
                empty[rank - 1] = 0;
                tensors.push(Tensor::new(&format!("last.{rank}.{dtype}"), dtype, &empty));
            }
        }
    }
    let dir = directory();
    let path = file::write(dir.path(), "ranks.safetensors", &tensors);
    assert_holds::<A>(&load::<A>(&path), &tensors);
}

/// Data at any offset, whatever its alignment.
pub fn unaligned_data<A: Adapter>() {
    let Some(byte) = native::<A>().find(|dtype| dtype.bits() == 8) else {
        panic!("the framework holds no dtype of 8 bits");
    };
    let dir = directory();
    for shift in 1..=8 {
        let mut tensors = vec![Tensor::new("shift", byte, &[shift])];
        tensors.extend(held_by::<A>(&every_dtype()));
        let path = file::write(dir.path(), "shifted.safetensors", &tensors);
        assert_holds::<A>(&load::<A>(&path), &tensors);
    }
}

/// Shards are found through the index, wherever the path points: directory or index.
pub fn a_sharded_checkpoint<A: Adapter>() {
    let dir = directory();
    let tensors = held_by::<A>(&every_dtype());
    let (first, rest) = tensors.split_at(tensors.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    file::write_sharded(dir.path(), &[first, second, third]);
    assert_holds::<A>(&load::<A>(dir.path()), &tensors);
    assert_holds::<A>(
        &load::<A>(&dir.path().join("model.safetensors.index.json")),
        &tensors,
    );
}

/// A checkpoint in memory loads like one in files.
pub fn memory_and_maps_as_well_as_files<A: Adapter>() {
    let tensors = held_by::<A>(&every_dtype());
    let checkpoint = Checkpoint::from_bytes(file::file(&tensors));
    let checkpoint = checkpoint.unwrap_or_else(|error| panic!("{error}"));
    let (loaded, _) = load_checkpoint::<A>(&loader::<A>(), &checkpoint);
    drop(checkpoint);
    assert_holds::<A>(&loaded, &tensors);
}

fn load_checkpoint<A: Adapter>(
    loader: &Loader<A::Framework>,
    checkpoint: &Checkpoint,
) -> (HashMap<String, A::Tensor>, LoadReport) {
    let loaded = loader.load_checkpoint(checkpoint);
    loaded.unwrap_or_else(|error| panic!("{error}"))
}

/// Small tensors of mixed dtypes, each of which is right, and stays so when the others are gone.
pub fn many_small_tensors<A: Adapter>() {
    let dtypes: Vec<Dtype> = native::<A>().collect();
    let tensor = |at: usize| {
        // Runs of one dtype of different lengths.
        let dtype = dtypes[at / 37 % dtypes.len()];
        Tensor::new(&format!("layers.{at}.weight"), dtype, &[1 + at % 5, 8])
    };
    let tensors: Vec<Tensor> = (0..3000).map(tensor).collect();
    let dir = directory();
    let path = file::write(dir.path(), "small.safetensors", &tensors);
    let mut loaded = load::<A>(&path);
    assert_holds::<A>(&loaded, &tensors);
    let survivor = &tensors[1234];
    loaded.retain(|name, _| *name == survivor.name);
    assert_holds::<A>(&loaded, std::slice::from_ref(survivor));
}

/// A tensor that is read in several pieces, beside small ones.
pub fn one_large_tensor_by_any_number_of_threads<A: Adapter>() {
    let dtype = native::<A>().find(|dtype| dtype.bits() >= 16);
    let Some(dtype) = dtype else {
        panic!("the framework holds no dtype of 16 bits or more");
    };
    let tensors = [
        Tensor::new("before", dtype, &[3]),
        Tensor::new("large", dtype, &[2500, 1237]),
        Tensor::new("after", dtype, &[5]),
    ];
    let dir = directory();
    let path = file::write(dir.path(), "large.safetensors", &tensors);
    for threads in [0, 1, 2, 7] {
        let loaded = loader::<A>().threads(threads).load(&path);
        assert_holds::<A>(&loaded.unwrap_or_else(|error| panic!("{error}")), &tensors);
    }
}

/// One tensor, without touching the others: even one the framework lacks is no hindrance.
pub fn one_tensor_by_name<A: Adapter>() {
    let tensors = every_dtype();
    let checkpoint = Checkpoint::from_bytes(file::file(&tensors));
    let checkpoint = checkpoint.unwrap_or_else(|error| panic!("{error}"));
    for tensor in held_by::<A>(&tensors) {
        let loaded = loader::<A>().load_tensor(&checkpoint, &tensor.name);
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
        assert_same(&A::look(&loaded), &expected::<A>(&tensor), &tensor.name);
    }
    let Err(error) = loader::<A>().load_tensor(&checkpoint, "of.F3") else {
        panic!("a tensor that is not there was loaded");
    };
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("nearest: \"of.F"), "{error}");
}

/// Parts of tensors, with shapes to match; others whole.
pub fn slices<A: Adapter>() {
    let dtypes: Vec<Dtype> = native::<A>()
        .filter(|dtype| dtype.bytes().is_some())
        .collect();
    let shape = [6, 8, 10];
    let tensors: Vec<Tensor> = dtypes
        .iter()
        .map(|&dtype| Tensor::new(&format!("sliced.{dtype}"), dtype, &shape))
        .chain([Tensor::new("whole", dtypes[0], &shape)])
        .collect();
    let dir = directory();
    let path = file::write(dir.path(), "slices.safetensors", &tensors);
    let cases = [
        (Slice::all().share(0, 1, 2), 0, vec![3, 4, 5]),
        (Slice::all().share(1, 3, 4), 1, vec![6, 7]),
        (Slice::all().dim(2, 3..7), 2, vec![3, 4, 5, 6]),
        (Slice::all().dim_step(2, 1.., 4), 2, vec![1, 5, 9]),
        (Slice::all().dim(1, 4..4), 1, vec![]),
    ];
    for (slice, dim, indices) in cases {
        let loaded = loader::<A>()
            .slice(move |info| match info.name() {
                "whole" => Slice::all(),
                _ => slice.clone(),
            })
            .load(&path)
            .unwrap_or_else(|error| panic!("{error}"));
        let parts: Vec<Tensor> = tensors
            .iter()
            .map(|tensor| match (&*tensor.name, tensor.dtype.bytes()) {
                ("whole", _) | (_, None) => tensor.clone(),
                (_, Some(size)) => {
                    let mut part = tensor.clone();
                    part.shape[dim] = indices.len();
                    part.bytes = model::select(&tensor.bytes, size, &shape, dim, &indices);
                    part
                }
            })
            .collect();
        assert_holds::<A>(&loaded, &parts);
    }

    let error = loader::<A>()
        .slice(|_| Slice::all().share(0, 0, 5))
        .load(&path);
    let error = error
        .err()
        .unwrap_or_else(|| panic!("6 was shared equally among 5"));
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(
        (error.path(), error.tensor()),
        (Some(&*path), Some(&*tensors[0].name))
    );
}

/// Only what passes the filter, under new names; two of the same new name are an error.
pub fn filter_and_rename<A: Adapter>() {
    let dtype = native::<A>()
        .next()
        .unwrap_or_else(|| panic!("no native dtype"));
    let tensors = ["model.a", "model.b", "optimizer.a"].map(|name| Tensor::new(name, dtype, &[4]));
    let dir = directory();
    let path = file::write(dir.path(), "names.safetensors", &tensors);

    let loaded = loader::<A>()
        .filter(|name| name.starts_with("model."))
        .rename(|name| name.replace("model.", ""))
        .load(&path)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut renamed = tensors[..2].to_vec();
    for (tensor, name) in renamed.iter_mut().zip(["a", "b"]) {
        tensor.name = name.to_owned();
    }
    assert_holds::<A>(&loaded, &renamed);

    let same = loader::<A>().rename(|name| name.rsplit('.').next().unwrap_or(name).to_owned());
    let Err(error) = same.load(&path) else {
        panic!("two tensors were loaded under one name");
    };
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    for part in ["\"a\"", "\"model.a\"", "\"optimizer.a\""] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// Casts where asked for, to every dtype the framework holds; an error where there is no cast.
pub fn casts<A: Adapter>() {
    let targets = [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64];
    let dir = directory();
    for from in Dtype::ALL
        .iter()
        .copied()
        .filter(|dtype| dtype.bits() <= 16)
    {
        let tensor = of_dtype(from);
        let path = file::write(
            dir.path(),
            "cast.safetensors",
            std::slice::from_ref(&tensor),
        );
        for to in targets
            .into_iter()
            .filter(|&to| A::promised(to) == Some(to))
        {
            let loaded = loader::<A>().cast(move |_| Some(to)).load(&path);
            if !from.casts_to(to) {
                let error = loaded.err().map(|error| (error.kind(), error.to_string()));
                let (kind, message) = error.unwrap_or_else(|| panic!("{from} was cast to {to}"));
                assert_eq!(kind, ErrorKind::Unsupported);
                assert!(
                    message.contains(from.name()) && message.contains(to.name()),
                    "{message}"
                );
                continue;
            }
            let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
            let expected = Held {
                dtype: to,
                shape: tensor.shape.clone(),
                bytes: model::convert(from, to, &tensor.bytes),
            };
            let found = A::look(&loaded[&tensor.name]);
            assert_same(&found, &expected, &format!("{from} to {to}"));
        }
    }
}

/// The others are loaded where asked for, and the report names what was left out and why.
pub fn a_dtype_the_framework_lacks_spoils_no_other_tensor<A: Adapter>() {
    let tensors = every_dtype();
    let dir = directory();
    let path = file::write(dir.path(), "all.safetensors", &tensors);
    let loaded = loader::<A>().skip_unsupported().load_with_report(&path);
    let (loaded, report) = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert_holds::<A>(&loaded, &held_by::<A>(&tensors));
    let lacking = tensors
        .iter()
        .filter(|tensor| A::promised(tensor.dtype).is_none());
    let lacking: Vec<&str> = lacking.map(|tensor| &*tensor.name).collect();
    let skipped: Vec<&str> = report
        .skipped
        .iter()
        .map(|skipped| &*skipped.name)
        .collect();
    assert_eq!(skipped, lacking);
    for skipped in &report.skipped {
        assert_eq!(skipped.reason.kind(), ErrorKind::Unsupported);
        assert_eq!(skipped.reason.tensor(), Some(&*skipped.name));
        assert_eq!(skipped.reason.path(), Some(&*path));
    }
}

/// Names in file order, and the bytes that were read.
pub fn the_report_says_what_was_done<A: Adapter>() {
    let tensors = held_by::<A>(&every_dtype());
    let dir = directory();
    let path = file::write(dir.path(), "report.safetensors", &tensors);
    let loaded = loader::<A>().load_with_report(&path);
    let (_, report) = loaded.unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.name).collect();
    assert_eq!(report.loaded, names);
    let bytes: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    assert_eq!(report.bytes, bytes as u64);
    assert!(report.skipped.is_empty());
}

/// Every call says the same total, and one of them says that it is reached.
pub fn progress_reaches_the_total<A: Adapter>() {
    let tensors = held_by::<A>(&every_dtype());
    let dir = directory();
    let path = file::write(dir.path(), "progress.safetensors", &tensors);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let loaded = loader::<A>()
        .progress(move |done, total| {
            if let Ok(mut calls) = calls.lock() {
                calls.push((done, total));
            }
        })
        .load(&path);
    loaded.unwrap_or_else(|error| panic!("{error}"));
    let bytes: u64 = tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum();
    let calls = seen.lock().unwrap_or_else(|_| panic!("a call panicked"));
    assert!(
        calls
            .iter()
            .all(|&(done, total)| total == bytes && done <= total),
        "{calls:?}"
    );
    assert!(calls.contains(&(bytes, bytes)), "{calls:?}");
}

/// A file that is missing, broken, or cut off after it was opened.
pub fn errors_say_where<A: Adapter>() {
    let dir = directory();
    let missing = dir.path().join("missing.safetensors");
    let error = loader::<A>().load(&missing).err();
    let error = error.unwrap_or_else(|| panic!("a missing file was loaded"));
    assert_eq!(
        (error.kind(), error.path()),
        (ErrorKind::Io, Some(&*missing))
    );

    let dtype = native::<A>()
        .next()
        .unwrap_or_else(|| panic!("no native dtype"));
    let tensors = [
        Tensor::new("whole", dtype, &[8]),
        Tensor::new("cut", dtype, &[64, 4096]),
    ];
    let path = file::write(dir.path(), "cut.safetensors", &tensors);
    let checkpoint = Checkpoint::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let file = std::fs::File::options().write(true).open(&path);
    let cut = file.and_then(|file| file.set_len(file.metadata()?.len() - 1));
    cut.unwrap_or_else(|error| panic!("{error}"));
    let error = loader::<A>().load_checkpoint(&checkpoint).err();
    let error = error.unwrap_or_else(|| panic!("a file that was cut off was loaded"));
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)));
    assert!(error.tensor().is_some());

    let error = loader::<A>().load(&path).err();
    let error = error.unwrap_or_else(|| panic!("a file that is cut off was loaded"));
    assert_eq!(
        (error.kind(), error.path()),
        (ErrorKind::InvalidLayout, Some(&*path))
    );
}
