//! COM_QUERY: a statement as text.

use std::borrow::Cow;
use std::sync::Arc;

use freshet_cache::Entry;
use freshet_sql::{Admin, Code, Effect, Hint, ReadSet};
use freshet_types::{Catalog, CatalogVersion, Reason};
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::packet::HEADER_BYTES;
use freshet_wire::mysql::response::Kind;
use freshet_wire::mysql::result::{Form, Shape, put_text_result};
use freshet_wire::mysql::statement::{Bound, Query};

use crate::admin::Asker;
use crate::mysql::admin;
use crate::mysql::kills::Kill;
use crate::mysql::session::answer::Fill;
use crate::mysql::session::diagnostics::number_in;
use crate::mysql::session::execution::{Execution, Found, Joined, parameters};
use crate::mysql::session::forward::To;
use crate::mysql::session::idle::Command;
use crate::mysql::session::known::{Allowed, Known};
use crate::mysql::session::mark::Mark;
use crate::mysql::session::temporaries::Reading;
use crate::mysql::session::{Session, SessionError};
use crate::server::traces::{Answered, AnsweredBy};
use crate::session::body::Body;
use crate::session::last::LastStatement;
use crate::session::lookup::Decision;
use crate::statement::registry::{self, Leaves, Statement, TEXT_BYTES_MAX};

/// The part of a long statement that is received before it is forwarded.
const HEAD_BYTES: usize = 512;

/// First words of statements that write rows.
const ROW_WRITES: [&str; 4] = ["insert", "replace", "update", "delete"];

/// What to do with a statement.
pub(crate) struct Decided {
    /// None: it is not known, or has been answered.
    pub(crate) statement: Option<Arc<Statement>>,
    /// A hit has been answered.
    pub(crate) decision: Decision<(), Box<Fill>>,
}

impl Decided {
    /// It has been answered.
    pub(crate) fn hit() -> Self {
        Self { statement: None, decision: Decision::Hit(()) }
    }

    /// It is sent.
    pub(crate) fn pass(statement: Option<Arc<Statement>>, reason: Reason) -> Self {
        Self { statement, decision: Decision::Pass(reason) }
    }

    /// Another session has begun to fill the same result since the look-up.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.decision, Decision::Pass(Reason::FillInFlight))
    }
}

/// For a statement of which only the words are known.
fn mark_of_words(code: Option<&Code>) -> Mark {
    let of_rows = |word: &str| word == "select" || ROW_WRITES.contains(&word);
    if code.and_then(Code::single).is_some_and(of_rows) { Mark::LONG } else { Mark::UNKNOWN }
}

impl Session {
    pub(crate) async fn query(&mut self, command: Command) -> Result<(), SessionError> {
        if !command.whole || command.header.payload_bytes > TEXT_BYTES_MAX {
            return self.query_long(command).await;
        }
        loop {
            let input = self.client.input.take();
            let packet = input.bytes().get(..command.header.packet_bytes()).unwrap_or_default();
            let decision = self.decide_query(packet).await;
            self.client.input = input;
            match decision? {
                Some(decided) => return self.carry_out(decided, command, Kind::Query).await,
                None => self.connect().await?,
            }
        }
    }

    /// Handles a statement that is too long to be analysed: only its words are parsed while it is forwarded.
    async fn query_long(&mut self, command: Command) -> Result<(), SessionError> {
        self.connect().await?;
        self.note_passed(None, &Reason::TooLong);
        self.hold_statements_before_code(None).await?;
        self.replay_hit(&[]).await?;
        self.client.receive_at_least(HEADER_BYTES + HEAD_BYTES).await?;
        let bytes = self.client.input.bytes();
        let head = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let text = Query::parse(head, self.capabilities()).map_or(head, |query| query.text);
        let before_text = head.len() - text.len();
        let text = text.get(..HEAD_BYTES).unwrap_or(text).to_vec();
        self.ask_to_read(&text, false).await?;
        self.replay.unknown();
        self.tune(None);
        self.before_sending(Mark::UNKNOWN, None);
        let was = self.status;
        self.at_hand.reading = Some(Reading::new(self.server.settings.quoting(), before_text));
        self.send_command(command).await?;
        let code = self.at_hand.reading.take().map(Reading::finish);
        let mark = mark_of_words(code.as_ref());
        let done = self.answer(Kind::Query, To::Client { fill: None, impure: true }).await?;
        self.at_hand.unread = code.map(Arc::new);
        self.after(&mark, None, &done, was).await
    }

    /// Carries out the decision.
    pub(crate) async fn carry_out(
        &mut self,
        decided: Decided,
        command: Command,
        kind: Kind,
    ) -> Result<(), SessionError> {
        let Decided { statement, decision } = decided;
        match decision {
            Decision::Hit(()) => {
                self.client.input.consume(command.header.packet_bytes());
                Ok(())
            }
            Decision::Fill(fill) => {
                self.last.fills(statement.as_ref());
                self.send_and_take(statement, Some(fill), command, kind).await
            }
            Decision::Pass(reason) => {
                self.note_passed(statement.as_ref(), &reason);
                self.at_hand.passed_for = reason.label();
                self.ask_ahead(statement.as_ref());
                self.send_and_take(statement, None, command, kind).await
            }
        }
    }

    /// Sends a statement and forwards its answer.
    async fn send_and_take(
        &mut self,
        statement: Option<Arc<Statement>>,
        fill: Option<Box<Fill>>,
        command: Command,
        kind: Kind,
    ) -> Result<(), SessionError> {
        if let Some(statement) = &statement {
            self.ask_source(statement);
        }
        self.tune(statement.as_ref());
        self.send_command(command).await?;
        match statement {
            Some(statement) => self.take_answer(&statement, fill, kind).await,
            None => self.take_unknown(kind).await,
        }
    }

    /// Forwards the answer to a statement that was sent.
    async fn take_answer(
        &mut self,
        statement: &Arc<Statement>,
        mut fill: Option<Box<Fill>>,
        kind: Kind,
    ) -> Result<(), SessionError> {
        let mark = self.mark(Some(statement));
        self.before_sending(mark, Some(statement)); // nothing has been sent yet: it is in the output
        if mark.takes_snapshot.is_some() && mark.bracket.is_some() {
            self.transaction.proven_before = self.shared.cache.proven();
        }
        let leaves = self.leaves(statement);
        self.replay.overtaken_by(leaves);
        let (was, passes, sent_at) = (self.status, fill.is_none(), self.now());
        self.server.link.begin_running(statement.query.digest, sent_at);
        self.note_timeout(Some(statement));
        let done = self.answer(kind, To::Client { fill: Some(&mut fill), impure: mark.writes }).await?;
        self.answered();
        let took = self.now().saturating_sub(sent_at);
        statement.query.figures.results.answered(done.rows, done.affected_rows);
        let parent = self.at_hand.trace.take();
        if self.shared.settings.query_log.wants(took) {
            let query = &statement.query;
            let outcome = if passes { AnsweredBy::Pass(self.at_hand.passed_for) } else { AnsweredBy::Fill };
            self.observe(&Answered { query, took, outcome, has_failed: done.error.is_some(), parent });
        }
        if passes {
            let took = took.into();
            statement.query.figures.pass_answers.note(took);
            self.count_answer(took);
        }
        self.replay.answered(&statement.query, leaves, &done, self.server.about.version.is_mariadb);
        self.replay.find_displaced(self.capabilities());
        self.found_rows_counted(&done);
        if let Some(fill) = fill {
            self.finish_fill(*fill, &done);
        }
        self.after(&mark, Some(statement), &done, was).await
    }

    pub(crate) async fn take_unknown(&mut self, kind: Kind) -> Result<(), SessionError> {
        self.before_sending(Mark::UNKNOWN, None);
        self.at_hand.trace = None;
        self.replay.unknown();
        let was = self.status;
        self.server.link.begin_running(0, self.now());
        let done = self.answer(kind, To::Client { fill: None, impure: true }).await?;
        self.answered();
        let mark = mark_of_words(self.at_hand.unread.as_deref());
        self.after(&mark, None, &done, was).await
    }

    /// None: the session needs a connection first.
    async fn decide_query(&mut self, packet: &[u8]) -> Result<Option<Decided>, SessionError> {
        let payload = packet.get(HEADER_BYTES..).unwrap_or_default();
        let Ok(query) = Query::parse(payload, self.capabilities()) else {
            if !self.server.is_connected() {
                return Ok(None);
            }
            self.replay_hit(&[]).await?;
            self.at_hand.unread = Some(self.unread(payload));
            return Ok(Some(Decided::pass(None, Reason::NotParsed))); // the server reports the error
        };
        let (sent, bare) = (query.text, freshet_sql::without_outer_comments(query.text));
        let known = if bare.len() == sent.len() { Cow::Borrowed(bare) } else { self.note_comments(sent, bare) };
        let text = &*known;
        if !query.has_attributes && self.answer_found_rows(text, packet) {
            return Ok(Some(Decided::hit()));
        }
        let execution = Execution::Text(text);
        // A hit needs only its key.
        let found = match self.allowed() {
            Allowed::Cache(context) if !query.has_attributes => {
                self.find(context, execution, packet, Kind::Query).await
            }
            Allowed::Cache(_) => Decision::Pass(Reason::MessageShape),
            Allowed::Pass(reason) => Decision::Pass(reason),
            Allowed::Ask => Decision::Pass(Reason::SettingsUnknown),
        };
        if matches!(found, Decision::Hit(())) {
            return Ok(Some(Decided::hit()));
        }
        if self.server.pooling.is_some()
            && let Some(kill) = Kill::parse(text)
            && Box::pin(self.kill(kill)).await?
        {
            return Ok(Some(Decided::hit()));
        }
        if !self.server.is_connected() {
            return Ok(None);
        }
        self.decide_missed(&query, text, packet, found).await.map(Some)
    }

    /// Decides about a statement that has missed, or was not looked up.
    async fn decide_missed(
        &mut self,
        query: &Query<'_>,
        text: &[u8],
        packet: &[u8],
        mut found: Found,
    ) -> Result<Decided, SessionError> {
        let execution = Execution::Text(text);
        self.ask_to_read(text, true).await?;
        let mut statement = match self.statement(text) {
            Ok(statement) => statement,
            Err(reason) => {
                let unread = self.unread(text);
                self.hold_statements_before_code(Some(&unread)).await?;
                self.replay_now().await?;
                let writes = unread.single().is_some_and(|word| ROW_WRITES.contains(&word));
                self.at_hand.unread = Some(unread);
                return Ok(Decided::pass(None, if writes { Reason::NotSelect } else { reason }));
            }
        };
        let who = self.server.who();
        if let Some(admin) = statement.admin.as_ref().filter(|admin| admin::is_answered(&self.shared, &who, admin)) {
            self.answer_admin(admin, Form::Text).await?;
            return Ok(Decided::hit());
        }
        if self.decide_to_ask(&statement) && !query.has_attributes {
            self.ask_before(&statement).await?;
            // With the present knowledge it may be another statement.
            statement = self.statement(text).unwrap_or(statement);
            found = match self.allowed() {
                Allowed::Cache(context) => self.find(context, execution, packet, Kind::Query).await,
                Allowed::Pass(reason) => Decision::Pass(reason),
                Allowed::Ask => Decision::Pass(Reason::CatalogStale),
            };
        }
        if statement.query.moves() && matches!(found, Decision::Fill(_)) {
            let moved = self.find_moved(&statement, (execution, None), (packet, Kind::Query), found);
            found = Box::pin(moved).await;
        }
        let missed = matches!(found, Decision::Fill(Joined(false)));
        let decision = self.settle(statement, found, (execution, None), text).await?;
        if missed && decision.joins() && Box::pin(self.find_again(execution, packet, Kind::Query)).await {
            return Ok(Decided::hit());
        }
        if decision.statement.is_some() && matches!(decision.decision, Decision::Pass(_)) {
            self.count_found_rows(text);
        }
        Ok(decision)
    }

    /// Whether to ask for the session's context before this statement: not before MariaDB's VALUES, which leaves the number of rows found by an
    /// earlier SELECT unchanged.
    pub(crate) fn decide_to_ask(&mut self, statement: &Statement) -> bool {
        let template = &statement.query.template;
        let reads = template.effect() == Effect::Pure && self.refusal_of(statement).is_none();
        let asks = match self.allowed() {
            Allowed::Ask => true,
            Allowed::Pass(Reason::MayHaveTemporary) => self.decide_to_count(statement),
            _ => false,
        };
        if !reads || !asks {
            return false;
        }
        !self.replay.has_selected() || statement.query.leaves(self.server.about.version.is_mariadb) == Leaves::Rows
    }

    /// Looks up, and waits for a position that is about to come, or for another session's fill of the same key.
    pub(crate) async fn find(&mut self, context: u32, execution: Execution<'_>, packet: &[u8], kind: Kind) -> Found {
        let (mut due, mut joined, mut since) = (None, false, None);
        loop {
            let generation = self.shared.waits.generation();
            let found = self.look_up(context, execution);
            match found {
                Decision::Hit(entry) => {
                    self.last.looked_up_at = since.unwrap_or(self.last.looked_up_at);
                    return self.answer_found(&entry, packet, kind);
                }
                Decision::Fill(()) => {
                    since.get_or_insert_with(|| self.now());
                    // The look-up waits for one fill, not for one after the other.
                    if joined || !self.join().await {
                        return Decision::Fill(Joined(joined));
                    }
                    joined = true;
                }
                Decision::Pass(reason) => {
                    since.get_or_insert_with(|| self.now());
                    due = self.worth_waiting_until(&reason, due);
                    let Some(due) = due else { return Decision::Pass(reason) };
                    if !self.wait_for_position(generation, due).await {
                        return Decision::Pass(reason);
                    }
                }
            }
        }
    }

    pub(crate) fn answer_found(&mut self, entry: &Entry<Body>, packet: &[u8], kind: Kind) -> Found {
        self.answer_hit(entry);
        let counts = entry.payload.source.query.leaves(self.server.about.version.is_mariadb) != Leaves::Nothing;
        if counts || !self.replay.keep_rows() {
            self.replay.remember(packet, kind);
        }
        if counts {
            self.replay.found_rows.clone_from(&entry.payload.found_rows);
            self.replay.rows = entry.payload.rows;
        }
        Decision::Hit(())
    }

    /// If another session has begun a fill since the look-up, waits for it as if it had been there before. This is rare, so its future has a place of
    /// its own.
    pub(crate) async fn find_again(&mut self, execution: Execution<'_>, packet: &[u8], kind: Kind) -> bool {
        let Allowed::Cache(context) = self.allowed() else { return false };
        let is_refused = self.at_hand.refused.is_some();
        !is_refused && matches!(self.find(context, execution, packet, kind).await, Decision::Hit(()))
    }

    /// The statement is sent to the server: decides whether its answer is cached.
    pub(crate) async fn settle(
        &mut self,
        statement: Arc<Statement>,
        found: Found,
        execution: (Execution<'_>, Option<&Bound<'_>>),
        text: &[u8],
    ) -> Result<Decided, SessionError> {
        let is_answered = matches!(found, Decision::Hit(())) || self.refuse_by_rule(&statement);
        if is_answered || self.refuse_last_gtid(&statement) || self.refuse_lost_diagnostics(&statement) {
            return Ok(Decided::hit());
        }
        self.hold_statements_before(&statement).await?;
        self.transaction.sure_by = self.takes_snapshot_surely(&statement, execution.1);
        let template = &statement.query.template;
        if template.reads_diagnostics() {
            self.replay_hit(text).await?;
        } else if template.effect() != Effect::Pure {
            self.replay_for_warnings().await?;
        }
        if template.effect() >= Effect::Settings {
            self.count_before_change().await?;
        }
        self.replay_for_transaction(Some(&statement)).await?;
        if self.leaves(&statement) == Leaves::Either {
            self.replay_now().await?;
        }
        let reason = match (self.refusal_of(&statement), found) {
            (Some(reason), _) => reason.clone(),
            (None, _) if template.hint() == Some(Hint::NoCache) => Reason::Construct("SQL_NO_CACHE"),
            (None, Decision::Pass(reason)) => reason,
            (None, _) => match self.begin_fill(&statement, execution.0, execution.1) {
                Ok(fill) => {
                    return Ok(Decided { statement: Some(statement), decision: Decision::Fill(Box::new(fill)) });
                }
                Err(reason) => reason,
            },
        };
        Ok(Decided::pass(Some(statement), reason))
    }

    /// Why the statement is never cached, even if a rule with `ttl` may say otherwise.
    pub(crate) fn refusal_of<'s>(&self, statement: &'s Statement) -> Option<&'s Reason> {
        let refusal = statement.query.template.refusal();
        refusal.filter(|reason| !reason.yields_to_ttl() || !self.shared.rules.have_ttl())
    }

    /// By which catalogue a statement that goes upstream takes the open transaction's snapshot even if it returns no row; None: it may
    /// take none.
    fn takes_snapshot_surely(&self, statement: &Statement, bound: Option<&Bound<'_>>) -> Option<CatalogVersion> {
        let Known::Context(context, _) = &self.server.settings.known else { return None };
        // The session may have just defined the objects that it names.
        let is_behind = self.shared.cache.catalog_as_of() < self.watermark.get().catalog_since;
        let is_known = context.obstacle.is_none() && context.schemas == self.server.settings.schemas;
        if !self.transaction.wants_snapshot() || is_behind || !is_known {
            return None;
        }
        let catalog = self.shared.catalog.load();
        let takes = |params: Vec<_>| {
            statement.query.template.surely_takes_snapshot(&catalog, &context.schemas, &params, context.client)
        };
        parameters(statement, bound).is_ok_and(takes).then_some(catalog.version)
    }

    /// Counts a statement that passes.
    pub(crate) fn note_passed(&mut self, statement: Option<&Arc<Statement>>, reason: &Reason) {
        self.count_passed(reason);
        self.last.passes(statement, reason);
        if let Some(statement) = statement {
            statement.query.note_passed(reason);
        }
    }

    /// The last statement, for EXPLAIN LAST STATEMENT.
    fn last_statement(&self) -> Option<LastStatement> {
        if self.last.looked_up_at == 0 {
            return self.last.sent();
        }
        Some(LastStatement::hit(self.statement_of_hit().map(|statement| statement.query.clone())))
    }

    /// The statement of the last hit, if the server may have to execute it still.
    fn statement_of_hit(&self) -> Option<Arc<Statement>> {
        let (packet, kind) = self.replay.last_hit()?;
        if kind == Kind::Query {
            let query = Query::parse(packet.get(HEADER_BYTES..)?, self.capabilities()).ok()?;
            return self.statement(query.text).ok();
        }
        self.server.prepareds.get(number_in(packet, kind)?)?.statement.clone().ok()
    }

    /// Answers a statement for Freshet itself.
    async fn answer_admin(&mut self, admin: &Result<Admin, String>, form: Form) -> Result<(), SessionError> {
        self.at_hand.trace = None;
        if matches!(admin, Ok(Admin::ExplainCache(_) | Admin::CreateCache(_))) && matches!(self.allowed(), Allowed::Ask)
        {
            self.ask_context().await?;
        }
        let obstacle = match self.allowed() {
            Allowed::Pass(reason) => Some(reason),
            _ => self.undecided(),
        };
        let context = match &self.server.settings.known {
            Known::Context(context, _) => Some(context.as_ref()),
            _ => None,
        };
        let temporaries = &self.server.settings.temporaries;
        let hides = |_: &registry::NormalizedQuery, read_set: &ReadSet, catalog: &Catalog| {
            read_set.names(catalog, |name| temporaries.hide(name))
        };
        let modes = self.modes();
        let last = if matches!(admin, Ok(Admin::ExplainLast)) { self.last_statement() } else { None };
        let asker = Asker { who: self.server.who(), context, obstacle, hides: &hides, modes, last };
        let answer = admin::answer(&self.shared, &asker, admin);
        let shape = Shape { capabilities: self.server.about.capabilities, status: self.status, form };
        let out = self.client.output.buffer();
        match answer {
            Ok((columns, rows)) => {
                let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
                put_text_result(out, shape, &columns, &rows);
            }
            Err((code, sqlstate, message)) => put_error(out, &mut 1, code, Some(sqlstate), &message),
        }
        Ok(())
    }
}
