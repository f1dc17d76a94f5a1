//! Queries of `information_schema` and the rows of their answers.

use freshet_net::mysql::{Rows, quote_text};

use crate::mysql::service::connection::{Connection, ServiceError};

/// Schema and name, as the catalogue spells them.
pub(super) type Name = (String, String);

/// The servers' own schemas.
pub(super) const SYSTEM: &str = "('mysql', 'information_schema', 'performance_schema', 'sys')";

pub(super) const NAMES: &str = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema ";

/// A query up to its last condition, for all but the servers' own schemas, or for some names, which are compared with these columns.
pub(super) fn question(select: &str, [schema, name]: [&str; 2], among: Option<&[Name]>) -> String {
    let Some(among) = among else { return format!("{select}{schema} NOT IN {SYSTEM}") };
    // One query for each name: only a comparison with a constant avoids a scan of all tables.
    let one = |(s, n): &Name| format!("{select}{schema} = {} AND {name} = {}", quote_text(s), quote_text(n));
    let all: Vec<String> = among.iter().map(one).collect();
    all.join(" UNION ALL ")
}

/// The values of a row; NULL is empty.
pub(super) fn texts<const N: usize>(row: Vec<Option<String>>, what: &'static str) -> Result<[String; N], ServiceError> {
    let texts: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
    texts.try_into().map_err(|_| ServiceError::UnexpectedAnswer(what))
}

pub(super) fn first(rows: &Rows) -> Option<&str> {
    rows.first()?.first()?.as_deref()
}

/// The visible relations, except the servers' own.
pub(super) async fn read_names(connection: &mut Connection) -> Result<Vec<Name>, ServiceError> {
    let rows = connection.query(&format!("{NAMES} NOT IN {SYSTEM}")).await?;
    rows.into_iter().map(|row| texts(row, "tables").map(|[schema, name]| (schema, name))).collect()
}
