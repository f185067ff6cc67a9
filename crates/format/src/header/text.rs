//! A header becomes text.

use std::collections::BTreeMap;

use super::{MAX_HEADER_LEN, METADATA, PREFIX_LEN, TensorInfo};
use crate::error::{Error, ErrorKind, Result};

/// The JSON of a header, without padding: metadata first, then the tensors in the order given, as
/// the reference implementation writes it.
pub(crate) fn json<'a>(
    metadata: &BTreeMap<String, String>,
    tensors: impl Iterator<Item = TensorInfo<'a>>,
) -> String {
    let mut json = String::from("{");
    if !metadata.is_empty() {
        push_string(&mut json, METADATA);
        json.push_str(":{");
        for (key, value) in metadata {
            push_string(&mut json, key);
            json.push(':');
            push_string(&mut json, value);
            json.push(',');
        }
        close(&mut json, '}');
        json.push(',');
    }
    for info in tensors {
        push_string(&mut json, info.name());
        let dims: Vec<String> = info.shape().iter().map(usize::to_string).collect();
        let offsets = info.data_offsets();
        json.push_str(&format!(
            r#":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},"#,
            info.dtype(),
            dims.join(","),
            offsets.start,
            offsets.end
        ));
    }
    close(&mut json, '}');
    json
}

/// The first bytes of a file: the header's length, then the header, padded with spaces to `len`
/// bytes, which are no fewer than it has.
pub(crate) fn padded(json: &str, len: u64) -> Result<Vec<u8>> {
    if len > MAX_HEADER_LEN {
        let message =
            format!("the header would be {len} bytes long, the limit is {MAX_HEADER_LEN}");
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    let mut bytes = Vec::with_capacity((PREFIX_LEN + len) as usize);
    bytes.extend(len.to_le_bytes());
    bytes.extend(json.as_bytes());
    bytes.resize((PREFIX_LEN + len) as usize, b' ');
    Ok(bytes)
}

/// Ends an object, in place of the comma after its last member.
fn close(json: &mut String, bracket: char) {
    if json.ends_with(',') {
        json.pop();
    }
    json.push(bracket);
}

/// Appends a JSON string, escaped as little as the syntax allows, as the reference does.
pub(crate) fn push_string(json: &mut String, string: &str) {
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
