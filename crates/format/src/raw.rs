//! Tensors of no framework: their bytes.

use std::path::Path;

use crate::checkpoint::Shard;
use crate::checksum::{self, Checksum, for_each_block};
use crate::error::{Error, ErrorKind, Result};
use crate::tied::Storage;
use crate::{Checkpoint, Dtype, SaveFrom, SaveReport, Saver, TensorInfo, TensorView};

/// No framework: a tensor is its dtype, its shape and its bytes ([`TensorView`]).
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl SaveFrom<TensorView<'_>> for Raw {
    fn dtype(tensor: &TensorView) -> Result<Dtype> {
        Ok(tensor.dtype())
    }

    fn shape(tensor: &TensorView) -> Vec<usize> {
        tensor.shape().to_vec()
    }

    fn storage(tensor: &TensorView) -> Option<Storage> {
        Some(Storage {
            allocation: tensor.data().as_ptr().addr(),
            offset: 0,
            strides: Vec::new(),
        })
    }

    fn bytes(tensor: &TensorView, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        write(tensor.data())
    }
}

/// A tensor that lies in a checkpoint.
struct Stored<'a> {
    shard: &'a Shard,
    info: TensorInfo<'a>,
}

impl SaveFrom<Stored<'_>> for Raw {
    fn dtype(tensor: &Stored) -> Result<Dtype> {
        Ok(tensor.info.dtype())
    }

    fn shape(tensor: &Stored) -> Vec<usize> {
        tensor.info.shape().to_vec()
    }

    fn storage(_: &Stored) -> Option<Storage> {
        None
    }

    fn bytes(tensor: &Stored, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Stored { shard, info } = tensor;
        let mut copy = || {
            let recorded = checksum::recorded(shard, info);
            let mut checksum = Checksum::default();
            for_each_block(shard, info, |bytes| {
                if recorded.is_some() {
                    checksum.add(bytes);
                }
                write(bytes)
            })?;
            // A checksum recorded anew would hide what has been damaged since.
            recorded.map_or(Ok(()), |recorded| checksum.compare(recorded))
        };
        copy().map_err(|error: Error| error.with_path(shard.path()))
    }
}

impl Saver<Raw> {
    /// Saves a checkpoint's tensors and metadata once more: in other shards or in one file, cast,
    /// with checksums. Blocks are read and written in turn; no tensor is ever in memory as a whole.
    ///
    /// The path may be that of the checkpoint itself, which is replaced in the end.
    ///
    /// Checksums are compared where they are recorded, and recorded anew where there are any, or
    /// are asked for. Otherwise metadata is kept, but for what this saver says under the same key;
    /// of shards that differ, the first one's ([`Checkpoint::metadata`]). Aliases stay aliases, or
    /// become tensors of their own where this saver is [`untied`](Saver::untied).
    ///
    /// ```
    /// use st_format::{Checkpoint, Raw, Saver, byte_size};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("model.safetensors");
    /// # let view = st_format::TensorView::new("weight", st_format::Dtype::U8, &[4], &[1, 2, 3, 4])?;
    /// # let other = st_format::TensorView::new("bias", st_format::Dtype::U8, &[1], &[0])?;
    /// # Saver::<Raw>::new().save(&path, [("weight", view), ("bias", other)])?;
    /// let saver = Saver::<Raw>::new().max_shard_size(byte_size("4B")?);
    /// let report = saver.save_checkpoint(dir.path().join("shards"), &Checkpoint::open(&path)?)?;
    /// assert_eq!(report.files.len(), 3); // two shards and the index
    /// # Ok::<(), st_format::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`save`](Saver::save), also where this saver's metadata has a key that is an alias;
    /// [`Io`](ErrorKind::Io) where the checkpoint cannot be read; and
    /// [`ChecksumMismatch`](ErrorKind::ChecksumMismatch).
    pub fn save_checkpoint(
        &self,
        path: impl AsRef<Path>,
        checkpoint: &Checkpoint,
    ) -> Result<SaveReport> {
        let aliases = checkpoint.aliases();
        let mut saver = self.clone();
        for (key, value) in checkpoint.metadata() {
            let is_alias = aliases.contains_key(key);
            if is_alias && self.has_metadata(key) {
                let message = format!("it is {value:?} by another name, not to be other metadata");
                let error = Error::new(ErrorKind::InvalidRequest, message);
                return Err(error.with_path(path).with_tensor(key));
            }
            saver = match checksum::is_key(key) {
                true => saver.checksums(),
                false if is_alias && self.is_untied() => saver,
                false => saver.metadata_unless_set(key, value),
            };
        }
        let stored = |name: &str| {
            let (shard, info) = checkpoint.locate(name)?;
            Ok(Stored { shard, info })
        };
        let names = checkpoint.iter().map(|info| (info.name(), info.name()));
        let aliases = aliases.into_iter().filter(|_| self.is_untied());
        let tensors = names
            .chain(aliases)
            .map(|(name, kept)| Ok((name, stored(kept)?)));
        saver.save(path, tensors.collect::<Result<Vec<_>>>()?)
    }
}
