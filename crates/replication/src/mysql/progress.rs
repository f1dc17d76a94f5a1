//! The position of a stream.

use freshet_types::{GtidSet, Lsn};

use crate::mysql::assemble::Assembler;
use crate::mysql::position::Place;

/// The position of a stream, with the facts from which it can continue.
pub(super) struct Progress {
    /// Everything up to here was passed to the sink.
    pub(super) passed: Lsn,
    /// The same position in its file, for a dump from there.
    pub(super) place: Place,
    /// The transactions that were passed to the sink or were visible before. MySQL only.
    pub(super) executed: GtidSet,
    pub(super) assembler: Assembler,
}
