//! The files that a save makes, and how they take the place of those that were there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Part, shards};
use crate::checkpoint::{
    FILE_SUFFIX, INDEX_SUFFIX, Located, check_shard_name, locate, shard_names,
};
use crate::error::{Error, ErrorKind, Result, ShownPath};
use crate::writer::{
    AtomicFile, ClosedFile, KeptFile, directory_of, is_temporary_name, sync_directory,
};

/// What a path to save to means.
pub(super) enum Target {
    /// One file, whatever is beside it.
    File(PathBuf),
    /// A checkpoint of one file, or of shards and an index.
    Checkpoint {
        dir: PathBuf,
        /// How the files' names begin.
        stem: String,
        made: Option<MadeDirectories>,
    },
}

impl Target {
    pub(super) fn of(path: &Path, is_sharded: bool) -> Result<Target> {
        if path.is_dir() {
            return Target::in_directory(path);
        }
        let dir = directory_of(path).to_owned();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|name| is_index_of_another_name(name)) {
            let message = format!("{name:?} is an index's name, expected one in {INDEX_SUFFIX}");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let stem = name.and_then(|name| match name.strip_suffix(INDEX_SUFFIX) {
            None if is_sharded => name.strip_suffix(FILE_SUFFIX),
            stem => stem,
        });
        match stem {
            Some(stem) => Target::checkpoint(dir, stem),
            None if is_sharded => Ok(Target::Checkpoint {
                dir: path.to_owned(),
                stem: "model".to_owned(),
                made: Some(MadeDirectories::make(path)?),
            }),
            None => Ok(Target::File(path.to_owned())),
        }
    }

    /// The checkpoint that opening the directory would find, so that this one replaces it.
    fn in_directory(dir: &Path) -> Result<Target> {
        let (file, suffix) = match locate(dir) {
            Ok(Located::Index(file)) => (file, INDEX_SUFFIX),
            Ok(Located::File(file)) => (file, FILE_SUFFIX),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Target::checkpoint(dir.to_owned(), "model");
            }
            Err(error) => return Err(error),
        };
        let name = file.file_name().and_then(|name| name.to_str());
        match name.and_then(|name| name.strip_suffix(suffix)) {
            Some(stem) => Target::checkpoint(dir.to_owned(), stem),
            None => {
                let message = format!("{} is not UTF-8", ShownPath(&file));
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
        }
    }

    fn checkpoint(dir: PathBuf, stem: &str) -> Result<Target> {
        check_shard_name(stem).map_err(|fault| {
            let message = format!("the shards' name {stem:?} {fault}");
            Error::new(ErrorKind::InvalidRequest, message)
        })?;
        Ok(Target::Checkpoint {
            dir,
            stem: stem.to_owned(),
            made: None,
        })
    }

    /// The paths of as many files.
    pub(super) fn paths(&self, shards: usize) -> Vec<PathBuf> {
        match self {
            Target::File(path) => vec![path.clone()],
            Target::Checkpoint { dir, stem, .. } => file_names(stem, shards)
                .iter()
                .map(|name| dir.join(name))
                .collect(),
        }
    }

    /// Begins one of them. Links in a directory may be those of a cache, whose files belong to
    /// other checkpoints, too.
    pub(super) fn begin(&self, path: &Path) -> Result<AtomicFile> {
        match self {
            Target::File(_) => AtomicFile::create(path),
            Target::Checkpoint { .. } => AtomicFile::create_in_place_of_links(path),
        }
    }

    /// Makes complete files the checkpoint. Returns their paths.
    pub(super) fn put_in_place(
        &self,
        files: Vec<ClosedFile>,
        shards: &[Vec<&Part>],
        durable: bool,
    ) -> Result<Vec<PathBuf>> {
        let mut paths = self.paths(files.len());
        let (dir, stem, made) = match self {
            Target::Checkpoint { dir, stem, made } => (dir, stem, made),
            Target::File(_) => {
                replace_targets(files)?;
                return Ok(paths);
            }
        };
        // Two saves at once would mix their shards without an error: the second one waits until the
        // first one's lock is dropped. Where directories cannot be locked, nothing helps.
        let directory = File::open(dir);
        let _lock = directory.and_then(|directory| directory.lock().map(|()| directory));
        let index = dir.join(format!("{stem}{INDEX_SUFFIX}"));
        let has_index = files.len() > 1;
        let closed_index = |names: &[String]| {
            let text = shards::index(shards, names).map_err(|error| error.with_path(&index))?;
            let mut file = self.begin(&index)?;
            file.write_at(0, text.as_bytes())?;
            file.close(durable)
        };
        let names = file_names(stem, files.len());
        let old = Old::find(dir, stem, &index);
        if !old.has_index && !has_index {
            replace_targets(files)?;
        } else {
            // An index that names the new files as they are called now replaces the old checkpoint
            // at once. Only then may they have names that were those of its files, or that make a
            // directory without an index something else.
            let closed = closed_index(&names_of(&files))?;
            let files: Vec<KeptFile> = files
                .into_iter()
                .map(ClosedFile::keep)
                .collect::<Result<_>>()?;
            let renamed = closed.rename().inspect_err(|_| {
                for file in &files {
                    // The error that there is already is the one to be told.
                    let _ = remove(file.temporary());
                }
            })?;
            renamed.sync()?;
            for file in &files {
                file.link_to_target()?;
            }
            // While there is an index: without one, nothing would tell the old files from the new.
            let mut removed = old.remove_all_but(dir, &names);
            if has_index {
                closed_index(&names)?.replace_target()?;
            } else {
                removed?;
                remove(&index)?;
                removed = Ok(());
            }
            for file in &files {
                remove(file.temporary())?;
            }
            removed?;
        }
        if let Some(made) = made.as_ref().filter(|_| durable) {
            made.sync()?;
        }
        paths.extend(has_index.then_some(index));
        Ok(paths)
    }
}

/// Directories that were made for a checkpoint. Those in which nothing came to be go again.
pub(super) struct MadeDirectories {
    /// The innermost one first.
    paths: Vec<PathBuf>,
}

impl MadeDirectories {
    fn make(path: &Path) -> Result<MadeDirectories> {
        let missing = path
            .ancestors()
            .take_while(|dir| *dir != Path::new("") && !dir.exists());
        let made = MadeDirectories {
            paths: missing.map(Path::to_owned).collect(),
        };
        fs::create_dir_all(path).map_err(|error| Error::io("cannot make the directory", error))?;
        Ok(made)
    }

    /// Waits until the disk has them.
    fn sync(&self) -> Result<()> {
        self.paths.iter().try_for_each(|path| {
            sync_directory(directory_of(path))
                .map_err(|error| Error::io("cannot finish the directory", error).with_path(path))
        })
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for path in &self.paths {
            // Only an empty directory can be removed.
            let _ = fs::remove_dir(path);
        }
    }
}

/// Whether opening a checkpoint takes a file for an index though it is not called as those that
/// are written: it is not to be replaced by tensors.
fn is_index_of_another_name(name: &str) -> bool {
    let extension = Path::new(name).extension();
    !name.ends_with(INDEX_SUFFIX)
        && extension.is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// `model-00001-of-00007.safetensors` and so on, or `model.safetensors` where it is the only one.
fn file_names(stem: &str, shards: usize) -> Vec<String> {
    match shards {
        1 => vec![format!("{stem}{FILE_SUFFIX}")],
        _ => (1..=shards)
            .map(|at| format!("{stem}-{at:05}-of-{shards:05}{FILE_SUFFIX}"))
            .collect(),
    }
}

fn names_of(files: &[ClosedFile]) -> Vec<String> {
    let names = files.iter().filter_map(|file| file.temporary().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn replace_targets(files: Vec<ClosedFile>) -> Result<()> {
    files.into_iter().try_for_each(ClosedFile::replace_target)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("saved, but this old file cannot be removed", error).with_path(path))
        }
        _ => Ok(()),
    }
}

/// The checkpoint that was there.
struct Old {
    has_index: bool,
    /// The files that are its own: its shards, others of their name, and the one file of its name.
    files: BTreeSet<PathBuf>,
}

impl Old {
    fn find(dir: &Path, stem: &str, index: &Path) -> Old {
        let mut files = BTreeSet::new();
        // An index that cannot be read names nothing that could be removed.
        if let Ok(shards) = shard_names(index) {
            files.extend(shards.iter().filter_map(|name| file_within(dir, name)));
        }
        // Python's transformers looks for this one first, even where there is an index.
        files.extend(file_within(dir, &format!("{stem}{FILE_SUFFIX}")));
        let has_index = is_there(index);
        if has_index {
            files.extend(numbered_shards(dir, stem));
        }
        Old { has_index, files }
    }

    fn remove_all_but(&self, dir: &Path, names: &[String]) -> Result<()> {
        let new = names.iter().filter_map(|name| file_within(dir, name));
        let new: BTreeSet<PathBuf> = new.collect();
        self.files
            .difference(&new)
            .try_for_each(|path| remove(path))
    }
}

/// All shards of this name, whether or not an index names them: a save that was killed leaves some.
fn numbered_shards(dir: &Path, stem: &str) -> Vec<PathBuf> {
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_shard = |name: &str| {
        let numbers = name.strip_prefix(stem)?.strip_prefix('-')?;
        let (at, count) = numbers.strip_suffix(FILE_SUFFIX)?.split_once("-of-")?;
        Some(is_number(at) && is_number(count))
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| is_shard(name) == Some(true))
        .filter_map(|name| file_within(dir, &name))
        .collect()
}

/// The one path of a file of tensors that is in a directory or below it, in whatever way an index
/// names it. What lies elsewhere, or is something else, is not a checkpoint's to be removed,
/// whatever its index says.
fn file_within(dir: &Path, name: &str) -> Option<PathBuf> {
    let path = dir.join(name);
    let file_name = path.file_name()?.to_str()?;
    if !file_name.ends_with(FILE_SUFFIX) && !is_temporary_name(file_name) {
        return None;
    }
    let parent = fs::canonicalize(directory_of(&path)).ok()?;
    if !parent.starts_with(fs::canonicalize(dir).ok()?) {
        return None;
    }
    Some(parent.join(file_name)).filter(|path| is_there(path))
}

/// Whether there is something that could be removed as a file, be it a link that leads nowhere.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_dir())
}
