//! What Freshet knows of an upstream's schema: enough to resolve names, to choose tags, and to say what a new look at
//! it changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Reason, StoredCode, ValueType};

/// Which database's SQL, catalogue and wire protocol.
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

/// Numbers for the tables of a server that has none: a name keeps its number as long as the process lives.
#[derive(Debug, Default)]
pub struct TableNames {
    known: Mutex<HashMap<Arc<str>, IdsByName>>,
}

/// Of one schema.
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

/// Counts the catalogues loaded by this process. A verdict is valid under the version it was made with only.
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
    /// These columns (a primary key, or the index chosen by `USING INDEX`); PostgreSQL: of an update only if it changed them.
    Columns(Vec<Arc<str>>),
    /// None, or one that no publication may send (PostgreSQL 18: with virtual generated columns in it): a published update would
    /// fail, so such a table is never published and never cached.
    Missing,
}

/// A column that a query can name (dropped and system columns are left out).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, in the catalogue's spelling.
    pub name: Arc<str>,
    /// How its values compare.
    pub value_type: ValueType,
    /// A generated column: absent from the stream, but for stored ones from PostgreSQL 18 on, so no tag may rest on it.
    pub generated: bool,
}

/// A relation and what decides whether results over it can be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
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
    /// Columns by which its rows are told apart: of the replica identity, or of the primary key. None: they are not known.
    pub key: Vec<Arc<str>>,
    /// Row-level security is enabled, so what a query sees depends on who asks.
    pub row_security: bool,
    /// A column has a type that is neither built in nor an enum nor an array of one: its operators are not known.
    pub user_types: bool,
    /// A column has a date or time type, so that a literal such as `today` may be folded to a clock reading.
    pub datetime: bool,
    /// The columns, in the table's order.
    pub columns: Vec<Column>,
    /// Stands for everything that makes it another relation: rights, columns, identity, policies, rules, children.
    pub version: Arc<str>,
    /// The query of a view, all its names qualified but those of `pg_catalog`; None also if it could not be read.
    pub definition: Option<Arc<str>>,
    /// Its direct partitions or inheritance children, temporary tables left out.
    pub children: Vec<TableId>,
    /// Writing to it may run other code than the server's own, or built-in code that changes settings: triggers; on PostgreSQL also
    /// rules, defaults, checks, expressions of indexes and policies. A view there: reading it may.
    pub runs_code: bool,
    /// Of each column: up to which whole number, or up to how many characters, every value surely fits into it; 0: not known. Empty
    /// if that is known of none, and for tables of parts, some of which a condition may leave out. MySQL and MariaDB.
    pub capacities: Vec<u64>,
}

impl Table {
    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| &*c.name == name)
    }
}

/// What values of some types bring into a statement that neither its text nor the tables in it tell. PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeEffect {
    /// Why such a statement is not cached.
    pub reason: Reason,
    /// Code that somebody made for the types: by a cast, or an operator class that sorts and groups. Otherwise their values print the
    /// names of other objects.
    pub runs_code: bool,
    /// Only where the text asks for a cast.
    pub explicit: bool,
    /// Code runs only where a value becomes one of these types: the names of the types, in lower case. Empty for all other effects.
    pub names: HashSet<Box<str>>,
    /// The types, and those whose values hold such values: arrays, domains, ranges. Object ids.
    pub types: HashSet<u32>,
    /// Built-in functions and operators that make such values.
    pub makers: HashSet<Box<str>>,
    /// The columns of these types.
    pub columns: HashMap<TableId, Vec<Arc<str>>>,
    /// The relations whose rows are of these types.
    pub rows: HashSet<TableId>,
}

/// What a name of PostgreSQL means that is that of an enum in some schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnumType {
    /// An enum. Casts to it and to arrays of it run the server's own code only.
    Plain,
    /// An enum to which casts by functions lead that somebody made, or another type.
    Other,
}

/// The rows that foreign keys change with those of a parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cascade {
    /// The parent's columns that foreign keys refer to: an update that leaves them as they were changes nothing else.
    pub columns: Vec<Arc<str>>,
    /// The tables that may change, all the way down.
    pub tables: Vec<TableId>,
}

/// All relations of one database, and the user-defined functions and operators that could shadow built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Which load this is.
    pub version: CatalogVersion,
    tables: HashMap<TableId, Arc<Table>>,
    by_name: HashMap<Arc<str>, IdsByName>,
    /// Names of functions and aggregates that somebody made, and whose arguments may all be of types that a statement may handle: a call of
    /// that name is not known to be the built-in function.
    pub user_functions: HashSet<Box<str>>,
    /// Names of such operators.
    pub user_operators: HashSet<Box<str>>,
    /// PostgreSQL: names of functions that somebody made and that `row.name` may call.
    pub row_functions: HashSet<Box<str>>,
    /// PostgreSQL: names of such functions that are all immutable by declaration, where the operator trusts that, and no type or built-in
    /// function bears; and whether they are aggregates.
    pub trusted: HashMap<Box<str>, bool>,
    /// PostgreSQL: the types of each name that an enum has, by schema.
    pub enums: HashMap<Box<str>, HashMap<Box<str>, EnumType>>,
    /// Types whose values are more than data.
    pub type_effects: Vec<Arc<TypeEffect>>,
    /// Stands for all that verdicts and rights rest on beside relations: schemas, types, functions, operators, operator
    /// classes, casts, collations.
    pub surroundings: Box<str>,
    /// PostgreSQL: no type, cast or operator makes a write run other code than the server's own, or any that changes settings: only what
    /// relations have of their own may ([`Table::runs_code`]).
    pub built_in_surroundings: bool,
    /// PostgreSQL: nor does any relation.
    pub built_in_code_only: bool,
    /// PostgreSQL: tables that foreign keys refer to which change rows of other tables when a row here changes or goes (CASCADE, SET
    /// NULL, SET DEFAULT).
    pub acted_on: HashSet<TableId>,
    /// The change stream carries the definition of relations: with it, REFRESH MATERIALIZED VIEW.
    pub ddl_in_stream: bool,
    /// MySQL and MariaDB: what foreign keys change when rows of this table are updated or deleted. The binlog does not
    /// say it.
    pub cascades: HashMap<TableId, Cascade>,
    /// MySQL and MariaDB: which temporary tables routines, triggers and views may make. No result depends on it.
    pub stored_code: StoredCode,
    /// How often that has become another.
    pub code_changes: u64,
}

impl Catalog {
    /// An index over the relations.
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

    /// The same with these relations in the place of those with these numbers.
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

    /// The relations whose results must go when this catalogue takes the place of `old`: those that changed or went,
    /// and all of a name that came, went or moved, since an unqualified name may now mean another relation. They are
    /// relations of `old`. None: more than relations changed, and everything must go.
    pub fn changed_since(&self, old: &Self) -> Option<Vec<TableId>> {
        let same_surroundings = self.surroundings == old.surroundings
            && self.ddl_in_stream == old.ddl_in_stream
            // Behind a write that was taken for one that leaves settings as they are, answers may have been kept under others.
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

    /// Whether a type's name means an enum to which a statement may cast, under the schemas of a search path unless it names its own.
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
    /// `schemas` is what `current_schemas(true)` answers: the implicit `pg_catalog` is in it.
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
            columns: vec![Column { name: "id".into(), value_type: ValueType::Int, generated: false }],
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
