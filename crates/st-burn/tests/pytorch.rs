//! A module that PyTorch has saved.

mod cnn;

use std::path::PathBuf;

use burn::tensor::{Device, Tensor};
use cnn::{Cnn, as_in_module};
use st_burn::burn_store::{BurnToPyTorchAdapter, ModuleSnapshot};
use st_burn::{Store, load_into_burn};

fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/fixtures", name]
        .iter()
        .collect()
}

/// How far the module's scores are from PyTorch's, at most.
fn difference(model: &Cnn) -> f32 {
    let mut expected = load_into_burn(fixture("cnn-expected.safetensors")).unwrap();
    let device = Device::flex();
    let images = Tensor::from_data(expected.remove("images").unwrap(), &device);
    let scores = Tensor::from_data(expected.remove("scores").unwrap(), &device);
    (model.forward(images) - scores).abs().max().into_scalar()
}

#[test]
fn gives_the_same_outputs() {
    let mut model = Cnn::new(&Device::flex());
    assert!(difference(&model) > 0.1);

    let mut store = as_in_module(Store::open(fixture("cnn.safetensors")).unwrap());
    let result = model.load_from(&mut store).unwrap();
    assert_eq!(result.applied.len(), 16);
    assert_eq!(result.unused, ["features.norm1.num_batches_tracked"]);
    assert!(difference(&model) < 1e-5, "{}", difference(&model));
}

#[test]
fn mapped_gives_the_same_outputs() {
    let mut model = Cnn::new(&Device::flex());
    // SAFETY: nobody writes to a file of the repository while tests run.
    let store = unsafe { Store::map(fixture("cnn.safetensors")) };
    model.load_from(&mut as_in_module(store.unwrap())).unwrap();
    assert!(difference(&model) < 1e-5);
}

#[test]
fn saved_again_it_is_what_pytorch_wrote() {
    let mut model = Cnn::new(&Device::flex());
    let mut store = as_in_module(Store::open(fixture("cnn.safetensors")).unwrap());
    model.load_from(&mut store).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.safetensors");
    let mut saved = Store::create(&path)
        .with_key_remapping(r"^features\.conv1\.", "features.0.")
        .and_then(|store| store.with_key_remapping(r"^features\.norm1\.", "features.1."))
        .and_then(|store| store.with_key_remapping(r"^features\.conv2\.", "features.3."))
        .and_then(|store| store.with_key_remapping(r"^features\.norm2\.", "features.4."))
        .and_then(|store| store.with_key_remapping(r"^classifier\.1\.", "classifier.2."))
        .unwrap()
        .with_to_adapter(BurnToPyTorchAdapter);
    model.save_into(&mut saved).unwrap();

    let mut original = load_into_burn(fixture("cnn.safetensors")).unwrap();
    // What burn's batch norm does not count, it cannot save.
    original.remove("features.1.num_batches_tracked").unwrap();
    assert_eq!(load_into_burn(&path).unwrap(), original);
}
