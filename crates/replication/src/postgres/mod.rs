//! Follows a logical replication slot of PostgreSQL.

mod assemble;
pub(crate) mod error;
mod follow;
mod progress;
mod questions;
mod session;
mod setup;
mod slot;
pub mod triggers;

use std::sync::Arc;
use std::time::Duration;

use freshet_net::Upstream;

use crate::SILENCE_MAX;

pub use follow::follow;
pub use setup::publication_options;
pub use slot::{SlotConfig, SlotName};

/// What to follow.
#[derive(Clone, Debug)]
pub struct FollowerConfig {
    /// The upstream; its role needs REPLICATION.
    pub upstream: Arc<Upstream>,
    /// The publication.
    pub publication: String,
    /// Create what is missing: the publication, without tables. Off where an administrator has prepared the database:
    /// then nothing is changed in its schema.
    pub ensure_publication: bool,
    /// Silence after which the stream counts as dead. After a third of it the server is asked for a sign of life.
    pub silence_max: Duration,
    /// The slot.
    pub slot: SlotConfig,
}

impl FollowerConfig {
    /// Follows the publication `freshet`, which is created if missing.
    pub fn new(upstream: Arc<Upstream>) -> Self {
        Self {
            upstream,
            publication: "freshet".into(),
            ensure_publication: true,
            silence_max: SILENCE_MAX,
            slot: SlotConfig::default(),
        }
    }
}
