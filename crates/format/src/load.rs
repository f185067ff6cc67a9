//! Loading a checkpoint into a framework: the part that is the same for all of them.
//!
//! A framework says how it holds a dtype, allocates memory, and makes tensors of it once it is
//! filled ([`Framework`]). The [`Loader`] does the rest: it decides by its policies what is read
//! where, in file order, and has it read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::buffer::Memory;
use crate::cast::{Cast, cast_between};
use crate::checkpoint::Shard;
use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::read::{self, Meter, ReadOptions, Transfer};
use crate::slice::Runs;
use crate::{Checkpoint, Dtype, Slice, TensorInfo, checksum, threads};

/// What an adapter tells the [`Loader`] about its framework.
pub trait Framework {
    /// The framework's name, as errors say it.
    const NAME: &'static str;

    /// The framework's tensor.
    type Tensor;

    /// Memory that becomes tensors.
    type Memory: Memory;

    /// The dtype in which the framework holds values of `dtype`: the same, or one that holds all
    /// of its values exactly, or `None` where there is none.
    fn held_as(&self, dtype: Dtype) -> Option<Dtype>;

    /// Whether several tensors of this dtype may be views of one allocation.
    fn shares_memory(&self, dtype: Dtype) -> bool;

    /// Whether the memory is only on its way, to another device, so that not too much of it
    /// should be in use at once.
    fn is_staging(&self) -> bool;

    /// Memory for `bytes` bytes of elements of `dtype`, which need not be initialised.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](ErrorKind::OutOfMemory), or an error of the framework.
    fn allocate(&self, dtype: Dtype, bytes: u64) -> Result<Self::Memory>;

    /// Makes tensors of filled memory: one of each part, in their order. The parts lie one after
    /// the other and cover the memory. There is more than one only where
    /// [`shares_memory`](Framework::shares_memory) says so.
    fn tensors(
        &self,
        memory: Self::Memory,
        dtype: Dtype,
        parts: &[Part<'_>],
    ) -> Vec<Result<Self::Tensor>>;

    /// Another tensor of the same elements, which shares their memory where the framework can.
    fn share(&self, tensor: &Self::Tensor) -> Self::Tensor;
}

/// One tensor within memory that it may share with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The tensor's shape.
    pub shape: Cow<'a, [usize]>,
    /// Its bytes in the memory.
    pub bytes: Range<u64>,
}

/// Loads checkpoints into a framework, by policies that are values of the loader.
///
/// Every adapter has its own name for it, such as `st_candle::Loader`. By default everything is
/// loaded, under its own name, in its own dtype, and a dtype the framework lacks is an error.
pub struct Loader<F> {
    framework: F,
    filter: Policy<dyn Fn(&str) -> bool + Send + Sync>,
    rename: Policy<dyn Fn(&str) -> String + Send + Sync>,
    cast: Policy<CastTo>,
    slice: Policy<dyn Fn(&TensorInfo) -> Slice + Send + Sync>,
    skip_unsupported: bool,
    resolve_aliases: bool,
    verify_checksums: bool,
    read: ReadOptions,
}

type Policy<F> = Option<Box<F>>;
type CastTo = dyn Fn(&TensorInfo) -> Option<Dtype> + Send + Sync;

impl<F: Framework> Loader<F> {
    /// A loader without policies.
    pub fn new(framework: impl Into<F>) -> Loader<F> {
        Loader {
            framework: framework.into(),
            filter: None,
            rename: None,
            cast: None,
            slice: None,
            skip_unsupported: false,
            resolve_aliases: false,
            verify_checksums: false,
            read: ReadOptions::new(),
        }
    }

    /// Loads only tensors whose name in the file passes.
    #[must_use]
    pub fn filter(mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Box::new(keep));
        self
    }

    /// Gives tensors other names than in the file. Two of the same new name are an error.
    #[must_use]
    pub fn rename(mut self, rename: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.rename = Some(Box::new(rename));
        self
    }

    /// Casts tensors to the dtype returned, where one is. See [`Dtype::casts_to`] for what can be
    /// cast.
    #[must_use]
    pub fn cast(
        mut self,
        dtype: impl Fn(&TensorInfo) -> Option<Dtype> + Send + Sync + 'static,
    ) -> Self {
        self.cast = Some(Box::new(dtype));
        self
    }

    /// Casts all floating point tensors to `dtype`; integers stay as they are.
    #[must_use]
    pub fn cast_floats(self, dtype: Dtype) -> Self {
        self.cast(move |info| info.dtype().is_float().then_some(dtype))
    }

    /// Loads part of tensors, such as a rank's share ([`Slice::share`]).
    #[must_use]
    pub fn slice(mut self, slice: impl Fn(&TensorInfo) -> Slice + Send + Sync + 'static) -> Self {
        self.slice = Some(Box::new(slice));
        self
    }

    /// Leaves out tensors whose dtype the framework lacks, or that cannot be cast as asked,
    /// instead of failing; the report names them.
    #[must_use]
    pub fn skip_unsupported(mut self) -> Self {
        self.skip_unsupported = true;
        self
    }

    /// Loads tensors under all of their names: those in the file, and the aliases that the metadata
    /// records ([`Checkpoint::aliases`]). They share their memory where the framework can.
    #[must_use]
    pub fn resolve_aliases(mut self) -> Self {
        self.resolve_aliases = true;
        self
    }

    /// Compares the tensors that are loaded with their recorded checksums first
    /// ([`Checkpoint::verify_checksums`]); one that has none is an error. It takes several times
    /// as long as the load itself.
    #[must_use]
    pub fn verify_checksums(mut self) -> Self {
        self.verify_checksums = true;
        self
    }

    /// Reads by this many threads at most; 0, the default, is one per processor.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.read = self.read.threads(threads);
        self
    }

    /// Calls `progress(done, total)` now and then, with bytes of the files, from any of the
    /// reading threads.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.read = self.read.progress(progress);
        self
    }

    /// Loads the checkpoint at `path` ([`Checkpoint::open`]).
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::open`]; [`Unsupported`](ErrorKind::Unsupported) for a dtype that the
    /// framework lacks; [`Framework`](ErrorKind::Framework) where it fails; and errors of the
    /// policies' making.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<HashMap<String, F::Tensor>> {
        self.load_with_report(path).map(|(tensors, _)| tensors)
    }

    /// As [`load`](Loader::load), and says what was done.
    ///
    /// # Errors
    ///
    /// As [`load`](Loader::load).
    pub fn load_with_report(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<(HashMap<String, F::Tensor>, LoadReport)> {
        self.load_checkpoint(&Checkpoint::open(path)?)
    }

    /// As [`load_with_report`](Loader::load_with_report), from a checkpoint that is already open.
    ///
    /// # Errors
    ///
    /// As [`load`](Loader::load).
    pub fn load_checkpoint(
        &self,
        checkpoint: &Checkpoint,
    ) -> Result<(HashMap<String, F::Tensor>, LoadReport)> {
        let start = Instant::now();
        let Plan {
            groups,
            skipped,
            aliases,
            to_verify,
        } = self.plan(checkpoint)?;
        threads::map(self.read.thread_limit(), &to_verify, |(shard, info)| {
            checksum::verify(shard, info)
        })?;
        let count = groups.iter().map(|group| group.parts.len()).sum();
        let bytes = groups.iter().map(Group::bytes_to_read);
        let meter = Meter::new(bytes.fold(0, u64::saturating_add));
        let mut tensors = HashMap::with_capacity(count);
        let mut loaded = Vec::with_capacity(count);
        for batch in self.batches(groups) {
            self.load_batch(batch, &meter, |name, tensor| {
                loaded.push(name.to_string());
                tensors.insert(name.into_owned(), tensor);
            })?;
        }
        for (alias, kept) in aliases {
            if let Some(tensor) = tensors.get(&kept) {
                let tensor = self.framework.share(tensor);
                loaded.push(alias.clone());
                tensors.insert(alias, tensor);
            }
        }
        let report = LoadReport {
            loaded,
            skipped,
            bytes: meter.total(),
            elapsed: start.elapsed(),
        };
        Ok((tensors, report))
    }

    /// Loads the tensor called `name` in the checkpoint, by the same policies; filter and rename
    /// play no part.
    ///
    /// # Errors
    ///
    /// As [`load`](Loader::load), and [`NotFound`](ErrorKind::NotFound).
    pub fn load_tensor(&self, checkpoint: &Checkpoint, name: &str) -> Result<F::Tensor> {
        let in_checkpoint = match self.resolve_aliases {
            true => checkpoint.resolve(name),
            false => name,
        };
        let (shard, info) = checkpoint.locate(in_checkpoint)?;
        if self.verify_checksums {
            checksum::verify(shard, &info)?;
        }
        let group = Group::of_one(self.route(shard, info)?, Cow::Borrowed(name));
        let meter = Meter::new(group.bytes_to_read());
        let mut loaded = None;
        self.load_batch(vec![group], &meter, |_, tensor| loaded = Some(tensor))?;
        loaded.ok_or_else(|| {
            let message = format!("{} made no tensor", F::NAME);
            Error::new(ErrorKind::Framework, message).with_tensor(name)
        })
    }

    /// What is read where, by all the policies.
    fn plan<'a>(&self, checkpoint: &'a Checkpoint) -> Result<Plan<'a>> {
        let mut plan = Plan::default();
        let mut renamed = HashMap::new();
        let aliases = match self.resolve_aliases {
            true => by_kept_name(checkpoint),
            false => HashMap::new(),
        };
        for (shard, info) in checkpoint.iter_with_shard() {
            let shard = &checkpoint.shards()[shard];
            let aliases = aliases.get(info.name()).into_iter().flatten();
            let mut names = std::iter::once(info.name())
                .chain(aliases.copied())
                .filter(|name| self.filter.as_ref().is_none_or(|keep| keep(name)));
            let Some(name) = names.next() else {
                continue;
            };
            let route = match self.route(shard, info) {
                Ok(route) => route,
                Err(error) if self.skip_unsupported && error.kind() == ErrorKind::Unsupported => {
                    let name = info.name().to_owned();
                    plan.skipped.push(Skipped {
                        name,
                        reason: error,
                    });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut new_name = |name| {
                let name = self.new_name(name, &mut renamed);
                name.map_err(|error| error.with_path(shard.path()))
            };
            let name = new_name(name)?;
            for alias in names {
                let alias = new_name(alias)?.into_owned();
                plan.aliases.push((alias, name.clone().into_owned()));
            }
            if self.verify_checksums {
                plan.to_verify.push((shard, info));
            }
            let shares = self.framework.shares_memory(route.dtype);
            match plan.groups.last_mut() {
                Some(group) if shares && group.continues_with(&route) => group.push(route, name),
                _ => plan.groups.push(Group::of_one(route, name)),
            }
        }
        Ok(plan)
    }

    fn new_name<'a>(
        &self,
        name: &'a str,
        renamed: &mut HashMap<String, &'a str>,
    ) -> Result<Cow<'a, str>> {
        let Some(rename) = &self.rename else {
            return Ok(Cow::Borrowed(name));
        };
        let new_name = rename(name);
        match renamed.entry(new_name.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(name);
                Ok(Cow::Owned(new_name))
            }
            Entry::Occupied(other) => {
                let (new_name, other) = (Quoted(&new_name), Quoted(other.get()));
                let message = format!("renamed to {new_name}, and so is {other}");
                Err(Error::new(ErrorKind::InvalidRequest, message).with_tensor(name))
            }
        }
    }

    fn route<'a>(&self, shard: &'a Shard, info: TensorInfo<'a>) -> Result<Route<'a>> {
        let route = || {
            let wanted = self.cast.as_ref().and_then(|cast| cast(&info));
            let wanted = wanted.unwrap_or(info.dtype());
            let dtype = self.framework.held_as(wanted);
            let dtype = dtype.ok_or_else(|| Error::unsupported(wanted, F::NAME))?;
            let cast = cast_between(info.dtype(), dtype)?;
            let slice = self.slice.as_ref().map(|slice| slice(&info));
            let (runs, shape) = match slice.filter(|slice| *slice != Slice::all()) {
                None => (shard.runs_of(&info), Cow::Borrowed(info.shape())),
                Some(slice) => {
                    let (runs, shape) = Runs::of_slice(&slice, &info, shard.header().data_start())?;
                    (runs, Cow::Owned(shape))
                }
            };
            let bytes = read::output_len(cast.as_ref(), runs.byte_len())?;
            Ok(Route {
                shard,
                info,
                dtype,
                cast,
                runs,
                shape,
                bytes,
            })
        };
        route().map_err(|error: Error| error.with_path(shard.path()).with_tensor(info.name()))
    }

    /// Cuts the work so that not too much memory is on its way to another device at once.
    fn batches<'a>(&self, groups: Vec<Group<'a>>) -> Vec<Vec<Group<'a>>> {
        if !self.framework.is_staging() {
            return vec![groups];
        }
        let mut batches: Vec<Vec<Group>> = Vec::new();
        let mut staged: u64 = 0;
        for group in groups {
            staged = staged.saturating_add(group.bytes_in_memory());
            match batches.last_mut() {
                Some(batch) if staged <= STAGED => batch.push(group),
                _ => {
                    staged = group.bytes_in_memory();
                    batches.push(vec![group]);
                }
            }
        }
        batches
    }

    fn load_batch<'a>(
        &self,
        groups: Vec<Group<'a>>,
        meter: &Meter,
        mut loaded: impl FnMut(Cow<'a, str>, F::Tensor),
    ) -> Result<()> {
        let mut transfers = Vec::with_capacity(groups.len());
        for group in &groups {
            let memory = self
                .framework
                .allocate(group.dtype, group.bytes_in_memory());
            transfers.push(Transfer {
                shard: group.shard,
                tensor: group.tensor,
                runs: group.runs.clone(),
                cast: group.cast,
                memory: memory.map_err(|error| {
                    error
                        .with_path(group.shard.path())
                        .with_tensor(group.tensor)
                })?,
            });
        }
        read::read_all(&mut transfers, &self.read, meter)?;
        for (group, transfer) in groups.into_iter().zip(transfers) {
            let tensors = self
                .framework
                .tensors(transfer.memory, group.dtype, &group.parts);
            for (name, tensor) in group.names.into_iter().zip(tensors) {
                let tensor = tensor
                    .map_err(|error| error.with_path(group.shard.path()).with_tensor(&name))?;
                loaded(name, tensor);
            }
        }
        Ok(())
    }
}

impl<F> fmt::Debug for Loader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("skip_unsupported", &self.skip_unsupported)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

/// Tensors smaller than this share an allocation with their neighbours in the file: what bounds
/// the load of many small tensors is allocating them. A shared allocation is freed as a whole.
const SMALL: u64 = 1 << 20;

/// How large a shared allocation may get.
const ARENA: u64 = 64 << 20;

/// How much may be on its way to another device at once.
const STAGED: u64 = 256 << 20;

/// What a load is going to do.
#[derive(Default)]
struct Plan<'a> {
    groups: Vec<Group<'a>>,
    skipped: Vec<Skipped>,
    /// New names of further tensors, each with the new name of the one it shares memory with.
    aliases: Vec<(String, String)>,
    to_verify: Vec<(&'a Shard, TensorInfo<'a>)>,
}

/// The aliases of each tensor that has any.
fn by_kept_name(checkpoint: &Checkpoint) -> HashMap<&str, Vec<&str>> {
    let mut by_kept_name: HashMap<&str, Vec<&str>> = HashMap::new();
    for (alias, kept) in checkpoint.aliases() {
        by_kept_name.entry(kept).or_default().push(alias);
    }
    by_kept_name
}

/// The way of one tensor from its file to memory.
struct Route<'a> {
    shard: &'a Shard,
    info: TensorInfo<'a>,
    dtype: Dtype,
    cast: Option<Cast>,
    runs: Runs,
    shape: Cow<'a, [usize]>,
    /// In memory.
    bytes: u64,
}

/// Tensors that lie one after the other in a file and will in memory.
struct Group<'a> {
    shard: &'a Shard,
    /// The first one's name in the file.
    tensor: &'a str,
    from: Dtype,
    dtype: Dtype,
    cast: Option<Cast>,
    runs: Runs,
    parts: Vec<Part<'a>>,
    names: Vec<Cow<'a, str>>,
}

impl<'a> Group<'a> {
    fn of_one(route: Route<'a>, name: Cow<'a, str>) -> Group<'a> {
        Group {
            shard: route.shard,
            tensor: route.info.name(),
            from: route.info.dtype(),
            dtype: route.dtype,
            cast: route.cast,
            runs: route.runs,
            parts: vec![Part {
                shape: route.shape,
                bytes: 0..route.bytes,
            }],
            names: vec![name],
        }
    }

    fn continues_with(&self, next: &Route) -> bool {
        let last = self
            .parts
            .last()
            .map_or(0, |part| part.bytes.end - part.bytes.start);
        last.max(next.bytes) < SMALL
            && self.bytes_in_memory() + next.bytes <= ARENA
            && std::ptr::eq(self.shard, next.shard)
            && (self.from, self.dtype) == (next.info.dtype(), next.dtype)
            && self.runs.is_followed_by(&next.runs)
    }

    fn push(&mut self, route: Route<'a>, name: Cow<'a, str>) {
        let begin = self.bytes_in_memory();
        self.runs.lengthen(route.runs.byte_len());
        self.parts.push(Part {
            shape: route.shape,
            bytes: begin..begin + route.bytes,
        });
        self.names.push(name);
    }

    fn bytes_to_read(&self) -> u64 {
        self.runs.byte_len()
    }

    fn bytes_in_memory(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.bytes.end)
    }
}

/// What a load has done.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadReport {
    /// Names of the tensors that were loaded, as they are called now, in file order; those of
    /// aliases come last.
    pub loaded: Vec<String>,
    /// The tensors that were left out because of their dtype.
    pub skipped: Vec<Skipped>,
    /// How many bytes of the files were asked for.
    pub bytes: u64,
    /// How long it took, without opening the checkpoint.
    pub elapsed: Duration,
}

/// A tensor that was left out.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// Its name in the file.
    pub name: String,
    /// Why.
    pub reason: Error,
}
