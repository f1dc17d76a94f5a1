//! Servers that a run starts itself, on private ports of 127.0.0.1: caches of several sizes, and peers to compare with.
//!
//! Peers are programs that are used between an application and its database today: poolers and balancers that cache nothing, other caches, and
//! look-aside stores. The lower bound is a server that does nothing. All are measured in the same run on the same machine. Each store gets 256 MiB,
//! each server a thread for each processor where this can be configured, no persistence and no logs. A peer that is not installed is skipped with the
//! reason.

pub mod echo;
mod process;
mod proxies;
pub mod started;
mod stores;
#[cfg(test)]
mod tests;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use freshet_testbed::{Mariadb, Owner, find_program};
use rustix::process::Signal;

use crate::target::{Kind, Target};
use process::Process;
use proxies::Upstream;

/// Memory of each cache.
const CACHE_BYTES: u64 = 256 << 20;
/// The most connections of a proxy, a few more than the 128 of the largest run.
const CONNECTIONS_MAX: usize = 136;
/// Attempts to start on a free port, since another process may take it first.
const PORT_TRIES: usize = 3;
/// Bytes of sysbench's prepared point select in PostgreSQL's protocol.
const ECHO_REQUEST: usize = 50;
const ECHO_ANSWER: usize = 160;

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// PgBouncer: a pooler.
    PgBouncer,
    /// HAProxy: forwards bytes.
    HaProxy,
    /// pgpool-II with its query cache.
    Pgpool,
    /// memcached.
    Memcached,
    /// Redis.
    Redis,
    /// MariaDB without its query cache.
    Mariadb,
    /// MariaDB with its query cache. If both are wanted, they are one server with the same data, and the account selects one.
    MariadbQcache,
    /// This program's echo server: [`echo`].
    Echo,
}

impl PeerKind {
    /// All peers.
    pub const ALL: [Self; 8] = [
        Self::PgBouncer,
        Self::HaProxy,
        Self::Pgpool,
        Self::Memcached,
        Self::Redis,
        Self::Mariadb,
        Self::MariadbQcache,
        Self::Echo,
    ];

    /// The name of the peer's target.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PgBouncer => "pgbouncer",
            Self::HaProxy => "haproxy",
            Self::Pgpool => "pgpool",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
            Self::Mariadb => "mariadb",
            Self::MariadbQcache => "mariadb-qcache",
            Self::Echo => "echo",
        }
    }
}

/// Running peers. They are stopped when this is dropped, or when this program is killed.
#[derive(Debug)]
pub struct Peers {
    processes: Vec<Process>,
    mariadb: Option<Mariadb>,
}

impl Peers {
    /// Starts the peers in `want` that are installed, each with its own files under `directory`, and waits until each answers.
    ///
    /// `upstream` is the PostgreSQL server behind the proxies. Returns the targets in the order of `want`, and the skipped peers with their reasons.
    /// The servers' user must be able to enter `directory`, whose last part is created with that right.
    pub async fn start(
        upstream: &Target,
        want: &[PeerKind],
        directory: &Path,
    ) -> Result<(Self, Vec<Target>, Vec<String>)> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let directory = fs::canonicalize(directory)?;
        let mode = fs::metadata(&directory)?.permissions().mode();
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode | 0o011))?;
        let mut peers = Self { processes: Vec::new(), mariadb: None };
        let (mut targets, mut left_out) = (Vec::new(), Vec::new());
        let upstream = Upstream::of(upstream);
        for kind in want {
            let target = match kind {
                PeerKind::Mariadb | PeerKind::MariadbQcache => peers.mariadb_target(*kind, want).await,
                PeerKind::Echo => peers.start_echo().await,
                _ => peers.start_process(*kind, upstream.as_ref(), &directory.join(kind.name())).await,
            };
            match target {
                Ok(target) => targets.push(target),
                Err(error) => left_out.push(format!("{}: {error:#}", kind.name())),
            }
        }
        Ok((peers, targets, left_out))
    }

    /// Process ids of the running peers.
    pub fn pids(&self) -> Vec<u32> {
        let processes = self.processes.iter().map(Process::pid);
        processes.chain(self.mariadb.as_ref().and_then(|server| server.pid())).collect()
    }

    async fn mariadb_target(&mut self, kind: PeerKind, want: &[PeerKind]) -> Result<Target> {
        let server = if let Some(server) = self.mariadb.take() {
            server
        } else {
            let cached = want.contains(&PeerKind::MariadbQcache);
            tokio::task::spawn_blocking(move || stores::start_mariadb(cached)).await??
        };
        Ok(stores::mariadb_target(kind, self.mariadb.insert(server)))
    }

    async fn start_process(
        &mut self,
        kind: PeerKind,
        upstream: Result<&Upstream, &anyhow::Error>,
        directory: &Path,
    ) -> Result<Target> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let place = Place { owner: Owner::detect()?, directory: directory.to_owned() };
        place.owner.take(directory)?;
        for attempt in 1.. {
            let plan = plan(kind, &place, upstream)?;
            let mut process = Process::spawn(plan.command, plan.end)?;
            match process.wait_until_it_answers(&plan.target).await {
                Err(error) if attempt < PORT_TRIES && format!("{error:#}").contains("Address already in use") => {}
                outcome => {
                    outcome?;
                    self.processes.push(process);
                    return Ok(plan.target);
                }
            }
        }
        bail!("no free port in {PORT_TRIES} tries")
    }

    async fn start_echo(&mut self) -> Result<Target> {
        let program = std::env::current_exe().context("the path of this program")?;
        let (process, target) = start_echo(echo::command(&program, ECHO_REQUEST, ECHO_ANSWER)).await?;
        self.processes.push(process);
        Ok(target)
    }
}

fn plan(kind: PeerKind, place: &Place, upstream: Result<&Upstream, &anyhow::Error>) -> Result<Plan> {
    let upstream = || upstream.map_err(|error| anyhow!("{error:#}"));
    match kind {
        PeerKind::PgBouncer => proxies::pgbouncer(place, upstream()?),
        PeerKind::HaProxy => proxies::haproxy(place, upstream()?),
        PeerKind::Pgpool => proxies::pgpool(place, upstream()?),
        PeerKind::Memcached => stores::memcached(place),
        PeerKind::Redis => stores::redis(place),
        PeerKind::Mariadb | PeerKind::MariadbQcache | PeerKind::Echo => bail!("it has a start of its own"),
    }
}

/// The directory of a peer's files, and their owner.
#[derive(Debug)]
struct Place {
    owner: Owner,
    directory: PathBuf,
}

/// A peer about to be started.
#[derive(Debug)]
struct Plan {
    command: Command,
    target: Target,
    /// The signal for an orderly shutdown.
    end: Signal,
}

/// Starts the echo server, which chooses its port and prints it.
async fn start_echo(command: Command) -> Result<(Process, Target)> {
    let mut process = Process::spawn(command, Signal::TERM)?;
    let address: SocketAddr = process.wait_for_line(|line| line.trim().parse().ok()).await?;
    let place = format!("{address}/{ECHO_REQUEST}/{ECHO_ANSWER}");
    let url = format!("echo://{place}");
    let target = Target { name: "echo".into(), kind: Kind::Echo(place), url, counters: None, lookaside: None };
    process.wait_until_it_answers(&target).await?;
    Ok((process, target))
}

fn find(program: &str) -> Result<PathBuf> {
    find_program(program).with_context(|| format!("{program} is not installed; run `script/setup bench`"))
}

/// A port that is free at the moment.
fn port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The number of threads of peers that can be configured.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
