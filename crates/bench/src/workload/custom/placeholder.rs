//! Finds `:name` in the text of a statement.
//!
//! A colon has other meanings: `::` is PostgreSQL's cast, and quoted texts and comments may contain any character. Comments are removed from the
//! statement, since later code would take an apostrophe in a comment for a quote.

use anyhow::{Result, bail, ensure};

/// The text with `$1`, `$2` … in place of the names, and the names.
pub(super) fn numbered(sql: &str) -> Result<(String, Vec<String>)> {
    let mut text = String::with_capacity(sql.len());
    let mut names: Vec<String> = Vec::new();
    let mut rest = sql;
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '\'' | '"' | '`' => quoted(rest, letter)?,
            '$' => dollar_quoted(rest)?,
            '-' if rest.starts_with("--") => {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            }
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest.find("*/") else { bail!("a comment has no end") };
                rest = &rest[end + 2..];
                text.push(' ');
                continue;
            }
            ':' if rest.starts_with("::") => 2,
            ':' => {
                let name: String = rest[1..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                    rest = &rest[1 + name.len()..];
                    let known = names.iter().position(|known| *known == name);
                    let index = known.unwrap_or_else(|| {
                        names.push(name);
                        names.len() - 1
                    });
                    text.push('$');
                    text.push_str(&(index + 1).to_string());
                    continue;
                }
                1
            }
            _ => letter.len_utf8(),
        };
        text.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    Ok((text.trim().trim_end_matches(';').trim_end().to_owned(), names))
}

/// Length of the quoted text at the start of `text`. A doubled quote counts as the end of one text and the beginning of the next; the result is the same.
fn quoted(text: &str, quote: char) -> Result<usize> {
    let Some(end) = text[1..].find(quote) else { bail!("a quote {quote} has no end") };
    Ok(end + 2)
}

/// Length of `$tag$ … $tag$` at the start of `text`, or of the dollar sign alone.
fn dollar_quoted(text: &str) -> Result<usize> {
    let after = &text[1..];
    let tag = after.find(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|end| after[*end..].starts_with('$'));
    let digits = after.starts_with(|c: char| c.is_ascii_digit());
    ensure!(!digits, "parameters are named, as in :id, not numbered, as in $1");
    let Some(end) = tag else { return Ok(1) };
    let tag = &text[..end + 2];
    let Some(close) = text[tag.len()..].find(tag) else { bail!("{tag} has no end") };
    Ok(tag.len() + close + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_outside_quotes_casts_and_comments() {
        for (sql, text, names) in [
            ("SELECT :a, :b_2, :a", "SELECT $1, $2, $1", vec!["a", "b_2"]),
            (
                "SELECT ':a', \":a\", `:a`, 'it''s :a', :a::text;",
                "SELECT ':a', \":a\", `:a`, 'it''s :a', $1::text",
                vec!["a"],
            ),
            (
                "SELECT x[1:2], '10:30'::time -- it's :a\n, :b /* :c */",
                "SELECT x[1:2], '10:30'::time \n, $1",
                vec!["b"],
            ),
            ("SELECT $$:a$$, $q$ :a $$ $q$, :é", "SELECT $$:a$$, $q$ :a $$ $q$, $1", vec!["é"]),
        ] {
            assert_eq!(numbered(sql).unwrap(), (text.to_owned(), names.into_iter().map(str::to_owned).collect()));
        }
        for (sql, error) in [
            ("SELECT $1", "not numbered"),
            ("SELECT 'x", "no end"),
            ("SELECT /* x", "no end"),
            ("SELECT $a$ x $b$", "no end"),
        ] {
            assert!(numbered(sql).unwrap_err().to_string().contains(error), "{sql}");
        }
    }
}
