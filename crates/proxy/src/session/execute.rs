//! The extended protocol: batches of executions up to `Sync`, answered whole or sent whole.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::{Entry, Lookup};
use freshet_model::Reason;
use freshet_sql::{Admin, Effect};
use freshet_wire::pg::backend;

use crate::body::Body;
use crate::registry::Statement;
use crate::session::Session;
use crate::session::batch::{self, Batch, Group};
use crate::session::client::Step;
use crate::session::decide::Execution;
use crate::session::plan::Allowed;
use crate::session::unit::{Ask, Fill};

impl Session {
    /// Messages of the extended protocol at the start of the input, at a `Sync` boundary.
    pub(crate) fn batch(&mut self) -> Step {
        let input = self.client.input.take();
        let (outcome, bytes) = match batch::scan(input.bytes()) {
            Batch::Incomplete if !self.client.ended => (Ok(Step::Wait), 0),
            Batch::Incomplete | Batch::Other => (Err(Reason::MessageShape), 0),
            Batch::Candidate { groups, bytes } => {
                (self.candidate(&groups, input.bytes().get(..bytes).unwrap_or_default()), bytes)
            }
        };
        self.client.input = input;
        match outcome {
            Ok(Step::Wait) => Step::Wait,
            Ok(Step::Done) => {
                self.client.input.consume(bytes);
                Step::Done
            }
            Err(reason) => {
                self.begin_passing_batch(reason);
                Step::Done
            }
        }
    }

    /// A batch that could be answered from the cache. Err: it passes.
    fn candidate(&mut self, groups: &[Group<'_>], messages: &[u8]) -> Result<Step, Reason> {
        let statements: Vec<Arc<Statement>> =
            groups.iter().map(|group| self.statement_of(group)).collect::<Result<_, _>>()?;
        if let ([group], [statement]) = (groups, statements.as_slice())
            && let Some(admin) = &statement.admin
        {
            return Ok(self.answer_admin_batch(group, admin));
        }
        if statements.iter().any(|s| s.shape.template.effect() != Effect::Pure) {
            return Err(Reason::NotSelect);
        }
        let context = match self.allowed() {
            Allowed::Cache { context } => context,
            Allowed::Pass(reason) => return Err(reason),
            Allowed::Ask => {
                self.ask_context();
                return Ok(Step::Wait);
            }
        };
        let executions = || {
            groups.iter().zip(&statements).map(|(group, statement)| Execution::Bound {
                statement,
                tail: group.bind.tail,
                describe: group.describe,
            })
        };
        let mut hits = Vec::with_capacity(groups.len());
        for execution in executions() {
            hits.push(match self.look_up(context, execution) {
                Lookup::Hit(entry) => Some(entry),
                Lookup::Miss => None,
                Lookup::Bypass(reason) => return Err(reason),
            });
        }
        if let Some(entries) = hits.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() {
            return self.answer_batch(groups, &statements, &entries);
        }
        let mut fills = Vec::with_capacity(groups.len());
        let mut reason = None;
        for ((execution, statement), hit) in executions().zip(&statements).zip(&hits) {
            fills.push(if hit.is_some() {
                None
            } else {
                self.begin_fill(statement, execution).map_err(|why| reason = Some(why)).ok()
            });
        }
        if fills.iter().all(Option::is_none) {
            return Err(reason.unwrap_or(Reason::MessageShape));
        }
        self.fill_batch(groups, &statements, fills, messages);
        Ok(Step::Done)
    }

    fn statement_of(&self, group: &Group<'_>) -> Result<Arc<Statement>, Reason> {
        match &group.parse {
            Some((parse, _)) => self.shared.registry.statement(parse.query, parse.types),
            None => self.statements.get(group.bind.statement).cloned().ok_or(Reason::UnknownStatement),
        }
    }

    /// Answers all executions from the cache, unless answers are still owed before them.
    fn answer_batch(
        &mut self,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
        entries: &[&Arc<Entry<Body>>],
    ) -> Result<Step, Reason> {
        // A named statement must exist upstream (and must not exist already): its Parse is the server's.
        if groups.iter().any(|group| group.parse.is_some_and(|(parse, _)| !parse.name.is_empty())) {
            return Err(Reason::MessageShape);
        }
        if !self.is_idle() {
            return Ok(Step::Wait);
        }
        let mut bytes = 0;
        for ((group, statement), entry) in groups.iter().zip(statements).zip(entries) {
            if let Some((_, message)) = group.parse {
                self.client.output.put(backend::PARSE_COMPLETE_FRAME);
                self.statements.kept_unnamed(statement, message);
            }
            self.client.output.put(backend::BIND_COMPLETE_FRAME);
            self.client.output.put(entry.payload.frames());
            entry.payload.shape.figures.hits.fetch_add(1, Relaxed);
            bytes += entry.payload.frames().len();
        }
        self.client.output.put(backend::READY_IDLE_FRAME);
        self.count_hits(groups.len(), bytes);
        Ok(Step::Done)
    }

    fn fill_batch(
        &mut self,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
        fills: Vec<Option<Fill>>,
        messages: &[u8],
    ) {
        self.catch_up_unnamed();
        self.ask(Ask::Proof);
        self.open_unit(true, true);
        let unit = self.last_unit();
        unit.synced = true;
        unit.fills = fills;
        for (group, statement) in groups.iter().zip(statements) {
            if let Some((parse, _)) = &group.parse {
                self.parse_sent(parse.name, Some(statement.clone()));
            }
        }
        self.upstream.output.put(messages);
        self.ask(Ask::End);
    }

    fn answer_admin_batch(&mut self, group: &Group<'_>, admin: &Result<Admin, String>) -> Step {
        if !self.is_idle() {
            return Step::Wait;
        }
        let before = self.client.output.buffer().len();
        if group.parse.is_some() {
            self.client.output.put(backend::PARSE_COMPLETE_FRAME);
        }
        self.client.output.put(backend::BIND_COMPLETE_FRAME);
        let step = self.answer_admin(admin, group.describe);
        if step == Step::Wait {
            self.client.output.buffer().truncate(before);
            return step;
        }
        let status = self.status;
        let ready = backend::READY_IDLE_FRAME.iter().take(backend::READY_BYTES - 1).copied();
        self.client.output.buffer().extend(ready.chain([status]));
        step
    }
}
