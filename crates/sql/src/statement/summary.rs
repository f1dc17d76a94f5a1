//! What a statement does to which tables, in a few words: the name of its span.
//!
//! By the conventions of OpenTelemetry for databases ("Generating a summary of the query"): the operation and the tables in their order. It is read
//! from the words alone, so that every statement has one, understood or not.

use freshet_types::Dialect;

use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;

/// Limits of what is read and of what is written.
const TOKENS_MAX: usize = 4096;
const BYTES_MAX: usize = 255;

/// The summary of a normalized query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Its first word in capitals; empty: there is none.
    pub operation: String,
    /// The tables that it names, as it names them.
    pub tables: Vec<String>,
}

impl Summary {
    /// Reads a normalized query.
    pub fn of(dialect: Dialect, normalized: &str) -> Self {
        let mut summary = Self::default();
        let mut tokens = Tokens::of(dialect, normalized).take(TOKENS_MAX).peekable();
        let (mut is_table_next, mut is_list) = (false, false);
        // For each open parenthesis, whether a query is in it (EXTRACT (year FROM …) is none), and whether it is in a list of tables.
        let mut open = Vec::new();
        while let Some(token) = tokens.next() {
            let word = if token.kind == Kind::Word { token.text.to_ascii_uppercase() } else { String::new() };
            if summary.operation.is_empty() && !word.is_empty() {
                is_table_next = word == "UPDATE";
                summary.operation = word;
                continue;
            }
            match (word.as_str(), token.kind) {
                ("FROM" | "JOIN" | "INTO" | "TABLE", _) if open.last().is_none_or(|(is_query, _)| *is_query) => {
                    (is_table_next, is_list) = (true, word == "FROM");
                }
                ("ONLY" | "LATERAL" | "IF" | "NOT" | "EXISTS" | "LOW_PRIORITY" | "IGNORE", _) if is_table_next => {}
                (_, Kind::Word | Kind::Quoted) if is_table_next => {
                    let mut name = token.text.to_owned();
                    while tokens.next_if(|next| next.kind == Kind::Symbol(b'.')).is_some() {
                        name.push('.');
                        name.push_str(tokens.next_if(is_name).map_or("", |part| part.text));
                    }
                    let is_call = tokens.peek().is_some_and(|next| next.kind == Kind::Symbol(b'('));
                    let is_function = is_call && is_list;
                    if !is_function && !summary.tables.contains(&name) {
                        summary.tables.push(name);
                    }
                    is_table_next = false;
                }
                (_, Kind::Symbol(b',')) if is_list => is_table_next = true,
                ("WHERE" | "SET" | "ON" | "USING" | "GROUP" | "ORDER" | "LIMIT" | "SELECT" | "VALUES", _) => {
                    (is_table_next, is_list) = (false, false);
                }
                (_, Kind::Symbol(b'(')) => {
                    open.push((tokens.peek().is_none_or(begins_query), is_list));
                    (is_table_next, is_list) = (false, false);
                }
                (_, Kind::Symbol(b')')) => {
                    is_list = open.pop().is_some_and(|(_, is_list)| is_list);
                    is_table_next = false;
                }
                _ => {}
            }
        }
        summary
    }

    /// The whole of it, without tables that have no room.
    pub fn text(&self) -> String {
        let mut text = self.operation.clone();
        for table in &self.tables {
            if text.len() + 1 + table.len() > BYTES_MAX {
                break;
            }
            text.push(' ');
            text.push_str(table);
        }
        text
    }
}

fn begins_query(token: &Token<'_>) -> bool {
    token.kind == Kind::Symbol(b'(') || ["select", "with"].iter().any(|word| token.text.eq_ignore_ascii_case(word))
}

fn is_name(token: &Token<'_>) -> bool {
    matches!(token.kind, Kind::Word | Kind::Quoted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::normalize::lex;

    #[test]
    fn operation_and_tables_in_their_order() {
        for (text, summary) in [
            ("select title from film where id = 1", "SELECT film"),
            ("SELECT * FROM public.film f JOIN \"Actor\" a ON a.id = f.id", "SELECT public.film \"Actor\""),
            ("select 1 from a, b as x, c where extract(year from d) = 1", "SELECT a b c"),
            ("select (select max(x) from a) from b", "SELECT a b"),
            ("with w as (select 1 from a) select * from w", "WITH a w"),
            ("insert into film (id, title) values (1, 'x')", "INSERT film"),
            ("update only film set title = 'x'", "UPDATE film"),
            ("delete from film where id in (select id from old)", "DELETE film old"),
            ("create table if not exists film (id int)", "CREATE film"),
            ("select * from generate_series(1, 2), film", "SELECT film"),
            ("select 1", "SELECT"),
            ("begin", "BEGIN"),
            ("(select 1 from a) union (select 2 from a)", "SELECT a"),
            ("", ""),
        ] {
            let read = Summary::of(Dialect::Postgres, &lex(Dialect::Postgres, text).normalized);
            assert_eq!(read.text(), summary, "{text}");
        }
        let read = Summary::of(Dialect::MySql, "SELECT * FROM `shop`.`film` WHERE a = ?");
        assert_eq!((read.operation.as_str(), read.tables), ("SELECT", vec!["`shop`.`film`".to_owned()]));
    }

    #[test]
    fn it_has_a_bound() {
        let names: Vec<String> = (0..100).map(|number| format!("table{number}")).collect();
        let text = Summary::of(Dialect::Postgres, &format!("select 1 from {}", names.join(", "))).text();
        assert!(text.len() <= 255 && text.starts_with("SELECT table0 table1 "), "{text}");
    }
}
