//! From the right to keep a result to the installed entry.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_types::{Lsn, NamedRows, Nanos, Reason, TableId, Tag, Visible};

use crate::Cache;
use crate::entry::{Entry, Origin, Payload};
use crate::flight::{Begun, Deferred, Ending};

/// What became of a fill's result.
#[derive(Debug)]
pub enum Installed<P> {
    /// It is kept.
    Stored {
        /// The new entry.
        entry: Arc<Entry<P>>,
        /// The entry that it took the place of. Nothing that matters was committed between the two readings, so both
        /// hold the same answer.
        replaced: Option<Arc<Entry<P>>>,
    },
    /// A commit that matters is not proven to be in it, or the ground under it changed.
    Stale,
    /// It is larger than an entry may be.
    TooLarge,
    /// What would have to go for it is worth more.
    Outweighed,
}

/// The right to install one result. Dropping it abandons the fill.
#[derive(Debug)]
pub struct FillPermit<P: Payload> {
    cache: Arc<Cache<P>>,
    begun: Begun,
    started: Nanos,
    deferred: Option<Box<Deferred>>,
    ended: bool,
    /// What is reserved for the result while it is read.
    reserved: u64,
    catalog_since: Nanos,
}

impl<P: Payload> FillPermit<P> {
    /// Nothing is reserved for so little.
    const FREE_BYTES: u64 = 16 << 10;

    pub(crate) fn new(cache: Arc<Cache<P>>, begun: Begun, started: Nanos) -> Self {
        Self { cache, begun, started, deferred: None, ended: false, reserved: 0, catalog_since: 0 }
    }

    /// The result, which has been read, may show a definition that no look at the catalogue has shown: it is served once one has been taken
    /// in that is asked for at `now` or later.
    pub fn may_show_definition(&mut self, now: Nanos) {
        self.catalog_since = now;
    }

    /// Without a proof the result cannot be kept: a delivered commit that matters is not proven visible.
    pub fn needs_proof(&self) -> bool {
        self.begun.needs_proof
    }

    /// Likewise, but it may turn out so only once the deferred tags are told: a delivered commit changed their tables.
    pub fn may_need_proof(&self) -> bool {
        self.begun.may_need_proof
    }

    /// Whether the proof shows all that the result needs, as far as is known before its deferred tags are told. Without that it
    /// will hardly be kept.
    pub fn is_shown(&self, proof: &Visible) -> bool {
        self.cache.core().is_shown(self.begun.id, proof)
    }

    /// Some of its tags are [`RowSet::Later`](freshet_types::RowSet), and not known from an earlier entry of the same key:
    /// [`Self::set_deferred`] comes before [`Self::commit`].
    pub fn wants_deferred(&self) -> bool {
        self.begun.wants_deferred
    }

    /// What those tags stand for, by a query that was sent after the fill began. `led_by`: the tables of which any changed row that
    /// matters may make them others. None: so may other things. As long as no such row changes, later fills of the same key begin with
    /// these tags.
    pub fn set_deferred(&mut self, tags: Vec<Tag>, led_by: Option<Arc<[TableId]>>) {
        self.deferred = Some(Deferred { tags, led_by, named: [].into(), until_known: None }.into());
    }

    /// Likewise, if they name by their keys the rows that may go: all that there were when that query read them, behind the result. Which rows went
    /// since the result was read it cannot tell, so until the stream has passed a log end that was read behind it, commits are held against
    /// `until_known`, and nothing is kept ([`Self::may_commit`]).
    ///
    /// A row that goes while neither of the two readings has it is no row of the result. One that went between them is hit by `until_known`: whatever
    /// the second one shows has been delivered by then, and must be in the proof. One that goes later is among those that the second one names,
    /// or came after it, as a change that hits the tags.
    ///
    /// `led_by` as before; where it is known, `named` says which rows the tags name so: rows that come are named, too, from then on.
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

    /// Whether they were, by [`Self::set_members`].
    pub fn knows_members(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| deferred.until_known.is_some())
    }

    /// Whether the result may be kept now if `read_end` was read behind all that it rests on. If not yet: once the stream has passed that.
    pub fn may_commit(&self, read_end: Lsn) -> bool {
        !self.knows_members() || self.cache.faults.keep_early || self.cache.applied() >= read_end
    }

    /// Whether they were told.
    pub fn knows_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    /// The result, as it is read, grows to so many bytes. Err: it may not, since that is more than one entry may have, or all results
    /// that are being read take more of the memory limit than is for them. The permit is of no use then.
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

    /// Installs `payload` if `proof`, read on the same connection before the query was sent, shows every candidate; without
    /// a proof, if there is none. `read_end` was read after the query's result, and after that of a query for deferred tags.
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
        let entry = Entry::new(payload, &flight, origin);
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
            return Installed::Outweighed;
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
