//! BERT in candle, as candle-transformers has it.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use candle_transformers::models::bert::BertModel;

use crate::{Backend, Batch};

pub(super) fn load(dir: &Path) -> Result<Box<dyn Backend>> {
    let config = dir.join("config.json");
    let file = File::open(&config).with_context(|| config.display().to_string())?;
    let config = serde_json::from_reader(file).with_context(|| config.display().to_string())?;

    let device = Device::Cpu;
    let weights = st::candle::var_builder(dir, DType::F32, &device)?;
    let model = BertModel::load(weights, &config)?;
    Ok(Box::new(Candle { model, device }))
}

struct Candle {
    model: BertModel,
    device: Device,
}

impl Backend for Candle {
    fn hidden_states(&self, batch: &Batch) -> Result<Vec<f32>> {
        let shape = (batch.sentences(), batch.tokens_per_sentence());
        let ids = Tensor::from_slice(batch.ids(), shape, &self.device)?;
        let mask = Tensor::from_slice(batch.mask(), shape, &self.device)?;
        let hidden_states = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        Ok(hidden_states.flatten_all()?.to_vec1()?)
    }
}
