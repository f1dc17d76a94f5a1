//! What a statement may do to the database or the session.

use std::sync::Arc;

use freshet_types::{Catalog, RelationKind, Table};
use sqlparser::ast::ObjectName;

use crate::allowlist::types;
use crate::analyze::relations::family;
use crate::analyze::views::effect_of_views;
use crate::statement::template::{Template, table};

/// What a statement may do to the database or the session; roughly in the order of what it takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It only reads: every function in it is a known built-in without side effects.
    Pure,
    /// It changes no row, definition or setting, though others may learn of it, and its transaction may have a commit record: NOTIFY,
    /// LISTEN, `txid_current()`, sequences, advisory locks.
    Signal,
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT` …
    TransactionControl,
    /// It may write or fire triggers: INSERT, UPDATE, DELETE, MERGE, COPY, a locking SELECT, unknown functions (which
    /// may also change settings or create temporary tables).
    Write,
    /// `SET`, `RESET`, `set_config`.
    Settings,
    /// It may change the catalogue and all that [`Self::Write`] and [`Self::Settings`] may, but ends no prepared
    /// statement by itself: DDL, ANALYZE, DO, CALL …
    Definition,
    /// Everything else and everything not understood: also prepared statements may be gone.
    Forgets,
}

/// What a statement of PostgreSQL may change of the catalogue, by its text and not by functions and triggers that it may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defines {
    /// Nothing that results depend on.
    #[default]
    Nothing,
    /// What event triggers see.
    Told,
    /// What none of them sees: roles, memberships, settings of roles and databases, event triggers, owners, the first half of DETACH
    /// CONCURRENTLY.
    Untold,
}

impl Defines {
    /// `words` are those of one statement; what is no word is empty.
    pub(crate) fn of(words: &[&str], effect: Effect) -> Self {
        let any = |word: &str| words.contains(&word);
        match words {
            ["create" | "alter" | "drop", "role" | "user" | "group" | "database" | "system" | "event", ..]
            | ["reassign", ..] => Self::Untold,
            ["grant" | "revoke", ..] if !any("on") => Self::Untold,
            ["alter", ..] if any("detach") && any("concurrently") => Self::Untold,
            // It rolls back as a whole, or changes what no result depends on.
            ["create" | "drop", "statistics", ..]
            | [
                "analyze" | "vacuum" | "reindex" | "cluster" | "checkpoint" | "comment" | "security" | "discard"
                | "deallocate" | "load",
                ..,
            ] => Self::Nothing,
            ["commit", "prepared", ..] => Self::Told,
            ["explain", ..] if any("create") => Self::Told,
            _ if effect >= Effect::Definition => Self::Told,
            _ => Self::Nothing,
        }
    }
}

impl Template {
    /// What its own text may change of the catalogue.
    pub fn defines(&self) -> Defines {
        self.defines
    }

    /// What it does depends on the catalogue, as far as its text says.
    pub fn is_told_by_catalog(&self) -> bool {
        let survey = &self.survey;
        self.names_relations()
            || (self.effect == Effect::Signal
                && (!survey.functions.is_empty() || !survey.operators.is_empty() || survey.handled.has_qualified()))
    }

    /// A [`Effect::Signal`] whose answer says nothing of what others have committed.
    pub fn is_silent_signal(&self) -> bool {
        self.effect == Effect::Signal && !self.survey.tells && !self.names_relations()
    }

    /// What the statement may do, as far as its text says: views, policies and user-defined functions of built-in
    /// names are not seen. See [`Self::effect_in`].
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// What the statement may do under this catalogue and search path: a pure statement over a foreign table, a table
    /// with policies or user-defined types, a relation that is not known, or a view that may write, may write.
    pub fn effect_in(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Effect {
        let effect = self.effect_under(catalog);
        if effect > Effect::Signal || (effect == Effect::Signal && !self.is_told_by_catalog()) {
            return effect;
        }
        let relations = self.relations_without_code(catalog, schemas);
        relations.map_or(Effect::Write, |all| effect_of_views(self.dialect, &all, catalog).max(effect))
    }

    /// The relations of a statement that only reads if the views among them do; None: it may do more.
    pub(crate) fn harmless_relations(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<Arc<Table>>> {
        let reads = self.effect_under(catalog) == Effect::Pure;
        reads.then(|| self.relations_without_code(catalog, schemas)).flatten()
    }

    /// The relations of a query; None: they may run other code than the server's own, or its operators and functions may.
    fn relations_without_code(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<Arc<Table>>> {
        let survey = &self.survey;
        let harmless = self.built_in_first(schemas) && types::user_defined(catalog, survey).is_ok();
        let mut relations = Vec::new();
        for name in harmless.then_some(&survey.relations)? {
            match table(catalog, schemas, name) {
                Some(table) => relations.extend(family(catalog, table)?),
                None if survey.is_cte(name) || self.has_no_code(name) => {}
                None => return None,
            }
        }
        let plain = |table: &Arc<Table>| {
            let kind = !matches!(table.kind, RelationKind::Foreign | RelationKind::Other);
            kind && !table.row_security && !table.user_types
        };
        let harmless = relations.iter().all(plain) && !types::runs_code(catalog, survey, &relations);
        harmless.then_some(relations)
    }

    /// A relation of MySQL that is in no catalogue and runs no stored code: DUAL, the views of the server's own schemas.
    fn has_no_code(&self, name: &ObjectName) -> bool {
        let is = |word: &str| {
            let first = name.0.first().and_then(|part| part.as_ident());
            first.is_some_and(|ident| ident.value.eq_ignore_ascii_case(word))
        };
        let own = ["information_schema", "performance_schema", "mysql"];
        self.dialect.is_mysql_family()
            && match name.0.len() {
                1 => is("dual"),
                _ => own.into_iter().any(is),
            }
    }
}

/// The effect of two statements in a row.
pub(crate) fn together(a: Effect, b: Effect) -> Effect {
    match (a, b) {
        (a, b) if a.min(b) <= Effect::Signal => a.max(b),
        (a, b) if a == b => a,
        (Effect::Forgets, _) | (_, Effect::Forgets) => Effect::Forgets,
        (Effect::Write | Effect::Settings, Effect::Write | Effect::Settings) => Effect::Settings,
        _ => Effect::Definition,
    }
}
