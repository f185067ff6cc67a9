//! The format and candle, against other libraries.

mod candle;
mod format;

use harness::Packages;

fn main() -> anyhow::Result<()> {
    let packages = Packages {
        names: &[
            "st-format",
            "st-candle",
            "candle-core",
            "candle-nn",
            "safetensors",
        ],
        lock: include_str!("../Cargo.lock"),
    };
    harness::main(&[format::ROWS, candle::ROWS], &packages)
}
