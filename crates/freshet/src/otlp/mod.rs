//! OpenTelemetry: metrics and spans for a collector, by OTLP over HTTP.
//!
//! The exporter has a thread of its own. It takes spans from a queue of bounded length, and reads the counters that `/metrics` reads. A collector
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
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use args::OtlpArgs;
use post::{Collector, Failure};

use crate::web;

/// How often spans are exported.
const SPANS_EVERY: Duration = Duration::from_secs(1);
/// Spans in one request, and requests in one turn.
const BATCH_MAX: usize = 512;
const BATCHES_MAX: usize = 8;
/// After a failure so long nothing is sent, twice as long after each further one.
const BACK_OFF: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);
/// What is left at the end may take so long.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The running exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// Opens what the options name, and closes it again.
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
    let export = Export::new(args, collector, databases.clone());
    let run = move || {
        runtime.block_on(export.run(stopped));
        // Nobody may wait for it.
        let _ = end.send(());
    };
    std::thread::Builder::new().name("otlp".to_owned()).spawn(run)?;
    Ok(Some(Exporter { stop, ended }))
}

impl Exporter {
    /// Exports what is left, as far as that is done in time.
    pub(crate) async fn finish(self) {
        let Self { stop, ended } = self;
        if stop.send(()).is_ok() && timeout(FLUSH_MAX, ended).await.is_err() {
            tracing::warn!("OpenTelemetry: the last spans and metrics were not taken within {FLUSH_MAX:?}");
        }
    }
}

/// What is exported, and how that went.
struct Export {
    collector: Collector,
    databases: Arc<Databases>,
    resource: Value,
    /// When the sums began, in nanoseconds since 1970.
    start: String,
    interval: Duration,
    /// When metrics are exported next.
    metrics_due: Instant,
    /// Taken from the queue, and not yet exported.
    spans: Vec<Span>,
    /// How long nothing is sent; None: the last request did not fail.
    back_off: Option<Duration>,
    /// The last failure, so that it is logged once.
    trouble: Option<String>,
}

impl Export {
    fn new(args: &OtlpArgs, collector: Collector, databases: Arc<Databases>) -> Self {
        Self {
            collector,
            databases,
            resource: json::resource(),
            start: json::unix_nanos(SystemTime::now()),
            interval: args.interval(),
            metrics_due: Instant::now(),
            spans: Vec::new(),
            back_off: None,
            trouble: None,
        }
    }

    /// Exports until it is stopped, and what is left then.
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let turn = Instant::now() + self.back_off.unwrap_or(SPANS_EVERY.min(self.interval));
            tokio::select! {
                () = sleep_until(turn) => {}
                _ = &mut stopped => break,
            }
            self.turn().await;
        }
        self.metrics_due = Instant::now();
        self.turn().await;
    }

    async fn turn(&mut self) {
        if self.export_spans().await.is_ok()
            && Instant::now() >= self.metrics_due
            && self.export_metrics().await.is_ok()
        {
            self.metrics_due = Instant::now() + self.interval;
        }
    }

    /// Err: nothing more is to be sent for the time being.
    async fn export_spans(&mut self) -> Result<(), ()> {
        for _ in 0..BATCHES_MAX {
            if self.spans.is_empty() {
                self.spans = self.databases.traces().take(BATCH_MAX);
            }
            if self.spans.is_empty() {
                break;
            }
            let body = json::traces(&self.resource, &self.spans);
            let count = self.spans.len() as u64;
            let answer = self.collector.post("traces", &body).await;
            let is_taken = answer.is_ok();
            self.note(answer)?;
            self.spans.clear();
            if is_taken {
                self.databases.traces().note_exported(count);
            } else {
                self.databases.traces().note_dropped(count);
            }
        }
        Ok(())
    }

    async fn export_metrics(&mut self) -> Result<(), ()> {
        let Ok(figures) = web::figures(&self.databases) else { return Ok(()) };
        let now = json::unix_nanos(SystemTime::now());
        let body = json::metrics(&self.resource, &figures.metrics, &self.start, &now);
        let answer = self.collector.post("metrics", &body).await;
        self.note(answer)
    }

    /// Err: it is to be tried again later.
    fn note(&mut self, answer: Result<(), Failure>) -> Result<(), ()> {
        let failure = match answer {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    tracing::info!(collector = self.collector.authority(), "OpenTelemetry: it is exported again");
                }
                self.back_off = None;
                return Ok(());
            }
            Err(failure) => failure,
        };
        self.databases.traces().note_failure();
        let (why, is_over) = match failure {
            Failure::Later(why) => (why, false),
            Failure::Refused(why) => (why, true),
        };
        if self.trouble.as_ref() != Some(&why) {
            let kept = if is_over { "what it refused is left out" } else { "it is tried again" };
            tracing::warn!(collector = self.collector.authority(), "OpenTelemetry: {why}; {kept}");
            self.trouble = Some(why);
        }
        if is_over {
            self.back_off = None;
            return Ok(());
        }
        let longer = self.back_off.map_or(*BACK_OFF.start(), |before| before * 2);
        self.back_off = Some(longer.min(*BACK_OFF.end()));
        Err(())
    }
}
