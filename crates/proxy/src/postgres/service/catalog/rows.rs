//! Rows of catalogue queries.

use freshet_types::TableId;

use crate::postgres::service::connection::ServiceError;

pub(super) fn texts<const N: usize>(row: Vec<Option<String>>, what: &'static str) -> Result<[String; N], ServiceError> {
    let texts: Vec<String> = row.into_iter().flatten().collect();
    texts.try_into().map_err(|_| ServiceError::UnexpectedAnswer(what))
}

pub(super) fn table_id(text: &str) -> Result<TableId, ServiceError> {
    text.parse().map(TableId).map_err(|_| ServiceError::UnexpectedAnswer("tables"))
}
