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

/// The configuration of a follower.
#[derive(Clone, Debug)]
pub struct FollowerConfig {
    /// The upstream; its role needs REPLICATION.
    pub upstream: Arc<Upstream>,
    /// The publication.
    pub publication: String,
    /// Creates a missing publication, without tables. Off where an administrator prepares the database: then the follower changes nothing in its
    /// schema.
    pub ensure_publication: bool,
    /// Time without a message after which the stream counts as dead. After a third of it the server is asked for a keepalive.
    pub silence_max: Duration,
    /// The slot.
    pub slot: SlotConfig,
}

impl FollowerConfig {
    /// The configuration with the publication `freshet`, which is created if missing.
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
