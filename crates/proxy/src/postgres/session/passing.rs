//! Batches of the extended protocol that pass: forwarded message by message. Their statements are parsed only for effects on later look-ups.

use std::sync::Arc;

use freshet_sql::{Defines, Effect};
use freshet_types::Reason;
use freshet_wire::postgres::frame::{self, Header};
use freshet_wire::postgres::frontend::{self, Bind, Parse, Target};

use crate::postgres::session::Session;
use crate::postgres::session::batch::{Describe, Group, Lead, ends_with_flush};
use crate::postgres::session::block::Block;
use crate::postgres::session::client::{Nature, Step};
use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::renaming::is_answered_once;
use crate::postgres::session::statements::{ParsedUnder, Prepared};
use crate::postgres::session::unit::{Ask, Kind, NAMES_MAX, Response, Unit};
use crate::postgres::session::way::is_suspect;
use crate::statement::registry::{Statement, TEXT_BYTES_MAX};

impl Session {
    /// Passes a batch without caching its answer. A single execution passes as such; Err: the batch passes message by message.
    pub(super) fn pass_candidate(
        &mut self,
        groups: &[Group<'_>],
        messages: &[u8],
        lead: Lead,
        reason: Reason,
    ) -> Result<Step, Reason> {
        if !lead.closes && self.is_ahead() && self.begin_replica_batch(groups, messages, &reason) {
            return Ok(Step::Wait);
        }
        if !self.get_connection() || self.awaits_names(false) {
            return Ok(Step::Wait);
        }
        if let Some(step) = self.refuse_batch(groups, messages.get(..lead.bytes).filter(|_| lead.closes)) {
            return Ok(step);
        }
        if !lead.closes && self.begin_replica_batch(groups, messages, &reason) {
            return Ok(Step::Wait);
        }
        match groups {
            [group @ Group { parse: None, .. }] if !lead.closes && !ends_with_flush(messages) => {
                self.pass_execution(group, messages, reason);
                Ok(Step::Done)
            }
            _ => Err(reason),
        }
    }

    /// Passes the messages of the extended protocol up to the next `Sync`.
    pub(crate) fn begin_passing_batch(&mut self, reason: Reason) {
        let input = self.client.take_input();
        self.catch_up_unseen(input.bytes());
        self.client.put_back(input);
        self.begin_passing_messages(reason);
    }

    fn begin_passing_messages(&mut self, reason: Reason) {
        if self.client.received().starts_with(&[frontend::PARSE])
            && self.client.received().get(frame::HEADER_BYTES) == Some(&0)
        {
            self.server.statements.unnamed_is_replaced();
        }
        self.catch_up_unnamed();
        self.open_unit(true, Kind::Batch);
        self.client.begin_batch(OpenBatch::Passes(reason));
    }

    /// Passes one execution of a statement that was prepared before: all its messages, with `Sync`.
    pub(crate) fn pass_execution(&mut self, group: &Group<'_>, messages: &[u8], reason: Reason) {
        let describes = group.describe != Describe::Nothing;
        self.catch_up_unseen(messages);
        self.begin_passing_messages(reason);
        self.bind_passes(Some(&group.bind));
        self.execution_passes(group.bind.portal.is_empty());
        let unit = self.last_unit();
        unit.portals.binds_named = false; // its portal is closed
        unit.effects.mark.others |= describes;
        unit.sent.bound_or_executed = true;
        unit.response.owe(2 + usize::from(describes) + usize::from(group.closes));
        self.put_messages(messages);
        self.end_passing_batch();
    }

    /// Its `Sync` was sent.
    fn end_passing_batch(&mut self) {
        self.last_unit().sent.synced = true;
        self.client.end_batch();
        self.close_unit();
        self.ask_end_behind_flushed();
    }

    /// Whether the open batch has only read, and everything sent in it is answered. Freshet then ends it with a `Sync` of its own, so that the next
    /// statement may be answered from the cache. The client's `Sync` finds no batch to end.
    pub(crate) fn end_flushed_reads(&mut self) {
        if !self.client.passes_batch() {
            return;
        }
        let Some(Unit::Client(unit)) = self.pipeline.back() else { return };
        if !unit.fills.may_end || unit.response != Response::Owed(0) || unit.portals.is_suspended {
            return;
        }
        self.client.begin_batch(OpenBatch::Leads);
        self.last_unit().sent.synced = true;
        frontend::put_sync(self.server.output());
        self.client.set_ends_by_itself(true);
        self.ask_end_behind_flushed();
    }

    /// The results of the last unit are complete after its `Sync`, except for the log end.
    fn ask_end_behind_flushed(&mut self) {
        let keeps = matches!(self.pipeline.back(), Some(Unit::Client(unit)) if !unit.fills.results.is_empty());
        if keeps && self.transaction.is_idle() && !self.await_probe() {
            self.ask(Ask::End);
        }
    }

    /// A portal is executed.
    fn execution_passes(&mut self, unnamed: bool) {
        let unknown = self.transaction.block().is_some_and(Block::is_unknown);
        let unit = self.last_unit();
        unit.effects.tells |= !(unnamed && unit.portals.is_silent);
        if unnamed {
            unit.effects.mark.execute_unnamed();
        }
        if unknown {
            unit.effects.mark.note_unseen_end();
        }
    }

    /// Sends the first messages of a batch, which only the server can answer, with a `Sync` of Freshet's own. The rest waits: if they fail, the
    /// server would skip it ([`Self::lead_answered`]).
    pub(crate) fn send_lead(&mut self, messages: &[u8]) -> Step {
        if !self.is_idle() || !self.get_connection() {
            return Step::Wait;
        }
        self.catch_up_unnamed();
        self.open_unit(true, Kind::Batch);
        let mut rest = messages;
        while let Ok(Some(head)) = frame::header(rest)
            && let Some((message, behind)) = rest.split_at_checked(head.frame_bytes)
        {
            match head.tag {
                frontend::DESCRIBE => self.last_unit().effects.mark.others = true,
                frontend::EXECUTE => self.execution_passes(message.get(frame::HEADER_BYTES) == Some(&0)),
                _ => self.watch(head, message),
            }
            let unit = self.last_unit();
            unit.sent.bound_or_executed |= matches!(head.tag, frontend::BIND | frontend::EXECUTE);
            unit.response.owe(1);
            unit.sent.begun = true;
            rest = behind;
        }
        self.last_unit().sent.synced = true;
        self.put_messages(messages);
        frontend::put_sync(self.server.output());
        self.client.begin_batch(OpenBatch::Leads);
        Step::Done
    }

    /// The server has answered what went ahead. The client awaits the answer to its own `Sync`. Behind an error all is skipped up to that, which may
    /// be still to come where the client has sent a `Flush`.
    pub(crate) fn lead_answered(&mut self, failed: bool) {
        if failed {
            return self.client.begin_batch(OpenBatch::Skipped);
        }
        self.client.end_batch();
    }

    /// A message behind an error of what went ahead.
    pub(crate) fn skip(&mut self, head: Header) -> Step {
        match head.tag {
            frontend::SYNC => self.client.end_batch(),
            frontend::TERMINATE => {
                self.client.end_batch();
                return self.step(head);
            }
            _ => return self.pass(head),
        }
        self.step(head)
    }

    /// Passes a message of a batch.
    pub(crate) fn batch_message(&mut self, head: Header) -> Step {
        if matches!(head.tag, frontend::PARSE | frontend::BIND) && self.has_only_prepared() {
            return self.end_prepared_batch(head);
        }
        let wanted = head.frame_bytes.min(TEXT_BYTES_MAX);
        if self.waits_to_pass(head.tag, wanted) {
            return Step::Wait;
        }
        match head.tag {
            frontend::PARSE | frontend::BIND | frontend::CLOSE => {
                let input = self.client.take_input();
                let waits = head.tag == frontend::PARSE
                    && Parse::read(input.bytes().get(..wanted).unwrap_or_default())
                        .is_ok_and(|parse| self.begin_to_hold_parse(&parse));
                if waits {
                    self.client.put_back(input);
                    return Step::Wait;
                }
                let message = input.bytes().get(..wanted).unwrap_or_default();
                let refusal = self.refusal_in_batch(head.tag, message);
                let is_unnamed = || Parse::read(message).is_ok_and(|parse| parse.name.is_empty());
                let drops_unnamed = refusal.is_some() && head.tag == frontend::PARSE && is_unnamed();
                self.watch(head, message);
                self.client.put_back(input);
                if let Some(refusal) = refusal {
                    self.send_refused(refusal, drops_unnamed);
                    self.client.consume(head.frame_bytes);
                    return Step::Done;
                }
            }
            frontend::SYNC => {
                let step = self.pass(head);
                self.end_passing_batch();
                return step;
            }
            frontend::QUERY | frontend::FUNCTION_CALL => return self.query_in_batch(head),
            frontend::TERMINATE => self.client.say_goodbye(),
            frontend::EXECUTE => {
                // The portal may have been bound before, perhaps not by the protocol.
                let unnamed = self.client.received().get(frame::HEADER_BYTES) == Some(&0);
                self.execution_passes(unnamed);
            }
            frontend::DESCRIBE => self.last_unit().effects.mark.others = true,
            frontend::FLUSH | frontend::COPY_DATA => {}
            frontend::COPY_DONE | frontend::COPY_FAIL => self.last_unit().copy.end(),
            _ => return self.pass_unknown(head),
        }
        let unit = self.last_unit();
        unit.fills.may_end &= head.tag == frontend::FLUSH;
        unit.sent.bound_or_executed |= matches!(head.tag, frontend::BIND | frontend::EXECUTE);
        unit.response.owe(usize::from(is_answered_once(head.tag)));
        unit.sent.begun = true;
        let input = self.client.take_input();
        let sent = self.put_renamed(head, input.bytes().get(..wanted).unwrap_or(input.bytes()));
        self.client.put_back(input);
        self.client.consume(sent);
        self.pass(Header { frame_bytes: head.frame_bytes - sent, ..head })
    }

    /// Whether a message of a batch must wait: for the rest of it that is looked at, or until it is known what the name in it stands for.
    fn waits_to_pass(&mut self, tag: u8, wanted: usize) -> bool {
        let is_renamed = tag == frontend::DESCRIBE && self.server.sharing.is_some();
        let watched = is_renamed || matches!(tag, frontend::PARSE | frontend::BIND | frontend::CLOSE);
        if watched && self.client.received().len() < wanted && !self.client.has_ended() {
            return true;
        }
        // A text may name statements, too.
        let names = tag == frontend::PARSE || frontend::statement_name(self.client.received()).is_some();
        watched && self.server.sharing.is_some() && names && self.awaits_names(true)
    }

    /// Passes a `Query` or `FunctionCall` in a batch that has no `Sync` yet. If the batch has failed, the server skips it. Otherwise it belongs to
    /// the batch's implicit transaction and ends it; one `ReadyForQuery` answers both.
    fn query_in_batch(&mut self, head: Header) -> Step {
        let unit = self.last_unit();
        if unit.has_failed() {
            return self.pass(head);
        }
        if unit.response != Response::Owed(0) && !unit.copy.is_asked() {
            if !std::mem::replace(&mut unit.sent.flushed, true) {
                frontend::put_flush(self.server.output());
            }
            return Step::Wait;
        }
        if !unit.sent.bound_or_executed {
            // Drivers prepare statements in this way, and wait. Nothing has begun: the transaction may as well end before.
            return self.end_prepared_batch(head);
        }
        // What the server does with it during COPY depends on the state of the COPY.
        unit.kind = if unit.copy.is_asked() { Kind::Raw } else { Kind::Query };
        self.last_unit().effects.tells = true;
        self.client.end_batch();
        self.note_bracket(None);
        self.effect(Effect::Forgets, None);
        self.pass(head)
    }

    /// For drivers that send `Flush` after `Describe`: the open batch has only prepared statements, and is answered.
    fn has_only_prepared(&self) -> bool {
        let Some(Unit::Client(unit)) = self.pipeline.back() else { return false };
        unit.kind == Kind::Batch
            && unit.sent.begun
            && unit.response == Response::Owed(0)
            && !unit.sent.bound_or_executed
    }

    /// The open batch has only prepared statements, and is answered: Freshet ends it with a `Sync` of its own.
    fn end_prepared_batch(&mut self, head: Header) -> Step {
        self.client.end_batch();
        self.client.expect_long_text(None);
        if let Some(Unit::Client(unit)) = self.pipeline.pop_back() {
            self.client_unit_done(unit, false);
        }
        frontend::put_sync(self.server.output());
        self.pipeline.push_own(Ask::UnnamedStatement);
        self.step(head)
    }

    /// Delays the statement to be prepared.
    fn begin_to_hold_parse(&mut self, parse: &Parse<'_>) -> bool {
        if !is_suspect(parse.query) {
            return false;
        }
        let statement = self.statement(parse.query, parse.types).ok();
        self.begin_to_make_way(statement.as_deref(), parse.query)
    }

    /// Notes the effect of a passing message on the session's statements; `bytes` is the message, or its beginning.
    fn watch(&mut self, head: Header, bytes: &[u8]) {
        match head.tag {
            frontend::PARSE => {
                if let Ok(parse) = Parse::read(bytes) {
                    let statement = self.statement(parse.query, parse.types).ok();
                    self.precede(statement.as_ref());
                    self.last_unit().effects.mark.note_other(statement.as_ref());
                    self.parse_sent(parse.name, statement.as_ref());
                    self.constants_are_read(statement.as_ref());
                } else {
                    // It is too long to be parsed, or malformed: at most its name is known.
                    let name = bytes.get(frame::HEADER_BYTES..).and_then(|b| b.split(|b| *b == 0).next());
                    self.parse_sent(name.unwrap_or_default(), None);
                    self.last_unit().effects.mark.note_other(None);
                    self.constants_are_read(None);
                }
            }
            frontend::BIND => self.bind_passes(Bind::read(bytes).ok().as_ref()),
            _ => {
                self.client.unseen_mut().forget();
                if let Ok(Target { kind: b'S', name }) = Target::read(bytes) {
                    self.last_unit().statements.forgot = true;
                    self.server.statements.forget(name);
                }
            }
        }
    }

    /// Whether it has a constant of a user-defined type, which that type's code reads when the statement is prepared.
    fn constants_are_read(&mut self, statement: Option<&Arc<Statement>>) {
        let catalog = self.shared.catalog.load();
        let may = match statement {
            Some(statement) => statement.query.template.may_read_by_code(&catalog),
            None => catalog.type_effects.iter().any(|effect| !effect.names.is_empty()),
        };
        if !may {
            return;
        }
        let nature = self.nature(statement);
        // Nothing else of it runs: its definitions, and the statements that it drops, are noted when it is executed.
        let effect = nature.effect.min(Effect::Settings);
        self.effect(
            effect,
            Some(&Nature { written: None, keeps_settings: false, defines: Defines::Nothing, ..nature }),
        );
    }

    /// A statement is bound; it is unknown which, if its name cannot be read.
    fn bind_passes(&mut self, bind: Option<&Bind<'_>>) {
        self.client.unseen_mut().forget();
        let portal = bind.map(|bind| bind.portal);
        let name = bind.map(|bind| bind.statement).unwrap_or_default();
        let catalog = self.shared.catalog_version();
        let remembered = self.server.statements.remembered(name);
        let prepared = remembered.filter(|prepared| !prepared.lost);
        let statement = prepared.map(|prepared| prepared.statement.clone());
        let lost = remembered.filter(|remembered| remembered.lost).map(|lost| lost.statement.clone());
        let taken = prepared.is_some_and(|prepared| prepared.catalog == catalog);
        let nature = self.nature(statement.as_ref());
        let effect = match (&statement, remembered) {
            (Some(_), _) => nature.effect,
            (None, Some(lost)) => lost.statement.query.template.effect().max(Effect::Write),
            // It should have been dropped, but was not: it may be one that drops all others.
            (None, None) if self.server.statements.may_outlive() => Effect::Forgets,
            // PREPARE takes only queries and changes of rows.
            (None, None) => Effect::Write,
        };
        let fallback = match &statement {
            None => Reason::UnknownStatement,
            Some(_) => match self.client.batch() {
                OpenBatch::Passes(reason) => reason.clone(),
                OpenBatch::None | OpenBatch::Leads | OpenBatch::Skipped => Reason::MessageShape,
            },
        };
        self.precede(statement.as_ref());
        self.deallocate(statement.as_ref());
        let reason = self.note_passed(statement.as_ref(), &nature, &fallback);
        if let Some(lost) = &lost {
            self.note_names(lost, &self.nature(None));
        }
        self.note_read(statement.as_ref());
        let silent = nature.is_silent;
        // In a transaction the statement may refer to definitions that are rolled back, or may be dropped with them.
        let settled = self.is_settled();
        let (place, now) = (self.prefetch.place(statement.as_ref()), self.now());
        let unit = self.last_unit();
        unit.passes(statement.as_ref(), reason, now);
        unit.effects.mark.reads |= effect == Effect::Pure && !silent;
        unit.place = place;
        match portal {
            Some(b"") => {
                unit.portals.is_silent = silent;
                unit.effects.mark.bind_unnamed(statement.as_ref());
            }
            Some(_) => unit.portals.binds_named = true,
            None => unit.portals.is_silent = false,
        }
        if settled && !taken && unit.statements.bound.len() < NAMES_MAX {
            unit.statements.bound.push((name.into(), catalog));
        }
        self.name_running();
        if let Some(statement) = &statement {
            self.limit_time(&statement.query);
        }
        self.note_bracket(statement.as_ref());
        self.last_unit().effects.mark.note_other(statement.as_ref());
        self.effect(effect, statement.is_some().then_some(&nature));
    }

    /// `Parse` is sent to the server.
    pub(crate) fn parse_sent(&mut self, name: &[u8], statement: Option<&Arc<Statement>>) {
        self.client.unseen_mut().forget();
        let prepared = statement.map(|statement| self.prepared(statement));
        let unit = self.last_unit();
        if unit.statements.parsed.len() < NAMES_MAX {
            unit.statements.parsed.push(name.into());
            self.server.statements.sent(name, prepared);
        } else {
            self.server.statements.sent(name, None);
        }
        // It is not known when it is executed.
        if let Some(statement) = statement.filter(|_| self.server.statements.remembered(name).is_none()) {
            self.note_names(statement, &self.nature(None));
        }
    }

    /// A statement that is parsed now.
    pub(crate) fn prepared(&self, statement: &Arc<Statement>) -> Prepared {
        // In a transaction, settings and definitions may be rolled back.
        let settled = self.is_settled();
        let (under, catalog) = if settled {
            (ParsedUnder::Era(self.server.statements.era()), self.shared.catalog_version())
        } else {
            (ParsedUnder::Unknown, Prepared::NOT_TAKEN)
        };
        Prepared { statement: statement.clone(), under, catalog, lost: false }
    }
}
