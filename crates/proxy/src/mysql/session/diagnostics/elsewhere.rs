//! The diagnostics of a session that changes its server connections: see [`crate::mysql::session::pooling`].

use freshet_wire::mysql::capabilities::Capabilities;

use super::{FOUND_AGAIN_MAX, Replay};

/// What other connections need.
#[derive(Debug)]
pub(super) struct Elsewhere {
    /// The number of rows that the server has counted last; None: not known.
    pub(super) counted: Option<u32>,
    /// The last hit reads tables.
    pub(super) reads: bool,
    /// Behind the remembered command, ROW_COUNT() is 0.
    pub(super) ends_without_rows: bool,
    /// The remembered command stands for the last statement, which the server has executed on another connection.
    pub(super) was_executed: bool,
}

impl Default for Elsewhere {
    fn default() -> Self {
        // A new session has found no rows.
        Self { counted: Some(0), reads: false, ends_without_rows: false, was_executed: false }
    }
}

impl Replay {
    /// Whether the last statement was a hit, whose diagnostics another connection can have as well.
    pub(in crate::mysql::session) fn is_behind_hit(&self) -> bool {
        self.kind.is_some() && !self.rows_only && !self.elsewhere.ends_without_rows
    }

    /// Whether the diagnostics of the session can be made on another connection.
    pub(in crate::mysql::session) fn can_leave_connection(&self) -> bool {
        self.kind.is_some() || self.elsewhere.counted.is_some_and(|rows| rows <= FOUND_AGAIN_MAX)
    }

    /// The server has told the number of rows that were counted last, and its diagnostics are gone.
    pub(in crate::mysql::session) fn set_counted(&mut self, rows: Option<u32>) {
        self.elsewhere.counted = rows;
    }

    /// The session's diagnostics are not on its connection any more: they are made again before they are asked for. `is_zero`: ROW_COUNT() is 0, not -1.
    pub(in crate::mysql::session) fn leave_connection(&mut self, is_zero: bool, capabilities: Capabilities) {
        if self.is_behind_hit() {
            return;
        }
        self.elsewhere.was_executed |= self.kind.is_none();
        let rows = if self.kind.is_none() { self.elsewhere.counted } else { self.rows };
        if let Some(rows) = rows.filter(|_| !self.has_opened()) {
            self.find_again(rows, capabilities);
        }
        (self.rows_only, self.elsewhere.ends_without_rows) = (false, is_zero);
    }

    /// Whether the number of rows found can be had only from the last hit's text.
    pub(in crate::mysql::session) fn is_text_needed(&self) -> bool {
        self.kind.is_some() && self.rows.is_none()
    }

    /// A statement was executed that may have counted rows.
    pub(in crate::mysql::session) fn lose_count(&mut self) {
        self.elsewhere.counted = None;
    }

    /// Whether the last statement was a hit that has read tables.
    pub(in crate::mysql::session) fn is_behind_read(&self) -> bool {
        self.is_behind_hit() && self.elsewhere.reads
    }
}
