//! The one table of element types: name in the file, size in bits.

use std::fmt;
use std::str::FromStr;

macro_rules! dtypes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $bits:literal;)*) => {
        /// The element type of a tensor, as the format names it.
        ///
        /// Variants are in the format's own order, from narrow to wide, which is also their
        /// [`Ord`]. The names and sizes are those of the reference implementation (crate
        /// `safetensors` 0.8).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Dtype {
            /// Every dtype of the format, in order.
            pub const ALL: &'static [Dtype] = &[$(Dtype::$variant),*];

            /// The dtype's name in a file, such as `"BF16"`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Dtype::$variant => $name,)*
                }
            }

            /// The size of one element in bits. Not a multiple of 8 for the F4 and F6 kinds.
            pub const fn bits(self) -> u32 {
                match self {
                    $(Dtype::$variant => $bits,)*
                }
            }

            pub(crate) fn from_name(name: &str) -> Option<Dtype> {
                match name {
                    $($name => Some(Dtype::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

dtypes! {
    /// A byte that is 0 or 1.
    Bool = "BOOL", 8;
    /// 4-bit float (MXFP4 element), two to a byte.
    F4 = "F4", 4;
    /// 6-bit float with 2 exponent and 3 mantissa bits.
    F6E2M3 = "F6_E2M3", 6;
    /// 6-bit float with 3 exponent and 2 mantissa bits.
    F6E3M2 = "F6_E3M2", 6;
    /// Unsigned 8-bit integer.
    U8 = "U8", 8;
    /// Signed 8-bit integer.
    I8 = "I8", 8;
    /// 8-bit float, 5 exponent and 2 mantissa bits, with infinities.
    F8E5M2 = "F8_E5M2", 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, without infinities.
    F8E4M3 = "F8_E4M3", 8;
    /// 8-bit power of two (MX scale): exponent only, no sign, no zero.
    F8E8M0 = "F8_E8M0", 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, one NaN, no negative zero.
    F8E4M3Fnuz = "F8_E4M3FNUZ", 8;
    /// 8-bit float, 5 exponent and 2 mantissa bits, one NaN, no negative zero.
    F8E5M2Fnuz = "F8_E5M2FNUZ", 8;
    /// Signed 16-bit integer.
    I16 = "I16", 16;
    /// Unsigned 16-bit integer.
    U16 = "U16", 16;
    /// IEEE 754 half precision.
    F16 = "F16", 16;
    /// Brain float: the upper half of an F32.
    BF16 = "BF16", 16;
    /// Signed 32-bit integer.
    I32 = "I32", 32;
    /// Unsigned 32-bit integer.
    U32 = "U32", 32;
    /// IEEE 754 single precision.
    F32 = "F32", 32;
    /// Complex number of two F32: real part, imaginary part.
    C64 = "C64", 64;
    /// IEEE 754 double precision.
    F64 = "F64", 64;
    /// Signed 64-bit integer.
    I64 = "I64", 64;
    /// Unsigned 64-bit integer.
    U64 = "U64", 64;
}

impl Dtype {
    /// The size of one element in bytes, or `None` where elements share bytes (F4, F6).
    pub const fn bytes(self) -> Option<usize> {
        match self.bits() {
            bits if bits % 8 == 0 => Some(bits as usize / 8),
            _ => None,
        }
    }

    /// Whether values are real floating point numbers, of any width.
    pub const fn is_float(self) -> bool {
        !matches!(
            self,
            Dtype::Bool
                | Dtype::U8
                | Dtype::I8
                | Dtype::I16
                | Dtype::U16
                | Dtype::I32
                | Dtype::U32
                | Dtype::I64
                | Dtype::U64
                | Dtype::C64
        )
    }

    /// The alignment in bytes of the Rust type that holds an element on this machine: usually its
    /// size, 4 for C64 (a pair of F32), and 1 where elements share bytes.
    pub const fn alignment(self) -> usize {
        match self {
            Dtype::C64 => align_of::<f32>(),
            Dtype::F64 => align_of::<f64>(),
            Dtype::I64 | Dtype::U64 => align_of::<u64>(),
            _ => match self.bytes() {
                Some(bytes) => bytes,
                None => 1,
            },
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no dtype of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDtype(String);

impl fmt::Display for UnknownDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown dtype {:?}", self.0)
    }
}

impl std::error::Error for UnknownDtype {}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    /// Parses the exact name used in files; `"f32"` is not one.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Dtype::from_name(name).ok_or_else(|| UnknownDtype(name.to_owned()))
    }
}
