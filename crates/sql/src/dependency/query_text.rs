//! The text of Freshet's own queries: names, keys, and constants.
//!
//! Marks enclose each constant, so that a query can be sent with its constants in place, or prepared once and executed with other constants: planning
//! a query for a few keys costs the database more than executing it.

use std::fmt::Write as _;

use freshet_types::Dialect;

/// Encloses a constant. No other text contains it: see [`marked`] and [`quoted`].
pub(crate) const MARK: char = '\u{1}';

/// A query with parameters, and their values as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameterised {
    /// `$1` is the first parameter.
    pub sql: String,
    /// As text, without quotes.
    pub parameters: Vec<String>,
}

impl Parameterised {
    /// The query and its parameters.
    pub fn parts(&self) -> (&str, Vec<&str>) {
        (&self.sql, self.parameters.iter().map(String::as_str).collect())
    }
}

/// A key as text, without the connection's collation, in which two keys may be equal.
pub(crate) fn as_text(dialect: Dialect, key: &str) -> String {
    if dialect.is_mysql_family() { format!("CAST({key} AS BINARY)") } else { format!("{key}::pg_catalog.text") }
}

/// A quoted name. A name that contains the mark becomes an invalid one, so that its query fails.
pub(crate) fn quoted(dialect: Dialect, name: &str) -> String {
    let quote = if dialect.is_mysql_family() { "`" } else { "\"" };
    let name = if name.contains(MARK) { "" } else { name };
    format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
}

/// A constant that may become a parameter: a number, or a string in quotes without a declared type.
pub(crate) fn marked(constant: &str) -> String {
    format!("{MARK}{constant}{MARK}")
}

/// The query with all constants in place.
pub(crate) fn in_place(mut sql: String) -> String {
    sql.retain(|letter| letter != MARK);
    sql
}

/// The query with PostgreSQL's parameters. They get the types that the constants would get: a string the type that it is compared with, a number its
/// own type or a wider one. Constants beyond the protocol's limit stay in place.
pub(crate) fn as_parameters(sql: &str) -> Parameterised {
    if sql.matches(MARK).count() / 2 > usize::from(u16::MAX) {
        return Parameterised { sql: in_place(sql.to_owned()), parameters: Vec::new() };
    }
    let mut all = Parameterised { sql: String::new(), parameters: Vec::new() };
    for (at, piece) in sql.split(MARK).enumerate() {
        if at % 2 == 0 {
            all.sql.push_str(piece);
            continue;
        }
        let quoted = piece.strip_prefix('\'').and_then(|piece| piece.strip_suffix('\''));
        let cast = match quoted {
            Some(_) => "",
            None if piece.parse::<i64>().is_ok() => "::pg_catalog.int8",
            None => "::pg_catalog.numeric",
        };
        all.parameters.push(quoted.unwrap_or(piece).replace("''", "'"));
        let _ = write!(all.sql, "${}{cast}", all.parameters.len());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_become_parameters() {
        let [text, number, wide] = ["'O''Hara'", "-7", "1.50"].map(marked);
        let sql = format!("SELECT '0.0', a FROM t WHERE a IN ({text}, {number}) AND b >= {wide} LIMIT 1001");
        let expected =
            "SELECT '0.0', a FROM t WHERE a IN ($1, $2::pg_catalog.int8) AND b >= $3::pg_catalog.numeric LIMIT 1001";
        let parameters = ["O'Hara", "-7", "1.50"].map(str::to_owned).to_vec();
        assert_eq!(as_parameters(&sql), Parameterised { sql: expected.into(), parameters });
        assert_eq!(in_place(sql), "SELECT '0.0', a FROM t WHERE a IN ('O''Hara', -7) AND b >= 1.50 LIMIT 1001");
        assert_eq!(as_parameters(&marked("''")).parameters, [""]);
        let many = as_parameters(&marked("7").repeat(65_536));
        assert_eq!((many.sql, many.parameters.len()), ("7".repeat(65_536), 0));
        assert_eq!(as_parameters(&marked("7").repeat(65_535)).parameters.len(), 65_535);
    }
}
