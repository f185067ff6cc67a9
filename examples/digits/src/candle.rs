//! The network in candle.

use std::path::Path;

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use st::candle::load_into_candle;

pub(crate) fn logits(checkpoint: &Path, images: &[f32]) -> Result<Vec<f32>> {
    let tensors = load_into_candle(checkpoint, &Device::Cpu)?;

    let layer = |at: usize, x: &Tensor| -> Result<Tensor> {
        let tensor = |part| {
            let name = format!("layers.{at}.{part}");
            let tensor = tensors
                .get(&name)
                .with_context(|| format!("no tensor {name}"))?;
            // Weights may be BF16, in which one does not want to compute.
            anyhow::Ok(tensor.to_dtype(DType::F32)?)
        };
        Ok(x.matmul(&tensor("weight")?.t()?)?
            .broadcast_add(&tensor("bias")?)?)
    };

    let x = Tensor::from_slice(images, ((), 64), &Device::Cpu)?;
    let x = layer(0, &x)?.relu()?;
    let x = layer(1, &x)?.relu()?;
    let x = layer(2, &x)?;
    Ok(x.flatten_all()?.to_vec1()?)
}
