//! Reads at replicas: those that pass, outside of transactions, of sessions that share connections.
//!
//! The session gives its connection back first, so that its settings are those of its login and nothing of it lives on a server. Meanwhile it handles no
//! message, as while it waits for the answer to the first part of a batch. How the answer is proven is in [`crate::postgres::pooling::replica_read`].
//!
//! What a replica has shown may not be visible at the primary yet: the primary writes a commit to its log before its snapshots show it. So the session
//! reads nothing at the primary until everything is visible there that was in the log then (`shared/servers/settled.rs`): it is in debt. Meanwhile it may
//! read at replicas that have replayed at least that much. Only published tables are read at replicas, since the change stream tells of their commits
//! alone.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use freshet_types::Reason;
use freshet_wire::postgres::frame;
use freshet_wire::postgres::{backend, frontend};

use crate::postgres::pooling::replica_choice::{Reads, Request};
use crate::postgres::pooling::replica_read::{self, Outcome, Reader};
use crate::postgres::pooling::shown::{self, SETTLE_MAX, SETTLE_STEP, Shown};
use crate::postgres::session::at_replica::Current;
use crate::postgres::session::batch::{Group, ends_with_flush};
use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::execution::{Execution, parameters};
use crate::postgres::session::plan::Allowed;
use crate::postgres::session::sharing::Awaited;
use crate::postgres::session::tending::Tended;
use crate::postgres::session::unit::{ClientUnit, Kind};
use crate::postgres::session::{Known, Session};
use crate::rules::{Caching, Way};
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
        let in_debt = self.has_debt();
        let Some(sharing) = &mut self.server.sharing else { return false };
        let is_free = sharing.awaited.is_none() && sharing.arrived.is_none();
        // Then the primary answers it. A session in debt, which waits for that, asks again.
        let is_refused = sharing.replica.is_refused;
        sharing.replica.is_refused &= !in_debt;
        if is_refused || !sharing.traces.has_no_label() || !may_go(reason) || !is_free {
            return false;
        }
        let debt = sharing.replica.debt.clone();
        // In this order, since another epoch may have another primary: it must still be the same behind the answer.
        let Some(epoch) = self.shared.cache.epoch() else { return false };
        let primary = self.shared.identity();
        let is_of_debt = |debt: &Shown| primary.is_some() && !debt.is_void_under(primary.as_deref());
        if debt.as_ref().is_some_and(|debt| !is_of_debt(debt)) {
            return false;
        }
        let way = self.shared.rules.route(statement.subject(), &self.server.who());
        if way == Some(Way::Primary) {
            return false;
        }
        let Some((settings, reads)) = self.fits_replica(statement, execution) else { return false };
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
            reads,
            debt,
            way,
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
        if self.is_ahead() && !self.may_read_ahead(&statement) {
            return false;
        }
        let (tail, describe, rows_max) = (group.bind.tail, group.kept_with(), group.rows_max);
        let execution = Execution::Bound { statement: &statement, tail, describe, rows_max };
        let messages = Messages { bytes: messages, parse: Some(parse_message) };
        self.begin_replica_read(&statement, execution, &messages, reason)
    }

    /// The same before the session takes a connection to the primary, or waits until it may read there.
    pub(super) fn begin_read_ahead(
        &mut self,
        statement: &Arc<Statement>,
        execution: Execution<'_>,
        messages: &Messages<'_>,
        (allowed, bypass): (&Allowed, Option<&Reason>),
    ) -> bool {
        match allowed {
            _ if !self.may_read_ahead(statement) => false,
            Allowed::Cache { .. } => match bypass.cloned().or_else(|| self.misses_ahead(statement)) {
                Some(reason) => self.begin_replica_read(statement, execution, messages, &reason),
                None => false,
            },
            Allowed::Ask if self.has_debt() && self.only_reads(statement) => {
                self.ask_context();
                true
            }
            Allowed::Ask | Allowed::Pass(_) => false,
        }
    }

    /// Whether the session has no connection to the primary, or may not read there yet.
    pub(super) fn is_ahead(&self) -> bool {
        self.shared.pooling.reads_replicas() && (!self.has_connection() || self.has_debt())
    }

    /// The same, and the statement, which may use the cache, may be read at a replica meanwhile.
    pub(super) fn may_read_ahead(&self, statement: &Arc<Statement>) -> bool {
        self.is_ahead() && self.nature(Some(statement)).refusal.is_none() && !self.is_refused(statement)
    }

    /// Why the session does not fill the cache with an answer that it lacks, as far as is known without the primary; None: it fills it there, once
    /// it may read there.
    pub(super) fn misses_ahead(&self, statement: &Statement) -> Option<Reason> {
        if self.shared.rules.caching_to_be(statement.subject(), &self.server.who()) == Caching::Never {
            return Some(Reason::Rule);
        }
        if statement.query.is_disabled() {
            return Some(Reason::Disabled);
        }
        if !self.has_debt() {
            return None;
        }
        let waits_since = self.server.sharing.as_ref().and_then(|sharing| sharing.replica.waits_since);
        let has_waited = waits_since.is_some_and(|since| since.elapsed() >= SETTLE_STEP);
        (has_waited || self.shared.servers.is_stuck(self.shared.clock.now())).then_some(Reason::Watermark)
    }

    /// Whether a replica has shown to the session what may not be visible at the primary.
    pub(super) fn has_debt(&self) -> bool {
        let debt = self.server.sharing.as_ref().and_then(|sharing| sharing.replica.debt.as_ref());
        debt.is_some_and(|shown| !shown.has_settled(&self.shared))
    }

    /// The number of the session's settings, and what the statement reads, if a replica may answer it in the session's state.
    fn fits_replica(&mut self, statement: &Statement, execution: Execution<'_>) -> Option<(u32, Reads)> {
        let is_outside = self.transaction.is_idle() && self.transaction.block().is_none() && self.is_idle();
        let reads = statement.says.of_prepared == OfPrepared::Nothing && self.only_reads(statement);
        if !is_outside || !reads || self.client.ends_by_itself() || self.hides(&statement.query) {
            return None;
        }
        let rules = &self.shared.rules;
        let is_limited =
            rules.generation() > 0 && rules.timeout(statement.query.subject(None), &self.server.who()).is_some();
        // Settings of the server differ, and its state is one.
        let reads_settings = !statement.query.template.settings().is_empty();
        if is_limited || reads_settings || !matches!(self.server.compare(&self.shared), Some(Ok(()))) {
            return None;
        }
        let Known::Context(context, known_under) = &self.server.settings.known else { return None };
        let catalog = self.shared.catalog.load_full();
        if catalog.version != *known_under || (!context.client.utf8 && !statement.ascii) {
            return None;
        }
        let read_set = statement.query.resolve(&catalog, context).read_set.ok()?;
        // Values of parameters may be clock readings, and servers' clocks differ.
        let tags = read_set.bind(&parameters(statement, execution).ok()?, context.client).ok()?.tags;
        statement.query.template.refuse_declared(&catalog, &statement.types).ok()?;
        let tables = &read_set.tables;
        if tables.is_empty() || self.shared.cool_off.load().hold_any(tables) {
            return None;
        }
        if !self.shared.cache.are_published(tables) {
            self.shared.want(tables);
            return None;
        }
        Some((context.settings, Reads { tables: tables.clone(), tags, catalog: catalog.version }))
    }

    /// Whether everything that a replica has shown to the session is visible at the primary. Otherwise the session begins to wait for that.
    pub(crate) fn settle(&mut self) -> bool {
        let Some(sharing) = &mut self.server.sharing else { return true };
        let Some(shown) = &sharing.replica.debt else { return true };
        if shown.has_settled(&self.shared) {
            (sharing.replica.debt, sharing.replica.waits_since) = (None, None);
            return true;
        }
        sharing.replica.waits_since.get_or_insert_with(Instant::now);
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
            (sharing.replica.debt, sharing.replica.waits_since) = (None, None);
            return Tended::Again;
        }
        let is_over = sharing.replica.waits_since.is_none_or(|since| since.elapsed() >= SETTLE_MAX);
        let is_void = sharing.replica.debt.as_ref().is_none_or(|shown| shown.is_void(&self.shared));
        let message = "the primary does not show yet what a replica has shown";
        if !is_void {
            if is_over {
                self.refuse_message("40001", message);
            }
            return Tended::Again;
        }
        let message = format!("{message}: connect again");
        backend::put_error(self.client.output(), "FATAL", "40001", &message);
        Tended::Ended
    }

    /// Answers the message at the start of the input with an error, as a server does; of the extended protocol, the messages up to `Sync` are skipped.
    /// Where Freshet may not answer by itself, the session goes on waiting.
    pub(super) fn refuse_message(&mut self, sqlstate: &str, message: &str) {
        let head = frame::header(self.client.received()).ok().flatten();
        let is_outside = self.transaction.is_idle() && self.transaction.block().is_none() && self.is_idle();
        let is_between = !self.client.is_within_message() && *self.client.batch() == OpenBatch::None;
        let Some(head) = head.filter(|_| is_outside && is_between) else { return };
        backend::put_error(self.client.output(), "ERROR", sqlstate, message);
        _ = self.client.take_trace();
        self.note_handled();
        self.client.unseen_mut().forget();
        if matches!(head.tag, frontend::QUERY | frontend::FUNCTION_CALL) {
            backend::put_ready(self.client.output(), backend::STATUS_IDLE);
            self.client.drop_message(head.frame_bytes);
        } else {
            self.client.begin_batch(OpenBatch::Skipped);
            self.client.set_ends_by_itself(true);
        }
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
            Outcome::Part { frames, reader, at } => {
                self.client.put(&frames);
                self.note_shown();
                match (reader, &mut self.server.sharing) {
                    (Some(reader), Some(sharing)) => sharing.awaited = Some(Awaited::Room(reader)),
                    _ => self.replica_answered(at),
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

    /// The message at the start of the input is handled.
    pub(super) fn note_handled(&mut self) {
        self.waiting.looked();
        if let Some(sharing) = &mut self.server.sharing {
            (sharing.replica.is_refused, sharing.replica.waits_since) = (false, None);
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
            sharing.replica.waits_since = None;
        }
    }

    /// The answer is complete.
    fn replica_answered(&mut self, at: Option<usize>) {
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
        self.last.note_replica(at);
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
