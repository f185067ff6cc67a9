//! Bytes in libtorch's memory become tensors, where they lie.

use std::ops::Range;

use st_format::{Dtype, Error, ErrorKind, Framework, Result};
use tch::{Kind, TchError, Tensor};

use crate::Tch;
use crate::dtype::to_tch;
use crate::error::tch_error;

/// The tensor whose elements are `range` of the bytes in `memory`, which it keeps alive.
///
/// It has no other tie to `memory` or to other tensors there. The range has to begin at a multiple
/// of the elements' size; libtorch itself refuses another one, and one that leaves the memory.
pub(crate) fn in_memory(
    memory: &Tensor,
    range: Range<u64>,
    dtype: Dtype,
    shape: &[usize],
) -> Result<Tensor> {
    let kind = to_tch(dtype).ok_or_else(|| Error::unsupported(dtype, Tch::NAME))?;
    let shape = dims(shape)?;
    let bytes = bytes_in(memory, range)?;
    if kind == Kind::Bool {
        check_bools(&bytes)?;
    }
    let tensor = || {
        // `data`, so that it is no view: views share a version counter, by which autograd would
        // take an in-place change to one tensor for a change to all of them.
        bytes.f_view_dtype(kind)?.f_view(&*shape)?.f_data()
    };
    tensor().map_err(tch_error)
}

/// A range of bytes in memory.
pub(crate) fn bytes_in(memory: &Tensor, range: Range<u64>) -> Result<Tensor> {
    let begin = i64::try_from(range.start).unwrap_or(i64::MAX);
    let len = i64::try_from(range.end - range.start).unwrap_or(i64::MAX);
    memory.f_narrow(0, begin, len).map_err(tch_error)
}

/// Shows that every byte may be a `bool`, as which tch hands them out to Rust.
fn check_bools(bytes: &Tensor) -> Result<()> {
    if bytes.size() == [0] {
        return Ok(());
    }
    let largest = || -> Result<i64, TchError> { bytes.f_max()?.f_int64_value(&[]) };
    match largest().map_err(tch_error)? {
        0 | 1 => Ok(()),
        byte => {
            let message =
                format!("BOOL data holds {byte}, which is neither 0 nor 1; cast it to U8");
            Err(Error::new(ErrorKind::InvalidData, message))
        }
    }
}

fn dims(shape: &[usize]) -> Result<Vec<i64>> {
    let dim = |&dim| {
        i64::try_from(dim).map_err(|_| {
            let message = format!("{} has no dimension of size {dim}", Tch::NAME);
            Error::new(ErrorKind::Unsupported, message)
        })
    };
    shape.iter().map(dim).collect()
}
