//! The form `name=value name='value with spaces'` (manual, "Keyword/Value Connection Strings").
//!
//! The rules are those of `conninfo_parse` in libpq: spaces around `=` are allowed, a backslash takes the next
//! character as it is, and a quote counts only at the beginning of a value.

use std::iter::Peekable;
use std::str::Chars;

use super::ConninfoError;
use super::settings::{Settings, showable};

/// Sets the options that the text names.
pub(super) fn parse(text: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    let mut rest = text.chars().peekable();
    let mut word = 0;
    loop {
        skip_spaces(&mut rest);
        if rest.peek().is_none() {
            return Ok(());
        }
        word += 1;
        let mut name = String::new();
        while let Some(c) = rest.next_if(|c| *c != '=' && !is_space(*c)) {
            name.push(c);
        }
        skip_spaces(&mut rest);
        if rest.next_if_eq(&'=').is_none() {
            return Err(ConninfoError::NoEquals(word));
        }
        skip_spaces(&mut rest);
        let value = if rest.next_if_eq(&'\'').is_some() {
            quoted(&mut rest).ok_or_else(|| ConninfoError::Quote(showable(&name)))?
        } else {
            plain(&mut rest)
        };
        settings.set(&name, value)?;
    }
}

fn plain(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    while let Some(c) = rest.next_if(|c| !is_space(*c)) {
        // A backslash at the end of the string is dropped.
        value.extend(if c == '\\' { rest.next() } else { Some(c) });
    }
    value
}

/// The text before the closing quote, if there is one.
fn quoted(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut value = String::new();
    loop {
        match rest.next()? {
            '\'' => return Some(value),
            '\\' => value.push(rest.next()?),
            c => value.push(c),
        }
    }
}

fn skip_spaces(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| is_space(*c)).is_some() {}
}

/// C's `isspace`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}
