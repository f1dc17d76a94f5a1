//! The workloads on real servers: data, transactions and queries.
//!
//! A test whose server is not installed is skipped with a message. If `FRESHET_TEST_STRICT` is set, it fails.

mod movies;
mod mysql;
mod taxi;
mod ycsb;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clap::Parser as _;
use freshet_testbed::{Mariadb, MariadbSettings, Postgres, Server, Settings};
use indicatif::ProgressBar;

use super::loading::Database;
use super::{Workload, WorkloadArgs};
use crate::driver::keyvalue::Memcached;
use crate::driver::tests::peer;
use crate::driver::{Driver, Protocol, Row, Rows};
use crate::load::{Loop, Marks, Outcome, Round, run};
use crate::random::Random;
use crate::session::Opening;
use crate::statement::Effect;
use crate::target::{Family, Target};

static POSTGRES: LazyLock<Server> =
    LazyLock::new(|| Postgres::find(None).unwrap().start(&Settings::default()).unwrap());
static MARIADB: LazyLock<Option<Mariadb>> = LazyLock::new(|| match Mariadb::start(&MariadbSettings::default()) {
    Ok(server) => Some(server),
    Err(error) => {
        peer::left_out(&format!("{error:#}"));
        None
    }
});

/// Creates a database with this name on PostgreSQL, and on MariaDB if it is installed.
fn databases(name: &str) -> Vec<Target> {
    POSTGRES.psql(&format!("CREATE DATABASE {name}")).unwrap();
    let mut targets = vec![target(&POSTGRES.url_of(name))];
    if let Some(server) = &*MARIADB {
        server.sql(&format!("CREATE DATABASE {name}")).unwrap();
        let url = server.url();
        let (start, _) = url.rsplit_once('/').unwrap();
        targets.push(target(&format!("{start}/{name}")));
    }
    targets
}

fn target(url: &str) -> Target {
    format!("db={url}").parse().unwrap()
}

#[derive(clap::Parser)]
struct Typed {
    #[command(flatten)]
    workload: WorkloadArgs,
}

fn workload(typed: &str) -> anyhow::Result<Arc<dyn Workload>> {
    Typed::try_parse_from(["bench"].into_iter().chain(typed.split(' ')))?.workload.build()
}

async fn load(workload: &Arc<dyn Workload>, target: &Target) -> u64 {
    workload.load(target, &ProgressBar::hidden()).await.unwrap()
}

fn opening(workload: &Arc<dyn Workload>, target: &Target, protocol: Protocol) -> Opening {
    Opening { target: Arc::new(target.clone()), statements: workload.statements(), protocol }
}

struct Unmarked;

impl Marks for Unmarked {
    fn begin(&self) {}
    fn end(&self) {}
}

/// Runs the workload briefly with two connections and a background writer.
async fn outcome(workload: &Arc<dyn Workload>, target: &Target, protocol: Protocol) -> Outcome {
    let round = Round {
        opening: opening(workload, target, protocol),
        workload: Arc::clone(workload),
        connections: 2,
        pace: Loop::Closed,
        writes: 50.0,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(700),
        cool_down: Duration::ZERO,
        seed: 1,
        threads: 1,
    };
    run(round, Arc::new(Unmarked), Arc::new(AtomicBool::new(false))).await.unwrap()
}

/// Deadlocks, and the errors of two transactions that replace the same row at once.
const COLLISIONS: [&str; 5] = ["40001", "40P01", "1213", "23505", "1062"];

/// Number of runs of each statement name, by the load and by the writer. Collisions are not failures here.
async fn counts(workload: &Arc<dyn Workload>, target: &Target, protocol: Protocol) -> [BTreeMap<String, u64>; 2] {
    let outcome = outcome(workload, target, protocol).await;
    [Some(outcome.tally), outcome.writes].map(|tally| {
        let tally = tally.unwrap();
        let wrong: Vec<_> = tally.failures.iter().filter(|(code, _)| !COLLISIONS.contains(&code.as_str())).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", workload.name());
        assert!(tally.transactions > 0, "{}", workload.name());
        let mut counts = BTreeMap::new();
        for (statement, latency) in workload.statements().iter().zip(&tally.statements) {
            *counts.entry(statement.name.clone()).or_default() += latency.len();
        }
        counts.retain(|_, count| *count > 0);
        counts
    })
}

/// Answers to this many drawn reads, sorted.
async fn answers(workload: &Arc<dyn Workload>, target: &Target, reads: usize) -> Vec<Vec<Row>> {
    let opening = opening(workload, target, Protocol::Text);
    let mut driver = Driver::open(target, &opening.statements, Protocol::Text).await.unwrap();
    let (mut random, mut answers) = (Random::new(3), Vec::new());
    for _ in 0..reads {
        let (statement, values) = workload.draw_read(&mut random);
        assert_eq!(opening.statements[statement].effect, Effect::Read);
        let mut rows = Vec::new();
        driver.run(statement, &values, Rows::Kept(&mut rows)).await.unwrap();
        rows.sort_unstable();
        answers.push(rows);
    }
    answers
}

async fn text(target: &Target, sql: &str) -> String {
    let rows = Database::open(target).await.unwrap().texts(sql).await.unwrap();
    rows[0][0].clone().unwrap()
}

/// Loads the workload, rejects data that do not match, compares the answers with those after a second load, and runs every statement.
async fn exercise(typed: &str, others: &str, expected: [&[&str]; 2], name: &str) {
    let (workload_here, other) = (workload(typed).unwrap(), workload(others).unwrap());
    let mut all = Vec::new();
    for target in databases(name) {
        let missing = workload_here.ready(&target).await.unwrap_err().to_string();
        assert!(missing.contains("there are no data") && missing.contains("freshet-bench load"), "{missing}");
        assert!(load(&other, &target).await > 0);
        let wrong = workload_here.ready(&target).await.unwrap_err().to_string();
        assert!(wrong.contains("were loaded with --"), "{wrong}");
        let rows = load(&workload_here, &target).await;
        workload_here.ready(&target).await.unwrap();
        let first = answers(&workload_here, &target, 100).await;
        assert!(first.iter().filter(|rows| rows.is_empty()).count() < 20, "{typed}: most reads find rows");
        for protocol in [Protocol::Prepared, Protocol::Text] {
            let counted = counts(&workload_here, &target, protocol).await;
            for (counted, expected) in counted.iter().zip(expected) {
                let names: Vec<_> = counted.keys().map(String::as_str).collect();
                assert_eq!(names, expected, "{typed}: {counted:?}");
            }
        }
        assert_ne!(answers(&workload_here, &target, 100).await, first, "{typed}: what was written is seen");
        assert_eq!(load(&workload_here, &target).await, rows);
        assert_eq!(answers(&workload_here, &target, 100).await, first, "{typed}: a second load makes the same rows");
        all.push((rows, first));
    }
    // Booleans and some other types look different in the families. Numbers of rows do not.
    let shapes = all.iter().map(|(rows, answers)| (rows, answers.iter().map(Vec::len).collect::<Vec<_>>()));
    assert!(
        shapes.clone().all(|shape| Some(shape) == shapes.clone().next()),
        "{typed}: both families have the same rows"
    );
}

#[tokio::test]
async fn title_5() {
    let reads = ["characters", "details", "genres", "people", "rating"];
    let writes = ["add a genre", "add a vote", "remove a genre", "update a title"];
    exercise("title-5 --movies 60", "title-5 --movies 50", [&reads, &writes], "title_5").await;
}

#[tokio::test]
async fn point_select() {
    let typed = "point-select --rows 100 --tables 2 --per-transaction 25 --distribution zipf:1";
    let expected: [&[&str]; 2] = [&["point select"], &["index update", "non-index update"]];
    exercise(typed, "point-select --rows 99 --tables 3", expected, "point_select").await;
}

#[tokio::test]
async fn oltp() {
    let all = [
        "delete",
        "distinct range",
        "index update",
        "insert",
        "non-index update",
        "order range",
        "point select",
        "simple range",
        "sum range",
    ];
    let typed = "oltp-read-write --rows 1000 --tables 2";
    exercise(typed, "oltp-read-only --rows 1000", [&all, &["index update", "non-index update"]], "oltp").await;
}

#[tokio::test]
async fn game_rows() {
    let reads = ["account by email", "player by key", "update of the player"];
    exercise("game-rows --rows 300", "game-rows --rows 200", [&reads, &["update of the player"]], "game_rows").await;
}

#[tokio::test]
async fn look_aside() {
    let Some(cache) = peer::memcached() else { return };
    let workload = workload("game-rows --rows 300 --transactions on").unwrap();
    for mut target in databases("look_aside") {
        load(&workload, &target).await;
        target.lookaside = Some(cache.place.clone());
        let [reads, _] = counts(&workload, &target, Protocol::Prepared).await;
        // A read that the look-aside cache answers counts like one of the database, except for transactions at the interval's edges.
        assert!(reads["account by email"].abs_diff(reads["update of the player"]) <= 8, "{reads:?}");
        let mut connection = Memcached::open(&cache.place).await.unwrap();
        let mut kept = [0, 0];
        for number in 1..=300 {
            let keys = [format!("player:{number}"), format!("account:player{number}@example.com")];
            for (kept, key) in kept.iter_mut().zip(keys) {
                *kept += usize::from(connection.get(&key).await.unwrap().is_some());
                // Rows of the other family are stored as its own protocol sends them.
                connection.delete(&key).await.unwrap();
            }
        }
        // Each transaction deletes the entry of its player, but never that of an account. So most of the 300 accounts are soon in the look-aside
        // cache.
        assert!(kept[0] < kept[1] / 2, "players are deleted once they are updated: {kept:?}");
    }
}

#[tokio::test]
async fn key_value_targets_hold_the_same_values() {
    let same = workload("point-select --rows 100").unwrap();
    let database = databases("key_values").remove(0);
    load(&same, &database).await;
    let expected = answers(&same, &database, 50).await;
    for (scheme, peer) in [("memcached", peer::memcached()), ("redis", peer::redis(&[]))] {
        let Some(peer) = peer else { continue };
        let target = target(&format!("{scheme}://{}", peer.place));
        assert_eq!(load(&same, &target).await, 100);
        // CHAR(120) is padded with blanks.
        let padded: Vec<Vec<Row>> = answers(&same, &target, 50)
            .await
            .into_iter()
            .map(|rows| {
                rows.into_iter()
                    .map(|row| {
                        row.into_iter()
                            .map(|c| {
                                c.map(|mut c| {
                                    c.resize(120, b' ');
                                    c
                                })
                            })
                            .collect()
                    })
                    .collect()
            })
            .collect();
        assert_eq!(padded, expected, "{scheme}");
        let two = workload("point-select --tables 2").unwrap();
        assert!(
            two.load(&target, &ProgressBar::hidden()).await.unwrap_err().to_string().contains("--tables must be 1")
        );
        let five = workload("title-5").unwrap();
        assert!(
            five.load(&target, &ProgressBar::hidden()).await.unwrap_err().to_string().contains("not an SQL server")
        );
    }
}

#[tokio::test]
async fn tables_of_others_are_left_alone() {
    let workload = workload("point-select --rows 10 --tables 2").unwrap();
    for target in databases("others") {
        let mut database = Database::open(&target).await.unwrap();
        database.run("CREATE TABLE sbtest2 (id integer)").await.unwrap();
        database.run("INSERT INTO sbtest2 VALUES (7)").await.unwrap();
        let error = workload.load(&target, &ProgressBar::hidden()).await.unwrap_err().to_string();
        assert!(error.contains("sbtest2") && error.contains("was not created by"), "{error}");
        assert_eq!(text(&target, "SELECT id FROM sbtest2").await, "7");
        assert_eq!(database.comment("sbtest1").await.unwrap(), None);
        let error = workload.ready(&target).await.unwrap_err().to_string();
        assert!(error.contains("sbtest1") && error.contains("has 0 rows, not 10"), "{error}");
        // A foreign table in place of one that the benchmark created is not dropped either.
        database.run("DROP TABLE sbtest2").await.unwrap();
        workload.load(&target, &ProgressBar::hidden()).await.unwrap();
        workload.ready(&target).await.unwrap();
        database.run("DROP TABLE sbtest2").await.unwrap();
        assert!(workload.ready(&target).await.unwrap_err().to_string().contains("not completed"));
        database.run("CREATE TABLE sbtest2 (id integer)").await.unwrap();
        database.run("INSERT INTO sbtest2 VALUES (7)").await.unwrap();
        let error = workload.load(&target, &ProgressBar::hidden()).await.unwrap_err().to_string();
        assert!(error.contains("sbtest2") && error.contains("was not created by"), "{error}");
        assert_eq!(text(&target, "SELECT id FROM sbtest2").await, "7");
    }
}

/// sysbench's command line for a target, for its two drivers.
fn sysbench(target: &Target, command: &str) -> Command {
    let (host, port) = target.address().unwrap();
    let rest = target.url.split_once("://").unwrap().1;
    let (account, place) = rest.rsplit_once('@').unwrap();
    let (user, password) = account.split_once(':').unwrap();
    let database = place.split_once('/').unwrap().1;
    let driver = if target.family() == Some(Family::Postgres) { "pgsql" } else { "mysql" };
    let mut sysbench = Command::new("sysbench");
    sysbench.args(["oltp_read_write", "--tables=2", "--table-size=50", "--events=20", "--time=0", "--threads=1"]);
    sysbench.arg(format!("--db-driver={driver}"));
    for (name, value) in
        [("host", host.as_str()), ("port", &port.to_string()), ("user", user), ("password", password), ("db", database)]
    {
        sysbench.arg(format!("--{driver}-{name}={value}"));
    }
    sysbench.arg(command);
    sysbench
}

#[tokio::test]
async fn sysbench_and_this_program_run_on_each_others_tables() {
    if Command::new("sysbench").arg("--version").output().is_err() {
        return peer::left_out("no sysbench; run `script/setup test`");
    }
    let workload = workload("oltp-read-write --rows 50 --tables 2").unwrap();
    let run = |target: &Target, command: &str| {
        let output = sysbench(target, command).output().unwrap();
        assert!(output.status.success(), "sysbench {command}: {}", String::from_utf8_lossy(&output.stdout));
    };
    for target in databases("sysbench_first") {
        run(&target, "prepare");
        workload.ready(&target).await.unwrap();
        counts(&workload, &target, Protocol::Prepared).await;
    }
    for target in databases("sysbench_second") {
        load(&workload, &target).await;
        run(&target, "run");
    }
}

#[tokio::test]
async fn custom() {
    for target in databases("custom") {
        let mut database = Database::open(&target).await.unwrap();
        database.run("CREATE TABLE product (product_id integer, name varchar(20))").await.unwrap();
        let file = tempfile(
            "[params.p]\nquery = \"SELECT product_id FROM product\"\n[params.n]\ntext = [1, 9]\n[[transactions]]\n\
             begin = true\nstatements = [{ name = \"get\", sql = \"SELECT name FROM product WHERE product_id = :p\" }]\n[[writes]]\n\
             statements = [{ name = \"set\", sql = \"UPDATE product SET name = :n WHERE product_id = :p\" }]\n",
        );
        let typed = format!("custom --file {}", file.display());
        let empty = workload(&typed).unwrap().ready(&target).await.unwrap_err();
        assert!(format!("{empty:#}").contains("no rows to draw from"), "{empty:#}");
        database.run("INSERT INTO product VALUES (17, 'a'), (23, 'b')").await.unwrap();
        let workload = workload(&typed).unwrap();
        workload.ready(&target).await.unwrap();
        for protocol in [Protocol::Prepared, Protocol::Text] {
            let [reads, writes] = counts(&workload, &target, protocol).await;
            assert!(reads["get"] > 0 && writes["set"] > 0);
        }
        assert!(answers(&workload, &target, 20).await.iter().all(|rows| rows.len() == 1));
        std::fs::remove_file(file).unwrap();
    }
}

fn tempfile(text: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("freshet-custom-{}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn options_of_other_workloads_are_refused() {
    for (typed, what) in [
        ("title-5 --rows 5", "--rows is not an option of title-5"),
        ("title-5 --distribution zipf:1", "--distribution is not an option of"),
        ("oltp-read-only --per-transaction 5", "--per-transaction is not an option of"),
        ("custom --transactions on --file x", "--transactions is not an option of"),
        ("custom", "custom needs --file"),
        ("custom --file /nonexistent.toml", "nonexistent"),
        ("point-select --distribution zip", "none of uniform"),
        ("point-select --rows 0", "0 is not in"),
        ("ycsb --rows 5", "--rows is not an option of ycsb"),
        ("title-5 --read-share 50", "--read-share is not an option of title-5"),
        ("ycsb --read-share 50 --workload a", "cannot be used with"),
        ("ycsb --write-kind insert", "required"),
    ] {
        let error = format!("{:#}", workload(typed).expect_err(typed));
        assert!(error.contains(what), "{typed}: {error}");
    }
    let settings = |typed: &str| workload(typed).unwrap().settings().into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(settings("point-select")["transactions"], "off");
    assert_eq!(settings("point-select --per-transaction 25")["transactions"], "on");
    assert_eq!(settings("point-select --per-transaction 25 --transactions off")["transactions"], "off");
    assert_eq!(settings("oltp-read-only")["transactions"], "on");
    assert_eq!(settings("title-5")["movies"], "8000");
}
