//! Which dtypes burn has, and which one it holds the others in.

use burn_core::tensor::{BoolStore, DType};
use st_format::Dtype;

/// The dtype that burn holds a file's dtype in: its own, or a wider one that holds every value
/// exactly.
pub(crate) fn held_as(dtype: Dtype) -> Option<Dtype> {
    Some(match dtype {
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz => Dtype::F16,
        // Its exponents are those of F32, which are too large for F16.
        Dtype::F8E8M0 => Dtype::BF16,
        native => to_burn(native).map(|_| native)?,
    })
}

/// burn's name for a dtype, where it has it.
pub fn to_burn(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::Bool => DType::Bool(BoolStore::Native),
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    })
}

/// The format's name for a dtype of burn's, where it has one.
///
/// A backend may hold bools and [`Flex32`](DType::Flex32) in its own ways; the format has one
/// name for each.
pub fn from_burn(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::Bool(_) => Dtype::Bool,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 | DType::Flex32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::QFloat(_) => return None,
    })
}
