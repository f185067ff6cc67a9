//! Which Rust type holds the elements of a dtype.

use std::fmt::Debug;

use bytemuck::{NoUninit, PodCastError};
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use num_complex::Complex;
use st_format::{Buffer, Dtype, Error, ErrorKind, Result};

use crate::any_array::Variant;

/// A Rust type that an array can have as its elements: that of one dtype.
///
/// It is implemented for the types in the [crate's table](crate#dtypes), and cannot be for others.
pub trait Element: Copy + Debug + Send + Sync + 'static + NoUninit + FromBytes + Variant {
    /// The dtype it holds.
    const DTYPE: Dtype;
}

/// How bytes of a file become elements.
pub trait FromBytes: Sized {
    /// The same memory, once a load has filled it.
    fn from_memory(memory: Buffer) -> Result<Vec<Self>>;

    /// The same place in memory.
    fn from_bytes(bytes: &[u8]) -> Result<&[Self]>;
}

/// Elements for which any bytes are valid.
macro_rules! any_bytes {
    ($($dtype:ident: $element:ty;)*) => {
        $(impl Element for $element {
            const DTYPE: Dtype = Dtype::$dtype;
        }

        impl FromBytes for $element {
            fn from_memory(memory: Buffer) -> Result<Vec<Self>> {
                memory.into_vec()
            }

            fn from_bytes(bytes: &[u8]) -> Result<&[Self]> {
                match bytes {
                    // Of no element none can be misaligned.
                    [] => Ok(&[]),
                    _ => bytemuck::try_cast_slice(bytes)
                        .map_err(|error| no_slice_of::<Self>(bytes, error)),
                }
            }
        })*
    };
}

any_bytes! {
    U8: u8;
    I8: i8;
    U16: u16;
    I16: i16;
    U32: u32;
    I32: i32;
    U64: u64;
    I64: i64;
    F8E4M3: F8E4M3;
    F8E5M2: F8E5M2;
    F16: f16;
    BF16: bf16;
    F32: f32;
    F64: f64;
    C64: Complex<f32>;
}

impl Element for bool {
    const DTYPE: Dtype = Dtype::Bool;
}

impl FromBytes for bool {
    fn from_memory(memory: Buffer) -> Result<Vec<bool>> {
        let bytes: Vec<u8> = memory.into_vec()?;
        bool::from_bytes(&bytes)?;
        Ok(bytes.into_iter().map(|byte| byte == 1).collect())
    }

    fn from_bytes(bytes: &[u8]) -> Result<&[bool]> {
        bytemuck::checked::try_cast_slice(bytes).map_err(|_| {
            let neither = bytes.iter().enumerate().find(|&(_, &byte)| byte > 1);
            let message = match neither {
                Some((at, byte)) => format!("element {at} is {byte}, BOOL is 0 or 1"),
                None => "not BOOL".to_owned(),
            };
            Error::new(ErrorKind::InvalidData, message)
        })
    }
}

fn no_slice_of<T: Element>(bytes: &[u8], error: PodCastError) -> Error {
    let kind = match error {
        PodCastError::TargetAlignmentGreaterAndInputNotAligned => ErrorKind::Misaligned,
        _ => ErrorKind::InvalidRequest,
    };
    let message = format!(
        "{} bytes at {:p} cannot be viewed as {}, which has alignment {}",
        bytes.len(),
        bytes,
        T::DTYPE,
        align_of::<T>()
    );
    Error::new(kind, message)
}

/// The error of a caller who takes elements of `dtype` for `T`s.
pub(crate) fn wrong_type<T: Element>(dtype: Dtype) -> Error {
    let (asked, name) = (T::DTYPE, std::any::type_name::<T>());
    let message = format!("dtype is {dtype}, asked for as {asked} ({name})");
    Error::new(ErrorKind::InvalidRequest, message)
}
