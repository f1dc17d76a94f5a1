//! Complete results on their way into the cache, and those of them that wait for their join keys.
//!
//! Some rows matter to a result only by the keys that other rows hold: a movie's ratings by the movie's number, which its
//! title gives. A query of Freshet's own reads those keys. It may run at any time after the fill has begun, in a
//! snapshot of its own, and on any connection to the server; so it runs behind the client's back. The client has its
//! answer, and the result waits here for a service connection (`run_key_queries` of either family).
//!
//! A commit that the keys reflect and the result does not may have taken keys away, and with them what tells that another
//! commit before it matters. So behind the keys the log end is read again, and the result is not served before the
//! stream has passed it: that commit is delivered then, and invalidates the result by the rows that the keys came from.
//!
//! Of tables that nobody has written to since Freshet started any row counts: the first change invalidates what depends on them,
//! and from then on the keys are read. So it is, most of the time, with statements that have too many keys.
//!
//! Whatever prevents that query costs precision and no more: then any row of those tables counts. And since a result that
//! waits is a fill in flight, which nobody else can fill meanwhile, few may wait, and none for a connection that does not
//! come about.

use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshet_cache::{Entry, Installed};
use freshet_sql::{JoinKeys, Key};
use freshet_types::{End, Lsn, Nanos, Reason, RowSet, TableId, Tag};
use tokio::sync::Notify;

use crate::session::body::Body;
use crate::session::fill::{PendingFill, Read};
use crate::shared::Shared;

/// Results that may wait; of further ones any row counts.
const WAITING_MAX: usize = 1024;
/// Results whose keys are read at once, and bytes of SQL that more than one may have.
const TOGETHER_MAX: usize = 32;
const TOGETHER_BYTES: usize = 64 << 10;
/// The part of the cache's memory that they may take: one in so many.
const WAITING_SHARE: u64 = 8;
/// After so many join keys in a row that told too little, those of a statement are read once in so many.
const COARSE_MAX: u32 = 4;
const COARSE_TURN: u32 = 64;
/// The same of statements whose keys' reach could not be told, either.
const HOPELESS: u32 = 1 << 31;
/// Time after a failure in which nothing waits.
const CLOSED: Nanos = 200_000_000;

/// Bytes that the answer to a query for keys may take.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Why keys were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server took too long, or the answer is too large: so it is the next time, too.
    Costly,
    /// The server refused the statement, or its answer has other columns. What it names may have been defined anew meanwhile.
    Refused,
    /// The connection is at fault.
    Broken,
}

/// Keys, each with the number of the part that it belongs to.
pub(crate) type Keys = Vec<Key>;

impl PendingFill<Read> {
    /// All deferred tags are known: these, and those that the answer told.
    fn tell(&mut self, tags: Vec<Tag>) {
        let told = self.stage.told.take().into_iter().flatten();
        self.permit.set_deferred(told.chain(tags).collect(), None);
    }

    /// Likewise, where rows that go are named by their keys; commits that raced are held against the second ones.
    fn set_members(&mut self, tags: Vec<Tag>, until_known: Vec<Tag>, join_keys: &JoinKeys) {
        let (told, led_by) = match self.stage.told.take() {
            Some(told) => (told, None),
            None => (Vec::new(), join_keys.is_lasting().then(|| join_keys.rests_on().into())),
        };
        let with_told = |tags: Vec<Tag>| told.iter().cloned().chain(tags).collect();
        self.permit.set_members(with_told(tags), with_told(until_known), led_by, join_keys.named().into());
    }

    /// Likewise, by keys that were read from these tables. What the answer told holds for this answer alone.
    fn tell_read(&mut self, tags: Vec<Tag>, led_by: Vec<TableId>) {
        if self.stage.told.is_some() {
            return self.tell(tags);
        }
        self.permit.set_deferred(tags, Some(led_by.into()));
    }
}

/// A result that waits.
#[derive(Debug)]
pub(crate) struct Job {
    complete: PendingFill<Read>,
    pub(crate) join_keys: Box<JoinKeys>,
    /// The log end after the result was read.
    end: End,
    /// A query for its keys and those of others was refused.
    alone: bool,
}

impl Job {
    fn bytes(&self) -> u64 {
        (self.complete.stage.body.frames().len() + self.join_keys.sql_bytes() + size_of::<Self>()) as u64
    }
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: u64,
}

impl Waiting {
    fn next(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.bytes();
        Some(job)
    }
}

/// The results that wait for their join keys, and what became of the others.
#[derive(Debug, Default)]
pub struct KeyQueries {
    waiting: Mutex<Waiting>,
    /// Those with keys of rows that go, until the stream has passed the end that was read behind these.
    settling: Mutex<Vec<(PendingFill<Read>, End)>>,
    settling_count: AtomicUsize,
    by_members: AtomicU64,
    added: Notify,
    /// Until then nothing waits.
    closed_until: AtomicU64,
    reads: AtomicU64,
    failures: AtomicU64,
    coarse: AtomicU64,
}

impl KeyQueries {
    /// Queries for keys that were answered.
    pub fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Those that were not.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Results on which any row of a table counts, since its keys were not told or are too many.
    pub fn coarse(&self) -> u64 {
        self.coarse.load(Relaxed)
    }

    /// Results whose rows that go are told by their keys, which were read.
    pub fn by_members(&self) -> u64 {
        self.by_members.load(Relaxed)
    }

    /// Results that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting().jobs.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those that have waited longest, which may be none.
    fn take(&self) -> Vec<Job> {
        let mut waiting = self.waiting();
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while let Some(job) = waiting.jobs.front() {
            bytes += job.join_keys.sql_bytes();
            let alone = job.alone;
            if jobs.len() == TOGETHER_MAX || ((alone || bytes > TOGETHER_BYTES) && !jobs.is_empty()) {
                break;
            }
            jobs.extend(waiting.next());
            if alone {
                break;
            }
        }
        jobs
    }

    /// Err: it cannot wait.
    fn add(&self, job: Job, bytes_max: u64) -> Result<(), Box<Job>> {
        let mut waiting = self.waiting();
        if waiting.jobs.len() >= WAITING_MAX || waiting.bytes + job.bytes() > bytes_max {
            return Err(Box::new(job));
        }
        waiting.bytes += job.bytes();
        waiting.jobs.push_back(job);
        drop(waiting);
        self.added.notify_one();
        Ok(())
    }
}

impl Shared {
    /// Installs a complete result, read before `end`, or has it wait for its join keys.
    pub(crate) fn install(&self, mut complete: PendingFill<Read>, end: End) {
        let Some(mut join_keys) = complete.join_keys.take() else {
            if complete.stage.told.is_some() {
                complete.tell(Vec::new());
            }
            return self.keep(complete, end);
        };
        let query = complete.stage.body.source.query.clone();
        let figures = &query.figures;
        if is_in_vain(&figures.members_coarse) {
            join_keys.leave_members();
        }
        let cache = &self.cache;
        if !join_keys.ask_only_of(|table| cache.has_changed(table), |table| cache.has_lost_rows(table)) {
            // As long as nobody writes to these tables, precision would be paid for and never used.
            complete.tell(join_keys.deferred_tags(None));
            figures.worth.costs_twice(false);
            return self.keep(complete, end);
        }
        let known = figures.coarse.load(Relaxed);
        let in_vain = is_in_vain(&figures.coarse);
        // The keys are too many: how far they reach may still leave out most rows, as of a report on last month.
        let in_vain = in_vain && (known >= HOPELESS || !join_keys.ask_for_ranges());
        figures.worth.costs_twice(!in_vain);
        let job = Job { complete, join_keys, end, alone: false };
        if in_vain || self.clock.now() < self.key_queries.closed_until.load(Relaxed) {
            return self.keys_unknown(job);
        }
        if let Err(job) = self.key_queries.add(job, self.cache.limits().memory_bytes / WAITING_SHARE) {
            self.keys_unknown(*job);
        }
    }

    /// The next results whose join keys are to be read, at least one. What could not be kept, or is not wanted any more, is
    /// dropped.
    pub(crate) async fn next_key_queries(&self) -> Vec<Job> {
        loop {
            let mut jobs = self.key_queries.take();
            if jobs.is_empty() {
                self.key_queries.added.notified().await;
                continue;
            }
            let off = self.switches.bypass() || self.switches.is_draining();
            let epoch = self.cache.epoch();
            jobs.retain(|job| !off && epoch == Some(job.end.epoch));
            if !jobs.is_empty() {
                return jobs;
            }
        }
    }

    /// The keys were read, and then the log end.
    pub(crate) fn keys_read(&self, job: Job, keys: &Keys, behind: Lsn) {
        let (complete, end) = self.keys_known(job, Some(keys));
        self.keep(complete, End { lsn: end.lsn.max(behind), ..end });
    }

    /// The keys could not be read. If the connection is not at fault, it is one of several: they are read again, each alone.
    pub(crate) fn key_queries_failed(&self, jobs: Vec<Job>, failure: Failure) {
        let broken = failure == Failure::Broken;
        if !broken && jobs.len() > 1 {
            let mut waiting = self.key_queries.waiting();
            for mut job in jobs {
                job.alone = true;
                waiting.bytes += job.bytes();
                waiting.jobs.push_front(job);
            }
            return;
        }
        self.key_queries.failures.fetch_add(1, Relaxed);
        for job in jobs {
            if !broken {
                let of_query = &job.complete.stage.body.source.query.figures.coarse;
                let ranges = failure == Failure::Costly && job.join_keys.asks_for_ranges();
                of_query.store(coarser(of_query.load(Relaxed), ranges), Relaxed);
            }
            self.keys_unknown(job);
        }
        if !broken {
            return;
        }
        self.key_queries.closed_until.store(self.clock.now() + CLOSED, Relaxed);
        let waiting = std::mem::take(&mut *self.key_queries.waiting());
        for job in waiting.jobs {
            self.keys_unknown(job);
        }
    }

    /// No keys can be known: any row counts.
    pub(crate) fn keys_unknown(&self, job: Job) {
        let (complete, end) = self.keys_known(job, None);
        self.keep(complete, end);
    }

    /// A result that may be kept, as far as its tags are concerned, and the end behind it. If keys were read, it may be served
    /// only from an end that was read behind them.
    pub(crate) fn keys_known(&self, job: Job, keys: Option<&Keys>) -> (PendingFill<Read>, End) {
        let Job { mut complete, join_keys, end, alone: _ } = job;
        self.key_queries.reads.fetch_add(u64::from(keys.is_some()), Relaxed);
        let tags = join_keys.deferred_tags(keys.map(Vec::as_slice));
        let is_coarse = tags.iter().filter(|tag| tag.rows == RowSet::Any).count() > join_keys.left_out();
        self.key_queries.coarse.fetch_add(u64::from(is_coarse), Relaxed);
        let of_query = &complete.stage.body.source.query.figures.coarse;
        match keys {
            Some(_) if is_coarse => {
                of_query.store(coarser(of_query.load(Relaxed), join_keys.asks_for_ranges()), Relaxed);
            }
            // How many keys there are is not known of these.
            Some(_) if join_keys.asks_for_ranges() => {}
            Some(_) => of_query.store(0, Relaxed),
            None => {}
        }
        let members = keys.and_then(|keys| join_keys.deferred_tags_of_members(keys));
        if keys.is_some() && join_keys.asks_for_members() {
            count_vain(&complete.stage.body.source.query.figures.members_coarse, members.is_none());
        }
        match (keys, members) {
            (_, Some(members)) => {
                self.key_queries.by_members.fetch_add(1, Relaxed);
                complete.set_members(members, tags, &join_keys);
            }
            (Some(_), None) if !is_coarse && !join_keys.asks_for_members() && join_keys.is_lasting() => {
                complete.tell_read(tags, join_keys.rests_on());
            }
            _ => complete.tell(tags),
        }
        (complete, end)
    }

    /// The stream has passed this position.
    pub fn settle(&self, passed: Lsn) {
        if self.key_queries.settling_count.load(SeqCst) == 0 {
            return;
        }
        let epoch = self.cache.epoch();
        let mut settling = self.key_queries.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let settled: Vec<_> =
            settling.extract_if(.., |(_, end)| end.lsn <= passed || Some(end.epoch) != epoch).collect();
        self.key_queries.settling_count.store(settling.len(), SeqCst);
        drop(settling);
        for (complete, end) in settled {
            self.keep(complete, end);
        }
    }

    /// The result waits until the stream has passed the end.
    fn await_passed(&self, complete: PendingFill<Read>, end: End) {
        let mut settling = self.key_queries.settling.lock().unwrap_or_else(PoisonError::into_inner);
        if settling.len() < WAITING_MAX {
            settling.push((complete, end));
        }
        self.key_queries.settling_count.store(settling.len(), SeqCst);
        drop(settling);
        // It may have passed meanwhile.
        self.settle(self.cache.applied());
    }

    fn keep(&self, complete: PendingFill<Read>, end: End) {
        if self.cache.epoch() == Some(end.epoch) && !complete.permit.may_commit(end.lsn) {
            return self.await_passed(complete, end);
        }
        let PendingFill { mut permit, join_keys: _, proof, expected, stage } = complete;
        let Read { told: _, body, refreshed } = stage;
        let (query, by_members) = (body.source.query.clone(), permit.knows_members());
        if self.redefining.load(SeqCst) > 0 {
            permit.note_possible_definition(self.clock.now());
        }
        let installed = permit.commit(body, proof.as_deref(), end.lsn);
        if by_members && matches!(installed, Installed::Stale) {
            // Rows go so often that one did meanwhile: then it may be so the next time, too.
            count_vain(&query.figures.members_coarse, true);
        }
        if matches!(installed, Installed::TooLarge) {
            query.note_not_cached(Reason::TooLarge);
        }
        let Installed::Stored { entry, replaced } = installed else { return };
        query.note_kept();
        if let Some(reached) = &entry.payload.reached {
            let before = self.latest.installed(reached).and_then(|key| self.expected(&key));
            let answers =
                |before: &Arc<Entry<Body>>| before.payload.reached.as_ref().is_some_and(|it| reached.is_within(it));
            if let Some(before) = before.filter(answers) {
                self.verifier.compare(before, entry.clone(), end);
            }
        }
        self.note_filled(entry.weight());
        if refreshed {
            self.refreshes.count_installed();
        }
        if let Some(replaced) = replaced
            && expected.is_some_and(|expected| Arc::ptr_eq(&expected, &replaced))
        {
            self.verifier.compare(replaced, entry, end);
        }
    }
}

/// Whether a statement's join keys told too little so often in a row that this one is not read.
fn is_in_vain(coarse: &AtomicU32) -> bool {
    coarse.load(Relaxed) >= COARSE_MAX && !coarse.fetch_add(1, Relaxed).is_multiple_of(COARSE_TURN)
}

/// Whether keys of rows that go were of no use this time.
fn count_vain(coarse: &AtomicU32, was_vain: bool) {
    coarse.store(if was_vain { coarse.load(Relaxed).saturating_add(1) } else { 0 }, Relaxed);
}

/// How often in a row a statement's join keys told too little, once more.
fn coarser(coarse: u32, ranges: bool) -> u32 {
    if ranges { coarse.max(HOPELESS) } else { coarse.saturating_add(1) }
}

/// The query for the keys of all of these.
pub(crate) fn keys_question(jobs: &[Job]) -> String {
    JoinKeys::sql(jobs.iter().map(|job| &*job.join_keys))
}

/// Its answer, for each; None if it is none.
pub(crate) fn read_keys<C: Into<Vec<u8>>>(rows: Vec<Vec<Option<C>>>, jobs: usize) -> Option<Vec<Keys>> {
    let mut keys = vec![Keys::new(); jobs];
    for row in rows {
        let [place, key] = <[_; 2]>::try_from(row).ok()?;
        let place = String::from_utf8(place?.into()).ok()?;
        let (job, part) = place.split_once('.')?;
        keys.get_mut(job.parse::<usize>().ok()?)?.push((part.parse().ok()?, key.map(Into::into)));
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        let row = |cells: &[Option<&str>]| cells.iter().map(|cell| cell.map(str::to_owned)).collect::<Vec<_>>();
        let rows = [[Some("0.0"), Some("7")], [Some("2.1"), None], [Some("2.1"), Some("")]].map(|cells| row(&cells));
        let keys = [vec![(0, Some(b"7".to_vec()))], vec![], vec![(1, None), (1, Some(Vec::new()))]];
        assert_eq!(read_keys(rows.to_vec(), 3), Some(keys.to_vec()));
        assert_eq!(read_keys::<String>(Vec::new(), 1), Some(vec![Keys::new()]));
        let bytes = vec![vec![Some(b"0.0".to_vec()), Some(vec![0xff, 0])]];
        assert_eq!(read_keys(bytes, 1), Some(vec![vec![(0, Some(vec![0xff, 0]))]]));
        let wrong: [&[Option<&str>]; 5] =
            [&[None, Some("7")], &[Some("x.0"), Some("7")], &[Some("1.0"), Some("7")], &[Some("0.0")], &[]];
        for wrong in wrong {
            assert_eq!(read_keys(vec![row(wrong)], 1), None);
        }
    }
}
