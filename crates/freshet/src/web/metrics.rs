//! `GET /metrics`: Prometheus' text.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use freshet_proxy::{Database, Databases, ReadFigures, Shared};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use crate::exposition::Writer;
use crate::logging;

/// The most users with their own series. The others share one.
const USERS_MAX: usize = 100;

pub(super) async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    let mut body = String::new();
    match text::encode(&mut body, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], body)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string()),
    }
}

/// The registry of all metrics.
pub(super) fn registry(databases: &Arc<Databases>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures { databases: databases.clone() }));
    registry
}

/// Reads the counters on each request.
#[derive(Debug)]
struct Figures {
    databases: Arc<Databases>,
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        figures(&self.databases)?.encode(&mut encoder)
    }
}

/// All current figures.
pub(crate) fn figures(databases: &Databases) -> Result<Writer, fmt::Error> {
    let mut out = Writer::default();
    for Database { name, family, .. } in databases.databases().iter() {
        out.begin(Some((name, family)));
        FiguresOfOne { shared: family.shared().clone() }.collect(&mut out)?;
        let by_user = family.sessions_by_user(USERS_MAX).into_iter();
        out.gauges(("freshet_user_sessions", "Sessions open, by user"), "user", by_user)?;
        out.pins(&family.pins())?;
    }
    out.begin(None);
    logs(databases, &mut out)?;
    let traces = databases.traces();
    out.counter("freshet_otlp_spans", "Spans that the OpenTelemetry collector has taken", traces.exported())?;
    let help = "Spans left out: they came faster than the collector took them, or it refused them";
    out.counter("freshet_otlp_spans_dropped", help, traces.dropped())?;
    out.counter("freshet_otlp_failures", "Exports to the OpenTelemetry collector that failed", traces.failures())?;
    Ok(out)
}

/// The figures of the logs, which have no database.
fn logs(databases: &Databases, out: &mut Writer) -> fmt::Result {
    let log = databases.query_log();
    out.counter("freshet_query_log_written", "Statements handed to the slow query log", log.logged())?;
    let help = "Statements left out of the slow query log, since they came faster than they were written";
    out.counter("freshet_query_log_dropped", help, log.dropped())?;
    let help = "Lines of the log that could not be written to the standard error";
    out.counter("freshet_log_lines_dropped", help, logging::dropped())
}

/// The figures of server connections that sessions share.
fn pools(shared: &Shared, out: &mut Writer) -> fmt::Result {
    let pools = &shared.pool_figures;
    let help = "Server connections that sessions took from a pool";
    out.counter("freshet_pool_check_outs", help, pools.check_outs.load(Relaxed))?;
    let help = "Of these, connections that were given settings of the session ahead";
    out.counter("freshet_pool_settings_sent", help, pools.changed.load(Relaxed))?;
    let help = "Sessions that listen to channels without a server connection of their own";
    out.gauge("freshet_listening_sessions", help, pools.listening.load(Relaxed) as f64)?;
    out.counter("freshet_pool_waits", "Waits for such a connection", pools.waits.load(Relaxed))?;
    let seconds = pools.waited.load(Relaxed) as f64 / 1e9;
    out.counter("freshet_pool_wait_seconds", "Time that these took in all", seconds)?;
    let help = "Sessions that were ended since they had waited for too long";
    out.counter("freshet_pool_timeouts", help, pools.timeouts.load(Relaxed))
}

/// The servers of an upstream of several hosts.
fn servers(shared: &Shared, out: &mut Writer) -> fmt::Result {
    let help = "Whether a server of an upstream of several hosts answers and is not left out, by server";
    let up = shared.servers.are_up();
    if up.is_empty() {
        return Ok(());
    }
    let up = up.into_iter();
    out.gauges(("freshet_server_up", help), "server", up.map(|(server, is_up)| (server, u64::from(is_up))))
}

/// The figures of several servers, and of reads at replicas, where there are such reads.
fn replicas(shared: &Shared, out: &mut Writer) -> fmt::Result {
    servers(shared, out)?;
    let figures = shared.servers.read_figures();
    if !shared.settings.pool.may_read_replicas(figures.len()) {
        return Ok(());
    }
    let by_server = |of: fn(&ReadFigures) -> u64| figures.iter().map(move |(server, one)| (server.clone(), of(one)));
    let help = "Reads that a replica has answered, by server";
    out.counters(("freshet_replica_reads", help), "server", by_server(|one| one.answered))?;
    let help = "Of these, reads that it could answer although it had not replayed enough of the log, since nothing in between mattered to them";
    out.counters(("freshet_replica_reads_lagging", help), "server", by_server(|one| one.lagging))?;
    let help = "Reads that went to the primary since the replica had not replayed enough of the log, by server";
    out.counters(("freshet_replica_reads_behind", help), "server", by_server(|one| one.behind))?;
    let help = "Reads that were run again at the primary, or broken, since the replica failed or changed, by server";
    out.counters(("freshet_replica_reads_failed", help), "server", by_server(|one| one.run_again))
}

/// The figures of one database.
struct FiguresOfOne {
    shared: Arc<Shared>,
}

impl FiguresOfOne {
    fn collect(&self, out: &mut Writer) -> fmt::Result {
        let metrics = &self.shared.metrics;
        out.counter("freshet_hits", "Statements served from the cache", metrics.hits())?;
        let help = "Latency of hits, from the look-up to the answer in the output buffer";
        out.histogram("freshet_hit_duration_seconds", help, metrics.hit_latency())?;
        let help = "Latency of the database's answers to fills and to statements that passed, with the round trip";
        out.histogram("freshet_database_duration_seconds", help, metrics.answer_latency())?;
        out.counter("freshet_hit_bytes", "Bytes served from the cache", metrics.hit_bytes())?;
        let by_ttl = self.shared.cache.counters().hits_by_ttl.load(Relaxed);
        out.counter(
            "freshet_ttl_hits",
            "Look-ups that found a result that a rule serves for a time, whatever changes",
            by_ttl,
        )?;
        out.counter("freshet_fills", "Statements answered by the database, to be cached", metrics.fills())?;
        out.passed(&self.shared)?;
        out.rule_matches(&self.shared)?;
        out.counter("freshet_connections", "Connections accepted", metrics.connections.load(Relaxed))?;
        pools(&self.shared, out)?;
        replicas(&self.shared, out)?;
        let failures = metrics.login_failures.load(Relaxed);
        out.counter("freshet_login_failures", "Clients that could not prove who they are", failures)?;
        let late = &self.shared.scheduling_delay;
        let (main_thread, probes) = (late.main_thread_seconds(), late.probe_seconds());
        out.counter(
            "freshet_main_thread_scheduling_delay_seconds",
            "Scheduling delay of the main thread, which renews the lease",
            main_thread,
        )?;
        let help = "By how much log-end probes took longer than 200 ms";
        out.counter("freshet_log_end_probe_delay_seconds", help, probes)?;
        let bypass = if self.shared.switches.bypass() { 1.0 } else { 0.0 };
        out.gauge(
            "freshet_bypass",
            "1 while the cache is switched off, by an operator or by a handover to a new process",
            bypass,
        )?;
        let refreshes = &self.shared.refreshes;
        out.counter(
            "freshet_refreshes",
            "Invalidated results that were read again in the background",
            refreshes.read(),
        )?;
        out.counter("freshet_refreshed", "Those of them that were cached", refreshes.installed())?;
        let seconds = refreshes.nanos() as f64 / 1e9;
        out.counter("freshet_refresh_seconds", "Time that it took in all", seconds)?;
        out.gauge("freshet_refreshes_waiting", "Results that wait to be read again", refreshes.waiting_count() as f64)?;
        let key_queries = &self.shared.key_queries;
        out.counter(
            "freshet_key_queries",
            "Key queries: the join keys on which a result depends were read",
            key_queries.reads(),
        )?;
        out.counters(
            ("freshet_key_query_failures", "Key queries that failed, by class"),
            "class",
            key_queries.failures(),
        )?;
        let help = "Results that depend on any row of a table, since their join keys are too many or not known";
        out.counter("freshet_join_keys_coarse", help, key_queries.coarse())?;
        let help = "Results with member keys: those of all rows that matter, which the answer does not show";
        out.counter("freshet_member_keys", help, key_queries.by_members())?;
        out.gauge(
            "freshet_key_queries_waiting",
            "Results that wait for a key query",
            key_queries.waiting_count() as f64,
        )?;
        out.gauge("freshet_sessions", "Sessions open", metrics.sessions() as f64)?;
        self.cache(out)
    }

    fn cache(&self, out: &mut Writer) -> fmt::Result {
        let cache = &self.shared.cache;
        let counters = cache.counters();
        let (invalidated, evicted) = (counters.invalidated.load(Relaxed), counters.evicted.load(Relaxed));
        out.counter("freshet_cached", "Results cached", counters.installed.load(Relaxed))?;
        out.counter(
            "freshet_stale_fills",
            "Results not cached, since a commit raced with the fill",
            counters.stale_fills.load(Relaxed),
        )?;
        out.counter("freshet_too_large", "Results larger than an entry may be", counters.too_large.load(Relaxed))?;
        out.counter("freshet_invalidations", "Results invalidated: a commit made them outdated", invalidated)?;
        out.counter("freshet_evictions", "Results evicted: removed for want of room", evicted)?;
        out.counter(
            "freshet_flushed",
            "Results removed with the change stream, the catalogue or the publication",
            counters.flushed.load(Relaxed),
        )?;
        out.counter("freshet_commits", "Commits delivered by the change stream", counters.commits.load(Relaxed))?;
        let verifier = &self.shared.verifier;
        out.counter(
            "freshet_verified",
            "Sampled hits found equal to the database's answer",
            verifier.equal.load(Relaxed),
        )?;
        out.counter(
            "freshet_verify_undecided",
            "Sampled hits that the database overtook",
            verifier.undecided.load(Relaxed),
        )?;
        out.counter("freshet_verify_mismatches", "Sampled hits that were wrong", verifier.different.load(Relaxed))?;
        let waits = &self.shared.waits;
        out.counter(
            "freshet_commit_waits",
            "Acknowledgements of writes that waited for the change stream",
            waits.commit_waits.load(Relaxed),
        )?;
        let help = "Commit waits skipped, since no cached result depends on the tables written";
        out.counter("freshet_commit_waits_skipped", help, waits.waits_skipped.load(Relaxed))?;
        let wait_seconds = waits.commit_wait_nanos.load(Relaxed) as f64 / 1e9;
        out.counter("freshet_commit_wait_seconds", "Time that acknowledgements waited", wait_seconds)?;
        out.counter(
            "freshet_fences",
            "Writes acknowledged before the stream delivered them",
            waits.fences.load(Relaxed),
        )?;
        out.counter("freshet_log_flushes", "Messages committed to flush the log", waits.flushes.load(Relaxed))?;
        self.levels(out)
    }

    /// The cache's contents, and the age of the proofs.
    fn levels(&self, out: &mut Writer) -> fmt::Result {
        let cache = &self.shared.cache;
        let levels = cache.levels(self.shared.clock.now());
        let seconds = |nanos: Option<u64>| nanos.map_or(f64::INFINITY, |n| n as f64 / 1e9);
        out.gauge("freshet_entries", "Entries", levels.entries as f64)?;
        out.gauge("freshet_bytes", "Bytes of entries with keys and tags", levels.bytes as f64)?;
        out.gauge("freshet_memory_limit_bytes", "The memory limit", cache.limits().memory_bytes as f64)?;
        let help = "The part of the memory limit that results cannot have: statements, buffers, holes between entries";
        out.gauge("freshet_memory_overhead_bytes", help, cache.overhead() as f64)?;
        let statements = self.shared.statement_bytes();
        out.gauge(
            "freshet_statement_bytes",
            "Bytes of the statements that are known, part of the overhead",
            statements as f64,
        )?;
        let help = "Bytes of the log between the last position of its end that was read and that of the change stream";
        out.gauge_if_known("freshet_stream_lag_bytes", help, self.shared.log_lag.behind(levels.applied))?;
        let help = "PostgreSQL: bytes of the write-ahead log that the replication slot makes the server keep";
        out.gauge_if_known("freshet_slot_retained_bytes", help, self.shared.log_lag.retained())?;
        out.gauge("freshet_commits_unproven", "Commits not yet proven visible", levels.pending as f64)?;
        out.gauge("freshet_fills_in_flight", "Fills in flight", levels.flights as f64)?;
        out.gauge("freshet_tables_published", "Published tables, whose changes are complete", levels.published as f64)?;
        let help = "Tables in cool-off: not published for a while, since their changes cost more than hits saved";
        out.gauge("freshet_tables_in_cool_off", help, self.shared.cool_off_count() as f64)?;
        out.gauge(
            "freshet_stream_age_seconds",
            "Age of the proof that the stream is current",
            seconds(levels.stream_age),
        )?;
        out.gauge("freshet_catalog_age_seconds", "Age of the last look at the catalogue", seconds(levels.catalog_age))
    }
}
