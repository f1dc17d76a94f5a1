//! The world around the engine: writers, the stream, the prober, the lease, the catalogue poller, coverage. All
//! answers arrive later than they were read; the order of events is drawn from the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use freshet_cache::{Cache, Faults, Limits};
use freshet_model::{CatalogVersion, ChangeSet, Commit, End, Epoch, Lsn, Nanos, Visible};

use crate::database::{Database, TABLES, TxnId, table_id};
use crate::oracle::{Answered, Oracle, Violation};
use crate::query::Query;
use crate::rng::Rng;
use crate::session::Session;
use crate::set::TxnSet;

pub(crate) const MS: Nanos = 1_000_000;
/// D, shorter than the default so that the lease runs out often.
pub(crate) const STALENESS_MAX: Nanos = 700 * MS;
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
    Stream,
    Probe,
    ProbeRead(Epoch),
    ProbeAnswer(Epoch, Visible),
    Lease,
    LeaseRead(Epoch, Nanos),
    LeaseAnswer(End, Nanos),
    Catalog,
    CatalogRead(Nanos, bool),
    CatalogAnswer(Nanos, bool, u64),
    Coverage,
    Definition,
    Session(usize),
}

enum Link {
    Down,
    /// A slot is being made: waits for these.
    Waiting(TxnSet),
    Up,
}

enum Coverage {
    Idle,
    /// The slot's snapshot has commits that are perhaps not visible: the first so many of the log.
    Exported(Epoch, usize),
    Barrier(Epoch, Vec<usize>, TxnSet),
    Answer(Epoch, Vec<usize>),
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bypasses: u64,
    pub(crate) stored: u64,
    pub(crate) stale_fills: u64,
    pub(crate) abandoned: u64,
    pub(crate) commits: u64,
    pub(crate) evicted_by_change: u64,
    pub(crate) evicted_by_size: u64,
    pub(crate) epochs: u64,
}

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) db: Database,
    pub(crate) cache: Arc<Cache<Answered>>,
    pub(crate) oracle: Oracle,
    pub(crate) stats: Stats,
    /// The queries of this run: few, so that keys meet.
    pub(crate) pool: Vec<Query>,
    pub(crate) ample: bool,
    /// Version and definition that Freshet knows; None while it is read again.
    pub(crate) catalog: Option<(CatalogVersion, u64)>,
    versions: u64,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    sequence: u64,
    writers: Vec<(Rng, Option<TxnId>, u64)>,
    sessions: Vec<Option<Session>>,
    link: Link,
    stalled_until: Nanos,
    coverage: Coverage,
    rng: Rng,
    stream_rng: Rng,
    coverage_rng: Rng,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::new(seed, 0);
        let ample = rng.percent(75);
        let memory = if ample { 64 << 20 } else { 24 << 10 };
        let limits = Limits {
            memory_bytes: memory,
            entry_bytes_max: 4 << 10,
            staleness_max: STALENESS_MAX,
            flights_max: if rng.percent(80) { 100 } else { 3 },
        };
        let db = Database::new(&mut rng);
        let pool = (0..rng.between(4, 24)).map(|_| Query::random(&mut rng)).collect();
        let mut world = Self {
            now: 1,
            cache: Arc::new(Cache::new(limits, faults)),
            oracle: Oracle::new(db.visible.clone()),
            stats: Stats::default(),
            pool,
            ample,
            catalog: None,
            versions: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            sequence: 0,
            writers: (0..WRITERS).map(|w| (Rng::new(seed, 10 + w as u64), None, 0)).collect(),
            sessions: (0..SESSIONS).map(|s| Some(Session::new(Rng::new(seed, 100 + s as u64)))).collect(),
            link: Link::Down,
            stalled_until: 0,
            coverage: Coverage::Idle,
            stream_rng: Rng::new(seed, 1),
            coverage_rng: Rng::new(seed, 2),
            rng,
            db,
        };
        for writer in 0..WRITERS {
            world.after(0, Event::Writer(writer));
        }
        for session in 0..SESSIONS {
            world.after(0, Event::Session(session));
        }
        for event in [Event::Stream, Event::Probe, Event::Lease, Event::Coverage, Event::CatalogRead(1, true)] {
            world.after(MS, event);
        }
        world.after(500 * MS, Event::Definition);
        world
    }

    pub(crate) fn after(&mut self, delay: Nanos, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence)));
        self.events.insert(self.sequence, event);
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
            let event = self.events.remove(&sequence).expect("a scheduled event");
            self.step(event)?;
        }
        self.at_rest()?;
        let counters = self.cache.counters();
        let read = |c: &std::sync::atomic::AtomicU64| c.load(std::sync::atomic::Ordering::Relaxed);
        self.stats.commits = read(&counters.commits);
        self.stats.evicted_by_change = read(&counters.evicted_by_change);
        self.stats.evicted_by_size = read(&counters.evicted_by_size);
        Ok(self.stats)
    }

    fn step(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Writer(writer) => self.writer(writer),
            Event::Flush(lsn) => self.db.flushed = self.db.flushed.max(lsn),
            Event::Visible(txn) => {
                self.db.make_visible(txn, self.now);
            }
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
                let (delay, snapshot) = (self.round_trip(), self.db.snapshot());
                self.after(delay, Event::ProbeAnswer(epoch, snapshot));
            }
            Event::ProbeAnswer(epoch, snapshot) => {
                self.cache.prove(epoch, &snapshot);
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
                // The WAL writer flushes what nobody waits for.
                self.after(WAL_WRITER_DELAY, Event::Flush(end.lsn));
                self.after(delay, Event::LeaseAnswer(end, asked_at));
            }
            Event::LeaseAnswer(end, asked_at) => self.cache.offer_reading(end, asked_at),
            Event::Catalog => {
                let (delay, load) = (self.round_trip(), self.catalog.is_none());
                self.after(delay, Event::CatalogRead(self.now, load));
            }
            Event::CatalogRead(asked_at, load) => {
                let (delay, definition) = (self.round_trip(), self.db.definition);
                self.after(delay, Event::CatalogAnswer(asked_at, load, definition));
            }
            Event::CatalogAnswer(asked_at, load, definition) => {
                self.catalog_answer(asked_at, load, definition);
                return self.oracle.check_entries(self.now, &self.db, &self.cache);
            }
            Event::Coverage => self.cover(),
            Event::Definition => {
                if !self.quiet() {
                    self.db.change_definition(self.now);
                    let pause = self.rng.between(500, 6000) * MS;
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
    fn round_trip(&mut self) -> Nanos {
        let most = if self.rng.percent(5) && !self.quiet() { 400 } else { 4 };
        self.rng.between(1, most * 10) * MS / 10
    }

    fn writer(&mut self, writer: usize) {
        let quiet = self.quiet();
        let (rng, txn, writes) = &mut self.writers[writer];
        let Some(open) = *txn else {
            if !quiet {
                *writes = rng.between(1, 4);
                *txn = Some(self.db.begin());
                let delay = rng.between(0, 5) * MS;
                self.after(delay, Event::Writer(writer));
            }
            return;
        };
        if *writes > 0 {
            *writes -= 1;
            self.db.write(open, rng);
            let delay = if rng.percent(5) { rng.between(0, 600) } else { rng.between(0, 20) } * MS;
            self.after(delay, Event::Writer(writer));
            return;
        }
        *txn = None;
        let pause = rng.between(0, 60) * MS;
        if rng.percent(5) {
            self.db.abort(open);
            self.after(pause, Event::Writer(writer));
            return;
        }
        self.db.log_commit(open);
        // synchronous_commit=off is visible before it is flushed; a synchronous standby may keep it waiting for long.
        let (flush, visible) = if rng.percent(20) {
            (rng.between(1, 300) * MS, rng.between(0, 20) * MS / 10)
        } else {
            let flush = rng.between(1, 20) * MS / 10;
            let wait = match rng.below(100) {
                0..60 => rng.between(0, 10) * MS / 10,
                60..95 => rng.between(0, 60) * MS,
                _ => rng.between(0, 2500) * MS,
            };
            (flush, flush + wait)
        };
        let end = self.db.insert;
        self.after(flush, Event::Flush(end));
        self.after(visible, Event::Visible(open));
        self.after(visible + pause, Event::Writer(writer));
    }

    fn stream(&mut self) -> Result<(), Violation> {
        let (quiet, now) = (self.quiet(), self.now);
        let pause = self.stream_rng.between(1, 60) * MS / 10;
        self.after(pause, Event::Stream);
        match &self.link {
            Link::Down => {
                if quiet || self.stream_rng.percent(5) {
                    self.link = Link::Waiting(self.db.running());
                }
            }
            Link::Waiting(running) => {
                if self.db.running().is_disjoint(running) {
                    self.db.flushed = self.db.insert;
                    let epoch = self.cache.connected();
                    self.stats.epochs += 1;
                    self.oracle.pass(&self.db, self.db.log.len());
                    self.coverage = Coverage::Exported(epoch, self.db.log.len());
                    self.link = Link::Up;
                }
            }
            Link::Up if !quiet && self.stream_rng.below(2000) == 0 => {
                self.cache.disconnected();
                self.link = Link::Down;
                self.coverage = Coverage::Idle;
            }
            Link::Up if !quiet && self.stream_rng.below(400) == 0 => {
                self.stalled_until = now + self.stream_rng.between(1, 2000) * MS;
            }
            Link::Up if now < self.stalled_until => {}
            Link::Up => {
                for _ in 0..self.stream_rng.between(0, 4) {
                    if self.deliver() {
                        self.oracle.check_entries(self.now, &self.db, &self.cache)?;
                    }
                }
                if self.stream_rng.percent(5) {
                    self.cache.validate();
                }
            }
        }
        Ok(())
    }

    /// The next flushed commit (true), or else a keepalive.
    fn deliver(&mut self) -> bool {
        let next = self.db.log.get(self.oracle.passed()).copied();
        let Some(txn) = next.filter(|txn| self.db.txns[*txn].end <= self.db.flushed) else {
            self.cache.advance(self.db.flushed);
            return false;
        };
        self.oracle.pass(&self.db, self.oracle.passed() + 1);
        let t = &self.db.txns[txn];
        let changes =
            if self.stream_rng.percent(1) { ChangeSet::Everything } else { ChangeSet::Rows(t.published.clone()) };
        if changes.is_empty() && self.stream_rng.percent(50) {
            self.cache.advance(t.end);
        } else {
            self.cache.apply(Commit { xid: t.xid as u32, end: t.end, changes });
        }
        true
    }

    fn catalog_answer(&mut self, asked_at: Nanos, load: bool, definition: u64) {
        match self.catalog {
            Some((version, known)) if !load && known == definition => self.cache.catalog_unchanged(version, asked_at),
            _ if load => {
                self.versions += 1;
                let version = CatalogVersion(self.versions);
                self.cache.catalog_loaded(version, asked_at);
                self.catalog = Some((version, definition));
                self.oracle.definition_known(definition);
            }
            _ => {
                self.cache.catalog_changed();
                self.catalog = None;
            }
        }
        let longest = if self.rng.percent(5) && !self.quiet() { 3000 } else { 200 };
        let pause = if self.catalog.is_none() { 0 } else { self.rng.between(50, longest) * MS };
        self.after(pause, Event::Catalog);
    }

    /// Adds tables to the publication in batches, waits for the barrier, covers; sometimes takes one out again.
    fn cover(&mut self) {
        let delay = self.coverage_rng.between(1, 30) * MS;
        let epoch = self.cache.epoch();
        self.coverage = match std::mem::replace(&mut self.coverage, Coverage::Idle) {
            Coverage::Exported(e, upto) if epoch == Some(e) => {
                if self.db.log[..upto].iter().all(|txn| self.db.visible_set.contains(*txn)) {
                    self.barrier(e)
                } else {
                    Coverage::Exported(e, upto)
                }
            }
            Coverage::Barrier(e, tables, holders) if self.db.running().is_disjoint(&holders) => {
                Coverage::Answer(e, tables)
            }
            Coverage::Answer(e, tables) => {
                let ids: Vec<_> = tables.iter().map(|t| table_id(*t)).collect();
                self.cache.cover(e, &ids);
                if epoch == Some(e) { self.barrier(e) } else { Coverage::Idle }
            }
            Coverage::Idle => match epoch {
                Some(epoch) if !self.quiet() && self.coverage_rng.below(100) == 0 => {
                    let table = self.coverage_rng.below(TABLES as u64) as usize;
                    self.cache.uncover(&[table_id(table)]);
                    self.db.published[table] = false;
                    self.barrier(epoch)
                }
                Some(epoch) => self.barrier(epoch),
                None => Coverage::Idle,
            },
            other => other,
        };
        self.after(delay, Event::Coverage);
    }

    fn barrier(&mut self, epoch: Epoch) -> Coverage {
        let mut tables: Vec<usize> = (0..TABLES).filter(|t| !self.cache.is_covered(table_id(*t))).collect();
        if tables.is_empty() || (!self.quiet() && self.coverage_rng.percent(70)) {
            return Coverage::Idle;
        }
        tables.truncate(self.coverage_rng.between(1, TABLES as u64) as usize);
        for table in &tables {
            self.db.published[*table] = true;
        }
        let mut holders = TxnSet::default();
        for table in &tables {
            holders.add(&self.db.writers(*table));
        }
        Coverage::Barrier(epoch, tables, holders)
    }

    /// When nothing moves any more, every entry equals the database, and everything can be cached.
    fn at_rest(&mut self) -> Result<(), Violation> {
        self.sessions.clear();
        let levels = self.cache.levels(self.now);
        let settled = self.oracle.passed() == self.db.log.len() && levels.pending == 0 && levels.flights == 0;
        if !settled || levels.covered != TABLES {
            return Err(Violation::new(self.now, format!("not settled: {levels:?}")));
        }
        self.oracle.check_entries(self.now, &self.db, &self.cache)?;
        for query in self.pool.clone() {
            for _ in 0..2 {
                let mut session = Session::new(Rng::new(0, 0));
                session.ask_at_once(self, &query)?;
                if self.ample && !session.hit {
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
