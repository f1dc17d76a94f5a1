//! The end of a session because the program ends, or because the configuration has its database no longer, or elsewhere.
//!
//! An idle session receives PostgreSQL's own error for a shutdown, which drivers and pools know: they connect again. A session within a statement or
//! a transaction continues until that ends. For the server it looks as if the client had sent `Terminate`.

use freshet_wire::postgres::{backend, frontend};

use crate::postgres::session::Session;
use crate::server::switches::Stage;

/// `ProcessInterrupts` in `postgres.c`.
pub(crate) const TERMINATED: (&str, &str) = ("57P01", "terminating connection due to administrator command");

impl Session {
    /// The database is no longer served, or elsewhere, and the session has nothing to finish here.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.shared.switches.is_draining() && self.may_leave()
    }

    /// Another process is to take the session over now.
    pub(crate) fn is_to_be_carried(&self) -> bool {
        self.are_carried() && self.is_carriable()
    }

    /// Another process takes sessions over.
    pub(super) fn are_carried(&self) -> bool {
        let switches = &self.shared.switches;
        match switches.stage() {
            Stage::Serving => false,
            Stage::HandingOver => true,
            Stage::Draining => switches.has_successor(),
        }
    }

    pub(super) fn may_leave(&self) -> bool {
        self.client.is_open()
            && self.transaction.is_idle()
            && self.is_idle()
            && !self.client.ends_by_itself()
            && !self.client.skips_batch()
            && !self.waiting.is_in_commit_wait()
            && !self.client.is_within_message()
            && self.client.received().is_empty()
            && self.server.received().is_empty()
    }

    /// The same by an order to this session alone.
    pub(crate) fn leave_if_dismissed(&mut self) {
        if self.link.is_leaving() && self.may_leave() {
            self.leave();
        }
    }

    pub(super) fn leave(&mut self) {
        let (sqlstate, message) = TERMINATED;
        backend::put_error(self.client.output(), "FATAL", sqlstate, message);
        if self.server.sharing.is_none() {
            self.server.put(frontend::TERMINATE_FRAME);
        }
        self.client.say_goodbye();
    }
}
