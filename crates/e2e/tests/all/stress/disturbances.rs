//! Faults during the load, repeated until the run is over.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use freshet_testbed::{Server, process};

use super::STALENESS_MAX;
use super::stage::{Random, Stage};
use crate::support::time_passes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Nothing,
    /// The receiver of a synchronous standby stops and goes on: commits wait, and are on the change stream before anyone
    /// sees them.
    Standby,
    /// The walsender stops and goes on: commits are seen long before they are on the change stream.
    Stream,
    /// The walsender stops each time for much longer than D, so that what was cached before is written again, gets older
    /// than D and is asked for.
    StreamForLong,
    /// The walsender's session is ended by an administrator: commits are lost to the stream.
    StreamEnds,
    /// Sessions' processes stop and go on: the answer of a read comes long after its snapshot.
    Backends,
    /// A session's process is killed, or the walsender: the server ends all sessions and recovers.
    Crashes,
    /// Freshet stops and goes on.
    Pauses,
    /// Freshet is killed, and started again.
    Restarts,
    /// The replay of a replica pauses and goes on.
    Replay,
}

impl Disturbance {
    /// Whether sessions lose their connections.
    pub(crate) fn breaks_connections(self) -> bool {
        matches!(self, Self::Crashes | Self::Restarts)
    }

    /// Disturbs until the stage is over.
    pub(crate) fn run(self, stage: &Stage, standby: Option<&Server>, options: &[&str]) -> Result<()> {
        let server = Arc::clone(&stage.database.server);
        if self == Self::Standby {
            server.set("synchronous_standby_names", "waiting")?;
        }
        let mut random = Random(1);
        while !stage.is_over() && stage.freshet().is_there() {
            let most = if random.percent(30) { 2000 } else { 400 };
            let pause = Duration::from_millis(20 + random.below(most));
            match self {
                Self::Nothing => return Ok(()),
                Self::Standby => {
                    if let Some(standby) = standby {
                        standby.pause_receiver()?;
                        time_passes("the disturbance", pause);
                        standby.resume_receiver()?;
                    }
                    random.nap(200);
                }
                Self::Replay => {
                    if let Some(replica) = standby {
                        replica.psql("select pg_wal_replay_pause()")?;
                        time_passes("the disturbance", pause);
                        replica.psql("select pg_wal_replay_resume()")?;
                    }
                    random.nap(400);
                }
                Self::Stream => {
                    stop_and_go(child(&server, "walsender", &mut random)?, pause);
                    random.nap(1600);
                }
                Self::StreamForLong => {
                    stop_and_go(child(&server, "walsender", &mut random)?, 3 * STALENESS_MAX);
                    random.nap(1600);
                }
                Self::Backends => {
                    stop_and_go(child(&server, &stage.database.name, &mut random)?, pause / 4);
                    random.nap(60);
                }
                Self::StreamEnds => {
                    server.psql("select pg_terminate_backend(pid) from pg_stat_replication")?;
                    random.nap(2500);
                }
                Self::Crashes => {
                    random.nap(4000);
                    time_passes("work without it", Duration::from_secs(2));
                    let whom = if random.percent(50) { "walsender" } else { &stage.database.name };
                    if let Some(pid) = child(&server, whom, &mut random)? {
                        // It may have ended meanwhile.
                        let _ = process::kill(pid);
                    }
                }
                Self::Pauses => {
                    let pid = stage.freshet().pid();
                    stop_and_go(pid, pause);
                    random.nap(800);
                }
                Self::Restarts => {
                    random.nap(2000);
                    time_passes("work without it", Duration::from_secs(2));
                    stage.replace_freshet(options)?;
                }
            }
        }
        if self == Self::Standby {
            server.set("synchronous_standby_names", "")?;
        }
        Ok(())
    }
}

fn stop_and_go(pid: Option<u32>, pause: Duration) {
    let Some(pid) = pid else { return };
    if process::pause(pid).is_ok() {
        time_passes("the disturbance", pause);
        // It may have ended meanwhile.
        let _ = process::resume(pid);
    }
}

/// One of the server's processes with this in its title.
fn child(server: &Server, title: &str, random: &mut Random) -> Result<Option<u32>> {
    let mut found = server.children()?;
    found.retain(|process| process.title().contains(title));
    Ok((!found.is_empty()).then(|| found[random.below(found.len() as u64) as usize].pid))
}
