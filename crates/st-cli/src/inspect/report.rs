//! What there is to show, as `--json` shows it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use st_format::{CHECKSUM_PREFIX, Checkpoint, TensorInfo};

use super::totals::Totals;
use crate::args::Filter;

/// Its fields are the object that `inspect --help` documents, and scripts rely on them.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) path: Cow<'a, str>,
    pub(super) metadata: BTreeMap<&'a str, &'a str>,
    /// Those whose one name or other the filter matches.
    pub(super) aliases: BTreeMap<&'a str, &'a str>,
    pub(super) tensors: Vec<Tensor<'a>>,
    pub(super) totals: Totals,
    /// The metadata that is neither an alias nor a checksum.
    #[serde(skip)]
    pub(super) notes: BTreeMap<&'a str, &'a str>,
    /// The number of those that are recorded.
    #[serde(skip)]
    pub(super) checksums: u64,
    /// The number of tensors before the filter.
    #[serde(skip)]
    pub(super) of: u64,
    #[serde(skip)]
    pub(super) shards: u64,
}

#[derive(Serialize)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: &'static str,
    pub(super) shape: &'a [usize],
    pub(super) bytes: u64,
    pub(super) shard: &'a str,
    pub(super) data_offsets: (u64, u64),
}

impl<'a> Report<'a> {
    pub(super) fn of(
        checkpoint: &'a Checkpoint,
        shards: &'a [Cow<'a, str>],
        filter: Option<&Filter>,
    ) -> Report<'a> {
        let shown = |name: &str| filter.is_none_or(|filter| filter.matches(name));
        let mut tensors = Vec::new();
        let mut totals = Totals::default();
        let infos = checkpoint.iter_with_shard();
        for (shard, info) in infos.filter(|(_, info)| shown(info.name())) {
            totals.add(&info);
            tensors.push(Tensor::of(info, &shards[shard]));
        }
        let metadata = checkpoint.metadata();
        let mut aliases = checkpoint.aliases();
        let (checksums, mut notes): (BTreeMap<_, _>, BTreeMap<_, _>) = metadata
            .iter()
            .partition(|(key, _)| key.starts_with(CHECKSUM_PREFIX));
        notes.retain(|key, _| !aliases.contains_key(key));
        aliases.retain(|alias, kept| shown(alias) || shown(kept));
        Report {
            path: checkpoint.path().to_string_lossy(),
            metadata,
            aliases,
            tensors,
            totals,
            notes,
            checksums: checksums.len() as u64,
            of: checkpoint.len() as u64,
            shards: shards.len() as u64,
        }
    }
}

impl<'a> Tensor<'a> {
    fn of(info: TensorInfo<'a>, shard: &'a str) -> Tensor<'a> {
        let offsets = info.data_offsets();
        Tensor {
            name: info.name(),
            dtype: info.dtype().name(),
            shape: info.shape(),
            bytes: info.byte_len(),
            shard,
            data_offsets: (offsets.start, offsets.end),
        }
    }
}

/// The shards' paths from the directory of the index, which is how the index names them.
pub(super) fn shard_names(checkpoint: &Checkpoint) -> Vec<Cow<'_, str>> {
    let dir = checkpoint.path().parent().unwrap_or(Path::new(""));
    let shards = checkpoint.shards().iter();
    shards
        .map(|shard| shard.path().strip_prefix(dir).unwrap_or(shard.path()))
        .map(Path::to_string_lossy)
        .collect()
}
