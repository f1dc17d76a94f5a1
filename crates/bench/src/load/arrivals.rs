//! The open loop of one thread: assigns transactions that are due to free connections.
//!
//! A connection that ends a transaction takes the next one at once if it is already due. Otherwise it waits in line, and one local task wakes the
//! connection that has waited longest when a transaction is due. Nothing is queued: arrivals that find all connections busy stay in the schedule
//! until one is free.
//!
//! The task sleeps on a timerfd, since the runtime's own timer has a resolution of a millisecond. The descriptor is registered edge-triggered.
//! Setting it again after an expiry makes it unreadable again, so it is never read: an arrival costs two system calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::recorder::Recorder;
use super::schedule::Schedule;

/// Limit of arrivals of a thread that wait for a connection. With more of them, the load would only measure their wait.
const WAITING_MAX: f64 = 10e6;

/// The next action of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The intended start of the transaction.
    pub(super) due: Instant,
    /// How late it starts although the connection was free.
    pub(super) late: Duration,
}

/// A connection in this loop.
#[derive(Debug, Default)]
struct Lane {
    /// The intended start of its current transaction; None if it has none.
    due: Cell<Option<Instant>>,
    /// The waker of its task, while it waits.
    waker: RefCell<Option<Waker>>,
}

/// The open loop of one thread.
#[derive(Debug)]
pub(super) struct Arrivals {
    schedule: RefCell<Schedule>,
    lanes: Vec<Lane>,
    /// The free connections, longest first.
    free: RefCell<VecDeque<usize>>,
    /// No transaction starts after this time.
    finish: Instant,
    /// Whether the round is over.
    over: Cell<bool>,
    timer: AsyncFd<OwnedFd>,
}

impl Arrivals {
    /// A loop for this number of connections of the thread.
    #[expect(
        deprecated,
        reason = "its replacement is unsafe; an OwnedFd keeps what that asks for: one descriptor, open"
    )]
    pub(super) fn new(schedule: Schedule, lanes: usize, finish: Instant) -> Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self {
            schedule: RefCell::new(schedule),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            free: RefCell::new((0..lanes).collect()),
            finish,
            over: Cell::new(false),
            timer: AsyncFd::with_interest(timer, Interest::READABLE)?,
        })
    }

    /// The next transaction of a connection that has been free since `since`; None when the round is over.
    pub(super) async fn next(&self, lane: usize, since: Instant) -> Result<Option<Arrival>> {
        self.ended(lane);
        self.hand_out(since);
        if since >= self.finish {
            return Ok(None);
        }
        if self.schedule.borrow().peek() <= since {
            let due = self.schedule.borrow_mut().take();
            self.lanes[lane].due.set(Some(due));
            return Ok(Some(Arrival { due, late: Duration::ZERO }));
        }
        self.free.borrow_mut().push_back(lane);
        if self.free.borrow().len() == 1 {
            self.set_timer()?;
        }
        Ok(self.handed(lane).await)
    }

    /// Waits until this connection, which is free, gets a transaction, or the round is over. All are free at the beginning, those too whose tasks
    /// have not run yet.
    pub(super) async fn handed(&self, lane: usize) -> Option<Arrival> {
        let lane = &self.lanes[lane];
        let due = poll_fn(|context| match lane.due.get() {
            Some(due) => Poll::Ready(Some(due)),
            None if self.over.get() => Poll::Ready(None),
            None => {
                lane.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        });
        // The connection was free when the transaction became due, so the delay is the client's own.
        due.await.map(|due| Arrival { due, late: Instant::now().saturating_duration_since(due) })
    }

    /// Records the end of a transaction whose connection was lost and must be opened again.
    pub(super) fn ended(&self, lane: usize) {
        self.lanes[lane].due.set(None);
    }

    /// Wakes a connection when a transaction is due, until the round is over.
    pub(super) async fn run(&self) -> Result<()> {
        while !self.over.get() {
            self.set_timer()?;
            self.timer.readable().await?.clear_ready();
            let now = Instant::now();
            self.hand_out(now);
            if now >= self.finish {
                self.over.set(true);
                self.lanes.iter().filter_map(|lane| lane.waker.take()).for_each(Waker::wake);
            }
        }
        Ok(())
    }

    /// Gives the due transactions to the free connections.
    fn hand_out(&self, now: Instant) {
        let (mut schedule, mut free) = (self.schedule.borrow_mut(), self.free.borrow_mut());
        while schedule.peek() <= now && schedule.peek() < self.finish {
            let Some(lane) = free.pop_front().map(|lane| &self.lanes[lane]) else { break };
            lane.due.set(Some(schedule.take()));
            lane.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Sets the timer to the next transaction if a connection is free, otherwise to the end. A time of zero would switch the timer off.
    fn set_timer(&self) -> Result<()> {
        let next = if self.free.borrow().is_empty() { self.finish } else { self.schedule.borrow().peek() };
        let wait = next.min(self.finish).saturating_duration_since(Instant::now());
        let it_value = Timespec::try_from(wait.max(Duration::from_nanos(1)))?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(())
    }

    /// An error if the server is too far behind.
    pub(super) fn check(&self, now: Instant) -> Result<()> {
        let schedule = self.schedule.borrow();
        let behind = now.min(self.finish).saturating_duration_since(schedule.peek()).as_secs_f64();
        if behind * schedule.rate() > WAITING_MAX {
            bail!("the rate is far beyond what the target can do: it is {behind:.1} s behind");
        }
        Ok(())
    }

    /// Counts transactions as unfinished that were due before `now` and have not ended or not started. Those that a free connection should have
    /// started are late because of the client: its thread had no processor.
    pub(super) fn stop(&self, now: Instant, recorder: &mut Recorder) {
        for due in self.lanes.iter().filter_map(|lane| lane.due.take()) {
            recorder.unfinished(due, now);
        }
        let mut free = self.free.take().into_iter();
        let mut schedule = self.schedule.borrow_mut();
        while schedule.peek() < now.min(self.finish) {
            let due = schedule.take();
            if free.next().is_some() {
                recorder.lateness(due, now.duration_since(due));
            }
            recorder.unfinished(due, now);
        }
    }
}
