//! Reads the catalogue of one database: relations with their columns, identities, children and queries, and objects that may hide built-in ones.
//!
//! Everything but the texts of views ([`super::definitions`]) is read in one transaction and snapshot, with an empty search path. So unqualified
//! names in these statements, and in the text of a view, mean `pg_catalog`, whatever the account's own settings. Only the catalogue's own relations
//! are locked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use freshet_net::postgres::Rows;
use freshet_types::{
    Catalog, CatalogVersion, Column, Composite, EnumType, RelationKind, ReplicaIdentity, Table, TableId, TypeEffect,
    ValueType,
};

use crate::postgres::service::catalog::definitions::{self, Definitions, VIEWS, View};
use crate::postgres::service::connection::{Connection, ServiceError};
use crate::postgres::service::publication::updates_fail;

use super::code::{CODE, KNOWN};
use super::composites::{self, COMPOSITES};
use super::rows::{table_id, texts};
use super::trusted::TRUSTED;
use super::types::{TYPE_EFFECTS, type_effects};

/// See [`updates_fail`] for the last column.
const TABLES: &str = "
SELECT c.oid::text, n.nspname::text, c.relname::text,
  CASE WHEN n.nspname IN ('pg_catalog', 'information_schema') OR n.nspname ~ '^pg_toast' THEN 'system'
       WHEN c.relkind = 'r' AND c.relpersistence <> 'p' THEN 'not_logged'
       WHEN c.relkind = 'r' AND c.relhassubclass THEN 'parent'
       WHEN c.relkind = 'r' THEN 'table' WHEN c.relkind = 'p' THEN 'partitioned'
       WHEN c.relkind = 'v' THEN 'view' WHEN c.relkind = 'm' THEN 'matview'
       WHEN c.relkind = 'f' THEN 'foreign' ELSE 'other' END,
  (c.relreplident = 'f')::text, c.relrowsecurity::text, (c.oid >= 16384 AND c.relkind = 'r' AND ";
const OF_TABLES: &str = ")::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c', 'i', 'I') AND n.nspname !~ '^pg_(toast_)?temp_'";

/// The primary key, if the whole old row is logged. Columns that an index merely includes are not logged.
const IDENTITIES: &str = "
SELECT c.oid::text, a.attname::text FROM pg_class c
JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
 AND ((c.relreplident IN ('d', 'f') AND i.indisprimary) OR (c.relreplident = 'i' AND i.indisreplident))
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE c.oid >= 16384 AND c.relkind = 'r'";

/// Value types are those of [`ValueType`]; the OIDs are from PostgreSQL's `pg_type.dat` and never change. The built-in provider (`b`) orders by bytes
/// in every locale; `datlocprovider` exists from PostgreSQL 15 on.
const COLUMNS: &str = "
own AS (SELECT CASE to_jsonb(d) ->> 'datlocprovider' WHEN 'b' THEN true WHEN 'i' THEN false
   ELSE d.datcollate IN ('C', 'POSIX', 'C.UTF-8', 'C.utf8') END AS by_bytes
  FROM pg_database d WHERE d.datname = current_database())
SELECT a.attrelid::text, a.attname::text,
  CASE WHEN t.oid = 1082 THEN 'date' WHEN t.oid = 1114 THEN 'timestamp' WHEN t.oid = 1184 THEN 'timestamptz'
       WHEN b.oid IN (1266, 1270) THEN 'timetz'
       WHEN b.oid IN (1082, 1083, 1114, 1184, 1182, 1183, 1115, 1185, 3908, 3909, 3910, 3911, 3912, 3913)
       THEN 'datetime'
       WHEN t.typtype = 'd' THEN 'other'
       WHEN t.oid IN (20, 21, 23) THEN 'int' WHEN t.oid = 1700 THEN 'numeric'
       WHEN t.oid = 700 THEN 'float4' WHEN t.oid = 701 THEN 'float8'
       WHEN t.oid IN (25, 1043) AND l.collisdeterministic AND getdatabaseencoding() = 'UTF8'
        AND CASE l.collprovider WHEN 'd' THEN (SELECT by_bytes FROM own)
            WHEN 'c' THEN l.collcollate IN ('C', 'POSIX', 'C.UTF-8', 'C.utf8') ELSE l.collprovider = 'b' END
       THEN 'ordered'
       WHEN t.oid IN (25, 1043) AND l.collisdeterministic THEN 'text'
       WHEN t.oid = 1042 AND l.collisdeterministic THEN 'padded'
       WHEN t.typtype = 'e' THEN 'enum' WHEN t.oid = 16 THEN 'bool' WHEN t.oid = 2950 THEN 'uuid'
       WHEN t.oid = 17 THEN 'bytea'
       ELSE 'other' END,
  (a.attgenerated <> '')::text,
  ((b.typnamespace <> 'pg_catalog'::regnamespace OR b.oid >= 16384) AND b.typtype <> 'e' AND b.oid NOT IN (SELECT oid FROM known)
   AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = b.oid AND e.typtype = 'e'))::text,
  CASE WHEN t.typtype = 'c' THEN t.oid::text ELSE '' END
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm') AND c.relpersistence <> 't'
 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum";

/// The transaction that wrote each row of the catalogue last; in-place updates by VACUUM and ANALYZE do not change it.
const VERSIONS: &str = "
WITH versions(relation, v) AS (
  SELECT oid, 'c' || xmin FROM pg_class WHERE relpersistence <> 't'
  UNION ALL SELECT attrelid, 'a' || attnum || ' ' || xmin FROM pg_attribute WHERE attnum > 0
  UNION ALL SELECT indrelid, 'i' || indexrelid || ' ' || xmin FROM pg_index WHERE indisprimary OR indisreplident
  UNION ALL SELECT ev_class, 'w' || oid || ' ' || xmin FROM pg_rewrite
  UNION ALL SELECT polrelid, 'p' || oid || ' ' || xmin FROM pg_policy
  UNION ALL SELECT inhparent, 'h' || inhrelid || ' ' || xmin FROM pg_inherits
  UNION ALL SELECT inhrelid, 'u' || inhparent || ' ' || xmin FROM pg_inherits)
SELECT relation::text, md5(string_agg(v, ',' ORDER BY v)) FROM versions WHERE relation >= 16384 GROUP BY relation";

/// Only their own session sees temporary children, and it is not cached.
const CHILDREN: &str = "
SELECT i.inhparent::text, i.inhrelid::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE c.relkind NOT IN ('i', 'I') AND c.relpersistence <> 't' ORDER BY i.inhparent, i.inhrelid";

/// This includes text search: the number of rows and the sum of the transactions that wrote them last identify the mappings of its configurations.
const SURROUNDINGS: &str = "
WITH versions(v) AS (
  SELECT 't' || oid || ' ' || xmin FROM pg_type
   WHERE oid >= 16384 AND typtype IN ('b', 'd', 'e', 'r') AND typelem = 0
  UNION ALL SELECT 'q' || oid || ' ' || xmin FROM pg_type t WHERE typname IN (SELECT typname FROM pg_type WHERE typtype = 'e')
   AND NOT EXISTS (SELECT FROM pg_namespace n WHERE n.oid = t.typnamespace AND nspname ~ '^pg_(toast_)?temp_')
  UNION ALL SELECT 'e' || oid || ' ' || xmin FROM pg_enum
  UNION ALL SELECT 'r' || c.oid || ' ' || c.xmin || ' ' || attnum || ' ' || a.xmin FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid
   WHERE c.oid >= 16384 AND relkind = 'c' AND relpersistence <> 't'
  UNION ALL SELECT 'z' || oid || ' ' || xmin FROM pg_constraint WHERE contypid <> 0
  UNION ALL SELECT 'p' || oid || ' ' || xmin FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT 'o' || oid || ' ' || xmin FROM pg_operator WHERE oid >= 16384
  UNION ALL SELECT 'k' || oid || ' ' || xmin FROM pg_cast
  UNION ALL SELECT 'c' || oid || ' ' || xmin FROM pg_opclass WHERE oid >= 16384
  UNION ALL SELECT 'l' || oid || ' ' || xmin FROM pg_collation WHERE oid >= 16384
  UNION ALL SELECT 'n' || oid || ' ' || xmin FROM pg_namespace WHERE oid >= 2200 AND nspname !~ '^pg_(toast_)?temp_'
  UNION ALL SELECT 's' || oid || ' ' || xmin FROM pg_ts_config
  UNION ALL SELECT 'd' || oid || ' ' || xmin FROM pg_ts_dict
  UNION ALL SELECT 'm' || count(*) || ' ' || coalesce(sum(int8in(xidout(xmin))), 0) FROM pg_ts_config_map)
SELECT coalesce(md5(string_agg(v, ',' ORDER BY v)), '') FROM versions";

/// All types with the names of enums, and whether each is an enum to which only built-in code casts: see [`EnumType`].
const ENUMS: &str = "
SELECT t.typname::text, n.nspname::text, (t.typtype = 'e' AND NOT EXISTS (SELECT FROM pg_cast c
  WHERE c.casttarget IN (t.oid, t.typarray) AND c.castmethod <> 'i'))::text
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.typname IN (SELECT typname FROM pg_type WHERE typtype = 'e') AND n.nspname !~ '^pg_(toast_)?temp_'";

/// See [`Catalog::types`]; not those of the rows of tables, nor arrays of these.
const TYPES: &str = "
SELECT t.oid::text, t.typname::text FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_class c ON c.oid IN (t.typrelid, e.typrelid) AND c.oid <> 0
WHERE c.oid IS NULL OR c.relkind = 'c'";

const USER_FUNCTIONS: &str = "
made(name, arguments, of_known) AS (
  SELECT p.proname, p.proargtypes::oid[], p.oid IN (SELECT objid FROM members WHERE classid = 'pg_proc'::regclass)
  FROM pg_proc p WHERE (p.pronamespace <> 'pg_catalog'::regnamespace OR p.oid >= 16384)
   AND p.oid NOT IN (SELECT objid FROM of_texts WHERE classid = 'pg_proc'::regclass))";

/// Distances of vectors are not known: an index may find rows by settings that are not in the key.
const USER_OPERATORS: &str = "
made(name, arguments, of_known) AS (
  SELECT o.oprname, ARRAY[o.oprleft, o.oprright], o.oid IN (SELECT objid FROM members WHERE classid = 'pg_operator'::regclass)
   AND NOT (oprname = '<->' AND EXISTS (SELECT FROM pg_type WHERE oid = oprright AND typname IN ('vector', 'halfvec', 'sparsevec')))
  FROM pg_operator o WHERE (o.oprnamespace <> 'pg_catalog'::regnamespace OR o.oid >= 16384)
   AND o.oid NOT IN (SELECT objid FROM of_texts WHERE classid = 'pg_operator'::regclass))";

/// The names of functions and operators that a text may mean, except those that the extension of a known type defines for it. Those for user-defined
/// base types and ranges, and arrays of them, do not count unless user-defined casts create such values: otherwise no cached statement has one. A
/// statement may have rows, and values of domains, enums and [`KNOWN`] types.
const MAY_BE_MEANT: &str = "
SELECT DISTINCT name::text FROM made
WHERE NOT EXISTS (SELECT FROM unnest(arguments) AS g(oid) JOIN pg_type a ON a.oid = g.oid
  JOIN pg_type t ON t.oid = CASE WHEN a.typcategory = 'A' AND a.typelem <> 0 THEN a.typelem ELSE a.oid END
  WHERE (t.typnamespace <> 'pg_catalog'::regnamespace OR t.oid >= 16384) AND t.typtype IN ('b', 'r', 'm')
   AND t.oid NOT IN (SELECT oid FROM known)
   AND NOT EXISTS (SELECT FROM pg_cast c WHERE casttarget = t.oid AND castcontext = 'i'
    AND c.oid NOT IN (SELECT objid FROM pg_depend WHERE classid = 'pg_cast'::regclass AND deptype = 'e')))
 AND NOT (of_known AND EXISTS (SELECT FROM unnest(arguments) AS g(oid) JOIN known USING (oid)))";

/// Objects that may make a write run user-defined code, or built-in functions that change settings or run the text of a query: relations, by their
/// own objects, and 0 for everything else. The text of an expression has the functions that it calls as `:funcid` and a number; `row.f` may call a
/// function of one argument. A check of a foreign key plans a query of the other table, with the expressions of its indexes. Copies of a trigger on
/// partitions are internal before PostgreSQL 15. Policies may read views.
const OTHER_CODE: &str = ",
expressions(relation, planned, text) AS (
  SELECT adrelid, false, adbin::text FROM pg_attrdef UNION ALL SELECT conrelid, false, conbin::text FROM pg_constraint
  UNION ALL SELECT indrelid, true, indexprs::text FROM pg_index WHERE indexrelid >= 16384
  UNION ALL SELECT indrelid, true, indpred::text FROM pg_index WHERE indexrelid >= 16384
  UNION ALL SELECT 0, false, partexprs::text FROM pg_partitioned_table UNION ALL SELECT 0, false, typdefaultbin::text FROM pg_type
  UNION ALL SELECT polrelid, false, polqual::text FROM pg_policy
  UNION ALL SELECT polrelid, false, polwithcheck::text FROM pg_policy
  UNION ALL SELECT ev_class, false, ev_action::text FROM pg_rewrite WHERE oid >= 16384),
dependent(class, object, native) AS (
  SELECT classid, objid, native FROM pg_depend JOIN stored ON oid = refobjid
   WHERE refclassid = 'pg_proc'::regclass AND NOT harmless),
code(relation, planned) AS (
  SELECT tgrelid, false FROM pg_trigger WHERE NOT tgisinternal OR tgfoid >= 16384
  UNION ALL SELECT ev_class, false FROM pg_rewrite WHERE oid >= 16384 AND ev_type <> '1'
  UNION ALL SELECT oid, false FROM pg_class WHERE relkind = 'f'
  UNION ALL SELECT 0, false FROM pg_operator o JOIN other ON other.oid IN (oprcode, oprrest, oprjoin) WHERE o.oid >= 16384
  UNION ALL SELECT 0, false FROM pg_amproc a JOIN other ON other.oid = amproc WHERE a.oid >= 16384
  UNION ALL SELECT 0, false FROM pg_cast c JOIN other ON other.oid = castfunc WHERE c.oid >= 16384
  UNION ALL SELECT 0, false FROM pg_proc p JOIN other ON other.oid = p.oid
   JOIN pg_type t ON t.oid = CASE WHEN pronargs = 1 AND provariadic <> 0 THEN provariadic ELSE proargtypes[0] END
   WHERE p.oid >= 16384 AND p.pronargs - p.pronargdefaults < 2 AND t.typtype IN ('c', 'd', 'p')
  UNION ALL SELECT 0, false FROM dependent JOIN pg_type ON oid = object
   WHERE class = 'pg_type'::regclass AND (NOT native OR typtype = 'd')
  UNION ALL SELECT adrelid, false FROM pg_attrdef JOIN dependent ON class = 'pg_attrdef'::regclass AND object = oid
  UNION ALL SELECT conrelid, false FROM pg_constraint JOIN dependent ON class = 'pg_constraint'::regclass AND object = oid
  UNION ALL SELECT polrelid, false FROM pg_policy JOIN dependent ON class = 'pg_policy'::regclass AND object = oid
  UNION ALL SELECT ev_class, false FROM pg_rewrite JOIN dependent ON class = 'pg_rewrite'::regclass AND object = oid
  UNION ALL SELECT stxrelid, true FROM pg_statistic_ext JOIN dependent ON class = 'pg_statistic_ext'::regclass AND object = oid
  UNION ALL SELECT coalesce(indrelid, CASE relkind WHEN 'p' THEN 0 ELSE c.oid END), true
   FROM pg_class c JOIN dependent ON class = 'pg_class'::regclass AND object = c.oid LEFT JOIN pg_index ON indexrelid = c.oid
  UNION ALL SELECT relation, planned FROM expressions
   WHERE text ~ (SELECT ':funcid (' || string_agg(oid::text, '|') || ') ' FROM at_will)
  UNION ALL SELECT relation, planned FROM expressions WHERE text ~ (':relid ' || 'pg_settings'::regclass::oid || ' ')),
policies AS (SELECT polrelid FROM pg_policy WHERE polqual::text ~ 'SUBLINK' OR polwithcheck::text ~ 'SUBLINK')
SELECT relation::text FROM code
UNION SELECT conrelid::text FROM pg_constraint JOIN code ON relation = confrelid AND planned WHERE contype = 'f'
UNION SELECT confrelid::text FROM pg_constraint JOIN code ON relation = conrelid AND planned WHERE contype = 'f'
UNION SELECT polrelid::text FROM policies WHERE EXISTS (SELECT FROM code)";

/// See [`Catalog::row_functions`].
const ROW_FUNCTIONS: &str = "
SELECT DISTINCT proname::text FROM pg_proc p JOIN other USING (oid)
 JOIN pg_type t ON t.oid = CASE WHEN pronargs = 1 AND provariadic <> 0 THEN provariadic ELSE proargtypes[0] END
WHERE p.oid >= 16384 AND p.prokind = 'f' AND p.pronargs - p.pronargdefaults < 2 AND t.typtype IN ('c', 'd', 'p')";

/// Tables that are referred to by foreign keys which change other tables' rows: see [`Catalog::acted_on`].
const ACTED_ON: &str = "
SELECT DISTINCT confrelid::text FROM pg_constraint
WHERE contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))";

/// No rows.
const NOTHING: &str = "SELECT NULL::text WHERE false";

/// What is read of a relation besides its own row, by the relation's object id.
#[derive(Default)]
struct Parts {
    identities: HashMap<String, Vec<Arc<str>>>,
    columns: HashMap<String, Vec<(Column, bool)>>,
    composites: HashMap<u32, Composite>,
    versions: HashMap<String, Arc<str>>,
    children: HashMap<String, Vec<TableId>>,
    definitions: HashMap<String, Arc<str>>,
    /// See [`OTHER_CODE`].
    other_code: HashSet<Box<str>>,
}

/// The contents of one snapshot, without the texts of views.
pub(super) struct Shown {
    parts: Parts,
    tables: Rows,
    functions: HashSet<Box<str>>,
    operators: HashSet<Box<str>>,
    row_functions: HashSet<Box<str>>,
    surroundings: Box<str>,
    acted_on: Rows,
    views: Vec<View>,
    effects: Vec<Arc<TypeEffect>>,
    enums: Rows,
    types: Rows,
    trusted: Rows,
}

/// The number of [`queries`].
pub(super) const QUERIES: usize = 17;

/// The queries for everything but the texts of views. `publication`: its name as a literal. `trusts`: functions declared immutable are trusted.
pub(super) fn queries(publication: &str, trusts: bool) -> [String; QUERIES] {
    [
        ["WITH ", CODE, OTHER_CODE].concat(),
        [KNOWN, COMPOSITES].concat(),
        IDENTITIES.to_owned(),
        [KNOWN, COLUMNS].concat(),
        VERSIONS.to_owned(),
        CHILDREN.to_owned(),
        [TABLES, &updates_fail(publication), OF_TABLES].concat(),
        [KNOWN, USER_FUNCTIONS, MAY_BE_MEANT].concat(),
        [KNOWN, USER_OPERATORS, MAY_BE_MEANT].concat(),
        ["WITH ", CODE, ROW_FUNCTIONS].concat(),
        SURROUNDINGS.to_owned(),
        ACTED_ON.to_owned(),
        [KNOWN, CODE, TYPE_EFFECTS].concat(),
        ENUMS.to_owned(),
        TYPES.to_owned(),
        VIEWS.to_owned(),
        if trusts { TRUSTED } else { NOTHING }.to_owned(),
    ]
}

/// Takes their answers, in the order of [`queries`] and of one snapshot.
pub(super) fn shown(answers: [Rows; QUERIES]) -> Result<Shown, ServiceError> {
    let [other_code, composites, identities, columns, versions, children, tables, functions, operators, rest @ ..] =
        answers;
    let [row_functions, surroundings, acted_on, effects, enums, types, views, trusted] = rest;
    let mut parts =
        Parts { other_code: names(other_code), composites: composites::read(composites)?, ..Parts::default() };
    parts.read(identities, columns, versions, children)?;
    let surroundings = names(surroundings).into_iter().next();
    let surroundings = surroundings.ok_or(ServiceError::UnexpectedAnswer("surroundings"))?;
    Ok(Shown {
        views: definitions::views(views, &parts.versions, &surroundings)?,
        parts,
        tables,
        functions: names(functions),
        operators: names(operators),
        row_functions: names(row_functions),
        surroundings,
        acted_on,
        effects: type_effects(effects)?,
        enums,
        types,
        trusted,
    })
}

/// Builds the catalogue, with the texts of views, which are read now.
pub(super) async fn finish(
    shown: Shown,
    connection: &mut Connection,
    definitions: &mut Definitions,
    version: CatalogVersion,
) -> Result<Catalog, ServiceError> {
    let mut parts = shown.parts;
    parts.definitions = definitions.read(connection, shown.views).await?;
    let mut tables = Vec::new();
    for row in shown.tables {
        tables.push(table(texts(row, "tables")?, &mut parts)?);
    }
    let mut catalog = Catalog::new(version, tables, shown.functions, shown.operators);
    catalog.type_effects = shown.effects;
    catalog.row_functions = shown.row_functions;
    catalog.built_in_surroundings = !parts.other_code.contains("0");
    catalog.built_in_code_only = parts.other_code.is_empty();
    for row in shown.acted_on {
        let [table] = texts(row, "foreign keys")?;
        catalog.acted_on.insert(table_id(&table)?);
    }
    for row in shown.trusted {
        let [name, aggregate] = texts(row, "functions")?;
        catalog.trusted.insert(name.into(), aggregate == "true");
    }
    for row in shown.enums {
        let [name, schema, plain] = texts(row, "enums")?;
        let of = if plain == "true" { EnumType::Plain } else { EnumType::Other };
        catalog.enums.entry(name.into()).or_default().insert(schema.into(), of);
    }
    for row in shown.types {
        let [id, name] = texts(row, "types")?;
        catalog.types.insert(id.parse().map_err(|_| ServiceError::UnexpectedAnswer("types"))?);
        catalog.type_names.insert(name.to_lowercase().into());
    }
    catalog.surroundings = shown.surroundings;
    catalog.composites = parts.composites;
    Ok(catalog)
}

impl Parts {
    fn read(&mut self, identities: Rows, columns: Rows, versions: Rows, children: Rows) -> Result<(), ServiceError> {
        for row in identities {
            let [table, column] = texts(row, "replica identities")?;
            self.identities.entry(table).or_default().push(column.into());
        }
        for row in columns {
            let [table, name, value_type, generated, user_type, composite] = texts(row, "columns")?;
            let value_type = value_type_named(&value_type);
            let composite = composite.parse().ok().filter(|composite| self.composites.contains_key(composite));
            let user_type = user_type == "true" && composite.is_none();
            let column = Column { name: name.into(), value_type, generated: generated == "true", composite };
            self.columns.entry(table).or_default().push((column, user_type));
        }
        for row in versions {
            let [table, version] = texts(row, "versions")?;
            self.versions.insert(table, version.into());
        }
        for row in children {
            let [table, child] = texts(row, "children")?;
            self.children.entry(table).or_default().push(table_id(&child)?);
        }
        Ok(())
    }
}

fn table(row: [String; 7], parts: &mut Parts) -> Result<Table, ServiceError> {
    let [id, schema, name, kind, full, row_security, updates_fail] = row;
    let columns = parts.columns.remove(&id).unwrap_or_default();
    let user_types = columns.iter().any(|(_, user_type)| *user_type);
    let columns: Vec<Column> = columns.into_iter().map(|(column, _)| column).collect();
    let identity = parts.identities.remove(&id);
    Ok(Table {
        id: table_id(&id)?,
        schema: schema.into(),
        name: name.into(),
        kind: match kind.as_str() {
            "table" => RelationKind::Table,
            "parent" => RelationKind::Parent,
            "partitioned" => RelationKind::Partitioned,
            "not_logged" => RelationKind::NotLogged,
            "view" => RelationKind::View,
            "matview" => RelationKind::MaterializedView,
            "foreign" => RelationKind::Foreign,
            "system" => RelationKind::System,
            _ => RelationKind::Other,
        },
        key: identity.clone().unwrap_or_default(),
        identity: match identity {
            _ if updates_fail == "true" => ReplicaIdentity::Missing,
            _ if full == "true" => ReplicaIdentity::Full,
            Some(columns) => ReplicaIdentity::Columns(columns),
            None => ReplicaIdentity::Missing,
        },
        row_security: row_security == "true",
        user_types,
        datetime: columns.iter().any(|column| column.value_type.is_date()),
        columns,
        version: parts.versions.remove(&id).unwrap_or_default(),
        definition: parts.definitions.remove(&id),
        children: parts.children.remove(&id).unwrap_or_default(),
        runs_code: parts.other_code.contains(id.as_str()),
        capacities: Vec::new(),
    })
}

fn value_type_named(name: &str) -> ValueType {
    match name {
        "int" => ValueType::Int,
        "numeric" => ValueType::Numeric,
        "float4" => ValueType::Float4,
        "float8" => ValueType::Float8,
        "text" => ValueType::Text,
        "ordered" => ValueType::OrderedText,
        "padded" => ValueType::PaddedText,
        "enum" => ValueType::Enum,
        "bool" => ValueType::Bool,
        "uuid" => ValueType::Uuid,
        "bytea" => ValueType::Bytea,
        "date" => ValueType::Date,
        "timestamp" => ValueType::Timestamp,
        "timestamptz" => ValueType::TimestampTz,
        "datetime" => ValueType::DateTime,
        "timetz" => ValueType::TimeTz,
        _ => ValueType::Other,
    }
}

fn names(rows: Rows) -> HashSet<Box<str>> {
    rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).map(String::into_boxed_str).collect()
}
