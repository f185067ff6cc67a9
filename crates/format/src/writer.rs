//! Writing a file: tensors are declared first, then written one by one, and the file appears when
//! all of it is there.

mod atomic_file;
mod layout;

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::{Header, TensorInfo};
use atomic_file::AtomicFile;
pub use layout::Layout;

/// Writes a safetensors file, one tensor at a time, in any order.
///
/// The data goes to a temporary file beside the target, which [`finish`](Writer::finish) renames:
/// until then, and after any error, whatever was at the target stays as it was. A writer that is
/// dropped removes its temporary file.
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
    header: Header,
    /// How much of each tensor is there, in file order.
    written: Vec<u64>,
}

impl Writer {
    /// Begins a file with the tensors that `layout` declares. Nothing is at `path` yet.
    ///
    /// A symlink at `path` is followed, and what it leads to is replaced.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where the header would be longer than the
    /// format allows, and [`Io`](ErrorKind::Io).
    pub fn create(path: impl AsRef<Path>, layout: Layout) -> Result<Writer> {
        let path = path.as_ref();
        let create = || {
            let (bytes, header) = layout.into_header()?;
            let mut file = AtomicFile::create(path)?;
            file.write_at(0, &bytes)?;
            Ok((file, header))
        };
        let (file, header) = create().map_err(|error: Error| error.with_path(path))?;
        let written = vec![0; header.len()];
        Ok(Writer {
            file,
            header,
            written,
        })
    }

    /// The header of the file that is being written.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Writes the next bytes of a tensor: all of it, or a piece after the pieces before.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound) where the tensor was not declared,
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where it would get more bytes than its dtype
    /// and shape have, and [`Io`](ErrorKind::Io).
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let at = self.header.position(name);
        let at = at.ok_or_else(|| self.fault(ErrorKind::NotFound, name, "it was not declared"))?;
        let info = self.header.at(at);
        let end = self.written[at] + bytes.len() as u64;
        if end > info.byte_len() {
            let message = format!(
                "written {end} bytes, {} has {}",
                shown(&info),
                info.byte_len()
            );
            return Err(self.fault(ErrorKind::InvalidRequest, name, &message));
        }
        let offset = self.header.data_start() + info.data_offsets().start + self.written[at];
        self.file
            .write_at(offset, bytes)
            .map_err(|error| error.with_path(self.file.path()).with_tensor(name))?;
        self.written[at] = end;
        Ok(())
    }

    /// Makes the file appear at its path, in place of what is there.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where a tensor is missing or incomplete, and
    /// [`Io`](ErrorKind::Io); then what was at the path is still there.
    pub fn finish(self) -> Result<()> {
        self.check_complete()?;
        self.file.replace_target(false)
    }

    /// As [`finish`](Writer::finish), and the file and its name survive a power failure once it
    /// returns.
    ///
    /// # Errors
    ///
    /// As [`finish`](Writer::finish).
    pub fn finish_durably(self) -> Result<()> {
        self.check_complete()?;
        self.file.replace_target(true)
    }

    fn check_complete(&self) -> Result<()> {
        for (info, &written) in self.header.iter().zip(&self.written) {
            if written < info.byte_len() {
                let message = format!(
                    "only {written} bytes were written, {} has {}",
                    shown(&info),
                    info.byte_len()
                );
                return Err(self.fault(ErrorKind::InvalidRequest, info.name(), &message));
            }
        }
        Ok(())
    }

    fn fault(&self, kind: ErrorKind, tensor: &str, message: &str) -> Error {
        Error::new(kind, message)
            .with_path(self.file.path())
            .with_tensor(tensor)
    }
}

fn shown(info: &TensorInfo) -> String {
    format!("{} {:?}", info.dtype(), info.shape())
}
