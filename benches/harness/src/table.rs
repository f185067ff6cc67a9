//! The tables, in Markdown.

use crate::measure::Measured;
use crate::rounds;
use crate::row::{Case, Input, Peer, Per, Row, Series, Timed};

const ROWS: [&str; 16] = [
    "row",
    "work",
    "tensors",
    "MiB",
    "peer",
    "ours, ms",
    "one thread, ms",
    "peer, ms",
    "peer ÷ ours",
    "target",
    "ours and read, ms",
    "peer and read, ms",
    "peer ÷ ours, read",
    "GB/s, ours",
    "peak MiB, ours",
    "peak MiB, peer",
];

const SERIES: [&str; 10] = [
    "series",
    "case",
    "tensors",
    "MiB",
    "ms",
    "and read, ms",
    "rate",
    "÷ fastest",
    "at most",
    "peak MiB",
];

/// Of fewer bytes, the process itself is too much of the peak.
const LARGE: u64 = 80_000_000;

/// An owned load may have at most so many times the loaded bytes resident.
const PEAK: f64 = 1.05;

pub fn head_of_rows() -> String {
    head(&ROWS)
}

pub fn head_of_series() -> String {
    head(&SERIES)
}

fn head(columns: &[&str]) -> String {
    let numbers = columns.iter().map(|column| match *column {
        "row" | "series" | "case" | "work" | "peer" => "---",
        _ => "--:",
    });
    let numbers: Vec<&str> = numbers.collect();
    format!("| {} |\n| {} |", columns.join(" | "), numbers.join(" | "))
}

/// A line for each peer that has a result. The results are those of the row's sides.
pub fn lines_of_row(row: &Row, input: &Input, results: &[Option<Measured>]) -> Vec<String> {
    let (of_ours, of_peers) = results.split_at(results.len() - row.peers.len());
    let [Some(ours), one_thread @ ..] = of_ours else {
        return Vec::new();
    };
    let one_thread = one_thread.first().and_then(Option::as_ref);
    let peers = row.peers.iter().zip(of_peers);
    let line = |(peer, theirs): (&Peer, &Option<Measured>)| {
        let theirs = theirs.as_ref()?;
        let cells = [
            row.name.to_owned(),
            row.work.to_owned(),
            input.tensors.to_string(),
            mebibytes(input.bytes),
            peer.name.to_owned(),
            time(ours.load_ns),
            one_thread.map_or("–".to_owned(), |one| time(one.load_ns)),
            time(theirs.load_ns),
            ratio(theirs.load_ns, ours.load_ns),
            format!("{}", peer.target),
            time(ours.load_and_read_ns),
            time(theirs.load_and_read_ns),
            ratio(theirs.load_and_read_ns, ours.load_and_read_ns),
            rate_of_ours(row, ours.load_ns, input.bytes),
            peak_of_ours(row, ours.peak_rss, input.bytes),
            peak(theirs.peak_rss, input.bytes),
        ];
        Some(format!("| {} |", cells.join(" | ")))
    };
    peers.filter_map(line).collect()
}

/// A line for each case that has a result.
pub fn lines_of_series(
    series: &Series,
    inputs: &[Input],
    results: &[Option<Measured>],
) -> Vec<String> {
    let per_unit = |input: &Input, measured: &Measured| {
        let units = match series.per {
            Per::Tensor => input.tensors as f64,
            Per::Byte => input.bytes as f64,
        };
        let nanoseconds = match series.timed {
            Timed::Load => measured.load_ns,
            Timed::LoadAndRead => measured.load_and_read_ns,
        };
        nanoseconds as f64 / units
    };
    let cases = series.cases.iter().zip(inputs).zip(results);
    let cases: Vec<(&Case, &Input, &Measured)> = cases
        .filter_map(|((case, input), result)| Some((case, input, result.as_ref()?)))
        .collect();
    let all = cases
        .iter()
        .map(|(_, input, measured)| per_unit(input, measured));
    let fastest = all.fold(f64::INFINITY, f64::min);
    let line = |(case, input, measured): &(&Case, &Input, &Measured)| {
        let its = per_unit(input, measured);
        let cells = [
            format!("{}: {}", series.name, series.work),
            case.name.to_owned(),
            input.tensors.to_string(),
            mebibytes(input.bytes),
            time(measured.load_ns),
            time(measured.load_and_read_ns),
            match series.per {
                Per::Tensor => format!("{its:.0} ns a tensor"),
                Per::Byte => format!("{:.1} GB/s", its.recip()),
            },
            format!("**{:.2}**", its / fastest),
            series
                .within
                .map_or("–".to_owned(), |within| within.to_string()),
            mebibytes(measured.peak_rss),
        ];
        format!("| {} |", cells.join(" | "))
    };
    cases.iter().map(line).collect()
}

pub fn notes(rounds: usize, quick: bool) -> String {
    let mut notes = format!(
        "Medians of {rounds} rounds, in each of which every side ran once, in a fresh process, in \
         alternating order, with the files in the page cache; a side that took longer than {:?} ran \
         in the first round only. Times are measured inside the process \
         around the work, and one thread is ours where it otherwise uses all processors. \
         \"And read\": with every loaded byte read afterwards; where only headers \
         are read, with every tensor looked up by its name. MiB and GB/s are of the loaded \
         tensors, or of headers. Peak is the peak of resident memory above what the process had \
         before the work, which for a map \
         includes the pages of the file; in brackets, as a multiple of the loaded bytes, which \
         for our owned loads is to be at most {PEAK}. A series has no peer: its times are compared \
         with each other, divided by tensors or bytes; of `cold`, whose file is not in the page cache, \
         those with every byte read. A peer that could not be had or has failed \
         has no line.",
        rounds::TOO_LONG
    );
    if quick {
        notes += " **A quick run: smaller inputs, too few rounds to publish.**";
    }
    notes
}

fn time(nanoseconds: u64) -> String {
    let milliseconds = nanoseconds as f64 / 1e6;
    let digits = match milliseconds {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{milliseconds:.digits$}")
}

fn ratio(theirs: u64, ours: u64) -> String {
    format!("**{:.1}**", theirs as f64 / ours as f64)
}

fn mebibytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    match bytes {
        0..10_000_000 => format!("{mebibytes:.1}"),
        _ => format!("{mebibytes:.0}"),
    }
}

/// What is done lazily has no rate.
fn rate_of_ours(row: &Row, load_ns: u64, bytes: u64) -> String {
    if row.is_owned_load() {
        format!("{:.1}", bytes as f64 / load_ns as f64)
    } else {
        "–".to_owned()
    }
}

fn peak_of_ours(row: &Row, bytes_at_peak: u64, bytes: u64) -> String {
    let cell = peak(bytes_at_peak, bytes);
    if row.is_owned_load() && bytes >= LARGE && bytes_at_peak as f64 > PEAK * bytes as f64 {
        format!("{cell} **above {PEAK}**")
    } else {
        cell
    }
}

/// As a multiple only where the process itself does not count for much.
fn peak(peak: u64, bytes: u64) -> String {
    match bytes {
        0..LARGE => mebibytes(peak),
        _ => format!("{} ({:.2})", mebibytes(peak), peak as f64 / bytes as f64),
    }
}
