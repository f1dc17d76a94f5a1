//! Texts that are too long to be looked at as a whole, or not of this encoding: whether they may define anything, by the first word of each statement,
//! whether they may set a setting of an application, and whether they name what the server cannot be asked for.
//!
//! They are not split into tokens, so that what stands behind a semicolon in a literal too. As with other queries that are too long,
//! SELECT INTO does not.

use freshet_sql::Defines;
use freshet_wire::postgres::frame::HEADER_BYTES;

use crate::postgres::pooling::application_settings::names_in;
use crate::postgres::session::Session;
use crate::postgres::session::unit::Unit;
use crate::statement::registry::unaskable;

/// Statements that may change the catalogue begin with one of these. What cannot stand in a transaction that others belong to is none of them.
const DEFINING: [&[u8]; 11] =
    [b"alter", b"call", b"create", b"do", b"drop", b"explain", b"grant", b"import", b"reassign", b"refresh", b"revoke"];
/// The longest of them.
const WORD_MAX: usize = 8;

/// So much of a text is looked at together with what follows.
const CARRIED_BYTES: usize = 512;

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
    /// What has come last, without repeated spaces; None: that does not matter.
    last: Option<String>,
    /// It has shown that it sets something.
    sets: bool,
    /// It has shown this.
    unaskable: Option<&'static str>,
    /// It has shown that it defines something.
    defines: bool,
}

/// What a piece of a text shows first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shows {
    /// It may define something.
    pub(super) defines: bool,
    /// It is only prepared, and does so when it is executed.
    pub(super) prepares: bool,
    /// It may set a setting of an application.
    pub(super) sets: bool,
    /// It names this, which the server cannot be asked for.
    pub(super) unaskable: Option<&'static str>,
}

impl LongText {
    /// A `Query`. `shares`: the session shares connections, for which alone settings matter.
    pub(crate) fn query(shares: bool) -> Self {
        Self {
            header: HEADER_BYTES,
            names: 0,
            word: Some(Vec::new()),
            prepared: false,
            last: shares.then(|| String::from(";")),
            sets: false,
            unaskable: None,
            defines: false,
        }
    }

    /// A `Parse`.
    pub(crate) fn parse(shares: bool) -> Self {
        Self { names: 1, prepared: true, ..Self::query(shares) }
    }

    /// What the next piece shows.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Shows {
        let (sets, unaskable) = self.leaves(bytes.get(self.header..).unwrap_or_default());
        let defines = !self.defines && bytes.iter().any(|byte| self.defines_at(*byte));
        self.defines |= defines;
        Shows { defines, prepares: defines && self.prepared, sets, unaskable }
    }

    /// Whether the text, as far as it has come, may set a setting of an application, and what else it may leave, each for the first time. What comes
    /// before the text is looked at, too.
    fn leaves(&mut self, bytes: &[u8]) -> (bool, Option<&'static str>) {
        let Some(last) = &mut self.last else { return (false, None) };
        for part in String::from_utf8_lossy(bytes).split_inclusive(|letter: char| letter.is_ascii_whitespace()) {
            if !(part.trim_ascii().is_empty() && last.ends_with(|letter: char| letter.is_ascii_whitespace())) {
                last.push_str(part);
            }
        }
        let unaskable = unaskable(last).filter(|found| self.unaskable.is_none_or(|before| before != *found));
        self.unaskable = unaskable.or(self.unaskable);
        // A text that ends in SET may go on.
        let whole = last.trim_end_matches('\0').trim_end();
        let sets = !self.sets && names_in(whole).is_none_or(|names| !names.is_empty());
        self.sets |= sets;
        let start = last.len().saturating_sub(CARRIED_BYTES);
        let start = (start..last.len()).find(|at| last.is_char_boundary(*at)).unwrap_or_default();
        // Behind a quote, comments may be none.
        let quote = if last.drain(..start).any(|letter| matches!(letter, '\'' | '"' | '$')) { "' " } else { "" };
        last.insert_str(0, quote);
        (sets, unaskable)
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
    /// What the current message's text shows.
    pub(crate) fn text_shows(&mut self, shows: Shows) {
        self.text_leaves((shows.sets, shows.unaskable));
        if shows.prepares {
            self.server.statements.note_unread_definition();
        } else if shows.defines && self.is_looked_for(Defines::Told) {
            self.note_redefining();
            if let Some(Unit::Client(unit)) = self.pipeline.back_mut() {
                unit.effects.redefines = true;
            }
        }
    }

    /// A text passes whose statement is not known.
    pub(super) fn note_unread_text(&mut self, text: &[u8]) {
        if self.server.sharing.is_some() {
            let leaves = LongText::query(true).leaves(text);
            self.text_leaves(leaves);
        }
    }

    fn text_leaves(&mut self, (sets, unaskable): (bool, Option<&'static str>)) {
        if let (Some(name), Some(sharing)) = (unaskable, &mut self.server.sharing) {
            sharing.traces.note_unaskable(name, &self.shared.pooling.reads_sequences);
        }
        if sets {
            self.note_unread_setting();
        }
    }

    fn note_unread_setting(&mut self) {
        if let Some(sharing) = &mut self.server.sharing {
            sharing.traces.note_unread_setting();
        }
    }

    /// A function is called by its number. Those of large objects, which drivers call so, set nothing, and of other functions than the server's own the
    /// server is asked.
    pub(super) fn note_called(&mut self) {
        const LARGE_OBJECTS: [u32; 15] =
            [715, 764, 767, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];
        const FIRST_OF_USERS: u32 = 16384;
        let number = self.client.received().get(HEADER_BYTES..).and_then(|body| body.first_chunk::<4>());
        let is_harmless = number
            .map(|number| u32::from_be_bytes(*number))
            .is_some_and(|number| number >= FIRST_OF_USERS || LARGE_OBJECTS.contains(&number));
        if !is_harmless {
            self.note_unread_setting();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defines(text: &str) -> bool {
        let message = [b"Q\0\x01;;", text.as_bytes(), b"\0"].concat();
        let whole = LongText::query(true).read(&message).defines;
        for at in 0..message.len() {
            let mut long = LongText::query(true);
            let parts = message.split_at(at);
            assert_eq!(long.read(parts.0).defines | long.read(parts.1).defines, whole, "{text} in two pieces, at {at}");
        }
        let prepared = [b"P\0\x01;;create;\0", text.as_bytes(), b"\0\0\0"].concat();
        assert_eq!(LongText::parse(true).read(&prepared).prepares, whole, "{text}, prepared");
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

    #[test]
    fn what_the_server_cannot_be_asked_for_is_found_in_pieces() {
        let shows = |message: &[u8], mut long: LongText, size: usize| -> Vec<&str> {
            message.chunks(size).filter_map(|piece| long.read(piece).unaskable).collect()
        };
        for size in [1, 2, 7, 1000] {
            for (text, found) in [
                (&b"load 'auto_explain'"[..], &["load"][..]),
                (b"select 'M\xfcller'; select setseed(0.5), currval('s')", &["setseed", "currval"]),
                (b"insert into t values ('a load of words, no \xfcberload')", &[]),
            ] {
                let query = [b"Qaaaa", text, b"\0"].concat();
                let found = if size == 1000 { &found[found.len().saturating_sub(1)..] } else { found };
                assert_eq!(shows(&query, LongText::query(true), size), found, "in pieces of {size}");
                let parse = [b"Paaaaname\0", text, b"\0\0\0"].concat();
                assert_eq!(shows(&parse, LongText::parse(true), size), found, "prepared, in pieces of {size}");
            }
        }
        assert!(
            shows(b"Qaaaaload 'auto_explain'\0", LongText::query(false), 7).is_empty(),
            "without shared connections"
        );
    }

    #[test]
    fn settings_of_applications_are_found_in_pieces() {
        let sets = |text: &[u8], size: usize| {
            let message = [b"Qaaaa", text, b"\0"].concat();
            let mut long = LongText::query(true);
            message.chunks(size).filter(|piece| long.read(piece).sets).count()
        };
        assert!(!LongText::query(false).read(b"Qaaaaset app.x = 7\0").sets, "without shared connections");
        for text in [
            "set app.x = 7",
            "select 1; SET   LOCAL \n  app . x = 7",
            "select set_config($1, '', false)",
            "reset /* */ app.x",
        ] {
            for size in [1, 2, 7, 1000] {
                assert_eq!(sets(text.as_bytes(), size), 1, "{text} in pieces of {size}");
                assert_eq!(sets(&[b"select 'M\xfcller \xc3'; ", text.as_bytes()].concat(), size), 1, "{text}, {size}");
            }
        }
        for size in [1, 7, 1000] {
            assert_eq!(
                sets(b"insert into t values ('a set. Of reset words') on conflict do update set \"a\" = 1", size),
                0
            );
        }
    }
}
