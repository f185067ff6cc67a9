//! What the engine asks of a framework, and the frameworks there are.

#[cfg(feature = "burn")]
mod burn;
#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "tch")]
mod tch;

use std::path::Path;

use anyhow::Result;

use crate::Batch;

#[cfg(not(any(feature = "burn", feature = "candle", feature = "tch")))]
compile_error!("engine needs a backend: build it with `--features candle`");

/// A network with its weights, in some framework.
pub trait Backend {
    /// The last hidden state of every token, padding included, in row-major order:
    /// `[sentence, token, feature]`. Padding must not influence the other tokens.
    ///
    /// # Errors
    ///
    /// Where the framework fails.
    fn hidden_states(&self, batch: &Batch) -> Result<Vec<f32>>;
}

/// Loads a network from a directory with `model.safetensors` and `config.json`.
pub type LoadBackend = fn(dir: &Path) -> Result<Box<dyn Backend>>;

/// The backends this build of the engine has, by name.
pub const BACKENDS: &[(&str, LoadBackend)] = &[
    #[cfg(feature = "candle")]
    ("candle", candle::load),
    #[cfg(feature = "burn")]
    ("burn", burn::load),
    #[cfg(feature = "tch")]
    ("tch", tch::load),
];
