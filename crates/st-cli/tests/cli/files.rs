//! Files to look at, written byte by byte, and tensors to make some of.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use st_format::{Dtype, Header, TensorView};

/// Three F32 tensors and an I64 one, not in the order of their data, and two metadata entries.
pub(crate) const SMALL: &str = r#"{
  "__metadata__": {"format": "pt", "author": "nobody"},
  "h.0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
  "h.0.bias": {"dtype": "F32", "shape": [], "data_offsets": [24, 28]},
  "steps": {"dtype": "I64", "shape": [1], "data_offsets": [32, 40]},
  "pad": {"dtype": "F32", "shape": [1], "data_offsets": [28, 32]}
}"#;

/// The bytes of the tensors of [`SMALL`].
pub(crate) const SMALL_DATA: usize = 40;

/// An F32 [2, 3], an F32 [2] and an I64 [1]: 40 bytes. In a file `steps` comes first, by default.
pub(crate) fn small_tensors() -> [(&'static str, TensorView<'static>); 3] {
    // 1, -2 and so on: values that BF16 has too.
    const WEIGHT: &[u8] = &[
        0, 0, 128, 63, 0, 0, 0, 192, 0, 0, 0, 63, 0, 0, 80, 64, 0, 0, 128, 65, 0, 0, 128, 191,
    ];
    const BIAS: &[u8] = &[0, 0, 64, 64, 0, 0, 0, 0];
    const STEPS: &[u8] = &300_i64.to_le_bytes();
    let tensor = |name, dtype, shape: &'static [usize], data| {
        (name, TensorView::new(name, dtype, shape, data).unwrap())
    };
    [
        tensor("h.0.weight", Dtype::F32, &[2, 3], WEIGHT),
        tensor("h.0.bias", Dtype::F32, &[2], BIAS),
        tensor("steps", Dtype::I64, &[1], STEPS),
    ]
}

/// Changes the first byte of a tensor.
pub(crate) fn damage(path: &Path, tensor: &str) {
    let header = Header::read(path).unwrap();
    let begin = header.get(tensor).unwrap().data_offsets().start;
    let mut bytes = fs::read(path).unwrap();
    bytes[(header.data_start() + begin) as usize] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// A file with this header, padded to a multiple of eight, and so many bytes of data.
pub(crate) fn write_file(path: &Path, header: &str, data: usize) -> PathBuf {
    let padded = header.len().next_multiple_of(8);
    let mut bytes = (padded as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(8 + padded, b' ');
    bytes.resize(8 + padded + data, 0);
    fs::write(path, bytes).unwrap();
    path.to_owned()
}

/// A header of U8 tensors of one element each.
pub(crate) fn header_of(names: &[&str]) -> String {
    let mut header = String::from("{");
    for (at, name) in names.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let end = at + 1;
        write!(
            header,
            r#"{comma}{}:{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#,
            serde_json::to_string(name).unwrap()
        )
        .unwrap();
    }
    header + "}"
}

/// A file of two tensors, three aliases, checksums of a kind, and one further metadata entry.
pub(crate) fn write_with_aliases(dir: &Path) -> PathBuf {
    let metadata = r#"{"__metadata__": {"format": "pt", "head": "embedding", "tail": "end",
        "head.again": "embedding", "sha256:embedding": "0", "sha256:end": "0"},"#;
    let header = header_of(&["embedding", "end"]).replacen('{', metadata, 1);
    write_file(&dir.join("m.safetensors"), &header, 2)
}

/// A directory with an index and two shards of two tensors and one.
pub(crate) fn write_sharded(dir: &Path) {
    write_file(&dir.join("one.safetensors"), &header_of(&["a.x", "a.y"]), 2);
    write_file(&dir.join("two.safetensors"), &header_of(&["b.x"]), 1);
    let index = r#"{"metadata": {"total_size": 3}, "weight_map":
        {"a.x": "one.safetensors", "a.y": "one.safetensors", "b.x": "two.safetensors"}}"#;
    fs::write(dir.join("model.safetensors.index.json"), index).unwrap();
}
