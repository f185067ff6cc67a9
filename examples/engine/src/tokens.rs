//! Sentences become rows of token ids of one length.

use std::path::Path;

use anyhow::{Context, Error, Result};
use tokenizers::{PaddingParams, PaddingStrategy};

/// Sentences as a network takes them: rows of token ids, padded to the length of the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    sentences: usize,
    ids: Vec<u32>,
    mask: Vec<u32>,
}

impl Batch {
    /// The number of rows.
    pub fn sentences(&self) -> usize {
        self.sentences
    }

    /// The length of every row.
    pub fn tokens_per_sentence(&self) -> usize {
        self.ids.len() / self.sentences.max(1)
    }

    /// The token ids, row after row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// For every token id 1, or 0 where it is padding.
    pub fn mask(&self) -> &[u32] {
        &self.mask
    }
}

/// A tokenizer as `tokenizer.json` describes it, except for its padding.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// Where the file is missing or is no tokenizer.
    pub fn open(path: &Path) -> Result<Tokenizer> {
        let json = std::fs::read(path).with_context(|| path.display().to_string())?;
        Tokenizer::from_json(&json).with_context(|| path.display().to_string())
    }

    fn from_json(json: &[u8]) -> Result<Tokenizer> {
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(Error::from_boxed)?;
        // Some files ask for padding to a fixed length, which wastes most of the computation.
        tokenizer.with_padding(Some(PaddingParams {
            strategy: PaddingStrategy::BatchLongest,
            pad_id: 0,
            ..PaddingParams::default()
        }));
        Ok(Tokenizer(tokenizer))
    }

    /// The sentences' tokens.
    ///
    /// # Errors
    ///
    /// Where the tokenizer fails, as on a word outside its vocabulary when it has no unknown
    /// token.
    pub fn batch(&self, sentences: &[String]) -> Result<Batch> {
        let sentences = sentences.iter().map(String::as_str).collect();
        let rows = self.0.encode_batch(sentences, true);
        let rows = rows.map_err(Error::from_boxed)?;
        let mask = rows.iter().flat_map(|row| row.get_attention_mask());
        Ok(Batch {
            sentences: rows.len(),
            ids: rows.iter().flat_map(|row| row.get_ids()).copied().collect(),
            mask: mask.copied().collect(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of words, with a fixed padding that is to be ignored.
    const TOKENIZER: &str = r#"{
        "version": "1.0",
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[PAD]": 0, "a": 1, "b": 2, "c": 3},
                  "unk_token": "[PAD]"}
    }"#;

    pub(crate) fn batch(sentences: &[&str]) -> Batch {
        let sentences: Vec<String> = sentences.iter().map(|&sentence| sentence.into()).collect();
        let tokenizer = Tokenizer::from_json(TOKENIZER.as_bytes()).unwrap();
        tokenizer.batch(&sentences).unwrap()
    }

    #[test]
    fn padding_reaches_to_the_longest_sentence() {
        let batch = batch(&["a b c", "b"]);
        assert_eq!((batch.sentences(), batch.tokens_per_sentence()), (2, 3));
        assert_eq!(batch.ids(), [1, 2, 3, 2, 0, 0]);
        assert_eq!(batch.mask(), [1, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn long_sentences_are_cut_as_the_file_says() {
        assert_eq!(batch(&["a b c a b c"]).ids(), [1, 2, 3, 1]);
    }

    #[test]
    fn no_sentences_are_no_tokens() {
        let batch = batch(&[]);
        assert_eq!((batch.sentences(), batch.tokens_per_sentence()), (0, 0));
    }
}
