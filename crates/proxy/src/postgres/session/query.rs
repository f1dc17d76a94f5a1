//! The simple protocol: a `Query`, which is answered as a whole.

use std::borrow::Cow;
use std::sync::Arc;

use freshet_cache::Entry;
use freshet_sql::{Admin, Defines, Effect};
use freshet_types::Reason;
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame::{HEADER_BYTES, Header};
use freshet_wire::postgres::frontend;

use crate::postgres::session::Session;
use crate::postgres::session::client::{Nature, Step};
use crate::postgres::session::execution::Execution;
use crate::postgres::session::long_text::LongText;
use crate::postgres::session::plan::Allowed;
use crate::postgres::session::replica::Messages;
use crate::postgres::session::unit::{Ask, Fill, Kind};
use crate::session::body::Body;
use crate::session::lookup::Decision;
use crate::statement::registry::{OfPrepared, Statement, TEXT_BYTES_MAX};

impl Session {
    /// A `Query` at the start of the input.
    pub(crate) fn query(&mut self, head: Header) -> Step {
        if head.frame_bytes > TEXT_BYTES_MAX {
            if !self.get_connection() {
                return Step::Wait;
            }
            let nature = Nature { defines: Defines::Nothing, ..self.nature(None) };
            self.client.expect_long_text(Some(LongText::query(self.server.sharing.is_some())));
            self.begin_passing_query(None, &nature, &Reason::TooLong);
            return self.pass(head);
        }
        let input = self.client.take_input();
        let step = match input.bytes().get(..head.frame_bytes) {
            None => Step::Wait,
            Some(message) => {
                if let Ok(text) = frontend::query_text(message) {
                    self.query_text(text, message)
                } else {
                    // It is malformed: the server reports the error.
                    self.note_unread_text(message.get(HEADER_BYTES..).unwrap_or_default());
                    self.pass_query(message, None, &self.nature(None), &Reason::NotParsed)
                }
            }
        };
        self.client.put_back(input);
        if step == Step::Done {
            self.client.consume(head.frame_bytes);
        }
        step
    }

    fn query_text(&mut self, sent: &[u8], message: &[u8]) -> Step {
        let bare = freshet_sql::without_outer_comments(sent);
        let known = if bare.len() == sent.len() { Cow::Borrowed(bare) } else { self.note_comments(sent, bare) };
        let text = &*known;
        let execution = Execution::Query(text);
        let allowed = self.allowed();
        let mut bypass = None;
        if let Allowed::Cache { context } = allowed {
            match self.look_up(context, execution) {
                Decision::Hit(entry) => return self.answer_query(&entry),
                Decision::Wait(()) => return Step::Wait,
                Decision::Pass(reason) => bypass = Some(reason),
                Decision::Fill(()) => {}
            }
        }
        let statement = match self.known_statement(text, &[]) {
            Ok(statement) => statement,
            Err(reason) => {
                self.note_unread_text(text);
                return self.pass_query(message, None, &self.nature(None), &reason);
            }
        };
        if let Some(admin) = &statement.admin {
            return self.answer_admin_query(admin);
        }
        if let Some(step) = self.refuse_by_rule(&statement) {
            return step;
        }
        if matches!(allowed, Allowed::Cache { .. }) && bypass.is_none() {
            match self.look_up_moved(&statement, execution) {
                Decision::Hit(entry) => return self.answer_query(&entry),
                Decision::Wait(()) => return Step::Wait,
                Decision::Pass(reason) => bypass = Some(reason),
                Decision::Fill(()) => {}
            }
        }
        let messages = Messages { bytes: message, parse: None };
        if self.begin_read_ahead(&statement, execution, &messages, (&allowed, bypass.as_ref()))
            || !self.get_connection()
            || (statement.says.of_prepared != OfPrepared::Nothing && self.awaits_names(false))
        {
            return Step::Wait;
        }
        let nature = self.nature(Some(&statement));
        let reason = match (allowed, bypass) {
            (_, Some(reason)) | (Allowed::Pass(reason), None) => reason,
            (Allowed::Ask, None) if self.only_reads(&statement) => {
                self.ask_context();
                return Step::Wait;
            }
            (Allowed::Ask, None) => Reason::NotSelect,
            (Allowed::Cache { .. }, None) => match self.begin_fill_of(&statement, &nature, execution) {
                Ok(fill) => {
                    self.fill_query(message, fill, &nature);
                    self.last.fills(Some(&statement));
                    return Step::Done;
                }
                Err(reason) if self.arm_wait(&reason) => return Step::Wait,
                Err(reason) => reason,
            },
        };
        if self.begin_replica_read(&statement, execution, &messages, &reason)
            || self.begin_to_make_way(Some(&statement), text)
        {
            return Step::Wait;
        }
        self.pass_query(message, Some(&statement), &nature, &reason)
    }

    fn answer_admin_query(&mut self, admin: &Result<Admin, String>) -> Step {
        self.client.set_trace(None);
        let step = self.answer_admin(admin, true);
        if step == Step::Done {
            backend::put_ready(self.client.output(), self.transaction.status());
        }
        step
    }

    /// Begins a fill, unless the statement is never cached.
    fn begin_fill_of(
        &mut self,
        statement: &Arc<Statement>,
        nature: &Nature,
        execution: Execution<'_>,
    ) -> Result<Fill, Reason> {
        if let Some(refusal) = &nature.refusal
            && !(refusal.yields_to_ttl() && self.shared.rules.have_ttl())
        {
            self.note_read(Some(statement));
            return Err(refusal.clone());
        }
        self.begin_fill(statement, execution)
    }

    /// Answers from the cache, unless earlier answers are still due.
    fn answer_query(&mut self, entry: &Entry<Body>) -> Step {
        if !self.is_idle() {
            return Step::Wait;
        }
        let frames = entry.payload.frames();
        self.client.put(frames);
        backend::put_ready(self.client.output(), self.transaction.status());
        self.server.statements.query_answered();
        if !self.transaction.is_idle() {
            self.client.unseen_mut().note(frontend::CLOSE_UNNAMED_PORTAL, 1); // it has replaced the unnamed portal
        }
        if entry.payload.source.query.takes_snapshot {
            self.query_unseen();
        }
        self.count_hits(std::iter::once(&entry.payload), 1, frames.len());
        self.keep_awake();
        Step::Done
    }

    fn fill_query(&mut self, message: &[u8], fill: Fill, nature: &Nature) {
        let between = self.is_between_transactions();
        if fill.permit.may_need_proof() {
            self.ask(Ask::Proof);
        }
        self.open_unit(true, Kind::Query);
        self.client.unseen_mut().forget();
        let query = fill.stage.source.query.clone();
        let unit = self.last_unit();
        unit.effects.tells = true;
        unit.effects.mark.reads = true;
        unit.fills.results = vec![Some(fill)];
        self.name_running();
        self.limit_time(&query);
        self.note_code(nature);
        self.server.statements.query_sent();
        self.server.put(message);
        if between && !self.await_probe() {
            self.ask(Ask::End);
        }
    }

    /// What is cached by a rule with `ttl` may run code of a foreign table.
    pub(super) fn note_code(&mut self, nature: &Nature) {
        if nature.effect > Effect::Pure {
            self.effect(nature.effect, Some(nature));
        }
    }

    pub(super) fn pass_query(
        &mut self,
        message: &[u8],
        statement: Option<&Arc<Statement>>,
        nature: &Nature,
        reason: &Reason,
    ) -> Step {
        if let Some(statement) = statement {
            self.prepare_block(statement);
        }
        self.begin_passing_query(statement, nature, reason);
        self.server.put(message);
        self.close_unit();
        Step::Done
    }

    /// The properties of the text, except its bytes.
    fn begin_passing_query(&mut self, statement: Option<&Arc<Statement>>, nature: &Nature, reason: &Reason) {
        let reason = self.note_passed(statement, nature, reason);
        self.note_read(statement);
        let (effect, tells) = (nature.effect, !nature.is_silent);
        self.catch_up_unseen_query(statement);
        self.client.unseen_mut().forget();
        self.open_unit(true, Kind::Query);
        self.precede(statement);
        let (place, now) = (self.prefetch.place(statement), self.now());
        let unit = self.last_unit();
        unit.passes(statement, reason, now);
        unit.effects.tells = tells;
        unit.effects.mark.reads = tells && effect == Effect::Pure;
        unit.place = place;
        self.name_running();
        if let Some(statement) = statement {
            self.limit_time(&statement.query);
        }
        self.server.statements.query_sent();
        self.deallocate(statement);
        self.note_bracket(statement);
        self.effect(effect, Some(nature));
    }
}
