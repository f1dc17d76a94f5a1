//! The promises under concurrent writers, on real MariaDB and MySQL servers, with faults.
//!
//! The answers that a reader may get, and the checks with the ledger, are the same as for PostgreSQL: see [`crate::stress`], whose ledger and
//! questions these runs use. The differences are how rows are written and read in this family, and how its races are created: see [`disturbances`].
//!
//! Semi-synchronous replication is tested on MariaDB only: the MySQL of the tests comes without its plugin. A wait of the group commit replaces it.

mod changes;
mod definitions;
mod disturbances;
mod line;
mod readers;
mod recovery;
mod relay;
mod run;
mod stage;
mod writers;

/// How long a run takes in `make test`.
const SECONDS: u64 = 8;

/// No violation may be found.
mod promises {
    use anyhow::Result;

    use super::disturbances::Disturbance;
    use super::run::{Load, Run};
    use crate::mysql::support::{Kind, on_both};

    on_both!(
        hold_while_the_stream_stalls,
        hold_while_commits_wait,
        hold_while_the_stream_is_cut,
        hold_while_sessions_stall_and_commits_are_asynchronous,
        hold_while_the_server_crashes,
        hold_while_the_server_stalls,
        hold_while_freshet_stalls,
        hold_while_freshet_dies,
        hold_while_the_log_turns,
        hold_for_definitions,
        hold_where_old_rows_are_logged_by_their_keys,
        hold_where_they_are_and_sessions_stall,
    );

    fn hold_while_the_stream_stalls(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Stream).expect_none()
    }

    fn hold_while_commits_wait(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Commits).expect_none()
    }

    fn hold_while_the_stream_is_cut(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::StreamEnds).expect_none()
    }

    fn hold_while_sessions_stall_and_commits_are_asynchronous(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Sessions).expect_none()
    }

    fn hold_while_the_server_crashes(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Crashes).expect_none()
    }

    fn hold_while_the_server_stalls(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::ServerPauses).expect_none()
    }

    fn hold_while_freshet_stalls(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Pauses).expect_none()
    }

    fn hold_while_freshet_dies(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Restarts).expect_none()
    }

    fn hold_while_the_log_turns(kind: Kind) -> Result<()> {
        Run::of(kind, Disturbance::Logs).expect_none()
    }

    fn hold_where_old_rows_are_logged_by_their_keys(kind: Kind) -> Result<()> {
        Run { logs_keys: true, ..Run::of(kind, Disturbance::Commits) }.expect_none()
    }

    fn hold_where_they_are_and_sessions_stall(kind: Kind) -> Result<()> {
        Run { logs_keys: true, ..Run::of(kind, Disturbance::Sessions) }.expect_none()
    }

    fn hold_for_definitions(kind: Kind) -> Result<()> {
        Run { load: Load::Definitions, ..Run::of(kind, Disturbance::Nothing) }.expect_none()
    }
}

/// A rule of the protocol is switched off, and that must be found.
mod faults {
    use anyhow::Result;

    use super::disturbances::Disturbance;
    use super::run::{Load, Run};
    use crate::mysql::support::{Kind, on_both};

    /// A test for each switch: which load finds it.
    macro_rules! found {
        ($($name:ident: $fault:literal, $load:ident, $disturbance:ident;)*) => {
            on_both!($($name,)*);

            $(fn $name(kind: Kind) -> Result<()> {
                let run = Run { load: Load::$load, ..Run::of(kind, Disturbance::$disturbance) };
                run.with_fault($fault).expect_some()
            })*
        };
    }

    found!(
        unproven_ignored: "ignore-unproven", Rows, Commits;
        taints_ignored: "no-candidates", Rows, Sessions;
        lease_ignored: "ignore-lease", Around, StreamForLong;
        watermarks_ignored: "ignore-watermark", Around, Stream;
        fences_ignored: "ignore-fence", Rows, Stream;
        newer_than_the_snapshot: "ignore-lo", Rows, Nothing;
        older_than_the_snapshot: "ignore-hi", Around, Stream;
        redefinitions_ignored: "ignore-redefinitions", Definitions, Nothing;
        commit_waits_skipped: "no-commit-wait", Rows, Stream;
        memory_for_its_own_writes: "hits-after-write", Rows, Nothing;
    );
}
