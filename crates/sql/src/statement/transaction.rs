//! Statements that begin and end transaction blocks.
//!
//! Reads inside a block may be served from the cache only if its isolation level is known, and a COMMIT waits until the change stream has delivered
//! it. So these statements are parsed to their last word, and an unknown word makes them [`Bracket::Other`].

use crate::lex::postgres::{Kind, Token};

/// The isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed before the statement; `READ UNCOMMITTED` is the same.
    ReadCommitted,
    /// All statements see what was committed before the first statement.
    RepeatableRead,
    /// The same, and the server tracks what is read.
    Serializable,
}

impl Isolation {
    /// Parses the level's name, in lower case.
    pub fn named(text: &str) -> Option<Self> {
        match text {
            "read committed" | "read uncommitted" => Some(Self::ReadCommitted),
            "repeatable read" => Some(Self::RepeatableRead),
            "serializable" => Some(Self::Serializable),
            _ => None,
        }
    }
}

/// What a statement does to the transaction block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bracket {
    /// It begins a block, with this level or the session's default.
    Begin(Option<Isolation>),
    /// It ends the block, whatever its state: COMMIT, ROLLBACK, PREPARE TRANSACTION.
    End,
    /// It sets a savepoint, releases it or rolls back to it.
    Savepoint,
    /// `AND CHAIN`, one of several statements, an EXECUTE, or not understood.
    Other,
}

impl Bracket {
    /// `tokens` begin with a keyword of transaction control.
    pub(crate) fn read(tokens: &[Token<'_>]) -> Self {
        let words: Vec<&str> = tokens.iter().map(|t| if t.kind == Kind::Word { t.text } else { "" }).collect();
        match words.as_slice() {
            ["begin", "work" | "transaction", modes @ ..]
            | ["start", "transaction", modes @ ..]
            | ["begin", modes @ ..] => begin(tokens, modes),
            ["commit" | "end" | "rollback" | "abort"]
            | ["commit" | "end" | "rollback" | "abort", "work" | "transaction"]
            | ["prepare", "transaction", ..] => Self::End,
            ["savepoint" | "release", ..] | ["rollback", "to", ..] | ["rollback", "work" | "transaction", "to", ..] => {
                Self::Savepoint
            }
            _ => Self::Other,
        }
    }
}

/// The modes behind BEGIN, which may be separated by commas. The last level applies.
fn begin(tokens: &[Token<'_>], modes: &[&str]) -> Bracket {
    let mut level = None;
    let first = tokens.len() - modes.len();
    let separators = tokens.iter().skip(first).map(|t| t.kind == Kind::Symbol(b','));
    let words: Vec<&str> = modes.iter().zip(separators).filter(|(_, comma)| !comma).map(|(word, _)| *word).collect();
    let mut rest = words.as_slice();
    loop {
        rest = match rest {
            [] => return Bracket::Begin(level),
            ["isolation", "level", "serializable", rest @ ..] => {
                level = Some(Isolation::Serializable);
                rest
            }
            ["isolation", "level", "repeatable", "read", rest @ ..] => {
                level = Some(Isolation::RepeatableRead);
                rest
            }
            ["isolation", "level", "read", "committed" | "uncommitted", rest @ ..] => {
                level = Some(Isolation::ReadCommitted);
                rest
            }
            ["read", "only" | "write", rest @ ..] | ["not", "deferrable", rest @ ..] | ["deferrable", rest @ ..] => {
                rest
            }
            _ => return Bracket::Other,
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::Template;

    use super::*;

    #[test]
    fn brackets_are_read_to_their_last_word() {
        let read = |text| Template::parse(freshet_types::Dialect::Postgres, text).bracket();
        for text in
            ["begin", "begin work", "start transaction read only", "begin transaction read write, not deferrable"]
        {
            assert_eq!(read(text), Some(Bracket::Begin(None)), "{text}");
        }
        let level = |text| match read(text) {
            Some(Bracket::Begin(level)) => level,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(level("begin isolation level repeatable read"), Some(Isolation::RepeatableRead));
        assert_eq!(
            level("start transaction isolation level read uncommitted, read only"),
            Some(Isolation::ReadCommitted)
        );
        assert_eq!(
            level("begin transaction isolation level serializable read only deferrable"),
            Some(Isolation::Serializable)
        );
        for text in ["commit", "end transaction", "rollback", "abort work", "prepare transaction 'a'"] {
            assert_eq!(read(text), Some(Bracket::End), "{text}");
        }
        for text in ["savepoint a", "release a", "rollback to savepoint a", "rollback work to a"] {
            assert_eq!(read(text), Some(Bracket::Savepoint), "{text}");
        }
        for text in ["commit and chain", "begin isolation level", "rollback and chain", "begin; commit", "execute p"] {
            assert_eq!(read(text), Some(Bracket::Other), "{text}");
        }
        for text in ["select 1", "select 1; select 2", "commit prepared 'a'", "insert into t values (1)"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
