//! Whatever ends a save before its end, the old checkpoint is there, whole, and nothing else is.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use common::saved::{assert_holds, names_in, saver, snapshot, views};
use common::{Dir, Tensor, child};
use st_format::{
    Checkpoint, Dtype, Error, ErrorKind, Raw, Result, SaveFrom, Saver, Storage, TensorView,
};

/// A framework whose tensors go wrong.
struct Faulty;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Sound,
    Fails,
    /// Half of its bytes, then an error.
    FailsInTheMiddle,
    Panics,
    TooFew,
    TooMany,
    /// All of its bytes, but pieces are not of whole elements.
    CutElements,
    HasNoDtype,
    HidesErrors,
}

struct Given<'a> {
    tensor: &'a Tensor,
    fault: Fault,
}

impl SaveFrom<Given<'_>> for Faulty {
    fn dtype(given: &Given) -> Result<Dtype> {
        match given.fault {
            Fault::HasNoDtype => Err(Error::unsupported(given.tensor.dtype, "faulty")),
            _ => Ok(given.tensor.dtype),
        }
    }

    fn shape(given: &Given) -> Vec<usize> {
        given.tensor.shape.clone()
    }

    fn storage(_: &Given) -> Option<Storage> {
        None
    }

    fn bytes(given: &Given, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let data = &given.tensor.data;
        let half = data.len() / 2;
        match given.fault {
            Fault::Sound => write(data),
            Fault::Fails => Err(Error::new(ErrorKind::Framework, "it is gone")),
            Fault::FailsInTheMiddle => {
                write(&data[..half])?;
                Err(Error::new(ErrorKind::Framework, "it is gone"))
            }
            Fault::Panics => {
                write(&data[..half])?;
                panic!("it is gone")
            }
            Fault::TooFew => write(&data[..half]),
            Fault::TooMany => {
                write(data)?;
                write(&data[..8])
            }
            Fault::CutElements => {
                write(&data[..half + 1])?;
                write(&data[half + 1..])
            }
            Fault::HidesErrors => {
                let _ = write(&[data.as_slice(), &[0; 8]].concat());
                write(&data[..half])
            }
            Fault::HasNoDtype => unreachable!("it has no dtype to be saved as"),
        }
    }
}

/// Three tensors whose elements are all `generation`, the largest of them larger than what is
/// gathered before it is written.
fn generation(generation: u64) -> Vec<Tensor> {
    [("a", 3_usize), ("b", 40_000), ("c", 150_000)]
        .map(|(name, elements)| {
            let data = generation.to_le_bytes().repeat(elements);
            Tensor::new(name, Dtype::U64, &[elements], data)
        })
        .to_vec()
}

/// The bytes of one, two and three shards.
const ONE: u64 = u64::MAX;
const TWO: u64 = 330_000;
const THREE: u64 = 1;

/// Where a checkpoint of such a limit is saved to: the file, or its directory.
fn path_in(dir: &Path, limit: Option<u64>) -> PathBuf {
    match limit {
        Some(_) => dir.to_owned(),
        None => dir.join("model.safetensors"),
    }
}

fn save(path: &Path, limit: Option<u64>, tensors: &[Tensor]) {
    let saver = match limit {
        Some(limit) => saver().max_shard_size(limit),
        None => saver(),
    };
    saver.save(path, views(tensors)).unwrap();
}

#[test]
fn a_tensor_that_goes_wrong_leaves_everything_as_it_was() {
    use Fault::*;

    let old = generation(1);
    let mut new = generation(2);
    for tensor in &mut new {
        // Elements of four bytes can be cast.
        tensor.dtype = Dtype::F32;
        tensor.shape = vec![tensor.data.len() / 4];
    }
    let limits = [None, Some(ONE), Some(TWO), Some(THREE)];
    for fault in [
        Fails,
        FailsInTheMiddle,
        Panics,
        TooFew,
        TooMany,
        CutElements,
        HasNoDtype,
        HidesErrors,
    ] {
        for was in [Some(None), Some(Some(TWO)), None] {
            for becomes in limits {
                let dir = Dir::new();
                let path = path_in(dir.path(), becomes);
                if let Some(limit) = was {
                    save(&path_in(dir.path(), limit), limit, &old);
                }
                let before = snapshot(dir.path());
                let mut saver = Saver::<Faulty>::new().cast_floats(Dtype::BF16);
                if let Some(limit) = becomes {
                    saver = saver.max_shard_size(limit);
                }
                let given = new.iter().map(|tensor| {
                    let fault = if tensor.name == "c" { fault } else { Sound };
                    (&tensor.name, Given { tensor, fault })
                });
                let saved = catch_unwind(AssertUnwindSafe(|| saver.save(&path, given)));
                match saved {
                    Err(_) => assert_eq!(fault, Panics),
                    Ok(Ok(report)) => panic!("{fault:?}: {report:?}"),
                    Ok(Err(error)) => {
                        let kind = match fault {
                            HasNoDtype => ErrorKind::Unsupported,
                            _ => ErrorKind::Framework,
                        };
                        assert_eq!((error.kind(), error.tensor()), (kind, Some("c")), "{error}");
                        assert_eq!(error.path(), Some(&*path));
                    }
                }
                let what = format!("{fault:?}, {was:?} becomes {becomes:?}");
                assert!(
                    snapshot(dir.path()) == before,
                    "{what}: {:?}",
                    names_in(dir.path())
                );
            }
        }
    }
}

#[test]
fn a_directory_made_for_a_save_that_fails_is_removed() {
    let dir = Dir::new();
    let tensors = generation(1);
    let given = || {
        tensors.iter().map(|tensor| {
            let fault = if tensor.name == "c" {
                Fault::Fails
            } else {
                Fault::Sound
            };
            (&tensor.name, Given { tensor, fault })
        })
    };
    let saver = Saver::<Faulty>::new().max_shard_size(TWO);
    saver
        .save(dir.join("some/new/directory"), given())
        .unwrap_err();
    assert!(names_in(dir.path()).is_empty());
    // One that was there stays, be it empty.
    fs::create_dir(dir.join("old")).unwrap();
    saver.save(dir.join("old"), given()).unwrap_err();
    assert_eq!(names_in(dir.path()), ["old"]);
}

#[test]
fn an_overwrite_that_cannot_be_touches_nothing() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let tensors = generation(1);
    saver().checksums().save(&path, views(&tensors)).unwrap();
    let before = fs::read(&path).unwrap();
    let (other_shape, other_dtype) = (
        Tensor::new("a", Dtype::U64, &[4], [0; 32]),
        Tensor::new("a", Dtype::I64, &[3], [0; 24]),
    );
    for tensor in [&other_shape, &other_dtype] {
        let given = Given {
            tensor,
            fault: Fault::Sound,
        };
        let error = Saver::<Faulty>::new()
            .overwrite(&path, "a", given)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert_eq!((error.path(), error.tensor()), (Some(&*path), Some("a")));
        assert!(fs::read(&path).unwrap() == before);
    }
    // What a framework hides is found.
    let tensor = &Tensor::new("a", Dtype::U64, &[3], [7; 24]);
    for fault in [Fault::TooFew, Fault::TooMany, Fault::HidesErrors] {
        let error = Saver::<Faulty>::new()
            .overwrite(&path, "a", Given { tensor, fault })
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.tensor()),
            (ErrorKind::Framework, Some("a"))
        );
        // Neighbours are never written to.
        let checkpoint = Checkpoint::open(&path).unwrap();
        for neighbour in &tensors[1..] {
            assert!(checkpoint.read(&neighbour.name).unwrap() == neighbour.data);
        }
    }
}

/// How often each test kills; more than by default finds rarer moments.
fn kills() -> usize {
    match std::env::var("ST_KILLS") {
        Ok(kills) => kills.parse().unwrap(),
        Err(_) => 12,
    }
}

/// Starts a child that saves again and again, kills it, and returns what it saved last.
fn killed_in_the_middle(test: &str, dir: &Path, moments: &mut common::text::Choices) -> u64 {
    let mut child = child::command(test, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut saved = || {
        let lines = lines.by_ref().map_while(|line| line.ok());
        lines
            .filter_map(|line| line.strip_prefix("saved ")?.parse::<u64>().ok())
            .next()
    };
    let mut last = saved().expect("the child saves");
    std::thread::sleep(Duration::from_micros(moments.below(15_000) as u64));
    child.kill().unwrap();
    child.wait().unwrap();
    while let Some(next) = saved() {
        last = next;
    }
    last
}

/// A child saves one generation after the other, and is killed in the middle, again and again.
fn survives_kills(test: &str, limit: fn(u64) -> Option<u64>) {
    if let Some(dir) = child::task() {
        let path = path_in(dir.as_ref(), limit(0));
        let mut next = generation_at(&path) + 1;
        loop {
            save(&path, limit(next), &generation(next));
            println!("\nsaved {next}");
            next += 1;
        }
    }
    let dir = Dir::new();
    let path = path_in(dir.path(), limit(0));
    save(&path, limit(0), &generation(0));
    let mut moments = common::text::Choices::new(u64::from(std::process::id()));
    for _ in 0..kills() {
        let last = killed_in_the_middle(test, dir.path(), &mut moments);
        let found = generation_at(&path);
        assert!(
            (last..=last + 1).contains(&found),
            "{last} was saved last, {found} is there"
        );
    }
    // The next save finds nothing in its way, and leaves none of the old files.
    save(&path, limit(1), &generation(1));
    assert_holds(&path, &generation(1));
    let fresh = Dir::new();
    save(&path_in(fresh.path(), limit(0)), limit(1), &generation(1));
    assert_eq!(visible_in(dir.path()), names_in(fresh.path()));
}

/// A killed process leaves hidden files.
fn visible_in(dir: &Path) -> Vec<String> {
    let mut names = names_in(dir);
    names.retain(|name| !name.starts_with('.'));
    names
}

#[test]
fn killed_while_shards_are_saved_where_nothing_was() {
    const TEST: &str = "killed_while_shards_are_saved_where_nothing_was";
    if let Some(dir) = child::task() {
        for next in 1.. {
            let path = Path::new(&dir).join(next.to_string());
            save(&path, Some(THREE), &generation(next));
            println!("\nsaved {next}");
        }
    }
    let mut moments = common::text::Choices::new(u64::from(std::process::id()));
    for _ in 0..kills() {
        let dir = Dir::new();
        let last = killed_in_the_middle(TEST, dir.path(), &mut moments);
        let path = dir.join((last + 1).to_string());
        if path.exists() && !visible_in(&path).is_empty() {
            assert_eq!(generation_at(&path), last + 1);
        }
        save(&path, Some(TWO), &generation(1));
        assert_holds(&path, &generation(1));
        assert_eq!(visible_in(&path).len(), 3);
    }
}

/// Which generation the checkpoint is, all of it.
#[track_caller]
fn generation_at(path: &Path) -> u64 {
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"));
    let first = checkpoint.read_elements::<u64>("a").unwrap()[0];
    common::saved::assert_is(&checkpoint, &generation(first));
    first
}

#[test]
fn killed_while_a_file_replaces_a_file() {
    survives_kills("killed_while_a_file_replaces_a_file", |_| None);
}

#[test]
fn killed_while_shards_replace_shards_of_the_same_names() {
    survives_kills(
        "killed_while_shards_replace_shards_of_the_same_names",
        |_| Some(TWO),
    );
}

#[test]
fn killed_while_shards_replace_a_file_and_a_file_shards() {
    survives_kills(
        "killed_while_shards_replace_a_file_and_a_file_shards",
        |generation| Some([ONE, TWO, THREE][generation as usize % 3]),
    );
}

/// A child saves more than there is room for.
#[test]
fn a_full_disk_leaves_the_old_checkpoint() {
    const TEST: &str = "a_full_disk_leaves_the_old_checkpoint";
    if let Some(dir) = child::task() {
        return there_is_no_room(dir.as_ref());
    }
    let dir = Dir::new();
    let mount = format!(
        "mount -t tmpfs -o size=3m tmpfs '{}' && exec \"$@\"",
        dir.path().display()
    );
    let has_mounts = |before: &[&str]| {
        let words = [before, &["true"]].concat();
        let tried = std::process::Command::new(words[0])
            .args(&words[1..])
            .output();
        tried.is_ok_and(|output| output.status.success())
    };
    let unshare = ["unshare", "-Urm"];
    let mut child = match has_mounts(&unshare) {
        true => child::by_script(&unshare, &mount, TEST, dir.path()),
        false => {
            println!("no mounts allowed here: a limit on files' size stands for the full disk");
            // In blocks of 512 bytes.
            let limit = "trap '' XFSZ; ulimit -f 4096; exec \"$@\"";
            child::by_script(&[], limit, TEST, dir.path())
        }
    };
    child::assert_passed(&child.output().unwrap());
}

fn there_is_no_room(dir: &Path) {
    let old = generation(1);
    let new = {
        let mut new = generation(2);
        new.push(Tensor::new(
            "large",
            Dtype::U8,
            &[8 << 20],
            vec![1; 8 << 20],
        ));
        new
    };
    for was in [None, Some(ONE), Some(THREE)] {
        for becomes in [None, Some(ONE), Some(THREE)] {
            let dir = dir.join(format!("{was:?} {becomes:?}"));
            fs::create_dir(&dir).unwrap();
            let (old_path, path) = (path_in(&dir, was), path_in(&dir, becomes));
            save(&old_path, was, &old);
            let before = snapshot(&dir);
            for durable in [false, true] {
                let mut saver = saver();
                if let Some(limit) = becomes {
                    saver = saver.max_shard_size(limit);
                }
                if durable {
                    saver = saver.durable();
                }
                let error = saver.save(&path, views(&new)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                assert!(error.path().unwrap().starts_with(&path), "{error}");
                assert!(snapshot(&dir) == before, "{:?}", names_in(&dir));
            }
            assert_holds(&old_path, &old);
            fs::remove_dir_all(&dir).unwrap();
        }
    }
    // A rewrite for a longer header.
    let path = dir.join("edited.safetensors");
    saver().save(&path, views(&old)).unwrap();
    let before = snapshot(dir);
    let mut editor = st_format::Editor::open(&path).unwrap();
    editor.set_metadata("long", "x".repeat(4 << 20));
    let error = editor.save().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(snapshot(dir) == before, "{:?}", names_in(dir));
}

/// Small tensors are gathered, so that their bytes reach the disk only in the end.
#[test]
fn a_disk_that_is_full_at_the_very_end_is_an_error() {
    const TEST: &str = "a_disk_that_is_full_at_the_very_end_is_an_error";
    if let Some(path) = child::task() {
        let path = Path::new(&path);
        let data = vec![1; 600 << 10];
        let view = TensorView::new("a", Dtype::U8, &[600 << 10], &data).unwrap();
        let error = Saver::<Raw>::new().save(path, [("a", view)]).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(path)));
        assert!(names_in(path.parent().unwrap()).is_empty());
        return;
    }
    let dir = Dir::new();
    let limit = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
    let path = dir.join("model.safetensors");
    let output = child::by_script(&[], limit, TEST, path).output().unwrap();
    child::assert_passed(&output);
}
