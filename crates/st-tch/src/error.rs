//! Errors of tch as those of this project.

use st_format::{Error, ErrorKind, Framework};
use tch::TchError;

use crate::Tch;

/// An error that libtorch reported.
pub(crate) fn tch_error(error: TchError) -> Error {
    Error::framework(Tch::NAME, without_backtrace(error))
}

pub(crate) fn out_of_memory(bytes: u64, error: TchError) -> Error {
    let message = format!("{} cannot allocate {bytes} bytes", Tch::NAME);
    Error::new(ErrorKind::OutOfMemory, message).with_source(without_backtrace(error))
}

/// The same error without the C++ frames that libtorch appends, as an error is one line.
fn without_backtrace(error: TchError) -> TchError {
    match error {
        TchError::Torch(message) => {
            TchError::Torch(message.lines().next().unwrap_or_default().to_owned())
        }
        other => other,
    }
}
