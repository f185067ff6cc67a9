//! The checks of saving. Each panics where the adapter does not keep a promise.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use st_format::{Checkpoint, Dtype, ErrorKind, Raw, Saver, Slice, TensorView};

use crate::checks::{
    assert_holds, assert_same, directory, every_dtype, expected, held_by, load, native,
};
use crate::file::{self, Tensor};
use crate::{Adapter, Held, loader, model, saver};

/// Tensors of all dtypes the framework holds as they are, of rank 0 to 4, some of them empty.
fn all_kinds<A: Adapter>() -> Vec<Tensor> {
    let mut tensors = Vec::new();
    for dtype in native::<A>() {
        let shapes: [&[usize]; 5] = [&[], &[8], &[4, 64], &[2, 0, 8], &[2, 3, 1, 16]];
        let is_whole = |shape: &&&[usize]| dtype.bytes().is_some() || !shape.is_empty();
        for shape in shapes.iter().filter(is_whole) {
            let name = format!("{dtype}.{}.\u{1F980}", shape.len());
            tensors.push(Tensor::new(&name, dtype, shape));
        }
    }
    tensors
}

/// The tensors as the framework holds them.
fn held<A: Adapter>(dir: &Path, tensors: &[Tensor]) -> HashMap<String, A::Tensor> {
    load::<A>(&file::write(dir, "source.safetensors", tensors))
}

fn assert_saved(checkpoint: &Checkpoint, name: &str, expected: &Held) {
    let info = checkpoint.info(name);
    let info = info.unwrap_or_else(|error| panic!("{error}"));
    let bytes = checkpoint.read(name);
    let found = Held {
        dtype: info.dtype(),
        shape: info.shape().to_vec(),
        bytes: bytes.unwrap_or_else(|error| panic!("{error}")),
    };
    assert_same(&found, expected, name);
}

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Same names, dtypes, shapes, bytes and metadata; of every dtype of a file, even those that the
/// framework holds in another one.
pub fn what_is_saved_is_what_is_held<A: Adapter>() {
    let dir = directory();
    let mut tensors = all_kinds::<A>();
    tensors.extend(held_by::<A>(&every_dtype()));
    let held = held::<A>(dir.path(), &tensors);
    let path = dir.path().join("saved.safetensors");
    let report = saver::<A>()
        .metadata("key", "value \" \u{0}")
        .save(&path, &held);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let checkpoint = open(&path);
    assert_eq!(checkpoint.len(), tensors.len());
    assert_eq!(report.bytes, checkpoint.byte_len());
    assert_eq!(report.files, [&*path]);
    assert!(report.aliases.is_empty(), "{:?}", report.aliases);
    for (name, tensor) in &held {
        assert_saved(&checkpoint, name, &A::look(tensor));
    }
    let metadata: Vec<_> = checkpoint.metadata().into_iter().collect();
    assert_eq!(metadata, [("key", "value \" \u{0}")]);
    let loaded = load::<A>(&path);
    for (name, tensor) in &held {
        assert_same(&A::look(&loaded[name]), &A::look(tensor), name);
    }
}

/// The crate safetensors writes the same bytes, and reads ours.
pub fn files_are_those_of_the_reference<A: Adapter>() {
    let dir = directory();
    let tensors = all_kinds::<A>();
    let held = held::<A>(dir.path(), &tensors);
    let path = dir.path().join("saved.safetensors");
    let saved = saver::<A>().metadata("format", "pt").save(&path, &held);
    saved.unwrap_or_else(|error| panic!("{error}"));
    let ours = fs::read(&path).expect("the file that was saved");

    let views = tensors.iter().map(|tensor| {
        let dtype = serde_json::from_value(tensor.dtype.name().into());
        let view = dtype.map(|dtype| {
            safetensors::tensor::TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes)
        });
        let view = view.expect("the reference has every dtype");
        (&tensor.name, view.expect("bytes of that dtype and shape"))
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let theirs = safetensors::serialize(views, Some(metadata)).expect("the reference writes it");
    assert!(ours == theirs, "the reference writes other bytes");
    let theirs = safetensors::SafeTensors::deserialize(&ours).expect("the reference reads it");
    for tensor in &tensors {
        let view = theirs.tensor(&tensor.name).expect("the reference finds it");
        assert_eq!(view.data(), tensor.bytes, "{}", tensor.name);
    }
}

/// Floats are saved as other floats where asked for; an error where there is no cast, and then no
/// file.
pub fn casts_on_save<A: Adapter>() {
    let dir = directory();
    let tensors = all_kinds::<A>();
    let held = held::<A>(dir.path(), &tensors);
    let path = dir.path().join("cast.safetensors");
    let is_cast = |dtype: Dtype| dtype.is_float() && dtype.casts_to(Dtype::F32);
    let saved = saver::<A>()
        .cast(move |info| is_cast(info.dtype()).then_some(Dtype::F32))
        .save(&path, &held);
    saved.unwrap_or_else(|error| panic!("{error}"));
    let checkpoint = open(&path);
    for tensor in &tensors {
        let dtype = match is_cast(tensor.dtype) {
            true => Dtype::F32,
            false => tensor.dtype,
        };
        let expected = Held {
            dtype,
            shape: tensor.shape.clone(),
            bytes: model::convert(tensor.dtype, dtype, &tensor.bytes),
        };
        assert_saved(&checkpoint, &tensor.name, &expected);
    }

    let path = dir.path().join("none.safetensors");
    let Err(error) = saver::<A>().cast(|_| Some(Dtype::Bool)).save(&path, &held) else {
        panic!("everything was cast to BOOL");
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.path(), Some(&*path));
    assert!(error.tensor().is_some(), "{error}");
    assert!(!path.exists());
}

/// Shards no larger than asked for, with their index; one file of the same bytes again.
pub fn shards_and_back<A: Adapter>() {
    let dir = directory();
    let tensors = all_kinds::<A>();
    let held = held::<A>(dir.path(), &tensors);
    let sharded = dir.path().join("sharded");
    let limit = 600;
    let report = saver::<A>().max_shard_size(limit).save(&sharded, &held);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let checkpoint = open(&sharded);
    assert_eq!(report.files.len(), checkpoint.shards().len() + 1);
    assert!(checkpoint.shards().len() > 1);
    for shard in checkpoint.shards() {
        let header = shard.header();
        assert!(header.len() == 1 || header.data_len() <= limit, "{shard:?}");
    }
    assert_eq!(
        checkpoint.warnings().len(),
        0,
        "{:?}",
        checkpoint.warnings()
    );
    assert_holds::<A>(&load::<A>(&sharded), &tensors);

    let whole = saver::<A>().max_shard_size(u64::MAX).save(&sharded, &held);
    whole.unwrap_or_else(|error| panic!("{error}"));
    let names = fs::read_dir(&sharded).expect("the directory").map(|entry| {
        let name = entry.map(|entry| entry.file_name());
        name.expect("a directory's entry")
    });
    assert_eq!(names.collect::<Vec<_>>(), ["model.safetensors"]);
    assert_holds::<A>(&load::<A>(&sharded), &tensors);
}

/// A tensor that is given under two names is there under both of them again, and where the
/// framework can tell that it is one, it is saved once.
pub fn one_tensor_of_several_names<A: Adapter>() {
    let dir = directory();
    let Some(dtype) = native::<A>().find(|dtype| dtype.bits() >= 8) else {
        panic!("the framework holds no dtype of whole bytes");
    };
    let tensor = Tensor::new("wte.weight", dtype, &[16, 16]);
    let held = held::<A>(dir.path(), std::slice::from_ref(&tensor));
    let path = dir.path().join("tied.safetensors");
    // As given, the same reference is the same tensor for every framework.
    let one = &held["wte.weight"];
    let given = [("wte.weight", one), ("lm_head.weight", one)];
    let report = saver::<A>().save(&path, given);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let alias = ("wte.weight".to_owned(), "lm_head.weight".to_owned());
    assert_eq!(report.aliases, [alias]);
    assert_eq!(report.bytes, tensor.bytes.len() as u64);

    let loaded = load::<A>(&path);
    assert_eq!(loaded.keys().collect::<Vec<_>>(), ["lm_head.weight"]);
    let loaded = loader::<A>().resolve_aliases().load(&path);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.len(), 2);
    for name in ["wte.weight", "lm_head.weight"] {
        assert_same(&A::look(&loaded[name]), &expected::<A>(&tensor), name);
        let checkpoint = open(&path);
        let alone = loader::<A>()
            .resolve_aliases()
            .load_tensor(&checkpoint, name);
        let alone = alone.unwrap_or_else(|error| panic!("{error}"));
        assert_same(&A::look(&alone), &expected::<A>(&tensor), name);
    }

    let report = saver::<A>().untied().save(&path, given);
    report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(load::<A>(&path).len(), 2);
}

/// Aliases are filtered and renamed by their own names; cast, sliced and left out as the tensor
/// they stand for.
pub fn every_name_by_every_policy<A: Adapter>() {
    let dir = directory();
    let tied = Tensor::new("emb", Dtype::U8, &[4, 6]);
    let mut tensors = vec![tied.clone(), Tensor::new("other", Dtype::U8, &[3])];
    let lacking = Dtype::ALL
        .iter()
        .find(|&&dtype| A::promised(dtype).is_none());
    tensors.extend(lacking.map(|&dtype| Tensor::new("lacking", dtype, &[8])));
    let views = tensors.iter().flat_map(|tensor| {
        let view = TensorView::new(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes);
        let view = view.unwrap_or_else(|error| panic!("{error}"));
        let names: &[&str] = match &*tensor.name {
            "emb" => &["emb", "head", "out"],
            "lacking" => &["lacking", "lacking too"],
            _ => &["other"],
        };
        names.iter().map(move |name| (name, view))
    });
    // All in one file, then each tensor in a shard of its own.
    for limit in [u64::MAX, 0] {
        let path = dir.path().join(format!("limit {limit}"));
        let saved = Saver::<Raw>::new()
            .max_shard_size(limit)
            .save(&path, views.clone());
        saved.unwrap_or_else(|error| panic!("{error}"));
        let loader = || loader::<A>().resolve_aliases().skip_unsupported();
        let check = |loader: st_format::Loader<A::Framework>, expected: &[&str], tied: &Tensor| {
            let loaded = loader.load_with_report(&path);
            let (loaded, report) = loaded.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(loaded.len(), expected.len());
            assert_eq!(report.loaded.len(), expected.len());
            for name in expected {
                assert!(
                    report.loaded.iter().any(|loaded| loaded == name),
                    "{report:?}"
                );
                let expected = match name.ends_with("other") {
                    true => &tensors[1],
                    false => tied,
                };
                let found = A::look(&loaded[*name]);
                assert_same(&found, &self::expected::<A>(expected), name);
            }
            report
        };

        let report = check(loader(), &["emb", "other", "head", "out"], &tied);
        // Read once, whatever the number of names.
        assert_eq!(report.bytes, 24 + 3);
        let skipped = report.skipped.iter().map(|skipped| &*skipped.name);
        let lacking: Vec<&str> = lacking.iter().map(|_| "lacking").collect();
        assert_eq!(skipped.collect::<Vec<_>>(), lacking);

        check(loader().filter(|name| name == "out"), &["out"], &tied);
        check(loader().filter(|name| name == "emb"), &["emb"], &tied);
        let some = |name: &str| name == "other" || name == "head" || name == "emb";
        check(loader().filter(some), &["other", "emb", "head"], &tied);

        let prefixed = ["m.emb", "m.other", "m.head", "m.out"];
        check(
            loader().rename(|name| format!("m.{name}")),
            &prefixed,
            &tied,
        );
        let swapped = |name: &str| match name {
            "emb" => "head".to_owned(),
            "head" => "emb".to_owned(),
            name => name.to_owned(),
        };
        check(
            loader().rename(swapped),
            &["emb", "other", "head", "out"],
            &tied,
        );
        let Err(error) = loader()
            .rename(|name| name.replace("out", "emb"))
            .load(&path)
        else {
            panic!("two names became one");
        };
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert_eq!(error.tensor(), Some("out"));

        let cast = Tensor {
            dtype: Dtype::I16,
            bytes: model::convert(Dtype::U8, Dtype::I16, &tied.bytes),
            ..tied.clone()
        };
        let is_tied = |name: &str| name != "other";
        let to_i16 = || loader().cast(|info| (info.name() == "emb").then_some(Dtype::I16));
        check(to_i16().filter(is_tied), &["emb", "head", "out"], &cast);
        let rows = |tensor: &Tensor| Tensor {
            shape: vec![2, 6],
            bytes: tensor.bytes[tensor.bytes.len() / 2..].to_vec(),
            ..tensor.clone()
        };
        let half = || Slice::all().share(0, 1, 2);
        let sliced = to_i16()
            .slice(move |_| half())
            .filter(|name| name == "head");
        check(sliced, &["head"], &rows(&cast));

        let checkpoint = open(&path);
        let sliced = to_i16().slice(move |_| half());
        let alone = sliced.load_tensor(&checkpoint, "out");
        let alone = alone.unwrap_or_else(|error| panic!("{error}"));
        assert_same(&A::look(&alone), &expected::<A>(&rows(&cast)), "out");
        let Err(error) = self::loader::<A>().load_tensor(&checkpoint, "out") else {
            panic!("an alias was resolved, though nobody asked for it");
        };
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

/// Recorded on a save, compared on a load, and what was changed since is found.
pub fn checksums<A: Adapter>() {
    let dir = directory();
    let tensors = all_kinds::<A>();
    let held = held::<A>(dir.path(), &tensors);
    let path = dir.path().join("summed.safetensors");
    let saved = saver::<A>().checksums().save(&path, &held);
    saved.unwrap_or_else(|error| panic!("{error}"));
    let loaded = loader::<A>().verify_checksums().load(&path);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert_holds::<A>(&loaded, &tensors);

    let mut bytes = fs::read(&path).expect("the file that was saved");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).expect("the file that was saved");
    let Err(error) = loader::<A>().verify_checksums().load(&path) else {
        panic!("a file that was changed was loaded");
    };
    assert_eq!(error.kind(), ErrorKind::ChecksumMismatch, "{error}");
    assert!(error.path() == Some(&*path) && error.tensor().is_some());

    let path = dir.path().join("source.safetensors");
    let Err(error) = loader::<A>().verify_checksums().load(&path) else {
        panic!("a file without checksums was found to have the right ones");
    };
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// What was loaded from a file can be saved to it.
pub fn saving_over_what_was_loaded<A: Adapter>() {
    let dir = directory();
    let tensors = all_kinds::<A>();
    let path = file::write(dir.path(), "model.safetensors", &tensors);
    let old = open(&path);
    let loaded = load::<A>(&path);
    let saved = saver::<A>().save(&path, &loaded);
    saved.unwrap_or_else(|error| panic!("{error}"));
    assert_holds::<A>(&load::<A>(&path), &tensors);
    // Who had it open still reads what was there.
    let (loaded, _) = loader::<A>()
        .load_checkpoint(&old)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_holds::<A>(&loaded, &tensors);
}

/// One tensor is written over, the others stay; one of another shape is refused.
pub fn one_tensor_in_place<A: Adapter>() {
    let dir = directory();
    let Some(dtype) = native::<A>().find(|dtype| dtype.bits() >= 16) else {
        panic!("the framework holds no dtype of 16 bits or more");
    };
    let mut tensors = ["before", "old", "new", "other"].map(|name| {
        let shape: &[usize] = if name == "other" { &[5] } else { &[4, 2] };
        Tensor::new(name, dtype, shape)
    });
    let held = held::<A>(dir.path(), &tensors);
    let path = dir.path().join("model.safetensors");
    let saved = saver::<A>().checksums().save(&path, &held);
    saved.unwrap_or_else(|error| panic!("{error}"));

    let refused = saver::<A>().overwrite(&path, "old", &held["other"]);
    let error = refused.expect_err("a tensor of another shape was taken");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert_eq!((error.path(), error.tensor()), (Some(&*path), Some("old")));

    let written = saver::<A>().overwrite(&path, "old", &held["new"]);
    written.unwrap_or_else(|error| panic!("{error}"));
    tensors[1].bytes = tensors[2].bytes.clone();
    let loaded = loader::<A>().verify_checksums().load(&path);
    assert_holds::<A>(&loaded.unwrap_or_else(|error| panic!("{error}")), &tensors);
}
