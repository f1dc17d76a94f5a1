//! Statements with a time limit, set by a rule with `timeout`.
//!
//! When the time is over, Freshet asks the server to cancel what the session runs. That request names a connection and no statement, so it must not
//! arrive while a later statement runs. Therefore the session is *held* while such a statement runs: it sends nothing behind it. If the time is over
//! before the answer has come, it stays held until the server has taken the request.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshet_types::Nanos;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::rules::span_text;
use crate::server::sessions::Link;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The request is under way.
    Cancelling,
    /// The statement has been answered, or the server has taken the request.
    Over,
}

/// The time limit of the statement that a session runs.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    after: Nanos,
    phase: Arc<Mutex<Phase>>,
    /// Dropped, it ends the wait.
    _waits: oneshot::Sender<()>,
    link: Arc<Link>,
}

/// Changes the phase if it is `from`.
fn change(phase: &Mutex<Phase>, from: Phase, to: Phase) -> bool {
    let mut phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = *phase == from;
    if is_it {
        *phase = to;
    }
    is_it
}

impl TimeLimit {
    /// The statement is sent; returns its limit, and the task that waits. `cancel` asks the server to cancel the statement, and returns once the server
    /// has taken the request.
    pub(crate) fn begin<C: Future<Output = ()>>(
        after: Nanos,
        link: &Arc<Link>,
        cancel: C,
    ) -> (Self, impl Future<Output = ()> + use<C>) {
        link.hold();
        let phase = Arc::new(Mutex::new(Phase::Running));
        let (theirs, held) = (phase.clone(), link.clone());
        let (waits, ended) = oneshot::channel();
        let task = async move {
            let is_over = timeout(Duration::from_nanos(after), ended).await.is_err();
            if is_over && change(&theirs, Phase::Running, Phase::Cancelling) {
                cancel.await;
                change(&theirs, Phase::Cancelling, Phase::Over);
                held.let_go();
            }
        };
        (Self { after, phase, _waits: waits, link: link.clone() }, task)
    }

    /// Whether the server has been asked to cancel the statement, or is being asked.
    pub(crate) fn is_over(&self) -> bool {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) != Phase::Running
    }

    /// The message for the client.
    pub(crate) fn message(&self) -> String {
        format!("canceling statement due to the timeout of a rule ({})", span_text(self.after))
    }
}

impl Drop for TimeLimit {
    /// The statement has been answered, or the session ends. The server's time is not over: nothing holds the session any more.
    fn drop(&mut self) {
        if change(&self.phase, Phase::Running, Phase::Over) {
            self.link.let_go();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sessions::{About, Sessions};

    const SOON: Nanos = 1_000_000;
    const LATE: Nanos = 3600 * 1_000_000_000;

    #[tokio::test]
    async fn a_session_is_held_while_its_statement_runs() {
        let sessions = Sessions::default();
        let link = sessions.begin(About::default()).link.clone();
        let (limit, task) = TimeLimit::begin(LATE, &link, async {});
        let task = tokio::spawn(task);
        assert!(link.is_held() && !limit.is_over());
        drop(limit);
        assert!(!link.is_held());
        task.await.expect("the task ends with the statement");
    }

    #[tokio::test]
    async fn a_session_is_held_until_the_server_has_taken_the_request() {
        let sessions = Sessions::default();
        let link = sessions.begin(About::default()).link.clone();
        let (asked, is_asked) = oneshot::channel();
        let (take, is_taken) = oneshot::channel::<()>();
        let (limit, task) = TimeLimit::begin(SOON, &link, async move {
            let _ = asked.send(());
            let _ = is_taken.await;
        });
        let task = tokio::spawn(task);
        is_asked.await.expect("the time is over");
        assert!(limit.is_over() && limit.message().ends_with("of a rule (1ms)"));
        drop(limit); // the answer comes first
        assert!(link.is_held());
        take.send(()).expect("it waits");
        task.await.expect("the task ends with the request");
        assert!(!link.is_held());
    }
}
