//! What a session that shares server connections has beside its connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

use freshet_types::CatalogVersion;
use tokio::time::Sleep;

use crate::pool::Lease;
use crate::postgres::pooling::cancel::Enlisted;
use crate::postgres::pooling::prepared::PreparedThere;
use crate::postgres::pooling::{Login, NotObtained, Obtained, Origin, PooledConnection};
use crate::postgres::session::names::Names;
use crate::postgres::session::traces::Traces;
use crate::session::context::Context;

/// A connection to come.
type Obtaining = Pin<Box<dyn Future<Output = Result<Obtained, NotObtained>>>>;

/// What a session that shares connections has beside its connection.
pub(crate) struct Sharing {
    pub(super) login: Arc<Login>,
    pub(super) cancel: Enlisted,
    /// Wakes the session.
    pub(super) waker: Waker,
    /// Of the connection that it has.
    pub(super) held: Option<Held>,
    pub(super) obtaining: Option<Obtaining>,
    pub(super) obtained: Option<Result<Obtained, NotObtained>>,
    /// A message of the client needs a connection.
    pub(super) is_wanted: bool,
    /// The end of a cancel request is waited for.
    pub(super) awaits_cancel: bool,
    /// The rest of a message is waited for, up to this time.
    pub(super) rest_due: Option<Pin<Box<Sleep>>>,
    pub(super) traces: Traces,
    pub(super) names: Names,
    /// On the connection that it has.
    pub(super) prepared: PreparedThere,
    /// Their number when the server was asked last what lives there.
    pub(super) prepared_asked: usize,
    /// The pin that was noted last.
    pub(super) pinned: Option<&'static str>,
}

/// The right to have a connection, and what stays the same there.
pub(super) struct Held {
    pub(super) lease: Lease<PooledConnection>,
    pub(super) origin: Arc<Origin>,
    /// The context of its login.
    pub(super) context: Option<(Arc<Context>, CatalogVersion)>,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("login", &self.login).finish_non_exhaustive()
    }
}

impl Sharing {
    pub(super) fn new(login: Arc<Login>, cancel: Enlisted, waker: Waker) -> Self {
        Self {
            login,
            cancel,
            waker,
            held: None,
            obtaining: None,
            obtained: None,
            is_wanted: false,
            awaits_cancel: false,
            rest_due: None,
            traces: Traces::default(),
            names: Names::default(),
            prepared: PreparedThere::default(),
            prepared_asked: 0,
            pinned: None,
        }
    }
}
