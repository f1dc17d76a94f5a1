//! The tables to be cached, and what prevents caching.

use std::collections::HashSet;

use anyhow::Result;
use freshet_net::mysql::{quote_name, quote_text};

use super::database::Database;
use crate::check::report::Report;

/// The most tables named in one line. The others are counted.
const NAMES_MAX: usize = 10;

/// Schema, name, type, engine.
const TABLES: &str = "SELECT table_schema, table_name, table_type, engine FROM information_schema.tables \
    WHERE table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') \
    AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE', 'TEMPORARY') ORDER BY 1, 2";

/// One table.
struct Table {
    schema: String,
    name: String,
    kind: Kind,
}

/// How a table can be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Good,
    /// Not transactional, so readers see uncommitted writes. InnoDB would do.
    Isam,
    /// Of an engine that InnoDB cannot replace.
    OtherEngine,
    Versioned,
    PartlyReadable,
    /// The name of another table differs only by case.
    Ambiguous,
}

impl Table {
    /// The name, as a statement has it.
    fn quoted(&self) -> String {
        format!("{}.{}", quote_name(&self.schema), quote_name(&self.name))
    }

    fn shown(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// Checks which of the tables can be cached, and what the others lack.
pub(super) async fn look(database: &mut Database, names: &[String], report: &mut Report) -> Result<()> {
    let tables = chosen(all(database).await?, names, report);
    let of = |kind| tables.iter().filter(move |table| table.kind == kind);
    report.ok(format!("{} of {} tables can be cached", of(Kind::Good).count(), tables.len()));
    for table in of(Kind::Isam) {
        let text = format!("{} is not of InnoDB, so it is not cached", table.shown());
        report.problem(text, vec![format!("ALTER TABLE {} ENGINE = InnoDB;", table.quoted())]);
    }
    let account = &database.account;
    for table in of(Kind::PartlyReadable) {
        let text = format!("{account} may read some columns of {} alone, so it is not cached", table.shown());
        report.problem(text, vec![format!("GRANT SELECT ON {} TO {account};", table.quoted())]);
    }
    for (kind, what) in [
        (Kind::OtherEngine, "never cached, being of another engine than InnoDB"),
        (Kind::Versioned, "never cached, having system versioning"),
        (Kind::Ambiguous, "not cached, since its name and another's differ by case alone"),
    ] {
        if of(kind).next().is_some() {
            report.hint(format!("{what}: {}", shown(of(kind).map(Table::shown))), Vec::new());
        }
    }
    let folds = database.variable("lower_case_table_names").await?;
    if folds != "0" {
        let text = format!(
            "lower_case_table_names is {folds}: statements that name a table otherwise than in lower case are not cached"
        );
        report.hint(text, Vec::new());
    }
    Ok(())
}

async fn all(database: &mut Database) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    let sql = format!(
        "SELECT DISTINCT table_schema, table_name FROM information_schema.column_privileges WHERE grantee = {}",
        quote_text(&database.account)
    );
    let partly_readable: HashSet<[String; 2]> = database.rows(&sql).await?.into_iter().collect();
    for [schema, name, table_type, engine] in database.rows(TABLES).await? {
        let partly = partly_readable.contains(&[schema.clone(), name.clone()]);
        let kind = match (table_type.as_str(), engine.as_str()) {
            ("SYSTEM VERSIONED", _) => Kind::Versioned,
            (_, "InnoDB") if partly => Kind::PartlyReadable,
            (_, "InnoDB") => Kind::Good,
            (_, "MyISAM" | "Aria") => Kind::Isam,
            _ => Kind::OtherEngine,
        };
        tables.push(Table { schema, name, kind });
    }
    let folded = |table: &Table| (table.schema.to_lowercase(), table.name.to_lowercase());
    let keys: Vec<_> = tables.iter().map(folded).collect();
    for table in &mut tables {
        let key = folded(table);
        if keys.iter().filter(|other| **other == key).count() > 1 {
            table.kind = Kind::Ambiguous;
        }
    }
    Ok(tables)
}

/// The tables that the options name, all if they name none.
fn chosen(tables: Vec<Table>, names: &[String], report: &mut Report) -> Vec<Table> {
    for name in names.iter().filter(|name| !tables.iter().any(|table| table.shown() == **name)) {
        report.problem(format!("--tables {name}: there is no such table (as database.table)"), Vec::new());
    }
    tables.into_iter().filter(|table| names.is_empty() || names.contains(&table.shown())).collect()
}

/// The names, or the first ones if there are many.
pub(super) fn shown(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    let first = all.get(..NAMES_MAX).unwrap_or(&all).join(", ");
    let more = all.len().saturating_sub(NAMES_MAX);
    if more == 0 { first } else { format!("{first} and {more} more") }
}
