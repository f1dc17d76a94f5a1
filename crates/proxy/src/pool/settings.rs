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
    /// An idle connection is closed after this time; None: it stays.
    pub idle_timeout: Option<Duration>,
    /// A connection this old is closed as soon as it is idle; None: it stays.
    pub lifetime: Option<Duration>,
    /// PostgreSQL: the most statements of clients that stay prepared on a connection; 0: sessions do not share them.
    pub prepared_max: usize,
    /// PostgreSQL: reads go to replicas that are known to be new enough.
    pub read_replicas: bool,
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
            idle_timeout: Some(Duration::from_secs(600)),
            lifetime: Some(Duration::from_secs(3600)),
            prepared_max: 200,
            read_replicas: false,
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
