//! Runs the real command on files that are written here: most of them byte by byte, those with
//! checksums by the library.
#![forbid(unsafe_code)]

#[path = "cli/checksums.rs"]
mod checksums;
#[path = "cli/copy.rs"]
mod copy;
#[path = "cli/edit.rs"]
mod edit;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/json.rs"]
mod json;
#[path = "cli/large.rs"]
mod large;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/verify.rs"]
mod verify;
