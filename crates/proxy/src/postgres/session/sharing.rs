//! What a session that shares server connections has beside its connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use crate::pool::Lease;
use crate::postgres::pooling::cancel::Enlisted;
use crate::postgres::pooling::labels::SetThere;
use crate::postgres::pooling::prepared::PreparedThere;
use crate::postgres::pooling::replica_read::{Outcome, Reader};
use crate::postgres::pooling::{Facts, Login, NotObtained, Obtained, Origin, PooledConnection, UnderLabels};
use crate::postgres::session::at_replica::AtReplica;
use crate::postgres::session::listening::Listened;
use crate::postgres::session::names::Names;
use crate::postgres::session::traces::Traces;

/// What will be done.
pub(super) type Working<T> = Pin<Box<dyn Future<Output = T>>>;

/// What a session waits for that has no connection, or may not use it. In one place, so that a session that waits for nothing looks at one place only.
pub(super) enum Awaited {
    Connection(Working<Result<Obtained, NotObtained>>),
    /// The answer of a replica, or a part of it.
    Answer(Working<Outcome>),
    /// The client must receive more before the rest of a replica's answer is read.
    Room(Box<Reader>),
    /// What a replica has shown is visible at the primary.
    Primary(Working<bool>),
}

/// What has come.
pub(super) enum Arrived {
    Connection(Result<Obtained, NotObtained>),
    /// A cancel request, before there was a connection.
    Cancel,
    Answer(Outcome),
    Room(Box<Reader>),
    Primary(bool),
}

impl Awaited {
    /// `has_room`: the client has received enough.
    pub(super) fn poll(self, has_room: bool, cx: &mut Context<'_>) -> Result<Arrived, Self> {
        match self {
            Self::Connection(mut work) => match work.as_mut().poll(cx) {
                Poll::Ready(obtained) => Ok(Arrived::Connection(obtained)),
                Poll::Pending => Err(Self::Connection(work)),
            },
            Self::Answer(mut work) => match work.as_mut().poll(cx) {
                Poll::Ready(outcome) => Ok(Arrived::Answer(outcome)),
                Poll::Pending => Err(Self::Answer(work)),
            },
            Self::Primary(mut work) => match work.as_mut().poll(cx) {
                Poll::Ready(settled) => Ok(Arrived::Primary(settled)),
                Poll::Pending => Err(Self::Primary(work)),
            },
            Self::Room(reader) if has_room => Ok(Arrived::Room(reader)),
            waits @ Self::Room(_) => Err(waits),
        }
    }
}

/// What a session that shares connections has beside its connection.
pub(crate) struct Sharing {
    pub(super) login: Arc<Login>,
    pub(super) cancel: Enlisted,
    /// Of the connection that it has.
    pub(super) held: Option<Held>,
    pub(super) awaited: Option<Awaited>,
    pub(super) arrived: Option<Arrived>,
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
    pub(super) replica: AtReplica,
    pub(super) listened: Option<Box<Listened>>,
}

/// The right to have a connection, and what stays the same there.
pub(super) struct Held {
    pub(super) lease: Lease<Box<PooledConnection>>,
    pub(super) origin: Arc<Origin>,
    /// What was set there when the session got it, and what was known then of the context, the isolation and the idle time.
    pub(super) set: SetThere,
    pub(super) facts: Facts,
    pub(super) under_labels: UnderLabels,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("login", &self.login).finish_non_exhaustive()
    }
}

impl Sharing {
    /// Whether it waits for a replica, or for the primary behind a replica.
    pub(super) fn awaits_replica(&self) -> bool {
        let awaits = |awaited: &Awaited| !matches!(awaited, Awaited::Connection(_));
        let has = |arrived: &Arrived| !matches!(arrived, Arrived::Connection(_) | Arrived::Cancel);
        self.awaited.as_ref().is_some_and(awaits) || self.arrived.as_ref().is_some_and(has)
    }

    /// Whether the server is still to be asked for what the session has left on its connection.
    pub(super) fn has_questions(&self) -> bool {
        self.held.is_some() && (self.traces.must_ask() || self.traces.asked_since != self.traces.label_changes())
    }

    /// What keeps the connection at rest, as far as is known. A statement that was prepared under other settings than those in force now would be another
    /// one where it is prepared again.
    pub(super) fn pin(&mut self, reads_sequences: &AtomicBool) -> Option<&'static str> {
        let pin = self.traces.pin(reads_sequences);
        if pin.is_some() || self.traces.fits_since == self.traces.label_changes() {
            return pin;
        }
        if self.names.has_misfit(self.traces.of_preparing()) {
            return Some("prepared_statement");
        }
        self.traces.fits_since = self.traces.label_changes();
        None
    }

    pub(super) fn new(login: Arc<Login>, cancel: Enlisted) -> Self {
        Self {
            login,
            cancel,
            held: None,
            awaited: None,
            arrived: None,
            is_wanted: false,
            awaits_cancel: false,
            rest_due: None,
            traces: Traces::default(),
            names: Names::default(),
            prepared: PreparedThere::default(),
            prepared_asked: 0,
            pinned: None,
            replica: AtReplica::default(),
            listened: None,
        }
    }
}
