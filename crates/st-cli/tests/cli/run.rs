//! Running the command.

use std::ffi::OsStr;
use std::process::{Command, Output};

pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_safetensors"))
}

/// What the command said and how it ended.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    let Output {
        status,
        stdout,
        stderr,
    } = command().args(args).output().unwrap();
    Run {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

impl Run {
    /// Standard output of a run that went well and complained of nothing.
    pub(crate) fn fine(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        self.stdout
    }
}

/// `run(args!["inspect", &path, "--json"])`, whatever types the arguments have.
macro_rules! args {
    ($($arg:expr),* $(,)?) => {
        [$(std::ffi::OsString::from(AsRef::<std::ffi::OsStr>::as_ref($arg))),*]
    };
}
pub(crate) use args;
