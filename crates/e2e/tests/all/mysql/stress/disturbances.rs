//! Faults during the load, repeated until the run is over.

use std::time::Duration;

use anyhow::Result;
use freshet_testbed::process;

use super::relay::Hold;
use super::stage::{Place, Stage};
use crate::mysql::support::{Kind, RawClient};
use crate::stress::STALENESS_MAX;
use crate::stress::stage::Random;
use crate::support::time_passes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Nothing,
    /// Commits stay between the binary log and the engine: they are on the change stream before anyone sees them.
    Commits,
    /// The binary log to the follower stops and continues: commits are visible long before they are in the stream.
    Stream,
    /// The same each time for much longer than D, so that what was cached before is written again, gets older than D and is
    /// asked for.
    StreamForLong,
    /// The follower's session is killed by an administrator.
    StreamEnds,
    /// What sessions are told stops and goes on: the answer of a read comes long after its snapshot.
    Sessions,
    /// The server is killed, and started again.
    Crashes,
    /// The server stops and goes on.
    ServerPauses,
    /// Freshet stops and goes on.
    Pauses,
    /// Freshet is killed, and started again.
    Restarts,
    /// The binary log goes on in a new file, the old ones are removed, and commits stop for a backup's lock.
    Logs,
}

impl Disturbance {
    /// Whether sessions lose their connections.
    pub(crate) fn breaks_connections(self) -> bool {
        matches!(self, Self::Crashes | Self::Restarts)
    }

    /// Whether a relay stands between Freshet and the server.
    pub(crate) fn needs_relay(self) -> bool {
        matches!(self, Self::Stream | Self::StreamForLong | Self::Sessions)
    }

    /// Lines of the server's option file.
    pub(crate) fn settings(self, kind: Kind) -> &'static [&'static str] {
        match (self, kind) {
            // Commits wait for the acknowledgement of a replica, and there is none: until the time-out.
            (Self::Commits, Kind::Mariadb) => &[
                "sync-binlog = 1",
                "rpl-semi-sync-master-enabled = ON",
                "rpl-semi-sync-master-wait-point = AFTER_SYNC",
                "rpl-semi-sync-master-timeout = 300",
            ],
            // This MySQL comes without the plugin. But a wait before the log is synchronized is one after it was sent.
            (Self::Commits, Kind::Mysql) => &["sync-binlog = 0"],
            (Self::StreamEnds, _) => &["sync-binlog = 1", "binlog-row-image = MINIMAL"],
            (Self::Sessions, _) => {
                &["sync-binlog = 0", "innodb-flush-log-at-trx-commit = 0", "binlog-row-metadata = FULL"]
            }
            (Self::Crashes | Self::Pauses, _) => &["sync-binlog = 1", "binlog-row-metadata = FULL"],
            (Self::ServerPauses, Kind::Mariadb) => {
                &["binlog-row-image = NOBLOB", "log-bin-compress = ON", "log-bin-compress-min-len = 10"]
            }
            (Self::Logs, Kind::Mariadb) => {
                &["binlog-row-image = MINIMAL", "log-bin-compress = ON", "log-bin-compress-min-len = 10"]
            }
            (Self::ServerPauses, Kind::Mysql) => &["binlog-row-image = NOBLOB"],
            (Self::Logs, Kind::Mysql) => &["binlog-row-image = MINIMAL", "binlog-row-metadata = FULL"],
            _ => &[],
        }
    }

    /// Disturbs until the stage is over.
    pub(crate) fn run(self, stage: &Stage, options: &[&str]) -> Result<()> {
        let place = &stage.database;
        let mut random = Random(1);
        while !stage.is_over() {
            let most = if random.percent(30) { 2000 } else { 400 };
            let pause = Duration::from_millis(20 + random.below(most));
            match self {
                Self::Nothing => return Ok(()),
                Self::Commits => hold_commits(place, pause, &mut random)?,
                Self::Stream => {
                    hold(place, Hold::Stream, pause);
                    random.nap(1600);
                }
                Self::StreamForLong => {
                    hold(place, Hold::Stream, 3 * STALENESS_MAX);
                    random.nap(1600);
                }
                Self::Sessions => {
                    hold(place, Hold::Session(random.below(1 << 16) as usize), pause / 4);
                    random.nap(60);
                }
                Self::StreamEnds => {
                    end_stream(place)?;
                    random.nap(2500);
                }
                Self::Crashes => {
                    random.nap(3000);
                    time_passes("work without it", Duration::from_secs(3));
                    place.crash()?;
                }
                Self::ServerPauses => {
                    place.server().pause()?;
                    time_passes("the disturbance", pause);
                    place.server().resume()?;
                    random.nap(1200);
                }
                Self::Pauses => {
                    let Some(pid) = stage.freshet().pid() else { return Ok(()) };
                    process::pause(pid)?;
                    time_passes("the disturbance", pause);
                    process::resume(pid)?;
                    random.nap(800);
                }
                Self::Restarts => {
                    random.nap(2000);
                    time_passes("work without it", Duration::from_secs(2));
                    stage.replace_freshet(options)?;
                }
                Self::Logs => {
                    turn_the_log(place, pause)?;
                    random.nap(600);
                }
            }
        }
        Ok(())
    }
}

fn hold(place: &Place, what: Hold, pause: Duration) {
    let Some(relay) = &place.relay else { return };
    relay.hold(what);
    time_passes("the disturbance", pause);
    relay.hold(Hold::Nobody);
}

fn hold_commits(place: &Place, pause: Duration, random: &mut Random) -> Result<()> {
    let mut client = place.database.connect()?;
    match place.kind {
        // Once a wait has timed out the server does not wait any more; it does when turned on again.
        Kind::Mariadb => {
            client.run(&format!("set global rpl_semi_sync_master_timeout = {}", 20 + pause.as_millis() / 2))?;
            client.run("set global rpl_semi_sync_master_enabled = off")?;
            client.run("set global rpl_semi_sync_master_enabled = on")?;
        }
        Kind::Mysql => {
            let delay = (pause.as_micros() / 2).min(900_000);
            client.run(&format!("set global binlog_group_commit_sync_delay = {delay}"))?;
            random.nap(800);
            client.run("set global binlog_group_commit_sync_delay = 0")?;
        }
    }
    random.nap(400);
    Ok(())
}

fn end_stream(place: &Place) -> Result<()> {
    let mut client: RawClient = place.database.connect()?;
    let found = client.query("select id from information_schema.processlist where command like 'Binlog Dump%'")?;
    for id in found.rows().into_iter().flatten().flatten() {
        // It may have ended meanwhile.
        client.query(&format!("kill {id}"))?;
    }
    Ok(())
}

fn turn_the_log(place: &Place, pause: Duration) -> Result<()> {
    let mut client = place.database.connect()?;
    client.run("flush tables with read lock")?;
    time_passes("the disturbance", pause / 8);
    client.run("unlock tables")?;
    client.run("flush binary logs")?;
    let current = client.value("show master status")?;
    // One that is still being read is kept, with a warning or an error.
    client.query(&format!("purge binary logs to '{current}'"))?;
    Ok(())
}
