//! The client's messages: each is answered from the cache, sent upstream, or waits.
//!
//! At a `Sync` boundary a `Query`, or a batch of the extended protocol, is decided on as a whole. Messages that cannot be answered from the cache
//! pass frame by frame; their statements are parsed only for effects on later look-ups.

use std::sync::Arc;

use freshet_sql::{Bracket, Defines, Effect};
use freshet_types::{CatalogVersion, Reason, TableId};
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame::{self, HEADER_BYTES, Header};
use freshet_wire::postgres::frontend;

use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::long_text::LongText;
use crate::postgres::session::mark::Locally;
use crate::postgres::session::own_statements::OwnStatements;
use crate::postgres::session::plan::{self, Allowed, TransactionState, View};
use crate::postgres::session::traces::{Amid, set_by, unsettles};
use crate::postgres::session::unit::{ClientUnit, Kind, NAMES_MAX, Unit};
use crate::postgres::session::{Known, Session};
use crate::session::commit_wait::Counted;
use crate::statement::registry::{Statement, TEXT_BYTES_MAX};

/// Limit of units in flight: with more, the session does not read from the client.
const UNITS_MAX: usize = 1024;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The message is handled.
    Done,
    /// More input, or an answer, must arrive first.
    Wait,
}

/// The properties of a statement that passes, which do not depend on the session's state.
#[derive(Debug)]
pub(crate) struct Nature {
    /// The effect of its execution.
    pub(crate) effect: Effect,
    /// Its definitions.
    pub(crate) defines: Defines,
    /// It keeps the session's settings and temporary tables as they are, whatever its effect.
    pub(crate) keeps_settings: bool,
    /// It changes settings for this transaction only.
    pub(crate) locally: Locally,
    /// What it may set, as far as it matters for statements that are prepared behind it: [`set_by`]. Known only where sessions share connections.
    pub(super) sets: Amid,
    /// The only tables that it may write to, under this catalogue; None: any table.
    pub(crate) written: Option<(CatalogVersion, Arc<[TableId]>)>,
    /// The reason for which it is never cached.
    pub(crate) refusal: Option<Reason>,
    /// Its answer does not depend on the data: an empty statement, SHOW, or only constants and pure functions. Connection pools send such statements
    /// before they lend a connection.
    pub(crate) is_silent: bool,
}

impl Session {
    /// Handles the received messages, as long as both outputs have space.
    pub(crate) fn read_client(&mut self) {
        self.end_flushed_reads();
        while !self.client.is_high() && !self.server.is_high() && self.pipeline.len() < UNITS_MAX {
            if self.client.is_within_message() {
                if !self.pass_rest() {
                    break;
                }
                continue;
            }
            if matches!(self.server.settings.known, Known::Asked { .. })
                || self.client.leads_batch()
                || !self.client.is_open()
            {
                break;
            }
            if self.link.may_wait() && (self.is_between_statements_of_a_pause() || self.is_held()) {
                break;
            }
            if self.refuse_kind() {
                break;
            }
            let Ok(head) = frame::header(self.client.received()) else {
                self.pass_impossible();
                break;
            };
            let Some(head) = head else {
                if self.client.has_ended() {
                    let rest = self.client.received().len();
                    self.client.consume(rest);
                }
                break;
            };
            if self.waits_for_message(head) || self.step(head) == Step::Wait {
                break;
            }
            self.note_handled();
        }
    }

    pub(crate) fn step(&mut self, head: Header) -> Step {
        if self.is_raw() {
            if head.tag == frontend::TERMINATE {
                self.client.say_goodbye();
            }
            return self.pass(head);
        }
        match self.client.batch() {
            OpenBatch::None | OpenBatch::Leads => {}
            OpenBatch::Passes(_) => {
                if head.tag == frontend::PARSE {
                    let shares = self.server.sharing.is_some();
                    let text = self.is_parsed_unseen(head).then(|| LongText::parse(shares));
                    self.client.expect_long_text(text);
                }
                return self.batch_message(head);
            }
            OpenBatch::Skipped => return self.skip(head),
        }
        if self.is_strange_within_copy(head.tag) {
            self.become_raw();
            return self.pass(head);
        }
        match head.tag {
            frontend::QUERY => self.query(head),
            frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => self.batch(),
            frontend::SYNC if self.client.ends_by_itself() && head.frame_bytes == HEADER_BYTES => self.answer_sync(),
            frontend::SYNC => {
                if !self.pipeline.take_absorbed_sync() {
                    self.open_unit(true, Kind::Sync);
                    self.last_unit().sent.synced = true;
                }
                self.pass(head)
            }
            frontend::FUNCTION_CALL if !self.settle() => Step::Wait,
            frontend::FUNCTION_CALL => {
                self.open_unit(false, Kind::Query);
                self.last_unit().effects.tells = true;
                self.note_bracket(None);
                self.note_called();
                self.effect(Effect::Forgets, None);
                self.pass(head)
            }
            frontend::TERMINATE => {
                self.client.say_goodbye();
                let within_copy =
                    matches!(self.pipeline.back(), Some(Unit::Client(unit)) if unit.is_within_copy_data());
                if self.server.sharing.is_some() && !within_copy {
                    self.client.consume(head.frame_bytes);
                    return Step::Done;
                }
                self.pass(head)
            }
            frontend::COPY_DONE | frontend::COPY_FAIL => {
                if let Some(Unit::Client(unit)) = self.pipeline.back_mut() {
                    unit.copy.end();
                }
                self.pass(head)
            }
            frontend::COPY_DATA | frontend::FLUSH => self.pass(head),
            _ => self.pass_unknown(head),
        }
    }

    /// Answers the `Sync` after answers that the client asked for with `Flush`.
    fn answer_sync(&mut self) -> Step {
        if !self.is_idle() {
            return Step::Wait;
        }
        self.client.set_ends_by_itself(false);
        if self.transaction.is_idle() {
            self.client.unseen_mut().forget();
        }
        self.client.consume(HEADER_BYTES);
        backend::put_ready(self.client.output(), self.transaction.status());
        self.keep_awake();
        Step::Done
    }

    /// Whether nothing will be known about the statement that the `Parse` at the start of the input prepares.
    fn is_parsed_unseen(&self, head: Header) -> bool {
        let many =
            matches!(self.pipeline.back(), Some(Unit::Client(unit)) if unit.statements.parsed.len() >= NAMES_MAX);
        let body = self.client.received().get(HEADER_BYTES..head.frame_bytes);
        many || head.frame_bytes > TEXT_BYTES_MAX || body.is_some_and(|body| std::str::from_utf8(body).is_err())
    }

    /// Passes a message of an unknown type: the server ends the session, and answers nothing after it.
    pub(crate) fn pass_unknown(&mut self, head: Header) -> Step {
        self.spoil_connection();
        self.client.say_goodbye();
        self.pass(head)
    }

    /// Whether the message is unusual within COPY data. The server may ignore it, or end the COPY, or the session; that depends on how far it has
    /// read. Only the `Sync` of the extended protocol is usual (see [`super::pipeline::Pipeline::absorb_sync`]).
    fn is_strange_within_copy(&self, tag: u8) -> bool {
        let Some(Unit::Client(unit)) = self.pipeline.back() else { return false };
        let usual = matches!(tag, frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL | frontend::FLUSH)
            || tag == frontend::TERMINATE
            || (tag == frontend::SYNC && unit.kind == Kind::Batch);
        unit.is_within_copy_data() && !usual
    }

    /// The number of answers to come is unknown from here on: the session only forwards.
    pub(crate) fn become_raw(&mut self) {
        self.pipeline.keep_first();
        self.note_defining(Effect::Forgets, false);
        if self.is_looked_for(Defines::Told) {
            self.note_redefining();
        }
        let unit = self.last_unit();
        unit.kind = Kind::Raw;
        unit.fills.results.clear();
        self.pipeline.taint_last();
        self.client.end_batch();
        self.pipeline.take_absorbed_sync();
    }

    /// Passes the message at the start of the input.
    pub(crate) fn pass(&mut self, head: Header) -> Step {
        self.client.begin_message(head.frame_bytes);
        self.pass_rest();
        Step::Done
    }

    /// Passes a message of an invalid length: the server answers as its state requires, and ends the session. The following bytes are not messages.
    fn pass_impossible(&mut self) {
        self.spoil_connection();
        self.client.begin_message(HEADER_BYTES);
        self.pass_rest();
        self.client.say_goodbye();
    }

    /// Moves the received bytes of the current message; false if there are none.
    fn pass_rest(&mut self) -> bool {
        let (count, shows) = self.client.move_rest(&mut self.server);
        self.text_shows(shows);
        if let Some(sharing) = self.server.sharing.as_mut().filter(|_| count > 0) {
            sharing.rest_due = None;
        }
        count > 0
    }

    // --- state after a statement ----------------------------------------------------------------------------

    /// Expects one more `ReadyForQuery` for the client.
    pub(crate) fn open_unit(&mut self, pure: bool, kind: Kind) {
        if self.transaction.has_redefined() {
            self.note_redefining(); // the statement may commit it
        }
        if let Some(block) = self.transaction.block_mut() {
            block.note_use();
        }
        self.client.set_ends_by_itself(false);
        let trace = self.client.take_trace();
        if self.pipeline.client_units().next().is_none() {
            self.link.begin_running(0, self.now());
        }
        self.pipeline.push(Unit::Client(ClientUnit { trace, ..ClientUnit::new(kind, pure) }));
    }

    /// Whether the session only forwards.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self.pipeline.back(), Some(Unit::Client(ClientUnit { kind: Kind::Raw, .. })))
    }

    /// The unit that was opened last.
    pub(crate) fn last_unit(&mut self) -> &mut ClientUnit {
        if !matches!(self.pipeline.back(), Some(Unit::Client(_))) {
            self.open_unit(true, Kind::Batch);
        }
        match self.pipeline.back_mut() {
            Some(Unit::Client(unit)) => unit,
            _ => unreachable!("a client's unit was just pushed"),
        }
    }

    /// A statement passes that may be `DEALLOCATE name`.
    pub(crate) fn deallocate(&mut self, statement: Option<&Arc<Statement>>) {
        if let Some(name) = statement.and_then(|statement| statement.query.template.deallocates()) {
            self.last_unit().statements.forgot = true;
            self.server.statements.forget(name.as_bytes());
            if let Some(sharing) = &mut self.server.sharing {
                sharing.traces.note_prepared();
            }
            if name.starts_with("_freshet_") {
                self.server.own = OwnStatements::default();
                if let Some(sharing) = &mut self.server.sharing {
                    sharing.prepared.take_all();
                }
            }
        }
    }

    /// Notes the effect of the last unit. It may change settings, unless `nature` says that it keeps them; None if the statement is not known.
    pub(crate) fn effect(&mut self, effect: Effect, nature: Option<&Nature>) {
        if let Some(sharing) = &mut self.server.sharing {
            let keeps_settings = nature.is_some_and(|nature| nature.keeps_settings);
            let is_local = nature.is_some_and(|nature| nature.locally != Locally::Nothing);
            let sets = nature.map_or(Amid::Constants, |nature| nature.sets);
            sharing.traces.note(effect, keeps_settings, sets, is_local);
        }
        if matches!(effect, Effect::Pure | Effect::Signal) {
            return;
        }
        let locally = nature.map_or(Locally::Nothing, |nature| nature.locally);
        if locally != Locally::Nothing && self.sets_locally(effect, locally) {
            return;
        }
        let keeps_settings = nature.is_some_and(|nature| nature.keeps_settings);
        self.note_defining(effect, keeps_settings);
        let unknown = || match effect {
            // PREPARE takes nothing else, and texts that were parsed unseen have been checked.
            Effect::Write if !self.server.statements.may_define_unread() => Defines::Nothing,
            _ => Defines::Told,
        };
        let redefines = self.is_looked_for(nature.map_or_else(unknown, |nature| nature.defines));
        if redefines {
            self.note_redefining();
        }
        if nature.is_some_and(|nature| nature.defines == Defines::Unused)
            && let Some(sharing) = &self.server.sharing
        {
            self.shared.pooling.leave_others(&sharing.login.key.database);
        }
        let ends_write = self.transaction.wrote();
        let writing =
            Some(&self.shared.writing).filter(|_| effect != Effect::TransactionControl || ends_write).cloned();
        let unit = self.last_unit();
        if unit.effects.writing.is_none() {
            unit.effects.writing = writing.as_ref().map(Counted::new);
        }
        unit.effects.mark.note(effect, nature.and_then(|nature| nature.written.as_ref()));
        unit.effects.forgets |= matches!(effect, Effect::Definition | Effect::Forgets);
        unit.effects.redefines |= redefines;
        self.pipeline.taint_last();
        let overlooked = effect == Effect::Write && self.shared.settings.faults.hits_after_write;
        if effect != Effect::TransactionControl && !keeps_settings && !overlooked {
            self.settings_may_change();
        }
        if effect == Effect::Definition {
            self.server.statements.doubt_all();
        }
        if effect == Effect::Forgets {
            self.server.statements.forget_all();
            self.server.own = OwnStatements::default();
        }
    }

    /// The session must ask for its context again.
    pub(crate) fn settings_may_change(&mut self) {
        let context = match &self.server.settings.known {
            Known::Context(context, _) => Some(context.settings),
            _ => None,
        };
        self.server.statements.settings_may_change(context);
        self.server.settings.known = Known::Nothing;
        if let Some(block) = self.transaction.block_mut() {
            *block.outer_mut() = None;
        }
    }

    /// The settings may have changed some time ago: statements parsed since then are unknown, too.
    pub(crate) fn settings_changed(&mut self) {
        self.server.statements.settings_may_change(None);
        if matches!(self.server.settings.known, Known::Context(..)) {
            self.server.settings.known = Known::Nothing;
        }
    }

    /// The statement with this text, as the server reads it in this session.
    pub(crate) fn statement(&self, text: &[u8], types: &[u8]) -> Result<Arc<Statement>, Reason> {
        let known = self.shared.known_text(text, freshet_sql::without_outer_comments(text));
        self.known_statement(&known, types)
    }

    /// The same by the text by which it is known: without comments around it, but with its hint.
    pub(crate) fn known_statement(&self, text: &[u8], types: &[u8]) -> Result<Arc<Statement>, Reason> {
        self.shared.registry.statement_of(text, types, self.server.settings.escapes)
    }

    /// The properties of a statement that passes; an unknown statement may have any effect.
    pub(crate) fn nature(&self, statement: Option<&Arc<Statement>>) -> Nature {
        let Some(statement) = statement else {
            return Nature {
                effect: Effect::Forgets,
                defines: Defines::Told,
                keeps_settings: false,
                locally: Locally::Nothing,
                sets: Amid::Constants,
                written: None,
                refusal: None,
                is_silent: false,
            };
        };
        let template = &statement.query.template;
        let (mut written, mut reads_nothing, mut sets_locally) = (None, false, template.is_set_local());
        let (effect, keeps_settings, refusal) = match &self.server.settings.known {
            Known::Context(context, _) if !self.hides(&statement.query) => {
                let catalog = self.shared.catalog.load();
                let verdict = statement.query.resolve(&catalog, context);
                sets_locally |= template.sets_locally(&catalog, &context.schemas);
                written = verdict.written.map(|tables| (catalog.version, tables));
                reads_nothing = verdict.read_set.as_ref().is_ok_and(|read_set| read_set.is_empty());
                (verdict.effect, verdict.marks.keeps_settings, verdict.read_set.err())
            }
            // Views and policies of these relations may call any function, and a function with a built-in name may be user-defined. The same holds
            // for the checks of a domain.
            Known::Context(..) => (template.effect().max(Effect::Write), false, None),
            _ if template.is_told_by_catalog() || template.may_run_code(&self.shared.catalog.load()) => {
                (template.effect().max(Effect::Write), false, None)
            }
            _ => (template.effect(), false, None),
        };
        let effect = if self.declares_code(statement) { effect.max(Effect::Write) } else { effect };
        let refusal = template.refusal().cloned().or(refusal);
        let opens = matches!(template.bracket(), Some(Bracket::Begin(_) | Bracket::Savepoint));
        let says_nothing = reads_nothing || refusal == Some(Reason::NotSelect);
        let is_silent = opens
            || (effect == Effect::Pure && says_nothing)
            || (effect == Effect::Signal && template.is_silent_signal())
            || (effect == Effect::Settings
                && template.sets_silently(&self.shared.catalog.load(), |number| statement.constant(number)));
        let (defines, locally) = (template.defines(), locally_of(statement, sets_locally));
        let is_shared = self.server.sharing.is_some();
        let sets = if effect >= Effect::Settings && is_shared { set_by(statement.text()) } else { Amid::Others };
        Nature { effect, defines, keeps_settings, locally, sets, written, refusal, is_silent }
    }

    /// Whether code may run when its parameters are read, since their types are user-defined.
    fn declares_code(&self, statement: &Statement) -> bool {
        let template = &statement.query.template;
        !statement.types.is_empty() && template.refuse_declared(&self.shared.catalog.load(), &statement.types).is_err()
    }

    /// What the session's state allows now.
    pub(crate) fn allowed(&mut self) -> Allowed {
        if matches!(&self.server.settings.known, Known::Context(_, catalog) if *catalog != self.shared.catalog_version())
        {
            // A schema, a role or the configuration may have changed at an unknown time.
            self.settings_changed();
        }
        self.server.follow_rules(&self.shared);
        let server = self.server.compare(&self.shared);
        let view = View {
            bypass: self.shared.switches.bypass(),
            transaction: match (self.transaction.status(), self.transaction.block()) {
                (backend::STATUS_IDLE, _) => TransactionState::Idle,
                (backend::STATUS_BLOCK, Some(block)) => TransactionState::Block(block),
                _ => TransactionState::Lost,
            },
            hits_after_write: self.shared.settings.faults.hits_after_write,
            behind_impure: !self.pipeline.is_pure(),
            server: server.as_ref().map(|verdict| verdict.as_ref().copied()),
            context: match &self.server.settings.known {
                Known::Nothing | Known::Failed | Known::Asked { .. } => None,
                Known::Context(context, _) => Some(Ok(context)),
                Known::Unknowable(reason) => Some(Err(reason)),
            },
        };
        plan::allowed(view)
    }

    /// Counts a statement that passes, under its own reason if it has one, else under `otherwise`. Returns the label of the reason.
    pub(crate) fn note_passed(
        &mut self,
        statement: Option<&Arc<Statement>>,
        nature: &Nature,
        otherwise: &Reason,
    ) -> &'static str {
        let reason = nature.refusal.as_ref().unwrap_or(otherwise);
        self.count_passed(reason);
        if let Some(statement) = statement {
            self.note_names(statement, nature);
        }
        self.last.passes(statement, reason);
        if let Some(statement) = statement {
            statement.query.note_passed(reason);
        }
        reason.label()
    }

    /// What the text of a statement that is sent tells of what it leaves on the connection.
    pub(crate) fn note_names(&mut self, statement: &Statement, nature: &Nature) {
        if let Some(sharing) = &mut self.server.sharing {
            let may_set = unsettles(nature.effect, nature.keeps_settings);
            sharing.traces.note_names(statement, may_set, &self.shared.pooling.reads_sequences);
        }
    }
}

/// `sets`: the statement changes settings for this transaction only.
fn locally_of(statement: &Statement, sets: bool) -> Locally {
    match (sets, statement.query.takes_snapshot) {
        (false, _) => Locally::Nothing,
        (true, false) => Locally::Sets,
        (true, true) => Locally::Queries,
    }
}
