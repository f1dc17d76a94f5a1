//! One round of one or more loads on their own threads. It opens all connections, starts all loads at one time, marks the start and end of the
//! measured interval, and adds up the results.
//!
//! All threads get the same start and end times and use the clock themselves. So no message has to arrive in time, and the caller's work at the ends
//! of the interval delays no thread.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::watch;

use super::Marks;
use super::client::Client;
use super::recorder::{Tally, total};
use super::round::{Load, Signals, TICK, Timeline, Times};
use super::schedule::Share;
use super::worker::Worker;

/// Time from the opening of all connections to the first transaction: all threads must receive the start time.
const LEAD: Duration = Duration::from_millis(20);

/// Runs a round and returns a tally for each load. Blocks the calling thread, on which the marks are called.
pub(super) fn conduct<C: Client>(
    loads: &[Load<C>],
    times: &Times,
    marks: &dyn Marks,
    stop: &AtomicBool,
) -> Result<Vec<Tally>> {
    let signals = Signals { stop, abandoned: AtomicBool::new(false) };
    let (start, started) = watch::channel(None);
    // Each thread sends one message.
    let (ready, opened) = mpsc::sync_channel(loads.iter().map(|load| load.threads.max(1)).sum());
    thread::scope(|scope| {
        let mut threads: Vec<Vec<_>> = Vec::new();
        for load in loads {
            let step = load.threads.clamp(1, load.connections.max(1));
            let shares = (0..step).map(|first| Share { first, step, all: load.connections });
            let spawn = |share| {
                let (worker, started, ready) =
                    (Worker { load, share, signals: &signals }, started.clone(), ready.clone());
                scope.spawn(move || worker.run(started, &ready))
            };
            threads.push(shares.map(spawn).collect());
        }
        let count = threads.iter().map(Vec::len).sum();
        let coordinated = all_ready(&opened, count, &signals).map_or(Ok(()), |()| {
            let timeline = Timeline::new(Instant::now() + LEAD, times);
            start.send_replace(Some(timeline));
            follow(&timeline, loads, marks, &signals)
        });
        if coordinated.is_err() {
            signals.abandon();
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Tally>>| {
            thread.join().map_err(|_| anyhow!("a thread of the load panicked"))?
        };
        let tallies = |threads: Vec<_>| total(threads.into_iter().map(join).collect::<Result<Vec<_>>>()?);
        let tallies = threads.into_iter().map(tallies).collect::<Result<Vec<_>>>()?;
        coordinated.map(|()| tallies)
    })
}

/// Waits until all threads have opened their connections. None if the round was stopped before.
fn all_ready(opened: &mpsc::Receiver<()>, threads: usize, signals: &Signals<'_>) -> Option<()> {
    let mut ready = 0;
    while ready < threads {
        if signals.stopped() {
            return None;
        }
        ready += usize::from(opened.recv_timeout(TICK).is_ok());
    }
    Some(())
}

/// Calls the marks at their times. If the beginning of the interval was marked, its end is marked too, however the round ends.
fn follow<C>(timeline: &Timeline, loads: &[Load<C>], marks: &dyn Marks, signals: &Signals<'_>) -> Result<()> {
    if !signals.sleep_until(timeline.begin) {
        return Ok(());
    }
    for load in loads {
        let failed = || format!("every transaction of {} failed during the warm-up; the first", load.name);
        load.health.check().with_context(failed)?;
    }
    marks.begin();
    signals.sleep_until(timeline.end);
    marks.end();
    Ok(())
}
