//! From a URL to an established stream.
//!
//! All steps use one walsender connection, so that every answer is about the server that will send the stream:
//!
//! 1. check the requirements of a stream, and name what is missing;
//! 2. ensure that the publication exists, *before* the slot: the output plugin reads it as of each change;
//! 3. create a slot inside a REPEATABLE READ transaction that uses the slot's snapshot, and read this snapshot. It waits until every open transaction
//!    with a transaction id has ended;
//! 4. wait until a new snapshot covers the slot's. For decoding, a commit is done once its record is in the log, which is before it becomes visible
//!    to others (without limit if it waits for a synchronous standby). The slot's snapshot contains such a commit, so it is never delivered, but a
//!    query sent now may not see it yet;
//! 5. start the stream at the slot's consistent point.
//!
//! A stream that continues after its connection broke needs only the first and the last step ([`crate::postgres::slot`]).

use std::sync::Arc;
use std::time::Duration;

use freshet_net::Upstream;
use freshet_net::postgres::{Client, ConnectError, Purpose, quote_identifier, quote_literal};
use freshet_types::{Lsn, Snapshot};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::error::Fault;
use crate::postgres::error::SetupError;
use crate::postgres::questions::{QUERY_TIMEOUT, one_row};
use crate::postgres::slot::{Keeper, OBJECT_IN_USE, Slot};
use crate::{FollowerConfig, Identity, triggers};

/// Oldest supported server.
const VERSION_NUM_MIN: u32 = 130_000;
/// From this version on CREATE_REPLICATION_SLOT takes its options in parentheses.
const VERSION_NUM_OPTIONS: u32 = 150_000;
/// From this version on an UPDATE or DELETE fails if the replica identity has generated columns that the publication does not send.
const VERSION_NUM_GENERATED: u32 = 180_000;
/// Sends stored columns; virtual ones are never sent.
const SEND_GENERATED: &str = "publish_generated_columns = stored";
/// A longer wait is reported.
const TELL_AFTER: Duration = Duration::from_secs(3);
/// Pause between two reads of a snapshot.
const COVER_POLL: Duration = Duration::from_millis(5);
/// Longest such pause.
const COVER_POLL_MAX: Duration = Duration::from_millis(250);

/// The server's facts that a stream depends on; the slot that will be created counts as free.
const SETTINGS: &str = "SELECT pg_catalog.pg_is_in_recovery()::text, \
    pg_catalog.current_setting('wal_level'), \
    pg_catalog.current_setting('server_version_num'), \
    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size'), \
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text, \
    pg_catalog.current_setting('max_replication_slots'), \
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots WHERE slot_name <> ";

/// SQLSTATE `insufficient_privilege`.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// SQLSTATE `too_many_connections`.
const TOO_MANY_CONNECTIONS: &str = "53300";
/// SQLSTATE `duplicate_object`.
const DUPLICATE_OBJECT: &str = "42710";
/// SQLSTATE `unique_violation`: the same race, later.
const UNIQUE_VIOLATION: &str = "23505";

/// A walsender of a server that can send a stream.
pub(crate) struct Opened {
    pub(crate) client: Client,
    pub(crate) identity: Identity,
    /// The walsender's process id.
    pub(crate) walsender: String,
}

/// Connects, and checks the requirements of a stream.
pub(crate) async fn open(config: &FollowerConfig, slot: &Slot) -> Result<Opened, Fault> {
    let mut client = connect(&config.upstream).await?;
    let identity = check(&mut client, config, slot).await?;
    let rows = client.query_timeout("SELECT pg_catalog.pg_backend_pid()", QUERY_TIMEOUT).await?;
    let [Some(walsender)] = one_row(&rows, "pg_backend_pid")? else { return Err(Fault::Answer("pg_backend_pid")) };
    Ok(Opened { client, identity, walsender: walsender.clone() })
}

/// Starts a stream with a new slot; returns its start. Waits without limit for open write transactions.
pub(crate) async fn start(
    client: &mut Client,
    config: &FollowerConfig,
    slot: &Slot,
    version_num: u32,
) -> Result<Lsn, Fault> {
    publication(client, config, version_num).await?;
    if config.ensure_publication {
        triggers::ensure(client, &config.publication).await?;
    }
    slot.drop_leftover(client).await?;
    slot.advise(client).await?;
    let (start, shown) = create_slot(client, slot, version_num).await?;
    wait_until_covered(client, &shown).await?;
    start_replication(client, config, slot, start).await?;
    Ok(start)
}

/// Continues with a slot where the stream broke. The slot's position must be that one, or before it.
pub(crate) async fn resume(
    client: &mut Client,
    config: &FollowerConfig,
    keeper: &mut Keeper,
    passed: Lsn,
) -> Result<(), Fault> {
    if let Err(fault) = start_replication(client, config, keeper.slot(), passed).await {
        // The slot is in use, perhaps by the walsender of the broken connection.
        return Err(if fault.sqlstate() == Some(OBJECT_IN_USE) { Fault::SlotBusy } else { fault });
    }
    if keeper.check_position(passed).await? { Ok(()) } else { Err(Fault::SlotMoved) }
}

async fn start_replication(client: &mut Client, config: &FollowerConfig, slot: &Slot, start: Lsn) -> Result<(), Fault> {
    // The replication grammar has no escapes except the doubled quote.
    let names = quote_identifier(&config.publication).replace('\'', "''");
    let name = &slot.name;
    let messages = if client.server_version() >= triggers::VERSION_MESSAGES { ", messages 'true'" } else { "" };
    let options = format!("proto_version '1', publication_names '{names}'{messages}");
    let sql = format!("START_REPLICATION SLOT {name} LOGICAL {start} ({options})");
    Ok(client.start_copy_both(&sql).await?)
}

async fn connect(upstream: &Arc<Upstream>) -> Result<Client, Fault> {
    Client::connect(upstream, Purpose::Replication).await.map_err(|error| match error {
        ConnectError::Refused(source) if source.code == INSUFFICIENT_PRIVILEGE => {
            SetupError::NotReplication { user: upstream.conninfo().user.clone(), source }.into()
        }
        ConnectError::Refused(source) if source.code == TOO_MANY_CONNECTIONS => SetupError::NoWalSender(source).into(),
        other => Fault::Connect(other),
    })
}

/// Reads the server's identity and checks its requirements for a stream.
async fn check(client: &mut Client, config: &FollowerConfig, slot: &Slot) -> Result<Identity, Fault> {
    let version = client.parameters().get("server_version").cloned().unwrap_or_default();
    if client.server_version() < VERSION_NUM_MIN / 10_000 {
        return Err(SetupError::Version(version).into());
    }
    let rows = client.query_timeout("IDENTIFY_SYSTEM", QUERY_TIMEOUT).await?;
    let [Some(system_id), Some(timeline), _, Some(database)] = one_row(&rows, "IDENTIFY_SYSTEM")? else {
        return Err(Fault::Answer("IDENTIFY_SYSTEM"));
    };
    let settings = client.query_timeout(&format!("{SETTINGS}'{}')", slot.name), QUERY_TIMEOUT).await?;
    let [Some(recovery), Some(wal_level), Some(number), Some(segment), Some(postmaster_start), Some(max), Some(used)] =
        one_row(&settings, "settings")?
    else {
        return Err(Fault::Answer("settings"));
    };
    if recovery != "false" {
        let is_wanted = config.upstream.conninfo().target_session_attrs.is_for_standbys();
        return Err(SetupError::Standby { is_wanted }.into());
    }
    if wal_level != "logical" {
        return Err(SetupError::WalLevel(wal_level.clone()).into());
    }
    let (max, used) = (parse(max, "max_replication_slots")?, parse(used, "pg_replication_slots")?);
    if used >= max {
        return Err(SetupError::NoSlot { used, max }.into());
    }
    Ok(Identity {
        system_id: system_id.clone(),
        timeline: parse(timeline, "timeline")?,
        postmaster_start: postmaster_start.clone(),
        server_version_num: parse(number, "server_version_num")?,
        wal_segment_bytes: parse(segment, "wal_segment_size")?,
        database: database.clone(),
    })
}

/// Ensures that the publication exists and sends every change of its tables.
async fn publication(client: &mut Client, config: &FollowerConfig, version_num: u32) -> Result<(), Fault> {
    let name = &config.publication;
    let quoted = quote_identifier(name);
    let literal = quote_literal(name);
    let sql = format!(
        "SELECT puballtables::text, (pubinsert AND pubupdate AND pubdelete AND pubtruncate)::text, pubviaroot::text \
         FROM pg_catalog.pg_publication WHERE pubname = {literal}"
    );
    let rows = client.query_timeout(&sql, QUERY_TIMEOUT).await?;
    if rows.is_empty() {
        return create_publication(client, config, version_num).await;
    }
    let unsuitable =
        |what, statement| Err(SetupError::PublicationUnsuitable { name: name.clone(), what, statement }.into());
    let [Some(all_tables), Some(all_changes), Some(via_root)] = one_row(&rows, "pg_publication")? else {
        return Err(Fault::Answer("pg_publication"));
    };
    if all_tables == "true" {
        let statement = format!("DROP PUBLICATION {quoted};");
        return unsuitable("is FOR ALL TABLES, which breaks updates of tables without a replica identity", statement);
    }
    if all_changes != "true" || via_root == "true" {
        let statement = format!(
            "ALTER PUBLICATION {quoted} SET (publish = 'insert, update, delete, truncate', \
             publish_via_partition_root = false);"
        );
        return unsuitable("does not send every change under its own table", statement);
    }
    if version_num >= VERSION_NUM_OPTIONS {
        let sql = format!(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p \
             ON p.oid = r.prpubid WHERE p.pubname = {literal} AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)"
        );
        let rows = client.query_timeout(&sql, QUERY_TIMEOUT).await?;
        if one_row(&rows, "pg_publication_rel")? != [Some("0".to_owned())] {
            return unsuitable("has row filters or column lists", format!("DROP PUBLICATION {quoted};"));
        }
    }
    if config.ensure_publication && version_num >= VERSION_NUM_GENERATED {
        send_generated(client, name).await?;
    }
    Ok(())
}

/// Makes a publication from before version 18 send generated columns. If this is not permitted, tables with generated columns in their replica
/// identity are not published.
async fn send_generated(client: &mut Client, name: &str) -> Result<(), Fault> {
    let literal = quote_literal(name);
    let sql = format!("SELECT pubgencols::text FROM pg_catalog.pg_publication WHERE pubname = {literal}");
    let rows = client.query_timeout(&sql, QUERY_TIMEOUT).await?;
    if one_row(&rows, "pg_publication")? == [Some("s".to_owned())] {
        return Ok(());
    }
    let sql = format!("ALTER PUBLICATION {} SET ({SEND_GENERATED});", quote_identifier(name));
    if let Err(error) = triggers::tolerate(client.query_timeout(&sql, QUERY_TIMEOUT).await)? {
        warn!("publication {name} does not send generated columns ({error}); have its owner run {sql}");
    }
    Ok(())
}

/// The options of Freshet's publications. Before version 18 none sends generated columns, and no statement fails for it.
#[must_use]
pub fn publication_options(version_num: u32) -> String {
    let mut options = "publish = 'insert, update, delete, truncate'".to_owned();
    if version_num >= VERSION_NUM_GENERATED {
        options.push_str(", ");
        options.push_str(SEND_GENERATED);
    }
    options
}

async fn create_publication(client: &mut Client, config: &FollowerConfig, version_num: u32) -> Result<(), Fault> {
    let name = config.publication.clone();
    let statement = format!(
        "CREATE PUBLICATION {} WITH ({});",
        quote_identifier(&config.publication),
        publication_options(version_num)
    );
    if !config.ensure_publication {
        let why = ", and Freshet is told to create nothing (see freshet check --print-setup)".to_owned();
        return Err(SetupError::PublicationMissing { name, why, statement }.into());
    }
    match client.query_timeout(&statement, QUERY_TIMEOUT).await {
        Ok(_) => Ok(()),
        // Another instance created it first.
        Err(error) if matches!(error.sqlstate(), Some(DUPLICATE_OBJECT | UNIQUE_VIOLATION)) => Ok(()),
        Err(error) if error.sqlstate() == Some(INSUFFICIENT_PRIVILEGE) => {
            Err(SetupError::PublicationMissing { name, why: format!(" ({error})"), statement }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Creates the slot; returns its consistent point and its snapshot.
async fn create_slot(client: &mut Client, slot: &Slot, version_num: u32) -> Result<(Lsn, Snapshot), Fault> {
    let option = if version_num >= VERSION_NUM_OPTIONS { "(SNAPSHOT 'use')" } else { "USE_SNAPSHOT" };
    let temporary = if slot.lasting { "" } else { "TEMPORARY " };
    client.query_timeout("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", QUERY_TIMEOUT).await?;
    let sql = format!("CREATE_REPLICATION_SLOT {} {temporary}LOGICAL pgoutput {option}", slot.name);
    let rows = tell_when_slow(
        client.query(&sql),
        "the change stream waits for open write transactions to end; see SELECT pid, xact_start, query FROM \
         pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start, and pg_prepared_xacts",
    )
    .await?;
    let start = match one_row(&rows, "CREATE_REPLICATION_SLOT")? {
        [_, Some(point), ..] => Lsn::parse(point).ok_or(Fault::Answer("CREATE_REPLICATION_SLOT"))?,
        _ => return Err(Fault::Answer("CREATE_REPLICATION_SLOT")),
    };
    let shown = snapshot(client).await?;
    client.query_timeout("COMMIT", QUERY_TIMEOUT).await?;
    Ok((start, shown))
}

/// Reads new snapshots until one covers the slot's snapshot.
async fn wait_until_covered(client: &mut Client, shown: &Snapshot) -> Result<(), Fault> {
    let wait = async {
        let mut pause = COVER_POLL;
        while !snapshot(client).await?.covers(shown) {
            sleep(pause).await;
            pause = (pause * 2).min(COVER_POLL_MAX);
        }
        Ok(())
    };
    tell_when_slow(wait, "the change stream waits for logged commits to become visible (synchronous standby?)").await
}

async fn snapshot(client: &mut Client) -> Result<Snapshot, Fault> {
    let rows = client.query_timeout("SELECT pg_catalog.pg_current_snapshot()", QUERY_TIMEOUT).await?;
    let [Some(text)] = one_row(&rows, "pg_current_snapshot")? else {
        return Err(Fault::Answer("pg_current_snapshot"));
    };
    Snapshot::parse(text).ok_or(Fault::Answer("pg_current_snapshot"))
}

/// Waits without limit, and reports it once.
async fn tell_when_slow<T>(work: impl Future<Output = T>, what: &str) -> T {
    let began = Instant::now();
    tokio::pin!(work);
    if let Ok(done) = timeout(TELL_AFTER, &mut work).await {
        return done;
    }
    warn!("{what}");
    let done = work.await;
    info!("… waited {:.1} s", began.elapsed().as_secs_f64());
    done
}

fn parse<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, Fault> {
    text.parse().map_err(|_| Fault::Answer(what))
}
