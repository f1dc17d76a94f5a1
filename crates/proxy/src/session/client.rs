//! The client's messages: each is answered from the cache, sent upstream, or waits.
//!
//! At a `Sync` boundary a `Query` or a batch of the extended protocol is looked at as a whole. What cannot be
//! answered passes by frames; its statements are watched only as far as they can change what later look-ups mean.

use std::sync::Arc;

use freshet_model::Reason;
use freshet_sql::Effect;
use freshet_wire::pg::backend;
use freshet_wire::pg::frame::{self, HEADER_BYTES, Header};
use freshet_wire::pg::frontend::{self, Bind, Parse, Target};

use crate::registry::{Statement, TEXT_BYTES_MAX};
use crate::session::plan::{self, Allowed, View};
use crate::session::statements::{ParsedUnder, Prepared};
use crate::session::unit::{Ask, ClientUnit, Kind, NAMES_MAX, Unit};
use crate::session::{Ending, Known, Session};

/// Units in flight beyond which the client is not read: a bound on the queue.
const UNITS_MAX: usize = 1024;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It dealt with the message.
    Done,
    /// More bytes, or an answer, must come first.
    Wait,
}

/// The server answers the message by one of those that [`super::upstream`] counts, unless it skips it.
fn is_answered_once(tag: u8) -> bool {
    matches!(tag, frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE)
}

impl Session {
    /// Handles all that the client has sent, as far as both outputs take it.
    pub(crate) fn read_client(&mut self) {
        while !self.client.output.is_high() && !self.upstream.output.is_high() && self.units.len() < UNITS_MAX {
            if self.client_rest > 0 {
                if !self.pass_rest() {
                    break;
                }
                continue;
            }
            if matches!(self.known, Known::Asked { .. }) || self.ending != Ending::Open {
                break;
            }
            let Ok(head) = frame::header(self.client.input.bytes()) else {
                self.pass_impossible();
                break;
            };
            let Some(head) = head else {
                if self.client.ended {
                    let rest = self.client.input.bytes().len();
                    self.client.input.consume(rest);
                }
                break;
            };
            if self.step(head) == Step::Wait {
                break;
            }
        }
    }

    fn step(&mut self, head: Header) -> Step {
        if self.is_raw() {
            if head.tag == frontend::TERMINATE {
                self.ending = Ending::Goodbye;
            }
            return self.pass(head);
        }
        if self.passing.is_some() {
            return self.batch_message(head);
        }
        if self.is_strange_within_copy(head.tag) {
            self.become_raw();
            return self.pass(head);
        }
        match head.tag {
            frontend::QUERY => self.query(head),
            frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => self.batch(),
            frontend::SYNC => {
                if !std::mem::take(&mut self.absorb_sync) {
                    self.open_unit(true, Kind::Sync);
                    self.last_unit().synced = true;
                }
                self.pass(head)
            }
            frontend::FUNCTION_CALL => {
                self.open_unit(false, Kind::Query);
                self.last_unit().tells = true;
                self.effect(Effect::Forgets);
                self.pass(head)
            }
            frontend::TERMINATE => {
                self.ending = Ending::Goodbye;
                self.pass(head)
            }
            frontend::COPY_DONE | frontend::COPY_FAIL => {
                if let Some(Unit::Client(unit)) = self.units.back_mut() {
                    unit.copy_ended = true;
                }
                self.pass(head)
            }
            frontend::COPY_DATA | frontend::FLUSH => self.pass(head),
            _ => self.pass_unknown(head),
        }
    }

    /// The server ends the session at a message that it does not know; nothing behind it is answered.
    fn pass_unknown(&mut self, head: Header) -> Step {
        self.ending = Ending::Goodbye;
        self.pass(head)
    }

    /// It comes within COPY data, where the server ignores it, or ends the COPY, or the session: that depends on how
    /// far it has read. Only the `Sync` of the extended protocol is usual (see [`Self::absorb_sync`]).
    fn is_strange_within_copy(&self, tag: u8) -> bool {
        let Some(Unit::Client(unit)) = self.units.back() else { return false };
        let usual = matches!(tag, frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL | frontend::FLUSH)
            || tag == frontend::TERMINATE
            || (tag == frontend::SYNC && unit.kind == Kind::Batch);
        unit.is_within_copy_data() && !usual
    }

    /// What is owed cannot be counted any more: everything is forwarded from here on.
    pub(crate) fn become_raw(&mut self) {
        self.units.truncate(1);
        let unit = self.last_unit();
        unit.kind = Kind::Raw;
        unit.fills.clear();
        self.passing = None;
        self.absorb_sync = false;
    }

    /// Passes the message at the start of the input, as it comes.
    pub(crate) fn pass(&mut self, head: Header) -> Step {
        self.client_rest = head.frame_bytes;
        self.pass_rest();
        Step::Done
    }

    /// Passes a message of an impossible length: the server says what it thinks of it, which depends on its state, and
    /// ends the session. What follows is no message any more.
    fn pass_impossible(&mut self) {
        self.client_rest = HEADER_BYTES;
        self.pass_rest();
        self.ending = Ending::Goodbye;
    }

    /// Moves what is there of the current message; false if nothing is.
    fn pass_rest(&mut self) -> bool {
        let input = self.client.input.bytes();
        let bytes = input.get(..self.client_rest).unwrap_or(input);
        let count = bytes.len();
        self.upstream.output.put(bytes);
        self.client.input.consume(count);
        self.client_rest -= count;
        count > 0
    }

    // --- batches that pass ---------------------------------------------------------------------------------

    /// Lets the extended protocol's messages pass up to the next `Sync`.
    pub(crate) fn begin_passing_batch(&mut self, reason: Reason) {
        self.catch_up_unnamed();
        self.open_unit(true, Kind::Batch);
        self.passing = Some(reason);
    }

    /// A message of a batch that passes.
    fn batch_message(&mut self, head: Header) -> Step {
        let wanted = head.frame_bytes.min(TEXT_BYTES_MAX);
        let watched = matches!(head.tag, frontend::PARSE | frontend::BIND | frontend::CLOSE);
        if watched && self.client.input.bytes().len() < wanted && !self.client.ended {
            return Step::Wait;
        }
        match head.tag {
            frontend::PARSE | frontend::BIND | frontend::CLOSE => {
                let input = self.client.input.take();
                self.watch(head, input.bytes().get(..wanted).unwrap_or_default());
                self.client.input = input;
            }
            frontend::SYNC => {
                self.last_unit().synced = true;
                let reason = self.passing.take();
                let step = self.pass(head);
                if reason.is_some_and(|reason| plan::wants_end(&reason)) {
                    self.ask(Ask::End);
                }
                return step;
            }
            frontend::QUERY | frontend::FUNCTION_CALL => return self.query_in_batch(head),
            frontend::TERMINATE => self.ending = Ending::Goodbye,
            frontend::EXECUTE => {
                // A portal bound before, perhaps, and perhaps by other means.
                let unnamed = self.client.input.bytes().get(frame::HEADER_BYTES) == Some(&0);
                let unit = self.last_unit();
                unit.tells |= !(unnamed && unit.silent_portal);
            }
            frontend::DESCRIBE | frontend::FLUSH | frontend::COPY_DATA => {}
            frontend::COPY_DONE | frontend::COPY_FAIL => self.last_unit().copy_ended = true,
            _ => return self.pass_unknown(head),
        }
        let unit = self.last_unit();
        unit.bound_or_executed |= matches!(head.tag, frontend::BIND | frontend::EXECUTE);
        unit.owed += usize::from(is_answered_once(head.tag));
        self.pass(head)
    }

    /// A `Query` or `FunctionCall` in a batch that has no `Sync` yet. The server skips it if the batch has failed; else it
    /// belongs to the batch's implicit transaction, ends it, and is answered by the one `ReadyForQuery` of both.
    fn query_in_batch(&mut self, head: Header) -> Step {
        let unit = self.last_unit();
        if unit.failed {
            return self.pass(head);
        }
        if unit.owed > 0 && !unit.copying {
            if !std::mem::replace(&mut unit.flushed, true) {
                frontend::put_flush(self.upstream.output.buffer());
            }
            return Step::Wait;
        }
        if !unit.bound_or_executed {
            // Drivers prepare so, and wait. Nothing has begun: the transaction can end before as well.
            return self.end_prepared_batch(head);
        }
        // What the server makes of it during COPY depends on how the COPY goes.
        unit.kind = if unit.copying { Kind::Raw } else { Kind::Query };
        self.last_unit().tells = true;
        self.passing = None;
        self.effect(Effect::Forgets);
        self.pass(head)
    }

    /// The open batch has only prepared statements, and has been answered: a `Sync` of Freshet's own ends it.
    fn end_prepared_batch(&mut self, head: Header) -> Step {
        self.passing = None;
        if let Some(Unit::Client(unit)) = self.units.pop_back() {
            self.client_unit_done(unit);
        }
        frontend::put_sync(self.upstream.output.buffer());
        self.units.push_back(Unit::own(Ask::UnnamedStatement));
        self.step(head)
    }

    /// Notes what a passing message does to the session's statements; `bytes` is its start, or all of it.
    fn watch(&mut self, head: Header, bytes: &[u8]) {
        match head.tag {
            frontend::PARSE => {
                if let Ok(parse) = Parse::read(bytes) {
                    let statement = self.shared.registry.statement(parse.query, parse.types).ok();
                    self.parse_sent(parse.name, statement.as_ref());
                } else {
                    // Too long to look at, or malformed: only the name is known, if that.
                    let name = bytes.get(frame::HEADER_BYTES..).and_then(|b| b.split(|b| *b == 0).next());
                    self.parse_sent(name.unwrap_or_default(), None);
                }
            }
            frontend::BIND => {
                let bind = Bind::read(bytes);
                let portal = bind.as_ref().map(|bind| bind.portal);
                let name = bind.as_ref().map(|bind| bind.statement).unwrap_or_default();
                let statement = self.statements.get(name).map(|prepared| prepared.statement.clone());
                let effect = match (&statement, self.statements.remembered(name)) {
                    (Some(statement), _) => self.effect_of(Some(statement)),
                    (None, Some(lost)) => lost.statement.shape.template.effect().max(Effect::Write),
                    // It was to be gone, and is not: it may be one that takes all others with it.
                    (None, None) if self.statements.may_outlive() => Effect::Forgets,
                    // PREPARE takes only queries and changes of rows.
                    (None, None) => Effect::Write,
                };
                let fallback = match &statement {
                    None => Reason::UnknownStatement,
                    Some(_) => self.passing.clone().unwrap_or(Reason::MessageShape),
                };
                self.deallocate(statement.as_ref());
                self.note_passed(statement.as_ref(), &fallback);
                let catalog = self.shared.catalog_version();
                let silent = self.tells_nothing(statement.as_ref());
                // Within a transaction the statement may mean what is rolled back, or gone, with it.
                let settled = self.status == backend::STATUS_IDLE && self.impure == 0;
                let unit = self.last_unit();
                match portal {
                    Ok(b"") => unit.silent_portal = silent,
                    Ok(_) => {}
                    Err(_) => unit.silent_portal = false,
                }
                if settled && unit.bound.len() < NAMES_MAX {
                    unit.bound.push((name.into(), catalog));
                }
                self.effect(effect);
            }
            _ => {
                if let Ok(Target { kind: b'S', name }) = Target::read(bytes) {
                    self.last_unit().forgot = true;
                    self.statements.forget(name);
                }
            }
        }
    }

    /// `Parse` goes upstream.
    pub(crate) fn parse_sent(&mut self, name: &[u8], statement: Option<&Arc<Statement>>) {
        let prepared = statement.map(|statement| self.prepared(statement));
        let unit = self.last_unit();
        if unit.parsed.len() < NAMES_MAX {
            unit.parsed.push(name.into());
            self.statements.sent(name, prepared);
        } else {
            self.statements.sent(name, None);
        }
    }

    /// A statement that is parsed now.
    pub(crate) fn prepared(&self, statement: &Arc<Statement>) -> Prepared {
        // Within a transaction, settings and definitions may be rolled back.
        let settled = self.status == backend::STATUS_IDLE && self.impure == 0;
        let (under, catalog) = if settled {
            (ParsedUnder::Era(self.statements.era()), self.shared.catalog_version())
        } else {
            (ParsedUnder::Unknown, Prepared::NOT_TAKEN)
        };
        Prepared { statement: statement.clone(), under, catalog, lost: false }
    }

    // --- bookkeeping ---------------------------------------------------------------------------------------

    /// Expects one more `ReadyForQuery` for the client.
    pub(crate) fn open_unit(&mut self, pure: bool, kind: Kind) {
        self.impure += usize::from(!pure);
        self.units.push_back(Unit::Client(ClientUnit { kind, pure, ..ClientUnit::default() }));
    }

    /// The session only forwards from here on.
    fn is_raw(&self) -> bool {
        matches!(self.units.back(), Some(Unit::Client(ClientUnit { kind: Kind::Raw, .. })))
    }

    /// The unit opened last.
    pub(crate) fn last_unit(&mut self) -> &mut ClientUnit {
        if !matches!(self.units.back(), Some(Unit::Client(_))) {
            self.open_unit(true, Kind::Batch);
        }
        match self.units.back_mut() {
            Some(Unit::Client(unit)) => unit,
            _ => unreachable!("a client's unit was just pushed"),
        }
    }

    /// A statement passes that may be `DEALLOCATE name`.
    pub(crate) fn deallocate(&mut self, statement: Option<&Arc<Statement>>) {
        if let Some(name) = statement.and_then(|statement| statement.shape.template.deallocates()) {
            self.last_unit().forgot = true;
            self.statements.forget(name.as_bytes());
            if name.starts_with("_freshet_") {
                self.own = super::own::OwnStatements::default();
            }
        }
    }

    /// What the last unit does to the session.
    pub(crate) fn effect(&mut self, effect: Effect) {
        if effect == Effect::Pure {
            return;
        }
        let unit = self.last_unit();
        unit.forgets |= matches!(effect, Effect::Definition | Effect::Forgets);
        if std::mem::replace(&mut unit.pure, false) {
            self.impure += 1;
        }
        if effect != Effect::TransactionControl {
            self.settings_may_change();
        }
        if effect == Effect::Definition {
            self.statements.doubt_all();
        }
        if effect == Effect::Forgets {
            self.statements.forget_all();
            self.own = super::own::OwnStatements::default();
        }
    }

    /// The session's context must be asked for again.
    pub(crate) fn settings_may_change(&mut self) {
        let context = match &self.known {
            Known::Context(context, _) => Some(context.id),
            _ => None,
        };
        self.statements.settings_may_change(context);
        self.known = Known::Nothing;
    }

    /// The settings may have changed some time ago: what was parsed since is not known either.
    pub(crate) fn settings_changed(&mut self) {
        self.statements.settings_may_change(None);
        if matches!(self.known, Known::Context(..)) {
            self.known = Known::Nothing;
        }
    }

    /// What running the statement may do; a statement that is not known may do anything.
    pub(crate) fn effect_of(&self, statement: Option<&Arc<Statement>>) -> Effect {
        let Some(statement) = statement else { return Effect::Forgets };
        match &self.known {
            Known::Context(context, _) => statement.shape.resolve(&self.shared.catalog.load(), context).effect,
            // The context will be asked for before the next look-up anyway.
            _ => statement.shape.template.effect(),
        }
    }

    /// What the session allows now.
    pub(crate) fn allowed(&mut self) -> Allowed {
        if matches!(&self.known, Known::Context(_, catalog) if *catalog != self.shared.catalog_version()) {
            // A schema, a role or the configuration may have changed, at a moment that is not known.
            self.settings_changed();
        }
        let server = self.compare_server();
        let view = View {
            in_transaction: self.status != backend::STATUS_IDLE,
            behind_impure: self.impure > 0,
            server: server.as_ref().map(|verdict| verdict.as_ref().copied()),
            context: match &self.known {
                Known::Nothing | Known::Failed | Known::Asked { .. } => None,
                Known::Context(context, _) => Some(Ok(context)),
                Known::Unknowable(reason) => Some(Err(reason)),
            },
        };
        plan::allowed(view)
    }

    /// Counts a statement that passes, under its own reason if it has one, else under `otherwise`.
    pub(crate) fn note_passed(&self, statement: Option<&Arc<Statement>>, otherwise: &Reason) {
        let own = statement.and_then(|statement| self.own_reason(statement));
        let reason = own.as_ref().unwrap_or(otherwise);
        self.count_passed(reason);
        if let Some(statement) = statement {
            statement.shape.note_passed(reason);
        }
    }

    /// Its answer says nothing of the database's state: no text, SHOW, or only constants and pure functions. Pools send
    /// such statements before each loan.
    pub(crate) fn tells_nothing(&self, statement: Option<&Arc<Statement>>) -> bool {
        statement.is_some_and(|statement| {
            self.effect_of(Some(statement)) == Effect::Pure
                && matches!(self.own_reason(statement), Some(Reason::NotSelect | Reason::NoTable))
        })
    }

    /// Why the statement is never cached, whatever the moment.
    fn own_reason(&self, statement: &Statement) -> Option<Reason> {
        if let Some(reason) = statement.shape.template.refusal() {
            return Some(reason.clone());
        }
        match &self.known {
            Known::Context(context, _) => statement.shape.resolve(&self.shared.catalog.load(), context).footprint.err(),
            _ => None,
        }
    }
}
