//! The right to cache a result, and its way into an installed entry.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_types::{Lsn, NamedRows, Nanos, Reason, TableId, Tag, Visible};

use crate::Cache;
use crate::entry::{Entry, Origin, Payload};
use crate::flight::{Begun, Deferred, Ending};

/// What became of a fill's result.
#[derive(Debug)]
pub enum Installed<P> {
    /// It is cached.
    Stored {
        /// The new entry.
        entry: Arc<Entry<P>>,
        /// The entry that it replaced. No matching commit lies between the two, so both hold the same answer.
        replaced: Option<Arc<Entry<P>>>,
    },
    /// A matching commit is not proven to be in the result, or the epoch, publication or catalogue changed.
    Stale,
    /// It is larger than an entry may be.
    TooLarge,
    /// The eviction policy refuses it: the entries that it would replace are worth more.
    Rejected,
}

/// The right to install one result. Dropping it abandons the fill.
#[derive(Debug)]
pub struct FillPermit<P: Payload> {
    cache: Arc<Cache<P>>,
    begun: Begun,
    started: Nanos,
    deferred: Option<Box<Deferred>>,
    ended: bool,
    /// Bytes reserved for the result while it is read.
    reserved: u64,
    catalog_since: Nanos,
    /// See [`Cache::begin_fill_until`].
    until: Option<Nanos>,
}

impl<P: Payload> FillPermit<P> {
    /// Results up to this size need no reservation.
    const FREE_BYTES: u64 = 16 << 10;

    pub(crate) fn new(cache: Arc<Cache<P>>, begun: Begun, started: Nanos) -> Self {
        Self { cache, begun, started, deferred: None, ended: false, reserved: 0, catalog_since: 0, until: None }
    }

    /// The result is served until this time.
    pub(crate) fn lasting(mut self, until: Nanos) -> Self {
        self.until = Some(until);
        self
    }

    /// The result has been read and may show a redefinition that no check of the catalogue has found. The entry is
    /// served only after a check that was requested at `now` or later.
    pub fn note_possible_definition(&mut self, now: Nanos) {
        self.catalog_since = now;
    }

    /// The result cannot be cached without a proof: a delivered commit that matters is not proven visible.
    pub fn needs_proof(&self) -> bool {
        self.begun.needs_proof
    }

    /// The same, or this may turn out once the deferred tags are known: a delivered commit changed their tables.
    pub fn may_need_proof(&self) -> bool {
        self.begun.may_need_proof
    }

    /// Whether the proof shows all that the result needs, as far as that is known before its deferred tags. If not,
    /// the result will hardly be cached.
    pub fn is_shown(&self, proof: &Visible) -> bool {
        self.cache.core().is_shown(self.begun.id, proof)
    }

    /// Some of its tags are [`RowSet::Later`](freshet_types::RowSet), and no earlier entry of the key left them:
    /// [`Self::set_deferred`] must precede [`Self::commit`].
    pub fn wants_deferred(&self) -> bool {
        self.begun.wants_deferred
    }

    /// Sets the deferred tags, as read by a query that was sent after the fill began. `led_by` has the tables whose
    /// rows determined them: only a changed row of these tables can change the tags. None if other things can, too.
    /// As long as no such row changes, later fills of the key begin with these tags.
    pub fn set_deferred(&mut self, tags: Vec<Tag>, led_by: Option<Arc<[TableId]>>) {
        self.deferred = Some(Deferred { tags, led_by, named: [].into(), until_known: None }.into());
    }

    /// Sets deferred tags that name, by their keys, the rows that may leave the result. A second query reads these
    /// rows after the result. It cannot tell which rows left in between. Until the stream has passed a log end that
    /// was read after the second query, commits are checked against `until_known`, and nothing is cached
    /// ([`Self::may_commit`]).
    ///
    /// A row that neither query read is no row of the result when it leaves. A row that left between the two queries
    /// is hit by `until_known`: whatever the second query shows has been delivered by then and must be in the proof.
    /// A row that leaves later was named by the second query, or came after it with a change that hits the tags.
    ///
    /// `led_by` is that of [`Self::set_deferred`]. If it is known, `named` says which rows the tags name, and rows
    /// that come later are named, too.
    pub fn set_members(
        &mut self,
        tags: Vec<Tag>,
        until_known: Vec<Tag>,
        led_by: Option<Arc<[TableId]>>,
        named: Arc<[NamedRows]>,
    ) {
        let until_known = if self.cache.faults.trust_members { tags.clone() } else { until_known };
        self.deferred = Some(Deferred { tags, led_by, named, until_known: Some(until_known) }.into());
    }

    /// Whether [`Self::set_members`] was called.
    pub fn knows_members(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| deferred.until_known.is_some())
    }

    /// Whether the result may be cached now. `read_end` was read after the result and after everything its tags were
    /// read from. If not, it may be cached once the stream has passed `read_end`.
    pub fn may_commit(&self, read_end: Lsn) -> bool {
        !self.knows_members() || self.cache.faults.install_early || self.cache.applied() >= read_end
    }

    /// Whether the deferred tags are set.
    pub fn knows_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    /// Reserves memory as the result grows to this size while it is read. Fails if the result exceeds the limit for
    /// one entry, or if all results that are being read exceed their share of the memory limit. The permit is then of
    /// no further use.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Reason> {
        let bytes = bytes as u64;
        if bytes <= Self::FREE_BYTES.max(self.reserved) {
            return Ok(());
        }
        if bytes > self.cache.budget.entry_bytes_max() {
            self.cache.counters.too_large.fetch_add(1, Relaxed);
            return Err(Reason::TooLarge);
        }
        let more = bytes.next_power_of_two() - self.reserved; // as a vector grows
        if !self.cache.budget.reserve(more) {
            return Err(Reason::TooBusy);
        }
        self.reserved += more;
        Ok(())
    }

    /// Installs `payload` if every candidate is shown by `proof`, which was read on the same connection before the
    /// query was sent. Without candidates no proof is needed. `read_end` was read after the result of the query, and
    /// after that of the query for deferred tags.
    pub fn commit(mut self, payload: P, proof: Option<&Visible>, read_end: Lsn) -> Installed<P> {
        if !self.may_commit(read_end) {
            return Installed::Stale;
        }
        self.ended = true;
        let cache = &self.cache;
        let (deferred, trust_deferred) = (self.deferred.take().map(|deferred| *deferred), cache.faults.trust_deferred);
        let Begun { id, epoch, publications, .. } = self.begun;
        let ending = Ending { proof, epoch, deferred, trust_deferred };
        let mut core = cache.core();
        if let Some(proof) = proof.filter(|_| self.begun.may_need_proof && core.epoch() == Some(epoch)) {
            core.prove(proof); // it was asked for in this epoch
        }
        let Some(flight) = core.end_flight(id, ending) else {
            cache.counters.stale_fills.fetch_add(1, Relaxed);
            return Installed::Stale;
        };
        let (started, catalog_since) = (self.started, self.catalog_since);
        let origin = Origin { id, epoch, read_end, started, publications, catalog_since };
        let entry = Entry::new(payload, &flight, origin, self.until);
        if entry.weight() > cache.budget.entry_bytes_max() {
            core.forget(id);
            cache.counters.too_large.fetch_add(1, Relaxed);
            return Installed::TooLarge;
        }
        let replaced = cache.store.remove(&flight.key).map(|(_, entry)| entry);
        if let Some(replaced) = &replaced {
            core.forget(replaced.id());
        }
        let entry = Arc::new(entry);
        entry.payload.weighed(entry.weight());
        let Some(gone) = cache.store.insert(flight.key, entry.clone()) else {
            core.forget(id);
            return Installed::Rejected;
        };
        for gone in gone {
            core.forget(gone);
            cache.counters.evicted.fetch_add(1, Relaxed);
        }
        cache.counters.installed.fetch_add(1, Relaxed);
        Installed::Stored { entry, replaced }
    }
}

impl<P: Payload> Drop for FillPermit<P> {
    fn drop(&mut self) {
        self.cache.budget.give_back(self.reserved);
        if !self.ended {
            self.cache.core().abandon(self.begun.id);
        }
    }
}
