//! Answers to SHOW CACHES, SHOW PROXIED QUERIES, SHOW FRESHET STATUS, SHOW REPLICATION, SHOW CONFIG, SHOW RULES, RELOAD, EXPLAIN CACHE, EXPLAIN LAST
//! STATEMENT, FRESHET BYPASS and FRESHET MEMORY.
//! Those to CREATE CACHE and its kin are in [`caches`].

mod caches;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use freshet_cache::admission::Keep;
use freshet_sql::{Admin, Modes, ReadSet};
use freshet_types::{Catalog, Reason};

use crate::latency::Histogram;
use crate::rules::{Who, span_text};
use crate::server::console::AdminError;
use crate::session::context::Context;
use crate::session::last::{LastStatement, Met};
use crate::shared::Shared;
use crate::statement::registry::{NormalizedQuery, Statement};
use crate::statement::report::QueryReport;

/// Limit of rows in a list.
const ROWS_MAX: usize = 1000;

/// The session that sent the statement.
pub(crate) struct Asker<'a> {
    /// Its session user, who is empty if not known, database and application.
    pub(crate) who: Who<'a>,
    /// Its context, if known.
    pub(crate) context: Option<&'a Context>,
    /// Why it bypasses at the moment, if it does.
    pub(crate) obstacle: Option<Reason>,
    /// Whether a temporary table of the session may hide one that the statement reads.
    pub(crate) hides: &'a dyn Fn(&NormalizedQuery, &ReadSet, &Catalog) -> bool,
    /// MySQL and MariaDB: its quoting modes.
    pub(crate) modes: Modes,
    /// Its last statement; None: there was none, or nobody asks for it.
    pub(crate) last: Option<LastStatement>,
}

/// The rows of an answer.
pub(crate) struct Table {
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
}

/// The columns of an answer.
pub(crate) fn columns(admin: &Admin) -> &'static [&'static str] {
    match admin {
        Admin::ShowCaches => &["digest", "query", "hits", "fills", "entries", "fill_micros", "hits_after_own_write"],
        Admin::ShowProxiedQueries => &["digest", "query", "count", "reason", "detail"],
        Admin::ShowQueries => &[
            "digest",
            "query",
            "hits",
            "fills",
            "passed",
            "hit_ratio",
            "entries",
            "invalidated",
            "cached_bytes",
            "hit_p50_micros",
            "hit_p99_micros",
            "database_p50_micros",
            "database_p99_micros",
            "database_seconds",
            "saved_seconds",
            "reason",
            "hit_rows",
            "database_rows",
            "hit_age_seconds",
            "break_even_hit_ratio",
            "invalidated_by",
            "ttl_seconds",
        ],
        Admin::ShowAdvice => &["digest", "query", "passed", "database_seconds", "reason", "detail", "remedy"],
        Admin::ShowStatus
        | Admin::ExplainCache(_)
        | Admin::ExplainLast
        | Admin::Bypass(_)
        | Admin::Memory(_)
        | Admin::MemoryMin(_)
        | Admin::MemoryMax(_)
        | Admin::Pause(_)
        | Admin::Reconnect
        | Admin::CreateCache(_) => &["name", "value"],
        Admin::DropCache(_) | Admin::DropAllCaches => &["digest", "name"],
        Admin::ShowRulesAsToml => &["toml"],
        // The first four are PgBouncer's.
        Admin::ShowConfig => &["key", "value", "default", "changeable", "source", "after_restart"],
        Admin::ShowReplication => &[
            "server",
            "role",
            "timeline",
            "position",
            "lag_bytes",
            "lag_seconds",
            "is_stream_server",
            "state",
            "since_seconds",
            "reason",
            "reads",
            "lagging_reads",
            "weight",
        ],
        Admin::ShowRules => &["rule", "conditions", "action", "matches", "since", "name", "origin"],
        Admin::Reload => &["key", "before", "now", "effect"],
        Admin::QueryCacheStatus(_) | Admin::QueryCacheVariables(_) => &["Variable_name", "Value"],
        // What the statement asks for.
        Admin::Stats(_) => &[],
    }
}

/// Whether the user may see other users' statements, and change what all sessions get.
pub(crate) fn is_admin(shared: &Shared, user: &str) -> bool {
    let admin_users = shared.settings.admin_users.read().unwrap_or_else(PoisonError::into_inner);
    admin_users.iter().any(|admin| admin == user)
}

/// An error if the user is no admin.
pub(crate) fn check_admin(shared: &Shared, asker: &Asker<'_>) -> Result<(), AdminError> {
    if is_admin(shared, asker.who.user) {
        return Ok(());
    }
    let message = format!("user \"{}\" is not one of Freshet's admin users (option --admin-users)", asker.who.user);
    Err(AdminError { sqlstate: "42501", message })
}

/// The answer to a statement.
pub(crate) fn answer(shared: &Shared, asker: &Asker<'_>, admin: &Result<Admin, String>) -> Result<Table, AdminError> {
    let admin = admin.as_ref().map_err(|message| AdminError { sqlstate: "42601", message: message.clone() })?;
    match admin {
        Admin::ExplainCache(query) => return explain(shared, asker, query),
        Admin::ExplainLast => return Ok(explain_last(shared, asker.last.as_ref())),
        _ => {}
    }
    // These show other users' statements, or change what all sessions get. SET ROLE does not matter here, and SET SESSION AUTHORIZATION is only for
    // superusers: the session user is checked, who could undo both.
    check_admin(shared, asker)?;
    Ok(match admin {
        Admin::ShowCaches => caches(shared),
        Admin::ShowProxiedQueries => proxied(shared),
        Admin::ShowQueries => queries(shared),
        Admin::ShowAdvice => advice(shared),
        Admin::Bypass(on) => switch(shared, asker, *on),
        Admin::Memory(bytes) => resize(shared, asker, *bytes),
        Admin::MemoryMin(bytes) => {
            bound(shared, asker, (*bytes, shared.memory_bounds().1))?;
            table_of_pairs(vec![("memory_min", bytes.to_string())])
        }
        Admin::MemoryMax(bytes) => {
            bound(shared, asker, (shared.memory_bounds().0, *bytes))?;
            table_of_pairs(vec![("memory_max", bytes.to_string())])
        }
        Admin::ShowConfig => config(shared),
        Admin::ShowReplication => {
            let settings = &shared.settings;
            let rows = shared.servers.shown(&settings.upstream, &settings.pool, shared.identity().as_deref());
            Table { columns: columns(admin), rows }
        }
        Admin::ShowRules => {
            Table { columns: columns(admin), rows: shared.rules.shown().into_iter().map(Vec::from).collect() }
        }
        Admin::ShowRulesAsToml => {
            let lines = shared.rules.toml().into_iter().map(|line| vec![line]);
            Table { columns: columns(admin), rows: lines.collect() }
        }
        Admin::CreateCache(create) => caches::create(shared, asker, create)?,
        Admin::DropCache(name) => caches::drop(shared, asker, Some(name))?,
        Admin::DropAllCaches => caches::drop(shared, asker, None)?,
        Admin::Reload => reload(shared, asker)?,
        Admin::ShowStatus | Admin::ExplainCache(_) | Admin::ExplainLast => status(shared),
        Admin::Pause(_) | Admin::Reconnect => {
            let message = "PAUSE, RESUME and RECONNECT are commands of the console, the database pgbouncer".to_owned();
            return Err(AdminError { sqlstate: "0A000", message });
        }
        // Answered by the family.
        Admin::QueryCacheStatus(_) | Admin::QueryCacheVariables(_) | Admin::Stats(_) => {
            Table { columns: columns(admin), rows: Vec::new() }
        }
    })
}

fn switch(shared: &Shared, asker: &Asker<'_>, on: bool) -> Table {
    let word = |on| if on { "on" } else { "off" };
    if shared.switches.set_bypass(on) != on {
        tracing::warn!("user \"{}\" has switched the bypass {}", asker.who.user, word(on));
    }
    // After a handover to a new process, and in a database that is being removed, it stays on.
    table_of_pairs(vec![("bypass", word(shared.switches.bypass()).to_owned())])
}

fn resize(shared: &Shared, asker: &Asker<'_>, bytes: u64) -> Table {
    let before = shared.set_memory(bytes);
    if before != bytes {
        tracing::info!("user \"{}\" has set the memory limit to {bytes} bytes; it was {before}", asker.who.user);
    }
    table_of_pairs(vec![("memory", bytes.to_string())])
}

/// Sets the least and the most memory of the session's database.
fn bound(shared: &Shared, asker: &Asker<'_>, bounds: (u64, u64)) -> Result<(), AdminError> {
    change_bounds(shared, asker.who.user, bounds).map_err(|message| AdminError { sqlstate: "22023", message })
}

/// The same for any database. Err: why not.
pub(crate) fn change_bounds(shared: &Shared, user: &str, (min, max): (u64, u64)) -> Result<(), String> {
    if max < min {
        return Err(format!("memory_max would be {max} bytes, below memory_min with {min}"));
    }
    shared.set_memory_bounds((min, max));
    let upstream = &shared.settings.upstream;
    tracing::info!("user \"{user}\" has set the memory of {upstream} to at least {min} and at most {max} bytes");
    Ok(())
}

fn config(shared: &Shared) -> Table {
    let rows = shared.console.get().map(|console| console.settings()).unwrap_or_default();
    Table { columns: columns(&Admin::ShowConfig), rows: rows.into_iter().map(Vec::from).collect() }
}

fn reload(shared: &Shared, asker: &Asker<'_>) -> Result<Table, AdminError> {
    let changes = shared.console.get().map_or_else(|| Ok(Vec::new()), |console| console.reload(asker.who.user));
    // PostgreSQL's code for a fault in a configuration file.
    let rows = changes.map_err(|message| AdminError { sqlstate: "F0000", message })?;
    Ok(Table { columns: columns(&Admin::Reload), rows: rows.into_iter().map(Vec::from).collect() })
}

fn caches(shared: &Shared) -> Table {
    let row = |query: &NormalizedQuery| {
        let figures = &query.figures;
        let (hits, fills) = (figures.hits(), figures.fills.load(Relaxed));
        let micros = figures.fill_answers.mean() / 1000;
        vec![
            query.digest_text(),
            query.text.to_string(),
            hits.all.to_string(),
            fills.to_string(),
            figures.results.entries.load(Relaxed).to_string(),
            micros.to_string(),
            hits.after_own_write.to_string(),
        ]
    };
    let queries = shared.registry.queries();
    let used = queries.iter().filter(|s| s.figures.fills.load(Relaxed) > 0);
    Table { columns: columns(&Admin::ShowCaches), rows: used.take(ROWS_MAX).map(|s| row(s)).collect() }
}

fn proxied(shared: &Shared) -> Table {
    let row = |query: &NormalizedQuery| {
        let reason = query.figures.reason();
        vec![
            query.digest_text(),
            query.text.to_string(),
            query.figures.passed.load(Relaxed).to_string(),
            reason.as_ref().map_or("", Reason::label).to_owned(),
            reason.map(|reason| reason.to_string()).unwrap_or_default(),
        ]
    };
    let queries = shared.registry.queries();
    let passed = queries.iter().filter(|s| s.figures.passed.load(Relaxed) > 0 || s.not_cached().is_some());
    Table { columns: columns(&Admin::ShowProxiedQueries), rows: passed.take(ROWS_MAX).map(|s| row(s)).collect() }
}

fn queries(shared: &Shared) -> Table {
    let row = |report: QueryReport| {
        let micros =
            |histogram: &Histogram, share| histogram.quantile(share).map_or(String::new(), |n| format!("{n:.1}"));
        let (hits, database) = (&report.hit_latency, &report.database_latency);
        vec![
            report.digest.clone(),
            report.query.clone(),
            report.hits.to_string(),
            report.fills.to_string(),
            report.passed.to_string(),
            format!("{:.4}", report.hit_ratio()),
            report.results.entries.to_string(),
            report.results.invalidated.to_string(),
            report.results.cached_bytes.to_string(),
            micros(hits, 0.5),
            micros(hits, 0.99),
            micros(database, 0.5),
            micros(database, 0.99),
            format!("{:.6}", report.database_seconds),
            format!("{:.6}", report.saved_seconds),
            report.reason.as_ref().map_or("", Reason::label).to_owned(),
            report.results.rows.hits.to_string(),
            report.results.rows.database.to_string(),
            format!("{:.3}", report.results.hit_age_seconds),
            report.results.break_even_hit_ratio.map_or(String::new(), |ratio| format!("{ratio:.4}")),
            report
                .results
                .invalidated_by
                .iter()
                .map(|(table, count)| format!("{table} {count}"))
                .collect::<Vec<_>>()
                .join(", "),
            report.ttl_seconds.map_or(String::new(), |seconds| seconds.to_string()),
        ]
    };
    let reports = shared.query_reports(ROWS_MAX);
    Table { columns: columns(&Admin::ShowQueries), rows: reports.into_iter().map(row).collect() }
}

fn advice(shared: &Shared) -> Table {
    let rows = shared.advice(ROWS_MAX).into_iter().map(|advice| {
        vec![
            advice.digest,
            advice.query,
            advice.passed.to_string(),
            format!("{:.6}", advice.seconds),
            advice.reason.label().to_owned(),
            advice.reason.to_string(),
            advice.remedy,
        ]
    });
    Table { columns: columns(&Admin::ShowAdvice), rows: rows.collect() }
}

fn status(shared: &Shared) -> Table {
    let levels = shared.cache.levels(shared.clock.now());
    let counters = shared.cache.counters();
    let metrics = &shared.metrics;
    let age = |nanos: Option<u64>| nanos.map_or("none".to_owned(), |n| format!("{:.3}", n as f64 / 1e9));
    let pairs: Vec<(&str, String)> = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("serving", shared.trouble().unwrap_or_else(|| "yes".to_owned())),
        ("bypass", if shared.switches.bypass() { "on" } else { "off" }.to_owned()),
        ("upstream", shared.settings.upstream.clone()),
        ("replication_position", levels.applied.map_or("none".to_owned(), |end| end.lsn.to_string())),
        ("epoch", levels.applied.map_or(0, |end| end.epoch.0).to_string()),
        ("stream_age_seconds", age(levels.stream_age)),
        ("catalog_age_seconds", age(levels.catalog_age)),
        ("staleness_max_seconds", age(Some(shared.cache.limits().staleness_max))),
        ("tables_published", levels.published.to_string()),
        ("commits_unproven", levels.pending.to_string()),
        ("fills_in_flight", levels.flights.to_string()),
        ("entries", levels.entries.to_string()),
        ("bytes", levels.bytes.to_string()),
        ("memory_limit_bytes", shared.cache.limits().memory_bytes.to_string()),
        ("statement_bytes", shared.statement_bytes().to_string()),
        ("sessions", metrics.sessions().to_string()),
        ("hits", metrics.hits().to_string()),
        ("fills", metrics.fills().to_string()),
        ("passed", metrics.passed().to_string()),
        ("commits", counters.commits.load(Relaxed).to_string()),
        ("cached", counters.installed.load(Relaxed).to_string()),
        ("stale_fills", counters.stale_fills.load(Relaxed).to_string()),
        ("too_large", counters.too_large.load(Relaxed).to_string()),
        ("invalidated", counters.invalidated.load(Relaxed).to_string()),
        ("evicted", counters.evicted.load(Relaxed).to_string()),
        ("flushed", counters.flushed.load(Relaxed).to_string()),
    ];
    table_of_pairs(pairs)
}

pub(crate) fn table_of_pairs(pairs: Vec<(&str, String)>) -> Table {
    Table {
        columns: columns(&Admin::ShowStatus),
        rows: pairs.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect(),
    }
}

/// The statement of a text in this session.
fn statement(shared: &Shared, asker: &Asker<'_>, text: &str) -> Result<Arc<Statement>, Reason> {
    let text = text.as_bytes();
    let known = shared.known_text(text, freshet_sql::without_outer_comments(text));
    shared.registry.statement_under(asker.modes, &known)
}

/// The reason in words; of a stream that is missing, with what it lacks.
fn told(shared: &Shared, reason: &Reason) -> String {
    match shared.trouble() {
        Some(why) if *reason == Reason::NoStream => format!("{reason}: {why}"),
        _ => reason.to_string(),
    }
}

/// What the session's last statement met.
fn explain_last(shared: &Shared, last: Option<&LastStatement>) -> Table {
    let Some(LastStatement { query, met, replica }) = last else {
        return table_of_pairs(vec![("outcome", "none".to_owned())]);
    };
    let mut pairs = Vec::new();
    if let Some(query) = query {
        pairs.extend([("digest", query.digest_text()), ("query", query.text.to_string())]);
    }
    let outcome = match met {
        Met::Hit => "hit",
        Met::Fill => "fill",
        Met::Pass(Reason::Refused) => "refused",
        Met::Pass(_) => "pass",
    };
    pairs.push(("outcome", outcome.to_owned()));
    pairs.extend(replica.map(|at| ("replica", shared.servers.address(at))));
    let reason = match met {
        Met::Hit => None,
        Met::Fill => query.as_ref().and_then(|query| query.not_cached()),
        Met::Pass(reason) => Some(reason.clone()),
    };
    if let Some(reason) = reason {
        pairs.extend([("reason", reason.label().to_owned()), ("detail", told(shared, &reason))]);
        pairs.extend(reason.remedy().map(|remedy| ("remedy", remedy)));
    }
    table_of_pairs(pairs)
}

fn explain(shared: &Shared, asker: &Asker<'_>, query: &str) -> Result<Table, AdminError> {
    let invalid = |message: String| AdminError { sqlstate: "42601", message };
    let statement = statement(shared, asker, query).map_err(|reason| invalid(format!("EXPLAIN CACHE: {reason}")))?;
    let query = &statement.query;
    let mut pairs = vec![("digest", query.digest_text()), ("query", query.text.to_string())];
    let Some(context) = asker.context else {
        let reason = asker.obstacle.as_ref().map_or("the session is not known yet".to_owned(), Reason::to_string);
        pairs.push(("cached", format!("no: {reason}")));
        return Ok(table_of_pairs(pairs));
    };
    if let Some(
        reason @ (Reason::OtherDatabase
        | Reason::OtherServer
        | Reason::NoStream
        | Reason::TooManyDatabases
        | Reason::DatabaseNotOpened),
    ) = &asker.obstacle
    {
        pairs.push(("cached", format!("no: {}", told(shared, reason))));
        return Ok(table_of_pairs(pairs));
    }
    let catalog = shared.catalog.load();
    let explained = query.resolve(&catalog, context).read_set.and_then(|read_set| {
        let lines = read_set.describe_text(statement.own_params, &statement.literals, context.client)?;
        Ok((read_set, lines))
    });
    match explained {
        Err(reason) => pairs.extend(explain_by_ttl(shared, asker, &statement, &reason)),
        Ok((read_set, lines)) => {
            let hidden = (asker.hides)(query, &read_set, &catalog).then_some(&Reason::TemporaryTables);
            let session = context.obstacle.as_ref().or(asker.obstacle.as_ref()).or(hidden);
            pairs.push((
                "cached",
                match (session, query.not_cached()) {
                    (Some(why), _) => format!("not in this session now: {why}"),
                    (None, Some(why)) => format!("not the last result: {why}"),
                    (None, None) => "yes".to_owned(),
                },
            ));
            if shared.cache.limits().keep != Keep::Always && query.figures.worth.is_low() {
                pairs.push(("admission", format!("few results are cached now: {}", Reason::NotAdmitted)));
            }
            for table in &read_set.tables {
                let name = catalog.table(*table).map_or(String::new(), |t| format!("{}.{}", t.schema, t.name));
                let note = match shared.refusal(*table) {
                    Some(why) => format!(" (cannot be published: {why})"),
                    None if shared.cool_off.load().contains(*table) => {
                        format!(" (in cool-off: {})", Reason::InCoolOff)
                    }
                    None if shared.cache.is_published(*table) => String::new(),
                    None => " (not published yet)".to_owned(),
                };
                pairs.push(("table", name + &note));
            }
            pairs.extend(lines.into_iter().map(|line| ("depends_on", line)));
            let moves = |number: u32| format!("other values of ${number}, up to what its rows show");
            pairs.extend(read_set.moving_parameters().map(|number| ("also_answers", moves(number))));
            pairs.extend(read_set.identity_hints().into_iter().map(|hint| ("hint", hint)));
        }
    }
    Ok(table_of_pairs(pairs))
}

/// Whether a statement that is not cached by itself is cached by a rule.
fn explain_by_ttl(
    shared: &Shared,
    asker: &Asker<'_>,
    statement: &Statement,
    reason: &Reason,
) -> Vec<(&'static str, String)> {
    let (query, mut pairs) = (&statement.query, Vec::new());
    let ttl = shared.rules.ttl(statement.subject(), &asker.who).map(|(ttl, by)| (span_text(ttl), by));
    let Some(((ttl, by), context)) = ttl.zip(asker.context) else {
        pairs.push(("cached", format!("no: {reason}")));
        return pairs;
    };
    let tags = || query.tags_by_ttl(&shared.catalog.load(), context).map(drop);
    let overruled = if reason.yields_to_ttl() { tags() } else { Err(reason.clone()) };
    let (cached, by_ttl) = match overruled {
        Ok(()) => (format!("for {ttl}, by a {by}: changes do not invalidate it, since {reason}"), ttl),
        Err(other) => (format!("no: {reason}"), format!("the {by} cannot overrule: {other}")),
    };
    pairs.push(("cached", cached));
    pairs.push(("ttl", by_ttl));
    pairs
}
