//! Casts while loading, next to libtorch's own conversions.

use st_conformance::file::{self, Tensor};
use st_format::Dtype;
use st_tch::{Loader, load_tensor_into_tch, to_tch};
use tch::{Device, Kind};

const TARGETS: [Dtype; 6] = [
    Dtype::F8E4M3,
    Dtype::F8E5M2,
    Dtype::F8E4M3Fnuz,
    Dtype::F8E5M2Fnuz,
    Dtype::F16,
    Dtype::BF16,
];

/// The code of each element, of 8 or 16 bits.
fn codes(tensor: &tch::Tensor) -> Vec<u16> {
    let as_integers = match tensor.kind() {
        Kind::Half | Kind::BFloat16 => tensor.view_dtype(Kind::Int16),
        _ => tensor.view_dtype(Kind::Uint8),
    };
    let codes = Vec::<i32>::try_from(as_integers.to_kind(Kind::Int)).unwrap();
    codes.into_iter().map(|code| code as u16).collect()
}

fn casts_as_libtorch(from: Dtype, elements: &[u8]) {
    let count = elements.len() / from.bytes().unwrap();
    let tensor = Tensor::new("t", from, &[count]).with_bytes(elements.to_vec());
    let dir = tempfile::tempdir().unwrap();
    let path = file::write(dir.path(), "model.safetensors", &[tensor]);
    let source = load_tensor_into_tch(&path, "t", Device::Cpu).unwrap();
    let values = Vec::<f32>::try_from(source.to_kind(Kind::Float)).unwrap();
    for to in TARGETS.into_iter().filter(|&to| to != from) {
        let cast = &Loader::new(Device::Cpu)
            .cast(move |_| Some(to))
            .load(&path)
            .unwrap()["t"];
        let converted = source.to_kind(to_tch(to).unwrap());
        let pairs = codes(cast).into_iter().zip(codes(&converted));
        for (value, (found, theirs)) in values.iter().zip(pairs) {
            let expected = match to {
                // Which NaN depends on the processor, in libtorch.
                Dtype::F16 | Dtype::BF16 if value.is_nan() => {
                    let infinity = if to == Dtype::F16 { 0x7C00 } else { 0x7F80 };
                    assert!(
                        found & 0x7FFF > infinity && theirs & 0x7FFF > infinity,
                        "{from} {value:?} to {to}: {found:#x}, {theirs:#x}"
                    );
                    continue;
                }
                _ => theirs,
            };
            assert_eq!(found, expected, "{from} {value:?} to {to}");
        }
    }
}

#[test]
fn every_8_bit_float_is_cast_as_libtorch_does() {
    let patterns: Vec<u8> = (0..=u8::MAX).collect();
    for from in &TARGETS[..4] {
        casts_as_libtorch(*from, &patterns);
    }
}

#[test]
fn every_16_bit_float_is_cast_as_libtorch_does() {
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    casts_as_libtorch(Dtype::F16, &patterns);
    casts_as_libtorch(Dtype::BF16, &patterns);
}

#[test]
fn f32_is_cast_as_libtorch_does() {
    // Every tie between 8-bit floats is a BF16; and the numbers next to it.
    let ties = (0..=u16::MAX).flat_map(|upper| {
        let bits = u32::from(upper) << 16;
        [bits.wrapping_sub(1), bits, bits + 1]
    });
    let samples = (0..=u32::MAX).step_by(9_973);
    let bytes: Vec<u8> = ties.chain(samples).flat_map(u32::to_le_bytes).collect();
    casts_as_libtorch(Dtype::F32, &bytes);
}
