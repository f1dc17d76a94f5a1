//! The shared state of all sessions of a run: the servers, the ledger, the violations.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::ledger::{KeyId, Ledger, Row, Table};
use super::line::{Line, Trouble};
use super::{GROUPS, KINDS};
use crate::support::{Database, Freshet, Login, pace, time_passes};

const ITEMS: i32 = 30;
pub(crate) const PARTS_PER_ITEM: i32 = 2;
/// Of each table that all writers share.
const OTHERS: i32 = 2 * ITEMS;
/// Less than this tests nothing.
pub(crate) const READS_MIN: u64 = 1000;
pub(crate) const WRITES_MIN: u64 = 50;
const MORE_TIME: Duration = Duration::from_secs(30);
/// Of each table that one writer owns.
const FEW: i32 = 12;

/// `note`, `item` and `leaf` log no old values; `part` does. `echo` follows `item` by a trigger.
pub(crate) const SCHEMA: &str = "
    create table item (id int primary key, grp int not null, kind int not null, ver int not null);
    create index on item (grp);
    create table part (id int primary key, item_id int not null, grp int not null, kind int not null, ver int not null);
    create index on part (item_id);
    alter table part replica identity full;
    create table note (id int primary key, grp int not null, kind int not null, ver int not null);
    create table folder (id int primary key);
    create table leaf (id int primary key, folder_id int not null references folder on delete cascade,
        grp int not null, kind int not null, ver int not null);
    create table event (id int, grp int not null, kind int, ver int not null, primary key (id, kind, grp))
        partition by list (kind);
    create table event_0 partition of event for values in (0);
    create table event_1 partition of event for values in (1);
    create table event_2 partition of event for values in (2) partition by range (grp);
    create table event_2_low partition of event_2 for values from (minvalue) to (5);
    create table event_2_high partition of event_2 for values from (5) to (maxvalue);
    create table kin (id int primary key, grp int not null, kind int not null, ver int not null);
    create table heir (primary key (id)) inherits (kin);
    create table echo (id int primary key, grp int not null, kind int not null, ver int not null);
    create function echoed() returns trigger language plpgsql as $$ begin
        if tg_op = 'DELETE' then delete from echo where id = old.id; return old; end if;
        insert into echo values (new.id, new.grp, new.kind, new.ver)
            on conflict (id) do update set grp = excluded.grp, kind = excluded.kind, ver = excluded.ver;
        return new;
    end $$;
    create trigger echoes after insert or update or delete on item for each row execute function echoed();
    create function put_item(int, int, int, int) returns int language sql as $$
        insert into item values ($1, $2, $3, $4)
            on conflict (id) do update set grp = excluded.grp, kind = excluded.kind, ver = excluded.ver
            returning ver $$;
    create function cut_item(int) returns int language sql as $$ delete from item where id = $1 returning ver $$;
    create view item_view as select id, grp, kind, ver from item;
    create view item_totals as select grp, count(*) as n, sum(ver) as s from item group by grp;";

/// A small seeded generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Another generator.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    pub(crate) fn nap(&mut self, milliseconds: u64) {
        pace(Duration::from_micros(self.below(milliseconds * 1000)));
    }
}

/// A database with Freshet in front of it.
pub(crate) trait Place {
    /// Where it is reached directly.
    fn address(&self) -> SocketAddr;
    /// How Freshet reaches it.
    fn url(&self) -> String;
}

impl Place for Database {
    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn url(&self) -> String {
        self.url()
    }
}

/// The stage of one run.
pub(crate) struct Stage<P = Database> {
    // Dropped first: a database cannot go while its slot is in use.
    freshet: Mutex<Freshet>,
    address: Mutex<SocketAddr>,
    pub(crate) database: P,
    pub(crate) deadline: Instant,
    /// Connections are lost on purpose.
    pub(crate) copes: bool,
    ledger: Mutex<Ledger>,
    violations: Mutex<Vec<String>>,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Hits of earlier instances of Freshet.
    hits: AtomicU64,
    /// The run waits for more hits.
    lacks_hits: AtomicBool,
    losses: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicked thread has already failed the test.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Place> Stage<P> {
    pub(crate) fn new(database: P, freshet: Freshet, seconds: u64, copes: bool) -> Self {
        Self {
            address: Mutex::new(freshet.address),
            freshet: Mutex::new(freshet),
            database,
            deadline: Instant::now() + Duration::from_secs(seconds),
            copes,
            ledger: Mutex::new(Ledger::new(super::STALENESS_MAX)),
            violations: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            lacks_hits: AtomicBool::new(false),
            losses: AtomicU64::new(0),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Where Freshet serves now, or the database itself.
    pub(crate) fn address(&self, through: bool) -> SocketAddr {
        if through { *lock(&self.address) } else { self.database.address() }
    }

    /// Connects again after a loss, as soon as that is possible.
    pub(crate) fn insist<L>(&self, through: bool, connect: impl Fn() -> Result<L, Trouble>) -> Result<L, Trouble> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let address = self.address(through);
            match connect() {
                // A port that Freshet has left may be another server's, who waits for the client to speak first: that is not
                // an answer of this Freshet, however long it took.
                Err(_) if address != self.address(through) => {}
                Err(Trouble::Lost(how)) if Instant::now() >= end => {
                    return Err(Trouble::Lost(format!("no new one at {address}: {how}")));
                }
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => pace(Duration::from_millis(30)),
                line => return line,
            }
        }
    }

    /// An answer to trouble: `Ok` if the session is to connect again.
    pub(crate) fn survive(&self, trouble: anyhow::Error) -> Result<()> {
        match trouble.downcast_ref() {
            Some(Trouble::Lost(_)) if self.copes => {
                self.losses.fetch_add(1, Relaxed);
                Ok(())
            }
            // Once something was found, the rest does not matter.
            _ if self.has_violations() => Ok(()),
            _ => Err(trouble),
        }
    }

    pub(crate) fn freshet(&self) -> MutexGuard<'_, Freshet> {
        lock(&self.freshet)
    }

    /// Kills Freshet and starts another one.
    pub(crate) fn replace_freshet(&self, options: &[&str]) -> Result<()> {
        let mut freshet = self.freshet();
        self.hits.fetch_add(freshet.metrics()?.hits(), Relaxed);
        // The old one is killed before the new one is ready: no client can be served meanwhile.
        let address = self.database.address();
        *freshet = Freshet::spawn(address, None)?;
        time_passes("clients find nobody", Duration::from_millis(200));
        *freshet = Freshet::start_unready(address, &self.database.url(), options)?;
        *lock(&self.address) = freshet.address;
        Ok(())
    }

    pub(crate) fn violated(&self, what: String) {
        lock(&self.violations).push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    pub(crate) fn has_violations(&self) -> bool {
        !lock(&self.violations).is_empty()
    }

    /// The time is up, or there is a violation to report. On a busy machine it takes longer until something is tested.
    pub(crate) fn is_over(&self) -> bool {
        let late = Instant::now().checked_duration_since(self.deadline);
        let more = |count: &AtomicU64, least: u64| count.load(Relaxed) > least;
        let enough =
            || more(&self.reads, READS_MIN) && more(&self.writes, WRITES_MIN) && !self.lacks_hits.load(Relaxed);
        late.is_some_and(|late| late > MORE_TIME || enough()) || self.has_violations()
    }

    /// Has the run wait for more hits than so many, too. Counts them once a second.
    pub(crate) fn wait_for_hits(&self, least: u64) {
        self.lacks_hits.store(true, Relaxed);
        while !self.is_over() && self.lacks_hits.load(Relaxed) {
            // Freshet may be down, or not answer.
            let lacks = self.figures().map_or(true, |figures| figures.hits <= least);
            self.lacks_hits.store(lacks, Relaxed);
            pace(Duration::from_secs(1));
        }
    }

    /// Whether this is a time in which tables may be truncated. Freshet may take a TRUNCATE for a changed definition of
    /// the table too and flush everything, so that nothing would ever be stale for long.
    pub(crate) fn truncates(&self) -> bool {
        self.deadline.saturating_duration_since(Instant::now()).as_secs() % 10 < 2
    }

    /// The commits of these keys' latest versions are about to be sent.
    pub(crate) fn begin(&self, keys: &[KeyId]) {
        let mut ledger = self.ledger();
        for key in keys {
            ledger.begin(*key);
        }
    }

    /// These keys' latest versions are acknowledged.
    pub(crate) fn acknowledge(&self, keys: &[KeyId]) {
        let mut ledger = self.ledger();
        for key in keys {
            ledger.acknowledge(*key);
        }
        self.writes.fetch_add(keys.len() as u64, Relaxed);
    }

    pub(crate) fn count_reads(&self, more: u64) {
        self.reads.fetch_add(more, Relaxed);
    }

    pub(crate) fn figures(&self) -> Result<Figures> {
        let hits = self.hits.load(Relaxed) + self.freshet().metrics().context("the metrics")?.hits();
        Ok(Figures {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            losses: self.losses.load(Relaxed),
            hits,
        })
    }
}

impl Stage {
    /// Fills the tables and the ledger.
    pub(crate) fn fill(&self) -> Result<()> {
        let ledger = &mut *self.ledger();
        let mut sql = String::new();
        for folder in 0..OTHERS / 2 {
            let _ = write!(sql, "insert into folder values ({folder});");
        }
        let tables = [
            (Table::Item, ITEMS),
            (Table::Part, ITEMS * PARTS_PER_ITEM),
            (Table::Note, FEW),
            (Table::Leaf, OTHERS),
            (Table::Event, FEW),
            (Table::Kin, OTHERS),
        ];
        for (table, count) in tables {
            for id in 0..count {
                let row = Row { grp: id % GROUPS, kind: id % KINDS };
                let key = ledger.insert(table, Some(row));
                sql.push_str(&super::changes::insert(key, row, 0));
                sql.push(';');
            }
        }
        self.database.run(&sql)
    }

    pub(crate) fn login(&self) -> Login<'_> {
        self.database.login()
    }

    pub(crate) fn connect(&self, through: bool, user: Option<&str>) -> Result<Line, Trouble> {
        let login = Login { user: user.unwrap_or(self.login().user), ..self.login() };
        let mut line = Line::open(self.address(through), login)?;
        if self.copes {
            line.ask_backend()?;
        }
        Ok(line)
    }

    /// Connects again after a loss, as soon as that is possible.
    pub(crate) fn reconnect(&self, through: bool) -> Result<Line, Trouble> {
        self.insist(through, || self.connect(through, None))
    }
}

/// What a run has done.
pub(crate) struct Figures {
    pub(crate) reads: u64,
    pub(crate) hits: u64,
    pub(crate) writes: u64,
    pub(crate) losses: u64,
}

/// Sessions of a run, each on a thread of its own; the first error is the run's.
pub(crate) struct Cast<'scope, 'env> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    threads: Vec<std::thread::ScopedJoinHandle<'scope, Result<()>>>,
}

impl<'scope, 'env> Cast<'scope, 'env> {
    pub(crate) fn new(scope: &'scope std::thread::Scope<'scope, 'env>) -> Self {
        Self { scope, threads: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &'static str, run: impl FnOnce() -> Result<()> + Send + 'scope) {
        self.threads.push(self.scope.spawn(move || run().context(name)));
    }

    pub(crate) fn end(self) -> Result<()> {
        let outcomes: Vec<_> = self.threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        for outcome in outcomes {
            outcome.map_err(|_| anyhow::anyhow!("a session of the test panicked"))??;
        }
        Ok(())
    }
}
