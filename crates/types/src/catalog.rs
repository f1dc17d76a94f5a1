//! The schema of an upstream as Freshet knows it. It serves to resolve names, to choose tags, and to find what a new
//! load changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Composite, Reason, StoredCode, ValueType};

/// The database product: its SQL, catalogue and wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL.
    MySql,
    /// MariaDB.
    MariaDb,
}

impl Dialect {
    /// The product's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
            Self::MariaDb => "MariaDB",
        }
    }

    /// MySQL or MariaDB.
    pub fn is_mysql_family(self) -> bool {
        self != Self::Postgres
    }
}

/// A relation's object id: `pg_class.oid`, or a number from [`TableNames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// Assigns numbers to the tables of a server without object ids. A name keeps its number as long as the process
/// lives.
#[derive(Debug, Default)]
pub struct TableNames {
    known: Mutex<HashMap<Arc<str>, IdsByName>>,
}

/// The tables of one schema.
type IdsByName = HashMap<Arc<str>, TableId>;

impl TableNames {
    /// The number of a name, in the catalogue's spelling.
    pub fn id(&self, schema: &str, name: &str) -> TableId {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = known.get(schema).and_then(|tables| tables.get(name)) {
            return *id;
        }
        let count: usize = known.values().map(HashMap::len).sum();
        let id = TableId(u32::try_from(count + 1).unwrap_or(u32::MAX));
        known.entry(schema.into()).or_default().insert(name.into(), id);
        id
    }
}

/// Counts the catalogues that this process has loaded. A verdict is valid only under the version it was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogVersion(pub u64);

/// `pg_class.relkind`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    /// An ordinary permanent table without inheritance children (a leaf partition counts).
    Table,
    /// An ordinary table that other tables inherit from, or did once.
    Parent,
    /// A partitioned table: it holds no rows itself.
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

/// The old row image that is logged for an update or a delete (`pg_class.relreplident` of PostgreSQL, `binlog_row_image` of MySQL).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// The whole old row.
    Full,
    /// These columns: a primary key, or the index of `USING INDEX`. PostgreSQL sends them of an update only if it
    /// changed them.
    Columns(Vec<Arc<str>>),
    /// None, or one that no publication may send (PostgreSQL 18: with virtual generated columns). A published update
    /// would fail, so the table is never published and never cached.
    Missing,
}

/// A column that a query can name (dropped and system columns are left out).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, in the catalogue's spelling.
    pub name: Arc<str>,
    /// How its values compare.
    pub value_type: ValueType,
    /// A generated column. The stream omits it (PostgreSQL 18 can send stored ones), so no tag may use it.
    pub generated: bool,
    /// The object id of its type, if this is one of [`Catalog::composites`].
    pub composite: Option<u32>,
}

/// A relation, with the properties that decide whether results over it can be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub struct Table {
    /// Its object id.
    pub id: TableId,
    /// The schema it is in.
    pub schema: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The kind of relation.
    pub kind: RelationKind,
    /// The old row images that the stream carries.
    pub identity: ReplicaIdentity,
    /// The columns that identify its rows: those of the replica identity, or of the primary key. Empty if unknown.
    pub key: Vec<Arc<str>>,
    /// Row-level security is enabled, so the result of a query depends on the role.
    pub row_security: bool,
    /// A column has a type that is neither built in nor an enum nor an array of one: its operators are not known.
    pub user_types: bool,
    /// A column has a date or time type, so that a literal such as `today` may be folded to a clock reading.
    pub datetime: bool,
    /// The columns, in the table's order.
    pub columns: Vec<Column>,
    /// Represents everything that makes it another relation: rights, columns, identity, policies, rules, children.
    pub version: Arc<str>,
    /// The query of a view, with all names qualified except those of `pg_catalog`. None also if it could not be read.
    pub definition: Option<Arc<str>>,
    /// Its direct partitions or inheritance children, without temporary tables.
    pub children: Vec<TableId>,
    /// Writing to it may run code that is not the server's own, or built-in code that changes settings. On all
    /// servers this means triggers; on PostgreSQL also rules, defaults, checks, index expressions and policies. For a
    /// view of PostgreSQL: reading it may run such code.
    pub runs_code: bool,
    /// For each column, the whole number or the number of characters up to which every value fits; 0 if unknown.
    /// Empty if all are unknown, and for partitioned tables, of which a condition may exclude partitions. MySQL and
    /// MariaDB.
    pub capacities: Vec<u64>,
}

impl Table {
    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| &*c.name == name)
    }
}

/// Effects of the values of some types that neither the statement's text nor its tables show. PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeEffect {
    /// Why such a statement is not cached.
    pub reason: Reason,
    /// User-defined code of the types runs: a cast, or an operator class that sorts and groups. Otherwise the values
    /// print the names of other objects.
    pub runs_code: bool,
    /// Only where the text has an explicit cast.
    pub explicit: bool,
    /// Code runs only where a value is converted to one of these types (names in lower case). Empty for all other
    /// effects.
    pub names: HashSet<Box<str>>,
    /// Object ids of the types and of those that contain them: arrays, domains, ranges.
    pub types: HashSet<u32>,
    /// Built-in functions and operators that return values of the types.
    pub makers: HashSet<Box<str>>,
    /// The columns of these types.
    pub columns: HashMap<TableId, Vec<Arc<str>>>,
    /// The relations whose rows have these types.
    pub rows: HashSet<TableId>,
}

/// The meaning of a PostgreSQL type name that some schema uses for an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnumType {
    /// An enum. Casts to it and to arrays of it run the server's own code only.
    Plain,
    /// An enum with user-defined casts by functions, or another type.
    Other,
}

/// The rows that foreign keys change together with those of a parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cascade {
    /// The parent's columns that foreign keys refer to. An update that leaves them unchanged changes no other row.
    pub columns: Vec<Arc<str>>,
    /// All tables that may change, transitively.
    pub tables: Vec<TableId>,
}

/// All relations of one database, and the user-defined functions and operators that could shadow built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The number of this load.
    pub version: CatalogVersion,
    tables: HashMap<TableId, Arc<Table>>,
    by_name: HashMap<Arc<str>, IdsByName>,
    /// Names of user-defined functions and aggregates whose arguments may all have types that a statement may handle.
    /// A call of one of these names may not be the built-in function.
    pub user_functions: HashSet<Box<str>>,
    /// Names of user-defined operators, likewise.
    pub user_operators: HashSet<Box<str>>,
    /// PostgreSQL: names of user-defined functions that `row.name` may call.
    pub row_functions: HashSet<Box<str>>,
    /// PostgreSQL: names of user-defined functions that are all declared immutable, where the operator trusts this
    /// declaration. No type or built-in function has the same name. The value tells whether they are aggregates.
    pub trusted: HashMap<Box<str>, bool>,
    /// PostgreSQL: for each name of an enum, the types of that name by schema.
    pub enums: HashMap<Box<str>, HashMap<Box<str>, EnumType>>,
    /// PostgreSQL, by their object ids.
    pub composites: HashMap<u32, Composite>,
    /// Effects of types.
    pub type_effects: Vec<Arc<TypeEffect>>,
    /// PostgreSQL: all types but those of tables' rows. One that is not among them was made since, and may run any code.
    pub types: HashSet<u32>,
    /// PostgreSQL: their names, in lower case.
    pub type_names: HashSet<Box<str>>,
    /// Represents everything besides relations on which verdicts and rights depend: schemas, types, functions,
    /// operators, operator classes, casts, collations.
    pub surroundings: Box<str>,
    /// PostgreSQL: no type, cast or operator makes a write run code that is not the server's own, or code that
    /// changes settings. Only the relations themselves may do so ([`Table::runs_code`]).
    pub built_in_surroundings: bool,
    /// PostgreSQL: the same holds for all relations.
    pub built_in_code_only: bool,
    /// PostgreSQL: tables referenced by foreign keys with an action (CASCADE, SET NULL, SET DEFAULT): a changed or
    /// deleted row here changes rows of other tables.
    pub acted_on: HashSet<TableId>,
    /// The change stream carries the definitions of relations, and with them REFRESH MATERIALIZED VIEW.
    pub ddl_in_stream: bool,
    /// MySQL and MariaDB: the rows that foreign keys change when rows of this table are updated or deleted. The
    /// binlog omits them.
    pub cascades: HashMap<TableId, Cascade>,
    /// MySQL and MariaDB: the temporary tables that routines, triggers and views may create. No result depends on it.
    pub stored_code: StoredCode,
    /// MySQL and MariaDB: global variables that may change at any time, with their values when the server was last asked. They are part of
    /// `surroundings`.
    pub polled: Vec<[Box<str>; 2]>,
    /// How often `stored_code` has changed.
    pub code_changes: u64,
}

impl Catalog {
    /// Builds the index over the relations.
    pub fn new(
        version: CatalogVersion,
        tables: Vec<Table>,
        user_functions: HashSet<Box<str>>,
        user_operators: HashSet<Box<str>>,
    ) -> Self {
        let mut by_name: HashMap<Arc<str>, IdsByName> = HashMap::new();
        let mut by_id = HashMap::with_capacity(tables.len());
        for table in tables {
            by_name.entry(table.schema.clone()).or_default().insert(table.name.clone(), table.id);
            by_id.insert(table.id, Arc::new(table));
        }
        Self { version, tables: by_id, by_name, user_functions, user_operators, ..Self::default() }
    }

    /// Whether a relation has this name, in any schema.
    pub fn names_relation(&self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    /// The relations of this name, in any schema.
    pub fn named(&self, name: &str) -> impl Iterator<Item = TableId> {
        self.by_name.values().filter_map(move |names| names.get(name).copied())
    }

    /// A copy with these relations in place of those with the same ids.
    #[must_use]
    pub fn with_anew(&self, version: CatalogVersion, numbers: &HashSet<TableId>, tables: Vec<Table>) -> Self {
        let mut catalog = Self { version, ..self.clone() };
        catalog.tables.retain(|id, _| !numbers.contains(id));
        for names in catalog.by_name.values_mut() {
            names.retain(|_, id| !numbers.contains(id));
        }
        for table in tables {
            catalog.by_name.entry(table.schema.clone()).or_default().insert(table.name.clone(), table.id);
            catalog.tables.insert(table.id, Arc::new(table));
        }
        catalog
    }

    /// The relations of `old` whose results must be flushed when this catalogue replaces it. These are relations that
    /// changed or disappeared, and all relations of a name that appeared, disappeared or moved: an unqualified name
    /// may now mean another relation. None if more than relations changed; everything must then be flushed.
    pub fn changed_since(&self, old: &Self) -> Option<Vec<TableId>> {
        let same_surroundings = self.surroundings == old.surroundings
            && self.ddl_in_stream == old.ddl_in_stream
            // A write may have changed settings unnoticed, so results may have been cached under other settings.
            && self.built_in_surroundings >= old.built_in_surroundings
            && !(old.built_in_surroundings && self.tables().any(|table| table.runs_code && old.took_for_plain(table.id)))
            && self.cascades == old.cascades
            && self.user_functions == old.user_functions
            && self.trusted == old.trusted
            && self.user_operators == old.user_operators;
        if !same_surroundings {
            return None;
        }
        let renamed = |table: &&Arc<Table>, other: &Self| {
            other.table(table.id).is_none_or(|other| (&other.schema, &other.name) != (&table.schema, &table.name))
        };
        let gone = old.tables().filter(|table| renamed(table, self));
        let come = self.tables().filter(|table| renamed(table, old));
        let names: HashSet<&str> = gone.chain(come).map(|table| &*table.name).collect();
        let differs = |table: &&Arc<Table>| names.contains(&*table.name) || self.table(table.id) != Some(table);
        Some(old.tables().filter(differs).map(|table| table.id).collect())
    }

    fn took_for_plain(&self, id: TableId) -> bool {
        self.table(id).is_some_and(|table| !table.runs_code)
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

    /// Whether a type name means an enum to which a statement may cast. Without a schema of its own, the name
    /// resolves by the search path.
    pub fn is_plain_enum(&self, schemas: &[Arc<str>], schema: Option<&str>, name: &str) -> bool {
        let Some(types) = self.enums.get(name) else { return false };
        let found = match schema {
            Some(schema) => types.get(schema),
            None => schemas.iter().find_map(|schema| types.get(&**schema)),
        };
        found == Some(&EnumType::Plain)
    }

    /// The relation that an unqualified name means under the schemas of a search path, in their order.
    ///
    /// `schemas` is the result of `current_schemas(true)`, so it contains the implicit `pg_catalog`.
    pub fn resolve<'a>(&self, schemas: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&Arc<Table>> {
        schemas.into_iter().find_map(|schema| self.in_schema(schema, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u32, schema: &str, name: &str) -> Table {
        Table {
            id: TableId(id),
            schema: schema.into(),
            name: name.into(),
            kind: RelationKind::Table,
            identity: ReplicaIdentity::Full,
            key: Vec::new(),
            row_security: false,
            user_types: false,
            datetime: false,
            columns: vec![Column { name: "id".into(), value_type: ValueType::Int, generated: false, composite: None }],
            version: "1".into(),
            definition: None,
            children: Vec::new(),
            runs_code: false,
            capacities: Vec::new(),
        }
    }

    fn tables() -> Vec<Table> {
        let view =
            Table { kind: RelationKind::View, definition: Some("SELECT 1".into()), ..table(3, "public", "seen") };
        let parts =
            Table { kind: RelationKind::Partitioned, children: vec![TableId(5)], ..table(4, "public", "parts") };
        vec![
            table(1, "public", "a"),
            table(2, "public", "b"),
            view,
            parts,
            table(5, "public", "part"),
            table(6, "x", "a"),
        ]
    }

    fn catalog(tables: Vec<Table>) -> Catalog {
        Catalog::new(CatalogVersion(1), tables, HashSet::new(), HashSet::new())
    }

    /// What changes when the tables are altered so.
    fn changed(alter: impl Fn(&mut Vec<Table>)) -> Vec<u32> {
        let mut after = tables();
        alter(&mut after);
        let changed = catalog(after).changed_since(&catalog(tables())).expect("only relations changed");
        let mut changed: Vec<u32> = changed.into_iter().map(|table| table.0).collect();
        changed.sort_unstable();
        changed
    }

    #[test]
    fn a_new_catalogue_says_which_relations_changed() {
        assert_eq!(changed(|_| {}), []);
        assert_eq!(changed(|tables| tables.reverse()), []);
        // Altered in place: a column's type, rights or policies (the version), a view's query, a partition more.
        assert_eq!(changed(|tables| tables[1].columns[0].value_type = ValueType::Text), [2]);
        assert_eq!(changed(|tables| tables[1].version = "2".into()), [2]);
        assert_eq!(changed(|tables| tables[2].definition = Some("SELECT 2".into())), [3]);
        assert_eq!(
            changed(|tables| {
                tables.push(table(7, "public", "part_2"));
                tables[3].children.push(TableId(7));
            }),
            [4]
        );
        // Created under a name that is new, and under one that another schema has.
        assert_eq!(changed(|tables| tables.push(table(7, "public", "c"))), []);
        assert_eq!(changed(|tables| tables.push(table(7, "x", "b"))), [2]);
        // Dropped: with those that the name may have hidden.
        assert_eq!(changed(|tables| drop(tables.remove(1))), [2]);
        assert_eq!(changed(|tables| drop(tables.remove(0))), [1, 6]);
        // Dropped and created again.
        assert_eq!(changed(|tables| tables[1].id = TableId(7)), [2]);
        // Renamed, also to a name that another has; two that swap names; moved to another schema.
        assert_eq!(changed(|tables| tables[1].name = "c".into()), [2]);
        assert_eq!(changed(|tables| tables[5].name = "b".into()), [1, 2, 6]);
        assert_eq!(
            changed(|tables| {
                tables[0].name = "b".into();
                tables[1].name = "a".into();
            }),
            [1, 2, 6]
        );
        assert_eq!(changed(|tables| tables[1].schema = "x".into()), [2]);
    }

    #[test]
    fn some_relations_are_read_anew() {
        let before = catalog(tables());
        let numbers = HashSet::from([TableId(1), TableId(2), TableId(7)]);
        let altered = Table { version: "2".into(), ..table(2, "public", "b") };
        let after = before.with_anew(CatalogVersion(2), &numbers, vec![altered, table(7, "y", "c")]);
        assert_eq!((before.version, after.version), (CatalogVersion(1), CatalogVersion(2)));
        assert_eq!(after.table(TableId(1)), None);
        assert_eq!(after.in_schema("public", "a"), None);
        let version = |name| after.in_schema("public", name).map(|table| &*table.version);
        assert_eq!((version("b"), version("seen")), (Some("2"), Some("1")));
        assert_eq!(after.in_schema("y", "c").map(|table| table.id), Some(TableId(7)));
        let mut changed = after.changed_since(&before).expect("only relations changed");
        changed.sort_unstable();
        assert_eq!(changed, [TableId(1), TableId(2), TableId(6)]);
    }

    #[test]
    fn everything_goes_when_more_than_relations_changed() {
        let plain = || Catalog { built_in_surroundings: true, ..catalog(tables()) };
        let with_code = |mut tables: Vec<Table>| {
            tables[0].runs_code = true;
            tables
        };
        let old = plain();
        let changes: [fn(&mut Catalog); 5] = [
            |catalog| catalog.surroundings = "a type was altered".into(),
            |catalog| catalog.built_in_surroundings = false,
            |catalog| catalog.ddl_in_stream = true,
            |catalog| catalog.user_functions.extend(["lower".into()]),
            |catalog| catalog.user_operators.extend(["=".into()]),
        ];
        for change in changes {
            let mut new = plain();
            change(&mut new);
            assert_eq!(new.changed_since(&old), None);
        }
        assert_eq!(plain().changed_since(&catalog(tables())), Some(Vec::new()), "all operators are gone");
        let trigger = Catalog { built_in_surroundings: true, ..catalog(with_code(tables())) };
        assert_eq!(trigger.changed_since(&old), None);
        let first = || Some(vec![tables()[0].id]);
        assert_eq!(old.changed_since(&trigger), first(), "its trigger is gone");
        assert_eq!(
            catalog(with_code(tables())).changed_since(&catalog(tables())),
            first(),
            "no write was taken for plain"
        );
    }
}
