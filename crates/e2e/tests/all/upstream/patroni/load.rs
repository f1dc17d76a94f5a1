//! Writers and readers whose answers are checked, over any number of failovers.
//!
//! Each writer numbers what it writes. It knows of each number whether it was acknowledged; what was in progress when a connection broke may be there or not.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cluster::LOGIN;
use crate::support::{Message, PATIENCE, RawClient, eventually, pace};

const WRITERS: usize = 3;
const READERS: usize = 4;

pub(super) const SCHEMA: &str = "create table counter (id int primary key, n bigint not null);
    insert into counter select i, 0 from generate_series(0, 9) i;
    create table entry (writer int not null, n bigint not null)";

/// What one writer has done.
#[derive(Default)]
struct Written {
    /// The highest number that was sent, and acknowledged, for its counter.
    sent: AtomicU64,
    acknowledged: AtomicU64,
    /// The numbers of its rows that were acknowledged.
    rows: Mutex<Vec<u64>>,
}

/// When statements were answered, since the last [`Load::begin`].
#[derive(Default)]
struct Answered {
    writes: Vec<Instant>,
    reads: Vec<Instant>,
    /// Errors that clients have seen, by their text.
    errors: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    writers: [Written; WRITERS],
    answered: Mutex<Answered>,
}

impl Shared {
    fn answered(&self) -> MutexGuard<'_, Answered> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        !self.ends.load(Ordering::SeqCst)
    }
}

/// The clients.
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

/// The times of one event.
pub(super) struct Times {
    /// From when there was a new primary to the first write that it acknowledged.
    pub(super) until_write: Duration,
    /// The longest times without an answer to a write, or a read.
    pub(super) without_writes: Duration,
    pub(super) without_reads: Duration,
    /// Errors that clients have seen.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Load {
    pub(super) fn start(address: SocketAddr) -> Self {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let shared = shared.clone();
            threads.push(thread::spawn(move || {
                write(&shared, address, writer);
                Ok(())
            }));
        }
        for reader in 0..READERS {
            let shared = shared.clone();
            threads.push(thread::spawn(move || read(&shared, address, reader)));
        }
        Self { shared, threads }
    }

    /// An event follows.
    pub(super) fn begin(&self) {
        *self.shared.answered() = Answered::default();
    }

    /// The times since then. `promoted`: since when there is a new primary. An error as long as it has acknowledged nothing.
    pub(super) fn times(&self, promoted: Instant) -> Result<Times> {
        for (at, thread) in self.threads.iter().enumerate() {
            ensure!(!thread.is_finished(), "client {at} has ended");
        }
        let answered = self.shared.answered();
        let first = answered.writes.iter().find(|at| **at >= promoted).context("no write yet")?;
        ensure!(answered.reads.last().is_some_and(|at| *at >= *first), "no read yet");
        Ok(Times {
            until_write: first.duration_since(promoted),
            without_writes: longest(&answered.writes),
            without_reads: longest(&answered.reads),
            errors: answered.errors.clone(),
        })
    }

    /// Ends the clients, and compares what they know with what the database holds.
    pub(super) fn finish(mut self, primary: SocketAddr) -> Result<()> {
        eventually(PATIENCE, || {
            let count = |written: &Written| written.rows.lock().unwrap_or_else(PoisonError::into_inner).len();
            let least = self.shared.writers.iter().map(count).min().unwrap_or_default();
            ensure!(least > 100, "only {least} rows of a writer");
            Ok(())
        })?;
        self.shared.ends.store(true, Ordering::SeqCst);
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a client has panicked"),
            }
        }
        let mut client = RawClient::login(primary, LOGIN)?;
        for (writer, written) in self.shared.writers.iter().enumerate() {
            let counter: u64 = client.value(&format!("select n from counter where id = {writer}"))?.parse()?;
            let (sent, acknowledged) = (&written.sent, &written.acknowledged);
            let (sent, acknowledged) = (sent.load(Ordering::SeqCst), acknowledged.load(Ordering::SeqCst));
            ensure!((acknowledged..=sent).contains(&counter), "counter {counter}, not {acknowledged} to {sent}");
            let rows = client.query(&format!("select n, count(*) from entry where writer = {writer} group by n"))?;
            let cells = rows.iter().filter(|message| message.tag == b'D').map(Message::columns);
            let mut found = HashMap::new();
            for cells in cells {
                let number = |at: usize| -> Result<u64> {
                    let cell = cells.get(at).cloned().flatten().context("no number")?;
                    Ok(String::from_utf8(cell)?.parse()?)
                };
                found.insert(number(0)?, number(1)?);
            }
            ensure!(found.values().all(|count| *count == 1), "done twice: {found:?}");
            let known = written.rows.lock().unwrap_or_else(PoisonError::into_inner);
            let lost: Vec<_> = known.iter().filter(|n| !found.contains_key(n)).collect();
            ensure!(lost.is_empty(), "acknowledged and lost: {lost:?} of writer {writer}");
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
    }
}

/// The longest time between two.
fn longest(times: &[Instant]) -> Duration {
    let pairs = times.iter().zip(times.iter().skip(1));
    pairs.map(|(before, after)| after.duration_since(*before)).max().unwrap_or_default()
}

/// Keeps a client, and counts errors. None: try again.
fn client<'a>(shared: &Shared, address: SocketAddr, kept: &'a mut Option<RawClient>) -> Option<&'a mut RawClient> {
    if kept.is_none() {
        match RawClient::login(address, LOGIN) {
            Ok(client) => *kept = Some(client),
            Err(error) => note(shared, &error),
        }
    }
    kept.as_mut()
}

fn note(shared: &Shared, error: &anyhow::Error) {
    *shared.answered().errors.entry(format!("{error:#}").chars().take(300).collect()).or_default() += 1;
}

/// The client is of no use any more.
fn lose(shared: &Shared, kept: &mut Option<RawClient>, error: &anyhow::Error) {
    let said = kept.take().and_then(|client| {
        let last = client.heard.into_iter().rev().find(|message| message.tag == b'E')?;
        Some(format!("{} {}", last.field(b'C')?, last.field(b'M')?))
    });
    match said {
        Some(said) => note(shared, &anyhow::Error::msg(said)),
        None => note(shared, error),
    }
}

fn write(shared: &Shared, address: SocketAddr, writer: usize) {
    let (own, mut kept, mut n) = (&shared.writers[writer], None, 0);
    while shared.goes_on() {
        pace(Duration::from_millis(5));
        let Some(connected) = client(shared, address, &mut kept) else { continue };
        n += 1;
        let insert = format!("insert into entry values ({writer}, {n})");
        let update = format!("update counter set n = {n} where id = {writer}");
        let outcome = connected.run(&insert).and_then(|()| {
            own.rows.lock().unwrap_or_else(PoisonError::into_inner).push(n);
            own.sent.store(n, Ordering::SeqCst);
            connected.run(&update)
        });
        match outcome {
            Ok(()) => {
                own.acknowledged.store(n, Ordering::SeqCst);
                shared.answered().writes.push(Instant::now());
            }
            Err(error) => lose(shared, &mut kept, &error),
        }
    }
}

/// Reads what was acknowledged before, and nothing that was not sent.
fn read(shared: &Shared, address: SocketAddr, reader: usize) -> Result<()> {
    let (mut kept, mut at) = (None, reader);
    while shared.goes_on() {
        pace(Duration::from_millis(1));
        let Some(connected) = client(shared, address, &mut kept) else { continue };
        at += 1;
        // Some are counters of writers, which change, and some are hit.
        let (id, writer) = (at % 10, shared.writers.get(at % 10));
        let floor = writer.map_or(0, |own| own.acknowledged.load(Ordering::SeqCst));
        match connected.value(&format!("select n from counter where id = {id}")) {
            Ok(value) => {
                let most = writer.map_or(0, |own| own.sent.load(Ordering::SeqCst));
                let value: u64 = value.parse()?;
                ensure!((floor..=most).contains(&value), "counter {id} is {value}, not {floor} to {most}");
                shared.answered().reads.push(Instant::now());
            }
            Err(error) => lose(shared, &mut kept, &error),
        }
    }
    Ok(())
}
