//! The index of a sharded checkpoint: which shard holds which tensor.
//!
//! The file is what Hugging Face's transformers writes: `{"metadata": {"total_size": n},
//! "weight_map": {"tensor": "shard file", …}}`. Other keys are let be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Component, Path};

use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::json::{Cursor, SyntaxError};
use crate::{foreign, header};

/// No index of a real model is near this long; the limit is that of a header.
pub(crate) const MAX_INDEX_LEN: u64 = header::MAX_HEADER_LEN;

/// A parsed index. Shards are numbered in the order they are first named.
#[derive(Default)]
pub(crate) struct Index {
    /// Names of all tensors, one after the other.
    names: String,
    /// Where each name ends, and its shard.
    entries: Vec<(u32, u32)>,
    shards: Vec<String>,
    total_size: TotalSize,
}

/// What `metadata.total_size` says: the bytes of all tensors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TotalSize {
    #[default]
    Missing,
    NotANumber,
    Bytes(u64),
}

impl Index {
    pub(crate) fn read(path: &Path) -> Result<Index> {
        let (file, len) = header::open(path)?;
        if len > MAX_INDEX_LEN {
            let message = format!("the index is {len} bytes long, the limit is {MAX_INDEX_LEN}");
            return Err(invalid(message));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        file.take(len)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("cannot read the index", error))?;
        if let Some(what) = foreign::recognise(&bytes) {
            return Err(invalid(format!("this is no index but {what}")));
        }
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| invalid(format!("index byte {}: not UTF-8", error.valid_up_to())))?;
        Index::parse(text)
    }

    pub(crate) fn parse(text: &str) -> Result<Index> {
        let mut index = Index::default();
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
        if index.entries.is_empty() {
            return Err(invalid("the weight_map is empty".into()));
        }
        Ok(index)
    }

    fn read_weight_map(&mut self, cursor: &mut Cursor) -> Result<()> {
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut first = true;
        cursor
            .open(b'{', "an object as weight_map")
            .map_err(in_index)?;
        while let Some(name) = cursor.next_key(&mut first).map_err(in_index)? {
            let shard = cursor
                .string("a shard's file name")
                .map_err(|error| in_index(error).with_tensor(&name))?;
            let number = match self.entries.last() {
                // Neighbours are mostly in the same shard.
                Some(&(_, last)) if self.shards[last as usize] == shard => last,
                _ => self
                    .shard_number(&mut numbers, shard)
                    .map_err(|fault| fault.with_tensor(&name))?,
            };
            self.names.push_str(&name);
            self.entries.push((self.names.len() as u32, number));
        }
        Ok(())
    }

    /// The number of a shard, which is a new one where it has not been named before.
    fn shard_number(&mut self, numbers: &mut HashMap<String, u32>, shard: Cow<str>) -> Result<u32> {
        if let Some(&number) = numbers.get(shard.as_ref()) {
            return Ok(number);
        }
        check_shard_name(&shard)
            .map_err(|fault| invalid(format!("shard name {} {fault}", Quoted(&shard))))?;
        let number = self.shards.len() as u32;
        self.shards.push(shard.to_string());
        numbers.insert(shard.into_owned(), number);
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

    /// The shards' file names, relative to the index.
    pub(crate) fn shards(&self) -> &[String] {
        &self.shards
    }

    pub(crate) fn total_size(&self) -> TotalSize {
        self.total_size
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Each tensor's name and the number of its shard.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        let mut begin = 0;
        self.entries.iter().map(move |&(end, shard)| {
            let name: Range<usize> = begin..end as usize;
            begin = name.end;
            (&self.names[name], shard as usize)
        })
    }

    pub(crate) fn first_tensor_of(&self, shard: usize) -> &str {
        self.iter()
            .find(|&(_, at)| at == shard)
            .map_or("", |(name, _)| name)
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
