//! The network in ndarray.

use std::path::Path;

use anyhow::{Context, Result};
use ndarray::{Array2, ArrayView2, Ix1, Ix2};
use st::format::Dtype;
use st::ndarray::{Loader, NdArray};

pub(crate) fn logits(checkpoint: &Path, images: &[f32]) -> Result<Vec<f32>> {
    // Weights may be BF16, in which one does not want to compute.
    let loader = Loader::new(NdArray).cast_floats(Dtype::F32);
    let arrays = loader.load(checkpoint)?;

    let layer = |at: usize, x: Array2<f32>| -> Result<Array2<f32>> {
        let array = |part| {
            let name = format!("layers.{at}.{part}");
            let array = arrays
                .get(&name)
                .with_context(|| format!("no tensor {name}"))?;
            anyhow::Ok(array.as_array::<f32>()?.view())
        };
        let weight = array("weight")?.into_dimensionality::<Ix2>()?;
        let bias = array("bias")?.into_dimensionality::<Ix1>()?;
        Ok(x.dot(&weight.t()) + bias)
    };

    let x = ArrayView2::from_shape((images.len() / 64, 64), images)?.to_owned();
    let x = relu(layer(0, x)?);
    let x = relu(layer(1, x)?);
    let x = layer(2, x)?;
    Ok(x.into_iter().collect())
}

/// NaN stays NaN, which `f32::max` would not let it.
fn relu(x: Array2<f32>) -> Array2<f32> {
    x.mapv_into(|x| if x < 0.0 { 0.0 } else { x })
}
