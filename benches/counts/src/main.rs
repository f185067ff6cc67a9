//! Work whose instructions `cargo xtask counts` counts, each with nothing around it that is
//! counted: what is counted is a function of its own, and what is made for it is made before.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use harness::input;
use st_candle::Loader;
use st_candle::candle_core::{Device, Tensor};
use st_format::Header;

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join(input::FILE);
    match env::args().nth(1).as_deref() {
        Some("parse") => {
            input::write_sparse(&file, &input::mixed(input::expert_names(100_000), &[1]))?;
            println!("{} tensors", parse(&fs::read(&file)?)?.len());
        }
        Some("load") => {
            input::write_sparse(&file, &input::mixed(input::expert_names(10_000), &[16, 16]))?;
            println!("{} tensors", load(&file)?.len());
        }
        _ => bail!("say what is to be counted: parse or load"),
    }
    Ok(())
}

#[inline(never)]
fn parse(bytes: &[u8]) -> Result<Header> {
    Ok(Header::parse(bytes)?)
}

/// With one thread: how threads share the work differs from run to run.
#[inline(never)]
fn load(path: &Path) -> Result<HashMap<String, Tensor>> {
    Ok(Loader::new(&Device::Cpu).threads(1).load(path)?)
}
