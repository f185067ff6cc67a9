//! Safetensors checkpoints become [burn](https://burn.dev) tensors and modules.
//!
//! | I want | use |
//! |---|---|
//! | all tensors by name | [`load_into_burn`] |
//! | the same by policies: names, dtypes, parts of tensors, threads, progress | [`Loader`] |
//! | one tensor | [`load_tensor_into_burn`] |
//! | tensors that are the file itself, mapped into memory | [`map_into_burn`] |
//! | a module's weights, loaded or saved | [`Store`], with `load_from` and `save_into` of burn-store |
//! | a file of tensors | [`save_from_burn`] |
//! | the same by policies: dtypes, shards, metadata, checksums | [`Saver`], also of a [`Store`] |
//!
//! Tensors are [`TensorData`], burn's tensor on no device yet. `Tensor::from_data(data, &device)`
//! gives a float tensor the device's default dtype, and so may convert and copy it; to keep the
//! file's, name it:
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! # use st_burn::load_into_burn;
//!
#![doc = include_str!("doc_setup.txt")]
//! let data = load_into_burn(&path)?.remove("model.weight").unwrap();
//! let dtype = data.dtype();
//! let weight = Tensor::<2>::from_data(data, (&Device::flex(), dtype));
//! assert_eq!(weight.dims(), [2, 3]);
//! # Ok::<(), st_format::Error>(())
//! ```
//!
//! # Dtypes
//!
//! | in the file | in burn | |
//! |---|---|---|
//! | U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64 | the same | |
//! | BOOL | `Bool(Native)` | a byte other than 0 and 1 is an [`InvalidData`](st_format::ErrorKind::InvalidData) error |
//! | F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ | F16 | every value survives |
//! | F8_E8M0 | BF16 | every value survives |
//! | F4, F6_E2M3, F6_E3M2, C64 | – | an error, or left out where [`Loader::skip_unsupported`](st_format::Loader::skip_unsupported) says so |
//!
//! # Memory
//!
//! A load is one copy, from the page cache into the memory the tensor keeps. A tensor of 1 MiB or
//! more has an allocation of its own, which burn may write to and turn into a `Vec`. Smaller ones
//! that lie one after the other in the file and have one dtype share an allocation of up to
//! 64 MiB; burn copies such a tensor when it writes to it, and the memory is freed when the last
//! of them is dropped. burn-flex computes on all of this memory, and on a [map](map_into_burn),
//! where it lies.
//!
//! # What burn 0.22 is like
//!
//! What this crate works around:
//!
//! - `TensorData` takes misaligned bytes, and a backend that reads them panics. Nothing here
//!   hands out any, not even for tensors without elements.
//! - Features `std` of burn and burn-store lock burn-tch and with it one version of libtorch, so
//!   they are off here, and burn-store's `KeyRemapper` and the regexes of its `PathFilter` with
//!   them. [`Store`] has its own; a `PathFilter` that has regexes works as well.
//! - The parameters that a load replaces keep the file's dtype, whatever the module's was.
//!   Chain a [`FloatCastAdapter`](burn_store::FloatCastAdapter) to have another one.

#![deny(unsafe_code)]

mod deferred;
mod dtype;
mod filter;
mod load;
#[allow(unsafe_code)]
mod map;
mod memory;
mod names;
mod save;
mod store;

pub use burn_core;
pub use burn_core::tensor::TensorData;
pub use burn_store;
pub use dtype::{from_burn, to_burn};
pub use load::{Burn, Loader, load_into_burn, load_tensor_into_burn};
pub use map::map_into_burn;
pub use save::{Saver, save_from_burn};
pub use st_format as format;
pub use store::Store;
