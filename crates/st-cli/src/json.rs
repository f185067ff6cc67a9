//! JSON that is safe to show: what is unseen is escaped, also where JSON itself would not ask
//! for it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::escape::is_unseen;

/// Writes a value and ends the line.
pub(crate) fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, Visible))?;
    writeln!(out)
}

/// serde_json's compact style, except that strings hold no unseen character.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let mut rest = fragment;
        while let Some((plain, unseen)) = split_at_unseen(rest) {
            out.write_all(plain.as_bytes())?;
            for unit in unseen.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[plain.len() + unseen.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

/// The text before the first unseen character, and that character.
fn split_at_unseen(text: &str) -> Option<(&str, char)> {
    let (at, unseen) = text.char_indices().find(|&(_, c)| is_unseen(c))?;
    Some((&text[..at], unseen))
}
