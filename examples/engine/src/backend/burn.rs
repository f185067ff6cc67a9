//! BERT in burn: the network, as its authors describe it, and what its weights are called.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use serde::Deserialize;
use st::burn::Store;
use st::burn::burn_store::{FloatCastAdapter, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter};

use crate::{Backend, Batch};

pub(super) fn load(dir: &Path) -> Result<Box<dyn Backend>> {
    let config = dir.join("config.json");
    let file = File::open(&config).with_context(|| config.display().to_string())?;
    let config: Config =
        serde_json::from_reader(file).with_context(|| config.display().to_string())?;

    let device = Device::flex();
    let mut bert = Bert::new(&config, &device);
    let adapter = PyTorchToBurnAdapter.chain(FloatCastAdapter::to(DType::F32));
    let mut weights = Store::open(dir)?.with_from_adapter(adapter);
    for (in_file, in_module) in NAMES {
        weights = weights.with_key_remapping(in_file, *in_module)?;
    }
    bert.load_from(&mut weights)?;
    Ok(Box::new(Burn { bert, device }))
}

/// What the modules below are called in checkpoints.
const NAMES: &[(&str, &str)] = &[
    (r"^bert\.", ""),
    (r"^embeddings\.LayerNorm\.", "embeddings.norm."),
    (r"^encoder\.layer\.", "layers."),
    (r"\.attention\.self\.", ".attention."),
    (r"\.output\.LayerNorm\.", ".norm."),
    (r"\.attention\.norm\.", ".attention_norm."),
    (r"\.(output|intermediate)\.dense\.", ".$1."),
];

#[derive(Deserialize)]
struct Config {
    vocab_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    layer_norm_eps: f64,
}

impl Config {
    fn embedding(&self, entries: usize, device: &Device) -> Embedding {
        EmbeddingConfig::new(entries, self.hidden_size).init(device)
    }

    fn linear(&self, device: &Device) -> Linear {
        LinearConfig::new(self.hidden_size, self.hidden_size).init(device)
    }

    fn norm(&self, device: &Device) -> LayerNorm {
        let norm = LayerNormConfig::new(self.hidden_size);
        norm.with_epsilon(self.layer_norm_eps).init(device)
    }
}

struct Burn {
    bert: Bert,
    device: Device,
}

impl Backend for Burn {
    fn hidden_states(&self, batch: &Batch) -> Result<Vec<f32>> {
        let tensor = |elements: &[u32]| {
            let elements = elements.iter().copied().map(i64::from).collect();
            let shape = [batch.sentences(), batch.tokens_per_sentence()];
            Tensor::<2, Int>::from_data(TensorData::new(elements, shape), &self.device)
        };
        let hidden_states = self.bert.forward(tensor(batch.ids()), tensor(batch.mask()));
        Ok(hidden_states.try_into_vec_as::<f32>()?)
    }
}

#[derive(Module, Debug)]
struct Bert {
    embeddings: Embeddings,
    layers: Vec<Layer>,
}

impl Bert {
    fn new(config: &Config, device: &Device) -> Bert {
        let layer = |_| Layer::new(config, device);
        Bert {
            embeddings: Embeddings::new(config, device),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
        }
    }

    fn forward(&self, ids: Tensor<2, Int>, mask: Tensor<2, Int>) -> Tensor<3> {
        // What makes a token's share in every other one zero, where it is padding.
        let padding = mask.equal_elem(0).unsqueeze_dims::<4>(&[1, 2]);
        let bias = padding.float() * -1e9;
        let states = self.embeddings.forward(ids);
        let layers = self.layers.iter();
        layers.fold(states, |states, layer| layer.forward(states, &bias))
    }
}

#[derive(Module, Debug)]
struct Embeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    norm: LayerNorm,
}

impl Embeddings {
    fn new(config: &Config, device: &Device) -> Embeddings {
        Embeddings {
            word_embeddings: config.embedding(config.vocab_size, device),
            position_embeddings: config.embedding(config.max_position_embeddings, device),
            token_type_embeddings: config.embedding(config.type_vocab_size, device),
            norm: config.norm(device),
        }
    }

    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let [_, tokens] = ids.dims();
        let positions = Tensor::arange(0..tokens as i64, &ids.device()).unsqueeze();
        let types = ids.zeros_like();
        let sum = self.word_embeddings.forward(ids)
            + self.position_embeddings.forward(positions)
            + self.token_type_embeddings.forward(types);
        self.norm.forward(sum)
    }
}

#[derive(Module, Debug)]
struct Layer {
    attention: Attention,
    attention_norm: LayerNorm,
    intermediate: Linear,
    output: Linear,
    norm: LayerNorm,
}

impl Layer {
    fn new(config: &Config, device: &Device) -> Layer {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        Layer {
            attention: Attention::new(config, device),
            attention_norm: config.norm(device),
            intermediate: LinearConfig::new(hidden, intermediate).init(device),
            output: LinearConfig::new(intermediate, hidden).init(device),
            norm: config.norm(device),
        }
    }

    fn forward(&self, states: Tensor<3>, bias: &Tensor<4>) -> Tensor<3> {
        let attended = self.attention.forward(states.clone(), bias);
        let states = self.attention_norm.forward(states + attended);
        let intermediate = gelu(self.intermediate.forward(states.clone()));
        self.norm
            .forward(states + self.output.forward(intermediate))
    }
}

#[derive(Module, Debug)]
struct Attention {
    heads: usize,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
}

impl Attention {
    fn new(config: &Config, device: &Device) -> Attention {
        Attention {
            heads: config.num_attention_heads,
            query: config.linear(device),
            key: config.linear(device),
            value: config.linear(device),
            output: config.linear(device),
        }
    }

    fn forward(&self, states: Tensor<3>, bias: &Tensor<4>) -> Tensor<3> {
        let [sentences, tokens, hidden] = states.dims();
        let size = hidden / self.heads;
        let by_head = |states: Tensor<3>| {
            let split = states.reshape([sentences, tokens, self.heads, size]);
            split.swap_dims(1, 2)
        };
        let query = by_head(self.query.forward(states.clone()));
        let key = by_head(self.key.forward(states.clone()));
        let value = by_head(self.value.forward(states));

        let scores = query.matmul(key.transpose()) / (size as f64).sqrt() + bias.clone();
        let attended = softmax(scores, 3).matmul(value).swap_dims(1, 2);
        self.output
            .forward(attended.reshape([sentences, tokens, hidden]))
    }
}
