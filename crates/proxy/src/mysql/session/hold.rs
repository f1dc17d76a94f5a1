//! Waiting for the change stream: held acknowledgements, and look-ups just ahead of it.
//!
//! **Acknowledgements.** Once the client has read the OK of a write, no reader anywhere may be served an older state. So the
//! OK stays in the output until the stream has applied the commit that it names ([`super::track`]), or else until it has
//! passed an end of the binlog that was asked for after it: one reading of the lease service, for all that wait. If that
//! takes too long, a fence is set first, and then the client is told: hits wait instead of the writer. As long as the
//! stream then does not move at all, it is set at once. A change that is in no log (`mandatory_roles`, `read_only`) waits for a look at the
//! catalogue instead. What touched only tables on which nothing rests is not held ([`crate::session::commit_wait`]).
//!
//! **Look-ups.** A session that has just read from the database may find an entry that is not yet known to be as new.
//! The position that tells is usually on its way, and waiting for it costs less than asking the database; but not for
//! much longer than the database takes, and ever less often as long as waiting does not help ([`crate::session::wait_queue::Patience`]). A
//! look-up that misses while another session fills the same key waits for that fill likewise, and begins anew.

use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use freshet_types::{End, Lsn, Nanos, Reason};
use freshet_wire::mysql::track::Gtid;
use tokio::time::timeout;

use crate::mysql::session::Session;
use crate::session::commit_wait::Touched;
use crate::session::wait_queue::{Wait, WaitFor};

/// How long an acknowledgement waits for its commit before an end of the binlog is asked for as well.
const COMMIT_WAIT: Duration = Duration::from_millis(5);

impl Session {
    /// Holds what is in the client's output until the stream has delivered all that was committed before now.
    pub(crate) async fn hold(&mut self) {
        if self.is_to_hold() {
            self.hold_since(self.now()).await;
        }
    }

    /// Holds it until the stream has delivered these commits; where the last of them ends. None if an end of the binlog
    /// had to do, or a fence.
    pub(crate) async fn hold_for(&mut self, gtids: &[Gtid]) -> Option<End> {
        if !self.is_to_hold() {
            return None;
        }
        let since = self.now();
        let mut end = None;
        let applied = || {
            end = self.applied_end(gtids);
            end.is_some()
        };
        if !self.shared.waits.is_stalled(self.shared.cache.applied())
            && self.holds_until(COMMIT_WAIT, WaitFor::Position(Lsn(0)), applied).await
        {
            self.shared.waits.held_for(self.now().saturating_sub(since));
        } else {
            self.hold_since(since).await;
        }
        end
    }

    /// Whether the acknowledgement of a transaction that touched this need not be held; counts those.
    pub(crate) fn skip_if_free(&mut self, touched: &Touched) -> bool {
        let same_server = matches!(self.server.settings.compare_server(&self.shared), Some(Ok(())));
        let is_free = same_server && self.is_to_hold() && self.shared.is_free(touched);
        if is_free {
            self.shared.waits.waits_skipped.fetch_add(1, Relaxed);
        }
        is_free
    }

    fn is_to_hold(&self) -> bool {
        // What is read after the start of an epoch sees the write.
        !self.shared.settings.faults.skip_hold && self.shared.cache.epoch().is_some()
    }

    async fn hold_since(&self, since: Nanos) {
        let shared = &self.shared;
        shared.want_log_end();
        let held = self.now().saturating_sub(since);
        let stalled = shared.waits.is_stalled(shared.cache.applied());
        let limit = if stalled { 0 } else { shared.settings.hold_max.load(Relaxed).saturating_sub(held) };
        let wait_for = WaitFor::Time(since);
        if !self.holds_until(Duration::from_nanos(limit), wait_for, || shared.cache.is_current_as_of(since)).await {
            shared.cache.fence_since(self.now());
            shared.waits.held_in_vain(shared.cache.applied());
            shared.waits.fences.fetch_add(1, Relaxed);
            shared.want_log_end();
        }
        shared.waits.held_for(self.now().saturating_sub(since));
    }

    /// Holds what is in the client's output until the catalogue has been looked at: what was changed is in no log. Sessions that
    /// it may concern are served from the cache only behind that look.
    pub(crate) async fn hold_for_look(&self) {
        let (shared, since) = (&self.shared, self.now());
        if shared.settings.faults.skip_hold {
            return;
        }
        shared.want_catalog();
        let limit = Duration::from_nanos(if shared.cache.epoch().is_some() {
            shared.settings.hold_max.load(Relaxed)
        } else {
            0
        });
        let looked = || shared.cache.catalog_as_of() >= since;
        if !self.holds_until(limit, WaitFor::Catalog(since), looked).await {
            shared.cache.fence_catalog(since);
            shared.waits.fences.fetch_add(1, Relaxed);
        }
        shared.waits.held_for(self.now().saturating_sub(since));
    }

    /// Waits for what is so once the stream has passed something; false if it is not in time.
    async fn holds_until(&self, limit: Duration, wait_for: WaitFor, mut is_so: impl FnMut() -> bool) -> bool {
        let mut wait = Wait::new(&self.shared.waits, true);
        let passed = std::future::poll_fn(|cx| {
            wait.register(wait_for, cx.waker());
            if is_so() { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(limit, passed).await.is_ok() || is_so()
    }

    /// A look-up must bypass for this reason: until when it is worth waiting for the position that it lacks. `due`: what was
    /// said of the same look-up before.
    pub(crate) fn worth_waiting_until(&mut self, reason: &Reason, due: Option<Nanos>) -> Option<Nanos> {
        let comes = matches!(reason, Reason::Watermark | Reason::NotYetApplied | Reason::Fence);
        if !comes || (due.is_none() && !self.patience.try_wait()) {
            return None;
        }
        Some(due.unwrap_or_else(|| self.now() + self.shared.waits.look_wait()))
    }

    /// The look-up has missed: waits for the fill of its key that another session has under way. False if there is none, or
    /// if it has not ended in time.
    pub(crate) async fn join(&self) -> bool {
        let cache = &self.shared.cache;
        // The clock is read only where there is a fill.
        let Some(until) = cache.joinable_until(&self.key, 0) else { return false };
        let left = until.saturating_sub(self.now());
        let ended =
            std::future::poll_fn(|cx| if cache.join(&self.key, cx.waker()) { Poll::Pending } else { Poll::Ready(()) });
        left > 0 && timeout(Duration::from_nanos(left), ended).await.is_ok()
    }

    /// Waits until the stream has passed something since `generation`; false if it has not by `due`.
    pub(crate) async fn wait_for_position(&mut self, generation: u64, due: Nanos) -> bool {
        let shared = self.shared.clone();
        let mut wait = Wait::new(&shared.waits, false);
        let passed = std::future::poll_fn(|cx| {
            wait.register(WaitFor::Position(Lsn(0)), cx.waker());
            if shared.waits.generation() == generation { Poll::Pending } else { Poll::Ready(()) }
        });
        let left = Duration::from_nanos(due.saturating_sub(self.now()));
        let came = !left.is_zero() && timeout(left, passed).await.is_ok();
        if !came {
            self.patience.lose();
        }
        came
    }
}
