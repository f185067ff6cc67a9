//! What a file will hold, and the header that says so.

use std::collections::{BTreeMap, HashSet};

use crate::error::{Error, ErrorKind, Result};
use crate::header::{METADATA, PREFIX_LEN, text};
use crate::{Dtype, Header, TensorInfo, checksum};

/// The tensors and metadata of a file to be written.
///
/// By default the header and the order of the data are, byte for byte, those of the reference
/// implementation (crate `safetensors` 0.8): tensors sorted by dtype, widest first, then by name;
/// `__metadata__` first in the header, with sorted keys; the header padded with spaces to a
/// multiple of 8 bytes.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    tensors: Vec<(String, Dtype, Vec<usize>)>,
    names: HashSet<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) in_given_order: bool,
    alignment: usize,
    reserved: usize,
    checksums: bool,
}

impl Layout {
    /// Nothing yet.
    pub fn new() -> Layout {
        Layout::default()
    }

    /// Declares a tensor.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where the name is taken, or is
    /// `__metadata__`, which the format keeps for itself.
    pub fn tensor(&mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<()> {
        check_name(name, self.names.insert(name.to_owned()))?;
        self.tensors.push((name.to_owned(), dtype, shape.to_vec()));
        Ok(())
    }

    /// Adds free text to `__metadata__`, in place of what was there under that key.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.metadata.insert(key.into(), value.into());
    }

    /// Lays the tensors down in the order they are declared in.
    pub fn in_given_order(&mut self) {
        self.in_given_order = true;
    }

    /// Begins the data at a multiple of `bytes`, a power of two, such as 64 or 4096.
    ///
    /// Each tensor begins where the one before it ends: where those of the widest dtype come
    /// first, as they do by default, all of them are aligned to their dtype.
    pub fn align_data(&mut self, bytes: usize) {
        self.alignment = bytes;
    }

    /// Leaves room in the header, in bytes, for metadata to come ([`Editor`](crate::Editor)).
    pub fn reserve_header(&mut self, bytes: usize) {
        self.reserved = bytes;
    }

    /// Records the SHA-256 of each tensor's bytes in the metadata, under the key `sha256:` and the
    /// tensor's name, as 64 hexadecimal digits. See
    /// [`Checkpoint::verify_checksums`](crate::Checkpoint::verify_checksums).
    pub fn checksums(&mut self) {
        self.checksums = true;
    }

    pub(super) fn has_checksums(&self) -> bool {
        self.checksums
    }

    /// The first bytes of the file, up to the data, and the header they say.
    pub(super) fn into_header(mut self) -> Result<(Vec<u8>, Header)> {
        if !self.in_given_order {
            self.tensors
                .sort_by(|(a_name, a, _), (b_name, b, _)| b.cmp(a).then(a_name.cmp(b_name)));
        }
        if self.checksums {
            let names = self.tensors.iter().map(|(name, ..)| name);
            let sums = names.map(|name| (checksum::key(name), checksum::PLACEHOLDER.to_owned()));
            self.metadata.extend(sums);
        }
        let mut infos = Vec::with_capacity(self.tensors.len());
        let mut begin = 0_u64;
        for (name, dtype, shape) in &self.tensors {
            let len = byte_len(*dtype, shape).map_err(|error| error.with_tensor(name))?;
            let end = begin.checked_add(len).ok_or_else(too_much)?;
            infos.push(TensorInfo::new(name, *dtype, shape, begin..end));
            begin = end;
        }
        let json = text::json(&self.metadata, infos.into_iter());
        let bytes = text::padded(&json, self.header_len(json.len())?)?;
        begin.checked_add(bytes.len() as u64).ok_or_else(too_much)?;
        let header = Header::parse(&bytes)?;
        Ok((bytes, header))
    }

    /// How long the header gets, whose text is `json_len` bytes long.
    fn header_len(&self, json_len: usize) -> Result<u64> {
        let alignment = match self.alignment {
            0 => 8,
            bytes if bytes.is_power_of_two() => bytes.max(8) as u64,
            bytes => {
                let message = format!("data cannot be aligned to {bytes}, which is no power of 2");
                return Err(Error::new(ErrorKind::InvalidRequest, message));
            }
        };
        let end = PREFIX_LEN.saturating_add(json_len as u64);
        let end = end.saturating_add(self.reserved as u64);
        let start = end.checked_next_multiple_of(alignment);
        // What is as long as that, is too long.
        Ok(start.unwrap_or(u64::MAX) - PREFIX_LEN)
    }
}

/// Whether a tensor can be called that.
pub(crate) fn check_name(name: &str, is_new: bool) -> Result<()> {
    let fault = match name {
        METADATA => "the format keeps this name for metadata",
        _ if !is_new => "two tensors have this name",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidRequest, fault).with_tensor(name))
}

fn too_much() -> Error {
    let message = "the tensors together overflow 64 bits";
    Error::new(ErrorKind::InvalidRequest, message)
}

/// The bytes that elements of such a dtype and shape take.
pub(crate) fn byte_len(dtype: Dtype, shape: &[usize]) -> Result<u64> {
    let bits = shape
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64))
        .and_then(|elements| elements.checked_mul(u64::from(dtype.bits())));
    let fault = match bits {
        Some(bits) if bits.is_multiple_of(8) => return Ok(bits / 8),
        Some(bits) => format!("takes {bits} bits, which is no whole number of bytes"),
        None => "overflows 64 bits".to_owned(),
    };
    let message = format!("{dtype} {shape:?} {fault}");
    Err(Error::new(ErrorKind::InvalidRequest, message))
}
