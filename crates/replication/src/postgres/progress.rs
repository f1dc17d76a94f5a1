//! How far a stream came.

use freshet_types::Lsn;

use crate::postgres::assemble::Assembler;
use crate::postgres::slot::Slot;

/// How far a stream came, and what one that goes on from there needs to know.
pub(super) struct Progress {
    pub(super) slot: Slot,
    /// The process that held the slot.
    pub(super) walsender: String,
    /// Everything up to here was given to the sink.
    pub(super) passed: Lsn,
    pub(super) assembler: Assembler,
}
