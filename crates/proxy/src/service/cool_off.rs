//! Tables in cool-off: [`freshet_types::Reason::InCoolOff`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use freshet_types::TableId;

/// Tables in cool-off, each with whether a fill has needed it since.
#[derive(Debug, Default)]
pub(crate) struct CoolOff(HashMap<TableId, AtomicBool>);

impl FromIterator<TableId> for CoolOff {
    fn from_iter<I: IntoIterator<Item = TableId>>(tables: I) -> Self {
        Self(tables.into_iter().map(|table| (table, AtomicBool::new(false))).collect())
    }
}

impl CoolOff {
    /// Whether a fill needs one of these tables. If so, the need is noted.
    pub(crate) fn hold_any(&self, wanted: &[TableId]) -> bool {
        let mut any = false;
        for table in wanted.iter().filter_map(|table| self.0.get(table)) {
            table.store(true, Relaxed);
            any = true;
        }
        any
    }

    pub(crate) fn is_wanted(&self, table: TableId) -> bool {
        self.0.get(&table).is_some_and(|wanted| wanted.load(Relaxed))
    }

    pub(crate) fn contains(&self, table: TableId) -> bool {
        self.0.contains_key(&table)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
