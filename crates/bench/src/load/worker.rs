//! One thread of a load. Each of its connections is a local task that runs one transaction after another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, sleep_until, timeout};

use super::Loop;
use super::arrivals::Arrivals;
use super::client::Client;
use super::recorder::{Recorder, Tally};
use super::round::{Load, Signals, TICK, Timeline};
use super::schedule::{Schedule, Share};
use crate::driver::Failure;
use crate::random::Random;

/// The most connections that a thread opens at the same time. More would overload servers that start a process for each.
const OPENING_MAX: usize = 32;

/// Time limit for opening a connection.
const OPENING_TIME: Duration = Duration::from_secs(30);

/// Pause before the first attempt to open a lost connection again. It doubles with each further attempt.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time limit for transactions in progress when the round ends.
const GRACE: Duration = Duration::from_secs(1);

/// Time for drivers to close their protocol after their connections are dropped.
const FAREWELL: Duration = Duration::from_millis(5);

/// One thread's part of a load.
#[derive(Debug)]
pub(super) struct Worker<'a, C> {
    pub(super) load: &'a Load<C>,
    /// Its connections.
    pub(super) share: Share,
    pub(super) signals: &'a Signals<'a>,
}

/// The state of a connection's task.
#[derive(Debug)]
struct Task<C: Client> {
    client: Arc<C>,
    connection: C::Connection,
    recorder: Rc<RefCell<Recorder>>,
    timeline: Timeline,
    in_progress: InProgress,
}

/// Closed loop: the start of the connection's current transaction, if there is one.
type InProgress = Rc<Cell<Option<Instant>>>;

impl<C: Client> Worker<'_, C> {
    /// Runs on the calling thread until the end of the round. A failure ends the round for all threads.
    pub(super) fn run(
        &self,
        started: watch::Receiver<Option<Timeline>>,
        ready: &mpsc::SyncSender<()>,
    ) -> Result<Tally> {
        let tally = self.on_runtime(started, ready);
        if tally.is_err() {
            self.signals.abandon();
        }
        tally
    }

    fn on_runtime(&self, started: watch::Receiver<Option<Timeline>>, ready: &mpsc::SyncSender<()>) -> Result<Tally> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tally = LocalSet::new().block_on(&runtime, self.work(started, ready));
        // The runtime may be resolving a name, which cannot be interrupted.
        runtime.shutdown_background();
        tally
    }

    async fn work(
        &self,
        mut started: watch::Receiver<Option<Timeline>>,
        ready: &mpsc::SyncSender<()>,
    ) -> Result<Tally> {
        let load = self.load;
        let open = !matches!(load.pace, Loop::Closed);
        let recorder = Rc::new(RefCell::new(Recorder::new(load.statements, open, Arc::clone(&load.health))));
        let prepared = async {
            let connections = self.open_all(&recorder).await?;
            ready.send(())?;
            let timeline = started.wait_for(Option::is_some).await?.context("started without times")?;
            recorder.borrow_mut().start(timeline.begin..timeline.end);
            sleep_until(timeline.start.into()).await;
            anyhow::Ok((connections, timeline))
        };
        let (connections, timeline) = tokio::select! {
            prepared = prepared => prepared?,
            () = self.stopped() => return Ok(recorder.borrow().tally()),
        };
        let arrivals = self.arrivals(timeline, connections.len())?.map(Rc::new);
        let mut tasks = JoinSet::new();
        let mut in_progress: Vec<InProgress> = Vec::with_capacity(connections.len());
        for (lane, connection) in connections.into_iter().enumerate() {
            let (client, recorder) = (Arc::clone(&load.client), Rc::clone(&recorder));
            in_progress.push(InProgress::default());
            let task = Task { client, connection, recorder, timeline, in_progress: Rc::clone(&in_progress[lane]) };
            match &arrivals {
                None if matches!(load.pace, Loop::Replay { .. }) => tasks.spawn_local(task.replay()),
                None => tasks.spawn_local(task.closed_loop()),
                Some(arrivals) => tasks.spawn_local(task.open_loop(Rc::clone(arrivals), lane)),
            };
        }
        if let Some(arrivals) = arrivals.clone() {
            tasks.spawn_local(async move { arrivals.run().await });
        }
        let ended = tokio::select! {
            ended = drained(&mut tasks) => ended,
            ended = self.supervise(timeline, arrivals.as_deref()) => ended,
        };
        let now = Instant::now();
        tasks.shutdown().await;
        ended?;
        if !self.signals.stopped() {
            let hung = in_progress.iter().filter_map(|began| began.take());
            hung.for_each(|began| recorder.borrow_mut().unfinished(began, now));
        }
        recorder.borrow_mut().stop(now);
        if let Some(arrivals) = arrivals.filter(|_| !self.signals.abandoned()) {
            arrivals.stop(now, &mut recorder.borrow_mut());
        }
        sleep(FAREWELL).await;
        let tally = recorder.borrow().tally();
        Ok(tally)
    }

    async fn open_all(&self, recorder: &Rc<RefCell<Recorder>>) -> Result<Vec<C::Connection>> {
        let (client, all) = (&self.load.client, self.load.connections);
        let open = |number| async move {
            let opened = in_time(client.open(number, recorder)).await;
            opened.with_context(|| format!("cannot open connection {} of {all} to {}", number + 1, client.target()))
        };
        stream::iter(self.share.numbers()).map(open).buffer_unordered(OPENING_MAX).try_collect().await
    }

    /// The arrivals of an open loop. None for other loops.
    fn arrivals(&self, timeline: Timeline, lanes: usize) -> Result<Option<Arrivals>> {
        let Loop::Open { rate, poisson } = self.load.pace else { return Ok(None) };
        let schedule = if poisson {
            let random = Random::numbered(self.load.seed, self.share.first as u64);
            Schedule::exponential(timeline.start, rate, self.share, random)
        } else {
            Schedule::equal(timeline.start, rate, self.share)
        };
        Arrivals::new(schedule, lanes, timeline.finish).map(Some)
    }

    async fn stopped(&self) {
        while !self.signals.stopped() {
            sleep(TICK).await;
        }
    }

    /// Returns when the tasks must end, whether they are complete or not.
    async fn supervise(&self, timeline: Timeline, arrivals: Option<&Arrivals>) -> Result<()> {
        while !self.signals.stopped() && Instant::now() < timeline.finish + GRACE {
            if let Some(arrivals) = arrivals {
                arrivals.check(Instant::now())?;
            }
            sleep(TICK).await;
        }
        Ok(())
    }
}

/// Waits until all tasks have ended.
async fn drained(tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a connection's task panicked")??;
    }
    Ok(())
}

async fn in_time<T>(opening: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::connection(&format!("not open after {} seconds", OPENING_TIME.as_secs()));
    timeout(OPENING_TIME, opening).await.map_err(late)?
}

impl<C: Client> Task<C> {
    async fn closed_loop(mut self) -> Result<()> {
        let mut began = Instant::now();
        while began < self.timeline.finish {
            self.in_progress.set(Some(began));
            let done = self.client.run(&mut self.connection).await;
            self.in_progress.set(None);
            match done {
                Ok(()) => {
                    let ended = Instant::now();
                    self.recorder.borrow_mut().transaction(began, ended);
                    began = ended;
                }
                Err(failure) => {
                    self.recorder.borrow_mut().failure(&failure, Instant::now());
                    self.recover(&failure).await;
                    began = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// Runs each transaction at its time. The runtime's timer has a resolution of a millisecond, which counts as lateness.
    async fn replay(mut self) -> Result<()> {
        while let Some(offset) = self.client.due(&self.connection) {
            let due = self.timeline.start + offset;
            if due >= self.timeline.finish {
                break;
            }
            sleep_until(due.into()).await;
            let began = Instant::now();
            self.recorder.borrow_mut().lateness(due, began.saturating_duration_since(due));
            self.in_progress.set(Some(began));
            let done = self.client.run(&mut self.connection).await;
            self.in_progress.set(None);
            match done {
                Ok(()) => self.recorder.borrow_mut().transaction(began, Instant::now()),
                Err(failure) => {
                    self.recorder.borrow_mut().failure(&failure, began);
                    self.recover(&failure).await;
                }
            }
        }
        Ok(())
    }

    async fn open_loop(mut self, arrivals: Rc<Arrivals>, lane: usize) -> Result<()> {
        let mut next = arrivals.handed(lane).await;
        while let Some(arrival) = next {
            let free;
            self.recorder.borrow_mut().lateness(arrival.due, arrival.late);
            match self.client.run(&mut self.connection).await {
                Ok(()) => {
                    free = Instant::now();
                    self.recorder.borrow_mut().transaction(arrival.due, free);
                }
                Err(failure) => {
                    self.recorder.borrow_mut().failure(&failure, arrival.due);
                    arrivals.ended(lane);
                    self.recover(&failure).await;
                    free = Instant::now();
                }
            }
            next = arrivals.next(lane, free).await?;
        }
        Ok(())
    }

    /// Makes the connection ready for another transaction: rolls back, or opens it again until the round ends.
    async fn recover(&mut self, failure: &Failure) {
        if failure.usable && self.client.roll_back(&mut self.connection).await.is_ok() {
            // A failure without a request to the server must not block the other connections of this thread.
            return tokio::task::yield_now().await;
        }
        let mut pause = PAUSE;
        while Instant::now() < self.timeline.finish {
            sleep(pause).await;
            match in_time(self.client.reopen(&mut self.connection, &self.recorder)).await {
                Ok(()) => return,
                Err(failure) => self.recorder.borrow_mut().failure(&failure, Instant::now()),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
