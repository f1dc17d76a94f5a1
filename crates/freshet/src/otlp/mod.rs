//! OpenTelemetry: metrics and spans for a collector, by OTLP over HTTP.
//!
//! The exporter has a thread of its own, with a task for each signal, so that trouble with one of them is no trouble of the other: many collectors take
//! one only. It takes spans from a queue of bounded length, and reads the counters that `/metrics` reads. A collector
//! that is down, slow or answers nonsense costs only spans: the last batch is tried again, ever more rarely, while the queue fills and what finds it
//! full is counted and left out. Metrics are sums since the start, so that nothing of them is lost.

mod args;
mod endpoint;
mod headers;
mod json;
mod post;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};
use freshet_proxy::{Databases, Span};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use args::OtlpArgs;
pub(crate) use endpoint::shown;
use post::{Collector, Failure};

use crate::web;

/// How often spans are exported.
const SPANS_EVERY: Duration = Duration::from_secs(1);
/// The most spans in one request, and the most requests in one turn.
const BATCH_MAX: usize = 512;
const BATCHES_MAX: usize = 8;
/// Pause after a failure. It doubles with each further one.
const BACK_OFF: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);
/// Time limit for the rest at the end.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The running exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// Reads the files that the options name, to find faults.
pub(crate) fn try_out(args: &OtlpArgs) -> Result<()> {
    Collector::of(args).map(drop).map_err(|why| anyhow!("--otlp-endpoint: {why}"))
}

/// Starts the exporter, if there is a collector.
pub(crate) fn start(args: &OtlpArgs, databases: &Arc<Databases>) -> Result<Option<Exporter>> {
    let collector = Collector::of(args).map_err(|why| anyhow!("--otlp-endpoint: {why}"))?;
    if let Some(url) = args.ignored() {
        let expected = "a URL such as http://127.0.0.1:4318 is expected; nothing is exported";
        tracing::warn!("OTEL_EXPORTER_OTLP_ENDPOINT is \"{url}\": {expected}");
    }
    let Some(collector) = collector else { return Ok(None) };
    let traces = databases.traces();
    traces.start();
    traces.set_share(args.otlp_sample.0);
    databases.query_log().look_at_all();
    tracing::info!(collector = collector.authority(), "OpenTelemetry: metrics and spans are exported");
    let (stop, stopped) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (spans, metrics) = exports(args, &Arc::new(collector), databases);
    let run = move || {
        runtime.block_on(async {
            let (stop, is_stopped) = watch::channel(false);
            let pass_on = async {
                // Err: the program ends.
                let _ = stopped.await;
                stop.send_replace(true);
            };
            tokio::join!(pass_on, spans.run(is_stopped.clone()), metrics.run(is_stopped));
        });
        // Nobody may wait for it.
        let _ = end.send(());
    };
    std::thread::Builder::new().name("otlp".to_owned()).spawn(run)?;
    Ok(Some(Exporter { stop, ended }))
}

impl Exporter {
    /// Exports the rest, as far as time permits.
    pub(crate) async fn finish(self) {
        let Self { stop, ended } = self;
        if stop.send(()).is_ok() && timeout(FLUSH_MAX, ended).await.is_err() {
            tracing::warn!("OpenTelemetry: the last spans and metrics were not taken within {FLUSH_MAX:?}");
        }
    }
}

/// The way of one signal to the collector, and how that went.
struct Way {
    collector: Arc<Collector>,
    databases: Arc<Databases>,
    /// `traces`, `metrics`.
    signal: &'static str,
    /// How long nothing is sent; None: the last request did not fail.
    back_off: Option<Duration>,
    /// The last failure, so that it is logged only once.
    trouble: Option<String>,
}

/// Exports spans.
struct SpanExport {
    way: Way,
    resource: Value,
    every: Duration,
    /// Taken from the queue, and not yet exported.
    spans: Vec<Span>,
}

/// Exports metrics.
struct MetricExport {
    way: Way,
    resource: Value,
    /// When the sums began, in nanoseconds since 1970.
    start: String,
    interval: Duration,
}

fn exports(args: &OtlpArgs, collector: &Arc<Collector>, databases: &Arc<Databases>) -> (SpanExport, MetricExport) {
    let way = |signal| Way {
        collector: collector.clone(),
        databases: databases.clone(),
        signal,
        back_off: None,
        trouble: None,
    };
    let (resource, interval) = (json::resource(), args.interval());
    let every = SPANS_EVERY.min(interval);
    let spans = SpanExport { way: way("traces"), resource: resource.clone(), every, spans: Vec::new() };
    let start = json::unix_nanos(SystemTime::now());
    (spans, MetricExport { way: way("metrics"), resource, start, interval })
}

impl SpanExport {
    /// Exports until it is stopped, and what is left then.
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        while self.way.waits(self.every, &mut stopped).await {
            self.turn().await;
        }
        self.turn().await;
    }

    async fn turn(&mut self) {
        for _ in 0..BATCHES_MAX {
            let traces = self.way.databases.traces();
            if self.spans.is_empty() {
                self.spans = traces.take(BATCH_MAX);
            }
            if self.spans.is_empty() {
                break;
            }
            let count = self.spans.len() as u64;
            let body = json::traces(&self.resource, &self.spans);
            match self.way.post(&body).await {
                Outcome::Taken => self.way.databases.traces().note_exported(count),
                Outcome::Refused => self.way.databases.traces().note_dropped(count),
                Outcome::Failed => break,
            }
            self.spans.clear();
        }
    }
}

impl MetricExport {
    /// Exports until it is stopped, and once more then.
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut pause = SPANS_EVERY.min(self.interval);
        while self.way.waits(pause, &mut stopped).await {
            self.turn().await;
            pause = self.interval;
        }
        self.turn().await;
    }

    async fn turn(&mut self) {
        let Ok(figures) = web::figures(&self.way.databases) else { return };
        let now = json::unix_nanos(SystemTime::now());
        let body = json::metrics(&self.resource, &figures.metrics, &self.start, &now);
        self.way.post(&body).await;
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    /// It is left out.
    Refused,
    /// It is to be tried again later.
    Failed,
}

impl Way {
    /// Waits for the next turn: so long, or as long as the last failure demands. False: the end has come.
    async fn waits(&self, pause: Duration, stopped: &mut watch::Receiver<bool>) -> bool {
        let turn = Instant::now() + self.back_off.unwrap_or(pause);
        tokio::select! {
            () = sleep_until(turn) => true,
            _ = stopped.wait_for(|stopped| *stopped) => false,
        }
    }

    async fn post(&mut self, body: &str) -> Outcome {
        let (outcome, why) = match self.collector.post(self.signal, body).await {
            Ok(()) => {
                self.back_off = None;
                if self.trouble.take().is_some() {
                    let (collector, signal) = (self.collector.authority(), self.signal);
                    tracing::info!(collector, "OpenTelemetry: {signal} are exported again");
                }
                return Outcome::Taken;
            }
            Err(Failure::Later(why)) => (Outcome::Failed, why),
            Err(Failure::Refused(why)) => (Outcome::Refused, why),
        };
        self.databases.traces().note_failure();
        if self.trouble.as_ref() != Some(&why) {
            let (collector, signal) = (self.collector.authority(), self.signal);
            let kept = if outcome == Outcome::Refused { "what it refused is left out" } else { "it is tried again" };
            tracing::warn!(collector, "OpenTelemetry: {signal}: {why}; {kept}");
            self.trouble = Some(why);
        }
        let longer = self.back_off.map_or(*BACK_OFF.start(), |before| before * 2);
        self.back_off = (outcome == Outcome::Failed).then(|| longer.min(*BACK_OFF.end()));
        outcome
    }
}
