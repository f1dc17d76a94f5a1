//! A small run with all kinds of contents, for the tests of reports.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::histogram;
use crate::driver::Protocol;
use crate::load::Loop;
use crate::result::{Cache, Cell, Checked, FailureCount, Load, Machine, Method, Round, Run, SCHEMA, TargetInfo, Usage};

/// Number of latencies in each histogram.
pub(super) const LATENCIES: usize = 1_000;

/// Two targets, one and four connections, background writes. The last cell was interrupted.
pub(super) fn run() -> Run {
    let mut last = cell(64, [round("direct", 0, 1.2)]);
    last.failed.insert("freshet".to_owned(), "not measured: connection refused".to_owned());
    Run {
        schema: SCHEMA,
        program: "0.1.0".to_owned(),
        started: 1_795_321_140,
        command: ["run", "title-5", "--target", "direct=postgres://app@127.0.0.1:5432/db", "--rounds", "2"]
            .map(str::to_owned)
            .to_vec(),
        interrupted: true,
        machine: Machine {
            cores: 2,
            processor: "Some Processor 3000".to_owned(),
            memory: 8 << 30,
            system: "Linux 6.1.0".to_owned(),
            load_average: 0.07,
        },
        targets: vec![target("direct", 5432, "postgres"), target("freshet", 6432, "freshet")],
        method: Method {
            protocol: Protocol::Prepared,
            pace: Loop::Closed,
            warm_up: 2.0,
            measured: 10.0,
            cool_down: 0.5,
            repetitions: 2,
            seed: 1,
            threads: 2,
        },
        cells: vec![
            cell(
                4,
                [round("direct", 0, 1.0), round("freshet", 0, 4.0), round("freshet", 1, 4.4), round("direct", 1, 1.1)],
            ),
            last,
        ],
    }
}

fn target(name: &str, port: u16, process: &str) -> TargetInfo {
    TargetInfo {
        name: name.to_owned(),
        url: format!("postgres://app@127.0.0.1:{port}/db"),
        version: "PostgreSQL 18.1 on x86_64-pc-linux-gnu, 64-bit".to_owned(),
        settings: BTreeMap::from([("fsync".to_owned(), "on".to_owned())]),
        process: Some(process.to_owned()),
    }
}

/// A cell with these rounds and no cache size.
pub(super) fn cell(connections: usize, rounds: impl IntoIterator<Item = Round>) -> Cell {
    Cell {
        workload: "title-5".to_owned(),
        settings: BTreeMap::from([("distribution".to_owned(), "uniform".to_owned())]),
        connections,
        writes: 50.0,
        cache_size: None,
        statements: ["movie", "genres", "never run"].map(str::to_owned).to_vec(),
        rounds: rounds.into_iter().collect(),
        failed: BTreeMap::new(),
    }
}

/// A round with `speed` thousand transactions per second. Freshet's round 0 has errors and wrong answers.
pub(super) fn round(target: &str, number: usize, speed: f64) -> Round {
    let cached = target == "freshet";
    let mut load = load(1_000.0 * speed, 5);
    if cached {
        let count = 5 - 5 * number as u64;
        load.failures
            .insert("40001".to_owned(), FailureCount { count, first: "could not serialize | access".to_owned() });
        load.failures.retain(|_, failure| failure.count > 0);
    }
    let mut writes = self::load(50.0, 1);
    if cached && number == 1 {
        writes.failures.insert("connection".to_owned(), FailureCount { count: 1, first: "closed".to_owned() });
    }
    let checked = Checked {
        answers: 200,
        wrong: if number == 0 { 2 } else { 0 },
        examples: if number == 0 { vec!["genres('Alien'): 3 rows, the database has 4".to_owned()] } else { Vec::new() },
    };
    let usage = |user, memory| Usage { user, system: user / 4.0, memory };
    let mut processes = BTreeMap::from([
        ("client".to_owned(), usage(2.0, 30 << 20)),
        ("postgres".to_owned(), usage(4.0 * speed, 300 << 20)),
    ]);
    processes.insert("freshet".to_owned(), usage(if cached { 3.0 } else { 0.01 }, 80 << 20));
    Round {
        target: target.to_owned(),
        number,
        load,
        writes: Some(writes),
        processes,
        others: if cached { 0.02 } else { 0.4 },
        cache: cached.then_some(Cache {
            hits: 9_000.0,
            fills: 700.0,
            passed: 300.0,
            evictions: 650.0,
            entries: 1_234.0,
            bytes: 5_000_000.0,
            changed: 40.0,
            age: Some(0.02),
        }),
        series: Vec::new(),
        checked: cached.then_some(checked),
    }
}

#[expect(clippy::cast_sign_loss, reason = "rates are positive")]
fn load(rate: f64, queries: u64) -> Load {
    let transactions = (rate * 10.0).round() as u64;
    Load {
        rows: Vec::new(),
        seconds: 10.0,
        transactions,
        queries: transactions * queries,
        latency: latencies(4e9 / rate),
        statements: vec![latencies(1e9 / rate), latencies(3e9 / rate)],
        failures: BTreeMap::new(),
        lateness: None,
        unfinished: 0,
        per_second: vec![transactions / 10; 10],
    }
}

/// Latencies spread evenly from zero to twice the average.
#[expect(clippy::cast_sign_loss, reason = "latencies are positive")]
fn latencies(average: f64) -> String {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for step in 0..LATENCIES {
        histogram.record((average * 2.0 * step as f64 / LATENCIES as f64) as u64).unwrap();
    }
    histogram::encode(&histogram).unwrap()
}
