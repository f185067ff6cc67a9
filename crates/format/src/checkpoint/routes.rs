//! Which tensors of several files make up the checkpoint, and where each is.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::Shard;
use super::index::Index;
use crate::error::{Error, ErrorKind, Result, ShownPath};

/// The number of a shard, and the place of a tensor in its header.
type Place = (u32, u32);

/// Names lead to places; the names themselves stay in the headers.
#[derive(Debug)]
pub(super) struct Routes {
    /// Shard by shard, in file order.
    places: Vec<Place>,
    by_name: HashTable<Place>,
    hasher: DefaultHashBuilder,
}

impl Routes {
    /// All tensors of all files, none of which may share a name.
    pub(super) fn of_all(shards: &[Shard]) -> Result<Routes> {
        let count = shards.iter().map(|shard| shard.header.len()).sum();
        let mut routes = Routes::with_capacity(count);
        for (number, shard) in shards.iter().enumerate() {
            for (at, info) in shard.header.iter().enumerate() {
                if let Err((other, _)) = routes.insert((number as u32, at as u32), shards) {
                    let message = format!(
                        "also held by {}; only an index can say which one counts",
                        ShownPath(&shards[other as usize].path)
                    );
                    return Err(Error::new(ErrorKind::Ambiguous, message)
                        .with_path(&shard.path)
                        .with_tensor(info.name()));
                }
            }
        }
        Ok(routes)
    }

    /// The tensors that an index names, each in the shard it says.
    pub(super) fn of_index(index: &Index, shards: &[Shard]) -> Result<Routes> {
        let mut routes = Routes::with_capacity(index.len());
        for (name, number) in index.iter() {
            let shard = &shards[number];
            let invalid = |message| Error::new(ErrorKind::InvalidIndex, message).with_tensor(name);
            let at = shard.header.position(name).ok_or_else(|| {
                invalid(format!(
                    "the index places it in {}, which does not hold it",
                    ShownPath(&shard.path)
                ))
            })?;
            routes
                .insert((number as u32, at as u32), shards)
                .map_err(|_| invalid("the index names this tensor twice".into()))?;
        }
        routes.places.sort_unstable();
        Ok(routes)
    }

    fn with_capacity(count: usize) -> Routes {
        Routes {
            places: Vec::with_capacity(count),
            by_name: HashTable::with_capacity(count),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds a place, or returns the one of the same name that is there already.
    fn insert(&mut self, place: Place, shards: &[Shard]) -> Result<(), Place> {
        let hasher = &self.hasher;
        let name = name_at(place, shards);
        match self.by_name.entry(
            hasher.hash_one(name),
            |&other| name_at(other, shards) == name,
            |&other| hasher.hash_one(name_at(other, shards)),
        ) {
            Entry::Occupied(other) => return Err(*other.get()),
            Entry::Vacant(vacant) => vacant.insert(place),
        };
        self.places.push(place);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The shard and the place in its header of the tensor number `at`.
    pub(super) fn at(&self, at: usize) -> (usize, usize) {
        let (shard, at) = self.places[at];
        (shard as usize, at as usize)
    }

    pub(super) fn find(&self, name: &str, shards: &[Shard]) -> Option<(usize, usize)> {
        self.by_name
            .find(self.hasher.hash_one(name), |&place| {
                name_at(place, shards) == name
            })
            .map(|&(shard, at)| (shard as usize, at as usize))
    }
}

fn name_at((shard, at): Place, shards: &[Shard]) -> &str {
    shards[shard as usize].header.at(at as usize).name()
}
