//! Which servers may answer a read, and what must be known of them before and after.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, MutexGuard, PoisonError};

use freshet_types::{End, Epoch, Nanos};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::pool::ReplicaLimits;
use crate::shared::servers::reading::{Trouble, Who};
use crate::shared::servers::route::{Chosen, Load, Obstacle, ServerView};
use crate::shared::servers::settled::{Ids, Settled};
use crate::shared::servers::{Found, Inside, ReadFigures, Role, Servers, Watched};
use crate::shared::{ServerIdentity, Shared};

impl Servers {
    /// A write is about to be acknowledged without a commit wait: replicas may lack it, and nobody knows where it ends.
    pub(crate) fn note_written(&self, now: Nanos) {
        self.written_since.fetch_max(now, SeqCst);
    }

    /// When that was the case last; 0 if never.
    pub(crate) fn written_since(&self) -> Nanos {
        self.written_since.load(SeqCst)
    }

    /// The servers as a read sees them. `stream`: the server of the change stream. `who`: whose read it is.
    pub(crate) fn views(&self, stream: &ServerIdentity, who: &Who, limits: &ReplicaLimits) -> Vec<ServerView> {
        let inside = self.inside();
        let primary = inside.primary(stream).and_then(|at| inside.list.get(at)?.found.as_deref());
        let view = |(at, server): (usize, &Watched)| ServerView {
            at,
            obstacle: server.obstacle(stream, primary, limits).or_else(|| server.obstacle_for(who)),
            found: server.found.clone(),
            load: server.load(),
        };
        inside.list.iter().enumerate().map(view).collect()
    }

    /// The primary's load by reads that could go to replicas. `in_use`: its connections in use.
    pub(crate) fn load_of_primary(&self, stream: &ServerIdentity, in_use: usize, weight: u32) -> Option<Load> {
        let inside = self.inside();
        let turns = inside.list.get(inside.primary(stream)?)?.reading.turns();
        Some(Load { in_use, turns, weight })
    }

    /// A read that could go to a replica goes to the primary by its weight.
    pub(crate) fn note_primary(&self, stream: &ServerIdentity) {
        let inside = &mut *self.inside();
        if let Some(server) = inside.primary(stream).and_then(|at| inside.list.get_mut(at)) {
            server.reading.note_primary();
        }
    }

    /// The primary has answered a question that was sent at this time. Without `ids`: it told none.
    pub(crate) fn note_end(&self, end: End, ids: Option<Ids>, asked_at: Nanos) {
        let mut settled = self.settled();
        settled.note_end(end, asked_at);
        if let Some(ids) = ids {
            settled.note_ids(ids, asked_at);
        }
    }

    /// See [`freshet_cache::Cache::visible_end`].
    pub(crate) fn note_visible(&self, visible: Option<(End, bool)>, now: Nanos) {
        if let Some((end, has_unproven)) = visible {
            self.settled().note_visible(end, has_unproven, now);
        }
        self.settlements.notify_waiters();
    }

    /// Returns when [`Self::note_visible`] is called after this call.
    pub(crate) fn next_settlement(&self) -> Notified<'_> {
        self.settlements.notified()
    }

    /// Whether everything that replicas of this primary had shown in this epoch by this time is visible there.
    pub(crate) fn has_settled(&self, epoch: Epoch, since: Nanos, primary: Option<&ServerIdentity>) -> bool {
        self.settled().covers(epoch, since, primary.map(|primary| primary.postmaster_start.as_str()))
    }

    /// Whether a commit in the log does not become visible at the primary: replicas might show it.
    pub(crate) fn is_stuck(&self, now: Nanos) -> bool {
        self.settled().is_stuck(now)
    }

    fn settled(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notified when the server must be asked at once.
    pub(crate) fn wanted(&self, at: usize) -> Option<Arc<Notify>> {
        self.inside().list.get(at).map(|server| server.reading.wanted().clone())
    }

    /// Asks the server at once.
    pub(crate) fn want(&self, at: usize) {
        if let Some(wanted) = self.wanted(at) {
            wanted.notify_one();
        }
    }

    /// Returns when a server has answered, or has not, after this call.
    pub(crate) fn next_answer(&self) -> Notified<'_> {
        self.answers.notified()
    }

    /// The answer to a question that was sent to the server at this time or later; None: there is none yet. Err: it does not answer.
    pub(crate) fn answer_since(&self, at: usize, since: Nanos) -> Result<Option<Arc<Found>>, ()> {
        let inside = self.inside();
        let server = inside.list.get(at).ok_or(())?;
        if server.trouble.is_some() || server.reading.is_late() {
            return Err(());
        }
        Ok(server.found.clone().filter(|_| server.reading.asked_at() >= since))
    }

    /// The server does not answer a question in the time that reads have.
    pub(crate) fn note_late(&self, at: usize) {
        if let Some(server) = self.inside().list.get_mut(at) {
            server.reading.note_late();
        }
        self.changes.notify_waiters();
        self.answers.notify_waiters();
    }

    /// Returns when a server is no longer what it was, after this call.
    pub(crate) fn next_change(&self) -> Notified<'_> {
        self.changes.notified()
    }

    /// The server could have answered a read, but had not replayed enough.
    pub(crate) fn note_behind(&self, at: usize) {
        if let Some(server) = self.inside().list.get_mut(at) {
            server.reading.note_behind();
        }
    }

    /// The addresses of all servers, and whether each answers and is not left out.
    pub fn are_up(&self) -> Vec<(String, bool)> {
        let is_up = |server: &Watched| server.found.is_some() && server.trouble.is_none() && server.left_out.is_none();
        self.inside().list.iter().map(|server| (server.address.clone(), is_up(server))).collect()
    }

    /// The addresses of all servers with their figures.
    pub fn read_figures(&self) -> Vec<(String, ReadFigures)> {
        self.inside().list.iter().map(|server| (server.address.clone(), server.reading.figures())).collect()
    }
}

impl Inside {
    /// Where the primary is that is the server of this stream.
    fn primary(&self, stream: &ServerIdentity) -> Option<usize> {
        let is_primary = |found: &Arc<Found>| found.role == Role::Primary && found.is_of(stream);
        self.list.iter().position(|server| server.found.as_ref().is_some_and(is_primary))
    }
}

impl Watched {
    fn load(&self) -> Load {
        let Self { reading, weight, .. } = self;
        Load { in_use: reading.in_use(), turns: reading.turns(), weight: *weight }
    }

    /// Why it must not answer this login's reads, although it may answer others'.
    fn obstacle_for(&self, who: &Who) -> Option<Obstacle> {
        self.reading.is_paused(who).then_some(Obstacle::Paused)
    }

    /// Why it must not answer reads.
    fn obstacle(&self, stream: &ServerIdentity, primary: Option<&Found>, limits: &ReplicaLimits) -> Option<Obstacle> {
        let timeline = primary.and_then(|primary| primary.timeline);
        let Some(found) = &self.found else { return Some(Obstacle::Unknown) };
        if self.trouble.is_some() || self.reading.is_late() {
            Some(Obstacle::Down)
        } else if found.role != Role::Standby {
            Some(Obstacle::Primary)
        } else if self.left_out.is_some() || found.system_id != stream.system_id {
            Some(Obstacle::LeftOut)
        } else if timeline.is_none() || found.timeline != timeline {
            Some(Obstacle::Timeline)
        } else if self.weight == 0 {
            Some(Obstacle::Weight)
        } else if found.lags_beyond(limits, primary.and_then(|primary| primary.position)) {
            Some(Obstacle::Lag)
        } else {
            None
        }
    }
}

impl Found {
    /// Whether the server is the same standby, on the same timeline, with the same configuration.
    pub(crate) fn goes_on_as(&self, before: &Self) -> bool {
        self.role == Role::Standby
            && (&self.system_id, &self.postmaster_start) == (&before.system_id, &before.postmaster_start)
            && (self.timeline, &self.configuration) == (before.timeline, &before.configuration)
    }
}

/// A read at a server, counted while it lasts.
pub(crate) struct InUse {
    shared: Arc<Shared>,
    pub(crate) at: usize,
    who: Who,
    /// See [`Chosen`].
    lags: bool,
    has_ended: bool,
}

impl InUse {
    pub(crate) fn begin(shared: &Arc<Shared>, chosen: &Chosen, who: &Who) -> Self {
        let Chosen { at, lags, .. } = *chosen;
        if let Some(server) = shared.servers.inside().list.get_mut(at) {
            server.reading.begin();
        }
        Self { shared: shared.clone(), at, who: who.clone(), lags, has_ended: false }
    }

    /// The server has done its part: what is asked behind the answer is no load.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true)
            && let Some(server) = self.shared.servers.inside().list.get_mut(self.at)
        {
            server.reading.end();
        }
    }

    pub(crate) fn note_answered(&self) {
        if let Some(server) = self.shared.servers.inside().list.get_mut(self.at) {
            server.reading.note_answered(&self.who, self.lags);
        }
    }

    /// A read is run again. Returns whether its login is left out there from now on.
    pub(crate) fn note_run_again(&self, trouble: Option<Trouble>) -> bool {
        let mut inside = self.shared.servers.inside();
        inside.list.get_mut(self.at).is_some_and(|server| server.reading.note_run_again(trouble, &self.who))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.end();
    }
}
