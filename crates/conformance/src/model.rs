//! What the checks compare with: conversions and slices done one element at a time.

use half::{bf16, f16};
use st_format::Dtype;

/// The elements in another dtype, which is the same, wider, or a float.
pub fn convert(from: Dtype, to: Dtype, bytes: &[u8]) -> Vec<u8> {
    if from == to || (from, to) == (Dtype::Bool, Dtype::U8) {
        return bytes.to_vec();
    }
    let size = from.bytes().expect("elements of whole bytes");
    let elements = bytes.chunks(size);
    elements
        .flat_map(|element| encode(to, decode(from, element)))
        .collect()
}

/// Whether both are the same elements. NaNs have many bit patterns, which all count as the same.
pub fn same(dtype: Dtype, left: &[u8], right: &[u8]) -> bool {
    if left == right {
        return true;
    }
    let size = dtype.bytes().unwrap_or(1);
    let is_float = matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
    let is_nan = |element| is_float && decode(dtype, element).is_nan();
    let mut pairs = left.chunks(size).zip(right.chunks(size));
    left.len() == right.len()
        && pairs.all(|(left, right)| left == right || (is_nan(left) && is_nan(right)))
}

/// The value of one element. Every dtype it is asked for has values that F64 holds exactly.
fn decode(dtype: Dtype, bytes: &[u8]) -> f64 {
    let unsigned = bytes
        .iter()
        .rev()
        .fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
    let signed = || {
        let unused = 64 - 8 * bytes.len() as u32;
        ((unsigned << unused) as i64 >> unused) as f64
    };
    match dtype {
        Dtype::Bool | Dtype::U8 | Dtype::U16 | Dtype::U32 => unsigned as f64,
        Dtype::I8 | Dtype::I16 | Dtype::I32 => signed(),
        Dtype::F8E8M0 if unsigned == 0xFF => f64::NAN,
        Dtype::F8E8M0 => 2_f64.powi(unsigned as i32 - 127),
        Dtype::F8E5M2 => small_float(unsigned, 5, 2, 15),
        Dtype::F8E4M3 if unsigned & 0x7F == 0x7F => f64::NAN,
        Dtype::F8E4M3 => finite_float(unsigned, 4, 3, 7),
        Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz if unsigned == 0x80 => f64::NAN,
        Dtype::F8E4M3Fnuz => finite_float(unsigned, 4, 3, 8),
        Dtype::F8E5M2Fnuz => finite_float(unsigned, 5, 2, 16),
        Dtype::F16 => small_float(unsigned, 5, 10, 15),
        Dtype::BF16 => small_float(unsigned, 8, 7, 127),
        Dtype::F32 => f32::from_bits(unsigned as u32).into(),
        Dtype::F64 => f64::from_bits(unsigned),
        other => panic!("the model has no values for {other}"),
    }
}

/// A float whose largest exponent means infinity and NaN, as in IEEE 754.
fn small_float(bits: u64, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
    let largest = (1 << exponent_bits) - 1;
    if bits >> mantissa_bits & largest != largest {
        return finite_float(bits, exponent_bits, mantissa_bits, bias);
    }
    let negative = bits >> (exponent_bits + mantissa_bits) & 1 == 1;
    match bits & ((1 << mantissa_bits) - 1) {
        0 if negative => f64::NEG_INFINITY,
        0 => f64::INFINITY,
        _ => f64::NAN,
    }
}

fn finite_float(bits: u64, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
    let mantissa = (bits & ((1 << mantissa_bits) - 1)) as f64 / f64::from(1 << mantissa_bits);
    let exponent = (bits >> mantissa_bits & ((1 << exponent_bits) - 1)) as i32;
    let magnitude = match exponent {
        0 => mantissa * 2_f64.powi(1 - bias),
        _ => (1.0 + mantissa) * 2_f64.powi(exponent - bias),
    };
    match bits >> (exponent_bits + mantissa_bits) & 1 {
        0 => magnitude,
        _ => -magnitude,
    }
}

fn encode(dtype: Dtype, value: f64) -> Vec<u8> {
    match dtype {
        Dtype::I16 => (value as i16).to_le_bytes().to_vec(),
        Dtype::U16 => (value as u16).to_le_bytes().to_vec(),
        Dtype::I32 => (value as i32).to_le_bytes().to_vec(),
        Dtype::U32 => (value as u32).to_le_bytes().to_vec(),
        Dtype::I64 => (value as i64).to_le_bytes().to_vec(),
        Dtype::U64 => (value as u64).to_le_bytes().to_vec(),
        // The checks only ask for values that F32 holds exactly here, so nothing rounds twice.
        Dtype::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
        Dtype::F64 => value.to_le_bytes().to_vec(),
        other => panic!("the model does not convert to {other}"),
    }
}

/// The elements, of `size` bytes each, whose index along `dim` is one of `indices`.
pub fn select(
    bytes: &[u8],
    size: usize,
    shape: &[usize],
    dim: usize,
    indices: &[usize],
) -> Vec<u8> {
    let inner = shape[dim + 1..].iter().product::<usize>() * size;
    let outer = shape[..dim].iter().product::<usize>();
    let mut selected = Vec::new();
    for block in 0..outer {
        for index in indices {
            let start = (block * shape[dim] + index) * inner;
            selected.extend(&bytes[start..start + inner]);
        }
    }
    selected
}
