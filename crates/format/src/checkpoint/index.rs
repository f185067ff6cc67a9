//! The index of a sharded checkpoint: which shard holds which tensor.
//!
//! The file is what Hugging Face's transformers writes: `{"metadata": {"total_size": n},
//! "weight_map": {"tensor": "shard file", …}}`. Other keys are let be.

use std::borrow::Cow;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Component, Path};

use hashbrown::HashMap;

use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::json::{Cursor, SyntaxError};
use crate::{foreign, header, huge_pages};

/// No index of a real model is near this long; the limit is that of a header.
pub(crate) const MAX_INDEX_LEN: u64 = header::MAX_HEADER_LEN;

/// A parsed index, which borrows from its text.
pub(super) struct Index<'a> {
    /// In the order they are first named.
    pub(super) shards: Vec<IndexedShard<'a>>,
    /// In the order of the index.
    tensors: Vec<IndexedTensor<'a>>,
    pub(super) total_size: TotalSize,
}

/// What an index says of one shard.
pub(super) struct IndexedShard<'a> {
    /// The file's name, relative to the index.
    pub(super) file: Cow<'a, str>,
    /// The numbers of its first tensor and its last.
    first: usize,
    last: usize,
}

struct IndexedTensor<'a> {
    name: Cow<'a, str>,
    /// The number of the next tensor in the same shard, which is never the first of all.
    next: Option<NonZeroUsize>,
}

/// What `metadata.total_size` says: the bytes of all tensors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TotalSize {
    #[default]
    Missing,
    NotANumber,
    Bytes(u64),
}

/// Reads the text of an index, and keeps its file open.
pub(super) fn read(path: &Path) -> Result<(File, Vec<u8>)> {
    let (file, len) = header::open(path)?;
    if len > MAX_INDEX_LEN {
        let message = format!("the index is {len} bytes long, the limit is {MAX_INDEX_LEN}");
        return Err(invalid(message));
    }
    let text = header::read_text(&file, len as usize)
        .map_err(|error| Error::io("cannot read the index", error))?;
    Ok((file, text))
}

/// The file names of an index's shards, relative to it.
pub(crate) fn shard_names(path: &Path) -> Result<Vec<String>> {
    let (_, text) = read(path)?;
    let shards = Index::parse(&text)?.shards.into_iter();
    Ok(shards.map(|shard| shard.file.into_owned()).collect())
}

impl<'a> Index<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Index<'a>> {
        if let Some(what) = foreign::recognise(text) {
            return Err(invalid(format!("this is no index but {what}")));
        }
        let text = std::str::from_utf8(text)
            .map_err(|error| invalid(format!("index byte {}: not UTF-8", error.valid_up_to())))?;
        let mut index = Index {
            shards: Vec::new(),
            tensors: huge_pages::vec(text.len() / 64),
            total_size: TotalSize::default(),
        };
        let mut cursor = Cursor::new(text);
        let (mut map_seen, mut metadata_seen) = (false, false);
        let mut first = true;
        cursor.open(b'{', "'{'").map_err(in_index)?;
        while let Some(key) = cursor.next_key(&mut first).map_err(in_index)? {
            let seen = match key.as_ref() {
                "weight_map" => {
                    index.read_weight_map(&mut cursor)?;
                    std::mem::replace(&mut map_seen, true)
                }
                "metadata" => {
                    index.read_metadata(&mut cursor).map_err(in_index)?;
                    std::mem::replace(&mut metadata_seen, true)
                }
                _ => {
                    cursor.skip_value(1).map_err(in_index)?;
                    false
                }
            };
            if seen {
                return Err(invalid(format!("{} is given twice", Quoted(&key))));
            }
        }
        cursor.end().map_err(in_index)?;
        if !map_seen {
            return Err(invalid(
                "no weight_map: this JSON is no index of a sharded checkpoint".into(),
            ));
        }
        if index.shards.is_empty() {
            return Err(invalid("the weight_map is empty".into()));
        }
        Ok(index)
    }

    fn read_weight_map(&mut self, cursor: &mut Cursor<'a>) -> Result<()> {
        let mut numbers = HashMap::new();
        let mut shard = 0;
        let mut first = true;
        cursor
            .open(b'{', "an object as weight_map")
            .map_err(in_index)?;
        while let Some(name) = cursor.next_key(&mut first).map_err(in_index)? {
            let file = cursor
                .string("a shard's file name")
                .map_err(|error| in_index(error).with_tensor(&name))?;
            // Neighbours are mostly in the same shard.
            if self
                .shards
                .get(shard)
                .is_none_or(|shard| shard.file != file)
            {
                shard = self
                    .shard_number(&mut numbers, file)
                    .map_err(|fault| fault.with_tensor(&name))?;
            }
            let number = self.tensors.len();
            self.tensors.push(IndexedTensor { name, next: None });
            let last = std::mem::replace(&mut self.shards[shard].last, number);
            if last != number {
                self.tensors[last].next = NonZeroUsize::new(number);
            }
        }
        Ok(())
    }

    /// The number of the next tensor's shard, which is a new one where it has not been named before.
    fn shard_number(
        &mut self,
        numbers: &mut HashMap<Cow<'a, str>, usize>,
        file: Cow<'a, str>,
    ) -> Result<usize> {
        if let Some(&number) = numbers.get(&file) {
            return Ok(number);
        }
        check_shard_name(&file)
            .map_err(|fault| invalid(format!("shard name {} {fault}", Quoted(&file))))?;
        let number = self.shards.len();
        numbers.insert(file.clone(), number);
        let first = self.tensors.len();
        self.shards.push(IndexedShard {
            file,
            first,
            last: first,
        });
        Ok(number)
    }

    fn read_metadata(&mut self, cursor: &mut Cursor) -> Result<(), SyntaxError> {
        if cursor.peek() != Some(b'{') {
            return cursor.skip_value(1);
        }
        let mut first = true;
        cursor.open(b'{', "'{'")?;
        while let Some(key) = cursor.next_key(&mut first)? {
            let value = cursor.value(2)?;
            if key == "total_size" {
                self.total_size = match value.parse() {
                    Ok(bytes) => TotalSize::Bytes(bytes),
                    Err(_) => TotalSize::NotANumber,
                };
            }
        }
        Ok(())
    }
}

impl IndexedShard<'_> {
    /// The names of its tensors, of which there is one at least, in the order of the index.
    pub(super) fn tensors<'a>(&self, index: &'a Index) -> impl Iterator<Item = &'a str> {
        let next = |tensor: &&'a IndexedTensor| Some(&index.tensors[tensor.next?.get()]);
        std::iter::successors(index.tensors.get(self.first), next).map(|tensor| &*tensor.name)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidIndex, message)
}

fn in_index(error: SyntaxError) -> Error {
    invalid(format!("index byte {}: {}", error.at, error.message))
}

/// A shard lies beside the index or below it, whoever wrote the index.
pub(crate) fn check_shard_name(name: &str) -> Result<(), &'static str> {
    let path = Path::new(name);
    if name.is_empty() {
        return Err("is empty");
    }
    if name.contains("://") {
        return Err("is a URL, expected a file beside the index");
    }
    if path.has_root() || path.is_absolute() {
        return Err("is an absolute path, expected a file beside the index");
    }
    if name.chars().any(char::is_control) {
        return Err("has control characters");
    }
    for component in path.components() {
        match component {
            Component::Normal(_) | Component::CurDir => {}
            _ => return Err("leads out of the index's directory"),
        }
    }
    match path.file_name() {
        Some(_) => Ok(()),
        None => Err("names no file"),
    }
}
