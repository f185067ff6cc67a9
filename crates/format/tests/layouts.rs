//! What a caller may choose about a file: order, alignment, room in the header. And files that are
//! written to anything that takes bytes.

mod common;

use std::io::{self, Write};

use common::saved::{names_in, saver, view, views};
use common::{Dir, Tensor, rejected};
use proptest::prelude::*;
use st_format::{
    Checkpoint, Dtype, Edited, Editor, ErrorKind, Header, Layout, StreamWriter, Writer,
};

fn three() -> [Tensor; 3] {
    ["a", "b", "c"].map(|name| Tensor::bytes(name, 3))
}

fn layout_of(tensors: &[Tensor]) -> Layout {
    let mut layout = Layout::new();
    for tensor in tensors {
        layout
            .tensor(&tensor.name, tensor.dtype, &tensor.shape)
            .unwrap();
    }
    layout
}

fn names(header: &Header) -> Vec<&str> {
    header.iter().map(|info| info.name()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Every combination of options gives a file that opens, with the same tensors, in the order
    /// asked for, aligned as asked for, with the room asked for; and the same bytes by each of the
    /// ways to write it.
    #[test]
    fn options_are_kept(
        tensors in common::text::tensors(),
        metadata in proptest::collection::btree_map(".{0,9}", ".{0,9}", 0..3),
        in_given_order: bool,
        alignment in proptest::sample::select(vec![0, 1, 2, 8, 64, 256, 4096]),
        reserved in prop_oneof![Just(0_usize), 0..300_usize],
    ) {
        let mut saver = saver().align_data(alignment).reserve_header(reserved);
        let mut layout = layout_of(&tensors);
        layout.align_data(alignment);
        layout.reserve_header(reserved);
        if in_given_order {
            saver = saver.in_given_order();
            layout.in_given_order();
        }
        for (key, value) in &metadata {
            saver = saver.metadata(key, value);
            layout.metadata(key, value);
        }

        let dir = Dir::new();
        let path = dir.join("model.safetensors");
        saver.save(&path, views(&tensors)).unwrap();
        let bytes = std::fs::read(&path).unwrap();

        let header = Header::parse(&bytes).unwrap();
        prop_assert_eq!(header.file_len(), bytes.len() as u64);
        prop_assert_eq!(header.data_start() % alignment.max(8) as u64, 0);
        prop_assert_eq!(header.metadata(), &metadata);
        let text = &bytes[8..header.data_start() as usize];
        prop_assert_eq!(text[0], b'{');
        let room = text.len() - text.trim_ascii_end().len();
        prop_assert!(room >= reserved && room < reserved + alignment.max(8), "{room}");
        common::saved::assert_holds(&path, &tensors);

        let mut expected: Vec<&Tensor> = tensors.iter().collect();
        if !in_given_order {
            expected.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(&b.name)));
        }
        let data: Vec<u8> = expected.iter().flat_map(|tensor| tensor.data.clone()).collect();
        prop_assert!(bytes.ends_with(&data));

        let streamed = saver.write_to(Vec::new(), views(&tensors)).unwrap();
        prop_assert!(streamed == bytes);
        let mut stream = StreamWriter::new(Vec::new(), layout.clone()).unwrap();
        let order: Vec<String> = names(stream.header()).iter().map(|name| name.to_string()).collect();
        for name in &order {
            let tensor = tensors.iter().find(|tensor| tensor.name == *name).unwrap();
            for piece in tensor.data.chunks(7) {
                stream.write(name, piece).unwrap();
            }
        }
        prop_assert!(stream.finish().unwrap() == bytes);
        let seekable = dir.join("seekable.safetensors");
        let mut writer = Writer::create(&seekable, layout).unwrap();
        for name in order.iter().rev() {
            let tensor = tensors.iter().find(|tensor| tensor.name == *name).unwrap();
            writer.write(name, &tensor.data).unwrap();
        }
        writer.finish().unwrap();
        prop_assert!(std::fs::read(&seekable).unwrap() == bytes);
    }

    #[test]
    fn the_order_given_matters_only_where_it_is_asked_for(
        tensors in common::text::tensors(),
        seed: u64,
    ) {
        let mut shuffled = tensors.clone();
        common::text::Choices::new(seed).shuffle(&mut shuffled);
        let bytes = |saver: st_format::Saver<st_format::Raw>, tensors: &[Tensor]| {
            saver.write_to(Vec::new(), views(tensors)).unwrap()
        };
        prop_assert!(bytes(saver(), &tensors) == bytes(saver(), &shuffled));
        let given = saver().in_given_order().write_to(Vec::new(), views(&shuffled)).unwrap();
        let data: Vec<u8> = shuffled.iter().flat_map(|tensor| tensor.data.clone()).collect();
        prop_assert!(given.ends_with(&data));
    }
}

#[test]
fn alignment_is_a_power_of_two_that_a_header_can_have() {
    let dir = Dir::new();
    let tensors = three();
    for (bytes, message) in [
        (3, "data cannot be aligned to 3, which is no power of 2"),
        (100, "data cannot be aligned to 100"),
        (usize::MAX, "which is no power of 2"),
        (1 << 27, "the limit is 100000000"),
        (1 << (usize::BITS - 1), "the limit is 100000000"),
    ] {
        let path = dir.join("model.safetensors");
        let saved = saver().align_data(bytes).save(&path, views(&tensors));
        let error = rejected(saved, ErrorKind::InvalidRequest, message);
        assert_eq!(error.path(), Some(&*path));
        let mut layout = layout_of(&tensors);
        layout.align_data(bytes);
        rejected(
            StreamWriter::new(Vec::new(), layout),
            ErrorKind::InvalidRequest,
            message,
        );
    }
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn a_header_over_the_limit_is_an_error_before_any_file() {
    let dir = Dir::new();
    let limit = st_format::MAX_HEADER_LEN as usize;
    let path = dir.join("model.safetensors");
    let shards = dir.join("shards");
    for reserved in [limit, usize::MAX] {
        let saver = saver().reserve_header(reserved);
        for (path, saver) in [(&path, saver.clone()), (&shards, saver.max_shard_size(3))] {
            let saved = saver.save(path, views(&three()));
            let error = rejected(saved, ErrorKind::InvalidRequest, "the limit is 100000000");
            assert!(error.path().unwrap().starts_with(path), "{error}");
        }
        let mut layout = layout_of(&three());
        layout.reserve_header(reserved);
        rejected(
            Writer::create(&path, layout),
            ErrorKind::InvalidRequest,
            "the limit is 100000000",
        );
    }
    assert!(names_in(dir.path()).is_empty());

    // The longest header there may be is none too many.
    let json = layout_of(&three());
    let written = StreamWriter::new(Vec::new(), json).unwrap();
    let least = written.header().data_start() as usize - 8;
    let mut layout = layout_of(&three());
    layout.reserve_header(limit - least);
    let mut writer = StreamWriter::new(Vec::new(), layout).unwrap();
    for tensor in three() {
        writer.write(&tensor.name, &tensor.data).unwrap();
    }
    let file = writer.finish().unwrap();
    assert_eq!(file.len(), 8 + limit + 9);
    assert_eq!(Checkpoint::from_bytes(file).unwrap().len(), 3);
}

#[test]
fn reserved_room_takes_metadata_in_place() {
    let dir = Dir::new();
    let tensors = three();
    let text = "x".repeat(1000);
    for (reserved, edited) in [(2000, Edited::InPlace), (0, Edited::Rewritten)] {
        let path = dir.join(format!("{reserved}.safetensors"));
        let saver = saver().reserve_header(reserved);
        saver.save(&path, views(&tensors)).unwrap();
        let mut editor = Editor::open(&path).unwrap();
        editor.set_metadata("text", &text);
        assert_eq!(editor.save().unwrap(), edited);
        let header = Header::read(&path).unwrap();
        assert_eq!(header.metadata()["text"], text);
        common::saved::assert_holds(&path, &tensors);
    }
}

/// Takes `room` bytes, then fails; what it took, it took whole or in part.
#[derive(Debug)]
struct Full {
    taken: Vec<u8>,
    room: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.len().min(self.room - self.taken.len()) {
            0 if !bytes.is_empty() => Err(io::ErrorKind::StorageFull.into()),
            len => {
                self.taken.extend(&bytes[..len]);
                Ok(len)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_is_never_counted_as_written() {
    let tensors = three();
    let whole = saver().write_to(Vec::new(), views(&tensors)).unwrap();
    for room in 0..whole.len() {
        let full = || Full {
            taken: Vec::new(),
            room,
        };
        let error = saver().write_to(full(), views(&tensors)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");

        let Ok(mut writer) = StreamWriter::new(full(), layout_of(&tensors)) else {
            assert!(room < whole.len() - 9);
            continue;
        };
        let mut failed = false;
        for tensor in &tensors {
            let written = writer.write(&tensor.name, &tensor.data);
            match written {
                Ok(()) => assert!(!failed),
                // Nothing can follow bytes of which nobody knows whether they are there.
                Err(error) if failed => {
                    let message = "a write before it has failed";
                    rejected(Err::<(), _>(error), ErrorKind::InvalidRequest, message);
                }
                Err(error) => {
                    assert_eq!(
                        (error.kind(), error.tensor()),
                        (ErrorKind::Io, Some(&*tensor.name))
                    );
                    failed = true;
                    let again = writer.write(&tensor.name, &tensor.data);
                    let message = "a write before it has failed";
                    rejected(again, ErrorKind::InvalidRequest, message);
                }
            }
        }
        assert!(failed);
        rejected(
            writer.finish(),
            ErrorKind::InvalidRequest,
            "only 0 bytes were written, U8 [3] has 3",
        );
    }
}

#[test]
fn a_stream_takes_tensors_in_file_order_once_and_whole() {
    let tensors = three();
    let new = || StreamWriter::new(Vec::new(), layout_of(&tensors)).unwrap();

    let mut writer = new();
    let error = rejected(
        writer.write("b", &[1; 3]),
        ErrorKind::InvalidRequest,
        "a tensor before it in file order is not complete",
    );
    assert_eq!(error.tensor(), Some("b"));
    writer.write("a", &[1; 2]).unwrap();
    rejected(
        writer.write("b", &[2; 3]),
        ErrorKind::InvalidRequest,
        "a tensor before it in file order is not complete",
    );
    rejected(
        writer.write("a", &[1; 2]),
        ErrorKind::InvalidRequest,
        "written 4 bytes, U8 [3] has 3",
    );
    writer.write("a", &[1]).unwrap();
    rejected(
        writer.write("a", &[1]),
        ErrorKind::InvalidRequest,
        "U8 [3] is written already, all 3 bytes of it",
    );
    rejected(
        writer.write("nobody", &[1]),
        ErrorKind::NotFound,
        "it was not declared",
    );
    writer.write("b", &[2; 3]).unwrap();
    let error = rejected(
        writer.finish(),
        ErrorKind::InvalidRequest,
        "only 0 bytes were written, U8 [3] has 3",
    );
    assert_eq!(error.tensor(), Some("c"));

    // Nothing is in nobody's way, whatever the order.
    for name in ["c", "a"] {
        let mut writer = new();
        writer.write("a", &[1; 3]).unwrap();
        writer.write(name, &[]).unwrap();
        writer.write("b", &[2; 3]).unwrap();
    }

    // What was refused has left no trace.
    let mut writer = new();
    writer.write("b", &[9; 3]).unwrap_err();
    for (tensor, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        writer.write(tensor, &[byte; 3]).unwrap();
    }
    let file = writer.finish().unwrap();
    assert!(file.ends_with(&[1, 1, 1, 2, 2, 2, 3, 3, 3]));
}

#[test]
fn a_stream_has_no_checksums() {
    let mut layout = layout_of(&three());
    layout.checksums();
    let message = "checksums stand before the data: only a file can have them filled in";
    rejected(
        StreamWriter::new(Vec::new(), layout),
        ErrorKind::InvalidRequest,
        message,
    );
    let refused = saver().checksums().write_to(Vec::new(), views(&three()));
    rejected(refused, ErrorKind::InvalidRequest, message);
}

#[test]
fn names_are_those_the_format_allows() {
    let dir = Dir::new();
    let tensors = [Tensor::bytes("A", 3), Tensor::bytes("b", 3)];
    for (first, second, message) in [
        ("a", "a", "two tensors have this name"),
        (
            "a",
            "__metadata__",
            "the format keeps this name for metadata",
        ),
        (
            "__metadata__",
            "a",
            "the format keeps this name for metadata",
        ),
        (
            "A",
            "__metadata__",
            "the format keeps this name for metadata",
        ),
    ] {
        // Once with bytes of their own, once tied.
        for other in &tensors {
            let given = [(first, view(&tensors[0]).1), (second, view(other).1)];
            let path = dir.join("model.safetensors");
            let error = rejected(
                saver().save(&path, given),
                ErrorKind::InvalidRequest,
                message,
            );
            assert_eq!(error.path(), Some(&*path));
            let refused = saver().write_to(Vec::new(), given);
            rejected(refused, ErrorKind::InvalidRequest, message);
        }
    }
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn shapes_that_no_file_can_hold_are_errors() {
    let (broken, too_large) = ("is no whole number of bytes", "overflows 64 bits");
    for (dtype, shape, fault) in [
        (Dtype::F4, vec![3], broken),
        (Dtype::F6E2M3, vec![2], broken),
        (Dtype::U8, vec![usize::MAX, 2], too_large),
        (Dtype::F64, vec![usize::MAX / 4], too_large),
    ] {
        let mut layout = Layout::new();
        layout.tensor("a", dtype, &shape).unwrap();
        let error = rejected(
            StreamWriter::new(Vec::new(), layout),
            ErrorKind::InvalidRequest,
            fault,
        );
        assert_eq!(error.tensor(), Some("a"));
    }
    // Together they are too many.
    let mut layout = Layout::new();
    for at in 0..9 {
        let name = at.to_string();
        layout.tensor(&name, Dtype::U8, &[usize::MAX / 8]).unwrap();
    }
    rejected(
        StreamWriter::new(Vec::new(), layout),
        ErrorKind::InvalidRequest,
        "the tensors together overflow 64 bits",
    );
}
