//! Reads at replicas: those that pass, outside of transactions, of sessions that share connections.
//!
//! The session gives its connection back first, so that its settings are those of its login and nothing of it lives on a server. Meanwhile it handles no
//! message, as while it waits for the answer to the first part of a batch. How the answer is proven is in [`crate::postgres::pooling::replica_read`].
//!
//! What a replica has shown may not be visible at the primary yet: the primary writes a commit to its log before its snapshots show it. So the session
//! reads nothing at the primary until everything is visible there that was in the log then (`shared/servers/settled.rs`). Only published tables
//! are read at replicas, since the change stream tells of their commits alone.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use freshet_types::{Reason, TableId};
use freshet_wire::postgres::frame::{self, Header};
use freshet_wire::postgres::{backend, frontend};

use crate::postgres::pooling::replica_read::{self, Outcome, Reader, Request};
use crate::postgres::pooling::shown::{self, Shown};
use crate::postgres::session::at_replica::Current;
use crate::postgres::session::batch::{Group, ends_with_flush};
use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::execution::{Execution, parameters};
use crate::postgres::session::sharing::Awaited;
use crate::postgres::session::tending::Tended;
use crate::postgres::session::unit::{ClientUnit, Kind};
use crate::postgres::session::{Known, Session};
use crate::server::traces::{Answered, AnsweredBy};
use crate::statement::registry::{OfPrepared, Statement};

/// The messages of a statement that may be read at a replica.
pub(super) struct Messages<'a> {
    pub(super) bytes: &'a [u8],
    /// See [`Current::parse`].
    pub(super) parse: Option<&'a [u8]>,
}

impl Session {
    /// Begins to read at a replica what would pass for this reason; false: it passes.
    pub(super) fn begin_replica_read(
        &mut self,
        statement: &Arc<Statement>,
        execution: Execution<'_>,
        messages: &Messages<'_>,
        reason: &Reason,
    ) -> bool {
        if !self.shared.pooling.reads_replicas() {
            return false;
        }
        let Some(sharing) = &mut self.server.sharing else { return false };
        let is_free = sharing.awaited.is_none() && sharing.arrived.is_none();
        if std::mem::take(&mut sharing.replica.is_refused) || !may_go(reason) || !is_free {
            return false;
        }
        let (primary, epoch) = (self.shared.identity(), self.shared.cache.epoch());
        let Some(epoch) = epoch else { return false };
        let Some((settings, tables)) = self.fits_replica(statement, execution) else { return false };
        if !self.leave_connection() {
            return false;
        }
        let Some(sharing) = &mut self.server.sharing else { return false };
        let request = Request {
            message: messages.bytes.to_vec(),
            parses: messages.parse.is_some(),
            login: sharing.login.clone(),
            target: sharing.cancel.target.clone(),
            watermark: *self.watermark.get(),
            settings,
            epoch,
            tables,
        };
        let now = self.shared.clock.now();
        let mut unit = ClientUnit::new(Kind::Query, true);
        unit.passes(Some(statement), reason.label(), now);
        let current = Current {
            bytes: messages.bytes.len(),
            statement: statement.clone(),
            parse: messages.parse.map(Into::into),
            reason: reason.clone(),
            epoch,
            primary,
            passed: unit.passed,
        };
        sharing.replica.current = Some(Box::new(current));
        sharing.awaited = Some(Awaited::Answer(Box::pin(replica_read::read(self.shared.clone(), request))));
        self.link.begin_running(statement.query.digest, now);
        self.client.begin_batch(OpenBatch::Leads);
        true
    }

    /// The same for a batch: one execution of a statement that it prepares without a name.
    pub(super) fn begin_replica_batch(&mut self, groups: &[Group<'_>], messages: &[u8], reason: &Reason) -> bool {
        let [group] = groups else { return false };
        let Some((parse, parse_message)) = group.parse.filter(|(parse, _)| parse.name.is_empty()) else { return false };
        let is_plain = group.start() == 0
            && group.bind.statement.is_empty()
            && group.bind.portal.is_empty()
            && group.rows_max == 0
            && !ends_with_flush(messages);
        if !is_plain || !self.shared.pooling.reads_replicas() {
            return false;
        }
        let Ok(statement) = self.known_statement(freshet_sql::without_outer_comments(parse.query), parse.types) else {
            return false;
        };
        let (tail, describe, rows_max) = (group.bind.tail, group.kept_with(), group.rows_max);
        let execution = Execution::Bound { statement: &statement, tail, describe, rows_max };
        let messages = Messages { bytes: messages, parse: Some(parse_message) };
        self.begin_replica_read(&statement, execution, &messages, reason)
    }

    /// The number of the session's settings, and the statement's tables, if a replica may answer it in the session's state.
    fn fits_replica(&mut self, statement: &Statement, execution: Execution<'_>) -> Option<(u32, Vec<TableId>)> {
        let is_outside = self.transaction.is_idle() && self.transaction.block().is_none() && self.is_idle();
        let reads = statement.of_prepared == OfPrepared::Nothing && self.only_reads(statement);
        if !is_outside || !reads || self.client.ends_by_itself() || self.hides(&statement.query) {
            return None;
        }
        let rules = &self.shared.rules;
        let is_limited =
            rules.generation() > 0 && rules.timeout(statement.query.subject(None), &self.server.who()).is_some();
        if is_limited || !matches!(self.server.compare(&self.shared), Some(Ok(()))) {
            return None;
        }
        let Known::Context(context, known_under) = &self.server.settings.known else { return None };
        let catalog = self.shared.catalog.load_full();
        if catalog.version != *known_under || (!context.client.utf8 && !statement.ascii) {
            return None;
        }
        let read_set = statement.query.resolve(&catalog, context).read_set.ok()?;
        // Values of parameters may be clock readings, and servers' clocks differ.
        read_set.bind(&parameters(statement, execution).ok()?, context.client).ok()?;
        let tables = &read_set.tables;
        if tables.is_empty() || self.shared.cool_off.load().hold_any(tables) {
            return None;
        }
        if !self.shared.cache.are_published(tables) {
            self.shared.want(tables);
            return None;
        }
        Some((context.settings, tables.clone()))
    }

    /// Whether everything that a replica has shown to the session is visible at the primary. Otherwise the session begins to wait for that.
    pub(crate) fn settle(&mut self) -> bool {
        let Some(sharing) = &mut self.server.sharing else { return true };
        let Some(shown) = &sharing.replica.debt else { return true };
        if shown.has_settled(&self.shared) {
            sharing.replica.debt = None;
            return true;
        }
        if sharing.awaited.is_none() && sharing.arrived.is_none() {
            let settling = shown::settle(self.shared.clone(), shown.clone());
            sharing.awaited = Some(Awaited::Primary(Box::pin(settling)));
        }
        false
    }

    /// The primary shows what a replica has shown, or does not in time.
    pub(super) fn note_settled(&mut self, is_settled: bool) -> Tended {
        let Some(sharing) = &mut self.server.sharing else { return Tended::Again };
        if is_settled {
            sharing.replica.debt = None;
            return Tended::Again;
        }
        let is_void = sharing.replica.debt.as_ref().is_none_or(|shown| shown.is_void(&self.shared));
        let message = "the primary does not show yet what a replica has shown";
        if !is_void && self.refuse_query(message) {
            return Tended::Again;
        }
        let message = format!("{message}: connect again");
        backend::put_error(self.client.output(), "FATAL", "40001", &message);
        Tended::Ended
    }

    /// Answers the `Query` at the start of the input with an error; false: it is not one that Freshet may answer by itself.
    fn refuse_query(&mut self, message: &str) -> bool {
        let head = frame::header(self.client.received()).ok().flatten();
        let is_whole = |head: &Header| head.tag == frontend::QUERY && self.client.received().len() >= head.frame_bytes;
        let is_outside = self.transaction.is_idle() && self.transaction.block().is_none() && self.is_idle();
        let is_between = !self.client.is_within_message() && *self.client.batch() == OpenBatch::None;
        let Some(head) = head.filter(is_whole).filter(|_| is_outside && is_between) else { return false };
        backend::put_error(self.client.output(), "ERROR", "40001", message);
        backend::put_ready(self.client.output(), backend::STATUS_IDLE);
        self.client.consume(head.frame_bytes);
        self.waiting.looked();
        self.client.unseen_mut().forget();
        true
    }

    /// The client has room for more of an answer.
    pub(super) fn read_on(&mut self, reader: Box<Reader>) -> Tended {
        if let Some(sharing) = &mut self.server.sharing {
            sharing.awaited = Some(Awaited::Answer(Box::pin(replica_read::read_on(reader))));
        }
        Tended::Again
    }

    /// A replica has answered, or cannot answer.
    pub(super) fn note_outcome(&mut self, outcome: Outcome) -> Tended {
        match outcome {
            Outcome::Part { frames, reader } => {
                self.client.put(&frames);
                self.note_shown();
                match (reader, &mut self.server.sharing) {
                    (Some(reader), Some(sharing)) => sharing.awaited = Some(Awaited::Room(reader)),
                    _ => self.replica_answered(),
                }
                Tended::Again
            }
            Outcome::Primary => {
                if let Some(sharing) = &mut self.server.sharing {
                    sharing.replica.current = None;
                    sharing.replica.is_refused = true;
                }
                self.link.end_running();
                self.client.end_batch();
                Tended::Again
            }
            Outcome::Lost { is_within_message } => {
                if !is_within_message {
                    backend::put_error(self.client.output(), "FATAL", "08006", "the replica was lost amid an answer");
                }
                Tended::Ended
            }
        }
    }

    /// The client gets what a replica has shown.
    fn note_shown(&mut self) {
        let now = self.now();
        self.watermark.raise(now);
        if self.shared.redefining.load(SeqCst) > 0 {
            self.watermark.note_definition(now);
        }
        self.prefetch.told(None, false);
        if let Some(sharing) = &mut self.server.sharing
            && let Some(current) = &sharing.replica.current
        {
            let (epoch, primary) = (current.epoch, current.primary.clone());
            sharing.replica.debt = Some(Shown { epoch, since: now, primary });
        }
    }

    /// The answer is complete.
    fn replica_answered(&mut self) {
        self.link.end_running();
        self.client.end_batch();
        let current = self.server.sharing.as_mut().and_then(|sharing| sharing.replica.current.take());
        let Some(Current { bytes, statement, parse, reason, passed, .. }) = current.map(|current| *current) else {
            return;
        };
        self.client.consume(bytes);
        self.waiting.looked();
        self.client.unseen_mut().forget();
        match parse {
            Some(parse) => {
                let prepared = self.prepared(&statement);
                self.server.statements.kept_unnamed(prepared, &parse);
            }
            None => self.server.statements.query_answered(),
        }
        self.count_passed(&reason);
        self.last.passes(Some(&statement), &reason);
        statement.query.note_passed(&reason);
        let parent = self.client.take_trace();
        if let Some(passed) = &passed {
            let (took, query) = (passed.answered(self.now()), &passed.query);
            let outcome = AnsweredBy::Pass(passed.reason);
            self.count_answer(took, &Answered { query, took: took.nanos, outcome, has_failed: false, parent });
        }
    }
}

/// Whether a statement that passes for this reason may be read at a replica: it could be cached, but is not, or not now.
fn may_go(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NotAdmitted
            | Reason::Rule
            | Reason::Disabled
            | Reason::TooBusy
            | Reason::TooLarge
            | Reason::Unproven
            | Reason::FillInFlight
            | Reason::Watermark
            | Reason::NotYetApplied
            | Reason::Fence
    )
}
