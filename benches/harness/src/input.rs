//! Making the files that are loaded.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Result;

use crate::row::{Input, Setup};

/// The file of an input that is one file.
pub const FILE: &str = "model.safetensors";

pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
}

impl Tensor {
    pub fn byte_len(&self) -> u64 {
        let item = match self.dtype {
            "F32" => 4,
            _ => 2,
        };
        self.shape.iter().product::<usize>() as u64 * item
    }
}

/// The first `count` weights of a mixture of experts.
pub fn expert_names(count: usize) -> impl Iterator<Item = String> {
    experts(count).map(|(layer, expert, part)| {
        let part = ["gate", "up", "down"][part];
        format!("model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight")
    })
}

/// The same in fewer letters: a header of a million tensors has 100 bytes for each.
pub fn short_expert_names(count: usize) -> impl Iterator<Item = String> {
    experts(count).map(|(layer, expert, part)| {
        let part = part + 1;
        format!("layers.{layer}.experts.{expert}.w{part}.weight")
    })
}

fn experts(count: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..count).map(|at| (at / 768, at / 3 % 256, at % 3))
}

/// Tensors called `names` of one shape: a quarter F32, the others BF16. Those of the wider dtype
/// come first, as the usual writers have it.
pub fn mixed(names: impl Iterator<Item = String>, shape: &[usize]) -> Vec<Tensor> {
    let tensor = |(at, name): (usize, String)| Tensor {
        name,
        dtype: if at % 4 == 0 { "F32" } else { "BF16" },
        shape: shape.to_vec(),
    };
    let mut tensors: Vec<Tensor> = names.enumerate().map(tensor).collect();
    tensors.sort_by_key(|tensor| tensor.dtype == "BF16");
    tensors
}

/// 1 GiB of F32 tensors of 8 MiB.
pub fn large(setup: &Setup) -> Result<Option<Input>> {
    uniform(setup, 128, "F32", &[1024, 2048]).map(Some)
}

/// Files of so many MiB each, in F32 tensors of 8 MiB, in folders of their own.
pub fn large_of_sizes(setup: &Setup, sizes: &[usize]) -> Result<Vec<Input>> {
    let input = |mebibytes: &usize| {
        let tensors = alike(mebibytes / 8, "F32", &[1024, 2048]);
        let dir = setup.dir.join(mebibytes.to_string());
        fs::create_dir(&dir)?;
        Ok(Input {
            tensors: tensors.len(),
            bytes: write_random(&dir.join(FILE), &tensors)?,
            dir,
        })
    };
    sizes.iter().map(input).collect()
}

/// Tensors of one dtype and shape in one file of random values, a quarter of them for a quick run.
pub fn uniform(setup: &Setup, count: usize, dtype: &'static str, shape: &[usize]) -> Result<Input> {
    let count = if setup.quick { count / 4 } else { count };
    Ok(Input {
        dir: setup.dir.to_owned(),
        tensors: count,
        bytes: write_random(&setup.dir.join(FILE), &alike(count, dtype, shape))?,
    })
}

/// The file that has fewer bytes, of the two of [`two_sizes`].
pub const SMALLER: &str = "smaller.safetensors";

/// Two files of as many F32 tensors, of two shapes. They are sparse: nothing is to read them all.
pub fn two_sizes(
    setup: &Setup,
    count: usize,
    smaller: &[usize],
    larger: &[usize],
) -> Result<Input> {
    write_sparse(&setup.dir.join(SMALLER), &alike(count, "F32", smaller))?;
    let larger = alike(count, "F32", larger);
    write_sparse(&setup.dir.join(FILE), &larger)?;
    Ok(Input {
        dir: setup.dir.to_owned(),
        tensors: count,
        bytes: larger.iter().map(Tensor::byte_len).sum(),
    })
}

/// `count` tensors of one dtype and shape.
fn alike(count: usize, dtype: &'static str, shape: &[usize]) -> Vec<Tensor> {
    let names = (0..count).map(|at| format!("model.layers.{at}.weight"));
    names
        .map(|name| Tensor {
            name,
            dtype,
            shape: shape.to_vec(),
        })
        .collect()
}

/// Writes a file of random values. Returns the number of their bytes.
///
/// They are finite: what a cast does to the bits of a NaN is not what is compared.
fn write_random(path: &Path, tensors: &[Tensor]) -> Result<u64> {
    let (mut file, data_start) = write_header(path, tensors)?;
    let len = tensors.iter().map(Tensor::byte_len).sum();
    file.seek(SeekFrom::Start(data_start))?;
    write_random_bytes(&mut file, len)?;
    Ok(len)
}

/// Writes a file that has its length, and nothing but holes for its values. Returns it, and
/// where the data starts.
pub fn write_sparse(path: &Path, tensors: &[Tensor]) -> Result<(File, u64)> {
    let (file, data_start) = write_header(path, tensors)?;
    let len: u64 = tensors.iter().map(Tensor::byte_len).sum();
    file.set_len(data_start + len)?;
    Ok((file, data_start))
}

pub fn write_random_bytes(file: &mut File, len: u64) -> Result<()> {
    let mut random = fastrand::Rng::new();
    let mut block = vec![0; 1 << 20];
    let mut left = len;
    while left > 0 {
        random.fill(&mut block);
        // Bit 14 of every half word is the highest of the exponent, in BF16 and F32 alike.
        block
            .iter_mut()
            .skip(1)
            .step_by(2)
            .for_each(|byte| *byte &= 0xbf);
        let len = left.min(block.len() as u64);
        file.write_all(&block[..len as usize])?;
        left -= len;
    }
    // Or the disk would still be busy while loads are measured.
    file.sync_all()?;
    Ok(())
}

/// Writes names, one a line, for sides that look tensors up.
pub fn write_names(path: &Path, tensors: &[Tensor]) -> Result<()> {
    let mut text = String::new();
    for tensor in tensors {
        writeln!(text, "{}", tensor.name)?;
    }
    Ok(fs::write(path, text)?)
}

fn write_header(path: &Path, tensors: &[Tensor]) -> Result<(File, u64)> {
    let mut json = String::from("{");
    let mut begin = 0;
    for tensor in tensors {
        let end = begin + tensor.byte_len();
        let comma = if json.len() == 1 { "" } else { "," };
        let Tensor { name, dtype, shape } = tensor;
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        let shape = shape.join(",");
        write!(
            json,
            r#"{comma}"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}"#
        )?;
        begin = end;
    }
    json.push('}');
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    let mut file = File::create(path)?;
    file.write_all(&(json.len() as u64).to_le_bytes())?;
    file.write_all(json.as_bytes())?;
    Ok((file, 8 + json.len() as u64))
}
