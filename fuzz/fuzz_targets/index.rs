//! Any bytes as an index beside three shards: never a panic, and where it is accepted, every
//! tensor can be read, and lies in a shard of the index's own directory.
#![no_main]

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use st_format::Checkpoint;

/// What the index may find: `checkpoint/{a,b}.safetensors` and `checkpoint/sub/c.safetensors`;
/// and what it must not: a file of the same tensors outside.
struct Files {
    root: tempfile::TempDir,
    index: PathBuf,
}

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("checkpoint");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::write(dir.join("a.safetensors"), shard(&["x", "y"])).unwrap();
    std::fs::write(dir.join("b.safetensors"), shard(&["y", "z"])).unwrap();
    std::fs::write(dir.join("sub/c.safetensors"), shard(&["é", ""])).unwrap();
    let outside = shard(&["x", "y", "z", "é", "", "secret"]);
    std::fs::write(root.path().join("outside.safetensors"), outside).unwrap();
    let index = dir.join("model.safetensors.index.json");
    Files { root, index }
});

/// A file of one byte of each name.
fn shard(names: &[&str]) -> Vec<u8> {
    let entries = names.iter().enumerate().map(|(at, name)| {
        let end = at + 1;
        format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#)
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let data = vec![7; names.len()];
    [&json.len().to_le_bytes(), json.as_bytes(), &data].concat()
}

fuzz_target!(|bytes: &[u8]| {
    let Files { root, index } = &*FILES;
    // The directory's own path stands for one that an index could know.
    let text = String::from_utf8_lossy(bytes);
    let root = root.path().to_str().unwrap();
    let replaced = text.replace("$ROOT", root);
    let bytes = match text.contains("$ROOT") {
        true => replaced.as_bytes(),
        false => bytes,
    };
    std::fs::write(index, bytes).unwrap();
    let checkpoint = match Checkpoint::open(index) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let dir = index.parent().unwrap();
    for shard in checkpoint.shards() {
        let inside = shard.path().strip_prefix(dir).unwrap();
        let stays = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        assert!(inside.components().all(stays), "{inside:?}");
        assert_ne!(
            shard.path().file_name(),
            Some("outside.safetensors".as_ref())
        );
        assert!(shard.header().get("secret").is_none());
    }
    assert!(!checkpoint.is_empty());
    for (shard, info) in checkpoint.iter_with_shard() {
        assert!(checkpoint.shards()[shard].header().get(info.name()) == Some(info));
        assert_eq!(checkpoint.get(info.name()), Some(info));
        assert_eq!(checkpoint.read(info.name()).unwrap(), [7]);
    }
    // What serde_json makes of the same text: as many tensors, each in the shard it says.
    let json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    let map = json["weight_map"].as_object().unwrap();
    assert_eq!(map.len(), checkpoint.len());
    for (shard, info) in checkpoint.iter_with_shard() {
        let said = Path::new(map[info.name()].as_str().unwrap());
        assert_eq!(checkpoint.shards()[shard].path(), dir.join(said));
    }
    checkpoint
        .warnings()
        .iter()
        .for_each(|warning| drop(warning.to_string()));
});
