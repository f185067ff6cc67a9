//! The header of one file: which tensors it holds, and where.

mod check;
mod parse;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::buffer::as_uninit;
use crate::error::{Error, ErrorKind, Quoted, Result};
use crate::{Dtype, foreign, huge_pages};

/// The longest header the format allows, in bytes.
pub const MAX_HEADER_LEN: u64 = 100_000_000;

/// The header's length stands in the first eight bytes, little-endian.
pub(crate) const PREFIX_LEN: u64 = 8;

/// The one key of the header that is no tensor.
pub(crate) const METADATA: &str = "__metadata__";

/// What a safetensors file says about its tensors, checked.
///
/// A `Header` exists only for a layout that is sound: every dtype and shape fills its bytes
/// exactly, and the tensors cover the data without holes or overlaps. Names, shapes and entries
/// lie in one allocation each, whatever the number of tensors.
///
/// ```
/// use st_format::{Dtype, Header};
///
/// let json = br#"{"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
/// let mut file = (json.len() as u64).to_le_bytes().to_vec();
/// file.extend(json);
///
/// let header = Header::parse(&file)?;
/// let bias = header.get("bias").unwrap();
/// assert_eq!(bias.dtype(), Dtype::F32);
/// assert_eq!(bias.shape(), [2]);
/// assert_eq!(header.file_len(), file.len() as u64 + 8);
/// # Ok::<(), st_format::Error>(())
/// ```
#[derive(Clone)]
pub struct Header {
    /// Length of the JSON text in bytes.
    len: u64,
    data_len: u64,
    names: String,
    dims: Vec<usize>,
    /// In file order.
    entries: Vec<Entry>,
    by_name: HashTable<u32>,
    metadata: BTreeMap<String, String>,
    oddities: Oddities,
}

/// One tensor; `name` and `dims` are ranges of the header's shared buffers. 32 bits suffice: both
/// are no longer than the header's text.
#[derive(Clone, Copy)]
struct Entry {
    begin: u64,
    end: u64,
    name: (u32, u32),
    name_hash: NameHash,
    dims: (u32, u32),
    dtype: Dtype,
}

/// What a header may hold that is accepted, and yet no writer should write.
#[derive(Clone, Default)]
struct Oddities {
    leading_space: bool,
    unknown_fields: u64,
    /// Field and tensor name of the first unknown field.
    first_unknown: Option<(String, String)>,
}

impl Header {
    /// Reads the header at the start of a file's bytes: eight bytes of length, then the JSON.
    ///
    /// What follows the header is not looked at; [`file_len`](Header::file_len) says how long the
    /// whole file has to be, and [`SafeTensors::new`](crate::SafeTensors::new) compares.
    ///
    /// # Errors
    ///
    /// [`NotSafetensors`](ErrorKind::NotSafetensors), [`InvalidHeader`](ErrorKind::InvalidHeader)
    /// or [`InvalidLayout`](ErrorKind::InvalidLayout).
    pub fn parse(bytes: &[u8]) -> Result<Header> {
        let len = header_len(bytes, bytes.len() as u64)?;
        Header::from_text(&bytes[PREFIX_LEN as usize..][..len as usize])
    }

    /// Reads the header of a file: its first 8 + N bytes and no more.
    ///
    /// # Errors
    ///
    /// As [`parse`](Header::parse), [`Io`](ErrorKind::Io), and
    /// [`InvalidLayout`](ErrorKind::InvalidLayout) where the file is not as long as its header
    /// says.
    pub fn read(path: impl AsRef<Path>) -> Result<Header> {
        let path = path.as_ref();
        open(path)
            .and_then(|(file, len)| Header::read_from(&file, len))
            .map_err(|error| error.with_path(path))
    }

    /// Reads the header from the start of `file`, which is `file_len` bytes long.
    pub(crate) fn read_from(mut file: &File, file_len: u64) -> Result<Header> {
        let read = |range: Range<u64>| -> Result<Vec<u8>> {
            read_text(file, (range.end - range.start) as usize)
                .map_err(|error| Error::io("cannot read the header", error))
        };
        let mut start = read(0..file_len.min(PREFIX_LEN))?;
        let header = match header_len(&start, file_len) {
            Ok(len) => {
                if len > parse::PIECE as u64 {
                    let parsed = parse::header_in_pieces(file, len as usize);
                    if let Some(Ok(header)) = parsed.map(Header::checked)
                        && header.check_file_len(file_len).is_ok()
                    {
                        return Ok(header);
                    }
                    // In one piece, to say what is wrong, or to accept what is only unusual.
                    file.seek(SeekFrom::Start(PREFIX_LEN))
                        .map_err(|error| Error::io("cannot read the header", error))?;
                }
                let text = read(PREFIX_LEN..PREFIX_LEN + len)?;
                let header = Header::from_text(&text);
                start.extend(&text[..text.len().min(foreign::LOOK_AT)]);
                header
            }
            Err(error) => {
                // It may be another kind of file: a little more of it tells which.
                let more = file_len.min(foreign::LOOK_AT as u64);
                start.extend(read(start.len() as u64..more)?);
                Err(error)
            }
        };
        let header = header.map_err(|error| foreign::explain(&start, error))?;
        header.check_file_len(file_len)?;
        Ok(header)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Header> {
        let header = Header::parse(bytes)?;
        header.check_file_len(bytes.len() as u64)?;
        Ok(header)
    }

    fn from_text(text: &[u8]) -> Result<Header> {
        let text = std::str::from_utf8(text).map_err(|error| {
            let message = format!("header byte {}: not UTF-8", error.valid_up_to());
            Error::new(ErrorKind::InvalidHeader, message)
        })?;
        Header::checked(parse::header(text)?)
    }

    /// What has been parsed, put into file order, with its index, if its layout is sound.
    fn checked(mut header: Header) -> Result<Header> {
        header.entries.sort_by_key(|entry| (entry.begin, entry.end));
        header.build_index()?;
        header.data_len = check::layout(&header)?;
        Ok(header)
    }

    fn build_index(&mut self) -> Result<()> {
        let (entries, names) = (&self.entries, &self.names);
        let hash_of = |&at: &u32| entries[at as usize].name_hash;
        let name_of = |&at: &u32| name_in(names, &entries[at as usize]);
        let mut by_name = HashTable::with_capacity(entries.len());
        for at in 0..entries.len() as u32 {
            let (hash, name) = (hash_of(&at), name_of(&at));
            match by_name.entry(
                hash.spread(),
                |other| hash_of(other) == hash && name_of(other) == name,
                |other| hash_of(other).spread(),
            ) {
                hashbrown::hash_table::Entry::Vacant(place) => {
                    place.insert(at);
                }
                hashbrown::hash_table::Entry::Occupied(_) => {
                    let message = "the header names this tensor twice";
                    return Err(Error::new(ErrorKind::InvalidHeader, message).with_tensor(name));
                }
            }
        }
        self.by_name = by_name;
        Ok(())
    }

    fn check_file_len(&self, found: u64) -> Result<()> {
        let expected = self.file_len();
        if found == expected {
            return Ok(());
        }
        let fault = match found < expected {
            true => format!("{} missing", expected - found),
            false => format!("{} left over", found - expected),
        };
        Err(Error::new(
            ErrorKind::InvalidLayout,
            format!(
                "file is {found} bytes long, expected {expected} ({PREFIX_LEN} + header {} + \
                 tensors {}): {fault}",
                self.len, self.data_len
            ),
        ))
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.position(name).map(|at| self.at(at))
    }

    /// All tensors in file order: by where their data lies. Tensors of no bytes that share their
    /// place with others keep the header's order among each other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TensorInfo<'_>> + DoubleEndedIterator {
        (0..self.len()).map(|at| self.at(at))
    }

    /// The free text of `__metadata__`, sorted by key; empty where there is none.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Where the tensors' data starts in the file: after the prefix and the header.
    pub fn data_start(&self) -> u64 {
        PREFIX_LEN + self.len
    }

    /// The bytes that all tensors take together.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// How long the file has to be: the prefix, the header and the data.
    pub fn file_len(&self) -> u64 {
        self.data_start() + self.data_len
    }

    /// The place of the tensor in file order.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let hash = NameHash::of(name);
        let found = self.by_name.find(hash.spread(), |&at| {
            self.name_hash_at(at as usize) == hash && self.name_at(at as usize) == name
        });
        found.map(|&at| at as usize)
    }

    pub(crate) fn name_at(&self, at: usize) -> &str {
        name_in(&self.names, &self.entries[at])
    }

    pub(crate) fn name_hash_at(&self, at: usize) -> NameHash {
        self.entries[at].name_hash
    }

    /// The tensor at a place in file order.
    pub(crate) fn at(&self, at: usize) -> TensorInfo<'_> {
        let entry = &self.entries[at];
        let (dims, rank) = (entry.dims.0 as usize, entry.dims.1 as usize);
        TensorInfo {
            name: name_in(&self.names, entry),
            dtype: entry.dtype,
            shape: &self.dims[dims..dims + rank],
            begin: entry.begin,
            end: entry.end,
        }
    }

    /// What is odd about the header though it is accepted, a line each.
    pub(crate) fn oddities(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.oddities.leading_space {
            lines.push("white space before the header's '{'".to_owned());
        }
        if let Some((field, tensor)) = &self.oddities.first_unknown {
            let others = match self.oddities.unknown_fields {
                0 | 1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            lines.push(format!(
                "unknown field {} in the entry of tensor {}{others}",
                Quoted(field),
                Quoted(tensor)
            ));
        }
        let unaligned = self.iter().filter(|info| {
            let start = self.data_start() + info.begin;
            info.byte_len() > 0 && !start.is_multiple_of(info.dtype.alignment() as u64)
        });
        match unaligned.count() {
            0 => {}
            count => lines.push(format!(
                "not aligned to their dtype: {count} of {} tensors, which mapped loads copy",
                self.len()
            )),
        }
        lines
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header")
            .field("tensors", &self.entries.len())
            .field("data_len", &self.data_len)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

/// The hash of a name: keyed, so that no file can make names collide, and the same in all headers
/// of this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameHash(u32);

impl NameHash {
    pub(crate) fn of(name: &str) -> NameHash {
        static KEY: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
        let mut hasher = KEY.build_hasher();
        hasher.write(name.as_bytes());
        NameHash(hasher.finish() as u32)
    }

    /// As a hash table wants it, which looks at the lowest bits and at the highest.
    pub(crate) fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

fn name_in<'a>(names: &'a str, entry: &Entry) -> &'a str {
    let (start, len) = (entry.name.0 as usize, entry.name.1 as usize);
    &names[start..start + len]
}

/// Whether the file at `path` is this one, and no other that has replaced it since it was opened.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let at_path = std::fs::metadata(path).map(id);
    // An inode is not used again while it is open.
    matches!((at_path, file.metadata().map(id)), (Ok(at_path), Ok(open)) if at_path == open)
}

/// There is no way to tell, and an open file cannot be replaced on Windows.
#[cfg(not(unix))]
pub(crate) fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Opens a regular file for reading, and says how long it is.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    open_for(File::options().read(true), path)
}

/// As [`open`], for whatever the options say.
pub(crate) fn open_for(options: &OpenOptions, path: &Path) -> Result<(File, u64)> {
    let cannot_open = |error| Error::io("cannot open", error);
    // Asked before opening: opening a pipe would wait for its writer.
    let metadata = std::fs::metadata(path).map_err(cannot_open)?;
    if !metadata.is_file() {
        let what = match metadata.is_dir() {
            true => "is a directory, expected a file",
            false => "is no regular file",
        };
        return Err(Error::new(ErrorKind::NotSafetensors, what));
    }
    let file = options.open(path).map_err(cannot_open)?;
    let len = file.metadata().map_err(cannot_open)?.len();
    Ok((file, len))
}

/// Reads the next `len` bytes of a file.
pub(crate) fn read_text(mut file: &File, len: usize) -> io::Result<Vec<u8>> {
    // Where there are many, zeroes come from the system as they are, and cost nothing.
    let mut bytes = vec![0; huge_pages::allocation_len(len)];
    huge_pages::ask_for(as_uninit(&mut bytes));
    huge_pages::collapse_first(as_uninit(&mut bytes));
    bytes.truncate(len);
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The header's length from the first eight of `file_len` bytes, checked against both limits
/// before anything of that length is asked for.
fn header_len(start: &[u8], file_len: u64) -> Result<u64> {
    let Some(prefix) = start.first_chunk() else {
        let message = match file_len {
            0 => "the file is empty".to_owned(),
            len => format!("the file is {len} bytes long, too short for a header's length"),
        };
        return Err(Error::new(ErrorKind::NotSafetensors, message));
    };
    let len = u64::from_le_bytes(*prefix);
    if len > MAX_HEADER_LEN {
        return Err(Error::new(
            ErrorKind::InvalidHeader,
            format!(
                "header length is {len} bytes, the limit is {MAX_HEADER_LEN}{}",
                match len.swap_bytes() <= MAX_HEADER_LEN {
                    true => "; is it written big-endian?",
                    false => "",
                }
            ),
        ));
    }
    if len == 0 {
        let message = "header is empty (length 0), expected JSON of at least {}";
        return Err(Error::new(ErrorKind::InvalidHeader, message));
    }
    if PREFIX_LEN + len > file_len {
        return Err(Error::new(
            ErrorKind::InvalidHeader,
            format!("header length is {len} bytes, the file holds {file_len} in all"),
        ));
    }
    Ok(len)
}

/// One tensor as its header describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: &'a [usize],
    begin: u64,
    end: u64,
}

impl<'a> TensorInfo<'a> {
    /// A tensor whose bytes lie at `offsets` of its file's data.
    pub(crate) fn new(
        name: &'a str,
        dtype: Dtype,
        shape: &'a [usize],
        offsets: Range<u64>,
    ) -> TensorInfo<'a> {
        TensorInfo {
            name,
            dtype,
            shape,
            begin: offsets.start,
            end: offsets.end,
        }
    }

    /// The tensor's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The size of each dimension, outermost first; empty for a scalar.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Where the tensor's bytes lie, counted from the start of the data
    /// ([`Header::data_start`]).
    pub fn data_offsets(&self) -> Range<u64> {
        self.begin..self.end
    }

    /// The number of bytes.
    pub fn byte_len(&self) -> u64 {
        self.end - self.begin
    }

    /// The number of elements.
    pub fn element_count(&self) -> u64 {
        // The layout check has multiplied these in the same order.
        self.shape.iter().map(|&dim| dim as u64).product()
    }
}
