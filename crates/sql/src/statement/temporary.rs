//! PostgreSQL: statements whose meaning a session's temporary objects may change.
//!
//! The server looks up an unqualified name of a relation or of a type in the temporary schema first. It never finds functions and operators there.
//! Which word of a text is such a name is not analysed: any word may be one, except behind a point.

use crate::lex::postgres::{Kind, Scanner, Token};
use crate::statement::parser_bounds::NAME_LEN_MAX;
use std::collections::HashSet;

/// Functions and types that print or read names of objects: the result depends on what temporary objects hide.
const PRINTING: [&str; 10] = [
    "pg_typeof",
    "regclass",
    "regcollation",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
];

/// The words of a text that may name relations or types.
#[derive(Debug, Default)]
pub struct Words {
    names: HashSet<Box<str>>,
    /// It may name any object, or prints the names of others.
    any: bool,
    /// Some words have non-ASCII letters, which the session may send in another encoding.
    foreign: bool,
}

impl Words {
    /// The words of a normalized query.
    pub fn of(normalized: &str) -> Self {
        let mut words = Self::default();
        let mut behind_dot = false;
        for token in Scanner::new(normalized) {
            if !behind_dot {
                words.add(&token);
            }
            behind_dot = token.kind == Kind::Symbol(b'.');
        }
        words
    }

    fn add(&mut self, token: &Token<'_>) {
        let name = match token.kind {
            Kind::Word => token.text.to_ascii_lowercase(),
            Kind::Quoted => unquoted(token.text).replace("\"\"", "\""),
            Kind::Hopeless => {
                self.any = true;
                return;
            }
            _ => return,
        };
        self.any |= name.starts_with("pg_temp") || name.len() > NAME_LEN_MAX || PRINTING.contains(&&*name);
        self.foreign |= !name.is_ascii();
        self.names.insert(name.into());
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// The names of a session's temporary objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Temporary {
    names: Vec<Box<str>>,
    foreign: bool,
}

impl Temporary {
    /// A set of these names; those that are not ASCII may be in any encoding.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut new = Self::default();
        for name in names {
            if name.is_ascii() {
                new.names.push(name.into());
            } else {
                new.foreign = true;
            }
        }
        new.names.sort_unstable();
        new.names.dedup();
        new
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.foreign
    }

    /// Whether one of these words may be one of the names.
    pub fn may_be_among(&self, words: &Words) -> bool {
        !self.is_empty()
            && (words.any
                || (self.foreign && words.foreign)
                || self.names.iter().any(|name| words.names.contains(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_may_name_what_is_temporary() {
        let meets = |names: &[&str], text: &str| Temporary::new(names.iter().copied()).may_be_among(&Words::of(text));
        for text in [
            "select * from Items",
            "select * from \"items\"",
            "with x as (table items) select * from x",
            "select a::items from t",
            "select a::items[] from t",
            "select cast(a as \"items\") from t",
            "insert into items (a) values (1)",
            "select * from pg_temp.other",
            "select * from \"pg_temp_3\".other",
            "select * from u&\"item\\0073\"",
            "select a::regclass from t",
            "select a::pg_catalog.int4, pg_typeof(a) from t",
            "select * from u, items",
            "select region from \"items\" ",
        ] {
            assert!(meets(&["items"], text), "{text}");
        }
        assert!(!meets(&[], "select * from items"));
        for text in [
            "select * from public.items",
            "select t.items from t",
            "select 'items', E'items', $$items$$ from t",
            "select * from \"Items\"",
            "select region, registered from item",
            "select a -- items\n from t /* items */",
        ] {
            assert!(!meets(&["items"], text), "{text}");
        }
        assert!(meets(&["a\"b"], "select * from \"a\"\"b\""));
        assert!(meets(&["größe"], "select * from GRÖSSE"));
        assert!(!meets(&["größe"], "select * from groesse"));
        assert!(meets(&["x"], &format!("select * from {}", "a".repeat(64))));
    }
}
