//! The extended protocol: batches of executions up to `Sync`, which are answered or sent as a whole.

use std::sync::Arc;

use freshet_cache::Entry;
use freshet_sql::{Admin, Isolation};
use freshet_types::Reason;
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame::HEADER_BYTES;
use freshet_wire::postgres::frontend::Parse;
use smallvec::SmallVec;

use crate::postgres::session::Session;
use crate::postgres::session::ahead::bytes_ahead;
use crate::postgres::session::batch::{self, Batch, Describe, Group, Groups, Lead, ends_with_flush};
use crate::postgres::session::client::Step;
use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::execution::Execution;
use crate::postgres::session::plan::Allowed;
use crate::postgres::session::server_connection::Known;
use crate::postgres::session::statements::ParsedUnder;
use crate::postgres::session::unit::{Ask, Fill, Kind};
use crate::session::body::Body;
use crate::session::lookup::Decision;
use crate::statement::registry::Statement;

/// What is found for each execution of a batch.
pub(super) type Found = SmallVec<[Option<Arc<Entry<Body>>>; 1]>;

/// The statements of a batch, in order.
type Statements = SmallVec<[Arc<Statement>; 1]>;

/// Limit of bytes of several answers in one batch; with more, it passes.
const BATCH_BYTES_MAX: usize = 1 << 20;

impl Session {
    /// Handles messages of the extended protocol at the start of the input, at a `Sync` boundary.
    pub(crate) fn batch(&mut self) -> Step {
        let input = self.client.take_input();
        let (outcome, bytes) = self.scan_batch(input.bytes());
        self.client.put_back(input);
        match outcome {
            Ok(Step::Wait) => Step::Wait,
            Ok(Step::Done) => {
                self.client.consume(bytes);
                Step::Done
            }
            Err(_) if !self.get_connection() => Step::Wait,
            Err(reason) => {
                self.begin_passing_batch(reason);
                Step::Done
            }
        }
    }

    /// Decides about them, and returns their length in bytes.
    fn scan_batch(&mut self, input: &[u8]) -> (Result<Step, Reason>, usize) {
        let mut groups = Groups::new();
        match batch::scan(input, &mut groups) {
            Batch::Incomplete { whole } if !self.client.has_ended() && self.wait_for_rest(whole) => (Ok(Step::Wait), 0),
            Batch::Incomplete { .. } | Batch::Other => (Err(Reason::MessageShape), 0),
            Batch::Prepare { parse, describe, bytes } => (self.prepare(&parse, describe), bytes),
            Batch::Candidate { bytes, lead } => {
                let messages = input.get(..bytes).unwrap_or_default();
                let outcome = self.candidate(&groups, messages, lead);
                let outcome = outcome.or_else(|reason| self.pass_candidate(&groups, messages, lead, reason));
                (outcome, if self.client.leads_batch() { bytes_ahead(&groups, lead) } else { bytes })
            }
        }
    }

    /// Handles a statement that is prepared. Freshet answers only for its own statements.
    fn prepare(&mut self, parse: &Parse<'_>, describe: bool) -> Result<Step, Reason> {
        let statement = self.statement(parse.query, parse.types)?;
        let Some(admin) = &statement.admin else {
            return self.refuse_by_rule(&statement).ok_or(Reason::MessageShape);
        };
        if !self.is_idle() {
            return Ok(Step::Wait);
        }
        let out = self.client.output();
        match admin {
            Ok(admin) => {
                out.extend_from_slice(backend::PARSE_COMPLETE_FRAME);
                if describe {
                    backend::put_text_description(out, crate::admin::columns(admin));
                }
                let prepared = self.prepared(&statement);
                self.server.statements.kept_admin(parse.name, prepared);
                self.client.unseen_mut().forget();
            }
            Err(message) => backend::put_error(out, "ERROR", "42601", message),
        }
        backend::put_ready(self.client.output(), self.transaction.status());
        Ok(Step::Done)
    }

    /// Handles a batch that could be answered from the cache. Err: it passes.
    fn candidate(&mut self, groups: &[Group<'_>], messages: &[u8], lead: Lead) -> Result<Step, Reason> {
        let allowed = self.allowed();
        let settings = self.server.settings_number().filter(|_| matches!(allowed, Allowed::Cache { .. }));
        let statements = self.statements_of(groups, settings)?;
        let is_one_never_cached = statements.iter().any(|statement| self.is_never_cached(statement));
        let leading = messages.get(..lead.bytes).unwrap_or_default();
        if lead.closes && statements.iter().any(|statement| statement.admin.is_some()) {
            return Ok(self.send_lead(leading));
        }
        if ends_with_flush(messages) && !self.may_end_early(&statements) {
            return Err(Reason::MessageShape);
        }
        if is_one_never_cached && let Some(step) = self.without_context(&allowed, groups, &statements, messages)? {
            return Ok(step);
        }
        let context = match allowed {
            Allowed::Cache { context } => context,
            Allowed::Pass(reason) => return Err(reason),
            Allowed::Ask => {
                self.ask_context();
                return Ok(Step::Wait);
            }
        };
        if is_one_never_cached
            && let [statement] = statements.as_slice()
            && let Some(refusal) = statement.query.template.refusal()
        {
            return Err(refusal.clone());
        }
        if let [statement, others @ ..] = statements.as_slice()
            && statement.query.skips_look_up()
            && others.iter().all(|other| other.query.skips_look_up())
        {
            self.note_read(Some(statement));
            return Err(Reason::NotAdmitted);
        }
        if lead.closes {
            return Ok(self.send_lead(leading));
        }
        let Some(hits) = self.look_up_all(context, groups, &statements)? else { return Ok(Step::Wait) };
        if hits.iter().all(Option::is_some) {
            let names = groups.first().is_some_and(Group::names_statement);
            return if names {
                self.name_first(groups, leading)
            } else {
                self.answer_batch(groups, &statements, &hits, messages)
            };
        }
        if let Some(outcome) = self.holds_back(&statements) {
            return outcome;
        }
        let mut fills = Vec::with_capacity(groups.len());
        let mut reason = None;
        for ((execution, statement), hit) in executions(groups, &statements).zip(&statements).zip(&hits) {
            fills.push(if hit.is_some() {
                None
            } else {
                self.begin_fill(statement, execution).map_err(|why| reason = Some(why)).ok()
            });
        }
        if fills.iter().all(Option::is_none) {
            let reason = reason.unwrap_or(Reason::MessageShape);
            return if groups.len() == 1 && self.arm_wait(&reason) { Ok(Step::Wait) } else { Err(reason) };
        }
        let passes = fills.last().is_none_or(Option::is_none);
        self.last.sends(statements.last(), passes.then(|| reason.unwrap_or(Reason::MessageShape)));
        self.fill_batch(groups, &statements, fills, messages);
        Ok(Step::Done)
    }

    /// Whether no rule can cause that its results are cached either.
    fn is_never_cached(&self, statement: &Statement) -> bool {
        let may_be = || {
            let refusal = statement.query.template.refusal().filter(|_| self.only_reads(statement));
            refusal.is_some_and(Reason::yields_to_ttl) && self.shared.rules.have_ttl()
        };
        statement.is_never_cached && (statement.admin.is_some() || !may_be())
    }

    /// Looks all executions up; None: they are worth waiting for.
    pub(super) fn look_up_all(
        &mut self,
        context: u32,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
    ) -> Result<Option<Found>, Reason> {
        let mut hits = Found::with_capacity(groups.len());
        for (execution, statement) in executions(groups, statements).zip(statements) {
            let found = match self.look_up(context, execution) {
                Decision::Fill(()) => self.look_up_moved(statement, execution),
                found => found,
            };
            hits.push(match found {
                Decision::Hit(entry) => Some(entry),
                Decision::Fill(()) => None,
                Decision::Wait(()) => return Ok(None),
                Decision::Pass(reason) => return Err(reason),
            });
        }
        Ok(Some(hits))
    }

    /// A batch with a statement for Freshet, or one that does more than read, needs no context.
    fn without_context(
        &mut self,
        allowed: &Allowed,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
        messages: &[u8],
    ) -> Result<Option<Step>, Reason> {
        if let ([group], [statement]) = (groups, statements)
            && let Some(admin) = &statement.admin
        {
            return Ok(Some(self.answer_admin_batch(group, statement, admin)));
        }
        let changes_session = |s: &Statement| !self.only_reads(s) || s.query.template.deallocates().is_some();
        if !statements.iter().any(|statement| changes_session(statement)) {
            return Ok(None);
        }
        if let Some(step) = self.begin_first(allowed, groups, statements, messages) {
            return Ok(Some(step));
        }
        for statement in statements {
            self.prepare_block(statement);
        }
        Err(Reason::NotSelect)
    }

    /// The statements that are executed.
    fn statements_of(&mut self, groups: &[Group<'_>], settings: Option<u32>) -> Result<Statements, Reason> {
        let mut statements = Statements::new();
        for (at, group) in groups.iter().enumerate() {
            statements.push(match &group.parse {
                Some((parse, _)) => {
                    let (sent, bare) = (parse.query, freshet_sql::without_outer_comments(parse.query));
                    if bare.len() == sent.len() {
                        self.known_statement(bare, parse.types)?
                    } else {
                        let known = self.note_comments(sent, bare);
                        self.known_statement(&known, parse.types)?
                    }
                }
                None => match prepared_before(groups, at).and_then(|before| statements.get(before)) {
                    Some(prepared_in_batch) => prepared_in_batch.clone(),
                    None => self.prepared_statement(group.bind.statement, settings)?,
                },
            });
        }
        Ok(statements)
    }

    /// A statement that was prepared earlier, if its text has the same meaning now.
    fn prepared_statement(&mut self, name: &[u8], settings: Option<u32>) -> Result<Arc<Statement>, Reason> {
        let era = self.server.statements.era();
        let catalog = self.shared.catalog_version();
        let Some(prepared) = self.server.statements.get(name) else { return Err(Reason::UnknownStatement) };
        let statement = prepared.statement.clone();
        let Some(settings) = settings else { return Ok(statement) };
        if prepared.catalog != catalog {
            return Err(Reason::CatalogStale); // it passes once, so that the server can refuse it
        }
        let same = match prepared.under {
            ParsedUnder::Context(then) => then == settings,
            ParsedUnder::Era(then) => then == era,
            ParsedUnder::Unknown => false,
        };
        if !same {
            if self.reads_settings_at_parse(&statement) {
                return Err(Reason::SettingsUnknown);
            }
            if let Some(prepared) = self.server.statements.get_mut(name) {
                prepared.under = ParsedUnder::Context(settings);
            }
        }
        Ok(statement)
    }

    /// Answers all executions from the cache, unless earlier answers are still due.
    fn answer_batch(
        &mut self,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
        hits: &[Option<Arc<Entry<Body>>>],
        messages: &[u8],
    ) -> Result<Step, Reason> {
        let flushes = ends_with_flush(messages);
        // The client may ask for more rows before its `Sync`.
        if flushes && hits.iter().flatten().any(|entry| entry.payload.frames().ends_with(SUSPENDED)) {
            return Err(Reason::MessageShape);
        }
        // A named statement must exist on the server, or must not exist yet: only the server can answer its `Parse`.
        if groups.iter().any(Group::names_statement) {
            return Err(Reason::MessageShape);
        }
        // The server may refuse a name that is in use.
        if self.transaction.has_portals() && groups.iter().any(|group| !group.bind.portal.is_empty()) {
            return Err(Reason::MessageShape);
        }
        // The output's limit has no space for many large answers at once.
        if groups.len() > 1 && hits.iter().flatten().map(|e| e.payload.frames().len()).sum::<usize>() > BATCH_BYTES_MAX
        {
            return Err(Reason::MessageShape);
        }
        if !self.is_idle() {
            return Ok(Step::Wait);
        }
        let mut bytes = 0;
        for ((group, statement), entry) in groups.iter().zip(statements).zip(hits.iter().flatten()) {
            if let Some((_, message)) = group.parse {
                self.client.put(backend::PARSE_COMPLETE_FRAME);
                let prepared = self.prepared(statement);
                self.server.statements.kept_unnamed(prepared, message);
            }
            // The answer to `Bind` follows the description of a statement, and is cached with it.
            if group.describe != Describe::Statement {
                self.client.put(backend::BIND_COMPLETE_FRAME);
            }
            self.client.put(entry.payload.frames());
            if group.closes {
                self.client.put(backend::CLOSE_COMPLETE_FRAME);
            }
            bytes += entry.payload.frames().len();
        }
        self.client.set_ends_by_itself(flushes);
        if flushes || !self.transaction.is_idle() {
            self.note_unseen(groups, messages);
        }
        if !flushes {
            backend::put_ready(self.client.output(), self.transaction.status());
        }
        if statements.iter().any(|statement| statement.query.takes_snapshot) {
            self.query_unseen();
        }
        self.count_hits(hits.iter().flatten().map(|entry| &entry.payload), groups.len(), bytes);
        self.keep_awake();
        Ok(Step::Done)
    }

    fn fill_batch(
        &mut self,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
        fills: Vec<Option<Fill>>,
        messages: &[u8],
    ) {
        let between = self.is_between_transactions();
        self.client.unseen_mut().forget();
        if groups.first().and_then(|group| group.parse).is_some_and(|(parse, _)| parse.name.is_empty()) {
            self.server.statements.unnamed_is_replaced();
        }
        self.catch_up_unnamed();
        if fills.iter().flatten().any(|fill| fill.permit.may_need_proof()) {
            self.ask(Ask::Proof);
        }
        self.open_unit(true, Kind::Batch);
        let unit = self.last_unit();
        unit.sent.synced = !ends_with_flush(messages);
        unit.effects.tells = true;
        unit.effects.mark.reads = true;
        unit.fills.results = fills;
        unit.fills.describes_statement = groups.iter().any(|group| group.kept_with() == Describe::Statement);
        self.name_running();
        for (group, statement) in groups.iter().zip(statements) {
            self.limit_time(&statement.query);
            if let Some((parse, _)) = &group.parse {
                self.parse_sent(parse.name, Some(statement));
            }
            if self.shared.rules.have_ttl() {
                self.note_code(&self.nature(Some(statement)));
            }
        }
        if ends_with_flush(messages) {
            return self.send_flushed(groups, messages);
        }
        let (before_sync, sync) = messages.split_at(messages.len().saturating_sub(HEADER_BYTES));
        self.put_messages(before_sync);
        let asks = between && !self.await_probe();
        // After a `Close`, whose answer is the client's, the log-end probe has a `Sync` of its own.
        let within = groups.last().is_none_or(|group| !group.closes);
        if asks && within {
            self.ask_end_within(groups.len());
        }
        self.server.put(sync);
        if asks && !within {
            self.ask(Ask::End);
        }
    }

    /// Sends executions up to a `Flush`; the batch stays open.
    fn send_flushed(&mut self, groups: &[Group<'_>], messages: &[u8]) {
        let answers = |group: &Group<'_>| {
            let before = usize::from(group.parse.is_some()) + usize::from(group.describe == Describe::Statement);
            before + group.answers()
        };
        let unit = self.last_unit();
        unit.response.owe(groups.iter().map(answers).sum());
        (unit.sent.begun, unit.sent.bound_or_executed, unit.fills.may_end) = (true, true, true);
        self.client.begin_batch(OpenBatch::Passes(Reason::MessageShape));
        self.put_messages(messages);
        if self.transaction.is_idle() {
            self.note_unseen(groups, messages); // its portal ends with Freshet's own `Sync`
        }
    }

    /// Notes that the client has the answer to the last of these executions while the server has not executed it, or has closed its portal.
    #[inline(never)]
    fn note_unseen(&mut self, groups: &[Group<'_>], messages: &[u8]) {
        if let Some(group) = groups.last()
            && let Some(messages) = messages.get(group.at..messages.len().saturating_sub(HEADER_BYTES))
        {
            self.client.unseen_mut().note(messages, group.answers());
        }
    }

    /// Whether statements whose `Sync` is still to come may run in a transaction of their own, as if the `Sync` had come: READ COMMITTED shows each
    /// statement what is committed by then. In a block a `Sync` ends nothing.
    fn may_end_early(&self, statements: &[Arc<Statement>]) -> bool {
        let is_asked = matches!(self.server.settings.known, Known::Nothing | Known::Failed);
        let is_committed = self.server.settings.default_isolation == Some(Isolation::ReadCommitted);
        (self.transaction.block().is_some() || is_committed || is_asked)
            && statements.iter().all(|statement| statement.admin.is_none())
    }

    fn answer_admin_batch(
        &mut self,
        group: &Group<'_>,
        statement: &Arc<Statement>,
        admin: &Result<Admin, String>,
    ) -> Step {
        if !self.is_idle() {
            return Step::Wait;
        }
        self.client.set_trace(None);
        let before = self.client.output().len();
        let out = self.client.output();
        if group.parse.is_some() {
            out.extend_from_slice(backend::PARSE_COMPLETE_FRAME);
        }
        if let (Describe::Statement, Ok(admin)) = (group.describe, admin) {
            backend::put_text_description(out, crate::admin::columns(admin));
        }
        out.extend_from_slice(backend::BIND_COMPLETE_FRAME);
        let step = self.answer_admin(admin, group.describe == Describe::Portal);
        if step == Step::Wait {
            self.client.output().truncate(before);
            return step;
        }
        if group.closes && admin.is_ok() {
            self.client.put(backend::CLOSE_COMPLETE_FRAME);
        }
        if let Some((parse, _)) = group.parse {
            let prepared = self.prepared(statement);
            self.server.statements.kept_admin(parse.name, prepared);
        }
        self.client.unseen_mut().forget();
        backend::put_ready(self.client.output(), self.transaction.status());
        step
    }
}

/// The execution before this one with which the batch itself prepares its statement.
fn prepared_before(groups: &[Group<'_>], at: usize) -> Option<usize> {
    let name = groups.get(at)?.bind.statement;
    let is_of_it = |other: &Group<'_>| other.parse.as_ref().is_some_and(|(parse, _)| parse.name == name);
    groups.get(..at)?.iter().rposition(is_of_it)
}

/// The last message of an answer that stopped at the most rows asked for.
const SUSPENDED: &[u8] = b"s\0\0\0\x04";

/// The executions that are looked up and cached.
fn executions<'a>(groups: &'a [Group<'_>], statements: &'a [Arc<Statement>]) -> impl Iterator<Item = Execution<'a>> {
    groups.iter().zip(statements).map(|(group, statement)| Execution::Bound {
        statement,
        tail: group.bind.tail,
        describe: group.kept_with(),
        rows_max: group.rows_max,
    })
}
