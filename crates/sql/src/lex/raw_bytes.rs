//! Texts that are not UTF-8: drivers send constants of bytes as `_binary'…'` with the bytes unchanged.

use std::fmt::Write as _;

use crate::lex::mysql::{Modes, Scanner, bytes};

/// The same text, in which each constant that is not UTF-8 becomes `x'…'`. None if other parts of the text are not UTF-8 either.
pub fn without_raw_bytes(modes: Modes, text: &[u8]) -> Option<String> {
    // One character for each byte. The boundaries of tokens stay the same, because only ASCII characters end a token.
    let wide: String = text.iter().map(|byte| char::from(*byte)).collect();
    let mut written = String::with_capacity(text.len() * 2);
    let mut end = 0;
    for token in Scanner::under(modes, &wide) {
        let start = token.text.as_ptr().addr().saturating_sub(wide.as_ptr().addr());
        written.push_str(&plain(wide.get(end..start)?)?);
        end = start + token.text.len();
        if let Some(text) = plain(token.text) {
            written.push_str(&text);
            continue;
        }
        let (_, value) = bytes(modes, token.text)?;
        written.push_str("x'");
        for byte in narrow(std::str::from_utf8(&value).ok()?)? {
            let _ = write!(written, "{byte:02x}");
        }
        written.push('\'');
    }
    written.push_str(&plain(wide.get(end..)?)?);
    Some(written)
}

fn narrow(wide: &str) -> Option<Vec<u8>> {
    wide.chars().map(|byte| u8::try_from(byte).ok()).collect()
}

fn plain(wide: &str) -> Option<String> {
    String::from_utf8(narrow(wide)?).ok()
}
