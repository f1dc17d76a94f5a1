//! What kind of entry a database is.

use std::sync::Arc;

use freshet_proxy::postgres::OnDemand;
use freshet_proxy::{Database, Family};

/// The databases opened by the entry for any database.
pub(super) fn on_demand(database: &Database) -> Option<&Arc<OnDemand>> {
    match &database.family {
        Family::Postgres(pg) => pg.own.on_demand.as_ref(),
        Family::MySql(_) => None,
    }
}

/// Whether an entry replaces the database that the entry for any has opened.
pub(super) fn takes(entry: &Database, opened: &Database) -> bool {
    let is_entry = is_postgres(entry) && !entry.on_demand && on_demand(entry).is_none();
    is_entry && (entry.name == opened.name || upstream(entry) == upstream(opened))
}

/// Hosts and database.
pub(super) fn upstream(database: &Database) -> &str {
    &database.family.shared().settings.upstream
}

pub(super) fn is_postgres(database: &Database) -> bool {
    matches!(database.family, Family::Postgres(_))
}
