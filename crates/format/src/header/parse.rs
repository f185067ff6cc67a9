//! From JSON text to entries: the shape of the header's JSON, without judging what it says.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{Entry, Header, METADATA, NameHash, Oddities};
use crate::Dtype;
use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::huge_pages;
use crate::json::{Cursor, SyntaxError};

const DTYPE: &str = "dtype";
const SHAPE: &str = "shape";
const DATA_OFFSETS: &str = "data_offsets";

/// How many objects a field of an entry stands in: the header and the entry.
const FIELD_DEPTH: u32 = 2;

pub(super) fn header(text: &str) -> Result<Header> {
    let mut header = Header {
        len: text.len() as u64,
        data_len: 0,
        // Room for the tensors of usual headers, so that nothing is moved while it grows. All of
        // it together is less than twice the header's length.
        names: String::from_utf8(huge_pages::vec(text.len() / 2)).unwrap_or_default(),
        dims: huge_pages::vec(text.len() / 32),
        entries: huge_pages::vec(text.len() / 64),
        by_name: Default::default(),
        metadata: Default::default(),
        oddities: Oddities {
            leading_space: text.starts_with([' ', '\n', '\t', '\r']),
            ..Oddities::default()
        },
    };
    let mut cursor = Cursor::new(text);
    let mut metadata_seen = false;
    let mut first = true;
    cursor.open(b'{', "'{'").map_err(in_header)?;
    while let Some(key) = cursor.next_key(&mut first).map_err(in_header)? {
        if key == METADATA {
            if std::mem::replace(&mut metadata_seen, true) {
                return Err(in_header(twice(&cursor, METADATA)));
            }
            metadata(&mut cursor, &mut header).map_err(in_header)?;
        } else {
            entry(&mut cursor, &mut header, &key)
                .map_err(|error| in_header(error).with_tensor(&key))?;
        }
    }
    cursor.end().map_err(in_header)?;
    Ok(header)
}

fn in_header(error: SyntaxError) -> Error {
    Error::new(
        ErrorKind::InvalidHeader,
        format!("header byte {}: {}", error.at, error.message),
    )
}

fn fault(cursor: &Cursor, message: impl Into<Cow<'static, str>>) -> SyntaxError {
    SyntaxError {
        at: cursor.at(),
        message: message.into(),
    }
}

fn twice(cursor: &Cursor, key: &str) -> SyntaxError {
    fault(cursor, format!("{} is given twice", Quoted(key)))
}

fn in_field(field: &'static str) -> impl Fn(SyntaxError) -> SyntaxError {
    move |SyntaxError { at, message }| SyntaxError {
        at,
        message: format!("{field}: {message}").into(),
    }
}

fn metadata(cursor: &mut Cursor, header: &mut Header) -> Result<(), SyntaxError> {
    // MLX writes null where there is no metadata.
    if cursor.null()? {
        return Ok(());
    }
    cursor.open(b'{', "an object of strings or null for __metadata__")?;
    let mut first = true;
    while let Some(key) = cursor.next_key(&mut first)? {
        let value = cursor.string("a string as metadata value")?;
        if header.metadata.contains_key(key.as_ref()) {
            return Err(twice(cursor, &key));
        }
        header.metadata.insert(key.into_owned(), value.into_owned());
    }
    Ok(())
}

fn entry(cursor: &mut Cursor, header: &mut Header, name: &str) -> Result<(), SyntaxError> {
    let mut dtype = None;
    let mut dims = None;
    let mut offsets = None;
    let mut unknown: HashSet<Cow<str>> = HashSet::new();

    cursor.open(b'{', "an object with dtype, shape and data_offsets")?;
    let mut first = true;
    while cursor.next_member(&mut first)? {
        let key = field(cursor)?;
        let seen = match &*key {
            DTYPE => dtype.replace(read_dtype(cursor)?).is_some(),
            SHAPE => dims
                .replace(read_shape(cursor, &mut header.dims).map_err(in_field(SHAPE))?)
                .is_some(),
            DATA_OFFSETS => offsets
                .replace(read_offsets(cursor).map_err(in_field(DATA_OFFSETS))?)
                .is_some(),
            _ => {
                cursor.skip_value(FIELD_DEPTH)?;
                let oddities = &mut header.oddities;
                oddities.unknown_fields += 1;
                oddities
                    .first_unknown
                    .get_or_insert_with(|| (key.to_string(), name.to_owned()));
                !unknown.insert(key.clone())
            }
        };
        if seen {
            return Err(twice(cursor, &key));
        }
    }
    let missing = |field| fault(cursor, format!("the entry has no {field}"));
    let (begin, end) = offsets.ok_or_else(|| missing(DATA_OFFSETS))?;
    let entry = Entry {
        begin,
        end,
        name: (header.names.len() as u32, name.len() as u32),
        name_hash: NameHash::of(name),
        dims: dims.ok_or_else(|| missing(SHAPE))?,
        dtype: dtype.ok_or_else(|| missing(DTYPE))?,
    };
    header.names.push_str(name);
    header.entries.push(entry);
    Ok(())
}

/// The key of a field. Nearly all files have these keys written like this, so they are looked for
/// before anything is made of the text.
#[inline(always)]
fn field<'a>(cursor: &mut Cursor<'a>) -> Result<Cow<'a, str>, SyntaxError> {
    if cursor.exactly(r#""dtype":"#) {
        Ok(Cow::Borrowed(DTYPE))
    } else if cursor.exactly(r#""shape":"#) {
        Ok(Cow::Borrowed(SHAPE))
    } else if cursor.exactly(r#""data_offsets":"#) {
        Ok(Cow::Borrowed(DATA_OFFSETS))
    } else {
        cursor.key()
    }
}

fn read_dtype(cursor: &mut Cursor) -> Result<Dtype, SyntaxError> {
    let at = cursor.at();
    let name = cursor.string("a string as dtype")?;
    Dtype::from_name(&name).ok_or_else(|| SyntaxError {
        at,
        message: format!("unknown dtype {}", Quoted(&name)).into(),
    })
}

/// Appends the shape to `dims` and returns its place and rank.
fn read_shape(cursor: &mut Cursor, dims: &mut Vec<usize>) -> Result<(u32, u32), SyntaxError> {
    let start = dims.len();
    cursor.open(b'[', "an array")?;
    let mut first = true;
    while cursor.next_item(&mut first)? {
        let dim = cursor.whole_number()?;
        dims.push(usize::try_from(dim).map_err(|_| {
            fault(
                cursor,
                format!("dimension {dim} is too large for this machine"),
            )
        })?);
    }
    Ok((start as u32, (dims.len() - start) as u32))
}

fn read_offsets(cursor: &mut Cursor) -> Result<(u64, u64), SyntaxError> {
    const TWO: &str = "an array of two";
    let mut first = true;
    cursor.open(b'[', TWO)?;
    let mut offsets = [0; 2];
    for offset in &mut offsets {
        if !cursor.next_item(&mut first)? {
            return Err(fault(cursor, format!("expected {TWO}, found fewer")));
        }
        *offset = cursor.whole_number()?;
    }
    match cursor.next_item(&mut first)? {
        true => Err(fault(cursor, format!("expected {TWO}, found more"))),
        false => Ok(offsets.into()),
    }
}
