//! How it went, as the exit status says it.

use std::process::ExitCode;

use serde::Serialize;
use st_format::{Error, ErrorKind};

/// From best to worst. A broken checkpoint outweighs one that could not be looked at: it is a
/// finding that stands, while the other is settled by asking again, and a script that acts on
/// broken files must not miss one because of a mistyped path beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    Unseen,
    Broken,
}

impl From<&Error> for Verdict {
    fn from(error: &Error) -> Verdict {
        match error.kind() {
            // Of several files without an index none was looked at, and none need be broken.
            ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Ambiguous | ErrorKind::OutOfMemory => {
                Verdict::Unseen
            }
            // The command was asked for what cannot be done.
            ErrorKind::InvalidRequest | ErrorKind::Unsupported => Verdict::Unseen,
            _ => Verdict::Broken,
        }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> ExitCode {
        ExitCode::from(match verdict {
            Verdict::Ok => 0,
            Verdict::Broken => 1,
            Verdict::Unseen => 2,
        })
    }
}
