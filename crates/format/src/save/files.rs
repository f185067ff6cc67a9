//! The files that a save makes, and how they take the place of those that were there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Part, shards};
use crate::checkpoint::{
    FILE_SUFFIX, INDEX_SUFFIX, Located, check_shard_name, locate, shard_names,
};
use crate::error::{Error, ErrorKind, Result, ShownPath};
use crate::writer::{AtomicFile, ClosedFile, KeptFile, directory_of};

/// What a path to save to means.
pub(super) enum Target {
    /// One file, whatever is beside it.
    File(PathBuf),
    /// A checkpoint of one file, or of shards and an index.
    Checkpoint {
        dir: PathBuf,
        /// How the files' names begin.
        stem: String,
    },
}

impl Target {
    pub(super) fn of(path: &Path, is_sharded: bool) -> Result<Target> {
        if path.is_dir() {
            return Target::in_directory(path);
        }
        let dir = directory_of(path).to_owned();
        let name = path.file_name().and_then(|name| name.to_str());
        let stem = name.and_then(|name| match name.strip_suffix(INDEX_SUFFIX) {
            None if is_sharded => name.strip_suffix(FILE_SUFFIX),
            stem => stem,
        });
        match stem {
            Some(stem) => Target::checkpoint(dir, stem),
            None if is_sharded => {
                fs::create_dir_all(path)
                    .map_err(|error| Error::io("cannot make the directory", error))?;
                Target::checkpoint(path.to_owned(), "model")
            }
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
        })
    }

    /// Begins as many files.
    pub(super) fn create(&self, shards: usize) -> Result<Vec<AtomicFile>> {
        match self {
            Target::File(path) => Ok(vec![AtomicFile::create(path)?]),
            Target::Checkpoint { dir, stem } => {
                let names = file_names(stem, shards);
                let paths = names.iter().map(|name| dir.join(name));
                paths
                    .map(|path| AtomicFile::create_in_place_of_links(&path))
                    .collect()
            }
        }
    }

    /// Makes complete files the checkpoint. Returns their paths.
    pub(super) fn put_in_place(
        &self,
        files: Vec<ClosedFile>,
        shards: &[Vec<&Part>],
        durable: bool,
    ) -> Result<Vec<PathBuf>> {
        let (dir, stem) = match self {
            Target::Checkpoint { dir, stem } => (dir, stem),
            Target::File(path) => {
                replace_targets(files)?;
                return Ok(vec![path.clone()]);
            }
        };
        let index = dir.join(format!("{stem}{INDEX_SUFFIX}"));
        let has_index = files.len() > 1;
        let closed_index = |names: &[String]| {
            let mut file = AtomicFile::create(&index)?;
            file.write_at(0, shards::index(shards, names).as_bytes())?;
            file.close(durable)
        };
        let names = file_names(stem, files.len());
        let old = Old::find(dir, stem, &index);
        if !old.has_index && (!has_index || old.files.is_empty()) {
            // Nothing names these files, and no old one is in their way.
            replace_targets(files)?;
            if has_index {
                closed_index(&names)?.replace_target()?;
            }
        } else {
            // An index that names the new files as they are called now replaces the old checkpoint
            // at once. Only then may they have names that were those of its files.
            let closed = closed_index(&names_of(&files))?;
            let files: Vec<KeptFile> = files
                .into_iter()
                .map(ClosedFile::keep)
                .collect::<Result<_>>()?;
            closed.replace_target()?;
            for file in &files {
                file.link_to_target()?;
            }
            match has_index {
                true => closed_index(&names)?.replace_target()?,
                false => remove(&index)?,
            }
            for file in &files {
                remove(file.temporary())?;
            }
        }
        for name in old.files.difference(&names.iter().cloned().collect()) {
            remove(&dir.join(name))?;
        }
        let mut paths: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
        paths.extend(has_index.then_some(index));
        Ok(paths)
    }
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
    /// Names of the files that are its own: its shards, or the one file.
    files: BTreeSet<String>,
}

impl Old {
    fn find(dir: &Path, stem: &str, index: &Path) -> Old {
        let mut files = BTreeSet::new();
        // An index that cannot be read names nothing that could be removed.
        if let Ok(shards) = shard_names(index) {
            files.extend(shards);
        }
        files.insert(format!("{stem}{FILE_SUFFIX}"));
        files.retain(|name| dir.join(name).is_file());
        Old {
            has_index: index.is_file(),
            files,
        }
    }
}
