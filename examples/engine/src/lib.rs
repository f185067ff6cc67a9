//! A small sentence-embedding engine: what an inference engine that uses `st` looks like.
//!
//! The engine turns sentences into tokens and hidden states into embeddings. What lies between,
//! the network, is a [`Backend`]: one file per framework, which loads its weights by one call of
//! `st`. A framework is a feature of the engine, and brings the adapter of `st` with it.

#![forbid(unsafe_code)]

mod backend;
mod embedding;
mod reference;
mod tokens;

use std::path::Path;

use anyhow::Result;

pub use backend::{BACKENDS, Backend, LoadBackend};
pub use embedding::{cosine_similarity, mean_pooled};
pub use reference::Reference;
pub use tokens::{Batch, Tokenizer};

/// A model that is ready to embed sentences.
pub struct Engine {
    tokenizer: Tokenizer,
    backend: Box<dyn Backend>,
}

impl Engine {
    /// Loads the model in `dir` (`model.safetensors`, `config.json`, `tokenizer.json`) into one
    /// of the [`BACKENDS`].
    ///
    /// # Errors
    ///
    /// Where one of the files is missing or is not what the backend understands.
    pub fn load(dir: &Path, backend: LoadBackend) -> Result<Engine> {
        Ok(Engine {
            tokenizer: Tokenizer::open(&dir.join("tokenizer.json"))?,
            backend: backend(dir)?,
        })
    }

    /// One embedding per sentence, each of length 1.
    ///
    /// # Errors
    ///
    /// Where the framework fails.
    pub fn embed(&self, sentences: &[String]) -> Result<Vec<Vec<f32>>> {
        let batch = self.tokenizer.batch(sentences)?;
        let hidden_states = self.backend.hidden_states(&batch)?;
        Ok(mean_pooled(&hidden_states, &batch))
    }
}
