//! burn: our loads and saves against its own store's.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use burn_core as burn;
use burn_core::module::{Module, Param};
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_store::{ModuleSnapshot, ModuleStore, SafetensorsStore, bridge};
use harness::input::{self, FILE, SMALLER};
use harness::{Measured, Packages, Peer, Row, Run, sum_of_all, sum_of_pages};
use st_burn::{Burn, Loader, Store, load_into_burn, map_into_burn, save_from_burn};

fn main() -> Result<()> {
    let packages = Packages {
        names: &["st-burn", "burn-core", "burn-store"],
        lock: include_str!("../Cargo.lock"),
    };
    harness::main(&[ROWS], &[], &packages)
}

/// `cargo xtask bench` knows them by how their names begin.
const ROWS: &[Row] = &[
    Row {
        name: "burn-small",
        work: "F32 tensors of 1 KiB",
        input: |setup| input::uniform(setup, 8000, "F32", &[16, 16]).map(Some),
        repeat: 1,
        ours: load,
        has_threads: true,
        peers: &[burn_store(100.0)],
    },
    Row {
        name: "burn-small-mapped",
        work: "the same, mapped",
        input: |setup| input::uniform(setup, 8000, "F32", &[16, 16]).map(Some),
        repeat: 1,
        ours: map,
        has_threads: false,
        peers: &[burn_store(1000.0)],
    },
    Row {
        name: "burn-large",
        work: "F32 tensors of 8 MiB",
        input: input::large,
        repeat: 1,
        ours: load,
        has_threads: true,
        peers: &[burn_store(3.0)],
    },
    Row {
        name: "burn-mapped",
        work: "1 GiB mapped, of which a page of each tensor is read",
        input: |setup| {
            let (of_512_kib, of_8_mib) = ([256, 512], [1024, 2048]);
            input::two_sizes(setup, 128, &of_512_kib, &of_8_mib).map(Some)
        },
        repeat: 101,
        ours: |run| map_and_read_pages(run, FILE),
        has_threads: false,
        peers: &[Peer {
            name: "ours, 64 MiB",
            target: 1.0,
            side: |run| map_and_read_pages(run, SMALLER),
        }],
    },
    Row {
        name: "burn-save",
        work: "save F32 tensors of 8 MiB",
        input: input::large,
        repeat: 3,
        ours: save,
        has_threads: false,
        peers: &[burn_store_save(2.5)],
    },
    Row {
        name: "burn-save-module",
        work: "save them out of a module, from which burn copies each",
        input: input::large,
        repeat: 3,
        ours: |run| {
            save_module(run, |model, path| {
                Ok(model.save_into(&mut Store::create(path))?)
            })
        },
        has_threads: false,
        peers: &[burn_store_save(1.0)],
    },
];

fn save(run: &Run) -> Result<Measured> {
    let tensors = load_into_burn(run.input.join(FILE))?;
    run.measure_save(|path| Ok(save_from_burn(path, &tensors)?))
}

const fn burn_store_save(target: f64) -> Peer {
    Peer {
        name: "burn-store SafetensorsStore, of a module",
        target,
        side: |run| {
            save_module(run, |model, path| {
                Ok(model.save_into(&mut SafetensorsStore::from_file(path))?)
            })
        },
    }
}

#[derive(Module, Debug)]
struct Model {
    weights: Vec<Param<Tensor<2>>>,
}

fn save_module(run: &Run, save: impl Fn(&Model, &Path) -> Result<()>) -> Result<Measured> {
    let device = Device::flex();
    let weight = |data: TensorData| {
        let dtype = data.dtype();
        Param::from_tensor(Tensor::from_data(data, (&device, dtype)))
    };
    let tensors = load_into_burn(run.input.join(FILE))?;
    let model = Model {
        weights: tensors.into_values().map(weight).collect(),
    };
    run.measure_save(|path| save(&model, path))
}

fn load(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(Burn).threads(run.threads);
    run.measure(
        || Ok(loader.load(&path)?),
        |tensors| Ok(sum_of_all(tensors.values().map(bytes_of))),
    )
}

fn map(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(
        || mapped(&path),
        |tensors| Ok(sum_of_all(tensors.values().map(bytes_of))),
    )
}

fn map_and_read_pages(run: &Run, file: &str) -> Result<Measured> {
    let path = run.input.join(file);
    run.measure(
        || mapped(&path),
        |tensors| Ok(sum_of_pages(tensors.values().map(bytes_of))),
    )
}

fn mapped(path: &Path) -> Result<HashMap<String, TensorData>> {
    // SAFETY: the input was written for this run, and nothing writes to it any more.
    Ok(unsafe { map_into_burn(path) }?)
}

const fn burn_store(target: f64) -> Peer {
    Peer {
        name: "burn-store SafetensorsStore, each loaded",
        target,
        side: |run| {
            let path = run.input.join(FILE);
            run.measure(
                || {
                    let mut store = SafetensorsStore::from_file(&path);
                    let tensors = store.get_all_tensors()?;
                    let load =
                        |tensor| bridge::to_data(tensor).map_err(|error| anyhow!("{error:?}"));
                    tensors
                        .values()
                        .map(load)
                        .collect::<Result<Vec<TensorData>>>()
                },
                |tensors| Ok(sum_of_all(tensors.iter().map(bytes_of))),
            )
        },
    }
}

fn bytes_of(tensor: &TensorData) -> &[u8] {
    tensor.as_bytes()
}
