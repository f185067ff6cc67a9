//! The one error type of the project: what went wrong, where, and what was expected.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Dtype;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in one line, with the file and the tensor it concerns.
///
/// The message reads `file: tensor "name": what is wrong`. Callers that decide by the cause look
/// at [`kind`](Error::kind); the error of a system call or of a framework is kept as
/// [`source`](StdError::source) and is part of the message.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    tensor: Option<String>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The causes of errors that a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused: file missing, permission, read error.
    Io,
    /// The path holds something else: a Git LFS pointer, a zip, GGUF, HTML, bare JSON, nothing.
    NotSafetensors,
    /// The header cannot be read: its length, its JSON, or a field of an entry.
    InvalidHeader,
    /// Offsets and sizes contradict each other, the shape, or the length of the file.
    InvalidLayout,
    /// Bytes that no value of the dtype has, such as a BOOL that is neither 0 nor 1.
    InvalidData,
    /// A tensor's bytes are not those whose checksum was recorded.
    ChecksumMismatch,
    /// The index of a sharded checkpoint is broken or contradicts its shards.
    InvalidIndex,
    /// Several files could be meant, or one name stands in several of them.
    Ambiguous,
    /// There is no tensor, or no file, of that name.
    NotFound,
    /// The framework has no such dtype, or no cast leads to it.
    Unsupported,
    /// The caller asked for something impossible: a range outside the shape, a wrong length.
    InvalidRequest,
    /// The data is not aligned for a view of its element type; a copy is needed.
    Misaligned,
    /// Memory for a tensor could not be had.
    OutOfMemory,
    /// The framework itself reported an error; it is the source.
    Framework,
}

impl Error {
    /// An error with the given message, which says what was found and what was expected.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            path: None,
            tensor: None,
            message: message.into(),
            source: None,
        }))
    }

    /// The error of a tensor whose dtype a framework does not have.
    pub fn unsupported(dtype: Dtype, framework: &str) -> Self {
        Error::new(
            ErrorKind::Unsupported,
            format!("{framework} has no dtype for {dtype}"),
        )
    }

    /// The error of a tensor whose dtype the format does not have; `dtype` is the framework's name
    /// for it.
    pub fn unknown_to_format(framework: &str, dtype: &str) -> Self {
        Error::new(
            ErrorKind::Unsupported,
            format!("the format has no dtype for {framework}'s {dtype}"),
        )
    }

    /// An error that a framework reported.
    pub fn framework(
        framework: &str,
        source: impl Into<Box<dyn StdError + Send + Sync + 'static>>,
    ) -> Self {
        Error::new(ErrorKind::Framework, framework).with_source(source)
    }

    /// Whether there is no file of that name, or cannot be one.
    pub(crate) fn is_file_not_found(&self) -> bool {
        use std::io::ErrorKind::{InvalidFilename, NotFound};

        let source = self.0.source.as_deref();
        source
            .and_then(|source| source.downcast_ref::<std::io::Error>())
            .is_some_and(|error| matches!(error.kind(), NotFound | InvalidFilename))
    }

    pub(crate) fn io(what: &str, source: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, what).with_source(source)
    }

    /// The same error with its cause, whose message is shown at the end.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn StdError + Send + Sync + 'static>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error, said to be about the file `path`; a path already there stays.
    #[must_use]
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        self.0
            .path
            .get_or_insert_with(|| path.as_ref().to_path_buf());
        self
    }

    /// The same error, said to be about the tensor `name`; a name already there stays.
    #[must_use]
    pub fn with_tensor(mut self, name: &str) -> Self {
        self.0.tensor.get_or_insert_with(|| name.to_owned());
        self
    }

    /// The cause.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file, where the error concerns one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The name of the tensor, where the error concerns one.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(path) = &inner.path {
            write!(f, "{}: ", ShownPath(path))?;
        }
        if let Some(tensor) = &inner.tensor {
            write!(f, "tensor {}: ", Quoted(tensor))?;
        }
        f.write_str(&inner.message)?;
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// Text from outside as a message shows it: without control characters, which could take over the
/// reader's terminal or break the line.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// A path as a message shows it.
pub(crate) struct ShownPath<'a>(pub(crate) &'a Path);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0.to_string_lossy()).fmt(f)
    }
}

/// A name from a file as an error shows it: quoted, control characters escaped, and cut where a
/// hostile file made it long.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 200;
        match self.0.char_indices().nth(LONGEST) {
            None => write!(f, "{:?}", self.0),
            Some((cut, _)) => {
                write!(f, "{:?}… ({} bytes)", &self.0[..cut], self.0.len())
            }
        }
    }
}
