//! Which server of MySQL or MariaDB must not be used: what they have executed tells.
//!
//! These servers have no timelines. Who can be written is a primary, as far as it goes. Of two, the server of the change stream stays. Another one may
//! replace it when it can no longer be written, or when the stream is lost and it does not answer several questions. Such a server normally has all that the stream's server had. It is used
//! also if it lacks some: then those commits are lost in the database, and nothing is wrong in Freshet, since the cache begins empty there. But who
//! has nothing of it is another database. And a server that was replaced stays left out until it is a replica, or has what its successor has: an old
//! primary may come back and can be written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use freshet_types::GtidSet;

use crate::shared::ServerIdentity;
use crate::shared::servers::{Change, Inside, LeftOut, Role, Servers, Watched};

/// What a server of MySQL or MariaDB has answered beyond the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gtids {
    pub(crate) executed: Executed,
    /// It receives from another server.
    pub(crate) receives: bool,
}

/// The transactions that a server has executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    MySql(GtidSet),
    /// The last number of each domain and server.
    MariaDb(BTreeMap<(u32, u32), u64>),
    /// The answer could not be read.
    Unknown,
}

impl Executed {
    /// `@@gtid_executed`.
    pub(crate) fn of_mysql(text: &str) -> Option<Self> {
        GtidSet::parse(text).map(Self::MySql)
    }

    /// `0-1-57,0-2-60`: the numbers of several variables.
    pub(crate) fn of_mariadb(text: &str) -> Option<Self> {
        let mut last = BTreeMap::new();
        for gtid in text.split(',').map(str::trim).filter(|gtid| !gtid.is_empty()) {
            let mut parts = gtid.split('-');
            let (domain, server) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let number: u64 = parts.next()?.parse().ok()?;
            if parts.next().is_some() {
                return None;
            }
            let last = last.entry((domain, server)).or_insert(number);
            *last = number.max(*last);
        }
        Some(Self::MariaDb(last))
    }

    /// Where it has transactions of: MySQL's servers, or MariaDB's domains with servers.
    fn sources(&self) -> BTreeSet<(u128, u32)> {
        match self {
            Self::MySql(set) => set.iter().map(|(source, ..)| (source, 0)).collect(),
            Self::MariaDb(last) => last.keys().map(|(domain, server)| (u128::from(*domain), *server)).collect(),
            Self::Unknown => BTreeSet::new(),
        }
    }

    /// Whether it has transactions that the other server has, as far as can be seen.
    fn shares(&self, other: &Self) -> bool {
        matches!(self, Self::Unknown) || !self.sources().is_disjoint(&other.sources())
    }

    /// Whether it has all that the other server has. A domain of MariaDB is not enough: a server that wrote on its own has higher numbers there.
    fn has_all_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MySql(own), Self::MySql(other)) => other.is_subset_of(own),
            (Self::MariaDb(own), Self::MariaDb(other)) => {
                other.iter().all(|(source, number)| own.get(source).is_some_and(|own| own >= number))
            }
            _ => false,
        }
    }

    fn is_empty(&self) -> bool {
        self.sources().is_empty()
    }
}

/// The last number of each domain.
fn domains(last: &BTreeMap<(u32, u32), u64>) -> BTreeMap<u32, u64> {
    let mut domains = BTreeMap::new();
    for ((domain, _), number) in last {
        let last = domains.entry(*domain).or_insert(*number);
        *last = (*number).max(*last);
    }
    domains
}

/// As the servers print it, in one line; of MariaDB the last of each domain.
impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = match self {
            Self::MySql(set) => return set.fmt(f),
            Self::MariaDb(last) => last,
            Self::Unknown => return Ok(()),
        };
        let domains = domains(last);
        let newest = last.iter().filter(|((domain, _), number)| domains.get(domain) == Some(*number));
        for (at, ((domain, server), number)) in newest.enumerate() {
            write!(f, "{}{domain}-{server}-{number}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// The stream's server is given up after so many questions in a row without an answer; all but the first are asked on new connections.
const FAILED_MAX: u32 = 3;

/// What is remembered of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// It was a replica.
    was_replica: bool,
    /// It was the stream's server, and another one has replaced it.
    was_replaced: bool,
    /// The last questions in a row that it has not answered.
    failed: u32,
}

impl Past {
    /// It has answered a question, or not.
    pub(super) fn asked(&mut self, has_answered: bool) {
        self.failed = if has_answered { 0 } else { self.failed.saturating_add(1) };
    }
}

/// The server of the change stream, also when there is none for a while.
#[derive(Debug)]
pub(super) struct Source {
    at: usize,
    system_id: String,
    /// What it had executed when it answered last.
    executed: Executed,
}

impl Servers {
    /// Decides which servers are left out, and returns the changes. `stream`: the server of the change stream.
    pub(crate) fn decide_by_gtids(&self, stream: Option<&ServerIdentity>) -> Vec<Change> {
        let inside = &mut *self.inside();
        if let Some(stream) = stream {
            inside.note_source(stream);
        }
        for server in &mut inside.list {
            if server.is_up_as(Role::Replica) {
                (server.past.was_replica, server.past.was_replaced) = (true, false);
            }
        }
        let Some(source) = &inside.source else { return Vec::new() };
        let verdicts = inside
            .list
            .iter()
            .enumerate()
            .map(|(at, server)| verdict(inside, source, stream.is_some(), at, server))
            .collect();
        inside.apply(verdicts)
    }

    /// What the server is, if it answers and is not left out.
    pub(crate) fn role_in_use(&self, at: usize) -> Option<Role> {
        let inside = self.inside();
        let server = inside.list.get(at).filter(|server| server.left_out.is_none() && server.trouble.is_none())?;
        server.found.as_ref().map(|found| found.role)
    }

    /// Whether the server has not answered the last questions.
    pub(crate) fn is_down_for_long(&self, at: usize) -> bool {
        self.inside().list.get(at).is_some_and(Watched::is_down_for_long)
    }
}

impl Inside {
    /// The stream comes from this server.
    fn note_source(&mut self, stream: &ServerIdentity) {
        let is_it = |server: &Watched| server.found.as_ref().is_some_and(|found| found.is_of(stream));
        let Some(at) = self.list.iter().position(is_it) else { return };
        let Some(found) = self.list.get(at).and_then(|server| server.found.as_ref()) else { return };
        let Some(Gtids { executed, .. }) = found.gtids.clone() else { return };
        let source = Source { at, system_id: found.system_id.clone(), executed: executed.clone() };
        let before = self.source.replace(source);
        // A server may have several addresses.
        let Some(before) = before.filter(|before| before.at != at && before.system_id != stream.system_id) else {
            return;
        };
        if let Some(old) = self.list.get_mut(before.at) {
            old.past.was_replaced = true;
            let (old, new) = (old.address.clone(), self.list.get(at).map(|server| server.address.clone()));
            let new = new.unwrap_or_default();
            if executed.has_all_of(&before.executed) {
                tracing::info!("the server {new} has replaced {old}");
            } else {
                tracing::warn!(
                    "the server {new} has replaced {old}, but lacks some of its transactions: they are lost"
                );
            }
        }
        if let Some(new) = self.list.get_mut(at) {
            new.past.was_replaced = false;
        }
    }
}

impl Watched {
    fn is_down_for_long(&self) -> bool {
        self.past.failed >= FAILED_MAX
    }
}

/// Whether the server is the wrong one.
fn verdict(inside: &Inside, source: &Source, has_stream: bool, at: usize, server: &Watched) -> Option<LeftOut> {
    // The same server under another address is no rival.
    let found = server.found.as_ref().filter(|found| at != source.at && found.system_id != source.system_id)?;
    let gtids = found.gtids.as_ref()?;
    if !source.executed.is_empty() && !gtids.executed.shares(&source.executed) {
        return Some(LeftOut::Unrelated);
    }
    if found.role != Role::Primary {
        return None;
    }
    if server.past.was_replaced && !gtids.executed.has_all_of(&source.executed) {
        return Some(LeftOut::Replaced);
    }
    let is_rival = |rival: &Watched| {
        let is_primary = rival.found.as_ref().is_some_and(|other| other.role == Role::Primary);
        is_primary && (has_stream || !rival.is_down_for_long())
    };
    if inside.list.get(source.at).is_some_and(is_rival) {
        return Some(LeftOut::SecondWritable);
    }
    (gtids.receives && !server.past.was_replica).then_some(LeftOut::WritableReplica)
}

#[cfg(test)]
#[path = "gtids_tests.rs"]
mod tests;
