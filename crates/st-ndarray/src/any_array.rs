//! An array of any dtype.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ndarray::{Array, ArrayD, Dimension, IxDyn};
use num_complex::Complex;
use st_format::{Buffer, Dtype, Error, Framework, Result};

use crate::dtype::wrong_type;
use crate::{Element, NdArray, OpaqueArray, Savable};

/// How elements of one type lie in an [`AnyArray`].
pub trait Variant: Sized {
    fn wrap(array: ArrayD<Self>) -> AnyArray;
    fn get(any: &AnyArray) -> Option<&ArrayD<Self>>;
    fn take(any: AnyArray) -> Option<ArrayD<Self>>;
}

macro_rules! any_array {
    ($($dtype:ident($element:ty),)*) => {
        /// An array whose element type is known at run time: that of the tensor's dtype.
        ///
        /// Variants are named as those of [`Dtype`].
        ///
        /// ```
        /// use ndarray::array;
        /// use st_ndarray::AnyArray;
        ///
        /// let any = AnyArray::from(array![[1.0f32, 2.0], [3.0, 4.0]]);
        /// assert_eq!(any.shape(), [2, 2]);
        /// assert_eq!(any.as_array::<f32>()?.sum(), 10.0);
        /// assert_eq!(
        ///     any.as_array::<f64>().unwrap_err().to_string(),
        ///     "dtype is F32, asked for as F64 (f64)",
        /// );
        /// # Ok::<(), st_format::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "variants are those of Dtype")]
        pub enum AnyArray {
            $($dtype(ArrayD<$element>),)*
            /// A dtype that Rust has no type for.
            Opaque(OpaqueArray),
        }

        impl AnyArray {
            /// The element type, as the format names it.
            pub fn dtype(&self) -> Dtype {
                match self {
                    $(AnyArray::$dtype(_) => Dtype::$dtype,)*
                    AnyArray::Opaque(array) => array.dtype(),
                }
            }

            /// The size of each dimension, outermost first.
            pub fn shape(&self) -> &[usize] {
                match self {
                    $(AnyArray::$dtype(array) => array.shape(),)*
                    AnyArray::Opaque(array) => array.shape(),
                }
            }

            pub(crate) fn savable(&self) -> &dyn Savable {
                match self {
                    $(AnyArray::$dtype(array) => array,)*
                    AnyArray::Opaque(array) => array,
                }
            }

            /// Whether Rust has a type for elements of `dtype`.
            pub(crate) fn has_type(dtype: Dtype) -> bool {
                matches!(dtype, $(Dtype::$dtype)|*)
            }

            /// An array of memory that a load has filled with elements of `dtype`.
            pub(crate) fn from_memory(
                memory: Buffer,
                dtype: Dtype,
                shape: &[usize],
            ) -> Result<AnyArray> {
                match dtype {
                    $(Dtype::$dtype => array::<$element>(memory, shape),)*
                    _ => OpaqueArray::new(dtype, shape, memory.into_vec()?).map(AnyArray::Opaque),
                }
            }
        }

        $(impl Variant for $element {
            fn wrap(array: ArrayD<Self>) -> AnyArray {
                AnyArray::$dtype(array)
            }

            fn get(any: &AnyArray) -> Option<&ArrayD<Self>> {
                match any {
                    AnyArray::$dtype(array) => Some(array),
                    _ => None,
                }
            }

            fn take(any: AnyArray) -> Option<ArrayD<Self>> {
                match any {
                    AnyArray::$dtype(array) => Some(array),
                    _ => None,
                }
            }
        })*
    };
}

any_array! {
    Bool(bool),
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F8E4M3(F8E4M3),
    F8E5M2(F8E5M2),
    F16(f16),
    BF16(bf16),
    F32(f32),
    F64(f64),
    C64(Complex<f32>),
}

fn array<T: Element>(memory: Buffer, shape: &[usize]) -> Result<AnyArray> {
    let array = ArrayD::from_shape_vec(IxDyn(shape), T::from_memory(memory)?);
    let array = array.map_err(|error| Error::framework(NdArray::NAME, error))?;
    Ok(T::wrap(array))
}

impl AnyArray {
    /// The array, if its elements are `T`s.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](st_format::ErrorKind::InvalidRequest) where they are something else.
    pub fn as_array<T: Element>(&self) -> Result<&ArrayD<T>> {
        T::get(self).ok_or_else(|| wrong_type::<T>(self.dtype()))
    }

    /// The array itself, if its elements are `T`s.
    ///
    /// ```
    /// use ndarray::Ix2;
    /// use st_ndarray::load_tensor_into_ndarray;
    ///
    #[doc = include_str!("doc_setup.txt")]
    /// let weight = load_tensor_into_ndarray(&path, "model.weight")?
    ///     .into_array::<f32>()?
    ///     .into_dimensionality::<Ix2>()?;
    /// assert_eq!(weight.dim(), (2, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`as_array`](AnyArray::as_array).
    pub fn into_array<T: Element>(self) -> Result<ArrayD<T>> {
        let dtype = self.dtype();
        T::take(self).ok_or_else(|| wrong_type::<T>(dtype))
    }
}

impl<T: Element, D: Dimension> From<Array<T, D>> for AnyArray {
    fn from(array: Array<T, D>) -> AnyArray {
        T::wrap(array.into_dyn())
    }
}
