//! The load during faults: readers through Freshet, a writer beside it, and the conditions on each answer.
//!
//! Most rows are written in turn, each so rarely that a missed write is noticed: its row stays wrong for longer than D. The others never change. An
//! answer is wrong if
//!
//! * it lacks a write that was acknowledged more than D before the query: nothing is older than D, whatever fails;
//! * it is older than an earlier answer for the same row in this session;
//! * it was never written.
//!
//! A failed query is right while a server is down.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::support::{Freshet, Login, PATIENCE, RawClient, eventually, pace, time_passes};

pub(super) const SCHEMA: &str = "create table counter (id int primary key, n bigint not null);
    insert into counter select i, case when i <= 60 then 0 else i end from generate_series(1, 80) i";
/// The table as it was at first.
pub(super) const RESET: &str = "update counter set n = 0 where id <= 60 and n <> 0";
/// Rows that are written: 1 to this.
const WRITTEN: i64 = 60;
/// All rows; those behind [`WRITTEN`] hold their number.
const ROWS: i64 = 80;
/// D, as the tests leave it.
const STALENESS_MAX: Duration = Duration::from_secs(1);
/// Time between writes: the same row is written twice in no less than nearly 2 s.
const WRITE_EVERY: Duration = Duration::from_millis(30);
/// Reads of one session.
const SESSION_READS: i64 = 2 * ROWS;
const PAUSE: Duration = Duration::from_millis(10);

/// What readers and writer share.
struct Ledger {
    database: String,
    /// Through Freshet.
    reading: SocketAddr,
    /// The primary; None: no session writes.
    primary: Mutex<Option<SocketAddr>>,
    /// Of each row the acknowledged values, and when they were.
    acknowledged: Mutex<HashMap<i64, Vec<(Instant, i64)>>>,
    /// The largest value that was sent.
    sent: AtomicI64,
    /// Changes with each [`Watch::moved`]: sessions of an earlier number may be on another server.
    generation: AtomicU64,
    writing: AtomicBool,
    stop: AtomicBool,
    reads: AtomicU64,
}

/// Everybody at work.
pub(super) struct Watch {
    ledger: Arc<Ledger>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Watch {
    pub(super) fn start(freshet: &Freshet, database: &str, primary: SocketAddr) -> Self {
        // What a test has written around Freshet so far is nothing that these know of, and may be unseen for D.
        time_passes("D", STALENESS_MAX);
        let ledger = Arc::new(Ledger {
            database: database.into(),
            reading: freshet.address,
            primary: Mutex::new(Some(primary)),
            acknowledged: Mutex::default(),
            sent: AtomicI64::new(0),
            generation: AtomicU64::new(0),
            writing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            reads: AtomicU64::new(0),
        });
        let spawn = |work: fn(&Ledger) -> Result<()>| {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || {
                let outcome = work(&ledger);
                // One wrong answer ends them all.
                ledger.stop.store(outcome.is_err() || ledger.stop.load(SeqCst), SeqCst);
                outcome
            })
        };
        let threads = vec![spawn(write), spawn(read), spawn(read)];
        Self { ledger, threads }
    }

    /// No session writes any more, and no write is in flight.
    pub(super) fn pause_writes(&self) -> Result<()> {
        *self.primary() = None;
        eventually(PATIENCE, || {
            ensure!(!self.ledger.writing.load(SeqCst), "still writing");
            Ok(())
        })
    }

    /// The primary is another; sessions from before may stay on the old one.
    pub(super) fn moved(&self, primary: SocketAddr) {
        self.ledger.generation.fetch_add(1, SeqCst);
        *self.primary() = Some(primary);
    }

    fn primary(&self) -> std::sync::MutexGuard<'_, Option<SocketAddr>> {
        self.ledger.primary.lock().expect("no panic while it is held")
    }

    /// Waits until reads come from the cache, and the readers and the writer get on.
    pub(super) fn until_back(&self, freshet: &Freshet) -> Result<()> {
        if !freshet.is_there() {
            return Ok(());
        }
        let (hits, reads, sent) =
            (freshet.metrics()?.hits(), self.ledger.reads.load(SeqCst), self.ledger.sent.load(SeqCst));
        eventually(PATIENCE, || {
            if self.ledger.stop.load(SeqCst) {
                return Ok(()); // somebody has given up, and says why at the end
            }
            let metrics = freshet.metrics()?;
            ensure!(metrics.hits() > hits + 200, "{} hits more: {:?}", metrics.hits() - hits, freshet.health()?);
            ensure!(self.ledger.reads.load(SeqCst) > reads + 200, "no reads");
            ensure!(self.ledger.sent.load(SeqCst) > sent + 3, "no writes");
            Ok(())
        })
    }

    /// Ends everybody; the first wrong answer is returned.
    pub(super) fn finish(self) -> Result<()> {
        self.ledger.stop.store(true, SeqCst);
        let outcomes: Vec<Result<()>> = self.threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        println!("{} reads, {} writes", self.ledger.reads.load(SeqCst), self.ledger.sent.load(SeqCst));
        outcomes.into_iter().collect()
    }
}

impl Ledger {
    fn login(&self, address: SocketAddr) -> Result<RawClient> {
        let login = Login { user: "postgres", database: &self.database, password: Some("freshet"), more: &[] };
        RawClient::login(address, login)
    }

    /// The row's last value acknowledged by then.
    fn acknowledged_by(&self, moment: Instant, id: i64) -> i64 {
        let acknowledged = self.acknowledged.lock().expect("no panic while it is held");
        let Some(acknowledged) = acknowledged.get(&id) else { return 0 };
        let before = acknowledged.partition_point(|(at, _)| *at <= moment);
        before.checked_sub(1).and_then(|last| acknowledged.get(last)).map_or(0, |(_, value)| *value)
    }

    fn until_stopped(&self, mut step: impl FnMut() -> Result<()>) -> Result<()> {
        while !self.stop.load(SeqCst) {
            step()?;
        }
        Ok(())
    }
}

fn write(ledger: &Ledger) -> Result<()> {
    let mut connection: Option<(SocketAddr, RawClient)> = None;
    ledger.until_stopped(|| {
        ledger.writing.store(true, SeqCst);
        let primary = *ledger.primary.lock().expect("no panic while it is held");
        connection = connection.take().filter(|(address, _)| Some(*address) == primary);
        if let Some(address) = primary
            && connection.is_none()
        {
            connection = ledger.login(address).ok().map(|client| (address, client));
        }
        if let Some((_, client)) = &mut connection {
            let value = ledger.sent.fetch_add(1, SeqCst) + 1;
            let id = value % WRITTEN + 1;
            if client.run(&format!("update counter set n = {value} where id = {id}")).is_ok() {
                let mut acknowledged = ledger.acknowledged.lock().expect("no panic while it is held");
                acknowledged.entry(id).or_default().push((Instant::now(), value));
            } else {
                connection = None;
            }
        }
        ledger.writing.store(false, SeqCst);
        pace(WRITE_EVERY);
        Ok(())
    })
}

fn read(ledger: &Ledger) -> Result<()> {
    ledger.until_stopped(|| {
        let generation = ledger.generation.load(SeqCst);
        if let Ok(client) = ledger.login(ledger.reading) {
            return session(ledger, client, generation);
        }
        pace(PAUSE);
        Ok(())
    })
}

fn session(ledger: &Ledger, mut client: RawClient, generation: u64) -> Result<()> {
    let mut last: HashMap<i64, i64> = HashMap::new();
    for number in 0..SESSION_READS {
        // All of them, twice, in an order that has nothing to do with that of the writes.
        let id = number * 7 % ROWS + 1;
        let asked = Instant::now();
        let Ok(text) = client.value(&format!("select n from counter where id = {id}")) else { return Ok(()) };
        let value: i64 = text.parse()?;
        ledger.reads.fetch_add(1, SeqCst);
        if id > WRITTEN {
            ensure!(value == id, "row {id} has always been {id}, not {value}");
            continue;
        }
        let last = last.insert(id, value).unwrap_or(0);
        ensure!(value >= last, "row {id}: the session has read {last}, and now {value}");
        ensure!(value <= ledger.sent.load(SeqCst), "row {id}: {value} was never written");
        let due = asked.checked_sub(STALENESS_MAX).map_or(0, |moment| ledger.acknowledged_by(moment, id));
        // A session that was opened before a move may be on the old server.
        if value < due && ledger.generation.load(SeqCst) == generation {
            bail!("row {id}: {value} was read, and {due} was acknowledged more than {STALENESS_MAX:?} before");
        }
        pace(Duration::from_millis(1));
    }
    Ok(())
}
