//! A linear layer that computes with the bytes of a mapped file.

use candle_core::{DType, Device, Module, Tensor};
use half::{bf16, f16};
use st_candle::MappedLinear;
use st_conformance::file::{self, Tensor as Stored};
use st_format::{Checkpoint, Dtype, ErrorKind};

const OUTPUTS: usize = 7;
const INPUTS: usize = 33;

fn values() -> impl Iterator<Item = f32> {
    (0..OUTPUTS * INPUTS).map(|at| (at % 17) as f32 / 8.0 - 1.0)
}

fn bytes_of(dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => values().flat_map(f32::to_le_bytes).collect(),
        Dtype::F16 => values()
            .flat_map(|x| f16::from_f32(x).to_le_bytes())
            .collect(),
        _ => values()
            .flat_map(|x| bf16::from_f32(x).to_le_bytes())
            .collect(),
    }
}

/// A weight of each dtype, a bias, and a weight that is not aligned.
fn checkpoint() -> Checkpoint {
    let weight = |dtype: Dtype| {
        Stored::new(&format!("{dtype}.weight"), dtype, &[OUTPUTS, INPUTS])
            .with_bytes(bytes_of(dtype))
    };
    let bias = (0..OUTPUTS)
        .flat_map(|at| (at as f32).to_le_bytes())
        .collect();
    let mut tensors = vec![
        weight(Dtype::F32),
        weight(Dtype::F16),
        Stored::new("pad", Dtype::U8, &[2]),
        weight(Dtype::BF16),
        Stored::new("bias", Dtype::F32, &[OUTPUTS]).with_bytes(bias),
        Stored::new("count", Dtype::I64, &[OUTPUTS, INPUTS]),
        Stored::new("odd", Dtype::U8, &[1]),
    ];
    let mut unaligned = weight(Dtype::F32);
    unaligned.name = "unaligned".to_owned();
    tensors.push(unaligned);
    // The header's length decides about alignment, and these bytes are not padded.
    let mut bytes = file::file(&tensors);
    let len = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    let padding = (8 - len % 8) % 8;
    bytes[..8].copy_from_slice(&(len + padding).to_le_bytes());
    let data = 8 + len as usize;
    bytes.splice(data..data, std::iter::repeat_n(b' ', padding as usize));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    // SAFETY: nobody writes to the file, whose name is removed with the directory.
    unsafe { Checkpoint::map(&path) }.unwrap()
}

#[test]
fn outputs_are_those_of_a_linear_layer() {
    let checkpoint = checkpoint();
    let inputs: Vec<f32> = (0..3 * INPUTS)
        .map(|at| (at % 5) as f32 / 2.0 - 1.0)
        .collect();
    let inputs = Tensor::from_vec(inputs, (1, 3, INPUTS), &Device::Cpu).unwrap();
    let weight = Tensor::from_vec(values().collect(), (OUTPUTS, INPUTS), &Device::Cpu).unwrap();
    let bias = Tensor::arange(0.0, OUTPUTS as f32, &Device::Cpu).unwrap();
    let expected = candle_nn::Linear::new(weight, Some(bias))
        .forward(&inputs)
        .unwrap();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let name = format!("{dtype}.weight");
        let layer = MappedLinear::new(&checkpoint, &name, Some("bias")).unwrap();
        let output = layer.forward(&inputs).unwrap();
        assert_eq!(output.dims(), [1, 3, OUTPUTS]);
        assert_eq!(output.dtype(), DType::F32);
        // All of these values are exact in the narrowest of the dtypes, and so are their sums.
        let difference = (output - &expected)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap();
        assert_eq!(difference.to_scalar::<f32>().unwrap(), 0.0, "{dtype}");
    }
}

#[test]
fn a_layer_keeps_its_file_mapped() {
    let checkpoint = checkpoint();
    let layer = MappedLinear::new(&checkpoint, "F16.weight", None).unwrap();
    drop(checkpoint);
    let inputs = Tensor::ones((1, INPUTS), DType::F32, &Device::Cpu).unwrap();
    let output = layer.forward(&inputs).unwrap().to_vec2::<f32>().unwrap();
    let expected: f32 = values().take(INPUTS).sum();
    assert_eq!(output[0][0], expected);
}

#[test]
fn what_cannot_be_used_in_place_is_an_error() {
    let checkpoint = checkpoint();
    let cases = [
        ("unaligned", ErrorKind::Misaligned),
        ("bias", ErrorKind::InvalidRequest),
        ("count", ErrorKind::Unsupported),
        ("F32.weights", ErrorKind::NotFound),
    ];
    for (weight, kind) in cases {
        let error = MappedLinear::new(&checkpoint, weight, None).unwrap_err();
        assert_eq!(
            (error.kind(), error.tensor()),
            (kind, Some(weight)),
            "{error}"
        );
        assert_eq!(error.path(), Some(checkpoint.path()));
    }
    let read = Checkpoint::open(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/digits/data/digits.safetensors"
    ));
    let error = MappedLinear::new(&read.unwrap(), "layers.0.weight", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(
        error.to_string().contains("expected one that is mapped"),
        "{error}"
    );
}
