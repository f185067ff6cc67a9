//! Embeddings that another implementation made of the same model.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use st::format::Checkpoint;

use crate::cosine_similarity;

/// How far, as cosine distance, an embedding may be from the expected one.
const TOLERANCE: f64 = 1e-4;

/// Sentences and the embeddings expected for them.
pub struct Reference {
    sentences: Vec<String>,
    embeddings: Vec<Vec<f32>>,
}

impl Reference {
    /// Reads a safetensors file with a tensor `embeddings`, one row per sentence, and the
    /// sentences as a JSON array in its metadata.
    ///
    /// # Errors
    ///
    /// Where the file is missing or lacks any of that.
    pub fn read(path: &Path) -> Result<Reference> {
        let file = Checkpoint::open(path)?;
        let metadata = file.metadata();
        let sentences = metadata
            .get("sentences")
            .context("metadata has no sentences")?;
        let sentences: Vec<String> = serde_json::from_str(sentences).context("sentences")?;
        let embeddings = floats_by_row(&file, "embeddings")?;
        let (rows, count) = (embeddings.len(), sentences.len());
        ensure!(rows == count, "{rows} embeddings for {count} sentences");
        Ok(Reference {
            sentences,
            embeddings,
        })
    }

    /// The sentences.
    pub fn sentences(&self) -> &[String] {
        &self.sentences
    }

    /// The largest cosine distance of one of the embeddings to the one expected.
    ///
    /// # Errors
    ///
    /// Where it is more than rounding explains, or there are not as many embeddings.
    pub fn check(&self, embeddings: &[Vec<f32>]) -> Result<f64> {
        let (rows, expected) = (embeddings.len(), self.embeddings.len());
        ensure!(rows == expected, "{rows} embeddings, expected {expected}");
        let mut largest = 0.0;
        for ((sentence, row), expected) in
            self.sentences.iter().zip(embeddings).zip(&self.embeddings)
        {
            let distance = 1.0 - cosine_similarity(row, expected);
            ensure!(
                row.len() == expected.len() && distance <= TOLERANCE,
                "the embedding of {sentence:?} has a cosine distance of {distance:.1e} to the \
                 expected one, {TOLERANCE:.0e} is allowed"
            );
            largest = f64::max(largest, distance);
        }
        Ok(largest)
    }
}

fn floats_by_row(file: &Checkpoint, name: &str) -> Result<Vec<Vec<f32>>> {
    let shape = file.info(name)?.shape();
    let columns = match *shape {
        [_, columns] if columns > 0 => columns,
        _ => bail!("{name} has shape {shape:?}"),
    };
    let floats: Vec<f32> = file.read_elements(name)?;
    Ok(floats.chunks(columns).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> Reference {
        Reference {
            sentences: vec!["one".to_owned(), "two".to_owned()],
            embeddings: vec![vec![0.6, 0.8], vec![1.0, 0.0]],
        }
    }

    #[test]
    fn the_file_beside_the_engine_can_be_read() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/reference/embeddings.safetensors"
        );
        let reference = Reference::read(Path::new(path)).unwrap();
        assert_eq!(reference.sentences().len(), 6);
        assert!(reference.embeddings.iter().all(|row| row.len() == 384));
    }

    #[test]
    fn the_largest_distance_is_found() {
        let reference = reference();
        assert!(reference.check(&reference.embeddings).unwrap() < 1e-15);
        let distance = reference.check(&[vec![0.6, 0.8], vec![1.0, 0.01]]).unwrap();
        assert!((distance - 5e-5).abs() < 1e-6, "{distance}");
    }

    #[test]
    fn other_embeddings_fail() {
        let swapped = [vec![1.0, 0.0], vec![0.6, 0.8]];
        let not_numbers = [vec![0.6, 0.8], vec![f32::NAN, 0.0]];
        let too_few = [vec![0.6, 0.8]];
        let too_short = [vec![0.6, 0.8], vec![1.0]];
        for embeddings in [&swapped[..], &not_numbers, &too_few, &too_short] {
            assert!(reference().check(embeddings).is_err());
        }
    }
}
