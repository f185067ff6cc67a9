//! Which tensors of several files make up the checkpoint, and where each is.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::Shard;
use crate::error::{Error, ErrorKind, Result, ShownPath};
use crate::header::NameHash;

/// The number of a shard, and the place of a tensor in its header.
type Place = (u32, u32);

/// Names lead to places; the names themselves stay in the headers.
#[derive(Debug)]
pub(super) struct Routes {
    /// Shard by shard, in file order.
    places: Vec<Place>,
    by_name: HashTable<Place>,
}

impl Routes {
    /// All tensors of all files, none of which may share a name.
    pub(super) fn of_all(shards: &[Shard]) -> Result<Routes> {
        let all_of = |shard: &Shard| 0..shard.header.len() as u32;
        Routes::new(shards, shards.iter().map(all_of)).map_err(|(place, (other, _))| {
            let message = format!(
                "also held by {}; only an index can say which one counts",
                ShownPath(&shards[other as usize].path)
            );
            Error::new(ErrorKind::Ambiguous, message)
                .with_path(&shards[place.0 as usize].path)
                .with_tensor(name_at(place, shards))
        })
    }

    /// The tensors that an index gives each of its shards, as [`places_in`] has found them.
    pub(super) fn of_index(shards: &[Shard], places: Vec<Vec<u32>>) -> Result<Routes> {
        Routes::new(shards, places).map_err(|(place, _)| named_twice(name_at(place, shards)))
    }

    /// The tensors at these places of each shard. Fails with the first place whose name another
    /// one has as well, and that one.
    fn new<P: IntoIterator<Item = u32>>(
        shards: &[Shard],
        places: impl IntoIterator<Item = P>,
    ) -> Result<Routes, (Place, Place)> {
        let count = shards.iter().map(|shard| shard.header.len()).sum();
        let mut routes = Routes {
            places: Vec::with_capacity(count),
            by_name: HashTable::with_capacity(count),
        };
        for (number, places) in (0..).zip(places) {
            for at in places {
                let place = (number, at);
                routes.places.push(place);
                let (hash, name) = (hash_at(place, shards), name_at(place, shards));
                match routes.by_name.entry(
                    hash.spread(),
                    |&other| hash_at(other, shards) == hash && name_at(other, shards) == name,
                    |&other| hash_at(other, shards).spread(),
                ) {
                    Entry::Occupied(other) => return Err((place, *other.get())),
                    Entry::Vacant(vacant) => vacant.insert(place),
                };
            }
        }
        Ok(routes)
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
        let hash = NameHash::of(name);
        let found = self.by_name.find(hash.spread(), |&place| {
            hash_at(place, shards) == hash && name_at(place, shards) == name
        });
        found.map(|&(shard, at)| (shard as usize, at as usize))
    }
}

/// Where a shard holds the tensors that an index says it does, in file order.
pub(super) fn places_in<'a>(
    shard: &Shard,
    names: impl Iterator<Item = &'a str>,
) -> Result<Vec<u32>> {
    let mut is_named = vec![false; shard.header.len()];
    for name in names {
        let at = shard.header.position(name).ok_or_else(|| {
            let message = format!(
                "the index places it in {}, which does not hold it",
                ShownPath(&shard.path)
            );
            Error::new(ErrorKind::InvalidIndex, message).with_tensor(name)
        })?;
        if std::mem::replace(&mut is_named[at], true) {
            return Err(named_twice(name));
        }
    }
    let places = (0..).zip(is_named);
    Ok(places.filter_map(|(at, is)| is.then_some(at)).collect())
}

fn named_twice(name: &str) -> Error {
    let message = "the index names this tensor twice";
    Error::new(ErrorKind::InvalidIndex, message).with_tensor(name)
}

fn name_at((shard, at): Place, shards: &[Shard]) -> &str {
    shards[shard as usize].header.name_at(at as usize)
}

fn hash_at((shard, at): Place, shards: &[Shard]) -> NameHash {
    shards[shard as usize].header.name_hash_at(at as usize)
}
