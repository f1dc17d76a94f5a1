//! The operator's settings for pools.

use std::sync::Arc;
use std::time::Duration;

use crate::pool::lease::Terms;

/// How sessions and server connections belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolMode {
    /// Each session has a connection of its own, from its login to its end.
    #[default]
    Session,
    /// A session has one while something of it lives there: a transaction, and whatever cannot be carried over to another connection.
    Transaction,
    /// The same, and transaction blocks are refused.
    Statement,
}

impl PoolMode {
    /// Whether sessions share connections.
    pub fn shares(self) -> bool {
        self != Self::Session
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// The settings of the pools of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// The mode of all users but these.
    pub mode: PoolMode,
    /// Users with a mode of their own.
    pub modes: Arc<[(String, PoolMode)]>,
    /// The most connections of one database and user.
    pub size: usize,
    /// As long as there are clients, this many are kept open; `size` is the limit.
    pub min: usize,
    /// So many more if a session has waited for `reserve_timeout`.
    pub reserve: usize,
    /// None: the reserve is not used.
    pub reserve_timeout: Option<Duration>,
    /// The most connections of all of them; None: no limit.
    pub size_in_all: Option<usize>,
    /// The longest wait for a connection; None: no limit.
    pub wait_timeout: Option<Duration>,
    /// While no server takes connections, a session tries to connect for so long.
    pub failover_timeout: Duration,
    /// An idle connection is closed after this time; None: it stays.
    pub idle_timeout: Option<Duration>,
    /// A connection this old is closed as soon as it is idle; None: it stays.
    pub lifetime: Option<Duration>,
    /// The most statements of clients that stay prepared on a connection; 0: sessions do not share them.
    pub prepared_max: usize,
    /// PostgreSQL: reads go to replicas that are known to be new enough.
    pub read_replicas: bool,
    /// Which of them, and which share of reads.
    pub replicas: ReplicaLimits,
}

/// How far a replica may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LagMax {
    /// So many bytes of log.
    Bytes(u64),
    /// The age of the last transaction that it has replayed.
    Time(Duration),
}

/// The operator's limits for reads at replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// One that is further behind is not read; None: none is too far.
    pub lag_max: Option<LagMax>,
    /// Weights of servers, by host and port, or by host; those of others are 1. With 0 a server is never read as a replica.
    pub weights: Arc<[(String, u32)]>,
    /// The weight of the primary among them; 0: it is read if no replica may answer.
    pub primary_weight: u32,
}

impl ReplicaLimits {
    /// The weight of the server with this address.
    pub fn weight_of(&self, address: &str) -> u32 {
        let is_it = |name: &str| Self::names(name, address);
        self.weights.iter().find(|(name, _)| is_it(name)).map_or(1, |(_, weight)| *weight)
    }

    /// Whether this is the server's address, or its host.
    pub fn names(name: &str, address: &str) -> bool {
        address == name || address.rsplit_once(':').is_some_and(|(host, _)| host.trim_matches(['[', ']']) == name)
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            mode: PoolMode::Session,
            modes: Arc::default(),
            size: 20,
            min: 0,
            reserve: 0,
            reserve_timeout: Some(Duration::from_secs(5)),
            size_in_all: None,
            wait_timeout: Some(Duration::from_secs(120)),
            failover_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(600)),
            lifetime: Some(Duration::from_secs(3600)),
            prepared_max: 200,
            read_replicas: false,
            replicas: ReplicaLimits::default(),
        }
    }
}

impl PoolSettings {
    /// The mode of this user.
    pub fn mode_of(&self, user: &str) -> PoolMode {
        self.modes.iter().find(|(name, _)| name == user).map_or(self.mode, |(_, mode)| *mode)
    }

    /// Whether any session may share connections.
    pub fn may_share(&self) -> bool {
        self.mode.shares() || self.modes.iter().any(|(_, mode)| mode.shares())
    }

    /// Whether reads may go to replicas, with so many servers in the connection string.
    pub fn may_read_replicas(&self, servers: usize) -> bool {
        self.read_replicas && self.may_share() && servers > 1
    }

    pub(super) fn is_too_old(&self, terms: &Terms) -> bool {
        self.lifetime.is_some_and(|limit| terms.born.elapsed() >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_host_with_or_without_its_port() {
        let weights = [("db2:5433".to_owned(), 3), ("db3".to_owned(), 0), ("::1".to_owned(), 5)].into();
        let limits = ReplicaLimits { weights, ..ReplicaLimits::default() };
        let weights = ["db2:5433", "db2:5432", "db3:5432", "[::1]:5432", "db"].map(|address| limits.weight_of(address));
        assert_eq!(weights, [3, 1, 0, 5, 1]);
    }
}
