//! An array whose elements Rust has no type for.

use std::fmt;

use st_format::Dtype;

/// A tensor of a dtype that Rust has no type for: its bytes as they stand in the file, row-major.
///
/// Elements of F4 and F6 kinds do not fill whole bytes, so there may be fewer bytes than elements.
///
/// ```
/// use st_format::{Checkpoint, Dtype};
/// use st_ndarray::{AnyArray, Loader, NdArray};
///
/// let json = br#"{"scale":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]}}"#;
/// let mut file = (json.len() as u64).to_le_bytes().to_vec();
/// file.extend(json);
/// file.extend([127, 130]);
///
/// let checkpoint = Checkpoint::from_bytes(file)?;
/// let AnyArray::Opaque(scale) = Loader::new(NdArray).load_tensor(&checkpoint, "scale")? else {
///     panic!("E8M0 has a type");
/// };
/// assert_eq!((scale.dtype(), scale.shape()), (Dtype::F8E8M0, &[2][..]));
/// assert_eq!(scale.bytes(), [127, 130]);
///
/// // As numbers:
/// let loader = Loader::new(NdArray).cast(|_| Some(Dtype::F32));
/// let scale = loader.load_tensor(&checkpoint, "scale")?;
/// assert_eq!(scale.into_array::<f32>()?, ndarray::arr1(&[1.0, 8.0]).into_dyn());
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct OpaqueArray {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl OpaqueArray {
    pub(crate) fn new(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> OpaqueArray {
        OpaqueArray {
            dtype,
            shape,
            bytes,
        }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The size of each dimension in elements, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes of all elements.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of all elements, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Debug for OpaqueArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpaqueArray")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
