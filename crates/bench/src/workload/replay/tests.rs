//! Sessions, normalized queries, and logs of real servers.

use super::*;

fn logged(at: f64, session: &str, text: &str) -> Logged {
    #[expect(clippy::cast_possible_truncation, reason = "some seconds")]
    let at = (at * SECOND as f64) as i64;
    Logged { at, session: session.to_owned(), text: text.into(), values: None }
}

fn replay(statements: Vec<Logged>, speed: f64, reads_only: bool) -> Replay {
    Replay::of(Log { statements, ..Log::default() }, ("x.log", speed), reads_only).unwrap()
}

#[test]
fn gaps_are_kept_and_scaled_and_sessions_kept_apart() {
    let replay = replay(
        vec![
            logged(10.0, "a", "SELECT 1"),
            logged(11.0, "b", "SELECT 2"),
            logged(12.0, "a", "SELECT 3"),
            // Session c begins after session a has ended.
            logged(14.0, "c", "SELECT 4"),
        ],
        2.0,
        false,
    );
    let lanes = |most| -> Vec<Vec<(u128, String)>> {
        let steps = |lane: Arc<[Step]>| lane.iter().map(|step| (step.at.as_millis(), step.text.to_string())).collect();
        replay.deal(most).into_iter().map(steps).collect()
    };
    let step = |at, text: &str| (at, format!("SELECT {text}"));
    assert_eq!(lanes(8), [vec![step(0, "1"), step(1_000, "3"), step(2_000, "4")], vec![step(500, "2")]]);
    // With one connection, all statements are in the order of their times.
    assert_eq!(lanes(1), [vec![step(0, "1"), step(500, "2"), step(1_000, "3"), step(2_000, "4")]]);
    let replayed = replay.replays(8).unwrap();
    assert_eq!((replayed.connections, replayed.seconds > 2.0), (2, true));
}

#[test]
fn writes_are_left_out_and_counted() {
    let sets = "SELECT pg_catalog.set_config('search_path', '', false)";
    let all = [
        "BEGIN",
        "SELECT 1",
        sets,
        "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
        "UPDATE t SET a = 1",
        "COMMIT",
    ];
    let all = all.iter().map(|text| logged(1.0, "a", text)).collect();
    let replay = replay(all, 1.0, true);
    let left = replay.settings.iter().find(|(name, _)| name == "left-out").map(|(_, value)| value.as_str());
    assert_eq!((replay.steps.len(), left), (1, Some("5 × not a read (--reads-only)")));
    assert!(Replay::of(Log::default(), ("x", 1.0), false).is_err());
}

#[test]
fn texts_that_differ_in_literals_have_one_shape() {
    let one = "SELECT a1 FROM t2\n  WHERE b = 'it''s' AND c IN (1, 2.5, 3) AND d = $1";
    assert_eq!(shape(one), "SELECT a1 FROM t2 WHERE b = ? AND c IN (?) AND d = $1");
    assert_eq!(shape(one), shape(&one.replace("2.5", "9, 9").replace("it''s", "\\'x")));
    assert!(shape(&"a, ".repeat(100)).ends_with('…'));
}

/// Sends statements with parameters, quotes and several lines to a server that logs them. Then the log is read and sent to the server again.
mod servers {
    use freshet_testbed::{Mariadb, MariadbSettings, Postgres, Settings};

    use super::*;
    use crate::driver::{Driver, Protocol, Rows};
    use crate::target::Target;

    fn args(path: &std::path::Path, prefix: &str) -> ReplayArgs {
        ReplayArgs {
            query_log: Some(path.to_owned()),
            log_format: None,
            log_line_prefix: Some(prefix.to_owned()),
            speed: Some(100.0),
            reads_only: false,
        }
    }

    /// Replays a log and returns the number of rows that each statement changed.
    async fn again(target: &Target, replay: &Replay) -> Vec<u64> {
        let mut driver = Driver::open(target, &replay.statements, Protocol::Text).await.unwrap();
        let mut counts = Vec::new();
        for step in &replay.steps {
            counts.push(driver.text(&step.text, step.values.as_deref(), Rows::Counted).await.unwrap());
        }
        counts
    }

    async fn sent(target: &Target, protocol: Protocol) {
        let read = Statement::read("read", "SELECT note FROM logged WHERE id = $1 AND note <> $2");
        let write = Statement::write("write", "UPDATE logged SET note = $1, seen = seen + 1\n  WHERE id = $2");
        let statements: Arc<[Statement]> = [read, write].into();
        let mut driver = Driver::open(target, &statements, protocol).await.unwrap();
        driver.run(0, &[Value::Int(1), Value::from("it's $3, \"so\"")], Rows::Counted).await.unwrap();
        driver.run(1, &[Value::from("new, 'quoted'"), Value::Int(2)], Rows::Counted).await.unwrap();
    }

    fn run(target: &Target, path: &std::path::Path, prefix: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            sent(target, Protocol::Prepared).await;
            sent(target, Protocol::Text).await;
            // A server may write its log a little later.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let replay = Replay::read(&args(path, prefix)).unwrap();
            let ours = |step: &&Step| step.text.contains("note <>") || step.text.contains("SET note");
            let ours: Vec<Step> = replay.steps.iter().filter(ours).cloned().collect();
            assert_eq!(ours.len(), 4, "{:?}", replay.steps);
            assert!(
                ours.iter().filter(|step| step.text.contains("SET note")).all(|step| step.text.contains("\n  WHERE"))
            );
            let counts = again(target, &Replay { steps: ours, ..replay }).await;
            assert_eq!(counts, [1, 1, 1, 1]);
        });
    }

    #[test]
    fn a_text_log_of_postgresql() {
        let settings = Settings::default().with("log_statement = all\nlog_min_duration_statement = -1");
        let server = Postgres::find(None).unwrap().start(&settings).unwrap();
        server.psql("CREATE TABLE logged (id int PRIMARY KEY, note text, seen int DEFAULT 0)").unwrap();
        server.psql("INSERT INTO logged (id, note) SELECT n, 'old' FROM generate_series(1, 9) n").unwrap();
        let target: Target = format!("direct={}", server.url()).parse().unwrap();
        run(&target, &server.log_path(), "%m [%p] %q%a ");
    }

    #[test]
    fn a_csv_log_of_postgresql() {
        let settings = Settings::default()
            .with("log_destination = 'csvlog'\nlogging_collector = on\nlog_directory = 'log'\nlog_filename = 'l.log'")
            .with("log_min_duration_statement = 0");
        let server = Postgres::find(None).unwrap().start(&settings).unwrap();
        server.psql("CREATE TABLE logged (id int PRIMARY KEY, note text, seen int DEFAULT 0)").unwrap();
        server.psql("INSERT INTO logged (id, note) SELECT n, 'old' FROM generate_series(1, 9) n").unwrap();
        let path = server.data_dir().join("log/l.csv");
        let target: Target = format!("direct={}", server.url()).parse().unwrap();
        run(&target, &path, "%m [%p] ");
    }

    #[test]
    fn the_general_and_the_slow_log_of_mariadb() {
        let settings = MariadbSettings::default()
            .with("general_log = 1\ngeneral_log_file = general.log")
            .with("slow_query_log = 1\nslow_query_log_file = slow.log\nlong_query_time = 0");
        let server = match Mariadb::start(&settings) {
            Ok(server) => server,
            Err(error) => return println!("left out: {error:#}"),
        };
        server
            .sql("CREATE DATABASE q; CREATE TABLE q.logged (id int PRIMARY KEY, note text, seen int DEFAULT 0)")
            .unwrap();
        server.sql("INSERT INTO q.logged (id, note) VALUES (1, 'old'), (2, 'old')").unwrap();
        let target: Target = format!("maria={}", server.url_of("q")).parse().unwrap();
        let [general, slow] = ["general.log", "slow.log"].map(|name| server.data_dir().join(name));
        for path in [&general, &slow] {
            // The server may write its log a little later.
            std::thread::sleep(Duration::from_millis(500));
            std::fs::write(path, "").unwrap();
            run(&target, path, "");
        }
    }
}
