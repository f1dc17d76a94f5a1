//! Waiting for the change stream: held acknowledgements, and look-ups just ahead of it.
//!
//! **Acknowledgements.** Once the client has read `ReadyForQuery` after a write, no reader anywhere may be served an
//! older state. So `ReadyForQuery` is held until the stream has passed a log end that was asked for behind the
//! write: usually within a fraction of a millisecond, since the stream hears of a commit before the client does. If that takes
//! too long, a fence is set first, and then the client is told: hits wait instead of the writer. As long as the stream then
//! does not move at all, it is set at once. What touched only tables on which nothing rests is not held ([`super::waits_skipped`]).
//!
//! The fence is set at once behind `COPY … TO STDOUT`, which hardly ever writes. The server sends its `ReadyForQuery`
//! together with the end of the data, and there are clients that rely on it: `postgres` for Node reads no more once its
//! stream is full and has ended, so that it would never see a `ReadyForQuery` that comes later.
//!
//! **Batches.** Messages of the extended protocol that are there wait a moment for the rest of their batch ([`super::batch`]).
//!
//! **Look-ups.** A session that has just read from the database may find an entry that is not yet known to be as new.
//! The position that tells is usually on its way, and waiting for it costs less than asking the database; but not
//! for much longer than the database takes, and ever less often as long as waiting does not help ([`Patience`]). A look-up
//! that misses while another session fills the same key waits for that fill likewise, and begins anew.

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
use crate::session::wait_queue::{Patience, Wait, WaitFor};

/// What an acknowledgement waits for.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// The log end has been asked for on the same connection.
    Asked,
    /// The stream is to pass this.
    Passed(End),
    /// The stream is to pass a log end that is asked for later than this.
    ReadAfter(Nanos),
    /// The catalogue is to be looked at later than this.
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

/// A `ReadyForQuery` that is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    until: Until,
    /// A look at the catalogue is to be taken in, too, that was asked for then or later.
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
    /// What it waits for, where that is known.
    until: Option<Until>,
    /// It waits for another session's fill of the same key.
    joined: bool,
}

/// What the session waits for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    held: Option<Held>,
    look: Option<Look>,
    /// Whole messages at the start of the input wait for the rest of their batch until then; 0: no longer.
    batch: Option<Nanos>,
    /// [`crate::session::wait_queue::Waits::generation`] before the last look-up.
    pub(crate) generation: u64,
    patience: Patience,
    wait: Option<Wait>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    /// The client has not been told that its write is done.
    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// A message of the client's waits to be looked up again.
    pub(crate) fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    /// A look-up was spared the way to the database, or none would have helped.
    pub(crate) fn found(&mut self) {
        self.patience.gain();
    }

    /// Since when the look-up waits, if it does.
    pub(crate) fn since(&self) -> Option<Nanos> {
        self.look.as_ref().map(|look| look.since)
    }

    /// The client's message has been dealt with.
    pub(crate) fn looked(&mut self) {
        self.look = None;
        self.batch = None;
        if self.held.is_none() {
            self.wait = None;
        }
    }
}

impl Session {
    /// Nothing is under way on the upstream's connection, and no message is half sent: it can be asked something.
    pub(crate) fn is_at_rest(&self) -> bool {
        let sending = self.client.is_within_message() || self.client.passes_batch();
        self.is_between_transactions() && self.pipeline.is_empty() && !sending && self.client.is_open()
    }

    /// The batch at the start of the input is not complete: whether its rest is still waited for. `whole`: one message of it is.
    pub(crate) fn wait_for_rest(&mut self, whole: bool) -> bool {
        if !whole {
            return true;
        }
        let now = self.now();
        now < *self.waiting.batch.get_or_insert(now + batch::PATIENCE)
    }

    /// A transaction that wrote has ended, and its `ReadyForQuery` is here: whether to hold it.
    ///
    /// `copied_out`: it comes behind COPY data. `touched`: what it may have written to. `redefined`: definitions, too, of which the stream does
    /// not tell.
    pub(crate) fn hold(&mut self, copied_out: bool, touched: &Touched, redefined: bool) -> bool {
        let settings = &self.shared.settings;
        if settings.faults.skip_hold {
            return false;
        }
        // What is read after the start of an epoch sees the write, and nothing older is served.
        if self.shared.cache.epoch().is_none() {
            if redefined {
                self.fence_catalog();
            }
            return false;
        }
        let server = self.server.compare(&self.shared);
        // Roles are those of all databases.
        if matches!(server, Some(Err(Reason::OtherDatabase))) && !redefined {
            return false;
        }
        if self.check_free(touched) {
            self.shared.waits.waits_skipped.fetch_add(1, Relaxed);
            self.server.settings.is_used = true; // it needs to know its context, as who reads does
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
                self.ask_context(); // the next write can then ask for its own log end
            }
            self.shared.want_log_end();
            Until::ReadAfter(now)
        };
        self.waiting.wait = None;
        self.waiting.held = Some(Held { until, catalog: redefined.then_some(now), since: now });
        true
    }

    /// The log end that was asked for behind a held acknowledgement; None if it could not be read.
    ///
    /// `asynchronous`: the session does not wait for its log to be flushed, and what is not flushed is not delivered. Holding
    /// it would cost what it set out to save.
    pub(crate) fn held_end_known(&mut self, lsn: Option<Lsn>, asynchronous: bool) {
        let now = self.now();
        let end = lsn.zip(self.shared.cache.epoch()).map(|(lsn, epoch)| End { epoch, lsn });
        if let Some(Held { until: until @ Until::Asked, since, .. }) = &mut self.waiting.held {
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

    /// Tells the client that its write is done, if the stream has delivered it, or must not be waited for any longer.
    pub(crate) fn release_held(&mut self) -> bool {
        let Some(Held { until, catalog, since }) = self.waiting.held else { return false };
        let (delivered, looked, now) = (self.is_delivered(until), self.is_looked_at(catalog), self.shared.clock.now());
        if !delivered || !looked {
            let applied = self.shared.cache.applied();
            let over = now.saturating_sub(since) >= self.shared.settings.hold_max.load(Relaxed);
            let stalled = !delivered && self.shared.waits.is_stalled(applied);
            if !over && !self.server.has_ended() && !stalled {
                return false;
            }
            if over && since > 0 && !delivered {
                self.shared.waits.held_in_vain(applied);
            }
            if !looked {
                self.fence_catalog();
            }
            if delivered {
                self.shared.waits.fences.fetch_add(1, Relaxed);
            } else {
                self.fence(until, now);
            }
            // What was defined before the write is not delivered, either: a new trigger, say.
            self.settings_may_change();
            self.server.settings.is_used = true; // what it was last told is forgotten: it asks again, as who reads does
        }
        self.waiting.held = None;
        self.waiting.wait = None;
        self.end_defining();
        let held = if since == 0 { 0 } else { now.saturating_sub(since) };
        if catalog.is_some() {
            self.shared.waits.looked_for(held);
        } else {
            self.shared.waits.held_for(held);
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

    /// Hits wait instead of the writer.
    fn fence(&self, until: Until, now: Nanos) {
        match until {
            Until::Passed(end) => self.shared.cache.fence(None, end),
            Until::Asked | Until::ReadAfter(_) | Until::LookedAfter(_) => self.shared.cache.fence_since(now),
        }
        self.shared.waits.fences.fetch_add(1, Relaxed);
        self.shared.want_log_end();
    }

    /// The log end is about to come on this connection, and nothing else.
    fn is_only_end_owed(&self) -> bool {
        let (first, second) = (self.pipeline.front(), self.pipeline.second());
        matches!((first, second), (Some(Unit::Own { ask, .. }), None) if ask.tells_end())
    }

    /// A look-up must bypass for this reason: begins to wait for a position, or for the fill under way. False if that is not worth it.
    pub(crate) fn arm_wait(&mut self, reason: &Reason) -> bool {
        let joined = *reason == Reason::FillInFlight && !self.takes_snapshot();
        let comes = joined || matches!(reason, Reason::Watermark | Reason::NotYetApplied | Reason::Fence);
        if comes && !joined && self.is_only_end_owed() {
            // What would pass is answered behind it.
            return true;
        }
        if !comes || !self.is_idle() {
            return false;
        }
        let now = self.now();
        let due = match &self.waiting.look {
            look if joined => match self.shared.cache.joinable_until(&self.key, now) {
                // One fill is waited for, not one after the other.
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
        // What has come does not help: the watermark may lack something else.
        let until = until.filter(|until| !self.is_delivered(*until));
        let looked = (*reason == Reason::Watermark && self.lacks_look()).then_some(self.watermark.get().catalog_since);
        let until = until.or(looked.map(Until::LookedAfter));
        match until {
            Some(Until::ReadAfter(since)) => self.shared.want_log_end_since(since),
            None if !joined => self.shared.want_log_end_since(now),
            // The fill may wait for one.
            None if self.shared.wants_log_end_soon() => self.shared.want_log_end(),
            _ => {}
        }
        let since = self.waiting.since().unwrap_or(now);
        self.waiting.look = Some(Look { since, due, generation: self.waiting.generation, until, joined });
        true
    }

    /// When something has to happen although nothing comes.
    fn due(&self) -> Option<Nanos> {
        let held = self.waiting.held.as_ref().map(|held| held.since + self.shared.settings.hold_max.load(Relaxed));
        let look = self.waiting.look.as_ref().map(|look| look.due);
        let fills = self.transaction.fills_due();
        [held, look, fills, self.waiting.batch.filter(|due| *due > 0)].into_iter().flatten().min()
    }

    /// Whether what is waited for has come, or has become due.
    pub(crate) fn poll_waits(&mut self, cx: &mut Context<'_>) -> bool {
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
                *batch = 0; // the client may not take what comes before, and nothing can pass yet
            }
            return true;
        }
        if self.waiting.look.as_ref().is_some_and(|look| look.joined) {
            return !self.shared.cache.join(&self.key, cx.waker());
        }
        let wait_for = match (&self.waiting.held, &self.waiting.look) {
            (None, None) => return false,
            (Some(Held { until, catalog: Some(since), .. }), _) if self.is_delivered(*until) => {
                Some(WaitFor::Catalog(*since))
            }
            (Some(held), _) => held.until.wait_for(),
            // It is not known which position will do: the next one is looked at.
            (None, Some(look)) => look.until.map_or(Some(WaitFor::Position(Lsn(0))), Until::wait_for),
        };
        let hold = self.waiting.held.is_some();
        let wait = self.waiting.wait.get_or_insert_with(|| Wait::new(&self.shared.waits, hold));
        if let Some(wait_for) = wait_for {
            wait.register(wait_for, cx.waker());
        }
        // What came before the registration has woken nobody.
        let moved = |look: &Look| match look.until {
            Some(until) => self.is_delivered(until),
            None => self.shared.waits.generation() != look.generation,
        };
        self.waiting.held.is_some_and(|held| self.is_delivered(held.until) && self.is_looked_at(held.catalog))
            || self.waiting.look.as_ref().is_some_and(moved)
    }
}
