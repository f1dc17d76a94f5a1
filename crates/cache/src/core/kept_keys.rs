//! Keys that outlive the entry that they were read for.
//!
//! A vote changes a movie's rating and invalidates what shows it; which movie has that title it does not change. So the keys by which
//! the rating was found need not be read again: the next fill of the same result begins with them, and with that knows all its
//! tags before its query is sent. That spares the database a query for each fill that another row's change made necessary.
//!
//! # Why they are still true
//!
//! The keys are a result of their own, read from the tables that lead to them, and the entry's tags on those tables are what they
//! depend on. So they are kept like an entry: the node of the invalidated entry stays in the index with all of its tags, and goes as
//! soon as a commit hits one of those on the tables that lead, or anything is redefined. What an entry was installed under
//! holds for them, too: every such commit that had been delivered by then was visible to its query, and so to the later one that
//! read the keys.
//!
//! A fill that begins with them must know as much of its own time: a commit that hits those tags while it is in flight was perhaps
//! seen by its query and not by the keys, and no proof helps; the fill fails. One that is delivered after it has been installed
//! invalidates it, and before that it is not served, since its `read_end` is behind all that its query saw (`docs/internals/protocol.md`,
//! section 3). Snapshots of transactions may be older than the keys: they take none. A fill that is given up, or meets a commit that
//! it may not have seen, gives the keys back.
//!
//! # Names of rows that may go
//!
//! Deferred tags may name the rows of a table that satisfy a predicate, by their keys ([`NamedRows`]), where images of old rows
//! hold no more. These change with each row that comes and goes, so their table does not lead to them. They stay, and a row
//! that comes is named from then on (by its new image, for which there is a tag beside): so all rows that satisfy the predicate
//! behind the commits delivered so far are named, and perhaps some that went. What a later fill of the key sees beyond that is
//! delivered while it is in flight, or before it is served; then it is named, or the entry is invalidated. What takes a row
//! away in the meantime hits its name, and has to be in the proof.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use freshet_types::{ChangeSet, Commit, NamedRows, TableId, Tag};
use rapidhash::quality::RandomState;

use crate::core::{Core, State};
use crate::faults::Faults;
use crate::flight::Id;

/// Invalidated entries whose keys are kept.
const KEPT_MAX: usize = 1024;
/// Bytes of the key and the tags of one of them.
const BYTES_MAX: usize = 8192;
/// Rows that a tag names.
const NAMED_MAX: usize = 1000;

/// The deferred tags of a node.
#[derive(Clone, Debug)]
pub(crate) struct Derived {
    /// The place of the first of them.
    pub(crate) first: u32,
    /// The tables whose rows lead to them.
    pub(crate) led_by: Arc<[TableId]>,
    /// The rows that some of them name.
    pub(crate) named: Arc<[NamedRows]>,
}

impl Derived {
    /// Whether the commit may have changed what they were read from.
    pub(crate) fn is_led_by(&self, tags: &[Tag], changes: &ChangeSet) -> bool {
        let ChangeSet::Rows(rows) = changes else { return true };
        let leads = |table: &TableId| self.led_by.contains(table);
        rows.iter().filter(|change| leads(&change.table())).any(|change| tags.iter().any(|tag| tag.may_be_hit(change)))
    }
}

/// Which nodes have such tags, and which of them are no entries any more.
#[derive(Debug, Default)]
pub(crate) struct KeptKeys {
    derived: HashMap<Id, Derived, RandomState>,
    kept: HashMap<Arc<[u8]>, Id, RandomState>,
    /// The oldest first; some may be gone.
    order: VecDeque<(Id, Arc<[u8]>)>,
}

impl KeptKeys {
    /// An entry has deferred tags that another fill of its key may begin with.
    pub(crate) fn note(&mut self, id: Id, derived: Derived) {
        self.derived.insert(id, derived);
    }

    /// The node of this key is no entry any more.
    pub(crate) fn is_kept(&self, id: Id, key: &[u8]) -> bool {
        self.kept.get(key) == Some(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn forget(&mut self, id: Id, key: &[u8]) {
        if self.derived.remove(&id).is_some() && self.is_kept(id, key) {
            self.kept.remove(key);
        }
    }

    /// Returns the nodes that go for it.
    fn keep(&mut self, id: Id, key: Arc<[u8]>) -> Vec<Id> {
        let mut gone: Vec<Id> = self.kept.insert(key.clone(), id).into_iter().collect();
        self.order.push_back((id, key));
        while self.kept.len() > KEPT_MAX || self.order.len() > 2 * KEPT_MAX {
            let Some((oldest, key)) = self.order.pop_front() else { break };
            if self.is_kept(oldest, &key) {
                self.kept.remove(&key);
                gone.push(oldest);
            }
        }
        gone
    }

    pub(crate) fn validate<'n>(&self, key: impl Fn(Id) -> Option<&'n Arc<[u8]>>) {
        assert!(self.derived.keys().all(|id| key(*id).is_some()));
        assert!(self.kept.len() <= KEPT_MAX && self.order.len() <= 2 * KEPT_MAX);
        for (own, id) in &self.kept {
            assert!(self.derived.contains_key(id) && key(*id) == Some(own));
        }
    }
}

impl Core {
    /// Invalidates the entry, returning its key, or makes the commit a candidate of the flight. A flight that a redefinition
    /// touches fails: whatever its query saw, its tags were derived from the definition before. So does one whose deferred tags were
    /// known before, if the commit may have changed what they were read from.
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
        } else if !faults.ignore_doom {
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

    /// Names the rows that have come, too. None: they cannot be named.
    fn name_more(&mut self, id: Id, named: &[NamedRows], changes: &ChangeSet, faults: Faults) -> Option<()> {
        if named.is_empty() || faults.keep_names {
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

    /// Keys that the flight began with stay for the next one.
    pub(crate) fn abandon(&mut self, id: Id) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let key = node.key.clone();
        self.flights.remove(&key);
        if let State::Flight(flying) = &mut node.state
            && !flying.failed
            && let Some(derived) = flying.derived.take()
        {
            node.state = State::Entry;
            self.kept_keys.note(id, derived);
            self.keep(id, key);
        } else {
            self.forget(id);
        }
    }

    /// The deferred tags that are kept for this key, appended to its tags.
    pub(super) fn take_kept_keys(&mut self, key: &[u8], tags: &mut Vec<Tag>) -> Option<Derived> {
        let id = *self.kept_keys.kept.get(key)?;
        let derived = self.kept_keys.derived.get(&id)?.clone();
        let node = self.forget(id)?;
        let (early, deferred) = node.tags.split_at_checked(usize::try_from(derived.first).ok()?)?;
        // The same key under the same catalogue: it cannot be otherwise.
        if early != &tags[..] {
            return None;
        }
        tags.extend_from_slice(deferred);
        Some(derived)
    }

    pub(super) fn forget_kept_keys(&mut self) {
        let ids: Vec<Id> = self.kept_keys.kept.values().copied().collect();
        for id in ids {
            self.forget(id);
        }
    }

    /// A commit has hit the entry, whose key is returned, or a node that is kept for its keys. It stays for their sake unless the
    /// commit may have changed what they were read from, or rows have come that cannot be named.
    pub(super) fn keep_keys(&mut self, id: Id, changes: &ChangeSet, faults: Faults) -> Option<Arc<[u8]>> {
        let node = self.nodes.get(&id)?;
        let is_entry = !self.kept_keys.is_kept(id, &node.key);
        let key = is_entry.then(|| node.key.clone());
        let bytes = || node.key.len() + node.tags.iter().map(Tag::extra_bytes).sum::<usize>();
        let holds = |derived: &&Derived| faults.keep_keys || !derived.is_led_by(&node.tags, changes);
        let derived = self.kept_keys.derived.get(&id).filter(holds).filter(|_| bytes() <= BYTES_MAX);
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

    /// The node stays for its keys alone.
    pub(super) fn keep(&mut self, id: Id, key: Arc<[u8]>) {
        for gone in self.kept_keys.keep(id, key) {
            self.forget(gone);
        }
    }
}
