//! The load: connections that run title-5 transactions one after another.
//!
//! It is a closed loop like sysbench's. Each connection has one transaction of five SELECTs at a time, without BEGIN, and draws the next title
//! uniformly from the popular ones. The connections run on two threads, each with its own runtime. So they cost little compared with what they
//! measure, and do not disturb another runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use tokio::sync::{mpsc, watch};

use crate::driver::Protocol;
use crate::random::Random;

use super::session::Session;

const THREADS: usize = 2;
/// The largest latency that is recorded, in microseconds.
const LATENCY_MAX_US: u64 = 60_000_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that a transaction may run after the end of its round.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the protocol in the tables.
pub(super) const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Prepared => "prepared",
        Protocol::Text => "text",
    }
}

/// The address, the protocol and the number of connections.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) url: String,
    pub(super) protocol: Protocol,
    pub(super) connections: usize,
    /// The requested titles.
    pub(super) titles: Arc<[String]>,
    pub(super) seed: u64,
}

/// The measurements of a round.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) transactions: u64,
    pub(super) elapsed: Duration,
    /// Latency of whole transactions in microseconds.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Result<Self> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).context("latency histogram")?;
        Ok(Self { transactions: 0, elapsed: Duration::ZERO, latency })
    }

    /// Adds a round with the same shape.
    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        self.transactions += other.transactions;
        self.elapsed += other.elapsed;
        self.latency.add(&other.latency).context("adding latencies")?;
        Ok(())
    }

    pub(super) fn per_second(&self) -> f64 {
        self.transactions as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(super) fn average_ms(&self) -> f64 {
        self.latency.mean() / 1000.0
    }

    pub(super) fn p95_ms(&self) -> f64 {
        self.latency.value_at_quantile(0.95) as f64 / 1000.0
    }
}

/// Shared by the connections of one load.
struct Control {
    shape: Shape,
    stop: AtomicBool,
    transactions: AtomicU64,
}

/// Connections that are open, with their statements prepared, and wait for the start.
pub(super) struct Load {
    control: Arc<Control>,
    start: watch::Sender<bool>,
    news: mpsc::Receiver<Result<News>>,
    began: Instant,
}

enum News {
    Connected,
    Done(Box<Histogram<u64>>),
}

impl Load {
    /// Opens the connections.
    pub(super) async fn connect(shape: Shape) -> Result<Self> {
        let connections = shape.connections;
        let control = Arc::new(Control { shape, stop: AtomicBool::new(false), transactions: AtomicU64::new(0) });
        let (start, started) = watch::channel(false);
        let (report, mut news) = mpsc::channel(connections.max(1) * 2);
        for thread in 0..THREADS {
            let (control, started, report) = (Arc::clone(&control), started.clone(), report.clone());
            std::thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || run_thread(thread, &control, &started, &report))
                .context("starting a load thread")?;
        }
        drop(report);
        for _ in 0..connections {
            match tokio::time::timeout(CONNECT_TIMEOUT, news.recv()).await.context("connecting takes too long")? {
                Some(Ok(News::Connected)) => {}
                Some(Err(error)) => return Err(error),
                Some(Ok(News::Done(_))) | None => bail!("a load connection ended before its start"),
            }
        }
        Ok(Self { control, start, news, began: Instant::now() })
    }

    /// Starts the transactions.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
        self.start.send_replace(true);
    }

    /// Number of transactions answered so far.
    pub(super) fn transactions(&self) -> u64 {
        self.control.transactions.load(Ordering::Relaxed)
    }

    /// Ends the load when the running transactions have ended, and closes the connections.
    pub(super) async fn finish(mut self) -> Result<Tally> {
        self.control.stop.store(true, Ordering::Relaxed);
        let elapsed = self.began.elapsed();
        let mut tally = Tally { transactions: self.transactions(), elapsed, ..Tally::new()? };
        loop {
            let news = tokio::time::timeout(LAST_ANSWER_TIMEOUT, self.news.recv()).await;
            match news.context("a transaction is not answered")? {
                Some(Ok(News::Done(latency))) => tally.latency.add(*latency).context("adding latencies")?,
                Some(Ok(News::Connected)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(tally),
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // After an error, `finish` is not called. The connections must end all the same.
        self.control.stop.store(true, Ordering::Relaxed);
    }
}

fn run_thread(
    thread: usize,
    control: &Arc<Control>,
    started: &watch::Receiver<bool>,
    report: &mpsc::Sender<Result<News>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = report.blocking_send(Err(error.into()));
            return;
        }
    };
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for number in (thread..control.shape.connections).step_by(THREADS) {
            let (control, started, report) = (Arc::clone(control), started.clone(), report.clone());
            tasks.push(tokio::spawn(async move {
                let outcome = run_connection(number, &control, started, &report).await;
                // The receiver is gone if the load was dropped.
                let _ = report.send(outcome.map(|latency| News::Done(Box::new(latency)))).await;
            }));
        }
        for task in tasks {
            let _ = task.await;
        }
    });
}

async fn run_connection(
    number: usize,
    control: &Control,
    mut started: watch::Receiver<bool>,
    report: &mpsc::Sender<Result<News>>,
) -> Result<Histogram<u64>> {
    let shape = &control.shape;
    let mut session = Session::open(&shape.url, shape.protocol).await?;
    let mut latency = Tally::new()?.latency;
    let mut random = Random::numbered(shape.seed, number as u64);
    report.send(Ok(News::Connected)).await.ok();
    // An error means that the load was dropped before its start.
    if started.wait_for(|go| *go).await.is_err() {
        return Ok(latency);
    }
    while !control.stop.load(Ordering::Relaxed) {
        let title = shape.titles.get(random.below(shape.titles.len())).context("no titles to ask for")?;
        let sent = Instant::now();
        session.transaction(title).await?;
        latency.saturating_record(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
        if !control.stop.load(Ordering::Relaxed) {
            control.transactions.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(latency)
}
