//! A candle-nn model takes its weights from a checkpoint, lazily.

#![cfg(feature = "nn")]

use candle_core::{DType, Device};
use st_candle::var_builder;
use st_conformance::file::{self, Tensor};
use st_format::Dtype;

fn weights() -> [Tensor; 4] {
    let float = |name: &str, shape: &[usize]| {
        let elements = shape.iter().product::<usize>();
        let bytes = (0..elements).flat_map(|at| (at as f32 / 4.0).to_le_bytes());
        Tensor::new(name, Dtype::F32, shape).with_bytes(bytes.collect())
    };
    let half = [0x3F80_u16, 0xC000].map(u16::to_le_bytes);
    let positions = [0_i64, 1, 2].map(i64::to_le_bytes);
    [
        float("encoder.layer.0.weight", &[4, 3]),
        float("encoder.layer.1.weight", &[2, 4]),
        Tensor::new("encoder.norm", Dtype::BF16, &[2]).with_bytes(half.as_flattened().to_vec()),
        Tensor::new("positions", Dtype::I64, &[3]).with_bytes(positions.as_flattened().to_vec()),
    ]
}

fn sharded() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let weights = weights();
    file::write_sharded(dir.path(), &[&weights[..1], &weights[1..]]);
    dir
}

#[test]
fn tensors_of_all_shards_in_the_dtype_the_model_asks_for() {
    let dir = sharded();
    let vb = var_builder(dir.path(), DType::F32, &Device::Cpu).unwrap();
    let layer = vb.pp("encoder.layer.0").get((4, 3), "weight").unwrap();
    assert_eq!(layer.to_vec2::<f32>().unwrap()[1], [0.75, 1.0, 1.25]);
    // BF16 in the file, F32 for the model; and on request as it is.
    let norm = vb.pp("encoder").get(2, "norm").unwrap();
    assert_eq!(norm.to_vec1::<f32>().unwrap(), [1.0, -2.0]);
    let norm = vb
        .pp("encoder")
        .get_with_hints_dtype(2, "norm", Default::default(), DType::BF16);
    assert_eq!(norm.unwrap().dtype(), DType::BF16);
    // A cast that only candle offers.
    let layer = vb
        .get_unchecked_dtype("encoder.layer.1.weight", DType::I64)
        .unwrap();
    assert_eq!(
        layer.to_vec2::<i64>().unwrap(),
        [[0, 0, 0, 0], [1, 1, 1, 1]]
    );
    let positions = vb.get(3, "positions").unwrap();
    assert_eq!(positions.to_vec1::<f32>().unwrap(), [0.0, 1.0, 2.0]);
    assert!(vb.contains_tensor("positions") && !vb.contains_tensor("position"));
}

#[test]
fn only_what_the_model_asks_for_is_read() {
    let dir = sharded();
    let vb = var_builder(dir.path(), DType::F32, &Device::Cpu).unwrap();
    // The second shard loses its data, and the first one's tensors are still there.
    let second = dir.path().join("model-00002-of-00002.safetensors");
    let shard = std::fs::File::options().write(true).open(second).unwrap();
    shard.set_len(64).unwrap();
    assert!(vb.get((4, 3), "encoder.layer.0.weight").is_ok());
    assert!(vb.get((2, 4), "encoder.layer.1.weight").is_err());
}

#[test]
fn a_missing_name_is_told_with_the_nearest_ones() {
    let dir = sharded();
    let vb = var_builder(dir.path(), DType::F32, &Device::Cpu).unwrap();
    let error = vb.pp("encoder.layers.0").get((4, 3), "weight").unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("model.safetensors.index.json"),
        "{message}"
    );
    assert!(
        message.contains("tensor \"encoder.layers.0.weight\": no such tensor"),
        "{message}"
    );
    assert!(
        message.contains("nearest: \"encoder.layer.0.weight\""),
        "{message}"
    );
}

#[test]
fn a_shape_mismatch_says_both_shapes() {
    let dir = sharded();
    let vb = var_builder(dir.path(), DType::F32, &Device::Cpu).unwrap();
    let error = vb.get((3, 4), "encoder.layer.0.weight").unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("tensor \"encoder.layer.0.weight\": shape is [4, 3]"),
        "{message}"
    );
    assert!(message.contains("the model asks for [3, 4]"), "{message}");
}
