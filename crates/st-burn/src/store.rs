//! A checkpoint as burn-store's [`ModuleStore`]: what a module is loaded from and saved into.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn_store::burn_pack::Tensor;
use burn_store::{
    ApplyError, ApplyResult, IdentityAdapter, ModuleAdapter, ModuleSnapshot, ModuleStore,
    PathFilter,
};
use st_format::{Checkpoint, Error, ErrorKind, Framework, Result, TensorInfo};

use crate::filter::Filter;
use crate::names::Names;
use crate::save::Parameter;
use crate::{Burn, Saver, deferred};

/// A checkpoint that a burn module is loaded from, or a file that it is saved into.
///
/// It does what burn-store's `SafetensorsStore` does, by the same names where a name is more than
/// a shorthand, for sharded checkpoints as well, and parses each header once. Tensors are read
/// when their parameter's turn comes: what the module does not take is never read.
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Device;
/// use st_burn::Store;
/// use st_burn::burn_store::{ModuleSnapshot, PyTorchToBurnAdapter};
///
/// #[derive(Module, Debug)]
/// struct Model {
///     layer: Linear,
/// }
///
#[doc = include_str!("doc_setup.txt")]
/// # let config = LinearConfig::new(3, 2).with_bias(false);
/// let mut model = Model { layer: config.init(&Device::flex()) };
/// let mut store = Store::open(&path)?
///     .with_key_remapping(r"^model\.", "layer.")?
///     .with_from_adapter(PyTorchToBurnAdapter);
/// let result = model.load_from(&mut store)?;
/// assert_eq!(result.applied, ["layer.weight"]);
/// # let saved = dir.path().join("saved.safetensors");
///
/// model.save_into(&mut Store::create(&saved))?;
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Where it differs
///
/// - Patterns that are no regular expressions are errors, not panics.
/// - Two tensors of one new name are an error; `SafetensorsStore` keeps one of them.
/// - A dtype that burn lacks is an error of its tensor, and only where the module asks for it.
/// - U16 is loaded and saved. Bools are saved as BOOL, whatever the backend holds them as.
/// - Parameters that are tied (of one id and the same elements) are saved once, and loaded under
///   all of their names: those that the checkpoint records as aliases ([`Checkpoint::aliases`]).
/// - A save replaces the file that is there, once all of the new one is; and it writes no
///   metadata but what [`metadata`](Store::metadata) says.
pub struct Store {
    place: Place,
    names: Names,
    filter: Filter,
    from_adapter: Box<dyn ModuleAdapter>,
    to_adapter: Box<dyn ModuleAdapter>,
    skip_enum_variants: bool,
    allow_partial: bool,
    validate: bool,
    saver: Saver,
    /// The checkpoint's tensors by their names in the module, once they have been asked for.
    tensors: Option<BTreeMap<String, Tensor>>,
    /// Of those tensors: further names, each with the first one.
    aliases: BTreeMap<String, String>,
}

enum Place {
    /// To be loaded from.
    Checkpoint(Arc<Checkpoint>),
    /// To be saved into, and loaded from once that is done.
    File(PathBuf),
}

impl Store {
    /// A store to load from: a file, an index, or the directory of either. Its headers are read
    /// now.
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Checkpoint::open(path).map(Store::from)
    }

    /// A store to save into: the file at `path`, which is left alone until then.
    pub fn create(path: impl Into<PathBuf>) -> Store {
        Store::at(Place::File(path.into()))
    }

    fn at(place: Place) -> Store {
        Store {
            place,
            names: Names::default(),
            filter: Filter::default(),
            from_adapter: Box::new(IdentityAdapter),
            to_adapter: Box::new(IdentityAdapter),
            skip_enum_variants: false,
            allow_partial: false,
            validate: true,
            saver: Saver::new(),
            tensors: None,
            aliases: BTreeMap::new(),
        }
    }

    /// Loads, or saves, only what passes burn-store's filter, or another criterion of this store.
    /// On a load it is asked about the module's paths, on a save about the tensors' names.
    #[must_use]
    pub fn filter(mut self, filter: PathFilter) -> Self {
        self.filter.paths = self.filter.paths.or(filter);
        self
    }

    /// Loads, or saves, what matches the regular expression, as well as what passes another
    /// criterion of this store.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where it is no regular expression.
    pub fn with_regex(mut self, pattern: impl AsRef<str>) -> Result<Self> {
        self.filter.add_regex(pattern.as_ref())?;
        Ok(self)
    }

    /// Loads, or saves, the parameter of this path, as well as what passes another criterion of
    /// this store.
    #[must_use]
    pub fn with_full_path(self, path: impl Into<String>) -> Self {
        self.filter(PathFilter::new().with_full_path(path))
    }

    /// Replaces every match of the regular expression in tensors' names, after the replacements
    /// said before; `$1` is what its first group matched.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where it is no regular expression.
    pub fn with_key_remapping(
        mut self,
        pattern: impl AsRef<str>,
        replacement: impl Into<String>,
    ) -> Result<Self> {
        self.tensors = None;
        self.names.replace(pattern.as_ref(), replacement.into())?;
        Ok(self)
    }

    /// Gives tensors other names, after the replacements said before.
    #[must_use]
    pub fn rename(mut self, rename: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.tensors = None;
        self.names.rename(rename);
        self
    }

    /// On a load, counts the numbers in names through from 0, at each place and after all
    /// renaming: the layers 0, 2 and 4 of a `Sequential` of PyTorch's become 0, 1 and 2.
    #[must_use]
    pub fn map_indices_contiguous(mut self, map: bool) -> Self {
        self.tensors = None;
        self.names.contiguous = map;
        self
    }

    /// Changes tensors on their way into a module, by the module they are in:
    /// [`PyTorchToBurnAdapter`](burn_store::PyTorchToBurnAdapter),
    /// [`FloatCastAdapter`](burn_store::FloatCastAdapter).
    #[must_use]
    pub fn with_from_adapter(mut self, adapter: impl ModuleAdapter + 'static) -> Self {
        self.from_adapter = Box::new(adapter);
        self
    }

    /// Changes tensors on their way out of a module, by the module they are in:
    /// [`BurnToPyTorchAdapter`](burn_store::BurnToPyTorchAdapter).
    #[must_use]
    pub fn with_to_adapter(mut self, adapter: impl ModuleAdapter + 'static) -> Self {
        self.to_adapter = Box::new(adapter);
        self
    }

    /// Leaves the names of enums' variants out of the module's paths, as PyTorch's names have
    /// none.
    #[must_use]
    pub fn skip_enum_variants(mut self, skip: bool) -> Self {
        self.skip_enum_variants = skip;
        self
    }

    /// Lets the module ask for tensors that are not there; they are in the result's `missing`.
    #[must_use]
    pub fn allow_partial(mut self, allow: bool) -> Self {
        self.allow_partial = allow;
        self
    }

    /// Whether a tensor that could not be applied makes the load an error, which is the default.
    /// Otherwise it is in the result's `errors`.
    #[must_use]
    pub fn validate(mut self, validate: bool) -> Self {
        self.validate = validate;
        self
    }

    /// Saves this text with the tensors. Libraries of Python expect `format` to be `pt`.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.saver = self.saver.metadata(key, value);
        self
    }

    /// Saves by the policies of this saver, in place of metadata said before: casts, shards,
    /// checksums.
    #[must_use]
    pub fn saver(mut self, saver: Saver) -> Self {
        self.saver = saver;
        self
    }

    fn path(&self) -> &Path {
        match &self.place {
            Place::Checkpoint(checkpoint) => checkpoint.path(),
            Place::File(path) => path,
        }
    }

    fn checkpoint(&self) -> Result<Arc<Checkpoint>> {
        match &self.place {
            Place::Checkpoint(checkpoint) => Ok(Arc::clone(checkpoint)),
            Place::File(path) => Checkpoint::open(path).map(Arc::new),
        }
    }

    /// The tensors, each under all of its names, and which of the names are further ones.
    fn tensors(&self) -> Result<(BTreeMap<String, Tensor>, BTreeMap<String, String>)> {
        let checkpoint = self.checkpoint()?;
        let aliases = checkpoint.aliases();
        let aliases = aliases
            .iter()
            .filter_map(|(&alias, kept)| Some((alias, checkpoint.get(kept)?)));
        let own = checkpoint.iter().map(|info| (info.name(), info));
        let (in_file, infos): (Vec<&str>, Vec<TensorInfo>) = own.chain(aliases).unzip();
        let names = self.names.in_module(&in_file);
        let names = names.map_err(|error| error.with_path(self.path()))?;
        let own_names = || names.iter().zip(&infos).take(checkpoint.len());
        let first: HashMap<&str, &String> = own_names()
            .map(|(name, info)| (info.name(), name))
            .collect();
        let aliases = names.iter().zip(&infos).skip(checkpoint.len());
        let aliases = aliases.map(|(alias, info)| (alias.clone(), first[info.name()].clone()));
        let aliases = aliases.collect();
        let tensors = infos.iter().zip(&names).map(|(info, name)| {
            let tensor = deferred::tensor(&checkpoint, info, name.clone());
            (name.clone(), tensor)
        });
        Ok((tensors.collect(), aliases))
    }

    /// Leaves tensors that the module has taken under another of their names out of those it has
    /// not asked for.
    fn leave_used_out(&self, unused: &mut Vec<String>) {
        let (Some(tensors), false) = (&self.tensors, self.aliases.is_empty()) else {
            return;
        };
        let first = |name: &String| self.aliases.get(name).unwrap_or(name).clone();
        let not_used: HashSet<&String> = unused.iter().collect();
        let used = tensors.keys().filter(|name| !not_used.contains(name));
        let used: HashSet<String> = used.map(first).collect();
        unused.retain(|name| !self.aliases.contains_key(name) && !used.contains(name));
    }

    /// The error that a result is, by this store's policies.
    fn check(&self, result: &ApplyResult) -> Result<()> {
        if self.validate
            && let [error, others @ ..] = &*result.errors
        {
            let message = match others.len() {
                0 => Burn::NAME.to_owned(),
                others => format!("{} (and {others} more)", Burn::NAME),
            };
            return Err(Error::new(ErrorKind::Framework, message)
                .with_source(error.clone())
                .with_tensor(path_of(error))
                .with_path(self.path()));
        }
        if !self.allow_partial
            && let [(missing, _), others @ ..] = &*result.missing
        {
            let mut message = "the module has it, the checkpoint does not".to_owned();
            if !others.is_empty() {
                message += &format!(" (and {} more)", others.len());
            }
            if let [unused, others @ ..] = &*result.unused {
                message += &format!("; not asked for: {unused:?} (and {} more)", others.len());
            }
            return Err(Error::new(ErrorKind::NotFound, message)
                .with_tensor(missing)
                .with_path(self.path()));
        }
        Ok(())
    }
}

fn path_of(error: &ApplyError) -> &str {
    match error {
        ApplyError::ShapeMismatch { path, .. }
        | ApplyError::DTypeMismatch { path, .. }
        | ApplyError::AdapterError { path, .. }
        | ApplyError::LoadError { path, .. } => path,
    }
}

/// A store to load from, of a checkpoint that is open already. One in memory is not copied.
impl From<Checkpoint> for Store {
    fn from(checkpoint: Checkpoint) -> Store {
        Store::at(Place::Checkpoint(Arc::new(checkpoint)))
    }
}

impl ModuleStore for Store {
    type Error = Error;

    fn collect_from<M: ModuleSnapshot>(&mut self, module: &M) -> Result<()> {
        let Place::File(path) = &self.place else {
            let message = "the store was opened to load from; `Store::create` makes one to save";
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_path(self.path()));
        };
        self.tensors = None;
        let adapter = self.to_adapter.clone();
        let mut tensors = module.collect(None, Some(adapter), self.skip_enum_variants);
        tensors.retain(|tensor| self.filter.passes(&tensor.name));
        let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.name).collect();
        let names = self.names.in_file(&names);
        let names = names.map_err(|error| error.with_path(path))?;

        let parameters = Parameter::of_module(tensors).map_err(|error| error.with_path(path))?;
        let report = self.saver.save(path, names.iter().zip(parameters))?;
        // A sharded one is loaded by its index.
        if let Some(saved) = report.files.into_iter().next_back() {
            self.place = Place::File(saved);
        }
        Ok(())
    }

    fn apply_to<M: ModuleSnapshot>(&mut self, module: &mut M) -> Result<ApplyResult> {
        let tensors = self.get_all_tensors()?.values().cloned().collect();
        let mut result = module.apply(
            tensors,
            self.filter.for_module(module, self.skip_enum_variants),
            Some(self.from_adapter.clone()),
            self.skip_enum_variants,
        );
        self.leave_used_out(&mut result.unused);
        self.check(&result)?;
        Ok(result)
    }

    fn get_tensor(&mut self, name: &str) -> Result<Option<&Tensor>> {
        Ok(self.get_all_tensors()?.get(name))
    }

    fn get_all_tensors(&mut self) -> Result<&BTreeMap<String, Tensor>> {
        let tensors = match self.tensors.take() {
            Some(tensors) => tensors,
            None => {
                let (tensors, aliases) = self.tensors()?;
                self.aliases = aliases;
                tensors
            }
        };
        Ok(self.tensors.insert(tensors))
    }

    fn keys(&mut self) -> Result<Vec<String>> {
        Ok(self.get_all_tensors()?.keys().cloned().collect())
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
