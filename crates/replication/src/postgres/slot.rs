//! The replication slot: it keeps the stream's position on the server, and has a cost there.
//!
//! # The problem
//!
//! A slot holds back log, and the row versions that decoding it needs, until its position is confirmed. If a cache no longer exists, nothing confirms
//! the position of its slot; if a cache hangs, its slot falls behind until the disk is full. But without a slot, everything cached is lost with each
//! connection.
//!
//! | | temporary (default) | lasting (`--slot NAME`) |
//! |---|---|---|
//! | lives | as long as its connection | until its epoch ends |
//! | the connection breaks | new slot, new epoch: the cache starts empty | the same epoch continues, nothing is lost |
//! | Freshet dies | dropped with the connection | stays and holds log, up to `max_slot_wal_keep_size` |
//!
//! # One epoch, one slot
//!
//! A lasting slot is created for an epoch and dropped at its end. No other epoch or process takes it over: the cache of a new process is empty, so
//! the slot's log would be useless to it. A slot that a dead process left behind is dropped when the next process with the same name starts. So only
//! the process that confirmed a position uses it, and this process remembers which commits up to there are not proven visible. It may confirm
//! everything that it received, and the shutdown of the server, which waits until everything is confirmed, does not wait for it.
//!
//! # When an epoch may continue after its connection broke
//!
//! 1. *The server is the same, with the same start time.* After a restart it may run another release, with other libraries and other collations, or
//!    on a disk that was restored from a backup. So nothing read before is used, although a mere restart would have lost nothing. A promoted standby
//!    is another server, too.
//! 2. *The slot's position is that of the last passed position, or before it*, as read once the slot is acquired again and nothing else can move it.
//!    Then everything behind the passed position will be delivered, whoever created the slot. A slot that was dropped and created again is behind it:
//!    it begins at the log end at its creation.
//! 3. *The stream starts at the passed position*, so no commit is delivered twice; a transaction that was being sent is sent again as a whole. The
//!    descriptions of tables are kept, so that a change of a table's definition is noticed.
//!
//! If the server process of the broken connection still holds the slot, it is terminated.
//!
//! After a crash of one backend the server recovers, without a new start time and without the log that was not flushed. Everything that was passed
//! was flushed. Log that was read beyond it may be lost, and its positions may be used again, so nothing that depends on such a position may be used
//! after the break: this is the sink's duty ([`crate::Sink::suspended`]).
//!
//! # Limits
//!
//! While the connection lives, a second one watches the slot. If the slot holds back too many bytes (an open transaction may be the reason), or if
//! the stream has not passed a position for too long, the epoch ends and the slot is dropped; the next one begins at the log end. This also applies
//! while a slot is being created: creation waits for open write transactions and holds back log meanwhile.

use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::time::Duration;

use freshet_net::postgres::{Client, Error, Purpose, Rows};
use freshet_types::Lsn;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::error::Fault;
use crate::postgres::error::SetupError;
use crate::postgres::questions::{QUERY_TIMEOUT, run_of_server};
use crate::{FollowerConfig, Identity};

/// Interval of reads of the slot's state.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Time limit for dropping the slot, connecting included: the end of an epoch must not wait long for it.
const DROP_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two attempts to drop it: its walsender ends soon after its connection.
const DROP_PAUSE: Duration = Duration::from_millis(50);
/// Limit of an operator's name for a slot: PostgreSQL's names have 63 characters.
const NAME_CHARS_MAX: usize = 50;
/// Defaults of [`SlotConfig`].
const LAG_BYTES_MAX: u64 = 1 << 30;
const LAG_MAX: Duration = Duration::from_secs(60);

/// The slot of a follower, and its limits.
#[derive(Clone, Debug)]
pub struct SlotConfig {
    /// A lasting slot with this name; None: a temporary one.
    pub name: Option<SlotName>,
    /// Bytes of log that it may hold back.
    pub lag_bytes_max: u64,
    /// Longest time until the stream passes a position.
    pub lag_max: Duration,
}

impl Default for SlotConfig {
    fn default() -> Self {
        Self { name: None, lag_bytes_max: LAG_BYTES_MAX, lag_max: LAG_MAX }
    }
}

/// The name of a lasting slot, without the prefix `freshet_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotName(String);

impl FromStr for SlotName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if text.is_empty() || text.len() > NAME_CHARS_MAX || !text.chars().all(fits) {
            return Err(format!("{text:?} is not a slot name: use a-z, 0-9 and _, at most {NAME_CHARS_MAX}"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The slot of one epoch.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Needs no quotes.
    pub(crate) name: String,
    /// The slot outlives its connection.
    pub(crate) lasting: bool,
}

impl Slot {
    pub(crate) fn new(config: &SlotConfig) -> Self {
        if let Some(SlotName(name)) = &config.name {
            return Self { name: format!("freshet_{name}"), lasting: true };
        }
        let random = RandomState::new().hash_one(0);
        Self { name: format!("freshet_{:x}_{random:016x}", std::process::id()), lasting: false }
    }

    /// Drops the slot that an earlier process with the same name left behind.
    pub(crate) async fn drop_leftover(&self, client: &mut Client) -> Result<(), Fault> {
        let name = &self.name;
        let sql = format!("SELECT active_pid::text FROM pg_catalog.pg_replication_slots WHERE slot_name = '{name}'");
        match client.query_timeout(&sql, QUERY_TIMEOUT).await?.as_slice() {
            [] => Ok(()),
            [row] => match row.as_slice() {
                [None] => {
                    info!("dropping slot {name}, which an earlier process or stream left behind");
                    client.query_timeout(&drop_sql(name), QUERY_TIMEOUT).await?;
                    Ok(())
                }
                [Some(pid)] => Err(SetupError::SlotInUse { name: name.clone(), pid: pid.clone() }.into()),
                _ => Err(Fault::Answer("pg_replication_slots")),
            },
            _ => Err(Fault::Answer("pg_replication_slots")),
        }
    }

    /// Terminates the walsender of a broken connection if it still holds the slot.
    pub(crate) async fn end_walsender(&self, client: &mut Client, walsender: &str) -> Result<(), Fault> {
        client.query_timeout(&end_sql(&self.name, walsender), QUERY_TIMEOUT).await?;
        Ok(())
    }

    /// Advises how to limit the log of a lasting slot whose Freshet has died, if it has no limit.
    pub(crate) async fn advise(&self, client: &mut Client) -> Result<(), Fault> {
        let sql = "SELECT pg_catalog.current_setting('max_slot_wal_keep_size')";
        if self.lasting && client.query_timeout(sql, QUERY_TIMEOUT).await? == [[Some("-1".to_owned())]] {
            warn!(
                "max_slot_wal_keep_size is not set: if Freshet dies and does not come back, slot {} holds log until the \
                 disk is full; run ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; and SELECT pg_reload_conf();",
                self.name
            );
        }
        Ok(())
    }
}

fn end_sql(name: &str, walsender: &str) -> String {
    format!(
        "SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots \
         WHERE slot_name = '{name}' AND active_pid = {walsender}"
    )
}

fn drop_sql(name: &str) -> String {
    format!("SELECT pg_catalog.pg_drop_replication_slot('{name}')")
}

/// Watches a slot over a connection of its own, while another one streams.
pub(crate) struct Keeper {
    config: FollowerConfig,
    slot: Slot,
    /// The server of the stream.
    identity: Identity,
    /// The process id of its walsender.
    walsender: String,
    client: Option<Client>,
    /// The connection while it runs a statement. The statement continues if its caller is dropped: a new connection might lead to another server, and
    /// the slot would stay behind.
    running: Option<JoinHandle<(Client, Result<Rows, Error>)>>,
}

impl Keeper {
    pub(crate) fn new(config: &FollowerConfig, slot: Slot, identity: Identity, walsender: String) -> Self {
        Self { config: config.clone(), slot, identity, walsender, client: None, running: None }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The process id of the stream's walsender.
    pub(crate) fn walsender(&self) -> &str {
        &self.walsender
    }

    /// Runs a statement on the server of the stream; connects first if necessary.
    async fn query(&mut self, sql: &str) -> Result<Rows, Fault> {
        let _ = self.answer().await;
        let mut client = if let Some(client) = self.client.take().filter(|client| !client.is_dead()) {
            client
        } else {
            let mut client = Client::connect(&self.config.upstream, Purpose::Sql).await?;
            if run_of_server(&mut client).await? != self.identity.run() {
                return Err(Fault::OtherServer);
            }
            client
        };
        let sql = sql.to_owned();
        self.running = Some(tokio::spawn(async move {
            let rows = client.query_timeout(&sql, QUERY_TIMEOUT).await;
            (client, rows)
        }));
        self.answer().await
    }

    /// Waits for the answer of the running statement. The future may be dropped, and the call repeated.
    async fn answer(&mut self) -> Result<Rows, Fault> {
        let Some(task) = &mut self.running else { return Ok(Rows::new()) };
        let done = task.await;
        self.running = None;
        let (client, rows) = done.map_err(|_| Fault::Answer("the state of the slot"))?;
        self.client = Some(client);
        Ok(rows?)
    }

    /// Whether the slot, which this connection's walsender holds, is at this position or before it.
    pub(crate) async fn check_position(&mut self, passed: Lsn) -> Result<bool, Fault> {
        let sql = format!(
            "SELECT (confirmed_flush_lsn <= '{passed}')::text FROM pg_catalog.pg_replication_slots \
             WHERE slot_name = '{}' AND active_pid = {}",
            self.slot.name, self.walsender
        );
        Ok(self.query(&sql).await? == [[Some("true".to_owned())]])
    }

    /// Returns once a limit of the slot is exceeded. `retained` is told how many bytes of the log it holds.
    pub(crate) async fn watch(&mut self, retained: impl Fn(u64)) -> Fault {
        let limits = self.config.slot.clone();
        let mut behind = None;
        loop {
            // The first read opens the connection, while the name certainly leads to the stream's server. A failed read is repeated at the next
            // interval; if the server has died, the stream has ended, too.
            if let Ok(Some(state)) = self.read_state().await {
                retained(state.held_bytes);
                if let Some(fault) = state.judge(&limits, &mut behind) {
                    return fault;
                }
            }
            sleep(WATCH_EVERY.min(limits.lag_max / 4)).await;
        }
    }

    async fn read_state(&mut self) -> Result<Option<SlotState>, Fault> {
        // Log that is not flushed is not sent.
        let sql = format!(
            "SELECT pg_catalog.pg_wal_lsn_diff(e.lsn, s.restart_lsn)::text, e.lsn::text, s.confirmed_flush_lsn::text \
             FROM pg_catalog.pg_replication_slots s, (SELECT pg_catalog.pg_current_wal_flush_lsn() AS lsn) e \
             WHERE s.slot_name = '{}' AND s.active_pid = {}",
            self.slot.name, self.walsender
        );
        let rows = self.query(&sql).await?;
        let [row] = rows.as_slice() else { return Ok(None) };
        let [Some(held), Some(end), confirmed] = row.as_slice() else { return Ok(None) };
        let answer = || Fault::Answer("pg_replication_slots");
        let end = Lsn::parse(end).ok_or_else(answer)?.without_page_header(self.identity.wal_segment_bytes);
        let confirmed = confirmed.as_deref().map(|text| Lsn::parse(text).ok_or_else(answer)).transpose()?;
        // A slot's position may be in log that is not flushed yet.
        let held: i128 = held.parse().map_err(|_| answer())?;
        Ok(Some(SlotState { held_bytes: u64::try_from(held).unwrap_or(0), end, confirmed }))
    }

    /// Drops the slot of an epoch that has ended, if possible. The server drops a temporary slot with its connection, which is already closed.
    pub(crate) async fn drop_slot(&mut self) {
        if !self.slot.lasting {
            return;
        }
        let name = self.slot.name.clone();
        let end = end_sql(&name, &self.walsender);
        let work = async {
            self.query(&end).await?;
            loop {
                match self.query(&drop_sql(&name)).await {
                    Err(fault) if fault.sqlstate() == Some(OBJECT_IN_USE) => sleep(DROP_PAUSE).await,
                    done => return done,
                }
            }
        };
        match timeout(DROP_TIMEOUT, work).await {
            Ok(Err(fault)) if fault.sqlstate() != Some(UNDEFINED_OBJECT) => {
                warn!("slot {name} was not dropped: {fault}");
            }
            Err(_) => warn!("slot {name} was not dropped within {DROP_TIMEOUT:?}"),
            Ok(_) => {}
        }
    }
}

/// SQLSTATE `object_in_use`: another process holds the slot.
pub(crate) const OBJECT_IN_USE: &str = "55006";
/// SQLSTATE `undefined_object`: there is no such slot.
const UNDEFINED_OBJECT: &str = "42704";

/// The state of the slot.
struct SlotState {
    held_bytes: u64,
    /// The log end, as far as it is flushed.
    end: Lsn,
    /// None while the slot is being created.
    confirmed: Option<Lsn>,
}

impl SlotState {
    /// The exceeded limit, if any. `behind` is a position that the stream has not confirmed, and the time when it was read.
    fn judge(&self, limits: &SlotConfig, behind: &mut Option<(Lsn, Instant)>) -> Option<Fault> {
        let (bytes, bytes_max) = (self.held_bytes, limits.lag_bytes_max);
        if bytes > bytes_max {
            return Some(Fault::SlotHolds { bytes, bytes_max });
        }
        let confirmed = self.confirmed?;
        *behind = behind.filter(|(position, _)| confirmed < *position);
        if let Some((_, since)) = behind {
            return (since.elapsed() > limits.lag_max).then(|| Fault::Late(since.elapsed()));
        }
        *behind = (confirmed < self.end).then(|| (self.end, Instant::now()));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_names_need_no_quotes() {
        assert_eq!(SlotName::from_str("shop_2"), Ok(SlotName("shop_2".into())));
        for unfit in ["", "Shop", "a-b", "a'b", "ä", &"a".repeat(51)] {
            assert!(SlotName::from_str(unfit).is_err(), "{unfit}");
        }
        let config = SlotConfig { name: Some(SlotName("shop".into())), ..SlotConfig::default() };
        assert_eq!(Slot::new(&config).name, "freshet_shop");
        assert_ne!(Slot::new(&SlotConfig::default()).name, Slot::new(&SlotConfig::default()).name);
    }
}
