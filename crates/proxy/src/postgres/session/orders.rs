//! Orders of an operator to a session, given by the console: to end, or to execute no new statement for a while.
//!
//! PAUSE takes effect between transactions: a session within one, or within a batch of the extended protocol, continues until that ends. What the
//! client sends meanwhile stays in its connection. Hits wait, too: a paused session answers nothing.

use std::io;

use freshet_wire::postgres::backend;
use tokio::time::timeout;

use crate::postgres::session::drain::TERMINATED;
use crate::postgres::session::{FAREWELL_TIMEOUT, Session};

impl Session {
    /// Whether the next message of the client must wait for RESUME.
    pub(crate) fn is_between_statements_of_a_pause(&self) -> bool {
        self.link.is_paused()
            && self.transaction.is_idle()
            && !self.client.is_within_message()
            && !self.client.passes_batch()
            && !self.client.leads_batch()
            && !self.client.skips_batch()
            && !self.client.ends_by_itself()
            && !self.is_raw()
            && !self.shared.switches.is_draining()
            && !self.link.is_leaving()
    }

    /// Reports whether the pause has reached this session: it has nothing to finish.
    pub(crate) fn park(&mut self) {
        if self.link.is_paused() {
            let has_questions = self.server.sharing.as_ref().is_some_and(|sharing| sharing.has_questions());
            let rests = self.is_between_statements_of_a_pause() && self.is_idle() && !has_questions;
            self.link.set_parked(rests);
        }
    }

    /// The session was killed: the client is told as PgBouncer tells it, or at the end of a drain as PostgreSQL does, and is not waited for.
    pub(crate) async fn end_by_order(&mut self) -> io::Result<()> {
        let by_drain = self.shared.switches.is_draining();
        let (sqlstate, message) = if by_drain { TERMINATED } else { ("08P01", "admin forced disconnect") };
        backend::put_error(self.client.output(), "FATAL", sqlstate, message);
        let socket = self.client.socket();
        let farewell = async {
            socket.flush().await?;
            socket.shut_down().await
        };
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
        Ok(())
    }
}
