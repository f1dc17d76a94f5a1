//! A server connection that no session has.

use std::sync::Arc;

use freshet_net::Socket;
use freshet_sql::Isolation;
use freshet_types::{CatalogVersion, Nanos, Reason};

use crate::peer::Peer;
use crate::postgres::pooling::application_settings::Names;
use crate::postgres::pooling::prepared::PreparedThere;
use crate::postgres::pooling::rest_question::Lives;
use crate::postgres::question::IdleMax;
use crate::postgres::session::own_statements::OwnStatements;
use crate::session::context::Context;
use crate::shared::ServerIdentity;

/// What is known of the settings in force there, which are those of its login.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The context, with the catalogue under which it was asked for.
    pub(crate) context: Option<(Arc<Context>, CatalogVersion)>,
    pub(crate) named: Option<Box<[u8]>>,
    /// See [`crate::postgres::question::CONFIGURATION`].
    pub(crate) configuration: Option<String>,
    pub(crate) configured_at: Nanos,
    pub(crate) default_isolation: Option<Isolation>,
    pub(crate) idle_max: IdleMax,
}

/// What does not change from the login to the end.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The server's messages about its parameters at the login, and its notices.
    pub(crate) greeting: Box<[u8]>,
    /// The server's key for cancel requests.
    pub(crate) cancel_key: Arc<[u8]>,
    /// What lived there right after the login.
    pub(crate) lives: Lives,
}

/// A server connection that no session has.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    /// It belongs to no thread.
    pub(crate) socket: Socket,
    pub(crate) own: OwnStatements,
    pub(crate) facts: Facts,
    pub(crate) identity: Option<ServerIdentity>,
    pub(crate) compared: Option<(u64, Result<(), Reason>)>,
    pub(crate) prepared: PreparedThere,
    /// The names of settings of applications that it knows.
    pub(crate) names: Names,
    /// It may have an unnamed statement.
    pub(crate) has_unnamed: bool,
    pub(crate) ready_at: Nanos,
    pub(crate) origin: Arc<Origin>,
}

impl PooledConnection {
    /// Takes it to this thread; None if the server has closed it, or has said anything while it was idle.
    pub(crate) fn wake(mut self) -> Option<Self> {
        self.socket.wake().ok()?;
        let mut peer = Peer::new(self.socket);
        if !peer.find_quiet() {
            return None;
        }
        self.socket = peer.into_socket();
        Some(self)
    }
}
