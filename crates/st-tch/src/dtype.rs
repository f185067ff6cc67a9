//! tch's kinds and the format's dtypes.

use st_format::Dtype;
use tch::Kind;

/// tch's name for a dtype, where it has it.
pub fn to_tch(dtype: Dtype) -> Option<Kind> {
    Some(match dtype {
        Dtype::Bool => Kind::Bool,
        Dtype::U8 => Kind::Uint8,
        Dtype::I8 => Kind::Int8,
        Dtype::I16 => Kind::Int16,
        Dtype::I32 => Kind::Int,
        Dtype::I64 => Kind::Int64,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F32 => Kind::Float,
        Dtype::F64 => Kind::Double,
        Dtype::C64 => Kind::ComplexFloat,
        Dtype::F8E5M2 => Kind::Float8e5m2,
        Dtype::F8E4M3 => Kind::Float8e4m3fn,
        Dtype::F8E5M2Fnuz => Kind::Float8e5m2fnuz,
        Dtype::F8E4M3Fnuz => Kind::Float8e4m3fnuz,
        _ => return None,
    })
}

/// The format's name for a kind of tch's, where it has one.
pub fn from_tch(kind: Kind) -> Option<Dtype> {
    Some(match kind {
        Kind::Bool => Dtype::Bool,
        Kind::Uint8 => Dtype::U8,
        Kind::Int8 => Dtype::I8,
        Kind::Int16 => Dtype::I16,
        Kind::Int => Dtype::I32,
        Kind::Int64 => Dtype::I64,
        Kind::Half => Dtype::F16,
        Kind::BFloat16 => Dtype::BF16,
        Kind::Float => Dtype::F32,
        Kind::Double => Dtype::F64,
        Kind::ComplexFloat => Dtype::C64,
        Kind::Float8e5m2 => Dtype::F8E5M2,
        Kind::Float8e4m3fn => Dtype::F8E4M3,
        Kind::Float8e5m2fnuz => Dtype::F8E5M2Fnuz,
        Kind::Float8e4m3fnuz => Dtype::F8E4M3Fnuz,
        Kind::ComplexHalf | Kind::ComplexDouble | Kind::QInt8 | Kind::QUInt8 | Kind::QInt32 => {
            return None;
        }
    })
}
