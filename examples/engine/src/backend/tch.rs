//! BERT in tch: the network, as its authors describe it, by the names its weights have.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use st::format::Dtype;
use st::tch::Loader;
use st::tch::tch::{Device, Kind, Tensor, no_grad};

use crate::{Backend, Batch};

pub(super) fn load(dir: &Path) -> Result<Box<dyn Backend>> {
    let config = dir.join("config.json");
    let file = File::open(&config).with_context(|| config.display().to_string())?;
    let config: Config =
        serde_json::from_reader(file).with_context(|| config.display().to_string())?;

    let loader = Loader::new(Device::Cpu)
        .rename(|name| name.strip_prefix("bert.").unwrap_or(name).to_owned())
        .cast_floats(Dtype::F32);
    let tensors = loader.load(dir)?;
    Ok(Box::new(Bert::new(&mut Weights { config, tensors })?))
}

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: usize,
    num_attention_heads: i64,
    layer_norm_eps: f64,
}

/// The tensors that no part of the network has taken yet.
struct Weights {
    config: Config,
    tensors: HashMap<String, Tensor>,
}

impl Weights {
    fn tensor(&mut self, name: &str) -> Result<Tensor> {
        let tensor = self.tensors.remove(name);
        tensor.with_context(|| format!("no tensor {name}"))
    }

    fn linear(&mut self, name: &str) -> Result<Linear> {
        Ok(Linear {
            weight: self.tensor(&format!("{name}.weight"))?,
            bias: self.tensor(&format!("{name}.bias"))?,
        })
    }

    fn norm(&mut self, name: &str) -> Result<Norm> {
        Ok(Norm {
            weight: self.tensor(&format!("{name}.weight"))?,
            bias: self.tensor(&format!("{name}.bias"))?,
            epsilon: self.config.layer_norm_eps,
        })
    }
}

struct Bert {
    embeddings: Embeddings,
    layers: Vec<Layer>,
}

impl Bert {
    fn new(weights: &mut Weights) -> Result<Bert> {
        let embeddings = Embeddings::new(weights)?;
        let layers = 0..weights.config.num_hidden_layers;
        let layers = layers.map(|at| Layer::new(weights, &format!("encoder.layer.{at}")));
        Ok(Bert {
            embeddings,
            layers: layers.collect::<Result<_>>()?,
        })
    }

    fn forward(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        // What makes a token's share in every other one zero, where it is padding.
        let padding = mask.f_eq(0)?.f_unsqueeze(1)?.f_unsqueeze(1)?;
        let bias = padding.f_to_kind(Kind::Float)?.f_mul_scalar(-1e9)?;
        let states = self.embeddings.forward(ids)?;
        let mut layers = self.layers.iter();
        layers.try_fold(states, |states, layer| layer.forward(&states, &bias))
    }
}

impl Backend for Bert {
    fn hidden_states(&self, batch: &Batch) -> Result<Vec<f32>> {
        let tensor = |elements: &[u32]| {
            let elements: Vec<i64> = elements.iter().copied().map(i64::from).collect();
            let shape = [batch.sentences(), batch.tokens_per_sentence()];
            Tensor::f_from_slice(&elements)?.f_view(shape.map(|size| size as i64))
        };
        let (ids, mask) = (tensor(batch.ids())?, tensor(batch.mask())?);
        let hidden_states = no_grad(|| self.forward(&ids, &mask))?;
        Ok(Vec::try_from(hidden_states.f_reshape(-1)?)?)
    }
}

struct Embeddings {
    words: Tensor,
    positions: Tensor,
    token_types: Tensor,
    norm: Norm,
}

impl Embeddings {
    fn new(weights: &mut Weights) -> Result<Embeddings> {
        Ok(Embeddings {
            words: weights.tensor("embeddings.word_embeddings.weight")?,
            positions: weights.tensor("embeddings.position_embeddings.weight")?,
            token_types: weights.tensor("embeddings.token_type_embeddings.weight")?,
            norm: weights.norm("embeddings.LayerNorm")?,
        })
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (_, tokens) = ids.size2()?;
        let words = Tensor::f_embedding(&self.words, ids, -1, false, false)?;
        let positions = self.positions.f_narrow(0, 0, tokens)?;
        let token_type = self.token_types.f_select(0, 0)?;
        self.norm
            .forward(&words.f_add(&positions)?.f_add(&token_type)?)
    }
}

struct Layer {
    attention: Attention,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    norm: Norm,
}

impl Layer {
    fn new(weights: &mut Weights, name: &str) -> Result<Layer> {
        Ok(Layer {
            attention: Attention::new(weights, &format!("{name}.attention"))?,
            attention_norm: weights.norm(&format!("{name}.attention.output.LayerNorm"))?,
            intermediate: weights.linear(&format!("{name}.intermediate.dense"))?,
            output: weights.linear(&format!("{name}.output.dense"))?,
            norm: weights.norm(&format!("{name}.output.LayerNorm"))?,
        })
    }

    fn forward(&self, states: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let attended = self.attention.forward(states, bias)?;
        let states = self.attention_norm.forward(&states.f_add(&attended)?)?;
        let intermediate = self.intermediate.forward(&states)?.f_gelu("none")?;
        let output = self.output.forward(&intermediate)?;
        self.norm.forward(&states.f_add(&output)?)
    }
}

struct Attention {
    heads: i64,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
}

impl Attention {
    fn new(weights: &mut Weights, name: &str) -> Result<Attention> {
        Ok(Attention {
            heads: weights.config.num_attention_heads,
            query: weights.linear(&format!("{name}.self.query"))?,
            key: weights.linear(&format!("{name}.self.key"))?,
            value: weights.linear(&format!("{name}.self.value"))?,
            output: weights.linear(&format!("{name}.output.dense"))?,
        })
    }

    fn forward(&self, states: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let by_head = |linear: &Linear| -> Result<Tensor> {
            let split = linear.forward(states)?.f_unflatten(-1, [self.heads, -1])?;
            Ok(split.f_transpose(1, 2)?)
        };
        let query = by_head(&self.query)?;
        let key = by_head(&self.key)?;
        let value = by_head(&self.value)?;

        let (.., size) = query.size4()?;
        let scores = query.f_matmul(&key.f_transpose(2, 3)?)?;
        let scores = scores.f_div_scalar((size as f64).sqrt())?.f_add(bias)?;
        let attended = scores.f_softmax(3, Kind::Float)?.f_matmul(&value)?;
        self.output
            .forward(&attended.f_transpose(1, 2)?.f_flatten(2, 3)?)
    }
}

struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_linear(&self.weight, Some(&self.bias))?)
    }
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (Some(&self.weight), Some(&self.bias));
        Ok(x.f_layer_norm(self.weight.size(), weight, bias, self.epsilon, false)?)
    }
}
