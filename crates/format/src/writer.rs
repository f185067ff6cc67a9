//! Writing a file: tensors are declared first, then written one by one, and the file appears when
//! all of it is there.

mod atomic_file;
mod layout;
mod progress;
mod stream;

use std::path::Path;

#[cfg(doc)]
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::header::{PREFIX_LEN, text};
use crate::{Header, checksum};
pub(crate) use atomic_file::{
    AtomicFile, ClosedFile, KeptFile, directory_of, is_temporary_name, sync_directory,
};
pub use layout::Layout;
pub(crate) use layout::{byte_len, check_name};
use progress::Progress;
pub use stream::StreamWriter;

/// Writes a safetensors file, one tensor at a time, in any order.
///
/// The data goes to a temporary file beside the target, which [`finish`](Writer::finish) renames:
/// until then, and after any error, whatever was at the target stays as it was. A writer that is
/// dropped removes its temporary file; a process that is killed leaves it, hidden.
///
/// ```
/// use st_format::{Checkpoint, Dtype, Layout, Writer};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let mut layout = Layout::new();
/// layout.metadata("format", "pt");
/// layout.tensor("weight", Dtype::F32, &[2])?;
/// layout.tensor("bias", Dtype::F32, &[1])?;
///
/// let mut writer = Writer::create(&path, layout)?;
/// writer.write("weight", &1.5f32.to_le_bytes())?;
/// writer.write("weight", &2.5f32.to_le_bytes())?;
/// writer.write("bias", &0.5f32.to_le_bytes())?;
/// writer.finish()?;
///
/// assert_eq!(Checkpoint::open(&path)?.read("bias")?, 0.5f32.to_le_bytes());
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    file: AtomicFile,
    progress: Progress,
}

impl Writer {
    /// Begins a file with the tensors that `layout` declares. Nothing is at `path` yet.
    ///
    /// A symlink at `path` is followed, and what it leads to is replaced; it keeps its
    /// permissions.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where the header would be longer than the
    /// format allows, the layout cannot be, or something else than a file is at `path`; and
    /// [`Io`](ErrorKind::Io).
    pub fn create(path: impl AsRef<Path>, layout: Layout) -> Result<Writer> {
        Writer::to_file(AtomicFile::create(path.as_ref())?, layout)
    }

    pub(crate) fn to_file(mut file: AtomicFile, layout: Layout) -> Result<Writer> {
        let (bytes, progress) =
            Progress::begin(layout).map_err(|error| error.with_path(file.path()))?;
        file.reserve(progress.header().file_len())?;
        file.write_at(0, &bytes)?;
        Ok(Writer { file, progress })
    }

    /// The header of the file that is being written.
    pub fn header(&self) -> &Header {
        self.progress.header()
    }

    /// Writes the next bytes of a tensor: all of it, or a piece after the pieces before.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound) where the tensor was not declared,
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where it would get more bytes than its dtype
    /// and shape have, and [`Io`](ErrorKind::Io).
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut write = || {
            let place = self.progress.place(name, bytes.len())?;
            self.file.write_at(place.offset, bytes)?;
            self.progress.add(&place, bytes);
            Ok(())
        };
        write().map_err(|error: Error| error.with_path(self.file.path()).with_tensor(name))
    }

    /// Makes the file appear at its path, in place of what is there.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where a tensor is missing or incomplete, and
    /// [`Io`](ErrorKind::Io); then what was at the path is still there.
    pub fn finish(self) -> Result<()> {
        self.close(false)?.replace_target()
    }

    /// As [`finish`](Writer::finish), and the file and its name survive a power failure once it
    /// returns.
    ///
    /// # Errors
    ///
    /// As [`finish`](Writer::finish); where only the directory could not be synced, the new file is
    /// there, and the message says so.
    pub fn finish_durably(self) -> Result<()> {
        self.close(true)?.replace_target()
    }

    /// The complete file, which does not have its name yet.
    pub(crate) fn close(mut self, durable: bool) -> Result<ClosedFile> {
        let of_file = |error: Error| error.with_path(self.file.path());
        self.progress.check_complete().map_err(of_file)?;
        if let Some(metadata) = self.progress.checksums() {
            let header = self.progress.header();
            let json = text::json(&metadata, header.iter());
            let len = header.data_start() - PREFIX_LEN;
            let bytes = text::padded(&json, len).map_err(of_file)?;
            self.file.write_at(0, &bytes)?;
        }
        self.file.close(durable)
    }
}
