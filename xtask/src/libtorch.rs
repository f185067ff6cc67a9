//! libtorch, out of PyPI's wheels: what st-tch is built and tested with.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result, ensure};

use crate::fetch::Wheel;

/// The part for the CPU. `libtorch_cuda.so` is left out on purpose: torch-sys links it where it
/// is, and it needs ten times as much beside it.
const TORCH: Wheel = Wheel {
    package: "torch",
    version: "2.13.0",
    sha256: "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7",
    // Whatever Python there is: only the C++ part is used.
    download: &[
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux_2_28_x86_64",
    ],
    folder: "torch",
    keep: &[
        "include",
        "lib/libc10.so",
        "lib/libgomp.so.1",
        "lib/libtorch.so",
        "lib/libtorch_cpu.so",
    ],
    file_sha256: &[],
};

/// Libraries that `libtorch_cpu.so` asks for, though there is no GPU.
const NEEDED: [(Wheel, &str); 2] = [
    (
        Wheel {
            package: "nvidia-cuda-runtime",
            version: "13.0.96",
            sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
            download: &[],
            folder: "nvidia/cu13/lib",
            keep: &["libcudart.so.13"],
            file_sha256: &[],
        },
        "libcudart.so.13",
    ),
    (
        Wheel {
            package: "nvidia-cuda-cupti",
            version: "13.0.85",
            sha256: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
            download: &[],
            folder: "nvidia/cu13/lib",
            keep: &["libcupti.so.13"],
            file_sha256: &[],
        },
        "libcupti.so.13",
    ),
];

/// `cargo xtask setup`: fetches libtorch, and says how to use it outside of the other tasks.
pub(crate) fn setup() -> Result<()> {
    if let Some(own) = own_lib_folder()? {
        eprintln!(
            "nothing to fetch: the environment chooses {}",
            own.display()
        );
        return Ok(());
    }
    let libtorch = fetch()?;
    let libtorch = libtorch.display();
    println!("export LIBTORCH={libtorch} LD_LIBRARY_PATH={libtorch}/lib");
    Ok(())
}

/// Lets a command build with libtorch, and run what it builds: with the user's own, where the
/// environment names one as torch-sys wants it, or else with the one that is fetched.
pub(crate) fn provide(command: &mut Command) -> Result<()> {
    let lib = match own_lib_folder()? {
        Some(lib) => lib,
        None => {
            let libtorch = fetch()?;
            command.env("LIBTORCH", &libtorch);
            libtorch.join("lib")
        }
    };
    // Tests have an rpath; documentation tests cannot be given one.
    let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    command.env("LD_LIBRARY_PATH", with_folder(&lib, &others)?);
    Ok(())
}

/// The folder of the libraries that the user has chosen, if any.
fn own_lib_folder() -> Result<Option<PathBuf>> {
    if env::var_os("LIBTORCH_USE_PYTORCH").is_some() {
        return lib_folder_of_pytorch().map(Some);
    }
    let own = env::var_os("LIBTORCH_LIB").or_else(|| env::var_os("LIBTORCH"));
    Ok(own.map(|folder| Path::new(&folder).join("lib")))
}

/// The folder with the libraries of the PyTorch that torch-sys asks.
fn lib_folder_of_pytorch() -> Result<PathBuf> {
    let python = match env::var_os("VIRTUAL_ENV") {
        Some(_) => "python",
        None => "python3",
    };
    let output = Command::new(python)
        .args(["-c", "import torch; print(torch.__path__[0], end='')"])
        .output()
        .with_context(|| format!("cannot run {python}"))?;
    ensure!(
        output.status.success(),
        "LIBTORCH_USE_PYTORCH is set, but {python} cannot import torch"
    );
    let folder = String::from_utf8(output.stdout).context("torch lies in no UTF-8 path")?;
    Ok(Path::new(&folder).join("lib"))
}

fn with_folder(folder: &Path, others: &OsStr) -> Result<OsString> {
    let others = env::split_paths(others).filter(|other| !other.as_os_str().is_empty());
    let all = std::iter::once(folder.to_owned()).chain(others);
    env::join_paths(all).context("LD_LIBRARY_PATH cannot hold libtorch's folder")
}

/// The folder of libtorch in the cache, which is fetched once.
fn fetch() -> Result<PathBuf> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "libtorch is only fetched for x86-64 Linux; set LIBTORCH to a folder that has 2.13.0"
    );
    let libtorch = TORCH.fetch()?;
    for (wheel, file) in &NEEDED {
        let from = wheel.fetch()?.join(file);
        let to = libtorch.join("lib").join(file);
        place(&from, &to).with_context(|| format!("cannot put {file} beside libtorch"))?;
    }
    Ok(libtorch)
}

/// Gives a file another name, in one step, whatever has that name already.
fn place(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_added_extension(process::id().to_string());
    fs::hard_link(from, &new).or_else(|_| fs::copy(from, &new).map(drop))?;
    fs::rename(&new, to)?;
    // Where both are one file already, the rename has left both names.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_placed_over_an_old_one_and_over_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        for _ in 0..2 {
            place(&from, &to).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "new");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn folders_that_were_searched_before_are_searched_after() {
        let libtorch = Path::new("/libtorch/lib");
        let searched = |others| with_folder(libtorch, OsStr::new(others)).unwrap();
        assert_eq!(searched(""), "/libtorch/lib");
        assert_eq!(searched("/a:/b"), "/libtorch/lib:/a:/b");
    }
}
