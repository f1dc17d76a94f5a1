//! LIKE patterns, matched against the text of a row rather than its normal form.
//!
//! Matching depends on collations, so there are two answers. LIKE uses what *may* match; NOT LIKE uses what
//! *certainly* matches. Both are known for plain ASCII alone; any other text passes both. On MySQL control characters
//! do not count as plain ASCII, since some collations ignore them. The text may also have had trailing blanks or
//! zeros there, which row images omit.

/// Longer texts pass unmatched, since one change is compared with many patterns.
const TEXT_LEN_MAX: usize = 4_096;

/// A pattern, and which texts pass it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The parts of the pattern.
    pub pieces: Box<[Piece]>,
    /// Letters may match in the other case.
    pub folded: bool,
    /// Texts pass that do not match. A text certainly matches only in the same case.
    pub negated: bool,
    /// The pattern is MySQL's: see the module documentation.
    pub collated: bool,
}

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// A character, or one byte of a character.
    Byte(u8),
    /// `_`
    One,
    /// `%`
    Any,
}

impl Piece {
    /// The pieces of a pattern with this escape character, if any.
    pub fn of(pattern: &[u8], escape: Option<u8>) -> Box<[Self]> {
        let mut pieces = Vec::with_capacity(pattern.len());
        let mut rest = pattern.iter().copied();
        while let Some(byte) = rest.next() {
            pieces.push(match byte {
                // At the end the escape character stands for itself, or is an error.
                _ if Some(byte) == escape => Self::Byte(rest.next().unwrap_or(byte)),
                b'%' => Self::Any,
                b'_' => Self::One,
                _ => Self::Byte(byte),
            });
        }
        pieces.into()
    }
}

impl Pattern {
    /// Whether a row with this text may pass.
    pub fn may_pass(&self, text: &[u8]) -> bool {
        let plain = |byte: &u8| if self.collated { matches!(byte, b' '..=b'~') } else { byte.is_ascii() };
        if text.len() > TEXT_LEN_MAX || !text.iter().all(plain) {
            return true;
        }
        match (self.negated, self.collated) {
            (true, _) => !self.matches(text, false, false),
            (false, true) => self.matches(text.trim_ascii_end(), self.folded, true),
            (false, false) => self.matches(text, self.folded, false),
        }
    }

    /// `padded`: `_` and blanks may match further characters at the end of the text.
    fn matches(&self, text: &[u8], folded: bool, padded: bool) -> bool {
        let (mut at, mut piece) = (0, 0);
        // Where to continue behind the last `%` if the rest does not match.
        let mut behind_any: Option<(usize, usize)> = None;
        loop {
            let next = self.pieces.get(piece);
            let matches = match (next, text.get(at)) {
                (Some(Piece::Any), _) => {
                    piece += 1;
                    behind_any = Some((at, piece));
                    continue;
                }
                (None, None) => return true,
                (Some(_), None) if padded && self.pieces.iter().skip(piece).all(|rest| rest.is_padding()) => {
                    return true;
                }
                (Some(Piece::One), Some(_)) => true,
                (Some(Piece::Byte(a)), Some(b)) => a == b || (folded && a.eq_ignore_ascii_case(b)),
                (Some(_), None) | (None, Some(_)) => false,
            };
            if matches {
                (at, piece) = (at + 1, piece + 1);
                continue;
            }
            match behind_any {
                Some((from, next)) if from < text.len() => {
                    (at, piece) = (from + 1, next);
                    behind_any = Some((at, next));
                }
                _ => return false,
            }
        }
    }
}

impl Piece {
    fn is_padding(self) -> bool {
        matches!(self, Self::Any | Self::One | Self::Byte(b' '))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        let pieces = Piece::of(text.as_bytes(), Some(b'\\'));
        Pattern { pieces, folded: false, negated: false, collated: false }
    }

    /// The definition, one piece after the other.
    fn naive(pieces: &[Piece], text: &[u8]) -> bool {
        match (pieces, text) {
            ([], []) => true,
            ([Piece::Any, rest @ ..], _) => (0..=text.len()).any(|skipped| naive(rest, &text[skipped..])),
            ([Piece::One, rest @ ..], [_, text @ ..]) => naive(rest, text),
            ([Piece::Byte(a), rest @ ..], [b, text @ ..]) => a == b && naive(rest, text),
            _ => false,
        }
    }

    #[test]
    fn matches_what_the_definition_matches() {
        let mut state = 0x5EED_u64;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let (mut matched, mut asked) = (0, 0);
        for _ in 0..20_000 {
            let mut text = |letters: &str| {
                let letters: Vec<char> = letters.chars().collect();
                (0..below(7))
                    .map(|_| letters[usize::try_from(below(letters.len() as u64)).unwrap()])
                    .collect::<String>()
            };
            let (pattern, text) = (pattern(&text("aab%%_\\")), text("aab%"));
            let expected = naive(&pattern.pieces, text.as_bytes());
            assert_eq!(pattern.may_pass(text.as_bytes()), expected, "{pattern:?} {text}");
            let others = Pattern { negated: true, ..pattern };
            assert_eq!(others.may_pass(text.as_bytes()), !expected, "{others:?} {text}");
            (matched, asked) = (matched + usize::from(expected), asked + 1);
        }
        assert!(matched * 10 > asked && matched * 2 < asked, "{matched} of {asked}");
    }

    #[test]
    fn what_is_not_sure_passes() {
        let cases = [("%B%", "abc", true, false), ("b%", "xyz é", true, true), ("a  ", "a", false, false)];
        for (text, row, folded, expected) in cases {
            let exact = pattern(text);
            assert_eq!(exact.may_pass(row.as_bytes()), expected, "{text} {row}");
            let loose = Pattern { folded, collated: true, ..exact.clone() };
            assert!(loose.may_pass(row.as_bytes()), "{text} {row}");
            // A match that is only possible in another case is not certain.
            let others = Pattern { negated: true, ..loose };
            assert!(others.may_pass(row.as_bytes()), "{text} {row}");
        }
        assert!(Pattern { collated: true, ..pattern("a") }.may_pass(b"\x01a"));
        assert!(!pattern("a").may_pass(b"\x01a"));
        assert!(pattern("a").may_pass(&[b'b'; TEXT_LEN_MAX + 1]));
    }
}
