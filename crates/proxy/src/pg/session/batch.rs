//! A look at the extended-protocol messages up to the next `Sync`, without consuming them.
//!
//! Batches of the form `([Parse] Bind [Describe portal] Execute [Close portal])+ Sync`, all on the unnamed portal, can be answered
//! from the cache; so can `[Parse] Describe statement Bind Execute [Close portal] Sync`. Everything else passes, and from the first
//! message that does not fit nothing is held back. What is not complete is waited for a moment only ([`PATIENCE`]).

use freshet_model::Nanos;
use freshet_wire::pg::frame::{self, HEADER_BYTES, Header};
use freshet_wire::pg::frontend::{self, Bind, Execute, Parse, Target};
use smallvec::SmallVec;

use crate::registry::TEXT_BYTES_MAX;

/// Executions in one batch beyond which it passes.
const GROUPS_MAX: usize = 256;

/// How long whole messages wait for the rest of their batch. A driver that sends a batch in one go has it here by then; one
/// that waits for the answers to what it has sent must not wait for ever.
pub(crate) const PATIENCE: Nanos = 2_000_000;

/// What an execution is described by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Describe {
    /// Nothing is asked for.
    #[default]
    Nothing,
    /// `RowDescription`, behind `Bind`.
    Portal,
    /// `ParameterDescription` and `RowDescription`, before `Bind`.
    Statement,
}

/// One execution.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// `Parse` precedes it, for the statement that it binds.
    pub(crate) parse: Option<(Parse<'a>, &'a [u8])>,
    pub(crate) bind: Bind<'a>,
    pub(crate) describe: Describe,
    /// Its portal is closed.
    pub(crate) closes: bool,
    /// The most rows; 0 for all. The portal does not outlive the `Sync`, so what is left of it is never asked for.
    pub(crate) rows_max: u32,
}

/// What the messages at the start of the input are.
#[derive(Debug)]
pub(crate) enum Batch<'a> {
    /// They fit so far, and `Sync` is not there yet.
    Incomplete {
        /// There are some, and the last of them is whole: the client may wait for what the server says of them.
        whole: bool,
    },
    /// They pass.
    Other,
    /// A statement is prepared: `Parse [Describe statement] Sync`.
    Prepare {
        /// The statement.
        parse: Parse<'a>,
        /// Its parameters and columns are asked for.
        describe: bool,
        /// All bytes, `Sync` included.
        bytes: usize,
    },
    /// They can be answered from the cache.
    Candidate {
        /// The executions, in order; at least one.
        groups: SmallVec<[Group<'a>; 1]>,
        /// All bytes, `Sync` included.
        bytes: usize,
    },
}

/// Looks at the start of the input.
pub(crate) fn scan(input: &[u8]) -> Batch<'_> {
    let mut groups: SmallVec<[Group<'_>; 1]> = SmallVec::new();
    let mut parse = None;
    // The statement that is described before its Bind.
    let mut described: Option<&[u8]> = None;
    let mut bound: Option<Group<'_>> = None;
    let mut at = 0;
    loop {
        let rest = input.get(at..).unwrap_or_default();
        let Ok(head) = frame::header(rest) else { return Batch::Other };
        // Whoever is in the middle of a message waits for no answer.
        let Some(head) = head else { return Batch::Incomplete { whole: at > 0 && rest.is_empty() } };
        if at + head.frame_bytes > TEXT_BYTES_MAX {
            return Batch::Other;
        }
        if !is_known(head) {
            return Batch::Other;
        }
        let Some(message) = rest.get(..head.frame_bytes) else { return Batch::Incomplete { whole: false } };
        at += head.frame_bytes;
        match head.tag {
            frontend::PARSE if parse.is_none() && bound.is_none() => match Parse::read(message) {
                Ok(read) => parse = Some((read, message)),
                Err(_) => return Batch::Other,
            },
            frontend::BIND if bound.is_none() => match Bind::read(message) {
                Ok(bind) if bind.portal.is_empty() && fits(parse.as_ref(), described, &bind) => {
                    let describe = if described.is_some() { Describe::Statement } else { Describe::Nothing };
                    bound = Some(Group { parse: parse.take(), bind, describe, closes: false, rows_max: 0 });
                }
                _ => return Batch::Other,
            },
            frontend::DESCRIBE => match (&mut bound, &parse, Target::read(message)) {
                (Some(group), _, Ok(Target { kind: b'P', name: b"" })) if group.describe == Describe::Nothing => {
                    group.describe = Describe::Portal;
                }
                (None, parse, Ok(Target { kind: b'S', name }))
                    if groups.is_empty()
                        && described.is_none()
                        && parse.as_ref().is_none_or(|(parse, _)| parse.name == name) =>
                {
                    described = Some(name);
                }
                _ => return Batch::Other,
            },
            frontend::EXECUTE => match (bound.take(), Execute::read(message)) {
                (Some(group), Ok(Execute { portal: b"", rows_max }))
                    if groups.len() < if described.is_some() { 1 } else { GROUPS_MAX } =>
                {
                    groups.push(Group { rows_max, ..group });
                }
                _ => return Batch::Other,
            },
            frontend::CLOSE if parse.is_none() && bound.is_none() => match (groups.last_mut(), Target::read(message)) {
                (Some(group), Ok(Target { kind: b'P', name: b"" })) if !group.closes => {
                    group.closes = true;
                }
                _ => return Batch::Other,
            },
            frontend::SYNC if !groups.is_empty() && parse.is_none() && bound.is_none() => {
                return Batch::Candidate { groups, bytes: at };
            }
            frontend::SYNC if groups.is_empty() && bound.is_none() => match parse {
                Some((parse, _)) => return Batch::Prepare { parse, describe: described.is_some(), bytes: at },
                None => return Batch::Other,
            },
            _ => return Batch::Other,
        }
    }
}

/// What is not may be an error that the server tells before the message is whole.
fn is_known(head: Header) -> bool {
    match head.tag {
        frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => true,
        frontend::SYNC => head.frame_bytes == HEADER_BYTES,
        _ => false,
    }
}

/// A `Parse`, and a `Describe` of a statement, count only for the `Bind` that follows at once and names the same statement.
fn fits(parse: Option<&(Parse<'_>, &[u8])>, described: Option<&[u8]>, bind: &Bind<'_>) -> bool {
    parse.is_none_or(|(parse, _)| parse.name == bind.statement) && described.is_none_or(|name| name == bind.statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARSE: &[u8] = b"P\0\0\0\x10\0select 1\0\0\0";
    const BIND: &[u8] = b"B\0\0\0\x0c\0\0\0\0\0\0\0\0";
    const DESCRIBE: &[u8] = b"D\0\0\0\x06P\0";
    const DESCRIBE_STATEMENT: &[u8] = b"D\0\0\0\x06S\0";
    const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
    const CLOSE: &[u8] = b"C\0\0\0\x06P\0";
    const SYNC: &[u8] = b"S\0\0\0\x04";
    const FLUSH: &[u8] = b"H\0\0\0\x04";

    fn verdict(messages: &[&[u8]]) -> &'static str {
        match scan(&messages.concat()) {
            Batch::Incomplete { .. } => "incomplete",
            Batch::Other => "other",
            Batch::Prepare { .. } => "prepare",
            Batch::Candidate { groups, .. } => {
                if groups.len() == 1 {
                    "one"
                } else {
                    "several"
                }
            }
        }
    }

    #[test]
    fn batches_are_recognised() {
        assert_eq!(verdict(&[PARSE, BIND, DESCRIBE, EXECUTE, SYNC]), "one");
        assert_eq!(verdict(&[BIND, EXECUTE, SYNC, PARSE]), "one");
        assert_eq!(verdict(&[PARSE, BIND, EXECUTE, BIND, DESCRIBE, EXECUTE, SYNC]), "several");
        assert_eq!(verdict(&[PARSE, BIND, DESCRIBE, EXECUTE]), "incomplete");
        assert_eq!(verdict(&[PARSE, DESCRIBE, SYNC]), "other");
        assert_eq!(verdict(&[PARSE, DESCRIBE_STATEMENT, SYNC]), "prepare");
        assert_eq!(verdict(&[PARSE, DESCRIBE_STATEMENT, BIND, EXECUTE, SYNC]), "one");
        assert_eq!(verdict(&[DESCRIBE_STATEMENT, BIND, EXECUTE, CLOSE, SYNC]), "one");
        assert_eq!(verdict(&[PARSE, DESCRIBE_STATEMENT, BIND, DESCRIBE, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[PARSE, DESCRIBE_STATEMENT, BIND, EXECUTE, BIND, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[PARSE, BIND, EXECUTE, CLOSE, BIND, DESCRIBE, EXECUTE, SYNC]), "several");
        assert_eq!(verdict(&[BIND, EXECUTE, CLOSE, CLOSE, SYNC]), "other");
        assert_eq!(verdict(&[CLOSE, BIND, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[DESCRIBE_STATEMENT, SYNC]), "other");
        assert_eq!(verdict(&[PARSE, BIND, EXECUTE, FLUSH]), "other");
        assert_eq!(verdict(&[PARSE, SYNC]), "prepare");
        assert_eq!(verdict(&[BIND, b"E\0\0\0\x09\0\0\0\0\x05", SYNC]), "one");
        assert_eq!(verdict(&[BIND, EXECUTE, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[SYNC]), "other");
    }

    #[test]
    fn every_prefix_of_a_good_batch_is_incomplete() {
        let messages = [PARSE, BIND, DESCRIBE, EXECUTE, SYNC];
        let all = messages.concat();
        let ends: Vec<usize> = (1..messages.len()).map(|count| messages[..count].concat().len()).collect();
        for end in 0..all.len() {
            let whole = ends.contains(&end);
            assert!(matches!(scan(&all[..end]), Batch::Incomplete { whole: is } if is == whole), "{end}");
        }
    }
}
