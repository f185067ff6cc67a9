//! candle: our loads against its own.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use candle_core::safetensors::{Load, MmapedSafetensors};
use candle_core::{CpuStorage, DType, Device, Storage, Tensor};
use candle_nn::VarBuilder;
use candle_nn::var_builder::{Shard, ShardedSafeTensors, ShardedVarBuilder};
use harness::input::{self, FILE};
use harness::{Cache, Case, Input, Measured, Peer, Per, Row, Run, Series, Setup, Timed, sum};
use st_candle::Loader;
use st_format::{Checkpoint, Dtype, Header, Slice};

pub const ROWS: &[Row] = &[
    Row {
        name: "open-shards",
        work: "open 163 shards of 564 tensors",
        input: shards,
        repeat: 1,
        ours: open_shards,
        has_threads: false,
        peers: &[Peer {
            name: "candle MmapedSafetensors::multi",
            target: 5.0,
            side: candle_open_shards,
        }],
    },
    Row {
        name: "open-files",
        work: "the same by their paths, without the index",
        input: shards,
        repeat: 1,
        ours: open_files,
        has_threads: false,
        peers: &[Peer {
            name: "candle MmapedSafetensors::multi",
            target: 5.0,
            side: candle_open_shards,
        }],
    },
    Row {
        name: "candle-large",
        work: "F32 tensors of 8 MiB",
        input: input::large,
        repeat: 1,
        ours: load,
        has_threads: true,
        peers: &[candle_mmap(3.0), candle_load(6.0)],
    },
    Row {
        name: "candle-small",
        work: "F32 tensors of 64 KiB",
        input: |setup| input::uniform(setup, 16 << 10, "F32", &[128, 128]).map(Some),
        repeat: 1,
        ours: load,
        has_threads: true,
        peers: &[candle_mmap(3.0), candle_load(8.0)],
    },
    Row {
        name: "candle-cast",
        work: "BF16 tensors of 16 MiB, cast to F32",
        input: to_be_cast,
        repeat: 1,
        ours: cast,
        has_threads: true,
        peers: &[Peer {
            name: "candle MmapedSafetensors, to_dtype",
            target: 2.0,
            side: candle_cast,
        }],
    },
    Row {
        name: "slice-rows",
        work: "the first half of F32 tensors [8192, 4096] along dim 0",
        input: to_be_sliced,
        repeat: 1,
        ours: |run| slice(run, 0),
        has_threads: true,
        peers: &[
            Peer {
                name: "candle ShardedSafeTensors",
                target: 3.0,
                side: |run| candle_slice(run, 0),
            },
            Peer {
                name: "Python get_slice, numpy",
                target: 2.0,
                side: |run| run.measure_python("numpy_half_of_rows", &[]),
            },
        ],
    },
    Row {
        name: "slice-columns",
        work: "the same along dim 1",
        input: to_be_sliced,
        repeat: 1,
        ours: |run| slice(run, 1),
        has_threads: true,
        peers: &[
            Peer {
                name: "candle ShardedSafeTensors",
                target: 3.0,
                side: |run| candle_slice(run, 1),
            },
            Peer {
                name: "Python get_slice, numpy",
                target: 2.0,
                side: |run| run.measure_python("numpy_half_of_columns", &[]),
            },
        ],
    },
    Row {
        name: "var-builder",
        work: "all tensors of all-MiniLM-L6-v2 through a VarBuilder",
        input: minilm,
        repeat: 1,
        ours: var_builder,
        has_threads: false,
        peers: &[Peer {
            name: "candle from_mmaped_safetensors",
            target: 1.5,
            side: candle_var_builder,
        }],
    },
];

pub const GROWTH: Series = Series {
    name: "growth-load",
    work: "F32 tensors of 8 MiB into candle",
    inputs: |setup| {
        let sizes = if setup.quick {
            [64, 256, 1024]
        } else {
            [64, 1024, 8192]
        };
        input::large_of_sizes(setup, &sizes)
    },
    cases: &[
        Case {
            name: "smallest",
            side: load,
        },
        Case {
            name: "middle",
            side: load,
        },
        Case {
            name: "largest",
            side: load,
        },
    ],
    repeat: 1,
    cache: Cache::Warm,
    timed: Timed::Load,
    per: Per::Byte,
    within: Some(1.5),
};

pub(crate) fn load(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(&Device::Cpu).threads(run.threads);
    run.measure(|| Ok(loader.load(&path)?), sum_of_all)
}

const fn candle_mmap(target: f64) -> Peer {
    Peer {
        name: "candle MmapedSafetensors, each loaded",
        target,
        side: |run| {
            let path = run.input.join(FILE);
            run.measure(
                || {
                    let file = mapped(&[&path])?;
                    let load = |(name, view): (String, safetensors::tensor::TensorView)| {
                        Ok((name, view.load(&Device::Cpu)?))
                    };
                    file.tensors().into_iter().map(load).collect()
                },
                sum_of_all,
            )
        },
    }
}

const fn candle_load(target: f64) -> Peer {
    Peer {
        name: "candle safetensors::load",
        target,
        side: |run| {
            let path = run.input.join(FILE);
            run.measure(
                || Ok(candle_core::safetensors::load(&path, &Device::Cpu)?),
                sum_of_all,
            )
        },
    }
}

fn to_be_cast(setup: &Setup) -> Result<Option<Input>> {
    let input = input::uniform(setup, 64, "BF16", &[2048, 4096])?;
    Ok(Some(Input {
        bytes: 2 * input.bytes,
        ..input
    }))
}

fn cast(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(&Device::Cpu)
        .threads(run.threads)
        .cast_floats(Dtype::F32);
    run.measure(|| Ok(loader.load(&path)?), sum_of_all)
}

fn candle_cast(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(
        || {
            let file = mapped(&[&path])?;
            let load = |(name, view): (String, safetensors::tensor::TensorView)| {
                Ok((name, view.load(&Device::Cpu)?.to_dtype(DType::F32)?))
            };
            file.tensors().into_iter().map(load).collect()
        },
        sum_of_all,
    )
}

const SLICED: [usize; 2] = [8192, 4096];

fn to_be_sliced(setup: &Setup) -> Result<Option<Input>> {
    let input = input::uniform(setup, 8, "F32", &SLICED)?;
    Ok(Some(Input {
        bytes: input.bytes / 2,
        ..input
    }))
}

fn slice(run: &Run, dim: usize) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(&Device::Cpu)
        .threads(run.threads)
        .slice(move |_| Slice::all().share(dim, 0, 2));
    run.measure(|| Ok(loader.load(&path)?), sum_of_all)
}

fn candle_slice(run: &Run, dim: usize) -> Result<Measured> {
    let path = run.input.join(FILE);
    let names = names_and_shapes(&path)?;
    let half = Shard {
        dim,
        rank: 0,
        world_size: 2,
    };
    run.measure(
        || {
            let weights = sharded(&path)?;
            let load = |(name, _): &(String, _)| {
                let tensor = weights.get_with_hints(&SLICED[..], name, half)?;
                Ok((name.clone(), tensor))
            };
            names.iter().map(load).collect()
        },
        sum_of_all,
    )
}

fn shards(setup: &Setup) -> Result<Option<Input>> {
    const SHARDS: usize = 163;
    const EACH: usize = 564;
    let mut tensors = input::mixed(input::expert_names(SHARDS * EACH), &[2048, 1024]);
    input::write_names(&setup.dir.join("names.txt"), &tensors)?;
    let mut weight_map = serde_json::Map::new();
    let (mut total_size, mut bytes) = (0, 0);
    for shard in 1..=SHARDS {
        let rest = tensors.split_off(EACH);
        let file = format!("model-{shard:05}-of-{SHARDS:05}.safetensors");
        let (_, data_start) = input::write_sparse(&setup.dir.join(&file), &tensors)?;
        bytes += data_start;
        for tensor in &tensors {
            total_size += tensor.byte_len();
            weight_map.insert(tensor.name.clone(), file.clone().into());
        }
        tensors = rest;
    }
    let index = serde_json::json!({
        "metadata": { "total_size": total_size },
        "weight_map": weight_map,
    });
    let index_file = setup.dir.join("model.safetensors.index.json");
    fs::write(index_file, serde_json::to_string_pretty(&index)?)?;
    Ok(Some(Input {
        dir: setup.dir.to_owned(),
        tensors: SHARDS * EACH,
        bytes,
    }))
}

fn open_shards(run: &Run) -> Result<Measured> {
    let names = fs::read_to_string(run.input.join("names.txt"))?;
    run.measure(
        || Ok(Checkpoint::open(run.input)?),
        |checkpoint| sum_of_lengths(checkpoint, &names),
    )
}

fn open_files(run: &Run) -> Result<Measured> {
    let names = fs::read_to_string(run.input.join("names.txt"))?;
    run.measure(
        || Ok(Checkpoint::open_files(shard_files(run.input)?)?),
        |checkpoint| sum_of_lengths(checkpoint, &names),
    )
}

fn sum_of_lengths(checkpoint: &Checkpoint, names: &str) -> Result<u64> {
    let len = |name| Ok(checkpoint.info(name)?.byte_len());
    names.lines().map(len).sum()
}

fn candle_open_shards(run: &Run) -> Result<Measured> {
    let names = fs::read_to_string(run.input.join("names.txt"))?;
    run.measure(
        || {
            let files = shard_files(run.input)?;
            mapped(&files.iter().collect::<Vec<_>>())
        },
        |files| {
            let len = |name| Ok(files.get(name)?.data().len() as u64);
            names.lines().map(len).sum()
        },
    )
}

fn shard_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|is| is == "safetensors") {
            files.push(path);
        }
    }
    Ok(files)
}

fn minilm(setup: &Setup) -> Result<Option<Input>> {
    let Some(dir) = setup.minilm else {
        return Ok(None);
    };
    let header = Header::read(dir.join(FILE))?;
    Ok(Some(Input {
        dir: dir.to_owned(),
        tensors: header.len(),
        bytes: header.data_len(),
    }))
}

fn var_builder(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let names = names_and_shapes(&path)?;
    run.measure(
        || {
            let weights = st_candle::var_builder(&path, DType::F32, &Device::Cpu)?;
            ask_for_all(&weights, &names)
        },
        sum_of_all,
    )
}

fn candle_var_builder(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let names = names_and_shapes(&path)?;
    run.measure(
        || {
            // SAFETY: the file is in a cache whose files are not written to.
            let weights =
                unsafe { VarBuilder::from_mmaped_safetensors(&[&path], DType::F32, &Device::Cpu) }?;
            ask_for_all(&weights, &names)
        },
        sum_of_all,
    )
}

fn ask_for_all(
    weights: &VarBuilder,
    names: &[(String, Vec<usize>)],
) -> Result<HashMap<String, Tensor>> {
    let get =
        |(name, shape): &(String, Vec<usize>)| Ok((name.clone(), weights.get(&shape[..], name)?));
    names.iter().map(get).collect()
}

fn names_and_shapes(path: &PathBuf) -> Result<Vec<(String, Vec<usize>)>> {
    let header = Header::read(path)?;
    let tensors = header.iter();
    Ok(tensors
        .map(|info| (info.name().to_owned(), info.shape().to_vec()))
        .collect())
}

fn mapped(paths: &[&PathBuf]) -> Result<MmapedSafetensors> {
    // SAFETY: the input was written for this run, and nothing writes to it any more.
    Ok(unsafe { MmapedSafetensors::multi(paths) }?)
}

fn sharded(path: &PathBuf) -> Result<ShardedVarBuilder<'static>> {
    // SAFETY: as for `mapped`.
    Ok(unsafe { ShardedSafeTensors::var_builder(&[path], DType::F32, &Device::Cpu) }?)
}

fn sum_of_all(tensors: &HashMap<String, Tensor>) -> Result<u64> {
    let mut total: u64 = 0;
    for tensor in tensors.values() {
        total = total.wrapping_add(sum_of(tensor)?);
    }
    Ok(total)
}

/// Of an F32 tensor, read where it lies.
fn sum_of(tensor: &Tensor) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    let (start, end) = layout
        .contiguous_offsets()
        .context("a tensor is not contiguous")?;
    match &*storage {
        Storage::Cpu(CpuStorage::F32(elements)) => {
            Ok(sum(bytemuck::cast_slice(&elements[start..end])))
        }
        _ => bail!("a tensor is not F32 on the CPU"),
    }
}
