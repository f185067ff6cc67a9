//! Reads handwritten digits with a small network whose weights come from safetensors: in every
//! framework that is enabled, from one file, from shards and from BF16, each checked against what
//! the network is known to answer.
//!
//! `cargo run --release -p digits`

#![forbid(unsafe_code)]

#[cfg(feature = "burn")]
mod burn;
#[cfg(feature = "candle")]
mod candle;
mod held_out;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "tch")]
mod tch;

#[cfg(not(any(
    feature = "burn",
    feature = "candle",
    feature = "ndarray",
    feature = "tch"
)))]
compile_error!("digits needs a framework: build it with `--features candle`");

use std::path::Path;

use anyhow::{Context, Result, bail};
use held_out::{HeldOut, Score};

/// What each framework's file offers: the network's ten logits for every image.
type Logits = fn(checkpoint: &Path, images: &[f32]) -> Result<Vec<f32>>;

const FRAMEWORKS: &[(&str, Logits)] = &[
    #[cfg(feature = "candle")]
    ("candle", candle::logits),
    #[cfg(feature = "burn")]
    ("burn", burn::logits),
    #[cfg(feature = "ndarray")]
    ("ndarray", ndarray::logits),
    #[cfg(feature = "tch")]
    ("tch", tch::logits),
];

/// The checkpoints in the data directory, each with the ending of what is expected of it there:
/// `logits_bf16` are those of weights rounded to BF16.
const CHECKPOINTS: &[(&str, &str)] = &[
    ("digits.safetensors", ""),
    ("sharded", ""),
    ("digits-bf16.safetensors", "_bf16"),
];

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");

fn main() -> Result<()> {
    let mut failures = Vec::new();
    println!("framework  checkpoint               accuracy  largest difference of a logit");
    for (framework, logits) in FRAMEWORKS {
        for (checkpoint, ending) in CHECKPOINTS {
            let held_out = HeldOut::read(&Path::new(DATA).join("held_out.safetensors"), ending)?;
            let score = score(*logits, &Path::new(DATA).join(checkpoint), &held_out)
                .with_context(|| format!("{framework} with {checkpoint}"))?;
            let Score {
                accuracy,
                difference,
            } = &score;
            println!("{framework:9}  {checkpoint:23}  {accuracy:8}  {difference:.7}");
            if let Err(failure) = held_out.check(&score) {
                failures.push(format!("{framework} with {checkpoint}: {failure}"));
            }
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn score(logits: Logits, checkpoint: &Path, held_out: &HeldOut) -> Result<Score> {
    held_out.score(&logits(checkpoint, &held_out.images)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use st::format::Checkpoint;
    use tempfile::TempDir;

    use super::*;

    fn held_out(ending: &str) -> HeldOut {
        HeldOut::read(&Path::new(DATA).join("held_out.safetensors"), ending).unwrap()
    }

    #[test]
    fn every_framework_answers_as_expected_from_every_checkpoint() {
        for (_, logits) in FRAMEWORKS {
            for (checkpoint, ending) in CHECKPOINTS {
                let held_out = held_out(ending);
                let score = score(*logits, &Path::new(DATA).join(checkpoint), &held_out).unwrap();
                held_out.check(&score).unwrap();
            }
        }
    }

    #[test]
    fn weights_in_the_wrong_place_are_noticed() {
        let (_dir, swapped) = checkpoint_with_swapped("layers.0.weight", "layers.1.weight");
        for (_, logits) in FRAMEWORKS {
            let held_out = held_out("");
            let score = score(*logits, &swapped, &held_out).unwrap();
            let failure = held_out.check(&score).unwrap_err().to_string();
            assert!(failure.contains("accuracy"), "{failure}");
        }
    }

    #[test]
    fn rounded_weights_are_noticed_though_the_accuracy_is_the_same() {
        let rounded = Path::new(DATA).join("digits-bf16.safetensors");
        for (_, logits) in FRAMEWORKS {
            let held_out = held_out("");
            let score = score(*logits, &rounded, &held_out).unwrap();
            let failure = held_out.check(&score).unwrap_err().to_string();
            assert!(failure.contains("differs"), "{failure}");
        }
    }

    /// A copy of the F32 checkpoint in which two tensors of equal size have each other's data.
    fn checkpoint_with_swapped(one: &str, other: &str) -> (TempDir, PathBuf) {
        let original = Path::new(DATA).join("digits.safetensors");
        let checkpoint = Checkpoint::open(&original).unwrap();
        let start = checkpoint.shards()[0].header().data_start();
        let mut bytes = std::fs::read(original).unwrap();
        for (to, from) in [(one, other), (other, one)] {
            let begin = (start + checkpoint.info(to).unwrap().data_offsets().start) as usize;
            let data = checkpoint.read(from).unwrap();
            bytes[begin..begin + data.len()].copy_from_slice(&data);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("swapped.safetensors");
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }
}
