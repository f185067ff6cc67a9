//! A file that is at its path whole, or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, ErrorKind, Result};

/// Pieces smaller than this are gathered before they are written: the system takes few large ones
/// faster than many small ones. Others are not copied first.
const BUFFER: usize = 1 << 20;

/// A temporary file beside its target.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    /// As the caller named it.
    path: PathBuf,
    /// What gets replaced.
    target: PathBuf,
    file: BufWriter<File>,
    temporary: TempPath,
    /// None where a write has failed: nobody knows how far it came.
    position: Option<u64>,
}

impl AtomicFile {
    /// A file that is to replace what is at `path`, or what a symlink there leads to.
    pub(crate) fn create(path: &Path) -> Result<AtomicFile> {
        let target = follow_links(path)
            .map_err(|error| Error::io("cannot follow", error).with_path(path))?;
        AtomicFile::at_target(path, target)
    }

    /// A file that is to replace what is at `path`, even if that is a symlink.
    pub(crate) fn create_in_place_of_links(path: &Path) -> Result<AtomicFile> {
        AtomicFile::at_target(path, path.to_owned())
    }

    fn at_target(path: &Path, target: PathBuf) -> Result<AtomicFile> {
        check_file_path(path).map_err(|error| error.with_path(path))?;
        check_replaceable(&target).map_err(|error| error.with_path(path))?;
        let temporary = temporary_beside(&target).map_err(|error| {
            Error::io("cannot create a temporary file beside it", error).with_path(path)
        })?;
        let (file, temporary) = temporary.into_parts();
        Ok(AtomicFile {
            path: path.to_owned(),
            target,
            file: BufWriter::with_capacity(BUFFER, file),
            temporary,
            position: Some(0),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has the file system set this many bytes aside, so that a disk that is too full is noticed
    /// before anything is written. Writing is faster then, too: by a quarter on ext4.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<()> {
        set_aside(self.file.get_ref(), bytes).map_err(|error| {
            let what = format!("there is no room for its {bytes} bytes");
            Error::io(&what, error).with_path(&self.path)
        })
    }

    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut write = || {
            if self.position.take() != Some(offset) {
                self.file.seek(SeekFrom::Start(offset))?;
            }
            self.file.write_all(bytes)
        };
        write().map_err(|error| Error::io("cannot write", error).with_path(&self.path))?;
        self.position = Some(offset + bytes.len() as u64);
        Ok(())
    }

    /// Appends all that is left to be read of `from`.
    pub(crate) fn append(&mut self, mut from: &File) -> Result<()> {
        let mut append = || {
            self.file.flush()?;
            io::copy(&mut from, self.file.get_mut())
        };
        self.position = None;
        let copied = append();
        copied.map_err(|error| Error::io("cannot copy", error).with_path(&self.path))?;
        Ok(())
    }

    /// Ends the writing. `durable` waits until the disk has the contents.
    pub(crate) fn close(self, durable: bool) -> Result<ClosedFile> {
        let close = || -> io::Result<()> {
            let file = self.file.into_inner().map_err(|error| error.into_error())?;
            match durable {
                true => file.sync_all(),
                false => Ok(()),
            }
        };
        close()
            .map_err(|error| Error::io("cannot finish the file", error).with_path(&self.path))?;
        Ok(ClosedFile {
            path: self.path,
            target: self.target,
            temporary: self.temporary,
            durable,
        })
    }
}

/// A complete file that still has its temporary name.
#[derive(Debug)]
pub(crate) struct ClosedFile {
    path: PathBuf,
    target: PathBuf,
    temporary: TempPath,
    durable: bool,
}

impl ClosedFile {
    /// Its name by now.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The file, which is removed no longer if something goes wrong.
    pub(crate) fn keep(self) -> Result<KeptFile> {
        let temporary = self.temporary.keep().map_err(|error| {
            Error::io("cannot finish the file", error.error).with_path(&self.path)
        })?;
        Ok(KeptFile {
            target: self.target,
            temporary,
            durable: self.durable,
        })
    }

    /// Renames the file to its target; where it is to be durable, the disk knows of it then.
    pub(crate) fn replace_target(self) -> Result<()> {
        self.rename()?.sync()
    }

    /// Renames the file to its target. After an error, nothing has changed.
    pub(crate) fn rename(self) -> Result<RenamedFile> {
        match self.temporary.persist(&self.target) {
            Ok(()) => Ok(RenamedFile {
                path: self.path,
                target: self.target,
                durable: self.durable,
            }),
            Err(error) => {
                Err(Error::io("cannot finish the file", error.error).with_path(self.path))
            }
        }
    }
}

/// A file that has its name.
#[derive(Debug)]
pub(crate) struct RenamedFile {
    path: PathBuf,
    target: PathBuf,
    durable: bool,
}

impl RenamedFile {
    /// Where it is to be durable, waits until the disk knows of its name.
    pub(crate) fn sync(self) -> Result<()> {
        if !self.durable {
            return Ok(());
        }
        sync_directory(directory_of(&self.target)).map_err(|error| {
            let what = "saved, but the disk may not know of it yet";
            Error::io(what, error).with_path(self.path)
        })
    }
}

/// A complete file that keeps its temporary name, whatever happens.
#[derive(Debug)]
pub(crate) struct KeptFile {
    target: PathBuf,
    temporary: PathBuf,
    durable: bool,
}

impl KeptFile {
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives it a further name: the one it is meant to have, in place of what has it now.
    pub(crate) fn link_to_target(&self) -> Result<()> {
        let link = || {
            // A link replaces nothing, a rename does.
            let mut name = self.temporary.as_os_str().to_owned();
            name.push(TEMPORARY);
            let link = TempPath::try_from_path(PathBuf::from(name))?;
            // Some file systems have no links.
            fs::hard_link(&self.temporary, &link)
                .or_else(|_| fs::copy(&self.temporary, &link).map(drop))?;
            if self.durable {
                File::open(&link)?.sync_all()?;
            }
            link.persist(&self.target).map_err(|error| error.error)?;
            match self.durable {
                true => sync_directory(directory_of(&self.target)),
                false => Ok(()),
            }
        };
        link().map_err(|error| {
            let what = "saved, but under a temporary name, for it cannot have its own";
            Error::io(what, error).with_path(&self.target)
        })
    }
}

#[cfg(target_os = "linux")]
fn set_aside(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(full.into()),
        // Not all file systems can do this, and none has to.
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set_aside(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

/// A path that no rename can lead to is refused before anything is written.
fn check_file_path(path: &Path) -> Result<()> {
    let ends_in_separator = path.to_string_lossy().ends_with(std::path::is_separator);
    if path.file_name().is_some() && !ends_in_separator {
        return Ok(());
    }
    let message = "the path is that of a directory, which is not there; expected a file's";
    Err(Error::new(ErrorKind::InvalidRequest, message))
}

/// Devices and pipes are no files to be replaced by others, and directories cannot be.
fn check_replaceable(target: &Path) -> Result<()> {
    let what = match fs::metadata(target) {
        Ok(metadata) if metadata.is_dir() => "is a directory, expected a file",
        Ok(metadata) if !metadata.is_file() => "is no regular file",
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            return Err(Error::io("cannot create", error));
        }
        // What cannot be looked at is left to the attempt.
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidRequest, what))
}

/// The path that a rename has to replace: a link stays, what it leads to is replaced.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => match fs::canonicalize(path) {
            // The link leads to a file that is yet to be made, or to another such link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                follow_links(&directory_of(path).join(fs::read_link(path)?))
            }
            target => target,
        },
        _ => Ok(path.to_owned()),
    }
}

/// A hidden file in the target's directory, with the permissions the target has or would get.
fn temporary_beside(target: &Path) -> io::Result<NamedTempFile> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // Names have a limit, and the target's may be close to it.
    let start: String = name.chars().take(40).collect();
    let prefix = format!("{HIDDEN}{start}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(TEMPORARY);
    let permissions = fs::metadata(target).map(|metadata| metadata.permissions());
    // From the start: nobody may open a file that is to be private later.
    #[cfg(unix)]
    builder.permissions(match &permissions {
        Ok(permissions) => permissions.clone(),
        Err(_) => std::os::unix::fs::PermissionsExt::from_mode(0o666),
    });
    let temporary = builder.tempfile_in(directory_of(target))?;
    if let Ok(permissions) = permissions {
        // What the umask took from them.
        temporary.as_file().set_permissions(permissions)?;
    }
    Ok(temporary)
}

const HIDDEN: &str = ".";
const TEMPORARY: &str = ".tmp";

/// Whether a file name is one that a temporary file has.
pub(crate) fn is_temporary_name(name: &str) -> bool {
    name.starts_with(HIDDEN) && name.ends_with(TEMPORARY)
}

pub(crate) fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(not(unix))]
pub(crate) fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
