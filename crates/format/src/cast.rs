//! Conversions between dtypes, block by block.
//!
//! A cast is exact, or correctly rounded (to nearest, ties to even); overflow and NaN become what
//! PyTorch 2.13 makes of them. What cannot be done that way is not offered.

use std::mem::MaybeUninit;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::Dtype;
use crate::error::{Error, ErrorKind, Result};

/// A conversion of little-endian elements from one dtype to another.
#[derive(Clone, Copy)]
pub(crate) struct Cast {
    convert: Convert,
    from_bytes: usize,
    to_bytes: usize,
}

type Direct = fn(&[u8], &mut [MaybeUninit<u8>]);
type Decode = fn(&[u8], &mut [f32]);
type Encode = fn(&[f32], &mut [MaybeUninit<u8>]);

#[derive(Clone, Copy)]
enum Convert {
    Directly(Direct),
    /// Where rounding to F32 on the way does not change the result.
    ThroughF32(Decode, Encode),
}

/// Elements converted through F32 at a time; they stay in the first-level cache.
const BLOCK: usize = 512;

impl Dtype {
    /// Whether values of this dtype can be cast to `to`, on a load or a save: exactly, or correctly
    /// rounded.
    ///
    /// Offered are: a dtype to itself; BOOL to U8; BOOL and integers to wider integers that hold all their
    /// values; and BOOL, integers and floats of 8 bits and more to F8_E4M3, F8_E5M2, F8_E4M3FNUZ,
    /// F8_E5M2FNUZ, F16, BF16, F32 and F64, except 64-bit integers to those of 8 and 16 bits. Not
    /// offered are F8_E8M0, a scale rather than a number, and the F4 and F6 kinds, to or from
    /// anything else.
    ///
    /// What is too large for a float dtype becomes what PyTorch 2.13 makes of it: infinity, and in
    /// F8_E4M3, which has none, the largest finite value, 448. NaN stays NaN; all keep their sign.
    /// The FNUZ kinds have one NaN, no infinity and one zero: there, what is too large becomes that
    /// NaN, and negative zeros zero. (PyTorch before 2.12 and ml_dtypes make NaN of what is too
    /// large for F8_E4M3.)
    pub fn casts_to(self, to: Dtype) -> bool {
        cast_between(self, to).is_ok()
    }

    /// Whether casting to `to` keeps every value: of BOOL, those of all bytes, not 0 and 1 alone.
    ///
    /// No cast to an 8-bit float from another dtype does.
    pub fn casts_exactly_to(self, to: Dtype) -> bool {
        use Dtype::*;
        match (self, to) {
            _ if self == to => true,
            (_, F16) => matches!(
                self,
                Bool | U8 | I8 | F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz
            ),
            (_, BF16) => matches!(
                self,
                Bool | U8 | I8 | F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz | F8E8M0
            ),
            (_, F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz) => false,
            (_, F32) => self.casts_to(F32) && !matches!(self, I32 | U32 | I64 | U64 | F64),
            (_, F64) => self.casts_to(F64) && !matches!(self, I64 | U64),
            _ => self.casts_to(to),
        }
    }
}

/// The cast that leads from one dtype to another; none where the bytes stay as they are.
pub(crate) fn cast_between(from: Dtype, to: Dtype) -> Result<Option<Cast>> {
    if from == to || (from, to) == (Dtype::Bool, Dtype::U8) {
        return Ok(None);
    }
    match Cast::new(from, to) {
        Some(cast) => Ok(Some(cast)),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            format!("there is no cast from {from} to {to} that keeps or rightly rounds all values"),
        )),
    }
}

impl Cast {
    /// The cast between two different dtypes, if it is offered.
    fn new(from: Dtype, to: Dtype) -> Option<Cast> {
        Some(Cast {
            convert: convert(from, to)?,
            from_bytes: from.bytes()?,
            to_bytes: to.bytes()?,
        })
    }

    /// The bytes that `bytes` bytes of the file become.
    pub(crate) fn output_len(&self, bytes: u64) -> Option<u64> {
        (bytes / self.from_bytes as u64).checked_mul(self.to_bytes as u64)
    }

    /// As [`output_len`](Cast::output_len), for bytes that are in memory with room for the rest.
    pub(crate) fn output_len_of_block(&self, bytes: usize) -> usize {
        bytes / self.from_bytes * self.to_bytes
    }

    /// Converts whole elements; `into` is as long as they need.
    pub(crate) fn apply(&self, from: &[u8], into: &mut [MaybeUninit<u8>]) {
        debug_assert_eq!(self.output_len(from.len() as u64), Some(into.len() as u64));
        match self.convert {
            Convert::Directly(convert) => convert(from, into),
            Convert::ThroughF32(decode, encode) => {
                let mut block = [0.0; BLOCK];
                let from = from.chunks(BLOCK * self.from_bytes);
                let into = into.chunks_mut(BLOCK * self.to_bytes);
                for (from, into) in from.zip(into) {
                    let block = &mut block[..from.len() / self.from_bytes];
                    decode(from, block);
                    encode(block, into);
                }
            }
        }
    }
}

/// `each::<u8, u32>(f)` is a conversion of slices that applies `f` to each element.
macro_rules! each {
    ($from:ty, $to:ty, $f:expr) => {
        Some(Convert::Directly(|from, into| {
            map::<$from, $to>(from, into, $f)
        }))
    };
}

fn convert(from: Dtype, to: Dtype) -> Option<Convert> {
    use Dtype::*;
    if let Some(encode) = encode_f32(to) {
        let to_odd = || decode_f32_to_odd(from).filter(|_| to.bits() <= 16);
        if let Some(decode) = decode_f32(from).or_else(to_odd) {
            return Some(Convert::ThroughF32(decode, encode));
        }
    }
    match (from, to) {
        (Bool | U8, I16) => each!(u8, i16, i16::from),
        (Bool | U8, U16) => each!(u8, u16, u16::from),
        (Bool | U8, I32) => each!(u8, i32, i32::from),
        (Bool | U8, U32) => each!(u8, u32, u32::from),
        (Bool | U8, I64) => each!(u8, i64, i64::from),
        (Bool | U8, U64) => each!(u8, u64, u64::from),
        (I8, I16) => each!(i8, i16, i16::from),
        (I8, I32) => each!(i8, i32, i32::from),
        (I8, I64) => each!(i8, i64, i64::from),
        (U16, I32) => each!(u16, i32, i32::from),
        (U16, U32) => each!(u16, u32, u32::from),
        (U16, I64) => each!(u16, i64, i64::from),
        (U16, U64) => each!(u16, u64, u64::from),
        (I16, I32) => each!(i16, i32, i32::from),
        (I16, I64) => each!(i16, i64, i64::from),
        (U32, I64) => each!(u32, i64, i64::from),
        (U32, U64) => each!(u32, u64, u64::from),
        (I32, I64) => each!(i32, i64, i64::from),

        (I32, F32) => each!(i32, f32, |x| x as f32),
        (U32, F32) => each!(u32, f32, |x| x as f32),
        (I64, F32) => each!(i64, f32, |x| x as f32),
        (U64, F32) => each!(u64, f32, |x| x as f32),
        (F64, F32) => each!(f64, f32, |x| x as f32),
        (I32, F64) => each!(i32, f64, f64::from),
        (U32, F64) => each!(u32, f64, f64::from),
        (I64, F64) => each!(i64, f64, |x| x as f64),
        (U64, F64) => each!(u64, f64, |x| x as f64),
        _ => None,
    }
}

/// For dtypes whose values F32 holds exactly.
fn decode_f32(dtype: Dtype) -> Option<Decode> {
    Some(match dtype {
        Dtype::Bool | Dtype::U8 => |from, into| read::<u8>(from, into, f32::from),
        Dtype::I8 => |from, into| read::<i8>(from, into, f32::from),
        Dtype::U16 => |from, into| read::<u16>(from, into, f32::from),
        Dtype::I16 => |from, into| read::<i16>(from, into, f32::from),
        Dtype::F8E5M2 => |from, into| look_up(from, into, &E5M2_VALUES),
        Dtype::F8E4M3 => |from, into| look_up(from, into, &E4M3_VALUES),
        Dtype::F8E4M3Fnuz => |from, into| look_up(from, into, &E4M3_FNUZ_VALUES),
        Dtype::F8E5M2Fnuz => |from, into| look_up(from, into, &E5M2_FNUZ_VALUES),
        Dtype::F8E8M0 => |from, into| look_up(from, into, &E8M0_VALUES),
        Dtype::BF16 => |from, into| read::<bf16>(from, into, f32::from),
        Dtype::F16 => |from, into| {
            // Slices at once, for the processor's own conversion instruction.
            let mut block = [f16::ZERO; BLOCK];
            let block = &mut block[..into.len()];
            bytemuck::cast_slice_mut(block).copy_from_slice(from);
            block.convert_to_f32_slice(into);
        },
        Dtype::F32 => |from, into| read::<f32>(from, into, |x| x),
        _ => return None,
    })
}

/// For dtypes that have values between those of F32, on the way to floats of at most 16 bits.
fn decode_f32_to_odd(dtype: Dtype) -> Option<Decode> {
    Some(match dtype {
        Dtype::I32 => |from, into| read::<i32>(from, into, |x| rounded_to_odd(x.into())),
        Dtype::U32 => |from, into| read::<u32>(from, into, |x| rounded_to_odd(x.into())),
        Dtype::F64 => |from, into| read::<f64>(from, into, rounded_to_odd),
        _ => return None,
    })
}

fn encode_f32(dtype: Dtype) -> Option<Encode> {
    Some(match dtype {
        Dtype::F8E5M2 => |from, into| write(from, into, |x| E5M2.nearest(x)),
        Dtype::F8E4M3 => |from, into| write(from, into, |x| E4M3.nearest(x)),
        Dtype::F8E4M3Fnuz => |from, into| write(from, into, |x| E4M3_FNUZ.nearest(x)),
        Dtype::F8E5M2Fnuz => |from, into| write(from, into, |x| E5M2_FNUZ.nearest(x)),
        Dtype::F16 => |from, into| {
            let mut block = [f16::ZERO; BLOCK];
            let block = &mut block[..from.len()];
            block.convert_from_f32_slice(from);
            into.write_copy_of_slice(bytemuck::cast_slice(block));
        },
        Dtype::BF16 => |from, into| write(from, into, bf16::from_f32),
        Dtype::F32 => |from, into| {
            into.write_copy_of_slice(bytemuck::cast_slice(from));
        },
        Dtype::F64 => |from, into| write(from, into, f64::from),
        _ => return None,
    })
}

#[inline]
fn map<S: Pod, D: Pod>(from: &[u8], into: &mut [MaybeUninit<u8>], f: impl Fn(S) -> D) {
    let from = from.chunks_exact(size_of::<S>());
    let into = into.chunks_exact_mut(size_of::<D>());
    for (from, into) in from.zip(into) {
        into.write_copy_of_slice(bytemuck::bytes_of(&f(bytemuck::pod_read_unaligned(from))));
    }
}

#[inline]
fn read<S: Pod>(from: &[u8], into: &mut [f32], f: impl Fn(S) -> f32) {
    for (from, into) in from.chunks_exact(size_of::<S>()).zip(into) {
        *into = f(bytemuck::pod_read_unaligned(from));
    }
}

#[inline]
fn write<D: Pod>(from: &[f32], into: &mut [MaybeUninit<u8>], f: impl Fn(f32) -> D) {
    map(bytemuck::cast_slice(from), into, f);
}

fn look_up(from: &[u8], into: &mut [f32], table: &[f32; 256]) {
    for (&from, into) in from.iter().zip(into) {
        *into = table[usize::from(from)];
    }
}

/// An F32 from which rounding on to 16 bits or fewer gives what rounding `x` itself would: where `x` is no
/// F32, the neighbour whose last bit is set, so that it is never mistaken for a tie.
fn rounded_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || x.is_nan() {
        return nearest;
    }
    let away_from_zero = f64::from(nearest).abs() > x.abs();
    f32::from_bits((nearest.to_bits() - u32::from(away_from_zero)) | 1)
}

/// How the largest exponent and the sign bit alone are read.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// Infinity and NaNs at the largest exponent, as in IEEE 754.
    Ieee,
    /// Only all ones is NaN, and there is no infinity ("FN").
    OneNan,
    /// Only the negative zero is NaN, and there is no infinity ("FNUZ").
    NegativeZeroIsNan,
}

/// An 8-bit float: sign, exponent, mantissa.
#[derive(Clone, Copy)]
struct Float8 {
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

impl Float8 {
    const fn new(mantissa_bits: u32, bias: i32, special: Special) -> Float8 {
        Float8 {
            mantissa_bits,
            bias,
            special,
        }
    }

    /// The values of all codes.
    const fn values(self) -> [f32; 256] {
        let mut table = [0.0; 256];
        let mut code = 0;
        while code < 256 {
            table[code] = self.value(code as u32);
            code += 1;
        }
        table
    }

    const fn value(self, code: u32) -> f32 {
        let magnitude = code & 0x7F;
        let exponent = magnitude >> self.mantissa_bits;
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let is_largest_exponent = exponent == 0x7F >> self.mantissa_bits;
        let value = match self.special {
            // This NaN has no sign.
            Special::NegativeZeroIsNan if code == 0x80 => return f32::NAN,
            Special::OneNan if magnitude == 0x7F => f32::NAN,
            Special::Ieee if is_largest_exponent && mantissa == 0 => f32::INFINITY,
            Special::Ieee if is_largest_exponent => f32::NAN,
            _ if exponent == 0 => mantissa as f32 * self.smallest(),
            _ => {
                (mantissa + (1 << self.mantissa_bits)) as f32
                    * power_of_two(exponent as i32 - 1)
                    * self.smallest()
            }
        };
        if code >= 0x80 { -value } else { value }
    }

    /// The smallest value above zero, of which all finite ones are multiples.
    const fn smallest(self) -> f32 {
        power_of_two(1 - self.bias - self.mantissa_bits as i32)
    }

    /// The code whose value is nearest to `x`; of two, the even one.
    ///
    /// Without branches, so that the compiler does several at once.
    #[inline(always)]
    fn nearest(self, x: f32) -> u8 {
        let magnitude = x.to_bits() & 0x7FFF_FFFF;
        let sign = (x.to_bits() >> 24) & 0x80;

        // Below the smallest normal value: what an F32 is rounded to by adding this, whose last bit
        // counts the smallest ones.
        let counter = self.smallest() * power_of_two(23);
        let subnormal = (f32::from_bits(magnitude) + counter).to_bits() - counter.to_bits();

        // From there on: the upper bits, once the dropped ones have rounded them.
        let dropped = 23 - self.mantissa_bits;
        let is_odd = (magnitude >> dropped) & 1;
        let rounded = (magnitude + (1 << (dropped - 1)) - 1 + is_odd) >> dropped;
        let bias_change = ((127 - self.bias) as u32) << self.mantissa_bits;
        let normal = rounded.wrapping_sub(bias_change);

        // What is past the largest finite value: infinity, that value itself, or NaN.
        let (overflow, nan) = match self.special {
            Special::Ieee => (0x7F >> self.mantissa_bits << self.mantissa_bits, 0x7F),
            Special::OneNan => (0x7E, 0x7F),
            Special::NegativeZeroIsNan => (0x80, 0x80),
        };
        let smallest_normal = self.smallest() * power_of_two(self.mantissa_bits as i32);
        let code = if magnitude > f32::INFINITY.to_bits() {
            nan
        } else if magnitude < smallest_normal.to_bits() {
            subnormal
        } else {
            normal.min(overflow)
        };
        let has_sign = code != 0 || self.special != Special::NegativeZeroIsNan;
        (code | if has_sign { sign } else { 0 }) as u8
    }
}

// Sources: OCP 8-bit Floating Point Specification (E5M2, E4M3), OCP Microscaling Formats (E8M0),
// arXiv 2206.02915 (the FNUZ kinds).
const E5M2: Float8 = Float8::new(2, 15, Special::Ieee);
const E4M3: Float8 = Float8::new(3, 7, Special::OneNan);
const E5M2_FNUZ: Float8 = Float8::new(2, 16, Special::NegativeZeroIsNan);
const E4M3_FNUZ: Float8 = Float8::new(3, 8, Special::NegativeZeroIsNan);

static E5M2_VALUES: [f32; 256] = E5M2.values();
static E4M3_VALUES: [f32; 256] = E4M3.values();
static E5M2_FNUZ_VALUES: [f32; 256] = E5M2_FNUZ.values();
static E4M3_FNUZ_VALUES: [f32; 256] = E4M3_FNUZ.values();
static E8M0_VALUES: [f32; 256] = {
    let mut table = [f32::NAN; 256];
    let mut code = 0;
    while code < 255 {
        table[code] = power_of_two(code as i32 - 127);
        code += 1;
    }
    table
};

/// 2 to the power of `exponent`, which is at least -149.
const fn power_of_two(exponent: i32) -> f32 {
    match exponent {
        -126.. => f32::from_bits(((exponent + 127) as u32) << 23),
        _ => f32::from_bits(1 << (exponent + 149)),
    }
}
