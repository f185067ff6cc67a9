//! Checksums of tensors: recorded when they are saved, and what was changed since is found.

mod common;

use std::fs;

use common::saved::{saver, view, views};
use common::{Dir, Tensor, rejected};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use st_format::{Checkpoint, Dtype, ErrorKind, Layout, Writer};

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// FIPS 180-2, appendix B, and the digest of nothing.
#[test]
fn digests_are_those_of_the_standard() {
    let cases: [(&[u8], &str); 3] = [
        (
            b"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (
            b"",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
    ];
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    for (bytes, expected) in cases {
        let tensor = Tensor::new("a", Dtype::U8, &[bytes.len()], bytes);
        saver().checksums().save(&path, [view(&tensor)]).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.metadata()["sha256:a"], expected);
        checkpoint.verify_checksums().unwrap();
    }
}

proptest! {
    #[test]
    fn each_tensor_has_the_digest_of_its_bytes(
        tensors in common::text::tensors(),
        limit in proptest::option::of(0..60_u64),
        pieces in 1..9_usize,
    ) {
        let dir = Dir::new();
        let saver = saver().checksums().metadata("key", "value");
        let saver = match limit {
            Some(limit) => saver.max_shard_size(limit),
            None => saver,
        };
        saver.save(dir.path(), views(&tensors)).unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        checkpoint.verify_checksums().unwrap();
        for (shard, info) in checkpoint.iter_with_shard() {
            let metadata = checkpoint.shards()[shard].header().metadata();
            let expected = sha256(&checkpoint.read(info.name()).unwrap());
            prop_assert_eq!(&metadata[&format!("sha256:{}", info.name())], &expected);
        }
        prop_assert_eq!(checkpoint.metadata().len(), tensors.len() + 1);

        // Piece by piece, the last tensor first.
        let path = dir.join("pieces");
        let mut layout = Layout::new();
        layout.checksums();
        for tensor in &tensors {
            layout.tensor(&tensor.name, tensor.dtype, &tensor.shape).unwrap();
        }
        let mut writer = Writer::create(&path, layout).unwrap();
        for tensor in tensors.iter().rev() {
            for piece in tensor.data.chunks(pieces) {
                writer.write(&tensor.name, piece).unwrap();
            }
        }
        writer.finish().unwrap();
        Checkpoint::open(&path).unwrap().verify_checksums().unwrap();
    }
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let dir = Dir::new();
    let tensors = [("a", 3), ("b", 300_000), ("c", 1)].map(|(name, len)| Tensor::bytes(name, len));
    let path = dir.join("model.safetensors");
    saver().checksums().save(&path, views(&tensors)).unwrap();
    let whole = fs::read(&path).unwrap();
    let header = st_format::Header::parse(&whole).unwrap();
    for tensor in &tensors {
        let info = header.get(&tensor.name).unwrap();
        let start = (header.data_start() + info.data_offsets().start) as usize;
        let len = tensor.data.len();
        // Either end, and either side of where blocks meet.
        let places = [0, len / 2, (256 << 10) - 1, 256 << 10, len - 1];
        for at in places.into_iter().filter(|&at| at < len) {
            let mut bytes = whole.clone();
            bytes[start + at] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            let verified = Checkpoint::open(&path).unwrap().verify_checksums();
            let error = rejected(verified, ErrorKind::ChecksumMismatch, "its SHA-256 is");
            assert_eq!(
                (error.path(), error.tensor()),
                (Some(&*path), Some(&*tensor.name))
            );
        }
    }
    // A digest that was changed is no better.
    let at = whole
        .windows(10)
        .position(|window| window == b"sha256:c\":")
        .unwrap()
        + 12;
    let mut bytes = whole.clone();
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    fs::write(&path, bytes).unwrap();
    let verified = Checkpoint::open(&path).unwrap().verify_checksums();
    let error = rejected(verified, ErrorKind::ChecksumMismatch, "was recorded");
    assert_eq!(error.tensor(), Some("c"));
}

#[test]
fn what_has_no_checksum_is_not_called_right() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let tensors = ["a", "b"].map(|name| Tensor::bytes(name, 5));
    saver().save(&path, views(&tensors)).unwrap();
    let mut editor = st_format::Editor::open(&path).unwrap();
    editor.set_metadata("sha256:a", sha256(&tensors[0].data));
    editor.save().unwrap();
    let verified = Checkpoint::open(&path).unwrap().verify_checksums();
    let error = rejected(
        verified,
        ErrorKind::NotFound,
        "no checksum of it is recorded",
    );
    assert_eq!((error.path(), error.tensor()), (Some(&*path), Some("b")));
}

/// They are of the bytes in the file.
#[test]
fn checksums_are_of_what_was_cast() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let tensor = Tensor::new("a", Dtype::F32, &[2], [0, 0, 128, 63, 0, 0, 0, 64]);
    let saver = saver().cast_floats(Dtype::BF16).checksums();
    saver.save(&path, [view(&tensor)]).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    checkpoint.verify_checksums().unwrap();
    assert_eq!(checkpoint.metadata()["sha256:a"], sha256(&[128, 63, 0, 64]));
}
