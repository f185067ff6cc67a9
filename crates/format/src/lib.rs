//! The safetensors format: headers, tensors and sharded checkpoints, without any framework.
//!
//! A `.safetensors` file is eight bytes of length, a JSON header of names, dtypes, shapes and
//! offsets, then the tensors' bytes, little-endian and row-major ([the format's
//! text](https://github.com/huggingface/safetensors#format)). A large model is several such files,
//! *shards*, and an index that says which tensor is in which.
//!
//! | I have | I want | use |
//! |---|---|---|
//! | a path | tensors of a framework | an adapter, such as `st-candle`; its `Loader` is [`Loader`] |
//! | a path | names, shapes, any tensor's bytes or part of them | [`Checkpoint`] |
//! | bytes in memory, or a [map](Mapped) | tensors borrowed from them | [`SafeTensors`] |
//! | a file | only its header | [`Header::read`] |
//! | tensors of a framework | a checkpoint | an adapter; its `Saver` is [`Saver`] |
//! | tensors' bytes | a checkpoint | [`Saver`] of [`Raw`] tensors |
//! | tensors' bytes that are yet to come | a file, piece by piece | [`Writer`], [`StreamWriter`] |
//! | a file | other metadata, other names | [`Editor`] |
//! | a framework | an adapter for it | [`Framework`] and [`SaveFrom`] |
//!
//! # Promises
//!
//! - No input makes this crate panic, overflow, read out of bounds, or allocate more than a small
//!   multiple of the input's own size. Lengths are checked before memory is asked for.
//! - Nothing is silently lossy. A cast happens only when asked for, and a dtype that a framework
//!   lacks is an error that names the tensor.
//! - Safe functions are sound for every caller. Mapping a file that someone else may change is
//!   not, so [`Mapped::open`] and [`Checkpoint::map`] are `unsafe`, and everything else reads.
//! - Headers are parsed once per file, in one pass. Only a long one that is broken, or has a very
//!   long entry, is read a second time, to say what is wrong with it.
//!
//! # What is accepted
//!
//! What the reference implementation (crate `safetensors` 0.8) accepts, except: a name, a metadata
//! key or a field given twice; an entry written as an array; a dtype written as an object; a number
//! next to the largest F64 in an unknown field. Data need not be aligned. White space before the header and unknown fields of an entry are accepted
//! and reported by [`Checkpoint::warnings`].

#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("tensors are little-endian in the file and are used as they are");

mod archive;
#[allow(unsafe_code)]
mod buffer;
mod cast;
mod checkpoint;
mod checksum;
mod dtype;
mod edit;
mod element;
mod error;
mod foreign;
mod header;
#[allow(unsafe_code)]
mod huge_pages;
mod json;
mod load;
#[allow(unsafe_code)]
mod mapped;
mod raw;
#[allow(unsafe_code)]
mod read;
mod save;
mod slice;
#[cfg_attr(not(unix), allow(unsafe_code))]
mod source;
mod threads;
mod tied;
mod view;
mod writer;

pub use archive::SafeTensors;
pub use buffer::{Buffer, Memory};
pub use checkpoint::{Checkpoint, Read, Shard, Warning};
pub use checksum::CHECKSUM_PREFIX;
pub use dtype::{Dtype, UnknownDtype};
pub use edit::{Edited, Editor};
pub use element::Element;
pub use error::{Error, ErrorKind, Result};
pub use header::{Header, MAX_HEADER_LEN, TensorInfo};
pub use huge_pages::allocation_len;
pub use load::{Framework, LoadReport, Loader, Part, Skipped};
pub use mapped::Mapped;
pub use raw::Raw;
pub use read::ReadOptions;
pub use save::{SaveFrom, SaveReport, Saver, byte_size};
pub use slice::Slice;
pub use tied::Storage;
pub use view::TensorView;
pub use writer::{Layout, StreamWriter, Writer};
