//! The state behind the lock: flights, unproven commits, the nodes of entries, and the index over their tags.
//!
//! A fill and its entry share one node and one id. The tags are registered once, before the query is sent. A
//! delivered commit finds flights and entries by the same index: it becomes a candidate of the flights and
//! invalidates the entries.

mod changed;
mod redefinitions;
mod retained_keys;
mod untouched;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use freshet_types::{
    CatalogVersion, Change, ChangeSet, Commit, CommitId, Epoch, Lsn, Nanos, Reason, RowSet, TableId, Tag, Visible,
};
use rapidhash::quality::RandomState;

use crate::core::changed::Changed;
use crate::core::redefinitions::Redefinitions;
use crate::core::retained_keys::{Derived, RetainedKeys};
use crate::core::untouched::Complete;
use crate::flight::{Begun, Deferred, Ending, FillRequest, Flight, Id, Joiners};
use crate::freshness::LogEndProbes;
use crate::index::{Index, trim};
use crate::ring::{Ring, changes_match, commit_bytes, touches};

/// A fill in flight or an installed entry.
#[derive(Debug)]
pub(crate) struct Node {
    key: Arc<[u8]>,
    tags: Box<[Tag]>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Boxed, so that the many nodes of entries stay small.
    Flight(Box<Flying>),
    Entry,
}

/// The state of a flight.
#[derive(Debug)]
struct Flying {
    /// The commits that must be proven visible before the result may be cached.
    candidates: Vec<CommitId>,
    failed: bool,
    /// A fence on its tables: the entry is not served before the stream has passed it.
    fence: Lsn,
    /// Its query, and the query for its deferred tags, see all commits up to this position.
    since: Lsn,
    /// The deferred tags, if an earlier entry of the key left them.
    derived: Option<Derived>,
    /// The tasks that wait for its end, and until when others may join.
    joiners: Joiners,
    join_until: Nanos,
}

/// A commit that was delivered and is not yet proven visible.
#[derive(Debug)]
struct Pending {
    commit: Commit,
    bytes: usize,
    /// The position that the stream had passed before it.
    before: Lsn,
}

#[derive(Debug, Default)]
pub(crate) struct Core {
    epoch: Option<Epoch>,
    epochs: u64,
    catalog: Option<CatalogVersion>,
    published: HashSet<TableId, RandomState>,
    /// How often tables were published, or all of them unpublished.
    publications: u64,
    complete: Option<Complete>,
    next_id: Id,
    nodes: HashMap<Id, Node, RandomState>,
    flights: HashMap<Arc<[u8]>, Id, RandomState>,
    redefinitions: Redefinitions,
    /// The stream broke; the slot keeps its position.
    suspended: bool,
    index: Index,
    pending: Vec<Pending>,
    pending_bytes: usize,
    ring: Ring,
    /// The memory for the changes of unproven commits, and for those in the ring.
    pending_bytes_max: usize,
    ring_bytes_max: usize,
    probes: LogEndProbes,
    /// The tables of which the stream has delivered a change, in any epoch.
    changed: HashMap<TableId, Changed, RandomState>,
    /// Keys that were read for entries and outlive them.
    retained_keys: RetainedKeys,
}

impl Core {
    /// The share of the memory limit for the changes of unproven commits. Further commits are remembered as matching
    /// everything.
    const PENDING_SHARE: u64 = 16;
    /// The share for the ring. Its blocks lie between those of results that come and go. They keep the pages of freed
    /// results in use, so the ring costs several times its size.
    const RING_SHARE: u64 = 64;
    /// The number of unproven commits beyond which no fill begins. No proof arrives, so no result could be cached.
    const PENDING_COMMITS_MAX: usize = 10_000;
    /// The number of candidates beyond which a flight fails.
    const CANDIDATES_MAX: usize = 10_000;
    /// The number of log-end probes that wait for the stream. Beyond it the newest is dropped.
    const PROBES_MAX: usize = 64;

    /// Sets the memory limit, which bounds the remembered changes.
    pub(crate) fn set_memory(&mut self, bytes: u64) {
        let share = |share| usize::try_from(bytes / share).unwrap_or(usize::MAX);
        (self.pending_bytes_max, self.ring_bytes_max) = (share(Self::PENDING_SHARE), share(Self::RING_SHARE));
    }

    // --- epochs --------------------------------------------------------------------------------------------

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    pub(crate) fn begin_epoch(&mut self) -> Epoch {
        self.end_epoch();
        self.epochs += 1;
        let epoch = Epoch(self.epochs);
        self.epoch = Some(epoch);
        epoch
    }

    pub(crate) fn end_epoch(&mut self) {
        self.epoch = None;
        self.suspended = false;
        self.catalog = None;
        self.redefinitions.clear();
        self.published.clear();
        self.publications += 1;
        self.pending.clear();
        self.pending_bytes = 0;
        self.ring = Ring::default();
        self.probes.clear();
    }

    /// Removes all entries and returns their keys; fails all flights.
    pub(crate) fn flush(&mut self) -> Vec<Arc<[u8]>> {
        self.remove_all(self.nodes.keys().copied().collect())
    }

    /// Fails all flights.
    pub(crate) fn fail_flights(&mut self) {
        for id in self.flights.values() {
            if let Some(State::Flight(flying)) = self.nodes.get_mut(id).map(|node| &mut node.state) {
                flying.failed = true;
            }
        }
    }

    /// Removes these entries and returns their keys; fails these flights.
    fn remove_all(&mut self, ids: Vec<Id>) -> Vec<Arc<[u8]>> {
        let mut keys = Vec::new();
        for id in ids {
            match self.nodes.get_mut(&id).map(|node| &mut node.state) {
                Some(State::Flight(flying)) => flying.failed = true,
                Some(State::Entry) => {
                    keys.extend(self.forget_entry(id));
                }
                None => {}
            }
        }
        keys
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended
    }

    pub(crate) fn set_suspended(&mut self, suspended: bool) {
        self.suspended = suspended;
        self.probes.clear();
        // They may reflect commits that a crash of the server takes back.
        self.forget_retained_keys();
    }

    // --- the publication --------------------------------------------------------------------------------------

    pub(crate) fn publish(&mut self, tables: &[TableId]) {
        self.published.extend(tables);
        self.publications += 1;
    }

    pub(crate) fn publications(&self) -> u64 {
        self.publications
    }

    pub(crate) fn is_published(&self, table: TableId) -> bool {
        self.published.contains(&table)
    }

    pub(crate) fn published_count(&self) -> usize {
        self.published.len()
    }

    /// No entry, flight or retained key depends on the tables, and this catalogue version shows every delivered
    /// redefinition.
    pub(crate) fn is_free_of(&self, tables: &[TableId], catalog: CatalogVersion) -> bool {
        self.catalog == Some(catalog)
            && !self.has_unshown()
            && !tables.iter().any(|table| self.index.has_tags_on(*table))
    }

    /// Returns the keys of the entries that depended on the tables.
    pub(crate) fn unpublish(&mut self, tables: &[TableId]) -> Vec<Arc<[u8]>> {
        for table in tables {
            self.published.remove(table);
        }
        self.remove_dependents(tables)
    }

    /// Removes the entries that depend on the relations and returns their keys; fails the flights.
    pub(crate) fn remove_dependents(&mut self, tables: &[TableId]) -> Vec<Arc<[u8]>> {
        let ids = self.dependents(tables);
        self.remove_all(ids)
    }

    /// The nodes that depend on the relations.
    fn dependents(&self, tables: &[TableId]) -> Vec<Id> {
        let mut ids = HashSet::default();
        for table in tables {
            self.index.collect(&Change::AnyRow(*table), |id| self.tags(id), &mut ids);
        }
        ids.into_iter().collect()
    }

    fn tags(&self, id: Id) -> &[Tag] {
        self.nodes.get(&id).map_or(&[], |node| &node.tags)
    }

    /// No result over these tables, installed or in flight, may be served before the stream has passed `lsn`. Returns
    /// the keys of the entries.
    pub(crate) fn fence(&mut self, tables: &[TableId], lsn: Lsn) -> Vec<Arc<[u8]>> {
        let mut keys = Vec::new();
        for id in self.dependents(tables) {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            match &mut node.state {
                State::Flight(flying) => flying.fence = lsn.max(flying.fence),
                State::Entry if self.retained_keys.is_retained(id, &node.key) => {}
                State::Entry => keys.push(node.key.clone()),
            }
        }
        keys
    }

    // --- flights -------------------------------------------------------------------------------------------

    pub(crate) fn begin_flight(
        &mut self,
        FillRequest { key, mut tags, catalog, now: _, snapshot, join_until }: FillRequest<'_>,
        applied: Lsn,
        carry: bool,
    ) -> Result<Begun, Reason> {
        let Some(epoch) = self.epoch.filter(|_| !self.suspended) else { return Err(Reason::NoStream) };
        if self.catalog != Some(catalog) || self.redefinitions.touch(&tags) {
            return Err(Reason::CatalogStale);
        }
        if !tags.iter().all(|tag| tag.rows == RowSet::Definition || self.published.contains(&tag.table)) {
            return Err(Reason::NotPublished);
        }
        if self.pending.len() > Self::PENDING_COMMITS_MAX {
            return Err(Reason::Unproven);
        }
        if self.flights.contains_key(key) {
            return Err(Reason::FillInFlight);
        }
        let derived = snapshot.is_none().then(|| self.take_retained_keys(key, &mut tags)).flatten();
        let matching = |pending: &&Pending| carry && changes_match(&tags, &pending.commit.changes);
        let candidates: Vec<CommitId> = self.pending.iter().filter(matching).map(|pending| pending.commit.id).collect();
        let needs_proof = !candidates.is_empty();
        let later = if derived.is_some() { Vec::new() } else { later(&tags) };
        let may_need_proof = needs_proof || self.pending.iter().any(|pending| touches(&pending.commit.changes, &later));
        let since = snapshot.as_ref().map_or_else(|| self.before_pending().unwrap_or(applied), |lo| lo.end.lsn);
        if let Some(lo) = snapshot {
            let same = lo.end.epoch == epoch && lo.publications == self.publications && lo.catalog == self.catalog;
            let matters = |changes: &ChangeSet| changes_match(&tags, changes);
            if !same || needs_proof || self.ring.since(lo.end.lsn, matters).is_none_or(|some| !some.is_empty()) {
                return Err(Reason::Snapshot);
            }
        }
        self.next_id += 1;
        let id = self.next_id;
        let key: Arc<[u8]> = key.into();
        self.index.register(id, 0, &tags);
        self.flights.insert(key.clone(), id);
        let joiners = Joiners::default();
        let flying = Flying { candidates, failed: false, fence: Lsn(0), since, derived, joiners, join_until };
        let state = State::Flight(flying.into());
        self.nodes.insert(id, Node { key, tags: tags.into(), state });
        let wants_deferred = !later.is_empty();
        Ok(Begun { id, epoch, needs_proof, may_need_proof, wants_deferred, publications: self.publications })
    }

    /// Ends a flight. It becomes an entry's node if the proof shows all its candidates; otherwise it is removed.
    pub(crate) fn end_flight(&mut self, id: Id, ending: Ending<'_>) -> Option<Flight> {
        let node = self.nodes.get(&id)?;
        let State::Flight(flying) = &node.state else { return None };
        let Flying { candidates, failed, fence, since, derived, .. } = flying.as_ref();
        let wants_deferred = derived.is_none() && node.tags.iter().any(|tag| tag.rows == RowSet::Later);
        let is_proven = |id: &CommitId| ending.proof.is_some_and(|proof| proof.proves(*id));
        let untold = wants_deferred && ending.deferred.is_none();
        let Deferred { tags: deferred, led_by, named, until_known } = ending.deferred.unwrap_or_default();
        let raced = self.raced(until_known.as_ref().unwrap_or(&deferred), *since);
        let proven = !failed
            && self.epoch == Some(ending.epoch)
            && candidates.iter().all(is_proven)
            && !untold
            && (ending.trust_deferred || raced.is_some_and(|raced| raced.iter().all(is_proven)));
        let (key, fence, early) = (node.key.clone(), *fence, u32::try_from(node.tags.len()).ok()?);
        if !proven {
            self.abandon(id);
            return None;
        }
        self.flights.remove(&key);
        self.index.register(id, early, &deferred);
        let node = self.nodes.get_mut(&id)?;
        let State::Flight(flying) = std::mem::replace(&mut node.state, State::Entry) else { return None };
        let derived = flying.derived.or(led_by.map(|led_by| Derived { first: early, led_by, named }));
        if let Some(derived) = derived {
            self.retained_keys.note(id, derived);
        }
        if !deferred.is_empty() {
            node.tags = std::mem::take(&mut node.tags).into_iter().chain(deferred).collect();
        }
        let tags_bytes = node.tags.iter().map(Index::tag_bytes).sum();
        Some(Flight::new(key, tags_bytes, fence, flying.joiners))
    }

    /// The tasks that wait for the flight of this key, and until when others may join. None without a flight.
    pub(crate) fn joiners(&mut self, key: &[u8]) -> Option<(&mut Vec<Waker>, Nanos)> {
        match &mut self.nodes.get_mut(self.flights.get(key)?)?.state {
            State::Flight(flying) => Some((&mut flying.joiners.0, flying.join_until)),
            State::Entry => None,
        }
    }

    /// The commits after `since` that hit the deferred tags. They could not become candidates when they arrived,
    /// since the tags were unknown. None if the ring no longer has all of them.
    fn raced(&self, deferred: &[Tag], since: Lsn) -> Option<Vec<CommitId>> {
        if deferred.is_empty() {
            return Some(Vec::new());
        }
        let matters = |changes: &ChangeSet| changes_match(deferred, changes);
        let mut raced = self.ring.since(since, matters)?;
        raced.extend(self.pending.iter().filter(|p| matters(&p.commit.changes)).map(|p| p.commit.id));
        Some(raced)
    }

    /// Removes a node and its tags.
    pub(crate) fn forget(&mut self, id: Id) -> Option<Node> {
        let node = self.nodes.remove(&id)?;
        trim(&mut self.nodes);
        self.index.unregister(id, &node.tags);
        self.retained_keys.forget(id, &node.key);
        Some(node)
    }

    /// Removes a node. Returns its key if it was an entry.
    fn forget_entry(&mut self, id: Id) -> Option<Arc<[u8]>> {
        let is_entry = self.is_entry(id);
        self.forget(id).map(|node| node.key).filter(|_| is_entry)
    }

    pub(crate) fn flight_count(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn is_entry(&self, id: Id) -> bool {
        let is_entry =
            |node: &Node| matches!(node.state, State::Entry) && !self.retained_keys.is_retained(id, &node.key);
        self.nodes.get(&id).is_some_and(is_entry)
    }

    pub(crate) fn entry_count(&self) -> usize {
        self.nodes.len() - self.flights.len() - self.retained_keys.len()
    }

    // --- the stream ----------------------------------------------------------------------------------------

    /// The nodes whose tags the commit hits.
    pub(crate) fn touched(&self, commit: &Commit) -> Vec<Id> {
        match &commit.changes {
            ChangeSet::Everything => self.nodes.keys().copied().collect(),
            ChangeSet::Rows(rows) => {
                let mut ids = HashSet::default();
                for change in rows {
                    self.index.collect(change, |id| self.tags(id), &mut ids);
                }
                ids.into_iter().collect()
            }
        }
    }

    /// Remembers a delivered commit until it is proven visible.
    pub(crate) fn remember_pending(&mut self, mut commit: Commit, before: Lsn) {
        if commit.redefines {
            self.redefinitions.push(&commit);
        }
        if commit.changes.is_empty() {
            return;
        }
        if let ChangeSet::Rows(changes) = &commit.changes {
            self.note_changed(changes);
        }
        let mut bytes = commit_bytes(&commit.changes);
        if self.pending_bytes + bytes > self.pending_bytes_max {
            commit.changes = ChangeSet::Everything;
            bytes = commit_bytes(&commit.changes);
        }
        self.pending_bytes += bytes;
        self.pending.push(Pending { commit, bytes, before });
    }

    pub(crate) fn prove(&mut self, visible: &Visible) {
        for proven in self.pending.extract_if(.., |pending| visible.proves(pending.commit.id)) {
            self.pending_bytes -= proven.bytes;
            self.ring.push(proven.commit, proven.bytes, self.ring_bytes_max);
        }
    }

    /// No proof or no catalogue has arrived for so long that the remembered commits take too much memory.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.pending.len() > 100 * Self::PENDING_COMMITS_MAX || self.unshown_is_hopeless()
    }

    /// The position before the oldest unproven commit.
    pub(crate) fn before_pending(&self) -> Option<Lsn> {
        self.pending.first().map(|pending| pending.before)
    }

    /// Whether the proof shows all that the flight needs, as far as that is known before its deferred tags.
    pub(crate) fn is_shown(&self, id: Id, proof: &Visible) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let State::Flight(flying) = &node.state else { return false };
        let later = if flying.derived.is_some() { Vec::new() } else { later(&node.tags) };
        let deferred = self.pending.iter().filter(|pending| touches(&pending.commit.changes, &later));
        flying.candidates.iter().chain(deferred.map(|pending| &pending.commit.id)).all(|commit| proof.proves(*commit))
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn probes(&mut self) -> &mut VecDeque<(Lsn, Nanos)> {
        &mut self.probes
    }

    pub(crate) fn push_probe(&mut self, end: Lsn, asked_at: Nanos) {
        if self.probes.len() < Self::PROBES_MAX {
            self.probes.push_back((end, asked_at));
        }
    }

    // --- tests ---------------------------------------------------------------------------------------------

    pub(crate) fn validate(&self) {
        self.index.validate(self.nodes.iter().map(|(id, node)| (*id, &*node.tags)));
        for (key, id) in &self.flights {
            let node = &self.nodes[id];
            assert!(matches!(node.state, State::Flight(_)) && node.key == *key);
        }
        self.retained_keys.validate(|id| self.nodes.get(&id).map(|node| &node.key));
        assert_eq!(self.pending_bytes, self.pending.iter().map(|pending| pending.bytes).sum::<usize>());
    }

    pub(crate) fn validate_entry(&self, id: Id, key: &Arc<[u8]>) {
        assert!(self.is_entry(id) && self.nodes[&id].key == *key);
    }
}

/// The tables whose tags are deferred.
fn later(tags: &[Tag]) -> Vec<TableId> {
    tags.iter().filter(|tag| tag.rows == RowSet::Later).map(|tag| tag.table).collect()
}
