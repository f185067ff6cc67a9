//! Casts, against arithmetic of the tests' own: what is offered, and every value of it.

mod common;

use common::{Tensor, file_of, rejected};
use half::{bf16, f16};
use proptest::prelude::*;
use st_format::{
    Checkpoint, Dtype, ErrorKind, Raw, Read, ReadOptions, Result, Saver, Slice, TensorView,
};

use Dtype::*;

/// Elements of `from`, as they stand in a file, cast to `to`: on a load, and no different on a
/// save.
fn cast(from: Dtype, to: Dtype, data: &[u8]) -> Result<Vec<u8>> {
    let shape = [data.len() * 8 / from.bits() as usize];
    let tensor = Tensor::new("t", from, &shape, data);
    let checkpoint = Checkpoint::from_bytes(file_of(&[tensor]))?;
    let mut into = vec![0xEE; shape[0] * to.bits() as usize / 8];
    let loaded = checkpoint.read_into([Read::new("t", &mut into).cast(to)], &ReadOptions::new());

    let view = TensorView::new("t", from, &shape, data)?;
    let saver = Saver::<Raw>::new().cast(move |_| Some(to));
    let saved = saver
        .write_to(Vec::new(), [("t", view)])
        .and_then(Checkpoint::from_bytes)
        .and_then(|checkpoint| checkpoint.read("t"));
    match (&loaded, &saved) {
        (Ok(()), Ok(saved)) => assert!(*saved == into, "{from} to {to}: saved otherwise"),
        (Err(load), Err(save)) => assert_eq!(load.kind(), save.kind()),
        _ => panic!("{from} to {to}: {loaded:?} to load, {saved:?} to save"),
    }
    loaded.map(|()| into)
}

/// The value of an element, exactly: all there are fit an f64, but for 64-bit integers.
#[derive(Clone, Copy, Debug)]
enum Value {
    Float(f64),
    Integer(i128),
}

impl Value {
    /// Whether both are the same number, or NaN; zeros of different sign are not.
    fn is(self, other: Value) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => {
                a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits()
            }
            (Value::Integer(a), Value::Integer(b)) => a == b,
            // No float is cast to an integer, so the float is the result, and 0 is positive.
            (Value::Integer(a), Value::Float(b)) | (Value::Float(b), Value::Integer(a)) => {
                b.fract() == 0.0
                    && b.abs() < 2e20
                    && b as i128 == a
                    && !(a == 0 && b.is_sign_negative())
            }
        }
    }
}

/// The value of a code of sign, exponent and mantissa, `width` bits together, where none stands
/// for infinity or NaN.
fn finite(code: u16, width: u32, mantissa_bits: u32, bias: i32) -> f64 {
    let (code, sign) = (u32::from(code), 1 << (width - 1));
    let exponent = ((code % sign) >> mantissa_bits) as i32;
    let fraction = f64::from(code % (1 << mantissa_bits)) / f64::from(1 << mantissa_bits);
    let value = match exponent {
        0 => fraction * 2_f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2_f64.powi(exponent - bias),
    };
    if code & sign != 0 { -value } else { value }
}

/// The same where the largest exponent stands for infinity and NaN, as in IEEE 754.
fn ieee(code: u16, width: u32, mantissa_bits: u32) -> f64 {
    let largest = (1 << (width - 1 - mantissa_bits)) - 1;
    let value = finite(code, width, mantissa_bits, largest / 2);
    let beyond = finite(
        (largest as u16) << mantissa_bits,
        width,
        mantissa_bits,
        largest / 2,
    );
    match value.abs() {
        finite if finite < beyond => value,
        infinite if infinite == beyond => f64::INFINITY.copysign(value),
        _ => f64::NAN,
    }
}

/// What an element of a dtype of 8 bits and more means.
fn decode(dtype: Dtype, bytes: &[u8]) -> Value {
    let float = Value::Float;
    let integer = Value::Integer;
    macro_rules! le {
        ($t:ty) => {
            <$t>::from_le_bytes(bytes.try_into().unwrap())
        };
    }
    match dtype {
        Bool | U8 => integer(bytes[0].into()),
        I8 => integer(le!(i8).into()),
        U16 => integer(le!(u16).into()),
        I16 => integer(le!(i16).into()),
        U32 => integer(le!(u32).into()),
        I32 => integer(le!(i32).into()),
        U64 => integer(le!(u64).into()),
        I64 => integer(le!(i64).into()),
        F8E4M3 if bytes[0] & 0x7F == 0x7F => float(f64::NAN),
        F8E5M2Fnuz | F8E4M3Fnuz if bytes[0] == 0x80 => float(f64::NAN),
        F8E8M0 if bytes[0] == 0xFF => float(f64::NAN),
        F8E5M2 => float(ieee(bytes[0].into(), 8, 2)),
        F8E4M3 => float(finite(bytes[0].into(), 8, 3, 7)),
        F8E5M2Fnuz => float(finite(bytes[0].into(), 8, 2, 16)),
        F8E4M3Fnuz => float(finite(bytes[0].into(), 8, 3, 8)),
        F8E8M0 => float(2_f64.powi(i32::from(bytes[0]) - 127)),
        F16 => float(ieee(le!(u16), 16, 10)),
        BF16 => float(ieee(le!(u16), 16, 7)),
        F32 => float(le!(f32).into()),
        F64 => float(le!(f64)),
        _ => panic!("{dtype} is not cast"),
    }
}

/// The nearest number of `precision` significant bits that is a multiple of the smallest
/// subnormal; of two equally near, the one whose last bit is 0; infinity past `largest`.
fn nearest(x: f64, precision: i32, smallest_exponent: i32, largest: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // The power of two at or below |x|; an f64 subnormal's is small enough as it is.
    let exponent = ((x.to_bits() >> 52) & 0x7FF) as i32 - 1023;
    let unit = 2_f64.powi(exponent.max(smallest_exponent) - (precision - 1));
    // Exact, as `unit` is a power of two; below 2^precision, so that its parts are exact, too.
    let units = x.abs() / unit;
    let (whole, rest) = (units.trunc(), units.fract());
    let up = rest > 0.5 || rest == 0.5 && whole % 2.0 == 1.0;
    let rounded = (whole + f64::from(up)) * unit;
    let rounded = if rounded > largest {
        f64::INFINITY
    } else {
        rounded
    };
    rounded.copysign(x)
}

/// The same of whole numbers, which are below 2^64.
fn nearest_integer(x: i128, precision: u32) -> i128 {
    let magnitude = x.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(precision);
    let (whole, rest) = (magnitude >> drop, magnitude % (1 << drop));
    let half = (1_u128 << drop) / 2;
    let up = drop > 0 && (rest > half || rest == half && whole % 2 == 1);
    let rounded = ((whole + u128::from(up)) << drop) as i128;
    if x < 0 { -rounded } else { rounded }
}

/// Halfway from the value of each code of an 8-bit float, without its sign, to the next: from 0 to
/// the largest finite value, and from there to what would follow if the exponent went on.
fn ties(dtype: Dtype) -> Vec<f64> {
    let values = (0..0x80).map(|code| match decode(dtype, &[code]) {
        Value::Float(value) => value,
        Value::Integer(_) => panic!("{dtype} is no float"),
    });
    let finite: Vec<f64> = values.take_while(|value| value.is_finite()).collect();
    let [.., before, largest] = finite[..] else {
        panic!("{dtype} has no values");
    };
    let next = finite[1..].iter().copied().chain([2.0 * largest - before]);
    let pairs = finite.iter().zip(next);
    pairs.map(|(value, next)| (value + next) / 2.0).collect()
}

/// The code of an 8-bit float for the number of that sign, as the `magnitude`th from 0 on, or for
/// what is past the largest finite one: the largest itself in F8_E4M3.
fn float8(dtype: Dtype, magnitude: usize, negative: bool) -> u8 {
    let has_negative_zero = !matches!(dtype, F8E4M3Fnuz | F8E5M2Fnuz);
    let code = match dtype {
        F8E4M3 => magnitude.min(0x7E),
        _ => magnitude,
    };
    let code = u8::try_from(code).unwrap();
    match negative && (magnitude > 0 || has_negative_zero) {
        true => code | 0x80,
        false => code,
    }
}

/// The value nearest to `x` among those of all codes of an 8-bit float, by search.
fn nearest_float8(x: f64, dtype: Dtype, ties: &[f64]) -> Value {
    if x.is_nan() {
        return Value::Float(x);
    }
    let below = ties.partition_point(|&tie| tie < x.abs());
    let is_tie = ties.get(below) == Some(&x.abs());
    let magnitude = below + usize::from(is_tie && below % 2 == 1);
    decode(dtype, &[float8(dtype, magnitude, x.is_sign_negative())])
}

/// What a value is in a floating point dtype.
fn round(value: Value, to: Dtype, ties: &[f64]) -> Value {
    let float = match value {
        Value::Float(x) => x,
        Value::Integer(x) => {
            let precision = match to {
                F64 => 53,
                F32 => 24,
                // Exact, and rounded below.
                F16 | BF16 | F8E5M2 | F8E4M3 | F8E4M3Fnuz | F8E5M2Fnuz => 53,
                _ => return value,
            };
            nearest_integer(x, precision) as f64
        }
    };
    Value::Float(match to {
        _ if FLOATS_OF_8_BITS.contains(&to) => return nearest_float8(float, to, ties),
        F16 => nearest(float, 11, -14, f16::MAX.to_f64()),
        BF16 => nearest(float, 8, -126, bf16::MAX.to_f64()),
        F32 => nearest(float, 24, -126, f32::MAX.into()),
        F64 => float,
        _ => return value,
    })
}

#[track_caller]
fn casts_rightly(from: Dtype, to: Dtype, data: &[u8]) {
    let found = cast(from, to, data).unwrap();
    let (from_size, to_size) = (from.bytes().unwrap(), to.bytes().unwrap());
    assert_eq!(found.len() / to_size, data.len() / from_size);
    let ties = match FLOATS_OF_8_BITS.contains(&to) {
        true => ties(to),
        false => Vec::new(),
    };
    for (element, found) in data.chunks(from_size).zip(found.chunks(to_size)) {
        let value = decode(from, element);
        let (found, expected) = (decode(to, found), round(value, to, &ties));
        assert!(
            found.is(expected),
            "{from} {element:02x?} = {value:?}: {found:?} as {to}, expected {expected:?}"
        );
    }
}

/// All codes of a dtype of 8 or 16 bits.
fn all_codes(dtype: Dtype) -> Vec<u8> {
    match dtype.bits() {
        8 => (0..=u8::MAX).collect(),
        16 => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
        bits => panic!("{bits} bits"),
    }
}

/// The tests' own arithmetic is that of others.
#[test]
fn values_are_those_of_half_and_float8() {
    for code in 0..=u8::MAX {
        let found = decode(F8E5M2, &[code]);
        let expected = float8::F8E5M2::from_bits(code).to_f32();
        assert!(found.is(Value::Float(expected.into())), "F8_E5M2 {code:#x}");
        let found = decode(F8E4M3, &[code]);
        let expected = float8::F8E4M3::from_bits(code).to_f32();
        assert!(found.is(Value::Float(expected.into())), "F8_E4M3 {code:#x}");
    }
    for code in 0..=u16::MAX {
        let found = decode(F16, &code.to_le_bytes());
        let expected = f16::from_bits(code).to_f32();
        assert!(found.is(Value::Float(expected.into())), "F16 {code:#x}");
        let found = decode(BF16, &code.to_le_bytes());
        let expected = bf16::from_bits(code).to_f32();
        assert!(found.is(Value::Float(expected.into())), "BF16 {code:#x}");
    }
}

const FLOATS_OF_8_BITS: [Dtype; 4] = [F8E5M2, F8E4M3, F8E4M3Fnuz, F8E5M2Fnuz];
const FLOATS: [Dtype; 8] = [F8E5M2, F8E4M3, F8E4M3Fnuz, F8E5M2Fnuz, F16, BF16, F32, F64];
const EIGHT_BITS: [Dtype; 8] = [Bool, U8, I8, F8E5M2, F8E4M3, F8E8M0, F8E4M3Fnuz, F8E5M2Fnuz];
const SIXTEEN_BITS: [Dtype; 4] = [I16, U16, F16, BF16];

/// Values where something happens, and some between.
fn wide_codes(dtype: Dtype) -> Vec<u8> {
    let powers = (0..64).map(|power| 1_u64 << power);
    let integers: Vec<u64> = powers
        .flat_map(|power| {
            let around = [power.wrapping_sub(1), power, power.wrapping_add(1)];
            // With a tie of 53, 24, 11 and 8 bits, and beside it.
            let ties = [53, 24, 11, 8].map(|precision| power | power.unbounded_shr(precision));
            let near = ties.map(|tie| [tie.wrapping_sub(1), tie, tie.wrapping_add(1)]);
            let odd = ties.map(|tie| [tie | tie << 1, tie.wrapping_mul(3), tie.wrapping_neg()]);
            [&around[..], near.as_flattened(), odd.as_flattened()].concat()
        })
        .flat_map(|x| [x, x.wrapping_neg()])
        .collect();
    let doubles = || {
        let exponents = [
            0, 1, 2, 872, 873, 874, 896, 897, 998, 1000, 1008, 1009, 1022, 1023, 1024,
        ]
        .into_iter()
        .chain([1037, 1038, 1039, 1149, 1150, 1151, 1152, 2045, 2046, 2047]);
        exponents.flat_map(|exponent: u64| {
            let mantissas = [
                0,
                1,
                2,
                3,
                (1 << 52) - 1,
                1 << 51,
                (1 << 51) + 1,
                (1 << 51) - 1,
            ];
            let around = [28, 29, 41, 42, 43, 44, 45].map(|bit| {
                [
                    (1_u64 << bit) - 1,
                    1 << bit,
                    (1 << bit) + 1,
                    3 << bit,
                    (3 << bit) - 1,
                ]
            });
            let mantissas = [&mantissas[..], around.as_flattened()].concat();
            let high = mantissas.clone().into_iter().map(|m| (1 << 52) - 1 - m);
            let all: Vec<u64> = mantissas.into_iter().chain(high).collect();
            all.into_iter().flat_map(move |mantissa| {
                let bits = exponent << 52 | (mantissa & ((1 << 52) - 1));
                [f64::from_bits(bits), -f64::from_bits(bits)]
            })
        })
    };
    match dtype {
        U32 | I32 => integers
            .iter()
            .flat_map(|&x| (x as u32).to_le_bytes())
            .collect(),
        U64 | I64 => integers.iter().flat_map(|&x| x.to_le_bytes()).collect(),
        F64 => doubles().flat_map(f64::to_le_bytes).collect(),
        F32 => doubles()
            .flat_map(|x| (x as f32).to_le_bytes())
            .chain(integers.iter().flat_map(|&x| (x as u32).to_le_bytes()))
            .collect(),
        _ => panic!("{dtype}"),
    }
}

fn codes(dtype: Dtype) -> Vec<u8> {
    match dtype.bits() {
        8 | 16 => all_codes(dtype),
        _ => wide_codes(dtype),
    }
}

/// What is offered, as the documentation says it.
fn is_offered(from: Dtype, to: Dtype) -> bool {
    let is_integer = |dtype| matches!(dtype, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64);
    let is_signed = |dtype| matches!(dtype, I8 | I16 | I32 | I64);
    // BOOL is held as any integer, of its own size and unsigned too.
    let fits = |from: Dtype, to: Dtype| match (from, is_signed(from), is_signed(to)) {
        (Bool, ..) => to != I8,
        (_, false, true) | (_, true, true) | (_, false, false) => from.bits() < to.bits(),
        (_, true, false) => false,
    };
    let from_number = from == Bool || is_integer(from) || from.is_float() && from.bits() >= 8;
    from == to
        || is_integer(to) && (from == Bool || is_integer(from)) && fits(from, to)
        || from_number
            && FLOATS.contains(&to)
            && !(from.bits() == 64 && is_integer(from) && to.bits() <= 16)
}

#[test]
fn what_is_offered() {
    for &from in Dtype::ALL {
        for &to in Dtype::ALL {
            assert_eq!(from.casts_to(to), is_offered(from, to), "{from} to {to}");
            let data = vec![0; from.bits() as usize];
            let found = cast(from, to, &data);
            if from.casts_to(to) {
                assert_eq!(found.unwrap().len(), to.bits() as usize, "{from} to {to}");
            } else {
                let message = format!("from {from} to {to}");
                let error = rejected(found, ErrorKind::Unsupported, &message);
                assert_eq!(error.tensor(), Some("t"));
            }
        }
    }
}

#[test]
fn a_cast_to_the_same_dtype_changes_nothing() {
    for &dtype in Dtype::ALL {
        let data: Vec<u8> = (0..=255).cycle().take(dtype.bits() as usize * 99).collect();
        assert_eq!(cast(dtype, dtype, &data).unwrap(), data);
        assert!(dtype.casts_to(dtype) && dtype.casts_exactly_to(dtype));
    }
    // A BOOL is a byte already, whichever.
    assert_eq!(cast(Bool, U8, &all_codes(Bool)).unwrap(), all_codes(U8));
}

#[test]
fn every_8_bit_value_to_every_float() {
    for from in EIGHT_BITS {
        for to in FLOATS {
            casts_rightly(from, to, &all_codes(from));
        }
    }
}

#[test]
fn every_16_bit_value_to_every_float() {
    for from in SIXTEEN_BITS {
        for to in FLOATS {
            casts_rightly(from, to, &all_codes(from));
        }
    }
}

#[test]
fn every_small_integer_to_every_wider_one() {
    for from in [Bool, U8, I8, U16, I16] {
        for to in [U16, I16, U32, I32, U64, I64] {
            if from.casts_to(to) {
                casts_rightly(from, to, &all_codes(from));
            }
        }
    }
}

#[test]
fn wide_values_where_something_happens() {
    for from in [U32, I32, U64, I64, F32, F64] {
        for &to in Dtype::ALL {
            if from.casts_to(to) {
                casts_rightly(from, to, &wide_codes(from));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 30,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn wide_values_of_any_bits(data in proptest::collection::vec(any::<u64>(), 64)) {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        // Where all the interesting exponents of an f64 are.
        let moderate: Vec<u8> = data
            .iter()
            .map(|x| x >> 63 << 63 | (860 + x % 310) << 52 | x >> 12)
            .flat_map(u64::to_le_bytes)
            .collect();
        // Where those of an F32 and an 8-bit float are.
        let small: Vec<u8> = data
            .iter()
            .map(|x| f64::from_bits(x >> 63 << 63 | (1000 + x % 45) << 52 | x >> 12) as f32)
            .flat_map(f32::to_le_bytes)
            .collect();
        for from in [U32, I32, U64, I64, F32, F64] {
            for &to in Dtype::ALL {
                if from.casts_to(to) {
                    casts_rightly(from, to, &bytes);
                    casts_rightly(from, to, &moderate);
                    casts_rightly(from, to, &small);
                }
            }
        }
    }
}

/// Halfway between two neighbours, and as little as an f64 can show beside it: rounding to F32
/// first would make ties of them.
#[test]
fn f64_next_to_every_tie_of_f16_and_bf16() {
    let value = |to: Dtype, code: u16| match to {
        F16 => f16::from_bits(code).to_f64(),
        _ => bf16::from_bits(code).to_f64(),
    };
    for (to, largest) in [(F16, f16::MAX.to_bits()), (BF16, bf16::MAX.to_bits())] {
        let mut data = Vec::new();
        let mut expected = Vec::new();
        for code in 0..=largest {
            // Past the largest, as if the exponent went on.
            let next = match code == largest {
                true => 2.0 * value(to, code) - value(to, code - 1),
                false => value(to, code + 1),
            };
            let tie = (value(to, code) + next) / 2.0;
            let even = code + code % 2;
            for (x, rounded) in [
                (tie.next_down(), code),
                (tie, even),
                (tie.next_up(), code + 1),
            ] {
                data.extend(x.to_le_bytes());
                expected.extend(rounded.to_le_bytes());
                data.extend((-x).to_le_bytes());
                expected.extend((rounded | 0x8000).to_le_bytes());
            }
        }
        assert!(cast(F64, to, &data).unwrap() == expected, "F64 to {to}");
        casts_rightly(F64, to, &data);
    }
}

#[test]
fn f64_and_f32_next_to_every_tie_of_8_bit_floats() {
    for to in FLOATS_OF_8_BITS {
        let mut expected = Vec::new();
        let mut doubles = Vec::new();
        let mut singles = Vec::new();
        for (code, tie) in ties(to).into_iter().enumerate() {
            let even = code + code % 2;
            let single = tie as f32;
            assert_eq!(f64::from(single), tie);
            for (double, single, rounded) in [
                (tie.next_down(), single.next_down(), code),
                (tie, single, even),
                (tie.next_up(), single.next_up(), code + 1),
            ] {
                for negative in [false, true] {
                    let sign = if negative { -1.0 } else { 1.0 };
                    doubles.extend((sign * double).to_le_bytes());
                    singles.extend((sign as f32 * single).to_le_bytes());
                    expected.push(float8(to, rounded, negative));
                }
            }
        }
        assert_eq!(cast(F64, to, &doubles).unwrap(), expected, "F64 to {to}");
        assert_eq!(cast(F32, to, &singles).unwrap(), expected, "F32 to {to}");
    }
}

#[test]
fn f32_of_all_sizes_to_8_bit_floats() {
    let samples = (0..=u32::MAX).step_by(39_989);
    let data: Vec<u8> = samples.flat_map(u32::to_le_bytes).collect();
    for to in FLOATS_OF_8_BITS {
        casts_rightly(F32, to, &data);
    }
}

/// What rounds to more than the largest finite value, and what is infinite or NaN already.
#[test]
fn overflow_and_nan_of_8_bit_floats() {
    for (to, largest, past_largest, overflow, nan) in [
        (F8E5M2, (57344.0, 0x7B), 61440.0, 0x7C, 0x7F),
        // Clamped.
        (F8E4M3, (448.0, 0x7E), 464.0_f32.next_up(), 0x7E, 0x7F),
        // No NaN of these has a sign.
        (F8E4M3Fnuz, (240.0, 0x7F), 248.0, 0x80, 0x80),
        (F8E5M2Fnuz, (57344.0, 0x7F), 61440.0, 0x80, 0x80),
    ] {
        let (largest, last_finite) = largest;
        for (value, code) in [
            (largest, last_finite),
            (past_largest.next_down(), last_finite),
            (past_largest, overflow),
            (f32::MAX, overflow),
            (f32::INFINITY, overflow),
            (f32::from_bits(0x7F80_0001), nan),
            (f32::from_bits(0x7FC0_0000), nan),
            (f32::from_bits(0x7FFF_FFFF), nan),
        ] {
            let bits = value.to_bits();
            for (bits, code) in [(bits, code), (bits | 1 << 31, code | 0x80)] {
                let found = cast(F32, to, &bits.to_le_bytes()).unwrap();
                assert_eq!(found, [code], "{value:?} ({bits:#x}) to {to}");
            }
        }
        for (from, negative_nan) in [
            (F64, &0xFFF0_0000_0000_0001_u64.to_le_bytes()[..]),
            (F16, &0xFC01_u16.to_le_bytes()[..]),
            (BF16, &0xFF81_u16.to_le_bytes()[..]),
            (F8E5M2, &[0xFD][..]),
            (F8E4M3, &[0xFF][..]),
        ] {
            if from != to {
                let found = cast(from, to, negative_nan).unwrap();
                assert_eq!(found, [nan | 0x80], "{from} to {to}");
            }
        }
        for (from, unsigned_nan) in [(F8E4M3Fnuz, 0x80), (F8E5M2Fnuz, 0x80), (F8E8M0, 0xFF)] {
            if from != to {
                let found = cast(from, to, &[unsigned_nan]).unwrap();
                assert_eq!(found, [nan], "{from} to {to}");
            }
        }
        let tiny = (-1e-300_f64).to_le_bytes();
        let zero = float8(to, 0, true);
        assert_eq!(cast(F64, to, &tiny).unwrap(), [zero], "F64 to {to}");
        let zero_of_f16 = cast(F16, to, &[0, 0x80]).unwrap();
        assert_eq!(zero_of_f16, [zero], "F16 to {to}");
    }
}

#[test]
fn nan_infinity_and_the_sign_of_zero() {
    let negative_zero = (-0.0_f64).to_le_bytes();
    assert_eq!(
        cast(F64, F32, &negative_zero).unwrap(),
        (-0.0_f32).to_le_bytes()
    );
    assert_eq!(cast(F64, F16, &negative_zero).unwrap(), [0, 0x80]);
    assert_eq!(
        cast(F16, F32, &[0, 0x80]).unwrap(),
        (-0.0_f32).to_le_bytes()
    );
    assert_eq!(cast(F8E4M3, BF16, &[0x80]).unwrap(), [0, 0x80]);

    // The smallest NaNs there are: their only bit is one that a cast drops.
    for (from, to, nan) in [
        (F64, F32, &0x7FF0_0000_0000_0001_u64.to_le_bytes()[..]),
        (F64, F16, &0x7FF0_0000_0000_0001_u64.to_le_bytes()[..]),
        (F64, BF16, &0x7FF0_0000_0000_0001_u64.to_le_bytes()[..]),
        (F32, F16, &0x7F80_0001_u32.to_le_bytes()[..]),
        (F32, BF16, &0x7F80_0001_u32.to_le_bytes()[..]),
        (F16, BF16, &0x7C01_u16.to_le_bytes()[..]),
        (BF16, F16, &0x7F81_u16.to_le_bytes()[..]),
    ] {
        // Many of them, for conversions of several at once.
        let found = cast(from, to, &nan.repeat(67)).unwrap();
        for element in found.chunks(to.bytes().unwrap()) {
            assert!(
                decode(to, element).is(Value::Float(f64::NAN)),
                "{from} to {to}"
            );
        }
    }
    assert_eq!(cast(F32, F16, &1e30_f32.to_le_bytes()).unwrap(), [0, 0x7C]);
    assert_eq!(
        cast(F64, F32, &(-1e300_f64).to_le_bytes()).unwrap(),
        f32::NEG_INFINITY.to_le_bytes()
    );
}

/// `casts_exactly_to` says yes where every value survives, and only there.
#[test]
fn what_casts_exactly() {
    for &from in Dtype::ALL {
        for &to in Dtype::ALL {
            if !from.casts_to(to) || from == to {
                assert_eq!(from.casts_exactly_to(to), from == to, "{from} to {to}");
                continue;
            }
            let data = codes(from);
            let found = cast(from, to, &data).unwrap();
            let elements = data.chunks(from.bytes().unwrap());
            let all_survive = elements
                .zip(found.chunks(to.bytes().unwrap()))
                .all(|(element, found)| decode(from, element).is(decode(to, found)));
            assert_eq!(from.casts_exactly_to(to), all_survive, "{from} to {to}");
        }
    }
}

#[test]
fn a_cast_of_more_than_is_read_at_a_time() {
    // 10 MiB, at an offset of 3; by one thread and by several.
    let codes = all_codes(F16);
    let data = codes.repeat(80);
    let tensors = [
        Tensor::bytes("before", 3),
        Tensor::new("t", F16, &[data.len() / 2], &*data),
    ];
    let bytes = file_of(&tensors);
    let dir = common::Dir::new();
    let path = dir.write("model.safetensors", &bytes);
    let expected = cast(F16, F32, &codes).unwrap().repeat(80);
    for checkpoint in [
        Checkpoint::open(path).unwrap(),
        Checkpoint::from_bytes(bytes).unwrap(),
    ] {
        for threads in [1, 3] {
            let mut into = vec![0; 2 * data.len()];
            let options = ReadOptions::new().threads(threads);
            let read = Read::new("t", &mut into).cast(F32);
            checkpoint.read_into([read], &options).unwrap();
            assert!(into == expected);
        }
    }
}

#[test]
fn a_cast_of_part_of_a_tensor() {
    let data: Vec<u8> = (0..3000_u16).flat_map(u16::to_le_bytes).collect();
    let tensor = Tensor::new("t", U16, &[30, 100], data);
    let dir = common::Dir::new();
    let path = dir.write("model.safetensors", file_of(&[tensor]));
    let checkpoint = Checkpoint::open(path).unwrap();
    let slice = Slice::all().dim_step(0, 1.., 7).dim(1, 50..53);
    let mut into = [0; 5 * 3 * 8];
    let read = Read::new("t", &mut into).cast(F64).slice(slice);
    checkpoint.read_into([read], &ReadOptions::new()).unwrap();
    let values: Vec<f64> = into
        .chunks(8)
        .map(|x| f64::from_le_bytes(x.try_into().unwrap()))
        .collect();
    let expected = (1..30)
        .step_by(7)
        .flat_map(|row| (50..53).map(move |column| row * 100 + column));
    assert!(
        values.iter().copied().eq(expected.map(f64::from)),
        "{values:?}"
    );
}

#[test]
fn memory_for_a_cast_has_the_length_of_the_result() {
    let tensor = Tensor::new("t", F16, &[4], [0; 8]);
    let checkpoint = Checkpoint::from_bytes(file_of(&[tensor])).unwrap();
    let mut into = [0; 8];
    let read = Read::new("t", &mut into).cast(F32);
    rejected(
        checkpoint.read_into([read], &ReadOptions::new()),
        ErrorKind::InvalidRequest,
        "takes 16 bytes, not 8",
    );
}
