//! Part of a tensor, and which bytes of the file it is.

use std::ops::{Bound, RangeBounds};

use crate::error::{Error, ErrorKind, Result};
use crate::{Dtype, TensorInfo};

/// Part of a tensor: for some dimensions a range of indices, for the others everything.
///
/// The result has the tensor's rank. A `Slice` is made without knowing the shape and compared
/// with it when it is read.
///
/// ```
/// use st_format::Slice;
///
/// let rows = Slice::all().dim(0, 10..20);
/// let every_second_column = Slice::all().dim_step(1, .., 2);
/// let second_quarter = Slice::all().share(0, 1, 4);
/// # let _ = (rows, every_second_column, second_quarter);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    dims: Vec<(usize, Selection)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    Range {
        start: Bound<usize>,
        end: Bound<usize>,
        step: usize,
    },
    Share {
        rank: usize,
        world_size: usize,
    },
}

impl Slice {
    /// The whole tensor.
    pub fn all() -> Slice {
        Slice::default()
    }

    /// Takes the indices in `range` of dimension `dim`, counted from the outermost.
    #[must_use]
    pub fn dim(self, dim: usize, range: impl RangeBounds<usize>) -> Slice {
        self.dim_step(dim, range, 1)
    }

    /// Takes every `step`th index in `range` of dimension `dim`, beginning with the first.
    #[must_use]
    pub fn dim_step(mut self, dim: usize, range: impl RangeBounds<usize>, step: usize) -> Slice {
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        self.dims.push((dim, Selection::Range { start, end, step }));
        self
    }

    /// Takes this rank's share of dimension `dim`, as tensor parallel loading does: the
    /// dimension is cut into `world_size` equal parts, of which this is number `rank`.
    #[must_use]
    pub fn share(mut self, dim: usize, rank: usize, world_size: usize) -> Slice {
        self.dims.push((dim, Selection::Share { rank, world_size }));
        self
    }

    /// The shape of this part of a tensor of the given shape.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest): a dimension the shape does not have, or one
    /// given twice; a range outside the dimension; a step of 0; a share of a dimension that
    /// `world_size` does not divide.
    pub fn shape(&self, shape: &[usize]) -> Result<Vec<usize>> {
        Ok(self.resolve(shape)?.iter().map(|part| part.count).collect())
    }

    fn resolve(&self, shape: &[usize]) -> Result<Vec<Part>> {
        let mut parts: Vec<Option<Part>> = vec![None; shape.len()];
        for (dim, selection) in &self.dims {
            let invalid = |fault: String| {
                Error::new(
                    ErrorKind::InvalidRequest,
                    format!("slice of dimension {dim} of {shape:?}: {fault}"),
                )
            };
            let Some(part) = parts.get_mut(*dim) else {
                return Err(invalid("there is no such dimension".into()));
            };
            let resolved = selection.resolve(shape[*dim]).map_err(invalid)?;
            if part.replace(resolved).is_some() {
                return Err(invalid("the dimension is given twice".into()));
            }
        }
        let whole = |(part, &dim): (Option<Part>, &usize)| {
            part.unwrap_or(Part {
                start: 0,
                count: dim,
                step: 1,
            })
        };
        Ok(parts.into_iter().zip(shape).map(whole).collect())
    }
}

/// A selection compared with its dimension: `count` indices, beginning at `start`.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    count: usize,
    step: usize,
}

impl Selection {
    fn resolve(&self, size: usize) -> Result<Part, String> {
        match *self {
            Selection::Range { start, end, step } => {
                let too_large = || "the range ends past the largest index".to_owned();
                let start = match start {
                    Bound::Included(start) => start,
                    Bound::Excluded(start) => start.checked_add(1).ok_or_else(too_large)?,
                    Bound::Unbounded => 0,
                };
                let end = match end {
                    Bound::Included(end) => end.checked_add(1).ok_or_else(too_large)?,
                    Bound::Excluded(end) => end,
                    Bound::Unbounded => size,
                };
                if start > end || end > size {
                    return Err(format!("range {start}..{end} is not within 0..{size}"));
                }
                if step == 0 {
                    return Err("the step is 0".into());
                }
                let count = (end - start).div_ceil(step);
                Ok(Part { start, count, step })
            }
            Selection::Share { rank, world_size } => {
                if rank >= world_size {
                    return Err(format!("rank {rank} is not below world size {world_size}"));
                }
                if !size.is_multiple_of(world_size) {
                    return Err(format!(
                        "{size} indices cannot be shared equally among {world_size}"
                    ));
                }
                let count = size / world_size;
                Ok(Part {
                    start: rank * count,
                    count,
                    step: 1,
                })
            }
        }
    }
}

/// Where the bytes of a part of a tensor lie: `count` runs of `run_len` bytes each, in row-major
/// order, at offsets that grow regularly in each dimension.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// Of the first run, counted from the start of the file.
    start: u64,
    run_len: u64,
    count: u64,
    /// Number of runs and bytes between them, per dimension, outermost first.
    dims: Vec<(u64, u64)>,
}

impl Runs {
    /// A single run of bytes.
    pub(crate) fn contiguous(start: u64, len: u64) -> Runs {
        Runs {
            start,
            run_len: len,
            count: 1,
            dims: Vec::new(),
        }
    }

    /// The bytes of `slice` of a tensor whose data lies at `data_start` of its file, and the
    /// shape of that part.
    pub(crate) fn of_slice(
        slice: &Slice,
        info: &TensorInfo,
        data_start: u64,
    ) -> Result<(Runs, Vec<usize>)> {
        let parts = slice.resolve(info.shape())?;
        let shape: Vec<usize> = parts.iter().map(|part| part.count).collect();
        let tensor_start = data_start + info.data_offsets().start;
        if shape.contains(&0) {
            return Ok((Runs::contiguous(tensor_start, 0), shape));
        }
        // No overflow below: the part is not empty, so neither is the tensor, and all of its
        // bits together have been counted in 64 bits.
        let mut start_bits: u64 = 0;
        let mut run_bits = u64::from(info.dtype().bits());
        let mut stride = run_bits;
        let mut run_is_whole = true;
        let mut dims = Vec::new();
        for (part, &size) in parts.iter().zip(info.shape()).rev() {
            start_bits += part.start as u64 * stride;
            let (count, step) = (part.count as u64, part.step as u64);
            if run_is_whole && (step == 1 || count == 1) {
                // Everything inside is taken, so this dimension lengthens the run.
                run_bits *= count;
                run_is_whole = part.count == size;
            } else {
                run_is_whole = false;
                if count > 1 {
                    dims.push((count, step * stride));
                }
            }
            stride *= size as u64;
        }
        dims.reverse();
        let strides = dims.iter().map(|&(_, stride)| stride);
        if let Some(bits) = strides
            .chain([start_bits, run_bits])
            .find(|bits| !bits.is_multiple_of(8))
        {
            return Err(not_whole_bytes(info.dtype(), bits));
        }
        let dims: Vec<(u64, u64)> = dims
            .into_iter()
            .map(|(count, stride)| (count, stride / 8))
            .collect();
        let runs = Runs {
            start: tensor_start + start_bits / 8,
            run_len: run_bits / 8,
            count: dims.iter().map(|&(count, _)| count).product(),
            dims,
        };
        Ok((runs, shape))
    }

    /// Whether both are single runs, and the other one begins where this one ends.
    pub(crate) fn is_followed_by(&self, other: &Runs) -> bool {
        self.dims.is_empty() && other.dims.is_empty() && self.start + self.run_len == other.start
    }

    /// Takes that many more bytes after a single run.
    pub(crate) fn lengthen(&mut self, bytes: u64) {
        self.run_len += bytes;
    }

    /// The bytes of all runs together.
    pub(crate) fn byte_len(&self) -> u64 {
        self.run_len * self.count
    }

    pub(crate) fn run_len(&self) -> u64 {
        self.run_len
    }

    /// Where run number `at` begins in the file.
    pub(crate) fn offset(&self, mut at: u64) -> u64 {
        let mut offset = self.start;
        for &(count, stride) in self.dims.iter().rev() {
            offset += at % count * stride;
            at /= count;
        }
        offset
    }
}

fn not_whole_bytes(dtype: Dtype, bits: u64) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        format!("slice cuts {dtype} data inside a byte (at bit {bits})"),
    )
}
