//! What burn itself does, as this crate's documentation says it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{AllocationProperty, Bytes, DType, Device, Tensor, TensorData};

#[test]
fn misaligned_bytes_are_taken_and_panic_later() {
    let memory = bytes::Bytes::from_owner([0_u8; 32]);
    let shift = (0..4).find(|shift| !(memory.as_ptr().addr() + shift).is_multiple_of(4));
    let bytes = memory.slice(shift.unwrap()..).slice(..8);
    let bytes = Bytes::from_shared(bytes, AllocationProperty::Other);
    let data = TensorData::try_from_bytes(bytes, [2], DType::F32).unwrap();
    assert!(data.as_slice::<f32>().is_err());
    let tensor = Tensor::<1>::from_data(data, (&Device::flex(), DType::F32));
    let sum = catch_unwind(AssertUnwindSafe(|| tensor.sum()));
    assert!(
        sum.is_err(),
        "burn has become careful; this crate may be less so"
    );
}

#[test]
fn a_float_tensor_takes_the_devices_dtype_unless_named() {
    let device = Device::flex();
    let data = TensorData::from([1.5_f32, 2.0]).convert_dtype(DType::BF16);
    let tensor = Tensor::<1>::from_data(data.clone(), &device);
    assert_eq!(tensor.dtype(), DType::F32);
    let tensor = Tensor::<1>::from_data(data, (&device, DType::BF16));
    assert_eq!(tensor.dtype(), DType::BF16);
}

#[test]
fn a_bool_that_is_neither_is_taken() {
    let dtype = DType::Bool(burn::tensor::BoolStore::Native);
    let data = TensorData::try_from_bytes_vec(vec![0, 1, 2], [3], dtype).unwrap();
    assert_eq!(data.as_bytes(), [0, 1, 2]);
    assert!(data.as_slice::<bool>().is_err());
}
