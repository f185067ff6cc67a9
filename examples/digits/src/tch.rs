//! The network in tch.

use std::path::Path;

use anyhow::{Context, Result};
use st::format::Dtype;
use st::tch::Loader;
use st::tch::tch::{Device, Tensor};

pub(crate) fn logits(checkpoint: &Path, images: &[f32]) -> Result<Vec<f32>> {
    // Weights may be BF16, in which one does not want to compute.
    let loader = Loader::new(Device::Cpu).cast_floats(Dtype::F32);
    let tensors = loader.load(checkpoint)?;

    let layer = |at: usize, x: &Tensor| -> Result<Tensor> {
        let tensor = |part| {
            let name = format!("layers.{at}.{part}");
            let tensor = tensors.get(&name);
            tensor.with_context(|| format!("no tensor {name}"))
        };
        Ok(x.f_linear(tensor("weight")?, Some(tensor("bias")?))?)
    };

    let x = Tensor::f_from_slice(images)?.f_view((-1, 64))?;
    let x = layer(0, &x)?.f_relu()?;
    let x = layer(1, &x)?.f_relu()?;
    let x = layer(2, &x)?;
    Ok(Vec::try_from(x.f_view(-1)?)?)
}
