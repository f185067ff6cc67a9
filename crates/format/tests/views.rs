//! Tensors in memory: borrowed, shared, mapped, and read into memory of the caller's.

mod common;

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{Dir, Tensor, counting, file, file_of, rejected};
use half::{bf16, f16};
use proptest::prelude::*;
use st_format::{
    Buffer, Checkpoint, Dtype, Element, Error, ErrorKind, Header, Mapped, Memory, Read,
    ReadOptions, SafeTensors, Shard, Slice, TensorInfo, TensorView, Warning,
};

use ErrorKind::{InvalidRequest, Misaligned, NotFound, OutOfMemory};

/// Some of every kind, in an order that leaves none of them out of line.
fn tensors() -> Vec<Tensor> {
    vec![
        Tensor::new("f64", Dtype::F64, &[2, 3], counting(48)),
        Tensor::new("f32", Dtype::F32, &[], 1.5_f32.to_le_bytes()),
        Tensor::new("u8", Dtype::U8, &[5], counting(5)),
        Tensor::new("none", Dtype::F64, &[0, 7], []),
    ]
}

#[track_caller]
fn holds_the_tensors<B: AsRef<[u8]>>(archive: &SafeTensors<B>) {
    let found: Vec<_> = archive.tensors().map(|view| view.unwrap()).collect();
    assert_eq!(found.len(), tensors().len());
    for tensor in tensors() {
        let view = archive.tensor(&tensor.name).unwrap();
        assert_eq!(view.name(), tensor.name);
        assert_eq!(view.dtype(), tensor.dtype);
        assert_eq!(view.shape(), tensor.shape);
        assert_eq!(view.data(), tensor.data);
        assert_eq!(Some(view.info()), archive.header().get(&tensor.name));
        let same = found
            .iter()
            .find(|view| view.name() == tensor.name)
            .unwrap();
        assert_eq!(same.data().as_ptr_range(), view.data().as_ptr_range());
    }
}

#[test]
fn bytes_of_any_kind() {
    let bytes = file_of(&tensors());
    holds_the_tensors(&SafeTensors::new(&bytes[..]).unwrap());
    holds_the_tensors(&SafeTensors::new(&bytes).unwrap());
    holds_the_tensors(&SafeTensors::new(bytes.clone()).unwrap());
    holds_the_tensors(&SafeTensors::new(bytes.clone().into_boxed_slice()).unwrap());
    holds_the_tensors(&SafeTensors::new(Arc::<[u8]>::from(&bytes[..])).unwrap());
    holds_the_tensors(&SafeTensors::new(Bytes::from(bytes.clone())).unwrap());

    let dir = Dir::new();
    let path = dir.write("model.safetensors", &bytes);
    let map = || {
        // SAFETY: nobody else knows of the file.
        unsafe { Mapped::open(&path) }.unwrap()
    };
    holds_the_tensors(&SafeTensors::new(map()).unwrap());
    let shared = map().into_bytes();
    holds_the_tensors(&SafeTensors::new(shared.clone()).unwrap());
    // The map outlives the file's name and the first of its owners.
    let archive = SafeTensors::new(shared).unwrap();
    std::fs::remove_file(&path).unwrap();
    holds_the_tensors(&archive.clone());
    assert_eq!(archive.into_bytes(), bytes);
}

#[test]
fn nothing_is_copied() {
    let bytes = file_of(&tensors());
    let archive = SafeTensors::new(&bytes[..]).unwrap();
    let data_start = archive.header().data_start() as usize;
    assert_eq!(
        archive.tensor("f64").unwrap().data().as_ptr(),
        bytes[data_start..].as_ptr()
    );
    let view = archive.tensor("u8").unwrap();
    assert_eq!(
        view.as_slice::<u8>().unwrap().as_ptr(),
        view.data().as_ptr()
    );

    let shared = Bytes::from(bytes.clone());
    let checkpoint = Checkpoint::from_bytes(shared.clone()).unwrap();
    let part = checkpoint.bytes("f64").unwrap().unwrap();
    assert_eq!(part.as_ptr(), shared[data_start..].as_ptr());
    assert_eq!(part, tensors()[0].data);
    drop((checkpoint, shared));
    assert_eq!(part, tensors()[0].data);

    let dir = Dir::new();
    let path = dir.write("model.safetensors", &bytes);
    let read = Checkpoint::open(&path).unwrap();
    assert!(read.bytes("f64").unwrap().is_none());
    // SAFETY: nobody else knows of the file.
    let mapped = unsafe { Checkpoint::map(&path) }.unwrap();
    let parts = [(); 2].map(|()| mapped.bytes("f64").unwrap().unwrap());
    assert_eq!(parts[0].as_ptr(), parts[1].as_ptr());
    drop(mapped);
    assert_eq!(parts[0], tensors()[0].data);
}

#[test]
fn an_unknown_name_gets_the_nearest_ones() {
    let names = [
        "model.layers.0.weight",
        "model.layers.1.weight",
        "lm_head.weight",
        "x",
    ];
    let tensors = names.map(|name| Tensor::bytes(name, 1));
    let archive = SafeTensors::new(file_of(&tensors)).unwrap();
    let error = rejected(
        archive.tensor("model.layer.1.weight"),
        NotFound,
        r#"no such tensor; nearest: "model.layers.1.weight", "model.layers.0.weight""#,
    );
    assert_eq!(error.tensor(), Some("model.layer.1.weight"));
    for name in ["", "y", "entirely different", &"long".repeat(10_000)] {
        let error = rejected(archive.tensor(name), NotFound, "no such tensor");
        assert!(!error.to_string().contains("nearest"), "{error}");
    }
}

// Elements.

/// The bytes of a file with one tensor of 48 bytes, whose data lies `past` bytes after a multiple
/// of 16.
fn aligned(dtype: Dtype, past: usize) -> (Vec<u128>, std::ops::Range<usize>) {
    let count = 48 * 8 / dtype.bits() as usize;
    let json = format!("{{{}}}", common::entry("t", dtype, &[count], 0, 48));
    let bytes = file(&json, &counting(48));
    let start = (16 + past - (bytes.len() - 48) % 16) % 16;
    let mut memory = vec![0_u128; bytes.len().div_ceil(16) + 1];
    let place = start..start + bytes.len();
    bytemuck::cast_slice_mut(&mut memory)[place.clone()].copy_from_slice(&bytes);
    (memory, place)
}

#[track_caller]
fn is_seen_as<T: Element + std::fmt::Debug>(dtype: Dtype) {
    for past in 0..=16 {
        let (memory, place) = aligned(dtype, past);
        let bytes = &bytemuck::cast_slice::<_, u8>(&memory)[place];
        let archive = SafeTensors::new(bytes).unwrap();
        let view = archive.tensor("t").unwrap();
        let found = view.as_slice::<T>();
        if past.is_multiple_of(align_of::<T>()) {
            let elements = found.unwrap();
            assert_eq!(elements.as_ptr().cast(), view.data().as_ptr());
            assert_eq!(size_of_val(elements), 48);
        } else {
            let error = rejected(found, Misaligned, "which has alignment");
            assert_eq!(error.tensor(), Some("t"));
        }
    }
    // Every other dtype is refused, whether it lies right or not.
    for &other in Dtype::ALL {
        let (memory, place) = aligned(other, 0);
        let bytes = &bytemuck::cast_slice::<_, u8>(&memory)[place];
        let archive = SafeTensors::new(bytes).unwrap();
        let found = archive.tensor("t").unwrap().as_slice::<T>();
        if T::DTYPES.contains(&other) {
            assert!(found.is_ok());
        } else {
            let error = rejected(
                found,
                InvalidRequest,
                &format!("dtype is {other}, asked for as"),
            );
            assert_eq!(error.tensor(), Some("t"));
        }
    }
}

#[test]
fn elements_of_every_type() {
    is_seen_as::<i8>(Dtype::I8);
    is_seen_as::<u16>(Dtype::U16);
    is_seen_as::<i16>(Dtype::I16);
    is_seen_as::<u32>(Dtype::U32);
    is_seen_as::<i32>(Dtype::I32);
    is_seen_as::<u64>(Dtype::U64);
    is_seen_as::<i64>(Dtype::I64);
    is_seen_as::<f32>(Dtype::F32);
    is_seen_as::<f64>(Dtype::F64);
    is_seen_as::<f16>(Dtype::F16);
    is_seen_as::<bf16>(Dtype::BF16);
    is_seen_as::<float8::F8E4M3>(Dtype::F8E4M3);
    is_seen_as::<float8::F8E5M2>(Dtype::F8E5M2);
    is_seen_as::<[f32; 2]>(Dtype::C64);
    for &dtype in u8::DTYPES {
        is_seen_as::<u8>(dtype);
    }
}

#[test]
fn every_dtype_is_seen_as_something() {
    let mut seen: Vec<Dtype> = [
        u8::DTYPES,
        i8::DTYPES,
        u16::DTYPES,
        i16::DTYPES,
        u32::DTYPES,
        i32::DTYPES,
        u64::DTYPES,
        i64::DTYPES,
        f32::DTYPES,
        f64::DTYPES,
        f16::DTYPES,
        bf16::DTYPES,
        <[f32; 2]>::DTYPES,
    ]
    .concat();
    seen.sort();
    assert_eq!(seen, Dtype::ALL);
}

#[test]
fn no_elements_at_all() {
    let bytes = file_of(&tensors());
    let archive = SafeTensors::new(&bytes[..]).unwrap();
    let none = archive.tensor("none").unwrap();
    assert!(none.data().is_empty() && none.as_slice::<u8>().is_err());
    rejected(none.as_slice::<f32>(), InvalidRequest, "dtype is F64");
}

// Bytes that are not what they were.

/// Returns one slice after the other.
struct Changing<'a> {
    slices: Vec<&'a [u8]>,
    calls: Cell<usize>,
}

impl AsRef<[u8]> for Changing<'_> {
    fn as_ref(&self) -> &[u8] {
        let call = self.calls.get();
        self.calls.set(call + 1);
        self.slices[call % self.slices.len()]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_that_change_at_every_call(ends in proptest::collection::vec(0..=400_usize, 1..6)) {
        let bytes = [file_of(&tensors()), counting(100)].concat();
        let whole = &bytes[..bytes.len() - 100];
        let other = [0xAA; 200];
        let cut = ends.iter().enumerate().map(|(at, &end)| match at % 3 {
            2 => &other[..end.min(other.len())],
            _ => &bytes[..end.min(bytes.len())],
        });
        let slices = std::iter::once(whole).chain(cut).collect();
        let archive = SafeTensors::new(Changing { slices, calls: Cell::new(0) }).unwrap();
        for round in 0..10 {
            let views = archive.tensors().chain(tensors().iter().map(|tensor| {
                archive.tensor(&tensor.name)
            }).collect::<Vec<_>>());
            for view in views {
                match view {
                    Ok(view) => {
                        let bits = view.shape().iter().product::<usize>() * view.dtype().bits() as usize;
                        prop_assert_eq!(view.data().len(), bits / 8);
                        let _ = (view.as_slice::<f64>(), view.as_slice::<u8>());
                    }
                    Err(error) => {
                        let message = "the bytes are no longer those the header was read from";
                        prop_assert!(error.to_string().contains(message), "{}", round);
                        prop_assert_eq!(error.kind(), InvalidRequest);
                        prop_assert!(error.tensor().is_some());
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_that_are_gone() {
    let bytes = file_of(&tensors());
    let slices = vec![&bytes[..], &[]];
    let calls = Cell::new(0);
    let archive = SafeTensors::new(Changing { slices, calls }).unwrap();
    let message = "the bytes are no longer those the header was read from";
    let error = rejected(archive.tensor("u8"), InvalidRequest, message);
    assert_eq!(error.tensor(), Some("u8"));
    assert_eq!(archive.tensor("u8").unwrap().data(), counting(5));
    rejected(archive.tensor("none"), InvalidRequest, message);
}

// Threads.

#[test]
fn whatever_is_shared_may_be_sent() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Checkpoint>();
    is_send_and_sync::<Shard>();
    is_send_and_sync::<Header>();
    is_send_and_sync::<TensorInfo>();
    is_send_and_sync::<TensorView>();
    is_send_and_sync::<SafeTensors<Vec<u8>>>();
    is_send_and_sync::<SafeTensors<Mapped>>();
    is_send_and_sync::<Mapped>();
    is_send_and_sync::<Buffer>();
    is_send_and_sync::<Read>();
    is_send_and_sync::<ReadOptions>();
    is_send_and_sync::<Slice>();
    is_send_and_sync::<Warning>();
    is_send_and_sync::<Error>();
}

#[test]
fn threads_that_share_a_checkpoint() {
    let dir = Dir::new();
    let names: Vec<String> = (0..16).map(|number| format!("t{number}")).collect();
    let tensors: Vec<_> = (0..16_u8)
        .map(|number| {
            let data = counting(50_000 + usize::from(number));
            Tensor::bytes(&names[usize::from(number)], data.len())
        })
        .collect();
    let path = dir.write("model.safetensors", file_of(&tensors));
    let checkpoint = Checkpoint::open(path).unwrap();
    std::thread::scope(|scope| {
        for first in 0..8 {
            let (checkpoint, tensors) = (&checkpoint, &tensors);
            scope.spawn(move || {
                for at in 0..64 {
                    let tensor = &tensors[(first + at * 5) % tensors.len()];
                    assert!(checkpoint.read(&tensor.name).unwrap() == tensor.data);
                    let part = Slice::all().dim(0, 40_000..);
                    let part = checkpoint.read_slice(&tensor.name, &part).unwrap();
                    assert!(part == tensor.data[40_000..]);
                }
            });
        }
    });
}

/// Large and small tensors over two shards, as a load meets them: 30 MB in all.
fn large_checkpoint(dir: &Dir) -> (Checkpoint, Vec<Tensor>) {
    let tensors: Vec<_> = [9 << 20, 17, 0, (4 << 20) + 1, 100_000, 8 << 20, 3, 8 << 20]
        .into_iter()
        .enumerate()
        .map(|(number, len)| Tensor::bytes(&format!("t{number}"), len))
        .collect();
    let (first, second) = tensors.split_at(4);
    let paths = [
        dir.write("1.safetensors", file_of(first)),
        dir.write("2.safetensors", file_of(second)),
    ];
    (Checkpoint::open_files(paths).unwrap(), tensors)
}

#[test]
fn any_number_of_threads_reads_the_same() {
    let dir = Dir::new();
    let (checkpoint, tensors) = large_checkpoint(&dir);
    for threads in [0, 1, 2, 8, 1000] {
        let mut memory: Vec<_> = tensors
            .iter()
            .map(|tensor| vec![0; tensor.data.len()])
            .collect();
        let reads = tensors.iter().zip(&mut memory);
        // In any order.
        let reads: Vec<_> = reads
            .map(|(tensor, into)| Read::new(&tensor.name, into))
            .rev()
            .collect();
        checkpoint
            .read_into(reads, &ReadOptions::new().threads(threads))
            .unwrap();
        for (tensor, found) in tensors.iter().zip(&memory) {
            assert!(
                *found == tensor.data,
                "{} by {threads} threads",
                tensor.name
            );
        }
    }
}

#[test]
fn elements_are_read_as_what_they_are() {
    let dir = Dir::new();
    let path = dir.write("model.safetensors", file_of(&tensors()));
    let read = Checkpoint::open(&path).unwrap();
    let in_memory = Checkpoint::from_bytes(file_of(&tensors())).unwrap();
    for checkpoint in [read, in_memory] {
        let doubles: Vec<f64> = checkpoint.read_elements("f64").unwrap();
        assert_eq!(bytemuck::cast_slice::<_, u8>(&doubles), counting(48));
        assert_eq!(checkpoint.read_elements::<f32>("f32").unwrap(), [1.5]);
        assert_eq!(checkpoint.read_elements::<u8>("u8").unwrap(), counting(5));
        assert!(checkpoint.read_elements::<f64>("none").unwrap().is_empty());

        let found = checkpoint.read_elements::<f32>("f64");
        let error = rejected(found, InvalidRequest, "dtype is F64, asked for as f32");
        assert_eq!(error.tensor(), Some("f64"));
        assert!(error.path().is_some());
        rejected(checkpoint.read_elements::<u8>("f32"), InvalidRequest, "F32");
        rejected(checkpoint.read_elements::<u8>("x"), NotFound, "no such");
    }
}

#[test]
fn the_same_tensor_twice_in_one_read() {
    let checkpoint = Checkpoint::from_bytes(file_of(&tensors())).unwrap();
    let (mut whole, mut part) = ([0; 5], [0; 2]);
    let reads = [
        Read::new("u8", &mut whole),
        Read::new("u8", &mut part).slice(Slice::all().dim(0, 3..)),
    ];
    checkpoint.read_into(reads, &ReadOptions::new()).unwrap();
    assert_eq!((whole, part), ([1, 2, 3, 4, 5], [4, 5]));
    checkpoint.read_into([], &ReadOptions::new()).unwrap();
}

#[test]
fn progress_reaches_the_total() {
    let dir = Dir::new();
    let (checkpoint, tensors) = large_checkpoint(&dir);
    let total: u64 = tensors.iter().map(|tensor| tensor.data.len() as u64).sum();
    for threads in [1, 8] {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = calls.clone();
        let options = ReadOptions::new()
            .threads(threads)
            .progress(move |done, total| seen.lock().unwrap().push((done, total)));
        let mut memory: Vec<_> = tensors
            .iter()
            .map(|tensor| vec![0; tensor.data.len()])
            .collect();
        let reads = tensors.iter().zip(&mut memory);
        let reads = reads.map(|(tensor, into)| Read::new(&tensor.name, into));
        checkpoint.read_into(reads, &options).unwrap();

        let mut calls = calls.lock().unwrap().clone();
        assert!(calls.len() > 5, "{calls:?}");
        assert!(calls.iter().all(|&(_, of)| of == total), "{calls:?}");
        if threads > 1 {
            // Which thread calls first is left open.
            calls.sort_unstable();
        }
        assert!(calls.is_sorted_by(|a, b| a.0 < b.0), "{calls:?}");
        assert_eq!(calls.last(), Some(&(total, total)));
    }
}

#[test]
fn progress_counts_bytes_of_the_file() {
    let tensor = Tensor::new("t", Dtype::F16, &[10, 10], [0; 200]);
    let checkpoint = Checkpoint::from_bytes(file_of(&[tensor])).unwrap();
    let last = Arc::new(Mutex::new((0, 0)));
    let seen = last.clone();
    let options = ReadOptions::new().progress(move |done, total| {
        *seen.lock().unwrap() = (done, total);
    });
    let mut into = [0; 10 * 3 * 8];
    let read = Read::new("t", &mut into).slice(Slice::all().dim(1, 2..5));
    checkpoint
        .read_into([read.cast(Dtype::F64)], &options)
        .unwrap();
    assert_eq!(*last.lock().unwrap(), (60, 60));
}

// Buffers.

/// A buffer whose bytes are all written.
fn filled(dtype: Dtype, bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::new(dtype, bytes.len() as u64).unwrap();
    buffer.bytes_mut().write_copy_of_slice(bytes);
    // SAFETY: all of them have just been written.
    unsafe { buffer.assume_filled() };
    buffer
}

#[test]
fn a_filled_buffer_becomes_a_vec() {
    let bytes = counting(48);
    assert_eq!(filled(Dtype::U8, &bytes).into_vec::<u8>().unwrap(), bytes);
    let floats = filled(Dtype::F32, &bytes).into_vec::<f32>().unwrap();
    assert_eq!(bytemuck::cast_slice::<_, u8>(&floats), bytes);
    let doubles = filled(Dtype::F64, &bytes).into_vec::<f64>().unwrap();
    assert_eq!(bytemuck::cast_slice::<_, u8>(&doubles), bytes);
    let complex = filled(Dtype::C64, &bytes).into_vec::<[f32; 2]>().unwrap();
    assert_eq!(bytemuck::cast_slice::<_, u8>(&complex), bytes);
    // The vector is one like any other: it grows and shrinks.
    let mut words = filled(Dtype::U16, &bytes).into_vec::<u16>().unwrap();
    words.push(7);
    words.shrink_to_fit();
    assert_eq!((words.len(), words[24]), (25, 7));
}

#[test]
fn a_large_buffer_becomes_a_vec() {
    for bytes in [(2 << 20) - 64, 2 << 20, (5 << 20) + 24] {
        let data = counting(bytes);
        let mut vec = filled(Dtype::F64, &data).into_vec::<f64>().unwrap();
        assert_eq!(vec.len(), bytes / 8);
        assert!(bytemuck::cast_slice::<_, u8>(&vec) == data);
        vec.extend_from_slice(&[1.0; 300_000]);
        vec.shrink_to_fit();
        assert!(bytemuck::cast_slice::<_, u8>(&vec[..bytes / 8]) == data);
    }
}

#[test]
fn a_buffer_that_is_not_what_is_asked_for() {
    let bytes = counting(24);
    let unfilled = Buffer::new(Dtype::F32, 24).unwrap();
    rejected(
        unfilled.into_vec::<f32>(),
        InvalidRequest,
        "has not been filled",
    );
    // Another alignment, whatever the size; another size.
    rejected(
        filled(Dtype::F32, &bytes).into_vec::<u8>(),
        InvalidRequest,
        "are no u8s",
    );
    rejected(
        filled(Dtype::U8, &bytes).into_vec::<f32>(),
        InvalidRequest,
        "are no f32s",
    );
    rejected(
        filled(Dtype::F32, &bytes).into_vec::<f64>(),
        InvalidRequest,
        "are no f64s",
    );
    rejected(
        filled(Dtype::F64, &bytes).into_vec::<[f32; 2]>(),
        InvalidRequest,
        "alignment 8",
    );
    rejected(
        filled(Dtype::U8, &bytes).into_vec::<[u8; 5]>(),
        InvalidRequest,
        "24 bytes",
    );
    rejected(
        filled(Dtype::U8, &bytes).into_vec::<()>(),
        InvalidRequest,
        "are no ()s",
    );
}

#[test]
fn a_buffer_of_nothing() {
    for &dtype in Dtype::ALL {
        let mut buffer = Buffer::new(dtype, 0).unwrap();
        assert!(buffer.bytes_mut().is_empty());
        assert!(buffer.into_vec::<f64>().unwrap().is_empty());
    }
}

#[test]
fn a_buffer_larger_than_memory() {
    for bytes in [1 << 62, i64::MAX as u64, i64::MAX as u64 - 63, u64::MAX] {
        for dtype in [Dtype::U8, Dtype::F64] {
            let message = format!("cannot allocate {bytes} bytes");
            rejected(Buffer::new(dtype, bytes), OutOfMemory, &message);
        }
    }
}

#[test]
fn the_bytes_of_a_buffer_lie_right_for_its_dtype() {
    for &dtype in Dtype::ALL {
        for bytes in [8, 40, 1 << 20, 4 << 20] {
            let mut buffer = Buffer::new(dtype, bytes).unwrap();
            let memory = buffer.bytes_mut();
            assert_eq!(memory.len() as u64, bytes);
            assert!(memory.as_ptr().addr().is_multiple_of(dtype.alignment()));
        }
    }
}

#[test]
fn an_empty_file_and_a_directory_cannot_be_mapped_as_tensors() {
    let dir = Dir::new();
    let path = dir.write("model.safetensors", "");
    // SAFETY: nobody else knows of the file.
    let found = unsafe { Checkpoint::map(&path) };
    rejected(found, ErrorKind::NotSafetensors, "the file is empty");
    // SAFETY: it is no file.
    let found = unsafe { Mapped::open(dir.path()) };
    let error = rejected(found, ErrorKind::NotSafetensors, "is a directory");
    assert_eq!(error.path(), Some(dir.path()));
    // SAFETY: there is no file.
    let found = unsafe { Mapped::open(dir.join("nothing")) };
    rejected(found, ErrorKind::Io, "cannot open");
}
