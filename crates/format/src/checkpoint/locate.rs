//! Which file a path means.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result, ShownPath};

/// What a path turned out to be.
pub(crate) enum Located {
    File(PathBuf),
    Index(PathBuf),
}

pub(crate) const INDEX_SUFFIX: &str = ".safetensors.index.json";
pub(crate) const FILE_SUFFIX: &str = ".safetensors";

pub(crate) fn locate(path: &Path) -> Result<Located> {
    if path.is_dir() {
        return in_directory(path).map_err(|error| error.with_path(path));
    }
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("json") => {
            Ok(Located::Index(path.to_owned()))
        }
        _ => Ok(Located::File(path.to_owned())),
    }
}

fn in_directory(dir: &Path) -> Result<Located> {
    let cannot_list = |error| Error::io("cannot list the directory", error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(cannot_list)? {
        let name = entry.map_err(cannot_list)?.file_name();
        // Hidden files are not part of a checkpoint: unfinished saves, other systems' notes.
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort();
    let ending_in = |suffix: &str| -> Vec<_> {
        let ends =
            |name: &&std::ffi::OsString| name.as_encoded_bytes().ends_with(suffix.as_bytes());
        let is_file = |name: &&std::ffi::OsString| !dir.join(name).is_dir();
        names.iter().filter(ends).filter(is_file).collect()
    };
    match (&ending_in(INDEX_SUFFIX)[..], &ending_in(FILE_SUFFIX)[..]) {
        ([index], _) => Ok(Located::Index(dir.join(index))),
        ([], [file]) => Ok(Located::File(dir.join(file))),
        ([], []) => {
            let what = match &names[..] {
                [] => ": it is empty".to_owned(),
                names => format!(", which holds {}", list(names)),
            };
            let message = format!("no {FILE_SUFFIX} file or index in this directory{what}");
            Err(Error::new(ErrorKind::NotFound, message))
        }
        ([], several) => Err(Error::new(
            ErrorKind::Ambiguous,
            format!(
                "several {FILE_SUFFIX} files and no index: {}",
                list(several)
            ),
        )),
        (several, _) => Err(Error::new(
            ErrorKind::Ambiguous,
            format!("several indexes: {}", list(several)),
        )),
    }
}

fn list<S: AsRef<std::ffi::OsStr>>(names: &[S]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN);
    let shown = shown.map(|name| ShownPath(name.as_ref().as_ref()).to_string());
    let shown: Vec<String> = shown.collect();
    match names.len() {
        len if len > SHOWN => format!("{} and {} more", shown.join(", "), len - SHOWN),
        _ => shown.join(", "),
    }
}
