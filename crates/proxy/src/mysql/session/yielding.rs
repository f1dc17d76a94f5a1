//! Diagnostics that keep a connection are given up if others need it.
//!
//! ROW_COUNT() of changed rows, warnings and errors live on the server connection until the next statement. A client asks for them at once or never, but it
//! may be idle for hours behind an UPDATE. So its session keeps the connection for a moment, and then as long as nobody waits for one. Who asks for
//! diagnostics that were given up gets an error. They are given up as well when another server has become the primary: a session whose writes fail on the
//! old one would otherwise keep its connection there.
//!
//! The same look ends the pin of a statement that has run stored code, if the catalogue has shown meanwhile that it has left nothing.

use std::pin::Pin as Pinned;
use std::task::Context;
use std::time::Duration;

use freshet_wire::mysql::error::put_error;
use tokio::time::{Sleep, sleep};

use crate::mysql::session::held::DIAGNOSTICS;
use crate::mysql::session::{Session, SessionError};
use crate::statement::registry::Statement;

/// So long they are kept in any case, and so often the session looks whether others wait.
const MOMENT: Duration = Duration::from_millis(100);

/// A session between two commands.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(super) struct Resting {
    /// The pin that was noted last.
    pub(super) pinned: Option<&'static str>,
    /// It may end without another command.
    pub(super) may_end: bool,
    /// When it looks again whether others wait.
    due: Option<Pinned<Box<Sleep>>>,
    is_due: bool,
    /// Diagnostics do not keep the connection now.
    pub(super) gives_up: bool,
    /// Those of the last statement were given up.
    pub(super) has_lost: bool,
}

impl Resting {
    /// Whether it is time to look. Only while diagnostics keep the connection, or code of which the catalogue does not tell yet what it has left.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.may_end {
            self.due = None;
            return false;
        }
        let due = self.due.get_or_insert_with(|| Box::pin(sleep(MOMENT)));
        self.is_due = due.as_mut().poll(cx).is_ready();
        if self.is_due {
            self.due = None;
        }
        self.is_due
    }
}

impl Session {
    /// Tells once that it is time to look.
    pub(super) fn take_due(&mut self) -> bool {
        self.server.pooling.as_mut().is_some_and(|pooling| std::mem::take(&mut pooling.resting.is_due))
    }

    /// Gives up the diagnostics of the last statement, if others wait for a connection, or this one leads to the wrong server.
    pub(super) async fn give_up_diagnostics(&mut self) -> Result<(), SessionError> {
        let Some(pooling) = &mut self.server.pooling else { return Ok(()) };
        let connection = self.server.connection.as_ref();
        let is_elsewhere = || connection.is_some_and(|connection| !connection.is_in_use(&self.shared));
        if !self.shared.pools.are_wanted() && !is_elsewhere() {
            return Ok(());
        }
        pooling.resting.gives_up = true;
        let rests = self.rest().await;
        if let Some(pooling) = &mut self.server.pooling {
            pooling.resting.gives_up = false;
        }
        rests
    }

    /// Answers a statement that asks for diagnostics that were given up with an error; false: it does not.
    pub(super) fn refuse_lost_diagnostics(&mut self, statement: &Statement) -> bool {
        let has_lost = self.server.pooling.as_ref().is_some_and(|pooling| pooling.resting.has_lost);
        // FOUND_ROWS() goes with the session.
        let asks = |word: &str| word != "found_rows" && DIAGNOSTICS.contains(&word);
        if !has_lost || !statement.query.code().words().any(asks) {
            return false;
        }
        let text = "the ROW_COUNT() and the warnings of the last statement were given up, since other sessions waited for the connection, or the primary has changed";
        put_error(self.client.output.buffer(), &mut 1, 1105, Some("HY000"), text);
        true
    }
}
