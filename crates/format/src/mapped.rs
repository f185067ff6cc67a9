//! Files mapped into memory.

use std::path::Path;

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};

use crate::checkpoint::Shard;
use crate::error::{Error, Result};
use crate::{Checkpoint, header};

/// The bytes of a file, mapped into memory: pages are read when touched and shared with every
/// other process that maps the file.
///
/// Use it as the bytes of [`SafeTensors`](crate::SafeTensors):
///
/// ```no_run
/// use st_format::{Mapped, SafeTensors};
///
/// // SAFETY: this process owns the file; nobody writes or truncates it.
/// let bytes = unsafe { Mapped::open("model.safetensors") }?;
/// let tensors = SafeTensors::new(bytes)?;
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Mapped(Mmap);

impl Mapped {
    /// Maps a whole file.
    ///
    /// # Safety
    ///
    /// As long as the value lives, nobody — this process, or another one — may write to the file
    /// or truncate it: what Rust sees as an immutable `&[u8]` would change, or touching it would
    /// kill the process. Replacing the file by renaming another over it is fine.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io), and
    /// [`NotSafetensors`](crate::ErrorKind::NotSafetensors) where the path is no regular file.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Mapped> {
        let path = path.as_ref();
        let (file, _) = header::open(path).map_err(|error| error.with_path(path))?;
        // SAFETY: the caller promises that the file stays as it is while the map lives, which is
        // the whole of memmap2's contract for a file-backed map.
        let map = unsafe { MmapOptions::new().map(&file) };
        map.map(Mapped)
            .map_err(|error| Error::io("cannot map", error).with_path(path))
    }

    /// The same map behind a reference count, for owners that share it.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Checkpoint {
    /// As [`open`](Checkpoint::open), with the files mapped into memory instead of read.
    ///
    /// # Safety
    ///
    /// As long as the checkpoint lives, or bytes that were taken from it by
    /// [`bytes`](Checkpoint::bytes), nobody may write to or truncate any of its files. See
    /// [`Mapped::open`].
    ///
    /// # Errors
    ///
    /// As [`open`](Checkpoint::open).
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(path.as_ref(), |path| {
            // SAFETY: the caller promises what `Mapped::open` asks for, for all the files.
            let map = unsafe { Mapped::open(path) }?;
            Shard::from_bytes(path, map.into_bytes())
        })
    }
}
