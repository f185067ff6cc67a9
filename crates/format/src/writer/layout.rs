//! What a file will hold, and the header that says so.

use std::collections::{BTreeMap, HashSet};

use crate::error::{Error, ErrorKind, Result};
use crate::header::METADATA;
use crate::{Dtype, Header, MAX_HEADER_LEN};

/// The tensors and metadata of a file to be written.
///
/// The header and the order of the data are, byte for byte, those of the reference implementation
/// (crate `safetensors` 0.8): tensors sorted by dtype, widest first, then by name; `__metadata__`
/// first in the header, with sorted keys; the header padded with spaces to a multiple of 8 bytes.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    tensors: Vec<(String, Dtype, Vec<usize>)>,
    names: HashSet<String>,
    metadata: BTreeMap<String, String>,
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
        let fault = match name {
            METADATA => Some("the format keeps this name for metadata"),
            _ if !self.names.insert(name.to_owned()) => Some("two tensors have this name"),
            _ => None,
        };
        if let Some(fault) = fault {
            return Err(Error::new(ErrorKind::InvalidRequest, fault).with_tensor(name));
        }
        self.tensors.push((name.to_owned(), dtype, shape.to_vec()));
        Ok(())
    }

    /// Adds free text to `__metadata__`, in place of what was there under that key.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.metadata.insert(key.into(), value.into());
    }

    /// The first bytes of the file, up to the data, and the header they say.
    pub(super) fn into_header(mut self) -> Result<(Vec<u8>, Header)> {
        self.tensors
            .sort_by(|(a_name, a, _), (b_name, b, _)| b.cmp(a).then(a_name.cmp(b_name)));
        let mut json = String::from("{");
        if !self.metadata.is_empty() {
            push_string(&mut json, METADATA);
            json.push_str(":{");
            for (key, value) in &self.metadata {
                push_string(&mut json, key);
                json.push(':');
                push_string(&mut json, value);
                json.push(',');
            }
            close(&mut json, '}');
            json.push(',');
        }
        let mut begin = 0_u64;
        for (name, dtype, shape) in &self.tensors {
            let end = byte_len(*dtype, shape).and_then(|len| begin.checked_add(len));
            let end = end.ok_or_else(|| {
                let message = format!("{dtype} {shape:?} is no whole number of bytes below 2^64");
                Error::new(ErrorKind::InvalidRequest, message).with_tensor(name)
            })?;
            push_string(&mut json, name);
            let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
            json.push_str(&format!(
                r#":{{"dtype":"{dtype}","shape":[{}],"data_offsets":[{begin},{end}]}},"#,
                dims.join(",")
            ));
            begin = end;
        }
        close(&mut json, '}');
        while !json.len().is_multiple_of(8) {
            json.push(' ');
        }
        let len = json.len() as u64;
        if len > MAX_HEADER_LEN {
            return Err(Error::new(
                ErrorKind::InvalidRequest,
                format!("the header would be {len} bytes long, the limit is {MAX_HEADER_LEN}"),
            ));
        }
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend(json.into_bytes());
        let header = Header::parse(&bytes)?;
        Ok((bytes, header))
    }
}

/// Ends an object, in place of the comma after its last member.
fn close(json: &mut String, bracket: char) {
    if json.ends_with(',') {
        json.pop();
    }
    json.push(bracket);
}

fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<u64> {
    let elements = shape
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64))?;
    let bits = elements.checked_mul(u64::from(dtype.bits()))?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// Appends a JSON string, escaped as little as the syntax allows, as the reference does.
fn push_string(json: &mut String, string: &str) {
    json.push('"');
    for c in string.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..='\u{1f}' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => json.push(c),
        }
    }
    json.push('"');
}
