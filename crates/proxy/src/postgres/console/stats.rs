//! SHOW STATS and its kin.
//!
//! A statement that is served from the cache counts as one that the database has answered: who reads these figures wants to know what the
//! applications ask. Freshet does not count transactions; each statement counts as one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freshet_types::Nanos;
use freshet_wire::postgres::table::{Column, Type};

use super::Rows;
use crate::postgres::Pg;

/// PgBouncer's `stats_period`: averages reach back at least so far.
const PERIOD: Nanos = 60_000_000_000;

/// The figures, in the order of the columns.
const NAMES: usize = 11;
/// Which of them are averages of one statement, not of one second: `xact_time`, `query_time`, `wait_time`.
const TIMES: std::ops::Range<usize> = 5..8;
/// The number of statements, which they are divided by.
const QUERIES: usize = 2;

type Figures = [u64; NAMES];

/// What the figures were, for the averages.
#[derive(Debug, Default)]
pub(crate) struct Averages(Mutex<[(Nanos, Figures); 2]>);

const fn number(name: &'static str) -> Column {
    Column { name, kind: Type::Numeric }
}

const DATABASE: Column = Column { name: "database", kind: Type::Text };

pub(super) const STATS: [Column; 23] = [
    DATABASE,
    number("total_server_assignment_count"),
    number("total_xact_count"),
    number("total_query_count"),
    number("total_received"),
    number("total_sent"),
    number("total_xact_time"),
    number("total_query_time"),
    number("total_wait_time"),
    number("total_client_parse_count"),
    number("total_server_parse_count"),
    number("total_bind_count"),
    number("avg_server_assignment_count"),
    number("avg_xact_count"),
    number("avg_query_count"),
    number("avg_recv"),
    number("avg_sent"),
    number("avg_xact_time"),
    number("avg_query_time"),
    number("avg_wait_time"),
    number("avg_client_parse_count"),
    number("avg_server_parse_count"),
    number("avg_bind_count"),
];
pub(super) const TOTALS: [Column; 12] = [
    DATABASE,
    number("server_assignment_count"),
    number("xact_count"),
    number("query_count"),
    number("bytes_received"),
    number("bytes_sent"),
    number("xact_time"),
    number("query_time"),
    number("wait_time"),
    number("client_parse_count"),
    number("server_parse_count"),
    number("bind_count"),
];
pub(super) const AVERAGES: [Column; 12] = [
    DATABASE,
    number("server_assignment_count"),
    number("xact_count"),
    number("query_count"),
    number("bytes_received"),
    number("bytes_sent"),
    number("xact_time"),
    number("query_time"),
    number("wait_time"),
    number("avg_client_parse_count"),
    number("avg_server_parse_count"),
    number("avg_bind_count"),
];
pub(super) const BY_NAME: [Column; 2] = [Column { name: "name", kind: Type::Text }, number("value")];

/// PgBouncer's names of the figures in SHOW TOTALS.
const TOTAL_NAMES: [&str; NAMES] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "client_bytes",
    "server_bytes",
    "xact_time",
    "query_time",
    "wait_time",
    "ps_client_parse_count",
    "ps_server_parse_count",
    "ps_bind_count",
];

/// The figures since the start, and their averages.
fn figures(shared: &Pg) -> (Figures, Figures) {
    let metrics = &shared.metrics;
    let [from_clients, from_servers] = shared.sessions.traffic();
    let queries = metrics.hits() + metrics.fills() + metrics.passed();
    let took = metrics.hit_latency().seconds + metrics.answer_latency().seconds;
    let micros = Duration::try_from_secs_f64(took).map_or(0, |took| took.as_micros() as u64);
    let sent = from_servers + metrics.hit_bytes();
    let now = [shared.sessions.begun(), queries, queries, from_clients, sent, micros, micros, 0, 0, 0, 0];
    (now, shared.averages.of(shared.clock.now(), now))
}

impl Averages {
    /// Averages from the last but one period until now.
    fn of(&self, at: Nanos, now: Figures) -> Figures {
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [older, newer] = &mut *before;
        let (since, then) = *older;
        if at.saturating_sub(newer.0) >= PERIOD {
            *older = *newer;
            *newer = (at, now);
        }
        let nanos = u128::from(at.saturating_sub(since).max(1));
        let grown: Vec<u64> = now.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect();
        let queries = grown.get(QUERIES).copied().unwrap_or_default();
        let mut averages = Figures::default();
        for (index, (average, grown)) in averages.iter_mut().zip(grown).enumerate() {
            *average = if TIMES.contains(&index) {
                grown.checked_div(queries).unwrap_or_default()
            } else {
                (u128::from(grown) * 1_000_000_000 / nanos) as u64
            };
        }
        averages
    }
}

/// The row of the upstream's database: these of both.
pub(super) fn rows(shared: &Pg, totals: bool, averages: bool) -> Rows {
    let (total, average) = figures(shared);
    let mut row = vec![Some(shared.own.upstream.conninfo().database.clone())];
    row.extend(total.iter().filter(|_| totals).chain(average.iter().filter(|_| averages)).map(|n| Some(n.to_string())));
    vec![row]
}

/// SHOW TOTALS: a row for each figure.
pub(super) fn by_name(shared: &Pg) -> Rows {
    let (total, average) = figures(shared);
    let rows = |prefix: &'static str, figures: Figures| {
        let row = move |(name, n): (&str, u64)| vec![Some(format!("{prefix}_{name}")), Some(n.to_string())];
        TOTAL_NAMES.into_iter().zip(figures).map(row)
    };
    rows("total", total).chain(rows("avg", average)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_seconds_and_of_statements() {
        let averages = Averages::default();
        let figures = |n: u64| [n, n, n, n, n, 10 * n, 10 * n, 0, 0, 0, 0];
        assert_eq!(averages.of(10_000_000_000, figures(100)), [10, 10, 10, 10, 10, 10, 10, 0, 0, 0, 0]);
        // The second period begins, and the first is still counted.
        assert_eq!(averages.of(PERIOD, figures(120))[0], 2);
        assert_eq!(averages.of(2 * PERIOD, figures(240))[0], 2);
        assert_eq!(averages.of(2 * PERIOD + 1, figures(240))[0], 2, "since the first period's end");
        assert_eq!(averages.of(2 * PERIOD + 1, figures(120))[5], 0, "no statement");
    }
}
