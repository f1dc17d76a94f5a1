//! Samples one round on a separate thread.
//!
//! Processor time is read when the marks are called. The client's own is read first at both, since reading all of `/proc` takes a while. Slower
//! readings are left to the thread: counters, which a cache may return slowly, and memory, for which the kernel walks all pages of the servers, once,
//! after the measured interval.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use freshet_testbed::process::{self, Ticks};

use super::counters::Reader;
use super::{Observed, Process, family, sockets};
use crate::load::Marks;
use crate::result::{Cache, Sample, Usage};
use crate::target::Target;

const EVERY: Duration = Duration::from_secs(1);

/// This program's name in the figures.
const CLIENT: &str = "client";

/// Samples one round. It is created before the round starts, and [`Marks`] tell it the measured interval.
#[derive(Debug)]
pub struct Observer {
    processes: Vec<Process>,
    /// At the beginning and at the end of the measured interval.
    times: Mutex<[Option<Times>; 2]>,
    orders: SyncSender<Order>,
    seen: Arc<Mutex<Seen>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Begin,
    End,
    Finish,
}

/// Processor time until a moment.
#[derive(Clone, Debug)]
struct Times {
    at: Instant,
    processes: Vec<Option<Ticks>>,
    client: Ticks,
    machine: Ticks,
}

/// The observations of the thread.
#[derive(Debug, Default)]
struct Seen {
    begin: Option<Cache>,
    end: Option<Cache>,
    memory: BTreeMap<String, u64>,
    series: Vec<Sample>,
}

impl Observer {
    /// Starts the thread.
    pub fn start(target: &Target, processes: &[Process]) -> Result<Arc<Self>> {
        let reader = Reader::new(target)?;
        let own = target.address().and_then(|(host, port)| sockets::listener(&host, port));
        let ((orders, received), seen) = (sync_channel(4), Arc::<Mutex<Seen>>::default());
        let (name, processes) = (target.name.clone(), processes.to_vec());
        let watch = Watch { name, reader, own, processes: processes.clone(), seen: Arc::clone(&seen) };
        let thread = std::thread::Builder::new().name("observer".to_owned()).spawn(move || watch.run(&received))?;
        Ok(Arc::new(Self { processes, times: Mutex::default(), orders, seen, thread: Mutex::new(Some(thread)) }))
    }

    /// Ends the thread. A second call is an error. Without both marks only the series is returned.
    pub fn finish(&self) -> Result<Observed> {
        let _ = self.orders.send(Order::Finish);
        let thread = lock(&self.thread).take().context("the round is over")?;
        thread.join().map_err(|_| anyhow!("the observer has failed"))?;
        let seen = std::mem::take(&mut *lock(&self.seen));
        let times = lock(&self.times).clone();
        let mut observed = Observed { series: seen.series, ..Observed::default() };
        let [Some(begin), Some(end)] = &times else { return Ok(observed) };
        let mut busy = 0;
        let mut count = |name: &str, begin: Ticks, end: Ticks| {
            let spent = since(end, begin);
            busy += spent.total();
            let (user, system) = (Ticks::seconds(spent.user), Ticks::seconds(spent.system));
            let memory = seen.memory.get(name).copied().unwrap_or_default();
            observed.processes.insert(name.to_owned(), Usage { user, system, memory });
        };
        count(CLIENT, begin.client, end.client);
        for ((process, begin), end) in self.processes.iter().zip(&begin.processes).zip(&end.processes) {
            if let (Some(begin), Some(end)) = (begin, end) {
                count(&process.name, *begin, *end);
            }
        }
        let machine = since(end.machine, begin.machine).total();
        let seconds = end.at.duration_since(begin.at).as_secs_f64();
        observed.others = Ticks::seconds(machine.saturating_sub(busy)) / seconds.max(1e-3);
        observed.cache = seen.begin.zip(seen.end).map(|(begin, end)| counted(&begin, &end));
        Ok(observed)
    }

    fn mark(&self, which: usize, times: Times) {
        lock(&self.times)[which] = Some(times);
    }
}

impl Marks for Observer {
    fn begin(&self) {
        // The call must not wait, since a mark in a queue would be late. The queue has space for all orders.
        let _ = self.orders.try_send(Order::Begin);
        // The client is read first, as at the end: the load continues while all of /proc is read.
        let (at, client, machine) = (Instant::now(), client(), family::machine());
        self.mark(0, Times { at, client, machine, processes: self.family_times() });
    }

    fn end(&self) {
        let (at, client, machine) = (Instant::now(), client(), family::machine());
        self.mark(1, Times { at, client, machine, processes: self.family_times() });
        let _ = self.orders.try_send(Order::End);
    }
}

impl Observer {
    /// Waits until the counters at the beginning have been read.
    #[cfg(test)]
    pub(super) fn has_begun(&self) -> bool {
        lock(&self.seen).begin.is_some()
    }

    fn family_times(&self) -> Vec<Option<Ticks>> {
        family::times(&self.processes.iter().map(|process| process.pid).collect::<Vec<_>>())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This program without its children. Those that are targets are listed separately.
fn client() -> Ticks {
    process::Process::read(std::process::id()).map(|process| process.own).unwrap_or_default()
}

/// The kernel divides a total into user and system time by samples, so one of them may seem to fall by a tick.
fn since(end: Ticks, begin: Ticks) -> Ticks {
    Ticks { user: end.user.saturating_sub(begin.user), system: end.system.saturating_sub(begin.system) }
}

/// The counts between two readings. If the cache was restarted meanwhile, it has counted from 0. Gauges are as at the end.
fn counted(begin: &Cache, end: &Cache) -> Cache {
    let anew = end.hits < begin.hits || end.fills < begin.fills || end.passed < begin.passed;
    let begin = if anew { Cache::default() } else { *begin };
    Cache {
        hits: end.hits - begin.hits,
        fills: end.fills - begin.fills,
        passed: end.passed - begin.passed,
        evictions: (end.evictions - begin.evictions).max(0.0),
        changed: (end.changed - begin.changed).max(0.0),
        ..*end
    }
}

/// The state of the thread.
struct Watch {
    name: String,
    reader: Option<Reader>,
    /// Id of the target's own process.
    own: Option<u32>,
    processes: Vec<Process>,
    seen: Arc<Mutex<Seen>>,
}

impl Watch {
    fn run(mut self, orders: &Receiver<Order>) {
        let began = Instant::now();
        let mut next = began;
        loop {
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Order::Begin) => {
                    let begin = self.counters();
                    lock(&self.seen).begin = begin;
                }
                Ok(Order::End) => {
                    let (end, memory) = (self.counters(), self.memory());
                    let mut seen = lock(&self.seen);
                    (seen.end, seen.memory) = (end, memory);
                }
                Ok(Order::Finish) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let at = began.elapsed().as_secs_f64();
                    let cache = self.counters().unwrap_or_default();
                    let memory = self.own.map_or(0, family::resident);
                    lock(&self.seen).series.push(Sample { at, cache, memory });
                    // Samples missed because of a slow target are skipped, not made up for.
                    while next <= Instant::now() {
                        next += EVERY;
                    }
                }
            }
        }
    }

    fn memory(&self) -> BTreeMap<String, u64> {
        let of = |one: &Process| (one.name.clone(), family::memory(one.pid));
        let client = (CLIENT.to_owned(), family::own_memory(std::process::id()));
        self.processes.iter().map(of).chain([client]).collect()
    }

    /// None if there are no counters, or if they cannot be read now, which does not end a run.
    fn counters(&mut self) -> Option<Cache> {
        match self.reader.as_mut()?.read() {
            Ok(cache) => Some(cache),
            Err(error) => {
                warn_once(&self.name, &error);
                None
            }
        }
    }
}

/// Warns once for each target in the life of this program, since a run has many rounds.
fn warn_once(target: &str, error: &anyhow::Error) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if lock(&WARNED).insert(target.to_owned()) {
        eprintln!("warning: {target}: its counters cannot be read: {error:#}");
    }
}
