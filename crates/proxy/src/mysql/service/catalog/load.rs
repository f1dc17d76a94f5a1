//! Reads the catalogue of a server from `information_schema`: all of it, or some relations.
//!
//! The servers show objects for which the account has a privilege, which differs by view: columns need SELECT, views' texts SHOW VIEW, triggers
//! TRIGGER, and MariaDB hides the rules of foreign keys from accounts that may only read. So a missing row proves nothing: a table without columns,
//! or with hidden columns, is not cached; a foreign key without a rule counts as one that changes rows; and for an account that may not see triggers,
//! every table may have some.
//!
//! Both servers open each table for a query over all of them, but find one by its name: such a query takes less than a millisecond, whatever the
//! number of tables. See [`part`](super::part) for relations that may be read so.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use freshet_net::mysql::Rows;
use freshet_sql::{Code, Quoting, stored_code};
use freshet_types::{
    Catalog, CatalogVersion, Column, RelationKind, ReplicaIdentity, StoredCode, Table, TableId, ValueType,
};

use crate::mysql::MySql;
use crate::mysql::service::catalog::cascades::{ForeignKeys, cascades};
use crate::mysql::service::catalog::definitions;
use crate::mysql::service::catalog::locked::Plan;
use crate::mysql::service::catalog::rows::{NAMES, Name, SYSTEM, question, texts};
use crate::mysql::service::catalog::server::Server;
use crate::mysql::service::connection::{Connection, ServiceError};

const TABLES: &str = "SELECT table_schema, table_name, table_type, engine, create_time, table_collation, create_options \
     FROM information_schema.tables WHERE ";

const COLUMNS: &str = "SELECT table_schema, table_name, ordinal_position, column_name, data_type, column_type, collation_name, extra, \
     generation_expression, is_nullable, IF(column_key = 'PRI', 'PRI', ''), privileges FROM information_schema.columns WHERE ";

/// The account, in the form of the tables of privileges.
macro_rules! grantee {
    () => {
        "CONCAT('''', LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - 1 \
         - CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1))), '''@''', \
         SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')"
    };
}

/// Tables of which the account may read some columns, and perhaps not all.
const PARTLY_READABLE: &str = concat!(
    "SELECT DISTINCT table_schema, table_name FROM information_schema.column_privileges WHERE grantee = ",
    grantee!()
);

const VIEWS: &str = "SELECT table_schema, table_name, view_definition FROM information_schema.views WHERE ";

const TRIGGERS: &str = "SELECT event_object_schema, event_object_table, sql_mode, action_statement \
     FROM information_schema.triggers WHERE ";

/// The account's global privileges to see all triggers and all routines.
const SEES_ALL: &str = concat!(
    "SELECT privilege_type FROM information_schema.user_privileges WHERE privilege_type IN ('TRIGGER', 'SELECT', 'SHOW_ROUTINE', 'SHOW CREATE ROUTINE') \
     AND grantee = ",
    grantee!()
);

/// Code in other languages is not read. Packages have variables of the session, in whatever mode they were made.
const ROUTINES: &str = "SELECT LOWER(routine_name), CONCAT(sql_mode, IF(routine_type LIKE 'PACKAGE%', ',ORACLE', '')), IF(routine_body = 'SQL', routine_definition, '') \
     FROM information_schema.routines";
const LOADABLE_FUNCTIONS: &str = "SELECT LOWER(name) FROM mysql.func";
/// All settings, but for the names of a trigger's rows, and for some that no session can set and that are often the names of columns.
const VARIABLES: &str = "SHOW SESSION VARIABLES WHERE variable_name NOT IN ('new', 'old', 'version', 'port', 'hostname', 'socket', 'license')";

/// Longer texts of views are not analysed.
const VIEW_BYTES_MAX: usize = 65_536;

/// The parts of a catalogue that are not read again with some relations.
#[derive(Clone, Debug, Default)]
pub(super) struct Basis {
    pub(super) foreign_keys: ForeignKeys,
    partly_readable: HashSet<Name>,
    sees_triggers: bool,
    sees_routines: bool,
    sees_loadable: bool,
    /// Relations of which nothing is known, since they were locked.
    pub(super) locked: HashSet<Name>,
    /// The code of routines, triggers and views.
    pub(super) sources: Vec<Source>,
    /// The names of settings.
    variables: Arc<HashSet<Box<str>>>,
}

impl Basis {
    /// What they may make and leave together.
    pub(super) fn stored_code(&self) -> StoredCode {
        let sources = self.sources.iter().map(|source| (&*source.name, source.code.as_deref()));
        let stored = stored_code(sources, &self.variables, self.sees_triggers && self.sees_routines);
        StoredCode { has_unread: !self.locked.is_empty(), has_all_functions: self.sees_loadable, ..stored }
    }
}

/// Code that a name runs.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Its table or view; None: it is a routine.
    pub(super) relation: Option<Name>,
    name: Box<str>,
    /// None: the account may not see it.
    code: Option<Arc<Code>>,
}

impl Source {
    fn new(relation: Option<Name>, name: &str, sql_mode: &str, text: Option<&str>) -> Self {
        let unusual = ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ORACLE"].iter().any(|mode| sql_mode.contains(mode));
        let quoting = if unusual { Quoting::Unknown } else { Quoting::STANDARD };
        let code = text.filter(|text| !text.is_empty()).map(|text| Code::of(text.as_bytes(), quoting));
        // `name := value` may set anything.
        let is_oracle = sql_mode.contains("ORACLE");
        let code = code.map(|code| if is_oracle { code.with(&Code::with_state()) } else { code });
        Self { relation, name: name.into(), code: code.map(Arc::new) }
    }

    /// A loadable function: it makes no tables.
    fn loadable(name: &str) -> Self {
        Self { relation: None, name: name.into(), code: Some(Arc::new(Code::with_state())) }
    }
}

/// What is read of relations besides their own rows.
#[derive(Default)]
struct Parts {
    columns: HashMap<Name, Vec<[String; 10]>>,
    views: HashMap<Name, Arc<str>>,
    triggers: HashSet<Name>,
    sources: Vec<Source>,
}

/// Reads everything.
pub(super) async fn load(
    mysql: &MySql,
    connection: &mut Connection,
    version: CatalogVersion,
    server: &Server,
) -> Result<(Catalog, Basis), ServiceError> {
    let plan = Plan::read(connection).await?;
    let mut basis = Basis { locked: plan.locked.clone(), ..Basis::default() };
    for part in plan.parts() {
        let more = ForeignKeys::read(connection, part).await?;
        basis.foreign_keys = basis.foreign_keys.with_anew(|_| false, more);
    }
    basis.partly_readable = names(connection.query(PARTLY_READABLE).await?, "column privileges")?;
    let sees_all = connection.query(SEES_ALL).await?;
    let sees = |what: &str| sees_all.iter().any(|row| row.first().and_then(Option::as_deref) == Some(what));
    (basis.sees_triggers, basis.sees_routines) =
        (sees("TRIGGER"), sees("SELECT") || sees("SHOW_ROUTINE") || sees("SHOW CREATE ROUTINE"));
    let variables = connection.query(VARIABLES).await?.into_iter().filter_map(|row| row.into_iter().next()?);
    basis.variables = Arc::new(variables.map(|name| name.to_lowercase().into()).collect());
    let mut tables = Vec::new();
    for part in plan.parts() {
        let (read, sources) = read_tables(mysql, connection, server, &basis, part).await?;
        tables.extend(read);
        basis.sources.extend(sources);
    }
    for (schema, name) in &plan.locked {
        // It may be a view, and one of which the text is not known may run anything.
        let unknown = relation(mysql, schema.clone(), name.clone(), RelationKind::View);
        tables.push(Table { runs_code: true, ..unknown });
    }
    let mut numbers: HashMap<TableId, usize> = HashMap::new();
    for table in &tables {
        *numbers.entry(table.id).or_default() += 1;
    }
    for table in &mut tables {
        if table.kind == RelationKind::Table && numbers.get(&table.id) != Some(&1) {
            table.kind = RelationKind::Other;
        }
    }
    for row in connection.query(&format!("{NAMES} IN {SYSTEM}")).await? {
        let [schema, name] = texts(row, "system tables")?;
        tables.push(relation(mysql, schema, name, RelationKind::System));
    }
    let visible: HashSet<Name> = tables.iter().map(name_of).filter(|name| !plan.locked.contains(name)).collect();
    exclude_led_elsewhere(&mut tables, &basis, &visible);
    let functions = read_functions(connection, &mut basis).await?;
    let mut catalog = Catalog::new(version, tables, functions, HashSet::new());
    catalog.surroundings = server.surroundings(basis.sees_triggers);
    catalog.polled = server.polled();
    catalog.ddl_in_stream = true;
    catalog.cascades = cascades(&basis.foreign_keys, |(schema, name)| mysql.table_id(schema, name));
    catalog.stored_code = basis.stored_code();
    Ok((catalog, basis))
}

/// The relations except the servers' own, or those with these names.
pub(super) async fn read_tables(
    mysql: &MySql,
    connection: &mut Connection,
    server: &Server,
    basis: &Basis,
    among: Option<&[Name]>,
) -> Result<(Vec<Table>, Vec<Source>), ServiceError> {
    let mut parts = read_parts(connection, basis, among).await?;
    let rows = connection.query(&question(TABLES, ["table_schema", "table_name"], among)).await?;
    let tables = rows.into_iter().map(|row| Ok(table(mysql, texts(row, "tables")?, &mut parts, server, basis)));
    let tables: Vec<Table> = tables.collect::<Result<_, ServiceError>>()?;
    let mut sources = parts.sources;
    for view in tables.iter().filter(|table| table.kind == RelationKind::View) {
        // Names in texts of views are always in backquotes.
        sources.push(Source::new(Some(name_of(view)), &view.name, "", view.definition.as_deref()));
    }
    Ok((tables, sources))
}

async fn read_parts(connection: &mut Connection, basis: &Basis, among: Option<&[Name]>) -> Result<Parts, ServiceError> {
    let mut parts = Parts::default();
    let own = ["table_schema", "table_name"];
    for row in connection.query(&question(COLUMNS, own, among)).await? {
        let [schema, name, rest @ ..] = texts::<12>(row, "columns")?;
        parts.columns.entry((schema, name)).or_default().push(rest);
    }
    for columns in parts.columns.values_mut() {
        columns.sort_by_key(|[at, ..]| at.parse().unwrap_or(u32::MAX));
    }
    let mut hidden = Vec::new();
    for row in connection.query(&question(VIEWS, own, among)).await? {
        let [schema, name, text] = texts(row, "views")?;
        match text.len() {
            0 => hidden.push((schema, name)),
            1..VIEW_BYTES_MAX => drop(parts.views.insert((schema, name), text.into())),
            _ => {}
        }
    }
    let shown = definitions::shown(connection, &hidden).await?.into_iter();
    parts.views.extend(shown.filter(|(_, text)| text.len() < VIEW_BYTES_MAX).map(|(view, text)| (view, text.into())));
    if basis.sees_triggers {
        let subjects = question(TRIGGERS, ["event_object_schema", "event_object_table"], among);
        for row in connection.query(&subjects).await? {
            let [schema, name, sql_mode, text] = texts(row, "triggers")?;
            let subject = (schema, name);
            parts.sources.push(Source::new(Some(subject.clone()), &subject.1, &sql_mode, Some(&text)));
            parts.triggers.insert(subject);
        }
    }
    Ok(parts)
}

/// Excludes tables whose rows change with those of an invisible table from caching.
pub(super) fn exclude_led_elsewhere(tables: &mut [Table], basis: &Basis, visible: &HashSet<Name>) {
    let led = basis.foreign_keys.leading_elsewhere(|parent| visible.contains(parent));
    for table in tables {
        if table.kind == RelationKind::Table && led.contains(&name_of(table)) {
            table.kind = RelationKind::Other;
        }
    }
}

pub(super) fn name_of(table: &Table) -> Name {
    (table.schema.to_string(), table.name.to_string())
}

/// Functions that are not built in, and their code. Loadable functions need the privilege to read the server's own schema; they do not
/// run with a session's privileges.
async fn read_functions(connection: &mut Connection, basis: &mut Basis) -> Result<HashSet<Box<str>>, ServiceError> {
    let mut functions = HashSet::new();
    for row in connection.query(ROUTINES).await? {
        let [name, sql_mode, text] = texts(row, "routines")?;
        basis.sources.push(Source::new(None, &name, &sql_mode, Some(&text)));
        functions.insert(name.into_boxed_str());
    }
    match connection.query(LOADABLE_FUNCTIONS).await {
        Ok(loadable) => {
            basis.sees_loadable = true;
            for name in loadable.into_iter().filter_map(|row| row.into_iter().next()?) {
                basis.sources.push(Source::loadable(&name));
                functions.insert(name.into());
            }
        }
        Err(error) if error.is_lasting_refusal() => {}
        Err(error) => return Err(error),
    }
    Ok(functions)
}

fn table(mysql: &MySql, row: [String; 7], parts: &mut Parts, server: &Server, basis: &Basis) -> Table {
    let described = row.join("\u{1f}");
    let [schema, name, table_type, engine, .., options] = row;
    let key = (schema, name);
    let columns = parts.columns.remove(&key).unwrap_or_default();
    let may_read = |(at, column): (usize, &[String; 10])| {
        let [position, .., privileges] = column;
        position.parse() == Ok(at + 1) && privileges.split(',').any(|privilege| privilege == "select")
    };
    let readable =
        !columns.is_empty() && !basis.partly_readable.contains(&key) && columns.iter().enumerate().all(may_read);
    let kind = match table_type.as_str() {
        "VIEW" => RelationKind::View,
        "SYSTEM VIEW" => RelationKind::System,
        "BASE TABLE" if !engine.eq_ignore_ascii_case("InnoDB") || !server.logs_everything() => RelationKind::NotLogged,
        "BASE TABLE" if readable => RelationKind::Table,
        // Also tables with system versioning: their deletions are logged as updates, of columns that need not be visible.
        _ => RelationKind::Other,
    };
    let mut version = described;
    for column in &columns {
        version.push('\u{1e}');
        version.push_str(&column.join("\u{1f}"));
    }
    version.push_str(basis.foreign_keys.of(&key));
    let definition = parts.views.remove(&key);
    let runs_code = !basis.sees_triggers || parts.triggers.contains(&key);
    let primary: Vec<Arc<str>> =
        columns.iter().filter(|[.., of_key, _]| of_key == "PRI").map(|[_, name, ..]| name.as_str().into()).collect();
    let in_parts = options.to_ascii_lowercase().contains("partition");
    let capacities = if in_parts { Vec::new() } else { columns.iter().map(capacity).collect() };
    let columns = columns.iter().map(column).collect();
    let (schema, name) = key;
    let whole = primary.is_empty() || !server.logs_keys_only();
    Table {
        columns,
        identity: if whole { ReplicaIdentity::Full } else { ReplicaIdentity::Columns(primary.clone()) },
        key: primary,
        version: version.into(),
        definition,
        runs_code,
        capacities,
        ..relation(mysql, schema, name, kind)
    }
}

fn relation(mysql: &MySql, schema: String, name: String, kind: RelationKind) -> Table {
    Table {
        id: mysql.table_id(&schema, &name),
        schema: schema.into(),
        name: name.into(),
        kind,
        // The row image itself marks missing columns.
        identity: ReplicaIdentity::Full,
        key: Vec::new(),
        row_security: false,
        user_types: false,
        datetime: false,
        columns: Vec::new(),
        version: Arc::default(),
        definition: None,
        children: Vec::new(),
        runs_code: false,
        capacities: Vec::new(),
    }
}

fn column([_, name, data_type, column_type, collation, extra, ..]: &[String; 10]) -> Column {
    let collation = Some(collation.as_str()).filter(|name| !name.is_empty());
    Column {
        name: name.as_str().into(),
        value_type: ValueType::of_mysql_column(data_type, column_type, collation),
        // In the row images, but computed for the log alone: not stored.
        generated: extra.contains("VIRTUAL GENERATED"),
        composite: None,
    }
}

/// See [`Table::capacities`].
fn capacity([_, _, data_type, column_type, _, extra, ..]: &[String; 10]) -> u64 {
    let length = || column_type.split_once('(')?.1.split_once(')')?.0.parse().ok();
    match data_type.to_ascii_lowercase().as_str() {
        _ if extra.contains("GENERATED") => 0,
        "tinyint" => 0x7f,
        "smallint" => 0x7fff,
        "mediumint" => 0x7f_ffff,
        "int" => 0x7fff_ffff,
        "bigint" => i64::MAX.unsigned_abs(),
        "char" | "varchar" | "varbinary" => length().unwrap_or(0),
        "text" | "mediumtext" | "longtext" | "blob" | "mediumblob" | "longblob" => 0xff,
        _ => 0,
    }
}

fn names(rows: Rows, what: &'static str) -> Result<HashSet<Name>, ServiceError> {
    rows.into_iter().map(|row| texts(row, what).map(|[schema, name]| (schema, name))).collect()
}
