//! Where text goes: standard output, buffered, and standard error.

use std::io::{self, BufWriter, ErrorKind, Write};

use st_format::Error;

use crate::escape::escape;
use crate::verdict::Verdict;

/// Standard output, locked, and buffered whatever it leads to.
pub(crate) fn stdout() -> impl Write {
    const BUFFER: usize = 64 * 1024;
    let out = UntilClosed {
        out: io::stdout().lock(),
        closed: false,
    };
    BufWriter::with_capacity(BUFFER, out)
}

/// A line on standard error.
pub(crate) fn complain(message: &str) {
    // There is no one left to tell if this fails.
    let _ = writeln!(io::stderr(), "error: {}", escape(message));
}

/// Tells of what ends the command.
pub(crate) fn fail(error: &Error) -> Verdict {
    complain(&error.to_string());
    Verdict::from(error)
}

/// Writes until nobody reads any more, and from then on nowhere.
///
/// The reader of a pipe that went away has seen enough (`safetensors inspect … | head -1`), which
/// is no error; and `verify` goes on, for its exit status still counts.
struct UntilClosed<W> {
    out: W,
    closed: bool,
}

impl<W: Write> UntilClosed<W> {
    fn unless_closed<T>(
        &mut self,
        otherwise: T,
        write: impl FnOnce(&mut W) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.closed {
            return Ok(otherwise);
        }
        match write(&mut self.out) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_closed(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_closed((), Write::flush)
    }
}
