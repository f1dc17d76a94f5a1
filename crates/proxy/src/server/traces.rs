//! Spans of statements, for OpenTelemetry.
//!
//! A statement has a span if the comment in its text says that the application records its trace ([`TraceParent`]). A statement that went to the
//! database may also be drawn. The session compares the duration of the statement with the threshold of [`crate::server::query_log::QueryLog`], which
//! is 0 while there are spans, and puts the span into a queue of bounded length. A separate thread exports it. If the queue is full, the span is
//! counted and dropped.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use freshet_sql::{Summary, TraceParent};
use freshet_types::{Dialect, Nanos};

use crate::server::query_log::Who;
use crate::statement::registry::NormalizedQuery;

/// The most spans that wait to be exported.
const QUEUE_MAX: usize = 4096;

/// Who answered a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The cache, with this many bytes.
    Hit(usize),
    /// The database, to be cached.
    Fill,
    /// The database, with the label of the reason.
    Pass(&'static str),
}

/// A statement that was answered.
#[derive(Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) query: &'a Arc<NormalizedQuery>,
    pub(crate) took: Nanos,
    pub(crate) outcome: AnsweredBy,
    pub(crate) has_failed: bool,
    pub(crate) parent: Option<TraceParent>,
}

/// The session of a span, and its server.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) who: Who,
    pub(crate) dialect: Dialect,
    pub(crate) upstream: Box<str>,
}

/// The span of one statement.
#[derive(Debug)]
pub struct Span {
    /// The trace.
    pub trace: [u8; 16],
    /// The number of the span.
    pub id: [u8; 8],
    /// The application's span. None if there is none.
    pub parent: Option<[u8; 8]>,
    /// Its end.
    pub end: SystemTime,
    /// Its length.
    pub took: Duration,
    /// Who answered the statement.
    pub answered_by: AnsweredBy,
    /// Whether the answer is an error.
    pub has_failed: bool,
    origin: Origin,
    query: Arc<NormalizedQuery>,
}

impl Span {
    /// The kind of the database server.
    pub fn dialect(&self) -> Dialect {
        self.origin.dialect
    }

    /// The database of the session. Empty if there is none.
    pub fn database(&self) -> &str {
        &self.origin.who.database
    }

    /// The session's user.
    pub fn user(&self) -> &str {
        &self.origin.who.user
    }

    /// Host and port of the database server. None if there are several, or if it has none.
    pub fn server(&self) -> Option<(&str, Option<u16>)> {
        let hosts = self.origin.upstream.split('/').next().filter(|hosts| !hosts.is_empty() && !hosts.contains(','))?;
        match hosts.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => Some((host.trim_start_matches('[').trim_end_matches(']'), Some(port))),
            _ => Some((hosts, None)),
        }
    }

    /// The statement without its literals.
    pub fn text(&self) -> &str {
        &self.query.text
    }

    /// The digest of the statement, as it is shown.
    pub fn digest(&self) -> String {
        self.query.digest_text()
    }

    /// Operation and tables.
    pub fn summary(&self) -> Summary {
        Summary::of(self.dialect(), self.text())
    }
}

/// The waiting spans, and the choice of statements with a span.
#[derive(Debug, Default)]
pub struct Traces {
    queue: OnceLock<SyncSender<Span>>,
    waiting: Mutex<Option<Receiver<Span>>>,
    is_on: AtomicBool,
    /// A new trace is recorded if its number is at most this. 0: none is.
    drawn_to: AtomicU64,
    numbers: Numbers,
    dropped: AtomicU64,
    exported: AtomicU64,
    failures: AtomicU64,
}

impl Traces {
    /// Gives statements spans from now on.
    pub fn start(&self) {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        if self.queue.set(queue).is_ok() {
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
            self.is_on.store(true, Relaxed);
        }
    }

    /// Sets the share of statements with a span, among those that go to the database and whose application does not decide it.
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    pub fn set_share(&self, share: f64) {
        self.drawn_to.store((share * u64::MAX as f64) as u64, Relaxed);
    }

    /// Whether statements have spans.
    pub(crate) fn are_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Adds the span of a statement, if it has one.
    pub(crate) fn note(&self, answered: &Answered<'_>, origin: impl FnOnce() -> Origin) {
        let Some(queue) = self.queue.get() else { return };
        let Some((trace, parent)) = self.trace_of(answered) else { return };
        let span = Span {
            trace,
            id: self.numbers.draw().to_be_bytes(),
            parent,
            end: SystemTime::now(),
            took: Duration::from_nanos(answered.took),
            answered_by: answered.outcome,
            has_failed: answered.has_failed,
            origin: origin(),
            query: answered.query.clone(),
        };
        if queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Trace and parent of a statement. None if it has no span.
    fn trace_of(&self, answered: &Answered<'_>) -> Option<([u8; 16], Option<[u8; 8]>)> {
        if let Some(parent) = answered.parent {
            return parent.is_sampled.then_some((parent.trace, Some(parent.span)));
        }
        let drawn_to = self.drawn_to.load(Relaxed);
        if drawn_to == 0 || matches!(answered.outcome, AnsweredBy::Hit(_)) {
            return None;
        }
        let number = self.numbers.draw();
        let trace = u128::from(self.numbers.draw()) << 64 | u128::from(number);
        (number <= drawn_to).then_some((trace.to_be_bytes(), None))
    }

    /// Takes at most this many spans from the queue.
    pub fn take(&self, max: usize) -> Vec<Span> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().flat_map(|waiting| waiting.try_iter().take(max)).collect()
    }

    /// Notes spans that the collector has accepted.
    pub fn note_exported(&self, spans: u64) {
        self.exported.fetch_add(spans, Relaxed);
    }

    /// Notes spans that the collector has refused.
    pub fn note_dropped(&self, spans: u64) {
        self.dropped.fetch_add(spans, Relaxed);
    }

    /// Notes a failed export.
    pub fn note_failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// Number of spans that the collector has accepted.
    pub fn exported(&self) -> u64 {
        self.exported.load(Relaxed)
    }

    /// Number of dropped spans: the queue was full, or the collector refused them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Number of failed exports, of spans or metrics.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

/// Draws numbers of traces and spans (SplitMix64 from a random start).
#[derive(Debug)]
struct Numbers(AtomicU64);

impl Default for Numbers {
    fn default() -> Self {
        Self(AtomicU64::new(RandomState::new().build_hasher().finish()))
    }
}

impl Numbers {
    /// A number other than 0, which means "none".
    fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut number = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(upstream: &str) -> Option<(String, Option<u16>)> {
        let registry = crate::statement::registry::Registry::new(1 << 20, Dialect::Postgres);
        let query = registry.statement(b"select 1", &[]).expect("a statement").query.clone();
        let origin = Origin { who: Who::default(), dialect: Dialect::Postgres, upstream: upstream.into() };
        let traces = Traces::default();
        traces.start();
        traces.set_share(1.0);
        let (outcome, took) = (AnsweredBy::Pass("not_select"), 1);
        let answered = Answered { query: &query, took, outcome, has_failed: false, parent: None };
        traces.note(&answered, || origin);
        let spans = traces.take(10);
        spans[0].server().map(|(host, port)| (host.to_owned(), port))
    }

    #[test]
    fn the_server_is_read_from_the_upstream() {
        assert_eq!(server("db.example.com:5432/shop"), Some(("db.example.com".to_owned(), Some(5432))));
        assert_eq!(server("[::1]:3306"), Some(("::1".to_owned(), Some(3306))));
        assert_eq!(server("a:1,b:2/shop"), None);
    }

    #[test]
    fn a_full_queue_costs_spans() {
        let registry = crate::statement::registry::Registry::new(1 << 20, Dialect::Postgres);
        let query = registry.statement(b"select 1", &[]).expect("a statement").query.clone();
        let origin = || Origin { who: Who::default(), dialect: Dialect::Postgres, upstream: "".into() };
        let (outcome, took) = (AnsweredBy::Fill, 1);
        let answered = Answered { query: &query, took, outcome, has_failed: false, parent: None };
        let traces = Traces::default();
        traces.note(&answered, origin);
        assert!(traces.take(1).is_empty(), "it is not on");
        traces.start();
        traces.note(&answered, origin);
        assert!(traces.take(1).is_empty(), "none is drawn");
        traces.set_share(1.0);
        (0..QUEUE_MAX + 3).for_each(|_| traces.note(&answered, origin));
        assert_eq!((traces.dropped(), traces.take(usize::MAX).len()), (3, QUEUE_MAX));
        traces.set_share(0.5);
        (0..QUEUE_MAX).for_each(|_| traces.note(&answered, origin));
        let drawn = traces.take(usize::MAX).len();
        assert!((QUEUE_MAX / 3..QUEUE_MAX * 2 / 3).contains(&drawn), "{drawn}");
    }

    #[test]
    fn the_application_decides_for_its_traces() {
        let registry = crate::statement::registry::Registry::new(1 << 20, Dialect::Postgres);
        let query = registry.statement(b"select 1", &[]).expect("a statement").query.clone();
        let traces = Traces::default();
        traces.start();
        for (share, is_sampled, outcome, spans) in [
            (0.0, Some(true), AnsweredBy::Hit(1), 1),
            (0.0, Some(true), AnsweredBy::Fill, 1),
            (1.0, Some(false), AnsweredBy::Fill, 0),
            (1.0, None, AnsweredBy::Hit(1), 0),
            (1.0, None, AnsweredBy::Pass("x"), 1),
        ] {
            traces.set_share(share);
            let parent = is_sampled.map(|is_sampled| TraceParent { trace: [1; 16], span: [2; 8], is_sampled });
            let answered = Answered { query: &query, took: 1, outcome, has_failed: false, parent };
            let origin = || Origin { who: Who::default(), dialect: Dialect::Postgres, upstream: "".into() };
            traces.note(&answered, origin);
            let taken = traces.take(9);
            assert_eq!(taken.len(), spans, "{share} {is_sampled:?} {outcome:?}");
            assert!(taken.iter().all(|span| span.parent == parent.map(|parent| parent.span)));
        }
    }
}
