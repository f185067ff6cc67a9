//! Saving candle's tensors, against the crate safetensors and candle's own save.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{CpuStorage, Device, Storage, Tensor};
use harness::input::{self, FILE};
use harness::{Measured, Peer, Row, Run};
use safetensors::tensor::TensorView;
use st_candle::{load_into_candle, save_from_candle};

pub const ROWS: &[Row] = &[
    Row {
        name: "save-large",
        work: "save F32 tensors of 8 MiB",
        input: input::large,
        repeat: REPEAT,
        ours,
        has_threads: false,
        peers: PEERS,
    },
    Row {
        name: "save-small",
        work: "save F32 tensors of 64 KiB",
        input: |setup| input::uniform(setup, 16 << 10, "F32", &[128, 128]).map(Some),
        repeat: REPEAT,
        ours,
        has_threads: false,
        peers: PEERS,
    },
];

/// Pages of the page cache are fresh memory the first time.
const REPEAT: usize = 3;

const PEERS: &[Peer] = &[
    Peer {
        name: "safetensors serialize_to_file, borrowed data",
        target: 1.0,
        side: |run| save(run, reference),
    },
    Peer {
        name: "candle safetensors::save",
        target: 1.3,
        side: |run| {
            save(run, |tensors, path| {
                Ok(candle_core::safetensors::save(tensors, path)?)
            })
        },
    },
];

fn ours(run: &Run) -> Result<Measured> {
    save(run, |tensors, path| Ok(save_from_candle(path, tensors)?))
}

fn save(
    run: &Run,
    save: impl Fn(&HashMap<String, Tensor>, &Path) -> Result<()>,
) -> Result<Measured> {
    let tensors = load_into_candle(run.input.join(FILE), &Device::Cpu)?;
    run.measure_save(|path| save(&tensors, path))
}

fn reference(tensors: &HashMap<String, Tensor>, path: &Path) -> Result<()> {
    let storages: Vec<_> = tensors.values().map(Tensor::storage_and_layout).collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (name, (storage, layout)) in tensors.keys().zip(&storages) {
        let (start, end) = layout.contiguous_offsets().context("not contiguous")?;
        let Storage::Cpu(CpuStorage::F32(elements)) = &**storage else {
            bail!("a tensor is not F32 on the CPU");
        };
        let shape = layout.shape().dims().to_vec();
        let bytes = bytemuck::cast_slice(&elements[start..end]);
        views.push((
            name,
            TensorView::new(safetensors::Dtype::F32, shape, bytes)?,
        ));
    }
    Ok(safetensors::serialize_to_file(views, None, path)?)
}
