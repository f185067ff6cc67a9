//! An array whose elements Rust has no type for.

use std::fmt;

use st_format::{Dtype, Error, ErrorKind, Result};

use crate::AnyArray;

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
    /// An array of these bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where there are not as many bytes as the dtype
    /// and shape need, or Rust has a type for the dtype.
    pub fn new(dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Result<OpaqueArray> {
        if AnyArray::has_type(dtype) {
            let message = format!("Rust has a type for {dtype}, of which an Array can be made");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let elements = shape
            .iter()
            .try_fold(1_usize, |product, &dim| product.checked_mul(dim));
        let bits = elements.and_then(|elements| elements.checked_mul(dtype.bits() as usize));
        if bits.is_none() || bits != bytes.len().checked_mul(8) {
            let message = format!("{} bytes are no {dtype} {shape:?}", bytes.len());
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        Ok(OpaqueArray {
            dtype,
            shape: shape.to_vec(),
            bytes,
        })
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
