//! The same verdict as the reference implementation, and where a file is accepted, the same
//! tensors: over valid files, over files a little or much damaged, and over headers made of
//! pieces that are valid one by one.

mod common;

use common::differences;
use common::file;
use common::text::{Choices, metadata, tensors};
use proptest::prelude::*;
use st_format::SafeTensors;

/// Compares both readers on the bytes of a file.
#[track_caller]
fn compare(bytes: &[u8]) {
    let text = || String::from_utf8_lossy(bytes);
    let reference = safetensors::SafeTensors::deserialize(bytes);
    let found = SafeTensors::new(bytes);
    if differences::is_listed(bytes) {
        assert!(
            found.is_err(),
            "a listed difference is accepted: {:?}",
            text()
        );
        return;
    }
    let (found, reference) = match (found, reference) {
        (Ok(found), Ok(reference)) => (found, reference),
        (Err(_), Err(_)) => return,
        (Err(_), Ok(_)) if differences::has_number_next_to_the_largest(bytes) => return,
        (Ok(_), Err(error)) => panic!("only the reference rejects ({error}): {:?}", text()),
        (Err(error), Ok(_)) => panic!("only the reference accepts ({error}): {:?}", text()),
    };
    assert_eq!(found.header().len(), reference.len());
    for view in found.tensors() {
        let view = view.unwrap();
        let expected = reference.tensor(view.name()).unwrap();
        assert_eq!(view.dtype().name(), expected.dtype().to_string());
        assert_eq!(view.shape(), expected.shape());
        assert_eq!(view.data().as_ptr_range(), expected.data().as_ptr_range());
    }
    let (_, reference) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
    let metadata = reference.metadata().clone().unwrap_or_default();
    assert!(
        found
            .header()
            .metadata()
            .iter()
            .eq(std::collections::BTreeMap::from_iter(&metadata))
    );
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Numbers at the edges of what fits, and values that are no numbers.
const EDGES: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "00",
    "1.0",
    "0.0",
    "1e0",
    "1E+2",
    "2e-1",
    "-0.0",
    "1.",
    ".5",
    "+1",
    "1e",
    "0x1",
    "9007199254740993",
    "2305843009213693951",
    "2305843009213693952",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551620",
    "184467440737095516150",
    "1e308",
    "1.7976931348623157e308",
    "1e309",
    "-1e309",
    "1e400",
    "1e-400",
    "0e400",
    "0.000e999999999999999999999",
    "1e-999999999999999999999",
    "1e999999999999999999999",
    "123456789012345678901234567890e290",
    "0.1e309",
    "0.00001e313",
    "100000e304",
    "true",
    "null",
    "\"1\"",
    "[]",
    "{}",
    "NaN",
    "Infinity",
];

/// JSON values of fields that nobody knows.
const UNKNOWN: &[&str] = &[
    "null",
    "true",
    "false",
    "tru",
    "nul",
    "falsey",
    "\"\"",
    "\"\\u0000\\/\\b\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ud83dx\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ude00\\ud83d\"",
    "\"\\uD800\\uDBFF\"",
    "\"\\ud800\\udbff\"",
    "\"\\ud800\\udc00\"",
    "\"\\udbff\\udfff\"",
    "\"\\ud83d\\ue000\"",
    "\"\\ud7ff\\ue000\"",
    "\"\u{7f}\u{80}\u{ffff}\"",
    "\"\t\"",
    "\"",
    "[]",
    "[1,\"a\",[{}]]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1",
    "{}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":{\"dtype\":\"U8\"}}",
    "{\"a\":1,}",
    "{\"a\"}",
    "{a:1}",
    "{1:1}",
    "{\"a\":}",
    "//",
    "1//2",
    "",
];

fn nested(choices: &mut Choices) -> String {
    let depth = 120 + choices.below(16);
    match choices.below(3) {
        0 => "[".repeat(depth) + &"]".repeat(depth),
        1 => "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth),
        _ => {
            "[{\"\":".repeat(depth / 2)
                + &"[".repeat(depth % 2)
                + &"]".repeat(depth % 2)
                + &"}]".repeat(depth / 2)
        }
    }
}

/// The pieces JSON is made of: strings, numbers, words, and single characters.
fn tokens(json: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let len = match first {
            '"' => {
                let mut escaped = false;
                let end = rest[1..].find(|c| match (escaped, c) {
                    (false, '"') => true,
                    _ => {
                        escaped = !escaped && c == '\\';
                        false
                    }
                });
                end.map_or(rest.len(), |end| end + 2)
            }
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        tokens.push(&rest[..len]);
        rest = &rest[len..];
    }
    tokens
}

/// Damages the text of a header, or only changes its form.
fn mutate_text(json: &str, choices: &mut Choices) -> String {
    let mut tokens: Vec<String> = tokens(json).into_iter().map(str::to_owned).collect();
    if tokens.is_empty() {
        return EDGES[0].to_owned();
    }
    let at = choices.below(tokens.len());
    let positions = |tokens: &[String], is: fn(&str) -> bool| -> Vec<usize> {
        let positions = 0..tokens.len();
        positions.filter(|&at| is(&tokens[at])).collect()
    };
    let numbers = positions(&tokens, |token| {
        token.starts_with(|c: char| c.is_ascii_digit())
    });
    let strings = positions(&tokens, |token| token.starts_with('"'));
    let braces = positions(&tokens, |token| token == "{");
    match choices.below(10) {
        0 if !numbers.is_empty() => tokens[choices.pick(&numbers)] = choices.pick(EDGES).into(),
        1 if !numbers.is_empty() => {
            let number = &mut tokens[choices.pick(&numbers)];
            let value: u128 = number.parse().unwrap_or(0);
            *number = match choices.one_in(2) {
                true => value + 1,
                false => value.saturating_sub(1),
            }
            .to_string();
        }
        2 if !strings.is_empty() => {
            let (one, other) = (choices.pick(&strings), choices.pick(&strings));
            tokens[one] = tokens[other].clone();
        }
        3 => {
            let other = choices.below(tokens.len());
            tokens.swap(at, other);
        }
        4 => drop(tokens.remove(at)),
        5 => tokens.insert(at, tokens[at].clone()),
        6 => tokens.insert(
            at,
            choices.pick(&[" ", "\n", "\t\r", "\u{b}", "\u{a0}"]).into(),
        ),
        // Another field, known or unknown; in the header itself it is another entry.
        7 | 8 if !braces.is_empty() => {
            let value = match choices.below(3) {
                0 => choices.pick(UNKNOWN).to_owned(),
                1 => choices.pick(EDGES).to_owned(),
                _ => nested(choices),
            };
            let keys = [
                "extra",
                "more",
                "dtype",
                "shape",
                "data_offsets",
                "__metadata__",
                "ext\\u0072a",
                "d\\u0074ype",
                "a",
                "",
            ];
            let key = choices.pick(&keys);
            let place = choices.pick(&braces) + 1;
            let comma = if tokens.get(place).is_some_and(|token| token == "}") {
                ""
            } else {
                ","
            };
            tokens.insert(place, format!("\"{key}\":{value}{comma}"));
        }
        9 => {
            let piece = [
                "[",
                "]",
                "{",
                "}",
                ",",
                ":",
                "\"",
                "\\",
                "null",
                "{\"U8\":null}",
                "[\"U8\",[],[0,1]]",
                "\"U8\"",
                "\"BOOL\"",
                "\"F4\"",
                "\"f32\"",
                "\"__metadata__\"",
                "\u{feff}",
                "0",
                "[0,0]",
            ];
            tokens[at] = choices.pick(&piece).into();
        }
        _ => {}
    }
    tokens.concat()
}

/// Damages the bytes of a file.
fn mutate_bytes(bytes: &mut Vec<u8>, choices: &mut Choices) {
    let at = choices.below(bytes.len().max(1));
    let any = match choices.one_in(4) {
        true => choices.below(256) as u8,
        false => choices.pick(b"\"\\{}[]:,.-+0123456789eu \n"),
    };
    match choices.below(6) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << choices.below(8),
        1 if !bytes.is_empty() => bytes[at] = any,
        2 => bytes.insert(at, any),
        3 if !bytes.is_empty() => drop(bytes.remove(at)),
        4 => bytes.truncate(at),
        _ => bytes.extend(std::iter::repeat_n(any, 1 + choices.below(3))),
    }
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn valid_files(tensors in tensors(), metadata in metadata(), seed: u64) {
        let (json, _) = Choices::new(seed).header(&tensors, &metadata);
        let data: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.data.clone()).collect();
        let bytes = file(&json, &data);
        prop_assert!(safetensors::SafeTensors::deserialize(&bytes).is_ok());
        compare(&bytes);
    }
}

proptest! {
    #![proptest_config(config(2500))]

    #[test]
    fn damaged_headers(
        tensors in tensors(),
        metadata in metadata(),
        seed: u64,
        mutations in 1..4_usize,
    ) {
        let mut choices = Choices::new(seed);
        let (mut json, _) = choices.header(&tensors, &metadata);
        for _ in 0..mutations {
            json = mutate_text(&json, &mut choices);
        }
        let data: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.data.clone()).collect();
        compare(&file(&json, &data));
    }

    #[test]
    fn damaged_files(
        tensors in tensors(),
        metadata in metadata(),
        seed: u64,
        mutations in 1..4_usize,
    ) {
        let mut choices = Choices::new(seed);
        let (json, _) = choices.header(&tensors, &metadata);
        let data: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.data.clone()).collect();
        let mut bytes = file(&json, &data);
        for _ in 0..mutations {
            mutate_bytes(&mut bytes, &mut choices);
        }
        compare(&bytes);
        // And with a length that fits the header again, however it was damaged.
        if bytes.len() >= 8 + data.len() {
            let len = bytes.len() - 8 - data.len();
            bytes[..8].copy_from_slice(&(len as u64).to_le_bytes());
            compare(&bytes);
        }
    }
}

proptest! {
    #![proptest_config(config(6000))]

    /// An entry of any fields and values, many of which are right.
    #[test]
    fn entries_put_together(seed: u64) {
        let mut choices = Choices::new(seed);
        let number = |choices: &mut Choices| match choices.one_in(8) {
            true => choices.pick(EDGES).to_owned(),
            false => choices.below(5).to_string(),
        };
        let mut entries = Vec::new();
        for _ in 0..choices.below(4) {
            let mut fields = Vec::new();
            let dtypes = ["\"U8\"", "\"U8\"", "\"U8\"", "\"F4\"", "\"F32\"", "{\"U8\":null}", "null"];
            fields.push(format!("\"dtype\":{}", choices.pick(&dtypes)));
            let dims: Vec<_> = (0..choices.below(3)).map(|_| number(&mut choices)).collect();
            fields.push(format!("\"shape\":[{}]", dims.join(",")));
            let offsets = [number(&mut choices), number(&mut choices)];
            fields.push(format!("\"data_offsets\":[{}]", offsets.join(",")));
            if choices.one_in(3) {
                let value = match choices.below(4) {
                    0 => nested(&mut choices),
                    1 => choices.pick(UNKNOWN).to_owned(),
                    _ => choices.pick(EDGES).to_owned(),
                };
                fields.push(format!("\"{}\":{value}", choices.pick(&["x", "y", "shape"])));
            }
            if choices.one_in(10) {
                fields.remove(choices.below(fields.len()));
            }
            choices.shuffle(&mut fields);
            let name = choices.pick(&["a", "b", "c", "d", "\\u0061", "__metadata__"]);
            entries.push(match choices.one_in(20) {
                true => format!("\"{name}\":[\"U8\",[{}],[0,1]]", dims.join(",")),
                false => format!("\"{name}\":{{{}}}", fields.join(",")),
            });
        }
        let json = format!("{{{}}}", entries.join(","));
        // As much data as the header seems to ask for, or nearly.
        let asked = st_format::Header::parse(&file(&json, b""));
        let asked = asked.map_or(choices.below(4), |header| header.data_len().min(64) as usize);
        for len in [asked, choices.below(6)] {
            compare(&file(&json, &vec![0; len]));
        }
    }
}

#[test]
fn every_edge_in_every_place() {
    for value in EDGES.iter().chain(UNKNOWN) {
        for json in [
            format!(r#"{{"a":{{"dtype":"U8","shape":[{value}],"data_offsets":[0,1]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1,{value}],"data_offsets":[0,1]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":{value},"data_offsets":[0,1]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[{value},1]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,{value}]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1,{value}]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":{value}}}}}"#),
            format!(r#"{{"a":{{"dtype":{value},"shape":[1],"data_offsets":[0,1]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{value}}}}}"#),
            format!(r#"{{"a":{{"x":[0,{value}],"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#),
            format!(
                r#"{{"a":{{"x":{{"y":{value}}},"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#
            ),
            format!(r#"{{"a":{value}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}},"b":{value}}}"#),
            format!(r#"{{"__metadata__":{value}}}"#),
            format!(r#"{{"__metadata__":{{"k":{value}}}}}"#),
            format!(r#"{{"__metadata__":{{{value}:"v"}}}}"#),
            format!(r#"{{{value}:{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#),
            (*value).to_owned(),
            format!("{{}}{value}"),
            format!("{value}{{}}"),
        ] {
            for data in [&b""[..], b"x"] {
                compare(&file(&json, data));
            }
        }
    }
}

/// Where the reference rounds on its way to f64, it refuses the last few numbers that would fit;
/// what is accepted here is accepted there.
#[test]
fn numbers_next_to_the_largest_f64() {
    let accepted = |number: &str| {
        let entry = r#""dtype":"U8","shape":[1],"data_offsets":[0,1]"#;
        let bytes = file(&format!("{{\"a\":{{{entry},\"x\":{number}}}}}"), b"x");
        let reference = safetensors::SafeTensors::deserialize(&bytes).is_ok();
        let found = SafeTensors::new(bytes).is_ok();
        assert!(reference || !found, "only the reference rejects {number}");
        found
    };
    assert!(accepted("1.797e308") && accepted("-1.797e308"));
    assert!(!accepted("1.798e308") && !accepted("-1.798e308"));
    let largest = f64::MAX.to_string();
    assert_eq!(largest.len(), 309);
    for digits in 15..=309 {
        for last in -30..=30_i128 {
            // As many digits of the largest, and a little more or less in its 15th to 20th.
            let kept = digits.min(20);
            let head = largest[..kept].parse::<i128>().unwrap() + last;
            let rest = &largest[kept..digits];
            accepted(&format!("{head}{rest}e{}", 309 - digits));
            accepted(&format!("-{head}{rest}{}", "0".repeat(309 - digits)));
            accepted(&format!("0.{head}{rest}e309"));
            accepted(&format!("{head}{rest}00.00e{}", 307 - digits.min(307)));
        }
    }
}

#[test]
fn every_depth_about_the_limit() {
    let mut accepted = Vec::new();
    for depth in 115..140 {
        for value in [
            "[".repeat(depth) + &"]".repeat(depth),
            "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth),
        ] {
            let entry = format!(r#""dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{value}"#);
            let bytes = file(&format!("{{\"a\":{{{entry}}}}}"), b"x");
            compare(&bytes);
            if SafeTensors::new(bytes).is_ok() {
                accepted.push(depth);
            }
            compare(&file(
                &format!("{{\"__metadata__\":{{\"k\":{value}}}}}"),
                b"",
            ));
            compare(&file(&format!("{{\"a\":{value}}}"), b""));
        }
    }
    assert_eq!(
        accepted.iter().max(),
        Some(&125),
        "127 levels with the two around"
    );
}
