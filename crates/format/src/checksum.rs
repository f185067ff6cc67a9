//! Checksums of tensors: recorded in a file's metadata when it is written, compared when asked.

use std::fmt::Write;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use crate::Checkpoint;
use crate::buffer::as_uninit;
use crate::checkpoint::Shard;
use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::{TensorInfo, threads};

/// What stands for a checksum until the tensor has been written.
pub(crate) const PLACEHOLDER: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// How keys in `__metadata__` begin under which a tensor's checksum is recorded; its name follows.
pub const CHECKSUM_PREFIX: &str = "sha256:";

/// The key in `__metadata__` of a tensor's checksum.
pub(crate) fn key(tensor: &str) -> String {
    format!("{CHECKSUM_PREFIX}{tensor}")
}

/// Whether a key of `__metadata__` is that of a checksum.
pub(crate) fn is_key(key: &str) -> bool {
    key.starts_with(CHECKSUM_PREFIX)
}

/// The SHA-256 of bytes that come in pieces.
#[derive(Clone, Default, Debug)]
pub(crate) struct Checksum(Sha256);

impl Checksum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        let mut digits = String::with_capacity(PLACEHOLDER.len());
        for byte in self.0.finalize() {
            // Writing to a String does not fail.
            let _ = write!(digits, "{byte:02x}");
        }
        digits
    }

    /// Ends the bytes, whose checksum has to be the recorded one.
    pub(crate) fn compare(self, recorded: &str) -> Result<()> {
        let found = self.finish();
        match found == recorded {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::ChecksumMismatch,
                format!("its SHA-256 is {found}, {} was recorded", Quoted(recorded)),
            )),
        }
    }
}

impl Checkpoint {
    /// Reads all tensors and compares them with the checksums that were recorded when they were
    /// saved: under the key `sha256:` and the tensor's name, in the metadata of its file.
    ///
    /// # Errors
    ///
    /// [`ChecksumMismatch`](ErrorKind::ChecksumMismatch) for a tensor whose bytes have another
    /// checksum, [`NotFound`](ErrorKind::NotFound) for one that has none recorded, and
    /// [`Io`](ErrorKind::Io).
    pub fn verify_checksums(&self) -> Result<()> {
        let tensors: Vec<_> = self.iter_with_shard().collect();
        let verify = |&(shard, info): &(usize, TensorInfo)| verify(&self.shards()[shard], &info);
        threads::map(0, &tensors, verify).map(drop)
    }

    /// As [`verify_checksums`](Checkpoint::verify_checksums), but goes on where a tensor fails:
    /// returns the errors of all of them, in file order. Calls `progress(done, total)` after each
    /// tensor, with bytes.
    pub fn checksum_errors(&self, progress: impl Fn(u64, u64) + Sync) -> Vec<Error> {
        let tensors: Vec<_> = self.iter_with_shard().collect();
        let total = self.byte_len();
        let done = Mutex::new(0_u64);
        let errors = threads::map(0, &tensors, |&(shard, info)| {
            let error = verify(&self.shards()[shard], &info).err();
            let mut done = threads::lock(&done);
            *done = done.saturating_add(info.byte_len());
            progress(*done, total);
            Ok(error)
        });
        errors.into_iter().flatten().flatten().collect()
    }
}

/// A tensor's checksum in its file's metadata.
pub(crate) fn recorded<'a>(shard: &'a Shard, info: &TensorInfo) -> Option<&'a str> {
    let recorded = shard.header().metadata().get(&key(info.name()));
    recorded.map(String::as_str)
}

/// Compares a tensor's bytes with the checksum in its file's metadata.
pub(crate) fn verify(shard: &Shard, info: &TensorInfo) -> Result<()> {
    let compare = || {
        let recorded = recorded(shard, info)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "no checksum of it is recorded"))?;
        let mut checksum = Checksum::default();
        for_each_block(shard, info, |bytes| {
            checksum.add(bytes);
            Ok(())
        })?;
        checksum.compare(recorded)
    };
    compare().map_err(|error: Error| error.with_path(shard.path()).with_tensor(info.name()))
}

/// Gives a tensor's bytes in blocks, in order.
pub(crate) fn for_each_block(
    shard: &Shard,
    info: &TensorInfo,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    // Whole elements of every dtype whose elements are whole bytes.
    const BLOCK: u64 = 256 << 10;

    let start = shard.header().data_start() + info.data_offsets().start;
    let mut block = vec![0; info.byte_len().min(BLOCK) as usize];
    let mut done = 0;
    while done < info.byte_len() {
        let len = (info.byte_len() - done).min(BLOCK) as usize;
        let into: &mut [MaybeUninit<u8>] = as_uninit(&mut block[..len]);
        shard
            .source
            .read_at(start + done, into)
            .map_err(|error| Error::io("cannot read the data", error))?;
        each(&block[..len])?;
        done += len as u64;
    }
    Ok(())
}
