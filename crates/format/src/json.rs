//! JSON syntax, read in one pass without building a tree.
//!
//! Headers and indexes are both read through [`Cursor`]. It accepts exactly RFC 8259, with the
//! nesting limit of the reference implementation's parser (`serde_json`: 127 levels), and knows
//! nothing about what the values mean.

use std::borrow::Cow;

use crate::error::Escaped;

/// What serde_json allows; deeper values are refused there, and so here.
const MAX_DEPTH: u32 = 127;

/// A place in the text and what is wrong there.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    pub(crate) message: Cow<'static, str>,
}

type Result<T> = std::result::Result<T, SyntaxError>;

/// A position in JSON text that moves forward over values.
///
/// Objects and arrays are read by `open`, then `next_key` or `next_item` until it says there is
/// no more, each followed by reading exactly one value.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Cursor { text, at: 0 }
    }

    /// The byte offset of the next character.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space and looks at the next byte.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        match self.byte() {
            Some(..=b' ') => self.peek_after_space(),
            other => other,
        }
    }

    fn peek_after_space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// An error at the current position: `expected`, and what stands there instead.
    #[cold]
    pub(crate) fn expected(&self, expected: &str) -> SyntaxError {
        let token = self.token();
        let found = match token.chars().next() {
            None => "the end".to_owned(),
            Some(c) if token.len() == c.len_utf8() && !c.is_alphanumeric() => format!("{c:?}"),
            Some(_) => Escaped(token).to_string(),
        };
        SyntaxError {
            at: self.at,
            message: format!("expected {expected}, found {found}").into(),
        }
    }

    /// What stands here, as far as it belongs together and fits a line.
    fn token(&self) -> &'a str {
        const LONGEST: usize = 24;
        let rest = &self.text[self.at..];
        let ends = |c: char| !(c.is_alphanumeric() || "+-._\"'".contains(c));
        let len = match rest.find(ends) {
            Some(0) => rest.chars().next().map_or(0, char::len_utf8),
            Some(len) => len,
            None => rest.len(),
        };
        let longest = rest.char_indices().nth(LONGEST).map_or(len, |(at, _)| at);
        &rest[..len.min(longest)]
    }

    #[cold]
    fn error(&self, message: &'static str) -> SyntaxError {
        SyntaxError {
            at: self.at,
            message: message.into(),
        }
    }

    /// Steps into an object or array, whose first byte is `bracket`.
    #[inline(always)]
    pub(crate) fn open(&mut self, bracket: u8, expected: &str) -> Result<()> {
        if self.peek() != Some(bracket) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Moves to the next member, or past `close` when there is none. `first` is true before the
    /// first member and is cleared.
    #[inline(always)]
    fn next(&mut self, first: &mut bool, close: u8, expected: &str) -> Result<bool> {
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if std::mem::take(first) => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// The next key of an object, with its colon read, or `None` after the closing brace.
    #[inline(always)]
    pub(crate) fn next_key(&mut self, first: &mut bool) -> Result<Option<Cow<'a, str>>> {
        match self.next_member(first)? {
            true => self.key().map(Some),
            false => Ok(None),
        }
    }

    /// Whether another member of an object follows; false after the closing brace.
    #[inline(always)]
    pub(crate) fn next_member(&mut self, first: &mut bool) -> Result<bool> {
        self.next(first, b'}', "',' or '}'")
    }

    /// A key, with its colon.
    #[inline(always)]
    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>> {
        let key = self.string("a key in quotes")?;
        if self.peek() != Some(b':') {
            return Err(self.expected("':'"));
        }
        self.at += 1;
        Ok(key)
    }

    /// Reads `text` if that is what stands here, to the letter.
    #[inline(always)]
    pub(crate) fn exactly(&mut self, text: &str) -> bool {
        let is_here = self.text.as_bytes()[self.at..].starts_with(text.as_bytes());
        self.at += if is_here { text.len() } else { 0 };
        is_here
    }

    /// Whether another item of an array follows; false after the closing bracket.
    #[inline(always)]
    pub(crate) fn next_item(&mut self, first: &mut bool) -> Result<bool> {
        self.next(first, b']', "',' or ']'")
    }

    /// A string, borrowed from the text where it holds no escape.
    #[inline(always)]
    pub(crate) fn string(&mut self, expected: &str) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.expected(expected));
        }
        self.at += 1;
        let start = self.at;
        self.skip_plain_characters();
        if self.byte() == Some(b'"') {
            let string = &self.text[start..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(string));
        }
        self.string_with_escapes(start).map(Cow::Owned)
    }

    /// Moves to the next quote, backslash or control character, or to the end.
    #[inline(always)]
    fn skip_plain_characters(&mut self) {
        // Eight bytes at a time: names are long and make up most of a header.
        while let Some(eight) = self.text.as_bytes()[self.at..].first_chunk() {
            match first_special(u64::from_le_bytes(*eight)) {
                Some(at) => return self.at += at,
                None => self.at += eight.len(),
            }
        }
        while self
            .byte()
            .is_some_and(|byte| byte >= 0x20 && !matches!(byte, b'"' | b'\\'))
        {
            self.at += 1;
        }
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize) -> Result<String> {
        let mut string = self.text[start..self.at].to_owned();
        loop {
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => {
                    self.at += 1;
                    string.push(self.escape()?);
                }
                Some(_) => return Err(self.error("control character in a string")),
                None => return Err(self.expected("'\"'")),
            }
            let plain = self.at;
            self.skip_plain_characters();
            string.push_str(&self.text[plain..self.at]);
        }
    }

    /// The character an escape stands for; the backslash is already read.
    fn escape(&mut self) -> Result<char> {
        let Some(byte) = self.byte() else {
            return Err(self.expected("an escape"));
        };
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.four_hex_digits()?;
                let code = match first {
                    0xD800..0xDC00 => {
                        if !self.text[self.at..].starts_with("\\u") {
                            return Err(self.error("lone surrogate in a string"));
                        }
                        self.at += 2;
                        let second = self.four_hex_digits()?;
                        if !(0xDC00..0xE000).contains(&second) {
                            return Err(self.error("lone surrogate in a string"));
                        }
                        0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
                    }
                    code => code,
                };
                char::from_u32(code).ok_or_else(|| self.error("lone surrogate in a string"))?
            }
            _ => {
                self.at -= 1;
                return Err(self.expected("an escape character"));
            }
        })
    }

    fn four_hex_digits(&mut self) -> Result<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let value = digits.and_then(|digits| {
            digits.iter().try_fold(0, |value, &digit| {
                Some(value * 16 + char::from(digit).to_digit(16)?)
            })
        });
        let value = value.ok_or_else(|| self.error("expected four hexadecimal digits"))?;
        self.at += 4;
        Ok(value)
    }

    /// A whole number from 0 to `u64::MAX`, written in plain digits.
    #[inline(always)]
    pub(crate) fn whole_number(&mut self) -> Result<u64> {
        self.peek();
        let rest = &self.text.as_bytes()[self.at..];
        let mut value: u64 = 0;
        let mut digits = 0;
        while let Some(digit @ b'0'..=b'9') = rest.get(digits) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            digits += 1;
        }
        let leading_zero = digits > 1 && rest[0] == b'0';
        if digits == 0 || leading_zero || matches!(rest.get(digits), Some(b'.' | b'e' | b'E')) {
            return Err(self.expected("a whole number"));
        }
        let always_fit = u64::MAX.ilog10() as usize;
        if digits > always_fit && self.text[self.at..][..digits].parse::<u64>().is_err() {
            return Err(self.error("number does not fit 64 bits"));
        }
        self.at += digits;
        Ok(value)
    }

    /// Reads `null` if that is what stands here.
    pub(crate) fn null(&mut self) -> Result<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.literal("null").map(|()| true)
    }

    fn literal(&mut self, literal: &str) -> Result<()> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(self.expected("a JSON value"));
        }
        self.at += literal.len();
        Ok(())
    }

    /// Checks that nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("nothing after the closing '}'")),
        }
    }

    /// Reads a value of any kind and returns its text.
    pub(crate) fn value(&mut self, depth: u32) -> Result<&'a str> {
        self.peek();
        let start = self.at;
        self.skip_value(depth)?;
        Ok(&self.text[start..self.at])
    }

    /// Reads a value of any kind and drops it. `depth` is how many objects and arrays it stands
    /// in. Nesting is counted, not recursed into, so that no input exhausts the stack.
    pub(crate) fn skip_value(&mut self, depth: u32) -> Result<()> {
        // One bit a level: whether it is an object. MAX_DEPTH levels fit.
        let mut objects: u128 = 0;
        let mut level: u32 = 0;
        loop {
            // A value stands here.
            let mut first = false;
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    self.at += 1;
                    level += 1;
                    if depth + level > MAX_DEPTH {
                        return Err(self.error("nested more than 127 levels deep"));
                    }
                    objects = objects << 1 | u128::from(bracket == b'{');
                    first = true;
                }
                Some(b'"') => drop(self.string("a string")?),
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                Some(b'-' | b'0'..=b'9') => self.skip_number()?,
                _ => return Err(self.expected("a JSON value")),
            }
            // Close what ends here, and move to the next value, if any.
            loop {
                if level == 0 {
                    return Ok(());
                }
                let more = match objects & 1 {
                    1 => self.next_key(&mut first)?.is_some(),
                    _ => self.next_item(&mut first)?,
                };
                if more {
                    break;
                }
                objects >>= 1;
                level -= 1;
                first = false;
            }
        }
    }

    fn skip_number(&mut self) -> Result<()> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.byte() == Some(b'0');
        let whole = self.skip_digits()?;
        if leading_zero && whole > 1 {
            self.at = start;
            return Err(self.expected("a number without leading zeros"));
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        // The reference's parser turns numbers into f64 and refuses those that do not fit. It
        // rounds on the way, so that it may refuse the last few that would.
        const LARGEST: f64 = 1.797_693_134_862_315e308;
        match self.text[start..self.at].parse::<f64>() {
            Ok(number) if number.abs() <= LARGEST => Ok(()),
            _ => Err(self.error("number out of range")),
        }
    }

    fn skip_digits(&mut self) -> Result<usize> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
        match self.at - start {
            0 => Err(self.expected("a digit")),
            digits => Ok(digits),
        }
    }
}

/// Which of eight bytes, the lowest first, is the first quote, backslash or control character.
#[inline]
fn first_special(eight: u64) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xFF;
    // The highest bit of each byte that is below `limit`, as long as that is at most 0x80. A
    // borrow can only spoil bytes above the first one found.
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes & (ONES * 0x80);
    let equal = |byte: u8| below(eight ^ (ONES * u64::from(byte)), 1);
    let special = below(eight, 0x20) | equal(b'"') | equal(b'\\');
    (special != 0).then(|| special.trailing_zeros() as usize / 8)
}
