//! Where bytes come from: the one seam between the format and the world.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;

use bytes::Bytes;

/// A file's bytes, readable at any offset from several threads at once.
#[derive(Debug)]
pub(crate) enum Source {
    /// Positioned reads.
    File(File),
    /// Bytes in memory, or mapped.
    Memory(Bytes),
}

impl Source {
    /// Fills `into` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        match self {
            Source::File(file) => read_file_at(file, offset, into),
            Source::Memory(bytes) => {
                let bytes = usize::try_from(offset)
                    .ok()
                    .and_then(|start| bytes.get(start..start.checked_add(into.len())?))
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                into.write_copy_of_slice(bytes);
                Ok(())
            }
        }
    }

    /// Whether a read costs a system call, so that few large ones beat many small ones.
    pub(crate) fn prefers_large_reads(&self) -> bool {
        matches!(self, Source::File(_))
    }
}

#[cfg(unix)]
fn read_file_at(file: &File, mut offset: u64, mut into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::io::pread(file, &mut *into, offset) {
            Ok(([], _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((read, _)) => {
                let read = read.len();
                offset += read as u64;
                into = &mut into[read..];
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn read_file_at(file: &File, mut offset: u64, into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;

    into.fill(MaybeUninit::new(0));
    // SAFETY: just initialised.
    let mut into = unsafe { into.assume_init_mut() };
    while !into.is_empty() {
        match file.seek_read(into, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                offset += read as u64;
                into = &mut into[read..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn read_file_at(mut file: &File, offset: u64, into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    use std::sync::Mutex;

    // The position belongs to the file, not to the thread.
    static POSITION: Mutex<()> = Mutex::new(());

    into.fill(MaybeUninit::new(0));
    // SAFETY: just initialised.
    let into = unsafe { into.assume_init_mut() };
    let _only_one = POSITION.lock().unwrap_or_else(|poison| poison.into_inner());
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(into)
}
