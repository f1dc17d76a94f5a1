//! Switches that each turn off one rule of the protocol. Tests use them to show that they would notice.

/// The rules that are off.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one per rule, independent of each other")]
pub struct Faults {
    /// Fills do not copy the unproven commits.
    pub ignore_unproven: bool,
    /// Deferred tags are not checked against the commits that were delivered before the tags were known.
    pub trust_deferred: bool,
    /// Where deferred tags name rows by their keys, commits since the fill began are checked against these tags
    /// alone.
    pub trust_members: bool,
    /// In that case the result is cached before the stream has passed the log end that was read after the keys.
    pub install_early: bool,
    /// Retained keys are used again although the rows from which they were read have changed.
    pub reuse_stale_keys: bool,
    /// Rows that enter after the keys were read are not named.
    pub ignore_entering: bool,
    /// Fills that begin with retained keys are cached although the rows behind the keys change meanwhile.
    pub trust_keys: bool,
    /// Delivered commits do not become candidates of the fills that they race with.
    pub no_candidates: bool,
    /// Entries are served before the stream has passed their `read_end`.
    pub ignore_read_end: bool,
    /// Hits are served however old the stream's last proof is.
    pub ignore_lease: bool,
    /// Sessions may go back in time.
    pub ignore_watermark: bool,
    /// Hits are served although a write was acknowledged before the stream delivered it.
    pub ignore_fence: bool,
    /// Hits in REPEATABLE READ transactions may be newer than the snapshot.
    pub ignore_lo: bool,
    /// Hits in REPEATABLE READ transactions may be older than the snapshot.
    pub ignore_hi: bool,
    /// Redefinitions have no effect.
    pub ignore_redefinitions: bool,
    /// Entries stay although commits were lost between two streams.
    pub skip_flush: bool,
}
