//! Event triggers that put DDL into the stream.
//!
//! The log has rows, not definitions: it does not contain a view's text, a policy, a privilege, the effect of REFRESH MATERIALIZED VIEW, or the
//! attachment of a partition. The event triggers write a transactional message for each command, so that it arrives in commit order with the rows.
//! They are `ENABLE ALWAYS`, since otherwise they would not fire under `session_replication_role = replica`. Their function must never make the
//! application's DDL fail, or change its meaning:
//!
//! - It runs as its owner (`SECURITY DEFINER`) with its own search path, so neither the privileges nor the settings of the session matter. Event
//!   triggers need no privilege to run, nor USAGE on the schema.
//! - All its work is in subtransactions. If it cannot determine the relations, it reports "everything"; cancelling stays possible.
//! - Temporary objects write nothing: only their own session sees them.
//!
//! PostgreSQL does not report the tables of a GRANT. Rows of `pg_class` and `pg_attribute` that this transaction wrote have its age, so the function
//! looks for them if the catalogue is small; otherwise it reports everything.
//!
//! The function also removes tables from Freshet's publications ([`mark_publication`]):
//!
//! - Tables of which a published UPDATE or DELETE fails from now on, since their replica identity is missing or contains generated columns that are
//!   not sent. The statement would fail in the same transaction already.
//! - Before an `ALTER TABLE`, tables that the command may change in a way that the publication does not permit: to unlogged, or (version 18) with
//!   another expression of a virtual column. A command that is about to run does not report its tables. So the tables are those whose names are in
//!   its text, if the session's user is a member of their owner. Other tables among them are added again later. A command whose text is hidden in a
//!   function that is not in PL/pgSQL, or has more than 200,000 characters, fails as it does without triggers.
//!
//! Event triggers do not see shared objects (roles, memberships, settings of roles and databases), REASSIGN OWNED, event triggers themselves, and
//! sessions under `event_triggers = off` (version 17 on). The proxy polls for these.

use std::sync::{Arc, Once};

use freshet_net::postgres::{Client, Error, quote_identifier, quote_literal};
use freshet_types::TableId;
use tracing::{info, warn};

use crate::error::Fault;
use crate::postgres::questions::QUERY_TIMEOUT;

/// The prefix of the messages.
pub(crate) const PREFIX: &str = "freshet.ddl";
/// Oldest major version whose output plugin sends messages.
pub(crate) const VERSION_MESSAGES: u32 = 14;

/// Comment that marks a publication from which the triggers may remove tables.
const MARK: &str = "Freshet adds tables to this publication, and takes them out";

/// The state of the triggers: no row unless all exist and are always enabled, and their function belongs to their owner and is the one of this
/// release. The text changes when one of them is created again.
pub const STATE_QUERY: &str = concat!(
    "SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', e.oid, e.xmin, p.oid, p.xmin), ' ' ORDER BY e.evtname) \
     FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid = e.evtfoid \
     JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
     WHERE n.nspname = 'freshet' AND p.proname = 'note_ddl' AND p.prosecdef AND p.proowner = e.evtowner AND e.evtenabled = 'A' \
     AND (e.evtname, e.evtevent, coalesce(e.evttags, '{}')) IN (('freshet_ddl_end', 'ddl_command_end', '{}'), \
       ('freshet_sql_drop', 'sql_drop', '{}'), ('freshet_ddl_start', 'ddl_command_start', '{ALTER TABLE}')) AND p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'] \
     AND pg_catalog.current_setting('event_triggers', true) IS DISTINCT FROM 'off' AND p.prosrc = $freshet$",
    include_str!("note_ddl.sql"),
    "$freshet$ HAVING pg_catalog.count(*) = 3"
);

/// Creates the triggers, also if they exist. For a superuser, in one transaction.
pub fn create_statements() -> Vec<String> {
    let function = concat!(
        "CREATE OR REPLACE FUNCTION freshet.note_ddl() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER\n\
         SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' AS $freshet$",
        include_str!("note_ddl.sql"),
        "$freshet$;"
    );
    // Another creator of the function could change code that runs with the privileges of each session that runs DDL.
    let mut statements = vec![
        "CREATE SCHEMA IF NOT EXISTS freshet;".to_owned(),
        "ALTER SCHEMA freshet OWNER TO CURRENT_USER;".to_owned(),
        function.to_owned(),
        "ALTER FUNCTION freshet.note_ddl() OWNER TO CURRENT_USER;".to_owned(),
    ];
    for (name, event) in [
        ("freshet_ddl_end", "ddl_command_end"),
        ("freshet_sql_drop", "sql_drop"),
        ("freshet_ddl_start", "ddl_command_start WHEN TAG IN ('ALTER TABLE')"),
    ] {
        statements.push(format!("DROP EVENT TRIGGER IF EXISTS {name};"));
        statements.push(format!("CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION freshet.note_ddl();"));
        statements.push(format!("ALTER EVENT TRIGGER {name} ENABLE ALWAYS;"));
    }
    statements
}

/// One row if one of the triggers does not exist, whatever the state of the others.
pub const MISSING_QUERY: &str = "SELECT 'missing' FROM pg_catalog.pg_event_trigger \
     WHERE evtname IN ('freshet_ddl_end', 'freshet_sql_drop', 'freshet_ddl_start') HAVING pg_catalog.count(*) < 3";

/// [`create_statements`] in one text. It fails instead of waiting for a lock.
pub fn create_again() -> String {
    let statements = create_statements().join("\n");
    format!("BEGIN; SET LOCAL lock_timeout = '50ms'; {statements} COMMIT")
}

/// Removes everything that [`create_statements`] creates.
pub fn drop_statements() -> Vec<String> {
    [
        "DROP EVENT TRIGGER IF EXISTS freshet_ddl_end;",
        "DROP EVENT TRIGGER IF EXISTS freshet_sql_drop;",
        "DROP EVENT TRIGGER IF EXISTS freshet_ddl_start;",
        "DROP FUNCTION IF EXISTS freshet.note_ddl();",
        "DROP SCHEMA IF EXISTS freshet;",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Marks a publication as Freshet's own. For its owner.
pub fn mark_publication(name: &str) -> String {
    format!("COMMENT ON PUBLICATION {} IS {};", quote_identifier(name), quote_literal(MARK))
}

/// Whether a publication is marked: one row if it is.
pub fn mark_query(name: &str) -> String {
    format!(
        "SELECT 'marked' FROM pg_catalog.pg_publication WHERE pubname = {} \
         AND pg_catalog.obj_description(oid, 'pg_publication') LIKE 'Freshet%'",
        quote_literal(name)
    )
}

/// Creates the triggers unless they exist, and marks the publication. A refusal is reported once.
pub(crate) async fn ensure(client: &mut Client, publication: &str) -> Result<(), Fault> {
    static TOLD: Once = Once::new();
    if client.server_version() < VERSION_MESSAGES {
        return Ok(());
    }
    if client.query_timeout(&mark_query(publication), QUERY_TIMEOUT).await?.is_empty()
        && let Err(error) = tolerate(client.query_timeout(&mark_publication(publication), QUERY_TIMEOUT).await)?
    {
        warn!("cannot mark the publication ({error}); have its owner run {}", mark_publication(publication));
    }
    if !client.query_timeout(STATE_QUERY, QUERY_TIMEOUT).await?.is_empty() {
        return Ok(());
    }
    // A waiting session already holds other locks, so it waits only briefly.
    client.query_timeout("BEGIN; SET LOCAL lock_timeout = '100ms'", QUERY_TIMEOUT).await?;
    for statement in create_statements() {
        if let Err(error) = tolerate(client.query_timeout(&statement, QUERY_TIMEOUT).await)? {
            TOLD.call_once(|| {
                warn!(
                    "no event triggers ({error}), so changes of definitions and rights are found by polling, and \
                     materialised views are not cached; have a superuser run what freshet check --print-triggers prints"
                );
            });
            return Ok(());
        }
    }
    client.query_timeout("COMMIT", QUERY_TIMEOUT).await?;
    info!("event triggers made: DDL is in the change stream");
    Ok(())
}

/// Returns a refusal of the server as an answer.
pub(crate) fn tolerate<T>(answer: Result<T, Error>) -> Result<Result<T, Error>, Fault> {
    match answer {
        Err(error) if error.sqlstate().is_none() => Err(error.into()),
        answer => Ok(answer),
    }
}

/// The contents of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ddl {
    /// Anything may have a new definition.
    Everything,
    /// These relations were created, altered or dropped; each with its name.
    Relations(Vec<(TableId, Arc<str>)>),
}

/// Parses the contents of a message: `1`, a space, then `*` or, for each relation, its object id, a space, its name in UTF-8 and a NUL. Contents that
/// are not understood mean everything.
pub(crate) fn read(content: &[u8]) -> Ddl {
    relations(content).map_or(Ddl::Everything, Ddl::Relations)
}

fn relations(content: &[u8]) -> Option<Vec<(TableId, Arc<str>)>> {
    let list = std::str::from_utf8(content).ok()?.strip_prefix("1 ")?.strip_suffix('\0')?;
    list.split('\0')
        .map(|relation| {
            let (oid, name) = relation.split_once(' ')?;
            Some((TableId(oid.parse().ok()?), name.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let relation = |id, name: &str| (TableId(id), Arc::from(name));
        assert_eq!(read(b"1 7 film\0"), Ddl::Relations(vec![relation(7, "film")]));
        let two = "1 7 a b\n\08 ü\0";
        assert_eq!(read(two.as_bytes()), Ddl::Relations(vec![relation(7, "a b\n"), relation(8, "ü")]));
        for other in ["1 *", "", "1 ", "1 \0", "1 7\0", "1 x film\0", "1 7 film", "2 7 film\0", "1 7 film\0\0"] {
            assert_eq!(read(other.as_bytes()), Ddl::Everything, "{other:?}");
        }
        assert_eq!(read(b"1 7 \xff\0"), Ddl::Everything);
    }

    #[test]
    fn the_function_survives_any_setting_of_the_session() {
        // The text is read under the settings of the session, on which the meaning of a backslash depends.
        assert!(!include_str!("note_ddl.sql").contains('\\'));
        assert!(!include_str!("note_ddl.sql").contains("$freshet$"));
    }
}
