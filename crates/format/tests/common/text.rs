//! Headers of any form: the same tensors in any order of entries and fields, with white space and
//! escapes wherever JSON allows them.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::{Tensor, counting};
use st_format::Dtype;

/// Choices made by a seed, where it does not matter which they are.
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Choices {
        Choices(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    /// White space, mostly none.
    fn space(&mut self) -> &'static str {
        match self.one_in(4) {
            true => self.pick(&[" ", "\n", "\t", "\r\n", "    "]),
            false => "",
        }
    }

    /// A string in quotes, in which any character may be escaped.
    fn string(&mut self, string: &str) -> String {
        let mut text = "\"".to_owned();
        for c in string.chars() {
            let short = "\"\\/\u{8}\u{c}\n\r\t".find(c).map(|at| match c {
                '"' | '\\' | '/' => c,
                _ => b"bfnrt"[at - 3] as char,
            });
            let must_escape = c < ' ' || c == '"' || c == '\\';
            match short {
                _ if !must_escape && !self.one_in(5) => text.push(c),
                Some(short) if !self.one_in(3) => text.extend(['\\', short]),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        text += &match self.one_in(2) {
                            true => format!("\\u{unit:04x}"),
                            false => format!("\\u{unit:04X}"),
                        };
                    }
                }
            }
        }
        text + "\""
    }

    /// Values one after the other, with commas and white space.
    fn members(&mut self, open: char, members: Vec<String>, close: char) -> String {
        let mut text = open.to_string();
        for (at, member) in members.iter().enumerate() {
            text += if at == 0 { "" } else { "," };
            text += self.space();
            text += member;
            text += self.space();
        }
        text += self.space();
        text.push(close);
        text
    }

    fn member(&mut self, key: &str, value: &str) -> String {
        let (key, before, after) = (self.string(key), self.space(), self.space());
        format!("{key}{before}:{after}{value}")
    }

    /// The header of the tensors, which lie in the file one after the other, and the order in
    /// which it names them.
    pub(crate) fn header(
        &mut self,
        tensors: &[Tensor],
        metadata: &Option<BTreeMap<String, String>>,
    ) -> (String, Vec<usize>) {
        let mut end = 0;
        let ranges: Vec<_> = tensors
            .iter()
            .map(|tensor| {
                let begin = end;
                end += tensor.data.len();
                (begin, end)
            })
            .collect();
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        self.shuffle(&mut order);
        let mut members: Vec<String> = Vec::new();
        for &at in &order {
            let tensor = &tensors[at];
            let dims = tensor.shape.iter().map(|dim| dim.to_string()).collect();
            let offsets = vec![ranges[at].0.to_string(), ranges[at].1.to_string()];
            let (dtype, shape) = (
                self.string(tensor.dtype.name()),
                self.members('[', dims, ']'),
            );
            let offsets = self.members('[', offsets, ']');
            let mut fields = vec![
                self.member("dtype", &dtype),
                self.member("shape", &shape),
                self.member("data_offsets", &offsets),
            ];
            self.shuffle(&mut fields);
            let entry = self.members('{', fields, '}');
            members.push(self.member(&tensor.name, &entry));
        }
        if let Some(metadata) = metadata {
            let texts = metadata.iter().map(|(key, value)| {
                let value = self.string(value);
                self.member(key, &value)
            });
            let texts = texts.collect();
            let value = self.members('{', texts, '}');
            let place = self.below(members.len() + 1);
            let member = self.member("__metadata__", &value);
            members.insert(place, member);
        }
        let text = self.members('{', members, '}');
        (format!("{}{text}{}", self.space(), self.space()), order)
    }
}

/// Names with whatever characters there are, and some that are easily mistaken.
fn name() -> impl Strategy<Value = String> {
    let odd = [
        "",
        "a",
        "b",
        " ",
        "\0",
        "\u{7f}",
        "\"",
        "\\",
        "\\u0061",
        "/",
        "é",
        "e\u{301}",
        "\u{ffff}",
        "\u{10000}",
        "😀",
        "metadata",
        "__metadata__ ",
        "dtype",
        "shape",
        "data_offsets",
    ];
    prop_oneof![
        "[a-z]{1,8}(\\.[0-9]{1,2}){0,2}\\.(weight|bias)",
        proptest::sample::select(odd.to_vec()).prop_map(str::to_owned),
        any::<String>(),
    ]
}

/// Up to eight small tensors, some of them of no bytes.
pub(crate) fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let dtype = proptest::sample::select(Dtype::ALL);
    let shape = vec(prop_oneof![1 => Just(0_usize), 6 => 1..5_usize], 0..5);
    btree_map(name(), (dtype, shape, any::<u64>()), 0..8).prop_map(|tensors| {
        let mut tensors: Vec<_> = tensors.into_iter().collect();
        // By a number of their own, so that the names' order means nothing.
        tensors.sort_by_key(|(_, (.., order))| *order);
        let tensor = |(name, (dtype, mut shape, _)): (String, (Dtype, Vec<usize>, u64))| {
            let bits = shape.iter().product::<usize>() * dtype.bits() as usize;
            if !bits.is_multiple_of(8) {
                shape.push(4);
            }
            let len = shape.iter().product::<usize>() * dtype.bits() as usize / 8;
            Tensor::new(&name, dtype, &shape, counting(len))
        };
        tensors.into_iter().map(tensor).collect()
    })
}

pub(crate) fn metadata() -> impl Strategy<Value = Option<BTreeMap<String, String>>> {
    proptest::option::of(btree_map(any::<String>(), any::<String>(), 0..4))
}
