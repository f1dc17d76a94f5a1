//! A text without the comments around it.
//!
//! Many applications append to each statement a comment that differs each time, such as the trace that it belongs to (sqlcommenter). In the key
//! of a result it would make every statement another one. It is left out before anything else is done with the text, so this must cost
//! next to nothing for a text without such a comment, and must not need to know where strings begin: they differ by dialect and mode.
//!
//! A comment at the beginning is easily seen. The last `/*` of a text whose end is `*/` begins a comment, unless it is within a string or a
//! comment itself. What is then left is a text that ends within a string or a comment: no server runs it, and it is not cached.

/// What makes it uncertain that a `/*…*/` is a comment at the end of the text, or one that means nothing: comments that end with the line,
/// code of some servers' versions.
const UNCERTAIN: [&[u8]; 6] = [b"\n", b"\r", b"--", b"#", b"/*!", b"/*M!"];

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
    let end = position(inside, b"*/")?;
    // PostgreSQL's comments nest.
    let is_nested = position(inside.get(..end)?, b"/*").is_some();
    inside.get(end + 2..).map(<[u8]>::trim_ascii_start).filter(|rest| !is_nested && !rest.is_empty())
}

fn before_comment(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().rposition(|byte| !byte.is_ascii_whitespace() && *byte != b';')?;
    let code = text.get(..=end)?.strip_suffix(b"*/")?;
    let start = code.windows(2).rposition(|pair| pair == b"/*")?;
    let (before, inside) = (code.get(..start)?, code.get(start + 2..)?);
    let is_plain = !means_something(inside) && position(inside, b"*/").is_none();
    let is_certain = UNCERTAIN.iter().all(|mark| position(inside, mark).is_none());
    let has_versions = [b"/*!".as_slice(), b"/*M!"].iter().any(|mark| position(before, mark).is_some());
    let before = before.trim_ascii_end();
    // Behind `;` MySQL counts it as another statement; `--` may begin a comment only now.
    let is_whole = !before.is_empty() && !before.ends_with(b";") && !before.ends_with(b"--");
    Some(before).filter(|_| is_plain && is_certain && !has_versions && is_whole)
}

/// A hint, or code of some servers' versions.
fn means_something(inside: &[u8]) -> bool {
    matches!(inside, [b'!' | b'+', ..] | [b'M', b'!', ..])
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
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
            "select 1 /* a /* b */ */",
            "/* a */",
            "*/",
            "/*/",
            "",
        ] {
            assert_eq!(bare(text), text, "{text}");
        }
        // Within a line that is a comment, nothing changes.
        assert_eq!(bare("select 1 -- a /* b */"), "select 1 -- a");
    }
}
