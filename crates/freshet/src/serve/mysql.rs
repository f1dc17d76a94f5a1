//! MySQL or MariaDB behind Freshet.

use std::sync::Arc;

use anyhow::{Context, Result};
use freshet_net::mysql::Upstream;
use freshet_proxy::mysql::{MySql, MySqlSettings, service};
use freshet_replication::mysql::{FollowerConfig, Schemas, follow};
use freshet_replication::{Control, Identity, Sink};
use freshet_types::{Change, ChangeSet, Commit, Dialect, Epoch, Lsn, TableId};
use futures_util::FutureExt as _;
use tracing::{Instrument as _, Span};

use crate::config::DatabaseConfig;
use crate::handover::PredecessorEnd;
use crate::serve::instance::Instance;
use crate::serve::{Following, advance, apply, disconnected, ring, server_identity, suspended};

/// The upstream of one server.
pub(crate) fn upstream(config: &DatabaseConfig) -> Result<Arc<Upstream>> {
    let args = &config.args;
    let upstream = Upstream::parse(&args.upstream).context("upstream")?;
    let password = args.upstream_password().context("upstream_password_file")?;
    Ok(Arc::new(match password.filter(|_| upstream.password().expose().is_empty()) {
        Some(password) => upstream.with_user(upstream.user(), password, upstream.database()),
        None => upstream,
    }))
}

/// Opens a server without connecting to it.
pub(super) fn open(config: &DatabaseConfig, instance: &Instance) -> Result<Arc<MySql>> {
    let (args, upstream) = (&config.args, upstream(config)?);
    if !args.patroni.is_empty() {
        tracing::warn!("patroni does nothing: it is for PostgreSQL only");
    }
    if let Some(warning) = args.pool.warn_of_replicas(None, true) {
        tracing::warn!("{warning}");
    }
    let shared = args.shared(Dialect::MySql, upstream.to_string(), upstream.user(), instance);
    let own = MySqlSettings { upstream, access: args.access.settings(instance.files_max) };
    Ok(Arc::new(MySql::new(shared, own, instance.rules.clone())?))
}

/// Starts the follower of the change stream and all services. `span`: for the log of the stream.
pub(super) fn start_services(mysql: &Arc<MySql>, span: &Span, predecessor: PredecessorEnd) -> Following {
    let control = Arc::new(Control::new());
    service::start(mysql);
    let config = FollowerConfig::new(mysql.own.upstream.clone(), Arc::new(Columns { mysql: mysql.clone() }));
    let sink = Arc::new(Changes { mysql: mysql.clone() });
    let (begins, follows) =
        (predecessor.come((**mysql).clone(), control.clone()), follow(config, sink, control.clone()));
    let follower = tokio::spawn(begins.then(|()| follows).instrument(span.clone()));
    mysql.tasks.spawn(ring((**mysql).clone(), control.clone()));
    Following { control, follower }
}

/// Names the columns of row images by the catalogue.
struct Columns {
    mysql: Arc<MySql>,
}

impl Schemas for Columns {
    fn table(&self, schema: &str, name: &str) -> TableId {
        self.mysql.table_id(schema, name)
    }

    fn columns(&self, table: TableId) -> Option<Arc<[Arc<str>]>> {
        self.mysql.columns(table)
    }
}

/// Passes the stream's changes to the cache.
struct Changes {
    mysql: Arc<MySql>,
}

impl Changes {
    /// Adds the rows that foreign keys change, which the binlog omits.
    fn add_cascades(&self, changes: &mut ChangeSet) {
        let ChangeSet::Rows(rows) = &*changes else { return };
        for table in self.mysql.cascades(rows) {
            changes.push(Change::AnyRow(table));
        }
    }
}

impl Sink for Changes {
    fn connected(&self, identity: &Identity) -> Epoch {
        self.mysql.stream_connected(server_identity(identity));
        // From here on, no service connection uses another server.
        self.mysql.ends.forget();
        let epoch = self.mysql.cache.connected();
        self.mysql.want_catalog();
        tracing::info!(epoch = epoch.0, "change stream established");
        epoch
    }

    fn commit(&self, mut commit: Commit) {
        self.mysql.note_redefinition(&commit);
        self.add_cascades(&mut commit.changes);
        apply(&self.mysql, commit);
    }

    fn group(&self, gtid: (u128, u64), end: Lsn) {
        self.mysql.ends.delivered(gtid, end);
    }

    fn advance(&self, lsn: Lsn) {
        advance(&self.mysql, lsn);
    }

    fn suspended(&self, why: &str) {
        self.mysql.ends.forget();
        suspended(&self.mysql, why);
    }

    fn resumed(&self, identity: &Identity, epoch: Epoch) -> bool {
        self.mysql.stream_connected(server_identity(identity));
        let resumed = self.mysql.cache.resumed(epoch);
        if resumed {
            tracing::info!(epoch = epoch.0, "change stream continues; cached results stay");
        }
        resumed
    }

    fn disconnected(&self, why: &str) {
        self.mysql.ends.forget();
        disconnected(&self.mysql, why);
    }
}
