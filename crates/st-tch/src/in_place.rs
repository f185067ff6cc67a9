//! The memory of tensors that others hold as well.

use std::ops::Range;

use st_format::Dtype;
use tch::{Device, Tensor};

use crate::save::{dtype_of, is_strided, shape_of};

/// The bytes of each tensor's elements in row-major order, for those that can be written where
/// they lie: on the CPU, contiguous, and apart from all the others.
///
/// `None` too for bools, whose bytes have to be looked at before they become such.
pub(crate) fn bytes_of(tensors: &mut [Tensor]) -> Vec<Option<&mut [u8]>> {
    let spans: Vec<Option<Range<usize>>> = tensors.iter().map(span).collect();
    let mut order: Vec<usize> = (0..spans.len()).filter(|&at| spans[at].is_some()).collect();
    order.sort_by_key(|&at| spans[at].as_ref().map(|span| (span.start, span.end)));
    let mut apart = vec![true; spans.len()];
    let mut last: Option<(usize, Range<usize>)> = None;
    for at in order {
        let Some(span) = spans[at].clone() else {
            continue;
        };
        last = match last {
            Some((other, furthest)) if span.start < furthest.end => {
                apart[at] = false;
                apart[other] = false;
                match span.end > furthest.end {
                    true => Some((at, span)),
                    false => Some((other, furthest)),
                }
            }
            _ => Some((at, span)),
        };
    }
    let memory = tensors.iter_mut().zip(spans).zip(apart);
    memory
        .map(|((tensor, span), apart)| {
            let len = span.filter(|_| apart)?.len();
            let start = tensor.data_ptr().cast::<u8>();
            // SAFETY: `span` has shown a contiguous tensor on the CPU with elements, whose memory
            // `start` is the start of and which is `len` bytes long. It is libtorch's, so that all
            // that Rust knows of it is that it holds some bytes, and any bytes are valid u8s; nor
            // are they invalid elements, as bools are left out. The slice lives no longer than the
            // borrow of the tensor, which keeps the memory. No other slice that is returned
            // overlaps it: of spans that do, in the order of their starts, each is found against
            // the one before that reaches furthest, and so is that one. Other handles of the same
            // memory are not used meanwhile: the caller only reads into the slices. That a handle
            // on another thread is, is a data race that tch itself calls safe and that every
            // in-place operation of its has; tch gives no way to exclude it.
            Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
        })
        .collect()
}

/// Where a tensor's elements lie, if they can be written there.
fn span(tensor: &Tensor) -> Option<Range<usize>> {
    let dtype = dtype_of(tensor).ok()?;
    let is_plain = tensor.device() == Device::Cpu
        && is_strided(tensor)
        && tensor.is_contiguous()
        && !tensor.f_is_conj().ok()?
        && !tensor.f_is_neg().ok()?
        && dtype != Dtype::Bool;
    let len = shape_of(tensor).iter().product::<usize>() * dtype.bytes()?;
    if !is_plain || len == 0 {
        return None;
    }
    let start = tensor.data_ptr().addr();
    Some(start..start + len)
}
