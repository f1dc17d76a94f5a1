//! What was written, when, and what an answer may therefore show.
//!
//! Each row (a *key* here, dead or alive) is written by one writer only, so its versions are a sequence, and each
//! version knows when its first statement was sent and when its commit was acknowledged. Between these two moments
//! an answer may show it or not. That leaves each answer a *window* of versions per key:
//!
//! - not older than what was acknowledged more than D before the question was sent (promise 2, and promise 1 too: what
//!   stays stale for ever is one day older than D);
//! - not older than what the same session has been shown (promise 4) or has written (promise 3; that a write is seen by
//!   other sessions at once is not promised yet);
//! - not newer than what had been begun when the answer arrived (nothing that was rolled back may show).
//!
//! All moments are of one monotonic clock. Since "sent" is taken before and "acknowledged" after the fact, the checks
//! err on the side of Freshet by scheduling delays only, never against it.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Which row: table and id.
pub(crate) type KeyId = (&'static str, i32);

/// The columns that predicates look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) grp: i32,
    pub(crate) kind: i32,
}

struct Version {
    /// None: deleted.
    row: Option<Row>,
    begun: Instant,
    acknowledged: Option<Instant>,
    through: bool,
}

/// A moment of asking and one of being answered.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

/// The versions of each key.
pub(crate) struct Ledger {
    keys: HashMap<KeyId, Vec<Version>>,
    by_table: HashMap<&'static str, Vec<KeyId>>,
    staleness_max: Duration,
    /// How long after it was outdated an answer was given, at most.
    worst: Duration,
    /// Answers that showed a version that was no longer the latest acknowledged.
    outdated: u64,
}

impl Ledger {
    pub(crate) fn new(staleness_max: Duration) -> Self {
        Self { keys: HashMap::new(), by_table: HashMap::new(), staleness_max, worst: Duration::ZERO, outdated: 0 }
    }

    /// How outdated the worst answer was, and how many rows were shown that had been.
    pub(crate) fn figures(&self) -> (Duration, u64) {
        (self.worst, self.outdated)
    }

    /// A key that is there, or dead, from the start.
    pub(crate) fn insert(&mut self, key: KeyId, row: Option<Row>) {
        let now = Instant::now();
        self.by_table.entry(key.0).or_default().push(key);
        self.keys.insert(key, vec![Version { row, begun: now, acknowledged: Some(now), through: false }]);
    }

    /// The latest version that was begun, and its row.
    pub(crate) fn latest(&self, key: KeyId) -> (i32, Option<Row>) {
        let versions = &self.keys[&key];
        (number(versions.len() - 1), versions[versions.len() - 1].row)
    }

    /// A write begins; returns its version.
    pub(crate) fn begin(&mut self, key: KeyId, row: Option<Row>, through: bool) -> i32 {
        let versions = self.keys.get_mut(&key).expect("a known key");
        versions.push(Version { row, begun: Instant::now(), acknowledged: None, through });
        number(versions.len() - 1)
    }

    /// The latest version's commit was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: KeyId) {
        let now = Instant::now();
        if let Some(version) = self.keys.get_mut(&key).and_then(|versions| versions.last_mut()) {
            version.acknowledged = Some(now);
        }
    }

    /// Keys of a table.
    pub(crate) fn keys_of(&self, table: &str) -> &[KeyId] {
        self.by_table.get(table).map_or(&[], Vec::as_slice)
    }

    /// The window of versions of `key`: the first and the last that an answer may show.
    fn window(&self, key: KeyId, span: Span, seen: i32) -> (usize, usize) {
        let versions = &self.keys[&key];
        let must = |version: &Version| {
            let age = version.acknowledged.and_then(|at| span.asked.checked_duration_since(at));
            age.is_some_and(|age| age > self.staleness_max)
        };
        let first = versions.iter().rposition(must).unwrap_or(0).max(usize::try_from(seen).unwrap_or(0));
        let last = versions.iter().rposition(|version| version.begun <= span.answered).unwrap_or(0);
        (first, last.max(first))
    }

    /// Whether an answer may show the key in a state for which `fits` holds.
    pub(crate) fn may(&self, key: KeyId, span: Span, seen: i32, fits: impl Fn(i32, Option<Row>) -> bool) -> bool {
        let (first, last) = self.window(key, span, seen);
        self.keys[&key][first..=last].iter().zip(number(first)..).any(|(version, at)| fits(at, version.row))
    }

    /// The least and the most that a key may contribute to a sum.
    pub(crate) fn range(&self, key: KeyId, span: Span, part: impl Fn(i32, Option<Row>) -> i64) -> (i64, i64) {
        let (first, last) = self.window(key, span, 0);
        let parts = self.keys[&key][first..=last].iter().zip(number(first)..).map(|(v, at)| part(at, v.row));
        parts.fold((i64::MAX, i64::MIN), |(least, most), part| (least.min(part), most.max(part)))
    }

    /// Notes how outdated an answer was that showed this version.
    pub(crate) fn note(&mut self, key: KeyId, span: Span, version: i32) {
        let next = usize::try_from(version + 1).ok().and_then(|next| self.keys[&key].get(next));
        let since = next.and_then(|next| next.acknowledged).and_then(|at| span.asked.checked_duration_since(at));
        if let Some(since) = since {
            self.outdated += 1;
            self.worst = self.worst.max(since);
        }
    }

    /// What is known of a key, for a message: versions of the window with their ages when the question was sent.
    pub(crate) fn explain(&self, key: KeyId, span: Span, seen: i32) -> String {
        let (first, last) = self.window(key, span, seen);
        let versions = &self.keys[&key];
        let from = first.saturating_sub(2);
        let mut text = format!("{key:?}: versions {first} to {last} may show (its session has seen {seen});");
        for (version, at) in versions[from..=last].iter().zip(from..) {
            let age = version.acknowledged.map(|a| span.asked.saturating_duration_since(a));
            let how = if version.through { "through" } else { "direct" };
            let _ = write!(text, " {at}: {:?} {how}, acknowledged {age:?} before;", version.row);
        }
        text
    }
}

fn number(version: usize) -> i32 {
    i32::try_from(version).expect("a run writes fewer versions")
}
