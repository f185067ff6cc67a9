//! Files for the checks, written byte by byte: the writer under test is not asked.

use std::path::{Path, PathBuf};

use st_format::Dtype;

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// The element type.
    pub dtype: Dtype,
    /// The shape.
    pub shape: Vec<usize>,
    /// The elements' bytes.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor of that shape, with bytes that differ from one place and one name to another.
    pub fn new(name: &str, dtype: Dtype, shape: &[usize]) -> Tensor {
        let bits = shape.iter().product::<usize>() * dtype.bits() as usize;
        assert_eq!(bits % 8, 0, "{name}: {dtype} {shape:?} ends inside a byte");
        let seed = name.bytes().fold(17_u32, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(byte.into())
        });
        let byte = |at: usize| {
            let mixed = (at as u32 ^ seed).wrapping_mul(0x9E37_79B1);
            match dtype {
                Dtype::Bool => (mixed >> 31) as u8,
                _ => (mixed >> 24) as u8,
            }
        };
        Tensor {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            bytes: (0..bits / 8).map(byte).collect(),
        }
    }

    /// The same tensor with these bytes.
    #[must_use]
    pub fn with_bytes(mut self, bytes: Vec<u8>) -> Tensor {
        assert_eq!(self.bytes.len(), bytes.len(), "{}", self.name);
        self.bytes = bytes;
        self
    }
}

/// The bytes of a file that holds the tensors in this order, without any padding.
pub fn file(tensors: &[Tensor]) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut data: Vec<u8> = Vec::new();
    for tensor in tensors {
        let begin = data.len();
        data.extend(&tensor.bytes);
        entries.push(format!(
            r#"{:?}:{{"dtype":"{}","shape":{:?},"data_offsets":[{begin},{}]}}"#,
            tensor.name,
            tensor.dtype,
            tensor.shape,
            data.len()
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.extend(data);
    file
}

/// Writes a file of the tensors and returns its path.
pub fn write(dir: &Path, name: &str, tensors: &[Tensor]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, file(tensors)).expect("cannot write a test file");
    path
}

/// Writes a checkpoint of one file for each group of tensors, and its index.
pub fn write_sharded(dir: &Path, shards: &[&[Tensor]]) {
    let mut map = Vec::new();
    for (at, tensors) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", at + 1, shards.len());
        write(dir, &name, tensors);
        map.extend(
            tensors
                .iter()
                .map(|tensor| format!("{:?}:{name:?}", tensor.name)),
        );
    }
    let index = format!(r#"{{"metadata":{{}},"weight_map":{{{}}}}}"#, map.join(","));
    let path = dir.join("model.safetensors.index.json");
    std::fs::write(path, index).expect("cannot write a test index");
}
