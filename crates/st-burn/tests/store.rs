//! A checkpoint as the store that a module is loaded from and saved into.

mod cnn;

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{DType, Device, Tensor, TensorData, Tolerance};
use cnn::{Cnn, as_in_module};
use st_burn::burn_store::{
    ApplyError, FloatCastAdapter, ModuleSnapshot, ModuleStore, PathFilter, bridge,
};
use st_burn::{Saver, Store, load_into_burn, save_from_burn};
use st_conformance::file::{self, Tensor as Written};
use st_format::{Checkpoint, Dtype, ErrorKind};

#[derive(Module, Debug)]
struct Model {
    encoder: Linear,
    decoder: Linear,
}

fn model() -> Model {
    let device = Device::flex();
    Model {
        encoder: LinearConfig::new(4, 3).init(&device),
        decoder: LinearConfig::new(3, 4).init(&device),
    }
}

const NAMES: [&str; 4] = [
    "decoder.bias",
    "decoder.weight",
    "encoder.bias",
    "encoder.weight",
];

fn tensors() -> Vec<Written> {
    vec![
        Written::new("encoder.weight", Dtype::F32, &[4, 3]),
        Written::new("encoder.bias", Dtype::F32, &[3]),
        Written::new("decoder.weight", Dtype::F32, &[3, 4]),
        Written::new("decoder.bias", Dtype::F32, &[4]),
    ]
}

fn write(dir: &Path, tensors: &[Written]) -> PathBuf {
    file::write(dir, "model.safetensors", tensors)
}

/// The bytes of a model's parameter.
fn bytes_of(model: &Model, name: &str) -> Vec<u8> {
    let tensors = model.collect(None, None, false);
    let tensor = tensors.into_iter().find(|tensor| tensor.name == name);
    tensor.unwrap().into_bytes().unwrap().to_vec()
}

fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn loads_a_module() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &tensors());
    let mut model = model();
    let mut store = Store::open(&path).unwrap();
    let result = model.load_from(&mut store).unwrap();
    assert_eq!(sorted(&result.applied), NAMES);
    assert!(result.missing.is_empty() && result.unused.is_empty() && result.is_success());
    for tensor in tensors() {
        assert_eq!(bytes_of(&model, &tensor.name), tensor.bytes);
    }
}

#[test]
fn loads_a_sharded_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = tensors();
    file::write_sharded(dir.path(), &[&tensors[..1], &tensors[1..3], &tensors[3..]]);
    let mut model = model();
    let result = model.load_from(&mut Store::open(dir.path()).unwrap());
    assert_eq!(sorted(&result.unwrap().applied), NAMES);
    for tensor in tensors {
        assert_eq!(bytes_of(&model, &tensor.name), tensor.bytes);
    }
}

#[test]
fn loads_from_memory_without_a_copy() {
    let checkpoint = Checkpoint::from_bytes(file::file(&tensors())).unwrap();
    let aligned = checkpoint.bytes("encoder.weight").unwrap().unwrap();
    let mut store = Store::from(checkpoint);
    let tensor = store.get_tensor("encoder.weight").unwrap().unwrap();
    let bytes = tensor.to_bytes().unwrap();
    if aligned.as_ptr().addr().is_multiple_of(4) {
        assert_eq!(bytes.as_ptr(), aligned.as_ptr());
    }
    assert_eq!(*bytes, *aligned);
}

#[test]
fn a_filter_skips_what_it_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &tensors());
    let open = || Store::open(&path).unwrap();
    let cases = [
        open().with_regex(r"^encoder\.").unwrap(),
        open().filter(PathFilter::new().with_predicate(|path, _| path.starts_with("encoder."))),
        open()
            .with_full_path("encoder.bias")
            .with_full_path("encoder.weight"),
        open()
            .with_regex(r"^encoder\.b")
            .unwrap()
            .with_full_path("encoder.weight"),
    ];
    for mut store in cases {
        let mut model = model();
        let decoder = bytes_of(&model, "decoder.weight");
        let result = model.load_from(&mut store).unwrap();
        assert_eq!(sorted(&result.applied), NAMES[2..]);
        assert_eq!(result.skipped, NAMES[..2]);
        assert!(result.missing.is_empty() && result.unused.is_empty());
        assert_eq!(bytes_of(&model, "decoder.weight"), decoder);
        // The filter is about the module; the store still knows all.
        assert_eq!(store.keys().unwrap(), NAMES);
    }

    let mut nothing = open().with_regex("no such path").unwrap();
    let result = model().load_from(&mut nothing).unwrap();
    assert_eq!(result.skipped, NAMES);
}

#[test]
fn keys_are_remapped_in_the_order_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = tensors();
    for tensor in &mut tensors {
        tensor.name = format!("net.{}", tensor.name.replace("coder", ""));
    }
    let path = write(dir.path(), &tensors);
    let mut store = Store::open(&path)
        .unwrap()
        .with_key_remapping(r"^net\.", "")
        .and_then(|store| store.with_key_remapping(r"^(en|de)\.", "${1}coder."))
        .unwrap();
    assert_eq!(store.keys().unwrap(), NAMES);
    assert!(store.get_tensor("net.en.bias").unwrap().is_none());
    assert_eq!(model().load_from(&mut store).unwrap().applied.len(), 4);

    let mut store = store.rename(|name| format!("{name}_"));
    assert_eq!(store.keys().unwrap()[0], "decoder.bias_");
}

#[test]
fn two_of_one_name_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &tensors());
    let store = Store::open(&path).unwrap();
    let mut store = store.with_key_remapping("^(en|de)", "").unwrap();
    let error = model().load_from(&mut store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.path(), Some(&*path));
}

#[test]
fn a_broken_pattern_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &tensors());
    let open = || Store::open(&path).unwrap();
    for result in [open().with_regex("("), open().with_key_remapping("(", "")] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
}

#[test]
fn a_partial_load_has_to_be_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let mut fewer = tensors();
    fewer.truncate(2);
    fewer.push(Written::new("head.weight", Dtype::F4, &[2]));
    let path = write(dir.path(), &fewer);

    let error = model()
        .load_from(&mut Store::open(&path).unwrap())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.tensor(), Some("decoder.bias"));
    assert!(error.to_string().contains("(and 1 more)"), "{error}");
    assert!(error.to_string().contains("head.weight"), "{error}");

    let mut store = Store::open(&path).unwrap().allow_partial(true);
    let result = model().load_from(&mut store).unwrap();
    assert_eq!(sorted(&result.applied), NAMES[2..]);
    let missing: Vec<&str> = result.missing.iter().map(|(path, _)| &**path).collect();
    assert_eq!(missing, NAMES[..2]);
    // Its dtype is none of burn's, which matters to nobody.
    assert_eq!(result.unused, ["head.weight"]);
}

#[test]
fn a_wrong_shape_a_wrong_kind_and_a_dtype_burn_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = tensors();
    tensors[0] = Written::new("encoder.weight", Dtype::F32, &[3, 4]);
    tensors[1] = Written::new("encoder.bias", Dtype::I32, &[3]);
    tensors[3] = Written::new("decoder.bias", Dtype::F4, &[4]);
    let path = write(dir.path(), &tensors);

    let error = model()
        .load_from(&mut Store::open(&path).unwrap())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Framework);
    assert_eq!(error.path(), Some(&*path));
    assert!(error.to_string().contains("(and 2 more)"), "{error}");

    let mut store = Store::open(&path).unwrap().validate(false);
    let mut model = model();
    let result = model.load_from(&mut store).unwrap();
    assert_eq!(result.applied, ["decoder.weight"]);
    assert_eq!(bytes_of(&model, "decoder.weight"), tensors[2].bytes);
    let [shape, kind, dtype] = &*result.errors else {
        panic!("{:?}", result.errors);
    };
    assert!(matches!(shape, ApplyError::ShapeMismatch { path, .. } if path == "encoder.weight"));
    assert!(matches!(kind, ApplyError::DTypeMismatch { path, .. } if path == "encoder.bias"));
    let ApplyError::LoadError {
        path: name,
        message,
    } = dtype
    else {
        panic!("{dtype:?}");
    };
    assert_eq!(name, "decoder.bias");
    assert!(message.contains("burn has no dtype for F4"), "{message}");
}

#[test]
fn parameters_take_the_dtype_of_the_file_unless_cast() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [Dtype::BF16, Dtype::F16, Dtype::F64, Dtype::F8E4M3];
    let tensors: Vec<Written> = tensors
        .into_iter()
        .zip(self::tensors())
        .map(|(dtype, tensor)| Written::new(&tensor.name, dtype, &tensor.shape))
        .collect();
    let path = write(dir.path(), &tensors);

    let mut model = model();
    model.load_from(&mut Store::open(&path).unwrap()).unwrap();
    assert_eq!(model.encoder.weight.val().dtype(), DType::BF16);
    assert_eq!(
        model.decoder.bias.clone().unwrap().val().dtype(),
        DType::F16
    );

    let store = Store::open(&path).unwrap();
    let mut store = store.with_from_adapter(FloatCastAdapter::to(DType::F32));
    model.load_from(&mut store).unwrap();
    assert_eq!(model.encoder.weight.val().dtype(), DType::F32);
    assert_eq!(
        model.decoder.bias.clone().unwrap().val().dtype(),
        DType::F32
    );
}

#[test]
fn only_what_the_module_takes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = tensors();
    tensors.push(Written::new("optimizer", Dtype::F32, &[1 << 16]));
    let path = write(dir.path(), &tensors);
    let mut store = Store::open(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let result = model().load_from(&mut store).unwrap();
    assert_eq!(result.unused, ["optimizer"]);
    let optimizer = store.get_tensor("optimizer").unwrap().unwrap();
    let message = bridge::to_data(optimizer).unwrap_err().to_string();
    assert!(message.contains("model.safetensors"), "{message}");
}

#[test]
fn saves_what_it_loads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.safetensors");
    let saved = Cnn::new(&Device::flex());
    let mut store = Store::create(&path).metadata("format", "pt");
    saved.save_into(&mut store).unwrap();
    let first = std::fs::read(&path).unwrap();
    saved.save_into(&mut store).unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        first,
        "the same tensors, other bytes"
    );

    let mut loaded = Cnn::new(&Device::flex());
    let result = loaded.load_from(&mut store).unwrap();
    assert!(result.unused.is_empty());
    let images = Tensor::<4>::ones([1, 3, 9, 9], &Device::flex());
    let expected = saved.forward(images.clone()).into_data();
    let found = loaded.forward(images).into_data();
    found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.metadata()["format"], "pt");
}

#[test]
fn saves_what_the_filter_passes_under_other_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.safetensors");
    let mut store = Store::create(&path)
        .with_regex(r"^encoder\.")
        .and_then(|store| store.with_key_remapping(r"^encoder\.", ""))
        .unwrap();
    model().save_into(&mut store).unwrap();
    let saved = load_into_burn(&path).unwrap();
    let mut names: Vec<&str> = saved.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["bias", "weight"]);
}

#[test]
fn a_failed_save_leaves_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &tensors());
    let before = std::fs::read(&path).unwrap();
    let mut same_name = Store::create(&path)
        .with_key_remapping("^(en|de)", "")
        .unwrap();
    let error = model().save_into(&mut same_name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);

    let error = model()
        .save_into(&mut Store::open(&path).unwrap())
        .unwrap_err();
    assert!(error.to_string().contains("Store::create"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn bools_are_saved_as_bools_whatever_holds_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bools.safetensors");
    let bools = TensorData::from([true, false, true]);
    let wide = bools
        .clone()
        .convert_dtype(DType::Bool(burn::tensor::BoolStore::U32));
    let bytes = bools
        .clone()
        .convert_dtype(DType::Bool(burn::tensor::BoolStore::U8));
    save_from_burn(
        &path,
        [("native", &bools), ("wide", &wide), ("bytes", &bytes)],
    )
    .unwrap();
    let loaded = load_into_burn(&path).unwrap();
    for name in ["native", "wide", "bytes"] {
        assert_eq!(loaded[name], bools, "{name}");
    }
}

#[test]
fn the_cnn_needs_every_step_of_its_remapping() {
    // Without the adapter, norms have other names and linear weights another shape.
    let path = [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/cnn.safetensors"];
    let store = Store::open(path.iter().collect::<PathBuf>()).unwrap();
    let mut store = as_in_module(store)
        .with_from_adapter(st_burn::burn_store::IdentityAdapter)
        .validate(false)
        .allow_partial(true);
    let result = Cnn::new(&Device::flex()).load_from(&mut store).unwrap();
    assert_eq!(result.missing.len(), 6);
    assert_eq!(result.errors.len(), 2);
}

#[test]
fn a_bool_that_is_neither_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let flags = Written::new("flags", Dtype::Bool, &[3]).with_bytes(vec![0, 1, 2]);
    let path = write(dir.path(), &[flags]);
    let error = load_into_burn(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(
        (error.path(), error.tensor()),
        (Some(&*path), Some("flags"))
    );
    // SAFETY: the file is in a directory of the test's own, which only writes it before.
    let mapped = unsafe { st_burn::map_into_burn(&path) };
    assert_eq!(mapped.unwrap_err().kind(), ErrorKind::InvalidData);
}

/// Two layers that can be one parameter.
#[derive(Module, Debug)]
struct Tied {
    first: Linear,
    second: Linear,
}

impl Tied {
    fn new(tied: bool) -> Tied {
        let config = LinearConfig::new(4, 4).with_bias(false);
        let first = config.init(&Device::flex());
        let second = match tied {
            true => first.clone(),
            false => config.init(&Device::flex()),
        };
        Tied { first, second }
    }
}

fn weights(model: &Tied) -> [TensorData; 2] {
    [&model.first, &model.second].map(|layer| layer.weight.val().into_data())
}

#[test]
fn tied_parameters_are_saved_once_and_loaded_both() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tied.safetensors");
    let saved = Tied::new(true);
    saved.save_into(&mut Store::create(&path)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.len(), 1);
    assert_eq!(checkpoint.resolve("second.weight"), "first.weight");

    let mut loaded = Tied::new(false);
    let result = loaded.load_from(&mut Store::open(&path).unwrap()).unwrap();
    assert_eq!(sorted(&result.applied), ["first.weight", "second.weight"]);
    assert!(result.missing.is_empty() && result.unused.is_empty());
    assert_eq!(weights(&loaded), weights(&saved));
}

#[test]
fn a_tensor_that_is_taken_under_one_of_its_names_is_not_unused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tied.safetensors");
    Tied::new(true)
        .save_into(&mut Store::create(&path))
        .unwrap();
    for name in ["first", "second"] {
        let mut store = Store::open(&path)
            .unwrap()
            .rename(move |other| other.replace(&format!("{name}."), "encoder."))
            .allow_partial(true);
        let config = LinearConfig::new(4, 4).with_bias(false);
        let mut model = Model {
            encoder: config.init(&Device::flex()),
            decoder: config.init(&Device::flex()),
        };
        let result = model.load_from(&mut store).unwrap();
        assert_eq!(result.applied, ["encoder.weight"]);
        assert!(result.unused.is_empty(), "{:?}", result.unused);
    }
    // Under neither: it is listed once.
    let mut store = Store::open(&path).unwrap().allow_partial(true);
    let result = model().load_from(&mut store).unwrap();
    assert_eq!(result.unused, ["first.weight"]);
}

#[test]
fn clones_that_have_gone_their_own_ways_are_not_tied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("clones.safetensors");
    let mut saved = Tied::new(true);
    // The same id, other elements.
    saved.second.weight = saved.second.weight.map(|weight| weight + 1.0);
    assert_eq!(saved.first.weight.id, saved.second.weight.id);
    saved.save_into(&mut Store::create(&path)).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().len(), 2);
    let mut loaded = Tied::new(false);
    loaded.load_from(&mut Store::open(&path).unwrap()).unwrap();
    assert_eq!(weights(&loaded), weights(&saved));
}

#[test]
fn saves_by_the_policies_of_a_saver() {
    let dir = tempfile::tempdir().unwrap();
    let saver = Saver::new()
        .metadata("format", "pt")
        .cast_floats(Dtype::F16)
        .checksums()
        .max_shard_size(30);
    let saved = model();
    let mut store = Store::create(dir.path()).saver(saver);
    saved.save_into(&mut store).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert!(checkpoint.shards().len() > 1);
    assert!(checkpoint.iter().all(|info| info.dtype() == Dtype::F16));
    assert_eq!(checkpoint.metadata()["format"], "pt");
    checkpoint.verify_checksums().unwrap();
    // The store that was saved into loads it.
    let mut loaded = model();
    let result = loaded.load_from(&mut store).unwrap();
    assert_eq!(sorted(&result.applied), NAMES);
}

#[test]
fn a_parameter_that_is_a_transposed_view_is_saved_in_row_major_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("transposed.safetensors");
    let device = Device::flex();
    let weight = Tensor::<2>::from_data([[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
    let mut saved = Tied::new(false);
    saved.first.weight = saved.first.weight.map(|_| weight.clone().transpose());
    saved.second.weight = saved
        .second
        .weight
        .map(|_| weight.clone().narrow(1, 1, 1).expand([2, 3]));
    saved.save_into(&mut Store::create(&path)).unwrap();
    let loaded = load_into_burn(&path).unwrap();
    let expected = TensorData::from([[1.0_f32, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    assert_eq!(loaded["first.weight"], expected);
    let expected = TensorData::from([[2.0_f32, 2.0, 2.0], [5.0, 5.0, 5.0]]);
    assert_eq!(loaded["second.weight"], expected);
}

#[test]
fn a_store_loads_the_shards_it_has_saved() {
    let dir = tempfile::tempdir().unwrap();
    let saver = Saver::new().max_shard_size(30);
    let mut store = Store::create(dir.path().join("x.safetensors")).saver(saver);
    let saved = model();
    for _ in 0..2 {
        saved.save_into(&mut store).unwrap();
        let mut loaded = model();
        loaded.load_from(&mut store).unwrap();
        for name in NAMES {
            assert_eq!(bytes_of(&loaded, name), bytes_of(&saved, name));
        }
    }
}
