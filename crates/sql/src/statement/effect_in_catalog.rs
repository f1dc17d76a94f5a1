//! The effect of a statement with a catalogue: from the relations that it names, their views, and user-defined functions and types.

use std::collections::HashSet;
use std::sync::Arc;

use freshet_types::{Catalog, Dialect, Reason, RelationKind, Table, TableId};
use sqlparser::ast::ObjectName;

use crate::lex::normalize::lex;
use crate::statement::effect::Effect;
use crate::statement::relations::{family, table};
use crate::statement::template::Template;
use crate::statement::transaction::Bracket;
use crate::statement::user_code::{runs_code, user_defined};

/// Limit of views that one statement may read, directly and through others, and of references to views that are expanded.
pub(crate) const VIEWS_MAX: usize = 32;

/// Views to analyse, each once.
#[derive(Default)]
pub(crate) struct Queue {
    open: Vec<Arc<Table>>,
    seen: HashSet<TableId>,
}

impl Queue {
    pub(crate) fn extend<'a>(&mut self, relations: impl IntoIterator<Item = &'a Arc<Table>>) {
        for relation in relations {
            if relation.kind == RelationKind::View && self.seen.insert(relation.id) {
                self.open.push(relation.clone());
            }
        }
    }

    /// The next view; an error beyond a number that would keep a session busy.
    pub(crate) fn next(&mut self) -> Result<Option<Arc<Table>>, Reason> {
        if self.seen.len() > VIEWS_MAX {
            return Err(Reason::Construct("a statement over more than 32 views"));
        }
        Ok(self.open.pop())
    }
}

impl Template {
    /// Whether its effect depends on the catalogue, as far as its text says.
    pub fn is_told_by_catalog(&self) -> bool {
        let findings = &self.findings;
        self.names_relations()
            || (self.effect == Effect::Signal
                && (!findings.functions.is_empty()
                    || !findings.operators.is_empty()
                    || findings.handled.has_qualified()))
    }

    /// An [`Effect::Signal`] whose answer does not reveal what others have committed.
    pub fn is_silent_signal(&self) -> bool {
        self.effect == Effect::Signal && !self.findings.reveals_commits && !self.names_relations()
    }

    /// The effect of the statement with this catalogue and search path. A pure statement may write if it reads a foreign table, a table with policies
    /// or user-defined types, an unknown relation, or a view that may write.
    pub fn effect_in(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Effect {
        let effect = self.effect_under(catalog);
        if effect > Effect::Signal || (effect == Effect::Signal && !self.is_told_by_catalog()) {
            return effect;
        }
        let relations = self.relations_without_code(catalog, schemas);
        relations.map_or(Effect::Write, |all| effect_of_views(self.dialect, &all, catalog).max(effect))
    }

    /// PostgreSQL: it is `SET LOCAL`, which means the same in every context.
    pub fn is_set_local(&self) -> bool {
        self.sets_locally && self.findings.functions.is_empty() && self.findings.relations.is_empty()
    }

    /// PostgreSQL: it changes settings for its transaction alone, and runs no code but the server's own.
    pub fn sets_locally(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let relations = self.sets_locally.then(|| self.relations_without_code(catalog, schemas)).flatten();
        relations.is_some_and(|all| effect_of_views(self.dialect, &all, catalog) == Effect::Pure)
    }

    /// PostgreSQL: it changes settings alone, and its answer shows nothing of the database. `constant`: the string constant that stands for a parameter.
    pub fn sets_silently<'v>(&self, catalog: &Catalog, constant: impl Fn(u32) -> Option<&'v [u8]>) -> bool {
        self.effect == Effect::Settings
            && self.sets.are_silent(constant)
            && user_defined(catalog, &self.findings).is_ok()
    }

    /// The relations of a statement that only reads if the views among them do; None if it may do more.
    pub(crate) fn harmless_relations(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<Arc<Table>>> {
        let reads = self.effect_under(catalog) == Effect::Pure;
        reads.then(|| self.relations_without_code(catalog, schemas)).flatten()
    }

    /// The relations of a query; None if they, or its operators and functions, may run code that is not built in.
    pub(crate) fn relations_without_code(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<Arc<Table>>> {
        let findings = &self.findings;
        let harmless = self.built_in_first(schemas) && user_defined(catalog, findings).is_ok();
        let mut relations = Vec::new();
        for name in harmless.then_some(&findings.relations)? {
            match table(catalog, schemas, name) {
                Some(table) => relations.extend(family(catalog, table)?),
                None if findings.is_cte(name) || self.has_no_code(name) => {}
                None => return None,
            }
        }
        let plain = |table: &Arc<Table>| {
            let kind = !matches!(table.kind, RelationKind::Foreign | RelationKind::Other);
            kind && !table.row_security && !table.user_types
        };
        let harmless = relations.iter().all(plain) && !runs_code(catalog, findings, &relations);
        harmless.then_some(relations)
    }

    /// A relation of MySQL that is in no catalogue and runs no stored code: DUAL, the views of the server's own schemas.
    pub(crate) fn has_no_code(&self, name: &ObjectName) -> bool {
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

    /// MySQL and MariaDB: whether the session may have more temporary tables after it: `CREATE TEMPORARY TABLE`, and statements that [run stored
    /// code](Self::runs_stored_code).
    pub fn makes_temporary(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        self.facts.temporary || self.runs_stored_code(catalog, schemas)
    }

    /// MySQL and MariaDB: whether it calls a function that is not built in, or is not understood.
    pub fn calls_unknown(&self) -> bool {
        self.facts.stored_code
    }

    /// MySQL and MariaDB: whether it runs, or may run, code that is not in its text: CALL, EXECUTE, stored functions, triggers, anything not
    /// understood.
    pub fn runs_stored_code(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let only_reads =
            |view: &Arc<Table>| effect_of_views(self.dialect, std::slice::from_ref(view), catalog) == Effect::Pure;
        self.facts.runs_stored_code(catalog, schemas, only_reads)
    }

    /// Whether it leaves the session's settings and locked tables unchanged: reads, transaction control and writes that run no stored code.
    pub fn keeps_settings(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        if !self.dialect.is_mysql_family() {
            return self.writes_plainly(catalog, schemas);
        }
        let by_itself = match self.effect {
            Effect::Pure | Effect::Signal | Effect::Write => true,
            Effect::TransactionControl => self.bracket != Some(Bracket::Other),
            Effect::Settings | Effect::Definition | Effect::Forgets => false,
        };
        by_itself && !self.facts.temporary && !self.runs_stored_code(catalog, schemas)
    }

    /// The tables whose rows a plain write may change. None if it is not a plain write, or may change other tables as well: through a view, or
    /// (PostgreSQL) by the actions of foreign keys.
    pub fn written(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<TableId>> {
        if self.dialect.is_mysql_family() {
            let is_one = self.effect == Effect::Write && self.refusal() == Some(&Reason::NotSelect);
            return self.facts.written(catalog, schemas).filter(|_| is_one && self.keeps_settings(catalog, schemas));
        }
        let target = self.target.as_ref().filter(|_| self.writes_plainly(catalog, schemas))?;
        Some(target.tables(catalog, schemas)?.iter().map(|table| table.id).collect())
    }

    /// PostgreSQL: whether it is a write that runs built-in code only.
    pub(crate) fn writes_plainly(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let built_in = |name: &str| !catalog.user_functions.contains(name);
        let calls = self.calls.as_ref().filter(|_| catalog.built_in_surroundings && self.built_in_first(schemas));
        calls.is_some_and(|calls| calls.iter().all(|name| built_in(name)))
            && (catalog.built_in_code_only || self.written_runs_none(catalog, schemas))
    }

    /// Whether it names one table and no other relation, and neither that table nor a table that changes with it runs code.
    pub(crate) fn written_runs_none(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let named =
            self.target.as_ref().filter(|target| target.alone).and_then(|target| target.tables(catalog, schemas));
        named.is_some_and(|tables| tables.iter().all(|table| !table.runs_code))
    }
}

/// The effect of a statement over these relations besides that of its own text.
pub(crate) fn effect_of_views(dialect: Dialect, relations: &[Arc<Table>], catalog: &Catalog) -> Effect {
    let mut queue = Queue::default();
    queue.extend(relations);
    loop {
        let view = match queue.next() {
            Ok(Some(view)) => view,
            Ok(None) => return Effect::Pure,
            Err(_) => return Effect::Write,
        };
        let Some(text) = &view.definition else { return Effect::Write };
        let template = Template::parse_for(dialect, &lex(dialect, text).normalized, catalog);
        match template.harmless_relations(catalog, &search_path()) {
            Some(relations) => queue.extend(&relations),
            None => return Effect::Write,
        }
    }
}

pub(crate) fn search_path() -> [Arc<str>; 1] {
    ["pg_catalog".into()]
}
