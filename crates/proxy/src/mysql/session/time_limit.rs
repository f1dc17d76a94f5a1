//! Statements that a rule with `timeout` cancels at the server: see [`crate::session::time_limit`].
//!
//! Freshet sends KILL QUERY under its own account, which needs the right to end statements of others: it does not have the passwords of most sessions.

use std::task::Poll;

use freshet_types::Nanos;
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::packet::HEADER_BYTES;
use freshet_wire::mysql::response::{Done, Step};

use crate::mysql::service::kill_query;
use crate::mysql::session::Session;
use crate::session::time_limit::TimeLimit;
use crate::statement::registry::Statement;

/// `ER_QUERY_INTERRUPTED`, of KILL QUERY.
const INTERRUPTED: u16 = 1317;

impl Session {
    /// The command at hand is this statement.
    pub(super) fn note_timeout(&mut self, statement: Option<&Statement>) {
        self.at_hand.timeout = statement.and_then(|statement| self.timeout_of(statement));
    }

    /// After how long a rule wants the statement cancelled.
    fn timeout_of(&self, statement: &Statement) -> Option<Nanos> {
        self.shared.rules.timeout(statement.subject(), &self.server.who())
    }

    /// The server has answered everything before the command at hand.
    pub(super) fn begin_time_limit(&mut self) {
        let (Some(after), Some(connection)) = (self.at_hand.timeout.take(), &self.server.connection) else { return };
        let (shared, thread) = (self.shared.clone(), connection.thread);
        let target = self.server.pooling.as_ref().map(|pooling| pooling.target.clone());
        let cancel = async move {
            // The session keeps its connection until then.
            let aim = target.and_then(|target| target.aim());
            if let Err(error) = kill_query(&shared, thread).await {
                tracing::warn!(%error, "the time of a statement is over, but it could not be cancelled");
            }
            drop(aim);
        };
        let (limit, task) = TimeLimit::begin(after, &self.server.link, cancel);
        freshet_net::spawn(task);
        self.at_hand.time_limit = Some(limit);
    }

    /// The server has answered the command at hand. If it has been asked to cancel it, it must have taken that before the next one is sent.
    pub(super) async fn end_time_limit(&mut self) {
        if self.at_hand.time_limit.take().is_none() {
            return;
        }
        let link = self.server.link.clone();
        std::future::poll_fn(|_| if link.is_held() { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// The bytes of an answer that are for the client: all, or those before the error of a statement whose time is over.
    pub(super) fn before_interruption(&self, step: &Step, bytes: usize) -> usize {
        let is_over = || self.at_hand.time_limit.as_ref().is_some_and(TimeLimit::is_over);
        match step {
            Step::Done(Done { error: Some(INTERRUPTED), last, .. }) if !last.is_empty() && is_over() => {
                last.start.saturating_sub(HEADER_BYTES)
            }
            _ => bytes,
        }
    }

    /// Tells the client why the statement was cancelled, in the place of the packet at this place of what was received.
    pub(super) fn put_interruption(&mut self, at: usize) {
        let Some(limit) = &self.at_hand.time_limit else { return };
        let mut sequence = self.server.received().get(at + HEADER_BYTES - 1).copied().unwrap_or_default();
        // ER_STATEMENT_TIMEOUT, ER_QUERY_TIMEOUT
        let (code, state) = if self.server.about.version.is_mariadb { (1969, "70100") } else { (3024, "HY000") };
        let out = self.client.output.buffer();
        put_error(out, &mut sequence, code, Some(state), &limit.message());
    }
}
