//! The layout rules: what offsets, dtypes and shapes have to say of each other.
//!
//! The rules are those of the reference implementation's `Metadata::validate` (crate
//! `safetensors` 0.8): in order of their offsets, each tensor begins where the one before ended,
//! and its bytes are as many as its dtype and shape need.

use super::{Entry, Header, name_in};
use crate::error::{Error, ErrorKind, Quoted, Result};

/// Checks the entries, which are in file order, and returns the length of the data in bytes.
pub(super) fn layout(header: &Header) -> Result<u64> {
    let mut previous = None;
    for (at, entry) in header.entries.iter().enumerate() {
        tensor(header, entry, previous).map_err(|message| {
            Error::new(ErrorKind::InvalidLayout, message).with_tensor(header.at(at).name)
        })?;
        previous = Some(entry);
    }
    let data_len = previous.map_or(0, |last| last.end);
    file_len(header, data_len)?;
    Ok(data_len)
}

/// The file's length, which has to be one that 64 bits can count.
// Inlined, it makes the loop over all tensors slower (`cargo xtask counts`).
#[inline(never)]
fn file_len(header: &Header, data_len: u64) -> Result<u64> {
    header.data_start().checked_add(data_len).ok_or_else(|| {
        let message = format!("a header and {data_len} bytes of tensors overflow 64 bits");
        Error::new(ErrorKind::InvalidLayout, message)
    })
}

fn tensor(header: &Header, entry: &Entry, previous: Option<&Entry>) -> Result<(), String> {
    let Entry {
        begin, end, dtype, ..
    } = *entry;
    let shape = &header.dims[entry.dims.0 as usize..][..entry.dims.1 as usize];
    if begin > end {
        return Err(format!(
            "data_offsets [{begin}, {end}] end before they begin"
        ));
    }
    let end_of_previous = previous.map_or(0, |previous| previous.end);
    if begin != end_of_previous {
        let previous = match previous {
            Some(previous) => format!("tensor {}", Quoted(name_in(&header.names, previous))),
            None => "the start of the data".to_owned(),
        };
        let fault = match begin < end_of_previous {
            true => format!("overlap {previous}, which ends at {end_of_previous}"),
            false => format!("leave a hole after {previous}, at {end_of_previous}"),
        };
        return Err(format!("data_offsets [{begin}, {end}] {fault}"));
    }
    let bits = shape
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64))
        .and_then(|elements| elements.checked_mul(u64::from(dtype.bits())))
        .ok_or_else(|| format!("the size of {dtype} {} overflows 64 bits", Shape(shape)))?;
    if !bits.is_multiple_of(8) {
        return Err(format!(
            "{dtype} {} takes {bits} bits, which is no whole number of bytes",
            Shape(shape)
        ));
    }
    let (found, needed) = (end - begin, bits / 8);
    if found != needed {
        return Err(format!(
            "data_offsets [{begin}, {end}] hold {found} bytes, {dtype} {} needs {needed}",
            Shape(shape)
        ));
    }
    Ok(())
}

/// A shape in an error, cut where a hostile file made it long.
struct Shape<'a>(&'a [usize]);

impl std::fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LONGEST: usize = 16;
        match self.0.get(..LONGEST) {
            Some(start) if self.0.len() > LONGEST => {
                write!(f, "{start:?}… (rank {})", self.0.len())
            }
            _ => write!(f, "{:?}", self.0),
        }
    }
}
