//! Which files are accepted, which are rejected, and what the error says.
//!
//! The verdicts are those of the reference implementation (crate `safetensors` 0.8), but for the
//! differences listed in the second half. A file gets the same verdict however it is opened.

mod common;

use std::path::Path;

use common::{Dir, file, rejected, with_prefix};
use st_format::{Checkpoint, Error, ErrorKind, Header, MAX_HEADER_LEN, Result, SafeTensors};

use ErrorKind::{InvalidHeader, InvalidLayout, NotSafetensors};

/// What becomes of a file.
#[derive(Clone, Copy)]
enum Verdict {
    Accept,
    Reject(ErrorKind, &'static str),
}

/// Opens each file in every way there is: `what: file => Accept;`, or
/// `what: file => kind "part of the message";`.
macro_rules! verdicts {
    ($($what:literal: $file:expr => $verdict:ident $($message:literal)?;)*) => {
        all(vec![$(($what, $file, verdicts!(@$verdict $($message)?))),*])
    };
    (@Accept) => {
        Verdict::Accept
    };
    (@$kind:ident $message:literal) => {
        Verdict::Reject(ErrorKind::$kind, $message)
    };
}

/// What is wrong with a result, if anything.
fn judge<T>(result: Result<T>, verdict: Verdict) -> Result<(), String> {
    match (result, verdict) {
        (Ok(_), Verdict::Accept) => Ok(()),
        (Ok(_), Verdict::Reject(kind, _)) => Err(format!("accepted, expected {kind:?}")),
        (Err(error), Verdict::Accept) => Err(format!("rejected: {error:?}")),
        (Err(error), Verdict::Reject(kind, message)) => {
            match error.kind() == kind && error.to_string().contains(message) {
                true => Ok(()),
                false => Err(format!("{error:?}, expected {kind:?} with …{message}…")),
            }
        }
    }
}

/// Opens the bytes in every way there is.
fn judge_everywhere(path: &Path, bytes: &[u8], verdict: Verdict) -> Result<(), String> {
    let named = |way: &'static str| move |fault: String| format!("{way}: {fault}");
    judge(SafeTensors::new(bytes), verdict).map_err(named("SafeTensors::new"))?;
    judge(Checkpoint::from_bytes(bytes.to_vec()), verdict)
        .map_err(named("Checkpoint::from_bytes"))?;
    std::fs::write(path, bytes).unwrap();
    let about_file = |error: Error| {
        assert_eq!(error.path(), Some(path), "{error}");
        error
    };
    judge(Header::read(path).map_err(about_file), verdict).map_err(named("Header::read"))?;
    judge(Checkpoint::open(path).map_err(about_file), verdict)
        .map_err(named("Checkpoint::open"))?;
    // SAFETY: nobody else knows of the file.
    let mapped = unsafe { Checkpoint::map(path) };
    judge(mapped.map_err(about_file), verdict).map_err(named("Checkpoint::map"))
}

#[track_caller]
fn all(cases: Vec<(&'static str, Vec<u8>, Verdict)>) {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let faults: Vec<String> = cases
        .into_iter()
        .filter_map(|(what, file, verdict)| {
            let fault = judge_everywhere(&path, &file, verdict).err()?;
            Some(format!("{what}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A file with one tensor of four I32.
const I32_2X2: &str = r#"{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}"#;

#[test]
fn length_of_the_header() {
    verdicts! {
        "empty":
            vec![]
            => NotSafetensors "the file is empty";
        "7 zero bytes: the length is cut":
            vec![0; 7]
            => NotSafetensors "7 bytes long, too short";
        "a length of 0, and nothing follows":
            with_prefix(0, b"")
            => InvalidHeader "header is empty (length 0)";
        "a length of 1000 in a file of 86 bytes":
            with_prefix(1000, &[I32_2X2.as_bytes(), &[0; 18]].concat())
            => InvalidHeader "header length is 1000 bytes, the file holds 86";
        "high bits of the length set before an otherwise good file":
            with_prefix(0xffff_ff00_0000_003c, &[I32_2X2.as_bytes(), &[0; 16]].concat())
            => InvalidHeader "header length is 18446742974197923900 bytes, the limit is 100000000";
        "a length one over the limit, and nothing follows":
            with_prefix(MAX_HEADER_LEN + 1, b"")
            => InvalidHeader "header length is 100000001 bytes, the limit is 100000000";
        "one too small, which cuts the last '}'":
            with_prefix(59, &[I32_2X2.as_bytes(), &[0; 16]].concat())
            => InvalidHeader "header byte 59: expected ',' or '}', found the end";
        "big-endian":
            with_prefix(60_u64.swap_bytes(), &[I32_2X2.as_bytes(), &[0; 16]].concat())
            => InvalidHeader "the limit is 100000000; is it written big-endian?";
        "a header of one byte that is not UTF-8":
            with_prefix(1, b"\xff")
            => InvalidHeader "not UTF-8";
        "a length of 20, and two bytes follow":
            with_prefix(20, b"{}")
            => InvalidHeader "header length is 20 bytes, the file holds 10";
    }
}

#[test]
fn header_of_the_largest_size() {
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let limit = MAX_HEADER_LEN as usize;
    let mut bytes = with_prefix(MAX_HEADER_LEN, br#"{"__metadata__":{"n":"x"}}"#);
    bytes.resize(8 + limit, b' ');
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(
        SafeTensors::new(&bytes).unwrap().header().metadata()["n"],
        "x"
    );
    assert_eq!(Checkpoint::open(&path).unwrap().metadata()["n"], "x");

    bytes.push(b' ');
    bytes[..8].copy_from_slice(&(MAX_HEADER_LEN + 1).to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let message = "header length is 100000001 bytes, the limit is 100000000";
    rejected(SafeTensors::new(&bytes[..]), InvalidHeader, message);
    rejected(Checkpoint::open(&path), InvalidHeader, message);
}

#[test]
fn json_text() {
    let brackets = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    verdicts! {
        "an array":
            file("[]", b"")
            => InvalidHeader "expected '{', found '['";
        "null":
            file("null", b"")
            => InvalidHeader "expected '{', found null";
        "white space on both sides":
            file("\t\n{}\r ", b"")
            => Accept;
        "every kind of white space after it":
            file("{}\r \t\n", b"")
            => Accept;
        "a vertical tab after it":
            file("{}\u{b}", b"")
            => InvalidHeader "expected nothing after the closing '}'";
        "two values":
            file("{} {}", b"")
            => InvalidHeader "expected nothing after the closing '}', found '{'";
        "a byte order mark":
            file("\u{feff}{}", b"")
            => InvalidHeader r"expected '{', found '\u{feff}'";
        "a comma after the last entry":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}"#, b"x")
            => InvalidHeader "header byte 53: expected a key in quotes, found '}'";
        "an end before the closing braces":
            file(r#"{"test": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]"#, &[0; 4])
            => InvalidHeader r#"tensor "test": header byte 62: expected ',' or '}', found the end"#;
        "invalid UTF-8 in a name":
            with_prefix(53, b"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}x")
            => InvalidHeader "not UTF-8";
        "arrays nested 10000 deep as shape":
            file(&format!(r#"{{"x":{{"shape":{}}}}}"#, brackets(10_000)), b"")
            => InvalidHeader r#"tensor "x": header byte 15: shape: expected a whole number, found '['"#;
        "arrays nested 10000 deep in an unknown field":
            file(&format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"future":{}}}}}"#, brackets(10_000)), b"x")
            => InvalidHeader "nested more than 127 levels deep";
        "name and metadata in raw UTF-8":
            file(r#"{"wëight😊":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"__metadata__":{"author":"Zoë"}}"#, &[0; 4])
            => Accept;
        "a name with escapes":
            file(r#"{"test\u0041\u0042":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#, b"xx")
            => Accept;
        "4097 spaces of padding":
            file(&(I32_2X2.to_owned() + &" ".repeat(4097)), &[0; 16])
            => Accept;
        "NaN as entry":
            file(r#"{"a":NaN}"#, b"")
            => InvalidHeader "expected an object with dtype, shape and data_offsets, found NaN";
    }
}

#[test]
fn names_are_unescaped() {
    let json = r#"{"wëight😊":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},
        "test\u0041\u0042\ud83d\ude00\"\\\/\b\f\n\r\t":
        {"dtype":"U8","shape":[2],"data_offsets":[4,6]}}"#;
    let tensors = SafeTensors::new(file(json, &[0; 6])).unwrap();
    let names: Vec<_> = tensors.header().iter().map(|info| info.name()).collect();
    assert_eq!(names, ["wëight😊", "testAB😀\"\\/\u{8}\u{c}\n\r\t"]);
}

#[test]
fn the_same_name_or_key_twice() {
    verdicts! {
        "a name, with the same range":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "the header names this tensor twice";
        "a name, with ranges one after the other":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#, b"xy")
            => InvalidHeader "the header names this tensor twice";
        "a metadata key":
            file(r#"{"__metadata__":{"k":"a","k":"b"}}"#, b"")
            => InvalidHeader r#""k" is given twice"#;
        "__metadata__ itself":
            file(r#"{"__metadata__":{},"__metadata__":{}}"#, b"")
            => InvalidHeader r#""__metadata__" is given twice"#;
        "a name, first bogus, then good":
            file(r#"{"a":{"dtype":"F64","shape":[9],"data_offsets":[5,9]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "the header names this tensor twice";
        "a name, first good, then bogus":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F64","shape":[9],"data_offsets":[5,9]}}"#, b"x")
            => InvalidHeader "the header names this tensor twice";
    }
}

#[test]
fn metadata() {
    verdicts! {
        "null, as MLX writes it":
            file(r#"{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x")
            => Accept;
        "empty":
            file(r#"{"__metadata__":{},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x")
            => Accept;
        "a number as value":
            file(r#"{"__metadata__":{"version":1}}"#, b"")
            => InvalidHeader "expected a string as metadata value, found 1";
        "an object as value":
            file(r#"{"__metadata__":{"a":{"b":"c"}}}"#, b"")
            => InvalidHeader "expected a string as metadata value, found '{'";
        "a tensor's entry":
            file(r#"{"__metadata__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "expected a string as metadata value, found '['";
        "after the tensors":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"k":"v"}}"#, b"x")
            => Accept;
        "a raw newline in a string":
            file("{\"__metadata__\":{\"k\":\"a\nb\"}}", b"")
            => InvalidHeader "control character in a string";
        "a value of 1 MB":
            file(&format!(r#"{{"__metadata__":{{"k":"{}"}},"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#, "v".repeat(1_000_000)), b"x")
            => Accept;
    }
}

#[test]
fn fields_of_an_entry() {
    verdicts! {
        "no dtype":
            file(r#"{"a":{"shape":[1],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader r#"tensor "a": header byte 39: the entry has no dtype"#;
        "no shape":
            file(r#"{"a":{"dtype":"U8","data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader r#"tensor "a": header byte 40: the entry has no shape"#;
        "no data_offsets, of a tensor of no bytes":
            file(r#"{"empty":{"dtype":"F32","shape":[0,10]}}"#, b"")
            => InvalidHeader r#"tensor "empty": header byte 39: the entry has no data_offsets"#;
        "unknown dtype":
            file(r#"{"a":{"dtype":"FLOAT32","shape":[1],"data_offsets":[0,4]}}"#, &[0; 4])
            => InvalidHeader r#"tensor "a": header byte 14: unknown dtype "FLOAT32""#;
        "dtype in lower case":
            file(r#"{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}"#, &[0; 4])
            => InvalidHeader r#"unknown dtype "f32""#;
        "unknown dtype, whose size nobody knows":
            file(r#"{"a":{"dtype":"MYFAM_Q4","shape":[999],"data_offsets":[0,5]}}"#, &[0; 5])
            => InvalidHeader r#"unknown dtype "MYFAM_Q4""#;
        "an unknown field":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":"x"}}"#, b"x")
            => Accept;
        "a number as entry":
            file(r#"{"a":42}"#, b"")
            => InvalidHeader "expected an object with dtype, shape and data_offsets, found 42";
        "a number as shape":
            file(r#"{"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "shape: expected an array, found 1";
        "a negative dimension":
            file(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "shape: expected a whole number, found -1";
        "1.0 as dimension":
            file(r#"{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "header byte 28: shape: expected a whole number, found 1.0";
        "1e0 as dimension":
            file(r#"{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "header byte 28: shape: expected a whole number, found 1e0";
        "true as dimension":
            file(r#"{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "expected a whole number, found true";
        "a dimension with a leading zero":
            file(r#"{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}"#, b"x")
            => InvalidHeader "header byte 28: shape: expected a whole number, found 01";
        "one offset":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}"#, b"x")
            => InvalidHeader "expected an array of two, found fewer";
        "three offsets":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}"#, b"x")
            => InvalidHeader "expected an array of two, found more";
        "a string as offset":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":["0",1]}}"#, b"x")
            => InvalidHeader r#"data_offsets: expected a whole number, found "0""#;
        "null as offset":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[null,1]}}"#, b"x")
            => InvalidHeader "expected a whole number, found null";
        "a negative offset":
            file(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[-1,1]}}"#, b"x")
            => InvalidHeader "data_offsets: expected a whole number, found -1";
        "an object as offsets":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":{"start":0,"end":1}}}"#, b"x")
            => InvalidHeader "data_offsets: expected an array of two, found '{'";
    }
}

#[test]
fn shapes_and_sizes() {
    let rank_1000 = format!(
        r#"{{"a":{{"dtype":"U8","shape":[{}0],"data_offsets":[0,0]}}}}"#,
        "0,".repeat(999)
    );
    let f8_scalars = concat!(
        r#"{"e5":{"dtype":"F8_E5M2","shape":[],"data_offsets":[0,1]},"#,
        r#""e4":{"dtype":"F8_E4M3","shape":[],"data_offsets":[1,2]},"#,
        r#""e8":{"dtype":"F8_E8M0","shape":[],"data_offsets":[2,3]},"#,
        r#""f":{"dtype":"F8_E4M3FNUZ","shape":[],"data_offsets":[3,4]},"#,
        r#""g":{"dtype":"F8_E5M2FNUZ","shape":[],"data_offsets":[4,5]}}"#,
    );
    verdicts! {
        "more than 2^64 elements":
            file(r#"{"test":{"dtype":"I32","shape":[2,18446744073709551614],"data_offsets":[0,16]}}"#, &[0; 16])
            => InvalidLayout r#"tensor "test": the size of I32 [2, 18446744073709551614] overflows 64 bits"#;
        "more than 2^64 bits":
            file(r#"{"test":{"dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16]}}"#, &[0; 16])
            => InvalidLayout "overflows 64 bits";
        "2^32 times 2^32, and a range far outside":
            file(r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[1000000,2000000]}}"#, &[0; 4])
            => InvalidLayout "[1000000, 2000000]";
        "2^62 + 1 F32, which wrapped would be 4 bytes":
            file(r#"{"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}}"#, &[0; 4])
            => InvalidLayout "overflows 64 bits";
        "2^64 - 1 U64":
            file(r#"{"a":{"dtype":"U64","shape":[18446744073709551615],"data_offsets":[0,0]}}"#, b"")
            => InvalidLayout "overflows 64 bits";
        "a shape of 1.8e308 elements in a file of 8 bytes of data":
            file(concat!(r#"{"__metadata__":{"format":"pt"},"#, r#""e":{"dtype":"F4","shape":[4611686018427387904,4611686018427387904,4294967296],"data_offsets":[0,4]},"#, r#""r":{"dtype":"F4","shape":[24,1024,962],"data_offsets":[4,8]}}"#), &[0; 8])
            => InvalidLayout r#"tensor "e": the size of F4 "#;
        "no elements, though the other dimensions are the largest there are":
            file(r#"{"a":{"dtype":"F32","shape":[18446744073709551615,0,18446744073709551615],"data_offsets":[0,0]}}"#, b"")
            => Accept;
        "too many elements before the 0":
            file(r#"{"a":{"dtype":"U8","shape":[9223372036854775807,3,0],"data_offsets":[0,0]}}"#, b"")
            => InvalidLayout "overflows 64 bits";
        "rank 1000, no elements":
            file(&rank_1000, b"")
            => Accept;
        "rank 16":
            file(r#"{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}"#, &[0; 4])
            => Accept;
        "a scalar of no bytes":
            file(r#"{"test":{"dtype":"I32","shape":[],"data_offsets":[0,0]}}"#, b"")
            => InvalidLayout "data_offsets [0, 0] hold 0 bytes, I32 [] needs 4";
        "no elements":
            file(r#"{"test":{"dtype":"I32","shape":[2,0],"data_offsets":[0, 0]}}"#, b"")
            => Accept;
        "half the bytes the shape needs":
            file(r#"{"weight":{"dtype":"F64","shape":[4],"data_offsets":[0,16]}}"#, &[0; 16])
            => InvalidLayout r#"tensor "weight": data_offsets [0, 16] hold 16 bytes, F64 [4] needs 32"#;
        "a byte more than the shape needs":
            file(r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}}"#, &[0; 4])
            => InvalidLayout "data_offsets [0, 4] hold 4 bytes, U8 [3] needs 3";
        "a shape of 4 MB, a range of 4 bytes":
            file(r#"{"t":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}"#, &[0; 4])
            => InvalidLayout "hold 4 bytes, F32 [1000, 1000] needs 4000000";
        "three F4 in two bytes":
            file(r#"{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}"#, &[0; 2])
            => InvalidLayout "F4 [3] takes 12 bits, which is no whole number of bytes";
        "two F4":
            file(r#"{"attn.0":{"dtype":"F4","shape":[1,2],"data_offsets":[0,1]}}    "#, &[0])
            => Accept;
        "two F6":
            file(r#"{"a":{"dtype":"F6_E3M2","shape":[2],"data_offsets":[0,2]}}"#, &[0; 2])
            => InvalidLayout "F6_E3M2 [2] takes 12 bits, which is no whole number of bytes";
        "a scalar of each F8":
            file(f8_scalars, &[0x3c, 0x38, 0x7f, 0x40, 0x40])
            => Accept;
    }
}

#[test]
fn offsets() {
    verdicts! {
        "the end before the beginning":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}"#, b"x")
            => InvalidLayout "data_offsets [1, 0] end before they begin";
        "the end before the beginning, of a tensor of no bytes":
            file(r#"{"w":{"dtype":"U8","shape":[0],"data_offsets":[8,4]}}"#, &[0; 8])
            => InvalidLayout "data_offsets [8, 4] end before they begin";
        "the last two bytes of the file missing":
            file(I32_2X2, &[0; 14])
            => InvalidLayout "2 missing";
        "34 bytes after the last tensor":
            file(I32_2X2, &[&[0; 16][..], b"extra_bogus_data_for_polyglot_file"].concat())
            => InvalidLayout "34 left over";
        "tensors that overlap in part":
            file(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#, &[0; 3])
            => InvalidLayout r#"tensor "b": data_offsets [1, 3] overlap tensor "a", which ends at 2"#;
        "tensors of the same range":
            file(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, &[0; 4])
            => InvalidLayout r#"data_offsets [0, 4] overlap tensor "a", which ends at 4"#;
        "a hole between tensors":
            file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#, &[0; 3])
            => InvalidLayout r#"tensor "b": data_offsets [2, 3] leave a hole after tensor "a", at 1"#;
        "entries in another order than the data":
            file(r#"{"second":{"dtype":"U16","shape":[1],"data_offsets":[4,6]},"first":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}"#, &[0; 6])
            => Accept;
        "tensors of no bytes at both ends":
            file(r#"{"b":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},"p":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"e":{"dtype":"I16","shape":[4,0],"data_offsets":[3,3]}}"#, b"abc")
            => Accept;
        "a tensor of no bytes past the end":
            file(r#"{"p":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"e":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}}"#, &[0; 4])
            => InvalidLayout r#"tensor "e": data_offsets [8, 8] leave a hole"#;
        "two tensors of no bytes, and nothing else":
            file(r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U16","shape":[2,0],"data_offsets":[0,0]}}"#, b"")
            => Accept;
        "an F64 at an odd offset":
            file(r#"{"h":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"d":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}}"#, &[0; 9])
            => Accept;
        "tensors that cover half the data":
            file(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, &[0; 16])
            => InvalidLayout "8 left over";
        "a tensor of no bytes between others, and last in the header":
            file(r#"{"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}"#, &[0; 8])
            => Accept;
        "a newline after the data":
            file(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, b"\0\0\0\0\n")
            => InvalidLayout "1 left over";
    }
}

#[test]
fn a_hundred_thousand_tensors_of_the_same_range() {
    let entries = (0..100_000).map(|at| {
        format!(r#""weight_{at}":{{"dtype":"F32","shape":[200,200],"data_offsets":[0,160000]}}"#)
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let bytes = file(&json, &vec![0; json.len()]);
    let dir = Dir::new();
    let path = dir.write("model.safetensors", &bytes);
    let message = r#"data_offsets [0, 160000] overlap tensor "weight_"#;
    rejected(SafeTensors::new(&bytes[..]), InvalidLayout, message);
    rejected(Checkpoint::open(&path), InvalidLayout, message);
}

#[test]
fn other_kinds_of_files_are_named() {
    let zeros_after = |start: &[u8]| [start, &[0; 60]].concat();
    let lfs_pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 1234567\n",
        "0".repeat(64)
    );
    verdicts! {
        "Git LFS pointer":
            lfs_pointer.into_bytes()
            => NotSafetensors "Git LFS pointer; run `git lfs pull`";
        "zip, as torch.save writes it":
            zeros_after(b"PK\x03\x04")
            => NotSafetensors "zip archive, such as a PyTorch checkpoint";
        "GGUF":
            zeros_after(b"GGUF")
            => NotSafetensors "GGUF file";
        "GGML":
            zeros_after(b"ggml")
            => NotSafetensors "GGML file";
        "pickle, as old torch.save wrote it":
            b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.".to_vec()
            => NotSafetensors "Python pickle";
        "NumPy array":
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }" .to_vec()
            => NotSafetensors "NumPy array";
        "HDF5":
            zeros_after(b"\x89HDF\r\n\x1a\n")
            => NotSafetensors "HDF5 file";
        "gzip":
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00" .to_vec()
            => NotSafetensors "gzip archive";
        "XML, as object stores answer":
            b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code></Error>" .to_vec()
            => NotSafetensors "XML document, such as an error page";
        "HTML":
            b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>".to_vec()
            => NotSafetensors "HTML page, such as a download's error page";
        "HTML in lower case, after blank lines":
            b"\n\n  <!doctype html><title>404</title>".to_vec()
            => NotSafetensors "HTML page";
        "HTML without a doctype":
            b"<HTML><body>Not Found</body></HTML>".to_vec()
            => NotSafetensors "HTML page";
        "a header without its length":
            br#"{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#.to_vec()
            => NotSafetensors "JSON without the eight bytes of length before it";
        "JSON after white space":
            b"\n  {\"architectures\": [\"LlamaForCausalLM\"]}".to_vec()
            => NotSafetensors "JSON without the eight bytes of length before it";
        "nothing":
            vec![]
            => NotSafetensors "the file is empty";
        "part of a length":
            vec![0x3c, 0, 0]
            => NotSafetensors "the file is 3 bytes long, too short";
    }
}

#[test]
fn a_directory_is_named() {
    let dir = Dir::new();
    rejected(Header::read(dir.path()), NotSafetensors, "is a directory");
    let error = rejected(
        Checkpoint::open(dir.path()),
        ErrorKind::NotFound,
        "no .safetensors file or index in this directory: it is empty",
    );
    assert_eq!(error.path(), Some(dir.path()));
}

/// The first bytes of such a file are a length that reads as the start of some other kind of
/// file: 123 is '{', 640 a pickle's first two bytes, 35615 those of gzip.
#[test]
fn a_faulty_header_is_not_mistaken_for_another_file() {
    let lengths = (60..1500).chain([0x7b0a, 0x7b20, 0x8b1f, 0x1_0280]);
    let dir = Dir::new();
    let path = dir.join("model.safetensors");
    let mut mistaken = Vec::new();
    for len in lengths {
        let json = r#"{"a":{"dtype":"Q8","shape":[1],"data_offsets":[0,1]}}"#;
        let bytes = file(&(json.to_owned() + &" ".repeat(len - json.len())), b"x");
        std::fs::write(&path, &bytes).unwrap();
        let verdict = Verdict::Reject(InvalidHeader, r#"unknown dtype "Q8""#);
        let verdicts = judge(SafeTensors::new(bytes), verdict)
            .and_then(|()| judge(Checkpoint::open(&path), verdict));
        if let Err(fault) = verdicts {
            mistaken.push(format!("header of {len} bytes: {fault}"));
        }
    }
    assert!(mistaken.is_empty(), "{}", mistaken.join("\n"));
}

/// Accepted by the reference, rejected here, wherever it stands and however it is written.
#[track_caller]
fn stricter_than_the_reference(json: &str, data: &[u8], message: &str) {
    let bytes = file(json, data);
    let reference = safetensors::SafeTensors::deserialize(&bytes);
    assert!(reference.is_ok(), "the reference: {reference:?}");
    rejected(SafeTensors::new(&bytes[..]), InvalidHeader, message);
    let dir = Dir::new();
    let path = dir.write("model.safetensors", &bytes);
    rejected(Checkpoint::open(path), InvalidHeader, message);
}

#[test]
fn difference_a_name_given_twice() {
    let good = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    let bogus = r#"{"dtype":"F64","shape":[9],"data_offsets":[5,9]}"#;
    let twice = r#"tensor "a": the header names this tensor twice"#;
    for (first, second) in [
        (r#""a""#, r#""a""#),
        (r#""a""#, r#""\u0061""#),
        (r#""\u0061""#, r#""a""#),
    ] {
        for first_entry in [good, bogus] {
            let json = format!("{{{first}:{first_entry},{second}:{good}}}");
            stricter_than_the_reference(&json, b"x", twice);
        }
    }
}

#[test]
fn difference_a_metadata_key_given_twice() {
    let twice = r#""k/" is given twice"#;
    for keys in [r#""k/":"a","k/":"b""#, r#""k/":"a","k\/":"a""#] {
        let json = format!(r#"{{"__metadata__":{{{keys}}}}}"#);
        stricter_than_the_reference(&json, b"", twice);
    }
}

#[test]
fn difference_an_unknown_field_given_twice() {
    let twice = r#"tensor "a": header byte"#;
    for fields in [
        r#""x":1,"x":1"#,
        r#""x":[1],"y":2,"x":{}"#,
        r#""x":1,"\u0078":1"#,
    ] {
        let json = format!(r#"{{"a":{{"dtype":"U8","shape":[1],{fields},"data_offsets":[0,1]}}}}"#);
        stricter_than_the_reference(&json, b"x", twice);
        stricter_than_the_reference(&json, b"x", r#""x" is given twice"#);
    }
}

#[test]
fn difference_an_entry_written_as_an_array() {
    let expected = "expected an object with dtype, shape and data_offsets, found '['";
    stricter_than_the_reference(r#"{"a":["U8",[1],[0,1]]}"#, b"x", expected);
}

#[test]
fn difference_a_dtype_written_as_an_object() {
    let json = r#"{"a":{"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]}}"#;
    let expected = r#"tensor "a": header byte 14: expected a string as dtype, found '{'"#;
    stricter_than_the_reference(json, b"x", expected);
}

/// Here both agree.
#[test]
fn a_known_field_given_twice() {
    for (field, again) in [
        (r#""dtype":"U8""#, r#""dtype":"U8""#),
        (r#""dtype":"U8""#, r#""d\u0074ype":"U8""#),
        (r#""shape":[1]"#, r#""shape":[1]"#),
        (r#""shape":[1]"#, r#""\u0073hape":[1]"#),
        (r#""data_offsets":[0,1]"#, r#""data_offsets":[0,1]"#),
        (r#""data_offsets":[0,1]"#, r#""data\u005foffsets":[0,1]"#),
    ] {
        let all = r#""dtype":"U8","shape":[1],"data_offsets":[0,1]"#;
        for fields in [
            format!("{all},{again}"),
            format!("{again},{all}"),
            all.replace(field, &format!("{field},{again}")),
        ] {
            let bytes = file(&format!(r#"{{"a":{{{fields}}}}}"#), b"x");
            assert!(safetensors::SafeTensors::deserialize(&bytes).is_err());
            rejected(SafeTensors::new(bytes), InvalidHeader, "is given twice");
        }
    }
}

#[test]
fn null_as_metadata_is_none() {
    let entry = r#""a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    for json in [
        format!(r#"{{"__metadata__":null,{entry}}}"#),
        format!(r#"{{{entry}, "__metadata__" : null }}"#),
    ] {
        let tensors = SafeTensors::new(file(&json, b"x")).unwrap();
        assert!(tensors.header().metadata().is_empty());
        assert_eq!(tensors.tensor("a").unwrap().data(), b"x");
    }
}

#[test]
fn what_is_accepted_but_odd_is_warned_of() {
    let json = r#" {"a":{"dtype":"U8","shape":[1],"x":0,"data_offsets":[0,1],"y":0},
        "b":{"dtype":"F64","shape":[1],"data_offsets":[1,9],"x":0}}"#;
    let checkpoint = Checkpoint::from_bytes(file(json, &[0; 9])).unwrap();
    let warnings: Vec<String> = checkpoint
        .warnings()
        .iter()
        .map(|warning| warning.to_string())
        .collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(
        warnings[0].contains("white space before the header's '{'"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].contains(r#"unknown field "x" in the entry of tensor "a" (and 2 more)"#),
        "{warnings:?}"
    );
    assert!(warnings[2].contains("not aligned"), "{warnings:?}");

    // Nothing lies wrong where there is nothing.
    let json = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
        "none":{"dtype":"F64","shape":[0],"data_offsets":[1,1]}}"#;
    let checkpoint = Checkpoint::from_bytes(file(json, b"x")).unwrap();
    assert_eq!(checkpoint.warnings(), []);
}
