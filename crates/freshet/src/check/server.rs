//! The server: whether it can send a change stream at all, and at what cost.

use std::sync::Arc;

use anyhow::Result;
use freshet_net::Upstream;
use freshet_net::postgres::{Client, ConnectError, Purpose};
use freshet_proxy::postgres::service::stream_must_restart;

use super::database::Database;
use super::report::{Report, set_and_reload, set_and_restart};

/// The required number of free slots beyond those in use.
const SPARE: u32 = 10;
/// Below this size, in kB, transactions are decoded from disk rather early.
const DECODING_MEMORY_KB: u64 = 64 << 10;
/// SQLSTATE `insufficient_privilege`.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// SQLSTATE `too_many_connections`.
const TOO_MANY_CONNECTIONS: &str = "53300";

/// The version and the role of the server. False if no further check is useful.
pub(super) async fn kind(database: &mut Database, report: &mut Report) -> Result<bool> {
    let version = database.version.clone();
    if database.version_num < 130_000 {
        report.problem(format!("PostgreSQL {version}: Freshet needs version 13 or later"), Vec::new());
        return Ok(false);
    }
    if database.value("SELECT pg_is_in_recovery()").await? == "t" {
        let text = format!(
            "PostgreSQL {version}, a standby: it sends no change stream, so all statements pass to it, and nothing is cached \
             until it is promoted"
        );
        let mend = "-- point --upstream to the primary, or name it too: postgres://user@standby,primary/database?target_session_attrs=primary";
        report.problem(text, vec![mend.into()]);
        return Ok(false);
    }
    if stream_must_restart(database.version_num) {
        let text = format!(
            "PostgreSQL {version} lacks the fix of logical decoding that came with 13.21, 14.18, 15.13, 16.9 and 17.5: \
             whenever a table is first published, the change stream starts again and the cache begins empty"
        );
        report.warning(text, vec!["-- update the server to the latest minor release".into()]);
    } else {
        report.ok(format!("PostgreSQL {version}, a primary"));
    }
    Ok(true)
}

/// Checks what the server logs, and whether it has a free slot for a stream.
pub(super) async fn capacity(database: &mut Database, report: &mut Report) -> Result<()> {
    let wal_level = database.value("SELECT current_setting('wal_level')").await?;
    if wal_level == "logical" {
        report.ok("wal_level is logical");
    } else {
        let text = format!("wal_level is {wal_level}: there is no change stream, so nothing is cached");
        report.problem(text, set_and_restart("wal_level", "logical"));
    }
    let [slots_max, slots, own] = database
        .row(
            "SELECT current_setting('max_replication_slots'), count(*), \
             count(*) FILTER (WHERE active AND starts_with(slot_name, 'freshet') AND database = current_database()) \
             FROM pg_replication_slots",
        )
        .await?;
    let (slots_max, slots): (u32, u32) = (slots_max.parse()?, slots.parse()?);
    if slots < slots_max {
        report.ok(format!("replication slots: {slots} of {slots_max} in use"));
    } else if own != "0" {
        report.ok(format!("replication slots: all {slots_max} in use, {own} of them by Freshet"));
    } else {
        let text = format!("replication slots: all {slots_max} in use, and Freshet needs one: nothing is cached");
        let mut mend = set_and_restart("max_replication_slots", slots.max(slots_max) + SPARE);
        let unused = "SELECT format('-- or, if nobody needs it: SELECT pg_drop_replication_slot(%L);', slot_name) \
                      FROM pg_replication_slots WHERE NOT active ORDER BY slot_name LIMIT 5";
        mend.extend(database.column(unused).await?);
        report.problem(text, mend);
    }
    Ok(())
}

/// Opens a replication connection. This proves the right to it, a rule in `pg_hba.conf` and a free walsender.
pub(super) async fn replication(database: &mut Database, upstream: &Arc<Upstream>, report: &mut Report) -> Result<()> {
    let role = database.role.clone();
    let opened = Client::connect(upstream, Purpose::Replication).await;
    let max: u32 = database.value("SELECT current_setting('max_wal_senders')").await?.parse()?;
    match opened {
        Ok(client) => {
            client.close().await;
            report.ok(format!("{role} can open a replication connection"));
        }
        Err(ConnectError::Refused(error)) if error.code == INSUFFICIENT_PRIVILEGE => {
            let text = format!("{role} may not replicate ({}): nothing is cached", error.message);
            let managed =
                format!("-- managed services have a role for it instead, such as: GRANT rds_replication TO {role};");
            report.problem(text, vec![format!("ALTER ROLE {role} REPLICATION;"), managed]);
        }
        Err(ConnectError::Refused(error)) if error.code == TOO_MANY_CONNECTIONS => {
            let text = format!("no walsender is free ({}): nothing is cached", error.message);
            report.problem(text, set_and_restart("max_wal_senders", max + SPARE));
        }
        Err(error) => {
            let text = format!("{role} cannot open a replication connection ({error}): nothing is cached");
            let rule =
                format!("-- a rule of pg_hba.conf such as: hostssl {} {role} ADDRESS scram-sha-256", database.name);
            report.problem(text, vec![rule, "SELECT pg_catalog.pg_reload_conf();".into()]);
        }
    }
    Ok(())
}

/// Checks settings that determine the cost of a stream, or what happens to one that stops.
pub(super) async fn settings(database: &mut Database, report: &mut Report) -> Result<()> {
    let [keep, persistent, sender_timeout, memory, synchronous] = database
        .row(
            "SELECT (SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), \
             (SELECT count(*) FROM pg_replication_slots WHERE NOT temporary AND starts_with(slot_name, 'freshet')), \
             (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'), \
             (SELECT setting FROM pg_settings WHERE name = 'logical_decoding_work_mem'), \
             current_setting('synchronous_commit')",
        )
        .await?;
    if keep == "-1" && persistent == "0" {
        let text = "max_slot_wal_keep_size is not set: a persistent slot (Freshet's is temporary unless told otherwise) \
                    whose Freshet is gone would keep the server's log without limit";
        report.hint(text, set_and_reload("max_slot_wal_keep_size", "10GB"));
    } else if keep == "-1" {
        let text = "max_slot_wal_keep_size is not set, and Freshet has a persistent slot: when no Freshet reads it, the \
                    server keeps its log without limit, until the disk is full";
        report.warning(text, set_and_reload("max_slot_wal_keep_size", "10GB"));
    }
    if sender_timeout == "0" {
        let text = "wal_sender_timeout is 0: a stream whose Freshet is gone without a word keeps its slot, and the log";
        report.warning(text, set_and_reload("wal_sender_timeout", "60s"));
    }
    if memory.parse::<u64>()? < DECODING_MEMORY_KB {
        let text = format!("logical_decoding_work_mem is {memory} kB: larger transactions are decoded from disk");
        report.hint(text, set_and_reload("logical_decoding_work_mem", "64MB"));
    }
    if synchronous == "off" {
        let text = "synchronous_commit is off: commits reach the change stream up to three times wal_writer_delay after \
                    they are acknowledged; Freshet flushes the log where somebody waits for it";
        report.hint(text, Vec::new());
    }
    Ok(())
}
