//! What the tests of this crate share: files made of text and numbers, directories of them, and
//! the comparison of an error with what it should say.

// Each test file is a program of its own and uses its own part of this.
#![allow(dead_code)]

pub(crate) mod child;
pub(crate) mod differences;
pub(crate) mod saved;
pub(crate) mod text;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use st_format::{Dtype, Error, ErrorKind};

/// The bytes of a safetensors file: the length of `json`, `json`, `data`.
pub(crate) fn file(json: &str, data: &[u8]) -> Vec<u8> {
    with_prefix(json.len() as u64, &[json.as_bytes(), data].concat())
}

/// The bytes of a file whose first eight bytes say `len`, whatever follows.
pub(crate) fn with_prefix(len: u64, rest: &[u8]) -> Vec<u8> {
    [&len.to_le_bytes(), rest].concat()
}

/// A tensor's name and entry, as they stand in a header.
pub(crate) fn entry(name: &str, dtype: Dtype, shape: &[usize], begin: u64, end: u64) -> String {
    let name = serde_json::to_string(name).unwrap();
    format!(r#"{name}:{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#)
}

/// A tensor that is going to be in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<u8>,
}

impl Tensor {
    pub(crate) fn new(name: &str, dtype: Dtype, shape: &[usize], data: impl Into<Vec<u8>>) -> Self {
        let tensor = Tensor {
            name: name.to_owned(),
            dtype,
            shape: shape.to_owned(),
            data: data.into(),
        };
        let bits = shape.iter().product::<usize>() * dtype.bits() as usize;
        assert_eq!(bits, tensor.data.len() * 8, "data of {tensor:?}");
        tensor
    }

    /// A tensor of that many bytes, all of them 1, 2, 3, ….
    pub(crate) fn bytes(name: &str, len: usize) -> Self {
        Tensor::new(name, Dtype::U8, &[len], counting(len))
    }
}

/// The bytes of a file that holds the tensors in this order.
pub(crate) fn file_of(tensors: &[Tensor]) -> Vec<u8> {
    let mut end = 0;
    let entries = tensors.iter().map(|tensor| {
        let begin = end;
        end += tensor.data.len() as u64;
        entry(&tensor.name, tensor.dtype, &tensor.shape, begin, end)
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let data: Vec<&[u8]> = tensors.iter().map(|tensor| &tensor.data[..]).collect();
    file(&json, &data.concat())
}

/// 1, 2, 3, … without the small periods that would hide a wrong offset.
pub(crate) fn counting(len: usize) -> Vec<u8> {
    (1..=len).map(|n| (n % 251) as u8).collect()
}

/// A directory that lasts as long as the value.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes a shard that holds four bytes of each name.
    pub(crate) fn shard(&self, name: &str, tensors: &[&str]) -> PathBuf {
        let tensors: Vec<_> = tensors.iter().map(|name| Tensor::bytes(name, 4)).collect();
        self.write(name, file_of(&tensors))
    }

    /// Writes `model.safetensors.index.json`.
    pub(crate) fn index(&self, json: &str) -> PathBuf {
        self.write("model.safetensors.index.json", json)
    }

    /// Writes an index with this `weight_map` and the right `total_size` for tensors of four
    /// bytes.
    pub(crate) fn index_of(&self, weight_map: &[(&str, &str)]) -> PathBuf {
        let entries = weight_map.iter().map(|(tensor, shard)| {
            let tensor = serde_json::to_string(tensor).unwrap();
            let shard = serde_json::to_string(shard).unwrap();
            format!("{tensor}:{shard}")
        });
        let entries = entries.collect::<Vec<_>>().join(",");
        let total = 4 * weight_map.len();
        self.index(&format!(
            r#"{{"metadata":{{"total_size":{total}}},"weight_map":{{{entries}}}}}"#
        ))
    }
}

/// Compares an error with its kind and part of its message, and returns it for more questions.
#[track_caller]
pub(crate) fn rejected<T: Debug>(
    result: Result<T, Error>,
    kind: ErrorKind,
    message: &str,
) -> Error {
    match result {
        Ok(value) => panic!("accepted as {value:?}, expected {kind:?}: {message}"),
        Err(error) => {
            assert!(
                error.kind() == kind && error.to_string().contains(message),
                "expected {kind:?}: …{message}…, found {error:?}"
            );
            error
        }
    }
}
