//! The servers of an upstream of several hosts: what is known of each, and which of them must not be used.
//!
//! A service connection to each host reads its role and position (`postgres/service/servers.rs`, `mysql/service/servers.rs`). MySQL and MariaDB:
//! [`gtids`]. PostgreSQL: two facts make a server the wrong one, whatever
//! else it says: it is another database system than that of the change stream, or it is a primary although a newer timeline exists, so another server
//! was promoted. Such a primary lives on without its standbys, and what is written there is lost. Of two primaries with the same timeline nobody
//! knows which is right: Freshet stays with the one that it uses. Only Patroni knows, where its members say who holds the leader's key: a primary
//! without it is the wrong one, also before any other has been seen.

mod gtids;
mod leader;
mod reading;
mod route;
mod settled;
#[cfg(test)]
mod tests;
mod views;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use freshet_types::{Lsn, Nanos};
use tokio::sync::Notify;

use crate::pool::{LagMax, PoolSettings, ReplicaLimits};
use crate::shared::ServerIdentity;
use crate::shared::servers::leader::{ByKey, Key};
use crate::shared::servers::reading::Reading;
use crate::shared::servers::settled::Settled;

pub(crate) use gtids::{Executed, Gtids};
pub use leader::Leader;
pub use reading::ReadFigures;
pub(crate) use reading::{Trouble, Who};
pub(crate) use route::{Route, route};
pub(crate) use settled::Ids;
pub(crate) use views::InUse;

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Standby,
    /// The same of MySQL or MariaDB.
    Replica,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::Replica => "replica",
        }
    }
}

/// What a server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) system_id: String,
    pub(crate) postmaster_start: String,
    pub(crate) role: Role,
    /// Of a standby: that from which it receives, if the account may know it.
    pub(crate) timeline: Option<u32>,
    /// The log end of a primary, or the replayed position of a standby.
    pub(crate) position: Option<Lsn>,
    /// Age of the last transaction that a standby has replayed; 0 if it has replayed all that it has received.
    pub(crate) lag_seconds: String,
    /// When the process that answers last read the server's configuration.
    pub(crate) configuration: String,
    /// Of MySQL or MariaDB.
    pub(crate) gtids: Option<Gtids>,
}

impl Found {
    /// Whether it is a standby that is further behind this log end than the operator allows. If that is not known, it is.
    fn lags_beyond(&self, limits: &ReplicaLimits, end: Option<Lsn>) -> bool {
        let Some(lag_max) = limits.lag_max.filter(|_| self.role == Role::Standby) else { return false };
        let is_within = match lag_max {
            LagMax::Bytes(most) => {
                let behind = end.zip(self.position).map(|(end, position)| end.0.saturating_sub(position.0));
                behind.is_some_and(|bytes| bytes <= most)
            }
            LagMax::Time(most) => self.lag_seconds.parse().is_ok_and(|seconds: f64| seconds <= most.as_secs_f64()),
        };
        !is_within
    }

    /// Whether both are answers of one run of one server.
    fn is_run_of(&self, other: &Self) -> bool {
        self.system_id == other.system_id && self.postmaster_start == other.postmaster_start
    }

    fn place(&self) -> Option<String> {
        match &self.gtids {
            Some(gtids) => Some(gtids.executed.to_string()),
            None => self.position.map(|position| position.to_string()),
        }
    }

    /// Whether it is the server of this stream.
    fn is_of(&self, stream: &ServerIdentity) -> bool {
        stream.system_id == self.system_id && stream.postmaster_start == self.postmaster_start
    }
}

/// Why a server must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftOut {
    OtherSystem,
    /// A primary that does not hold the leader's key of Patroni, which the server at this place holds.
    WithoutKey(usize),
    NobodysKey,
    /// A primary that no member of Patroni names.
    NotNamed,
    /// A primary of an older timeline than this one.
    OldTimeline(u32),
    SecondPrimary,
    /// MySQL and MariaDB, as the following.
    SecondWritable,
    Unrelated,
    Replaced,
    WritableReplica,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSystem => f.write_str("it is another database system: its system identifier differs"),
            Self::WithoutKey(at) => {
                write!(f, "it is a primary, and server {} of the upstream is Patroni's leader", at + 1)
            }
            Self::NobodysKey => f.write_str("it is a primary, and Patroni has no leader now"),
            Self::NotNamed => f.write_str("it is a primary, and no member of Patroni names it as the leader"),
            Self::OldTimeline(newest) => {
                write!(f, "it is an old primary: another server was promoted to timeline {newest}")
            }
            Self::SecondPrimary => f.write_str("it is a second primary with the same timeline"),
            Self::SecondWritable => f.write_str("it is a second primary: another server that can be written is in use"),
            Self::Unrelated => {
                f.write_str("it has none of the primary's GTIDs: another database, or no replica of it yet")
            }
            Self::Replaced => {
                f.write_str("it is an old primary: it can be written, but lacks GTIDs of the server that replaced it")
            }
            Self::WritableReplica => f.write_str("it is a replica that can be written: set read_only there"),
        }
    }
}

/// One server.
#[derive(Clone, Debug)]
struct Watched {
    address: String,
    /// Its last answer.
    found: Option<Arc<Found>>,
    /// Why it has not answered since.
    trouble: Option<String>,
    left_out: Option<LeftOut>,
    since: Instant,
    /// When it was first found as a primary.
    promoted: Option<Instant>,
    /// Among those that may answer a read.
    weight: u32,
    reading: Reading,
    past: gtids::Past,
}

impl Watched {
    fn state(&self) -> &'static str {
        match self {
            Self { left_out: Some(_), .. } => "left out",
            Self { trouble: Some(_), .. } => "down",
            Self { found: None, .. } => "unknown",
            _ => "up",
        }
    }

    fn is_up_as(&self, role: Role) -> bool {
        self.trouble.is_none() && self.found.as_ref().is_some_and(|found| found.role == role)
    }
}

#[derive(Debug, Default)]
struct Inside {
    /// In the order of the connection string; empty if they are not watched.
    list: Vec<Watched>,
    /// The database system of the change streams so far; before any, that of Patroni's leader.
    system_id: Option<String>,
    /// The newest timeline of a primary of this system.
    newest: u32,
    key: Key,
    /// MySQL and MariaDB: the stream's server.
    source: Option<gtids::Source>,
}

impl Inside {
    /// Leaves servers out, or no longer; returns the changes.
    fn apply(&mut self, verdicts: Vec<Option<LeftOut>>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (at, (server, left_out)) in self.list.iter_mut().zip(verdicts).enumerate() {
            if server.left_out != left_out {
                let was_left_out = server.left_out.is_some();
                (server.left_out, server.since) = (left_out, Instant::now());
                changes.push(Change { at, address: server.address.clone(), left_out, was_left_out });
            }
        }
        changes
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Servers {
    inside: Mutex<Inside>,
    /// Notified when a server has answered, or has not.
    answers: Notify,
    /// Notified when one is no longer what it was.
    changes: Notify,
    /// When a write was last acknowledged without a commit wait: replicas may lack it.
    written_since: AtomicU64,
    settled: Mutex<Settled>,
    /// Notified when more may have settled.
    settlements: Notify,
    deciding: Mutex<()>,
    /// Notified when Patroni's members must be asked at once.
    leader_wanted: Notify,
}

/// A server that is left out from now on, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its index.
    pub(crate) at: usize,
    pub(crate) address: String,
    pub(crate) left_out: Option<LeftOut>,
    /// Before, for another reason.
    pub(crate) was_left_out: bool,
}

impl Servers {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These servers are watched from now on.
    pub(crate) fn begin(&self, addresses: impl Iterator<Item = String>, limits: &ReplicaLimits) {
        let since = Instant::now();
        let watch = |address: String| {
            let (found, trouble, left_out, promoted, reading, past) = Default::default();
            let weight = limits.weight_of(&address);
            Watched { address, found, trouble, left_out, since, promoted, weight, reading, past }
        };
        self.inside().list = addresses.map(watch).collect();
    }

    /// A server has answered a question that was sent at `asked_at`, or has not. Returns whether that is new.
    pub(crate) fn note(&self, at: usize, answer: Result<Found, String>, asked_at: Nanos) -> bool {
        let mut inside = self.inside();
        let Some(server) = inside.list.get_mut(at) else { return false };
        let (before, role) = (server.state(), server.found.as_ref().map(|found| found.role));
        server.past.asked(answer.is_ok());
        let goes_on = match answer {
            Ok(found) => {
                let goes_on = server.found.as_ref().is_some_and(|before| found.goes_on_as(before));
                if found.role == Role::Primary && role != Some(Role::Primary) {
                    server.promoted = Some(Instant::now());
                }
                (server.found, server.trouble) = (Some(Arc::new(found)), None);
                server.reading.answered(asked_at);
                goes_on
            }
            Err(trouble) => {
                server.trouble = Some(trouble);
                false
            }
        };
        let is_new = server.state() != before || server.found.as_ref().map(|found| found.role) != role;
        if is_new {
            server.since = Instant::now();
        }
        drop(inside);
        if !goes_on {
            self.changes.notify_waiters();
        }
        self.answers.notify_waiters();
        is_new
    }

    /// Whether all servers have been asked.
    pub(crate) fn have_answered(&self) -> bool {
        self.inside().list.iter().all(|server| server.found.is_some() || server.trouble.is_some())
    }

    /// Whether the server of this stream is left out.
    pub(crate) fn has_left_out(&self, stream: &ServerIdentity) -> bool {
        let inside = self.inside();
        let is_of = |server: &&Watched| server.found.as_ref().is_some_and(|found| found.is_of(stream));
        // It may have several addresses.
        let mut of_stream = inside.list.iter().filter(is_of).peekable();
        of_stream.peek().is_some() && of_stream.all(|server| server.left_out.is_some())
    }

    /// To be held from a decision until it is applied: the last decision is applied last.
    pub(crate) fn deciding(&self) -> MutexGuard<'_, ()> {
        self.deciding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides which servers are left out, and returns the changes. `stream`: the server of the change stream; `in_use`: the index of the server that
    /// sessions use.
    pub(crate) fn decide(&self, stream: Option<&ServerIdentity>, in_use: usize) -> Vec<Change> {
        let inside = &mut *self.inside();
        if let Some(stream) = stream.filter(|stream| inside.system_id.as_ref() != Some(&stream.system_id)) {
            (inside.system_id, inside.newest) = (Some(stream.system_id.clone()), 0);
        }
        if inside.system_id.is_none() {
            inside.system_id = inside.leader_found().map(|leader| leader.system_id.clone());
        }
        let Some(system_id) = &inside.system_id else {
            // Before any stream the key decides alone, if it says anything.
            let verdicts = (0..inside.list.len()).map(|at| inside.wrong_by_key(at)).collect();
            return inside.apply(verdicts);
        };
        let primaries = inside
            .list
            .iter()
            .filter_map(|server| server.found.as_ref())
            .filter(|found| found.role == Role::Primary && found.system_id == *system_id);
        inside.newest = primaries.filter_map(|found| found.timeline).fold(inside.newest, u32::max);
        let system_id = system_id.clone();
        inside.keep_leader(&system_id);
        if inside.lacks_word() {
            self.leader_wanted.notify_one();
        }
        let verdicts: Vec<_> = (0..inside.list.len()).map(|at| verdict(inside, &system_id, at, in_use)).collect();
        inside.apply(verdicts)
    }

    /// A server's address.
    pub(crate) fn address(&self, at: usize) -> String {
        self.inside().list.get(at).map(|server| server.address.clone()).unwrap_or_default()
    }

    /// A server's address, state and trouble, for the log.
    pub(crate) fn describe(&self, at: usize) -> String {
        let inside = self.inside();
        let Some(server) = inside.list.get(at) else { return String::new() };
        let role = server.found.as_ref().map_or("", |found| found.role.name());
        let words = [&server.address, role, server.state(), server.trouble.as_deref().unwrap_or_default()];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// The rows of SHOW REPLICATION. `upstream`: for an upstream whose servers are not watched.
    pub(crate) fn shown(
        &self,
        upstream: &str,
        pool: &PoolSettings,
        stream: Option<&ServerIdentity>,
    ) -> Vec<Vec<String>> {
        let inside = self.inside();
        if inside.list.is_empty() {
            let is_stream = if stream.is_some() { "yes" } else { "no" };
            let row = [upstream, "", "", "", "", "", is_stream, "not watched", "", "", "", "", ""];
            return vec![row.map(str::to_owned).into()];
        }
        let comes_from = |found: &Found| stream.is_some_and(|stream| found.is_of(stream));
        let found = || inside.list.iter().filter_map(|server| server.found.as_deref());
        let end = found().find(|found| comes_from(found)).and_then(|found| found.position);
        inside.list.iter().map(|server| row(server, end, pool, comes_from)).collect()
    }
}

/// Whether the server at this place is the wrong one.
fn verdict(inside: &Inside, system_id: &str, at: usize, in_use: usize) -> Option<LeftOut> {
    let server = inside.list.get(at)?;
    let found = server.found.as_ref()?;
    if found.system_id != system_id {
        return Some(LeftOut::OtherSystem);
    }
    if found.role == Role::Standby {
        return None;
    }
    match inside.by_key(at, server, found) {
        ByKey::Right => return None,
        ByKey::Wrong(why) => return Some(why),
        ByKey::Nothing => {}
    }
    if found.timeline.is_some_and(|timeline| timeline < inside.newest) {
        return Some(LeftOut::OldTimeline(inside.newest));
    }
    let is_rival = |(other, rival): (usize, &Watched)| {
        // The same server under another address is no rival.
        let same = |rival: &Found| {
            rival.system_id == system_id
                && rival.timeline == found.timeline
                && rival.postmaster_start != found.postmaster_start
        };
        other == in_use && other != at && rival.is_up_as(Role::Primary) && rival.found.as_deref().is_some_and(same)
    };
    let has_rival = server.is_up_as(Role::Primary) && inside.list.iter().enumerate().any(is_rival);
    has_rival.then_some(LeftOut::SecondPrimary)
}

/// `end`: the log end of the stream's server.
fn row(server: &Watched, end: Option<Lsn>, pool: &PoolSettings, comes_from: impl Fn(&Found) -> bool) -> Vec<String> {
    let found = server.found.as_deref();
    let text = |of: fn(&Found) -> Option<String>| found.and_then(of).unwrap_or_default();
    let lag = end.zip(found.and_then(|found| found.position)).map(|(end, position)| end.0.saturating_sub(position.0));
    let reason = server.left_out.map(|left_out| left_out.to_string()).or_else(|| server.trouble.clone());
    let lags = || pool.read_replicas && found.is_some_and(|found| found.lags_beyond(&pool.replicas, end));
    let reason = reason.or_else(|| lags().then(|| "it lags beyond replica_lag_max: no reads go there".to_owned()));
    let is_primary = found.is_some_and(|found| found.role == Role::Primary);
    let weight = if is_primary { pool.replicas.primary_weight } else { server.weight };
    vec![
        server.address.clone(),
        text(|found| Some(found.role.name().to_owned())),
        text(|found| Some(found.timeline?.to_string())),
        text(Found::place),
        lag.map(|bytes| bytes.to_string()).unwrap_or_default(),
        text(|found| Some(found.lag_seconds.clone())),
        if found.is_some_and(comes_from) { "yes" } else { "no" }.to_owned(),
        server.state().to_owned(),
        server.since.elapsed().as_secs().to_string(),
        reason.unwrap_or_default(),
        server.reading.figures().answered.to_string(),
        server.reading.figures().lagging.to_string(),
        if pool.read_replicas { weight.to_string() } else { String::new() },
    ]
}
