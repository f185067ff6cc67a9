//! What a header says is what was written, in whatever form, and reading it reads nothing else.

mod common;

use common::text::{Choices, metadata, tensors};
use common::{Dir, entry, file, rejected, with_prefix};
use proptest::prelude::*;
use st_format::{Checkpoint, Dtype, Error, ErrorKind, Header, Layout, SafeTensors, StreamWriter};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_written_is_read(tensors in tensors(), metadata in metadata(), seed: u64) {
        let (json, order) = Choices::new(seed).header(&tensors, &metadata);
        let data: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.data.clone()).collect();
        let bytes = file(&json, &data);

        // In file order; what shares its place, in the header's.
        let mut begin = 0;
        let ranges: Vec<_> = tensors
            .iter()
            .map(|tensor| {
                let range = begin..begin + tensor.data.len() as u64;
                begin = range.end;
                range
            })
            .collect();
        let mut in_file_order = order;
        in_file_order.sort_by_key(|&at| (ranges[at].start, ranges[at].end));

        let read = SafeTensors::new(&bytes[..]).unwrap();
        let header = read.header();
        prop_assert_eq!(header.len(), tensors.len());
        prop_assert_eq!(header.is_empty(), tensors.is_empty());
        prop_assert_eq!(header.metadata(), &metadata.unwrap_or_default());
        prop_assert_eq!(header.data_start(), 8 + json.len() as u64);
        prop_assert_eq!(header.data_len(), data.len() as u64);
        prop_assert_eq!(header.file_len(), bytes.len() as u64);
        prop_assert_eq!(header.iter().len(), tensors.len());
        for ((info, view), &at) in header.iter().zip(read.tensors()).zip(&in_file_order) {
            let tensor = &tensors[at];
            prop_assert_eq!(info.name(), &tensor.name);
            prop_assert_eq!(info.dtype(), tensor.dtype);
            prop_assert_eq!(info.shape(), &tensor.shape);
            prop_assert_eq!(info.data_offsets(), ranges[at].clone());
            prop_assert_eq!(info.byte_len(), tensor.data.len() as u64);
            let elements = tensor.shape.iter().product::<usize>();
            prop_assert_eq!(info.element_count(), elements as u64);
            let view = view.unwrap();
            prop_assert_eq!(view.info(), info);
            prop_assert_eq!(view.data(), &tensor.data);
            prop_assert_eq!(header.get(&tensor.name), Some(info));
            prop_assert_eq!(read.tensor(&tensor.name).unwrap().data(), &tensor.data);
            // Names that are nearly the same are not the same.
            let other = format!("{}\0", tensor.name);
            let exists = tensors.iter().any(|tensor| tensor.name == other);
            prop_assert_eq!(header.get(&other).is_some(), exists);
        }
        let backwards: Vec<_> = header.iter().rev().map(|info| info.name()).collect();
        let names: Vec<_> = header.iter().map(|info| info.name()).collect();
        prop_assert!(backwards.iter().rev().eq(&names));

        // The same from bytes that end with the header, and from a file.
        let alone = Header::parse(&bytes[..header.data_start() as usize]).unwrap();
        prop_assert!(alone.iter().eq(header.iter()));
        let dir = Dir::new();
        let path = dir.write("model.safetensors", &bytes);
        let from_file = Header::read(path).unwrap();
        prop_assert!(from_file.iter().eq(header.iter()));
        prop_assert_eq!(from_file.metadata(), header.metadata());
    }
}

#[test]
fn a_header_without_tensors() {
    let header = Header::parse(&file("{}", b"")).unwrap();
    assert!(header.is_empty() && header.metadata().is_empty());
    assert_eq!(
        (header.len(), header.data_len(), header.file_len()),
        (0, 0, 10)
    );
    assert_eq!(header.get(""), None);
}

#[test]
fn metadata_is_sorted_by_key() {
    let json = r#"{"__metadata__":{"b":"1","é":"2","a":"","":"3","B":"\u0000"}}"#;
    let header = Header::parse(&file(json, b"")).unwrap();
    let texts: Vec<_> = header.metadata().iter().collect();
    let pairs: Vec<(&str, &str)> = texts.iter().map(|(k, v)| (&***k, &***v)).collect();
    assert_eq!(
        pairs,
        [("", "3"), ("B", "\0"), ("a", ""), ("b", "1"), ("é", "2")]
    );
}

#[test]
fn every_character_at_every_place_of_a_string() {
    let characters = (0..0x80)
        .map(char::from)
        .chain(['\u{80}', 'é', '\u{ffff}', '😀']);
    for c in characters {
        for filler in ["x", " ", "!", "#", "[", "]", "\u{7f}", "é"] {
            for (before, after) in (0..=17).flat_map(|at| [(at, 17 - at), (at, 0)]) {
                let (before, after) = (filler.repeat(before), filler.repeat(after));
                let text = format!("\"{before}{c}{after}\"");
                let json = format!(r#"{{"__metadata__":{{{text}:""}}}}"#);
                let found = Header::parse(&file(&json, b"")).ok();
                let found = found
                    .as_ref()
                    .and_then(|header| header.metadata().keys().next());
                let expected: Option<String> = serde_json::from_str(&text).ok();
                assert_eq!(found, expected.as_ref(), "{text:?}");
            }
        }
    }
}

#[test]
fn tensors_of_no_bytes_keep_the_headers_order_where_they_share_a_place() {
    let entries = [
        entry("d", Dtype::U8, &[0], 4, 4),
        entry("b", Dtype::U8, &[4], 0, 4),
        entry("e", Dtype::F4, &[0, 3], 4, 4),
        entry("c", Dtype::U8, &[0], 4, 4),
        entry("a", Dtype::U8, &[0], 0, 0),
    ];
    let json = format!("{{{}}}", entries.join(","));
    let header = Header::parse(&file(&json, b"")).unwrap();
    let names: String = header.iter().map(|info| info.name()).collect();
    assert_eq!(names, "abdec");

    // However many there are, and however they are mixed.
    let names: Vec<String> = (0..500).map(|at| (at * 7 % 500).to_string()).collect();
    let place = |at: usize| 4 * (at as u64 % 2);
    let entries = names
        .iter()
        .enumerate()
        .map(|(at, name)| entry(name, Dtype::U8, &[0], place(at), place(at)))
        .chain([entry("between", Dtype::U8, &[4], 0, 4)]);
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let header = Header::parse(&file(&json, b"")).unwrap();
    let at_place = |place_of_group| {
        let in_group = (0..500).filter(move |&at| place(at) == place_of_group);
        in_group.map(|at| &*names[at])
    };
    let expected = at_place(0).chain(["between"]).chain(at_place(4));
    assert!(header.iter().map(|info| info.name()).eq(expected));
}

#[test]
fn every_dtype_by_its_name() {
    for &dtype in Dtype::ALL {
        let bytes = u64::from(dtype.bits());
        let json = format!("{{{}}}", entry("t", dtype, &[2, 4], 0, bytes));
        let header = Header::parse(&file(&json, b"")).unwrap();
        assert_eq!(header.get("t").unwrap().dtype(), dtype);
        assert_eq!(dtype.name().parse(), Ok(dtype));
        assert_eq!(dtype.to_string(), dtype.name());
        assert_eq!(format!("{dtype:>12}"), format!("{:>12}", dtype.name()));
        assert!(dtype.name().to_lowercase().parse::<Dtype>().is_err());
    }
    assert!(Dtype::ALL.is_sorted());
    let widths: Vec<_> = Dtype::ALL
        .iter()
        .skip(1)
        .map(|dtype| dtype.bits())
        .collect();
    assert!(widths.is_sorted());
    let unknown = "F33".parse::<Dtype>().unwrap_err().to_string();
    assert_eq!(unknown, r#"unknown dtype "F33""#);
}

#[test]
fn what_follows_the_header_is_not_looked_at() {
    let json = format!("{{{}}}", entry("t", Dtype::U8, &[1 << 40], 0, 1 << 40));
    for data in [&b""[..], b"whatever"] {
        let header = Header::parse(&file(&json, data)).unwrap();
        assert_eq!(header.file_len(), 8 + json.len() as u64 + (1 << 40));
    }
    let cut = &file(&json, b"")[..json.len()];
    rejected(
        Header::parse(cut),
        ErrorKind::InvalidHeader,
        "the file holds",
    );
}

#[test]
fn an_entry_fault_says_where_in_the_header_it_is() {
    let json = r#"{"good":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
        "näme":{"dtype":"U8","shape":[1,,2],"data_offsets":[1,2]}}"#;
    let at = json.find(",2]").unwrap();
    let error = rejected(
        Header::parse(&file(json, b"")),
        ErrorKind::InvalidHeader,
        &format!(r#"tensor "näme": header byte {at}: "#),
    );
    assert_eq!(error.tensor(), Some("näme"));
    assert_eq!(error.path(), None);
}

#[cfg(unix)]
mod huge {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;
    use common::counting;
    use st_format::{Checkpoint, Slice};

    /// A file of more than a TiB, most of which is not there: whoever reads it is not done soon.
    fn huge_file(dir: &Dir) -> (PathBuf, Vec<u8>) {
        const TIB: u64 = 1 << 40;
        let data = counting(240);
        let entries = [
            entry("matrix", Dtype::U8, &[1 << 20, 1 << 20], 0, TIB),
            entry("vector", Dtype::F32, &[60], TIB, TIB + 240),
        ];
        let json = format!("{{{}}}", entries.join(","));
        let path = dir.write("model.safetensors", file(&json, b""));
        let file = File::options().write(true).open(&path).unwrap();
        let data_start = 8 + json.len() as u64;
        file.set_len(data_start + TIB + 240).unwrap();
        // Some bytes at the start of a few rows, and the small tensor at the end.
        for (row, byte) in [(0, 1), (1, 2), ((1 << 20) - 1, 3)] {
            file.write_all_at(&[byte, byte], data_start + (row << 20))
                .unwrap();
        }
        file.write_all_at(&data, data_start + TIB).unwrap();
        (path, data)
    }

    #[test]
    fn only_the_header_of_a_huge_file_is_read() {
        let dir = Dir::new();
        let (path, data) = huge_file(&dir);
        let header = Header::read(&path).unwrap();
        assert_eq!(header.get("matrix").unwrap().element_count(), 1 << 40);
        assert_eq!(header.file_len(), path.metadata().unwrap().len());

        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.byte_len(), (1 << 40) + 240);
        assert_eq!(checkpoint.read("vector").unwrap(), data);
        let part = Slice::all().dim(0, 59..);
        assert_eq!(checkpoint.read_slice("vector", &part).unwrap(), data[236..]);

        let rows = Slice::all().dim_step(0, .., (1 << 20) - 1).dim(1, ..3);
        assert_eq!(
            checkpoint.read_slice("matrix", &rows).unwrap(),
            [1, 1, 0, 3, 3, 0]
        );
        let column = Slice::all().dim(0, ..5).dim(1, 1..2);
        assert_eq!(
            checkpoint.read_slice("matrix", &column).unwrap(),
            [1, 2, 0, 0, 0]
        );
        let row = Slice::all().dim(0, 1..2);
        let row = checkpoint.read_slice("matrix", &row).unwrap();
        assert_eq!(row.len(), 1 << 20);
        assert_eq!(row[..3], [2, 2, 0]);

        // SAFETY: nobody else knows of the file.
        let mapped = unsafe { Checkpoint::map(&path) }.unwrap();
        assert_eq!(mapped.bytes("vector").unwrap().unwrap(), data);
        assert_eq!(
            mapped.read_slice("matrix", &rows).unwrap(),
            [1, 1, 0, 3, 3, 0]
        );
    }
}

#[test]
fn a_header_length_is_no_reason_to_allocate() {
    // A length within the limit in a file that is shorter.
    let bytes = with_prefix(99_999_999, b"{}");
    let message = "header length is 99999999 bytes, the file holds 10";
    rejected(Header::parse(&bytes), ErrorKind::InvalidHeader, message);
    let dir = Dir::new();
    let path = dir.write("model.safetensors", bytes);
    rejected(Header::read(path), ErrorKind::InvalidHeader, message);
}

/// A header of several hundred KiB is parsed while it is read; nobody must notice.
#[test]
fn a_long_header_of_a_file_is_what_it_is_in_memory() {
    let count = 5_000;
    let mut members: Vec<String> = (0..count)
        .map(|at| {
            let entry = entry(&format!("é\n{at}.w"), Dtype::U8, &[1, 1], at, at + 1);
            match at % 7 {
                3 => entry.replace("\"shape\"", r#""note":["}",{}],"shape""#),
                _ => entry,
            }
        })
        .collect();
    members.insert(2_000, r#""__metadata__":{"a":"}","é":"{"}"#.to_owned());
    let json = |members: &[String]| format!("{{{}}}", members.join(","));
    let long = " ".repeat(300_000);

    // Wherever in a member the pieces end.
    for shift in (0..120).step_by(3) {
        let json = format!("{}{}", " ".repeat(shift), json(&members));
        assert!(compare_with_memory(json.as_bytes()));
    }
    for unusual in [
        format!("{long}{}", json(&members)),
        format!("{}{long}", json(&members)),
        json(&members).replace(r#""a":"}""#, &format!(r#""a":"{long}""#)),
    ] {
        assert!(compare_with_memory(unusual.as_bytes()));
    }

    let good = json(&members).into_bytes();
    for at in (0..good.len())
        .step_by(29_989)
        .chain([1 << 18, good.len() - 1])
    {
        for byte in [b'"', b'}', b'\\', 0xff] {
            let mut json = good.clone();
            json[at] = byte;
            compare_with_memory(&json);
        }
        assert!(!compare_with_memory(&good[..at]));
    }
    for more in [members[10].clone(), members[2_000].clone(), long] {
        let more = [&members[..], &[more]].concat();
        assert!(!compare_with_memory(json(&more).as_bytes()));
    }
    for after in [&b"{"[..], b"\xff"] {
        assert!(!compare_with_memory(&[&good[..], after].concat()));
    }
}

/// Reads a header from a file and from memory, which must make no difference, and says whether it
/// is one.
fn compare_with_memory(json: &[u8]) -> bool {
    let dir = Dir::new();
    let bytes = with_prefix(json.len() as u64, &[json, &[0; 5_000]].concat());
    let path = dir.write("model.safetensors", &bytes);
    let (read, in_memory) = (Checkpoint::open(&path), Checkpoint::from_bytes(bytes));
    let (read, in_memory) = match (read, in_memory) {
        (Ok(read), Ok(in_memory)) => (read, in_memory),
        (read, in_memory) => {
            let message = |error: Error, path: &str| {
                let message = error.to_string();
                message.strip_prefix(path).map(str::to_owned)
            };
            let read = message(read.unwrap_err(), path.to_str().unwrap());
            assert_eq!(read, message(in_memory.unwrap_err(), "<memory>"));
            assert!(read.is_some());
            return false;
        }
    };
    assert!(read.iter().eq(in_memory.iter()));
    assert_eq!(read.metadata(), in_memory.metadata());
    let warnings = |checkpoint: &Checkpoint| -> Vec<String> {
        let warnings = checkpoint.warnings().into_iter();
        warnings
            .map(|warning| warning.message().to_owned())
            .collect()
    };
    assert_eq!(warnings(&read), warnings(&in_memory));
    true
}

/// Each tensor is as long as 64 bits can count, and so are all of them together; the file is not.
#[test]
fn tensors_that_leave_no_room_for_the_header() {
    let mut entries = Vec::new();
    let each = (1_u64 << 61) - 1;
    let lengths = [each; 8].into_iter().chain([7]);
    let mut begin = 0;
    for (at, len) in lengths.enumerate() {
        let end = begin + len;
        entries.push(format!(
            r#""{at}":{{"dtype":"U8","shape":[{len}],"data_offsets":[{begin},{end}]}}"#
        ));
        begin = end;
    }
    assert_eq!(begin, u64::MAX);
    let json = format!("{{{}}}", entries.join(","));
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend(json.bytes());
    let error = Header::parse(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidLayout, "{error}");
    assert!(error.to_string().contains("overflow 64 bits"), "{error}");

    let mut layout = Layout::new();
    for at in 0..8 {
        layout
            .tensor(&at.to_string(), Dtype::U8, &[each as usize])
            .unwrap();
    }
    layout.tensor("8", Dtype::U8, &[7]).unwrap();
    let error = StreamWriter::new(Vec::new(), layout).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
}
