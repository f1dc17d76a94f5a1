//! The loops on a server with known behaviour. The tests do not depend on the speed of the machine: bounds of latencies are lower bounds that follow
//! from the server's schedule, and counts are exact.

mod real;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::conduct::conduct;
use super::recorder::{Health, Recorder, Tally};
use super::round::{Load, Times};
use super::{Loop, Marks};
use crate::driver::Failure;
use server::{Answer, Asking, Request, serve};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Longer than any test, for a round that will be stopped.
const ENDLESS: Duration = Duration::from_secs(3600);

/// Counts the calls.
#[derive(Debug, Default)]
struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    fn count(&self) -> (u64, u64) {
        (self.begun.load(Ordering::SeqCst), self.ended.load(Ordering::SeqCst))
    }
}

impl Marks for Calls {
    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

fn open_loop(rate: f64) -> Loop {
    Loop::Open { rate, poisson: false }
}

fn load(client: &Arc<Asking>, pace: Loop, connections: usize) -> Load<Asking> {
    let client = Arc::clone(client);
    Load { name: "the load", client, connections, threads: 2, pace, statements: 1, seed: 1, health: Arc::default() }
}

fn times(warm_up: u32, measured: u32, cool_down: u32) -> Times {
    Times { warm_up: MILLISECOND * warm_up, measured: MILLISECOND * measured, cool_down: MILLISECOND * cool_down }
}

/// A whole round of one load that is not stopped.
fn whole(server: impl Fn(Request) -> Answer + Send + Sync + 'static, pace: Loop, times: &Times) -> Result<Tally> {
    let client = Arc::new(Asking::new(serve(server)));
    let marks = Calls::default();
    let tallies = conduct(&[load(&client, pace, 4)], times, &marks, &AtomicBool::new(false));
    assert_eq!(marks.count(), if tallies.is_ok() { (1, 1) } else { (0, 0) });
    tallies.map(|mut tallies| tallies.remove(0))
}

/// The number of latencies of at least `length`, within the histogram's error.
fn at_least(latencies: &Histogram<u64>, length: Duration) -> u64 {
    latencies.count_between(length.mul_f64(0.999).as_nanos() as u64, u64::MAX)
}

const PERIOD: u32 = 500;
const STALL: u32 = 200;

/// Answers at once, except in the first part of each period: then it waits until the part is over.
fn stalling() -> impl Fn(Request) -> Answer {
    let epoch = Instant::now();
    move |_| {
        let into = epoch.elapsed().as_nanos() % (MILLISECOND * PERIOD).as_nanos();
        let stalled = (MILLISECOND * STALL).saturating_sub(Duration::from_nanos(into as u64));
        std::thread::sleep(stalled);
        Answer::Success
    }
}

/// Of all requests in a whole number of periods, (STALL - x) / PERIOD are due with at least `x` of a stall left. None of these can be answered in
/// less than `x`. One per period may be on either side of the edge. The open loop must find all of them although it has only four connections. A
/// closed loop finds four in each stall.
#[test]
fn an_open_loop_measures_what_stalls_do_and_a_closed_loop_does_not() {
    const PERIODS: u32 = 4;
    const PER_MILLISECOND: u32 = 1;
    let times = times(100, PERIODS * PERIOD, 300);
    let open = whole(stalling(), open_loop(f64::from(PER_MILLISECOND * 1000)), &times).unwrap();
    assert_eq!(open.transactions + open.unfinished, u64::from(PERIODS * PERIOD * PER_MILLISECOND));
    assert_eq!(open.latency.len(), u64::from(PERIODS * PERIOD * PER_MILLISECOND));
    for x in [10, 50, 100, 150, 190] {
        let expected = u64::from(PERIODS * ((STALL - x) * PER_MILLISECOND - 1));
        let found = at_least(&open.latency, MILLISECOND * x);
        assert!(found >= expected, "{found} transactions of at least {x} ms; at least {expected} were due so early");
    }
    let mean_ms = f64::from(STALL) / 2.0 * f64::from(STALL) / f64::from(PERIOD);
    assert!(open.latency.mean() / 1e6 > mean_ms * 0.98, "{} ms", open.latency.mean() / 1e6);

    let closed = whole(stalling(), Loop::Closed, &times).unwrap();
    let share = |tally: &Tally| at_least(&tally.latency, MILLISECOND * 100) as f64 / tally.latency.len() as f64;
    assert!(share(&open) > 0.19, "{}", share(&open));
    assert!(share(&closed) < 0.19, "a closed loop, {} of {}", share(&closed), closed.latency.len());
}

/// The background writer is a second load with its own tally.
#[test]
fn what_is_due_in_the_interval_is_counted_exactly() {
    let client = Arc::new(Asking::new(serve(|_| Answer::Success)));
    let loads = [load(&client, open_loop(1000.0), 5), load(&client, open_loop(70.0), 4)];
    let tallies = conduct(&loads, &times(300, 700, 200), &Calls::default(), &AtomicBool::new(false)).unwrap();
    for (tally, due) in tallies.iter().zip([700, 49]) {
        assert_eq!(tally.transactions + tally.unfinished, due);
        assert_eq!(tally.measured, MILLISECOND * 700);
        assert_eq!(tally.per_second.len(), 1);
        assert!(tally.lateness.as_ref().unwrap().len() >= tally.transactions);
        assert!(tally.failures.is_empty() && !tally.statements[0].is_empty());
    }
    assert_eq!(client.opened.load(Ordering::Relaxed), 9);
}

/// While a thread is blocked, its other connection is free. What is due for it then is late because of the client, and must be reported so. Of the
/// thread's transactions, those due in the first half of the 100 ms wait at least for the other half. On a busy machine, where threads start late, it
/// may be only some of them. With 1,800 ms the round is over when the thread continues, and transactions due meanwhile never start.
#[test]
fn lateness_of_the_client_shows_and_is_part_of_the_latency() {
    for (held_up, at_once) in [(100, false), (100, true), (1800, false)] {
        let client = Arc::new(Asking { at_once, ..Asking::new(serve(|_| Answer::Success)) });
        client.hold_up.store(held_up, Ordering::Relaxed);
        let load = load(&client, open_loop(1000.0), 4);
        let tallies = conduct(&[load], &times(0, 300, 200), &Calls::default(), &AtomicBool::new(false)).unwrap();
        let lateness = tallies[0].lateness.as_ref().unwrap().max();
        assert!(lateness > 50_000_000, "{lateness}, held up for {held_up} ms, at once: {at_once}");
        let waited = at_least(&tallies[0].latency, MILLISECOND * 50);
        assert!(waited >= 5, "{waited}, held up for {held_up} ms");
    }
}

#[test]
fn poisson_arrivals_have_the_rate_on_average() {
    let pace = Loop::Open { rate: 2000.0, poisson: true };
    let tally = whole(|_| Answer::Success, pace, &times(100, 500, 200)).unwrap();
    // Four standard deviations of a Poisson distribution with a mean of 1000; the seed is fixed.
    assert!((tally.transactions + tally.unfinished).abs_diff(1000) < 127, "{}", tally.transactions);
}

/// Answers this many transactions and then none. The round is stopped in the interval, when each of the four connections has an unanswered request.
/// By then each has read the answers to all its earlier requests.
fn stopped(pace: Loop) -> Tally {
    const ANSWERED: u64 = 200;
    let (stop, marks) = (Arc::new(AtomicBool::new(false)), Arc::new(Calls::default()));
    let (stopping, calls) = (Arc::clone(&stop), Arc::clone(&marks));
    let client = Arc::new(Asking::new(serve(move |request| {
        if request.before < ANSWERED {
            return Answer::Success;
        }
        while calls.count().0 == 0 {
            std::thread::yield_now();
        }
        if request.before == ANSWERED + 3 {
            stopping.store(true, Ordering::Relaxed);
        }
        Answer::Never
    })));
    let times = Times { measured: ENDLESS, ..times(0, 0, 0) };
    let tally = conduct(&[load(&client, pace, 4)], &times, marks.as_ref(), &stop).unwrap().remove(0);
    assert_eq!(marks.count(), (1, 1));
    assert_eq!((tally.transactions, tally.per_second.iter().sum::<u64>()), (ANSWERED, ANSWERED));
    assert!(tally.measured > Duration::ZERO && tally.measured < ENDLESS);
    tally
}

#[test]
fn a_stopped_round_keeps_what_was_measured_though_the_server_answers_no_more() {
    let closed = stopped(Loop::Closed);
    assert_eq!((closed.latency.len(), closed.unfinished), (200, 0));
    let open = stopped(open_loop(2000.0));
    assert!(open.unfinished > 0);
    assert_eq!(open.latency.len(), 200 + open.unfinished);
}

#[test]
fn a_round_can_be_stopped_while_connections_are_opened() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let client = Arc::new(Asking::new(serve(move |_| {
        stopping.store(true, Ordering::Relaxed);
        Answer::Never
    })));
    let marks = Calls::default();
    let tally = conduct(&[load(&client, Loop::Closed, 4)], &times(0, 1000, 0), &marks, &stop).unwrap().remove(0);
    assert_eq!((tally.measured, tally.transactions, marks.count()), (Duration::ZERO, 0, (0, 0)));
}

/// Each connection is closed at its eleventh transaction, and every seventh transaction fails. After 300 the server does not answer any more, and the
/// round is stopped. An answer may be in flight then, so counts may be low by one for each connection.
#[test]
fn failures_are_counted_by_code_and_lost_connections_opened_anew() {
    for pace in [Loop::Closed, open_loop(3000.0)] {
        let (stop, closed, failed) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (stopping, closing, failing) = (Arc::clone(&stop), Arc::clone(&closed), Arc::clone(&failed));
        let client = Arc::new(Asking::new(serve(move |request| {
            if request.opens {
                Answer::Success
            } else if request.before >= 300 {
                stopping.store(true, Ordering::Relaxed);
                Answer::Never
            } else if request.before_here >= 10 {
                closing.fetch_add(1, Ordering::Relaxed);
                Answer::Close
            } else if request.before % 7 == 6 {
                failing.fetch_add(1, Ordering::Relaxed);
                Answer::Failure
            } else {
                Answer::Success
            }
        })));
        let times = Times { measured: ENDLESS, ..times(0, 0, 0) };
        let tally = conduct(&[load(&client, pace, 3)], &times, &Calls::default(), &stop).unwrap().remove(0);
        let counted = |code: &str| tally.failures.get(code).map_or(0, |(count, _)| *count);
        for (code, sent) in [("connection", &closed), ("40001", &failed)] {
            let sent = sent.load(Ordering::Relaxed);
            assert!((sent - 3..=sent).contains(&counted(code)), "{code}: {} of {sent}", counted(code));
        }
        assert_eq!(tally.failures["40001"].1, "the server says no");
        assert_eq!(client.rolled_back.load(Ordering::Relaxed), counted("40001"));
        assert!(client.opened.load(Ordering::Relaxed) >= counted("connection"));
        let succeeded = 300 - closed.load(Ordering::Relaxed) - failed.load(Ordering::Relaxed);
        assert!((succeeded - 3..=succeeded).contains(&tally.transactions), "{} of {succeeded}", tally.transactions);
    }
}

#[test]
fn a_load_that_never_gets_going_is_an_error() {
    let answer = |request: Request| if request.opens { Answer::Success } else { Answer::Failure };
    let error = whole(answer, Loop::Closed, &times(200, 60_000, 0)).unwrap_err();
    let expected = "every transaction of the load failed during the warm-up; the first: 40001: the server says no";
    assert_eq!(format!("{error:#}"), expected);
}

#[test]
fn a_connection_that_cannot_be_opened_is_an_error() {
    let error = whole(|_| Answer::Failure, Loop::Closed, &times(0, 60_000, 0)).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.starts_with("cannot open connection ") && error.contains("of 4 to the double at 127.0.0.1:"),
        "{error}"
    );
    assert!(error.ends_with(": 40001: the server says no"), "{error}");
}

#[test]
fn a_rate_that_nobody_can_serve_is_an_error() {
    let client = Arc::new(Asking::new(serve(|_| Answer::Success)));
    let times = Times { measured: ENDLESS, ..times(0, 0, 0) };
    let error = conduct(&[load(&client, open_loop(1e10), 4)], &times, &Calls::default(), &AtomicBool::new(false));
    assert!(error.unwrap_err().to_string().starts_with("the rate is far beyond what the target can do"));
}

fn recorder(open: bool, begin: Instant) -> Recorder {
    let mut recorder = Recorder::new(1, open, Arc::<Health>::default());
    recorder.start(begin..begin + MILLISECOND * 1500);
    recorder
}

#[test]
fn the_clock_decides_what_counts() {
    let begin = Instant::now() + ENDLESS;
    let at = |ms: u32| begin + MILLISECOND * ms;
    let before = begin.checked_sub(MILLISECOND).unwrap();
    for (open, counted) in [(false, 2), (true, 3)] {
        let mut recorder = recorder(open, begin);
        for (from, ended) in [(before, begin), (begin, at(1499)), (at(1), at(1500)), (at(1499), at(9000))] {
            recorder.transaction(from, ended);
        }
        recorder.stop(at(20_000));
        let tally = recorder.tally();
        assert_eq!((tally.transactions, tally.latency.len()), (counted, counted), "open: {open}");
        assert_eq!(tally.per_second, [1, 1]);
        assert_eq!(tally.measured, MILLISECOND * 1500);
    }
}

#[test]
fn tallies_add_up() {
    let begin = Instant::now() + ENDLESS;
    let at = |ms: u32| begin + MILLISECOND * ms;
    let failure = |text: &str| Failure::connection(&text);
    let (mut one, mut two) = (recorder(true, begin), recorder(true, begin));
    one.transaction(at(0), at(10));
    one.failure(&failure("first"), at(1));
    one.unfinished(at(400), at(600));
    one.lateness(at(1), MILLISECOND);
    one.stop(at(700));
    two.transaction(at(0), at(1200));
    two.failure(&failure("second"), at(2));
    two.failure(&failure("outside"), at(1500));
    two.stop(at(1500));
    let mut sum = one.tally();
    sum.add(&two.tally()).unwrap();
    assert_eq!((sum.transactions, sum.unfinished, sum.measured), (2, 1, MILLISECOND * 1500));
    assert_eq!((sum.latency.len(), sum.lateness.unwrap().len()), (3, 1));
    assert!(sum.latency.max().abs_diff(1_200_000_000) < 1_200_000);
    assert_eq!(sum.per_second, [1, 1]);
    assert_eq!(sum.failures["connection"], (2, "first".to_owned()));
}
