//! The slow query log in the form of Percona Server, which pt-query-digest and PMM's Query Analytics read.
//!
//! A worker writes nothing. It compares the duration of a statement with the threshold, which is infinite without a log and without spans
//! ([`crate::server::traces`]). It passes a statement to be logged to the log's thread, through a queue of bounded length. If the queue is full, the
//! statement is counted and dropped: the log must not slow the sessions down. The texts are normalized queries, without literals.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freshet_types::Nanos;

use crate::server::calendar::Moment;
use crate::statement::registry::NormalizedQuery;

/// Records that wait to be written.
const QUEUE_MAX: usize = 8192;

/// The session of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who {
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) address: Option<IpAddr>,
}

/// A statement that was answered.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) who: Who,
    pub(crate) query: Arc<NormalizedQuery>,
    pub(crate) took: Nanos,
    /// Bytes of the answer from the cache; None: the database answered.
    pub(crate) hit: Option<usize>,
}

/// A statement on its way to the file.
#[derive(Debug)]
struct Logged {
    at: SystemTime,
    /// It stands for so many.
    every: u64,
    record: Record,
}

/// The log.
#[derive(Debug)]
pub struct QueryLog {
    /// Faster statements are ignored.
    threshold: AtomicU64,
    /// Faster statements are not logged.
    logged_from: AtomicU64,
    /// Whether all statements are looked at, for their spans.
    for_spans: AtomicBool,
    /// All statements are looked at, since a rule may want them in the log.
    for_rules: AtomicBool,
    /// One of so many is logged.
    every: AtomicU64,
    seen: AtomicU64,
    queue: OnceLock<SyncSender<Logged>>,
    dropped: AtomicU64,
    logged: AtomicU64,
    /// Whether the file is to be reopened.
    reopens: Arc<AtomicBool>,
}

impl Default for QueryLog {
    fn default() -> Self {
        Self {
            threshold: AtomicU64::new(Nanos::MAX),
            logged_from: AtomicU64::new(Nanos::MAX),
            for_spans: AtomicBool::new(false),
            for_rules: AtomicBool::new(false),
            every: AtomicU64::new(1),
            seen: AtomicU64::new(0),
            queue: OnceLock::new(),
            dropped: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            reopens: Arc::default(),
        }
    }
}

impl QueryLog {
    /// Begins to write to a file. If it does not exist, it is created with rights for its owner only.
    pub fn start(&self, path: PathBuf) -> io::Result<()> {
        let file = open(&path)?;
        let (queue, records) = sync_channel(QUEUE_MAX);
        let reopens = self.reopens.clone();
        let writer = move || write(&records, (&path, file), &reopens);
        std::thread::Builder::new().name("query-log".to_owned()).spawn(writer)?;
        // No other call sets the queue.
        let _ = self.queue.set(queue);
        Ok(())
    }

    /// Logs statements that take at least this long: a share of them.
    pub fn set(&self, threshold: Nanos, share: f64) {
        let every = if share > 0.0 {
            Duration::try_from_secs_f64((1.0 / share).round()).unwrap_or(Duration::MAX)
        } else {
            Duration::MAX
        };
        self.every.store(every.as_secs().max(1), Relaxed);
        let is_off = self.queue.get().is_none() || share <= 0.0;
        self.logged_from.store(if is_off { Nanos::MAX } else { threshold }, Relaxed);
        self.set_threshold();
    }

    /// Looks at all statements from now on, for their spans.
    pub fn look_at_all(&self) {
        self.for_spans.store(true, Relaxed);
        self.set_threshold();
    }

    /// Whether a rule may want statements in the log that did not take long.
    pub(crate) fn look_for_rules(&self, looks: bool) {
        self.for_rules.store(looks && self.queue.get().is_some(), Relaxed);
        self.set_threshold();
    }

    pub(crate) fn looks_for_rules(&self) -> bool {
        self.for_rules.load(Relaxed)
    }

    fn set_threshold(&self) {
        let looks_at_all = self.for_spans.load(Relaxed) || self.looks_for_rules();
        let threshold = if looks_at_all { 0 } else { self.logged_from.load(Relaxed) };
        self.threshold.store(threshold, Relaxed);
    }

    /// Reopens the file, which may have been renamed.
    pub fn reopen(&self) {
        self.reopens.store(true, Relaxed);
    }

    /// Whether a statement of this duration may be logged or have a span.
    pub(crate) fn wants(&self, took: Nanos) -> bool {
        took >= self.threshold.load(Relaxed)
    }

    /// Logs a statement, if it took long enough and is one of the sample, or if a rule wants it in the log.
    pub(crate) fn note(&self, took: Nanos, by_rule: bool, record: impl FnOnce() -> Record) {
        let every = if by_rule { 1 } else { self.every.load(Relaxed) };
        let is_sampled = || self.seen.fetch_add(1, Relaxed).is_multiple_of(every);
        if !by_rule && (took < self.logged_from.load(Relaxed) || !is_sampled()) {
            return;
        }
        let Some(queue) = self.queue.get() else { return };
        if queue.try_send(Logged { at: SystemTime::now(), every, record: record() }).is_ok() {
            self.logged.fetch_add(1, Relaxed);
        } else if self.dropped.fetch_add(1, Relaxed) == 0 {
            tracing::warn!("the query log is not written as fast as statements come: some are left out");
        }
    }

    /// Number of logged statements.
    pub fn logged(&self) -> u64 {
        self.logged.load(Relaxed)
    }

    /// Number of statements that were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Writes until the queue is gone.
fn write(records: &Receiver<Logged>, (path, file): (&Path, File), reopens: &AtomicBool) {
    let mut out = BufWriter::new(file);
    loop {
        let next = match records.try_recv() {
            Err(TryRecvError::Empty) => {
                // A write error is ignored: what does not fit on a full disk is lost.
                let _ = out.flush();
                records.recv().ok()
            }
            next => next.ok(),
        };
        let Some(logged) = next else { return };
        if reopens.swap(false, AcqRel) {
            let _ = out.flush();
            match open(path) {
                Ok(file) => out = BufWriter::new(file),
                Err(error) => tracing::error!("{}: {error}", path.display()),
            }
        }
        let _ = out.write_all(text(&logged).as_bytes());
    }
}

/// A word in a line of the log. No character in it ends the word or the line.
fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '[' | ']' | ' ') { '_' } else { c }).collect()
}

fn text(Logged { at, every, record }: &Logged) -> String {
    let Record { who, query, took, hit } = record;
    let moment = Moment::of(*at);
    let Moment { year, month, day, hour, minute, second, micros } = moment;
    let (user, database) = (word(&who.user), word(&who.database));
    let address = who.address.map(|address| address.to_string()).unwrap_or_default();
    let host = if who.address.is_some() { "" } else { "localhost" };
    let seconds = *took as f64 / 1e9;
    let sent = hit.map(|bytes| format!("# Bytes_sent: {bytes}\n")).unwrap_or_default();
    // Readers multiply by the rate.
    let rate =
        if *every > 1 { format!("# Log_slow_rate_type: query  Log_slow_rate_limit: {every}\n") } else { String::new() };
    let is_hit = if hit.is_some() { "Yes" } else { "No" };
    let unix = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    // A line that begins with # would be taken for a comment of the log.
    let statement = query.text.replace(['\n', '\r'], " ");
    format!(
        "# Time: {year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z\n\
         # User@Host: {user}[{user}] @ {host} [{address}]  Id: {}\n\
         # Schema: {database}  Last_errno: 0  Killed: 0\n\
         # Query_time: {seconds:.6}  Lock_time: 0.000000\n\
         {sent}{rate}# QC_Hit: {is_hit}\n\
         SET timestamp={unix};\n{};\n",
        who.id,
        statement.trim_end_matches(';'),
    )
}
