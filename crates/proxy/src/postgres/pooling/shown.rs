//! What replicas have shown to a session, and how it waits until that is visible at the primary.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use freshet_types::{Epoch, Nanos};
use tokio::time::{Instant, timeout_at};

use crate::postgres::Pg;
use crate::session::wait_queue::{Wait, WaitFor};
use crate::shared::{ServerIdentity, Shared};

/// The longest wait for a floor, for a replica that has reached it, and for a place in its pool.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(10);
/// The longest wait until the primary shows what a replica has shown.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(10);
/// After a part of it, the session looks again whether a replica may answer.
pub(crate) const SETTLE_STEP: Duration = Duration::from_millis(100);
/// So often in each part a session that waits for it has the primary asked at once. Then the questions that are sent anyway must do.
const SETTLE_QUESTIONS: usize = 5;

/// What was shown, and when: in this epoch, by this time, by replicas of this primary.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) epoch: Epoch,
    pub(crate) since: Nanos,
    pub(crate) primary: Option<Arc<ServerIdentity>>,
}

impl Shown {
    /// Whether all of it is visible at the primary.
    pub(crate) fn has_settled(&self, shared: &Shared) -> bool {
        shared.servers.has_settled(self.epoch, self.since, self.primary.as_deref())
    }

    /// Whether another server is the primary now: it cannot be known any more.
    pub(crate) fn is_void(&self, shared: &Shared) -> bool {
        self.is_void_under(shared.identity().as_deref())
    }

    /// The same, with this primary.
    pub(crate) fn is_void_under(&self, now: Option<&ServerIdentity>) -> bool {
        let server = |of: &ServerIdentity| (of.system_id.clone(), of.postmaster_start.clone());
        now.is_some() && now.map(server) != self.primary.as_deref().map(server)
    }
}

/// Whether everything that replicas have shown becomes visible at the primary within [`SETTLE_STEP`]; false also if that cannot be known.
pub(crate) async fn settle(shared: Arc<Pg>, shown: Shown) -> bool {
    let deadline = Instant::now() + SETTLE_STEP;
    shared.want_log_end_since(shown.since);
    current(&shared, shown.since, Instant::now() + WAIT_MAX).await;
    shared.servers.note_visible(shared.cache.visible_end(), shared.clock.now());
    let mut questions = 0;
    loop {
        let next = shared.servers.next_settlement();
        tokio::pin!(next);
        next.as_mut().enable();
        if shown.has_settled(&shared) {
            return true;
        }
        if shown.is_void(&shared) || Instant::now() >= deadline {
            return false;
        }
        if questions < SETTLE_QUESTIONS {
            questions += 1;
            shared.want_log_end();
        }
        let _ = timeout_at(deadline, next).await;
    }
}

/// Returns when the stream has passed a log end that was asked for at `since` or later, or at the deadline.
pub(super) async fn current(shared: &Arc<Pg>, since: Nanos, deadline: Instant) {
    let mut wait = Wait::new(&shared.waits, false);
    let passed = std::future::poll_fn(|cx| {
        wait.register(WaitFor::Time(since), cx.waker());
        if shared.cache.is_current_as_of(since) { Poll::Ready(()) } else { Poll::Pending }
    });
    let _ = timeout_at(deadline, passed).await;
}
