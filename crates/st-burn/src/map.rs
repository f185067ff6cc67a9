//! Mapping files, which a caller has to vouch for: the only unsafe code of this crate.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use burn_core::tensor::TensorData;
use st_format::{Checkpoint, Result};

use crate::deferred::in_place;
use crate::{Burn, Loader, Store};

/// Maps a checkpoint (a file, an index, or the directory of either) into memory, and gives its
/// tensors as the places of that memory where they lie. Nothing is copied; pages are read when
/// they are first touched.
///
/// A tensor whose data is not aligned for its elements, or whose dtype burn lacks and holds in
/// another one, is copied, and only that one.
///
/// The map lives as long as any of its tensors. burn copies a tensor before it writes to it.
///
/// # Safety
///
/// As long as one of the tensors lives, or what was made of it without a copy, nobody — this
/// process, or another one — may write to the files or truncate them. Replacing a file by
/// renaming another over it is fine. See [`st_format::Mapped::open`].
///
/// ```
/// use st_burn::map_into_burn;
///
#[doc = include_str!("doc_setup.txt")]
/// // SAFETY: the file is this process's own, and it stays as it is.
/// let tensors = unsafe { map_into_burn(&path) }?;
/// assert_eq!(tensors["model.weight"].as_slice::<f32>().unwrap(), [1.5; 6]);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// As [`load_into_burn`](crate::load_into_burn).
pub unsafe fn map_into_burn(path: impl AsRef<Path>) -> Result<HashMap<String, TensorData>> {
    // SAFETY: the caller promises what `map` asks for, as long as tensors live; what keeps the
    // map alive beyond this call is in them.
    let checkpoint = unsafe { Checkpoint::map(path) }?;
    let mut tensors = HashMap::with_capacity(checkpoint.len());
    let mut to_be_copied = HashSet::new();
    for info in checkpoint.iter() {
        let name = info.name().to_owned();
        if let Some(tensor) = in_place(&checkpoint, &info)? {
            tensors.insert(name, tensor);
        } else {
            to_be_copied.insert(name);
        }
    }
    if !to_be_copied.is_empty() {
        let copied = Loader::new(Burn).filter(move |name| to_be_copied.contains(name));
        tensors.extend(copied.load_checkpoint(&checkpoint)?.0);
    }
    Ok(tensors)
}

impl Store {
    /// As [`open`](Store::open), with the files mapped into memory instead of read: the module's
    /// parameters lie in the map, wherever the backend keeps the host's memory and no adapter
    /// changes them. See [`map_into_burn`].
    ///
    /// # Safety
    ///
    /// As long as the store lives, or a tensor or a module that was loaded from it, nobody may
    /// write to the files or truncate them. See [`map_into_burn`].
    ///
    /// # Errors
    ///
    /// As [`open`](Store::open).
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Store> {
        // SAFETY: the caller promises what `map` asks for.
        let checkpoint = unsafe { Checkpoint::map(path) }?;
        Ok(Store::from(checkpoint))
    }
}
