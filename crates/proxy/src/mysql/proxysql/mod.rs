//! ProxySQL's tables of statistics, as far as Freshet knows what they say.
//!
//! Dashboards and collectors for ProxySQL read them over the client's protocol, on a port of its own. Freshet answers on its only port, so a statement is
//! taken for one of these only if its user is an admin, and only if the database has no table of that name. Columns, their order and the
//! words in them are ProxySQL's (`doc/admin_tables.md` and `lib/ProxySQL_Admin.cpp` of its repository); there, too, all values are text.
//! As in ProxySQL, hits have hostgroup -1; what the database answered has hostgroup 0.

mod query;
mod tables;

use freshet_sql::StatsStatement;

use crate::mysql::MySql;

/// An answer: the names of its columns, and its rows.
pub(super) type Answer = (Vec<String>, Vec<Vec<Option<String>>>);

/// Whether the database has the table itself, as far as is known: then the statement is the server's. `current`: the schema in force; empty if that is
/// not known or there is none.
pub(super) fn is_in_database(mysql: &MySql, current: &str, statement: &StatsStatement) -> bool {
    let wanted = if statement.is_qualified { "stats" } else { current };
    let in_schema = |schema: &str| wanted.is_empty() || schema.eq_ignore_ascii_case(wanted);
    let catalog = mysql.catalog.load();
    catalog.tables().any(|table| table.name.eq_ignore_ascii_case(statement.table) && in_schema(&table.schema))
}

/// The answer, or what is wrong with the statement.
pub(super) fn answer(mysql: &MySql, statement: &StatsStatement) -> Result<Answer, String> {
    let wrong = |message: &String| format!("{}: {message}", statement.table);
    let query = statement.query.as_ref().map_err(wrong)?;
    let table = tables::read(mysql, statement.table)?;
    query::run(&table, query).map_err(|message| wrong(&message))
}
