//! Which dtypes candle has, and which one it holds the others in.

use candle_core::DType;
use st_format::Dtype;

/// The dtype that candle holds a file's dtype in: its own, or a wider one that holds every value
/// exactly.
pub(crate) fn held_as(dtype: Dtype) -> Option<Dtype> {
    Some(match dtype {
        Dtype::Bool => Dtype::U8,
        Dtype::I8 => Dtype::I16,
        Dtype::U16 => Dtype::U32,
        Dtype::F8E5M2 | Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz => Dtype::F16,
        native => to_candle(native).map(|_| native)?,
    })
}

/// Whether candle only keeps the bytes of a dtype: it has a name and storage, but no operations.
pub(crate) fn is_opaque(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::F4 | Dtype::F6E2M3 | Dtype::F6E3M2 | Dtype::F8E8M0
    )
}

/// candle's name for a dtype, where it has it.
pub fn to_candle(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::U8 => DType::U8,
        Dtype::U32 => DType::U32,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::BF16 => DType::BF16,
        Dtype::F16 => DType::F16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::F8E4M3 => DType::F8E4M3,
        Dtype::F6E2M3 => DType::F6E2M3,
        Dtype::F6E3M2 => DType::F6E3M2,
        Dtype::F4 => DType::F4,
        Dtype::F8E8M0 => DType::F8E8M0,
        _ => return None,
    })
}

/// The format's name for a dtype of candle's, where it has one.
pub fn from_candle(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::U8 => Dtype::U8,
        DType::U32 => Dtype::U32,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::F8E4M3 => Dtype::F8E4M3,
        DType::F6E2M3 => Dtype::F6E2M3,
        DType::F6E3M2 => Dtype::F6E3M2,
        DType::F4 => Dtype::F4,
        DType::F8E8M0 => Dtype::F8E8M0,
        _ => return None,
    })
}
