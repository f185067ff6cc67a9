//! The battery of checks, over ndarray.

use st_conformance::{Adapter, Held, battery};
use st_format::Dtype;
use st_ndarray::ndarray::ArrayD;
use st_ndarray::{AnyArray, NdArray};

struct Arrays;

/// The last row of the table in the crate's documentation.
const HAS_NO_TYPE: [Dtype; 6] = [
    Dtype::F4,
    Dtype::F6E2M3,
    Dtype::F6E3M2,
    Dtype::F8E8M0,
    Dtype::F8E4M3Fnuz,
    Dtype::F8E5M2Fnuz,
];

impl Adapter for Arrays {
    type Framework = NdArray;
    type Tensor = AnyArray;

    fn framework() -> NdArray {
        NdArray
    }

    fn promised(dtype: Dtype) -> Option<Dtype> {
        // Every dtype as it is.
        Some(dtype)
    }

    fn look(tensor: &AnyArray) -> Held {
        let bytes = match tensor {
            AnyArray::Bool(array) => bytes(array),
            AnyArray::U8(array) => bytes(array),
            AnyArray::I8(array) => bytes(array),
            AnyArray::U16(array) => bytes(array),
            AnyArray::I16(array) => bytes(array),
            AnyArray::U32(array) => bytes(array),
            AnyArray::I32(array) => bytes(array),
            AnyArray::U64(array) => bytes(array),
            AnyArray::I64(array) => bytes(array),
            AnyArray::F8E4M3(array) => bytes(array),
            AnyArray::F8E5M2(array) => bytes(array),
            AnyArray::F16(array) => bytes(array),
            AnyArray::BF16(array) => bytes(array),
            AnyArray::F32(array) => bytes(array),
            AnyArray::F64(array) => bytes(array),
            AnyArray::C64(array) => bytes(array),
            AnyArray::Opaque(array) => {
                assert!(HAS_NO_TYPE.contains(&array.dtype()), "{array:?}");
                array.bytes().to_vec()
            }
            other => panic!("{} has no row in the table", other.dtype()),
        };
        Held {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes,
        }
    }
}

/// In the order they lie in memory, which has to be row-major.
fn bytes<T: bytemuck::NoUninit>(array: &ArrayD<T>) -> Vec<u8> {
    bytemuck::cast_slice(array.as_slice().expect("a row-major array")).to_vec()
}

battery!(Arrays);
