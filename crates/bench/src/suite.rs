//! The project's own measurements: the workloads on throw-away servers, direct, through Freshet and next to its peers.
//!
//! Each item is a command line of `freshet-bench run`, so that anyone can repeat it on another server. The suite adds the servers: a PostgreSQL, the
//! installed peers, and a Freshet that the run itself starts with an empty cache. Like a user, the suite uses only Freshet's command line.

mod items;
mod paper;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser};
use freshet_testbed::{Mysql, MysqlSettings, Postgres, Server, Settings};

use self::items::{ITEMS, Item};
use crate::peers::{PeerKind, Peers};
use crate::program;
use crate::report::{self, Document, Entry, PageArgs};
use crate::result::Run;
use crate::run::{self, Plan};
use crate::run_args::RunArgs;
use crate::target::{Family, Kind, Target};
use crate::workload;

/// The options of `suite`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct SuiteArgs {
    /// Only these measurements, as names separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A small version of all workloads on PostgreSQL and MariaDB (some on MySQL), with cards and sizing, in less than half an hour
    #[arg(long, conflicts_with = "only")]
    paper: bool,
    /// One short round each, to check that everything works; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Directory for the JSON and Markdown of each measurement and for the HTML page [default: docs/benchmarks; with --quick a temporary one]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Only write the page of the existing documents again
    #[arg(long)]
    page: bool,
    /// Only list the measurements
    #[arg(long)]
    list: bool,
}

/// Freshet's memory in measurements that do not vary it.
const MEMORY: &str = "--sizes=256MiB";
const MEMORY_BYTES: u64 = 256 << 20;
/// The options that `--quick` adds. Of several numbers of connections, rates of writes and read shares, only the last remain.
const QUICK: [&str; 3] = ["--rounds=1", "--time=300ms", "--warm-up=100ms"];

/// A command line of `freshet-bench run`, without the program's name.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct Line {
    #[command(flatten)]
    run: RunArgs,
}

/// The suite's own measurements and the paper's.
fn all() -> impl Iterator<Item = &'static Item> {
    ITEMS.iter().chain(&paper::ITEMS)
}

/// The selected measurements.
fn chosen(args: &SuiteArgs) -> Result<Vec<&'static Item>> {
    let named = |name: &str| all().find(|item| item.name == name);
    if args.paper {
        return Ok(paper::NAMES.iter().filter_map(|name| named(name)).collect());
    }
    if args.only.is_empty() {
        return Ok(if args.list { all().collect() } else { ITEMS.iter().collect() });
    }
    let found = |name: &String| named(name).with_context(|| format!("there is no measurement {name:?}: see --list"));
    args.only.iter().map(found).collect()
}

/// Runs the suite.
pub async fn run(args: SuiteArgs) -> Result<()> {
    let items = chosen(&args)?;
    if args.list {
        for item in items {
            println!("{:30}{}", item.name, item.title);
        }
        return Ok(());
    }
    let usual = if args.quick { std::env::temp_dir().join("freshet-bench-quick") } else { "docs/benchmarks".into() };
    let output = args.output.clone().unwrap_or(usual);
    if args.page {
        return write_page(&output);
    }
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let stop = run::stop_on_interrupt();
    let names: Vec<&str> = items.iter().flat_map(|item| item.targets).copied().collect();
    let servers = Servers::start(&names).await?;
    let mut runs = Vec::new();
    for item in items {
        println!("\n## {}: {}\n", item.name, item.title);
        let plan = servers.plan(item, args.quick)?;
        for target in holding_data(&plan.targets) {
            workload::load_if_missing(plan.workload.as_ref(), target).await?;
        }
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        let measured = plan.output.clone();
        let document = run::run(plan, &stop).await.with_context(|| item.name.to_owned())?;
        // Only complete figures replace those of an earlier run.
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        write(&output, item, (&measured, &document))?;
        runs.push(document);
    }
    if args.paper {
        paper::extras(&servers, &output, args.quick).await?;
    }
    write_page(&output)?;
    println!("\nwritten to {}", output.display());
    println!("\n{}", report::main_table(&runs));
    ensure!(runs.iter().all(|run| run.wrong_answers() == 0), "there were wrong answers");
    Ok(())
}

/// The databases, each the first of its family, and the peers that are not databases.
fn holding_data(targets: &[Target]) -> impl Iterator<Item = &Target> {
    let first = |family| targets.iter().find(|target| target.family() == Some(family));
    let databases = [Family::Postgres, Family::Mysql].into_iter().filter_map(first);
    databases.chain(targets.iter().filter(|target| matches!(target.kind, Kind::Memcached(_) | Kind::Redis(_))))
}

fn write(directory: &Path, item: &Item, (measured, document): (&Path, &Run)) -> Result<()> {
    let place = directory.join(item.name);
    let text = format!("# {}\n\n{}", item.title, report::markdown(document));
    std::fs::copy(measured, place.with_extension("json")).with_context(|| place.display().to_string())?;
    std::fs::write(place.with_extension("md"), text).with_context(|| place.display().to_string())
}

/// Writes one page with all measurements that have a document, including those of earlier runs.
fn write_page(directory: &Path) -> Result<()> {
    let mut entries = Vec::new();
    for item in all() {
        let path = directory.join(item.name).with_extension("json");
        if path.exists() {
            entries.push(Entry { title: item.title.to_owned(), ..Entry::of(&path, report::read(&path)?) });
        }
    }
    let mut extras = Vec::new();
    for path in paper::EXTRAS.map(|name| directory.join(name).with_extension("json")) {
        if let Some(Document::Extra(extra)) = path.exists().then(|| report::read_any(&path)).transpose()? {
            extras.push(*extra);
        }
    }
    let page = PageArgs { html: Some(directory.join("report.html")), ..PageArgs::default() };
    page.write_all(&entries, &extras)
}

/// Starts the peers of a database (a throw-away one if none is given), prints their targets and keeps them running until Ctrl-C.
pub async fn peers(target: Option<Target>) -> Result<()> {
    let mut postgres = None;
    let target = match target {
        Some(target) => target,
        None => format!("direct={}", postgres.insert(start_postgres().await?).url()).parse()?,
    };
    let directory = private_directory()?;
    let (peers, targets, left_out) = Peers::start(&target, &PeerKind::ALL, &directory).await?;
    for target in std::iter::once(&target).chain(&targets) {
        println!("--target '{}'", target.typed());
    }
    for reason in left_out {
        println!("skipped: {reason}");
    }
    println!("Ctrl-C ends them.");
    tokio::signal::ctrl_c().await.context("waiting for Ctrl-C")?;
    drop(peers);
    Ok(std::fs::remove_dir_all(directory)?)
}

async fn start_postgres() -> Result<Server> {
    // All data are in memory, and no checkpoint runs during a round. All proxies together have enough connections.
    let settings = Settings::default()
        .with("max_connections = 600\nshared_buffers = 512MB\nmax_wal_size = 8GB\ncheckpoint_timeout = 1h")
        .with("autovacuum = off");
    tokio::task::spawn_blocking(move || Postgres::find(None)?.start(&settings)).await?
}

/// All data are in memory, as on PostgreSQL.
fn start_mysql() -> Result<Mysql> {
    Mysql::start(&MysqlSettings::default().with("innodb-buffer-pool-size = 512M").with("max-connections = 1000"))
}

/// The servers that the items need.
struct Servers {
    targets: Vec<Target>,
    /// Names and commands of the targets that a run starts itself.
    freshets: Vec<(String, String)>,
    /// The path of the `freshet` program in commands.
    program: String,
    directory: PathBuf,
    _peers: Peers,
    postgres: Server,
    /// Servers that must stay alive.
    standby: Option<Server>,
    mysql: Option<Mysql>,
}

impl Servers {
    async fn start(names: &[&str]) -> Result<Self> {
        eprintln!("starting PostgreSQL");
        let postgres = start_postgres().await?;
        let direct: Target = format!("direct={}", postgres.url()).parse()?;
        let program = format!("'{}'", program::freshet()?.display());
        let directory = private_directory()?;
        let want: Vec<PeerKind> = PeerKind::ALL.into_iter().filter(|kind| needed(*kind, names)).collect();
        let (peers, more, left_out) = Peers::start(&direct, &want, &directory).await?;
        for reason in left_out {
            eprintln!("skipped: {reason}");
        }
        let mut targets = vec![direct.clone()];
        if let Some(address) = more.iter().find_map(|t| if let Kind::Memcached(at) = &t.kind { Some(at) } else { None })
        {
            let counters = format!("metrics=memcached://{address}");
            targets.push(format!("lookaside={},lookaside={address},{counters}", direct.url).parse()?);
        }
        targets.extend(more);
        let mut servers = Self {
            targets,
            freshets: Vec::new(),
            program,
            directory,
            _peers: peers,
            postgres,
            standby: None,
            mysql: None,
        };
        servers.put_freshet_before("direct", "direct", "")?;
        if names.contains(&"freshet-off") {
            servers.put_freshet_before("direct", "direct", "--bypass")?;
        }
        if names.contains(&"freshet-mariadb") {
            servers.put_freshet_before("mariadb", "mariadb-qcache", "")?;
        }
        if names.contains(&"standby") {
            eprintln!("starting a standby");
            // The call blocks, but nothing else runs yet.
            let standby = servers.postgres.standby("standby")?;
            servers.targets.push(format!("standby={}", standby.url()).parse()?);
            servers.standby = Some(standby);
        }
        if names.contains(&"mysql") {
            eprintln!("starting MySQL");
            let mysql = tokio::task::spawn_blocking(start_mysql).await??;
            servers.targets.push(format!("mysql={}", mysql.url()).parse()?);
            servers.mysql = Some(mysql);
            servers.put_freshet_before("mysql", "mysql", "")?;
        }
        Ok(servers)
    }

    /// Adds a target like `sessions` through a Freshet whose own account is that of `own`. With `--bypass` its name is `freshet-off`.
    fn put_freshet_before(&mut self, sessions: &str, own: &str, option: &str) -> Result<()> {
        let named = |name| self.targets.iter().find(|target| target.name == name).with_context(|| format!("no {name}"));
        let (sessions, own) = (named(sessions)?, named(own)?);
        let name = match (sessions.name.as_str(), option) {
            ("direct", "") => "freshet".to_owned(),
            ("direct", _) => "freshet-off".to_owned(),
            (database, _) => format!("freshet-{database}"),
        };
        let (listen, http) = (free_address()?, free_address()?);
        let (_, port) = sessions.address().context("a target without an address")?;
        let url = sessions.url.replace(&format!(":{port}/"), &format!(":{}/", listen.port()));
        let through = format!("{name}={url},metrics=http://{http}/metrics").parse()?;
        let command = format!(
            "exec {} serve --upstream '{}' --listen {listen} --http {http} --memory {{size}} {option}",
            self.program, own.url
        );
        self.targets.push(through);
        self.freshets.push((name, command));
        Ok(())
    }

    fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// The item's command line, with the available targets.
    fn plan(&self, item: &Item, quick: bool) -> Result<Plan> {
        let named = |name: &&str| self.target(name);
        let mut line: Vec<String> =
            (!item.command.contains("--sizes")).then(|| MEMORY.to_owned()).into_iter().collect();
        line.extend(item.command.split_ascii_whitespace().map(str::to_owned));
        line.extend(item.targets.iter().filter_map(named).map(|target| format!("--target={}", target.typed())));
        let started = self.freshets.iter().filter(|(name, _)| item.targets.contains(&name.as_str()));
        line.extend(started.map(|(name, command)| format!("--start={name}={command}")));
        // The path of the program is not shown.
        let shown = line.iter().map(|word| word.replace(&self.program, "freshet")).collect::<Vec<_>>();
        let mut plan = parse(line, quick).and_then(|args| args.plan()).with_context(|| item.name.to_owned())?;
        plan.output = self.directory.join(format!("{}.json", item.name));
        plan.command = std::iter::once("run".to_owned()).chain(run::without_secrets(shown)).collect();
        Ok(plan)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn parse(mut line: Vec<String>, quick: bool) -> Result<RunArgs> {
    line.extend(QUICK.iter().filter(|_| quick).map(|word| (*word).to_owned()));
    let mut args = Line::try_parse_from(line)?.run;
    if quick {
        let method = &mut args.method;
        method.connections.drain(..method.connections.len().saturating_sub(1));
        method.writes.drain(..method.writes.len().saturating_sub(1));
        let shares = &mut args.workload.read_share;
        shares.drain(..shares.len().saturating_sub(1));
    }
    Ok(args)
}

/// Look-aside needs memcached. A Freshet for MariaDB needs the account that owns the database.
fn needed(kind: PeerKind, names: &[&str]) -> bool {
    let also = match kind {
        PeerKind::Memcached => "lookaside",
        PeerKind::MariadbQcache => "freshet-mariadb",
        _ => return names.contains(&kind.name()),
    };
    names.contains(&kind.name()) || names.contains(&also)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr())?)
}

fn private_directory() -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("freshet-bench-{}", std::process::id()));
    // An existing directory may belong to another user.
    std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_line_is_understood() {
        for item in all() {
            let line = format!("{MEMORY} --start=direct={{size}} --target=direct=postgres://h/d {}", item.command);
            let words = || line.split_ascii_whitespace().map(str::to_owned).collect();
            let whole = parse(words(), false).and_then(|args| args.plan());
            let quick = parse(words(), true).and_then(|args| args.plan());
            let (whole, quick) = (whole.expect(item.name), quick.expect(item.name));
            assert_eq!(whole.connections.last(), quick.connections.last(), "{}", item.name);
            assert_eq!((quick.connections.len(), quick.method.repetitions), (1, 1), "{}", item.name);
        }
    }
}
