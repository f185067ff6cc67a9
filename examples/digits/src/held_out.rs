//! Images the network was not trained on, and how well its answers are those expected.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use st::format::Checkpoint;

/// How far a logit may be from the expected one: frameworks add up in different orders.
const TOLERANCE: f32 = 1e-4;

/// Numbers the network answers an image with, one per digit.
const LOGITS: usize = 10;

/// The images, and what the network should say of them.
pub(crate) struct HeldOut {
    /// 64 pixels per image, row by row, from 0 to 1.
    pub(crate) images: Vec<f32>,
    labels: Vec<u8>,
    logits: Vec<f32>,
    accuracy: String,
}

/// What came out of a network.
pub(crate) struct Score {
    /// The share of images whose largest logit is that of their label.
    pub(crate) accuracy: String,
    /// How far the logits are from the expected ones, at most.
    pub(crate) difference: f32,
}

impl HeldOut {
    /// Reads the images, their labels, and those expectations whose names end in `ending`.
    pub(crate) fn read(path: &Path, ending: &str) -> Result<HeldOut> {
        let file = Checkpoint::open(path)?;
        let pixels = file
            .read_elements::<u8>("images")?
            .into_iter()
            .map(f32::from);
        let metadata = file.metadata();
        let accuracy = metadata.get(format!("accuracy{ending}").as_str());
        Ok(HeldOut {
            images: pixels.map(|pixel| pixel / 16.0).collect(),
            labels: file.read_elements("labels")?,
            logits: file.read_elements(&format!("logits{ending}"))?,
            accuracy: accuracy.context("no accuracy is expected")?.to_string(),
        })
    }

    pub(crate) fn score(&self, logits: &[f32]) -> Result<Score> {
        let (len, expected) = (logits.len(), self.logits.len());
        ensure!(len == expected, "{len} logits, expected {expected}");
        let answers = logits.chunks(LOGITS).map(largest).zip(&self.labels);
        let right = answers.filter(|(answer, label)| answer == *label);
        let differences = logits.iter().zip(&self.logits).map(|(a, b)| (a - b).abs());
        Ok(Score {
            accuracy: format!("{:.4}", right.count() as f64 / self.labels.len() as f64),
            // By total order NaN is the largest; `f32::max` would pass over it.
            difference: differences.max_by(f32::total_cmp).unwrap_or(0.0),
        })
    }

    pub(crate) fn check(&self, score: &Score) -> Result<()> {
        let Score {
            accuracy,
            difference,
        } = score;
        let expected = &self.accuracy;
        ensure!(
            accuracy == expected,
            "accuracy is {accuracy}, expected {expected}"
        );
        ensure!(
            *difference <= TOLERANCE,
            "a logit differs by {difference:e} from the expected one, {TOLERANCE:e} is allowed"
        );
        Ok(())
    }
}

/// The digit whose logit is the largest.
fn largest(logits: &[f32]) -> u8 {
    let digits = (0..).zip(logits);
    digits
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map_or(0, |(digit, _)| digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images, of a 3 and a 7.
    fn held_out() -> HeldOut {
        let mut logits = vec![0.0; 2 * LOGITS];
        (logits[3], logits[LOGITS + 7]) = (1.0, 1.0);
        HeldOut {
            images: vec![0.0; 2 * 64],
            labels: vec![3, 7],
            logits,
            accuracy: "1.0000".to_owned(),
        }
    }

    fn failure(held_out: &HeldOut, logits: &[f32]) -> String {
        let score = held_out.score(logits).unwrap();
        held_out.check(&score).unwrap_err().to_string()
    }

    #[test]
    fn expected_logits_pass() {
        let held_out = held_out();
        let score = held_out.score(&held_out.logits).unwrap();
        held_out.check(&score).unwrap();
    }

    #[test]
    fn a_wrong_label_is_noticed() {
        let mut held_out = held_out();
        held_out.labels[1] = 8;
        let failure = failure(&held_out, &held_out.logits);
        assert_eq!(failure, "accuracy is 0.5000, expected 1.0000");
    }

    #[test]
    fn a_logit_off_and_one_that_is_no_number_are_noticed() {
        let held_out = held_out();
        for off in [0.5, -f32::NAN, f32::NAN] {
            let mut logits = held_out.logits.clone();
            logits[0] = off;
            let failure = failure(&held_out, &logits);
            assert!(!failure.is_empty());
        }
    }

    #[test]
    fn missing_logits_are_noticed() {
        let held_out = held_out();
        assert!(held_out.score(&held_out.logits[LOGITS..]).is_err());
    }
}
