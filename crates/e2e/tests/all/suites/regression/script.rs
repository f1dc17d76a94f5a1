//! The statements of a file that `psql` would run.

/// The statements of a script, without the semicolons. What only `psql` understands is left out: its own commands, data
/// behind `COPY … FROM STDIN` and what names a variable.
pub(super) fn statements(script: &str) -> Vec<String> {
    let mut rest = script;
    let mut statements = Vec::new();
    while !rest.is_empty() {
        let (statement, behind) = next(rest);
        rest = behind;
        let statement = statement.trim();
        let lower = statement.to_lowercase();
        if lower.starts_with("copy") && lower.contains("from stdin") {
            rest = rest.split_once("\n\\.").map_or("", |(_, behind)| behind);
        } else if !statement.is_empty() && !lower.contains("to stdout") {
            statements.push(statement.to_owned());
        }
    }
    statements
}

/// The first statement and what is behind it.
fn next(script: &str) -> (&str, &str) {
    let (mut at, mut open, mut atomic) = (0, 0_usize, 0_usize);
    while let Some(rest) = script.get(at..).filter(|rest| !rest.is_empty()) {
        let skipped = opaque(script, at);
        let word = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        if skipped > 0 {
            at += skipped;
        } else if word > 0 {
            match rest.get(..word).unwrap_or_default().to_lowercase().as_str() {
                "atomic" => atomic += 1,
                "case" if atomic > 0 => atomic += 1,
                "end" => atomic = atomic.saturating_sub(1),
                _ => {}
            }
            at += word;
        } else {
            match rest.as_bytes()[0] {
                b'(' => open += 1,
                b')' => open = open.saturating_sub(1),
                b';' if open == 0 && atomic == 0 => return (&script[..at], &script[at + 1..]),
                // A command of psql ends what stands before it, and its line.
                b'\\' => return (&script[..at], rest.split_once('\n').map_or("", |(_, behind)| behind)),
                _ => {}
            }
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    (script, "")
}

/// The length of a quoted text or a comment that begins here; 0 if none does.
fn opaque(script: &str, at: usize) -> usize {
    let rest = &script[at..];
    let escapes = script[..at].ends_with(['E', 'e']);
    match rest.as_bytes() {
        [b'-', b'-', ..] => rest.find('\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => comment(rest),
        [b'\'', ..] => quoted(rest, '\'', escapes),
        [b'"', ..] => quoted(rest, '"', false),
        [b'$', ..] => dollar_quoted(rest).unwrap_or(0),
        _ => 0,
    }
}

/// A doubled quote reads as two texts that touch, which ends at the same place.
fn quoted(rest: &str, quote: char, escapes: bool) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = escapes && c == '\\' && !escaped;
    }
    rest.len()
}

fn comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    for (at, pair) in rest.as_bytes().windows(2).enumerate() {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 2;
        }
    }
    rest.len()
}

fn dollar_quoted(rest: &str) -> Option<usize> {
    let tag = rest.get(1..)?.find('$')? + 2;
    let mark = rest.get(..tag)?;
    let inner = mark.get(1..tag - 1)?;
    let is_tag = inner.chars().all(|c| c.is_alphanumeric() || c == '_') && !inner.starts_with(|c: char| c.is_numeric());
    is_tag.then(|| rest.get(tag..)?.find(mark).map(|end| tag + end + tag))?
}

#[test]
fn splits_as_psql_does() {
    let script = "select ';', $$;$$, $a$;$$;$a$; -- ;\n\\d x;\nselect E'\\';' /* ; /* */ ; */ , (1;2) ;copy t from stdin;\n1\n\\.\n\
        create function f() begin atomic select case when true then 1 end; select 2; end; select 1 \\gset\nselect 'it''s'";
    let expected = [
        "select ';', $$;$$, $a$;$$;$a$",
        "-- ;",
        "select E'\\';' /* ; /* */ ; */ , (1;2)",
        "create function f() begin atomic select case when true then 1 end; select 2; end",
        "select 1",
        "select 'it''s'",
    ];
    assert_eq!(statements(script), expected);
}
