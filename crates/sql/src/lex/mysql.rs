//! Tokens of MySQL and MariaDB, with exact boundaries.
//!
//! If a token ended at another place than for the server, a quote could move, and with it the meaning of all that follows. So this scanner follows
//! the servers' `sql_lex.cc` rule by rule, under the session's [`Modes`], for sessions whose client character set is UTF-8, ASCII or binary. It never
//! fails: text that the servers may read in two ways (a hint, a NUL byte) ends the analysis as [`Kind::Hopeless`]. An executable comment is code or
//! a comment by the server's [`Version`].
//!
//! A normalized query is read by the same rules. In it, `$n` is a [`Kind::Word`], and the lexer writes an identifier of this form in backquotes, so
//! that no text can imitate a placeholder.

use super::literal::LiteralKind;
use super::postgres::{Kind, Token};

/// The prefix of a string of bytes.
const BINARY: &str = "_binary";

/// What decides how a text is read: flags of `sql_mode`, and the server's version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// ANSI_QUOTES: `"` quotes names, in which a backslash is an ordinary character.
    pub ansi_quotes: bool,
    /// NO_BACKSLASH_ESCAPES: `\` does not escape.
    pub plain_backslash: bool,
    /// PIPES_AS_CONCAT: `||` joins texts, and otherwise means OR. None: unknown.
    pub pipes_concat: Option<bool>,
    /// None: unknown.
    pub version: Option<Version>,
}

impl Modes {
    /// No flag is set, and the others are unknown.
    pub const NONE: Self = Self { ansi_quotes: false, plain_backslash: false, pipes_concat: None, version: None };

    /// The modes, as far as they change the meaning of a text.
    #[must_use]
    pub fn within(self, text: &[u8]) -> Self {
        let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
        Self {
            pipes_concat: self.pipes_concat.filter(|_| text.contains(&b'|') && has(b"||")),
            version: self.version.filter(|_| text.contains(&b'!') && (has(b"/*!") || has(b"/*M!"))),
            ansi_quotes: self.ansi_quotes && text.contains(&b'"'),
            plain_backslash: self.plain_backslash && text.contains(&b'\\'),
        }
    }

    /// The flags that concern quotes.
    #[must_use]
    pub fn quotes(self) -> Self {
        Self { pipes_concat: None, version: None, ..self }
    }
}

/// A server's version, by which it reads executable comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// MariaDB rather than MySQL.
    pub is_mariadb: bool,
    /// In the form of these comments: 80015 for 8.0.15, 101106 for 10.11.6.
    pub number: u32,
}

/// The highest version of an executable comment that every supported server runs; MariaDB takes higher ones for MySQL's.
pub(crate) const RUN_BY_ALL: u32 = 50_699;
/// The highest version that may be MySQL's own.
const MYSQL_MAX: u32 = 99_999;

impl Version {
    /// Whether the server runs a comment of this version.
    fn runs(self, number: u32, for_mariadb: bool) -> bool {
        let is_for_mysql = self.is_mariadb && !for_mariadb && number > RUN_BY_ALL && number <= MYSQL_MAX;
        number <= self.number && !is_for_mysql
    }
}

/// An executable comment, `/*! … */`, `/*!80000 … */` or `/*M! … */`.
enum Executable {
    /// Its code starts here.
    Code(usize),
    /// It is a comment that ends here.
    Comment(usize),
}

/// How a session, or the creator of a routine, quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// By these modes.
    Known(Modes),
    /// Unknown.
    Unknown,
}

impl Quoting {
    /// `'` and `"` begin strings, in which a backslash escapes.
    pub const STANDARD: Self = Self::Known(Modes::NONE);

    pub(crate) fn quotes_names(self, byte: u8) -> bool {
        byte == b'`' || matches!(self, Self::Known(Modes { ansi_quotes: true, .. })) && byte == b'"'
    }

    pub(crate) fn escapes(self) -> bool {
        !matches!(self, Self::Known(Modes { plain_backslash: true, .. }))
    }
}

/// Splits a text into tokens.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    modes: Modes,
    at: usize,
    /// The previous token ended at this position and was a name or a number: a point here continues it.
    name_end: Option<usize>,
    /// In an executable comment.
    is_inside: bool,
}

pub(crate) fn is_word_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// Whether a word is a placeholder of a normalized query.
pub(crate) fn is_placeholder(word: &str) -> bool {
    word.strip_prefix('$').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 0x09..=0x0d)
}

impl<'a> Scanner<'a> {
    pub(crate) fn under(modes: Modes, text: &'a str) -> Self {
        Self { text, modes, at: 0, name_end: None, is_inside: false }
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

    /// The position of `byte` from `at` on. None also if a NUL comes first, at which the server ends a comment.
    fn find(&self, at: usize, byte: u8) -> Option<usize> {
        let found = self.skip_while_at(at, |b| b != byte && b != 0);
        (self.byte(found) == Some(byte)).then_some(found)
    }

    /// The position behind white space and comments from `at` on, and whether it is in an executable comment. Err: a comment that may contain code.
    fn blank(&self, mut at: usize) -> Result<(usize, bool), ()> {
        let mut is_inside = self.is_inside;
        loop {
            at = self.skip_while_at(at, is_space);
            let line = match (self.byte(at), self.byte(at + 1), self.byte(at + 2)) {
                (Some(b'#'), _, _) => true,
                (Some(b'-'), Some(b'-'), next) => next.is_none_or(|b| is_space(b) || b.is_ascii_control()),
                // Versions differ in how they end a comment in an executable one.
                (Some(b'/'), Some(b'*'), _) if is_inside => return Err(()),
                (Some(b'/'), Some(b'*'), next) => {
                    let is_maria = next == Some(b'M') && self.byte(at + 3) == Some(b'!');
                    at = match next {
                        None => return Err(()),
                        Some(b'+') => return Ok((at, false)), // a hint is a token
                        Some(b'!' | b'M') if next == Some(b'!') || is_maria => {
                            match self.executable(at + 2).ok_or(())? {
                                Executable::Code(start) => {
                                    is_inside = true;
                                    start
                                }
                                Executable::Comment(end) => end,
                            }
                        }
                        Some(_) => self.block_comment(at + 2).ok_or(())?,
                    };
                    continue;
                }
                (Some(b'*'), Some(b'/'), _) if is_inside => {
                    (at, is_inside) = (at + 2, false);
                    continue;
                }
                _ => false,
            };
            if !line {
                return Ok((at, is_inside));
            }
            at = match self.find(at, b'\n') {
                Some(end) => end,
                None if self.text.as_bytes().get(at..).is_some_and(|rest| rest.contains(&0)) => return Err(()),
                None => self.text.len(),
            };
        }
    }

    /// How the server reads the executable comment whose `!` or `M!` is at this position. None: unknown.
    fn executable(&self, at: usize) -> Option<Executable> {
        let for_mariadb = self.byte(at) == Some(b'M');
        if for_mariadb && !self.modes.version?.is_mariadb {
            return self.block_comment(at).map(Executable::Comment);
        }
        let start = at + 1 + usize::from(for_mariadb);
        let end = self.skip_while_at(start, |b| b.is_ascii_digit());
        let number: u32 = match end - start {
            // Fewer digits are code.
            0..=4 => return Some(Executable::Code(start)),
            5 | 6 => self.text.get(start..end)?.parse().ok()?,
            _ => return None,
        };
        let runs = match self.modes.version {
            // Later versions of MySQL read six.
            Some(version) if version.is_mariadb || end == start + 5 => version.runs(number, for_mariadb),
            None if number <= RUN_BY_ALL && end == start + 5 => true,
            _ => return None,
        };
        if runs {
            return Some(Executable::Code(end));
        }
        let behind = self.block_comment(end)?;
        let is_nested = self.text.get(end..behind)?.contains("/*");
        (!is_nested).then_some(Executable::Comment(behind))
    }

    fn block_comment(&self, mut at: usize) -> Option<usize> {
        loop {
            at = self.find(at, b'*')? + 1;
            if self.byte(at) == Some(b'/') {
                return Some(at + 1);
            }
        }
    }

    /// The end of a string constant whose contents start at `at`.
    fn string_end(&self, mut at: usize, quote: u8) -> Option<usize> {
        loop {
            match self.byte(at)? {
                b'\\' if !self.modes.plain_backslash => at += 2,
                byte if byte == quote && self.byte(at + 1) == Some(quote) => at += 2,
                byte if byte == quote => return Some(at + 1),
                _ => at += 1,
            }
        }
    }

    /// A string constant that starts with a quote at `start`; adjacent strings behind it are part of it.
    fn string(&self, start: usize) -> Option<(Kind, usize)> {
        let mut kind = Kind::Text;
        let mut end = self.string_end(start + 1, self.byte(start)?)?;
        loop {
            // Unreadable text behind the string belongs to the next token.
            match self.blank(end).ok().and_then(|(next, inside)| Some((next, inside, self.byte(next)?))) {
                Some((next, inside, quote @ (b'\'' | b'"'))) if quote == b'\'' || !self.modes.ansi_quotes => {
                    // The end of an executable comment within one constant is not followed.
                    if inside != self.is_inside {
                        return None;
                    }
                    (kind, end) = (Kind::OpaqueText, self.string_end(next + 1, quote)?);
                }
                _ => return Some((kind, end)),
            }
        }
    }

    /// The end of `_binary'…'`, as drivers write it: one string directly behind the word.
    fn binary_text(&self, start: usize) -> Option<usize> {
        let quote = start + BINARY.len();
        self.text.get(start..quote).filter(|word| word.eq_ignore_ascii_case(BINARY))?;
        let begins = self.byte(quote)? == b'\'' || self.byte(quote)? == b'"' && !self.modes.ansi_quotes;
        let (kind, end) = begins.then(|| self.string(quote)).flatten()?;
        (kind == Kind::Text).then_some(end)
    }

    fn quoted_end(&self, mut at: usize, quote: u8) -> Option<usize> {
        loop {
            at = self.find(at, quote)? + 1;
            match self.byte(at) {
                Some(byte) if byte == quote => at += 1,
                _ => return Some(at),
            }
        }
    }

    fn token(&self, start: usize, first: u8) -> Option<(Kind, usize)> {
        let next = self.byte(start + 1);
        let plain_end = || {
            Some(self.skip_while_at(start + 2, |b| b != b'\'' && b != 0)).filter(|end| self.byte(*end) == Some(b'\''))
        };
        match (first, next) {
            (0, _) => None,
            (b'"', _) if self.modes.ansi_quotes => Some((Kind::Quoted, self.quoted_end(start + 1, first)?)),
            (b'\'' | b'"', _) => self.string(start),
            (b'`', _) => Some((Kind::Quoted, self.quoted_end(start + 1, first)?)),
            (b'?', _) => Some((Kind::Param(0), start + 1)),
            (b'/', Some(b'*')) => Some((Kind::Hint, self.hint(start)?)),
            (b'@', _) => {
                let name = start + 1 + usize::from(next == Some(b'@'));
                Some((Kind::Variable, self.skip_while_at(name, |b| is_word_part(b) || b == b'.')))
            }
            (b'b' | b'B' | b'x' | b'X', Some(b'\'')) => Some((Kind::OpaqueText, plain_end()? + 1)),
            (b'n' | b'N', Some(b'\'')) => Some((Kind::OpaqueText, self.string(start + 1)?.1)),
            (b'_', _) if let Some(end) = self.binary_text(start) => Some((Kind::OpaqueText, end)),
            (b'.', Some(b'0'..=b'9')) if self.name_end == Some(start) => {
                Some((Kind::OddNumber, self.skip_while_at(start + 1, is_word_part)))
            }
            (b'0'..=b'9', _) | (b'.', Some(b'0'..=b'9')) => Some(self.number(start)),
            _ if is_word_part(first) => Some((Kind::Word, self.skip_while_at(start, is_word_part))),
            _ => Some((Kind::Symbol(first), start + 1)),
        }
    }

    /// The end of a hint. None also if quotes in it may hide its end.
    fn hint(&self, start: usize) -> Option<usize> {
        let end = self.block_comment(start + 2)?;
        let mut inside = self.text.as_bytes().get(start..end)?.iter();
        while let Some(quote) = inside.find(|byte| matches!(byte, b'\'' | b'"' | b'`')) {
            // Each ends before the hint does, whatever escapes.
            inside.find(|byte| *byte == quote || **byte == b'\\').filter(|byte| *byte == quote)?;
        }
        Some(end)
    }

    fn number(&self, start: usize) -> (Kind, usize) {
        let digit = |b: u8| b.is_ascii_digit();
        let whole = self.skip_while_at(start, is_word_part);
        let (prefix, digits) = self.text.get(start..whole).unwrap_or_default().split_at_checked(2).unwrap_or_default();
        let all = |wanted: fn(&u8) -> bool| !digits.is_empty() && digits.as_bytes().iter().all(wanted);
        let bits =
            (prefix == "0x" && all(u8::is_ascii_hexdigit)) || (prefix == "0b" && all(|b| matches!(b, b'0' | b'1')));
        if bits {
            return (if self.byte(whole) == Some(b'.') { Kind::OddNumber } else { Kind::OpaqueText }, whole);
        }
        let mut end = self.skip_while_at(start, digit);
        if self.byte(end) == Some(b'.') {
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
        if odd { (Kind::OddNumber, self.skip_while_at(end, is_word_part)) } else { (Kind::Number, end) }
    }
}

impl<'a> Iterator for Scanner<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let before = self.at;
        let blank = self.blank(before);
        let (start, is_inside) = blank.unwrap_or((before, self.is_inside));
        self.is_inside = is_inside;
        let found = match (blank, self.byte(start)) {
            // An executable comment that does not end is an error.
            (_, None) if is_inside => {
                self.is_inside = false;
                None
            }
            (_, None) => return None,
            (Err(()), _) => None,
            (Ok(_), Some(first)) => self.token(start, first),
        };
        let (kind, end) = found.unwrap_or((Kind::Hopeless, self.text.len()));
        let end = end.min(self.text.len());
        // All boundaries are at ASCII bytes or at the end.
        let text = self.text.get(start..end)?;
        self.at = end;
        let names = matches!(kind, Kind::Word | Kind::Quoted | Kind::Variable | Kind::OddNumber);
        self.name_end = names.then_some(end);
        Some(Token { kind, text, spaced: start > before })
    }
}

/// The bytes of a string constant with its quotes.
pub(crate) fn string_bytes(modes: Modes, constant: &str) -> Vec<u8> {
    if modes.plain_backslash { undoubled(constant) } else { unescaped(constant) }
}

/// The same under NO_BACKSLASH_ESCAPES: the only escape is a doubled quote.
pub(crate) fn undoubled(constant: &str) -> Vec<u8> {
    let quote = constant.get(..1).unwrap_or_default();
    let inner = constant.get(1..constant.len().saturating_sub(1)).unwrap_or_default();
    inner.replace(&quote.repeat(2), quote).into_bytes()
}

/// The bytes of a string constant with its quotes, as the server reads it.
pub(crate) fn unescaped(constant: &str) -> Vec<u8> {
    let mut inner = constant.bytes();
    let quote = inner.next();
    inner.next_back();
    let mut value = Vec::with_capacity(inner.len());
    while let Some(byte) = inner.next() {
        match byte {
            b'\\' => match inner.next() {
                Some(b'n') => value.push(b'\n'),
                Some(b't') => value.push(b'\t'),
                Some(b'r') => value.push(b'\r'),
                Some(b'b') => value.push(0x08),
                Some(b'0') => value.push(0),
                Some(b'Z') => value.push(0x1a),
                // These escapes stay, for LIKE.
                Some(wild @ (b'%' | b'_')) => value.extend([b'\\', wild]),
                other => value.extend(other),
            },
            byte => {
                value.push(byte);
                if Some(byte) == quote {
                    inner.next();
                }
            }
        }
    }
    value
}

/// The kind and the bytes of a constant of bytes.
pub(crate) fn bytes(modes: Modes, constant: &str) -> Option<(LiteralKind, Vec<u8>)> {
    if let Some((word, text)) = constant.split_at_checked(BINARY.len())
        && word.eq_ignore_ascii_case(BINARY)
    {
        return Some((LiteralKind::Bytes, string_bytes(modes, text)));
    }
    let (prefix, digits) = constant.split_at_checked(2)?;
    let (kind, bits, digits) = match prefix {
        "0x" => (LiteralKind::Bits, 4, digits),
        "0b" => (LiteralKind::Bits, 1, digits),
        "b'" | "B'" => (LiteralKind::Bits, 1, digits.strip_suffix('\'')?),
        "x'" | "X'" => (LiteralKind::Bytes, 4, digits.strip_suffix('\'')?),
        _ => return None,
    };
    // The first byte may have fewer digits.
    let mut digits = digits.bytes().rev().peekable();
    let mut bytes = Vec::with_capacity(digits.len() * bits / 8 + 1);
    while digits.peek().is_some() {
        let mut byte = 0;
        for shift in (0..8).step_by(bits) {
            let Some(digit) = digits.next() else { break };
            let digit = char::from(digit).to_digit(1 << bits)?;
            byte |= u8::try_from(digit).ok()? << shift;
        }
        bytes.push(byte);
    }
    bytes.reverse();
    Some((kind, bytes))
}
