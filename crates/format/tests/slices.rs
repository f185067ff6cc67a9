//! Parts of tensors: the bytes read are those of the elements asked for, however they are read.

mod common;

use std::ops::{Bound, RangeBounds};

use common::{Dir, Tensor, counting, file_of, rejected};
use proptest::prelude::*;
use st_format::{Checkpoint, Dtype, ErrorKind, Read, ReadOptions, Slice};

use ErrorKind::InvalidRequest;

/// What is taken of one dimension.
#[derive(Clone, Debug)]
enum Take {
    All,
    Range(Bound<usize>, Bound<usize>, usize),
    Share(usize, usize),
}

impl Take {
    fn of(&self, slice: Slice, dim: usize) -> Slice {
        match *self {
            Take::All => slice,
            Take::Range(start, end, 1) => slice.dim(dim, (start, end)),
            Take::Range(start, end, step) => slice.dim_step(dim, (start, end), step),
            Take::Share(rank, world_size) => slice.share(dim, rank, world_size),
        }
    }

    /// Whether the index is taken, out of `size`.
    fn takes(&self, index: usize, size: usize) -> bool {
        match *self {
            Take::All => true,
            Take::Range(start, end, step) => {
                let first = match start {
                    Bound::Included(first) => first,
                    Bound::Excluded(before) => before + 1,
                    Bound::Unbounded => 0,
                };
                (start, end).contains(&index) && (index - first).is_multiple_of(step)
            }
            Take::Share(rank, world_size) => index / (size / world_size) == rank,
        }
    }
}

fn slice_of(takes: &[Take]) -> Slice {
    takes
        .iter()
        .enumerate()
        .fold(Slice::all(), |slice, (dim, take)| take.of(slice, dim))
}

/// Element by element: the shape of what is taken, and its bytes, or none where bytes would have
/// to be cut.
fn model(tensor: &Tensor, takes: &[Take]) -> (Vec<usize>, Option<Vec<u8>>) {
    let shape = &tensor.shape;
    let count =
        |(take, &size): (&Take, &usize)| (0..size).filter(|&index| take.takes(index, size)).count();
    let part_shape = takes.iter().zip(shape).map(count).collect();
    let bits = tensor.dtype.bits() as usize;
    let mut bits_taken = vec![0; tensor.data.len()];
    for element in 0..shape.iter().product() {
        let mut rest = element;
        let is_taken = takes.iter().zip(shape).rev().all(|(take, &size)| {
            let index = rest % size;
            rest /= size;
            take.takes(index, size)
        });
        if is_taken {
            for bit in element * bits..(element + 1) * bits {
                bits_taken[bit / 8] += 1;
            }
        }
    }
    let is_whole = bits_taken.iter().all(|&taken| taken == 0 || taken == 8);
    let bytes = tensor.data.iter().zip(&bits_taken);
    let taken = bytes.filter(|&(_, &taken)| taken == 8);
    (
        part_shape,
        is_whole.then(|| taken.map(|(&byte, _)| byte).collect()),
    )
}

fn range(size: usize) -> impl Strategy<Value = Take> {
    (0..=size, 0..=size, 0..4, 0..4, 1..5_usize).prop_map(move |(a, b, from, to, step)| {
        let (first, end) = (a.min(b), a.max(b));
        let start = match from {
            0 if first > 0 => Bound::Excluded(first - 1),
            1 if first == 0 => Bound::Unbounded,
            _ => Bound::Included(first),
        };
        let end = match to {
            0 if end > 0 => Bound::Included(end - 1),
            1 if end == size => Bound::Unbounded,
            _ => Bound::Excluded(end),
        };
        Take::Range(start, end, step)
    })
}

fn share(size: usize) -> impl Strategy<Value = Take> {
    let divisors: Vec<usize> = (1..=size.max(1))
        .filter(|&parts| size.is_multiple_of(parts))
        .collect();
    proptest::sample::select(divisors)
        .prop_flat_map(|parts| (0..parts, Just(parts)))
        .prop_map(|(rank, parts)| Take::Share(rank, parts))
}

fn take(size: usize) -> impl Strategy<Value = Take> {
    prop_oneof![Just(Take::All), range(size), share(size)]
}

/// A tensor and what is taken of it.
fn tensor_and_takes() -> impl Strategy<Value = (Tensor, Vec<Take>)> {
    let dtype = proptest::sample::select(Dtype::ALL);
    let shape = proptest::collection::vec(0..=6_usize, 0..=5);
    (dtype, shape).prop_flat_map(|(dtype, mut shape)| {
        // The whole tensor has to be whole bytes; parts of it need not.
        let bits = shape.iter().product::<usize>() * dtype.bits() as usize;
        if !bits.is_multiple_of(8) {
            shape.push(4);
        }
        let len = shape.iter().product::<usize>() * dtype.bits() as usize / 8;
        let tensor = Tensor::new("tensor", dtype, &shape, counting(len));
        let takes: Vec<_> = shape.into_iter().map(|size| take(size).boxed()).collect();
        (Just(tensor), takes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_slice_is_its_elements((tensor, takes) in tensor_and_takes(), before in 0..9_usize) {
        let (shape, expected) = model(&tensor, &takes);
        let slice = slice_of(&takes);
        prop_assert_eq!(slice.shape(&tensor.shape).unwrap(), shape);

        let dir = Dir::new();
        let bytes = file_of(&[Tensor::bytes("before", before), tensor.clone()]);
        let path = dir.write("model.safetensors", &bytes);
        let read = Checkpoint::open(&path).unwrap();
        let in_memory = Checkpoint::from_bytes(bytes).unwrap();
        // SAFETY: nobody else knows of the file.
        let mapped = unsafe { Checkpoint::map(&path) }.unwrap();
        for checkpoint in [read, in_memory, mapped] {
            let found = checkpoint.read_slice("tensor", &slice);
            match &expected {
                Some(expected) => {
                    prop_assert_eq!(&found.unwrap(), expected);
                    let (mut part, mut whole) = (vec![0; expected.len()], tensor.data.clone());
                    whole.fill(0);
                    let reads = [
                        Read::new("tensor", &mut part).slice(slice.clone()),
                        Read::new("tensor", &mut whole),
                    ];
                    checkpoint.read_into(reads, &ReadOptions::new()).unwrap();
                    prop_assert_eq!(&part, expected);
                    prop_assert_eq!(&whole, &tensor.data);
                }
                None => {
                    rejected(found, InvalidRequest, "inside a byte");
                }
            }
        }
    }
}

#[test]
fn slices_that_cut_bytes() {
    let cases = [
        (Dtype::F4, 4, 0..1, false),
        (Dtype::F4, 4, 1..3, false),
        (Dtype::F4, 4, 0..2, true),
        (Dtype::F4, 4, 2..4, true),
        (Dtype::F6E2M3, 8, 0..2, false),
        (Dtype::F6E2M3, 8, 2..6, false),
        (Dtype::F6E2M3, 8, 0..4, true),
        (Dtype::F6E3M2, 8, 4..8, true),
        // Nothing is no cut.
        (Dtype::F4, 4, 1..1, true),
        (Dtype::F6E3M2, 8, 3..3, true),
    ];
    for (dtype, len, range, is_whole) in cases {
        let data = counting(len * dtype.bits() as usize / 8);
        let tensor = Tensor::new("t", dtype, &[len], data.clone());
        let checkpoint = Checkpoint::from_bytes(file_of(&[tensor])).unwrap();
        let found = checkpoint.read_slice("t", &Slice::all().dim(0, range.clone()));
        if is_whole {
            let bits = dtype.bits() as usize;
            let bytes = range.start * bits / 8..range.end * bits / 8;
            assert_eq!(
                found.unwrap(),
                data[bytes.start..bytes.end.max(bytes.start)]
            );
        } else {
            let error = rejected(found, InvalidRequest, "inside a byte");
            assert!(error.to_string().contains(dtype.name()));
            assert_eq!(error.tensor(), Some("t"));
        }
    }
}

#[test]
fn slices_that_do_not_fit() {
    let tensor = Tensor::bytes("t", 60);
    let tensor = Tensor::new("t", Dtype::U8, &[3, 4, 5], tensor.data);
    let scalar = Tensor::new("scalar", Dtype::F32, &[], [0; 4]);
    let empty = Tensor::new("empty", Dtype::F32, &[0], []);
    let checkpoint = Checkpoint::from_bytes(file_of(&[tensor, scalar, empty])).unwrap();
    let all = Slice::all;
    let from_after = |first| (Bound::Excluded(first), Bound::Unbounded);
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = 3..1;
    for (name, slice, fault) in [
        ("t", all().dim(0, 0..4), "range 0..4 is not within 0..3"),
        ("t", all().dim(0, 4..), "range 4..3 is not within 0..3"),
        ("t", all().dim(0, 4..4), "range 4..4 is not within 0..3"),
        ("t", all().dim(1, ..=4), "range 0..5 is not within 0..4"),
        ("t", all().dim(2, reversed), "range 3..1 is not within 0..5"),
        ("t", all().dim(0, ..=usize::MAX), "past the largest index"),
        (
            "t",
            all().dim(0, from_after(usize::MAX)),
            "past the largest index",
        ),
        ("t", all().dim(0, usize::MAX..), "is not within 0..3"),
        ("t", all().dim(0, ..usize::MAX), "is not within 0..3"),
        ("t", all().dim_step(0, .., 0), "the step is 0"),
        ("t", all().dim_step(0, 1..1, 0), "the step is 0"),
        (
            "t",
            all().dim(1, ..).dim(1, ..),
            "the dimension is given twice",
        ),
        (
            "t",
            all().share(1, 0, 2).dim(1, ..),
            "the dimension is given twice",
        ),
        ("t", all().dim(3, ..), "there is no such dimension"),
        ("t", all().dim(usize::MAX, ..), "there is no such dimension"),
        (
            "t",
            all().share(1, 4, 4),
            "rank 4 is not below world size 4",
        ),
        (
            "t",
            all().share(1, 0, 0),
            "rank 0 is not below world size 0",
        ),
        (
            "t",
            all().share(1, 0, 3),
            "4 indices cannot be shared equally among 3",
        ),
        (
            "t",
            all().share(1, 0, 8),
            "4 indices cannot be shared equally among 8",
        ),
        ("scalar", all().dim(0, ..), "there is no such dimension"),
        ("empty", all().dim(0, 0..1), "range 0..1 is not within 0..0"),
    ] {
        let shape = checkpoint.info(name).unwrap().shape();
        rejected(slice.shape(shape), InvalidRequest, fault);
        let error = rejected(checkpoint.read_slice(name, &slice), InvalidRequest, fault);
        assert_eq!(error.tensor(), Some(name));
        let mut into = [0; 60];
        let read = Read::new(name, &mut into).slice(slice);
        rejected(
            checkpoint.read_into([read], &ReadOptions::new()),
            InvalidRequest,
            fault,
        );
    }
    for (name, slice, shape) in [
        ("t", all().dim(0, 3..), vec![0, 4, 5]),
        (
            "t",
            all().dim(2, 2..2).dim_step(1, .., usize::MAX),
            vec![3, 1, 0],
        ),
        ("t", all().dim_step(2, 1.., usize::MAX), vec![3, 4, 1]),
        ("empty", all().dim(0, ..), vec![0]),
        ("empty", all().share(0, 6, 7), vec![0]),
        ("scalar", all(), vec![]),
    ] {
        let whole = checkpoint.info(name).unwrap();
        assert_eq!(slice.shape(whole.shape()).unwrap(), shape);
        let size = whole.dtype().bytes().unwrap();
        let found = checkpoint.read_slice(name, &slice).unwrap();
        assert_eq!(found.len(), shape.iter().product::<usize>() * size);
    }
}

#[test]
fn shares_put_together_are_the_tensor() {
    let tensor = Tensor::new("t", Dtype::I16, &[6, 4], counting(48));
    let checkpoint = Checkpoint::from_bytes(file_of(std::slice::from_ref(&tensor))).unwrap();
    let share = |dim, rank, world_size| {
        let slice = Slice::all().share(dim, rank, world_size);
        checkpoint.read_slice("t", &slice).unwrap()
    };
    let rows: Vec<u8> = (0..3).flat_map(|rank| share(0, rank, 3)).collect();
    assert_eq!(rows, tensor.data);
    let (left, right) = (share(1, 0, 2), share(1, 1, 2));
    let halves = left.chunks(4).zip(right.chunks(4));
    let columns: Vec<u8> = halves
        .flat_map(|(left, right)| [left, right].concat())
        .collect();
    assert_eq!(columns, tensor.data);
}

/// A matrix larger than what is read at a time (4 MiB), its rows close to a page long, at an
/// offset that is a multiple of nothing.
const ROWS: usize = 2300;
const COLUMNS: usize = 1021;

fn matrix(columns: usize) -> Tensor {
    let elements = 0..(ROWS * columns) as u32;
    let data: Vec<u8> = elements
        .flat_map(|at| at.wrapping_mul(0x9e37_79b1).to_le_bytes())
        .collect();
    Tensor::new("matrix", Dtype::U32, &[ROWS, columns], data)
}

/// The same as [`model`], row by row.
fn rows_and_columns(
    tensor: &Tensor,
    rows: impl Iterator<Item = usize>,
    columns: impl Iterator<Item = usize> + Clone,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in rows {
        for column in columns.clone() {
            let at = 4 * (row * tensor.shape[1] + column);
            bytes.extend_from_slice(&tensor.data[at..at + 4]);
        }
    }
    bytes
}

#[track_caller]
fn reads_the_same_everywhere(tensor: &Tensor, parts: &[(Slice, Vec<u8>)]) {
    let dir = Dir::new();
    let bytes = file_of(&[Tensor::bytes("before", 13), tensor.clone()]);
    let path = dir.write("model.safetensors", &bytes);
    let read = Checkpoint::open(&path).unwrap();
    let in_memory = Checkpoint::from_bytes(bytes).unwrap();
    for checkpoint in [&read, &in_memory] {
        for (slice, expected) in parts {
            let found = checkpoint.read_slice("matrix", slice).unwrap();
            assert!(found == *expected, "{slice:?}");
        }
        for threads in [1, 3] {
            let mut into: Vec<_> = parts.iter().map(|(_, part)| vec![0; part.len()]).collect();
            let reads = parts.iter().zip(&mut into);
            let reads =
                reads.map(|((slice, _), into)| Read::new("matrix", into).slice(slice.clone()));
            let options = ReadOptions::new().threads(threads);
            checkpoint.read_into(reads, &options).unwrap();
            for (found, (slice, expected)) in into.iter().zip(parts) {
                assert!(found == expected, "{slice:?} by {threads} threads");
            }
        }
    }
}

#[test]
fn short_runs_close_together() {
    let tensor = matrix(COLUMNS);
    let all = || Slice::all();
    reads_the_same_everywhere(
        &tensor,
        &[
            (all(), tensor.data.clone()),
            (all().dim(1, 5..6), rows_and_columns(&tensor, 0..ROWS, 5..6)),
            (
                all().dim(1, 1..1020),
                rows_and_columns(&tensor, 0..ROWS, 1..1020),
            ),
            (
                all().dim_step(0, 3.., 7).dim_step(1, 1..1000, 3),
                rows_and_columns(&tensor, (3..ROWS).step_by(7), (1..1000).step_by(3)),
            ),
            (
                all().dim(0, 17..2100),
                rows_and_columns(&tensor, 17..2100, 0..COLUMNS),
            ),
        ],
    );
}

#[test]
fn runs_longer_than_a_page() {
    let tensor = matrix(1500);
    let all = || Slice::all();
    reads_the_same_everywhere(
        &tensor,
        &[
            // 4100 bytes of each row, 4096, and 4092.
            (
                all().dim(1, 3..1028),
                rows_and_columns(&tensor, 0..ROWS, 3..1028),
            ),
            (
                all().dim(1, 3..1027),
                rows_and_columns(&tensor, 0..ROWS, 3..1027),
            ),
            (
                all().dim(1, 3..1026),
                rows_and_columns(&tensor, 0..ROWS, 3..1026),
            ),
            (
                all().dim_step(0, .., 2).share(1, 2, 3),
                rows_and_columns(&tensor, (0..ROWS).step_by(2), 1000..1500),
            ),
        ],
    );
}

#[test]
fn short_runs_far_apart() {
    let tensor = matrix(1500);
    let all = || Slice::all();
    reads_the_same_everywhere(
        &tensor,
        &[
            // A gap of 4096 bytes and more from one to the next, then just under it.
            (
                all().dim(1, 0..476),
                rows_and_columns(&tensor, 0..ROWS, 0..476),
            ),
            (
                all().dim(1, 0..477),
                rows_and_columns(&tensor, 0..ROWS, 0..477),
            ),
            (
                all().dim(1, 1499..),
                rows_and_columns(&tensor, 0..ROWS, 1499..1500),
            ),
            (
                all().dim_step(0, 1.., 100).dim_step(1, .., 750),
                rows_and_columns(&tensor, (1..ROWS).step_by(100), (0..1500).step_by(750)),
            ),
        ],
    );
}

#[test]
fn several_pieces_of_several_dimensions() {
    let matrix = matrix(COLUMNS);
    let tensor = Tensor {
        shape: vec![23, 100, COLUMNS],
        ..matrix.clone()
    };
    let rows = |outer: std::ops::Range<usize>, inner: std::ops::Range<usize>| {
        outer.flat_map(move |outer| inner.clone().map(move |inner| outer * 100 + inner))
    };
    reads_the_same_everywhere(
        &tensor,
        &[
            (
                Slice::all().dim(0, 1..22).dim(1, 2..98),
                rows_and_columns(&matrix, rows(1..22, 2..98), 0..COLUMNS),
            ),
            (
                Slice::all().dim(0, 3..5).dim(1, 10..90).dim(2, 20..1000),
                rows_and_columns(&matrix, rows(3..5, 10..90), 20..1000),
            ),
            (
                Slice::all().dim(1, 99..).dim_step(2, .., 4),
                rows_and_columns(&matrix, rows(0..23, 99..100), (0..COLUMNS).step_by(4)),
            ),
        ],
    );
}
