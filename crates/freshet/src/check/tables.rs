//! The tables to be cached: their properties, and what prevents caching.

use anyhow::Result;
use freshet_net::postgres::{quote_identifier, quote_literal};
use freshet_proxy::postgres::service::updates_fail;

use super::database::Database;
use super::report::{LOCK_TIMEOUT, Report};

/// The most tables named in one line; the rest is counted.
const NAMES_MAX: usize = 10;
/// The most tables for which full old rows are suggested: those with the most updates.
const FULL_MAX: usize = 3;
/// Updates and deletes, since the statistics began, below which nothing is suggested.
const CHANGES_MIN: u64 = 1000;

/// The kind of relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has rows of its own, all in the log.
    Table,
    Unlogged,
    Foreign,
}

/// How the log identifies a row that is updated or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// By the whole old row.
    Full,
    /// By some columns.
    Columns,
    /// Not at all: once published, the table cannot be updated.
    Missing,
    /// By columns of which some are generated and virtual: updates fail from version 18 on.
    Virtual,
    /// By columns of which some are generated and not sent by the current publication: updates fail.
    Unsent,
}

/// The owner of a relation.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// Quoted.
    pub(super) name: String,
    pub(super) superuser: bool,
    /// Freshet's role may act as this role.
    pub(super) ours: bool,
}

/// One relation with rows of its own.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) id: u32,
    /// With its schema, quoted.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) identity: Identity,
    row_security: bool,
    /// In the publication.
    pub(super) published: bool,
    pub(super) owner: Owner,
    /// Published under an identity of all its columns, it cannot be updated.
    full_fails: bool,
    /// The statements that give it an identity.
    mend: Vec<String>,
    /// Updates and deletes since the statistics began.
    changes: u64,
}

impl Table {
    /// Whether it could be published if the publication sends generated columns.
    pub(super) fn publishable_if_sent(&self) -> bool {
        self.publishable() || self.kind == Kind::Table && self.identity == Identity::Unsent
    }

    /// Whether it could be published as it is.
    pub(super) fn publishable(&self) -> bool {
        self.kind == Kind::Table && matches!(self.identity, Identity::Full | Identity::Columns)
    }
}

/// Lists all tables that could be cached, and the content of the publication. A usable key is a unique index over NOT
/// NULL columns, neither partial nor deferrable. `deferred` is one that is only unusable because it is deferrable.
fn tables_sql(publication: &str) -> String {
    let publication = quote_literal(publication);
    let fails = updates_fail(&publication);
    // Without a publication of that name, stored columns will be sent.
    let fails_by_virtual = updates_fail("NULL");
    let full_fails = fails.replace("c.relreplident", "'f'");
    format!(
        "SELECT c.oid, c.oid::regclass, \
           CASE WHEN c.relkind = 'f' THEN 'foreign' WHEN c.relpersistence = 'u' THEN 'unlogged' ELSE 'table' END, \
           CASE WHEN c.relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid \
             AND i.indisvalid AND i.indimmediate AND ((c.relreplident = 'd' AND i.indisprimary) \
             OR (c.relreplident = 'i' AND i.indisreplident))) THEN 'missing' WHEN {fails_by_virtual} THEN 'virtual' \
             WHEN {fails} THEN 'unsent' WHEN c.relreplident = 'f' THEN 'full' ELSE 'columns' END, \
           c.relrowsecurity, \
           EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid \
             WHERE r.prrelid = c.oid AND p.pubname = {publication}), \
           pg_has_role(c.relowner, 'USAGE'), quote_ident(o.rolname), o.rolsuper, \
           key.relname, key.indisprimary, deferred.columns, \
           CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::regclass END, \
           coalesce(pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid), 0), {full_fails} \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner \
         LEFT JOIN LATERAL (SELECT quote_ident(x.relname) AS relname, i.indisprimary \
           FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid \
           WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL \
           AND i.indexprs IS NULL AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid \
             AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) \
             AND (NOT a.attnotnull OR a.attgenerated <> '')) \
           ORDER BY i.indisprimary DESC, i.indnkeyatts, x.relname LIMIT 1) key ON true \
         LEFT JOIN LATERAL (SELECT (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) \
             FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])) AS columns \
           FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid) deferred ON true \
         WHERE c.relkind IN ('r', 'f') AND c.relpersistence <> 't' AND c.oid >= 16384 \
         AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'freshet') AND n.nspname !~ '^pg_' \
         ORDER BY n.nspname, c.relname"
    )
}

/// All tables of the database.
pub(super) async fn all(database: &mut Database, publication: &str) -> Result<Vec<Table>> {
    let rows = database.rows(&tables_sql(publication)).await?;
    rows.into_iter().map(|row| table(row, publication)).collect()
}

fn table(row: [String; 15], publication: &str) -> Result<Table> {
    let [
        id,
        name,
        kind,
        identity,
        row_security,
        published,
        owned,
        owner,
        owner_is_superuser,
        key,
        primary,
        deferred,
        root,
        changes,
        full_fails,
    ] = row;
    let full_fails = full_fails == "t";
    let mend = if identity == "unsent" {
        vec![format!("ALTER PUBLICATION {} SET (publish_generated_columns = stored);", quote_identifier(publication))]
    } else {
        identity_statements(&name, (&key, primary == "t"), &deferred, (&root, full_fails))
    };
    Ok(Table {
        id: id.parse()?,
        name,
        kind: match kind.as_str() {
            "foreign" => Kind::Foreign,
            "unlogged" => Kind::Unlogged,
            _ => Kind::Table,
        },
        identity: match identity.as_str() {
            "full" => Identity::Full,
            "columns" => Identity::Columns,
            "virtual" => Identity::Virtual,
            "unsent" => Identity::Unsent,
            _ => Identity::Missing,
        },
        row_security: row_security == "t",
        published: published == "t",
        owner: Owner { name: owner, superuser: owner_is_superuser == "t", ours: owned == "t" },
        full_fails,
        mend,
        changes: changes.parse()?,
    })
}

/// The statements that give a table an identity: an existing key, or else a new one. Never the whole row, which is
/// expensive, unless the administrator chooses it.
fn identity_statements(name: &str, key: (&str, bool), deferred: &str, last: (&str, bool)) -> Vec<String> {
    let (root, full_fails) = last;
    let mut statements = vec![LOCK_TIMEOUT.to_owned()];
    match key {
        (_, true) => statements.push(format!("ALTER TABLE {name} REPLICA IDENTITY DEFAULT;")),
        ("", false) if !deferred.is_empty() => {
            let index = format!("freshet_identity_of_{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
            let index: String = index.chars().take(60).collect();
            statements.push(format!("CREATE UNIQUE INDEX {index} ON {name} ({deferred});"));
            statements.push(format!("ALTER TABLE {name} REPLICA IDENTITY USING INDEX {index};"));
        }
        ("", false) => {
            statements.push(format!(
                "-- better, if some columns that are never null tell rows apart: ALTER TABLE {name} ADD PRIMARY KEY (…);"
            ));
            statements.push("-- the next writes the table anew, and others wait meanwhile".into());
            if root.is_empty() {
                statements.push(format!(
                    "ALTER TABLE {name} ADD COLUMN freshet_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;"
                ));
            } else {
                statements.push(format!(
                    "ALTER TABLE {root} ADD COLUMN IF NOT EXISTS freshet_id uuid NOT NULL \
                     DEFAULT pg_catalog.gen_random_uuid();"
                ));
                statements.push(format!("ALTER TABLE {name} ADD PRIMARY KEY (freshet_id);"));
            }
            if !full_fails {
                statements.push(format!(
                    "-- the last resort, dear for large rows: ALTER TABLE {name} REPLICA IDENTITY FULL;"
                ));
            }
        }
        (index, false) => statements.push(format!("ALTER TABLE {name} REPLICA IDENTITY USING INDEX {index};")),
    }
    statements
}

/// The tables that the options name, all if they name none. A parent stands for its descendants.
pub(super) async fn chosen(
    database: &mut Database,
    tables: Vec<Table>,
    names: &[String],
    report: &mut Report,
) -> Result<Vec<Table>> {
    if names.is_empty() {
        return Ok(tables);
    }
    let mut wanted = Vec::new();
    for name in names {
        // The server reports an invalid name as an error.
        let ids = descendants(database, name).await.unwrap_or_default();
        let before = wanted.len();
        wanted.extend(tables.iter().filter(|table| ids.contains(&table.id)).map(|table| table.id));
        if wanted.len() == before {
            report.problem(format!("--tables {name}: there is no such table (as schema.table)"), Vec::new());
        }
    }
    Ok(tables.into_iter().filter(|table| wanted.contains(&table.id)).collect())
}

/// The relation of this name and all that inherit from it.
async fn descendants(database: &mut Database, name: &str) -> Result<Vec<u32>> {
    let sql = format!(
        "WITH RECURSIVE family(oid) AS (SELECT to_regclass({})::oid UNION \
         SELECT i.inhrelid FROM pg_inherits i JOIN family f ON f.oid = i.inhparent) \
         SELECT oid FROM family WHERE oid IS NOT NULL",
        quote_literal(name)
    );
    Ok(database.column(&sql).await?.iter().map(|id| id.parse()).collect::<Result<_, _>>()?)
}

/// Checks which of the tables can be cached, and what the others lack.
pub(super) fn look(tables: &[Table], report: &mut Report) {
    let of = |kind| tables.iter().filter(move |table| table.kind == kind);
    let good = of(Kind::Table).filter(|table| table.publishable() && !table.row_security).count();
    report.ok(format!("{good} of {} tables can be cached", of(Kind::Table).count()));
    for table in of(Kind::Table).filter(|table| !table.publishable()) {
        let what = match table.identity {
            Identity::Virtual => "has a replica identity with virtual generated columns, which no publication sends",
            Identity::Unsent => "has a replica identity with generated columns, which the publication does not send",
            _ => "has no usable replica identity",
        };
        let means = if table.published { " and is published, so its updates fail" } else { ", so it is not cached" };
        let text = format!("{} {what}{means}", table.name);
        report.problem(text, table.mend.clone());
    }
    for (kind, what) in [(Kind::Unlogged, "unlogged"), (Kind::Foreign, "foreign")] {
        if of(kind).next().is_some() {
            report.hint(format!("never cached, being {what}: {}", names(of(kind))), Vec::new());
        }
    }
    let secured = || of(Kind::Table).filter(|table| table.row_security);
    if secured().next().is_some() {
        report.hint(format!("not cached, having row-level security: {}", names(secured())), Vec::new());
    }
    let mut changed: Vec<&Table> = of(Kind::Table)
        .filter(|table| table.identity == Identity::Columns && !table.full_fails)
        .filter(|table| !table.row_security && table.changes >= CHANGES_MIN)
        .collect();
    changed.sort_by_key(|table| std::cmp::Reverse(table.changes));
    for table in changed.into_iter().take(FULL_MAX) {
        let text = format!(
            "{}: {} updates and deletes so far, which carry no old values: for results that compare other columns than \
             the replica identity's and do not show these, as aggregates do not, the keys of their rows are read by one \
             more query; of more than 1,000 rows each invalidates them all. Full old rows make that precise at once, for \
             more log per update",
            table.name, table.changes
        );
        report.hint(text, vec![LOCK_TIMEOUT.into(), format!("ALTER TABLE {} REPLICA IDENTITY FULL;", table.name)]);
    }
}

/// Adds tables to the publication.
pub(super) fn add_statements<'a>(publication: &str, tables: impl Iterator<Item = &'a Table>) -> Vec<String> {
    let list: Vec<String> = tables.map(|table| format!("ONLY {}", table.name)).collect();
    vec![
        LOCK_TIMEOUT.into(),
        format!("ALTER PUBLICATION {} ADD TABLE {};", quote_identifier(publication), list.join(", ")),
    ]
}

/// The names, or the first ones if there are many.
pub(super) fn names<'a>(tables: impl Iterator<Item = &'a Table>) -> String {
    shown(tables.map(|table| table.name.as_str()))
}

/// The same for texts.
pub(super) fn shown<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    let shown = all.get(..NAMES_MAX).unwrap_or(&all).join(", ");
    let more = all.len().saturating_sub(NAMES_MAX);
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
