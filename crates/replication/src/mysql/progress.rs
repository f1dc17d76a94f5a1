//! How far a stream came.

use freshet_types::{GtidSet, Lsn};

use crate::mysql::assemble::Assembler;
use crate::mysql::position::Place;

/// How far a stream came, and what one that goes on from there needs to know.
pub(super) struct Progress {
    /// Everything up to here was given to the sink.
    pub(super) passed: Lsn,
    /// The same place by its file, for a dump from there.
    pub(super) place: Place,
    /// What was given to the sink, or was visible before. MySQL only.
    pub(super) executed: GtidSet,
    pub(super) assembler: Assembler,
}
