//! Files that are mapped into memory instead of read.

use std::collections::HashMap;
use std::path::Path;

use st_format::{Checkpoint, Result};

use crate::MappedTensor;

/// Maps all tensors of a checkpoint: a file, an index, or the directory of either. No data is
/// read until it is looked at.
///
/// ```
/// use st_ndarray::map_into_ndarray;
///
#[doc = include_str!("doc_setup.txt")]
/// // SAFETY: nobody writes to this file, or truncates it, while it is mapped.
/// let tensors = unsafe { map_into_ndarray(&path) }?;
/// let weight = tensors["model.weight"].array::<f32>()?;
/// drop(tensors);
/// assert_eq!(weight.sum(), 9.0);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Safety
///
/// As long as any of the tensors lives, or an array made of one, nobody — this process, or another
/// one — may write to or truncate any of the checkpoint's files. Replacing a file by renaming
/// another over it is fine. See [`Mapped::open`](st_format::Mapped::open).
///
/// # Errors
///
/// As [`Checkpoint::open`].
pub unsafe fn map_into_ndarray(path: impl AsRef<Path>) -> Result<HashMap<String, MappedTensor>> {
    // SAFETY: the caller promises what this asks for. Tensors hold the checkpoint or bytes taken
    // from it, and so do their arrays.
    let checkpoint = unsafe { Checkpoint::map(path) }?;
    MappedTensor::all_of(checkpoint)
}
