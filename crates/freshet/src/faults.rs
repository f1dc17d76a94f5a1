//! `--test-fault`: switches that each turn off one rule of the freshness protocol. Tests use them to show that they
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
    /// Fills do not copy the unproven commits
    IgnoreUnproven,
    /// Deferred tags are not checked against the commits that were delivered before the tags were known
    TrustDeferred,
    /// Delivered commits do not become candidates of the fills that they race with
    NoCandidates,
    /// Entries are served before the stream has passed their read_end
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
    /// Redefinitions have no effect
    IgnoreRedefinitions,
    /// Entries stay although commits were lost between two streams
    NoFlush,
    /// Tables count as published as soon as they are published
    NoPublicationBarrier,
    /// Writes are acknowledged at once
    NoCommitWait,
    /// Writes whose tables are known are acknowledged at once, although cached results depend on these tables
    SkipAllCommitWaits,
    /// Transactions read from the cache what they have written themselves
    HitsAfterWrite,
    /// The flush position is taken for the log end
    FlushedEnd,
    /// The last proof counts for the reads of a transaction, whose snapshot may be older
    ProvesInBlocks,
    /// Breaks nothing: one log-end probe serves all who need one, however few
    ShareProbes,
    /// Breaks nothing: the log is flushed, and the log end probed, only where this is known to be needed, not by time
    NoTimedFlushes,
    /// Breaks nothing: dropped event triggers are created again at the next check, not minutes later
    TriggersAtOnce,
    /// Breaks nothing: the catalogue is checked only where this is known to be needed, not by time
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
            ignore_unproven: is_on(TestFault::IgnoreUnproven),
            trust_deferred: is_on(TestFault::TrustDeferred),
            no_candidates: is_on(TestFault::NoCandidates),
            ignore_read_end: is_on(TestFault::IgnoreReadEnd),
            ignore_lease: is_on(TestFault::IgnoreLease),
            ignore_watermark: is_on(TestFault::IgnoreWatermark),
            ignore_fence: is_on(TestFault::IgnoreFence),
            ignore_lo: is_on(TestFault::IgnoreLo),
            ignore_hi: is_on(TestFault::IgnoreHi),
            ignore_redefinitions: is_on(TestFault::IgnoreRedefinitions),
            skip_flush: is_on(TestFault::NoFlush),
            // The simulator's, and those of `cache/tests/retained_keys`.
            reuse_stale_keys: false,
            trust_members: false,
            install_early: false,
            ignore_entering: false,
            trust_keys: false,
        };
        let proxy = ProxyFaults {
            skip_publication_barrier: is_on(TestFault::NoPublicationBarrier),
            skip_commit_wait: is_on(TestFault::NoCommitWait),
            skip_all_commit_waits: is_on(TestFault::SkipAllCommitWaits),
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
