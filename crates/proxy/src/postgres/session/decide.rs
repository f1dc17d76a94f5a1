//! From an execution to its key, its tags and the permit to cache its answer.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_sql::{Admin, Bound, Client, Effect, Modes, Parameter, ReadSet};
use freshet_types::{Catalog, Reason, TableId, Visible};
use freshet_wire::postgres::backend;

use crate::admin;
use crate::postgres::session::block::Block;
use crate::postgres::session::client::Step;
use crate::postgres::session::execution::{Execution, Found, parameters, write_key};
use crate::postgres::session::moving::Moving;
use crate::postgres::session::plan::Allowed;
use crate::postgres::session::prefetch::Behind;
use crate::postgres::session::shown::Shown;
use crate::postgres::session::unit::{Answer, Fill};
use crate::postgres::session::{Known, Session};
use crate::session::body::Body;
use crate::session::fill::{self, Miss};
use crate::session::last::LastStatement;
use crate::session::lookup::Decision;
use crate::session::moving::Limits;
use crate::statement::registry::{NormalizedQuery, Statement};

/// An execution that missed.
struct Missed<'a> {
    session: &'a Session,
    statement: &'a Statement,
    execution: Execution<'a>,
    /// It waits for another session's fill of its key.
    is_joined: Cell<bool>,
}

impl fill::Execution for Missed<'_> {
    type Answer = Answer;

    fn is_bound(&self) -> bool {
        matches!(self.execution, Execution::Bound { .. })
    }

    fn limits(&self) -> Option<Limits> {
        self.session.limits_of(self.statement, self.execution)
    }

    fn check(&self, catalog: &Catalog, tables: &[TableId]) -> Result<(), Reason> {
        let shared = &self.session.shared;
        self.statement.query.template.refuse_declared(catalog, &self.statement.types)?;
        if shared.cool_off.load().hold_any(tables) {
            return Err(Reason::InCoolOff);
        }
        // The clock is read only if there is a fill.
        if shared.cache.joinable_until(&self.session.key, 0).is_some_and(|until| until > self.session.now()) {
            self.is_joined.set(true);
            return Err(Reason::FillInFlight);
        }
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<Parameter<'_>>, Reason> {
        parameters(self.statement, self.execution)
    }

    fn answer(&self, bound: &mut Bound, limits: Option<Limits>) -> Answer {
        let moving = limits.map(|limits| Box::new(Moving::of(limits, self.execution, &self.session.key)));
        Answer { shown: Shown::of(bound, self.execution), moving, took: 0, complete: false }
    }

    /// The session asks for it before the query, if it is needed.
    fn proof(&self) -> Option<Arc<Visible>> {
        None
    }

    fn can_ask_proof(&self) -> bool {
        self.session.transaction.block().is_none() // Freshet sends no query into a block
    }

    fn not_published(&self, tables: &[TableId]) {
        self.session.shared.want(tables);
    }
}

impl Session {
    /// Looks up an execution.
    pub(crate) fn look_up(&mut self, context: u32, execution: Execution<'_>) -> Found {
        if self.takes_snapshot() {
            // The first read takes the snapshot. After any other statement the snapshot may have been taken already.
            let used = self.transaction.block().is_some_and(Block::is_used);
            return if used { Decision::Pass(Reason::Snapshot) } else { Decision::Fill(()) };
        }
        match execution {
            Execution::Query(_) => write_key(&mut self.key, context, execution),
            Execution::Bound { statement, .. } => self.write_key(context, statement, execution),
        }
        self.look_up_key(|_| true)
    }

    /// Looks up the key, and answers with the entry.
    pub(crate) fn look_up_key(&mut self, answers: impl FnOnce(&Body) -> bool) -> Found {
        self.waiting.generation = self.shared.waits.generation();
        let accepts = |body: &Body| {
            if !answers(body) {
                return Ok(false);
            }
            if self.hides(&body.source.query) {
                return Err(Reason::TemporaryTables);
            }
            Ok(!self.sample_hit()) // see [`crate::session::verify`]
        };
        let now = self.now();
        match self.shared.look_up(&self.key, self.watermark.get(), now, accepts) {
            Decision::Hit(entry) => {
                self.last.looked_up_at = self.waiting.since().unwrap_or(now);
                let figures = &entry.payload.source.query.figures;
                match self.prefetch.hit() {
                    Behind::Write => figures.hits_after_own_write.fetch_add(1, Relaxed),
                    Behind::Read => figures.hits_after_pass.fetch_add(1, Relaxed),
                    Behind::Hit => 0,
                };
                self.waiting.found();
                Decision::Hit(entry)
            }
            Decision::Fill(()) => Decision::Fill(()),
            Decision::Pass(reason) => {
                self.note_bypass(&reason);
                if self.arm_wait(&reason) { Decision::Wait(()) } else { Decision::Pass(reason) }
            }
        }
    }

    /// A look-up must bypass: asks for what it lacks.
    fn note_bypass(&mut self, reason: &Reason) {
        match reason {
            Reason::Fence => self.shared.want_log_end(),
            Reason::Watermark | Reason::NotYetApplied => {
                if self.watermark.get().end.is_some() {
                    self.shared.note_waiting(); // the missing position is known
                    if let Some(end) = self.watermark.unflushed() {
                        self.shared.want_flush(end);
                    }
                } else {
                    self.shared.want_log_end();
                }
                if self.lacks_look() {
                    self.shared.want_catalog_rarely(); // all reads would pass until the next check
                }
                self.prefetch.lacked();
            }
            Reason::TemporaryTables => self.waiting.found(),
            _ => {}
        }
    }

    /// Whether it runs in a block with one snapshot, which is not taken yet.
    pub(crate) fn takes_snapshot(&self) -> bool {
        self.watermark.snapshot().is_none() && self.transaction.block().is_some_and(Block::has_snapshot)
    }

    /// Whether this hit is also compared with the database.
    fn sample_hit(&self) -> bool {
        self.is_between_transactions() && self.shared.verifier.samples()
    }

    /// Begins a fill, before the query is sent. Err: why the answer is not cached.
    pub(crate) fn begin_fill(&mut self, statement: &Arc<Statement>, execution: Execution<'_>) -> Result<Fill, Reason> {
        self.waiting.found(); // no entry can be waited for
        self.note_read(Some(statement));
        let Known::Context(context, known_under) = &self.server.settings.known else {
            return Err(Reason::SettingsUnknown);
        };
        let (context, known_under) = (context.clone(), *known_under);
        self.may_fill(statement, context.client)?;
        self.need_named(statement, execution)?;
        self.write_key(context.id, statement, execution);
        let missed = Missed { session: self, statement, execution, is_joined: Cell::new(false) };
        let miss = Miss {
            shared: &self.shared,
            statement,
            key: &self.key,
            context: (&context, known_under),
            who: self.server.who(),
            after_own_write: self.prefetch.is_late(),
            snapshot: self.watermark.snapshot().map(|snapshot| snapshot.lo),
            // A result that is read in a block waits for the end of the block.
            is_joinable: self.transaction.block().is_none(),
        };
        let begun = miss.begin_fill(&missed);
        if missed.is_joined.get() {
            self.prefetch.lacked(); // so that the entry can be served
        }
        let counters = self.shared.metrics.worker(self.worker);
        let fill = begun?.confirm(|| self.server.compare(&self.shared), counters)?;
        self.prefetch.note_fill();
        Ok(fill)
    }

    /// Err if the state of the session or of the statement does not allow a fill.
    fn may_fill(&self, statement: &Statement, client: Client) -> Result<(), Reason> {
        if self.hides(&statement.query) {
            return Err(Reason::TemporaryTables);
        }
        if !client.utf8 && !statement.ascii {
            return Err(Reason::SettingsUnknown);
        }
        if !statement.query.takes_snapshot && (self.takes_snapshot() || !client.utf8) {
            return Err(Reason::Snapshot); // SHOW takes none; and the key has characters, not bytes
        }
        if statement.query.is_disabled() { Err(Reason::Disabled) } else { Ok(()) }
    }

    /// Whether a temporary object of the session may have a name that the statement uses.
    pub(crate) fn hides(&self, query: &NormalizedQuery) -> bool {
        match &self.server.settings.temporary {
            Some(temporary) => !temporary.is_empty() && temporary.may_be_among(query.words()),
            None => true,
        }
    }

    /// The session reads: it needs its context again after its next write.
    pub(crate) fn note_read(&mut self, statement: Option<&Arc<Statement>>) {
        self.server.settings.is_used |= statement.is_some_and(|statement| self.only_reads(statement));
    }

    /// Whether a statement only reads, by its text and by the functions that are trusted.
    pub(crate) fn only_reads(&self, statement: &Statement) -> bool {
        let template = &statement.query.template;
        match template.effect() {
            Effect::Pure => true,
            _ => template.may_be_trusted() && template.effect_under(&self.shared.catalog.load()) == Effect::Pure,
        }
    }

    /// Whether the meaning of the statement's constants may depend on the settings at its `Parse`.
    pub(crate) fn reads_settings_at_parse(&self, statement: &Statement) -> bool {
        let Known::Context(context, _) = &self.server.settings.known else { return true };
        if statement.text().contains(&b'\\') {
            return true; // `standard_conforming_strings`
        }
        match statement.query.resolve(&self.shared.catalog.load(), context).read_set {
            Ok(read_set) => read_set.reads_settings_at_parse(
                statement.own_params,
                &statement.literals,
                has_quotes(&statement.query.text),
            ),
            Err(_) => true,
        }
    }

    /// The last statement, for EXPLAIN LAST STATEMENT.
    fn last_statement(&self) -> Option<LastStatement> {
        if self.last.looked_up_at == 0 {
            return self.last.sent();
        }
        // The look-up of this command as a `Query` has replaced the key of the hit.
        let entry = self.shared.cache.peek(&self.key);
        Some(LastStatement::hit(entry.map(|entry| entry.payload.source.query.clone())))
    }

    /// Appends the answer to an admin statement, without `ReadyForQuery`.
    pub(crate) fn answer_admin(&mut self, admin: &Result<Admin, String>, describe: bool) -> Step {
        if !self.is_idle() {
            return Step::Wait;
        }
        if matches!(self.server.settings.known, Known::Nothing | Known::Failed) && self.transaction.is_idle() {
            self.ask_context();
            return Step::Wait;
        }
        let allowed = self.allowed();
        let context = match &self.server.settings.known {
            Known::Context(context, _) => Some(context.as_ref()),
            _ => None,
        };
        let asker = admin::Asker {
            who: self.server.who(),
            context,
            obstacle: match allowed {
                Allowed::Pass(reason) => Some(reason),
                _ => None,
            },
            hides: &|query: &NormalizedQuery, _: &ReadSet, _: &Catalog| self.hides(query),
            modes: Modes::NONE,
            last: if matches!(admin, Ok(Admin::ExplainLast)) { self.last_statement() } else { None },
        };
        match admin::answer(&self.shared, &asker, admin) {
            Ok(table) => backend::put_text_result(self.client.output(), table.columns, &table.rows, describe),
            Err(error) => backend::put_error(self.client.output(), "ERROR", error.sqlstate, &error.message),
        }
        Step::Done
    }
}

/// Whether the normalized query still holds quoted text: a quote, or a dollar sign that begins no placeholder.
pub(super) fn has_quotes(query: &str) -> bool {
    let mut bytes = query.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'\'' || (byte == b'$' && !bytes.peek().is_some_and(u8::is_ascii_digit)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_told_from_placeholders() {
        assert!(!has_quotes("select v from t where id = $1 and w = $12"));
        assert!(has_quotes("select E'a'"));
        assert!(has_quotes("select $$a$$"));
        assert!(has_quotes("select $tag$a$tag$ = $1"));
    }
}
