//! Reads at replicas: which go there, that they are true, and what happens when a replica lags, fails or is promoted.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings, StopMode};

use super::start::{Home, command};
use super::{READ, SCHEMA, expect_value, serves};
use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, frames, on_both};

on_both!(
    what_goes_to_a_replica,
    a_replica_that_lags,
    a_replica_that_delays,
    a_replica_that_stops,
    a_replica_that_is_promoted,
    a_write_that_only_the_replica_shows,
    a_read_that_is_cancelled,
);

/// A table that is never cached, as two more relations.
const ACCOUNT: &str = "create table account (id int primary key, v int not null);
    insert into account select i, 0 from generate_series(1, 1000) i";
pub(super) const BALANCE: &str = "select v from account where id = 1";
/// Columns of SHOW REPLICATION.
const READS: usize = 10;
const LAGGING_READS: usize = 11;
/// What is read where.
const RULES: &str = r#"
[[rule]]
query = "order by v"
cache = "never"
route = "primary"

[[rule]]
query = "order by id"
cache = "never"
route = "replica"

[[rule]]
query = "from (account|balance|late)"
cache = "never"
"#;

/// A primary and a standby behind a Freshet that reads from both.
pub(super) struct Stand {
    pub(super) freshet: Freshet,
    pub(super) database: Database,
    pub(super) standby: Server,
    /// Where Freshet finds the standby.
    second: SocketAddr,
    _home: Home,
}

impl Stand {
    /// None without a Freshet.
    pub(super) fn new(version: Version) -> Result<Option<Self>> {
        Self::behind(version, &[], Ok)
    }

    /// With more options, and a standby that Freshet finds at another address. It answers reads.
    pub(super) fn behind(
        version: Version,
        more: &[&str],
        relay: impl FnOnce(SocketAddr) -> Result<SocketAddr>,
    ) -> Result<Option<Self>> {
        let stand = Self::start(version, more, relay)?;
        stand.as_ref().map_or(Ok(()), Self::until_read)?;
        Ok(stand)
    }

    /// The same; the standby may answer nothing.
    pub(super) fn start(
        version: Version,
        more: &[&str],
        relay: impl FnOnce(SocketAddr) -> Result<SocketAddr>,
    ) -> Result<Option<Self>> {
        let (database, home) = (Database::create(version.start(&Settings::default())?)?, Home::new()?);
        database.run(SCHEMA)?;
        database.run(ACCOUNT)?;
        let standby = database.server.standby("second")?;
        let second = relay(SocketAddr::from((standby.host(), standby.port())))?;
        let (first, name) = (database.server.port(), &database.name);
        let hosts = format!("127.0.0.1:{first},{second}");
        let upstream = format!("postgres://postgres@{hosts}/{name}?target_session_attrs=primary&connect_timeout=2");
        home.write("rules.toml", RULES, 0o600)?;
        let Some(mut command) = command(Some(&upstream), &[], &home.0)? else { return Ok(None) };
        command.args(["--auth", "trust", "--pool", "transaction", "--read-replicas", "--admin-users", "postgres"]);
        command.arg("--config").arg(home.0.join("rules.toml")).args(more);
        let freshet = Freshet::spawn(database.address(), Some(command))?;
        let stand = Self { freshet, database, standby, second, _home: home };
        serves(&stand.freshet, &stand.database)?;
        Ok(Some(stand))
    }

    pub(super) fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.freshet.address, self.database.login())
    }

    /// Reads that the standby has answered.
    pub(super) fn reads(&self) -> Result<u64> {
        self.figure(READS)
    }

    /// Of these, those for which it had not replayed enough, but all that they need.
    pub(super) fn lagging_reads(&self) -> Result<u64> {
        self.figure(LAGGING_READS)
    }

    /// Reads that the primary has answered by its weight.
    pub(super) fn reads_at_primary(&self) -> Result<u64> {
        Ok(self.shown(&self.database.address().to_string(), READS)?.parse()?)
    }

    /// A column of the standby's row in SHOW REPLICATION.
    fn figure(&self, column: usize) -> Result<u64> {
        Ok(self.shown(&self.address_of_standby(), column)?.parse()?)
    }

    /// A column of a server's row in SHOW REPLICATION.
    pub(super) fn shown(&self, address: &str, column: usize) -> Result<String> {
        let mut client = self.connect()?;
        let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
        let messages = client.query("show replication")?;
        let rows = messages.iter().filter(|message| message.tag == b'D');
        let mut rows = rows.map(|message| message.columns().into_iter().map(text).collect::<Vec<_>>());
        let row = rows.find(|row| row[0] == address).with_context(|| format!("no row of {address}"))?;
        row.get(column).cloned().context("no column")
    }

    /// As Freshet shows it.
    pub(super) fn address_of_standby(&self) -> String {
        self.second.to_string()
    }

    /// Waits until the standby answers reads.
    pub(super) fn until_read(&self) -> Result<()> {
        let (mut client, before) = (self.connect()?, self.reads()?);
        eventually(PATIENCE, || {
            client.value(BALANCE)?;
            ensure!(self.reads()? > before, "the standby answers no read");
            Ok(())
        })
    }

    /// Runs this with new clients while a commit of this value waits for a standby that does not answer, until it returns true. It may take several
    /// commits, since replicas are read for a moment only while one waits.
    pub(super) fn while_a_commit_waits(&self, is_seen: impl Fn(Vec<RawClient>, u32) -> Result<bool>) -> Result<()> {
        let server = &self.database.server;
        for v in 9..=40 {
            let clients = (0..40).map(|_| self.connect()).collect::<Result<Vec<_>>>()?;
            server.set("synchronous_standby_names", "nobody")?;
            let write = format!("update account set v = {v} where id = 1");
            let is_seen = thread::scope(|scope| {
                let writer = scope.spawn(|| self.database.run(&write));
                let reset = Reset(server);
                let is_seen = is_seen(clients, v);
                drop(reset);
                writer.join().map_err(|_| anyhow::anyhow!("writing has panicked"))??;
                is_seen
            })?;
            if is_seen {
                return Ok(());
            }
        }
        anyhow::bail!("the replica has never shown a commit that waits")
    }

    /// The standby answers none of so many reads, which show this.
    pub(super) fn answers_none(&self, value: &str) -> Result<()> {
        let (mut client, before) = (self.connect()?, self.reads()?);
        for _ in 0..20 {
            expect_value(&mut client, BALANCE, value)?;
        }
        ensure!(self.reads()? == before, "the standby has answered a read");
        Ok(())
    }
}

/// Ends what keeps commits from becoming visible, so that no writer waits for ever.
struct Reset<'a>(&'a Server);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        _ = self.0.set("synchronous_standby_names", "");
    }
}

fn what_goes_to_a_replica(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let mut client = stand.connect()?;
    // Own writes are seen, whichever server answers.
    let before = stand.reads()?;
    for v in 1..=100 {
        client.run(&format!("update account set v = {v} where id = 1"))?;
        expect_value(&mut client, BALANCE, &v.to_string())?;
        expect_value(&mut client, "select sum(v) from account", &v.to_string())?;
    }
    ensure!(stand.reads()? > before, "the standby has answered nothing");
    // The extended protocol, and a large answer.
    let before = stand.reads()?;
    eventually(PATIENCE, || {
        let execution = frames::unnamed("select v from account where id = $1", &["1"]);
        let messages = client.exchange(&[execution, frames::sync()].concat(), 1)?;
        let tags: String = messages.iter().map(|message| char::from(message.tag)).collect();
        ensure!(tags == "12TDCZ", "{tags}");
        ensure!(stand.reads()? > before, "not at the standby");
        Ok(())
    })?;
    let wide = "select repeat('x', 5000) || v from account";
    let before = stand.reads()?;
    eventually(PATIENCE, || {
        let rows = client.query(wide)?.iter().filter(|message| message.tag == b'D').count();
        ensure!(rows == 1000, "{rows} rows");
        ensure!(stand.reads()? > before, "not at the standby");
        Ok(())
    })?;
    // The console and the metrics name it.
    let login = crate::support::Login { database: "pgbouncer", ..stand.database.login() };
    let pools = RawClient::login(stand.freshet.address, login)?.query("show pools")?;
    let pool = format!("{}@{}", stand.database.name, stand.address_of_standby()).into_bytes();
    ensure!(pools.iter().any(|row| row.tag == b'D' && row.columns().first() == Some(&Some(pool.clone()))), "{pools:?}");
    let servers = RawClient::login(stand.freshet.address, login)?.query("show servers")?;
    let port = Some(stand.standby.port().to_string().into_bytes());
    ensure!(servers.iter().any(|row| row.tag == b'D' && row.columns().get(6) == Some(&port)), "{servers:?}");
    let (_, metrics) = crate::support::get(stand.freshet.http, "/metrics")?;
    ensure!(metrics.contains("freshet_replica_reads_total{"), "{metrics}");
    // These do not go there.
    let before = stand.reads()?;
    expect_value(&mut client, "select pg_is_in_recovery()", "f")?;
    client.run("begin")?;
    expect_value(&mut client, BALANCE, "100")?;
    client.run("commit")?;
    client.run("set work_mem = '5MB'")?;
    expect_value(&mut client, BALANCE, "100")?;
    client.query("select v from account where id = 1 for update")?;
    ensure!(stand.reads()? == before, "the standby has answered what it must not");
    client.expect_silence()?;
    // Hits hit as before.
    let hits = stand.freshet.metrics()?.hits();
    expect_value(&mut stand.connect()?, READ, "new")?;
    ensure!(stand.freshet.metrics()?.hits() > hits, "no hit");
    Ok(())
}

fn a_replica_that_lags(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let mut writer = stand.connect()?;
    for round in 1..=3 {
        stand.standby.psql("select pg_wal_replay_pause()")?;
        // Written through Freshet by another session, and then around it.
        let v = (2 * round).to_string();
        writer.run(&format!("update account set v = {v} where id = 1"))?;
        stand.answers_none(&v)?;
        stand.standby.psql("select pg_wal_replay_resume()")?;
        stand.until_read()?;
        expect_value(&mut stand.connect()?, BALANCE, &v)?;
    }
    Ok(())
}

fn a_replica_that_delays(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let mut client = stand.connect()?;
    for v in 1..=2 {
        stand.standby.set("recovery_min_apply_delay", "5min")?;
        eventually(PATIENCE, || {
            client.run(&format!("update account set v = {v} where id = 1"))?;
            let end = stand.database.server.psql("select pg_current_wal_flush_lsn()")?;
            let delays = format!("select pg_last_wal_receive_lsn() >= '{end}', pg_last_wal_replay_lsn() < '{end}'");
            eventually(PATIENCE, || {
                ensure!(stand.standby.psql(&delays)?.starts_with('t'), "not received");
                Ok(())
            })?;
            ensure!(stand.standby.psql(&delays)? == "t|t", "it does not delay yet");
            Ok(())
        })?;
        stand.answers_none(&v.to_string())?;
        stand.standby.set("recovery_min_apply_delay", "0")?;
        stand.until_read()?;
    }
    Ok(())
}

fn a_replica_that_stops(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let mut client = stand.connect()?;
    // Reads go on while it stops, without an error.
    thread::scope(|scope| {
        let stop = scope.spawn(|| stand.standby.stop(StopMode::Immediate));
        while !stop.is_finished() {
            expect_value(&mut client, BALANCE, "0")?;
        }
        stop.join().map_err(|_| anyhow::anyhow!("stopping has panicked"))?
    })?;
    client.run("update account set v = 7 where id = 1")?;
    stand.answers_none("7")?;
    stand.standby.start()?;
    stand.until_read()?;
    expect_value(&mut client, BALANCE, "7")
}

/// The primary lives on, and takes writes that are lost.
fn a_replica_that_is_promoted(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    ensure!(stand.standby.psql("select pg_promote()")? == "t", "not promoted");
    eventually(PATIENCE, || {
        let port = stand.connect()?.value("select inet_server_port()")?;
        ensure!(port == stand.standby.port().to_string(), "still the old primary");
        Ok(())
    })?;
    stand.database.run("update account set v = 666 where id = 1")?;
    eventually(PATIENCE, || stand.connect()?.run("update account set v = 8 where id = 1"))?;
    stand.answers_none("8")
}

/// A commit waits for a standby that does not answer: the replica shows it, the primary does not. Who has read it at the replica sees it from then on.
fn a_write_that_only_the_replica_shows(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    // Each client reads once: afterwards it waits for the primary.
    stand.while_a_commit_waits(|clients, v| is_seen_only_at_the_replica(&stand, clients, v))
}

/// Reads until the replica shows this value, and then at the primary; false: it does not show it.
fn is_seen_only_at_the_replica(stand: &Stand, clients: Vec<RawClient>, v: u32) -> Result<bool> {
    let mut seen_by = None;
    for mut client in clients {
        if client.value(BALANCE)? == v.to_string() {
            seen_by = Some(client);
            break;
        }
    }
    let Some(mut client) = seen_by else { return Ok(false) };
    // While the commit waits, others read at the primary, and the session waits.
    let old = stand.database.address();
    ensure!(RawClient::login(old, stand.database.login())?.value(BALANCE)? != v.to_string(), "the primary shows it");
    let messages = client.query("select v from account where id = 1 and pg_backend_pid() > 0")?;
    let tags: String = messages.iter().map(|message| char::from(message.tag)).collect();
    ensure!(tags == "EZ", "{tags}: the primary does not show what the session has seen, and the session goes on");
    stand.database.server.set("synchronous_standby_names", "")?;
    eventually(PATIENCE, || {
        expect_value(&mut client, "select v from account where pg_backend_pid() > 0 and id = 1", &v.to_string())
    })?;
    Ok(true)
}

fn a_read_that_is_cancelled(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let mut client = RawClient::open(stand.freshet.address)?;
    let greeting = client.start(stand.database.login())?;
    let key = greeting.iter().find(|message| message.tag == b'K').context("no key")?;
    let active = "select count(*) from pg_stat_activity where query like 'select count(*) from account a,%'";
    // On a busy machine it may go to the primary.
    eventually(PATIENCE, || {
        client.send(&frames::query("select count(*) from account a, account b, account c where a.id + b.id > c.id"))?;
        let is_at_standby = eventually(PATIENCE, || {
            let at_standby = stand.standby.psql(active)? == "1";
            ensure!(at_standby || stand.database.server.psql(active)? == "1", "at no server");
            Ok(at_standby)
        })?;
        RawClient::open(stand.freshet.address)?.send(&frames::cancel(&key.body))?;
        let messages = client.until(b'Z')?;
        let error = messages.iter().find_map(|message| message.field(b'C'));
        ensure!(error.as_deref() == Some("57014"), "{messages:?}");
        ensure!(is_at_standby, "at the primary");
        Ok(())
    })?;
    expect_value(&mut client, BALANCE, "0")?;
    client.expect_silence()
}
