//! tch: our loads against its own.

use std::collections::HashMap;
use std::path::Path;
use std::slice;

use anyhow::{Result, ensure};
use harness::input::{self, FILE, SMALLER};
use harness::{Measured, Packages, Peer, Row, Run, sum_of_all, sum_of_pages};
use st_tch::format::Header;
use st_tch::{Loader, load_into_var_store, map_into_tch};
use tch::nn::{Init, VarStore};
use tch::{Device, Kind, Tensor};

fn main() -> Result<()> {
    let packages = Packages {
        names: &["st-tch", "tch", "torch-sys"],
        lock: include_str!("../Cargo.lock"),
    };
    harness::main(&[ROWS], &[], &packages)
}

/// `cargo xtask bench` knows them by how their names begin.
const ROWS: &[Row] = &[
    Row {
        name: "tch-owned",
        work: "F32 tensors of 8 MiB",
        input: input::large,
        repeat: 1,
        ours: load,
        has_threads: true,
        peers: &[tch_read(4.0)],
    },
    Row {
        name: "tch-owned-python",
        work: "the same, and every byte read as part of it",
        input: input::large,
        repeat: 1,
        ours: load_and_read,
        has_threads: true,
        peers: &[Peer {
            name: "Python safetensors.torch.load_file, and every byte read",
            target: 1.0,
            side: |run| run.measure_python("torch_load_and_read", &[]),
        }],
    },
    Row {
        name: "tch-mapped",
        work: "F32 tensors of 8 MiB, mapped",
        input: input::large,
        repeat: 1,
        ours: map,
        has_threads: false,
        peers: &[tch_read(500.0)],
    },
    Row {
        name: "tch-mapped-16g",
        work: "16 GiB mapped, of which a page of each tensor is read",
        input: |setup| {
            let (of_8_mib, of_128_mib) = ([1024, 2048], [16 << 10, 2048]);
            input::two_sizes(setup, 128, &of_8_mib, &of_128_mib).map(Some)
        },
        repeat: 101,
        ours: |run| map_and_read_pages(run, FILE),
        has_threads: false,
        peers: &[Peer {
            name: "ours, 1 GiB",
            target: 1.0,
            side: |run| map_and_read_pages(run, SMALLER),
        }],
    },
    Row {
        name: "tch-var-store",
        work: "F32 variables of 8 MiB",
        input: input::large,
        repeat: 1,
        ours: load_variables,
        has_threads: false,
        peers: &[Peer {
            name: "tch VarStore::load",
            target: 3.0,
            side: tch_load_variables,
        }],
    },
];

fn load(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(Device::Cpu).threads(run.threads);
    run.measure(
        || Ok(loader.load(&path)?),
        |tensors| sum_of(tensors.values()),
    )
}

fn load_and_read(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(Device::Cpu).threads(run.threads);
    run.measure(
        || {
            let tensors = loader.load(&path)?;
            let total = sum_of(tensors.values())?;
            Ok((tensors, total))
        },
        |&(_, total)| Ok(total),
    )
}

const fn tch_read(target: f64) -> Peer {
    Peer {
        name: "tch Tensor::read_safetensors",
        target,
        side: |run| {
            let path = run.input.join(FILE);
            run.measure(
                || Ok(Tensor::read_safetensors(&path)?),
                |tensors| sum_of(tensors.iter().map(|(_, tensor)| tensor)),
            )
        },
    }
}

fn map(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(|| mapped(&path), |tensors| sum_of(tensors.values()))
}

fn map_and_read_pages(run: &Run, file: &str) -> Result<Measured> {
    let path = run.input.join(file);
    run.measure(
        || mapped(&path),
        |tensors| Ok(sum_of_pages(all_bytes_of(tensors.values())?)),
    )
}

fn mapped(path: &Path) -> Result<HashMap<String, Tensor>> {
    // SAFETY: the input was written for this run, and nothing writes to it any more.
    Ok(unsafe { map_into_tch(path) }?)
}

fn load_variables(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let mut store = variables_for(&path)?;
    run.measure(
        || {
            load_into_var_store(&path, &mut store)?.strict()?;
            Ok(store.variables())
        },
        |variables| sum_of(variables.values()),
    )
}

fn tch_load_variables(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let mut store = variables_for(&path)?;
    run.measure(
        || {
            store.load(&path)?;
            Ok(store.variables())
        },
        |variables| sum_of(variables.values()),
    )
}

/// A store with a variable for each tensor of a file.
fn variables_for(path: &Path) -> Result<VarStore> {
    let store = VarStore::new(Device::Cpu);
    for info in Header::read(path)?.iter() {
        let shape: Vec<i64> = info.shape().iter().map(|&dim| dim as i64).collect();
        let mut parts: Vec<&str> = info.name().split('.').collect();
        let name = parts.pop().unwrap_or_default();
        let within = parts
            .into_iter()
            .fold(store.root(), |path, part| path / part);
        let _in_store = within.var(name, &shape, Init::Const(1.0));
    }
    Ok(store)
}

fn sum_of<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<u64> {
    Ok(sum_of_all(all_bytes_of(tensors)?))
}

fn all_bytes_of<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<Vec<&'a [u8]>> {
    tensors.map(bytes_of).collect()
}

/// Those of an F32 tensor, where they lie.
fn bytes_of(tensor: &Tensor) -> Result<&[u8]> {
    ensure!(
        tensor.kind() == Kind::Float && tensor.device() == Device::Cpu && tensor.is_contiguous(),
        "a tensor is not F32 on the CPU, or not contiguous"
    );
    // SAFETY: that many bytes lie there as long as the tensor lives, and nothing writes to them.
    Ok(unsafe { slice::from_raw_parts(tensor.data_ptr().cast(), 4 * tensor.numel()) })
}
