//! Tensors of several names: found when they are saved, resolved when they are loaded.
//!
//! A file holds such a tensor once. Its other names stand in `__metadata__`, as the reference's
//! `save_model` writes them: the alias is the key, the kept name the value.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::{Checkpoint, checksum};

/// Where a framework keeps a tensor's elements. Tensors of one dtype and shape whose storage is
/// the same have the same elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// What tells one allocation from all others that live at the time: an address, an id.
    pub allocation: usize,
    /// Where in the allocation the first element is.
    pub offset: usize,
    /// Of each dimension; empty where elements can only lie in row-major order.
    pub strides: Vec<usize>,
}

/// Takes out of `parts` those whose identity is that of another one before. Returns the names of
/// both.
pub(crate) fn take_aliases<'a, P, I: Hash + Eq>(
    parts: &mut Vec<P>,
    name: impl Fn(&P) -> &'a str,
    identity: impl Fn(&P) -> Option<I>,
) -> Vec<(String, String)> {
    let mut kept = HashMap::new();
    let mut aliases = Vec::new();
    parts.retain(
        |part| match identity(part).map(|identity| kept.entry(identity)) {
            Some(Entry::Occupied(other)) => {
                let other: &&str = other.get();
                aliases.push((name(part).to_owned(), (*other).to_owned()));
                false
            }
            Some(Entry::Vacant(vacant)) => {
                vacant.insert(name(part));
                true
            }
            None => true,
        },
    );
    aliases
}

/// Writes down aliases, each with the name it stands for.
pub(crate) fn record(
    metadata: &mut BTreeMap<String, String>,
    aliases: &[(String, String)],
) -> Result<()> {
    for (alias, kept) in aliases {
        if checksum::is_key(alias) {
            let message = format!(
                "tied to {}, but the metadata keeps keys such as its name for checksums",
                Quoted(kept)
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(alias));
        }
        let other = metadata.insert(alias.clone(), kept.clone());
        if let Some(other) = other.filter(|other| other != kept) {
            let message = format!(
                "tied to {}, which is to stand under its name in the metadata, where {} does",
                Quoted(kept),
                Quoted(&other)
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(alias));
        }
    }
    Ok(())
}

impl Checkpoint {
    /// The name of the tensor that `name` stands for: its own where there is a tensor of that
    /// name, or the kept one where it is an [alias](Checkpoint::aliases).
    pub fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        match self.get(name) {
            Some(_) => name,
            None => self.kept_for(name).unwrap_or(name),
        }
    }

    /// Further names of tensors, sorted, each with the name that the tensor has in the checkpoint:
    /// the entries of the metadata whose value is the name of a tensor and whose key is not.
    ///
    /// This is how Python's `safetensors.torch.save_model` records tensors that share their
    /// memory, such as an output layer tied to the embedding; nothing but this tells an alias from
    /// other metadata.
    pub fn aliases(&self) -> BTreeMap<&str, &str> {
        let metadata = self.metadata().into_iter();
        metadata
            .filter(|&(alias, kept)| self.get(kept).is_some() && self.get(alias).is_none())
            .collect()
    }

    fn kept_for(&self, alias: &str) -> Option<&str> {
        let mut shards = self.shards().iter();
        let kept = shards.find_map(|shard| shard.header().metadata().get(alias))?;
        self.get(kept).is_some().then_some(kept)
    }
}
