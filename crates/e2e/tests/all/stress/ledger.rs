//! The ledger: which versions were written when, and therefore which an answer may show.
//!
//! Each row (a *key* here, existing or deleted) is written by one writer only, so its versions are a sequence, and the ledger has the times at which
//! each version's commit was sent and acknowledged. Between these two times an answer may show it or not. That gives each answer a *window* of
//! versions per key. The answer must not be older than
//!
//! - what was acknowledged through Freshet before the query was sent (promise 3);
//! - what was acknowledged, on any way, more than D before the query was sent (promise 2, and promise 1 too: what stays stale without limit will be
//!   older than D);
//! - what the same session has seen of this key, and what was acknowledged before anything was begun that the session has seen of any key: the
//!   session has seen a later state of the database (promise 4);
//! - in a REPEATABLE READ transaction, what was acknowledged before its first query was sent;
//!
//! and not newer than what had been begun when the answer arrived (nothing that was rolled back may show).
//!
//! All times are of one monotonic clock. Since "begun" is taken before and "acknowledged" after the event, the checks err in Freshet's favour by
//! scheduling delays only, never against it.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime};

/// What the rows belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Table {
    /// No old values in the log.
    Item,
    /// All old values in the log.
    Part,
    /// Truncated at times.
    Note,
    /// Dies with its folder.
    Leaf,
    /// Partitioned by kind, one of them by group as well.
    Event,
    /// Kind 0 in the parent, the others in an heir.
    Kin,
    /// Tables that are made under way.
    Young,
    /// Not rows but definitions: the version is of a view, a table's name, a privilege.
    Definition,
}

const TABLES: usize = Table::Definition as usize + 1;

/// Which row: table and id. Ids count from 0.
pub(crate) type KeyId = (Table, i32);

/// The columns that predicates look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) grp: i32,
    pub(crate) kind: i32,
}

struct Version {
    /// None: deleted.
    row: Option<Row>,
    /// When its commit was sent. None: it is in an open transaction.
    begun: Option<Instant>,
    acknowledged: Option<Instant>,
    through: bool,
    /// The commit failed.
    void: bool,
}

/// A moment of asking and one of being answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    /// The question was answered in a snapshot of the database that was taken in this span.
    pub(crate) snapshot: bool,
}

/// The versions that an answer may have shown of a key: all that fit lie between these, inclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    first: usize,
    last: usize,
}

/// What a session has been shown.
#[derive(Default)]
pub(crate) struct Seen {
    /// At least this version of each key.
    versions: HashMap<KeyId, usize>,
    /// The state it has seen is one after this moment.
    moment: Option<Instant>,
}

/// What is known of the snapshot of one transaction.
#[derive(Default)]
pub(crate) struct Snapshot {
    after: Option<Instant>,
    before: Option<Instant>,
    /// The version of each key, None if it was not there.
    shown: HashMap<KeyId, Option<i32>>,
    /// What was asked in it, for a message.
    pub(crate) asked: Vec<String>,
}

/// The versions of each key.
pub(crate) struct Ledger {
    tables: [Vec<Vec<Version>>; TABLES],
    staleness_max: Duration,
    /// How long after it was outdated an answer was given, at most.
    worst: Duration,
    /// Answers that showed a version that was no longer the latest acknowledged.
    outdated: u64,
}

impl Ledger {
    pub(crate) fn new(staleness_max: Duration) -> Self {
        Self { tables: Default::default(), staleness_max, worst: Duration::ZERO, outdated: 0 }
    }

    /// How outdated the worst answer was, and how many rows were shown that had been.
    pub(crate) fn figures(&self) -> (Duration, u64) {
        (self.worst, self.outdated)
    }

    /// The next key of a table, there or dead from the start.
    pub(crate) fn insert(&mut self, table: Table, row: Option<Row>) -> KeyId {
        let now = Some(Instant::now());
        let keys = &mut self.tables[table as usize];
        keys.push(vec![Version { row, begun: now, acknowledged: now, through: false, void: false }]);
        (table, number(keys.len() - 1))
    }

    fn versions(&self, (table, id): KeyId) -> &[Version] {
        &self.tables[table as usize][index(id)]
    }

    fn versions_mut(&mut self, (table, id): KeyId) -> &mut Vec<Version> {
        &mut self.tables[table as usize][index(id)]
    }

    /// Keys of a table.
    pub(crate) fn keys_of(&self, table: Table) -> impl ExactSizeIterator<Item = KeyId> + use<> {
        (0..number(self.tables[table as usize].len())).map(move |id| (table, id))
    }

    /// The latest version that did not fail, and its row.
    pub(crate) fn latest(&self, key: KeyId) -> (i32, Option<Row>) {
        let versions = self.versions(key);
        let at = versions.iter().rposition(|version| !version.void).unwrap_or(0);
        (number(at), versions[at].row)
    }

    /// A write; returns its version.
    pub(crate) fn write(&mut self, key: KeyId, row: Option<Row>, through: bool) -> i32 {
        let versions = self.versions_mut(key);
        versions.push(Version { row, begun: None, acknowledged: None, through, void: false });
        number(versions.len() - 1)
    }

    /// The commit of the latest version is about to be sent.
    pub(crate) fn begin(&mut self, key: KeyId) {
        let now = Instant::now();
        if let Some(version) = self.versions_mut(key).last_mut() {
            version.begun = Some(now);
        }
    }

    /// The latest version's commit was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: KeyId) {
        let now = Instant::now();
        if let Some(version) = self.versions_mut(key).last_mut() {
            version.acknowledged = Some(now);
        }
    }

    /// The latest version was found to be in the database, or not to be, after the connection was lost.
    pub(crate) fn resolve(&mut self, key: KeyId, done: bool) {
        if let Some(version) = self.versions_mut(key).last_mut() {
            // Its acknowledgement never came.
            version.through = false;
            version.void = !done;
        }
        if done {
            self.acknowledge(key);
        }
    }

    /// The window of versions of `key`: the first and the last that an answer may show.
    fn window(&self, key: KeyId, span: Span, seen: &Seen) -> (usize, usize) {
        let versions = self.versions(key);
        let around = span.asked.checked_sub(self.staleness_max);
        let must = |version: &Version| {
            let at_once = span.snapshot || version.through && super::ACROSS_SESSIONS;
            let due = if at_once { Some(span.asked) } else { around };
            version.acknowledged.is_some_and(|at| Some(at) < due || Some(at) < seen.moment)
        };
        let first = versions.iter().rposition(must).unwrap_or(0).max(seen.versions.get(&key).copied().unwrap_or(0));
        let begun = |version: &Version| version.begun.is_some_and(|at| at <= span.answered);
        let last = versions.iter().rposition(begun).unwrap_or(0);
        (first, last.max(first))
    }

    /// The versions in which an answer may show the key and for which `fits` holds.
    pub(crate) fn fit(
        &self,
        key: KeyId,
        span: Span,
        seen: &Seen,
        fits: impl Fn(i32, Option<Row>) -> bool,
    ) -> Option<Fit> {
        let (first, last) = self.window(key, span, seen);
        let versions = &self.versions(key)[first..=last];
        let fits = |at: &usize| !versions[*at].void && fits(number(first + at), versions[*at].row);
        let mut fitting = (0..versions.len()).filter(fits);
        let least = fitting.next()?;
        Some(Fit { first: first + least, last: first + fitting.next_back().unwrap_or(least) })
    }

    /// The least and the most that a key may contribute to a sum.
    pub(crate) fn range(
        &self,
        key: KeyId,
        span: Span,
        seen: &Seen,
        part: impl Fn(i32, Option<Row>) -> i64,
    ) -> (i64, i64) {
        let (first, last) = self.window(key, span, seen);
        let versions =
            self.versions(key)[first..=last].iter().zip(number(first)..).filter(|(version, _)| !version.void);
        let parts = versions.map(|(version, at)| part(at, version.row));
        parts.fold((i64::MAX, i64::MIN), |(least, most), part| (least.min(part), most.max(part)))
    }

    /// An answer was right; what it says about the session from now on, and about its transaction's snapshot.
    pub(crate) fn note(
        &mut self,
        key: KeyId,
        span: Span,
        fit: Fit,
        (seen, snapshot): (&mut Seen, Option<&mut Snapshot>),
    ) -> Result<(), String> {
        let versions = self.versions(key);
        let known = seen.versions.entry(key).or_default();
        *known = fit.first.max(*known);
        seen.moment = seen.moment.max(versions[fit.first].begun);
        let next = versions[fit.last + 1..].iter().find(|version| !version.void).and_then(|next| next.acknowledged);
        if let Some(snapshot) = snapshot {
            snapshot.after = snapshot.after.max(versions[fit.first].begun);
            snapshot.before = [snapshot.before, next].into_iter().flatten().min();
            if let (Some(after), Some(before)) = (snapshot.after, snapshot.before)
                && after > before
            {
                return Err(format!("the reads of the transaction are {:?} apart", after - before));
            }
        }
        if let Some(since) = next.and_then(|at| span.asked.checked_duration_since(at)) {
            self.outdated += 1;
            self.worst = self.worst.max(since);
        }
        Ok(())
    }

    /// What is known of a key, for a message: versions of the window with their ages when the question was sent.
    pub(crate) fn explain(&self, key: KeyId, span: Span, seen: &Seen) -> String {
        let (first, last) = self.window(key, span, seen);
        let versions = self.versions(key);
        let known = seen.versions.get(&key);
        let moment = seen.moment.map(|at| age(span.asked, at));
        let took = span.answered.saturating_duration_since(span.asked);
        let mut text = format!(
            "{key:?}: versions {first} to {last} may show; its session has seen {known:?} and a state as of {moment:?}; \
             asked at {}, answered after {took:?}; snapshot: {};",
            time_of_day(span.asked),
            span.snapshot
        );
        for (version, at) in versions[first.saturating_sub(3)..].iter().zip(first.saturating_sub(3)..) {
            let how = if version.through { "through" } else { "direct" };
            let void = if version.void { ", void" } else { "" };
            let begun = version.begun.map(|begun| age(span.asked, begun));
            let acknowledged = version.acknowledged.map(|at| age(span.asked, at));
            let row = version.row.map(|row| (row.grp, row.kind));
            let _ = write!(text, "\n    {at}: {row:?} {how}{void}, begun {begun:?}, acknowledged {acknowledged:?};");
        }
        text
    }
}

impl Snapshot {
    /// A key was shown in this version, or was not there. The same again, or it is another snapshot.
    pub(crate) fn shows(&mut self, key: KeyId, version: Option<i32>) -> Result<(), String> {
        let before = *self.shown.entry(key).or_insert(version);
        if before == version {
            return Ok(());
        }
        Err(format!("{key:?} is {version:?} now, and was {before:?} earlier in the same transaction"))
    }
}

/// Milliseconds before (below 0) or after the question.
fn age(asked: Instant, at: Instant) -> f64 {
    let before = asked.saturating_duration_since(at).as_secs_f64();
    (at.saturating_duration_since(asked).as_secs_f64() - before) * 1000.0
}

fn index(id: i32) -> usize {
    usize::try_from(id).expect("ids count from 0")
}

fn number(version: usize) -> i32 {
    i32::try_from(version).expect("a run writes fewer versions")
}

/// In UTC, as in Freshet's log.
fn time_of_day(at: Instant) -> String {
    let then = SystemTime::now() - at.elapsed();
    let since = then.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let of_day = since.as_secs() % 86_400;
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:06}", since.subsec_micros())
}
