//! SHOW STATS and its kin.
//!
//! A statement that is served from the cache counts as one that the database has answered: who reads these figures wants to know what the
//! applications ask. Freshet does not count transactions; each statement counts as one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freshet_types::Nanos;
use freshet_wire::postgres::table::{Column, Type};

use super::Rows;
use super::served::{Instance, Served};
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

/// The figures since the start, and by how much they have grown in the time of the averages.
fn figures(shared: &Pg) -> (Figures, Grown) {
    let metrics = &shared.metrics;
    let [from_clients, from_servers] = shared.sessions.traffic();
    let queries = metrics.hits() + metrics.fills() + metrics.passed();
    let took = metrics.hit_latency().seconds + metrics.answer_latency().seconds;
    let micros = Duration::try_from_secs_f64(took).map_or(0, |took| took.as_micros() as u64);
    let sent = from_servers + metrics.hit_bytes();
    let now = [shared.sessions.begun(), queries, queries, from_clients, sent, micros, micros, 0, 0, 0, 0];
    (now, shared.averages.grown(shared.clock.now(), now))
}

/// By how much figures have grown in so many nanoseconds.
#[derive(Clone, Copy, Default)]
struct Grown {
    nanos: Nanos,
    by: Figures,
}

impl Grown {
    fn averages(self) -> Figures {
        let nanos = u128::from(self.nanos.max(1));
        let queries = self.by.get(QUERIES).copied().unwrap_or_default();
        let mut averages = Figures::default();
        for (index, (average, grown)) in averages.iter_mut().zip(self.by).enumerate() {
            *average = if TIMES.contains(&index) {
                grown.checked_div(queries).unwrap_or_default()
            } else {
                (u128::from(grown) * 1_000_000_000 / nanos) as u64
            };
        }
        averages
    }
}

fn add(sums: &mut Figures, figures: Figures) {
    sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
}

impl Averages {
    /// From the last but one period until now.
    fn grown(&self, at: Nanos, now: Figures) -> Grown {
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [older, newer] = &mut *before;
        let (since, then) = *older;
        if at.saturating_sub(newer.0) >= PERIOD {
            *older = *newer;
            *newer = (at, now);
        }
        let mut by = now;
        by.iter_mut().zip(then).for_each(|(now, then)| *now = now.saturating_sub(then));
        Grown { nanos: at.saturating_sub(since), by }
    }
}

/// A row for each database of the configuration: these of both.
pub(super) fn rows(instance: Instance<'_>, totals: bool, averages: bool) -> Rows {
    let row = |Served { name, pg, .. }: &Served| {
        let (total, grown) = figures(pg);
        let average = grown.averages();
        let figures = total.iter().filter(|_| totals).chain(average.iter().filter(|_| averages));
        [name.clone()].into_iter().chain(figures.map(u64::to_string)).map(Some).collect()
    };
    instance.served.iter().map(row).collect()
}

/// SHOW TOTALS: a row for each figure, of all databases together.
pub(super) fn by_name(instance: Instance<'_>) -> Rows {
    let (mut total, mut all) = (Figures::default(), Grown::default());
    for pg in instance.all() {
        let (figures, grown) = figures(pg);
        add(&mut total, figures);
        add(&mut all.by, grown.by);
        all.nanos = all.nanos.max(grown.nanos);
    }
    let rows = |prefix: &'static str, figures: Figures| {
        let row = move |(name, n): (&str, u64)| vec![Some(format!("{prefix}_{name}")), Some(n.to_string())];
        TOTAL_NAMES.into_iter().zip(figures).map(row)
    };
    rows("total", total).chain(rows("avg", all.averages())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_seconds_and_of_statements() {
        let averages = Averages::default();
        let figures = |n: u64| [n, n, n, n, n, 10 * n, 10 * n, 0, 0, 0, 0];
        assert_eq!(averages.grown(10_000_000_000, figures(100)).averages(), [10, 10, 10, 10, 10, 10, 10, 0, 0, 0, 0]);
        // The second period begins, and the first is still counted.
        assert_eq!(averages.grown(PERIOD, figures(120)).averages()[0], 2);
        assert_eq!(averages.grown(2 * PERIOD, figures(240)).averages()[0], 2);
        assert_eq!(averages.grown(2 * PERIOD + 1, figures(250)).averages()[0], 2, "since the first period's end");
        assert_eq!(averages.grown(2 * PERIOD + 1, figures(120)).averages()[5], 0, "no statement");
    }
}
