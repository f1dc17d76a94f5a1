//! Text to shape and literals: together they must say exactly what the text said, since a result is kept under them.
//!
//! The scanner is private to its crate, so its file is compiled into this target: the tokens of the text and those of
//! the shape, its literals put back, are compared one by one.

#![no_main]

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/sql/src/scanner.rs"]
mod scanner;

use freshet_fuzz::bounded;
use freshet_sql::{Lexed, Literal, LiteralKind, lex};
use libfuzzer_sys::fuzz_target;
use scanner::{Kind, Scanner, Token};

fuzz_target!(|text: &str| {
    cover(text);
    // A literal takes one byte and a blank of the text, a place of 24 in a list that holds three times what is in it while
    // it grows, and a block of its own; and there may be two passes.
    let lexed = bounded(text.len() * 96 + 1024, || lex(text));
    assert!(lexed.shape.len() <= text.len() * 7, "{}", lexed.shape);
    says_the_same(text, &lexed);
    let again = lex(&lexed.shape);
    assert_eq!(again.shape, lexed.shape, "the shape of a shape is itself");
    assert_eq!(again.fingerprint, lexed.fingerprint);
    let mut key = Vec::new();
    lexed.write_key(&mut key);
    assert_eq!(read_key(&key), Some((lexed.shape, lexed.own_params, lexed.literals)), "the key says it all");
});

/// The tokens are all of the text, in its order; between them is nothing but blanks and comments.
fn cover(text: &str) {
    let mut at = 0;
    for token in Scanner::new(text) {
        let start = token.text.as_ptr() as usize - text.as_ptr() as usize;
        assert!(start >= at && !token.text.is_empty());
        assert_eq!(token.spaced, start > at);
        blank(&text[at..start]);
        at = start + token.text.len();
    }
    blank(&text[at..]);
}

fn blank(between: &str) {
    assert!(Scanner::new(between).next().is_none(), "{between:?} was left out");
}

fn says_the_same(text: &str, lexed: &Lexed) {
    let said: Vec<Token<'_>> = Scanner::new(text).collect();
    let end = said.iter().rposition(|token| token.kind != Kind::Symbol(b';')).map_or(0, |last| last + 1);
    let kept: Vec<Token<'_>> = Scanner::new(&lexed.shape).collect();
    assert_eq!(end, kept.len(), "{:?}", lexed.shape);
    for (said, kept) in said.iter().zip(&kept) {
        match kept.kind {
            Kind::Param(number) if said.kind != kept.kind => {
                let at = number.checked_sub(u32::from(lexed.own_params) + 1).expect("a literal's number");
                is_literal(said, &lexed.literals[at as usize]);
            }
            Kind::Word => assert_eq!(said.text.to_ascii_lowercase(), kept.text),
            _ => assert_eq!((said.kind, said.text), (kept.kind, kept.text)),
        }
    }
}

fn is_literal(said: &Token<'_>, literal: &Literal) {
    let value = std::str::from_utf8(&literal.text).expect("a part of a text");
    match literal.kind {
        LiteralKind::Number => assert_eq!((said.kind, said.text), (Kind::Number, value)),
        LiteralKind::String => {
            assert_eq!((said.kind, said.text), (Kind::Text, format!("'{}'", value.replace('\'', "''")).as_str()));
        }
    }
}

fn read_key(key: &[u8]) -> Option<(String, u16, Vec<Literal>)> {
    let (shape, rest) = sized(key)?;
    let (own_params, rest) = rest.split_first_chunk()?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut literals = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (kind, tail) = rest.split_first()?;
        let kind = if *kind == b'1' { LiteralKind::Number } else { LiteralKind::String };
        let (text, tail) = sized(tail)?;
        literals.push(Literal { kind, text: text.into() });
        rest = tail;
    }
    rest.is_empty().then(|| (String::from_utf8_lossy(shape).into_owned(), u16::from_be_bytes(*own_params), literals))
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}
