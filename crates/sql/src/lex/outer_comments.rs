//! A text without the comments around it.
//!
//! Many applications append to each statement a comment that differs each time, such as the trace that it belongs to (sqlcommenter). In the key
//! of a result it would make every statement another one. It is left out before anything else is done with the text, so this must cost
//! next to nothing for a text without such a comment, and must not need to know where strings begin: they differ by dialect and mode.
//!
//! A comment at the beginning is easily seen. The last `/*` of a text whose end is `*/` begins a comment if nothing before it can begin a string
//! or another comment. Otherwise it may be within one: what is left is then a text that ends within a string or a comment, which no server runs and
//! which is not cached, unless that string or comment ends again within the part that was left out.

use memchr::{memchr, memrchr};

/// Limit of comments that are left out on each side.
const COMMENTS_MAX: usize = 4;

/// The text without comments at its beginning and at its end; as it is, if it has none or they may mean something.
#[inline]
pub fn without_outer_comments(text: &[u8]) -> &[u8] {
    match text {
        // By far the most texts begin with a letter and end with another byte than these.
        [b'a'..=b'z' | b'A'..=b'Z' | b'(', .., last] if !matches!(last, b'/' | b';' | b' ' | b'\t'..=b'\r') => text,
        _ => search(text),
    }
}

fn search(text: &[u8]) -> &[u8] {
    let mut rest = text;
    for _ in 0..COMMENTS_MAX {
        let Some(behind) = behind_comment(rest) else { break };
        rest = behind;
    }
    for _ in 0..COMMENTS_MAX {
        let Some(before) = before_comment(rest) else { break };
        rest = before;
    }
    rest
}

fn behind_comment(text: &[u8]) -> Option<&[u8]> {
    let inside = text.trim_ascii_start().strip_prefix(b"/*")?;
    if means_something(inside) {
        return None;
    }
    let end = position(inside, *b"*/")?;
    // PostgreSQL's comments nest, and for it `/*/` begins one.
    let is_nested = position(inside.get(..=end)?, *b"/*").is_some();
    inside.get(end + 2..).map(<[u8]>::trim_ascii_start).filter(|rest| !is_nested && !rest.is_empty())
}

fn before_comment(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().rposition(|byte| !byte.is_ascii_whitespace() && *byte != b';')?;
    let code = text.get(..=end)?.strip_suffix(b"*/")?;
    let start = last_position(code, *b"/*")?;
    let (before, inside) = (code.get(..start)?, code.get(start + 2..)?);
    let is_plain = !means_something(inside) && !any_pair(inside, |one, next| one == b'*' && next == b'/');
    let is_certain = begins_nothing(before) || !(may_end_something(inside) || has_versions(before));
    let before = before.trim_ascii_end();
    // Behind `;` MySQL counts it as another statement; `--` may begin a comment only now.
    let is_whole = !before.is_empty() && !before.ends_with(b";") && !before.ends_with(b"--");
    Some(before).filter(|_| is_plain && is_certain && is_whole)
}

/// Nothing in this part of a text begins a string, a quoted name or a comment, in any dialect and mode. `$1` is a parameter, `$a` may begin a string.
fn begins_nothing(code: &[u8]) -> bool {
    let is_quote = |byte: u8| matches!(byte, b'\'' | b'"' | b'`' | b'#');
    let begins = |one: u8, next: u8| {
        matches!((one, next), (b'-', b'-') | (b'/', b'*')) || (one == b'$' && !next.is_ascii_digit())
    };
    !any(code, is_quote) && !any_pair(code, begins) && code.last() != Some(&b'$')
}

/// Comments that end with the line: what is before them may belong to a string that ends there.
fn may_end_something(inside: &[u8]) -> bool {
    any(inside, |byte| matches!(byte, b'\n' | b'\r' | b'#'))
        || any_pair(inside, |one, next| one == b'-' && next == b'-')
}

/// Code of some servers' versions.
fn has_versions(before: &[u8]) -> bool {
    let mut rest = before;
    while let Some(at) = position(rest, *b"/*") {
        rest = rest.get(at + 2..).unwrap_or_default();
        if matches!(rest, [b'!', ..] | [b'M', b'!', ..]) {
            return true;
        }
    }
    false
}

/// A hint, or code of some servers' versions.
fn means_something(inside: &[u8]) -> bool {
    matches!(inside, [b'!' | b'+', ..] | [b'M', b'!', ..])
}

fn position(text: &[u8], pair: [u8; 2]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr(pair[0], text.get(from..)?)?;
        if text.get(at + 1) == Some(&pair[1]) {
            return Some(at);
        }
        from = at + 1;
    }
}

fn last_position(text: &[u8], pair: [u8; 2]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let at = memrchr(pair[0], text.get(..end)?)?;
        if text.get(at + 1) == Some(&pair[1]) {
            return Some(at);
        }
        end = at;
    }
}

/// Looks at all bytes, without a branch for each.
fn any(text: &[u8], is: impl Fn(u8) -> bool) -> bool {
    text.iter().fold(0, |any, byte| any | u8::from(is(*byte))) != 0
}

/// The same for each byte with the next.
fn any_pair(text: &[u8], is: impl Fn(u8, u8) -> bool) -> bool {
    let next = text.get(1..).unwrap_or_default();
    text.iter().zip(next).fold(0, |any, (one, next)| any | u8::from(is(*one, *next))) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(text: &str) -> &str {
        std::str::from_utf8(without_outer_comments(text.as_bytes())).expect("UTF-8")
    }

    #[test]
    fn comments_around_a_text_are_left_out() {
        let trace = "traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01',route='%2Fpolls%201'";
        for text in [
            format!("select 1 /*{trace}*/"),
            format!("select 1/*{trace}*/;"),
            format!("select 1 /* a *//*{trace}*/ ;\n"),
            format!("/* {trace} */ select 1"),
            "/* a */ /* b */select 1 /* c */".to_owned(),
            "select 1 /* a -- b # c \n d */".to_owned(),
        ] {
            assert_eq!(bare(&text), "select 1", "{text}");
        }
    }

    #[test]
    fn what_may_mean_something_is_left() {
        for text in [
            "select 1",
            "select 1;",
            "select 1; /* a */",
            "select 1 --/* a */",
            "select $$/*--*/",
            "select $a$ /* -- $a$ */",
            "select $/* -- */",
            "select '/* a */' /* -- */",
            "select \"a /* -- */",
            "select `a /* # */",
            " select 1 ",
            "select '/* a */'",
            "select 1 /*+ a */",
            "/*+ a */ select 1",
            "select 1 /*! + 1 */",
            "/*!50000 select 1 */",
            "/*M! select 1 */",
            "/*!50000 select '/*'; drop table t */",
            "select '/*'; drop table t -- */",
            "select '/*'; drop table t # */",
            "select 1 -- /*\n + 2 */",
            "/* a /* b */ select 1 */",
            // PostgreSQL runs the DELETE, MySQL the SELECT.
            "/* a /*/ select 1 -- */ */ delete from t",
            "/*a/*/ select 1",
            "select 1 /* a /* b */ */",
            "/* a */",
            "*/",
            "/*/",
            "",
        ] {
            assert_eq!(bare(text), text, "{text}");
        }
        assert_eq!(bare("select $1 /* -- */"), "select $1");
        // Within a line that is a comment, nothing changes.
        assert_eq!(bare("select 1 -- a /* b */"), "select 1 -- a");
    }
}
