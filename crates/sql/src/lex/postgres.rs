//! Tokens of PostgreSQL, with exact boundaries.
//!
//! If a token ended at another place than for the server, a quote could move, and with it the meaning of all that follows. So this scanner follows
//! the server's `scan.l` rule by rule, under `standard_conforming_strings = on`. Texts of sessions with it off are rewritten first:
//! [`with_escapes_marked`]. The scanner never fails: text that the server would refuse becomes some token, and the SQL parser or the server refuses
//! it later.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An unquoted identifier or keyword.
    Word,
    /// `"identifier"`
    Quoted,
    /// `$n`; the number is capped at 65536. 0 stands for `?`, which the lexer numbers.
    Param(u32),
    /// `@name`, `@@name`: a variable of MySQL.
    Variable,
    /// `/*+ hint */` of MySQL.
    Hint,
    /// Decimal digits with an optional point and exponent; nothing behind them changes their meaning.
    Number,
    /// `0x1F`, `1_000`, `1a`, `1..`: different server versions read these differently.
    OddNumber,
    /// `'text'` in one piece.
    Text,
    /// Any other string constant: escapes, continuation over lines, dollar quotes, bits, national.
    OpaqueText,
    /// One byte of an operator, a parenthesis or other punctuation.
    Symbol(u8),
    /// A quote, comment, hint or `U&"identifier"` that cannot be analysed further.
    Hopeless,
}

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// White space or a comment precedes it.
    pub(crate) spaced: bool,
}

/// Splits a text into tokens.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// `standard_conforming_strings = off`: a backslash in a string constant is an escape.
    escapes: bool,
}

/// The same text for `standard_conforming_strings = on`, except for the type of national strings: string constants with a backslash get the prefix
/// `E`.
pub fn with_escapes_marked(text: &str) -> String {
    let mut marked = String::with_capacity(text.len() + 16);
    let mut scanner = Scanner { escapes: true, ..Scanner::new(text) };
    let mut copied = 0;
    while let Some(token) = scanner.next() {
        let begin = scanner.at - token.text.len();
        let quote = match (token.kind, token.text.as_bytes()) {
            (Kind::Text | Kind::OpaqueText, [b'\'', ..]) => 0,
            (Kind::OpaqueText, [b'n' | b'N', b'\'', ..]) => 1,
            _ => continue,
        };
        if token.text.contains('\\') {
            marked.push_str(text.get(copied..begin).unwrap_or_default());
            marked.push_str(" E");
            copied = begin + quote;
        }
    }
    marked.push_str(text.get(copied..).unwrap_or_default());
    marked
}

pub(crate) fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

pub(crate) fn is_word_part(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit() || byte == b'$'
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, escapes: false }
    }

    /// The text that is not yet split.
    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// The first position from `at` on whose byte is not `wanted`.
    fn skip_while_at(&self, at: usize, wanted: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        at + rest.iter().position(|b| !wanted(*b)).unwrap_or(rest.len())
    }

    /// Whether the bytes at that position start with `wanted`.
    fn looking_at(&self, at: usize, wanted: &[u8]) -> bool {
        self.text.as_bytes().get(at..).is_some_and(|rest| rest.starts_with(wanted))
    }

    /// Skips white space and comments. Err: a comment that does not end.
    fn blank(&mut self) -> Result<(), ()> {
        loop {
            self.at = self.skip_while_at(self.at, is_space);
            if self.looking_at(self.at, b"--") {
                self.at = self.skip_while_at(self.at, |b| b != b'\n' && b != b'\r');
            } else if self.looking_at(self.at, b"/*") {
                self.at = self.block_comment(self.at).ok_or(())?;
            } else {
                return Ok(());
            }
        }
    }

    fn block_comment(&self, start: usize) -> Option<usize> {
        let mut depth = 0usize;
        let mut at = start;
        loop {
            match (self.byte(at)?, self.byte(at + 1)) {
                (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
                (b'*', Some(b'/')) => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
            if depth == 0 {
                return Some(at);
            }
        }
    }

    /// The end of a string constant whose contents start at `at`, and whether it continues over lines.
    fn string_end(&self, mut at: usize, escapes: bool) -> Option<(usize, bool)> {
        let mut continued = false;
        loop {
            match self.byte(at)? {
                b'\\' if escapes => at += 2,
                b'\'' if self.byte(at + 1) == Some(b'\'') => at += 2,
                b'\'' => match self.continuation(at + 1) {
                    Some(next) => (at, continued) = (next, true),
                    None => return Some((at + 1, continued)),
                },
                _ => at += 1,
            }
        }
    }

    /// A constant continues after white space with a line break in it (line comments count) and another quote.
    fn continuation(&self, from: usize) -> Option<usize> {
        let mut at = from;
        let mut line_break = false;
        loop {
            let end = self.skip_while_at(at, is_space);
            let blank = self.text.as_bytes().get(at..end).unwrap_or_default();
            line_break |= blank.iter().any(|b| matches!(b, b'\n' | b'\r'));
            at = end;
            if self.looking_at(at, b"--") {
                at = self.skip_while_at(at, |b| b != b'\n' && b != b'\r');
            } else {
                return (line_break && self.byte(at) == Some(b'\'')).then_some(at + 1);
            }
        }
    }

    fn quoted_end(&self, mut at: usize) -> Option<usize> {
        loop {
            match self.byte(at)? {
                b'"' if self.byte(at + 1) == Some(b'"') => at += 2,
                b'"' => return Some(at + 1),
                _ => at += 1,
            }
        }
    }

    fn token(&self, start: usize, first: u8) -> (Kind, usize) {
        let all = self.text.len();
        match first {
            b'\'' => match self.string_end(start + 1, self.escapes) {
                Some((end, false)) => (Kind::Text, end),
                Some((end, true)) => (Kind::OpaqueText, end),
                None => (Kind::Hopeless, all),
            },
            b'"' => self.quoted_end(start + 1).map_or((Kind::Hopeless, all), |end| (Kind::Quoted, end)),
            b'$' => self.dollar(start),
            b'0'..=b'9' => self.number(start),
            b'.' if self.byte(start + 1).is_some_and(|b| b.is_ascii_digit()) => self.number(start),
            _ if is_word_start(first) => self.word(start, first),
            _ => (Kind::Symbol(first), start + 1),
        }
    }

    fn word(&self, start: usize, first: u8) -> (Kind, usize) {
        let prefixed = match (first, self.byte(start + 1)) {
            (b'e' | b'E', Some(b'\'')) => self.string_end(start + 2, true),
            (b'n' | b'N', Some(b'\'')) => self.string_end(start + 2, self.escapes),
            (b'b' | b'B' | b'x' | b'X', Some(b'\'')) => self.string_end(start + 2, false),
            (b'u' | b'U', Some(b'&')) => match self.byte(start + 2) {
                Some(b'\'') => self.string_end(start + 3, false),
                Some(b'"') => return (Kind::Hopeless, self.quoted_end(start + 3).unwrap_or(self.text.len())),
                _ => return (Kind::Word, start + 1),
            },
            _ => return (Kind::Word, self.skip_while_at(start, is_word_part)),
        };
        prefixed.map_or((Kind::Hopeless, self.text.len()), |(end, _)| (Kind::OpaqueText, end))
    }

    fn dollar(&self, start: usize) -> (Kind, usize) {
        let body = start + 1;
        let digits = self.skip_while_at(body, |b| b.is_ascii_digit());
        if digits > body {
            let number = self.text.get(body..digits).and_then(|d| d.parse().ok()).unwrap_or(u32::MAX);
            return (Kind::Param(number.min(1 << 16)), digits);
        }
        let named = self.byte(body).is_some_and(is_word_start);
        let tag = if named { self.skip_while_at(body, |b| is_word_part(b) && b != b'$') } else { body };
        if self.byte(tag) != Some(b'$') {
            return (Kind::Symbol(b'$'), body);
        }
        let delimiter = self.text.get(start..=tag).unwrap_or_default();
        match self.text.get(tag + 1..).and_then(|rest| rest.find(delimiter)) {
            Some(content) => (Kind::OpaqueText, tag + 1 + content + delimiter.len()),
            None => (Kind::Hopeless, self.text.len()),
        }
    }

    fn number(&self, start: usize) -> (Kind, usize) {
        let digit = |b: u8| b.is_ascii_digit();
        let mut end = self.skip_while_at(start, digit);
        if self.byte(end) == Some(b'.') && self.byte(end + 1) != Some(b'.') {
            end = self.skip_while_at(end + 1, digit);
        }
        if matches!(self.byte(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(end + 1), Some(b'+' | b'-')));
            let exponent = self.skip_while_at(end + 1 + sign, digit);
            if exponent > end + 1 + sign {
                end = exponent;
            }
        }
        let odd = self.byte(end).is_some_and(|b| is_word_part(b) || b == b'.');
        (if odd { Kind::OddNumber } else { Kind::Number }, end)
    }
}

impl<'a> Iterator for Scanner<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let before = self.at;
        let ended = self.blank();
        let spaced = self.at > before;
        let start = self.at;
        let (kind, end) = match (ended, self.byte(start)) {
            (_, None) => return None,
            (Err(()), _) => (Kind::Hopeless, self.text.len()),
            (Ok(()), Some(first)) => self.token(start, first),
        };
        self.at = end.min(self.text.len());
        // All boundaries are at ASCII bytes or at the end; an escape before a multi-byte character is the exception.
        let text = self.text.get(start..self.at);
        let Some(text) = text else {
            self.at = self.text.len();
            return Some(Token { kind: Kind::Hopeless, text: self.text.get(start..)?, spaced });
        };
        Some(Token { kind, text, spaced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_marked_where_a_backslash_escapes() {
        for (text, marked) in [
            (r"select 'a', E'\n', 1", r"select 'a', E'\n', 1"),
            (r"select 'a\'b', 'c'", r"select  E'a\'b', 'c'"),
            (r"select '\'; drop table t; --'", r"select  E'\'; drop table t; --'"),
            (r"select'a\\''', n'\'', x'a\'", r"select E'a\\''',  E'\'', x'a\'"),
            ("select 'a'\n'\\'', 'b'", "select  E'a'\n'\\'', 'b'"),
            (r#"select "a\", $$\'$$, '\é' -- '\"#, r#"select "a\", $$\'$$,  E'\é' -- '\"#),
            (r"select 'a\'", r"select 'a\'"),
        ] {
            assert_eq!(with_escapes_marked(text), marked, "{text}");
        }
    }
}
