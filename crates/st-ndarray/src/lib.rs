//! Safetensors checkpoints become [ndarray] arrays, and the other way round.
//!
//! | I have | I want | use |
//! |---|---|---|
//! | a path | all tensors | [`load_into_ndarray`] |
//! | a path | one tensor | [`load_tensor_into_ndarray`] |
//! | a path | other names, other dtypes, parts of tensors, progress | [`Loader`] |
//! | a path to files that nobody writes to | arrays without a copy | [`map_into_ndarray`] |
//! | bytes in memory | a borrowed array without a copy | [`view_as_ndarray`] |
//! | arrays | a file of them | [`save_from_ndarray`] |
//! | arrays | other dtypes, shards, metadata, checksums | [`Saver`] |
//!
//! What is loaded is an [`AnyArray`], whatever its dtype. Where the dtype is known,
//! [`AnyArray::as_array`] and [`AnyArray::into_array`] give ndarray's own type.
//!
//! # Dtypes
//!
//! Every dtype of the format is loaded, and every value survives.
//!
//! | in the file | in Rust | |
//! |---|---|---|
//! | U8, I8, U16, I16, U32, I32, U64, I64, F32, F64 | the type of that name | |
//! | F16, BF16 | [`f16`](half::f16), [`bf16`](half::bf16) | |
//! | F8_E4M3, F8_E5M2 | [`F8E4M3`](float8::F8E4M3), [`F8E5M2`](float8::F8E5M2) | |
//! | C64 | [`Complex<f32>`](num_complex::Complex) | |
//! | BOOL | [`bool`] | a byte that is neither 0 nor 1 is an error |
//! | F4, F6_E2M3, F6_E3M2, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ | [`OpaqueArray`] | the bytes; Rust has no type for them. F8 can be cast ([`Loader::cast`](st_format::Loader::cast)) |
//!
//! # Memory
//!
//! A loaded array owns its memory: one copy from the page cache, nothing in between, whatever the
//! data's alignment. Arrays are row-major.
//!
//! Views and mapped arrays copy nothing. They need data that is aligned for its element type,
//! which the format does not ask for and many files do not have: [`view_as_ndarray`] and
//! [`MappedTensor::view`] fail then, and [`MappedTensor::array`] copies. BOOL data is read through
//! once, to see that it is nothing but 0 and 1.
//!
//! # What ndarray does not allow
//!
//! - ndarray's storage types are sealed, so a [`MappedArray`] is none of its `ArrayBase`s. It
//!   derefs to [`ArrayRef`](ndarray::ArrayRef), as they all do, and that has all methods that read.
//! - Where a dimension is 0, the product of the others must not be more than [`isize::MAX`]. The
//!   format has no such rule, so such a tensor is an error
//!   ([`Framework`](st_format::ErrorKind::Framework)).

#![deny(unsafe_code)]

mod any_array;
mod dtype;
mod load;
#[allow(unsafe_code)]
mod map;
mod mapped_array;
mod mapped_tensor;
mod opaque_array;
#[allow(unsafe_code)]
mod owning_view;
mod save;
mod view;

pub use any_array::AnyArray;
pub use dtype::Element;
pub use float8;
pub use half;
pub use load::{Loader, NdArray, load_into_ndarray, load_tensor_into_ndarray};
pub use map::map_into_ndarray;
pub use mapped_array::MappedArray;
pub use mapped_tensor::MappedTensor;
pub use ndarray;
pub use num_complex;
pub use opaque_array::OpaqueArray;
pub use save::{Savable, Saver, save_from_ndarray};
pub use st_format as format;
pub use view::view_as_ndarray;
