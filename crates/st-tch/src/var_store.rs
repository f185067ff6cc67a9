//! The variables of a model, loaded and saved.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use st_format::{Checkpoint, Dtype, Error, ErrorKind, Read, ReadOptions, Result, TensorInfo};
use tch::nn::VarStore;
use tch::{Device, TchError, Tensor};

use crate::error::tch_error;
use crate::in_place;
use crate::save::{dtype_of, shape_of};
use crate::{Loader, save_from_tch};

/// Writes all variables of a store, trainable or not, to a file.
///
/// The file appears, or replaces what is there, when it is complete. PyTorch's `load_file` and
/// tch's own `VarStore::load` read it; but of variables that are tied, the latter finds only the
/// one that is saved.
///
/// # Errors
///
/// As [`save_from_tch`].
pub fn export_var_store(path: impl AsRef<Path>, store: &VarStore) -> Result<()> {
    save_from_tch(path, variables_of(store))
}

/// Reads a checkpoint (a file, an index, or the directory of either) into the variables of a
/// store.
///
/// The variables stay the same ones: an optimiser that was made before goes on with the values
/// loaded, and a variable keeps its kind, device and memory. On the CPU the data is read straight
/// into that memory. A float is rounded where the variable is a narrower one; any other change of
/// dtype has to keep every value. A variable whose name the checkpoint records as an alias
/// ([`Checkpoint::aliases`]), as [`export_var_store`] does for tied variables, gets the tensor kept
/// for it.
///
/// Where a tensor does not fit its variable, nothing at all is changed. Otherwise what both have
/// is loaded, and the report says what only one of them has; [`LoadReport::strict`] makes that an
/// error.
///
/// ```
/// use st_tch::tch::{Device, nn};
/// use st_tch::{export_var_store, load_into_var_store};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.safetensors");
/// let store = nn::VarStore::new(Device::Cpu);
/// let layer = nn::linear(store.root() / "layer", 3, 2, nn::LinearConfig::default());
/// export_var_store(&path, &store)?;
///
/// let mut other_store = nn::VarStore::new(Device::Cpu);
/// let other = nn::linear(other_store.root() / "layer", 3, 2, nn::LinearConfig::default());
/// load_into_var_store(&path, &mut other_store)?.strict()?;
/// assert_eq!(other.ws, layer.ws);
/// # Ok::<(), st_tch::format::Error>(())
/// ```
///
/// # Errors
///
/// As [`Checkpoint::open`]; [`Io`](ErrorKind::Io), after which some variables may hold part of
/// the data; and [`Framework`](ErrorKind::Framework).
pub fn load_into_var_store(path: impl AsRef<Path>, store: &mut VarStore) -> Result<LoadReport> {
    let checkpoint = Checkpoint::open(path)?;
    let mut variables = variables_of(store);
    let mut report = compare(&checkpoint, &variables);
    if report.mismatched.is_empty() {
        variables.retain(|name, _| checkpoint.get(checkpoint.resolve(name)).is_some());
        let (names, variables): (Vec<String>, Vec<Tensor>) = variables.into_iter().unzip();
        let in_file: Vec<&str> = names.iter().map(|name| checkpoint.resolve(name)).collect();
        load(&checkpoint, &in_file, variables)?;
        report.loaded = names;
    }
    Ok(report)
}

/// What a load into a [`VarStore`] has done. All names are sorted.
#[derive(Debug)]
#[must_use = "nothing is loaded where something does not fit"]
#[non_exhaustive]
pub struct LoadReport {
    /// The variables that hold the checkpoint's values now: none where `mismatched` has any.
    pub loaded: Vec<String>,
    /// The variables that the checkpoint has no tensor for; they stay as they are.
    pub missing: Vec<String>,
    /// The tensors that the store has no variable for.
    pub unexpected: Vec<String>,
    /// The tensors that do not fit their variable, because of which nothing was loaded.
    pub mismatched: Vec<Mismatch>,
    path: PathBuf,
}

/// A tensor that does not fit the variable of its name.
#[derive(Debug)]
#[non_exhaustive]
pub struct Mismatch {
    /// The name.
    pub name: String,
    /// Both shapes, or both dtypes.
    pub reason: Error,
}

impl LoadReport {
    /// Makes anything an error that is not everything: tensors that do not fit, variables that
    /// have none, tensors that have no variable.
    ///
    /// # Errors
    ///
    /// The reason of the first mismatch; [`NotFound`](ErrorKind::NotFound) where variables are
    /// missing, and [`InvalidRequest`](ErrorKind::InvalidRequest) where tensors are unexpected.
    pub fn strict(mut self) -> Result<()> {
        if !self.mismatched.is_empty() {
            return Err(self.mismatched.swap_remove(0).reason);
        }
        let (kind, names, fault) = match (&*self.missing, &*self.unexpected) {
            ([], []) => return Ok(()),
            ([], names) => (ErrorKind::InvalidRequest, names, "no variable for"),
            (names, _) => (ErrorKind::NotFound, names, "no tensor for"),
        };
        let message = format!("{fault} {}", Few(names));
        Err(Error::new(kind, message).with_path(&self.path))
    }
}

/// A store's variables by name; the handles are further ones to the same variables.
fn variables_of(store: &VarStore) -> BTreeMap<String, Tensor> {
    let variables = store.variables_.lock();
    // Nothing here depends on what a panic may have left undone.
    let variables = variables.unwrap_or_else(|poison| poison.into_inner());
    let all = variables.named_variables.iter();
    all.map(|(name, variable)| (name.clone(), variable.shallow_clone()))
        .collect()
}

fn compare(checkpoint: &Checkpoint, variables: &BTreeMap<String, Tensor>) -> LoadReport {
    let mut report = LoadReport {
        loaded: Vec::new(),
        missing: Vec::new(),
        unexpected: Vec::new(),
        mismatched: Vec::new(),
        path: checkpoint.path().to_owned(),
    };
    for (name, variable) in variables {
        match checkpoint.get(checkpoint.resolve(name)) {
            None => report.missing.push(name.clone()),
            Some(info) => {
                if let Err(reason) = check_fits(&info, variable) {
                    report.mismatched.push(Mismatch {
                        name: name.clone(),
                        reason: reason.with_path(checkpoint.path()).with_tensor(name),
                    });
                }
            }
        }
    }
    let wanted: HashSet<&str> = variables
        .keys()
        .map(|name| checkpoint.resolve(name))
        .collect();
    let names = checkpoint.iter().map(|info| info.name());
    let unexpected = names.filter(|name| !wanted.contains(name));
    report.unexpected = unexpected.map(str::to_owned).collect();
    report.unexpected.sort_unstable();
    report
}

fn check_fits(info: &TensorInfo, variable: &Tensor) -> Result<()> {
    let (from, to) = (info.dtype(), dtype_of(variable)?);
    let shape = shape_of(variable);
    if info.shape() != shape {
        let message = format!("shape is {:?}, the variable's is {shape:?}", info.shape());
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    let both_floats = from.is_float() && to.is_float();
    if from.casts_exactly_to(to) || (both_floats && from.casts_to(to)) {
        return Ok(());
    }
    let message = format!("dtype is {from}, the variable's is {to}");
    Err(Error::new(ErrorKind::InvalidRequest, message))
}

/// Reads into variables that fit.
fn load(checkpoint: &Checkpoint, names: &[&str], mut variables: Vec<Tensor>) -> Result<()> {
    let dtypes: Vec<Dtype> = variables.iter().map(dtype_of).collect::<Result<_>>()?;
    let of_tensor = |name, error: Error| error.with_path(checkpoint.path()).with_tensor(name);
    let mut apart = Vec::with_capacity(names.len());
    let mut reads = Vec::with_capacity(names.len());
    let memory = in_place::bytes_of(&mut variables);
    for ((&name, &dtype), memory) in names.iter().zip(&dtypes).zip(memory) {
        apart.push(memory.is_some());
        reads.extend(memory.map(|bytes| Read::new(name, bytes).cast(dtype)));
    }
    checkpoint.read_into(reads, &ReadOptions::new())?;

    let _no_grad = tch::no_grad_guard();
    for (at, variable) in variables.iter_mut().enumerate() {
        let (name, dtype) = (names[at], dtypes[at]);
        let done = match apart[at] {
            true => count_as_changed(variable),
            false => {
                let loader = Loader::new(Device::Cpu).cast(move |_| Some(dtype));
                variable.f_copy_(&loader.load_tensor(checkpoint, name)?)
            }
        };
        done.map_err(|error| of_tensor(name, tch_error(error)))?;
    }
    Ok(())
}

/// Tells autograd that a variable has been written to, so that a backward pass that needs its old
/// values is an error, as it is after any in-place operation: one on no elements is enough.
fn count_as_changed(variable: &Tensor) -> Result<(), TchError> {
    variable.f_view(-1)?.f_narrow(0, 0, 0)?.f_zero_().map(drop)
}

/// Names, as many as one can take in.
struct Few<'a>(&'a [String]);

impl fmt::Display for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (at, name) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name:?}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}
