//! Bytes become burn's tensors, without a copy.

use burn_core::tensor::{AllocationProperty, Bytes, DType, TensorData};
use bytemuck::Pod;
use half::{bf16, f16};
use st_format::{Buffer, Dtype, Error, ErrorKind, Framework, Part, Result};

use crate::Burn;
use crate::dtype::to_burn;

/// The tensors that lie in memory which has been read into.
pub(crate) fn tensors(
    memory: Buffer,
    dtype: Dtype,
    parts: &[Part<'_>],
) -> Result<Vec<Result<TensorData>>> {
    match dtype {
        Dtype::Bool | Dtype::U8 => of_elements::<u8>(memory, dtype, parts),
        Dtype::U16 => of_elements::<u16>(memory, dtype, parts),
        Dtype::U32 => of_elements::<u32>(memory, dtype, parts),
        Dtype::U64 => of_elements::<u64>(memory, dtype, parts),
        Dtype::I8 => of_elements::<i8>(memory, dtype, parts),
        Dtype::I16 => of_elements::<i16>(memory, dtype, parts),
        Dtype::I32 => of_elements::<i32>(memory, dtype, parts),
        Dtype::I64 => of_elements::<i64>(memory, dtype, parts),
        Dtype::F16 => of_elements::<f16>(memory, dtype, parts),
        Dtype::BF16 => of_elements::<bf16>(memory, dtype, parts),
        Dtype::F32 => of_elements::<f32>(memory, dtype, parts),
        Dtype::F64 => of_elements::<f64>(memory, dtype, parts),
        other => Err(unsupported(other)),
    }
}

/// The tensor whose bytes are these, which stay where they are. `None` where they are not aligned
/// for its elements.
pub(crate) fn shared(
    bytes: bytes::Bytes,
    dtype: Dtype,
    shape: &[usize],
) -> Result<Option<TensorData>> {
    if !bytes.as_ptr().addr().is_multiple_of(dtype.alignment()) {
        return Ok(None);
    }
    // What the property tells a GPU's backend: pages may have to be read first, so it is worth
    // staging them.
    let bytes = Bytes::from_shared(bytes, AllocationProperty::File);
    tensor(bytes, dtype, shape).map(Some)
}

fn of_elements<T: Pod + Send + Sync>(
    memory: Buffer,
    dtype: Dtype,
    parts: &[Part<'_>],
) -> Result<Vec<Result<TensorData>>> {
    let elements = memory.into_vec::<T>()?;
    if let [part] = parts {
        return Ok(vec![tensor(
            Bytes::from_elems(elements),
            dtype,
            &part.shape,
        )]);
    }
    let arena = bytes::Bytes::from_owner(Elements(elements));
    let of_part = |part: &Part| {
        let bytes = match part.bytes.is_empty() {
            // An empty slice of the arena would point to no aligned place.
            true => Bytes::from_elems(Vec::<T>::new()),
            false => {
                let slice = arena.slice(part.bytes.start as usize..part.bytes.end as usize);
                Bytes::from_shared(slice, AllocationProperty::Native)
            }
        };
        tensor(bytes, dtype, &part.shape)
    };
    Ok(parts.iter().map(of_part).collect())
}

fn tensor(bytes: Bytes, dtype: Dtype, shape: &[usize]) -> Result<TensorData> {
    // burn takes any byte here, and refuses it only where elements are looked at.
    if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
        let message = "a BOOL that is neither 0 nor 1";
        return Err(Error::new(ErrorKind::InvalidData, message));
    }
    let dtype: DType = to_burn(dtype).ok_or_else(|| unsupported(dtype))?;
    TensorData::try_from_bytes(bytes, shape.to_vec(), dtype)
        .map_err(|error| Error::framework(Burn::NAME, error))
}

fn unsupported(dtype: Dtype) -> Error {
    Error::unsupported(dtype, Burn::NAME)
}

/// Elements as the bytes they are.
struct Elements<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
