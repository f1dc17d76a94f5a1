//! PostgreSQL: statements that change settings and whose answers show nothing of the database: `SET TimeZone TO 'UTC'`,
//! `SELECT set_config('TimeZone', 'UTC', false)`. A session begins with them, and its first read is served from the cache without a question for the
//! log end.
//!
//! The server looks the values of these settings up in no table. Others tell by an error whether a role, a tablespace, a conversion or a text search
//! configuration exists, and so what was committed.

use freshet_types::Dialect;
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, SelectItem, SetExpr, Value};

use crate::allowlist::names::built_in_name;
use crate::lex::postgres::{Kind, Token};
use crate::predicate::syntax::parameter;

/// These settings, in lower case.
const SILENT: &[&str] = &[
    "application_name",
    "backslash_quote",
    "bytea_output",
    "client_min_messages",
    "datestyle",
    "escape_string_warning",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "search_path",
    "standard_conforming_strings",
    "statement_timeout",
    "timezone",
    "transaction_timeout",
    "work_mem",
    "xmlbinary",
    "xmloption",
];

/// What a statement that changes settings says about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sets {
    /// It may do anything.
    #[default]
    Unknown,
    /// It is SET or RESET of one of these settings.
    Silent,
    /// It only calls `set_config`, for the settings that these parameters name.
    Named(Vec<u32>),
}

impl Sets {
    /// Whether it changes only these settings. `constant`: the string constant that stands for a parameter.
    pub(crate) fn are_silent<'v>(&self, constant: impl Fn(u32) -> Option<&'v [u8]>) -> bool {
        let is_silent = |name: &[u8]| SILENT.iter().any(|silent| silent.as_bytes().eq_ignore_ascii_case(name));
        match self {
            Self::Unknown => false,
            Self::Silent => true,
            Self::Named(names) => names.iter().all(|number| constant(*number).is_some_and(is_silent)),
        }
    }

    /// Of `SET` and `RESET`; `words` are those of the statement, and a token that is not a word is empty.
    pub(crate) fn of_set(tokens: &[Token<'_>], words: &[&str]) -> Self {
        let (["set", "session" | "local", name @ ..] | ["set" | "reset", name @ ..]) = words else {
            return Self::Unknown;
        };
        let is_silent = matches!(name, ["time", "zone", ..]) || name.first().is_some_and(|name| SILENT.contains(name));
        let is_read = !tokens.iter().any(|token| token.kind == Kind::Hopeless);
        if is_silent && is_read { Self::Silent } else { Self::Unknown }
    }

    /// Of a query.
    pub(crate) fn of_query(query: &Query) -> Self {
        Self::by_calls(query).map_or(Self::Unknown, Self::Named)
    }

    fn by_calls(query: &Query) -> Option<Vec<u32>> {
        let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = query else {
            return None;
        };
        let SetExpr::Select(select) = &**body else { return None };
        let is_plain = select.from.is_empty() && select.selection.is_none() && select.having.is_none();
        is_plain.then(|| select.projection.iter().map(named_by).collect()).flatten()
    }
}

/// The parameter that names the setting in `set_config($1, $2, false)`.
fn named_by(item: &SelectItem) -> Option<u32> {
    let (SelectItem::UnnamedExpr(Expr::Function(function))
    | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. }) = item
    else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    let [name, value, local] = list.args.as_slice() else { return None };
    let is_constant = |arg: &FunctionArg| expr(arg).is_some_and(|expr| matches!(expr, Expr::Value(_)));
    let is_boolean = matches!(expr(local)?, Expr::Value(value) if matches!(value.value, Value::Boolean(_)));
    let is_call = built_in_name(Dialect::Postgres, &function.name) == Some("set_config") && function.over.is_none();
    parameter(expr(name)?).filter(|_| is_call && is_boolean && is_constant(value) && list.clauses.is_empty())
}

fn expr(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::lex::normalize::lex;
    use crate::statement::template::Template;
    use freshet_types::{Catalog, Dialect};

    fn is_silent(text: &str) -> bool {
        let lexed = lex(Dialect::Postgres, text);
        let template = Template::parse(Dialect::Postgres, &lexed.normalized);
        let literal = |number: u32| lexed.literals.get(number as usize - 1).map(|literal| &*literal.text);
        template.sets_silently(&Catalog::default(), literal)
    }

    #[test]
    fn settings_that_are_looked_up_nowhere_are_silent() {
        for text in [
            "set timezone to 'UTC'",
            "SET TimeZone = default",
            "set session time zone 'Europe/Berlin'",
            "set local statement_timeout = 100",
            "set time zone interval '+01:00' hour to minute",
            "reset search_path",
            "SET standard_conforming_strings = on;",
            "select set_config('TimeZone', 'UTC', false)",
            "SELECT pg_catalog.set_config('search_path', '', false), set_config('datestyle', 'ISO', true) AS d",
        ] {
            assert!(is_silent(text), "{text}");
        }
        for text in [
            "set role reader",
            "set session authorization reader",
            "set default_tablespace = 'fast'",
            "set client_encoding = 'LATIN1'",
            "set session characteristics as transaction read only",
            "set app.user = '1'",
            "reset all",
            "set \"timezone\" = 'UTC'",
            "set timezone = 'UTC'; select 1",
            "select set_config('role', 'reader', false)",
            "select set_config('timezone', name, false) from zones",
            "select set_config('timezone', (select 'UTC'), false)",
            "select set_config('timezone', 'UTC', false), count(*) from zones",
            "select set_config('timezone', 'UTC', false) where exists (select from zones)",
            "select 1",
        ] {
            assert!(!is_silent(text), "{text}");
        }
    }
}
