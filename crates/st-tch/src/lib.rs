//! Safetensors checkpoints become [tch](https://docs.rs/tch) tensors, those of libtorch.
//!
//! | I want | use |
//! |---|---|
//! | all tensors by name | [`load_into_tch`] |
//! | the same by policies: names, dtypes, parts of tensors, threads, progress | [`Loader`] |
//! | one tensor | [`load_tensor_into_tch`] |
//! | tensors that are the file itself, mapped into memory | [`map_into_tch`] |
//! | the weights of a [`VarStore`](tch::nn::VarStore), loaded or saved | [`load_into_var_store`], [`export_var_store`] |
//! | a file of tensors | [`save_from_tch`] |
//! | the same by policies: dtypes, shards, metadata, checksums | [`Saver`] |
//!
//! # Dtypes
//!
//! | in the file | in tch | |
//! |---|---|---|
//! | BOOL | the same | a byte that is neither 0 nor 1 is an error |
//! | U8, I8, I16, I32, I64, F16, BF16, F32, F64, C64, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ | the same | |
//! | U16, U32 | – | an error; [`Loader::cast`](st_format::Loader::cast) widens them to I32 and I64, exactly |
//! | U64 | – | an error; it can be cast to F32 and F64, rounded |
//! | F8_E8M0 | – | an error; it can be cast to BF16 and F32, exactly |
//! | F4, F6_E2M3, F6_E3M2 | – | an error |
//!
//! tch's enum lacks these, though libtorch itself has some of them.
//! [`Loader::skip_unsupported`](st_format::Loader::skip_unsupported) leaves out what is an error.
//! All that tch shares with the format is saved: what is not are complex numbers of other sizes
//! than C64, and quantized tensors.
//!
//! # Memory
//!
//! On the CPU a load is one copy, from the page cache into memory that libtorch allocated. A
//! tensor of 1 MiB or more has an allocation of its own. Smaller ones that lie one after the other
//! in the file and have one dtype share an allocation of up to 64 MiB, which is freed when the
//! last of them is dropped. They are tensors of their own all the same, no views of one another:
//! autograd notices in-place changes to each by itself.
//!
//! On other devices tensors are read and copied over one after the other, with at most 256 MiB,
//! or one tensor, on the way at a time.
//!
//! # What tch 0.26 is like
//!
//! What this crate relies on or works around, each with a test:
//!
//! - `Tensor::from_blob` has no deleter, so nothing keeps memory of Rust's alive for a tensor.
//!   Loads go the other way, into libtorch's own memory, and [`map_into_tch`] has libtorch map
//!   the file.
//! - `bool` tensors are copied to Rust's `bool`s byte by byte: a byte 2 would be undefined
//!   behaviour there, so none gets into one.
//! - A mapping of libtorch's is writable and private, which Linux counts as memory that may come
//!   to be needed. One of much more than the machine has is refused (an error, no crash), unless
//!   `vm.overcommit_memory` is 1.
//! - Views of one tensor share a version counter. In-place changes to one would make autograd
//!   refuse backward passes that saved another, so tensors that share memory are no views.
//! - Errors of libtorch carry a C++ backtrace; only their first line is kept.
//!
//! # Linking
//!
//! torch-sys needs libtorch 2.13 at build time (`LIBTORCH`, or `LIBTORCH_USE_PYTORCH=1`), and a
//! program needs it at run time. What links it says where it is, by a build script beside a direct
//! dependency on torch-sys:
//!
//! ```no_run
//! // build.rs
//! if let Ok(libtorch) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
//!     println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}");
//! }
//! ```

#![deny(unsafe_code)]

mod dtype;
mod error;
#[allow(unsafe_code)]
mod in_place;
mod load;
#[allow(unsafe_code)]
mod map;
#[allow(unsafe_code)]
mod memory;
mod save;
mod tensor;
mod var_store;

pub use dtype::{from_tch, to_tch};
pub use load::{Loader, Tch, load_into_tch, load_tensor_into_tch};
pub use map::map_into_tch;
pub use memory::TorchMemory;
pub use save::{Saver, save_from_tch};
pub use st_format as format;
pub use tch;
pub use var_store::{LoadReport, Mismatch, export_var_store, load_into_var_store};
