//! Constants that PostgreSQL reads as the current time, or completes with it.

use crate::lex::postgres::{Kind, Token};

/// Whether a string constant in the normalized query may be folded to a clock reading if it is cast to a date type.
pub(crate) fn clock_text(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::OpaqueText => without_escapes(token.text).is_none_or(|text| names_clock(&text)),
        Kind::Text => names_clock(token.text.as_bytes()),
        _ => false,
    }
}

/// The text of an `E'constant'` with a blank for each escape. None if an escape may be a letter, or if it is another constant.
pub(crate) fn without_escapes(constant: &str) -> Option<Vec<u8>> {
    let inner = constant.strip_prefix(['e', 'E'])?.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut bytes = inner.bytes();
    let mut text = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        text.push(match (byte, byte == b'\\' || byte == b'\'') {
            (_, false) => byte,
            (b'\'', _) => bytes.next().filter(|next| *next == b'\'').map(|_| b' ')?,
            _ => bytes.next().filter(|next| matches!(next, b'\'' | b'"' | b'\\' | b'n' | b'r' | b't')).map(|_| b' ')?,
        });
    }
    Some(text)
}

/// Whether a string constant in the normalized query may be a time without an offset. Intervals do not count.
pub(crate) fn has_time(tokens: &[Token<'_>]) -> bool {
    let is_time = |(at, token): (usize, &Token<'_>)| match token.kind {
        Kind::OpaqueText => without_escapes(token.text).is_none_or(|text| lacks_offset(&text)),
        Kind::Text => {
            let before = at.checked_sub(1).and_then(|at| tokens.get(at));
            before.is_none_or(|before| before.text != "interval") && lacks_offset(token.text.as_bytes())
        }
        _ => false,
    };
    tokens.iter().enumerate().any(is_time)
}

/// Whether a text may be a time, or an array of times, with neither a numeric offset nor a date. A sign behind a letter belongs to a zone's name.
pub(crate) fn lacks_offset(text: &[u8]) -> bool {
    let lacks = |time: &[u8]| {
        let signed = |w: &[u8]| matches!(w, [before, b'+' | b'-', b'0'..=b'9'] if !before.is_ascii_alphabetic());
        time.iter().any(u8::is_ascii_digit) && !time.windows(3).any(signed)
    };
    text.split(|byte| *byte == b',').any(lacks)
}

/// Whether a text contains, in any case, a word that date input folds to the current time.
pub(crate) fn names_clock(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    // Most are numbers.
    text.iter().any(u8::is_ascii_alphabetic)
        && WORDS.iter().any(|word| text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)))
}
