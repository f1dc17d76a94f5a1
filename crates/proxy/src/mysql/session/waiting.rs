//! Waits for the change stream: commit waits, and look-ups that are slightly ahead of the stream.
//!
//! **Commit waits.** Once the client has read the OK of a write, no session may be served an older state. So the OK stays in the output until the
//! stream has applied the commit that it names ([`super::track`]), or has passed a log end that was asked for after it: one log-end probe of the
//! lease service, for all that wait. If that takes too long, a fence is set first, and then the client is told: hits wait instead of the writer. As
//! long as the stream does not move at all after that, the fence is set at once. A change that is in no log (`mandatory_roles`, `read_only`) waits
//! for a check of the catalogue instead. There is no wait if no cached result depends on the tables of the write ([`crate::session::commit_wait`]).
//!
//! **Look-ups.** A session that has just read from the database may find an entry that is not yet known to be as new. The position that shows it is
//! usually about to arrive, and waiting for it costs less than a query; but the session does not wait much longer than the database takes, and waits
//! ever less often as long as waiting does not help ([`crate::session::wait_queue::Patience`]). In the same way a look-up that misses while another
//! session fills the same key waits for that fill, and starts again.

use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use freshet_types::{End, Lsn, Nanos, Reason};
use freshet_wire::mysql::track::Gtid;
use tokio::time::timeout;

use crate::mysql::session::Session;
use crate::session::commit_wait::Touched;
use crate::session::wait_queue::{Wait, WaitFor};

/// How long an acknowledgement waits for its commit before it asks for a log end as well.
const COMMIT_WAIT: Duration = Duration::from_millis(5);

impl Session {
    /// Keeps the client's output back until the stream has delivered all that was committed before now.
    pub(crate) async fn wait_for_stream(&mut self) {
        if self.needs_commit_wait() && !self.fences_elsewhere() {
            self.wait_for_stream_since(self.now()).await;
        }
    }

    /// Keeps it back until the stream has delivered these commits; returns the end of the last one. None if it waited for a log end instead, or set a
    /// fence.
    pub(crate) async fn wait_for_commits(&mut self, gtids: &[Gtid]) -> Option<End> {
        if !self.needs_commit_wait() || self.fences_elsewhere() {
            return None;
        }
        let since = self.now();
        let mut end = None;
        let applied = || {
            end = self.applied_end(gtids);
            end.is_some()
        };
        if !self.shared.waits.is_stalled(self.shared.cache.applied())
            && self.waits_until(COMMIT_WAIT, WaitFor::Position(Lsn(0)), applied).await
        {
            self.shared.waits.waited_for_commit(self.now().saturating_sub(since));
        } else {
            self.wait_for_stream_since(since).await;
        }
        end
    }

    /// Whether a transaction that touched this needs no commit wait; counts the skipped waits.
    pub(crate) fn skip_commit_wait(&mut self, touched: &Touched) -> bool {
        let same_server = matches!(self.server.settings.compare_server(&self.shared), Some(Ok(())));
        let is_skipped = same_server && self.needs_commit_wait() && self.shared.may_skip_commit_wait(touched);
        if is_skipped {
            self.shared.waits.waits_skipped.fetch_add(1, Relaxed);
        }
        is_skipped
    }

    /// Of several hosts: whether the session's writes go to another server than the stream's, as in a transaction behind a failover. No log end of the
    /// stream's server shows them, and nobody who can hit sees them. If the session does not know its server, there is a fence.
    fn fences_elsewhere(&mut self) -> bool {
        if !self.shared.own.upstream.has_several_hosts() {
            return false;
        }
        if matches!(self.server.settings.compare_server(&self.shared), Some(Err(Reason::OtherServer))) {
            return true;
        }
        let connection = self.server.connection.as_ref();
        let is_elsewhere = connection.is_some_and(|connection| !connection.is_in_use(&self.shared));
        if is_elsewhere {
            self.shared.cache.fence_since(self.now());
            self.shared.waits.fences.fetch_add(1, Relaxed);
            self.shared.want_log_end();
        }
        is_elsewhere
    }

    fn needs_commit_wait(&self) -> bool {
        // A result that is read after the start of an epoch shows the write.
        !self.shared.settings.faults.skip_commit_wait && self.shared.cache.epoch().is_some()
    }

    async fn wait_for_stream_since(&self, since: Nanos) {
        let shared = &self.shared;
        shared.want_log_end();
        let waited = self.now().saturating_sub(since);
        let stalled = shared.waits.is_stalled(shared.cache.applied());
        let limit = if stalled { 0 } else { shared.settings.commit_wait_max.load(Relaxed).saturating_sub(waited) };
        let wait_for = WaitFor::Time(since);
        if !self.waits_until(Duration::from_nanos(limit), wait_for, || shared.cache.is_current_as_of(since)).await {
            shared.cache.fence_since(self.now());
            shared.waits.timed_out(shared.cache.applied());
            shared.waits.fences.fetch_add(1, Relaxed);
            shared.want_log_end();
        }
        shared.waits.waited_for_commit(self.now().saturating_sub(since));
    }

    /// Keeps the client's output back until the catalogue has been checked: the change is in no log. Sessions that it may concern are served from the
    /// cache only after that check.
    pub(crate) async fn wait_for_catalog(&self) {
        let (shared, since) = (&self.shared, self.now());
        if shared.settings.faults.skip_commit_wait {
            return;
        }
        shared.want_catalog();
        let limit = Duration::from_nanos(if shared.cache.epoch().is_some() {
            shared.settings.commit_wait_max.load(Relaxed)
        } else {
            0
        });
        let looked = || shared.cache.catalog_as_of() >= since;
        if !self.waits_until(limit, WaitFor::Catalog(since), looked).await {
            shared.cache.fence_catalog(since);
            shared.waits.fences.fetch_add(1, Relaxed);
        }
        shared.waits.waited_for_commit(self.now().saturating_sub(since));
    }

    /// Waits until the condition holds, which is checked when the stream has passed something; false if the time is over.
    async fn waits_until(&self, limit: Duration, wait_for: WaitFor, mut is_so: impl FnMut() -> bool) -> bool {
        let mut wait = Wait::new(&self.shared.waits, true);
        let passed = std::future::poll_fn(|cx| {
            wait.register(wait_for, cx.waker());
            if is_so() { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(limit, passed).await.is_ok() || is_so()
    }

    /// A look-up must bypass for this reason: until when to wait for the position that it lacks. `due`: the result of an earlier call for the same
    /// look-up.
    pub(crate) fn worth_waiting_until(&mut self, reason: &Reason, due: Option<Nanos>) -> Option<Nanos> {
        let comes = matches!(reason, Reason::Watermark | Reason::NotYetApplied | Reason::Fence);
        if !comes || (due.is_none() && !self.patience.try_wait()) {
            return None;
        }
        Some(due.unwrap_or_else(|| self.now() + self.shared.waits.look_wait()))
    }

    /// The look-up has missed: waits for another session's fill of the same key. False if there is none, or if it has not ended in time.
    pub(crate) async fn join(&self) -> bool {
        let cache = &self.shared.cache;
        // The clock is read only if there is a fill.
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
