//! The event triggers: whether the change stream carries DDL, or polling must find it.

use anyhow::Result;
use freshet_replication::triggers::{STATE_QUERY, create_statements};

use super::Mode;
use super::database::Database;
use super::report::{Report, set_and_reload};

/// The consequences without them.
const MEANING: &str = "changes of definitions and rights are found by polling, up to a second late, and materialised \
                       views are not cached; before SET UNLOGGED of a published table by others than through Freshet, \
                       ALTER PUBLICATION … DROP TABLE ONLY it";
/// Version whose output plugin sends messages.
const VERSION_NUM_MESSAGES: u32 = 140_000;

pub(super) async fn look(database: &mut Database, mode: Mode, report: &mut Report) -> Result<()> {
    if database.version_num < VERSION_NUM_MESSAGES {
        let text = format!("PostgreSQL {} sends no messages for DDL: {MEANING}", database.version);
        report.problem(text, vec!["-- upgrade the server to version 14 or later".into()]);
        return Ok(());
    }
    if database.value("SELECT coalesce(current_setting('event_triggers', true), 'on')").await? == "off" {
        report.problem(format!("event_triggers is off: {MEANING}"), set_and_reload("event_triggers", "on"));
    }
    if stand(database).await? {
        report.ok("the event triggers stand, so DDL comes with the change stream");
        return Ok(());
    }
    if mode == Mode::Managed && database.superuser {
        report.ok(format!("the event triggers do not stand yet, and {} may create them", database.role));
        return Ok(());
    }
    // They are often only disabled, or not ENABLE ALWAYS.
    let enable = "SELECT format('ALTER EVENT TRIGGER %I ENABLE ALWAYS;', evtname) FROM pg_event_trigger \
                  WHERE evtname IN ('freshet_ddl_end', 'freshet_sql_drop', 'freshet_ddl_start') AND evtenabled <> 'A' ORDER BY evtname";
    let disabled = database.column(enable).await?;
    let others = database.value(&state_if_enabled()).await? != "t";
    if !disabled.is_empty() && !others {
        report.problem(format!("the event triggers are not enabled always: {MEANING}"), disabled);
    } else {
        // The script with their function is longer than the whole report.
        let mend = "-- as a superuser, in this database: freshet check --print-triggers | psql -v ON_ERROR_STOP=1";
        let text = format!("the event triggers are missing, or another release's, and need a superuser: {MEANING}");
        report.problem(text, vec![mend.into()]);
    }
    Ok(())
}

/// Whether they exist, are enabled, and are those of this release.
pub(super) async fn stand(database: &mut Database) -> Result<bool> {
    Ok(!database.column(STATE_QUERY).await?.is_empty())
}

/// The script that creates them, for a superuser.
pub(super) fn script() -> String {
    let mut lines = vec!["BEGIN;".to_owned()];
    lines.extend(create_statements());
    lines.push("COMMIT;\n".to_owned());
    lines.join("\n")
}

/// Their state if they were enabled.
fn state_if_enabled() -> String {
    format!("SELECT EXISTS ({})", STATE_QUERY.replace("e.evtenabled = 'A'", "true"))
}
