//! DDL that the server refuses for tables in a publication: SET UNLOGGED, and another expression of a virtual column.
//!
//! The event triggers remove the tables in the same transaction. A statement that comes through Freshet waits until the tables that it names have
//! left the publication. The names are not resolved: all tables with that name, in any schema, leave. A table that leaves without need is simply
//! published again.

use std::collections::HashSet;
use std::time::Duration;

use freshet_sql::Effect;
use freshet_types::{Table, TableId};
use tokio::sync::oneshot::Receiver;
use tokio::time::timeout;

use crate::postgres::session::Session;
use crate::statement::registry::Statement;

/// The longest wait of a statement.
const WAY_MAX: Duration = Duration::from_secs(1);

/// Whether the tables that the next statement names have left.
#[derive(Debug, Default)]
pub(crate) enum Way {
    #[default]
    NotAsked,
    Asked(Receiver<()>),
    Made,
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Whether a statement that is to be prepared must be checked more closely.
pub(crate) fn is_suspect(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"unlogged") || has(b"expression")
}

/// The words of each statement.
fn statements(text: &str) -> impl Iterator<Item = impl Iterator<Item = &str>> {
    text.split(';').map(|statement| statement.split(|c| !is_of_name(c)).filter(|word| !word.is_empty()))
}

/// Whether one of the statements is ALTER TABLE.
fn alters(text: &str) -> bool {
    statements(text).any(|words| words.take(2).eq(["alter", "table"]))
}

/// Whether one of them runs statements that are in its text.
fn runs_code(text: &str) -> bool {
    statements(text).any(|mut words| words.next() == Some("do"))
}

impl Session {
    /// Whether the statement, which is about to pass, must wait. The second time it need not.
    pub(crate) fn begin_to_make_way(&mut self, statement: Option<&Statement>, text: &[u8]) -> bool {
        if matches!(self.way, Way::Made) {
            self.way = Way::NotAsked;
            return false;
        }
        let defines = statement.is_none_or(|statement| statement.query.template.effect() >= Effect::Definition);
        if !defines || self.shared.own.prepared {
            return false;
        }
        let Ok(text) = std::str::from_utf8(text) else { return false };
        // Comments name no tables. The text of DO is a literal.
        let query = statement.map_or(text, |statement| &*statement.query.text).to_lowercase();
        let text = if runs_code(&query) { text.to_lowercase() } else { query };
        if !alters(&text) && !runs_code(&text) {
            return false;
        }
        let words: Vec<&str> = text.split(|c| !is_of_name(c)).filter(|word| !word.is_empty()).collect();
        let sets = |what: &str| words.windows(2).any(|pair| pair == ["set", what]);
        let tables = if sets("unlogged") {
            self.named(&text, &words, |_| true)
        } else if sets("expression") {
            self.named(&text, &words, |table| table.columns.iter().any(|column| column.generated))
        } else {
            return false;
        };
        if tables.is_empty() {
            return false;
        }
        self.way = Way::Asked(self.shared.take_out(tables));
        true
    }

    /// The tables whose names are in the text.
    fn named(&self, text: &str, words: &[&str], of: impl Fn(&Table) -> bool) -> Vec<TableId> {
        let words: HashSet<&str> = words.iter().copied().collect();
        let is_named = |name: &str| {
            let name = name.to_lowercase();
            words.contains(&*name) || (!name.chars().all(is_of_name) && text.contains(&name.replace('"', "\"\"")))
        };
        self.shared
            .catalog
            .load()
            .tables()
            .filter(|table| of(table) && is_named(&table.name))
            .map(|table| table.id)
            .collect()
    }

    /// Waits for the tables to leave; false if nobody asked for that.
    pub(crate) async fn make_way(&mut self) -> bool {
        let Way::Asked(left) = &mut self.way else { return false };
        let _ = timeout(WAY_MAX, left).await;
        self.way = Way::Made;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_may_alter_a_table() {
        for text in ["alter table a set unlogged", "begin;\n alter  table \"a\" set unlogged"] {
            assert!(alters(text) && !runs_code(text), "{text}");
        }
        assert!(runs_code("begin; do $$ begin end $$"));
        for text in ["", ";;", "create function f() as 'alter table a set unlogged'", "create table alter_table ()"] {
            assert!(!alters(text) && !runs_code(text), "{text}");
        }
    }
}
