//! The end of a session because the program ends.
//!
//! A session at rest is told so in PostgreSQL's own words, which drivers and pools know: they connect again, elsewhere.
//! One that is within a statement or a transaction goes on until that ends. Upstream it looks as if the client had said
//! goodbye.

use freshet_wire::postgres::{backend, frontend};

use crate::postgres::session::Session;

impl Session {
    /// The program ends, and the session has nothing to finish.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.shared.switches.is_draining()
            && self.client.is_open()
            && self.transaction.is_idle()
            && self.is_idle()
            && !self.client.ends_by_itself()
            && !self.waiting.is_holding()
            && !self.client.is_within_message()
            && self.client.received().is_empty()
            && self.server.received().is_empty()
    }

    pub(crate) fn leave_if_drained(&mut self) {
        if self.is_to_leave() {
            // `ProcessInterrupts` in `postgres.c`.
            let message = "terminating connection due to administrator command";
            backend::put_error(self.client.output(), "FATAL", "57P01", message);
            self.server.put(frontend::TERMINATE_FRAME);
            self.client.say_goodbye();
        }
    }
}
