//! Saving a framework's tensors: the part that is the same for all of them.
//!
//! A framework says what a tensor is and gives its bytes ([`SaveFrom`]). The [`Saver`] does the
//! rest: it decides by its policies what is written where, and has it written.

mod files;
mod shards;

use std::collections::HashSet;
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::buffer::as_uninit;
use crate::cast::{Cast, cast_between};
use crate::error::{Error, ErrorKind, Result};
use crate::tied::{self, Storage};
use crate::writer::{byte_len, check_name};
use crate::{Dtype, Header, Layout, StreamWriter, TensorInfo, Writer, checksum};
use files::Target;
pub use shards::byte_size;

/// What an adapter tells the [`Saver`] about a tensor type of its framework.
pub trait SaveFrom<T> {
    /// The tensor's dtype, as the format names it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where it has no name for it.
    fn dtype(tensor: &T) -> Result<Dtype>;

    /// The size of each dimension, outermost first.
    fn shape(tensor: &T) -> Vec<usize>;

    /// Where its elements lie, where the framework can tell: tensors of one dtype, shape and
    /// storage are saved once.
    fn storage(tensor: &T) -> Option<Storage>;

    /// Gives the elements' bytes to `write`, in row-major order, in pieces of whole elements.
    ///
    /// # Errors
    ///
    /// Those of `write`, and of the framework.
    fn bytes(tensor: &T, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// Saves a framework's tensors, by policies that are values of the saver.
///
/// Every adapter has its own name for it, such as `st_candle::Saver`; [`Raw`](crate::Raw) is that
/// of no framework. By default there is one file, laid out as the reference implementation does
/// ([`Layout`]), and nothing is cast.
///
/// A save is all or nothing: the new file, or the new index, takes the place of the old one when
/// all of it is there. Tensors that share their storage are saved once, under the first of their
/// names; the others are recorded in `__metadata__`, as `alias` → `kept name`, as Python's
/// `save_model` does.
///
/// ```
/// use st_format::{Checkpoint, Dtype, Raw, Saver, TensorView};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let (weight, bias) = ([0; 24], [0; 8]);
/// let tensors = [
///     TensorView::new("weight", Dtype::F32, &[3, 2], &weight)?,
///     TensorView::new("bias", Dtype::F32, &[2], &bias)?,
/// ];
/// let report = Saver::<Raw>::new()
///     .metadata("format", "pt")
///     .cast_floats(Dtype::BF16)
///     .checksums()
///     .save(&path, tensors.map(|tensor| (tensor.name(), tensor)))?;
/// assert_eq!(report.bytes, 16);
///
/// let checkpoint = Checkpoint::open(&path)?;
/// assert_eq!(checkpoint.info("weight")?.dtype(), Dtype::BF16);
/// checkpoint.verify_checksums()?;
/// # Ok::<(), st_format::Error>(())
/// ```
pub struct Saver<F> {
    /// Of every file, but for the tensors.
    layout: Layout,
    untied: bool,
    durable: bool,
    max_shard_size: Option<u64>,
    cast: Option<Arc<CastTo>>,
    progress: Option<Arc<ProgressFn>>,
    framework: PhantomData<fn() -> F>,
}

type CastTo = dyn Fn(&TensorInfo) -> Option<Dtype> + Send + Sync;
type ProgressFn = dyn Fn(u64, u64) + Send + Sync;

impl<F> Default for Saver<F> {
    fn default() -> Saver<F> {
        Saver::new()
    }
}

impl<F> Saver<F> {
    /// A saver without policies.
    pub fn new() -> Saver<F> {
        Saver {
            layout: Layout::new(),
            untied: false,
            durable: false,
            max_shard_size: None,
            cast: None,
            progress: None,
            framework: PhantomData,
        }
    }

    /// Saves this text with the tensors, in every file. Some libraries of Python expect `format`
    /// to be `pt`.
    ///
    /// Keys that begin with `sha256:` are those of [`checksums`](Saver::checksums); a text under
    /// such a key is not saved.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.layout.metadata(key, value);
        self
    }

    pub(crate) fn metadata_unless_set(self, key: &str, value: &str) -> Self {
        match self.has_metadata(key) {
            true => self,
            false => self.metadata(key, value),
        }
    }

    pub(crate) fn has_metadata(&self, key: &str) -> bool {
        self.layout.metadata.contains_key(key)
    }

    /// Lays tensors down, and distributes them among shards, in the order they are given in.
    /// Otherwise the same tensors make the same files whatever their order.
    #[must_use]
    pub fn in_given_order(mut self) -> Self {
        self.layout.in_given_order();
        self
    }

    /// Begins each file's data at a multiple of `bytes` ([`Layout::align_data`]).
    #[must_use]
    pub fn align_data(mut self, bytes: usize) -> Self {
        self.layout.align_data(bytes);
        self
    }

    /// Leaves room for metadata to come ([`Layout::reserve_header`]).
    #[must_use]
    pub fn reserve_header(mut self, bytes: usize) -> Self {
        self.layout.reserve_header(bytes);
        self
    }

    /// Records checksums ([`Layout::checksums`]).
    #[must_use]
    pub fn checksums(mut self) -> Self {
        self.layout.checksums();
        self
    }

    /// Saves tensors that share their storage under each of their names, as if they did not: for
    /// readers that know nothing of aliases.
    #[must_use]
    pub fn untied(mut self) -> Self {
        self.untied = true;
        self
    }

    pub(crate) fn is_untied(&self) -> bool {
        self.untied
    }

    /// Returns when the disk has everything, so that it survives a power failure.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Distributes tensors among shards that hold no more than this many bytes of them each, but
    /// for a tensor that is larger, which has its shard to itself.
    ///
    /// Shards are called `model-00001-of-00007.safetensors`; an index beside them,
    /// `model.safetensors.index.json`, says which tensor is in which. Where one file is enough, it
    /// is `model.safetensors`, and there is no index. The path to save to is a directory, which is
    /// made where there is none, the path of the index, or that of the one file.
    ///
    /// The checkpoint that was there stays in place until all of the new one is written; then its
    /// files are removed: those that its index names and that lie beside it or below, and all that
    /// are called as its shards or its one file would be. For that time, the new shards' names may
    /// be temporary ones, and the directory is locked (`flock`): a second save to it waits.
    /// Symlinks among the files are replaced, not what they lead to: that may
    /// be a cache's and belong to other checkpoints, too.
    ///
    /// Sizes as people write them become bytes by [`byte_size`](crate::byte_size).
    #[must_use]
    pub fn max_shard_size(mut self, bytes: u64) -> Self {
        self.max_shard_size = Some(bytes);
        self
    }

    /// Casts tensors to the dtype returned, where one is. See [`Dtype::casts_to`] for what can be
    /// cast. The tensor's offsets count from its own start.
    #[must_use]
    pub fn cast(
        mut self,
        dtype: impl Fn(&TensorInfo) -> Option<Dtype> + Send + Sync + 'static,
    ) -> Self {
        self.cast = Some(Arc::new(dtype));
        self
    }

    /// Casts all floating point tensors to `dtype`; integers stay as they are.
    #[must_use]
    pub fn cast_floats(self, dtype: Dtype) -> Self {
        self.cast(move |info| info.dtype().is_float().then_some(dtype))
    }

    /// Calls `progress(done, total)` now and then, with bytes of the files' data.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Saves tensors to the file at `path`; or, where that is a directory, as the checkpoint in
    /// it; or in shards ([`max_shard_size`](Saver::max_shard_size)).
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for a dtype that the format lacks, or that cannot
    /// be cast as asked; [`InvalidRequest`](ErrorKind::InvalidRequest) for names that the format
    /// does not allow, and policies that contradict each other; [`Io`](ErrorKind::Io); and errors
    /// of the framework. Then what was there is there, and nothing else; or all of the new one is,
    /// and the message says "saved, but" what could not be done after that.
    pub fn save<N, T>(
        &self,
        path: impl AsRef<Path>,
        tensors: impl IntoIterator<Item = (N, T)>,
    ) -> Result<SaveReport>
    where
        N: AsRef<str>,
        F: SaveFrom<T>,
    {
        let start = Instant::now();
        let tensors: Vec<(N, T)> = tensors.into_iter().collect();
        let of_path = |error: Error| error.with_path(&path);
        let plan = self.plan(&tensors).map_err(of_path)?;
        let target = Target::of(path.as_ref(), self.max_shard_size.is_some()).map_err(of_path)?;
        let shards = shards::split(&plan.parts, self.max_shard_size.unwrap_or(u64::MAX));
        let mut meter = Meter::new(self, &plan.parts);
        let mut files = Vec::with_capacity(shards.len());
        for (file, parts) in target.paths(shards.len()).iter().zip(&shards) {
            let layout = plan.layout_of(parts);
            let layout = layout.map_err(|error| error.with_path(file))?;
            let mut writer = Writer::to_file(target.begin(file)?, layout)?;
            for part in in_file_order(parts, writer.header()) {
                let (_, tensor) = &tensors[part.tensor];
                part.write::<F, T>(tensor, &mut meter, &mut |bytes| {
                    writer.write(part.name, bytes)
                })
                .map_err(|error| error.with_path(&path))?;
            }
            files.push(writer.close(self.durable)?);
        }
        let files = target.put_in_place(files, &shards, self.durable)?;
        Ok(SaveReport {
            files,
            aliases: plan.aliases,
            bytes: meter.total,
            elapsed: start.elapsed(),
        })
    }

    /// Writes a file of the tensors to anything that takes bytes, and gives it back. Shards and
    /// durability play no part.
    ///
    /// # Errors
    ///
    /// As [`save`](Saver::save), but what has been written stays written; and
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where [`checksums`](Saver::checksums) are
    /// asked for, which stand before the data and are not known yet.
    pub fn write_to<W, N, T>(
        &self,
        output: W,
        tensors: impl IntoIterator<Item = (N, T)>,
    ) -> Result<W>
    where
        W: Write,
        N: AsRef<str>,
        F: SaveFrom<T>,
    {
        let tensors: Vec<(N, T)> = tensors.into_iter().collect();
        let plan = self.plan(&tensors)?;
        let parts: Vec<&Part> = plan.parts.iter().collect();
        let mut meter = Meter::new(self, &plan.parts);
        let mut writer = StreamWriter::new(output, plan.layout_of(&parts)?)?;
        for part in in_file_order(&parts, writer.header()) {
            let (_, tensor) = &tensors[part.tensor];
            part.write::<F, T>(tensor, &mut meter, &mut |bytes| {
                writer.write(part.name, bytes)
            })?;
        }
        writer.finish()
    }

    /// What is to be written, by all the policies.
    fn plan<'a, N, T>(&self, tensors: &'a [(N, T)]) -> Result<Plan<'a>>
    where
        N: AsRef<str>,
        F: SaveFrom<T>,
    {
        let mut parts = Vec::with_capacity(tensors.len());
        let mut names = HashSet::with_capacity(tensors.len());
        for (at, (name, tensor)) in tensors.iter().enumerate() {
            let name = name.as_ref();
            let of_tensor = |error: Error| error.with_tensor(name);
            check_name(name, names.insert(name))?;
            parts.push(self.part::<T>(at, name, tensor).map_err(of_tensor)?);
        }
        // The kept ones of tied names do not depend on the order given.
        parts.sort_by_key(|part| part.name);
        let storage = |part: &Part| {
            let storage = F::storage(&tensors[part.tensor].1)?;
            (part.bytes > 0).then(|| (storage, part.held, part.dtype, part.shape.clone()))
        };
        let aliases = match self.untied {
            true => Vec::new(),
            false => tied::take_aliases(&mut parts, |part| part.name, storage),
        };
        if self.layout.in_given_order {
            parts.sort_by_key(|part| part.tensor);
        }
        let mut layout = self.layout.clone();
        // Those of other tensors' bytes, if it is the metadata of another file.
        layout.metadata.retain(|key, _| !checksum::is_key(key));
        tied::record(&mut layout.metadata, &aliases)?;
        Ok(Plan {
            parts,
            aliases,
            layout,
        })
    }

    fn part<'a, T>(&self, at: usize, name: &'a str, tensor: &T) -> Result<Part<'a>>
    where
        F: SaveFrom<T>,
    {
        let (held, shape) = (F::dtype(tensor)?, F::shape(tensor));
        let info = TensorInfo::new(name, held, &shape, 0..byte_len(held, &shape)?);
        let dtype = self.cast.as_ref().and_then(|cast| cast(&info));
        let dtype = dtype.unwrap_or(held);
        Ok(Part {
            tensor: at,
            name,
            held,
            dtype,
            cast: cast_between(held, dtype)?,
            bytes: byte_len(dtype, &shape)?,
            shape,
        })
    }

    /// Gives a tensor's bytes to `write`, if they are those of a tensor like `expected`.
    pub(crate) fn overwrite_tensor<T>(
        &self,
        expected: &TensorInfo,
        tensor: &T,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>
    where
        F: SaveFrom<T>,
    {
        let part = self.part::<T>(0, expected.name(), tensor)?;
        if (part.dtype, &*part.shape) != (expected.dtype(), expected.shape()) {
            let (dtype, shape) = (expected.dtype(), expected.shape());
            let (found, found_shape) = (part.dtype, &part.shape);
            let message = format!(
                "it is {dtype} {shape:?}, not to be overwritten by {found} {found_shape:?}"
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let mut meter = Meter::new(self, std::slice::from_ref(&part));
        part.write::<F, T>(tensor, &mut meter, &mut write)
    }
}

impl<F> Clone for Saver<F> {
    fn clone(&self) -> Saver<F> {
        Saver {
            layout: self.layout.clone(),
            cast: self.cast.clone(),
            progress: self.progress.clone(),
            ..*self
        }
    }
}

impl<F> fmt::Debug for Saver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver")
            .field("metadata", &self.layout.metadata)
            .field("max_shard_size", &self.max_shard_size)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

/// What a save is going to do.
struct Plan<'a> {
    /// In the order in which shards are filled.
    parts: Vec<Part<'a>>,
    aliases: Vec<(String, String)>,
    /// Of every file, but for the tensors.
    layout: Layout,
}

impl Plan<'_> {
    /// The layout of a file of these tensors.
    fn layout_of(&self, parts: &[&Part]) -> Result<Layout> {
        let mut layout = self.layout.clone();
        for part in parts {
            layout.tensor(part.name, part.dtype, &part.shape)?;
        }
        Ok(layout)
    }
}

/// A tensor that is to be written.
struct Part<'a> {
    /// Its place among those given.
    tensor: usize,
    name: &'a str,
    /// What the framework holds it as.
    held: Dtype,
    /// In the file.
    dtype: Dtype,
    cast: Option<Cast>,
    shape: Vec<usize>,
    /// In the file.
    bytes: u64,
}

impl Part<'_> {
    fn write<F: SaveFrom<T>, T>(
        &self,
        tensor: &T,
        meter: &mut Meter,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut block = Vec::new();
        let mut written = 0;
        let mut write = |bytes: &[u8]| {
            let len = bytes.len() as u64;
            if len > self.bytes - written {
                return Err(self.wrong_length(written + len));
            }
            write(bytes)?;
            written += len;
            meter.add(len);
            Ok(())
        };
        let given = F::bytes(tensor, &mut |bytes| match &self.cast {
            None => write(bytes),
            Some(_) if !self.holds_whole(bytes) => {
                let (len, dtype) = (bytes.len(), self.held);
                let message = format!("a piece of {len} bytes is no whole number of {dtype}");
                Err(Error::new(ErrorKind::Framework, message))
            }
            Some(cast) => bytes.chunks(BLOCK).try_for_each(|bytes| {
                block.resize(cast.output_len_of_block(bytes.len()), 0);
                cast.apply(bytes, as_uninit(&mut block));
                write(&block)
            }),
        });
        given
            .and_then(|()| match written == self.bytes {
                true => Ok(()),
                false => Err(self.wrong_length(written)),
            })
            .map_err(|error| error.with_tensor(self.name))
    }

    fn holds_whole(&self, bytes: &[u8]) -> bool {
        let size = self.held.bytes();
        size.is_some_and(|size| bytes.len().is_multiple_of(size))
    }

    /// The error of a framework that does not give the bytes of what it says the tensor is.
    fn wrong_length(&self, found: u64) -> Error {
        let (dtype, shape, needed) = (self.dtype, &self.shape, self.bytes);
        let message = format!("it gave {found} bytes, {dtype} {shape:?} needs {needed}");
        Error::new(ErrorKind::Framework, message)
    }
}

/// What is cast at once: whole elements of every dtype that can be, in the processor's cache.
const BLOCK: usize = 256 << 10;

fn in_file_order<'a, 'b>(parts: &[&'b Part<'a>], header: &Header) -> Vec<&'b Part<'a>> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| header.position(part.name));
    parts
}

/// Counts bytes that have been written, and tells who wants to know.
struct Meter {
    done: u64,
    total: u64,
    progress: Option<Arc<ProgressFn>>,
}

impl Meter {
    fn new<F>(saver: &Saver<F>, parts: &[Part]) -> Meter {
        Meter {
            done: 0,
            total: parts
                .iter()
                .map(|part| part.bytes)
                .fold(0, u64::saturating_add),
            progress: saver.progress.clone(),
        }
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(progress) = &self.progress {
            progress(self.done, self.total);
        }
    }
}

/// What a save has done.
#[derive(Debug)]
#[non_exhaustive]
pub struct SaveReport {
    /// The files that make up the checkpoint now; the index is the last one, where there is one.
    pub files: Vec<PathBuf>,
    /// Names that were not written, each with the name under which its tensor was.
    pub aliases: Vec<(String, String)>,
    /// The bytes of all tensors in the files.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}
