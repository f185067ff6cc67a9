//! From JSON text to entries: the shape of the header's JSON, without judging what it says.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use super::{Entry, Header, METADATA, NameHash};
use crate::Dtype;
use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::huge_pages;
use crate::json::{Cursor, SyntaxError};

const DTYPE: &str = "dtype";
const SHAPE: &str = "shape";
const DATA_OFFSETS: &str = "data_offsets";

/// How many objects a field of an entry stands in: the header and the entry.
const FIELD_DEPTH: u32 = 2;

/// How much of a long header is parsed at once; it stays in the processor's cache.
pub(super) const PIECE: usize = 256 << 10;

pub(super) fn header(text: &str) -> Result<Header> {
    let mut header = with_room_for(text.len());
    let mut cursor = Cursor::new(text);
    let mut members = Members::open(&mut cursor, &mut header)?;
    while members.next(&mut cursor, &mut header)? {}
    cursor.end().map_err(in_header)?;
    Ok(header)
}

/// Parses a header of `len` bytes while it is read: fresh memory for the text would take longer
/// than copying it. `None` where it is not read to its end, for whatever reason; [`header`] can
/// tell.
pub(super) fn header_in_pieces(mut file: impl Read, len: usize) -> Option<Header> {
    let mut header = with_room_for(len);
    let mut members = None;
    let mut window = vec![0; PIECE];
    let (mut kept, mut unread) = (0, len);
    loop {
        let end = window.len().min(kept + unread);
        file.read_exact(&mut window[kept..end]).ok()?;
        unread -= end - kept;
        // The piece may end within a character.
        let piece = &window[..end];
        let valid = std::str::from_utf8(piece).map_or_else(|error| error.valid_up_to(), str::len);
        let mut cursor = Cursor::new(std::str::from_utf8(&piece[..valid]).ok()?);
        let mut ahead = match members {
            None => Members::open(&mut cursor, &mut header).ok()?,
            Some(members) => members,
        };
        members = Some(ahead);
        // A member that does not fit the piece leaves no trace, and is parsed again in the next.
        let mut parsed = cursor.at();
        while let Ok(more) = ahead.next(&mut cursor, &mut header) {
            if !more {
                let is_end = cursor.end().is_ok() && valid == end && unread == 0;
                return is_end.then_some(header);
            }
            members = Some(ahead);
            parsed = cursor.at();
        }
        if parsed == 0 {
            return None;
        }
        window.copy_within(parsed..end, 0);
        kept = end - parsed;
    }
}

fn with_room_for(text_len: usize) -> Header {
    Header {
        len: text_len as u64,
        data_len: 0,
        // Room for the tensors of usual headers, so that nothing is moved while it grows. All of
        // it together is less than twice the header's length.
        names: String::from_utf8(huge_pages::vec(text_len / 2)).unwrap_or_default(),
        dims: huge_pages::vec(text_len / 32),
        entries: huge_pages::vec(text_len / 64),
        by_name: Default::default(),
        metadata: Default::default(),
        oddities: Default::default(),
    }
}

/// How far the members of the header's object have been parsed.
#[derive(Clone, Copy)]
struct Members {
    first: bool,
    metadata_seen: bool,
}

impl Members {
    fn open(cursor: &mut Cursor, header: &mut Header) -> Result<Members> {
        let start = cursor.at();
        cursor.open(b'{', "'{'").map_err(in_header)?;
        header.oddities.leading_space = cursor.at() > start + 1;
        Ok(Members {
            first: true,
            metadata_seen: false,
        })
    }

    /// Parses a tensor's entry or the metadata; false after the last one. After an error, the
    /// header is as before.
    fn next(&mut self, cursor: &mut Cursor, header: &mut Header) -> Result<bool> {
        let Some(key) = cursor.next_key(&mut self.first).map_err(in_header)? else {
            return Ok(false);
        };
        if key == METADATA {
            if std::mem::replace(&mut self.metadata_seen, true) {
                return Err(in_header(twice(cursor, METADATA)));
            }
            header.metadata = metadata(cursor).map_err(in_header)?;
        } else {
            let dims = header.dims.len();
            entry(cursor, header, &key).map_err(|error| {
                header.dims.truncate(dims);
                in_header(error).with_tensor(&key)
            })?;
        }
        Ok(true)
    }
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

fn metadata(cursor: &mut Cursor) -> Result<BTreeMap<String, String>, SyntaxError> {
    let mut metadata = BTreeMap::new();
    // MLX writes null where there is no metadata.
    if cursor.null()? {
        return Ok(metadata);
    }
    cursor.open(b'{', "an object of strings or null for __metadata__")?;
    let mut first = true;
    while let Some(key) = cursor.next_key(&mut first)? {
        let value = cursor.string("a string as metadata value")?;
        if metadata.contains_key(key.as_ref()) {
            return Err(twice(cursor, &key));
        }
        metadata.insert(key.into_owned(), value.into_owned());
    }
    Ok(metadata)
}

fn entry(cursor: &mut Cursor, header: &mut Header, name: &str) -> Result<(), SyntaxError> {
    let mut dtype = None;
    let mut dims = None;
    let mut offsets = None;
    let mut unknown: HashSet<Cow<str>> = HashSet::new();
    let mut first_unknown = None;

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
                first_unknown.get_or_insert_with(|| key.clone());
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
    if let Some(field) = first_unknown {
        let oddities = &mut header.oddities;
        oddities.unknown_fields += unknown.len() as u64;
        oddities
            .first_unknown
            .get_or_insert_with(|| (field.into_owned(), name.to_owned()));
    }
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
