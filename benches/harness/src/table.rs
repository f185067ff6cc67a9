//! The table, in Markdown.

use crate::measure::Measured;
use crate::rounds::{self, Results};
use crate::row::{Input, Peer, Row};

const COLUMNS: [&str; 16] = [
    "row",
    "work",
    "tensors",
    "MiB",
    "peer",
    "ours, ms",
    "one thread",
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

pub fn head() -> String {
    let numbers = COLUMNS.map(|column| match column {
        "row" | "work" | "peer" => "---",
        _ => "--:",
    });
    format!("| {} |\n| {} |", COLUMNS.join(" | "), numbers.join(" | "))
}

/// A line for each peer.
pub fn lines(row: &Row, input: &Input, results: &Results) -> Vec<String> {
    let ours = &results.ours;
    let one_thread = &results.ours_one_thread;
    let peers = row.peers.iter().zip(&results.peers);
    let line = |(peer, theirs): (&Peer, &Measured)| {
        let cells = [
            row.name.to_owned(),
            row.work.to_owned(),
            input.tensors.to_string(),
            mebibytes(input.bytes),
            peer.name.to_owned(),
            time(ours.load_ns),
            one_thread
                .as_ref()
                .map_or("–".to_owned(), |one| time(one.load_ns)),
            time(theirs.load_ns),
            ratio(theirs.load_ns, ours.load_ns),
            format!("{}", peer.target),
            time(ours.load_and_read_ns),
            time(theirs.load_and_read_ns),
            ratio(theirs.load_and_read_ns, ours.load_and_read_ns),
            format!("{:.1}", input.bytes as f64 / ours.load_ns as f64),
            peak(ours.peak_rss, input.bytes),
            peak(theirs.peak_rss, input.bytes),
        ];
        format!("| {} |", cells.join(" | "))
    };
    peers.map(line).collect()
}

pub fn notes(rounds: usize, quick: bool) -> String {
    let mut notes = format!(
        "Medians of {rounds} rounds, in each of which every side ran once, in a fresh process, in \
         alternating order, with the files in the page cache; a side that took longer than {:?} ran \
         in the first round only. Times are measured inside the process \
         around the work. \"And read\": with every loaded byte read afterwards; where only headers \
         are read, with every tensor looked up by its name. MiB and GB/s are of the loaded \
         tensors, or of headers. Peak is the process's peak resident memory, which for a map \
         includes the pages of the file; in brackets, as a multiple of the loaded bytes.",
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

/// As a multiple only where the process itself does not count for much.
fn peak(peak: u64, bytes: u64) -> String {
    match bytes {
        0..80_000_000 => mebibytes(peak),
        _ => format!("{} ({:.2})", mebibytes(peak), peak as f64 / bytes as f64),
    }
}
