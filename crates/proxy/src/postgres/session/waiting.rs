//! Waits for the change stream: commit waits, and look-ups that are slightly ahead of the stream.
//!
//! **Commit waits.** Once the client has read `ReadyForQuery` after a write, no session may be served an older state. So `ReadyForQuery` waits until
//! the stream has passed a log end that was asked for after the write. This usually takes a fraction of a millisecond, since the stream receives a
//! commit before the client does. If it takes too long, a fence is set first, and then the client is told: hits wait instead of the writer. As long
//! as the stream does not move at all after that, the fence is set at once. There is no wait if no cached result depends on the tables of the write
//! ([`super::waits_skipped`]).
//!
//! After `COPY … TO STDOUT`, which hardly ever writes, the fence is set at once. The server sends its `ReadyForQuery` together with the end of the
//! data, and some clients rely on that: `postgres` for Node reads nothing more once its stream is full and has ended, so it would never read a later
//! `ReadyForQuery`.
//!
//! **Batches.** Received messages of the extended protocol wait briefly for the rest of their batch ([`super::batch`]).
//!
//! **Look-ups.** A session that has just read from the database may find an entry that is not yet known to be as new. The position that shows it is
//! usually about to arrive, and waiting for it costs less than a query; but the session does not wait much longer than the database takes, and waits
//! ever less often as long as waiting does not help ([`Patience`]). In the same way a look-up that misses while another session fills the same key
//! waits for that fill, and starts again.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Context;
use std::time::Duration;

use freshet_types::{End, Lsn, Nanos, Reason};
use freshet_wire::postgres::backend;
use tokio::time::{Instant, Sleep};

use crate::postgres::session::Session;
use crate::postgres::session::batch;
use crate::postgres::session::unit::Unit;
use crate::session::commit_wait::Touched;
use crate::session::time_limit::TimeLimit;
use crate::session::wait_queue::{Patience, Wait, WaitFor};

/// What a commit wait waits for.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// A log end that was asked for on the same connection.
    Asked,
    /// The stream passes this.
    Passed(End),
    /// The stream passes a log end that was asked for later than this.
    ReadAfter(Nanos),
    /// A check of the catalogue that was asked for later than this.
    LookedAfter(Nanos),
}

impl Until {
    fn wait_for(self) -> Option<WaitFor> {
        match self {
            Self::Asked => None,
            Self::ReadAfter(since) => Some(WaitFor::Time(since)),
            Self::Passed(end) => Some(WaitFor::Position(end.lsn)),
            Self::LookedAfter(since) => Some(WaitFor::Catalog(since)),
        }
    }
}

/// A `ReadyForQuery` that waits.
#[derive(Clone, Copy, Debug)]
struct CommitWait {
    until: Until,
    /// It also waits for a check of the catalogue that was asked for at this time or later.
    catalog: Option<Nanos>,
    since: Nanos,
}

/// A look-up that waits.
#[derive(Debug)]
struct Look {
    since: Nanos,
    due: Nanos,
    /// See [`Waiting::generation`].
    generation: u64,
    /// What it waits for, if that is known.
    until: Option<Until>,
    /// It waits for another session's fill of the same key.
    joined: bool,
}

/// What the session waits for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    commit_wait: Option<CommitWait>,
    look: Option<Look>,
    /// Until when whole messages at the start of the input wait for the rest of their batch; 0: no longer.
    batch: Option<Nanos>,
    /// [`crate::session::wait_queue::Waits::generation`] before the last look-up.
    pub(crate) generation: u64,
    patience: Patience,
    wait: Option<Wait>,
    /// Of the statement that the server executes.
    pub(super) time_limit: Option<TimeLimit>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    /// Whether the client's write is not acknowledged yet.
    pub(crate) fn is_in_commit_wait(&self) -> bool {
        self.commit_wait.is_some()
    }

    /// Whether a message of the client will be looked up again.
    pub(crate) fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    /// Whether neither an acknowledgement, nor a look-up, nor a batch waits, and no timer is left from earlier.
    fn is_for_nothing(&self) -> bool {
        self.commit_wait.is_none() && self.look.is_none() && self.batch.is_none() && self.sleep.is_none()
    }

    /// A look-up has saved a query, or no wait would have helped.
    pub(crate) fn found(&mut self) {
        self.patience.gain();
    }

    /// Since when the look-up waits, if it does.
    pub(crate) fn since(&self) -> Option<Nanos> {
        self.look.as_ref().map(|look| look.since)
    }

    /// The client's message is handled.
    pub(crate) fn looked(&mut self) {
        self.look = None;
        self.batch = None;
        if self.commit_wait.is_none() {
            self.wait = None;
        }
    }
}

impl Session {
    /// Whether nothing is under way on the server connection, and no message is partly sent, so that Freshet can send a query.
    pub(crate) fn is_at_rest(&self) -> bool {
        let sending = self.client.is_within_message() || self.client.passes_batch();
        self.is_between_transactions() && self.pipeline.is_empty() && !sending && self.client.is_open()
    }

    /// The batch at the start of the input is not complete: whether to wait for its rest. `whole`: one message of it is complete.
    pub(crate) fn wait_for_rest(&mut self, whole: bool) -> bool {
        if !whole {
            return true;
        }
        let now = self.now();
        now < *self.waiting.batch.get_or_insert(now + batch::PATIENCE)
    }

    /// A transaction that wrote has ended, and its `ReadyForQuery` has arrived: begins a commit wait, and returns whether it does.
    ///
    /// `copied_out`: it follows COPY data. `touched`: what the transaction may have written to. `redefined`: it may have changed definitions that the
    /// stream does not show.
    pub(crate) fn begin_commit_wait(&mut self, copied_out: bool, touched: &Touched, redefined: bool) -> bool {
        let settings = &self.shared.settings;
        if settings.faults.skip_commit_wait {
            return false;
        }
        // A result that is read after the start of an epoch shows the write, and nothing older is served.
        if self.shared.cache.epoch().is_none() {
            if redefined {
                self.fence_catalog();
            }
            return false;
        }
        let server = self.server.compare(&self.shared);
        // Roles belong to all databases.
        if matches!(server, Some(Err(Reason::OtherDatabase))) && !redefined {
            return false;
        }
        if self.check_wait_skipped(touched) {
            self.shared.waits.waits_skipped.fetch_add(1, Relaxed);
            self.server.settings.is_used = true; // it needs its context, like a session that reads
            return false;
        }
        let now = self.now();
        if redefined {
            self.shared.want_catalog();
        }
        if copied_out {
            self.fence(Until::ReadAfter(now), now);
            if redefined {
                self.fence_catalog();
            }
            return false;
        }
        let at_rest = self.is_at_rest();
        let until = if matches!(self.pipeline.front(), Some(Unit::Own { ask, .. }) if ask.tells_end()) {
            Until::Asked
        } else if at_rest && matches!(server, Some(Ok(()))) {
            self.ask_end_behind_write();
            Until::Asked
        } else {
            if at_rest && server.is_none() {
                self.ask_context(); // so that the next write can ask for its own log end
            }
            self.shared.want_log_end();
            Until::ReadAfter(now)
        };
        self.waiting.wait = None;
        self.waiting.commit_wait = Some(CommitWait { until, catalog: redefined.then_some(now), since: now });
        true
    }

    /// The log end that a commit wait asked for is known; None if it could not be read.
    ///
    /// `asynchronous`: the session does not wait for a flush of its log, and what is not flushed is not delivered. A commit wait would cost what the
    /// session wants to save.
    pub(crate) fn commit_wait_end_known(&mut self, lsn: Option<Lsn>, asynchronous: bool) {
        let now = self.now();
        let end = lsn.zip(self.shared.cache.epoch()).map(|(lsn, epoch)| End { epoch, lsn });
        if let Some(CommitWait { until: until @ Until::Asked, since, .. }) = &mut self.waiting.commit_wait {
            if asynchronous {
                *since = 0;
            }
            *until = end.map_or(Until::ReadAfter(now), Until::Passed);
            if end.is_none() {
                self.shared.want_log_end();
            } else if let Some(end) = self.watermark.unflushed().filter(|_| !asynchronous) {
                self.shared.want_flush(end);
            }
        }
    }

    /// Acknowledges the write, if the stream has delivered it, or if the time for waiting is over.
    pub(crate) fn end_commit_wait(&mut self) -> bool {
        let Some(CommitWait { until, catalog, since }) = self.waiting.commit_wait else { return false };
        let (delivered, looked, now) = (self.is_delivered(until), self.is_looked_at(catalog), self.shared.clock.now());
        if !delivered || !looked {
            let applied = self.shared.cache.applied();
            let over = now.saturating_sub(since) >= self.shared.settings.commit_wait_max.load(Relaxed);
            let stalled = !delivered && self.shared.waits.is_stalled(applied);
            if !over && !self.server.has_ended() && !stalled {
                return false;
            }
            if over && since > 0 && !delivered {
                self.shared.waits.timed_out(applied);
            }
            if !looked {
                self.fence_catalog();
            }
            if delivered {
                self.shared.waits.fences.fetch_add(1, Relaxed);
            } else {
                self.fence(until, now);
            }
            // Definitions from before the write are not delivered either: a new trigger, say.
            self.settings_may_change();
            self.server.settings.is_used = true; // its previous context is forgotten: it asks again, like a session that reads
        }
        self.waiting.commit_wait = None;
        self.waiting.wait = None;
        self.end_defining();
        let waited = if since == 0 { 0 } else { now.saturating_sub(since) };
        if catalog.is_some() {
            self.shared.waits.waited_for_catalog(waited);
        } else {
            self.shared.waits.waited_for_commit(waited);
        }
        backend::put_ready(self.client.output(), self.transaction.status());
        true
    }

    fn is_delivered(&self, until: Until) -> bool {
        match until {
            Until::Asked => false,
            Until::Passed(end) => self.shared.cache.has_passed(end),
            Until::ReadAfter(since) => self.shared.cache.is_current_as_of(since),
            Until::LookedAfter(since) => self.shared.cache.catalog_as_of() >= since,
        }
    }

    fn is_looked_at(&self, catalog: Option<Nanos>) -> bool {
        catalog.is_none_or(|since| self.shared.cache.catalog_as_of() >= since)
    }

    /// Sets a fence: hits wait instead of the writer.
    fn fence(&self, until: Until, now: Nanos) {
        match until {
            Until::Passed(end) => self.shared.cache.fence(None, end),
            Until::Asked | Until::ReadAfter(_) | Until::LookedAfter(_) => self.shared.cache.fence_since(now),
        }
        self.shared.waits.fences.fetch_add(1, Relaxed);
        self.shared.want_log_end();
    }

    /// Whether only the log end is about to arrive on this connection.
    fn is_only_end_owed(&self) -> bool {
        let (first, second) = (self.pipeline.front(), self.pipeline.second());
        matches!((first, second), (Some(Unit::Own { ask, .. }), None) if ask.tells_end())
    }

    /// A look-up must bypass for this reason: begins to wait for a position, or for the fill under way. False if a wait is not worth it.
    pub(crate) fn arm_wait(&mut self, reason: &Reason) -> bool {
        let joined = *reason == Reason::FillInFlight && !self.takes_snapshot();
        let comes = joined || matches!(reason, Reason::Watermark | Reason::NotYetApplied | Reason::Fence);
        if comes && !joined && self.is_only_end_owed() {
            // A statement that passes would be answered after it.
            return true;
        }
        if !comes || !self.is_idle() {
            return false;
        }
        let now = self.now();
        let due = match &self.waiting.look {
            look if joined => match self.shared.cache.joinable_until(&self.key, now) {
                // The look-up waits for one fill, not for one after the other.
                Some(due) if look.as_ref().is_none_or(|look| !look.joined || look.due == due) => due,
                _ => return false,
            },
            Some(look) if !look.joined => look.due,
            _ if self.waiting.patience.try_wait() => now + self.shared.waits.look_wait(),
            _ => return false,
        };
        let until =
            (*reason == Reason::Watermark).then_some(match (self.watermark.snapshot(), self.watermark.get().end) {
                (None, Some(end)) => Until::Passed(end),
                (None, None) => Until::ReadAfter(self.watermark.get().since),
                (Some(snapshot), _) => Until::ReadAfter(snapshot.since),
            });
        // The awaited position has come and does not help: the watermark may lack something else.
        let until = until.filter(|until| !self.is_delivered(*until));
        let looked = (*reason == Reason::Watermark && self.lacks_look()).then_some(self.watermark.get().catalog_since);
        let until = until.or(looked.map(Until::LookedAfter));
        match until {
            Some(Until::ReadAfter(since)) => self.shared.want_log_end_since(since),
            None if !joined => self.shared.want_log_end_since(now),
            // The fill may wait for a log-end probe.
            None if self.shared.wants_log_end_soon() => self.shared.want_log_end(),
            _ => {}
        }
        let since = self.waiting.since().unwrap_or(now);
        self.waiting.look = Some(Look { since, due, generation: self.waiting.generation, until, joined });
        true
    }

    /// When something must happen although no message arrives.
    fn due(&self) -> Option<Nanos> {
        let commit_wait = self
            .waiting
            .commit_wait
            .as_ref()
            .map(|wait| wait.since + self.shared.settings.commit_wait_max.load(Relaxed));
        let look = self.waiting.look.as_ref().map(|look| look.due);
        let fills = self.transaction.fills_due();
        [commit_wait, look, fills, self.waiting.batch.filter(|due| *due > 0)].into_iter().flatten().min()
    }

    /// Whether the awaited event has come, or the time for it is over.
    pub(crate) fn poll_waits(&mut self, cx: &mut Context<'_>) -> bool {
        // Asked twice for each hit, which waits for nothing.
        (!self.waiting.is_for_nothing() || self.transaction.has_fills()) && self.poll_due(cx)
    }

    #[inline(never)]
    fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.due() else {
            self.waiting.sleep = None;
            return false;
        };
        self.poll_until(due, cx)
    }

    fn poll_until(&mut self, due: Nanos, cx: &mut Context<'_>) -> bool {
        let left = Duration::from_nanos(due.saturating_sub(self.now()));
        let deadline = Instant::now() + left;
        let sleep = self.waiting.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        sleep.as_mut().reset(deadline);
        if left.is_zero() || sleep.as_mut().poll(cx).is_ready() {
            if self.waiting.look.take_if(|look| look.due <= due).is_some_and(|look| !look.joined) {
                self.waiting.patience.lose();
            }
            if let Some(batch) = self.waiting.batch.as_mut().filter(|batch| **batch <= due) {
                *batch = 0; // the client may not read what precedes it, and nothing can pass yet
            }
            return true;
        }
        if self.waiting.look.as_ref().is_some_and(|look| look.joined) {
            return !self.shared.cache.join(&self.key, cx.waker());
        }
        let wait_for = match (&self.waiting.commit_wait, &self.waiting.look) {
            (None, None) => return false,
            (Some(CommitWait { until, catalog: Some(since), .. }), _) if self.is_delivered(*until) => {
                Some(WaitFor::Catalog(*since))
            }
            (Some(commit_wait), _) => commit_wait.until.wait_for(),
            // It is unknown which position suffices: the session checks again at the next one.
            (None, Some(look)) => look.until.map_or(Some(WaitFor::Position(Lsn(0))), Until::wait_for),
        };
        let is_commit_wait = self.waiting.commit_wait.is_some();
        let wait = self.waiting.wait.get_or_insert_with(|| Wait::new(&self.shared.waits, is_commit_wait));
        if let Some(wait_for) = wait_for {
            wait.register(wait_for, cx.waker());
        }
        // An event before the registration has woken nobody.
        let moved = |look: &Look| match look.until {
            Some(until) => self.is_delivered(until),
            None => self.shared.waits.generation() != look.generation,
        };
        self.waiting.commit_wait.is_some_and(|held| self.is_delivered(held.until) && self.is_looked_at(held.catalog))
            || self.waiting.look.as_ref().is_some_and(moved)
    }
}
