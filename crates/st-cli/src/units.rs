//! Numbers for a person: with their noun, and rounded where they are large.

const BYTES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const COUNTS: [&str; 6] = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
];

/// A number of bytes, such as `474.7 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes, 1024.0, &BYTES)
}

/// A rounded number and its noun, such as `124.4 million parameters`.
pub(crate) fn about(count: u64, noun: &str) -> String {
    match count {
        0..1000 => exactly(count, noun),
        _ => format!("{} {noun}s", scaled(count, 1000.0, &COUNTS)),
    }
}

/// A number and its noun, such as `1 tensor` or `2 tensors`.
pub(crate) fn exactly(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// In the first unit that leaves less than `step`, with one decimal beyond the first unit.
fn scaled(number: u64, step: f64, units: &[&str]) -> String {
    let mut value = number as f64;
    let mut power = 0;
    // What would be rounded up to `step` belongs to the next unit already.
    while (value * 10.0).round() >= step * 10.0 && power + 1 < units.len() {
        value /= step;
        power += 1;
    }
    let decimals = usize::from(power > 0);
    format!("{value:.decimals$} {}", units[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_into_the_next_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn large_counts_are_words() {
        assert_eq!(about(1, "parameter"), "1 parameter");
        assert_eq!(about(999, "parameter"), "999 parameters");
        assert_eq!(about(1000, "parameter"), "1.0 thousand parameters");
        assert_eq!(about(124_439_808, "parameter"), "124.4 million parameters");
        assert_eq!(about(999_999_999, "parameter"), "1.0 billion parameters");
        assert_eq!(about(u64::MAX, "x"), "18446.7 quadrillion xs");
    }

    #[test]
    fn only_one_is_singular() {
        assert_eq!(exactly(0, "tensor"), "0 tensors");
        assert_eq!(exactly(1, "tensor"), "1 tensor");
        assert_eq!(exactly(1000, "tensor"), "1000 tensors");
    }
}
