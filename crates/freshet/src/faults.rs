//! `--test-fault`: switches that each turn one rule of the freshness protocol off, so that tests can show that they
//! would notice. Only in binaries built for that.

use freshet_cache::Faults as CacheFaults;
use freshet_proxy::Faults as ProxyFaults;

/// Options that break the protocol.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FaultArgs {
    /// Break the freshness protocol, to see that the tests notice
    #[cfg(feature = "fault-injection")]
    #[arg(long, value_enum, value_delimiter = ',')]
    test_fault: Vec<TestFault>,
}

/// What to break.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TestFault {
    /// Fills take no copy of the commits that are not proven visible
    IgnorePending,
    /// Deferred tags are not held against the commits that were delivered before they were told
    TrustDeferred,
    /// Delivered commits do not taint the fills that they race with
    IgnoreDoom,
    /// Entries are served before the stream has passed the position they were read at
    IgnoreReadEnd,
    /// Hits are served however old the stream's last proof is
    IgnoreLease,
    /// Sessions may go back in time
    IgnoreWatermark,
    /// Hits are served although a write was acknowledged before the stream delivered it
    IgnoreFence,
    /// Hits in REPEATABLE READ transactions may be newer than the snapshot
    IgnoreLo,
    /// Hits in REPEATABLE READ transactions may be older than the snapshot
    IgnoreHi,
    /// Commits that change the catalogue change nothing here
    IgnoreRedefinitions,
    /// Entries are kept although commits were lost between two streams
    KeepOnReconnect,
    /// Tables count as published as soon as they are published
    NoPublicationBarrier,
    /// Writes are acknowledged at once
    NoHold,
    /// Writes that tell which tables they touch are acknowledged at once, whatever rests on those
    FreeAll,
    /// Transactions read from the cache what they have written themselves
    HitsAfterWrite,
    /// The flush position is taken for the end of the log
    FlushedEnd,
    /// The last proof counts for what a transaction reads, whose snapshot may be older than that
    ProvesInBlocks,
    /// Breaks nothing: one reading of the end of the log serves all who want one, however few
    ShareProbes,
    /// Breaks nothing: the log is flushed, and its end read, only where that is known to be needed, not because time has passed
    NoTimedFlushes,
    /// Breaks nothing: event triggers that were dropped are made again at the next look, not minutes later
    TriggersAtOnce,
    /// Breaks nothing: the catalogue is looked at only where it is known to be needed, not because time has passed
    NoTimedLooks,
}

impl FaultArgs {
    /// The switches of the cache and of the sessions.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn switches(&self) -> (CacheFaults, ProxyFaults) {
        for fault in &self.test_fault {
            tracing::warn!("test fault {fault:?} is on: answers may be wrong");
        }
        let is_on = |fault| self.test_fault.contains(&fault);
        let cache = CacheFaults {
            ignore_pending: is_on(TestFault::IgnorePending),
            trust_deferred: is_on(TestFault::TrustDeferred),
            ignore_doom: is_on(TestFault::IgnoreDoom),
            ignore_read_end: is_on(TestFault::IgnoreReadEnd),
            ignore_lease: is_on(TestFault::IgnoreLease),
            ignore_watermark: is_on(TestFault::IgnoreWatermark),
            ignore_fence: is_on(TestFault::IgnoreFence),
            ignore_lo: is_on(TestFault::IgnoreLo),
            ignore_hi: is_on(TestFault::IgnoreHi),
            ignore_redefinitions: is_on(TestFault::IgnoreRedefinitions),
            keep_on_reconnect: is_on(TestFault::KeepOnReconnect),
            // The simulator's, and those of `cache/tests/kept_keys`.
            keep_keys: false,
            trust_members: false,
            keep_early: false,
            keep_names: false,
            trust_keys: false,
        };
        let proxy = ProxyFaults {
            skip_publication_barrier: is_on(TestFault::NoPublicationBarrier),
            skip_hold: is_on(TestFault::NoHold),
            frees_all: is_on(TestFault::FreeAll),
            hits_after_write: is_on(TestFault::HitsAfterWrite),
            flushed_end: is_on(TestFault::FlushedEnd),
            proves_in_blocks: is_on(TestFault::ProvesInBlocks),
            shares_probes: is_on(TestFault::ShareProbes),
            no_timed_flushes: is_on(TestFault::NoTimedFlushes),
            triggers_at_once: is_on(TestFault::TriggersAtOnce),
            no_timed_looks: is_on(TestFault::NoTimedLooks),
        };
        (cache, proxy)
    }

    /// None: this binary keeps the protocol.
    #[cfg(not(feature = "fault-injection"))]
    #[expect(clippy::unused_self, reason = "the other variant reads an option")]
    pub(crate) fn switches(&self) -> (CacheFaults, ProxyFaults) {
        Default::default()
    }
}
