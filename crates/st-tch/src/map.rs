//! Mapping files, which a caller has to vouch for.

use std::collections::HashMap;
use std::path::Path;

use st_format::{Checkpoint, Dtype, Error, ErrorKind, Framework, Result, Shard};
use tch::{Device, Kind, Tensor};

use crate::Tch;
use crate::dtype::to_tch;
use crate::error::tch_error;
use crate::memory::TorchMemory;
use crate::tensor::{bytes_in, in_memory};

/// Maps a checkpoint (a file, an index, or the directory of either) into memory, and gives its
/// tensors as the places of that memory where they lie. Nothing is copied; pages are read when
/// they are first touched.
///
/// A tensor whose data is not aligned for its elements is copied, and only that one; and BOOL
/// tensors are looked through, as tch hands their bytes out as `bool`s.
///
/// Each file is mapped once. The mapping is libtorch's own, counted by its references: it is
/// there as long as one of the file's tensors is, or what libtorch made of one without a copy. It
/// is private: writing to a tensor leaves the file as it is.
///
/// # Safety
///
/// As long as one of the tensors lives, or what was made of it without a copy, nobody — this
/// process, or another one — may write to the files or truncate them. Replacing a file by
/// renaming another over it is fine. See [`st_format::Mapped::open`].
///
/// ```
/// use st_tch::map_into_tch;
///
#[doc = include_str!("doc_setup.txt")]
/// // SAFETY: the file is this process's own, and it stays as it is.
/// let tensors = unsafe { map_into_tch(&path) }?;
/// assert_eq!(tensors["model.weight"].size(), [2, 3]);
/// # Ok::<(), st_tch::format::Error>(())
/// ```
///
/// # Errors
///
/// As [`load_into_tch`](crate::load_into_tch), and [`Framework`](ErrorKind::Framework) where
/// libtorch cannot map a file: because the mapping is much larger than the machine's memory, for
/// one.
pub unsafe fn map_into_tch(path: impl AsRef<Path>) -> Result<HashMap<String, Tensor>> {
    let checkpoint = Checkpoint::open(path)?;
    let mut tensors = HashMap::with_capacity(checkpoint.len());
    let mut maps: Vec<Option<Tensor>> = checkpoint.shards().iter().map(|_| None).collect();
    for (at, info) in checkpoint.iter_with_shard() {
        let shard = &checkpoint.shards()[at];
        let mut tensor = || {
            if to_tch(info.dtype()).is_none() {
                return Err(Error::unsupported(info.dtype(), Tch::NAME));
            }
            // Only the files that tensors are taken from.
            let map = match &mut maps[at] {
                Some(map) => map,
                none => none.insert(map_file(shard)?),
            };
            let start = shard.header().data_start();
            let (begin, end) = (info.data_offsets().start, info.data_offsets().end);
            in_map(map, start + begin..start + end, info.dtype(), info.shape())
        };
        let tensor =
            tensor().map_err(|error| error.with_path(shard.path()).with_tensor(info.name()))?;
        tensors.insert(info.name().to_owned(), tensor);
    }
    Ok(tensors)
}

/// The bytes of a whole file.
fn map_file(shard: &Shard) -> Result<Tensor> {
    let len = i64::try_from(shard.header().file_len()).unwrap_or(i64::MAX);
    // Not shared, so that libtorch opens the file for reading and maps it privately.
    Tensor::f_from_file(&path_of(shard)?, false, len, (Kind::Uint8, Device::Cpu)).map_err(tch_error)
}

/// A path by which libtorch opens the very file whose header was read.
#[cfg(target_os = "linux")]
fn path_of(shard: &Shard) -> Result<String> {
    use std::os::fd::AsRawFd;

    let file = shard.file().ok_or_else(|| not_a_path(shard))?;
    Ok(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The path by which the file was opened: what lies there now is what gets mapped, and if it is
/// shorter than it was, an error.
#[cfg(not(target_os = "linux"))]
fn path_of(shard: &Shard) -> Result<String> {
    let path = shard.path().to_str();
    Ok(path.ok_or_else(|| not_a_path(shard))?.to_owned())
}

fn not_a_path(shard: &Shard) -> Error {
    let message = "libtorch has no path by which it could open the file";
    Error::new(ErrorKind::Io, message).with_path(shard.path())
}

/// The tensor at `range` of the map, or a copy of it where it is not aligned there.
fn in_map(
    map: &Tensor,
    range: std::ops::Range<u64>,
    dtype: Dtype,
    shape: &[usize],
) -> Result<Tensor> {
    let size = dtype.bytes().unwrap_or(1) as u64;
    if range.start.is_multiple_of(size) {
        return in_memory(map, range, dtype, shape);
    }
    let len = range.end - range.start;
    let copy = TorchMemory::new(len)?.into_tensor();
    let mut into = bytes_in(&copy, 0..len)?;
    into.f_copy_(&bytes_in(map, range)?).map_err(tch_error)?;
    in_memory(&copy, 0..len, dtype, shape)
}
