//! A file that is at its path whole, or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, Result};

/// Small tensors are gathered before they are written.
const BUFFER: usize = 1 << 20;

/// A temporary file beside its target.
#[derive(Debug)]
pub(super) struct AtomicFile {
    /// As the caller named it.
    path: PathBuf,
    /// Where links lead.
    target: PathBuf,
    file: BufWriter<File>,
    temporary: TempPath,
    position: u64,
}

impl AtomicFile {
    pub(super) fn create(path: &Path) -> Result<AtomicFile> {
        let target = follow_links(path).map_err(|error| Error::io("cannot follow", error))?;
        let temporary = temporary_beside(&target)
            .map_err(|error| Error::io("cannot create a temporary file beside it", error))?;
        let (file, temporary) = temporary.into_parts();
        Ok(AtomicFile {
            path: path.to_owned(),
            target,
            file: BufWriter::with_capacity(BUFFER, file),
            temporary,
            position: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut write = || {
            if self.position != offset {
                self.file.seek(SeekFrom::Start(offset))?;
            }
            self.file.write_all(bytes)
        };
        write().map_err(|error| Error::io("cannot write", error))?;
        self.position = offset + bytes.len() as u64;
        Ok(())
    }

    /// Renames the file to its target; `durable` waits until the disk has it.
    pub(super) fn replace_target(self, durable: bool) -> Result<()> {
        let AtomicFile {
            path,
            target,
            file,
            temporary,
            ..
        } = self;
        let replace = || -> io::Result<()> {
            let file = file.into_inner().map_err(|error| error.into_error())?;
            if durable {
                file.sync_all()?;
            }
            drop(file);
            temporary.persist(&target).map_err(|error| error.error)?;
            if durable {
                sync_directory(&target)?;
            }
            Ok(())
        };
        replace().map_err(|error| Error::io("cannot finish the file", error).with_path(path))
    }
}

/// The path that a rename has to replace: a link stays, what it leads to is replaced.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => match fs::canonicalize(path) {
            // The link leads to a file that is yet to be made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(directory_of(path).join(fs::read_link(path)?))
            }
            target => target,
        },
        _ => Ok(path.to_owned()),
    }
}

/// A hidden file in the target's directory, with the permissions the target has or would get.
fn temporary_beside(target: &Path) -> io::Result<NamedTempFile> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".tmp");
    #[cfg(unix)]
    let all = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(all);
    let temporary = builder.tempfile_in(directory_of(target))?;
    if let Ok(metadata) = fs::metadata(target) {
        temporary
            .as_file()
            .set_permissions(metadata.permissions())?;
    }
    Ok(temporary)
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
fn sync_directory(target: &Path) -> io::Result<()> {
    File::open(directory_of(target))?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
