//! The analyses of a normalized query: whether its results are cached, and if not, whether a rule may serve them for a time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use freshet_types::{Catalog, CatalogVersion, Columns, Nanos, Reason, RowSet, TableId, Tag};

use super::{Marks, NormalizedQuery, Verdict};
use crate::session::context::Context;

/// Number of search paths for which a normalized query's resolution is stored.
const RESOLUTIONS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Resolution {
    catalog: CatalogVersion,
    /// [`Context::settings`]
    context: u32,
    verdict: Verdict,
    /// See [`NormalizedQuery::tags_by_ttl`].
    by_ttl: Option<Result<Vec<Tag>, Reason>>,
}

impl NormalizedQuery {
    /// The analysis with this catalogue and context.
    pub(crate) fn resolve(&self, catalog: &Catalog, context: &Context) -> Verdict {
        let mut known = self.resolutions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|r| r.catalog == catalog.version && r.context == context.settings) {
            return found.verdict.clone();
        }
        let verdict = Verdict {
            effect: self.template.effect_in(catalog, &context.schemas),
            read_set: self.template.resolve(catalog, &context.schemas).map(Arc::new),
            marks: Marks::of(&self.template, catalog, &context.schemas),
            written: self.template.written(catalog, &context.schemas).map(Arc::from),
        };
        if verdict.read_set.as_ref().is_ok_and(|read_set| read_set.moving_parameters().next().is_some()) {
            self.moves.store(true, Relaxed);
        }
        known.retain(|r| r.catalog == catalog.version);
        if known.len() >= RESOLUTIONS_MAX {
            known.remove(0);
        }
        known.push(Resolution {
            catalog: catalog.version,
            context: context.settings,
            verdict: verdict.clone(),
            by_ttl: None,
        });
        verdict
    }

    /// The tables that it reads, with the catalogues and contexts seen until now.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        let known = self.resolutions.lock().unwrap_or_else(PoisonError::into_inner);
        let read_sets = known.iter().filter_map(|resolution| resolution.verdict.read_set.as_ref().ok());
        let mut tables: Vec<TableId> = read_sets.flat_map(|read_set| read_set.tables.iter().copied()).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// Whether it reads the table, with any catalogue and context seen until now.
    pub(crate) fn reads(&self, table: TableId) -> bool {
        let known = self.resolutions.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|known| known.verdict.read_set.as_ref().is_ok_and(|read_set| read_set.tables.contains(&table)))
    }

    /// The tags of a result that is served for a time, although changes of its tables' rows do not invalidate it: it depends on their definitions and
    /// rights. Err: no rule can cause that.
    pub(crate) fn tags_by_ttl(&self, catalog: &Catalog, context: &Context) -> Result<Vec<Tag>, Reason> {
        self.resolve(catalog, context);
        let mut known = self.resolutions.lock().unwrap_or_else(PoisonError::into_inner);
        let resolve = || {
            let relations = self.template.resolve_by_ttl(&self.text, catalog, &context.schemas)?;
            let tag = |table| Tag { table, rows: RowSet::Definition, columns: Columns::All };
            Ok(relations.into_iter().map(tag).collect())
        };
        match known.iter_mut().find(|r| r.catalog == catalog.version && r.context == context.settings) {
            Some(found) => found.by_ttl.get_or_insert_with(resolve).clone(),
            None => resolve(),
        }
    }

    /// Its next result is served so long at most, whatever changes; None: changes invalidate it.
    pub(crate) fn note_ttl(&self, ttl: Option<Nanos>) {
        self.exclusions.ttl.store(ttl.unwrap_or(0), Relaxed);
    }

    /// How long its last result is served at most, if changes do not invalidate it.
    pub(crate) fn ttl(&self) -> Option<Nanos> {
        Some(self.exclusions.ttl.load(Relaxed)).filter(|ttl| *ttl > 0)
    }
}
