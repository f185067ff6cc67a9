//! `safetensors verify`: says of each checkpoint whether it is whole, and what is odd about it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use st_format::{Checkpoint, Error, ErrorKind};

use crate::args::Verify;
use crate::escape::escape;
use crate::json;
use crate::output::complain;
use crate::progress;
use crate::units::exactly;
use crate::verdict::Verdict;

pub(crate) fn run(args: &Verify, out: &mut impl Write) -> io::Result<Verdict> {
    let mut worst = Verdict::Ok;
    for path in &args.paths {
        let finding = Finding::of(path, args.checksums);
        worst = worst.max(finding.verdict);
        if finding.verdict != Verdict::Ok || !args.quiet {
            match args.json {
                true => json::write_line(out, &finding)?,
                false => write_text(out, &finding)?,
            }
        }
        // Findings are shown as they are made, and in order with those on standard error.
        out.flush()?;
        for unseen in finding.faults_of(Verdict::Unseen) {
            complain(unseen);
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
        /// Of tensors, where checksums were asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        checksums: Option<u64>,
        warnings: Vec<String>,
    },
    Faulty {
        /// The first one of them.
        error: String,
        #[serde(skip_serializing_if = "is_one")]
        errors: Vec<Fault>,
    },
}

#[derive(Serialize)]
#[serde(transparent)]
struct Fault {
    #[serde(skip)]
    verdict: Verdict,
    text: String,
}

impl Finding<'_> {
    fn of(path: &Path, with_checksums: bool) -> Finding<'_> {
        let (verdict, details) = match Checkpoint::open(path) {
            Ok(checkpoint) if with_checksums => match checksum_faults(&checkpoint) {
                faults if faults.is_empty() => {
                    let checksums = Some(checkpoint.len() as u64);
                    (Verdict::Ok, Details::sound(&checkpoint, checksums))
                }
                faults => Details::faulty(faults),
            },
            Ok(checkpoint) => (Verdict::Ok, Details::sound(&checkpoint, None)),
            Err(error) => Details::faulty(vec![Fault::of(&error)]),
        };
        Finding {
            path: path.to_string_lossy(),
            verdict,
            details,
        }
    }

    fn faults_of(&self, verdict: Verdict) -> impl Iterator<Item = &str> {
        let faults = match &self.details {
            Details::Sound { .. } => &[][..],
            Details::Faulty { errors, .. } => errors,
        };
        let faults = faults.iter().filter(move |fault| fault.verdict == verdict);
        faults.map(|fault| fault.text.as_str())
    }
}

impl Details {
    fn sound(checkpoint: &Checkpoint, checksums: Option<u64>) -> Details {
        let warnings = checkpoint.warnings();
        Details::Sound {
            tensors: checkpoint.len() as u64,
            bytes: checkpoint.byte_len(),
            checksums,
            warnings: warnings.iter().map(ToString::to_string).collect(),
        }
    }

    /// What is broken comes first, and decides.
    fn faulty(mut errors: Vec<Fault>) -> (Verdict, Details) {
        errors.sort_by_key(|fault| Reverse(fault.verdict));
        let first = errors.first();
        let verdict = first.map_or(Verdict::Ok, |fault| fault.verdict);
        let error = first.map_or(String::new(), |fault| fault.text.clone());
        (verdict, Details::Faulty { error, errors })
    }
}

impl Fault {
    fn of(error: &Error) -> Fault {
        Fault {
            verdict: Verdict::from(error),
            text: error.to_string(),
        }
    }
}

/// What is wrong with the tensors' bytes. Those without a checksum share a line: they may be all.
fn checksum_faults(checkpoint: &Checkpoint) -> Vec<Fault> {
    let errors = progress::shown(|progress| checkpoint.checksum_errors(progress));
    let is_unrecorded = |error: &&Error| error.kind() == ErrorKind::NotFound;
    let (unrecorded, wrong): (Vec<_>, Vec<_>) = errors.iter().partition(is_unrecorded);
    let mut faults: Vec<Fault> = wrong.into_iter().map(Fault::of).collect();
    if let [first, others @ ..] = &unrecorded[..] {
        let mut fault = Fault::of(first);
        if !others.is_empty() {
            let others = exactly(others.len() as u64, "other tensor");
            fault.text += &format!(", nor of {others}");
        }
        faults.push(fault);
    }
    faults
}

fn is_one(errors: &[Fault]) -> bool {
    errors.len() == 1
}

fn write_text(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    if let Details::Sound {
        tensors,
        bytes,
        checksums,
        warnings,
    } = &finding.details
    {
        let path = escape(&finding.path);
        let (tensors, bytes) = (exactly(*tensors, "tensor"), exactly(*bytes, "byte"));
        write!(out, "{path}: ok ({tensors}, {bytes}")?;
        if let Some(checksums) = checksums {
            write!(out, ", {}", exactly(*checksums, "checksum"))?;
        }
        writeln!(out, ")")?;
        for warning in warnings {
            writeln!(out, "warning: {}", escape(warning))?;
        }
    }
    // What could not be looked at is told on standard error alone.
    for broken in finding.faults_of(Verdict::Broken) {
        writeln!(out, "{}", escape(broken))?;
    }
    Ok(())
}
