//! Entries that answer other executions than their own: those whose limits have moved, but not beyond what the answer shows
//! (see `sql/src/dependency/moving_limit.rs` for which these are, and why).
//!
//! An entry is kept under its own key, as all are, and is found by it. Beside that, the key *without* its moving limits leads to
//! the entry that was installed last. So a statement with such limits is looked up twice, and any other once: what was
//! looked up in vain tells by its statement whether there is more to look up. What the second look-up finds is served under the same
//! rules as any entry, and only if it reaches as far as the limits have moved.
//!
//! Values of limits that come again, as of pages by keys, still have an entry each.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_sql::{Field, Parameter, Positions, Reach, ReadSet};
use freshet_types::Catalog;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rapidhash::quality::RandomState;

use crate::session::context::Context;
use crate::statement::registry::{NormalizedQuery, Statement};

/// Bytes of one key that leads to another, besides both.
const OVERHEAD_BYTES: usize = 128;
/// Of the cache's memory, one in so many, within limits.
const MEMORY_SHARE: u64 = 16;
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);

/// What one execution says of its moving limits.
#[derive(Debug)]
pub(crate) struct Limits {
    /// All that decides its answer but for them.
    pub(crate) key: Arc<[u8]>,
    pub(crate) at: Positions,
    pub(crate) read_set: Arc<ReadSet>,
    utf8: bool,
}

/// How far an entry reaches.
#[derive(Debug)]
pub(crate) struct Reached {
    /// See [`Limits::key`].
    key: Arc<[u8]>,
    /// The entry's own key.
    entry: Arc<[u8]>,
    reach: Reach,
    /// Where the entry's own limits are.
    at: Positions,
    /// See [`Limits::counted`].
    by_clock: bool,
}

impl Limits {
    /// The key that misses are counted by: one for all that the clock tells apart, of which none is missed twice.
    pub(crate) fn counted<'k>(limits: Option<&'k Self>, entry: &'k [u8]) -> &'k [u8] {
        limits.filter(|limits| limits.read_set.moves_with_clock()).map_or(entry, |limits| &limits.key)
    }

    /// `write_key` writes the key without the parameters of these numbers; None: it cannot be told apart from others.
    pub(crate) fn of(
        read_set: &Arc<ReadSet>,
        params: &[Parameter<'_>],
        context: &Context,
        write_key: impl FnOnce(&mut Vec<u8>, &[u32]) -> Option<()>,
    ) -> Option<Self> {
        let at = read_set.positions(params, context.client)?;
        let mut key = Vec::new();
        key.extend_from_slice(&context.id.to_le_bytes());
        read_set.write_moving(&mut key);
        let numbers: Vec<u32> = read_set.moving_parameters().collect();
        write_key(&mut key, &numbers)?;
        Some(Self { key: key.into(), at, read_set: read_set.clone(), utf8: context.client.utf8 })
    }

    /// How far an answer of these rows reaches, which is kept under the key `entry`.
    pub(crate) fn reached<'a, R>(
        self,
        entry: Arc<[u8]>,
        rows: impl Iterator<Item = R>,
        read: impl Fn(&R) -> Vec<Field<'a>>,
    ) -> Option<Box<Reached>> {
        let reach = self.read_set.reach(&self.at, rows, read, self.utf8)?;
        let by_clock = self.read_set.moves_with_clock();
        Some(Box::new(Reached { key: self.key, entry, reach, at: self.at, by_clock }))
    }
}

impl Reached {
    /// Whether the entry answers an execution with these limits.
    pub(crate) fn covers(&self, at: &Positions) -> bool {
        self.reach.covers(at)
    }

    /// Whether the entry's own execution would be answered by another entry, too.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.key == other.key && self.entry != other.entry && other.covers(&self.at)
    }

    /// The key that the misses were counted by, if not the entry's own.
    pub(crate) fn counted_by(&self) -> Option<&[u8]> {
        self.by_clock.then_some(&*self.key)
    }

    /// Bytes of it, and of what leads to it.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.entry.len() + OVERHEAD_BYTES
    }
}

impl NormalizedQuery {
    /// Whether it is known to have limits that may move, under some catalogue.
    pub(crate) fn moves(&self) -> bool {
        self.moves.load(Relaxed)
    }

    /// Its read set under this catalogue, if it has such limits.
    pub(crate) fn moving(&self, catalog: &Catalog, context: &Context) -> Option<Arc<ReadSet>> {
        if self.moves() { self.resolve(catalog, context).read_set.ok() } else { None }
    }
}

/// Writes the text without the literals of these numbers, but their kinds; numbers of other parameters say nothing.
pub(crate) fn put_text(key: &mut Vec<u8>, statement: &Statement, numbers: &[u32]) -> Option<()> {
    let text = statement.text();
    let mut cuts = Vec::with_capacity(numbers.len());
    for at in numbers.iter().filter_map(|number| number.checked_sub(u32::from(statement.own_params) + 1)) {
        let (start, end) = statement.places.get(at as usize)?;
        cuts.push((*start as usize, *end as usize));
        key.push(statement.literals.get(at as usize)?.kind as u8);
    }
    put_without(key, text, &mut cuts)
}

/// Writes bytes but for these ranges, so that what is left has one meaning.
pub(crate) fn put_without(key: &mut Vec<u8>, bytes: &[u8], cuts: &mut [(usize, usize)]) -> Option<()> {
    cuts.sort_unstable();
    let mut from = 0;
    let ends = cuts.iter().map(|(start, end)| (*start, *end)).chain([(bytes.len(), bytes.len())]);
    for (start, end) in ends {
        let piece = bytes.get(from..start)?;
        key.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        key.extend_from_slice(piece);
        from = end;
    }
    Some(())
}

/// From keys without moving limits to those of the entries that were installed last.
#[derive(Debug)]
pub(crate) struct Latest {
    keys: Cache<Arc<[u8]>, Arc<[u8]>, ByBytes, RandomState>,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Arc<[u8]>, Arc<[u8]>> for ByBytes {
    fn weight(&self, key: &Arc<[u8]>, entry: &Arc<[u8]>) -> u64 {
        (key.len() + entry.len() + OVERHEAD_BYTES) as u64
    }
}

impl Latest {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let bytes = (memory_bytes / MEMORY_SHARE).clamp(*MEMORY_BYTES.start(), *MEMORY_BYTES.end());
        let items = usize::try_from(bytes).unwrap_or(usize::MAX) / (4 * OVERHEAD_BYTES);
        Self { keys: Cache::with(items, bytes, ByBytes, RandomState::new(), DefaultLifecycle::default()) }
    }

    /// The key of the entry that was installed last of those that differ in their limits only.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<Arc<[u8]>> {
        self.keys.get(key)
    }

    /// An entry is installed; the key of the one before.
    pub(crate) fn installed(&self, reached: &Reached) -> Option<Arc<[u8]>> {
        let before = self.entry(&reached.key);
        self.keys.insert(reached.key.clone(), reached.entry.clone());
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_has_one_meaning() {
        let written = |bytes: &[u8], cuts: &[(usize, usize)]| {
            let mut key = Vec::new();
            put_without(&mut key, bytes, &mut cuts.to_vec()).map(|()| key)
        };
        assert_eq!(written(b"a'1'b", &[(1, 4)]), written(b"a'22'b", &[(1, 5)]));
        assert_ne!(written(b"a'1'b", &[(1, 4)]), written(b"ab'1'", &[(2, 5)]));
        assert_ne!(written(b"ab", &[]), written(b"a'1'b", &[(1, 4)]));
        assert_eq!(written(b"a1b2c", &[(3, 4), (1, 2)]), written(b"a3b4c", &[(1, 2), (3, 4)]));
        for beyond in [&[(0, 9)][..], &[(7, 8)], &[(1, 3), (2, 4)]] {
            assert!(written(b"a1b2c", beyond).is_none() || beyond == [(0, 9)], "{beyond:?}");
        }
    }
}
