//! `safetensors verify`: says of each checkpoint whether it is whole, and what is odd about it.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use st_format::Checkpoint;

use crate::args::Verify;
use crate::escape::escape;
use crate::json;
use crate::output::complain;
use crate::units::exactly;
use crate::verdict::Verdict;

pub(crate) fn run(args: &Verify, out: &mut impl Write) -> io::Result<Verdict> {
    let mut worst = Verdict::Ok;
    for path in &args.paths {
        let finding = Finding::of(path);
        worst = worst.max(finding.verdict);
        if finding.verdict != Verdict::Ok || !args.quiet {
            match args.json {
                true => json::write_line(out, &finding)?,
                false => write_text(out, &finding)?,
            }
        }
        // Findings are shown as they are made, and in order with those on standard error.
        out.flush()?;
        if let (Verdict::Unseen, Details::Fault { error }) = (finding.verdict, &finding.details) {
            complain(error);
        }
    }
    Ok(worst)
}

/// What was found out about a path; its fields are the object that `verify --help` documents.
#[derive(Serialize)]
struct Finding<'a> {
    path: Cow<'a, str>,
    verdict: Verdict,
    #[serde(flatten)]
    details: Details,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Details {
    Sound {
        tensors: u64,
        bytes: u64,
        warnings: Vec<String>,
    },
    Fault {
        error: String,
    },
}

impl Finding<'_> {
    fn of(path: &Path) -> Finding<'_> {
        let (verdict, details) = match Checkpoint::open(path) {
            Ok(checkpoint) => (Verdict::Ok, Details::of(&checkpoint)),
            Err(error) => {
                let text = error.to_string();
                (Verdict::from(&error), Details::Fault { error: text })
            }
        };
        Finding {
            path: path.to_string_lossy(),
            verdict,
            details,
        }
    }
}

impl Details {
    fn of(checkpoint: &Checkpoint) -> Details {
        let warnings = checkpoint.warnings();
        Details::Sound {
            tensors: checkpoint.len() as u64,
            bytes: checkpoint.byte_len(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

fn write_text(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    match &finding.details {
        Details::Sound {
            tensors,
            bytes,
            warnings,
        } => {
            let path = escape(&finding.path);
            let (tensors, bytes) = (exactly(*tensors, "tensor"), exactly(*bytes, "byte"));
            writeln!(out, "{path}: ok ({tensors}, {bytes})")?;
            for warning in warnings {
                writeln!(out, "warning: {}", escape(warning))?;
            }
            Ok(())
        }
        Details::Fault { error } if finding.verdict == Verdict::Broken => {
            writeln!(out, "{}", escape(error))
        }
        // What could not be looked at is told on standard error alone.
        Details::Fault { .. } => Ok(()),
    }
}
