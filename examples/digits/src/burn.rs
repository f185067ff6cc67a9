//! The network in burn.

use std::path::Path;

use anyhow::Result;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{DType, Device, Tensor, TensorData};
use st::burn::Store;
use st::burn::burn_store::{FloatCastAdapter, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter};

#[derive(Module, Debug)]
struct Network {
    layers: Vec<Linear>,
}

pub(crate) fn logits(checkpoint: &Path, images: &[f32]) -> Result<Vec<f32>> {
    let device = Device::flex();
    let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).init(&device);
    let mut network = Network {
        layers: vec![layer(64, 128), layer(128, 64), layer(64, 10)],
    };
    // Weights are laid out as PyTorch's, and may be BF16, in which one does not want to compute.
    let adapter = PyTorchToBurnAdapter.chain(FloatCastAdapter::to(DType::F32));
    network.load_from(&mut Store::open(checkpoint)?.with_from_adapter(adapter))?;

    let images = TensorData::new(images.to_vec(), [images.len() / 64, 64]);
    let x = Tensor::<2>::from_data(images, &device);
    let x = relu(network.layers[0].forward(x));
    let x = relu(network.layers[1].forward(x));
    let x = network.layers[2].forward(x);
    Ok(x.try_into_vec_as::<f32>()?)
}
