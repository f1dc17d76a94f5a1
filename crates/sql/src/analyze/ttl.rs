//! Statements whose results a rule may serve for a time (`ttl`), although not all changes invalidate them.
//!
//! A reason not to cache a statement is the first that is found, and others may hide behind it. So the statement is walked again, under rules that
//! differ only in what a `ttl` overrules ([`Reason::yields_to_ttl`]): functions that read the clock or the server's state, constants that may become
//! a clock reading, and relations whose rows the change stream does not send. All other rules hold. The result depends on the definitions of the
//! relations, which include the rights on them, and on nothing else.

use std::sync::Arc;

use freshet_types::{Catalog, Dialect, Reason, RelationKind, Table, TableId};
use sqlparser::ast::ObjectName;

use crate::allowlist::functions::is_lasting;
use crate::allowlist::names::built_in_name;
use crate::analyze::Walk;
use crate::analyze::views::qualified;
use crate::lex::normalize::lex;
use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::statement::effect_in_catalog::{Queue, search_path};
use crate::statement::mysql;
use crate::statement::parse::parse_query;
use crate::statement::relations::{Meant, family, meant, name};
use crate::statement::template::{Parsed, Template};
use crate::statement::user_code::{runs_code, user_defined};

impl Template {
    /// The relations that the statement reads, if its result may be served for a time with this catalogue and search path. `normalized`: its text.
    pub fn resolve_by_ttl(
        &self,
        normalized: &str,
        catalog: &Catalog,
        schemas: &[Arc<str>],
    ) -> Result<Vec<TableId>, Reason> {
        let mut relations = self.read_by_ttl(normalized, catalog, schemas)?;
        let mut queue = Queue::default();
        queue.extend(&relations);
        while let Some(view) = queue.next()? {
            let text = view.definition.as_ref().ok_or_else(|| Reason::TableKind(qualified(&view)))?;
            let normalized = lex(self.dialect, text).normalized;
            let template = Self::parse_for(self.dialect, &normalized, catalog);
            if !template.settings().is_empty() {
                return Err(Reason::Function("current_setting".into()));
            }
            let read = template.read_by_ttl(&normalized, catalog, &search_path())?;
            queue.extend(&read);
            relations.extend(read);
        }
        let mut ids: Vec<TableId> = relations.iter().map(|relation| relation.id).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// The same without the relations behind its views.
    fn read_by_ttl(
        &self,
        normalized: &str,
        catalog: &Catalog,
        schemas: &[Arc<str>],
    ) -> Result<Vec<Arc<Table>>, Reason> {
        if let Some(reason) = &self.findings.refusals.not_by_ttl {
            return Err(reason.clone());
        }
        let again;
        let parsed = match &self.verdict {
            Ok(parsed) => parsed,
            Err(reason) if reason.yields_to_ttl() => {
                again = parsed_again(self.dialect, normalized).ok_or(Reason::NotParsed)?;
                &again
            }
            Err(reason) => return Err(reason.clone()),
        };
        if !self.built_in_first(schemas) {
            return Err(Reason::Construct("a search_path that puts other schemas before pg_catalog"));
        }
        user_defined(catalog, &self.findings)?;
        let mut walk = Walk::new(self.dialect, catalog, schemas);
        walk.context.by_ttl = true;
        walk.handled.add(&self.findings.handled, &self.findings.functions, &self.findings.operators);
        walk.query(&parsed.query)?;
        if walk.counts != self.findings.counts {
            return Err(Reason::Construct("a construct that is not analysed"));
        }
        let relations = walk.found.definitions;
        if runs_code(catalog, &self.findings, &relations) {
            return Err(Reason::Construct("a type with code of its own"));
        }
        Ok(relations)
    }
}

impl Walk<'_> {
    /// What a relation in FROM means.
    pub(crate) fn meant(&self, table: &Arc<Table>, only: bool) -> Result<Meant, Reason> {
        let meant = if self.context.by_ttl { meant_by_ttl } else { meant };
        meant(self.context.catalog, table, only)
    }

    /// A function that only reads, and whose result may be served for a time.
    pub(crate) fn lasts(&self, function: &str) -> bool {
        self.context.by_ttl && is_lasting(self.context.dialect, function)
    }

    /// The same, or it is one that the operator trusts.
    pub(crate) fn lasts_or_is_trusted(&mut self, name: &ObjectName) -> Result<(), Reason> {
        let plain = built_in_name(self.context.dialect, name);
        if plain.is_some_and(|plain| self.lasts(plain)) { Ok(()) } else { self.trusted(name) }
    }
}

/// The syntax tree, which is not stored for a statement that is not cached by itself.
fn parsed_again(dialect: Dialect, normalized: &str) -> Option<Box<Parsed>> {
    let tokens: Vec<Token<'_>> =
        Tokens::of(dialect, normalized).filter(|token| token.kind != Kind::Symbol(b';')).collect();
    let query = if dialect.is_mysql_family() { mysql::parse::query(&tokens)? } else { parse_query(&tokens)? };
    Some(Parsed::of(query, &tokens))
}

/// The meaning of a relation (`only`: without its children) whose rows need not be followed.
fn meant_by_ttl(catalog: &Catalog, table: &Arc<Table>, only: bool) -> Result<Meant, Reason> {
    let family = if only { Some(vec![table.clone()]) } else { family(catalog, table) };
    let definitions = family.ok_or_else(|| Reason::TableKind(name(table)))?;
    for member in &definitions {
        if member.row_security {
            return Err(Reason::RowSecurity(name(member)));
        }
        if member.user_types {
            return Err(Reason::UserType(name(member)));
        }
        // A sequence, or something unknown.
        if member.kind == RelationKind::Other || shows_session(member) {
            return Err(Reason::TableKind(name(member)));
        }
    }
    Ok(Meant { tables: Vec::new(), definitions })
}

/// Relations of the servers' own schemas that show the state of the session that reads them, such as its settings. They count as tables, so their
/// definitions are not walked.
#[rustfmt::skip]
const OF_SESSION: &[(&str, &str)] = &[
    ("pg_catalog", "pg_backend_memory_contexts"), ("pg_catalog", "pg_cursors"), ("pg_catalog", "pg_prepared_statements"),
    ("pg_catalog", "pg_settings"),
    ("information_schema", "innodb_temp_table_info"), ("information_schema", "optimizer_trace"), ("information_schema", "profiling"),
    ("information_schema", "session_status"), ("information_schema", "session_variables"), ("information_schema", "system_variables"),
    ("information_schema", "temporary_tables"), ("information_schema", "user_variables"),
    ("performance_schema", "session_status"), ("performance_schema", "session_variables"), ("performance_schema", "variables_info"),
];

/// Whether another session with the same settings and rights may see other rows. The views of `sys` read user variables.
fn shows_session(table: &Table) -> bool {
    let is = |(schema, name): &(&str, &str)| {
        table.schema.eq_ignore_ascii_case(schema) && table.name.eq_ignore_ascii_case(name)
    };
    let of_transaction = &*table.schema == "pg_catalog" && table.name.starts_with("pg_stat_xact_");
    let is_system = table.kind == RelationKind::System;
    is_system && (of_transaction || table.schema.eq_ignore_ascii_case("sys") || OF_SESSION.iter().any(is))
}
