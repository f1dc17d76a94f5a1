//! An answer that is being cached.

use freshet_wire::mysql::capabilities::Status;
use freshet_wire::mysql::response::{Done, patch_status};
use freshet_wire::mysql::result::Form;

use crate::mysql::session::moving::Moving;
use crate::mysql::session::shown::Shown;
use crate::session::fill::{PendingFill, Reading};

/// The bits of a status word that belong to the session. The others belong to the statement.
pub(crate) const OWN_STATUS: Status = Status(
    Status::IN_TRANS.0
        | Status::AUTOCOMMIT.0
        | Status::DB_DROPPED.0
        | Status::NO_BACKSLASH_ESCAPES.0
        | Status::QUERY_WAS_SLOW.0
        | Status::IN_TRANS_READONLY.0
        | Status::ANSI_QUOTES.0,
);
/// The properties of an answer that is being cached.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The dependencies that its rows show.
    pub(super) shown: Option<Box<Shown>>,
    pub(super) moving: Option<Box<Moving>>,
    /// How its rows are written.
    pub(super) form: Form,
}

/// A fill whose answer comes on a session's connection.
pub(crate) type Fill = PendingFill<Reading<Answer>>;

/// Removes the session's own state from an answer; returns its positions.
pub(crate) fn without_status(frames: &mut [u8], done: &Done) -> [u32; 2] {
    patch_status(frames, &done.status_places, Status(0), OWN_STATUS);
    let mut places = [0; 2];
    for (to, from) in places.iter_mut().zip(&done.status_places) {
        *to = u32::try_from(*from).unwrap_or_default();
    }
    places
}
