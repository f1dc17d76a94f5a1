//! Retained keys: deferred tags that outlive the entry for which they were read.
//!
//! A vote changes a movie's rating and invalidates the results that show it. It does not change which movie has a
//! given title. So the keys by which the rating was found need not be read again. The next fill of the same result
//! begins with them, and knows all its tags before its query is sent. This saves the database one query for each fill
//! after another row's change.
//!
//! # Why they are still true
//!
//! The keys are themselves a result, read from the tables that lead to them. They depend on the entry's tags on those
//! tables. So they are cached like an entry: the node of the invalidated entry stays in the index with all its tags.
//! It is removed as soon as a commit hits one of its tags on the leading tables, or anything is redefined. The proof
//! of the entry holds for the keys, too. Every matching commit that had been delivered by then was visible to the
//! entry's query, and so to the later query that read the keys.
//!
//! A fill that begins with retained keys needs the same guarantee for its own time:
//!
//! * A commit that hits those tags during the flight may have been seen by the fill's query and not by the keys. No
//!   proof helps; the fill fails.
//! * A commit that is delivered after the installation invalidates the entry. Until then the entry is not served,
//!   since its `read_end` lies behind everything that its query saw (`docs/internals/protocol.md`, section 3).
//! * Snapshots of transactions may be older than the keys, so fills in snapshots do not use them.
//!
//! A fill that is abandoned, or that races with a commit it may not have seen, returns the keys.
//!
//! # Names of rows that may leave
//!
//! Where old row images hold only keys, deferred tags may name the rows of a table that satisfy a predicate
//! ([`NamedRows`]). These rows change with each insert and delete, so their table does not count as a leading table.
//! The names stay, and a row that enters is named from then on. A tag on its new image detects it. So the tags name
//! all rows that satisfy the predicate after the commits delivered so far, and perhaps some that have left.
//!
//! A later fill of the key may see further rows. Their commits are delivered while it is in flight, or before its
//! entry is served. The rows are then named, or the entry is invalidated. A commit that removes a row in the meantime
//! hits its name and must be in the proof.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use freshet_types::{ChangeSet, Commit, NamedRows, TableId, Tag};
use rapidhash::quality::RandomState;

use crate::core::{Core, State};
use crate::faults::Faults;
use crate::flight::Id;

/// Invalidated entries whose keys are retained.
const RETAINED_MAX: usize = 1024;
/// The most bytes of key and tags for which one of them is retained.
const BYTES_MAX: usize = 8192;
/// The most rows that one tag names.
const NAMED_MAX: usize = 1000;

/// The deferred tags of a node.
#[derive(Clone, Debug)]
pub(crate) struct Derived {
    /// The index of the first deferred tag.
    pub(crate) first: u32,
    /// The tables whose rows lead to the tags.
    pub(crate) led_by: Arc<[TableId]>,
    /// The rows that some of the tags name.
    pub(crate) named: Arc<[NamedRows]>,
}

impl Derived {
    /// Whether the commit may have changed the rows from which the tags were read.
    pub(crate) fn is_led_by(&self, tags: &[Tag], changes: &ChangeSet) -> bool {
        let ChangeSet::Rows(rows) = changes else { return true };
        let leads = |table: &TableId| self.led_by.contains(table);
        rows.iter().filter(|change| leads(&change.table())).any(|change| tags.iter().any(|tag| tag.may_be_hit(change)))
    }
}

/// Which nodes have deferred tags that can be retained, and which of them are no longer entries.
#[derive(Debug, Default)]
pub(crate) struct RetainedKeys {
    derived: HashMap<Id, Derived, RandomState>,
    retained: HashMap<Arc<[u8]>, Id, RandomState>,
    /// Oldest first. Some are no longer retained.
    order: VecDeque<(Id, Arc<[u8]>)>,
}

impl RetainedKeys {
    /// Notes that an entry has deferred tags with which another fill of its key may begin.
    pub(crate) fn note(&mut self, id: Id, derived: Derived) {
        self.derived.insert(id, derived);
    }

    /// Whether the node of this key is no longer an entry.
    pub(crate) fn is_retained(&self, id: Id, key: &[u8]) -> bool {
        self.retained.get(key) == Some(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.retained.len()
    }

    pub(crate) fn forget(&mut self, id: Id, key: &[u8]) {
        if self.derived.remove(&id).is_some() && self.is_retained(id, key) {
            self.retained.remove(key);
        }
    }

    /// Retains the node. Returns the nodes that it displaces.
    fn keep(&mut self, id: Id, key: Arc<[u8]>) -> Vec<Id> {
        let mut gone: Vec<Id> = self.retained.insert(key.clone(), id).into_iter().collect();
        self.order.push_back((id, key));
        while self.retained.len() > RETAINED_MAX || self.order.len() > 2 * RETAINED_MAX {
            let Some((oldest, key)) = self.order.pop_front() else { break };
            if self.is_retained(oldest, &key) {
                self.retained.remove(&key);
                gone.push(oldest);
            }
        }
        gone
    }

    pub(crate) fn validate<'n>(&self, key: impl Fn(Id) -> Option<&'n Arc<[u8]>>) {
        assert!(self.derived.keys().all(|id| key(*id).is_some()));
        assert!(self.retained.len() <= RETAINED_MAX && self.order.len() <= 2 * RETAINED_MAX);
        for (own, id) in &self.retained {
            assert!(self.derived.contains_key(id) && key(*id) == Some(own));
        }
    }
}

impl Core {
    /// Invalidates the entry and returns its key, or makes the commit a candidate of the flight. A flight that a
    /// redefinition touches fails: its tags were derived from the previous definition, whatever its query saw. A
    /// flight that began with retained keys also fails if the commit may have changed the rows from which they were
    /// read.
    pub(crate) fn invalidate_or_taint(&mut self, id: Id, commit: &Commit, faults: Faults) -> Option<Arc<[u8]>> {
        let node = self.nodes.get_mut(&id)?;
        let State::Flight(flying) = &mut node.state else {
            if commit.redefines {
                return self.forget_entry(id);
            }
            return self.keep_keys(id, &commit.changes, faults);
        };
        let led = |derived: &Derived| !faults.trust_keys && derived.is_led_by(&node.tags, &commit.changes);
        if flying.candidates.len() >= Self::CANDIDATES_MAX
            || commit.redefines
            || flying.derived.as_ref().is_some_and(led)
        {
            flying.failed = true;
        } else if !faults.no_candidates {
            flying.candidates.push(commit.id);
            let named = flying.derived.as_ref().map(|derived| derived.named.clone());
            if named.is_some_and(|named| self.name_more(id, &named, &commit.changes, faults).is_none())
                && let Some(State::Flight(flying)) = self.nodes.get_mut(&id).map(|node| &mut node.state)
            {
                flying.failed = true;
            }
        }
        None
    }

    /// Also names the rows that have entered. None if they cannot be named.
    fn name_more(&mut self, id: Id, named: &[NamedRows], changes: &ChangeSet, faults: Faults) -> Option<()> {
        if named.is_empty() || faults.ignore_entering {
            return Some(());
        }
        let ChangeSet::Rows(changes) = changes else { return None };
        let node = self.nodes.get_mut(&id)?;
        let coming: Vec<_> = named.iter().map(|rows| rows.coming(&node.tags, changes)).collect::<Option<_>>()?;
        if coming.iter().all(Vec::is_empty) {
            return Some(());
        }
        let mut tags = node.tags.to_vec();
        for (rows, keys) in named.iter().zip(coming) {
            keys.into_iter().all(|key| rows.add(&mut tags, key, NAMED_MAX)).then_some(())?;
        }
        self.index.unregister(id, &node.tags);
        self.index.register(id, 0, &tags);
        node.tags = tags.into();
        Some(())
    }

    /// Ends a flight without an entry. Keys with which the flight began are retained for the next one.
    pub(crate) fn abandon(&mut self, id: Id) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let key = node.key.clone();
        self.flights.remove(&key);
        if let State::Flight(flying) = &mut node.state
            && !flying.failed
            && let Some(derived) = flying.derived.take()
        {
            node.state = State::Entry;
            self.retained_keys.note(id, derived);
            self.keep(id, key);
        } else {
            self.forget(id);
        }
    }

    /// Appends the deferred tags that are retained for this key to `tags`.
    pub(super) fn take_retained_keys(&mut self, key: &[u8], tags: &mut Vec<Tag>) -> Option<Derived> {
        let id = *self.retained_keys.retained.get(key)?;
        let derived = self.retained_keys.derived.get(&id)?.clone();
        let node = self.forget(id)?;
        let (early, deferred) = node.tags.split_at_checked(usize::try_from(derived.first).ok()?)?;
        // The tags are equal under the same key and catalogue; this check fails closed.
        if early != &tags[..] {
            return None;
        }
        tags.extend_from_slice(deferred);
        Some(derived)
    }

    pub(super) fn forget_retained_keys(&mut self) {
        let ids: Vec<Id> = self.retained_keys.retained.values().copied().collect();
        for id in ids {
            self.forget(id);
        }
    }

    /// A commit has hit an entry, whose key is returned, or a retained node. The node is retained unless the commit
    /// may have changed the rows from which its keys were read, or rows have entered that cannot be named.
    pub(super) fn keep_keys(&mut self, id: Id, changes: &ChangeSet, faults: Faults) -> Option<Arc<[u8]>> {
        let node = self.nodes.get(&id)?;
        let is_entry = !self.retained_keys.is_retained(id, &node.key);
        let key = is_entry.then(|| node.key.clone());
        let bytes = || node.key.len() + node.tags.iter().map(Tag::extra_bytes).sum::<usize>();
        let holds = |derived: &&Derived| faults.reuse_stale_keys || !derived.is_led_by(&node.tags, changes);
        let derived = self.retained_keys.derived.get(&id).filter(holds).filter(|_| bytes() <= BYTES_MAX);
        let named = derived.map(|derived| derived.named.clone());
        if named.is_some_and(|named| self.name_more(id, &named, changes, faults).is_some()) {
            if let Some(key) = key.clone() {
                self.keep(id, key);
            }
        } else {
            self.forget(id);
        }
        key
    }

    /// Turns the node into one that only retains keys.
    pub(super) fn keep(&mut self, id: Id, key: Arc<[u8]>) {
        for gone in self.retained_keys.keep(id, key) {
            self.forget(gone);
        }
    }
}
