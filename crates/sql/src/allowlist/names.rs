//! Names of functions, as written in the text.

use freshet_types::Dialect;
use sqlparser::ast::ObjectName;

/// The name of a function that may be built in: unqualified, or in `pg_catalog`; unquoted in MySQL.
pub(crate) fn built_in_name(dialect: Dialect, name: &ObjectName) -> Option<&str> {
    if dialect.is_mysql_family() {
        return native_name(name);
    }
    let ident = |at: usize| name.0.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match (name.0.len(), ident(0)?) {
        (1, name) => Some(name),
        (2, "pg_catalog") => ident(1),
        _ => None,
    }
}

/// The name of a native function: unqualified and without quotes.
pub(crate) fn native_name(name: &ObjectName) -> Option<&str> {
    match name.0.as_slice() {
        [part] => part.as_ident().filter(|ident| ident.quote_style.is_none()).map(|ident| ident.value.as_str()),
        _ => None,
    }
}

/// The function's name without its schema, if the function may be user-defined.
pub(crate) fn made_name(name: &ObjectName) -> Option<&str> {
    let ident = |at: usize| name.0.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match name.0.len() {
        1 => ident(0),
        2 if ident(0)? != "pg_catalog" => ident(1),
        _ => None,
    }
}
