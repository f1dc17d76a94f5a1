//! The upstream's name leads to another server: failover to a promoted standby, an address that moves while the old primary stays alive, a primary
//! that becomes a standby.

use std::fs;
use std::sync::Arc;

use anyhow::{Result, ensure};
use freshet_testbed::{Server, Settings, StopMode};

use super::forwarder::Forwarder;
use super::watch::Watch;
use super::{LASTING, address, healthy, logged, primary, times};
use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, on_both};

on_both!(
    a_failover,
    an_address_that_moves,
    shared_connections_follow_an_address_that_moves,
    a_demotion_and_a_promotion,
);

/// A primary with a synchronous standby, behind an address.
struct Cluster {
    database: Database,
    standby: Arc<Server>,
    forwarder: Forwarder,
}

impl Cluster {
    fn start(version: Version) -> Result<Self> {
        let database = primary(version, &Settings::default())?;
        let standby = Arc::new(database.server.standby("second")?);
        // Set now, so that the standby waits for no other standby once it is the primary.
        database.server.set("synchronous_standby_names", "second")?;
        let forwarder = Forwarder::to(database.address())?;
        Ok(Self { database, standby, forwarder })
    }

    fn freshet(&self, options: &[&str]) -> Result<Freshet> {
        let url = self.forwarder.url(&self.database.name);
        let freshet = Freshet::start_unready(self.database.address(), &url, options)?;
        freshet.wait_ready()?;
        Ok(freshet)
    }

    /// The standby has all that the primary has.
    fn caught_up(&self) -> Result<()> {
        let end = self.database.server.psql("select pg_current_wal_flush_lsn()")?;
        eventually(PATIENCE, || {
            let sql = format!("select pg_last_wal_replay_lsn() >= '{end}'");
            ensure!(self.standby.psql(&sql)? == "t", "the standby is behind");
            Ok(())
        })
    }
}

fn promote(server: &Server) -> Result<()> {
    ensure!(server.psql("select pg_promote()")? == "t", "not promoted");
    Ok(())
}

/// The primary fails like a machine; its standby takes over its address.
fn a_failover(version: Version) -> Result<()> {
    for options in [&[][..], &LASTING] {
        let cluster = Cluster::start(version)?;
        let freshet = cluster.freshet(options)?;
        if !freshet.is_there() {
            return Ok(());
        }
        let watch = Watch::start(&freshet, &cluster.database.name, cluster.database.address());
        let scenario = || {
            watch.until_back(&freshet)?;
            cluster.database.server.kill9()?;
            promote(&cluster.standby)?;
            let before = times(&freshet, "change stream established");
            cluster.forwarder.move_to(address(&cluster.standby));
            watch.moved(address(&cluster.standby));
            logged(&freshet, "change stream established", before)?;
            logged(&freshet, "timeline 2", 0)?; // a moment later
            watch.until_back(&freshet)
        };
        let outcome = scenario();
        watch.finish()?;
        outcome?;
        healthy(&freshet)?;
    }
    Ok(())
}

/// The old primary lives on, and so do all connections to it.
fn an_address_that_moves(version: Version) -> Result<()> {
    for options in [&[][..], &LASTING] {
        let cluster = Cluster::start(version)?;
        let freshet = cluster.freshet(options)?;
        if !freshet.is_there() {
            return Ok(());
        }
        let old = &cluster.database.server;
        let watch = Watch::start(&freshet, &cluster.database.name, cluster.database.address());
        let scenario = || {
            watch.until_back(&freshet)?;
            let mut standing = RawClient::login(freshet.address, cluster.database.login())?;
            watch.pause_writes()?;
            cluster.caught_up()?;
            old.set("synchronous_standby_names", "")?;
            promote(&cluster.standby)?;
            let before = times(&freshet, "change stream established");
            cluster.forwarder.move_to(address(&cluster.standby));
            watch.moved(address(&cluster.standby));
            logged(&freshet, "leads to another server", 0)?;
            logged(&freshet, "change stream established", before)?;
            watch.until_back(&freshet)?;
            // It stays where it is, as a direct connection would, and gets nothing from the cache.
            let there = old.psql(&format!("\\c {}\nselect n from counter where id = 1", cluster.database.name))?;
            for _ in 0..20 {
                let value = standing.value("select n from counter where id = 1")?;
                ensure!(there.ends_with(&value), "{value} on the old server, not {there}");
            }
            // Nothing is left behind there.
            eventually(PATIENCE, || {
                let slots = old.psql("select count(*) from pg_replication_slots")?;
                ensure!(slots == "0", "{slots} slots on the old server");
                Ok(())
            })
        };
        let outcome = scenario();
        watch.finish()?;
        outcome?;
        healthy(&freshet)?;
    }
    Ok(())
}

/// Idle connections to the old primary, which lives on, serve no session any more.
fn shared_connections_follow_an_address_that_moves(version: Version) -> Result<()> {
    let cluster = Cluster::start(version)?;
    let freshet = cluster.freshet(&["--auth", "trust", "--pool", "transaction", "--default-pool-size", "4"])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let old = &cluster.database.server;
    old.set("synchronous_standby_names", "")?;
    let login = || RawClient::login(freshet.address, cluster.database.login());
    let mut clients = (0..4).map(|_| login()).collect::<Result<Vec<_>>>()?;
    let ports = |clients: &mut Vec<RawClient>| -> Result<Vec<String>> {
        clients.iter_mut().try_for_each(|client| client.run("begin"))?;
        let ports = clients.iter_mut().map(|client| client.value("select inet_server_port()")).collect();
        clients.iter_mut().try_for_each(|client| client.run("commit"))?;
        ports
    };
    let all_at = |server: &Server| vec![server.port().to_string(); 4];
    ensure!(ports(&mut clients)? == all_at(old), "not at the primary");
    cluster.caught_up()?;
    promote(&cluster.standby)?;
    let before = times(&freshet, "change stream established");
    cluster.forwarder.move_to(address(&cluster.standby));
    logged(&freshet, "change stream established", before)?;
    let now = ports(&mut clients)?;
    ensure!(now == all_at(&cluster.standby), "{now:?} are not all at the new primary");
    healthy(&freshet)
}

/// The primary comes back as a standby, which is not followed, and then is promoted: another timeline.
fn a_demotion_and_a_promotion(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    super::with_each_slot(&database, |freshet, watch| {
        if !freshet.is_there() {
            return Ok(());
        }
        watch.pause_writes()?;
        let before = times(freshet, "the upstream is a standby");
        database.server.stop(StopMode::Fast)?;
        fs::write(database.server.data_dir().join("standby.signal"), "")?;
        database.server.start()?;
        logged(freshet, "the upstream is a standby", before)?;
        let hits = freshet.metrics()?.hits();
        let mut client = RawClient::login(freshet.address, database.login())?;
        for _ in 0..20 {
            ensure!(client.value("select n from counter where id = 67")? == "67", "on the standby");
        }
        ensure!(freshet.metrics()?.hits() == hits, "hits on a standby");
        let before = times(freshet, "change stream established");
        promote(&database.server)?;
        watch.moved(database.address());
        logged(freshet, "change stream established", before)?;
        watch.until_back(freshet)
    })
}
