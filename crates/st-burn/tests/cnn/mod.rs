//! The network that `fixtures/cnn.py` writes, as a burn module.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, PaddingConfig2d,
};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use st_burn::Store;
use st_burn::burn_store::PyTorchToBurnAdapter;

#[derive(Module, Debug)]
pub(crate) struct Cnn {
    pub(crate) features: Features,
    pub(crate) norm: LayerNorm,
    pub(crate) classifier: Vec<Linear>,
}

#[derive(Module, Debug)]
pub(crate) struct Features {
    pub(crate) conv1: Conv2d,
    pub(crate) norm1: BatchNorm,
    pub(crate) conv2: Conv2d,
    pub(crate) norm2: GroupNorm,
}

impl Cnn {
    pub(crate) fn new(device: &Device) -> Cnn {
        let conv1 =
            Conv2dConfig::new([3, 8], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        let conv2 = Conv2dConfig::new([8, 16], [3, 3]).with_stride([2, 2]);
        Cnn {
            features: Features {
                conv1: conv1.init(device),
                norm1: BatchNormConfig::new(8).init(device),
                conv2: conv2.init(device),
                norm2: GroupNormConfig::new(4, 16).init(device),
            },
            norm: LayerNormConfig::new(16).init(device),
            classifier: vec![
                LinearConfig::new(16, 12).init(device),
                LinearConfig::new(12, 5).init(device),
            ],
        }
    }

    pub(crate) fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let Features {
            conv1,
            norm1,
            conv2,
            norm2,
        } = &self.features;
        let features = relu(norm1.forward(conv1.forward(images)));
        let features = relu(norm2.forward(conv2.forward(features)));
        let pooled = features.mean_dims(&[2, 3]).flatten(1, 3);
        let hidden = self.classifier[0].forward(self.norm.forward(pooled));
        self.classifier[1].forward(relu(hidden))
    }
}

/// The names of PyTorch's, as the module has them.
pub(crate) fn as_in_module(store: Store) -> Store {
    store
        .with_key_remapping(r"^features\.0\.", "features.conv1.")
        .and_then(|store| store.with_key_remapping(r"^features\.1\.", "features.norm1."))
        .and_then(|store| store.with_key_remapping(r"^features\.3\.", "features.conv2."))
        .and_then(|store| store.with_key_remapping(r"^features\.4\.", "features.norm2."))
        .unwrap()
        .map_indices_contiguous(true)
        .with_from_adapter(PyTorchToBurnAdapter)
}
