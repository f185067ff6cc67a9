//! The format, candle and ndarray, against other libraries.

mod candle;
mod cold;
mod format;
mod ndarray;
mod save;

use harness::Packages;

fn main() -> anyhow::Result<()> {
    let packages = Packages {
        names: &[
            "st-format",
            "st-candle",
            "st-ndarray",
            "candle-core",
            "candle-nn",
            "safetensors",
        ],
        lock: include_str!("../Cargo.lock"),
    };
    let rows = [format::ROWS, candle::ROWS, ndarray::ROWS, save::ROWS];
    let series = [format::GROWTH, candle::GROWTH, cold::COLD];
    harness::main(&rows, &series, &packages)
}
