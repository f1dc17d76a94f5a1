//! Server connections that sessions share: who has one, who waits for one, and which are idle.
//!
//! A pool has the connections of one database and user. Its groups are those that logged in alike, with the same start-up parameters, and on PostgreSQL
//! know the same names of settings of applications and have the same settings: a session takes idle connections of its own group, or such as can become
//! one of it. Where the limit is reached by those of other groups, one of them is closed to make a place.
//!
//! **Places.** A [`Lease`] is the right to have one connection. It counts from before the connection is opened until it is closed, so the limits hold
//! while connections are being opened, too. A lease that is dropped gives back what it has: its connection if nobody has taken that out, or its place.
//!
//! **The queue.** Who finds neither connection nor place waits. Connections and places go to who waits longest in the pool where one came free, but sessions
//! of the thread that gives a connection back may go a little ahead of others ([`queue`]). Where only
//! the limit over all pools holds sessions back, the pool with the fewest connections is first, and a pool with two more than another gives one up to
//! it, so no user keeps the others out. A waiter that vanishes leaves the queue. What was handed to it in the same moment goes to the next.
//!
//! **The reserve.** A pool has a few more places for those who have waited for a while. **The minimum.** As long as a pool has clients, idle connections
//! stay that it needs for its minimum, and a service opens those that are missing.
//!
//! The type of connections is the database family's. An idle connection belongs to no thread.

mod after;
mod figures;
mod group;
mod lease;
mod logins;
mod patience;
mod queue;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use rapidhash::quality::RandomState;
use tokio::time::{Instant, timeout};

use crate::pool::after::After;
use crate::pool::lease::{Generation, Terms};
use crate::pool::queue::{Queue, Queued, Waiter};

pub use crate::pool::figures::PoolFigures;
pub(crate) use crate::pool::group::Group;
pub(crate) use crate::pool::lease::Lease;
pub(crate) use crate::pool::logins::Logins;
pub(crate) use crate::pool::patience::Patience;
pub use crate::pool::settings::{LagMax, PoolMode, PoolSettings, ReplicaLimits};

/// Whose connections a pool has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) database: String,
    pub(crate) user: String,
}

impl PoolKey {
    /// Whether it is of this database; None: any.
    pub(crate) fn is_of(&self, database: Option<&str>) -> bool {
        database.is_none_or(|database| database == self.database)
    }
}

/// There was neither a connection nor a place for one in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitTimeout;

/// A connection that nobody uses.
#[derive(Debug)]
struct Idle<C> {
    terms: Terms,
    connection: C,
    since: Instant,
    /// The thread that gave it back, which goes on watching it: it takes it again at the lowest cost.
    thread: ThreadId,
}

#[derive(Debug)]
struct Pool<C> {
    /// Leases: connections in use, idle ones, and those that are being opened.
    open: usize,
    /// The one that was used last is last.
    idle: Vec<Idle<C>>,
    queue: Queue<C>,
    generation: Generation,
    /// Of earlier generations, whose connections are closed once their sessions give them back.
    earlier: Vec<Weak<()>>,
}

impl<C> Default for Pool<C> {
    fn default() -> Self {
        let (generation, earlier) = Default::default();
        Self { open: 0, idle: Vec::new(), queue: Queue::default(), generation, earlier }
    }
}

impl<C> Pool<C> {
    /// Whether the connection must not be used again.
    fn is_over(&self, terms: &Terms, settings: &PoolSettings) -> bool {
        settings.is_too_old(terms) || !terms.generation.is(&self.generation)
    }

    /// Takes the idle connection of this group that was used last, by this thread if possible, or else one that can become one of the group.
    fn take_idle(&mut self, group: &Group) -> Option<Idle<C>> {
        let of_group = self.last_idle(|idle| idle.terms.group == *group);
        let at = of_group.or_else(|| self.last_idle(|idle| idle.terms.group.suits(group)))?;
        Some(self.idle.remove(at))
    }

    /// The one of these that was used last, by this thread if possible.
    fn last_idle(&self, is_of: impl Fn(&Idle<C>) -> bool) -> Option<usize> {
        let here = thread::current().id();
        let of_thread = self.idle.iter().rposition(|idle| idle.thread == here && is_of(idle));
        of_thread.or_else(|| self.idle.iter().rposition(is_of))
    }
}

/// The state behind the lock.
#[derive(Debug)]
struct Inside<C> {
    pools: HashMap<Arc<PoolKey>, Pool<C>, RandomState>,
    /// Leases of all pools.
    open: usize,
    /// The number of the last waiter.
    last_ticket: u64,
}

impl<C> Default for Inside<C> {
    fn default() -> Self {
        Self { pools: HashMap::default(), open: 0, last_ticket: 0 }
    }
}

/// The pools of one `[[database]]`.
#[derive(Debug)]
pub(crate) struct Pools<C> {
    settings: PoolSettings,
    inside: Mutex<Inside<C>>,
    figures: Arc<PoolFigures>,
}

/// One pool, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) key: Arc<PoolKey>,
    /// Connections that sessions have, or that are being opened for them.
    pub(crate) in_use: usize,
    pub(crate) idle: usize,
    pub(crate) waiting: usize,
    /// How long the first in the queue has waited.
    pub(crate) longest_wait: Duration,
}

/// What a session gets at once, or else its place in the queue.
enum Asked<C> {
    Got(Lease<C>),
    Waits(Queued<C>),
}

impl<C> Pools<C> {
    pub(crate) fn new(settings: PoolSettings, figures: Arc<PoolFigures>) -> Self {
        Self { settings, inside: Mutex::default(), figures }
    }

    fn inside(&self) -> MutexGuard<'_, Inside<C>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, or a place for one, if there is one at once and nobody waits for it.
    pub(crate) fn try_check_out(self: &Arc<Self>, key: &Arc<PoolKey>, group: &Group) -> Option<Lease<C>> {
        let mut after = After::default();
        let got = self.take(&mut self.inside(), key, group, &mut after);
        if got.is_some() {
            self.figures.check_outs.fetch_add(1, Relaxed);
        }
        got
    }

    /// An idle connection of exactly this group, if there is one and nobody waits.
    pub(crate) fn try_check_out_same(self: &Arc<Self>, key: &Arc<PoolKey>, group: &Group) -> Option<Lease<C>> {
        let inside = &mut *self.inside();
        let pool = inside.pools.get_mut(key).filter(|pool| pool.queue.is_empty())?;
        let same = pool.last_idle(|idle| idle.terms.group == *group && !pool.is_over(&idle.terms, &self.settings))?;
        let Idle { terms, connection, .. } = pool.idle.remove(same);
        self.figures.check_outs.fetch_add(1, Relaxed);
        Some(Lease::of(self.clone(), key.clone(), terms, Some(connection)))
    }

    /// A connection was given the settings of a session.
    pub(crate) fn note_changed(&self) {
        self.figures.changed.fetch_add(1, Relaxed);
    }

    /// A connection, or a place for one; waits for it if need be. Dropping the future leaves the queue.
    pub(crate) async fn check_out(
        self: &Arc<Self>,
        key: &Arc<PoolKey>,
        group: &Group,
    ) -> Result<Lease<C>, WaitTimeout> {
        let queued = match self.ask(key, group) {
            Asked::Got(lease) => return Ok(lease),
            Asked::Waits(queued) => queued,
        };
        let since = Instant::now();
        let turn = self.turn(key, queued);
        let waited = match self.settings.wait_timeout {
            Some(limit) => timeout(limit, turn).await.ok().flatten(),
            None => turn.await,
        };
        self.figures.waits.fetch_add(1, Relaxed);
        self.figures.waited.fetch_add(since.elapsed().as_nanos() as u64, Relaxed);
        let counter = if waited.is_some() { &self.figures.check_outs } else { &self.figures.timeouts };
        counter.fetch_add(1, Relaxed);
        waited.ok_or(WaitTimeout)
    }

    /// Waits for its turn. After a while the pool's reserve is opened for those who wait.
    async fn turn(self: &Arc<Self>, key: &Arc<PoolKey>, queued: Queued<C>) -> Option<Lease<C>> {
        let mut turn = std::pin::pin!(queued.turn());
        if let Some(reserve_timeout) = self.settings.reserve_timeout.filter(|_| self.settings.reserve > 0) {
            if let Ok(lease) = timeout(reserve_timeout, &mut turn).await {
                return lease;
            }
            self.open_reserve(key);
        }
        turn.await
    }

    /// Somebody has waited for long in this pool.
    fn open_reserve(self: &Arc<Self>, key: &Arc<PoolKey>) {
        let mut after = After::default();
        let inside = &mut *self.inside();
        let is_short = |pool: &Pool<C>| !pool.queue.is_empty() && pool.open < self.most(pool);
        if inside.pools.get(key).is_some_and(is_short) && self.make_place(inside, key, &mut after) {
            self.serve_place(inside, key, &mut after);
        }
    }

    /// The most connections that a pool may have now.
    fn most(&self, pool: &Pool<C>) -> usize {
        let PoolSettings { size, reserve, reserve_timeout, .. } = self.settings;
        let is_late = reserve_timeout.is_some_and(|after| pool.queue.longest_wait() >= after);
        if is_late { size + reserve } else { size }
    }

    fn ask(self: &Arc<Self>, key: &Arc<PoolKey>, group: &Group) -> Asked<C> {
        let mut after = After::default();
        let inside = &mut *self.inside();
        if let Some(lease) = self.take(inside, key, group, &mut after) {
            self.figures.check_outs.fetch_add(1, Relaxed);
            return Asked::Got(lease);
        }
        inside.last_ticket += 1;
        let ticket = inside.last_ticket;
        let pool = inside.pools.entry(key.clone()).or_default();
        let receiver = pool.queue.join(ticket, group.clone());
        Asked::Waits(Queued::new(self.clone(), key.clone(), ticket, receiver))
    }

    /// What there is without waiting, for somebody behind whom nobody waits.
    fn take(
        self: &Arc<Self>,
        inside: &mut Inside<C>,
        key: &Arc<PoolKey>,
        group: &Group,
        after: &mut After<C>,
    ) -> Option<Lease<C>> {
        let pool = inside.pools.entry(key.clone()).or_default();
        if !pool.queue.is_empty() {
            return None;
        }
        while let Some(Idle { terms, connection, .. }) = pool.take_idle(group) {
            if !pool.is_over(&terms, &self.settings) {
                return Some(Lease::of(self.clone(), key.clone(), terms, Some(connection)));
            }
            after.closed.push(connection);
            pool.open -= 1;
            inside.open -= 1;
        }
        self.make_place(inside, key, after).then(|| {
            let generation = inside.pools.get(key).map(|pool| pool.generation.clone()).unwrap_or_default();
            self.place(key, Terms::new(group.clone(), generation))
        })
    }

    fn place(self: &Arc<Self>, key: &Arc<PoolKey>, terms: Terms) -> Lease<C> {
        Lease::of(self.clone(), key.clone(), terms, None)
    }

    /// That of a new connection.
    fn generation(&self, key: &PoolKey) -> Generation {
        self.inside().pools.get(key).map(|pool| pool.generation.clone()).unwrap_or_default()
    }

    /// Counts one more connection of this pool; false: no limit allows it, not even if an idle one is closed.
    fn make_place(&self, inside: &mut Inside<C>, key: &Arc<PoolKey>, after: &mut After<C>) -> bool {
        let Inside { pools, open, .. } = inside;
        let pool = pools.entry(key.clone()).or_default();
        let is_full = pool.open >= self.most(pool);
        if is_full || self.settings.size_in_all.is_some_and(|most| *open >= most) {
            // The one that is idle longest: of this pool, of another group; or of any pool.
            let of = pools.iter_mut().filter(|(other, pool)| !pool.idle.is_empty() && (!is_full || *other == key));
            let oldest = of.min_by_key(|(_, pool)| pool.idle.first().map(|idle| idle.since));
            let Some((_, other)) = oldest else { return false };
            after.closed.push(other.idle.remove(0).connection);
            other.open -= 1;
            *open -= 1;
        }
        pools.entry(key.clone()).or_default().open += 1;
        *open += 1;
        true
    }

    /// A connection can be used again: for who waits for one of its group, or else it is idle.
    fn came_back(self: &Arc<Self>, key: &Arc<PoolKey>, terms: Terms, connection: C) {
        let mut after = After::default();
        let inside = &mut *self.inside();
        let gives_way = self.settings.size_in_all.is_some() && self.gives_way(inside, key);
        let Some(pool) = inside.pools.get_mut(key) else { return };
        let next = pool.queue.next(&terms.group);
        let is_wanted = next.is_none_or(|(_, group)| terms.group.suits(group));
        if gives_way || !is_wanted || pool.is_over(&terms, &self.settings) {
            after.closed.push(connection);
            return self.place_came_free(inside, key, &mut after);
        }
        let next = next.map(|(at, _)| at);
        if let Some(Waiter { turn, .. }) = next.and_then(|at| pool.queue.take_out(at)) {
            after.served.push((turn, Lease::of(self.clone(), key.clone(), terms, Some(connection))));
        } else {
            let thread = thread::current().id();
            pool.idle.push(Idle { terms, connection, since: Instant::now(), thread });
            self.serve_others(inside, &mut after);
        }
    }

    /// Whether a pool whose sessions wait must close a connection all the same: only the limit over all pools holds back those who wait in another, and
    /// that one has much less.
    fn gives_way(&self, inside: &Inside<C>, key: &Arc<PoolKey>) -> bool {
        let is_full = self.settings.size_in_all.is_some_and(|most| inside.open >= most);
        let Some(pool) = inside.pools.get(key).filter(|pool| is_full && !pool.queue.is_empty()) else { return false };
        inside.pools.iter().filter(|(other, pool)| *other != key && !pool.queue.is_empty()).any(|(_, other)| {
            let is_before = other.open == 0 && other.queue.first_ticket() < pool.queue.first_ticket();
            (is_before || other.open + 1 < pool.open) && other.open < self.most(other)
        })
    }

    /// A connection has been closed, or could not be opened.
    fn was_closed(self: &Arc<Self>, key: &Arc<PoolKey>) {
        let mut after = After::default();
        self.place_came_free(&mut self.inside(), key, &mut after);
    }

    /// A place of this pool is free.
    fn place_came_free(self: &Arc<Self>, inside: &mut Inside<C>, key: &Arc<PoolKey>, after: &mut After<C>) {
        let Some(pool) = inside.pools.get_mut(key) else { return };
        pool.open -= 1;
        inside.open -= 1;
        if self.settings.size_in_all.is_some() {
            return self.serve_others(inside, after);
        }
        if inside.pools.get(key).is_some_and(|pool| !pool.queue.is_empty() && pool.open < self.most(pool))
            && self.make_place(inside, key, after)
        {
            self.serve_place(inside, key, after);
        }
    }

    /// Hands a place that is counted to who waits first in this pool.
    fn serve_place(self: &Arc<Self>, inside: &mut Inside<C>, key: &Arc<PoolKey>, after: &mut After<C>) {
        if let Some(pool) = inside.pools.get_mut(key)
            && let Some(Waiter { group, turn, .. }) = pool.queue.take_out(0)
        {
            let terms = Terms::new(group, pool.generation.clone());
            after.served.push((turn, self.place(key, terms)));
        }
    }

    /// Gives places that are free under the limit over all pools to those who wait, in the pool with the fewest connections first.
    fn serve_others(self: &Arc<Self>, inside: &mut Inside<C>, after: &mut After<C>) {
        while self.settings.size_in_all.is_some() {
            let waits = |pool: &Pool<C>| !pool.queue.is_empty() && pool.open < self.most(pool);
            let poorest = inside.pools.iter().filter(|(_, pool)| waits(pool));
            let poorest = poorest.min_by_key(|(_, pool)| (pool.open, pool.queue.first_ticket()));
            let Some(key) = poorest.map(|(key, _)| key.clone()) else { return };
            if !self.make_place(inside, &key, after) {
                return;
            }
            self.serve_place(inside, &key, after);
        }
    }

    // --- in the course of time --------------------------------------------------------------------------------

    /// A place for a connection that a pool lacks for its minimum.
    pub(crate) fn place_below_minimum(self: &Arc<Self>, key: &Arc<PoolKey>, group: &Group) -> Option<Lease<C>> {
        let PoolSettings { min, size, size_in_all, .. } = self.settings;
        let inside = &mut *self.inside();
        if size_in_all.is_some_and(|most| inside.open >= most) {
            return None;
        }
        let pool = inside.pools.entry(key.clone()).or_default();
        if pool.open >= min.min(size) {
            return None;
        }
        pool.open += 1;
        inside.open += 1;
        Some(self.place(key, Terms::new(group.clone(), pool.generation.clone())))
    }

    /// Closes idle connections whose time is over: called from time to time. `has_clients`: whether any client of the pool is connected, for the minimum.
    pub(crate) fn close_expired(self: &Arc<Self>, has_clients: impl Fn(&PoolKey) -> bool) {
        let settings = &self.settings;
        let mut after = After::default();
        let inside = &mut *self.inside();
        let Inside { pools, open, .. } = inside;
        for (key, pool) in pools.iter_mut() {
            let min = if has_clients(key) { settings.min } else { 0 };
            let mut left = pool.open;
            let generation = pool.generation.clone();
            let goes = |idle: &mut Idle<C>| {
                let is_unused = settings.idle_timeout.is_some_and(|limit| idle.since.elapsed() >= limit);
                let is_over = settings.is_too_old(&idle.terms) || !idle.terms.generation.is(&generation);
                let goes = is_unused && left > min || is_over;
                left -= usize::from(goes);
                goes
            };
            after.closed.extend(pool.idle.extract_if(.., goes).map(|idle| idle.connection));
            *open -= pool.open - left;
            pool.open = left;
        }
        inside.pools.retain(|_, pool| pool.open > 0 || !pool.queue.is_empty());
        self.serve_others(inside, &mut after);
    }

    pub(crate) fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Closes the connections to this database, or all: the idle ones at once, the others when their sessions give them back.
    pub(crate) fn reconnect(self: &Arc<Self>, database: Option<&str>) {
        self.replace(|key| key.is_of(database));
    }

    /// The same of these pools.
    pub(crate) fn replace(self: &Arc<Self>, which: impl Fn(&PoolKey) -> bool) {
        {
            let pools = &mut self.inside().pools;
            for (_, pool) in pools.iter_mut().filter(|(key, _)| which(key)) {
                let before = std::mem::take(&mut pool.generation);
                pool.earlier.retain(|earlier| earlier.strong_count() > 0);
                pool.earlier.push(before.downgrade());
            }
        }
        self.close_expired(|_| true);
    }

    /// Whether sessions still have connections from before the last [`Self::reconnect`].
    pub(crate) fn has_earlier(&self, database: Option<&str>) -> bool {
        let is_open = |pool: &Pool<C>| pool.earlier.iter().any(|earlier| earlier.strong_count() > 0);
        self.inside().pools.iter().any(|(key, pool)| key.is_of(database) && is_open(pool))
    }

    /// Connections in use, of all pools.
    pub(crate) fn in_use(&self) -> usize {
        let inside = self.inside();
        inside.open - inside.pools.values().map(|pool| pool.idle.len()).sum::<usize>()
    }

    /// Whether anybody waits for a connection.
    pub(crate) fn are_wanted(&self) -> bool {
        self.inside().pools.values().any(|pool| !pool.queue.is_empty())
    }

    /// All pools, by database and user.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let inside = self.inside();
        let show = |(key, pool): (&Arc<PoolKey>, &Pool<C>)| Shown {
            key: key.clone(),
            in_use: pool.open - pool.idle.len(),
            idle: pool.idle.len(),
            waiting: pool.queue.len(),
            longest_wait: pool.queue.longest_wait(),
        };
        let mut all: Vec<Shown> = inside.pools.iter().map(show).collect();
        drop(inside);
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }
}
