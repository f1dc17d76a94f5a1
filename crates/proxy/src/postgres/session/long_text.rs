//! Texts that are too long to be looked at as a whole, or not of this encoding: whether they may define anything, by the first word of each statement.
//!
//! They are not split into tokens, so that what stands behind a semicolon in a literal too. As with other queries that are too long,
//! SELECT INTO does not.

use freshet_sql::Defines;
use freshet_wire::postgres::frame::HEADER_BYTES;

use crate::postgres::session::Session;
use crate::postgres::session::unit::Unit;

/// Statements that may change the catalogue begin with one of these. What cannot stand in a transaction that others belong to is none of them.
const DEFINING: [&[u8]; 11] =
    [b"alter", b"call", b"create", b"do", b"drop", b"explain", b"grant", b"import", b"reassign", b"refresh", b"revoke"];
/// The longest of them.
const WORD_MAX: usize = 8;

/// A text that passes in pieces.
#[derive(Debug)]
pub(crate) struct LongText {
    /// Bytes that come before it, or zero bytes that end what does.
    header: usize,
    names: usize,
    /// The first word of a statement, as far as it has come.
    word: Option<Vec<u8>>,
    /// It is prepared, not run.
    prepared: bool,
}

/// What a text shows before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// It may define something.
    Defines,
    /// It is prepared, and may define something when it is executed.
    Prepares,
}

impl LongText {
    /// A `Query`.
    pub(crate) fn query() -> Self {
        Self { header: HEADER_BYTES, names: 0, word: Some(Vec::new()), prepared: false }
    }

    /// A `Parse`.
    pub(crate) fn parse() -> Self {
        Self { names: 1, prepared: true, ..Self::query() }
    }

    /// What the next piece shows, if it shows that the text may define something.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<Shows> {
        let defines = bytes.iter().any(|byte| self.defines_at(*byte));
        defines.then_some(if self.prepared { Shows::Prepares } else { Shows::Defines })
    }

    fn defines_at(&mut self, byte: u8) -> bool {
        if self.header > 0 {
            self.header -= 1;
            return false;
        }
        if self.names > 0 {
            self.names -= usize::from(byte == 0);
            return false;
        }
        let Some(word) = &mut self.word else {
            if byte == b';' {
                self.word = Some(Vec::new());
            }
            return false;
        };
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                if word.len() <= WORD_MAX {
                    word.push(byte.to_ascii_lowercase());
                }
            }
            b';' => {
                let defines = DEFINING.contains(&&**word);
                word.clear();
                return defines;
            }
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b'(' if word.is_empty() => {}
            _ => {
                // A comment may stand before the word.
                let defines = DEFINING.contains(&&**word) || (word.is_empty() && matches!(byte, b'-' | b'/'));
                self.word = None;
                return defines;
            }
        }
        false
    }
}

impl Session {
    /// The current message's text may define something.
    pub(crate) fn text_defines(&mut self, shows: Shows) {
        match shows {
            Shows::Prepares => self.server.statements.note_unread_definition(),
            Shows::Defines if self.is_looked_for(Defines::Told) => {
                self.note_redefining();
                if let Some(Unit::Client(unit)) = self.pipeline.back_mut() {
                    unit.effects.redefines = true;
                }
            }
            Shows::Defines => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defines(text: &str) -> bool {
        let message = [b"Q\0\x01;;", text.as_bytes(), b"\0"].concat();
        let whole = LongText::query().read(&message).is_some();
        for at in 0..message.len() {
            let mut long = LongText::query();
            let parts = message.split_at(at);
            assert_eq!(
                long.read(parts.0).or_else(|| long.read(parts.1)).is_some(),
                whole,
                "{text} in two pieces, at {at}"
            );
        }
        let prepared = [b"P\0\x01;;create;\0", text.as_bytes(), b"\0\0\0"].concat();
        assert_eq!(LongText::parse().read(&prepared).is_some(), whole, "{text}, prepared");
        whole
    }

    #[test]
    fn statements_are_told_by_their_first_words() {
        for text in [
            "insert into t values (1)",
            " \n(SELECT 1)",
            "begin;insert into t values (';'), ('; x'), ('create;');\n commit ; ",
            "creates",
            "documents;",
            "documentation",
            "with a as (values (1)) insert into t select * from a",
            "",
        ] {
            assert!(!defines(text), "{text}");
        }
        for text in [
            "CREATE TABLE t ()",
            "insert into t values (1); Drop\ttable t",
            "insert into t values (1);do $$ begin end $$",
            "select 1; /* */ create table t ()",
            "-- x\ncreate table t ()",
            ";;grant a to b",
            "do;",
            "documentation; create table t ()",
            "refresh\0",
        ] {
            assert!(defines(text), "{text}");
        }
    }
}
