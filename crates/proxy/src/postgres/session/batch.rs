//! A look at the extended-protocol messages up to the next `Sync`, without consuming them.
//!
//! Batches of the form `([Parse] Bind [Describe portal] Execute [Close portal])+ Sync` can be answered from the cache; so can
//! `[Parse] Describe statement Bind Execute [Close portal] Sync`. Portals have no name, or are closed in the batch. What only the server
//! can do comes first ([`Lead`]): `Close` in front, and `Parse` of a statement with a name. Everything else passes, and from the first
//! message that does not fit nothing is held back. `Flush` may stand in place of `Sync`, which then comes later: whoever pipelines statements reads
//! their answers so. What is not complete is waited for a moment only ([`PATIENCE`]).

use freshet_types::Nanos;
use freshet_wire::postgres::frame::{self, HEADER_BYTES, Header};
use freshet_wire::postgres::frontend::{self, Bind, Execute, Parse, Target};
use smallvec::SmallVec;

use crate::statement::registry::TEXT_BYTES_MAX;

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
    /// Where its `Bind` begins among the messages.
    pub(crate) at: usize,
    /// `Parse` precedes it, for the statement that it binds.
    pub(crate) parse: Option<(Parse<'a>, &'a [u8])>,
    pub(crate) bind: Bind<'a>,
    pub(crate) describe: Describe,
    /// Its portal is closed.
    pub(crate) closes: bool,
    /// The most rows; 0 for all. The portal does not outlive the `Sync`, so what is left of it is never asked for.
    pub(crate) rows_max: u32,
}

impl Group<'_> {
    /// What the answer holds that is kept. To the `Parse` of a statement with a name only the server can answer ([`Lead`]), and to its
    /// description with it.
    pub(crate) fn kept_with(&self) -> Describe {
        match self.describe {
            Describe::Statement if self.names_statement() => Describe::Nothing,
            describe => describe,
        }
    }

    /// Where its first message begins. In the first group a `Describe` may be between the two.
    pub(crate) fn start(&self) -> usize {
        self.at - self.parse.as_ref().map_or(0, |(_, message)| message.len())
    }

    /// How many answers the server gives from its `Bind` on.
    pub(crate) fn answers(&self) -> usize {
        2 + usize::from(self.describe == Describe::Portal) + usize::from(self.closes)
    }

    /// It prepares a statement with a name.
    pub(crate) fn names_statement(&self) -> bool {
        self.parse.as_ref().is_some_and(|(parse, _)| !parse.name.is_empty())
    }
}

/// The messages before the first execution that only the server can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lead {
    /// Their bytes.
    pub(crate) bytes: usize,
    /// The batch begins with a `Close`.
    pub(crate) closes: bool,
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
    /// They can be answered from the cache: there is an execution.
    Candidate {
        /// All bytes, with the `Sync`, or the `Flush` ([`ends_with_flush`]).
        bytes: usize,
        /// Its beginning.
        lead: Lead,
    },
}

/// The executions of a batch, in order.
pub(crate) type Groups<'a> = SmallVec<[Group<'a>; 1]>;

/// Looks at the start of the input. The executions are written where the caller has them, as they are too large to be moved.
pub(crate) fn scan<'a>(input: &'a [u8], groups: &mut Groups<'a>) -> Batch<'a> {
    let mut scan = Scan { groups, parse: None, described: None, is_bound: false, lead: Lead::default() };
    let mut at = 0;
    loop {
        let rest = input.get(at..).unwrap_or_default();
        let Ok(head) = frame::header(rest) else { return Batch::Other };
        // Whoever is in the middle of a message waits for no answer.
        let Some(head) = head else { return Batch::Incomplete { whole: at > 0 && rest.is_empty() } };
        if at + head.frame_bytes > TEXT_BYTES_MAX || !is_known(head) {
            return Batch::Other;
        }
        let Some(message) = rest.get(..head.frame_bytes) else { return Batch::Incomplete { whole: false } };
        at += head.frame_bytes;
        match head.tag {
            frontend::SYNC => return scan.end(at),
            frontend::FLUSH => return scan.flush(at),
            _ => {}
        }
        if scan.add(head.tag, message, at).is_none() {
            return Batch::Other;
        }
    }
}

/// What has been found so far.
struct Scan<'a, 'g> {
    groups: &'g mut Groups<'a>,
    /// A `Parse` whose `Bind` is still to come.
    parse: Option<(Parse<'a>, &'a [u8])>,
    /// The statement that is described before its `Bind`.
    described: Option<&'a [u8]>,
    /// The last of the executions has its `Bind`, and its `Execute` is still to come.
    is_bound: bool,
    lead: Lead,
}

impl<'a> Scan<'a, '_> {
    /// The next message, which ends at `end`. None: it does not fit.
    fn add(&mut self, tag: u8, message: &'a [u8], end: usize) -> Option<()> {
        match tag {
            frontend::PARSE if self.parse.is_none() && !self.is_bound => {
                self.parse = Some((Parse::read(message).ok()?, message));
            }
            frontend::BIND if !self.is_bound => {
                let bind = Bind::read(message).ok()?;
                let parse = self.parse.take();
                if !fits(parse.as_ref(), self.described, &bind) {
                    return None;
                }
                if self.groups.is_empty() && parse.is_some_and(|(parse, _)| !parse.name.is_empty()) {
                    self.lead.bytes = end - message.len();
                }
                let describe = if self.described.is_some() { Describe::Statement } else { Describe::Nothing };
                let at = end - message.len();
                self.groups.push(Group { at, parse, bind, describe, closes: false, rows_max: 0 });
                self.is_bound = true;
            }
            frontend::DESCRIBE => self.describe(&Target::read(message).ok()?)?,
            frontend::EXECUTE => {
                let groups_max = if self.described.is_some() { 1 } else { GROUPS_MAX };
                let is_fit = std::mem::take(&mut self.is_bound) && self.groups.len() <= groups_max;
                let (group, execute) = (self.groups.last_mut()?, Execute::read(message).ok()?);
                if !is_fit || execute.portal != group.bind.portal {
                    return None;
                }
                group.rows_max = execute.rows_max;
            }
            frontend::CLOSE if self.parse.is_none() && !self.is_bound => {
                self.close(&Target::read(message).ok()?, end)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn describe(&mut self, target: &Target<'a>) -> Option<()> {
        let is_first = self.groups.is_empty();
        let bound = if self.is_bound { self.groups.last_mut() } else { None };
        match (bound, target.kind) {
            (Some(group), b'P') if group.describe == Describe::Nothing && group.bind.portal == target.name => {
                group.describe = Describe::Portal;
            }
            (None, b'S') if is_first && self.described.is_none() => {
                self.parse.as_ref().is_none_or(|(parse, _)| parse.name == target.name).then_some(())?;
                self.described = Some(target.name);
            }
            _ => return None,
        }
        Some(())
    }

    fn close(&mut self, target: &Target<'_>, end: usize) -> Option<()> {
        match (self.groups.last_mut(), target.kind) {
            (Some(group), b'P') if !group.closes && group.bind.portal == target.name => group.closes = true,
            (None, b'P' | b'S') if self.described.is_none() => self.lead = Lead { bytes: end, closes: true },
            _ => return None,
        }
        Some(())
    }

    /// `Sync` has come, the last of so many bytes.
    fn end(self, bytes: usize) -> Batch<'a> {
        let Self { groups, parse, described, is_bound, lead } = self;
        if is_bound {
            return Batch::Other;
        }
        // What a portal with a name holds can be asked for later, unless it is closed.
        let all_end = groups.iter().all(|group| group.closes || group.bind.portal.is_empty());
        match parse {
            None if !groups.is_empty() && all_end => Batch::Candidate { bytes, lead },
            Some((parse, _)) if groups.is_empty() && !lead.closes => {
                Batch::Prepare { parse, describe: described.is_some(), bytes }
            }
            _ => Batch::Other,
        }
    }
}

impl<'a> Scan<'a, '_> {
    /// `Flush` has come, the last of so many bytes. What only the server can answer is not told from the rest then.
    fn flush(self, bytes: usize) -> Batch<'a> {
        match self.end(bytes) {
            candidate @ Batch::Candidate { lead: Lead { bytes: 0, closes: false }, .. } => candidate,
            _ => Batch::Other,
        }
    }
}

/// The messages of a batch end with `Flush`; its `Sync` is still to come.
pub(super) fn ends_with_flush(messages: &[u8]) -> bool {
    messages.len().checked_sub(HEADER_BYTES).and_then(|at| messages.get(at)) == Some(&frontend::FLUSH)
}

/// What is not may be an error that the server tells before the message is whole.
fn is_known(head: Header) -> bool {
    match head.tag {
        frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => true,
        frontend::SYNC | frontend::FLUSH => head.frame_bytes == HEADER_BYTES,
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
        let (messages, mut groups) = (messages.concat(), Groups::new());
        match scan(&messages, &mut groups) {
            Batch::Incomplete { .. } => "incomplete",
            Batch::Other => "other",
            Batch::Prepare { .. } => "prepare",
            Batch::Candidate { bytes, .. } if ends_with_flush(&messages[..bytes]) => "flushed",
            Batch::Candidate { .. } => {
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
        assert_eq!(verdict(&[CLOSE, BIND, EXECUTE, SYNC]), "one");
        assert_eq!(verdict(&[CLOSE, PARSE, SYNC]), "other");
        assert_eq!(verdict(&[CLOSE, SYNC]), "other");
        assert_eq!(verdict(&[DESCRIBE_STATEMENT, CLOSE, BIND, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[DESCRIBE_STATEMENT, SYNC]), "other");
        assert_eq!(verdict(&[PARSE, BIND, EXECUTE, FLUSH]), "flushed");
        assert_eq!(verdict(&[PARSE, BIND, DESCRIBE, EXECUTE, BIND, EXECUTE, FLUSH, SYNC]), "flushed");
        assert_eq!(verdict(&[PARSE, DESCRIBE_STATEMENT, FLUSH]), "other");
        assert_eq!(verdict(&[PARSE, FLUSH]), "other");
        assert_eq!(verdict(&[BIND, FLUSH, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[CLOSE, BIND, EXECUTE, FLUSH]), "other");
        assert_eq!(verdict(&[PARSE_NAMED, BIND_NAMED, EXECUTE, FLUSH]), "other");
        assert_eq!(verdict(&[FLUSH]), "other");
        assert_eq!(verdict(&[PARSE, SYNC]), "prepare");
        assert_eq!(verdict(&[BIND, b"E\0\0\0\x09\0\0\0\0\x05", SYNC]), "one");
        assert_eq!(verdict(&[BIND, EXECUTE, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[SYNC]), "other");
    }

    /// A message on a portal "p", or of a statement "s".
    const PARSE_NAMED: &[u8] = b"P\0\0\0\x11s\0select 1\0\0\0";
    const BIND_NAMED: &[u8] = b"B\0\0\0\x0d\0s\0\0\0\0\0\0\0";
    const BIND_PORTAL: &[u8] = b"B\0\0\0\x0dp\0\0\0\0\0\0\0\0";
    const DESCRIBE_PORTAL: &[u8] = b"D\0\0\0\x07Pp\0";
    const EXECUTE_PORTAL: &[u8] = b"E\0\0\0\x0ap\0\0\0\0\0";
    const CLOSE_PORTAL: &[u8] = b"C\0\0\0\x07Pp\0";

    #[test]
    fn portals_with_names_are_closed_in_the_batch() {
        assert_eq!(verdict(&[PARSE, BIND_PORTAL, DESCRIBE_PORTAL, EXECUTE_PORTAL, CLOSE_PORTAL, SYNC]), "one");
        assert_eq!(verdict(&[BIND_PORTAL, EXECUTE_PORTAL, CLOSE_PORTAL, BIND, EXECUTE, SYNC]), "several");
        assert_eq!(verdict(&[BIND_PORTAL, EXECUTE_PORTAL, SYNC]), "other");
        assert_eq!(verdict(&[BIND_PORTAL, EXECUTE_PORTAL, CLOSE, SYNC]), "other");
        assert_eq!(verdict(&[BIND_PORTAL, EXECUTE, SYNC]), "other");
        assert_eq!(verdict(&[BIND_PORTAL, DESCRIBE, EXECUTE_PORTAL, CLOSE_PORTAL, SYNC]), "other");
    }

    #[test]
    fn what_the_server_must_answer_leads() {
        let lead = |messages: &[&[u8]]| match scan(&messages.concat(), &mut Groups::new()) {
            Batch::Candidate { lead, .. } => (lead.bytes, lead.closes),
            other => panic!("{other:?}"),
        };
        assert_eq!(lead(&[PARSE, BIND, EXECUTE, SYNC]), (0, false));
        assert_eq!(lead(&[PARSE_NAMED, BIND_NAMED, EXECUTE, SYNC]), (PARSE_NAMED.len(), false));
        let described: &[u8] = b"D\0\0\0\x07Ss\0";
        let both = PARSE_NAMED.len() + described.len();
        assert_eq!(lead(&[PARSE_NAMED, described, BIND_NAMED, EXECUTE, SYNC]), (both, false));
        assert_eq!(lead(&[CLOSE, PARSE, BIND, EXECUTE, SYNC]), (CLOSE.len(), true));
        assert_eq!(lead(&[CLOSE, PARSE_NAMED, BIND_NAMED, EXECUTE, SYNC]), (CLOSE.len() + PARSE_NAMED.len(), true));
    }

    #[test]
    fn every_prefix_of_a_good_batch_is_incomplete() {
        let messages = [PARSE, BIND, DESCRIBE, EXECUTE, SYNC];
        let all = messages.concat();
        let ends: Vec<usize> = (1..messages.len()).map(|count| messages[..count].concat().len()).collect();
        for end in 0..all.len() {
            let whole = ends.contains(&end);
            assert!(
                matches!(scan(&all[..end], &mut Groups::new()), Batch::Incomplete { whole: is } if is == whole),
                "{end}"
            );
        }
    }
}
