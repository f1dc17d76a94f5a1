//! The template of a normalized query, parsed once: the statement's effect, and its syntax tree if it may be cacheable.
//!
//! The first word decides for everything but queries. Only queries go to the SQL parser. String constants that it might read differently from the
//! server are replaced first, and length and depth are bounded: the tree is walked and dropped recursively.

use std::sync::Arc;

use freshet_types::{Catalog, Dialect, Reason, RelationKind};
use sqlparser::ast::Query;

use crate::allowlist::silent_settings::Sets;
use crate::allowlist::visitor::Findings;
use crate::predicate::parameters::{Client, Parameter};
use crate::statement::effect::{Defines, Effect};
use crate::statement::mysql::certain_read;
use crate::statement::mysql::facts::{self, Facts, Hint, Snapshot};
use crate::statement::transaction::Bracket;
use crate::statement::write_effects;

/// A parsed normalized query. The caller stores it for each normalized query.
#[derive(Debug)]
pub struct Template {
    pub(crate) effect: Effect,
    /// PostgreSQL.
    pub(crate) defines: Defines,
    pub(crate) verdict: Result<Box<Parsed>, Reason>,
    pub(crate) findings: Findings,
    /// See [`Template::deallocates`].
    pub(crate) deallocates: Option<Box<str>>,
    /// See [`Template::bracket`].
    pub(crate) bracket: Option<Bracket>,
    /// See [`Template::asks_for_data`].
    pub(crate) asks_for_data: bool,
    /// PostgreSQL: it changes settings for its transaction alone, as far as its text says.
    pub(crate) sets_locally: bool,
    /// PostgreSQL: see [`Template::sets_silently`].
    pub(crate) sets: Sets,
    /// PostgreSQL: the functions that a write calls by name, if it may run no others.
    pub(crate) calls: Option<Box<[Box<str>]>>,
    /// PostgreSQL: the relation that such a write names.
    pub(crate) target: Option<write_effects::Target>,
    /// MySQL and MariaDB.
    pub(crate) facts: Facts,
    pub(crate) dialect: Dialect,
}

/// A query that may be cacheable.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) query: Query,
    /// Number of names and keywords in the text: each may be a name in the tree.
    pub(crate) words: usize,
    /// A string constant in the normalized query contains a word such as `today`, or cannot be read here.
    pub(crate) clock_text: bool,
    /// PostgreSQL: a string constant in the normalized query may be a time without an offset.
    pub(crate) time_text: bool,
}

impl Template {
    /// Its size in bytes, estimated rather too high (measured on long lists of each kind).
    pub fn bytes(&self) -> usize {
        let findings = &self.findings;
        let names =
            findings.relations.len() + findings.made.len() + findings.functions.len() + findings.operators.len();
        let counts = findings.counts;
        let tree = self.verdict.as_ref().map_or(0, |parsed| {
            let blocks = 6_000 * counts.queries + 12_500 * counts.selects;
            blocks + 3_500 * counts.table_factors + 1_800 * counts.exprs + 500 * parsed.words
        });
        2_048 + 512 * names + tree + self.facts.bytes()
    }

    /// The prepared statement that it ends: `DEALLOCATE name`.
    pub fn deallocates(&self) -> Option<&str> {
        self.deallocates.as_deref()
    }

    /// Whether it names relations, so that the code that it runs depends on views and policies.
    pub fn names_relations(&self) -> bool {
        !self.findings.relations.is_empty()
    }

    /// Its effect on the transaction block; None if it has none.
    pub fn bracket(&self) -> Option<Bracket> {
        self.bracket
    }

    /// Whether the server may request data before it is ready for the next statement: COPY, alone or among other statements.
    pub fn asks_for_data(&self) -> bool {
        self.asks_for_data
    }

    /// MySQL and MariaDB: `SQL_CACHE` or `SQL_NO_CACHE`.
    pub fn hint(&self) -> Option<Hint> {
        self.facts.hint
    }

    /// MySQL and MariaDB: whether its answer may depend on the previous statement: FOUND_ROWS, ROW_COUNT, the warnings. True for everything not
    /// understood and for stored code.
    pub fn reads_diagnostics(&self) -> bool {
        self.facts.reads_diagnostics || self.facts.stored_code
    }

    /// MySQL and MariaDB: `SQL_CALC_FOUND_ROWS`. The client will ask for `FOUND_ROWS()` next, which is then the number of rows without LIMIT.
    pub fn counts_found_rows(&self) -> bool {
        self.facts.counts_found_rows
    }

    /// MySQL and MariaDB: the global variable that it returns and that may change at any time, without a word in the change stream. Its answer may be
    /// cached only if it is the value in the catalogue ([`Catalog::polled`]).
    pub fn polled(&self) -> Option<&'static str> {
        self.facts.polled
    }

    /// PostgreSQL: the numbers of the parameters that name settings which the statement reads (`current_setting`).
    pub fn settings(&self) -> &[u32] {
        &self.findings.settings
    }

    /// MySQL and MariaDB: whether the statement takes a snapshot in a REPEATABLE READ transaction that has none. Either if it returns a row (a SELECT
    /// that must have read a base table), or at once (`START TRANSACTION WITH CONSISTENT SNAPSHOT`, the only one with a [`Self::bracket`]).
    pub fn takes_snapshot(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let base_table = |name| facts::resolve(catalog, schemas, name).is_some_and(|t| t.kind == RelationKind::Table);
        match &self.facts.snapshot {
            Snapshot::AtOnce => true,
            Snapshot::Reading(name) => base_table(name),
            Snapshot::Unknown => false,
        }
    }

    /// MySQL and MariaDB: the same, with these parameters, if it returns no row. `sql_select_limit` must not be 0.
    pub fn surely_takes_snapshot(
        &self,
        catalog: &Catalog,
        schemas: &[Arc<str>],
        params: &[Parameter<'_>],
        client: Client,
    ) -> bool {
        let (Snapshot::Reading(name), Ok(parsed)) = (&self.facts.snapshot, &self.verdict) else { return false };
        let table = facts::resolve(catalog, schemas, name);
        let table = table.filter(|table| table.kind == RelationKind::Table && !table.capacities.is_empty());
        table.is_some_and(|table| certain_read::reads(&parsed.query, table, params, client))
    }

    /// MySQL and MariaDB: the temporary table that this statement creates, if it is the only one in the text.
    pub fn creates_temporary(&self) -> Option<&facts::Name> {
        self.facts.creates.as_ref()
    }

    /// MySQL and MariaDB: the tables that this statement drops, temporary ones before others, if it is the only one in the text.
    pub fn drops(&self) -> &[facts::Name] {
        &self.facts.drops
    }

    /// MySQL and MariaDB: the table that [`Self::takes_snapshot`] looks up.
    pub fn reads_first(&self) -> Option<&str> {
        match &self.facts.snapshot {
            Snapshot::Reading((_, name)) => Some(name),
            Snapshot::AtOnce | Snapshot::Unknown => None,
        }
    }

    /// Why it is not cached under any catalogue; None if it depends on the catalogue.
    pub fn refusal(&self) -> Option<&Reason> {
        self.verdict.as_ref().err()
    }

    /// See [`built_in_first`]; always true for MySQL's native functions.
    pub(crate) fn built_in_first(&self, schemas: &[Arc<str>]) -> bool {
        self.dialect.is_mysql_family() || built_in_first(schemas)
    }

    pub(crate) fn passing(effect: Effect, reason: Reason) -> Self {
        let asks_for_data = effect == Effect::Forgets;
        let (findings, deallocates, bracket, facts) = (Findings::default(), None, None, Facts::default());
        let verdict = Err(reason);
        let (defines, dialect) = (Defines::of(&[], effect), Dialect::Postgres);
        let (calls, target, sets_locally) = (None, None, false);
        Self {
            effect,
            defines,
            verdict,
            findings,
            deallocates,
            bracket,
            asks_for_data,
            sets_locally,
            sets: Sets::Unknown,
            calls,
            target,
            facts,
            dialect,
        }
    }

    /// What its own text may change in the catalogue.
    pub fn defines(&self) -> Defines {
        self.defines
    }

    /// The effect of the statement, as far as its text says: views, policies and user-defined functions with built-in names are not considered. See
    /// [`Self::effect_in`].
    pub fn effect(&self) -> Effect {
        self.effect
    }
}

/// Whether the search path finds built-in types, functions and operators before all others. Temporary schemas have neither functions nor operators,
/// and a statement that may name a temporary type is not cached: [`crate::Temporary`].
fn built_in_first(schemas: &[Arc<str>]) -> bool {
    schemas.iter().find(|schema| !schema.starts_with("pg_temp")).is_some_and(|schema| &**schema == "pg_catalog")
}
