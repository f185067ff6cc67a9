//! Mapped tensors: where they lie, how long, and what a write to one does.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use st_conformance::file::{self, Tensor};
use st_format::{Dtype, ErrorKind, Header};
use st_tch::{load_into_tch, map_into_tch};
use tch::Device;

/// The addresses at which files in this folder are mapped into this process.
fn mappings_in(dir: &Path) -> Vec<Range<usize>> {
    let dir = dir.canonicalize().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps
        .lines()
        .filter(|line| line.contains(dir.to_str().unwrap()));
    let address = |text: &str| usize::from_str_radix(text, 16).unwrap();
    lines
        .map(|line| {
            let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            address(begin)..address(end)
        })
        .collect()
}

fn floats(name: &str) -> Tensor {
    let bytes = (0..64).flat_map(|at| (at as f32).to_le_bytes());
    Tensor::new(name, Dtype::F32, &[4, 16]).with_bytes(bytes.collect())
}

/// A file whose data begins at a multiple of 8; the name of the first tensor grows until it does.
fn with_aligned_start(dir: &Path, tensors: &[Tensor]) -> PathBuf {
    let mut tensors = tensors.to_vec();
    loop {
        let path = file::write(dir, "model.safetensors", &tensors);
        if Header::read(&path).unwrap().data_start().is_multiple_of(8) {
            return path;
        }
        tensors[0].name.push('.');
    }
}

/// A file of tensors that are all aligned, and its folder.
fn aligned() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let last = Tensor::new("last", Dtype::F64, &[2]);
    let path = with_aligned_start(dir.path(), &[floats("first"), floats("second"), last]);
    (dir, path)
}

#[test]
fn tensors_lie_in_one_mapping_and_keep_it() {
    let (dir, path) = aligned();
    let copied = load_into_tch(&path, Device::Cpu).unwrap();
    // SAFETY: nobody else knows of the file, and what is done to it below only unlinks it.
    let mut mapped = unsafe { map_into_tch(&path) }.unwrap();
    let [mapping] = &*mappings_in(dir.path()) else {
        panic!("not mapped once")
    };
    for (name, tensor) in &mapped {
        assert!(
            mapping.contains(&tensor.data_ptr().addr()),
            "{name} is not in the mapping"
        );
        assert_eq!(*tensor, copied[name], "{name}");
    }
    let open_files = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut targets = open_files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    assert!(
        !targets.any(|target| target.starts_with(dir.path())),
        "a file is still open"
    );

    let second = mapped.remove("second").unwrap();
    drop(mapped);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(second, copied["second"]);
    let row = second.get(3);
    drop(second);
    assert_eq!(row, copied["second"].get(3));
    assert_eq!(mappings_in(dir.path()).len(), 1);
    drop(row);
    assert_eq!(mappings_in(dir.path()), [], "the mapping is left behind");
}

#[test]
fn writes_stay_in_memory() {
    let (_dir, path) = aligned();
    let before = std::fs::read(&path).unwrap();
    // SAFETY: nobody else knows of the file.
    let mapped = unsafe { map_into_tch(&path) }.unwrap();
    let mut second = mapped["second"].shallow_clone();
    let _ = second.fill_(-1.0);
    assert_eq!(second.double_value(&[3, 15]), -1.0);
    assert_eq!(
        mapped["last"],
        load_into_tch(&path, Device::Cpu).unwrap()["last"]
    );
    drop((mapped, second));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn changes_to_one_tensor_do_not_count_for_another() {
    let (_dir, path) = aligned();
    // SAFETY: nobody else knows of the file.
    let mapped = unsafe { map_into_tch(&path) }.unwrap();
    let _ = mapped["second"].shallow_clone().fill_(-1.0);
    assert_eq!(mapped["last"].internal_version(), 0);
}

#[test]
fn only_what_is_not_aligned_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [
        Tensor::new("shift", Dtype::U8, &[1]),
        Tensor::new("misaligned", Dtype::F32, &[3]),
        Tensor::new("shift back", Dtype::U8, &[3]),
        Tensor::new("aligned", Dtype::F32, &[3]),
        Tensor::new("empty", Dtype::F64, &[2, 0]),
    ];
    let path = with_aligned_start(dir.path(), &tensors);
    let copied = load_into_tch(&path, Device::Cpu).unwrap();
    // SAFETY: nobody else knows of the file.
    let mapped = unsafe { map_into_tch(&path) }.unwrap();
    let [mapping] = &*mappings_in(dir.path()) else {
        panic!("not mapped once")
    };
    let is_mapped = |name: &str| mapping.contains(&mapped[name].data_ptr().addr());
    assert!(is_mapped("aligned") && is_mapped("shift back"));
    assert!(!is_mapped("misaligned"));
    assert_eq!(mapped["misaligned"].data_ptr().addr() % 4, 0);
    for (name, tensor) in &mapped {
        // Compared as bytes: the floats include NaNs.
        let same = |tensor: &tch::Tensor| {
            let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
            tensor.copy_data_u8(&mut bytes, tensor.numel());
            (tensor.size(), bytes)
        };
        assert_eq!(same(tensor), same(&copied[name]), "{name}");
    }
}

#[test]
fn each_shard_is_mapped_once_and_unmapped_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    // U8 is always aligned.
    let tensor = |name| Tensor::new(name, Dtype::U8, &[5]);
    file::write_sharded(
        dir.path(),
        &[&[tensor("a"), tensor("b")], &[tensor("c"), tensor("d")]],
    );
    // SAFETY: nobody else knows of the files.
    let mut mapped = unsafe { map_into_tch(dir.path()) }.unwrap();
    let count = || mappings_in(dir.path()).len();
    assert_eq!(count(), 2);
    mapped.retain(|name, _| name == "c");
    assert_eq!(count(), 1);
    mapped.clear();
    assert_eq!(count(), 0);
}

#[test]
fn errors_name_the_tensor_and_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [
        Tensor::new("fine", Dtype::U8, &[4]),
        Tensor::new("bad", Dtype::U16, &[2]),
    ];
    let path = file::write(dir.path(), "model.safetensors", &tensors);
    // SAFETY: nobody else knows of the file.
    let error = unsafe { map_into_tch(&path) }.unwrap_err();
    assert_eq!(
        (error.kind(), error.tensor()),
        (ErrorKind::Unsupported, Some("bad"))
    );
    assert_eq!(error.path(), Some(&*path));
    assert_eq!(mappings_in(dir.path()), []);
}

#[test]
fn far_more_than_memory_is_mapped_or_an_error() {
    const LEN: u64 = 1 << 40;
    let header = format!(r#"{{"huge":{{"dtype":"U8","shape":[{LEN}],"data_offsets":[0,{LEN}]}}}}"#);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let mut file = File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    if file.set_len(8 + header.len() as u64 + LEN).is_err() {
        return; // The file system has no files of that length.
    }
    // SAFETY: nobody else knows of the file.
    match unsafe { map_into_tch(&path) } {
        Ok(mapped) => assert_eq!(mapped["huge"].int64_value(&[LEN as i64 - 1]), 0),
        Err(error) => {
            let message = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Framework, "{message}");
            assert_eq!(error.tensor(), Some("huge"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
    // Reading that much into memory is an error, and no abort.
    let error = load_into_tch(&path, Device::Cpu).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}
