//! The operator's settings for pools.

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
}

/// The settings of the pools of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// The mode.
    pub mode: PoolMode,
    /// The most connections of one database and user.
    pub size: usize,
    /// The most connections of all of them; None: no limit.
    pub size_in_all: Option<usize>,
    /// The longest wait for a connection; None: no limit.
    pub wait_timeout: Option<Duration>,
    /// An idle connection is closed after this time; None: it stays.
    pub idle_timeout: Option<Duration>,
    /// A connection this old is closed as soon as it is idle; None: it stays.
    pub lifetime: Option<Duration>,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            mode: PoolMode::Session,
            size: 20,
            size_in_all: None,
            wait_timeout: Some(Duration::from_secs(120)),
            idle_timeout: Some(Duration::from_secs(600)),
            lifetime: Some(Duration::from_secs(3600)),
        }
    }
}

impl PoolSettings {
    pub(super) fn is_too_old(&self, terms: &Terms) -> bool {
        self.lifetime.is_some_and(|limit| terms.born.elapsed() >= limit)
    }
}
