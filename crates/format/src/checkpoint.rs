//! A checkpoint: one file, or several shards with an index, opened by reading headers only.

mod index;
mod locate;

mod routes;
mod warnings;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use bytes::Bytes;

use crate::archive::no_such_tensor;
use crate::buffer::{Buffer, Initialised, Memory};
use crate::cast::cast_between;
use crate::error::{Error, ErrorKind, Result};
use crate::read::{self, Meter, ReadOptions, Transfer};
use crate::slice::Runs;
use crate::source::Source;
use crate::{Dtype, Element, Header, Slice, TensorInfo, element, foreign, header, threads};
use index::{Index, IndexedShard};
pub(crate) use index::{MAX_INDEX_LEN, check_shard_name, shard_names};
pub(crate) use locate::{FILE_SUFFIX, INDEX_SUFFIX, Located, locate};
use routes::Routes;
pub use warnings::Warning;

/// The tensors of a model, wherever they lie: in one file, or in the shards of an index.
///
/// Opening reads the headers, each once, and keeps the files open: what is read later is what was
/// opened, even if another file takes its name in the meantime. So a checkpoint of more shards than
/// the process may have files open cannot be opened.
///
/// ```
/// use st_format::{Checkpoint, Slice};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// # let json = br#"{"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
/// # let mut file = (json.len() as u64).to_le_bytes().to_vec();
/// # file.extend(json);
/// # file.extend([1.5f32, -2.0].map(f32::to_le_bytes).as_flattened());
/// # std::fs::write(&path, file).unwrap();
/// let checkpoint = Checkpoint::open(&path)?;
/// assert_eq!(checkpoint.info("bias")?.shape(), [2]);
/// assert_eq!(checkpoint.read("bias")?[..4], 1.5f32.to_le_bytes());
/// assert_eq!(checkpoint.read_slice("bias", &Slice::all().dim(0, 1..))?, (-2.0f32).to_le_bytes());
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    /// The path it was opened by; none for bytes in memory.
    path: PathBuf,
    shards: Vec<Shard>,
    /// Which tensors count; none where there is one file and all of its tensors do.
    routes: Option<Routes>,
    /// What the index says of the size of all tensors; none where there is no index.
    total_size: Option<index::TotalSize>,
}

/// One file of a checkpoint.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    header: Header,
    pub(crate) source: Source,
}

impl Shard {
    fn open(path: &Path) -> Result<Shard> {
        let open = || {
            let (file, len) = header::open(path)?;
            let header = Header::read_from(&file, len)?;
            Ok((header, Source::File(file)))
        };
        let (header, source) = open().map_err(|error: Error| error.with_path(path))?;
        Ok(Shard {
            path: path.to_owned(),
            header,
            source,
        })
    }

    pub(crate) fn from_bytes(path: &Path, bytes: Bytes) -> Result<Shard> {
        let start = &bytes[..bytes.len().min(foreign::LOOK_AT)];
        let header = Header::from_bytes(&bytes)
            .map_err(|error| foreign::explain(start, error).with_path(path))?;
        Ok(Shard {
            path: path.to_owned(),
            header,
            source: Source::Memory(bytes),
        })
    }

    /// Where the bytes of a tensor of this file lie.
    pub(crate) fn runs_of(&self, info: &TensorInfo) -> Runs {
        let start = self.header.data_start() + info.data_offsets().start;
        Runs::contiguous(start, info.byte_len())
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, where the checkpoint reads from one: the very file whose header was read,
    /// whatever has its name by now. `None` where the bytes are in memory, or mapped.
    pub fn file(&self) -> Option<&File> {
        match &self.source {
            Source::File(file) => Some(file),
            Source::Memory(_) => None,
        }
    }

    /// The file's header. In a sharded checkpoint it may hold tensors that the index does not
    /// give it.
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl Checkpoint {
    /// Opens a checkpoint by the path of
    ///
    /// - a `.safetensors` file,
    /// - an index (`*.json`), whose shards lie beside it or below,
    /// - a directory: its one `*.safetensors.index.json`, or else its one `*.safetensors`.
    ///
    /// Files may be symlinks. Shards are looked for where the index itself is named, not where
    /// its link leads.
    ///
    /// # Errors
    ///
    /// As [`Header::read`], for any of the files; [`InvalidIndex`](ErrorKind::InvalidIndex);
    /// [`NotFound`](ErrorKind::NotFound) and [`Ambiguous`](ErrorKind::Ambiguous) for a directory
    /// without a checkpoint or with several.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(path.as_ref(), Shard::open)
    }

    /// A checkpoint of one file whose bytes are in memory.
    ///
    /// # Errors
    ///
    /// As [`SafeTensors::new`](crate::SafeTensors::new).
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Checkpoint> {
        let path = Path::new("<memory>");
        let shard = Shard::from_bytes(path, bytes.into())?;
        Ok(Checkpoint::of_one(path, shard))
    }

    /// Opens several files, without an index, as one checkpoint.
    ///
    /// # Errors
    ///
    /// As [`Header::read`], and [`Ambiguous`](ErrorKind::Ambiguous) where two of the files hold a
    /// tensor of the same name.
    pub fn open_files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Checkpoint> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().into()).collect();
        let shards = threads::map(0, &paths, |path| Shard::open(path))?;
        let routes = Routes::of_all(&shards)?;
        let path = shards.first().map(|shard| shard.path.clone());
        Ok(Checkpoint {
            path: path.unwrap_or_default(),
            shards,
            routes: Some(routes),
            total_size: None,
        })
    }

    pub(crate) fn open_with(
        path: &Path,
        open: impl Fn(&Path) -> Result<Shard> + Sync,
    ) -> Result<Checkpoint> {
        /// A save takes longer than to read headers, so that the second attempt mostly succeeds.
        const ATTEMPTS: usize = 10;

        let is_directory = path.is_dir();
        let message = "it is being replaced again and again";
        let mut last = Error::new(ErrorKind::InvalidIndex, message).with_path(path);
        for _ in 0..ATTEMPTS {
            let opened = match locate(path)? {
                Located::File(file) => open(&file).map(|shard| Checkpoint::of_one(&file, shard)),
                Located::Index(index) => match index::read(&index) {
                    Err(error) => Err(error.with_path(&index)),
                    Ok((file, text)) => {
                        let opened = Checkpoint::of_index(&index, &text, &open);
                        if !header::is_at(&file, &index) {
                            // A save has replaced it, and perhaps some of the shards, meanwhile.
                            continue;
                        }
                        opened
                    }
                },
            };
            match opened {
                // A save may have put an index in the place of a file, or the other way round.
                Err(error) if is_directory && error.is_file_not_found() => last = error,
                opened => return opened,
            }
        }
        Err(last)
    }

    fn of_one(path: &Path, shard: Shard) -> Checkpoint {
        Checkpoint {
            path: path.to_owned(),
            shards: vec![shard],
            routes: None,
            total_size: None,
        }
    }

    fn of_index(
        path: &Path,
        text: &[u8],
        open: impl Fn(&Path) -> Result<Shard> + Sync,
    ) -> Result<Checkpoint> {
        let index = Index::parse(text).map_err(|error| error.with_path(path))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        // An index that does not fit its shards is an error only where all of them can be opened.
        let open = |indexed: &IndexedShard| {
            let shard = open(&dir.join(&*indexed.file)).map_err(|error| {
                match error.is_file_not_found() {
                    true => Error::new(ErrorKind::InvalidIndex, "its shard is not there")
                        .with_source(error)
                        .with_path(path)
                        .with_tensor(indexed.tensors(&index).next().unwrap_or_default()),
                    false => error,
                }
            })?;
            let places = routes::places_in(&shard, indexed.tensors(&index));
            Ok((shard, places))
        };
        let (shards, places): (Vec<_>, Vec<_>) =
            threads::map(0, &index.shards, open)?.into_iter().unzip();
        let routes = || Routes::of_index(&shards, places.into_iter().collect::<Result<_>>()?);
        Ok(Checkpoint {
            path: path.to_owned(),
            routes: Some(routes().map_err(|error| error.with_path(path))?),
            shards,
            total_size: Some(index.total_size),
        })
    }

    /// The path of the file or the index; a directory's is that of what was found in it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, in the order of their first tensor in the index.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// What is odd about the checkpoint though it can be loaded: a header with fields the format
    /// does not know, shards that hold tensors the index does not give them, a wrong
    /// `total_size`, data that is not aligned.
    pub fn warnings(&self) -> Vec<Warning> {
        warnings::of(self)
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        match &self.routes {
            Some(routes) => routes.len(),
            None => self.shards.iter().map(|shard| shard.header.len()).sum(),
        }
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that all tensors take together.
    pub fn byte_len(&self) -> u64 {
        // The shards of a hostile checkpoint may claim more than 64 bits count.
        let lengths = self.iter().map(|info| info.byte_len());
        lengths.fold(0, u64::saturating_add)
    }

    /// All tensors, shard by shard and in file order within each.
    pub fn iter(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        self.iter_with_shard().map(|(_, info)| info)
    }

    /// As [`iter`](Checkpoint::iter), each with the number of its shard in
    /// [`shards`](Checkpoint::shards).
    pub fn iter_with_shard(&self) -> impl Iterator<Item = (usize, TensorInfo<'_>)> {
        (0..self.len()).map(|at| {
            let (shard, at) = match &self.routes {
                Some(routes) => routes.at(at),
                None => (0, at),
            };
            (shard, self.shards[shard].header.at(at))
        })
    }

    /// The tensor of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.find(name).map(|(_, info)| info)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound), with the nearest names there are.
    pub fn info(&self, name: &str) -> Result<TensorInfo<'_>> {
        self.locate(name).map(|(_, info)| info)
    }

    fn find(&self, name: &str) -> Option<(&Shard, TensorInfo<'_>)> {
        let (shard, at) = match &self.routes {
            Some(routes) => routes.find(name, &self.shards)?,
            None => (0, self.shards[0].header.position(name)?),
        };
        let shard = &self.shards[shard];
        Some((shard, shard.header.at(at)))
    }

    pub(crate) fn locate(&self, name: &str) -> Result<(&Shard, TensorInfo<'_>)> {
        self.find(name).ok_or_else(|| {
            no_such_tensor(name, self.iter().map(|info| info.name())).with_path(&self.path)
        })
    }

    /// The free text of the shards' headers, sorted by key; where shards differ, the first one's
    /// text counts.
    pub fn metadata(&self) -> BTreeMap<&str, &str> {
        let mut metadata = BTreeMap::new();
        for shard in &self.shards {
            for (key, value) in shard.header.metadata() {
                metadata.entry(key.as_str()).or_insert(value.as_str());
            }
        }
        metadata
    }

    /// A tensor's bytes without a copy, where the checkpoint is in memory or mapped; they keep
    /// that memory alive. `None` where it is read from files.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound).
    pub fn bytes(&self, name: &str) -> Result<Option<Bytes>> {
        let (shard, info) = self.locate(name)?;
        let Source::Memory(bytes) = &shard.source else {
            return Ok(None);
        };
        let start = (shard.header.data_start() + info.data_offsets().start) as usize;
        Ok(Some(bytes.slice(start..start + info.byte_len() as usize)))
    }

    /// Reads a tensor's bytes, as they stand in the file.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound), [`OutOfMemory`](ErrorKind::OutOfMemory), and
    /// [`Io`](ErrorKind::Io).
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        self.read_slice(name, &Slice::all())
    }

    /// Reads a tensor's elements.
    ///
    /// # Errors
    ///
    /// As [`read`](Checkpoint::read), and [`InvalidRequest`](ErrorKind::InvalidRequest) where `T`
    /// is not the tensor's dtype.
    pub fn read_elements<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        let (shard, info) = self.locate(name)?;
        let dtype = info.dtype();
        element::check::<T>(dtype)
            .map_err(|error| error.with_path(&shard.path).with_tensor(name))?;
        self.read_buffer(name, &Slice::all(), dtype)
    }

    /// Reads part of a tensor: the bytes of its elements in row-major order. No more of the file
    /// is read than the pages that hold them.
    ///
    /// # Errors
    ///
    /// As [`read`](Checkpoint::read), and [`InvalidRequest`](ErrorKind::InvalidRequest) where the
    /// slice does not fit the shape.
    pub fn read_slice(&self, name: &str, slice: &Slice) -> Result<Vec<u8>> {
        self.read_buffer(name, slice, Dtype::U8)
    }

    /// Reads (part of) a tensor into memory for elements of `dtype`, which `T` is.
    fn read_buffer<T: Pod>(&self, name: &str, slice: &Slice, dtype: Dtype) -> Result<Vec<T>> {
        let mut transfer = self.transfer(name, slice, None, |bytes| Buffer::new(dtype, bytes))?;
        let meter = Meter::new(transfer.runs.byte_len());
        read::read_all(
            std::slice::from_mut(&mut transfer),
            &ReadOptions::new(),
            &meter,
        )?;
        transfer.memory.into_vec()
    }

    /// Reads any number of tensors, or parts of them, into memory that the caller owns: in file
    /// order, in large pieces, by several threads.
    ///
    /// # Errors
    ///
    /// As [`read_slice`](Checkpoint::read_slice), [`Unsupported`](ErrorKind::Unsupported) where a
    /// cast is not offered, and [`InvalidRequest`](ErrorKind::InvalidRequest) where memory does
    /// not have the length of what is to be read; then nothing has been read. After an error while
    /// reading, the contents of the memory are not specified.
    pub fn read_into<'a>(
        &self,
        reads: impl IntoIterator<Item = Read<'a>>,
        options: &ReadOptions,
    ) -> Result<()> {
        let transfer = |read: Read<'a>| {
            let Read {
                tensor,
                slice,
                cast,
                into,
            } = read;
            self.transfer(tensor, &slice, cast, |bytes| {
                if into.len() as u64 != bytes {
                    let len = into.len();
                    let message = format!("what is to be read takes {bytes} bytes, not {len}");
                    return Err(Error::new(ErrorKind::InvalidRequest, message));
                }
                Ok(Initialised(into))
            })
        };
        let mut transfers: Vec<_> = reads.into_iter().map(transfer).collect::<Result<_>>()?;
        let meter = Meter::new(read::total(&transfers));
        read::read_all(&mut transfers, options, &meter)
    }

    /// The way of (part of) a tensor to memory, which is made for the number of bytes it takes.
    fn transfer<M: Memory>(
        &self,
        name: &str,
        slice: &Slice,
        cast: Option<Dtype>,
        memory: impl FnOnce(u64) -> Result<M>,
    ) -> Result<Transfer<'_, M>> {
        let (shard, info) = self.locate(name)?;
        let transfer = || {
            let (runs, _) = Runs::of_slice(slice, &info, shard.header.data_start())?;
            let cast = match cast {
                Some(to) => cast_between(info.dtype(), to)?,
                None => None,
            };
            Ok(Transfer {
                memory: memory(read::output_len(cast.as_ref(), runs.byte_len())?)?,
                shard,
                tensor: info.name(),
                runs,
                cast,
            })
        };
        transfer().map_err(|error: Error| error.with_path(&shard.path).with_tensor(name))
    }
}

/// One tensor to be read, or part of one, and the memory it goes to.
#[derive(Debug)]
pub struct Read<'a> {
    tensor: &'a str,
    slice: Slice,
    cast: Option<Dtype>,
    into: &'a mut [u8],
}

impl<'a> Read<'a> {
    /// Reads the whole of `tensor` into `into`, which has its length.
    pub fn new(tensor: &'a str, into: &'a mut [u8]) -> Read<'a> {
        Read {
            tensor,
            slice: Slice::all(),
            cast: None,
            into,
        }
    }

    /// Reads only a part.
    #[must_use]
    pub fn slice(mut self, slice: Slice) -> Read<'a> {
        self.slice = slice;
        self
    }

    /// Casts to another dtype on the way; see [`Dtype::casts_to`].
    #[must_use]
    pub fn cast(mut self, to: Dtype) -> Read<'a> {
        self.cast = Some(to);
        self
    }
}
