//! Reads the catalogue, and notices when it changed.
//!
//! DDL, GRANT and role changes are not in the change stream, so a fingerprint of everything that verdicts rest on
//! is read every [`TICK`]: object ids with the transaction that wrote each catalogue row last (in-place updates such
//! as those of VACUUM and ANALYZE leave it alone). The lease counts from the last fingerprint found unchanged, so no
//! answer outlives a change of the catalogue by more than D. A change is treated as a commit that matches everything.
//!
//! The catalogue is loaded in one snapshot together with the fingerprint that stands for it: verdicts made from it
//! are void as soon as a later fingerprint differs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use freshet_model::{Catalog, CatalogVersion, Column, RelationKind, ReplicaIdentity, Table, TableId, ValueType};
use freshet_net::pg::Rows;

use crate::service::connection::{Connection, Once, ServiceError};
use crate::service::coverage::{published_sql, read_published};
use crate::shared::Shared;

/// Time between fingerprints.
const TICK: Duration = Duration::from_millis(250);

/// Objects of the system's own have smaller ids (`FirstNormalObjectId`).
const FINGERPRINT: &str = "
WITH versions(v) AS (
  SELECT 'c' || oid || ' ' || xmin FROM pg_class
   WHERE oid >= 16384 AND relpersistence <> 't' AND relkind IN ('r', 'p', 'v', 'm', 'f')
  UNION ALL SELECT 'i' || i.indexrelid || ' ' || i.xmin FROM pg_index i
   JOIN pg_class c ON c.oid = i.indrelid
   WHERE c.oid >= 16384 AND c.relpersistence <> 't' AND c.relkind = 'r' AND (i.indisprimary OR i.indisreplident)
  UNION ALL SELECT 'a' || a.attrelid || ' ' || a.attnum || ' ' || a.xmin FROM pg_attribute a
   JOIN pg_class c ON c.oid = a.attrelid
   WHERE c.oid >= 16384 AND c.relpersistence <> 't' AND c.relkind IN ('r', 'p') AND a.attnum > 0
  UNION ALL SELECT 't' || oid || ' ' || xmin FROM pg_type
   WHERE oid >= 16384 AND typtype IN ('b', 'd', 'e', 'r') AND typelem = 0
  UNION ALL SELECT 'e' || oid || ' ' || xmin FROM pg_enum
  UNION ALL SELECT 'p' || oid || ' ' || xmin FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT 'o' || oid || ' ' || xmin FROM pg_operator WHERE oid >= 16384
  UNION ALL SELECT 'k' || oid || ' ' || xmin FROM pg_cast WHERE oid >= 16384
  UNION ALL SELECT 'l' || oid || ' ' || xmin FROM pg_collation WHERE oid >= 16384
  UNION ALL SELECT 'n' || oid || ' ' || xmin FROM pg_namespace
   WHERE oid >= 2200 AND nspname !~ '^pg_(toast_)?temp_'
  UNION ALL SELECT 'r' || oid || ' ' || rolname || ' ' || rolsuper || rolinherit || rolbypassrls FROM pg_roles
  UNION ALL SELECT 'm' || roleid || ' ' || member || ' ' || xmin FROM pg_auth_members
)
SELECT count(*) || ' ' || coalesce(sum(hashtextextended(v, 0)), 0) || ' ' || extract(epoch from pg_conf_load_time())
FROM versions";

const TABLES: &str = "
SELECT c.oid::text, n.nspname::text, c.relname::text,
  CASE WHEN n.nspname IN ('pg_catalog', 'information_schema') OR n.nspname ~ '^pg_toast' THEN 'system'
       WHEN c.relkind = 'r' AND c.relpersistence <> 'p' THEN 'not_logged'
       WHEN c.relkind = 'r' AND c.relhassubclass THEN 'parent'
       WHEN c.relkind = 'r' THEN 'table' WHEN c.relkind = 'p' THEN 'partitioned'
       WHEN c.relkind = 'v' THEN 'view' WHEN c.relkind = 'm' THEN 'matview'
       WHEN c.relkind = 'f' THEN 'foreign' ELSE 'other' END,
  (c.relreplident = 'f')::text, c.relrowsecurity::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c') AND n.nspname !~ '^pg_(toast_)?temp_'";

const IDENTITIES: &str = "
SELECT c.oid::text, a.attname::text FROM pg_class c
JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
 AND ((c.relreplident = 'd' AND i.indisprimary) OR (c.relreplident = 'i' AND i.indisreplident))
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])
WHERE c.oid >= 16384 AND c.relkind = 'r'";

/// Value types are those of [`ValueType`]; the OIDs are from PostgreSQL's `pg_type.dat` and never change.
const COLUMNS: &str = "
SELECT a.attrelid::text, a.attname::text,
  CASE WHEN b.oid IN (1082, 1083, 1114, 1184, 1266, 1182, 1183, 1115, 1185, 1270, 3908, 3909, 3910, 3911, 3912, 3913)
       THEN 'datetime'
       WHEN t.typtype = 'd' THEN 'other'
       WHEN t.oid IN (20, 21, 23) THEN 'int' WHEN t.oid = 1700 THEN 'numeric'
       WHEN t.oid IN (25, 1043) AND l.collisdeterministic THEN 'text'
       WHEN t.oid = 1042 AND l.collisdeterministic THEN 'padded'
       WHEN t.typtype = 'e' THEN 'enum' WHEN t.oid = 16 THEN 'bool' WHEN t.oid = 2950 THEN 'uuid'
       ELSE 'other' END,
  (a.attgenerated <> '')::text,
  (b.typnamespace <> 'pg_catalog'::regnamespace AND b.typtype <> 'e')::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.oid >= 16384 AND c.relkind = 'r' AND c.relpersistence <> 't' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum";

const USER_FUNCTIONS: &str = "
SELECT DISTINCT p.proname::text FROM pg_proc p WHERE p.pronamespace <> 'pg_catalog'::regnamespace
AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) AS g(oid) JOIN pg_type t ON t.oid = g.oid
  WHERE t.typnamespace <> 'pg_catalog'::regnamespace AND t.typtype <> 'e')";

const USER_OPERATORS: &str = "
SELECT DISTINCT o.oprname::text FROM pg_operator o WHERE o.oprnamespace <> 'pg_catalog'::regnamespace
AND NOT EXISTS (SELECT FROM pg_type t WHERE t.oid IN (o.oprleft, o.oprright)
  AND t.typnamespace <> 'pg_catalog'::regnamespace AND t.typtype <> 'e')";

/// Watches the catalogue and the publication, for ever.
pub async fn watch_catalog(shared: Arc<Shared>) {
    let mut watch = Watch {
        connection: Connection::new(shared.clone()),
        loaded: None,
        version: CatalogVersion(0),
        publication: None,
        shared,
    };
    let mut once = Once::default();
    loop {
        match watch.round().await {
            Ok(()) => once.clear(),
            Err(error) => once.warn("cannot read the catalogue", &error),
        }
        tokio::time::sleep(TICK).await;
    }
}

struct Watch {
    shared: Arc<Shared>,
    connection: Connection,
    /// The fingerprint of the catalogue in use.
    loaded: Option<String>,
    version: CatalogVersion,
    /// The version of the publication's own row.
    publication: Option<String>,
}

impl Watch {
    async fn round(&mut self) -> Result<(), ServiceError> {
        if self.shared.cache.epoch().is_none() {
            return Ok(());
        }
        let asked_at = self.shared.clock.now();
        self.watch_publication().await?;
        let fingerprint = scalar(&self.connection.query(FINGERPRINT).await?)?;
        if self.loaded.as_ref() == Some(&fingerprint) {
            self.shared.cache.catalog_unchanged(self.version, asked_at);
        } else {
            self.load().await?;
        }
        Ok(())
    }

    async fn load(&mut self) -> Result<(), ServiceError> {
        self.loaded = None;
        self.shared.cache.catalog_changed();
        let asked_at = self.shared.clock.now();
        self.connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let read = self.read().await;
        self.connection.query("COMMIT").await?;
        let (fingerprint, catalog) = read?;
        tracing::debug!(version = catalog.version.0, "catalogue loaded");
        self.version = catalog.version;
        self.shared.use_catalog(catalog);
        self.shared.cache.catalog_loaded(self.version, asked_at);
        self.loaded = Some(fingerprint);
        Ok(())
    }

    async fn read(&mut self) -> Result<(String, Catalog), ServiceError> {
        let fingerprint = scalar(&self.connection.query(FINGERPRINT).await?)?;
        let mut identities: HashMap<String, Vec<Arc<str>>> = HashMap::new();
        for row in self.connection.query(IDENTITIES).await? {
            let [table, column] = texts(row, "replica identities")?;
            identities.entry(table).or_default().push(column.into());
        }
        let mut columns: HashMap<String, Vec<(Column, bool)>> = HashMap::new();
        for row in self.connection.query(COLUMNS).await? {
            let [table, name, value_type, generated, user_type] = texts(row, "columns")?;
            let value_type = value_type_named(&value_type);
            let column = Column { name: name.into(), value_type, generated: generated == "true" };
            columns.entry(table).or_default().push((column, user_type == "true"));
        }
        let mut tables = Vec::new();
        for row in self.connection.query(TABLES).await? {
            let row = texts(row, "tables")?;
            let identity = identities.remove(&row[0]);
            let columns = columns.remove(&row[0]).unwrap_or_default();
            tables.push(table(row, identity, columns)?);
        }
        let functions = names(self.connection.query(USER_FUNCTIONS).await?);
        let operators = names(self.connection.query(USER_OPERATORS).await?);
        let version = CatalogVersion(self.version.0 + 1);
        Ok((fingerprint, Catalog::new(version, tables, functions, operators)))
    }

    /// Any change of the publication by others voids what rests on it.
    async fn watch_publication(&mut self) -> Result<(), ServiceError> {
        let sql = format!(
            "{} UNION ALL SELECT '0', xmin::text FROM pg_catalog.pg_publication WHERE pubname = {}",
            published_sql(&self.shared),
            self.shared.publication_literal()
        );
        let mut published = read_published(self.connection.query(&sql).await?);
        let own = published.remove(&TableId(0));
        if self.publication.is_some() && own != self.publication {
            tracing::warn!("the publication was changed by somebody else: starting the change stream again");
            self.shared.restart_stream.notify_one();
        }
        self.publication = own;
        let lost = self.shared.lost_publications(&published);
        if !lost.is_empty() {
            tracing::warn!(
                tables = lost.len(),
                "tables are not in the publication any more as they were (dropped, or taken out)"
            );
            self.shared.cache.uncover(&lost);
            self.shared.coverage_wanted.notify_one();
        }
        Ok(())
    }
}

fn table(
    row: [String; 6],
    identity: Option<Vec<Arc<str>>>,
    columns: Vec<(Column, bool)>,
) -> Result<Table, ServiceError> {
    let [id, schema, name, kind, full, row_security] = row;
    let user_types = columns.iter().any(|(_, user_type)| *user_type);
    let columns: Vec<Column> = columns.into_iter().map(|(column, _)| column).collect();
    Ok(Table {
        id: TableId(id.parse().map_err(|_| ServiceError::Shape("tables"))?),
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
        identity: match identity {
            _ if full == "true" => ReplicaIdentity::Full,
            Some(columns) => ReplicaIdentity::Columns(columns),
            None => ReplicaIdentity::Missing,
        },
        row_security: row_security == "true",
        user_types,
        datetime: columns.iter().any(|column| column.value_type == ValueType::DateTime),
        columns,
    })
}

fn value_type_named(name: &str) -> ValueType {
    match name {
        "int" => ValueType::Int,
        "numeric" => ValueType::Numeric,
        "text" => ValueType::Text,
        "padded" => ValueType::PaddedText,
        "enum" => ValueType::Enum,
        "bool" => ValueType::Bool,
        "uuid" => ValueType::Uuid,
        "datetime" => ValueType::DateTime,
        _ => ValueType::Other,
    }
}

fn scalar(rows: &Rows) -> Result<String, ServiceError> {
    rows.first().and_then(|row| row.first()).cloned().flatten().ok_or(ServiceError::Shape("the fingerprint"))
}

fn texts<const N: usize>(row: Vec<Option<String>>, what: &'static str) -> Result<[String; N], ServiceError> {
    let texts: Vec<String> = row.into_iter().flatten().collect();
    texts.try_into().map_err(|_| ServiceError::Shape(what))
}

fn names(rows: Rows) -> HashSet<Box<str>> {
    rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).map(String::into_boxed_str).collect()
}
