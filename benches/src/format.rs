//! The format alone, against the crate safetensors.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use harness::input::{self, FILE, Tensor};
use harness::{Cache, Case, Input, Measured, Peer, Per, Row, Run, Series, Setup, Timed, sum};
use memmap2::Mmap;
use safetensors::SafeTensors as Upstream;
use st_format::{Checkpoint, SafeTensors};

pub const ROWS: &[Row] = &[
    Row {
        name: "open-1k",
        work: "parse, check and index a header of 1 k tensors",
        input: |setup| {
            let tensors = input::mixed(input::expert_names(1_000), &[2, 4]);
            header(setup.dir, tensors).map(Some)
        },
        repeat: 101,
        ours: open,
        has_threads: false,
        peers: &[upstream_open(5.0)],
    },
    Row {
        name: "open-100k",
        work: "the same, 100 k tensors",
        input: |setup| {
            let tensors = input::mixed(input::expert_names(100_000), &[2, 4]);
            header(setup.dir, tensors).map(Some)
        },
        repeat: 1,
        ours: open,
        has_threads: false,
        peers: &[upstream_open(10.0)],
    },
    Row {
        name: "open-1m",
        work: "the same, 1 M tensors",
        input: |setup| {
            let tensors = input::mixed(input::short_expert_names(1_000_000), &[1]);
            header(setup.dir, tensors).map(Some)
        },
        repeat: 1,
        ours: open,
        has_threads: false,
        peers: &[upstream_open(10.0)],
    },
    Row {
        name: "lazy",
        work: "open a file of 100 k tensors, get one of 8 MiB",
        input: one_large_among_many,
        repeat: 1,
        ours: lazy,
        has_threads: false,
        peers: &[Peer {
            name: "safetensors on a map, copied out",
            target: 10.0,
            side: upstream_lazy,
        }],
    },
    Row {
        name: "lazy-python",
        work: "the same",
        input: one_large_among_many,
        repeat: 1,
        ours: lazy,
        has_threads: false,
        peers: &[Peer {
            name: "Python safe_open, torch",
            target: 10.0,
            side: |run| run.measure_python("torch_one_of_many", &[]),
        }],
    },
];

pub const GROWTH: Series = Series {
    name: "growth-open",
    work: "parse, check and index a header",
    inputs: |setup| {
        let sizes = [1_000, 10_000, 100_000, 1_000_000];
        let inputs = sizes.map(|size| {
            let dir = setup.dir.join(size.to_string());
            fs::create_dir(&dir)?;
            header(&dir, input::mixed(input::short_expert_names(size), &[1]))
        });
        inputs.into_iter().collect()
    },
    cases: &[
        case("1 k tensors"),
        case("10 k tensors"),
        case("100 k tensors"),
        case("1 M tensors"),
    ],
    repeat: 5,
    cache: Cache::Warm,
    timed: Timed::Load,
    per: Per::Tensor,
    within: Some(1.5),
};

const fn case(name: &'static str) -> Case {
    Case { name, side: open }
}

const NAMES: &str = "names.txt";

fn header(dir: &Path, tensors: Vec<Tensor>) -> Result<Input> {
    let (_, data_start) = input::write_sparse(&dir.join(FILE), &tensors)?;
    input::write_names(&dir.join(NAMES), &tensors)?;
    Ok(Input {
        dir: dir.to_owned(),
        tensors: tensors.len(),
        bytes: data_start,
    })
}

fn open(run: &Run) -> Result<Measured> {
    let bytes = fs::read(run.input.join(FILE))?;
    let names = fs::read_to_string(run.input.join(NAMES))?;
    run.measure(
        || Ok(SafeTensors::new(&bytes[..])?),
        |tensors| {
            let end = |name: &str| Some(tensors.header().get(name)?.data_offsets().end);
            sum_of_all(&names, end)
        },
    )
}

const fn upstream_open(target: f64) -> Peer {
    Peer {
        name: "safetensors",
        target,
        side: |run| {
            let bytes = fs::read(run.input.join(FILE))?;
            let names = fs::read_to_string(run.input.join(NAMES))?;
            run.measure(
                || Ok(Upstream::read_metadata(&bytes)?),
                |(_, metadata)| {
                    let end = |name: &str| Some(metadata.info(name)?.data_offsets.1 as u64);
                    sum_of_all(&names, end)
                },
            )
        },
    }
}

fn sum_of_all(names: &str, value: impl Fn(&str) -> Option<u64>) -> Result<u64> {
    let mut sum = 0;
    for name in names.lines() {
        sum += value(name).with_context(|| format!("no tensor {name}"))?;
    }
    Ok(sum)
}

const LARGE: &str = "model.embed_tokens.weight";

fn one_large_among_many(setup: &Setup) -> Result<Option<Input>> {
    let mut tensors = input::mixed(input::expert_names(99_999), &[32, 32]);
    let large = Tensor {
        name: LARGE.to_owned(),
        dtype: "BF16",
        shape: vec![2048, 2048],
    };
    let bytes = large.byte_len();
    let before: u64 = tensors.iter().map(Tensor::byte_len).sum();
    tensors.push(large);
    let (mut file, data_start) = input::write_sparse(&setup.dir.join(FILE), &tensors)?;
    file.seek(SeekFrom::Start(data_start + before))?;
    input::write_random_bytes(&mut file, bytes)?;
    Ok(Some(Input {
        dir: setup.dir.to_owned(),
        tensors: tensors.len(),
        bytes,
    }))
}

fn lazy(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(
        || Ok(Checkpoint::open(&path)?.read(LARGE)?),
        |bytes| Ok(sum(bytes)),
    )
}

fn upstream_lazy(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    run.measure(
        || {
            let map = map(&path)?;
            let tensors = Upstream::deserialize(&map)?;
            Ok(tensors.tensor(LARGE)?.data().to_vec())
        },
        |bytes| Ok(sum(bytes)),
    )
}

fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the input was written for this run, and nothing writes to it any more.
    Ok(unsafe { Mmap::map(&file) }?)
}
