//! Writes that run built-in code only, and so do not change the session's settings and temporary tables.
//!
//! After any other write Freshet has to read the session's settings again, since a trigger, a default or a function may have changed them; this query
//! costs the database as much as the write of a row. The tokens of the text show what it calls; the catalogue shows what tables, views, types and
//! operators call. If only relations call code ([`freshet_types::Catalog::built_in_surroundings`]), writes to a table without such code are as plain
//! as if there were none: most databases have a trigger somewhere, or a view of an extension.
//!
//! The same facts give the tables that such a write may touch: without triggers, rules and functions these are the named table with its partitions
//! and children, and the tables that foreign keys change with it.

use crate::allowlist::FunctionClass;
use crate::allowlist::functions::function_class;
use crate::lex::postgres::{Kind, Token};
use crate::statement::parser_bounds::NAME_LEN_MAX;
use crate::statement::relations::family;
use std::sync::Arc;

use freshet_types::{Catalog, RelationKind, Table};

/// The relation that a write names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    schema: Option<Box<str>>,
    name: Box<str>,
    /// Existing rows do not change.
    inserts_only: bool,
    /// The statement names no other relation.
    pub(crate) alone: bool,
}

impl Target {
    /// All tables whose rows the write may change; None if it may change others as well.
    pub(crate) fn tables(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<Arc<Table>>> {
        let table = match &self.schema {
            Some(schema) => catalog.in_schema(schema, &self.name),
            None => catalog.resolve(schemas.iter().map(|schema| &**schema), &self.name),
        };
        let family = family(catalog, table?)?;
        let kinds = [RelationKind::Table, RelationKind::Parent, RelationKind::Partitioned, RelationKind::NotLogged];
        let stays = |id| self.inserts_only || !catalog.acted_on.contains(id);
        family.iter().all(|member| kinds.contains(&member.kind) && stays(&member.id)).then_some(family)
    }
}

/// The relation that an INSERT, UPDATE or DELETE names; None if the server might read another name.
pub(crate) fn target(tokens: &[Token<'_>]) -> Option<Target> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|t| t.kind == Kind::Word && t.text == text);
    let begin = match tokens.first().filter(|token| token.kind == Kind::Word)?.text {
        "insert" if is(1, "into") => 2,
        "delete" if is(1, "from") => 2 + usize::from(is(2, "only")),
        "update" => 1 + usize::from(is(1, "only")),
        _ => return None,
    };
    let first = plain_name(tokens.get(begin)?)?;
    let qualified = tokens.get(begin + 1).is_some_and(|token| token.kind == Kind::Symbol(b'.'));
    let (schema, name, end) = if qualified {
        (Some(first), plain_name(tokens.get(begin + 2)?)?, begin + 3)
    } else {
        (None, first, begin + 1)
    };
    // Any other token may still belong to the name.
    let ends = |token: &Token<'_>| matches!(token.kind, Kind::Word | Kind::Quoted | Kind::Symbol(b'(' | b';'));
    // Other relations follow FROM or USING. Queries inside do not matter here: see [`calls`].
    let named_by = if is(0, "delete") { 2 } else { 0 };
    let others = |token: &Token<'_>| token.kind == Kind::Word && matches!(token.text, "from" | "using");
    let alone = !tokens.iter().skip(named_by).any(others);
    let inserts_only = is(0, "insert") && !tokens.iter().any(|token| token.text == "conflict");
    tokens.get(end).is_none_or(ends).then_some(Target { schema, name, inserts_only, alone })
}

/// A name that the server reads exactly as written.
fn plain_name(token: &Token<'_>) -> Option<Box<str>> {
    let name = match token.kind {
        Kind::Word if !token.text.bytes().any(|byte| byte.is_ascii_uppercase()) => token.text.into(),
        Kind::Quoted => token.text.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\""),
        _ => return None,
    };
    (name.is_ascii() && name.len() <= NAME_LEN_MAX).then(|| name.into())
}

/// Reserved words that a parenthesis may follow, and VALUES: none of them can be a called function's name.
const BEFORE_BRACKETS: &[&str] = &[
    "all",
    "and",
    "any",
    "as",
    "case",
    "distinct",
    "else",
    "from",
    "in",
    "not",
    "on",
    "or",
    "returning",
    "some",
    "then",
    "using",
    "values",
    "when",
    "where",
];

/// The functions that an INSERT, UPDATE or DELETE calls by name, all of which are harmless if they are built in. None if it may call others, or is
/// another statement.
pub(crate) fn calls(tokens: &[Token<'_>]) -> Option<Box<[Box<str>]>> {
    let word = |at: usize| tokens.get(at).filter(|token| token.kind == Kind::Word).map(|token| token.text);
    let begin = match word(0)? {
        "insert" if word(1) == Some("into") => behind_name(tokens, 2),
        "update" | "delete" => 1,
        _ => return None,
    };
    let mut calls: Vec<Box<str>> = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        let bracket = tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Symbol(b'('));
        match token.kind {
            Kind::Hopeless => return None,
            Kind::Symbol(b';') if at + 1 < tokens.len() => return None,
            // A rule of the server: an update of this view calls `set_config`.
            Kind::Word | Kind::Quoted if token.text.contains("pg_settings") => return None,
            // A query inside may read views, and a qualified name may be any function.
            Kind::Word if matches!(token.text, "select" | "with" | "table") => return None,
            Kind::Quoted if bracket => return None,
            Kind::Word if bracket => {
                let name = token.text;
                let conflict = name == "conflict" && at.checked_sub(1).and_then(word) == Some("on");
                if conflict || BEFORE_BRACKETS.contains(&name) {
                    continue;
                }
                let qualified =
                    at.checked_sub(1).and_then(|at| tokens.get(at)).is_some_and(|t| t.kind == Kind::Symbol(b'.'));
                if qualified || matches!(function_class(name), FunctionClass::Settings | FunctionClass::Unknown) {
                    return None;
                }
                calls.push(name.into());
            }
            _ => {}
        }
    }
    Some(calls.into())
}

/// The position behind a relation's name and its alias.
fn behind_name(tokens: &[Token<'_>], mut at: usize) -> usize {
    let is = |at: usize, kind: Kind, text: &str| tokens.get(at).is_some_and(|t| t.kind == kind && t.text == text);
    at += 1;
    while is(at, Kind::Symbol(b'.'), ".") {
        at += 2;
    }
    if is(at, Kind::Word, "as") { at + 2 } else { at }
}

#[cfg(test)]
mod tests {
    use freshet_types::Dialect;

    use super::*;
    use crate::lex::tokens::Tokens;

    fn called(text: &str) -> Option<Vec<String>> {
        let tokens: Vec<Token<'_>> = Tokens::of(Dialect::Postgres, text).collect();
        calls(&tokens).map(|calls| calls.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn writes_of_rows_call_what_their_text_says() {
        let none: Vec<String> = Vec::new();
        for text in [
            "update t set a = a + $1, b = 'x' where (id = $2) and c in (1, 2) returning a",
            "insert into t (a, b) values ($1, $2), ($3, default)",
            "insert into \"s\".\"t\" (\"a\") values (1) on conflict (a) do update set a = excluded.a where (t.a > 1)",
            "insert into s.t as x (a) values (1) returning x.a",
            "insert into t default values",
            "delete from t where a = any ($1) or not (b > 2)",
            "delete from only t using u where t.id = u.id",
            "delete from t;",
        ] {
            assert_eq!(called(text), Some(none.clone()), "{text}");
        }
        assert_eq!(called("update t set a = lower($1), b = now()").unwrap(), ["lower", "now"]);
        assert_eq!(called("insert into t values (nextval('s'), coalesce($1, 0))").unwrap(), ["nextval", "coalesce"]);
    }

    #[test]
    fn the_relation_that_is_written_is_told_where_its_name_is_plain() {
        let told = |text: &str| {
            let tokens: Vec<Token<'_>> = Tokens::of(Dialect::Postgres, text).collect();
            target(&tokens).map(|t| {
                (t.schema.map(String::from).unwrap_or_default(), String::from(t.name), t.inserts_only, t.alone)
            })
        };
        for (text, schema, name, inserts_only, alone) in [
            ("update t set a = 1", "", "t", false, true),
            ("update only s.t as x set a = 1", "s", "t", false, true),
            ("update \"T\"\"x\" set a = 1", "", "T\"x", false, true),
            ("update t set a = u.a from u where u.id = t.id", "", "t", false, false),
            ("delete from t", "", "t", false, true),
            ("delete from only t where a = 1", "", "t", false, true),
            ("delete from t using u where u.id = t.id", "", "t", false, false),
            ("insert into s.t (a) values (1)", "s", "t", true, true),
            ("insert into t default values", "", "t", true, true),
            ("insert into t values (1) on conflict do nothing", "", "t", false, true),
        ] {
            assert_eq!(told(text), Some((schema.into(), name.into(), inserts_only, alone)), "{text}");
        }
        for text in [
            "update u&\"t\" set a = 1",
            "update only (t) set a = 1",
            "delete from t *",
            "update d.s.t set a = 1",
            "update é set a = 1",
            "merge into t using u on true when matched then delete",
            "insert t values (1)",
            "update",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn what_may_call_anything_is_not_plain() {
        for text in [
            "update t set a = set_config('x', 'y', false)",
            "update t set a = f($1)",
            "update t set a = s.lower($1)",
            "update t set a = \"lower\"($1)",
            "update t set a = (select max(b) from v)",
            "insert into t select * from v",
            "insert into t (a) select 1",
            "with x as (select 1) delete from t",
            "delete from t where conflict(a)",
            "delete from t where a operator(s.=) 1",
            "update t set (a, b) = ($1, $2)",
            "merge into t using u on t.id = u.id when matched then delete",
            "copy t from stdin",
            "update pg_settings set setting = 'x' where name = 'y'",
            "update pg_catalog.\"pg_settings\" set setting = 'x'",
            "update t set a = 1; set timezone = 'UTC'",
            "select 1",
            "",
        ] {
            assert_eq!(called(text), None, "{text}");
        }
    }
}
