//! Changing a file that is there, without writing all of it anew.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::checksum::{self, Checksum};
use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::header::{self, METADATA, PREFIX_LEN, text};
use crate::writer::AtomicFile;
use crate::{Checkpoint, Header, SaveFrom, Saver, TensorInfo};

/// Changes the metadata of a file, or the names of its tensors.
///
/// The data stays where it is if the new header fits in the place of the old one, its padding
/// included ([`Layout::reserve_header`](crate::Layout::reserve_header) leaves more of it).
/// Otherwise the file is written anew beside the old one, block by block, and replaces it; its data
/// begins at a multiple of as many bytes as before, 4096 at most.
///
/// A change in place is not all or nothing, as a new file is: power that fails in the middle may
/// leave a header that is half the old and half the new one. And it changes the file under whoever
/// reads or maps it meanwhile. Fields of the header that the format does not know are not kept.
///
/// ```
/// use st_format::{Checkpoint, Editor, Edited};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// # let view = st_format::TensorView::new("weight", st_format::Dtype::U8, &[4], &[1, 2, 3, 4])?;
/// # let saver = st_format::Saver::<st_format::Raw>::new().reserve_header(200);
/// # saver.save(&path, [("weight", view)])?;
/// let mut editor = Editor::open(&path)?;
/// editor.set_metadata("license", "Apache-2.0");
/// editor.rename("weight", "model.weight")?;
/// assert_eq!(editor.save()?, Edited::InPlace);
///
/// assert_eq!(Checkpoint::open(&path)?.read("model.weight")?, [1, 2, 3, 4]);
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Editor {
    path: PathBuf,
    file: File,
    header: Header,
    metadata: BTreeMap<String, String>,
    /// New names by the old ones.
    renamed: BTreeMap<String, String>,
}

/// How a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// Only its header was written.
    InPlace,
    /// The header had become too long for its place; the file was replaced by a new one.
    Rewritten,
}

impl Editor {
    /// Opens one file; a shard's index would not know of new names.
    ///
    /// # Errors
    ///
    /// As [`Header::read`], and [`Io`](ErrorKind::Io) where the file may not be written to.
    pub fn open(path: impl AsRef<Path>) -> Result<Editor> {
        let path = path.as_ref();
        let (file, header) = open_to_write(path)?;
        Ok(Editor {
            path: path.to_owned(),
            file,
            metadata: header.metadata().clone(),
            header,
            renamed: BTreeMap::new(),
        })
    }

    /// The header as it is in the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Sets free text in `__metadata__`. The name that a tensor has in the file makes an alias of
    /// the key.
    pub fn set_metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.metadata.insert(key.into(), value.into());
    }

    /// Removes free text from `__metadata__`. Returns it, if it was there.
    pub fn remove_metadata(&mut self, key: &str) -> Option<String> {
        self.metadata.remove(key)
    }

    /// Gives the tensor that is called `from` in the file another name. Its aliases
    /// ([`Checkpoint::aliases`]) and its checksum go with it; an alias can have another name too.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound) where the file has no such tensor or alias.
    pub fn rename(&mut self, from: &str, to: impl Into<String>) -> Result<()> {
        if self.header.get(from).is_none() && !self.is_alias(from) {
            let message = "no such tensor or alias";
            return Err(self.fault(ErrorKind::NotFound, message, from));
        }
        self.renamed.insert(from.to_owned(), to.into());
        Ok(())
    }

    /// Whether the metadata, as it is to be, says that this is another name of a tensor.
    fn is_alias(&self, name: &str) -> bool {
        let kept = self.metadata.get(name);
        kept.is_some_and(|kept| self.header.get(kept).is_some()) && self.header.get(name).is_none()
    }

    fn fault(&self, kind: ErrorKind, message: &str, tensor: &str) -> Error {
        Error::new(kind, message)
            .with_tensor(tensor)
            .with_path(&self.path)
    }

    /// Writes what has changed.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where two tensors or aliases would have one
    /// name, an alias would have that of other metadata, or the header would be longer than the
    /// format allows; then nothing is changed. And [`Io`](ErrorKind::Io).
    pub fn save(self) -> Result<Edited> {
        self.save_with(false)
    }

    /// As [`save`](Editor::save), and the change survives a power failure once it returns.
    ///
    /// # Errors
    ///
    /// As [`save`](Editor::save).
    pub fn save_durably(self) -> Result<Edited> {
        self.save_with(true)
    }

    fn save_with(mut self, durable: bool) -> Result<Edited> {
        let names = self.new_names()?;
        let metadata = self.new_metadata()?;
        let infos = self.header.iter().zip(&names).map(|(info, name)| {
            TensorInfo::new(name, info.dtype(), info.shape(), info.data_offsets())
        });
        let json = text::json(&metadata, infos);
        let of_file = |error: Error| error.with_path(&self.path);
        if replace_header(&mut self.file, &self.header, &json).map_err(of_file)? {
            if durable {
                let synced = self.file.sync_all();
                synced.map_err(|error| of_file(Error::io("cannot finish the file", error)))?;
            }
            return Ok(Edited::InPlace);
        }
        let start = PREFIX_LEN + json.len() as u64;
        let start = start.next_multiple_of(alignment_of(self.header.data_start()));
        let header = text::padded(&json, start - PREFIX_LEN).map_err(of_file)?;
        let mut new = AtomicFile::create(&self.path)?;
        new.reserve(header.len() as u64 + self.header.data_len())?;
        new.write_at(0, &header)?;
        let start = SeekFrom::Start(self.header.data_start());
        let found = self.file.seek(start);
        found.map_err(|error| of_file(Error::io("cannot read the data", error)))?;
        new.append(&self.file)?;
        new.close(durable)?.replace_target()?;
        Ok(Edited::Rewritten)
    }

    fn new_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.get(name).map_or(name, String::as_str)
    }

    /// Of the tensors, in file order, and of no two tensors or aliases the same.
    fn new_names(&self) -> Result<Vec<&str>> {
        let tensors = self.header.iter().map(|info| info.name());
        let aliases = self.aliases().map(|(alias, _)| alias);
        let mut names = Vec::with_capacity(self.header.len());
        let mut seen = HashSet::with_capacity(self.header.len());
        for name in tensors.chain(aliases) {
            let new_name = self.new_name(name);
            let fault = match new_name {
                METADATA => "the format keeps this name for metadata",
                _ if !seen.insert(new_name) => "two tensors would have this name",
                _ => {
                    names.push(new_name);
                    continue;
                }
            };
            return Err(self.cannot_rename(name, fault));
        }
        names.truncate(self.header.len());
        Ok(names)
    }

    /// The metadata, in which aliases and checksums stand under the new names.
    fn new_metadata(&self) -> Result<BTreeMap<String, String>> {
        let mut metadata = self.metadata.clone();
        if self.renamed.is_empty() {
            return Ok(metadata);
        }
        // All are taken out before any is put in, for names may change places.
        for (alias, _) in self.aliases() {
            metadata.remove(alias);
        }
        let checksum = |(from, to): (&String, &String)| {
            let sum = metadata.remove(&checksum::key(from))?;
            Some((checksum::key(to), sum))
        };
        let checksums: Vec<_> = self.renamed.iter().filter_map(checksum).collect();
        metadata.extend(checksums);
        for (alias, kept) in self.aliases() {
            let name = self.new_name(alias);
            if name != alias && checksum::is_key(name) {
                let fault = "the metadata keeps keys such as this name for checksums";
                return Err(self.cannot_rename(alias, fault));
            }
            let other = metadata.insert(name.to_owned(), self.new_name(kept).to_owned());
            if other.is_some() {
                let fault = "the metadata has a text under this name";
                return Err(self.cannot_rename(alias, fault));
            }
        }
        Ok(metadata)
    }

    /// The aliases, and their kept names, all as they are called in the file.
    fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        let metadata = self.metadata.iter();
        metadata
            .filter(|&(alias, _)| self.is_alias(alias))
            .map(|(alias, kept)| (alias.as_str(), kept.as_str()))
    }

    fn cannot_rename(&self, name: &str, fault: &str) -> Error {
        let message = match self.renamed.get(name) {
            Some(new_name) => format!("renamed to {}: {fault}", Quoted(new_name)),
            None => fault.to_owned(),
        };
        self.fault(ErrorKind::InvalidRequest, &message, name)
    }
}

impl<F> Saver<F> {
    /// Writes over one tensor of a checkpoint, in place, with one of the same dtype and shape. Its
    /// checksum, where one is recorded, is recorded anew; of the saver's policies only casts and
    /// progress play a part.
    ///
    /// This is not all or nothing: what is interrupted leaves part of the old tensor and part of
    /// the new. And it changes the file under whoever reads or maps it meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::open`]; [`NotFound`](ErrorKind::NotFound);
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where dtype or shape is another one, and then
    /// nothing is written; [`Io`](ErrorKind::Io); and errors of the framework.
    pub fn overwrite<T>(&self, path: impl AsRef<Path>, name: &str, tensor: T) -> Result<()>
    where
        F: SaveFrom<T>,
    {
        let checkpoint = Checkpoint::open(path)?;
        let (shard, _) = checkpoint.locate(name)?;
        let overwrite = || {
            let (mut file, header) = open_to_write(shard.path())?;
            let info = header
                .get(name)
                .ok_or_else(|| Error::new(ErrorKind::NotFound, "it is no longer in the file"))?;
            let mut checksum = Checksum::default();
            let mut end = header.data_start() + info.data_offsets().start;
            self.overwrite_tensor(&info, &tensor, |bytes| {
                file.seek(SeekFrom::Start(end))
                    .and_then(|_| file.write_all(bytes))
                    .map_err(|error| Error::io("cannot write", error))?;
                end += bytes.len() as u64;
                checksum.add(bytes);
                Ok(())
            })?;
            let mut metadata = header.metadata().clone();
            if let Some(recorded) = metadata.get_mut(&checksum::key(name)) {
                *recorded = checksum.finish();
                let json = text::json(&metadata, header.iter());
                replace_header(&mut file, &header, &json)?;
            }
            Ok(())
        };
        overwrite().map_err(|error: Error| error.with_path(shard.path()).with_tensor(name))
    }
}

fn open_to_write(path: &Path) -> Result<(File, Header)> {
    let open = || {
        let (file, len) = header::open_for(File::options().read(true).write(true), path)?;
        let header = Header::read_from(&file, len)?;
        Ok((file, header))
    };
    open().map_err(|error: Error| error.with_path(path))
}

/// What the start of the data is a multiple of: 8, which all files get, to 4096.
fn alignment_of(data_start: u64) -> u64 {
    1 << data_start.trailing_zeros().clamp(3, 12)
}

/// Writes a header over the one that is there, if it is not longer. Only what differs is written:
/// the less it is, the less can be interrupted.
fn replace_header(file: &mut File, old: &Header, json: &str) -> Result<bool> {
    let len = old.data_start() - PREFIX_LEN;
    if json.len() as u64 > len {
        return Ok(false);
    }
    let new = text::padded(json, len)?;
    let mut there = vec![0; new.len()];
    let mut replace = || {
        file.seek(SeekFrom::Start(0))?;
        std::io::Read::read_exact(file, &mut there)?;
        let differs = |&at: &usize| there[at] != new[at];
        let Some(first) = (0..new.len()).find(differs) else {
            return Ok(());
        };
        let last = (0..new.len()).rfind(differs).unwrap_or(first);
        file.seek(SeekFrom::Start(first as u64))?;
        file.write_all(&new[first..=last])
    };
    replace().map_err(|error: std::io::Error| Error::io("cannot write the header", error))?;
    Ok(true)
}
