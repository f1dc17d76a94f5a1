//! The environment of the engine: writers, the stream, the prober, the lease, the catalogue poller, publication. All answers arrive later than they
//! were read; the seed determines the order of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use freshet_cache::admission::Keep;
use freshet_cache::{Cache, Faults, Limits};
use freshet_types::{CatalogVersion, Dialect, End, Epoch, Lsn, Nanos, Visible};

use crate::catalogue::{Known, Look};
use crate::database::{Database, TABLES, TxnId};
use crate::following::Link;
use crate::oracle::{Answered, Oracle, Violation};
use crate::publishing::Publishing;
use crate::query::Query;
use crate::rng::Rng;
use crate::session::Session;
use crate::set::TxnSet;

pub(crate) const MS: Nanos = 1_000_000;
/// D, shorter than the default so that the lease expires often.
pub(crate) const STALENESS_MAX: Nanos = 700 * MS;
/// Rules that are disabled: those of the engine, and those of the code that uses it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one per rule, independent of each other")]
pub(crate) struct Rules {
    pub(crate) faults: Faults,
    /// Writes are acknowledged at once, without a fence.
    pub(crate) no_commit_wait: bool,
    /// Whether a write needs a commit wait is decided before it is committed.
    pub(crate) free_too_early: bool,
    /// The flushed position is taken for the log end.
    pub(crate) flushed_end: bool,
    /// The slot is confirmed up to everything delivered.
    pub(crate) confirms_all: bool,
    /// The proof of a catalogue is read after it.
    pub(crate) load_without_proof: bool,
    /// Later reads of a REPEATABLE READ transaction are cached, too.
    pub(crate) keeps_old_snapshots: bool,
    /// The last proof is taken for a proof of a transaction's snapshot.
    pub(crate) proves_in_blocks: bool,
}

const WAL_WRITER_DELAY: Nanos = 200 * MS;
const WRITERS: usize = 4;
const SESSIONS: usize = 6;
const BUSY_UNTIL: Nanos = 8_000 * MS;
const END: Nanos = 14_000 * MS;

#[derive(Debug)]
pub(crate) enum Event {
    Writer(usize),
    Flush(Lsn),
    Visible(TxnId),
    WriteEnd(TxnId),
    Hold(TxnId, Option<End>, Nanos),
    Stream,
    Probe,
    ProbeRead(Epoch),
    ProbeAnswer(Epoch, Visible),
    Lease,
    LeaseRead(Epoch, Nanos),
    LeaseAnswer(End, Nanos),
    Catalog,
    CatalogRead(Look),
    CatalogAnswer(Look, Known, Visible),
    Publishing,
    Definition,
    Session(usize),
}

impl Event {
    /// Whether the event happens in the database, or is an action of clients or the stream, and so survives the process.
    fn outlives_the_process(&self) -> bool {
        matches!(
            self,
            Self::Writer(_)
                | Self::Flush(_)
                | Self::Visible(_)
                | Self::WriteEnd(_)
                | Self::Stream
                | Self::Definition
                | Self::Session(_)
        )
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bypasses: u64,
    pub(crate) stored: u64,
    pub(crate) stale_fills: u64,
    pub(crate) commits: u64,
    pub(crate) invalidated: u64,
    pub(crate) evicted: u64,
    pub(crate) epochs: u64,
    pub(crate) resumed: u64,
    pub(crate) restarts: u64,
    pub(crate) fences: u64,
    pub(crate) wait_skipped: u64,
    pub(crate) loads: u64,
    pub(crate) refused_loads: u64,
    pub(crate) early_loads: u64,
    pub(crate) snapshot_hits: u64,
    pub(crate) stored_without_proof: u64,
}

#[expect(clippy::struct_excessive_bools, reason = "what kind of run it is")]
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) db: Database,
    pub(crate) cache: Arc<Cache<Answered>>,
    pub(crate) oracle: Oracle,
    pub(crate) stats: Stats,
    /// The queries of this run: few, so that keys recur.
    pub(crate) pool: Vec<Query>,
    pub(crate) ample: bool,
    /// Writers pause for longer, and their commits are not delayed.
    pub(crate) calm: bool,
    /// By how much breaks and stalls of the stream and redefinitions are rarer.
    pub(crate) steadiness: u64,
    /// Writers bypass the proxy: they have no commit waits, and D is the only promise about them.
    pub(crate) around: bool,
    /// The version and definition that Freshet knows; None while it is read again.
    pub(crate) catalog: Option<(CatalogVersion, Known)>,
    pub(crate) versions: u64,
    /// A check of the catalogue found other views than are known.
    pub(crate) views_differ: bool,
    pub(crate) rules: Rules,
    /// The prober's last proof.
    pub(crate) proof: Option<Visible>,
    /// Writes that were acknowledged to their clients.
    pub(crate) acknowledged: TxnSet,
    /// Writes without a commit wait, as decided before they were committed.
    pub(crate) wait_skipped: TxnSet,
    /// Number of commits that the slot has sent, and its confirmed position.
    pub(crate) delivered: usize,
    pub(crate) confirmed: Lsn,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: std::collections::HashMap<u64, (u64, Event)>,
    sequence: u64,
    /// Counts the processes; events that an earlier one waits for never come.
    life: u64,
    pub(crate) writers: Vec<(Rng, Option<TxnId>, u64)>,
    sessions: Vec<Option<Session>>,
    pub(crate) link: Link,
    pub(crate) stalled_until: Nanos,
    pub(crate) publishing: Publishing,
    pub(crate) rng: Rng,
    pub(crate) stream_rng: Rng,
    pub(crate) publication_rng: Rng,
}

impl World {
    pub(crate) fn new(seed: u64, rules: Rules) -> Self {
        let mut rng = Rng::new(seed, 0);
        let ample = rng.percent(75);
        let memory = if ample { 64 << 20 } else { 8 << 10 };
        let limits = Limits {
            memory_bytes: memory,
            entry_bytes_max: 4 << 10,
            staleness_max: STALENESS_MAX,
            flights_max: if rng.percent(80) { 100 } else { 3 },
            keep: if seed.is_multiple_of(2) { Keep::Worthwhile } else { Keep::Always },
        };
        let db = Database::new(&mut rng);
        let of_views = rng.percent(25);
        let pool = (0..rng.between(4, 24)).map(|_| Query::random(&mut rng, of_views)).collect();
        let mut world = Self {
            now: 1,
            cache: Arc::new(Cache::new(limits, rules.faults)),
            oracle: Oracle::new(db.visible.clone()),
            stats: Stats::default(),
            pool,
            ample,
            calm: rng.percent(40),
            steadiness: if rng.percent(50) { 8 } else { 1 },
            around: rng.percent(40),
            catalog: None,
            versions: 0,
            views_differ: false,
            rules,
            proof: None,
            acknowledged: TxnSet::default(),
            wait_skipped: TxnSet::default(),
            delivered: 0,
            confirmed: db.insert,
            life: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            sequence: 0,
            writers: (0..WRITERS).map(|w| (Rng::new(seed, 10 + w as u64), None, 0)).collect(),
            sessions: (0..SESSIONS).map(|s| Some(Session::new(Rng::new(seed, 100 + s as u64)))).collect(),
            link: Link::Down,
            stalled_until: 0,
            publishing: Publishing::Idle,
            stream_rng: Rng::new(seed, 1),
            publication_rng: Rng::new(seed, 2),
            rng,
            db,
        };
        for writer in 0..WRITERS {
            world.after(0, Event::Writer(writer));
        }
        for session in 0..SESSIONS {
            world.after(0, Event::Session(session));
        }
        world.after(MS, Event::Stream);
        world.begin_services();
        world.after(500 * MS, Event::Definition);
        world
    }

    pub(crate) fn after(&mut self, delay: Nanos, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence)));
        self.events.insert(self.sequence, (self.life, event));
    }

    fn begin_services(&mut self) {
        for event in [Event::Probe, Event::Lease, Event::Publishing, Event::Catalog] {
            self.after(MS, event);
        }
    }

    /// Another process: it has no sessions, no catalogue and no pending answers.
    pub(crate) fn begin_life(&mut self) {
        self.life += 1;
        self.catalog = None;
        self.views_differ = false;
        for session in self.sessions.iter_mut().flatten() {
            session.restart();
        }
        self.begin_services();
    }

    pub(crate) fn quiet(&self) -> bool {
        self.now > BUSY_UNTIL
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Result<Stats, Violation> {
        while let Some(Reverse((at, sequence))) = self.queue.pop() {
            if at > END {
                break;
            }
            self.now = at;
            let (life, event) = self.events.remove(&sequence).expect("a scheduled event");
            if life == self.life || event.outlives_the_process() {
                self.step(event)?;
            }
        }
        self.at_rest()?;
        let counters = self.cache.counters();
        let read = |c: &std::sync::atomic::AtomicU64| c.load(std::sync::atomic::Ordering::Relaxed);
        self.stats.commits += read(&counters.commits);
        self.stats.invalidated += read(&counters.invalidated);
        self.stats.evicted += read(&counters.evicted);
        Ok(self.stats)
    }

    fn step(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Writer(writer) => self.writer(writer),
            Event::Flush(lsn) => self.db.flushed = self.db.flushed.max(lsn),
            Event::Visible(txn) => {
                self.db.make_visible(txn, self.now);
            }
            Event::WriteEnd(txn) => self.write_end(txn),
            Event::Hold(txn, end, until) => self.hold(txn, end, until),
            Event::Stream => return self.stream(),
            Event::Probe => {
                if let (true, Some(epoch)) = (self.cache.has_pending(), self.cache.epoch()) {
                    let delay = self.round_trip();
                    self.after(delay, Event::ProbeRead(epoch));
                } else {
                    self.after(MS, Event::Probe);
                }
            }
            Event::ProbeRead(epoch) => {
                let (delay, proof) = (self.round_trip(), self.db.proof());
                self.after(delay, Event::ProbeAnswer(epoch, proof));
            }
            Event::ProbeAnswer(epoch, proof) => {
                self.cache.prove(epoch, &proof);
                self.proof = Some(proof);
                self.after(MS, Event::Probe);
            }
            Event::Lease => {
                if let Some(epoch) = self.cache.epoch() {
                    let delay = self.round_trip();
                    self.after(delay, Event::LeaseRead(epoch, self.now));
                }
                let pause = self.rng.between(30, 120) * MS;
                self.after(pause, Event::Lease);
            }
            Event::LeaseRead(epoch, asked_at) => {
                let (delay, end) = (self.round_trip(), End { epoch, lsn: self.db.insert });
                // The WAL writer flushes log that nothing waits for.
                self.after(WAL_WRITER_DELAY, Event::Flush(end.lsn));
                self.after(delay, Event::LeaseAnswer(end, asked_at));
            }
            Event::LeaseAnswer(end, asked_at) => self.cache.offer_log_end(end, asked_at),
            Event::Catalog => self.ask_catalog(),
            Event::CatalogRead(look) => self.read_catalog(look),
            Event::CatalogAnswer(look, read, proof) => {
                self.catalog_answer(look, read, &proof);
                return self.oracle.check_entries(self.now, &self.db, &self.cache);
            }
            Event::Publishing => self.publish(),
            Event::Definition => {
                if !self.quiet() {
                    self.db.change_definition(self.now);
                    let pause = self.rng.between(500, 6000) * self.steadiness * MS;
                    self.after(pause, Event::Definition);
                }
            }
            Event::Session(at) => {
                let mut session = self.sessions[at].take().expect("a session");
                let delay = session.step(self)?;
                self.sessions[at] = Some(session);
                self.after(delay, Event::Session(at));
            }
        }
        Ok(())
    }

    /// Half a round trip: mostly short, sometimes a stalled connection.
    pub(crate) fn round_trip(&mut self) -> Nanos {
        let most = if self.rng.percent(5) && !self.quiet() { 400 } else { 4 };
        self.rng.between(1, most * 10) * MS / 10
    }

    /// Once nothing changes any more, every entry equals the database, and everything can be cached.
    fn at_rest(&mut self) -> Result<(), Violation> {
        self.sessions.clear();
        let levels = self.cache.levels(self.now);
        let settled = self.oracle.passed() == self.db.log.len() && levels.pending == 0 && levels.flights == 0;
        if !settled || levels.published != TABLES {
            return Err(Violation::new(self.now, format!("not settled: {levels:?}")));
        }
        self.oracle.check_entries(self.now, &self.db, &self.cache)?;
        for query in self.pool.clone() {
            for _ in 0..2 {
                let mut session = Session::new(Rng::new(0, 0));
                session.ask_at_once(self, &query)?;
                if self.ample && !session.hit {
                    if self.db.dialect != Dialect::Postgres {
                        // Its own watermark is passed only with the next probe.
                        session = Session::new(Rng::new(0, 0));
                    }
                    session.ask_at_once(self, &query)?;
                    if !session.hit {
                        return Err(Violation::new(self.now, format!("{query:?} cannot be cached at rest")));
                    }
                }
            }
        }
        self.cache.validate();
        Ok(())
    }
}
