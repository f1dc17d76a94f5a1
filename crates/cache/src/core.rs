//! What is behind the lock: flights, PENDING, the nodes of entries and the index over their tags.
//!
//! A fill's node and its entry's node are the same thing at two times of its life, under one id: the tags are
//! registered once, before the query is sent, and a delivered commit finds flights and entries by the same
//! index. It taints the ones and evicts the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use freshet_model::{CatalogVersion, Change, ChangeSet, Commit, Epoch, Lsn, Nanos, Reason, TableId, Tag, Visible, Xid};

use crate::freshness::Readings;
use crate::index::{Index, tag_matches};

/// Identifies a fill and, once installed, its entry.
pub(crate) type Id = u64;

/// A fill in flight or an installed entry.
#[derive(Debug)]
pub(crate) struct Node {
    key: Arc<[u8]>,
    tags: Box<[Tag]>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// In flight: the commits that must be proven visible before its result may be kept.
    Flight {
        candidates: Vec<Xid>,
        failed: bool,
    },
    Entry,
}

/// A flight that may be installed.
pub(crate) struct Flight {
    pub(crate) key: Arc<[u8]>,
    /// How many tags it has.
    pub(crate) tags: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Core {
    epoch: Option<Epoch>,
    epochs: u64,
    catalog: Option<CatalogVersion>,
    covered: HashSet<TableId>,
    next_id: Id,
    nodes: HashMap<Id, Node>,
    flights: HashMap<Arc<[u8]>, Id>,
    index: Index,
    pending: Vec<Commit>,
    pending_rows: usize,
    readings: Readings,
}

impl Core {
    /// Row changes kept in PENDING; beyond it commits are remembered as matching everything.
    const PENDING_ROWS_MAX: usize = 100_000;
    /// Commits in PENDING beyond which no fill begins: nothing proves them, so nothing could be kept.
    const PENDING_COMMITS_MAX: usize = 10_000;
    /// Candidates of one flight, beyond which it fails.
    const CANDIDATES_MAX: usize = 10_000;
    /// Readings of the end of the log that wait for the stream; beyond it the newest is left out.
    const READINGS_MAX: usize = 64;

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
        self.covered.clear();
        self.pending.clear();
        self.pending_rows = 0;
        self.readings.clear();
    }

    /// Removes all entries, returning their keys, and fails all flights.
    pub(crate) fn flush(&mut self) -> Vec<Arc<[u8]>> {
        self.remove_all(self.nodes.keys().copied().collect())
    }

    /// Removes these entries, returning their keys, and fails these flights.
    fn remove_all(&mut self, ids: Vec<Id>) -> Vec<Arc<[u8]>> {
        let mut keys = Vec::new();
        for id in ids {
            match self.nodes.get_mut(&id).map(|node| &mut node.state) {
                Some(State::Flight { failed, .. }) => *failed = true,
                Some(State::Entry) => keys.extend(self.forget(id).map(|node| node.key)),
                None => {}
            }
        }
        keys
    }

    // --- catalogue and coverage ----------------------------------------------------------------------------

    pub(crate) fn catalog(&self) -> Option<CatalogVersion> {
        self.catalog
    }

    pub(crate) fn set_catalog(&mut self, version: Option<CatalogVersion>) {
        self.catalog = version;
    }

    pub(crate) fn cover(&mut self, tables: &[TableId]) {
        self.covered.extend(tables);
    }

    pub(crate) fn is_covered(&self, table: TableId) -> bool {
        self.covered.contains(&table)
    }

    pub(crate) fn covered_count(&self) -> usize {
        self.covered.len()
    }

    /// Returns the keys of the entries that rested on the tables.
    pub(crate) fn uncover(&mut self, tables: &[TableId]) -> Vec<Arc<[u8]>> {
        let mut ids = HashSet::new();
        for table in tables {
            self.covered.remove(table);
            self.index.collect(&Change::AnyRow(*table), &mut ids);
        }
        self.remove_all(ids.into_iter().collect())
    }

    // --- flights -------------------------------------------------------------------------------------------

    pub(crate) fn begin_flight(
        &mut self,
        key: &[u8],
        tags: Vec<Tag>,
        catalog: CatalogVersion,
        carry: bool,
    ) -> Result<(Id, Epoch), Reason> {
        let Some(epoch) = self.epoch else { return Err(Reason::NoStream) };
        if self.catalog != Some(catalog) {
            return Err(Reason::CatalogStale);
        }
        if !tags.iter().all(|tag| self.covered.contains(&tag.table)) {
            return Err(Reason::NotCovered);
        }
        if self.pending.len() > Self::PENDING_COMMITS_MAX {
            return Err(Reason::TooBusy);
        }
        if self.flights.contains_key(key) {
            return Err(Reason::FillInFlight);
        }
        let matching = |commit: &&Commit| carry && changes_match(&tags, &commit.changes);
        let candidates: Vec<Xid> = self.pending.iter().filter(matching).map(|commit| commit.xid).collect();
        self.next_id += 1;
        let id = self.next_id;
        let key: Arc<[u8]> = key.into();
        self.index.register(id, &tags);
        self.flights.insert(key.clone(), id);
        let state = State::Flight { candidates, failed: false };
        self.nodes.insert(id, Node { key, tags: tags.into(), state });
        Ok((id, epoch))
    }

    /// Ends a flight. It becomes an entry's node if `proof` shows all its candidates; otherwise it is gone.
    pub(crate) fn end_flight(&mut self, id: Id, proof: &Visible, epoch: Epoch) -> Option<Flight> {
        let node = self.nodes.get_mut(&id)?;
        let State::Flight { candidates, failed } = &node.state else { return None };
        let proven = !failed && self.epoch == Some(epoch) && candidates.iter().all(|xid| proof.proves(*xid));
        self.flights.remove(&node.key);
        if !proven {
            self.forget(id);
            return None;
        }
        node.state = State::Entry;
        Some(Flight { key: node.key.clone(), tags: node.tags.len() })
    }

    pub(crate) fn abandon(&mut self, id: Id) {
        if let Some(node) = self.forget(id) {
            self.flights.remove(&node.key);
        }
    }

    /// Drops a node and its tags.
    pub(crate) fn forget(&mut self, id: Id) -> Option<Node> {
        let node = self.nodes.remove(&id)?;
        self.index.unregister(id, &node.tags);
        Some(node)
    }

    pub(crate) fn flight_count(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn entry_count(&self) -> usize {
        self.nodes.len() - self.flights.len()
    }

    // --- the stream ----------------------------------------------------------------------------------------

    /// The nodes whose rows the commit touched.
    pub(crate) fn touched(&self, commit: &Commit) -> Vec<Id> {
        match &commit.changes {
            ChangeSet::Everything => self.nodes.keys().copied().collect(),
            ChangeSet::Rows(rows) => {
                let mut ids = HashSet::new();
                for change in rows {
                    self.index.collect(change, &mut ids);
                }
                ids.into_iter().collect()
            }
        }
    }

    /// Evicts the entry, returning its key, or makes the commit a candidate of the flight.
    pub(crate) fn evict_or_taint(&mut self, id: Id, xid: Xid) -> Option<Arc<[u8]>> {
        match &mut self.nodes.get_mut(&id)?.state {
            State::Entry => self.forget(id).map(|node| node.key),
            State::Flight { candidates, failed } => {
                if candidates.len() < Self::CANDIDATES_MAX {
                    candidates.push(xid);
                } else {
                    *failed = true;
                }
                None
            }
        }
    }

    /// Keeps a delivered commit until it is proven visible.
    pub(crate) fn remember_pending(&mut self, mut commit: Commit) {
        let rows = row_count(&commit.changes);
        if rows == 0 {
            return;
        }
        if self.pending_rows + rows > Self::PENDING_ROWS_MAX {
            commit.changes = ChangeSet::Everything;
        }
        self.pending_rows += row_count(&commit.changes);
        self.pending.push(commit);
    }

    pub(crate) fn prove(&mut self, visible: &Visible) {
        self.pending.retain(|commit| !visible.proves(commit.xid));
        self.pending_rows = self.pending.iter().map(|commit| row_count(&commit.changes)).sum();
    }

    /// Nothing has proven commits for so long that remembering them has become a burden.
    pub(crate) fn pending_is_hopeless(&self) -> bool {
        self.pending.len() > 100 * Self::PENDING_COMMITS_MAX
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn readings(&mut self) -> &mut VecDeque<(Lsn, Nanos)> {
        &mut self.readings
    }

    pub(crate) fn push_reading(&mut self, end: Lsn, asked_at: Nanos) {
        if self.readings.len() < Self::READINGS_MAX {
            self.readings.push_back((end, asked_at));
        }
    }

    // --- tests ---------------------------------------------------------------------------------------------

    pub(crate) fn validate(&self) {
        self.index.validate(self.nodes.iter().map(|(id, node)| (*id, &*node.tags)));
        for (key, id) in &self.flights {
            let node = &self.nodes[id];
            assert!(matches!(node.state, State::Flight { .. }) && node.key == *key);
        }
        assert_eq!(self.pending_rows, self.pending.iter().map(|c| row_count(&c.changes)).sum::<usize>());
    }

    pub(crate) fn validate_entry(&self, id: Id, key: &Arc<[u8]>) {
        let node = &self.nodes[&id];
        assert!(matches!(node.state, State::Entry) && node.key == *key);
    }
}

/// Rows for the bound of PENDING: at least one for a commit that changed anything.
fn row_count(changes: &ChangeSet) -> usize {
    match changes {
        ChangeSet::Everything => 1,
        ChangeSet::Rows(rows) => rows.len(),
    }
}

/// Whether any change may touch rows that a tag names.
fn changes_match(tags: &[Tag], changes: &ChangeSet) -> bool {
    match changes {
        ChangeSet::Everything => true,
        ChangeSet::Rows(rows) => rows.iter().any(|change| tags.iter().any(|tag| tag_matches(tag, change))),
    }
}
