//! Text to shape and literals: together they must say exactly what the text said, since a result is kept under them.
//!
//! The scanners are private to their crate, so their files are compiled into this target: the tokens of the text and those
//! of the shape, its literals put back, are compared one by one. Each text is read in both dialects.

#![no_main]

/// The scanner of MySQL takes the kind of a literal from beside it.
mod literal {
    pub use freshet_sql::LiteralKind;
}

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/sql/src/lex/postgres.rs"]
mod postgres;

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/sql/src/lex/mysql.rs"]
mod mysql;

use freshet_fuzz::bounded;
use freshet_sql::{Lexed, Literal, LiteralKind, lex};
use freshet_types::Dialect;
use libfuzzer_sys::fuzz_target;
use postgres::{Kind, Scanner, Token};

fuzz_target!(|text: &str| {
    postgres(text);
    mysql_too(text);
});

fn postgres(text: &str) {
    cover(text, |text| Scanner::new(text).collect());
    // A literal takes one byte and a blank of the text, a place of 24 in a list that holds three times what is in it while
    // it grows, and a block of its own; and there may be two passes.
    let lexed = bounded(text.len() * 96 + 1024, || lex(Dialect::Postgres, text));
    assert!(lexed.normalized.len() <= text.len() * 7, "{}", lexed.normalized);
    says_the_same(text, &lexed);
    let again = lex(Dialect::Postgres, &lexed.normalized);
    assert_eq!(again.normalized, lexed.normalized, "the normalized of a normalized is itself");
    assert_eq!(again.digest, lexed.digest);
    let mut key = Vec::new();
    lexed.write_key(&mut key);
    assert_eq!(read_key(&key), Some((lexed.normalized, lexed.own_params, lexed.literals)), "the key says it all");
}

fn mysql_too(text: &str) {
    let tokens: fn(&str) -> Vec<Token<'_>> = |text| mysql::Scanner::under(mysql::Modes::NONE, text).collect();
    cover(text, tokens);
    let lexed = bounded(text.len() * 96 + 1024, || lex(Dialect::MySql, text));
    let said = with_three_pipes(tokens(text));
    let end = said.iter().rposition(|token| token.kind != Kind::Symbol(b';')).map_or(0, |last| last + 1);
    let kept = tokens(&lexed.normalized);
    assert_eq!(end, kept.len(), "{:?}", lexed.normalized);
    let mut own = 0;
    for (said, kept) in said.iter().zip(&kept) {
        let placeholder = (kept.kind == Kind::Word && mysql::is_placeholder(kept.text))
            .then(|| kept.text.trim_start_matches('$').parse::<usize>().expect("a number"));
        match (said.kind, placeholder) {
            (Kind::Param(0), Some(number)) => {
                own += 1;
                assert_eq!(number, own);
            }
            (Kind::Number | Kind::Text, Some(number)) => {
                let literal = &lexed.literals[number - 1 - usize::from(lexed.own_params)];
                let number = said.kind == Kind::Number;
                assert_eq!(literal.kind, if number { LiteralKind::Number } else { LiteralKind::String });
                let value = if number { said.text.as_bytes().to_vec() } else { mysql::unescaped(said.text) };
                assert_eq!(*literal.text, *value);
            }
            (Kind::OpaqueText, Some(number)) => {
                let literal = &lexed.literals[number - 1 - usize::from(lexed.own_params)];
                assert_eq!(mysql::bytes(mysql::Modes::NONE, said.text), Some((literal.kind, literal.text.to_vec())));
            }
            (Kind::Word, None) if mysql::is_placeholder(said.text) => {
                assert_eq!((kept.kind, kept.text), (Kind::Quoted, format!("`{}`", said.text).as_str()));
            }
            (Kind::Word, None) => assert!(kept.kind == Kind::Word && said.text.eq_ignore_ascii_case(kept.text)),
            (Kind::Hopeless, None) => assert!(kept.kind == Kind::Hopeless && kept.text.ends_with(said.text)),
            _ => assert_eq!((said.kind, said.text), (kept.kind, kept.text)),
        }
    }
    assert_eq!(own, usize::from(lexed.own_params));
}

/// `||` becomes `|||`, since its meaning is not known.
fn with_three_pipes(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let mut three: Vec<Token<'_>> = Vec::with_capacity(tokens.len());
    let mut behind_pipe = false;
    for token in tokens {
        let is_pipe = token.kind == Kind::Symbol(b'|');
        let is_second = is_pipe && behind_pipe && !token.spaced;
        behind_pipe = is_pipe && !is_second;
        three.extend(is_second.then_some(token));
        three.push(token);
    }
    three
}

/// The tokens are all of the text, in its order; between them is nothing but blanks and comments.
fn cover(text: &str, tokens: fn(&str) -> Vec<Token<'_>>) {
    let mut at = 0;
    for token in tokens(text) {
        let start = token.text.as_ptr() as usize - text.as_ptr() as usize;
        // An executable comment that does not end is an error at the end of the text.
        assert!(start >= at && (!token.text.is_empty() || start == text.len()));
        assert_eq!(token.spaced, start > at);
        blank(&text[at..start], tokens);
        at = start + token.text.len();
    }
    blank(&text[at..], tokens);
}

fn blank(between: &str, tokens: fn(&str) -> Vec<Token<'_>>) {
    // The code of an executable comment is between its beginning and its end.
    if between.contains("/*!") || between.contains("*/") {
        return;
    }
    assert!(tokens(between).is_empty(), "{between:?} was left out");
}

fn says_the_same(text: &str, lexed: &Lexed) {
    let said: Vec<Token<'_>> = Scanner::new(text).collect();
    let end = said.iter().rposition(|token| token.kind != Kind::Symbol(b';')).map_or(0, |last| last + 1);
    let kept: Vec<Token<'_>> = Scanner::new(&lexed.normalized).collect();
    assert_eq!(end, kept.len(), "{:?}", lexed.normalized);
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
        // With a backslash it says something else than what stands there.
        LiteralKind::String if said.kind == Kind::OpaqueText => {
            let text = said.text.strip_prefix(['e', 'E']).expect("an E'…' constant");
            assert!(text.contains('\\') || text == format!("'{}'", value.replace('\'', "''")), "{said:?}");
        }
        LiteralKind::String => {
            assert_eq!((said.kind, said.text), (Kind::Text, format!("'{}'", value.replace('\'', "''")).as_str()));
        }
        LiteralKind::Bytes | LiteralKind::Bits => panic!("PostgreSQL has none"),
    }
}

fn read_key(key: &[u8]) -> Option<(String, u16, Vec<Literal>)> {
    let (normalized, rest) = sized(key)?;
    let (own_params, rest) = rest.split_first_chunk()?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut literals = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (kind, tail) = rest.split_first()?;
        let kind = match *kind {
            b'1' => LiteralKind::Number,
            b'x' => LiteralKind::Bytes,
            b'b' => LiteralKind::Bits,
            _ => LiteralKind::String,
        };
        let (text, tail) = sized(tail)?;
        literals.push(Literal { kind, text: text.into() });
        rest = tail;
    }
    rest.is_empty()
        .then(|| (String::from_utf8_lossy(normalized).into_owned(), u16::from_be_bytes(*own_params), literals))
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}
