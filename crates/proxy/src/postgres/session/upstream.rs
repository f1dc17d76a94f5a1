//! The server's answers: forwarded in order, added to fills, or dropped.

use std::sync::atomic::Ordering::SeqCst;

use freshet_types::{Reason, Visible};
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame::{self, Header};

use crate::postgres::pooling::rest_question::Lives;
use crate::postgres::question::{Answer, CONFIGURATION_COLUMN, CONTEXT_COLUMNS};
use crate::postgres::session::block::Block;
use crate::postgres::session::own_statements::OwnStatements;
use crate::postgres::session::server_connection::Way;
use crate::postgres::session::unit::{Ask, ClientUnit, CopyData, Kind, Unit};
use crate::postgres::session::{Known, Session, SessionError};
use crate::server::traces::{Answered, AnsweredBy};
use crate::session::commit_wait::Touched;

/// Limit of the bytes of a row that answers one of Freshet's own statements.
const OWN_ROW_BYTES_MAX: usize = 64 << 10;

impl Session {
    /// Handles all received messages of the server, as long as the client's output has space.
    pub(crate) fn read_upstream(&mut self) -> Result<(), SessionError> {
        while !self.server.received().is_empty() && !self.client.is_high() {
            if self.server.rest > 0 {
                if !self.move_upstream_bytes() {
                    break;
                }
                continue;
            }
            if self.waiting.is_in_commit_wait() && !matches!(self.pipeline.front(), Some(Unit::Own { .. })) {
                break;
            }
            if self.drains_notifications() {
                break;
            }
            if self.move_usual_messages() {
                continue;
            }
            let head = frame::header(self.server.received())
                .map_err(|_| SessionError::ServerMisbehaved("impossible length"))?;
            let Some(head) = head else { break };
            if head.tag == backend::READY && matches!(self.pipeline.front(), Some(Unit::Unseen { .. })) {
                return Err(SessionError::ServerMisbehaved("the end of a batch that is still to be answered"));
            }
            if !self.server.note_report(head) || !self.note_drop(head) {
                break;
            }
            let input = self.server.received();
            if head.tag == backend::NOTIFICATION && self.looks_at_notifications() {
                let Some(is_clients) = self.notified(head) else { break };
                self.server.way = if is_clients { Way::Forward } else { Way::Swallow };
            } else if head.tag == backend::READY || self.is_own_answer(head) {
                let Some(message) = input.get(..head.frame_bytes) else {
                    if head.frame_bytes > OWN_ROW_BYTES_MAX {
                        return Err(SessionError::ServerMisbehaved("an own statement's row is too long"));
                    }
                    break;
                };
                if head.tag == backend::READY {
                    let status = message.last().copied().unwrap_or(backend::STATUS_IDLE);
                    self.server.way = if self.ready(status) { Way::Forward } else { Way::Swallow };
                } else if head.tag == backend::ERROR {
                    // The last messages of a server that ends the connection are for the client.
                    self.server.way = if backend::is_fatal(message) { Way::Forward } else { Way::Swallow };
                    if let Some(Unit::Own { ask: Ask::Prepare { .. }, row }) = self.pipeline.front_mut() {
                        *row = Some(Box::default());
                    }
                } else if let Some(row) = self.pipeline.front_mut().and_then(Unit::own_row) {
                    *row = Some(message.into());
                    self.server.way = Way::Swallow;
                }
            } else if head.tag == backend::ERROR
                && head.frame_bytes <= OWN_ROW_BYTES_MAX
                && (self.may_be_refused() || self.may_be_over() || self.may_name_entry())
            {
                let Some(message) = self.server.received().get(..head.frame_bytes) else { break };
                let message = message.to_vec();
                let way = self.message_begins(head)?;
                let is_answered =
                    self.answer_refused(&message) || self.answer_over(&message) || self.answer_renamed(&message);
                self.server.way = if is_answered { Way::Swallow } else { way };
            } else {
                self.server.way = self.message_begins(head)?;
            }
            self.server.rest = head.frame_bytes;
        }
        Ok(())
    }

    /// Moves all complete messages of a client's answer, as long as they are ordinary and treated alike; false if there are none.
    fn move_usual_messages(&mut self) -> bool {
        let wrote = self.transaction.wrote();
        let Some(Unit::Client(unit)) = self.pipeline.front_mut() else { return false };
        if unit.kind == Kind::Sync {
            return false;
        }
        let input = self.server.received();
        let (mut count, mut way) = (0, None);
        while let Some(rest) = input.get(count..)
            && let Ok(Some(head)) = frame::header(rest)
            && head.frame_bytes <= rest.len()
            && unit.fills.end.as_ref().is_none_or(|end| !end.is_next())
            && !unit.renamed.is_next()
        {
            let its_way = if keeps(unit, head.tag) { Way::Keep } else { Way::Forward };
            if *way.get_or_insert(its_way) != its_way {
                break;
            }
            match head.tag {
                backend::DATA_ROW => {}
                // The client may learn of a commit from it.
                backend::COMMAND_COMPLETE if wrote || unit.effects.mark.writes() => break,
                tag if answers_once(tag) => unit.answered_once(tag),
                _ => break,
            }
            count += head.frame_bytes;
        }
        if way == Some(Way::Keep) {
            (self.server.rest, self.server.way) = (count, Way::Keep);
            return self.move_upstream_bytes();
        }
        self.client.put(input.get(..count).unwrap_or_default());
        self.server.consume(count);
        count > 0
    }

    /// Moves the received bytes of the current message; false if there are none.
    fn move_upstream_bytes(&mut self) -> bool {
        let input = self.server.received();
        let bytes = input.get(..self.server.rest).unwrap_or(input);
        let count = bytes.len();
        if self.server.way != Way::Swallow {
            self.client.put(bytes);
        }
        if self.server.way == Way::Keep
            && let Some(Unit::Client(unit)) = self.pipeline.front_mut()
            && let Some(slot) = unit.current_fill()
            && let Some(fill) = slot
            && !fill.keep(bytes)
        {
            *slot = None; // the permit ends here
        }
        self.server.consume(count);
        self.server.rest -= count;
        count > 0
    }

    /// Whether the message is needed as a whole: a row, or an error that may be fatal, for a statement of Freshet's own.
    fn is_own_answer(&self, head: Header) -> bool {
        matches!(head.tag, backend::DATA_ROW | backend::ERROR) && self.pipeline.front().is_some_and(Unit::is_own_next)
    }

    /// Decides what to do with a message other than `ReadyForQuery`.
    fn message_begins(&mut self, head: Header) -> Result<Way, SessionError> {
        let asynchronous = matches!(head.tag, backend::PARAMETER_STATUS | backend::NOTIFICATION);
        if head.tag == backend::NOTIFICATION {
            // It may show a commit that the client looks for at once.
            self.watermark.note_notification(self.shared.clock.now());
        }
        if head.tag == backend::PARAMETER_STATUS {
            self.settings_changed();
        }
        if let Some(Unit::Unseen { answers }) = self.pipeline.front_mut()
            && !asynchronous
        {
            *answers = if head.tag == backend::ERROR {
                0
            } else {
                answers.saturating_sub(usize::from(answers_once(head.tag)))
            };
            if *answers == 0 {
                self.pipeline.pop_front();
            }
            if head.tag != backend::ERROR {
                return Ok(Way::Swallow);
            }
        }
        Ok(match self.pipeline.front_mut() {
            _ if asynchronous => Way::Forward,
            // No answer is due: a fatal error such as the server's shutdown.
            None => Way::Forward,
            // If it cannot be an answer to this unit, the answers were miscounted: end the session rather than serve shifted answers.
            Some(unit) if !may_answer(unit, head.tag) => {
                return Err(SessionError::ServerMisbehaved("an answer nobody asked for"));
            }
            Some(Unit::Own { .. } | Unit::Unseen { .. }) => Way::Swallow,
            Some(Unit::Client(unit)) => {
                if let Some(end) = unit.fills.end.as_mut().filter(|end| end.is_next()) {
                    end.note(head.tag);
                    return Ok(Way::Swallow);
                }
                if unit.renamed.answers_own(head.tag) {
                    return Ok(Way::Swallow);
                }
                let wrote = unit.effects.mark.writes() || self.transaction.wrote();
                if head.tag == backend::COMMAND_COMPLETE && wrote && unit.may_be_told_early() {
                    // The client may learn of the commit before its `ReadyForQuery`, which may wait.
                    self.shared.cache.fence_since(self.shared.clock.now());
                    self.shared.want_log_end();
                    if unit.effects.redefines || self.transaction.has_redefined() {
                        self.shared.cache.fence_catalog(self.shared.clock.now());
                        self.shared.want_catalog();
                    }
                }
                let way = client_message(unit, head.tag);
                if head.tag == backend::ERROR && unit.copy.swallowed_sync {
                    // It may have failed before it read that far: then the `Sync` is answered after all.
                    self.become_raw();
                } else if head.tag == backend::COPY_IN {
                    self.copy_begins();
                }
                way
            }
        })
    }

    /// A COPY in the extended protocol: the server ignores the `Sync` after `Execute`, and the one after the data ends the unit. That one may have
    /// been sent already. The answers to anything else that was sent after a COPY cannot be counted.
    fn copy_begins(&mut self) {
        let more = self.pipeline.len() > 1;
        let sync_next = matches!(self.pipeline.second(), Some(Unit::Client(unit)) if unit.kind == Kind::Sync);
        let Some(Unit::Client(unit)) = self.pipeline.front_mut() else { return };
        // It may belong to another COPY of the same Query: then its data is still to end.
        unit.copy.data = CopyData::Asked;
        let extended = unit.kind == Kind::Batch && unit.sent.synced;
        unit.copy.swallowed_sync = extended;
        if more && !(extended && sync_next) {
            self.become_raw();
        } else if extended && sync_next {
            self.pipeline.remove_second();
        } else if extended {
            self.pipeline.absorb_sync();
        }
    }

    /// The first unit's `ReadyForQuery`; true if the unit is the client's.
    fn ready(&mut self, status: u8) -> bool {
        self.transaction.ready(status);
        let notified = self.watermark.take_notified();
        if self.server.settings.idle_max.outside.or(self.server.settings.idle_max.in_block).is_some() {
            self.server.ready_at = self.now();
        }
        if matches!(self.pipeline.front(), Some(Unit::Client(ClientUnit { kind: Kind::Raw, .. }))) {
            // Whatever it was: hits wait instead of the client.
            self.shared.cache.fence_since(self.now());
            self.shared.want_log_end();
            if self.definitions.may_be_visible() {
                self.fence_catalog();
            }
            return true;
        }
        match self.pipeline.pop_front() {
            None | Some(Unit::Unseen { .. }) => true,
            Some(Unit::Client(unit)) => {
                let wrote = unit.effects.mark.writes() || self.transaction.wrote();
                let ended = status == backend::STATUS_IDLE || unit.effects.mark.may_commit();
                let copied_out = unit.copy.out;
                let redefined = self.transaction.follow_definitions(unit.effects.redefines);
                let touched =
                    if wrote && ended { self.touched_with(&unit.effects.mark.touched) } else { Touched::Nothing };
                let (failed, leads) = (unit.has_failed(), self.client.leads_batch());
                self.client_unit_done(unit, notified);
                if leads {
                    self.lead_answered(failed);
                }
                let waits = wrote && ended && self.begin_commit_wait(copied_out, &touched, redefined);
                if wrote && ended && !waits && self.shared.pooling.reads_replicas() {
                    self.shared.servers.note_written(self.now());
                }
                self.end_defining();
                !(waits || leads)
            }
            Some(Unit::Own { ask, row }) => {
                self.own_unit_done(ask, row.as_deref(), notified);
                self.begin_time_limit();
                false
            }
        }
    }

    /// `notified`: see [`Self::own_unit_done`].
    pub(super) fn client_unit_done(&mut self, mut unit: ClientUnit, notified: bool) {
        self.pipeline.take_absorbed_sync();
        self.take_back_skipped(&mut unit.renamed);
        let (tells, now) = (unit.tells_of_data(), self.now());
        if unit.timeout.is_some() {
            self.end_time_limit();
        }
        self.next_is_running(now);
        if tells {
            self.watermark.raise(now);
            if self.shared.redefining.load(SeqCst) > 0 {
                self.watermark.note_definition(now); // it may show a definition that was not found yet
            }
            let wrote = unit.effects.mark.writes() || self.transaction.wrote();
            self.prefetch.told(self.transaction.is_idle().then_some(unit.place), wrote);
        }
        if self.transaction.follow_catalog(unit.effects.forgets) {
            self.watermark.note_definition(now);
        }
        let failed = unit.has_failed();
        if failed {
            self.unit_failed(&unit);
        } else {
            for (name, catalog) in &unit.statements.bound {
                self.server.statements.confirm(name, *catalog);
            }
        }
        self.transaction.note_portals(unit.portals.binds_named);
        self.follow_block(&unit);
        self.complete.begin();
        for fill in unit.fills.results.iter_mut().flatten().filter(|fill| fill.is_complete()) {
            let took = now.saturating_sub(fill.stage.started);
            fill.stage.answer.took = fill.stage.source.query.figures.fill_took(took, self.shared.waits.turn());
            self.shared.waits.answered_in(took);
            let (query, outcome) = (&fill.stage.source.query, AnsweredBy::Fill);
            self.count_answer(took.into(), &Answered { query, took, outcome, has_failed: failed, parent: unit.trace });
        }
        if let Some((query, sent_at)) = &unit.fills.failed
            && let took = now.saturating_sub(*sent_at)
            && self.shared.settings.query_log.wants(took)
        {
            self.observe(&Answered { query, took, outcome: AnsweredBy::Fill, has_failed: true, parent: unit.trace });
        }
        if let Some(passed) = &unit.passed {
            let (took, query, outcome) = (passed.answered(now), &passed.query, AnsweredBy::Pass(passed.reason));
            let answered = Answered { query, took: took.nanos, outcome, has_failed: failed, parent: unit.trace };
            self.count_answer(took, &answered);
        }
        if self.transaction.block().is_some() {
            self.complete.set_proof(None);
            self.transaction.keep_fills(unit.fills.results, now);
        } else {
            self.complete.append(self.transaction.fills());
            self.complete.extend(unit.fills.results);
        }
        if tells && self.transaction.block().is_some() {
            self.shared.want_log_end(); // a position for the next look-up, since none is asked for here
        }
        match unit.fills.end {
            // The query was skipped, and may have been prepared there for the first time.
            Some(_) if failed => self.server.own.forget_end(),
            Some(end) => self.own_unit_done(Ask::End, end.row.as_deref(), notified),
            None if unit.fills.awaits_end => self.results_await_end(),
            None => {}
        }
    }

    /// A unit has failed: its statements may not exist, and later units may bind other statements than expected. Statements that were to be dropped
    /// may still exist.
    fn unit_failed(&mut self, unit: &ClientUnit) {
        let unparsed = unit.unparsed();
        for name in unparsed {
            self.server.statements.forget(name);
            if name.is_empty() && self.server.sharing.is_some() {
                self.server.statements.unnamed_failed();
            }
        }
        if unit.statements.forgot || !unparsed.is_empty() {
            self.server.statements.something_outlives();
        }
        if unparsed.is_empty() {
            return;
        }
        if self.pipeline.misread_batches() > 0 {
            self.settings_changed();
            self.server.statements.forget_all();
            self.server.own = OwnStatements::default();
        }
    }

    /// `notified`: the answer came with a notification, of a commit that a log-end probe may not cover.
    fn own_unit_done(&mut self, ask: Ask, row: Option<&[u8]>, notified: bool) {
        let columns = row.and_then(|row| backend::data_row(row).ok()).unwrap_or_default();
        if row.is_none() && ask.has_row() {
            self.note_named_failed(ask);
            // It failed: perhaps the client's statement dropped all prepared statements unseen.
            self.server.own = OwnStatements::default();
        }
        match ask {
            Ask::Prepare { entry } if row.is_some() => self.preparing_failed(entry),
            Ask::UnnamedStatement | Ask::Query | Ask::Prepare { .. } => {}
            Ask::Listening(about) => self.listening_answered(about, &columns),
            Ask::Rest => self.lives_known(Lives::read(&columns).as_ref()),
            Ask::Proof => {
                let text = columns.first().copied().flatten().and_then(|text| std::str::from_utf8(text).ok());
                self.complete.set_proof(text.and_then(Visible::of_snapshot));
            }
            Ask::End => {
                let (configuration, end) = columns.split_at(columns.len().min(1));
                self.end_read(end, configuration.first().copied().flatten(), notified);
            }
            Ask::Local => {
                let failed = row.is_none() && !self.transaction.block().is_some_and(Block::has_failed);
                self.shared.named.asked_in_block(failed);
                self.local_known(Answer::read(&columns));
            }
            Ask::Context => {
                self.server.settings.context_behind_write = None;
                self.server.context_known(Answer::read(&columns), &self.shared);
            }
            Ask::EndAndContext { era, under } => {
                let (context, end) = columns.split_at(columns.len().min(CONTEXT_COLUMNS));
                // Not if it failed, or if anything that may change it again was sent since.
                if !context.is_empty()
                    && matches!(self.server.settings.known, Known::Nothing)
                    && era == self.server.statements.era()
                {
                    self.server.settings.asked_under = under;
                    self.server.context_came(context, &self.shared);
                }
                self.end_read(end, context.get(CONFIGURATION_COLUMN).copied().flatten(), notified);
            }
        }
    }
}

/// Whether a message other than `ReadyForQuery` can belong to the unit, as far as is known.
fn may_answer(unit: &Unit, tag: u8) -> bool {
    use backend::{BIND_COMPLETE, CLOSE_COMPLETE, COMMAND_COMPLETE, DATA_ROW, ERROR, NOTICE, PARSE_COMPLETE};
    let own = || {
        matches!(tag, PARSE_COMPLETE | BIND_COMPLETE | CLOSE_COMPLETE | DATA_ROW | COMMAND_COMPLETE | ERROR | NOTICE)
    };
    match unit {
        unit if unit.is_own_next() => own(),
        Unit::Own { .. } => own(),
        Unit::Unseen { .. } => true,
        Unit::Client(unit) => unit.kind != Kind::Sync || matches!(tag, ERROR | NOTICE),
    }
}

/// Whether it is the answer to one message of the extended protocol, or the last of several.
fn answers_once(tag: u8) -> bool {
    use backend::{
        BIND_COMPLETE, CLOSE_COMPLETE, COMMAND_COMPLETE, EMPTY_QUERY, NO_DATA, PARSE_COMPLETE, PORTAL_SUSPENDED,
        ROW_DESCRIPTION,
    };
    matches!(
        tag,
        PARSE_COMPLETE | BIND_COMPLETE | CLOSE_COMPLETE // of Parse, Bind, Close
            | ROW_DESCRIPTION | NO_DATA // of Describe
            | COMMAND_COMPLETE | EMPTY_QUERY | PORTAL_SUSPENDED // of Execute
    )
}

/// Whether a message of a client's unit is cached; if it ends a fill's answer, the fill is complete.
fn keeps(unit: &mut ClientUnit, tag: u8) -> bool {
    let of_result = matches!(
        tag,
        backend::ROW_DESCRIPTION | backend::DATA_ROW | backend::COMMAND_COMPLETE | backend::PORTAL_SUSPENDED
    );
    let of_statement =
        unit.fills.describes_statement && matches!(tag, backend::PARAMETER_DESCRIPTION | backend::BIND_COMPLETE);
    if unit.fills.results.is_empty() || !(of_result || of_statement) {
        return false;
    }
    if unit.fills.has_ended() {
        return false; // more rows of the same portal
    }
    let Some(Some(fill)) = unit.current_fill() else { return false };
    fill.stage.answer.complete = matches!(tag, backend::COMMAND_COMPLETE | backend::PORTAL_SUSPENDED);
    true
}

/// A message of a client's unit: what to do with it, and what it means for the fills.
fn client_message(unit: &mut ClientUnit, tag: u8) -> Way {
    let is_kept = keeps(unit, tag);
    if answers_once(tag) {
        unit.answered_once(tag);
    }
    if is_kept {
        return Way::Keep;
    }
    match tag {
        backend::COPY_OUT => {
            unit.copy.out = true;
            Way::Forward
        }
        // An answer with a notice is not repeatable.
        backend::NOTICE => {
            for fill in unit.fills.results.drain(..).flatten() {
                fill.stage.source.query.note_not_cached(Reason::Construct("an answer with a notice"));
            }
            Way::Forward
        }
        backend::ERROR => {
            unit.fail();
            Way::Forward
        }
        _ => Way::Forward,
    }
}
