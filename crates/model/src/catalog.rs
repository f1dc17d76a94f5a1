//! What Freshet knows of an upstream's schema: enough to resolve names and to choose tags.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::ValueType;

/// A relation's object id (`pg_class.oid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// Counts the catalogues loaded by this process. A verdict is valid under the version it was made with only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogVersion(pub u64);

/// `pg_class.relkind`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    /// An ordinary permanent table without inheritance children (a leaf partition counts).
    Table,
    /// An ordinary table that other tables inherit from.
    Parent,
    /// A partitioned table.
    Partitioned,
    /// A table that is not in the log: unlogged or temporary.
    NotLogged,
    /// A view.
    View,
    /// A materialised view.
    MaterializedView,
    /// A foreign table.
    Foreign,
    /// A relation of PostgreSQL's own schemas.
    System,
    /// A sequence or anything else.
    Other,
}

/// The old row image that PostgreSQL logs for an update or a delete (`pg_class.relreplident`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// The whole old row.
    Full,
    /// These columns (a primary key, or the index chosen by `USING INDEX`), and only if the update changed them.
    Columns(Vec<Arc<str>>),
    /// None: a published update would fail, so such a table is never published and never cached.
    Missing,
}

/// A column that a query can name (dropped and system columns are left out).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, in the catalogue's spelling.
    pub name: Arc<str>,
    /// How its values compare.
    pub value_type: ValueType,
    /// A stored generated column: absent from the stream, so no tag may rest on it.
    pub generated: bool,
}

/// A relation and what decides whether results over it can be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its object id.
    pub id: TableId,
    /// The schema it is in.
    pub schema: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub kind: RelationKind,
    /// What the stream says of old rows.
    pub identity: ReplicaIdentity,
    /// Row-level security is enabled, so what a query sees depends on who asks.
    pub row_security: bool,
    /// A column has a type that is neither built in nor an enum: its operators are not known.
    pub user_types: bool,
    /// A column has a date or time type, so that a literal such as `today` may be folded to a clock reading.
    pub datetime: bool,
    /// The columns, in the table's order.
    pub columns: Vec<Column>,
}

impl Table {
    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| &*c.name == name)
    }
}

/// All relations of one database, and the user-defined functions and operators that could shadow built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Which load this is.
    pub version: CatalogVersion,
    tables: HashMap<TableId, Arc<Table>>,
    by_name: HashMap<Arc<str>, HashMap<Arc<str>, TableId>>,
    /// Names of functions and aggregates outside `pg_catalog` whose arguments may all be of built-in types: a
    /// call of that name is not known to be the built-in function.
    pub user_functions: HashSet<Box<str>>,
    /// Names of such operators.
    pub user_operators: HashSet<Box<str>>,
}

impl Catalog {
    /// An index over the relations.
    pub fn new(
        version: CatalogVersion,
        tables: Vec<Table>,
        user_functions: HashSet<Box<str>>,
        user_operators: HashSet<Box<str>>,
    ) -> Self {
        let mut by_name: HashMap<Arc<str>, HashMap<Arc<str>, TableId>> = HashMap::new();
        let mut by_id = HashMap::with_capacity(tables.len());
        for table in tables {
            by_name.entry(table.schema.clone()).or_default().insert(table.name.clone(), table.id);
            by_id.insert(table.id, Arc::new(table));
        }
        Self { version, tables: by_id, by_name, user_functions, user_operators }
    }

    /// The relation with that id.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// All relations, in no order.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The relation of that name in that schema.
    pub fn in_schema(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(self.by_name.get(schema)?.get(name)?)
    }

    /// The relation that an unqualified name means under the schemas of a search path, in their order.
    ///
    /// `schemas` is what `current_schemas(true)` answers: the implicit `pg_catalog` is in it.
    pub fn resolve<'a>(&self, schemas: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&Arc<Table>> {
        schemas.into_iter().find_map(|schema| self.in_schema(schema, name))
    }
}
