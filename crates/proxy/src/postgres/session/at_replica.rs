//! What a session has of its reads at replicas: see [`super::replica`].

use std::sync::Arc;
use std::time::Instant;

use freshet_types::{Epoch, Reason};

use crate::postgres::pooling::shown::Shown;
use crate::postgres::session::unit::Passed;
use crate::shared::ServerIdentity;
use crate::statement::registry::Statement;

/// The statement that a replica answers.
pub(super) struct Current {
    /// The length of its messages.
    pub(super) bytes: usize,
    pub(super) statement: Arc<Statement>,
    /// The `Parse` of the unnamed statement, in the extended protocol.
    pub(super) parse: Option<Box<[u8]>>,
    pub(super) reason: Reason,
    pub(super) epoch: Epoch,
    /// Of that epoch.
    pub(super) primary: Option<Arc<ServerIdentity>>,
    pub(super) passed: Option<Passed>,
}

/// A session's reads at replicas.
#[derive(Default)]
pub(super) struct AtReplica {
    pub(super) current: Option<Box<Current>>,
    /// What a replica has shown, which may not be visible at the primary.
    pub(super) debt: Option<Shown>,
    /// Since when the message at the start of the input waits for that.
    pub(super) waits_since: Option<Instant>,
    /// No replica could answer the statement: it goes to the primary.
    pub(super) is_refused: bool,
}
