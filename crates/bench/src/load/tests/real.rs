//! Whole rounds of a real workload.

use std::net::TcpListener;

use clap::Parser;
use freshet_testbed::{Postgres, Server, Settings};

use super::*;
use crate::driver::Protocol;
use crate::load::{Round, run};
use crate::session::Opening;
use crate::target::Target;
use crate::workload::{WorkloadArgs, load_if_missing};

#[derive(Debug, Parser)]
struct Typed {
    #[command(flatten)]
    workload: WorkloadArgs,
}

/// Point selects on 1000 rows with 20 background writes a second.
fn round(url: &str, connections: usize) -> Round {
    let typed = Typed::parse_from(["bench", "point-select", "--rows", "1000"]);
    let workload = typed.workload.build().unwrap();
    let target: Target = format!("database={url}").parse().unwrap();
    let statements = workload.statements();
    Round {
        opening: Opening { target: Arc::new(target), statements, protocol: Protocol::Prepared },
        workload,
        connections,
        pace: Loop::Closed,
        writes: 20.0,
        warm_up: MILLISECOND * 200,
        measured: MILLISECOND * 2000,
        cool_down: MILLISECOND * 300,
        seed: 1,
        threads: 2,
    }
}

/// Closes all connections when the interval begins.
struct Terminates(Server, AtomicU64);

impl Marks for Terminates {
    fn begin(&self) {
        let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let count = self.0.psql(terminate).unwrap();
        self.1.store(count.trim().parse().unwrap(), Ordering::SeqCst);
    }

    fn end(&self) {}
}

/// Four connections of the load and four of the writer.
#[tokio::test]
async fn a_round_survives_the_loss_of_all_its_connections() {
    let server = Postgres::find(None).unwrap().start(&Settings::default()).unwrap();
    let round = round(&server.url(), 4);
    load_if_missing(round.workload.as_ref(), &round.opening.target).await.unwrap();
    let marks = Arc::new(Terminates(server, AtomicU64::new(0)));
    let outcome = run(round, Arc::clone(&marks) as Arc<dyn Marks>, Arc::default()).await.unwrap();
    assert_eq!(marks.1.load(Ordering::SeqCst), 8);
    let failures = |tally: &Tally| tally.failures.values().map(|(count, _)| count).sum::<u64>();
    let (tally, writes) = (outcome.tally, outcome.writes.unwrap());
    assert!(failures(&tally) >= 4, "{:?}", tally.failures);
    assert!(tally.per_second.len() == 2 && tally.per_second[1] > 0, "{:?}", tally.per_second);
    let queries = |tally: &Tally| tally.statements.iter().map(Histogram::len).sum::<u64>();
    // One query for each transaction. The last of each connection may have ended outside the interval.
    assert!(queries(&tally).abs_diff(tally.transactions) <= 4, "{} of {}", tally.transactions, queries(&tally));
    assert!(writes.transactions > 0 && failures(&writes) > 0, "{writes:?}");
    assert!(writes.transactions + writes.unfinished + failures(&writes) >= 40, "{writes:?}");
    assert_eq!(writes.latency.len(), writes.transactions + writes.unfinished);
}

#[tokio::test]
async fn an_error_names_the_target_without_its_password() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let round =
        Round { writes: 0.0, warm_up: ENDLESS, ..round(&format!("postgres://user:secret@127.0.0.1:{port}/db"), 1) };
    let error = run(round, Arc::<Calls>::default(), Arc::default()).await.unwrap_err();
    let start =
        format!("cannot open connection 1 of 1 to database (postgres://user@127.0.0.1:{port}/db): connection: ");
    assert!(format!("{error:#}").starts_with(&start), "{error:#}");
}
