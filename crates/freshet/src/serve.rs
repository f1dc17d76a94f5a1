//! `freshet serve`: puts the parts together.
//!
//! The change stream drives the cache, and the sessions read it; here is the one place that knows both.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use freshet_cache::{Cache, Faults, Limits};
use freshet_model::{Commit, Epoch, Lsn};
use freshet_net::Upstream;
use freshet_proxy::{Clock, ListenAddress, Listener, ServerIdentity, Settings, Shared, service};
use freshet_stream::{Control, FollowerConfig, Identity, Sink};

use crate::access::{AccessArgs, raise_descriptor_limit};
use crate::cli::{MemorySize, Span};
use crate::web;

/// Options of `freshet serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The database, and the account for Freshet's own connections: postgres://user:password@host:port/database, or
    /// any other connection string that libpq understands; what it leaves out comes from PGHOST, PGUSER …, ~/.pgpass
    #[arg(long, env = "FRESHET_UPSTREAM", hide_env_values = true, default_value = "", hide_default_value = true)]
    upstream: String,
    /// Addresses that applications connect to: host:port, or a directory for a Unix socket (/run/freshet)
    #[arg(long, default_value = "127.0.0.1:6432", value_delimiter = ',')]
    listen: Vec<String>,
    /// Address of /metrics and /health
    #[arg(long)]
    http: Option<SocketAddr>,
    /// Memory for cached results
    #[arg(long, default_value = "512MiB")]
    memory: MemorySize,
    /// No answer from the cache is older than this; when the change stream is later, queries go to the database
    #[arg(long, default_value = "1s")]
    max_staleness: Span,
    /// Threads that serve connections; as many as cores if not given
    #[arg(long)]
    workers: Option<usize>,
    /// Users who may see other users' statements (SHOW CACHES …); the upstream's user if not given
    #[arg(long, value_delimiter = ',')]
    admin_users: Vec<String>,
    /// Name of the publication that Freshet keeps
    #[arg(long, default_value = "freshet")]
    publication: String,
    /// Break the freshness protocol, to see that the tests notice
    #[cfg(feature = "fault-injection")]
    #[arg(long, value_enum)]
    test_fault: Option<TestFault>,
    // Last: its heading holds for all options behind it.
    #[command(flatten)]
    access: AccessArgs,
}

/// What to break.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TestFault {
    /// Fills take no copy of the commits that are not proven visible
    IgnorePending,
    /// Tables count as covered as soon as they are published
    NoCoverageBarrier,
}

impl ServeArgs {
    #[cfg(feature = "fault-injection")]
    fn faults(&self) -> (Faults, bool) {
        if let Some(fault) = self.test_fault {
            tracing::warn!("test fault {fault:?} is on: answers will be wrong");
        }
        let ignore_pending = self.test_fault == Some(TestFault::IgnorePending);
        (Faults { ignore_pending, ..Faults::default() }, self.test_fault == Some(TestFault::NoCoverageBarrier))
    }

    #[cfg(not(feature = "fault-injection"))]
    #[expect(clippy::unused_self, reason = "the other variant reads an option")]
    fn faults(&self) -> (Faults, bool) {
        (Faults::default(), false)
    }
}

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn run(args: ServeArgs) -> Result<()> {
    let upstream = Arc::new(Upstream::parse(&args.upstream).context("--upstream")?);
    for warning in &upstream.conninfo().warnings {
        tracing::warn!("--upstream: {warning}");
    }
    let workers = args.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from)).max(1);
    let (faults, skip_coverage_barrier) = args.faults();
    let mut limits = Limits::with_memory(args.memory.0);
    limits.staleness_max = u64::try_from(args.max_staleness.0.as_nanos()).unwrap_or(u64::MAX);
    let settings = Settings {
        admin_users: if args.admin_users.is_empty() {
            vec![upstream.conninfo().user.clone()]
        } else {
            args.admin_users
        },
        publication: args.publication.clone(),
        skip_coverage_barrier,
        upstream: upstream.clone(),
        access: args.access.settings(raise_descriptor_limit()),
    };
    let shared = Arc::new(Shared::new(settings, Arc::new(Cache::new(limits, faults)), Clock::default(), workers)?);
    let listener = Listener::bind(&listen_addresses(&args.listen)?, workers, shared.clone()).await?;
    let addresses = listener.addresses()?;
    let http = match args.http {
        Some(address) => Some(web::bind(address, shared.clone()).await?),
        None => None,
    };
    let mut stdout = std::io::stdout();
    for address in &addresses {
        match address {
            ListenAddress::Tcp(tcp) => writeln!(stdout, "listening on {tcp}")?,
            ListenAddress::Unix(path) => writeln!(stdout, "listening on {}", path.display())?,
        }
    }
    if let Some(http) = http {
        writeln!(stdout, "http on {http}")?;
    }
    stdout.flush()?;
    tracing::info!(%upstream, ?addresses, workers, "serving");
    start_services(&shared, upstream, args.publication);
    tokio::spawn(args.access.watch(shared.clone()));
    listener.run();
    stop_signal().await
}

fn start_services(shared: &Arc<Shared>, upstream: Arc<Upstream>, publication: String) {
    let control = Arc::new(Control::new());
    tokio::spawn(service::keep_lease(shared.clone()));
    tokio::spawn(service::watch_catalog(shared.clone()));
    tokio::spawn(service::cover_tables(shared.clone()));
    tokio::spawn(service::look_up_users(shared.clone()));
    let config = FollowerConfig { publication, ..FollowerConfig::new(upstream) };
    tokio::spawn(freshet_stream::follow(config, Arc::new(Changes { shared: shared.clone() }), control.clone()));
    let bell = shared.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = bell.keepalive.notified() => control.request_keepalive(),
                () = bell.restart_stream.notified() => control.restart(),
            }
        }
    });
}

/// The socket in a directory bears the port of the first TCP address, or else PostgreSQL's, in its name.
fn listen_addresses(texts: &[String]) -> Result<Vec<ListenAddress>> {
    let tcp = texts.iter().filter(|text| !text.starts_with('/')).map(|text| {
        text.parse::<SocketAddr>().with_context(|| {
            format!("--listen {text:?} is neither address:port (127.0.0.1:6432) nor a directory (/run/freshet)")
        })
    });
    let tcp = tcp.collect::<Result<Vec<_>>>()?;
    let port = tcp.first().map_or(5432, SocketAddr::port);
    let name = format!(".s.PGSQL.{port}");
    let unix = texts.iter().filter(|text| text.starts_with('/')).map(|text| PathBuf::from(text).join(&name));
    Ok(tcp.into_iter().map(ListenAddress::Tcp).chain(unix.map(ListenAddress::Unix)).collect())
}

async fn stop_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        result = tokio::signal::ctrl_c() => result?,
    }
    tracing::info!("stopped");
    Ok(())
}

/// Hands the stream's changes to the cache.
struct Changes {
    shared: Arc<Shared>,
}

impl Sink for Changes {
    fn connected(&self, identity: &Identity) -> Epoch {
        let server = ServerIdentity {
            system_id: identity.system_id.clone(),
            postmaster_start: identity.postmaster_start.clone(),
            database: identity.database.clone(),
        };
        self.shared.stream_connected(server, identity.wal_segment_bytes);
        let epoch = self.shared.cache.connected();
        tracing::info!(epoch = epoch.0, database = identity.database, "change stream stands");
        epoch
    }

    fn commit(&self, commit: Commit) {
        let pending = !commit.changes.is_empty();
        self.shared.cache.apply(commit);
        if self.shared.cache.epoch().is_none() {
            self.shared.restart_stream.notify_one();
        }
        if pending {
            self.shared.commit_delivered();
        }
    }

    fn advance(&self, lsn: Lsn) {
        self.shared.cache.advance(lsn);
    }

    fn disconnected(&self, why: &str) {
        self.shared.cache.disconnected();
        self.shared.stream_lost(why);
        tracing::warn!("no change stream, so nothing is answered from the cache: {why}");
    }
}
