//! Text from files, made safe to show: nothing that moves a cursor, hides or reorders.

use std::borrow::Cow;
use std::iter;

/// Whether a character does something to a terminal or to the text around it instead of being
/// seen: control characters (the C1 ones too, which some terminals obey), and the invisible ones
/// that order, join or end text.
pub(crate) fn is_unseen(c: char) -> bool {
    match c {
        ' '..='~' => false,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => true,
        _ => c.is_control(),
    }
}

/// The text with unseen characters written as `\n` or `\u{1b}`.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    match text.contains(is_unseen) {
        true => text.chars().flat_map(escape_char).collect(),
        false => Cow::Borrowed(text),
    }
}

/// The start of the text, escaped, at most `longest` characters long; and how long the text is
/// where that is not all of it.
pub(crate) fn cut(text: &str, longest: usize) -> String {
    let mut cut = String::new();
    let mut room = longest;
    for c in text.chars() {
        let width = escape_char(c).count();
        if width > room {
            return format!("{cut}… ({} bytes)", text.len());
        }
        room -= width;
        cut.extend(escape_char(c));
    }
    cut
}

/// A name as it is where that cannot mislead, and otherwise in quotes, with escapes.
pub(crate) fn name(name: &str) -> Cow<'_, str> {
    let needs_backslash = |c| matches!(c, '"' | '\\');
    // Empty, or with spaces that the columns around it would swallow.
    let blends_in = name.split(' ').any(str::is_empty) || name.trim() != name;
    let misleads = blends_in || name.contains(|c| needs_backslash(c) || is_unseen(c));
    if !misleads {
        return Cow::Borrowed(name);
    }
    let escaped = name.chars().flat_map(|c| {
        let backslash = needs_backslash(c).then_some('\\');
        backslash.into_iter().chain(escape_char(c))
    });
    iter::once('"').chain(escaped).chain(['"']).collect()
}

fn escape_char(c: char) -> impl Iterator<Item = char> {
    let (shown, escaped) = match is_unseen(c) {
        true => (None, Some(c.escape_default())),
        false => (Some(c), None),
    };
    shown.into_iter().chain(escaped.into_iter().flatten())
}
