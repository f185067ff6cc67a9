//! Rust's element types and the dtypes they are.

use bytemuck::Pod;
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::Dtype;
use crate::error::{Error, ErrorKind, Result};

/// A Rust type whose memory is that of a dtype, so that a tensor's bytes can be seen as a slice
/// of it.
///
/// `bool` is none: a file may hold bytes that are neither 0 nor 1. BOOL data can be seen as `u8`,
/// and so can the dtypes that Rust has no type for.
pub trait Element: Pod {
    /// The dtypes whose bytes may be read as this type.
    const DTYPES: &'static [Dtype];
}

macro_rules! elements {
    ($($element:ty: $($dtype:ident)*;)*) => {
        $(impl Element for $element {
            const DTYPES: &'static [Dtype] = &[$(Dtype::$dtype),*];
        })*
    };
}

elements! {
    u8: U8 Bool F4 F6E2M3 F6E3M2 F8E5M2 F8E4M3 F8E8M0 F8E4M3Fnuz F8E5M2Fnuz;
    i8: I8;
    u16: U16;
    i16: I16;
    u32: U32;
    i32: I32;
    u64: U64;
    i64: I64;
    f32: F32;
    f64: F64;
    f16: F16;
    bf16: BF16;
    F8E4M3: F8E4M3;
    F8E5M2: F8E5M2;
    [f32; 2]: C64;
}

/// Whether `T` may be read from a tensor of that dtype.
pub(crate) fn check<T: Element>(dtype: Dtype) -> Result<()> {
    if T::DTYPES.contains(&dtype) {
        return Ok(());
    }
    let message = format!(
        "dtype is {dtype}, asked for as {}",
        std::any::type_name::<T>()
    );
    Err(Error::new(ErrorKind::InvalidRequest, message))
}
