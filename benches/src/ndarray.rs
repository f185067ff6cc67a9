//! ndarray: our loads against numpy's.

use anyhow::{Context, Result};
use harness::input::{self, FILE};
use harness::{Measured, Peer, Row, Run, sum_of_all};
use st_ndarray::{AnyArray, Loader, NdArray};

pub const ROWS: &[Row] = &[Row {
    name: "ndarray",
    work: "F32 tensors of 8 MiB into owned arrays",
    input: input::large,
    repeat: 1,
    ours: load,
    has_threads: true,
    peers: &[
        Peer {
            name: "Python safetensors.numpy.load_file",
            target: 3.0,
            side: |run| run.measure_python("numpy_load", &[]),
        },
        Peer {
            name: "the same with glibc.malloc.hugetlb=1",
            target: 1.2,
            side: |run| {
                let huge_pages = [("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")];
                run.measure_python("numpy_load", &huge_pages)
            },
        },
    ],
}];

fn load(run: &Run) -> Result<Measured> {
    let path = run.input.join(FILE);
    let loader = Loader::new(NdArray).threads(run.threads);
    run.measure(
        || Ok(loader.load(&path)?),
        |arrays| {
            let bytes = arrays.values().map(bytes_of);
            Ok(sum_of_all(bytes.collect::<Result<Vec<_>>>()?))
        },
    )
}

/// Those of an F32 array, where they lie.
fn bytes_of(array: &AnyArray) -> Result<&[u8]> {
    let elements = array.as_array::<f32>()?.as_slice();
    Ok(bytemuck::cast_slice(
        elements.context("an array is not contiguous")?,
    ))
}
