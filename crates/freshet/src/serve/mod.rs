//! `freshet serve`: connects the parts.
//!
//! The change stream updates the cache, and the sessions read it. This is the only module that knows both. The
//! differences between the databases are in [`postgres`] and [`mysql`].

pub(crate) mod databases;
mod instance;
mod kinds;
mod life;
pub(crate) mod mysql;
mod on_demand;
pub(crate) mod postgres;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use freshet_cache::{Cache, Limits};
use freshet_net::conninfo::Secret;
use freshet_net::mysql::Upstream;
use freshet_proxy::{Clock, Inherited, Keep, ListenAddress, ServerIdentity, Settings, Shared};
use freshet_replication::{Control, Identity, SlotName};
use freshet_types::{Commit, Dialect, Lsn, Nanos};
use freshet_units::{MemorySize, Share, Span};
use tokio::signal::unix::{SignalKind, signal};

use crate::access::AccessArgs;
use crate::allocator::Start;
use crate::config::{Resolved, Running};
use crate::faults::FaultArgs;
use crate::handover::{Handover, Predecessor, PredecessorEnd};
use crate::logging::SetFilter;
use crate::notify::{SERVING, ServiceManager};
use crate::otlp::OtlpArgs;
use crate::patroni::MemberUrl;
use crate::pool::PoolArgs;
use crate::serve::databases::Served;
use crate::serve::instance::Instance;
use crate::stop::Times;
use crate::web::{Web, WebArgs};
use crate::{exit, logging, otlp, stop};

/// Options of `freshet serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Every option but --config and --check-config is also a key of the configuration file, with _ in place of -. \
The command line wins over the environment, the environment over the file"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the command line, independent of each other")]
pub(crate) struct ServeArgs {
    /// Also read options from this TOML file; `freshet config default` prints one
    #[arg(long, value_name = "FILE", env = "FRESHET_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Report errors in the configuration, and do not serve
    #[arg(long)]
    pub(crate) check_config: bool,
    /// The database, and the account for Freshet's own connections: mysql://user:password@host:port/database
    /// (mariadb:// too; several hosts: host:port,host:port), postgres://user:password@host:port/database, or any other connection string that libpq
    /// understands; parts that it leaves out come from PGHOST, PGUSER …, ~/.pgpass
    #[arg(long, env = "FRESHET_UPSTREAM", hide_env_values = true, default_value = "", hide_default_value = true)]
    pub(crate) upstream: String,
    /// File with the password of Freshet's account, if --upstream has none
    #[arg(long, value_name = "FILE")]
    upstream_password_file: Option<PathBuf>,
    /// PostgreSQL: the REST interfaces of Patroni's members, such as http://db1:8008, for an upstream that names their
    /// servers with target_session_attrs=primary: a primary that does not hold the leader's key is not used
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) patroni: Vec<MemberUrl>,
    /// Addresses that applications connect to: host:port, or a directory for a Unix socket (/run/freshet);
    /// 127.0.0.1:6432 if not given, 127.0.0.1:3307 before MySQL or MariaDB
    #[arg(long, value_delimiter = ',')]
    listen: Vec<String>,
    /// Memory for cached results and everything that belongs to them, without the memory at the start and the pages of
    /// the program; `freshet memory` changes it while Freshet runs
    #[arg(long, default_value = "512MiB")]
    pub(crate) memory: MemorySize,
    /// No answer from the cache is older than this; if the change stream is further behind, queries go to the database
    #[arg(long, default_value = "1s")]
    pub(crate) max_staleness: Span,
    /// Threads that serve connections; one for each core if not given
    #[arg(long)]
    workers: Option<usize>,
    /// Users who may see other users' statements (SHOW CACHES …), switch the cache off (FRESHET BYPASS ON) and change
    /// its memory (FRESHET MEMORY); the upstream's user if not given
    #[arg(long, value_delimiter = ',')]
    admin_users: Vec<String>,
    /// PostgreSQL: users who may read the statistics in the console, the database `pgbouncer`, and change nothing there
    #[arg(long, value_delimiter = ',')]
    pub(crate) stats_users: Vec<String>,
    /// After SIGTERM, how long sessions may take to end their transactions
    #[arg(long, default_value = "30s")]
    pub(crate) drain_timeout: Span,
    /// After SIGUSR2, by which a new process takes over, how long the sessions of the old one go on before they are ended
    /// as after SIGTERM. Nothing is cached until they have ended
    #[arg(long, default_value = "5s")]
    pub(crate) upgrade_grace: Span,
    /// Name of the publication that Freshet maintains
    #[arg(long, default_value = "freshet")]
    pub(crate) publication: String,
    /// Change nothing in the database's schema: an administrator has run the script of `freshet check --print-setup`,
    /// and only tables of the publication are cached
    #[arg(long)]
    pub(crate) prepared: bool,
    /// Keep the change stream's position in the replication slot freshet_NAME, so that the cache survives a lost
    /// connection to the database; each Freshet needs its own name. Without this option the slot is temporary
    #[arg(long, value_name = "NAME")]
    slot: Option<SlotName>,
    /// Limit of the log that the slot retains on the database's disk; beyond it Freshet drops the slot and starts with
    /// a new one
    #[arg(long, default_value = "1GiB")]
    slot_lag_bytes: MemorySize,
    /// Seconds that the change stream may be behind before Freshet drops the slot and starts with a new one
    #[arg(long, default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    slot_lag_seconds: u32,
    /// The longest time that the acknowledgement of a write waits for the change stream to deliver the write, so that
    /// no later read misses it; after that the write is acknowledged, and reads go to the database until it is
    /// delivered
    #[arg(long, default_value = "100ms")]
    pub(crate) commit_wait: Span,
    /// Share of the time that one connection may spend reading invalidated results in use again, before the next client
    /// asks for them; 0: never
    #[arg(long, default_value = "0.1", value_name = "0..1")]
    refresh_share: Share,
    /// Share of hits that are compared with the database's answer; a statement with a different answer is not cached
    /// any more
    #[arg(long, default_value = "0", value_name = "0..1")]
    pub(crate) verify: Share,
    /// Which results are cached: those of statements whose hits save more than they cost, by Freshet's own
    /// measurements, or all that can be
    #[arg(long, default_value = "worthwhile")]
    pub(crate) admission: AdmissionArg,
    /// PostgreSQL: cache statements that call functions and aggregates in SQL or PL/pgSQL declared IMMUTABLE. If one of
    /// them reads tables, settings or the clock nevertheless, or changes anything, answers are wrong
    #[arg(long)]
    trust_immutable: bool,
    /// Let statements say how they are cached, in a comment around them: /* freshet: ttl=10s */, cache=always or
    /// cache=never. Rules come before hints
    #[arg(long)]
    pub(crate) hints: bool,
    /// Keep the rules that CREATE CACHE makes in this file, over a restart; Freshet writes it, in a directory that it
    /// may write to
    #[arg(long, value_name = "FILE")]
    pub(crate) state_file: Option<PathBuf>,
    /// Start with the cache switched off, until `freshet bypass off` switches it on
    #[arg(long)]
    pub(crate) bypass: bool,
    /// Write statements to this file in the form of Percona Server's slow query log, which pt-query-digest reads,
    /// without their literals; SIGHUP and RELOAD reopen it, for log rotation
    #[arg(long, value_name = "FILE")]
    pub(crate) query_log: Option<PathBuf>,
    /// Log statements that took at least this long, from the cache or from the database
    #[arg(long, default_value = "0s")]
    pub(crate) query_log_min_duration: Span,
    /// Share of these statements that are logged; the log has the factor, by which readers multiply
    #[arg(long, default_value = "1", value_name = "0..1")]
    pub(crate) query_log_sample: Share,
    #[command(flatten)]
    faults: FaultArgs,
    // These come last, since their headings apply to all options that follow.
    #[command(flatten)]
    pub(crate) otlp: OtlpArgs,
    #[command(flatten)]
    pub(crate) web: WebArgs,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
}

/// Which results are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AdmissionArg {
    Worthwhile,
    Always,
}

impl From<AdmissionArg> for Keep {
    fn from(arg: AdmissionArg) -> Self {
        match arg {
            AdmissionArg::Worthwhile => Self::Worthwhile,
            AdmissionArg::Always => Self::Always,
        }
    }
}

/// The follower of the change stream. It ends on request.
struct Following {
    control: Arc<Control>,
    follower: tokio::task::JoinHandle<()>,
}

/// Serves until SIGINT, until the drain after SIGTERM is complete, or until another process has taken over.
pub(crate) async fn run(
    arguments: Vec<OsString>,
    config: Resolved,
    set_filter: SetFilter,
    (predecessor, mut inherited): (Option<Predecessor>, Inherited),
) -> Result<()> {
    let start = Start::now();
    // A signal that comes too early must not end the process.
    let requests = signal(SignalKind::user_defined2())?;
    let served = Served::open(&config)?;
    let databases = served.databases.clone();
    let query_log = databases.query_log();
    if let Some(path) = &config.args.query_log {
        query_log.start(path.clone()).with_context(|| format!("{} cannot be written (--query-log)", path.display()))?;
        query_log.set(nanos(config.args.query_log_min_duration), config.args.query_log_sample.0);
    }
    let running = Running::start(arguments.clone(), &config, served.clone(), set_filter);
    let listener = served.listen(&config, &mut inherited)?;
    let web = Web::bind(&config.args.web, &mut inherited)?;
    if let Some(web) = &web {
        let mut stdout = std::io::stdout();
        writeln!(stdout, "http on {}", web.bound()?)?;
        stdout.flush()?;
    }
    let manager = ServiceManager::of_environment();
    // What changes from now on is seen, also before a handover.
    let watch = config.args.access.clone().watch(running.clone(), manager.clone())?;
    let exporter = otlp::start(&config.args.otlp, &databases)?;
    let (predecessor, arrivals) = match predecessor {
        Some(predecessor) => {
            let (end, arrivals) = predecessor.take_over(inherited, || running.read_again()).await?;
            (end, Some(arrivals))
        }
        None => (PredecessorEnd::default(), None),
    };
    served.start(&config, predecessor.clone());
    let watch = tokio::spawn(watch);
    served.start_memory(start);
    listener.run();
    if let Some(arrivals) = arrivals {
        let (workers, databases) = (served.workers.clone(), databases.clone());
        arrivals.receive(move |session| workers.take_over(session, &databases))?;
    }
    if let Some(web) = &web {
        web.run(&config.args.web, databases.clone());
    }
    manager.ready(SERVING);
    tokio::spawn(manager.clone().keep_alive(served.workers.clone()));
    let in_charge = running.clone();
    let handover = Handover {
        requests,
        arguments,
        set_retired: Box::new(move |retired| in_charge.set_retired(retired)),
        databases: databases.clone(),
        workers: served.workers.clone(),
        web,
        watch: watch.abort_handle(),
        predecessor,
    };
    let times = || running.times();
    let stopped = stop::until_stopped(&databases, &manager, times, handover).await;
    if let Some(exporter) = exporter {
        exporter.finish().await;
    }
    served.end().await;
    stopped
}

impl ServeArgs {
    /// Faults of options that are each valid alone, with their keys.
    pub(crate) fn faults(&self, log: &str) -> Vec<(&'static str, String)> {
        let mysql = self.is_mysql();
        let upstream = if mysql {
            Upstream::parse(&self.upstream).map(drop).map_err(anyhow::Error::from)
        } else {
            freshet_net::Upstream::parse(&self.upstream).map(drop).map_err(anyhow::Error::from)
        };
        let checks = [
            ("upstream", upstream.err()),
            ("upstream_password_file", self.upstream_password().err()),
            ("listen", listen_addresses(&self.listen, mysql).err()),
            ("log", logging::filter(log).err()),
        ];
        let found = checks.into_iter().filter_map(|(key, error)| error.map(|error| (key, format!("{error:#}"))));
        found.chain(self.otlp.faults()).chain(self.web.faults()).chain(self.access.faults()).collect()
    }

    /// The password from its file.
    fn upstream_password(&self) -> Result<Option<Secret>> {
        let Some(path) = &self.upstream_password_file else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow!("{} cannot be read: {}", path.display(), exit::unreadable(&error)))?;
        let password = text.trim_end_matches(['\r', '\n']);
        ensure!(!password.is_empty(), "{} is empty", path.display());
        Ok(Some(Secret::new(password.to_owned())))
    }

    pub(crate) fn is_mysql(&self) -> bool {
        Upstream::is_url(&self.upstream)
    }

    /// The database in the upstream. `*` if there is none, or if it cannot be read.
    pub(crate) fn database_of_upstream(&self) -> String {
        let name = if self.is_mysql() {
            Upstream::parse(&self.upstream).ok().and_then(|upstream| upstream.database().map(str::to_owned))
        } else {
            let upstream = freshet_net::Upstream::parse(&self.upstream).ok();
            upstream.map(|upstream| upstream.conninfo().database.clone())
        };
        name.unwrap_or_else(|| "*".to_owned())
    }

    pub(crate) fn times(&self) -> Times {
        Times { drain: self.drain_timeout.0, grace: self.upgrade_grace.0 }
    }

    fn workers(&self) -> usize {
        self.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from)).max(1)
    }

    /// `user`: the upstream's user.
    pub(crate) fn admin_users_or(&self, user: &str) -> Vec<String> {
        if self.admin_users.is_empty() { vec![user.to_owned()] } else { self.admin_users.clone() }
    }

    /// The state shared by the sessions and services of any upstream. `user` is the user in the URL.
    fn shared(&self, dialect: Dialect, upstream: String, user: &str, instance: &Instance) -> Arc<Shared> {
        let (cache_faults, faults) = self.faults.switches();
        // An equal part, until it is divided by need.
        let mut limits = Limits::with_memory(self.memory.0 / instance.count);
        limits.staleness_max = nanos(self.max_staleness);
        limits.keep = self.admission.into();
        let settings = Settings {
            memory: instance.memory.clone(),
            query_log: instance.query_log.clone(),
            stop: instance.stop.clone(),
            traces: instance.traces.clone(),
            admin_users: self.admin_users_or(user).into(),
            stats_users: self.stats_users.clone().into(),
            upstream,
            dialect,
            commit_wait_max: nanos(self.commit_wait).into(),
            verify: self.verify.0,
            // A service connection of MySQL or MariaDB cannot switch to another account, nor log in as each client did.
            refresh_share: if dialect.is_mysql_family() { 0.0 } else { self.refresh_share.0 },
            trust_immutable: self.trust_immutable && !dialect.is_mysql_family(),
            pool: self.pool.settings(),
            faults,
        };
        let cache = Arc::new(Cache::new(limits, cache_faults));
        let shared = Shared::new(settings, cache, Clock::default(), self.workers());
        shared.switches.set_bypass(self.bypass);
        shared.set_hints(self.hints);
        Arc::new(shared)
    }
}

/// A socket in a directory has a port in its name: that of the first TCP address, or else PostgreSQL's.
pub(crate) fn listen_addresses(texts: &[String], mysql: bool) -> Result<Vec<ListenAddress>> {
    let tcp = texts.iter().filter(|text| !text.starts_with('/')).map(|text| {
        text.parse::<SocketAddr>().with_context(|| {
            format!("{text:?} is neither address:port (127.0.0.1:6432) nor a directory (/run/freshet)")
        })
    });
    let tcp = tcp.collect::<Result<Vec<_>>>()?;
    let port = tcp.first().map_or(5432, SocketAddr::port);
    let name = if mysql { "mysqld.sock".to_owned() } else { format!(".s.PGSQL.{port}") };
    let unix = texts.iter().filter(|text| text.starts_with('/')).map(|text| PathBuf::from(text).join(&name));
    Ok(tcp.into_iter().map(ListenAddress::Tcp).chain(unix.map(ListenAddress::Unix)).collect())
}

pub(crate) fn nanos(span: Span) -> Nanos {
    Nanos::try_from(span.0.as_nanos()).unwrap_or(Nanos::MAX)
}

fn server_identity(identity: &Identity) -> ServerIdentity {
    ServerIdentity {
        system_id: identity.system_id.clone(),
        postmaster_start: identity.postmaster_start.clone(),
        database: identity.database.clone(),
    }
}

/// Passes a commit to the cache.
fn apply(shared: &Shared, mut commit: Commit) {
    let (pending, redefines) = (!commit.changes.is_empty(), commit.redefines);
    let naming = redefines.then(|| shared.naming());
    if redefines {
        shared.add_namesakes(&mut commit.changes);
    }
    let hot = shared.cache.apply(commit);
    drop(naming);
    shared.refresh(hot);
    if shared.cache.epoch().is_none() {
        shared.restart_stream.notify_one();
    }
    if redefines {
        shared.want_catalog();
    }
    if pending {
        shared.commit_delivered();
    }
}

fn advance(shared: &Shared, lsn: Lsn) {
    shared.cache.advance(lsn);
    shared.settle(lsn);
    shared.waits.passed(lsn, shared.cache.current_as_of());
}

fn suspended(shared: &Shared, why: &str) {
    shared.cache.suspended();
    shared.stream_lost(why);
}

fn disconnected(shared: &Shared, why: &str) {
    shared.cache.disconnected();
    shared.stream_lost(why);
}

/// Wakes the follower when the cache needs it. Never returns.
async fn ring(shared: Arc<Shared>, control: Arc<Control>) {
    loop {
        tokio::select! {
            () = shared.keepalive.notified() => control.request_keepalive(),
            () = shared.restart_stream.notified() => control.restart(),
        }
    }
}
