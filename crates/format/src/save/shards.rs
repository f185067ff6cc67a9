//! Distributing tensors among shards, and the index that says which is where.

use std::collections::BTreeMap;

use super::Part;
use crate::checkpoint::MAX_INDEX_LEN;
use crate::error::{Error, ErrorKind, Result};
use crate::header::text::push_string;

/// Fills shards one after the other, in the order given, up to `limit` bytes. There is at least
/// one shard.
pub(super) fn split<'a, 'b>(parts: &'b [Part<'a>], limit: u64) -> Vec<Vec<&'b Part<'a>>> {
    let mut shards = vec![Vec::new()];
    let mut filled: u64 = 0;
    for part in parts {
        filled = filled.saturating_add(part.bytes);
        match shards.last_mut() {
            Some(shard) if shard.is_empty() || filled <= limit => shard.push(part),
            _ => {
                filled = part.bytes;
                shards.push(vec![part]);
            }
        }
    }
    shards
}

/// The index's text, as Hugging Face's transformers writes it.
pub(super) fn index(shards: &[Vec<&Part>], file_names: &[String]) -> Result<String> {
    let parts = shards.iter().flatten();
    let total_size = parts.map(|part| part.bytes).fold(0, u64::saturating_add);
    let mut weight_map = BTreeMap::new();
    for (parts, file_name) in shards.iter().zip(file_names) {
        weight_map.extend(parts.iter().map(|part| (part.name, file_name)));
    }
    let mut json = format!(
        "{{\n  \"metadata\": {{\n    \"total_size\": {total_size}\n  }},\n  \"weight_map\": {{"
    );
    for (at, (name, file_name)) in weight_map.into_iter().enumerate() {
        json.push_str(if at == 0 { "\n    " } else { ",\n    " });
        push_string(&mut json, name);
        json.push_str(": ");
        push_string(&mut json, file_name);
    }
    json.push_str("\n  }\n}\n");
    let json = in_ascii(&json);
    match json.len() as u64 <= MAX_INDEX_LEN {
        true => Ok(json),
        false => {
            let len = json.len();
            let message =
                format!("the index would be {len} bytes long, the limit is {MAX_INDEX_LEN}");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
    }
}

/// The same JSON as Python writes it: all that is not printable ASCII is escaped in its strings.
fn in_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            ' '..='~' | '\n' => ascii.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    ascii.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    ascii
}

/// The number of bytes that people write as `5GB`, `200MiB` or `1000`: decimal and binary units,
/// in any case, with or without a space between.
///
/// ```
/// use st_format::byte_size;
///
/// assert_eq!(byte_size("5GB")?, 5_000_000_000);
/// assert_eq!(byte_size("200 MiB")?, 200 << 20);
/// assert_eq!(byte_size("1000")?, 1000);
/// # Ok::<(), st_format::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidRequest`](ErrorKind::InvalidRequest) for anything else, and for more than 64 bits.
pub fn byte_size(text: &str) -> Result<u64> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("B", 1),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KIB", 1 << 10),
        ("MIB", 1 << 20),
        ("GIB", 1 << 30),
        ("TIB", 1 << 40),
    ];

    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let units = UNITS
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name));
    let size = units.and_then(|(_, bytes)| number.parse::<u64>().ok()?.checked_mul(*bytes));
    size.ok_or_else(|| {
        let message = format!("{text:?} is no size of 64 bits such as 5GB, 200MiB or 1000");
        Error::new(ErrorKind::InvalidRequest, message)
    })
}
