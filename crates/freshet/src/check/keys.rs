//! Whether Freshet may read the keys by which results join tables.
//!
//! Freshet finds the dependencies of a result with joins or subqueries by the keys in the tables, which it reads itself. A query on a parent needs
//! the right on the parent only, so parents are checked as well.

use std::collections::BTreeSet;

use anyhow::Result;

use super::database::Database;
use super::report::Report;
use super::tables::{Table, shown};

/// A table, or a parent of tables.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    /// With its schema, quoted.
    name: String,
    /// Quoted.
    schema: String,
    /// Whether this role may use the schema.
    schema_usable: bool,
    /// Whether this role may read the table.
    readable: bool,
}

/// The tables that can be cached, and their parents.
pub(super) async fn relations(database: &mut Database, tables: &[Table]) -> Result<Vec<Relation>> {
    let ids: Vec<String> =
        tables.iter().filter(|table| table.publishable()).map(|table| table.id.to_string()).collect();
    let sql = format!(
        "WITH RECURSIVE family(oid) AS (SELECT unnest('{{{}}}'::oid[]) UNION \
         SELECT i.inhparent FROM pg_inherits i JOIN family f ON f.oid = i.inhrelid) \
         SELECT c.oid::regclass, quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE'), \
           has_table_privilege(c.oid, 'SELECT') \
         FROM family JOIN pg_class c ON c.oid = family.oid JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE NOT c.relrowsecurity ORDER BY n.nspname, c.relname",
        ids.join(",")
    );
    let relation = |[name, schema, schema_usable, readable]: [String; 4]| Relation {
        name,
        schema,
        schema_usable: schema_usable == "t",
        readable: readable == "t",
    };
    Ok(database.rows(&sql).await?.into_iter().map(relation).collect())
}

/// Checks whether all keys may be read.
pub(super) fn look(database: &Database, mut relations: Vec<Relation>, report: &mut Report) {
    let role = &database.role;
    relations.retain(|relation| !relation.readable || !relation.schema_usable);
    if relations.is_empty() {
        report.ok(format!("{role} may read the keys by which results join tables"));
        return;
    }
    let text = format!(
        "{role} may not read {}: a change of any row there invalidates all results that join it or have it in a subquery, not \
         only those that depend on the row",
        shown(relations.iter().map(|relation| relation.name.as_str()))
    );
    report.hint(text, statements(&relations, role));
}

/// The statements that let the role read them.
pub(super) fn statements(relations: &[Relation], role: &str) -> Vec<String> {
    let schemas: BTreeSet<&str> = relations.iter().map(|relation| relation.schema.as_str()).collect();
    let usage = schemas.into_iter().map(|schema| format!("GRANT USAGE ON SCHEMA {schema} TO {role};"));
    let names: Vec<&str> = relations.iter().map(|relation| relation.name.as_str()).collect();
    usage.chain([format!("GRANT SELECT ON {} TO {role};", names.join(", "))]).collect()
}
