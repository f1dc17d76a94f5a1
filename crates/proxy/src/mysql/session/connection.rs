//! A connection to the database: the socket, and what is true of it whichever session uses it.

use freshet_types::Reason;

use crate::mysql::MySql;
use crate::mysql::kills::Thread;
use crate::mysql::session::counted::Counted;
use crate::mysql::session::there::PreparedThere;
use crate::mysql::session::user_variables::UserVariables;
use crate::peer::Peer;
use crate::shared::ServerIdentity;
use crate::statement::registry::Tracking;

/// A connection to the database.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pub(super) peer: Peer,
    /// The server, and its number of it.
    pub(super) thread: Thread,
    /// The server reads nothing more.
    pub(super) deaf: bool,
    /// Whether the server reports the session's commits.
    pub(super) tracking: Tracking,
    /// Bytes that came on it for earlier sessions.
    pub(super) earlier_received: u64,
    /// The statements of earlier sessions that are prepared on it.
    pub(super) prepared: PreparedThere,
    /// For the next session that has it.
    pub(super) facts: Facts,
}

impl ServerConnection {
    /// A connection after a login.
    pub(crate) fn new(peer: Peer, thread: Thread) -> Self {
        Self {
            peer,
            thread,
            deaf: false,
            tracking: Tracking::default(),
            earlier_received: 0,
            prepared: PreparedThere::default(),
            facts: Facts::default(),
        }
    }

    /// A connection after a login that no session has; None: it is of no use.
    pub(crate) fn at_rest(peer: Peer, thread: Thread) -> Option<Self> {
        let mut connection = Self::new(peer, thread);
        connection.facts.counted = Counted::from(connection.consumed());
        connection.peer.rest().ok()?;
        Some(connection)
    }

    /// Whether it leads to the host that sessions use.
    pub(super) fn is_in_use(&self, shared: &MySql) -> bool {
        shared.own.upstream.chosen() == Some(self.thread.host)
    }

    /// Whether it leads to another server than the one that sessions use, as after a failover.
    pub(super) fn leads_elsewhere(&self, shared: &MySql) -> bool {
        let facts = &self.facts;
        !self.is_in_use(shared) || shared.leads_elsewhere(facts.server.as_ref(), facts.compared.as_ref())
    }

    /// The number of bytes that have come and are consumed.
    pub(super) fn consumed(&self) -> u64 {
        (self.earlier_received + self.peer.traffic).saturating_sub(self.peer.input.bytes().len() as u64)
    }

    /// A session takes it from the pool; false: it is of no use, since the server has ended it, or has sent something.
    pub(super) fn revive(&mut self) -> bool {
        self.peer.wake().is_ok() && self.peer.find_quiet()
    }
}

/// What is known of a connection while no session has it.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The server that it leads to, and the comparison with the stream's.
    pub(super) server: Option<ServerIdentity>,
    pub(super) compared: Option<(u64, Result<(), Reason>)>,
    /// The number of the settings that were read on it last, for sessions of the same group: [`crate::session::context::Context::settings`].
    pub(super) settings: Option<u32>,
    /// The value of LAST_INSERT_ID() there.
    pub(super) insert_id: u64,
    /// The user variables there.
    pub(super) variables: UserVariables,
    /// Its next OK may report commits of an earlier session.
    pub(super) stale: bool,
    /// What is known of its counters.
    pub(super) counted: Counted,
}
