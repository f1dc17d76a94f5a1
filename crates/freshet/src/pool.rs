//! The options about sharing server connections.

use std::time::Duration;

use freshet_proxy::{PoolMode, PoolSettings};
use freshet_units::Span;

/// Options of `freshet serve` about pools.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server connections")]
pub(crate) struct PoolArgs {
    /// Whether sessions share connections to the database
    #[arg(long, value_enum, default_value = "session")]
    pool: PoolArg,
    /// The most connections to the database for each user and database that sessions share
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    default_pool_size: u32,
    /// The most such connections for all users together; 0: no limit
    #[arg(long, value_name = "N", default_value = "0")]
    max_db_connections: u32,
    /// A session that waits this long for one of them is ended; 0s: never
    #[arg(long, default_value = "2m")]
    query_wait_timeout: Span,
    /// One that nobody has used for this time is closed; 0s: never
    #[arg(long, default_value = "10m")]
    server_idle_timeout: Span,
    /// One that is older is closed as soon as nobody uses it; 0s: never
    #[arg(long, default_value = "1h")]
    server_lifetime: Span,
}

/// How sessions and server connections belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PoolArg {
    /// Each session has a connection of its own
    Session,
    /// A session has one for a transaction, and while something of it lives there that cannot be carried over; where
    /// the login ends at Freshet
    Transaction,
}

impl PoolArgs {
    pub(crate) fn settings(&self) -> PoolSettings {
        let limit = |span: Span| (span.0 > Duration::ZERO).then_some(span.0);
        PoolSettings {
            mode: match self.pool {
                PoolArg::Session => PoolMode::Session,
                PoolArg::Transaction => PoolMode::Transaction,
            },
            size: self.default_pool_size as usize,
            size_in_all: (self.max_db_connections > 0).then_some(self.max_db_connections as usize),
            wait_timeout: limit(self.query_wait_timeout),
            idle_timeout: limit(self.server_idle_timeout),
            lifetime: limit(self.server_lifetime),
        }
    }
}
