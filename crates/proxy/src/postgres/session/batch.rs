//! Parses the messages of the extended protocol up to the next `Sync`, without consuming them.
//!
//! Batches of the form `([Parse] Bind [Describe portal] Execute [Close portal])+ Sync` can be answered from the cache. So can `[Parse] Describe
//! statement Bind Execute [Close portal] Sync`. The portals are unnamed, or are closed in the batch. Messages that only the server can answer come
//! first ([`Lead`]): `Close`, and `Parse` of a named statement. All other batches pass, and are sent on from the first message that does not fit.
//! `Flush` may take the place of `Sync`, which then follows later: clients with pipelines read their answers in this way. An incomplete batch is
//! waited for only briefly ([`PATIENCE`]).

use freshet_types::Nanos;
use freshet_wire::postgres::frame::{self, HEADER_BYTES, Header};
use freshet_wire::postgres::frontend::{self, Bind, Execute, Parse, Target};
use smallvec::SmallVec;

use crate::statement::registry::TEXT_BYTES_MAX;

/// Limit of executions in one batch; a batch with more passes.
const GROUPS_MAX: usize = 256;

/// How long whole messages wait for the rest of their batch. A driver that sends a batch at once has sent it all by then. A driver that waits for
/// answers to the first messages must not wait for ever.
pub(crate) const PATIENCE: Nanos = 2_000_000;

/// The description of the answer that the client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Describe {
    /// None.
    #[default]
    Nothing,
    /// `RowDescription`, after `Bind`.
    Portal,
    /// `ParameterDescription` and `RowDescription`, before `Bind`.
    Statement,
}

/// One execution.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// The position of its `Bind` among the messages.
    pub(crate) at: usize,
    /// The `Parse` of the statement that it binds, if it is in the batch.
    pub(crate) parse: Option<(Parse<'a>, &'a [u8])>,
    pub(crate) bind: Bind<'a>,
    pub(crate) describe: Describe,
    /// The batch closes its portal.
    pub(crate) closes: bool,
    /// The limit of rows; 0 means all. The portal ends with the `Sync` at the latest, so nobody can ask for the remaining rows.
    pub(crate) rows_max: u32,
}

impl Group<'_> {
    /// The description that is cached with the answer. If the batch prepares a named statement, only the server can answer `Parse` ([`Lead`]) and the
    /// description of the statement.
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

    /// Whether it prepares a named statement.
    pub(crate) fn names_statement(&self) -> bool {
        self.parse.as_ref().is_some_and(|(parse, _)| !parse.name.is_empty())
    }
}

/// The messages before the first execution that only the server can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lead {
    /// Their length in bytes.
    pub(crate) bytes: usize,
    /// They begin with a `Close`.
    pub(crate) closes: bool,
}

/// The messages at the start of the input.
#[derive(Debug)]
pub(crate) enum Batch<'a> {
    /// They fit so far, but `Sync` has not arrived.
    Incomplete {
        /// There are messages, and the last one is whole: the client may wait for their answers.
        whole: bool,
    },
    /// They pass.
    Other,
    /// A statement is prepared: `Parse [Describe statement] Sync`.
    Prepare {
        /// The statement.
        parse: Parse<'a>,
        /// The client asks for its parameters and columns.
        describe: bool,
        /// The length in bytes, with `Sync`.
        bytes: usize,
    },
    /// They contain an execution and can be answered from the cache.
    Candidate {
        /// The length in bytes, with the `Sync` or the `Flush` ([`ends_with_flush`]).
        bytes: usize,
        /// The messages before the first execution.
        lead: Lead,
    },
}

/// The executions of a batch, in order.
pub(crate) type Groups<'a> = SmallVec<[Group<'a>; 1]>;

/// Parses the start of the input. The executions are written into the caller's buffer, since they are too large to be moved.
pub(crate) fn scan<'a>(input: &'a [u8], groups: &mut Groups<'a>) -> Batch<'a> {
    let mut scan = Scan { groups, parse: None, described: None, is_bound: false, lead: Lead::default() };
    let mut at = 0;
    loop {
        let rest = input.get(at..).unwrap_or_default();
        let Ok(head) = frame::header(rest) else { return Batch::Other };
        // A client that has sent part of a message does not wait for an answer.
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

/// The messages parsed so far.
struct Scan<'a, 'g> {
    groups: &'g mut Groups<'a>,
    /// A `Parse` without its `Bind` so far.
    parse: Option<(Parse<'a>, &'a [u8])>,
    /// The statement that was described before its `Bind`.
    described: Option<&'a [u8]>,
    /// The last execution has its `Bind`, but not yet its `Execute`.
    is_bound: bool,
    lead: Lead,
}

impl<'a> Scan<'a, '_> {
    /// Adds a message, which ends at `end`. None: it does not fit.
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

    /// Adds `Sync`, which ends at `bytes`.
    fn end(self, bytes: usize) -> Batch<'a> {
        let Self { groups, parse, described, is_bound, lead } = self;
        if is_bound {
            return Batch::Other;
        }
        // The client may ask for more rows of a named portal later, unless the batch closes it.
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
    /// Adds `Flush`, which ends at `bytes`. Messages that only the server can answer are not separated in this case.
    fn flush(self, bytes: usize) -> Batch<'a> {
        match self.end(bytes) {
            candidate @ Batch::Candidate { lead: Lead { bytes: 0, closes: false }, .. } => candidate,
            _ => Batch::Other,
        }
    }
}

/// Whether the messages end with `Flush`, so that `Sync` is still to come.
pub(super) fn ends_with_flush(messages: &[u8]) -> bool {
    messages.len().checked_sub(HEADER_BYTES).and_then(|at| messages.get(at)) == Some(&frontend::FLUSH)
}

/// Whether the type of the message is known. The server may answer an unknown one with an error before the message is complete.
fn is_known(head: Header) -> bool {
    match head.tag {
        frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => true,
        frontend::SYNC | frontend::FLUSH => head.frame_bytes == HEADER_BYTES,
        _ => false,
    }
}

/// Whether `Parse` and `Describe` of a statement belong to the `Bind` that follows: it must name the same statement.
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

    /// Messages with the named portal "p", or the named statement "s".
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
