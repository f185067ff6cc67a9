//! Files that are something else, recognised by how they begin.

use crate::MAX_HEADER_LEN;
use crate::error::{Error, ErrorKind};

/// How many bytes of a file are enough to tell what it is.
pub(crate) const LOOK_AT: usize = 64;

const STARTS: &[(&[u8], &str)] = &[
    (
        b"version https://git-lfs",
        "a Git LFS pointer; run `git lfs pull` to get the file itself",
    ),
    (
        b"PK\x03\x04",
        "a zip archive, such as a PyTorch checkpoint (.pt, .bin) or .npz",
    ),
    (b"GGUF", "a GGUF file"),
    (b"ggml", "a GGML file"),
    (
        b"\x80\x02",
        "a Python pickle, such as an old PyTorch checkpoint",
    ),
    (b"\x93NUMPY", "a NumPy array (.npy)"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"<?xml", "an XML document, such as an error page"),
];

/// What a file that begins with these bytes is, if it is known and is neither safetensors nor JSON.
pub(crate) fn recognise(start: &[u8]) -> Option<&'static str> {
    if let Some((_, what)) = STARTS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Some(what);
    }
    let text = start.trim_ascii_start();
    let begins_with = |tag: &[u8]| {
        text.get(..tag.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(tag))
    };
    if begins_with(b"<!doctype html") || begins_with(b"<html") {
        return Some("an HTML page, such as a download's error page");
    }
    None
}

/// Replaces an error about a header that makes no sense by what the file is, where that can be
/// told from its first bytes.
pub(crate) fn explain(start: &[u8], error: Error) -> Error {
    let is_about_the_header = matches!(
        error.kind(),
        ErrorKind::InvalidHeader | ErrorKind::NotSafetensors
    );
    let json = "JSON without the eight bytes of length before it";
    let is_json = start.trim_ascii_start().starts_with(b"{");
    match recognise(start).or(is_json.then_some(json)) {
        // The length of a header may look like the start of something else.
        Some(what) if is_about_the_header && !begins_with_a_header(start) => Error::new(
            ErrorKind::NotSafetensors,
            format!("this is no safetensors file but {what}"),
        ),
        _ => error,
    }
}

/// Whether a length within the limit is followed by what may be a header.
fn begins_with_a_header(start: &[u8]) -> bool {
    start.split_first_chunk().is_some_and(|(len, text)| {
        u64::from_le_bytes(*len) <= MAX_HEADER_LEN && text.trim_ascii_start().starts_with(b"{")
    })
}
