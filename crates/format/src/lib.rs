//! The safetensors format: reading headers, tensors and sharded checkpoints.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod archive;
mod buffer;
mod cast;
mod checkpoint;
mod dtype;
mod element;
mod error;
mod foreign;
mod header;
mod json;
mod load;
mod mapped;
mod read;
mod slice;
mod source;
mod view;

pub use archive::SafeTensors;
pub use buffer::{Buffer, Memory};
pub use checkpoint::{Checkpoint, Read, Shard, Warning};
pub use dtype::{Dtype, UnknownDtype};
pub use element::Element;
pub use error::{Error, ErrorKind, Result};
pub use header::{Header, MAX_HEADER_LEN, TensorInfo};
pub use load::{Framework, LoadReport, Loader, Part, Skipped};
pub use mapped::Mapped;
pub use read::ReadOptions;
pub use slice::Slice;
pub use view::TensorView;
