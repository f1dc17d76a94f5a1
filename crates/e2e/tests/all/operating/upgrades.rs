//! SIGUSR2: a new process takes over, and no client notices.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::configuration::File;
use super::service::until_told;
use super::{SCHEMA, ends_by_command};
use crate::mysql::support as mysql;
use crate::support::{Database, Freshet, PATIENCE, Pair, RawClient, Version, eventually, get, on_both, program};

on_both!(clients_of_postgres_notice_nothing);

const CLIENTS: usize = 4;
/// Rounds of each client before, during and after the upgrade.
const ROUNDS: u64 = 15;

pub(super) fn signal(process: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args([format!("-{name}"), process.to_string()]).status()?;
    ensure!(status.success(), "kill -{name}: {status}");
    Ok(())
}

/// The process that has taken over. It is killed when this is dropped.
pub(crate) struct Successor(pub(crate) u32);

impl Successor {
    /// Asks `process` for it.
    pub(crate) fn of(freshet: &Freshet, process: u32) -> Result<Self> {
        let before = handed_over(freshet).len();
        signal(process, "USR2")?;
        eventually(PATIENCE, || {
            let all = handed_over(freshet);
            let last = all.get(before).with_context(|| format!("no handover in\n{}", freshet.log()))?;
            Ok(Self(*last))
        })
    }

    pub(crate) fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    /// Ends it as a service manager does.
    pub(crate) fn end(self) -> Result<()> {
        signal(self.0, "TERM")?;
        eventually(PATIENCE, || {
            ensure!(self.has_ended(), "it still runs");
            Ok(())
        })
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = signal(self.0, "KILL");
        }
    }
}

/// The processes to which connections were handed over, from the log.
pub(super) fn handed_over(freshet: &Freshet) -> Vec<u32> {
    let log = freshet.log();
    let number = |rest: &str| rest.split(';').next().and_then(|number| number.parse().ok());
    log.split("handed over to process ").skip(1).filter_map(number).collect()
}

pub(crate) fn old_ends_well(freshet: &mut Freshet) -> Result<()> {
    let status = eventually(PATIENCE, || freshet.ended()?.context("the old process still runs"))?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

/// A client of either family.
trait Session: Sized {
    fn run(&mut self, sql: &str) -> Result<()>;
    fn value(&mut self, sql: &str) -> Result<String>;
}

impl Session for RawClient {
    fn run(&mut self, sql: &str) -> Result<()> {
        self.run(sql)
    }
    fn value(&mut self, sql: &str) -> Result<String> {
        self.value(sql)
    }
}

impl Session for mysql::RawClient {
    fn run(&mut self, sql: &str) -> Result<()> {
        self.run(sql)
    }
    fn value(&mut self, sql: &str) -> Result<String> {
        self.value(sql)
    }
}

/// One client. Each statement has a connection of its own, so a write and the read behind it may meet different processes: the read must not miss the
/// write. Any refused connection and any error ends it.
fn client<S: Session>(
    id: usize,
    connect: &impl Fn() -> Result<S>,
    rounds: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let read = format!("select title from film where id = {id}");
    while !stop.load(Relaxed) {
        let title = format!("title {}", rounds.load(Relaxed));
        connect()?.run(&format!("update film set title = '{title}' where id = {id}"))?;
        for _ in 0..2 {
            let read = connect()?.value(&read)?;
            ensure!(read == title, "{read:?} is read after {title:?} was written");
        }
        rounds.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// The clients have all done so many more rounds, or one has failed, which stops all and is told by its thread.
pub(super) fn all_go_on(rounds: &[AtomicU64], more: u64, stop: &AtomicBool) -> Result<()> {
    let before: Vec<u64> = rounds.iter().map(|rounds| rounds.load(Relaxed)).collect();
    eventually(PATIENCE, || {
        let is_there = |(now, before): (&AtomicU64, &u64)| now.load(Relaxed) >= before + more;
        ensure!(stop.load(Relaxed) || rounds.iter().zip(&before).all(is_there), "the clients do not go on");
        Ok(())
    })
}

/// Upgrades under load.
fn upgraded<S: Session>(freshet: &mut Freshet, connect: impl Fn() -> Result<S> + Sync) -> Result<Successor> {
    let rounds: [AtomicU64; CLIENTS] = Default::default();
    let stop = AtomicBool::new(false);
    let advance = || all_go_on(&rounds, ROUNDS, &stop);
    thread::scope(|scope| {
        let clients: Vec<_> = (rounds.iter().enumerate())
            .map(|(at, rounds)| {
                let (connect, stop) = (&connect, &stop);
                scope.spawn(move || {
                    let done = client(at + 1, connect, rounds, stop);
                    stop.store(true, Relaxed);
                    done
                })
            })
            .collect();
        let successor = watched(freshet, &connect, advance);
        stop.store(true, Relaxed);
        let ended: Result<Vec<()>> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        // If it has failed, the process is gone to which the clients were connected.
        let successor = successor.with_context(|| format!("the clients: {ended:?}"))?;
        ended.with_context(|| freshet.log())?;
        Ok(successor)
    })
}

/// A session that was there before goes on until it leaves, and until then the new process caches nothing.
fn watched<S: Session>(
    freshet: &mut Freshet,
    connect: &impl Fn() -> Result<S>,
    advance: impl Fn() -> Result<()>,
) -> Result<Successor> {
    let mut long = connect()?;
    let read = "select title from film where id = 50";
    let write = |number: u32| format!("update film set title = 'number {number}' where id = 50");
    long.run(&write(0))?;
    advance()?;
    let successor = Successor::of(freshet, freshet.pid().context("no process")?)?;
    advance()?;
    for number in (1..40).step_by(2) {
        long.run(&write(number))?;
        let title = connect()?.value(read)?;
        ensure!(title == format!("number {number}"), "a new session reads {title:?} after {number} was written");
        connect()?.run(&write(number + 1))?;
        let title = long.value(read)?;
        ensure!(title == format!("number {}", number + 1), "the old session reads {title:?} after {number} + 1");
    }
    let cachez = get(freshet.http, "/cachez")?;
    ensure!(cachez.1.contains("sessions of the process before this one go on"), "{cachez:?}");
    ensure!(freshet.is_alive(), "the old process has left a session");
    drop(long);
    old_ends_well(freshet)?;
    freshet.wait_ready()?;
    let before = freshet.metrics()?.hits();
    advance()?;
    ensure!(freshet.metrics()?.hits() > before, "the new process caches nothing");
    Ok(successor)
}

fn clients_of_postgres_notice_nothing(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    let slot = format!("upgrade_{}", database.name);
    let options = ["--upgrade-grace", "3600s", "--admission", "always", "--slot", &slot];
    let Pair { mut freshet, database } = Pair::over(database, SCHEMA, &options)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let address = freshet.address;
    let successor = upgraded(&mut freshet, || RawClient::login(address, database.login()))?;
    let slots = format!("select count(*) from pg_replication_slots where slot_name = 'freshet_{slot}' and active");
    ensure!(database.connect()?.value(&slots)? == "1", "the slot is not in use");
    // It drops the slot.
    successor.end()
}

#[test]
fn clients_of_mariadb_notice_nothing() -> Result<()> {
    let database = mysql::Database::shared(mysql::Kind::Mariadb)?;
    database.run("create table film (id int primary key, title varchar(100) not null)")?;
    for id in 1..=50 {
        database.run(&format!("insert into film values ({id}, 'film')"))?;
    }
    let options = ["--upgrade-grace", "3600s", "--admission", "always"];
    let mut freshet = Freshet::start_unready(database.address(), &database.url(), &options)?;
    if !freshet.is_there() {
        return Ok(());
    }
    freshet.wait_ready()?;
    let address = freshet.address;
    upgraded(&mut freshet, || mysql::RawClient::login(address, database.login()))?.end()
}

/// A directory with a copy of the program, a configuration and sockets.
pub(super) struct Installed {
    pub(super) path: PathBuf,
    original: PathBuf,
}

impl Installed {
    pub(super) fn new(name: &str) -> Result<Option<Self>> {
        let Some(original) = program()? else { return Ok(None) };
        let path = std::env::temp_dir().join(format!("freshet-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        let installed = Self { path, original };
        installed.install_program()?;
        Ok(Some(installed))
    }

    pub(super) fn program(&self) -> PathBuf {
        self.path.join("freshet")
    }

    /// As package managers do it: the running program keeps its file.
    fn put(&self, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
        let new = self.path.join("new");
        make(&new)?;
        Ok(fs::rename(new, self.program())?)
    }

    pub(super) fn install_program(&self) -> Result<()> {
        self.put(|new| fs::copy(&self.original, new).map(drop).context("a copy of the program"))
    }

    pub(super) fn install_script(&self, text: &str) -> Result<()> {
        self.put(|new| {
            fs::write(new, format!("#!/bin/sh\n{text}\n"))?;
            Ok(fs::set_permissions(new, fs::Permissions::from_mode(0o755))?)
        })
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Nothing else needs it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The upgrade fails for this reason, and the process goes on.
pub(super) fn fails(freshet: &Freshet, client: &mut RawClient, why: &str) -> Result<()> {
    let before = freshet.log().len();
    signal(freshet.pid().context("no process")?, "USR2")?;
    eventually(PATIENCE, || {
        let log = freshet.log();
        let new = log.get(before..).unwrap_or_default();
        let line = new.lines().find(|line| line.contains("no new process has taken over"));
        let line = line.with_context(|| format!("no word of it:\n{new}"))?;
        ensure!(line.contains(why), "{line}");
        Ok(())
    })?;
    ensure!(client.value("select title from film where id = 1")? == "film 1", "the session does not go on");
    ensure!(freshet.probes()?[..2] == [200, 200], "{:?}", freshet.probes()?);
    let through_new = RawClient::open(freshet.address);
    ensure!(through_new.is_ok(), "no connection is accepted");
    Ok(())
}

#[test]
fn a_failed_upgrade_changes_nothing() -> Result<()> {
    let Some(installed) = Installed::new("failed-upgrade")? else { return Ok(()) };
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    let sockets = installed.path.to_str().context("a path")?;
    let of = |http: &str| {
        format!("upstream = \"{}\"\nlisten = [\"127.0.0.1:0\", \"{sockets}\"]\nhttp = \"{http}\"\n", database.url())
    };
    let good = of("127.0.0.1:0");
    let config = File::new("upgrade.toml", &good)?;
    let mut command = Command::new(installed.program());
    command.args(["serve", "--config", config.path()]);
    let mut freshet = Freshet::spawn(database.address(), Some(command))?;
    freshet.wait_ready()?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    config.write(&format!("{good}memory = \"much\"\n"))?;
    fails(&freshet, &mut client, "it has ended with exit status: 78")?;
    // It has taken the sockets, and finds an address in use.
    config.write(&of(&freshet.address.to_string()))?;
    fails(&freshet, &mut client, "it has ended with exit status")?;
    UnixStream::connect(installed.path.join(".s.PGSQL.0")).context("the socket's file is gone")?;
    config.write(&good)?;
    installed.install_script("exit 3")?;
    fails(&freshet, &mut client, "it has ended with exit status: 3")?;
    installed.install_script("printf 'hello\\n' >&0; exec cat >/dev/null")?;
    fails(&freshet, &mut client, "it does not know how to take over")?;
    fs::remove_file(installed.program())?;
    fails(&freshet, &mut client, "cannot be started: No such file")?;
    ensure!(handed_over(&freshet).is_empty(), "something was handed over");
    // What does not answer is no reason to stay when the end is asked for.
    installed.install_script("exec cat >/dev/null")?;
    signal(freshet.pid().context("no process")?, "USR2")?;
    signal(freshet.pid().context("no process")?, "TERM")?;
    ends_by_command(&mut client)?;
    old_ends_well(&mut freshet)
}

#[test]
fn a_new_version_takes_all_sockets_and_the_old_one_drains() -> Result<()> {
    let Some(installed) = Installed::new("upgrade")? else { return Ok(()) };
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    let sockets = installed.path.to_str().context("a path")?;
    let (notify, unix) = (installed.path.join("notify"), installed.path.join(".s.PGSQL.0"));
    let manager = UnixDatagram::bind(&notify)?;
    manager.set_read_timeout(Some(PATIENCE))?;
    let mut command = Command::new(installed.program());
    command.args(["serve", "--upstream", &database.url(), "--listen", "127.0.0.1:0", "--listen", sockets]);
    command.args(["--http", "127.0.0.1:0", "--upgrade-grace", "0s", "--drain-timeout", "3600s"]);
    // Few messages: more than some are lost while nobody reads them.
    command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", "30000000");
    let mut freshet = Freshet::spawn(database.address(), Some(command))?;
    freshet.wait_ready()?;
    until_told(&manager, "READY=1")?;
    let login = |address: SocketAddr| RawClient::login(address, database.login());
    let (mut idle, mut busy) = (login(freshet.address)?, login(freshet.address)?);
    idle.query("select 1")?;
    busy.run("begin; insert into film values (1001, 'new')")?;
    installed.install_program()?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
    // By the old process and by the new one, in any order.
    let mut missing = vec![format!("MAINPID={}", successor.0), "READY=1\nSTATUS=serving".to_owned()];
    while !missing.is_empty() {
        let told = until_told(&manager, "")?;
        ensure!(!told.starts_with("MAINPID=") || missing.contains(&told), "{told}, not {missing:?}");
        missing.retain(|missing| *missing != told);
    }
    until_told(&manager, "WATCHDOG=1")?;
    ends_by_command(&mut idle)?;
    ensure!(login(freshet.address)?.value("select count(*) from film")? == "100", "what is not committed is seen");
    ensure!(get(freshet.http, "/readyz")?.0 == 200, "the new process is not ready");
    // A third process must wait for the first one.
    signal(successor.0, "USR2")?;
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("the process before this one has not ended yet"), "{}", freshet.log());
        Ok(())
    })?;
    ensure!(busy.value("select count(*) from film")? == "101", "the transaction does not go on");
    busy.run("commit")?;
    ends_by_command(&mut busy)?;
    old_ends_well(&mut freshet)?;
    freshet.wait_ready()?;
    UnixStream::connect(&unix).context("the old process has removed the socket of the new one")?;
    // Now that the first one has ended.
    let third = Successor::of(&freshet, successor.0)?;
    eventually(PATIENCE, || {
        ensure!(successor.has_ended(), "the second process still runs");
        Ok(())
    })?;
    freshet.wait_ready()?;
    ensure!(login(freshet.address)?.value("select count(*) from film")? == "101", "no answer by the third process");
    third.end()?;
    ensure!(!unix.exists(), "the socket is left");
    Ok(())
}
