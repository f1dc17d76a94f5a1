//! From a statement and a catalogue to the read set: the walk, and the queries of views that it does not expand.

use crate::analysis::ReadSet;
use crate::analyze::Walk;
use crate::analyze::derived_limit::leave_rows_open;
use crate::analyze::disjunctions::has_branches;
use crate::analyze::views::{named, qualified};
use crate::lex::normalize::lex;
use crate::predicate::parameters::{Parameter, ParameterValue};
use crate::statement::effect_in_catalog::{Queue, search_path};
use crate::statement::template::Template;
use crate::statement::user_code::user_defined;
use std::sync::Arc;

use freshet_types::{Catalog, Dialect, Reason, Table};

impl Template {
    /// The tables and predicates that the statement depends on with this catalogue and search path (`current_schemas(true)`), or why it is not
    /// cached. Valid for this catalogue version and search path only.
    pub fn resolve(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Result<ReadSet, Reason> {
        let mut read_set = self.resolve_but_views(catalog, schemas, true)?;
        add_views(self.dialect, &mut read_set, catalog)?;
        read_set.refuse_completed_times()?;
        Ok(read_set)
    }

    /// The same without the dependencies of its views, except of those that are walked in place, if any.
    pub(crate) fn resolve_but_views(
        &self,
        catalog: &Catalog,
        schemas: &[Arc<str>],
        opens_views: bool,
    ) -> Result<ReadSet, Reason> {
        let parsed = self.verdict.as_ref().map_err(Clone::clone)?;
        if !self.built_in_first(schemas) {
            return Err(Reason::Construct("a search_path that puts other schemas before pg_catalog"));
        }
        let walked = |splits: bool| {
            let mut walk = Walk::new(self.dialect, catalog, schemas);
            walk.views.are_opened = opens_views;
            walk.context.splits = splits;
            walk.handled.add(&self.findings.handled, &self.findings.functions, &self.findings.operators);
            walk.query(&parsed.query)?;
            if walk.counts != self.findings.counts {
                return Err(Reason::Construct("a construct that is not analysed"));
            }
            // A count of the rows without LIMIT depends on all of them.
            if self.facts.counts_found_rows {
                walk.found.limits.sorted = None;
                walk.found.limits.boundaries.clear();
                walk.found.limits.result_keys.clear();
                walk.found.limits.moving.clear();
            }
            walk.into_read_set(parsed)
        };
        let whole = walked(false)?;
        user_defined(catalog, &self.findings)?;
        if !has_branches(&parsed.query) {
            return Ok(whole);
        }
        let open = whole.unbounded();
        let split = Some(()).filter(|()| !open.is_empty()).map(|()| walked(true)).transpose()?;
        let better = |split: &ReadSet| split.unbounded().is_subset(&open) && split.unbounded() != open;
        Ok(split.filter(better).unwrap_or(whole))
    }

    /// Whether the statement does not determine which rows its answer contains: LIMIT without ORDER BY, its own or in FROM.
    pub fn leaves_rows_open(&self) -> bool {
        self.verdict.as_ref().is_ok_and(|parsed| leave_rows_open(&parsed.query))
    }
}

/// Adds the dependencies of those views of a read set that were not expanded.
pub(crate) fn add_views(dialect: Dialect, read_set: &mut ReadSet, catalog: &Catalog) -> Result<(), Reason> {
    let mut queue = Queue::default();
    queue.extend(&std::mem::take(&mut read_set.unopened));
    while let Some(view) = queue.next()? {
        let body = body(dialect, &view, catalog).map_err(|reason| named(reason, &view))?;
        queue.extend(&body.definitions);
        read_set.add_any_row(body);
    }
    // These include the expanded ones.
    queue.extend(&read_set.definitions);
    queue.next().map(|_| ())
}

/// The dependencies of one view's query, without those of the views in it.
pub(crate) fn body(dialect: Dialect, view: &Table, catalog: &Catalog) -> Result<ReadSet, Reason> {
    let text = view.definition.as_ref().ok_or_else(|| Reason::TableKind(qualified(view)))?;
    let lexed = lex(dialect, text);
    let template = Template::parse_for(dialect, &lexed.normalized, catalog);
    if !template.settings().is_empty() {
        return Err(Reason::Function("current_setting".into()));
    }
    let read_set = template.resolve_but_views(catalog, &search_path(), false)?;
    let literals =
        lexed.literals.iter().map(|literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 });
    let literals: Vec<Parameter<'_>> = literals.collect();
    read_set.refuse_types(&literals)?;
    if read_set.reads_clock(&literals) { Err(Reason::ClockLiteral) } else { Ok(read_set) }
}
