//! The script of `freshet check --print-setup`: everything that Freshet needs in a database, for an administrator to
//! run.
//!
//! It may be run again, after new tables or an upgrade of Freshet; it then brings everything up to date.

use std::fmt::Write as _;

use freshet_net::postgres::{quote_identifier, quote_literal};
use freshet_replication::publication_options;
use freshet_replication::triggers::{create_statements, mark_publication};

use super::database::Database;
use super::keys::{self, Relation};
use super::tables::{Kind, Table};

/// The desired state.
pub(super) struct Wanted<'a> {
    /// Freshet's own account.
    pub(super) role: &'a str,
    pub(super) publication: &'a str,
    pub(super) tables: &'a [Table],
    /// The tables that the account must read.
    pub(super) keys: &'a [Relation],
    /// Existing triggers are left unchanged: for others, Freshet would restart its change stream.
    pub(super) triggers_stand: bool,
}

/// The whole script.
pub(super) fn write(database: &Database, wanted: &Wanted<'_>) -> String {
    let Wanted { role, publication, tables, keys, triggers_stand } = *wanted;
    let mut script = head(database, role, publication);
    script.push_str(&role_part(database, role));
    script.push_str(&publication_part(publication, &publication_options(database.version_num), tables));
    script.push_str(&keys_part(role, keys));
    script.push_str(
        "\n-- Event triggers that write each change of a definition or right into the change stream, and take a table out of the\n\
         -- publication whose updates would fail there, or that is about to become unlogged.\n",
    );
    if triggers_stand {
        script.push_str("-- They stand as they should.\n");
    } else {
        for statement in create_statements() {
            let _ = writeln!(script, "{statement}");
        }
    }
    script.push_str("\nCOMMIT;\n");
    script
}

fn head(database: &Database, role: &str, publication: &str) -> String {
    let mut options = String::new();
    if publication != "freshet" {
        let _ = write!(options, " --publication '{publication}'");
    }
    format!(
        "-- Prepares database {} for Freshet. Run it there as a superuser; print and run it again after new tables or an\n\
         -- upgrade:\n\
         --   psql -v ON_ERROR_STOP=1 -f THIS-FILE\n\
         -- Then: freshet check --prepared{options}, and freshet serve --prepared{options}, as role {}.\n\
         -- The server itself needs wal_level = logical and a free replication slot; freshet check says so.\n\n\
         BEGIN;\n\
         -- The publication waits for schema changes and VACUUM of its tables; if this gives up, run it again.\n\
         SET LOCAL lock_timeout = '5s';\n\
         SET LOCAL client_min_messages = 'warning';\n",
        database.name,
        quote_identifier(role),
    )
}

fn role_part(database: &Database, role: &str) -> String {
    let (quoted, literal) = (quote_identifier(role), quote_literal(role));
    format!(
        "\n-- Freshet's own account. It reads the catalogue, the change stream, and keys. Give it a password:\n\
         --   \\password {quoted}\n\
         DO $$ BEGIN\n  \
           IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {literal}) THEN\n    \
             CREATE ROLE {quoted};\n  \
           END IF;\n\
         END $$;\n\
         -- On managed services the right to replicate is a role instead, such as: GRANT rds_replication TO {quoted};\n\
         ALTER ROLE {quoted} LOGIN REPLICATION;\n\
         GRANT CONNECT ON DATABASE {} TO {quoted};\n\
         -- Everybody may do so unless it was revoked: sessions prove by it which server they are on.\n\
         GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO PUBLIC;\n",
        database.name
    )
}

fn keys_part(role: &str, keys: &[Relation]) -> String {
    let mut part = String::new();
    if !keys.is_empty() {
        part.push_str(
            "\n-- What a result depends on that joins tables is known by the keys in them. A change of a table that Freshet may\n\
             -- not read invalidates all such results, not only those that depend on the row.\n",
        );
        for statement in keys::statements(keys, &quote_identifier(role)) {
            let _ = writeln!(part, "{statement}");
        }
    }
    part
}

fn publication_part(publication: &str, options: &str, tables: &[Table]) -> String {
    let (quoted, literal) = (quote_identifier(publication), quote_literal(publication));
    let mut part = format!(
        "\n-- The tables whose changes Freshet hears of; no others are cached.\n\
         DO $$ BEGIN\n  \
           -- FOR ALL TABLES would make updates of tables without a replica identity fail.\n  \
           IF EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = {literal} AND puballtables) THEN\n    \
             DROP PUBLICATION {quoted};\n  \
           END IF;\n  \
           IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = {literal}) THEN\n    \
             CREATE PUBLICATION {quoted};\n  \
           END IF;\n\
         END $$;\n\
         ALTER PUBLICATION {quoted} SET ({options}, publish_via_partition_root = false);\n\
         -- The mark by which the triggers below find it.\n{}\n",
        mark_publication(publication)
    );
    let fit: Vec<String> =
        tables.iter().filter(|t| t.publishable_if_sent()).map(|t| format!("ONLY {}", t.name)).collect();
    if !fit.is_empty() {
        let _ = writeln!(part, "ALTER PUBLICATION {quoted} SET TABLE\n  {};", fit.join(",\n  "));
    }
    for table in tables.iter().filter(|table| table.kind == Kind::Table && !table.publishable_if_sent()) {
        let name = table.name.replace(char::is_control, "?");
        let _ = writeln!(part, "-- Left out, having no usable replica identity (see freshet check): {name}");
    }
    part
}
