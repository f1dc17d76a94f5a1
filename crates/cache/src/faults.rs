//! Switches that each turn one rule of the protocol off, so that tests can show that they would notice.

/// The rules that are off.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one per rule, independent of each other")]
pub struct Faults {
    /// Fills take no copy of PENDING.
    pub ignore_pending: bool,
    /// Deferred tags are not held against the commits that were delivered before they were told.
    pub trust_deferred: bool,
    /// Where deferred tags name by their keys the rows that may go, commits since the fill began are held against these alone.
    pub trust_members: bool,
    /// … and the result is kept before the stream has passed the end that was read behind them.
    pub keep_early: bool,
    /// Keys that were read for an entry are used again although what they were read from has changed.
    pub keep_keys: bool,
    /// Rows that came since keys were read are not named by them.
    pub keep_names: bool,
    /// Fills that begin with keys of an earlier entry are kept although what those were read from changes meanwhile.
    pub trust_keys: bool,
    /// Delivered commits do not taint the fills that they race with.
    pub ignore_doom: bool,
    /// Entries are served before the stream has passed the position they were read at.
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
    /// Commits that change the catalogue change nothing here.
    pub ignore_redefinitions: bool,
    /// Entries are kept although commits were lost between two streams.
    pub keep_on_reconnect: bool,
}
