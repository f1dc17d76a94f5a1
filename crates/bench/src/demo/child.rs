//! `freshet serve` as a child process, observed from outside through its own HTTP endpoints.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::Leash;
use indicatif::ProgressBar;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::base::Base;
use crate::program;
use crate::sample::prometheus::series;

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const HTTP_TIMEOUT: Duration = Duration::from_secs(3);
const HTTP_BYTES_MAX: u64 = 4 * 1024 * 1024;
const LOG_LINES: usize = 15;

/// A running `freshet serve`.
pub(super) struct Freshet {
    child: Child,
    pid: u32,
    pub(super) url: String,
    pub(super) http: SocketAddr,
    log: PathBuf,
    _leash: Leash,
}

impl Freshet {
    /// Starts the `freshet` in this program's directory as a proxy for the server.
    pub(super) fn start(base: &Base, memory: &str) -> Result<Self> {
        let (listen, http) = (free_address()?, free_address()?);
        // The file is in the directory of the server's log and is removed with it.
        let log = base.log_path().with_file_name("freshet.log");
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program::freshet()?);
        command.env("FRESHET_UPSTREAM", base.upstream()).args(["serve", "--memory", memory]);
        command.args(["--listen", &listen.to_string(), "--http", &http.to_string()]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let child = command.spawn().context("starting freshet serve")?;
        let pid = child.id().context("freshet serve ended at once")?;
        let url = base.url_at(listen);
        Ok(Self { child, pid, url, http, log, _leash: Leash::tie(pid)? })
    }

    /// Waits until Freshet reports that it caches.
    pub(super) async fn wait_until_ready(&mut self, bar: &ProgressBar) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("freshet serve ended ({status}); {}", self.log_tail());
            }
            let reason = match get(self.http, "/health").await {
                Ok((200, body)) if body.contains("ready") => return Ok(()),
                Ok((status, body)) => format!("{status} {}", body.trim()),
                Err(error) => format!("{error:#}"),
            };
            let late = Instant::now() >= deadline;
            ensure!(!late, "Freshet is not ready after {READY_TIMEOUT:?}: {reason}; {}", self.log_tail());
            bar.set_message(format!("waiting for Freshet: {reason}"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn metrics(&self) -> Result<Metrics> {
        let (status, body) = get(self.http, "/metrics").await.context("reading Freshet's metrics")?;
        ensure!(status == 200, "GET /metrics answered {status}: {body}");
        Ok(Metrics::parse(&body))
    }

    /// Processor time of the process in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        freshet_testbed::process::cpu_seconds(self.pid).with_context(|| self.log_tail())
    }

    /// The end of its log, for error messages.
    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n");
        format!("its log ends with:\n{tail}")
    }

    pub(super) fn log_path(&self) -> &std::path::Path {
        &self.log
    }

    /// Sends SIGTERM, as a service manager does, and waits for the end.
    pub(super) async fn stop(mut self) -> Result<()> {
        // Ctrl-C at the terminal reaches Freshet too, so it may have ended already.
        let _ = freshet_testbed::process::terminate(self.pid);
        if tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr())?)
}

/// Sends one HTTP request. With version 1.0 the answer is not chunked, and the server closes the connection after it.
async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(HTTP_BYTES_MAX).read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(HTTP_TIMEOUT, exchange).await.context("no HTTP answer")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no HTTP status")?;
    Ok((status, body.to_owned()))
}

/// The counters that the demo uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metrics {
    pub(super) hits: f64,
    pub(super) fills: f64,
    pub(super) passed: f64,
    pub(super) evictions: f64,
    pub(super) entries: f64,
    pub(super) bytes: f64,
    pub(super) stream_age_seconds: f64,
    /// Scheduling delay of the main thread, and delay of the database's log-end probes.
    pub(super) late_seconds: f64,
    /// Statements passed, by reason.
    pub(super) reasons: Vec<(String, f64)>,
}

impl Metrics {
    /// Parses the Prometheus text format. Series with the same name are added up.
    fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for (name, labels, value) in text.lines().filter_map(series) {
            let Ok(value) = value.parse::<f64>() else { continue };
            match name {
                "freshet_hits_total" => metrics.hits += value,
                "freshet_fills_total" => metrics.fills += value,
                "freshet_evictions_total" => metrics.evictions += value,
                "freshet_entries" => metrics.entries += value,
                "freshet_bytes" => metrics.bytes += value,
                "freshet_stream_age_seconds" => metrics.stream_age_seconds = value,
                "freshet_main_thread_scheduling_delay_seconds_total" | "freshet_log_end_probe_delay_seconds_total" => {
                    metrics.late_seconds += value;
                }
                "freshet_passed_total" => {
                    metrics.passed += value;
                    let reason = labels.split("reason=\"").nth(1).and_then(|rest| rest.split('"').next());
                    metrics.reasons.push((reason.unwrap_or("unnamed").to_owned(), value));
                }
                _ => {}
            }
        }
        metrics
    }

    /// The counts since an earlier reading. Gauges keep their current values.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |reason: &str| earlier.reasons.iter().find(|(name, _)| name == reason).map_or(0.0, |(_, n)| *n);
        let mut reasons: Vec<_> = self.reasons.iter().map(|(name, n)| (name.clone(), n - before(name))).collect();
        reasons.retain(|(_, count)| *count > 0.0);
        reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self {
            hits: self.hits - earlier.hits,
            fills: self.fills - earlier.fills,
            passed: self.passed - earlier.passed,
            evictions: self.evictions - earlier.evictions,
            late_seconds: self.late_seconds - earlier.late_seconds,
            reasons,
            ..self.clone()
        }
    }

    /// Adds the counts of a later period. Gauges take its values.
    pub(super) fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.fills += other.fills;
        self.passed += other.passed;
        self.evictions += other.evictions;
        self.late_seconds += other.late_seconds;
        (self.entries, self.bytes) = (other.entries, other.bytes);
        for (reason, count) in &other.reasons {
            match self.reasons.iter_mut().find(|(name, _)| name == reason) {
                Some((_, sum)) => *sum += count,
                None => self.reasons.push((reason.clone(), *count)),
            }
        }
    }

    /// The most frequent reasons for passes, with their numbers.
    pub(super) fn main_reasons(&self) -> String {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
        let told = reasons.iter().take(5).map(|(reason, count)| format!("{reason} {count:.0}"));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Share of the statements served from the cache.
    pub(super) fn hit_ratio(&self) -> f64 {
        self.hits / (self.hits + self.fills + self.passed).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_name_and_summed_over_labels() {
        let text = "# HELP freshet_hits hits\n# TYPE freshet_hits counter\nfreshet_hits_total{protocol=\"text\"} 3\n\
                    freshet_hits_total{protocol=\"binary\"} 4\nfreshet_fills_total 2\nfreshet_hits_total_other 9\n\
                    freshet_passed_total{reason=\"not covered\"} 1\nfreshet_stream_age_seconds 0.05\n# EOF\n";
        let metrics = Metrics::parse(text);
        assert_eq!((metrics.hits, metrics.fills, metrics.passed), (7.0, 2.0, 1.0));
        assert_eq!(metrics.reasons, vec![("not covered".to_owned(), 1.0)]);
        assert!((metrics.hit_ratio() - 0.7).abs() < 1e-9);
        let later = Metrics { hits: 10.0, ..metrics.clone() };
        let delta = later.since(&metrics);
        assert_eq!((delta.hits, delta.passed, delta.reasons.len()), (3.0, 0.0, 0));
        let passed = [("floor".to_owned(), 2.0), ("lease_expired".to_owned(), 30.0)];
        assert_eq!(Metrics { reasons: passed.into(), ..later }.main_reasons(), "lease_expired 30, floor 2");
    }
}
