//! Writing to what cannot seek.

use std::io::Write;

use super::{Layout, Progress};
use crate::Header;
use crate::error::{Error, ErrorKind, Result};

/// Writes a safetensors file to anything that takes bytes, one tensor after the other in file
/// order: that of [`header`](StreamWriter::header).
///
/// Many small pieces are many small writes: give it a [`BufWriter`](std::io::BufWriter) then. What
/// has been written when an error occurs stays written; [`Writer`](crate::Writer) writes files
/// that appear whole.
///
/// ```
/// use st_format::{Checkpoint, Dtype, Layout, StreamWriter};
///
/// let mut layout = Layout::new();
/// layout.tensor("bias", Dtype::F32, &[1])?;
/// layout.tensor("ids", Dtype::I64, &[1])?;
///
/// let mut writer = StreamWriter::new(Vec::new(), layout)?;
/// writer.write("ids", &7i64.to_le_bytes())?;
/// writer.write("bias", &0.5f32.to_le_bytes())?;
/// let file: Vec<u8> = writer.finish()?;
///
/// assert_eq!(Checkpoint::from_bytes(file)?.read("ids")?, 7i64.to_le_bytes());
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamWriter<W> {
    output: W,
    progress: Progress,
    /// None where a write has failed: nobody knows how far it came.
    position: Option<u64>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the header of the tensors that `layout` declares.
    ///
    /// # Errors
    ///
    /// As [`Writer::create`](crate::Writer::create), and
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) for a layout with
    /// [checksums](Layout::checksums), which stand before the data and are not known yet.
    pub fn new(mut output: W, layout: Layout) -> Result<StreamWriter<W>> {
        if layout.has_checksums() {
            let message = "checksums stand before the data: only a file can have them filled in";
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let (bytes, progress) = Progress::begin(layout)?;
        output.write_all(&bytes).map_err(cannot_write)?;
        Ok(StreamWriter {
            output,
            progress,
            position: Some(bytes.len() as u64),
        })
    }

    /// The header of the file that is being written.
    pub fn header(&self) -> &Header {
        self.progress.header()
    }

    /// Writes the next bytes of a tensor: all of it, or a piece after the pieces before.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`](crate::Writer::write), and
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where a tensor before this one in file order
    /// is not complete.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut write = || {
            let place = self.progress.place(name, bytes.len())?;
            if bytes.is_empty() {
                return Ok(());
            }
            if self.position != Some(place.offset) {
                let message = match self.position {
                    Some(_) => "a tensor before it in file order is not complete",
                    None => "a write before it has failed",
                };
                return Err(Error::new(ErrorKind::InvalidRequest, message));
            }
            self.position = None;
            self.output.write_all(bytes).map_err(cannot_write)?;
            self.position = Some(place.offset + bytes.len() as u64);
            self.progress.add(&place, bytes);
            Ok(())
        };
        write().map_err(|error| error.with_tensor(name))
    }

    /// Gives back what was written to.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where a tensor is missing or incomplete, and
    /// [`Io`](ErrorKind::Io).
    pub fn finish(mut self) -> Result<W> {
        self.progress.check_complete()?;
        self.output.flush().map_err(cannot_write)?;
        Ok(self.output)
    }
}

fn cannot_write(error: std::io::Error) -> Error {
    Error::io("cannot write", error)
}
