//! A checkpoint goes from framework to framework and stays what it is, to the byte.
#![cfg(all(
    feature = "burn",
    feature = "candle",
    feature = "ndarray",
    feature = "tch"
))]

use std::fs;
use std::path::Path;

use st::candle::candle_core::Device as CandleDevice;
use st::format::{Checkpoint, Dtype, Raw, Saver};
use st::tch::tch::Device as TchDevice;
use st_conformance::file::{self, Tensor};

/// The dtypes that all frameworks hold as they are.
const DTYPES: [Dtype; 8] = [
    Dtype::U8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::BF16,
    Dtype::F32,
    Dtype::F64,
];

#[test]
fn from_each_framework_to_each_other() {
    let shapes: [&[usize]; 4] = [&[], &[7], &[3, 0], &[2, 3, 5]];
    let tensors = DTYPES.iter().flat_map(|&dtype| {
        let tensor =
            move |shape: &&[usize]| Tensor::new(&format!("{dtype}.{}", shape.len()), dtype, shape);
        shapes.iter().map(tensor).collect::<Vec<_>>()
    });
    let dir = tempfile::tempdir().unwrap();
    let source = file::write(
        dir.path(),
        "source.safetensors",
        &tensors.collect::<Vec<_>>(),
    );
    let first = dir.path().join("first.safetensors");
    Saver::<Raw>::new()
        .save_checkpoint(&first, &Checkpoint::open(source).unwrap())
        .unwrap();
    let expected = fs::read(&first).unwrap();

    type Resave = fn(&Path, &Path) -> st::format::Result<()>;
    let frameworks: [(&str, Resave); 4] = [
        ("candle", |from, to| {
            let tensors = st::candle::load_into_candle(from, &CandleDevice::Cpu)?;
            st::candle::save_from_candle(to, &tensors)
        }),
        ("tch", |from, to| {
            let tensors = st::tch::load_into_tch(from, TchDevice::Cpu)?;
            st::tch::save_from_tch(to, &tensors)
        }),
        ("burn", |from, to| {
            let tensors = st::burn::load_into_burn(from)?;
            st::burn::save_from_burn(to, &tensors)
        }),
        ("ndarray", |from, to| {
            let tensors = st::ndarray::load_into_ndarray(from)?;
            st::ndarray::save_from_ndarray(to, &tensors)
        }),
    ];
    for (one, save_one) in &frameworks {
        let by_one = dir.path().join(format!("{one}.safetensors"));
        save_one(&first, &by_one).unwrap();
        for (other, save_other) in &frameworks {
            let by_other = dir.path().join(format!("{one}-{other}.safetensors"));
            save_other(&by_one, &by_other).unwrap();
            assert!(fs::read(&by_other).unwrap() == expected, "{one} to {other}");
        }
    }
}
