//! The last execution, if it was answered from the cache and the client may notice that the server has not seen it. The client can execute its portal
//! again, in a block and up to the `Sync` after a `Flush`. There, statements also show whether they are the first of their transaction: `LOCK TABLE`
//! fails, `SET LOCAL` warns, `SET TRANSACTION` succeeds.
//!
//! Few statements notice that. Before such a statement the server executes the same messages, and their answers are dropped. A portal of which the
//! client has only some rows continues in the state that the server has by then.

use std::sync::Arc;

use freshet_wire::postgres::frame::{self, HEADER_BYTES};
use freshet_wire::postgres::frontend::{self, Bind, Parse, Target};

use crate::postgres::session::Session;
use crate::postgres::session::unit::Unit;
use crate::statement::registry::{Statement, TEXT_BYTES_MAX};

/// The messages from `Bind` on, if there is such an execution. The statement that they bind is unchanged.
#[derive(Debug, Default)]
pub(super) struct UnseenExecution {
    /// The buffer stays, to avoid an allocation at each hit.
    messages: Vec<u8>,
    /// The number of answers that the server gives to them.
    answers: usize,
}

impl UnseenExecution {
    pub(super) fn note(&mut self, messages: &[u8], answers: usize) {
        self.messages.clear();
        self.messages.extend_from_slice(messages);
        self.answers = answers;
    }

    /// The client cannot notice it any more, or the server has seen another execution.
    pub(super) fn forget(&mut self) {
        self.messages.clear();
    }

    pub(super) fn is_none(&self) -> bool {
        self.messages.is_empty()
    }
}

/// Whether it has the same effect in any transaction, whether it is the first statement or not.
fn is_plain(statement: &Arc<Statement>) -> bool {
    statement.query.takes_snapshot
}

impl Session {
    /// Messages of the extended protocol pass; `messages` are the first of them.
    pub(crate) fn catch_up_unseen(&mut self, messages: &[u8]) {
        if !self.client.unseen().is_none() && self.notices_unseen(messages) {
            self.execute_unseen();
        }
    }

    /// A `Query` passes.
    pub(crate) fn catch_up_unseen_query(&mut self, statement: Option<&Arc<Statement>>) {
        if self.client.ends_by_itself() && !self.client.unseen().is_none() && !statement.is_some_and(is_plain) {
            self.execute_unseen();
        }
    }

    /// Whether the server has not seen the last execution, and the next statement could show that.
    fn notices_unseen(&self, messages: &[u8]) -> bool {
        // In a block the server has seen its beginning.
        let begins = self.client.ends_by_itself() && self.transaction.is_idle();
        let Ok(Some(head)) = frame::header(messages) else { return begins };
        let message = messages.get(..head.frame_bytes.min(TEXT_BYTES_MAX)).unwrap_or_default();
        let statement = match head.tag {
            frontend::EXECUTE if messages.get(HEADER_BYTES) == Some(&0) => return true,
            frontend::DESCRIBE if matches!(Target::read(message), Ok(Target { kind: b'P', name: b"" })) => return true,
            frontend::PARSE if begins => {
                Parse::read(message).ok().and_then(|parse| self.statement(parse.query, parse.types).ok())
            }
            frontend::BIND if begins => {
                let prepared = Bind::read(message).ok().and_then(|bind| self.server.statements.get(bind.statement));
                prepared.map(|prepared| prepared.statement.clone())
            }
            _ => None,
        };
        begins && !statement.as_ref().is_some_and(is_plain)
    }

    /// Sends it to the server. If it fails, so does what the client sends next.
    fn execute_unseen(&mut self) {
        self.catch_up_unnamed();
        let UnseenExecution { mut messages, answers } = std::mem::take(self.client.unseen_mut());
        let renamed = self.renamed_execution(&messages);
        self.server.put(renamed.as_ref().unwrap_or(&messages));
        self.pipeline.push(Unit::Unseen { answers });
        messages.clear();
        *self.client.unseen_mut() = UnseenExecution { messages, answers: 0 };
    }
}
