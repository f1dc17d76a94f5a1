//! The position of a stream.

use freshet_types::Lsn;

use crate::postgres::assemble::Assembler;
use crate::postgres::slot::Slot;

/// The position of a stream, with the facts from which it can continue.
pub(super) struct Progress {
    pub(super) slot: Slot,
    /// The process id of the walsender that held the slot.
    pub(super) walsender: String,
    /// Everything up to here was passed to the sink.
    pub(super) passed: Lsn,
    pub(super) assembler: Assembler,
}
