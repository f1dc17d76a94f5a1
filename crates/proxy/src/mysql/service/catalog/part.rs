//! Reads the relations that DDL has named, instead of everything: DDL on one table must not delay the fills of all others until each table was read.
//!
//! DDL on a relation may also change these, which are read with it:
//!
//! - views over it, and views over those: the types of their columns;
//! - the foreign keys that refer to it, by their children: they follow a parent that is renamed, and the names of its columns. So for RENAME TABLE,
//!   also of two tables that swap names, the children of both are read.
//!
//! Facts that depend on no relation (privileges, functions, created or dropped triggers) change by statements that name no relation, so that
//! everything is read.

use std::collections::{HashMap, HashSet};

use freshet_net::mysql::quote_name;
use freshet_types::{Catalog, CatalogVersion, RelationKind, TableId};

use crate::mysql::MySql;
use crate::mysql::service::catalog::cascades::{ForeignKeys, cascades};
use crate::mysql::service::catalog::load::{Basis, exclude_led_elsewhere, name_of, read_tables};
use crate::mysql::service::catalog::rows::{Name, read_names};
use crate::mysql::service::catalog::server::Server;
use crate::mysql::service::connection::{Connection, ServiceError};

/// Limit of relations that are read one by one; for more, everything is read.
const PART_MAX: usize = 50;

/// A catalogue with the facts that it was read with.
pub(super) struct Before<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) basis: &'a Basis,
    pub(super) server: &'a Server,
}

/// Reads these relations and their dependents again. None: everything must be read.
pub(super) async fn read_part(
    mysql: &MySql,
    connection: &mut Connection,
    version: CatalogVersion,
    before: &Before<'_>,
    redefined: &HashSet<TableId>,
) -> Result<Option<(Catalog, Basis)>, ServiceError> {
    let names = read_names(connection).await?;
    let id = |(schema, name): &Name| mysql.table_id(schema, name);
    let mut there: HashMap<TableId, Vec<&Name>> = HashMap::new();
    for name in &names {
        there.entry(id(name)).or_default().push(name);
    }
    let affected = affected(before, redefined, &there, id);
    let is_system = |id: &TableId| before.catalog.table(*id).is_some_and(|table| table.kind == RelationKind::System);
    // Names that differ only in case share an id.
    let is_ambiguous = |id: &TableId| there.get(id).is_some_and(|names| names.len() > 1);
    if affected.len() > PART_MAX || affected.iter().any(|id| is_system(id) || is_ambiguous(id)) {
        return Ok(None);
    }
    let among: Vec<Name> =
        affected.iter().filter_map(|id| there.get(id)).flatten().map(|name| (*name).clone()).collect();
    let mut basis = before.basis.clone();
    let mut tables = Vec::new();
    let mut anew = ForeignKeys::default();
    if !among.is_empty() {
        anew = ForeignKeys::read(connection, Some(&among)).await?;
    }
    basis.foreign_keys = basis.foreign_keys.with_anew(|child| affected.contains(&id(child)), anew);
    basis.sources.retain(|source| source.relation.as_ref().is_none_or(|name| !affected.contains(&id(name))));
    basis.locked.retain(|name| !affected.contains(&id(name)));
    if !among.is_empty() {
        let (read, sources) = read_tables(mysql, connection, before.server, &basis, Some(&among)).await?;
        tables = read;
        basis.sources.extend(sources);
    }
    let system = before.catalog.tables().filter(|table| table.kind == RelationKind::System);
    let visible: HashSet<Name> = system.map(|table| name_of(table)).chain(names.iter().cloned()).collect();
    exclude_led_elsewhere(&mut tables, &basis, &visible);
    let mut catalog = before.catalog.with_anew(version, &affected, tables);
    catalog.cascades = cascades(&basis.foreign_keys, id);
    catalog.stored_code = basis.stored_code();
    Ok(Some((catalog, basis)))
}

/// The redefined relations and their dependents.
fn affected(
    before: &Before<'_>,
    redefined: &HashSet<TableId>,
    there: &HashMap<TableId, Vec<&Name>>,
    id: impl Fn(&Name) -> TableId,
) -> HashSet<TableId> {
    let mut affected = redefined.clone();
    let mut next: Vec<TableId> = redefined.iter().copied().collect();
    while let Some(relation) = next.pop() {
        let known = before.catalog.table(relation).map(|table| &*table.name);
        let found = there.get(&relation).into_iter().flatten().map(|(_, name)| name.as_str());
        let quoted: Vec<String> = known.into_iter().chain(found).map(quote_name).collect();
        let is_over = |text: &str| quoted.iter().any(|name| text.contains(name));
        for view in before.catalog.tables() {
            if view.definition.as_deref().is_some_and(is_over) && affected.insert(view.id) {
                next.push(view.id);
            }
        }
    }
    affected.extend(before.basis.foreign_keys.children(|parent| redefined.contains(&id(parent))).map(&id));
    affected
}
