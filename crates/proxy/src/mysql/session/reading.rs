//! Whether the server reads a text as Freshet does: with some character sets and SQL modes a quote is not a quote.
//!
//! The deciding settings are known from the query for the session's context, and from plain SET statements. The flags of the server's answers do not
//! show them: they still have a procedure's own mode after it has ended. Stored code cannot change these settings for its caller, since both servers
//! restore mode and character set after it. After any other statement that may have changed them, a text for which they matter is parsed only once
//! the session has been asked.

use std::borrow::Cow;

use freshet_sql::Modes;
use freshet_wire::mysql::capabilities::Status;

/// Settings that determine how texts are read. None: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// A later byte of a character may look like a quote or a backslash.
    pub(crate) multibyte: Option<bool>,
    /// `"` quotes names, within which a backslash is an ordinary character.
    pub(crate) ansi_quotes: Option<bool>,
    /// `\` is not an escape character.
    pub(crate) plain_backslash: Option<bool>,
    /// `||` concatenates strings.
    pub(crate) pipes_concat: Option<bool>,
}

/// Whether a text is read in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readable {
    Yes,
    /// Only with certain settings of the session.
    Perhaps,
    No,
}

impl Reading {
    /// Whether the server reads this text as Freshet does.
    pub(crate) fn of(self, text: &[u8]) -> Readable {
        if self.is_known() {
            return Readable::Yes;
        }
        let backslash = text.contains(&b'\\');
        let by = |fact: Option<bool>, matters: bool| match fact {
            Some(true) if matters => Readable::No,
            None if matters => Readable::Perhaps,
            _ => Readable::Yes,
        };
        let characters = match self.multibyte {
            None => by(None, text.windows(2).any(may_be_one)),
            known => by(known, !text.is_ascii()),
        };
        let unknown = self.ansi_quotes.is_none() || self.plain_backslash.is_none();
        let code = if unknown && backslash { without_comments(text) } else { Cow::Borrowed(text) };
        let backslash = backslash && code.contains(&b'\\');
        let quotes = self.ansi_quotes.is_none() && backslash && code.contains(&b'"');
        let escapes = self.plain_backslash.is_none() && backslash;
        characters.max(if quotes || escapes { Readable::Perhaps } else { Readable::Yes })
    }

    /// The SQL modes by which texts are read, as far as they are known.
    pub(crate) fn modes(self) -> Modes {
        let [ansi_quotes, plain_backslash] = [self.ansi_quotes, self.plain_backslash].map(|fact| fact == Some(true));
        Modes { ansi_quotes, plain_backslash, pipes_concat: self.pipes_concat, version: None }
    }

    /// Whether every text is read in the same way.
    pub(crate) fn is_known(self) -> bool {
        self.multibyte == Some(false) && self.ansi_quotes.is_some() && self.plain_backslash.is_some()
    }

    /// Whether the names in this text are known.
    pub(crate) fn tells_names(self, text: &[u8]) -> bool {
        self.ansi_quotes.is_some() || !text.contains(&b'"')
    }

    /// Whether the meaning of this text's operators is known.
    pub(crate) fn tells_operators(self, text: &[u8]) -> bool {
        self.pipes_concat.is_some() || !text.contains(&b'|') || !text.windows(2).any(|pair| pair == b"||")
    }

    /// A SET statement was answered, with this state. `text`: in lower case.
    pub(crate) fn changed_by(&mut self, text: &str, status: Option<Status>) {
        let has = |word: &str| text.contains(word);
        let elsewhere = ["@", "(", "default", "global", "persist", "statement", "?", "\\", "/*", "--", "#"];
        let is_plain = status.is_some() && !elsewhere.into_iter().any(has) && !joins_strings(text);
        if has("names") || has("char") {
            let sets = ["big5", "gbk", "sjis", "cp932", "gb18030"];
            let named = sets.into_iter().any(|name| is_multibyte(name) && has(name));
            self.multibyte = Some(named).filter(|_| is_plain && !numbers_a_charset(text));
        }
        let Some((_, value)) = text.split_once("sql_mode") else { return };
        self.pipes_concat = None;
        // A mode may also be a number.
        let is_plain = is_plain && !value.contains(|letter: char| letter.is_ascii_digit());
        let quotes = ["ansi", "oracle", "mssql", "db2", "postgresql", "maxdb"];
        let is_named = quotes.into_iter().any(has);
        let is_sure = !is_named
            || modes_of(value)
                .is_some_and(|mut modes| modes.any(|mode| mode == "ansi_quotes" || quotes.contains(&mode)));
        self.ansi_quotes = Some(is_named).filter(|_| is_plain && is_sure);
        let plain_backslash = |status: Status| status.has(Status::NO_BACKSLASH_ESCAPES);
        self.plain_backslash = status.filter(|_| is_plain).map(plain_backslash);
    }
}

/// The text without its `/* … */`, as far as they are comments in all modes: the contents of a comment are not read. From the first element whose end
/// depends on more (a backslash in a string, or any other comment) on, the text is left as it is.
pub(super) fn without_comments(text: &[u8]) -> Cow<'_, [u8]> {
    let (mut code, mut rest, mut at) = (Vec::new(), text, 0);
    while let Some(byte) = rest.get(at) {
        let behind = rest.get(at + 1..).unwrap_or_default();
        match byte {
            b'\'' | b'"' | b'`' => {
                let Some(end) = behind.iter().position(|other| other == byte) else { break };
                if behind.iter().take(end).any(|other| *other == b'\\') {
                    break;
                }
                at += 1 + end;
            }
            b'/' if behind.starts_with(b"*") => {
                let inside = behind.get(1..).unwrap_or_default();
                // Code for some server versions, or a hint.
                let runs = matches!(inside, [b'!' | b'+', ..] | [b'M', b'!', ..]);
                let Some(end) = inside.windows(2).position(|pair| pair == b"*/").filter(|_| !runs) else { break };
                code.extend_from_slice(rest.get(..at).unwrap_or_default());
                code.push(b' ');
                (rest, at) = (inside.get(end + 2..).unwrap_or_default(), 0);
                continue;
            }
            b'#' => break,
            b'-' if behind.starts_with(b"-") => break,
            _ => {}
        }
        at += 1;
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    code.extend_from_slice(rest);
    Cow::Owned(code)
}

/// The modes in `= 'mode, …'`, if the text ends there.
fn modes_of(value: &str) -> Option<impl Iterator<Item = &str>> {
    let list = value.trim().strip_prefix('=')?.trim().trim_end_matches([';', ' ']);
    let list = list.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
    (!list.contains(['\'', '"'])).then(|| list.split(','))
}

/// Two adjacent strings are one string.
fn joins_strings(text: &str) -> bool {
    let quotes: Vec<(usize, &str)> = text.match_indices(['\'', '"']).collect();
    quotes.windows(2).any(|pair| {
        let [(first, quote), (second, other)] = *pair else { return false };
        let between = text.get(first + 1..second).unwrap_or_default();
        between.trim().is_empty() && (!between.is_empty() || quote != other)
    })
}

/// A character set may be given by the number of a collation.
fn numbers_a_charset(text: &str) -> bool {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = |part: &str| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(is_number);
    text.split(',').any(|part| part.contains("char") && words(part))
}

/// Whether two bytes may be one character, of which the second byte alone would be a delimiter.
fn may_be_one(pair: &[u8]) -> bool {
    let [first, second] = *pair else { return false };
    !first.is_ascii() && matches!(second, 0x40..=0x7e) && !second.is_ascii_alphabetic() && second != b'_'
}

/// Character sets with characters of more than one byte, whose later bytes may be ASCII bytes.
pub(crate) fn is_multibyte(charset: &str) -> bool {
    matches!(charset, "big5" | "gbk" | "sjis" | "cp932" | "gb18030")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTF8: Reading = Reading {
        multibyte: Some(false),
        ansi_quotes: Some(false),
        plain_backslash: Some(false),
        pipes_concat: Some(false),
    };

    fn readable(reading: Reading, texts: &[&str]) -> Vec<Readable> {
        texts.iter().map(|text| reading.of(text.as_bytes())).collect()
    }

    #[test]
    fn texts_are_read_alike_where_it_is_known() {
        use Readable::{No, Perhaps, Yes};
        let texts = [r#"SELECT "a", 'b'"#, r"SELECT 'a\n'", r#"SELECT '{"a": "b\n"}'"#, "SELECT 'é'", r"SELECT 'é\n'"];
        assert_eq!(readable(UTF8, &texts), [Yes; 5]);
        assert_eq!(readable(Reading::default(), &texts), [Yes, Perhaps, Perhaps, Yes, Perhaps]);
        assert_eq!(readable(Reading { ansi_quotes: Some(true), ..UTF8 }, &texts), [Yes; 5]);
        assert_eq!(readable(Reading { plain_backslash: Some(true), ..UTF8 }, &texts), [Yes; 5]);
        assert_eq!(readable(Reading { ansi_quotes: None, ..UTF8 }, &texts), [Yes, Yes, Perhaps, Yes, Yes]);
        assert_eq!(readable(Reading { multibyte: Some(true), ..UTF8 }, &texts), [Yes, Yes, Yes, No, No]);
        assert_eq!(readable(Reading { multibyte: None, ..UTF8 }, &texts), [Yes, Yes, Yes, Yes, Perhaps]);
    }

    #[test]
    fn comments_are_left_out_where_they_are_sure_to_be_some() {
        for (text, code) in [
            (r"SELECT /* A\B::c */ 1", "SELECT   1"),
            (r#"/* it's \ */SELECT 'a', "b", `c` /*\*/"#, r#" SELECT 'a', "b", `c`  "#),
            (r"SELECT '/* \ */'", r"SELECT '/* \ */'"),
            (r"SELECT 'it''s', /*\*/ '\'/*\*/", r"SELECT 'it''s',   '\'/*\*/"),
            (r"SELECT /*! '\' */ 1", r"SELECT /*! '\' */ 1"),
            (r"SELECT /*M! '\' */ 1", r"SELECT /*M! '\' */ 1"),
            (r"SELECT /*+ '\' */ 1", r"SELECT /*+ '\' */ 1"),
            ("SELECT 1 -- /*\n, '\\' /* */", "SELECT 1 -- /*\n, '\\' /* */"),
            ("SELECT 1 # /*\n, '\\' /* */", "SELECT 1 # /*\n, '\\' /* */"),
            (r"SELECT 1 /* \", r"SELECT 1 /* \"),
            (r"SELECT 1 /*/ \ */ + 1", r"SELECT 1   + 1"),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_comments(text.as_bytes())), code, "{text}");
        }
        let texts = [r"SELECT /* A\B */ 'a', x FROM t", r#"/* A\B */ SELECT "a""#, r"/* \ */ SELECT 'a\n'"];
        assert_eq!(readable(Reading::default(), &texts), [Readable::Yes, Readable::Yes, Readable::Perhaps]);
    }

    #[test]
    fn plain_settings_tell() {
        let backslash = Status::NO_BACKSLASH_ESCAPES;
        let after = |text: &str, status| {
            let mut reading = UTF8;
            reading.changed_by(text, Some(status));
            (reading.multibyte, reading.ansi_quotes, reading.plain_backslash)
        };
        let none = Status::AUTOCOMMIT;
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(after("set names utf8mb4", none), (no, no, no));
        assert_eq!(after("set names gbk", none), (yes, no, no));
        assert_eq!(after("set character_set_client = @x", none), (None, no, no));
        assert_eq!(after("set sql_mode = 'ansi'", none), (no, yes, no));
        assert_eq!(after("set sql_mode = 'no_backslash_escapes'", backslash), (no, no, yes));
        assert_eq!(after("set session sql_mode = \"strict_all_tables,ansi_quotes\";", none), (no, yes, no));
        assert_eq!(after("set sql_mode = '', lc_messages = 'ansi'", none), (no, None, no));
        assert_eq!(after("set sql_mode = 4", none), (no, None, None));
        assert_eq!(after("set sql_mode = concat(@@sql_mode, ',x')", none), (no, None, None));
        assert_eq!(after("set names utf8mb4, autocommit = 1", none), (no, no, no));
        assert_eq!(after("set character_set_results = null, autocommit=1, sql_mode=''", none), (no, no, no));
        assert_eq!(after("set character_set_client = 28", none), (None, no, no));
        for text in [
            "set session sql_mode = ?",
            "set global sql_mode = ''",
            "set persist sql_mode = ''",
            "set sql_mode = 'ans' 'i_quotes'",
            "set sql_mode = 'ans'\"i_quotes\"",
            "set sql_mode = 'a\\nsi_quotes'",
            "set statement sql_mode = '' for select 1",
        ] {
            assert_eq!(after(text, none), (no, None, None), "{text}");
        }
        assert_eq!(after("set @id = 5, autocommit = 1", none), (no, no, no));
        let mut failed = UTF8;
        failed.changed_by("set names gbk, sql_mode = ''", None);
        assert_eq!(failed, Reading::default());
    }
}
