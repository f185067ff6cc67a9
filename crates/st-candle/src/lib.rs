//! Safetensors checkpoints become [candle](candle_core) tensors, and the other way round.
//!
//! | I want | use |
//! |---|---|
//! | all tensors by name | [`load_into_candle`] |
//! | the same by policies: names, dtypes, parts of tensors, threads, progress | [`Loader`] |
//! | one tensor | [`load_tensor_into_candle`] |
//! | what a model of candle-nn asks for, when it asks for it | `var_builder`, by feature `nn` (the facade calls it `candle-nn`) |
//! | a linear layer whose weight stays in the mapped file | [`MappedLinear`] |
//! | a file of tensors | [`save_from_candle`] |
//! | the same by policies: dtypes, shards, metadata, checksums | [`Saver`] |
//!
//! All loads read straight from the file into the memory the tensor keeps: one copy, and nothing
//! in between, whatever the data's alignment. A save writes from that memory.
//!
//! # Dtypes
//!
//! | in the file | in candle | |
//! |---|---|---|
//! | U8, U32, I16, I32, I64, F16, BF16, F32, F64, F8_E4M3 | the same | |
//! | BOOL | U8 | as bytes: candle has no bool |
//! | I8 | I16 | every value survives |
//! | U16 | U32 | every value survives |
//! | F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ | F16 | every value survives |
//! | F4, F6_E2M3, F6_E3M2, F8_E8M0 | the same | candle keeps the bytes and has no operations |
//! | U64, C64 | – | an error, or left out where [`Loader::skip_unsupported`](st_format::Loader::skip_unsupported) says so; U64 can be cast |
//!
//! Tensors keep the dtype of the file: to compute in F32 whatever the file has, cast while loading
//! ([`Loader::cast_floats`](st_format::Loader::cast_floats)).
//!
//! [`save_from_candle`] and [`Saver`] write every dtype that candle has under its own name.
//!
//! # candle's version
//!
//! Tensors are those of candle-core 0.11, which is re-exported as [`candle_core`]. An engine that
//! depends on candle-core itself needs the same version, or its `Tensor` is another type.
//!
//! # Memory
//!
//! On the CPU a candle tensor owns a `Vec`, so a load is one copy from the page cache. A tensor
//! of 1 MiB or more has an allocation of its own. Smaller ones that lie one after the other in
//! the file and have one dtype share an allocation of up to 64 MiB, as views of it: it is freed
//! when the last of them is dropped, and candle refuses in-place operations between two of them
//! (`slice_set`). [`Tensor::copy`](candle_core::Tensor::copy) makes one independent.
//!
//! On other devices tensors are read and copied over one after the other, with at most 256 MiB,
//! or one tensor, on the way at a time.

#![forbid(unsafe_code)]

mod dtype;
mod load;
mod mapped_linear;
mod save;
#[cfg(feature = "nn")]
mod var_builder;

pub use candle_core;
pub use dtype::{from_candle, to_candle};
pub use load::{Candle, Loader, load_into_candle, load_tensor_into_candle};
pub use mapped_linear::MappedLinear;
pub use save::{Saver, save_from_candle};
pub use st_format as format;
#[cfg(feature = "nn")]
pub use var_builder::{var_builder, var_builder_of};
