//! The promises under concurrent writers, on a real server, with faults.
//!
//! Many sessions write rows with version counters, directly and through Freshet and in every possible way, while others read through Freshet in every
//! possible way and check each answer with the [`ledger`]: promises 1 to 4 are checked at each read. Meanwhile there are faults (see
//! [`disturbances`]), and each kind of fault creates one of the races that the protocol is about. While a synchronous standby stalls, the stream
//! delivers commits long before any snapshot shows them: unproven commits handle this. While a walsender stalls it is the other way round: fences,
//! watermarks and the lease handle this. And so on. With a rule of the protocol disabled by Freshet's fault-injection switches a run must find a
//! violation, otherwise it proves nothing.
//!
//! `FRESHET_SOAK_SECONDS` sets the length of a run; `FRESHET_STRESS_SEED` repeats the choices of one (the timing depends on the machine).

pub(crate) mod changes;
pub(crate) mod definition;
mod definitions;
mod disturbances;
pub(crate) mod ledger;
pub(crate) mod line;
pub(crate) mod own_rows;
pub(crate) mod publishing;
pub(crate) mod questions;
mod readers;
mod run;
pub(crate) mod stage;
pub(crate) mod verdict;
mod writers;

use std::time::Duration;

/// D, Freshet's default.
pub(crate) const STALENESS_MAX: Duration = Duration::from_secs(1);
/// How long a run takes in `make test`.
const SECONDS: u64 = 12;
/// How long a violation is looked for at most. Nearly all are found in a few seconds; a busy machine is slower.
pub(crate) const SEARCH_SECONDS: u64 = 180;
pub(crate) const GROUPS: i32 = 10;
pub(crate) const KINDS: i32 = 3;
/// A version that only rolled-back writes have.
pub(crate) const ROLLED_BACK: i32 = 999_999_999;
/// Whether a write through Freshet, once acknowledged, must be seen by all sessions at once.
const ACROSS_SESSIONS: bool = true;
/// Whether definitions are in the change stream, so that promises 3 and 4 hold for them too.
const DEFINITIONS_IN_STREAM: bool = true;

/// No violation may be found.
mod promises {
    use anyhow::Result;

    use super::disturbances::Disturbance;
    use super::run::{Load, Run};
    use crate::support::{Version, on_both};

    on_both!(
        hold_while_the_stream_stalls,
        hold_while_commits_wait_for_a_standby,
        hold_while_the_stream_is_cut,
        hold_while_sessions_stall_and_commits_are_asynchronous,
        hold_while_the_server_crashes,
        hold_while_freshet_stalls,
        hold_while_freshet_dies,
        hold_for_definitions,
        hold_by_shared_readings_while_the_stream_stalls,
        hold_by_shared_readings_while_commits_wait_for_a_standby,
        hold_with_a_replica_that_lags,
        hold_with_a_replica_that_shows_commits_before_the_primary,
    );

    fn hold_with_a_replica_that_lags(version: Version) -> Result<()> {
        Run { reads_replica: true, ..Run::of(version, Disturbance::Replay) }.expect_none()
    }

    fn hold_with_a_replica_that_shows_commits_before_the_primary(version: Version) -> Result<()> {
        Run { reads_replica: true, ..Run::of(version, Disturbance::Standby) }.expect_none()
    }

    fn hold_while_the_stream_stalls(version: Version) -> Result<()> {
        Run { load: Load::RowsAndTables, ..Run::of(version, Disturbance::Stream) }.expect_none()
    }

    fn hold_while_commits_wait_for_a_standby(version: Version) -> Result<()> {
        Run::of(version, Disturbance::Standby).expect_none()
    }

    fn hold_while_the_stream_is_cut(version: Version) -> Result<()> {
        Run::of(version, Disturbance::StreamEnds).expect_none()
    }

    fn hold_while_sessions_stall_and_commits_are_asynchronous(version: Version) -> Result<()> {
        Run { load: Load::Asynchronous, ..Run::of(version, Disturbance::Backends) }.expect_none()
    }

    fn hold_while_the_server_crashes(version: Version) -> Result<()> {
        Run::of(version, Disturbance::Crashes).expect_none()
    }

    fn hold_while_freshet_stalls(version: Version) -> Result<()> {
        Run::of(version, Disturbance::Pauses).expect_none()
    }

    fn hold_while_freshet_dies(version: Version) -> Result<()> {
        Run::of(version, Disturbance::Restarts).expect_none()
    }

    fn hold_for_definitions(version: Version) -> Result<()> {
        Run { load: Load::Definitions, ..Run::of(version, Disturbance::Nothing) }.expect_none()
    }

    fn hold_by_shared_readings_while_the_stream_stalls(version: Version) -> Result<()> {
        Run { shares_probes: true, ..Run::of(version, Disturbance::Stream) }.expect_none()
    }

    fn hold_by_shared_readings_while_commits_wait_for_a_standby(version: Version) -> Result<()> {
        Run { shares_probes: true, ..Run::of(version, Disturbance::Standby) }.expect_none()
    }
}

/// A rule of the protocol is switched off, and that must be found.
mod faults {
    use anyhow::Result;

    use super::disturbances::Disturbance;
    use super::run::{Load, Run};
    use crate::support::{Version, on_both};

    /// A test for each switch: which load finds it.
    macro_rules! found {
        ($($name:ident: $fault:literal, $load:ident, $disturbance:ident;)*) => {
            on_both!($($name,)*);

            $(fn $name(version: Version) -> Result<()> {
                let run = Run { load: Load::$load, ..Run::of(version, Disturbance::$disturbance) };
                run.with_fault($fault).expect_some()
            })*
        };
    }

    found!(
        unproven_ignored: "ignore-unproven", Rows, Standby;
        taints_ignored: "no-candidates", Rows, Pauses;
        lease_ignored: "ignore-lease", Around, StreamForLong;
        watermarks_ignored: "ignore-watermark", Around, Stream;
        fences_ignored: "ignore-fence", Rows, Stream;
        newer_than_the_snapshot: "ignore-lo", Rows, Nothing;
        older_than_the_snapshot: "ignore-hi", Around, Stream;
        redefinitions_ignored: "ignore-redefinitions", Definitions, Nothing;
        no_publication_barrier: "no-publication-barrier", RowsAndTables, Nothing;
        commit_waits_skipped: "no-commit-wait", Rows, Nothing;
        memory_for_its_own_writes: "hits-after-write", Rows, Nothing;
        flush_for_end: "flushed-end", Asynchronous, Nothing;
    );
}
