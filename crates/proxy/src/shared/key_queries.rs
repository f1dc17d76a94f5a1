//! Installation of complete results, and the key queries that some of them wait for.
//!
//! Some rows matter to a result only by join keys: the ratings of a movie, by the movie's number in its title. A query of Freshet's own reads these
//! keys. It may run at any time after the fill has begun, in its own snapshot, and on any connection to the server; so it runs in the background. The
//! client has its answer, and the result waits here for a service connection (`run_key_queries` of either family).
//!
//! A commit that the keys reflect and the result does not may have removed keys, which would have shown that an earlier commit matters. So the log
//! end is read again after the keys, and the result is not served before the stream has passed it: that commit is delivered then, and invalidates the
//! result by the rows that the keys came from.
//!
//! For tables that were never written since Freshet started, any row matters: the first change invalidates their dependents, and from then on the
//! keys are read. The same is done, most of the time, for statements that have too many keys.
//!
//! If a key query is not possible, only precision is lost: any row of those tables matters then. A waiting result is a fill in flight, and no other
//! session can fill the key meanwhile. So few may wait, and none while no connection can be opened.

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

/// Limit of waiting results; for further ones any row matters.
const WAITING_MAX: usize = 1024;
/// Results of one key query, and the limit of SQL bytes for more than one.
const TOGETHER_MAX: usize = 32;
const TOGETHER_BYTES: usize = 64 << 10;
/// Waiting results may use this fraction (one in n) of the cache's memory.
const WAITING_SHARE: u64 = 8;
/// After this many useless key queries in a row, the keys of a statement are read only once in as many times.
const COARSE_MAX: u32 = 4;
const COARSE_TURN: u32 = 64;
/// Marks statements for which the range of the keys was useless, too.
const HOPELESS: u32 = 1 << 31;
/// Time after a failure in which no result waits.
const CLOSED: Nanos = 200_000_000;

/// Limit of the bytes of a key query's answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Why keys were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server took too long, or the answer is too large: the next attempt would fail as well.
    Costly,
    /// The server refused the statement, or its answer has other columns.
    Refused,
    /// The account may not read a table.
    Forbidden,
    /// What the statement names was being defined anew: it is not refused for good.
    Raced,
    /// The connection failed.
    Broken,
}

impl Failure {
    /// Their names in metrics, in the order of the variants.
    const CLASSES: [&'static str; 5] = ["costly", "refused", "no_right", "ddl", "connection"];
}

/// Keys, each with the number of its part.
pub(crate) type Keys = Vec<Key>;

impl PendingFill<Read> {
    /// Completes the deferred tags: these, and those from the answer.
    fn tell(&mut self, tags: Vec<Tag>) {
        let told = self.stage.told.take().into_iter().flatten();
        self.permit.set_deferred(told.chain(tags).collect(), None);
    }

    /// The same with leaving rows named by their keys; commits that raced the fill are tested with the second tags.
    fn set_members(&mut self, tags: Vec<Tag>, until_known: Vec<Tag>, join_keys: &JoinKeys) {
        let (told, led_by) = match self.stage.told.take() {
            Some(told) => (told, None),
            None => (Vec::new(), join_keys.is_lasting().then(|| join_keys.rests_on().into())),
        };
        let with_told = |tags: Vec<Tag>| told.iter().cloned().chain(tags).collect();
        self.permit.set_members(with_told(tags), with_told(until_known), led_by, join_keys.named().into());
    }

    /// The same with keys that were read from these tables. The tags from the answer are valid for this answer alone.
    fn tell_read(&mut self, tags: Vec<Tag>, led_by: Vec<TableId>) {
        if self.stage.told.is_some() {
            return self.tell(tags);
        }
        self.permit.set_deferred(tags, Some(led_by.into()));
    }
}

/// A waiting result.
#[derive(Debug)]
pub(crate) struct Job {
    complete: PendingFill<Read>,
    pub(crate) join_keys: Box<JoinKeys>,
    /// The log end after the result was read.
    end: End,
    /// A key query together with other results was refused.
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

/// The results that wait for their join keys, and counters of the others.
#[derive(Debug, Default)]
pub struct KeyQueries {
    waiting: Mutex<Waiting>,
    /// Results with member keys, until the stream has passed the log end that was read after the keys.
    settling: Mutex<Vec<(PendingFill<Read>, End)>>,
    settling_count: AtomicUsize,
    by_members: AtomicU64,
    added: Notify,
    /// Until this time no result waits.
    closed_until: AtomicU64,
    reads: AtomicU64,
    failures: [AtomicU64; Failure::CLASSES.len()],
    coarse: AtomicU64,
}

impl KeyQueries {
    /// Answered key queries.
    pub fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Those that were not, by the class of failure.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Failure::CLASSES.into_iter().zip(&self.failures).map(|(class, count)| (class, count.load(Relaxed)))
    }

    /// Results for which any row of a table matters, since its keys are unknown or too many.
    pub fn coarse(&self) -> u64 {
        self.coarse.load(Relaxed)
    }

    /// Results with member keys that were read.
    pub fn by_members(&self) -> u64 {
        self.by_members.load(Relaxed)
    }

    /// Waiting results.
    pub fn waiting_count(&self) -> usize {
        self.waiting().jobs.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the results that have waited longest; may be empty.
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
    /// Installs a complete result, read before `end`, or makes it wait for its join keys.
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
            // As long as nothing writes to these tables, keys would cost something and save nothing.
            complete.tell(join_keys.deferred_tags(None));
            figures.worth.costs_twice(false);
            return self.keep(complete, end);
        }
        let known = figures.coarse.load(Relaxed);
        let in_vain = is_in_vain(&figures.coarse);
        // There are too many keys: their range may still exclude most rows, for example in a report on last month.
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

    /// Waits for the next results whose join keys must be read, at least one. Results that can no longer be installed, or are no longer needed, are
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

    /// The keys could not be read. If the connection did not fail, one of the results caused it: each is tried again alone.
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
        if let Some(count) = self.key_queries.failures.get(failure as usize) {
            count.fetch_add(1, Relaxed);
        }
        for job in jobs {
            if !broken && failure != Failure::Raced {
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

    /// No keys can be read: any row matters.
    pub(crate) fn keys_unknown(&self, job: Job) {
        let (complete, end) = self.keys_known(job, None);
        self.keep(complete, end);
    }

    /// A result with its final tags, and the log end after it. If keys were read, it may be served only from a log end that was read after them.
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
            // The number of keys is unknown here.
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
        // The stream may have passed it meanwhile.
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
            // A row left meanwhile: if rows leave so often, the next attempt would probably fail, too.
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

/// Whether a statement's key queries were useless so often in a row that this one is skipped.
fn is_in_vain(coarse: &AtomicU32) -> bool {
    coarse.load(Relaxed) >= COARSE_MAX && !coarse.fetch_add(1, Relaxed).is_multiple_of(COARSE_TURN)
}

/// Counts whether member keys were useless this time.
fn count_vain(coarse: &AtomicU32, was_vain: bool) {
    coarse.store(if was_vain { coarse.load(Relaxed).saturating_add(1) } else { 0 }, Relaxed);
}

/// Adds one to the number of useless key queries in a row.
fn coarser(coarse: u32, ranges: bool) -> u32 {
    if ranges { coarse.max(HOPELESS) } else { coarse.saturating_add(1) }
}

/// The key query for all of these results.
pub(crate) fn keys_question(jobs: &[Job]) -> String {
    JoinKeys::sql(jobs.iter().map(|job| &*job.join_keys))
}

/// Its answer, for each result; None if the answer is malformed.
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
