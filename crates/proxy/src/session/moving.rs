//! Entries with moving limits, which answer other executions than their own: those whose limits have moved, within the range that the answer gives
//! (see `sql/src/dependency/moving_limit.rs` for the conditions and the proof).
//!
//! Such an entry has its own key, like all entries. In addition, the key *without* its moving limits leads to the entry that was installed last. So a
//! statement with moving limits is looked up twice, and any other once: after a miss, the statement says whether there is a second look-up. An entry
//! that the second look-up finds is served under the same rules as any other, and only if its range includes the moved limits.
//!
//! Limits whose values recur, as for keyset pagination, still have an entry each.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_sql::{Field, Parameter, Positions, Reach, ReadSet};
use freshet_types::Catalog;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rapidhash::quality::RandomState;

use crate::session::context::Context;
use crate::statement::registry::{NormalizedQuery, Statement};

/// Bytes for one key that leads to another, in addition to the two keys.
const OVERHEAD_BYTES: usize = 128;
/// The part (one in n) of the cache's memory, within limits.
const MEMORY_SHARE: u64 = 16;
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);

/// The moving limits of one execution.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Everything that decides its answer, without the limits.
    pub(crate) key: Arc<[u8]>,
    pub(crate) at: Positions,
    pub(crate) read_set: Arc<ReadSet>,
    utf8: bool,
}

/// The range of an entry.
#[derive(Debug)]
pub(crate) struct Reached {
    /// See [`Limits::key`].
    key: Arc<[u8]>,
    /// The entry's own key.
    entry: Arc<[u8]>,
    reach: Reach,
    /// The entry's own limits.
    at: Positions,
    /// See [`Limits::counted`].
    by_clock: bool,
}

impl Limits {
    /// The key under which misses are counted: for limits that follow the clock it is one for all, since none of their keys misses twice.
    pub(crate) fn counted<'k>(limits: Option<&'k Self>, entry: &'k [u8]) -> &'k [u8] {
        limits.filter(|limits| limits.read_set.moves_with_clock()).map_or(entry, |limits| &limits.key)
    }

    /// `write_key` writes the key without the parameters of these numbers; None if the result would be ambiguous.
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

    /// The range of an answer with these rows, which has the key `entry`.
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

    /// Whether another entry would also answer the entry's own execution.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.key == other.key && self.entry != other.entry && other.covers(&self.at)
    }

    /// The key under which its misses were counted, if not its own.
    pub(crate) fn counted_by(&self) -> Option<&[u8]> {
        self.by_clock.then_some(&*self.key)
    }

    /// Bytes of it, and of the key that leads to it.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.entry.len() + OVERHEAD_BYTES
    }
}

impl NormalizedQuery {
    /// Whether it is known to have moving limits, under some catalogue.
    pub(crate) fn moves(&self) -> bool {
        self.moves.load(Relaxed)
    }

    /// Its read set with this catalogue, if it has moving limits.
    pub(crate) fn moving(&self, catalog: &Catalog, context: &Context) -> Option<Arc<ReadSet>> {
        if self.moves() { self.resolve(catalog, context).read_set.ok() } else { None }
    }
}

/// Writes the text without the literals of these numbers, but with their kinds; numbers of other parameters are ignored.
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

/// Writes bytes without these ranges, unambiguously.
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

/// From keys without moving limits to the keys of the entries that were installed last.
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

    /// The key of the entry installed last among those that differ in their limits only.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<Arc<[u8]>> {
        self.keys.get(key)
    }

    /// Stores an installed entry; returns the key of the previous one.
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
