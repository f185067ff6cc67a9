//! The reference implementation opens whatever is saved, and its own files are saved again as they
//! are.

mod common;

use std::collections::HashMap;
use std::fs;

use common::Dir;
use common::saved::{saver, views};
use proptest::prelude::*;
use st_format::{Checkpoint, Dtype};

fn reference_dtype(dtype: Dtype) -> safetensors::Dtype {
    serde_json::from_value(dtype.name().into()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_opens_all_that_is_saved(
        tensors in common::text::tensors(),
        metadata in proptest::option::of((".{0,9}", ".{0,9}")),
        in_given_order: bool,
        checksums: bool,
        alignment in proptest::sample::select(vec![0, 64, 4096]),
        reserved in 0..300_usize,
        limit in proptest::option::of(0..60_u64),
        edited: bool,
    ) {
        let dir = Dir::new();
        let mut saver = saver().align_data(alignment).reserve_header(reserved);
        if in_given_order {
            saver = saver.in_given_order();
        }
        if checksums {
            saver = saver.checksums();
        }
        if let Some((key, value)) = &metadata {
            saver = saver.metadata(key, value);
        }
        if let Some(limit) = limit {
            saver = saver.max_shard_size(limit);
        }
        let report = saver.save(dir.path(), views(&tensors)).unwrap();
        let mut found = 0;
        for path in report.files.iter().filter(|path| path.extension().unwrap() != "json") {
            if edited {
                let mut editor = st_format::Editor::open(path).unwrap();
                editor.set_metadata("edited", "\u{1F980}".repeat(40));
                editor.save().unwrap();
            }
            let bytes = fs::read(path).unwrap();
            let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            for (name, view) in theirs.iter() {
                let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
                prop_assert_eq!(view.dtype(), reference_dtype(tensor.dtype));
                prop_assert_eq!(view.shape(), &tensor.shape);
                prop_assert_eq!(view.data(), &tensor.data);
                found += 1;
            }
            let (_, read) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
            let read = read.metadata().clone().unwrap_or_default();
            if let Some((key, value)) = &metadata {
                prop_assert_eq!(&read[key], value);
            }
            let sums = read.keys().filter(|key| key.starts_with("sha256:")).count();
            prop_assert_eq!(sums, if checksums { theirs.len() } else { 0 });
        }
        prop_assert_eq!(found, tensors.len());
    }

    /// With more than one key its own metadata has another order each time.
    #[test]
    fn its_files_are_saved_again_as_they_are(
        tensors in common::text::tensors(),
        metadata in proptest::option::of((".{0,9}", ".{0,9}")),
    ) {
        let theirs = tensors.iter().map(|tensor| {
            let dtype = reference_dtype(tensor.dtype);
            let view =
                safetensors::tensor::TensorView::new(dtype, tensor.shape.clone(), &tensor.data);
            (&tensor.name, view.unwrap())
        });
        let metadata = metadata.map(|pair| HashMap::from([pair]));
        let bytes = safetensors::serialize(theirs, metadata).unwrap();
        let dir = Dir::new();
        let path = dir.write("model.safetensors", &bytes);
        let checkpoint = Checkpoint::open(&path).unwrap();
        saver().save_checkpoint(&path, &checkpoint).unwrap();
        prop_assert!(fs::read(&path).unwrap() == bytes);

        // By way of shards, too.
        let shards = dir.join("shards");
        saver().max_shard_size(9).save_checkpoint(&shards, &checkpoint).unwrap();
        let checkpoint = Checkpoint::open(&shards).unwrap();
        saver().max_shard_size(u64::MAX).save_checkpoint(&shards, &checkpoint).unwrap();
        prop_assert!(fs::read(shards.join("model.safetensors")).unwrap() == bytes);
    }
}
