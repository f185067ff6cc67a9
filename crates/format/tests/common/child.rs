//! The test's own program once more, as a process that can be killed, measured or kept from
//! writing.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Output};

const TASK: &str = "ST_FORMAT_CHILD_TASK";

/// What this process was started for, where it is such a child.
pub(crate) fn task() -> Option<OsString> {
    std::env::var_os(TASK)
}

/// The program, which will run only `test` and have a [`task`] there.
pub(crate) fn command(test: &str, task: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    with_arguments(&mut command, test, task);
    command
}

/// As [`command`], started by a shell script that ends in `exec "$@"`; `before` are the program
/// that runs the shell, if any, and its arguments.
pub(crate) fn by_script(
    before: &[&str],
    script: &str,
    test: &str,
    task: impl AsRef<OsStr>,
) -> Command {
    let words: Vec<&str> = [before, &["sh", "-c", script, "sh"]].concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .arg(std::env::current_exe().unwrap());
    with_arguments(&mut command, test, task);
    command
}

fn with_arguments(command: &mut Command, test: &str, task: impl AsRef<OsStr>) {
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TASK, task);
}

/// Panics where the child's test did, with what it said.
#[track_caller]
pub(crate) fn assert_passed(output: &Output) {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.contains("1 passed"),
        "the child's test failed: {}\n{out}\n{err}",
        output.status
    );
}
