//! The options about sharing server connections.

use std::str::FromStr;
use std::time::Duration;

use freshet_proxy::{LagMax, PoolMode, PoolSettings, ReplicaLimits};
use freshet_units::{MemorySize, Span};

/// Options of `freshet serve` about pools.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server connections")]
pub(crate) struct PoolArgs {
    /// Whether sessions share connections to the database
    #[arg(long, value_enum, default_value = "session")]
    pool: PoolArg,
    /// Users for whom it is otherwise, such as report=session
    #[arg(long, value_name = "USER=SESSION", value_delimiter = ',')]
    pool_users: Vec<UserMode>,
    /// The most connections to the database for each user and database that sessions share
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    default_pool_size: u32,
    /// So many connections stay open for each user and database as long as a client is connected
    #[arg(long, value_name = "N", default_value = "0")]
    min_pool_size: u32,
    /// More connections for each user and database, for sessions that have waited for --reserve-pool-timeout
    #[arg(long, value_name = "N", default_value = "0")]
    reserve_pool_size: u32,
    /// After this wait a session may have a connection of the reserve; 0s: the reserve is not used
    #[arg(long, default_value = "5s")]
    reserve_pool_timeout: Span,
    /// The most such connections for all users together; 0: no limit
    #[arg(long, value_name = "N", default_value = "0")]
    max_db_connections: u32,
    /// A session that waits this long for one of them is ended; 0s: never
    #[arg(long, default_value = "2m")]
    query_wait_timeout: Span,
    /// While no server of the upstream takes connections, as in a restart or a failover, sessions that need one wait for
    /// this long; 0s: they are ended at once
    #[arg(long, default_value = "10s")]
    failover_timeout: Span,
    /// One that nobody has used for this time is closed; 0s: never
    #[arg(long, default_value = "10m")]
    server_idle_timeout: Span,
    /// One that is older is closed as soon as nobody uses it; 0s: never
    #[arg(long, default_value = "1h")]
    server_lifetime: Span,
    /// The most prepared statements that one of them has for all sessions (PostgreSQL: those with names); 0: such a
    /// statement keeps its session's connection
    #[arg(long, value_name = "N", default_value = "200")]
    max_prepared_statements: u32,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Those about reads at replicas.
#[derive(Clone, Debug, clap::Args)]
struct ReplicaArgs {
    /// PostgreSQL: reads that are not cached go to standbys of an upstream of several hosts, as long as they are certain to
    /// show no less than the primary has shown; for sessions that share connections
    #[arg(long)]
    read_replicas: bool,
    /// A standby that is further behind is not read: a time such as 10s, or bytes of log such as 16MiB; if not given, none
    /// is too far
    #[arg(long, value_name = "TIME|SIZE")]
    replica_lag_max: Option<Lag>,
    /// Weights of standbys among those that may answer a read, such as db2=3; 1 if not given, 0: it is never read
    #[arg(long, value_name = "HOST=WEIGHT", value_delimiter = ',')]
    replica_weights: Vec<Weight>,
    /// The weight of the primary among them; 0: it is read if no standby may answer
    #[arg(long, value_name = "WEIGHT", default_value = "0", value_parser = clap::value_parser!(u32).range(..=1000))]
    primary_weight: u32,
}

/// How far a standby may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lag(LagMax);

impl FromStr for Lag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = text.parse::<Span>().map(|Span(time)| LagMax::Time(time));
        let lag = time.or_else(|_| text.parse::<MemorySize>().map(|MemorySize(bytes)| LagMax::Bytes(bytes)));
        lag.map(Self).map_err(|_| "a time is 250ms, 1s or 2m, a size is 65536, 512KiB or 16MiB".to_owned())
    }
}

/// The weight of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Weight {
    server: String,
    weight: u32,
}

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "a host, or host:port, =, and a weight from 0 to 1000";
        let (server, weight) = text.rsplit_once('=').ok_or(form)?;
        let weight = weight.parse().ok().filter(|weight| *weight <= 1000).ok_or(form)?;
        Ok(Self { server: server.to_owned(), weight })
    }
}

/// How sessions and server connections belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PoolArg {
    /// Each session has a connection of its own
    Session,
    /// A session has one for a transaction, and while something of it lives there that cannot be carried over; where
    /// the login ends at Freshet
    Transaction,
    /// As transaction, and transaction blocks are refused
    Statement,
}

impl From<PoolArg> for PoolMode {
    fn from(arg: PoolArg) -> Self {
        match arg {
            PoolArg::Session => Self::Session,
            PoolArg::Transaction => Self::Transaction,
            PoolArg::Statement => Self::Statement,
        }
    }
}

/// The mode of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserMode {
    user: String,
    mode: PoolArg,
}

impl FromStr for UserMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, mode) = text.rsplit_once('=').ok_or("a user, =, and session, transaction or statement")?;
        Ok(Self { user: user.to_owned(), mode: clap::ValueEnum::from_str(mode, false)? })
    }
}

impl ReplicaArgs {
    /// One that means nothing unless replicas are read.
    fn given(&self) -> Option<&'static str> {
        let lag_max = self.replica_lag_max.map(|_| "replica_lag_max");
        let weights = (!self.replica_weights.is_empty()).then_some("replica_weights");
        lag_max.or(weights).or((self.primary_weight > 0).then_some("primary_weight"))
    }
}

impl PoolArgs {
    /// Why `read_replicas` or a weight does nothing, with the remedy, if that is so. `hosts`: the addresses of the upstream; None: it is no PostgreSQL.
    /// `has_logins`: logins end at Freshet.
    pub(crate) fn warn_of_replicas(&self, hosts: Option<&[String]>, has_logins: bool) -> Option<String> {
        if !self.replicas.read_replicas {
            let option = self.replicas.given()?;
            return Some(format!("{option} does nothing: reads go to replicas with read_replicas = true"));
        }
        let why = match hosts.map(<[_]>::len) {
            None => "it is for PostgreSQL only: remove it, or set read_replicas = false for this database",
            Some(_) if !self.settings().may_share() => {
                "sessions share no server connections: set pool = \"transaction\" (--pool transaction)"
            }
            Some(_) if !has_logins => {
                "the database checks the logins, so that sessions share no connections: set users, auth_query or auth"
            }
            Some(..2) => {
                "upstream has one host: name the standbys there, too (postgres://user@primary,standby/database)"
            }
            Some(_) => return self.warn_of_weights(hosts.unwrap_or_default()),
        };
        Some(format!("read_replicas does nothing: {why}"))
    }

    fn warn_of_weights(&self, hosts: &[String]) -> Option<String> {
        let is_known = |name: &str| hosts.iter().any(|address| ReplicaLimits::names(name, address));
        let unknown = self.replicas.replica_weights.iter().find(|weight| !is_known(&weight.server))?;
        let (name, hosts) = (&unknown.server, hosts.join(", "));
        Some(format!("replica_weights: {name} is no server of upstream, whose servers are {hosts}"))
    }

    pub(crate) fn settings(&self) -> PoolSettings {
        let limit = |span: Span| (span.0 > Duration::ZERO).then_some(span.0);
        PoolSettings {
            mode: self.pool.into(),
            modes: self.pool_users.iter().map(|one| (one.user.clone(), one.mode.into())).collect(),
            size: self.default_pool_size as usize,
            min: self.min_pool_size as usize,
            reserve: self.reserve_pool_size as usize,
            reserve_timeout: limit(self.reserve_pool_timeout),
            size_in_all: (self.max_db_connections > 0).then_some(self.max_db_connections as usize),
            wait_timeout: limit(self.query_wait_timeout),
            failover_timeout: self.failover_timeout.0,
            idle_timeout: limit(self.server_idle_timeout),
            lifetime: limit(self.server_lifetime),
            prepared_max: self.max_prepared_statements as usize,
            read_replicas: self.replicas.read_replicas,
            replicas: ReplicaLimits {
                lag_max: self.replicas.replica_lag_max.map(|Lag(lag)| lag),
                weights: self.replicas.replica_weights.iter().map(|one| (one.server.clone(), one.weight)).collect(),
                primary_weight: self.replicas.primary_weight,
            },
        }
    }
}
