//! PostgreSQL behind Freshet.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use freshet_net::conninfo::Environment;
use freshet_net::{Conninfo, Upstream};
use freshet_proxy::postgres::{OnDemand, Pg, PgSettings, service};
use freshet_replication::{Control, FollowerConfig, Identity, Sink, SlotConfig, triggers};
use freshet_types::{Commit, Dialect, Epoch, Lsn};
use futures_util::FutureExt as _;
use tracing::{Instrument as _, Span};

use crate::config::DatabaseConfig;
use crate::handover::PredecessorEnd;
use crate::patroni;
use crate::serve::instance::Instance;
use crate::serve::{Following, ServeArgs, advance, apply, disconnected, ring, server_identity, suspended};

/// The upstream of one database.
pub(crate) fn upstream(config: &DatabaseConfig) -> Result<Arc<Upstream>> {
    let args = &config.args;
    let environment = Environment::process();
    let environment = match config.name.as_ref().filter(|_| !config.is_any()) {
        Some(name) => environment.with_database(name),
        None => environment,
    };
    let mut conninfo = Conninfo::parse(&args.upstream, &environment).context("upstream")?;
    if let Some(database) = &config.at_server {
        conninfo.database.clone_from(database);
    }
    if let Some(password) = args.upstream_password().context("upstream_password_file")? {
        for host in &mut conninfo.hosts {
            host.password.get_or_insert_with(|| password.clone());
        }
    }
    let upstream = Arc::new(Upstream::new(conninfo).context("upstream")?);
    for warning in &upstream.conninfo().warnings {
        tracing::warn!("upstream: {warning}");
    }
    Ok(upstream)
}

/// Why `read_replicas` or a weight does nothing, with the remedy, if that is so.
pub(crate) fn warn_of_replicas(config: &DatabaseConfig, upstream: &Upstream) -> Option<String> {
    let args = &config.args;
    let hosts: Vec<String> = upstream.conninfo().hosts.iter().map(|host| host.address.to_string()).collect();
    args.pool.warn_of_replicas(Some(&hosts), args.access.has_logins())
}

/// Why `patroni` does nothing, with the remedy, if that is so.
fn warn_of_patroni(args: &ServeArgs, upstream: &Upstream) -> Option<&'static str> {
    let conninfo = upstream.conninfo();
    match args.patroni.len() {
        0 => None,
        _ if conninfo.hosts.len() < 2 => {
            Some("patroni does nothing: upstream has one host; name all members' servers there")
        }
        _ if !conninfo.target_session_attrs.is_for_primaries() => {
            Some("patroni does nothing: upstream asks for no primary (target_session_attrs=primary)")
        }
        _ => None,
    }
}

/// Opens a database without connecting to it.
pub(super) fn open(config: &DatabaseConfig, instance: &Instance) -> Result<Arc<Pg>> {
    let (args, upstream) = (&config.args, upstream(config)?);
    if let Some(warning) = warn_of_replicas(config, &upstream) {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = warn_of_patroni(args, &upstream) {
        tracing::warn!("{warning}");
    }
    let shared = args.shared(Dialect::Postgres, upstream.to_string(), &upstream.conninfo().user, instance);
    let own = PgSettings {
        publication: args.publication.clone(),
        prepared: args.prepared,
        triggers_sql: triggers::STATE_QUERY,
        triggers_again: (!args.prepared).then(|| (triggers::MISSING_QUERY, triggers::create_again())),
        upstream,
        access: args.access.settings(instance.files_max),
        on_demand: config.is_any().then(|| OnDemand::new(config.max_databases as usize, config.idle_timeout)),
    };
    let pg = Arc::new(Pg::new(shared, own, instance.rules.clone(), instance.pauses.clone())?);
    if let Some(on_demand) = &pg.own.on_demand {
        pg.stream_lost(&on_demand.full());
    }
    Ok(pg)
}

/// Starts the services of the entry for any database, which has no stream.
pub(super) fn start_on_demand(pg: &Arc<Pg>, on_demand: &Arc<OnDemand>) {
    pg.tasks.spawn(service::look_up_users(pg.clone()));
    pg.tasks.spawn(on_demand.clone().look_after());
}

/// Starts the follower of the change stream and all services. `span`: for the log of the stream.
pub(super) fn start_services(pg: &Arc<Pg>, args: &ServeArgs, span: &Span, predecessor: PredecessorEnd) -> Following {
    let control = Arc::new(Control::new());
    service::watch_servers(pg);
    patroni::watch(pg, &args.patroni);
    pg.tasks.spawn(service::keep_lease(pg.clone()));
    pg.tasks.spawn(service::watch_catalog(pg.clone()));
    pg.tasks.spawn(service::publish_tables(pg.clone()));
    pg.tasks.spawn(service::look_up_users(pg.clone()));
    pg.tasks.spawn(service::tend_pools(pg.clone()));
    pg.tasks.spawn(service::check_logins(pg.clone()));
    pg.tasks.spawn(service::listen_for_sessions(pg.clone()));
    pg.tasks.spawn(service::refresh_entries(pg.clone()));
    service::run_key_queries(pg);
    let config = FollowerConfig {
        publication: pg.own.publication.clone(),
        ensure_publication: !pg.own.prepared,
        slot: SlotConfig {
            name: args.slot.clone(),
            lag_bytes_max: args.slot_lag_bytes.0,
            lag_max: Duration::from_secs(args.slot_lag_seconds.into()),
        },
        ..FollowerConfig::new(pg.own.upstream.clone())
    };
    let sink = Arc::new(Changes { pg: pg.clone() });
    let (begins, follows) =
        (predecessor.come((**pg).clone(), control.clone()), freshet_replication::follow(config, sink, control.clone()));
    let follower = tokio::spawn(begins.then(|()| follows).instrument(span.clone()));
    pg.tasks.spawn(service::watch_failover(pg.clone()));
    pg.tasks.spawn(ring((**pg).clone(), control.clone()));
    Following { control, follower }
}

/// Passes the stream's changes to the cache.
struct Changes {
    pg: Arc<Pg>,
}

impl Sink for Changes {
    fn connected(&self, identity: &Identity) -> Epoch {
        self.pg.stream_connected(server_identity(identity), identity.wal_segment_bytes);
        let epoch = self.pg.cache.connected();
        self.pg.want_catalog();
        tracing::info!(epoch = epoch.0, database = identity.database, "change stream established");
        epoch
    }

    fn commit(&self, commit: Commit) {
        apply(&self.pg, commit);
    }

    fn retained(&self, bytes: u64) {
        self.pg.log_lag.note_retained(bytes);
    }

    fn advance(&self, lsn: Lsn) {
        advance(&self.pg, lsn);
    }

    fn suspended(&self, why: &str) {
        suspended(&self.pg, why);
    }

    fn resumed(&self, identity: &Identity, epoch: Epoch) -> bool {
        self.pg.stream_connected(server_identity(identity), identity.wal_segment_bytes);
        let resumed = self.pg.cache.resumed(epoch);
        if resumed {
            tracing::info!(epoch = epoch.0, "change stream continues; cached results stay");
        }
        resumed
    }

    fn disconnected(&self, why: &str) {
        disconnected(&self.pg, why);
    }
}
