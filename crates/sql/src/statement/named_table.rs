//! Whether a statement names a table, for the operator's rules.
//!
//! It is decided by the words alone, so that it holds for every statement, understood or not. A column or an alias of the same name
//! counts, too.

use std::borrow::Cow;

use freshet_types::Dialect;

use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;

/// A table as a rule names it.
#[derive(Clone, Copy, Debug)]
pub struct NamedTable<'a> {
    /// Its schema; MySQL and MariaDB: its database. None: any.
    pub schema: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
}

impl<'a> NamedTable<'a> {
    /// Reads `table` or `schema.table`.
    pub fn of(text: &'a str) -> Self {
        match text.rsplit_once('.') {
            Some((schema, name)) => Self { schema: Some(schema), name },
            None => Self { schema: None, name: text },
        }
    }

    /// Whether the normalized query names it, with its schema or without one.
    pub fn is_in(self, dialect: Dialect, normalized: &str) -> bool {
        // MySQL's names of tables depend on the case of letters on some systems only.
        let same = |one: &str, other: &str| {
            if dialect.is_mysql_family() { one.eq_ignore_ascii_case(other) } else { one == other }
        };
        let (mut word, mut qualifier, mut behind_dot): (Option<Cow<'_, str>>, _, _) = (None, None, false);
        for token in Tokens::of(dialect, normalized) {
            if token.kind == Kind::Symbol(b'.') {
                (qualifier, behind_dot) = (word.take(), true);
                continue;
            }
            word = identifier(&token);
            let qualifier = qualifier.take().filter(|_| std::mem::take(&mut behind_dot));
            let in_schema = match (&qualifier, self.schema) {
                (Some(own), Some(wanted)) => same(own, wanted),
                _ => true,
            };
            if in_schema && word.as_ref().is_some_and(|word| same(word, self.name)) {
                return true;
            }
        }
        false
    }
}

pub(super) fn identifier<'a>(token: &Token<'a>) -> Option<Cow<'a, str>> {
    match token.kind {
        Kind::Word => Some(token.text.into()),
        Kind::Quoted => {
            let quote = token.text.chars().next()?;
            let name = token.text.strip_prefix(quote)?.strip_suffix(quote)?;
            let doubled = format!("{quote}{quote}");
            Some(if name.contains(&doubled) { name.replace(&doubled, &quote.to_string()).into() } else { name.into() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::normalize::lex;

    fn names(dialect: Dialect, text: &str, table: &str) -> bool {
        NamedTable::of(table).is_in(dialect, &lex(dialect, text).normalized)
    }

    #[test]
    fn tables_are_found_by_their_names() {
        for text in [
            "SELECT * FROM Orders",
            "select * from public.orders o",
            "insert into \"orders\" values (1)",
            "delete from x where id in (select 1 from orders)",
        ] {
            assert!(names(Dialect::Postgres, text, "orders"), "{text}");
            assert!(names(Dialect::Postgres, text, "public.orders"), "{text}");
            assert!(!names(Dialect::Postgres, text, "order"), "{text}");
        }
        assert!(!names(Dialect::Postgres, "select * from archive.orders", "public.orders"));
        assert!(!names(Dialect::Postgres, "select 'orders' from t /* orders */", "orders"));
        assert!(names(Dialect::MySql, "SELECT * FROM `shop`.`Orders`", "shop.orders"));
        assert!(!names(Dialect::MySql, "SELECT * FROM `archive`.`orders`", "shop.orders"));
        assert!(names(Dialect::MariaDb, "replace into orders set a = 1", "shop.orders"));
    }
}
