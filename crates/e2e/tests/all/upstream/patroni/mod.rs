//! Patroni decides which server is the primary, and sessions wait for it.
//!
//! Commits wait for a synchronous standby, so that no failover loses what was acknowledged: then nothing may be missing.

mod cluster;
mod load;

use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::start::{Home, command};
use crate::clients::left_out;
use crate::support::{Freshet, PATIENCE, RawClient, Version, eventually};
use cluster::{Cluster, LOGIN, Member};
use load::{Load, SCHEMA, Times};

/// A cluster, a Freshet before it, and clients.
struct Scene {
    load: Load,
    freshet: Freshet,
    cluster: Cluster,
    /// Freshet asks Patroni who the leader is.
    asks: bool,
    _home: Home,
}

impl Scene {
    fn start(version: Version, members: usize, asks: bool) -> Result<Option<Self>> {
        let Some(cluster) = Cluster::start(version, members)? else {
            left_out("Patroni and etcd")?;
            return Ok(None);
        };
        let home = Home::new()?;
        let Some(mut command) = command(Some(&cluster.upstream()), &[], &home.0)? else { return Ok(None) };
        let leader = cluster.leader()?.address;
        RawClient::login(leader, LOGIN)?.run(SCHEMA)?;
        command.args([
            "--auth",
            "trust",
            "--pool",
            "transaction",
            "--default-pool-size",
            "10",
            "--failover-timeout",
            "2m",
        ]);
        if asks {
            command.args(["--patroni", &cluster.rest()]);
        }
        let freshet = Freshet::spawn(leader, Some(command))?;
        freshet.wait_ready()?;
        let load = Load::start(freshet.address);
        let scene = Self { load, freshet, cluster, asks, _home: home };
        scene.hits()?;
        Ok(Some(scene))
    }

    /// Waits until reads come from the cache.
    fn hits(&self) -> Result<()> {
        let before = self.freshet.metrics()?;
        eventually(PATIENCE, || {
            let now = self.freshet.metrics()?;
            ensure!(now.hits() > before.hits() + 100, "no hits: {:?}", now.passed_since(&before));
            Ok(())
        })
    }

    /// Something happens to the leader, and another member becomes it. Prints how long clients had no answer.
    fn event(&self, name: &str, happens: impl Fn(&Member) -> Result<Option<Child>>) -> Result<()> {
        let old = self.cluster.leader()?;
        self.load.begin();
        let began = Instant::now();
        let mut child = happens(old)?;
        let promoted = eventually(2 * PATIENCE, || {
            // It is refused if the leader has just lost the key, on a slow machine.
            if let Some(ended) = child.as_mut().and_then(|child| child.try_wait().transpose()).transpose()?
                && !ended.success()
            {
                child = happens(old)?;
            }
            let others = self.cluster.members.iter().filter(|member| member.name != old.name);
            let is_there = others.map(Member::is_primary).any(|is_primary| is_primary.unwrap_or(false));
            ensure!(is_there, "no new primary; {}", self.cluster.logs());
            Ok(Instant::now())
        })?;
        let times = eventually(PATIENCE, || self.load.times(promoted))?;
        let after = promoted.duration_since(began);
        let Times { until_write, without_writes, without_reads, errors } = times;
        println!(
            "{name}: a new primary after {after:.2?}, which answers the first write {until_write:.2?} later; \
             {without_writes:.2?} without writes, {without_reads:.2?} without reads; errors: {errors:?}"
        );
        self.hits()?;
        if let Some(mut child) = child {
            child.wait()?;
        }
        Ok(())
    }

    fn switch_over(&self) -> Result<()> {
        let to = self.cluster.synchronous()?;
        self.event("switchover", |from| self.cluster.switch_over(from, to).map(Some))
    }

    fn finish(self) -> Result<()> {
        let Self { load, freshet, cluster, asks, .. } = self;
        let leader = format!("Patroni's leader is {}", cluster.leader()?.address);
        eventually(PATIENCE, || {
            ensure!(freshet.log().contains(&leader) == asks, "not {leader}");
            Ok(())
        })?;
        load.finish(cluster.leader()?.address).with_context(|| cluster.logs())?;
        ensure!(!freshet.log().contains("panicked"), "a panic");
        Ok(())
    }
}

#[test]
fn a_switch_over() -> Result<()> {
    let Some(scene) = Scene::start(Version::V15, 2, true)? else { return Ok(()) };
    scene.switch_over()?;
    scene.finish()
}

#[test]
#[ignore = "a minute and a half; make test-patroni and make test-long run it"]
fn everything_that_ends_a_leader() -> Result<()> {
    all_that_ends_a_leader(false)
}

#[test]
#[ignore = "a minute and a half; make test-patroni and make test-long run it"]
fn everything_that_ends_a_leader_where_patroni_is_asked() -> Result<()> {
    all_that_ends_a_leader(true)
}

fn all_that_ends_a_leader(asks: bool) -> Result<()> {
    let Some(scene) = Scene::start(Version::V18, 3, asks)? else { return Ok(()) };
    let cluster = &scene.cluster;
    scene.switch_over()?;
    cluster.wait_healthy()?;
    let killed = cluster.leader()?;
    scene.event("leader killed", |leader| leader.kill9().map(|()| None))?;
    cluster.start_patroni(killed)?;
    cluster.wait_healthy()?;
    let cut = cluster.leader()?;
    scene.event("leader cut from etcd", |leader| {
        leader.cut_from_etcd(true);
        Ok(None)
    })?;
    cut.cut_from_etcd(false);
    cluster.wait_healthy()?;
    scene.switch_over()?;
    scene.finish()
}
