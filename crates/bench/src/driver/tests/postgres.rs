//! PostgreSQL.

use std::sync::LazyLock;

use freshet_testbed::{Postgres, Server, Settings};

use super::*;

static SERVER: LazyLock<Server> =
    LazyLock::new(|| Postgres::find(None).unwrap().start(&Settings::default().with_scram()).unwrap());

#[test]
fn values_arrive_as_they_were_and_come_back() {
    SERVER
        .psql("CREATE TABLE kinds (id int PRIMARY KEY, t text, n bigint, d numeric, at timestamptz, b bool)")
        .unwrap();
    let statements = [
        Statement::write("insert", "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6)"),
        Statement::read(
            "select",
            "SELECT t, n::text, d::text, b::text, at = '2026-01-02 03:04Z' FROM kinds WHERE id = $1",
        ),
        Statement::write("update", "UPDATE kinds SET n = n + 1 WHERE id >= $1 AND id < $2"),
        Statement::write("delete", "DELETE FROM kinds WHERE t = $1 OR id = $2"),
    ];
    block(async {
        for (round, protocol) in (0i64..).zip(BOTH) {
            let mut driver = open(&SERVER.url(), &statements, protocol).await.unwrap();
            let first = round * 100;
            for (id, text) in (first..).zip(TEXTS) {
                let number = if id == first { i64::MIN } else { i64::MAX - 1 };
                let rest = [Value::from("-12.50"), "2026-01-02 03:04:00+00".into(), "t".into()];
                let values = [&[id.into(), text.into(), number.into()], rest.as_slice()].concat();
                assert_eq!(count(&mut driver, 0, &values).await, 1);
                let kept = rows(&mut driver, 1, &[id.into()]).await;
                let number = number.to_string();
                assert_eq!(
                    values_of(&kept[0]),
                    [Some(text), Some(&number), Some("-12.50"), Some("true"), Some("t")],
                    "{protocol:?}"
                );
            }
            let nothing = [(first + 50).into(), Value::Null, Value::Null, Value::Null, Value::Null, Value::Null];
            assert_eq!(count(&mut driver, 0, &nothing).await, 1);
            assert_eq!(rows(&mut driver, 1, &[(first + 50).into()]).await, [vec![None; 5]]);
            assert_eq!(count(&mut driver, 1, &[(first + 51).into()]).await, 0);
            assert_eq!(count(&mut driver, 1, &[]).await, 0, "a value that is missing is NULL");
            assert_eq!(count(&mut driver, 2, &[(first + 1).into(), (first + 4).into()]).await, 3);
            assert_eq!(count(&mut driver, 3, &["plain".into(), (first + 2).into()]).await, 2);
            assert_eq!(count(&mut driver, 3, &["plain".into(), (first + 2).into()]).await, 0);
        }
    });
}

#[test]
fn long_answers_are_read_to_their_end() {
    let statements = [Statement::read("series", "SELECT g, repeat('x', 100) FROM generate_series(1, $1::int) g")];
    block(async {
        for protocol in BOTH {
            let mut driver = open(&SERVER.url(), &statements, protocol).await.unwrap();
            assert_eq!(count(&mut driver, 0, &[30_000.into()]).await, 30_000);
            let kept = rows(&mut driver, 0, &[30_000.into()]).await;
            assert!(kept.iter().all(|row| row[1].as_deref() == Some(&[b'x'; 100])));
            // An answer to a dropped request must not be taken for the next answer.
            give_up(&mut driver, 0, &[20_000.into()]).await;
            assert_eq!(count(&mut driver, 0, &[7.into()]).await, 7);
        }
    });
}

#[test]
fn failures_say_what_the_server_said() {
    SERVER.psql("CREATE TABLE unique_ones (id int PRIMARY KEY); INSERT INTO unique_ones VALUES (1)").unwrap();
    let statements = [
        Statement::write("insert", "INSERT INTO unique_ones VALUES ($1)"),
        Statement::read("one", "SELECT id FROM unique_ones"),
    ];
    block(async {
        for protocol in BOTH {
            let mut driver = open(&SERVER.url(), &statements, protocol).await.unwrap();
            let failure = fails(&mut driver, 0, &[1.into()]).await;
            assert_eq!((failure.code.as_str(), failure.usable, failure.retry), ("23505", true, false));
            assert!(failure.text.contains("unique_ones_pkey"), "{failure}");
            let failure = fails(&mut driver, 0, &["no number".into()]).await;
            assert_eq!((failure.code.as_str(), failure.usable), ("22P02", true));
            let failure = driver.command("SELEC 1").await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.usable), ("42601", true));
            assert_eq!(rows(&mut driver, 1, &[]).await.len(), 1);
        }
        let missing = [statements[1].clone(), Statement::read("lost", "SELECT 1 FROM nowhere")];
        let failure = open(&SERVER.url(), &missing, Protocol::Prepared).await.unwrap_err();
        assert_eq!(failure.code, "42P01");
        assert!(failure.text.contains("\"lost\"") && failure.text.contains("nowhere"), "{failure}");
    });
}

#[test]
fn conflicts_ask_for_another_try() {
    SERVER.psql("CREATE TABLE conflicts (id int PRIMARY KEY, n int); INSERT INTO conflicts VALUES (1, 0)").unwrap();
    let statements = [Statement::write("update", "UPDATE conflicts SET n = n + $1 WHERE id = 1")];
    block(async {
        for protocol in BOTH {
            let mut one = open(&SERVER.url(), &statements, protocol).await.unwrap();
            let mut two = open(&SERVER.url(), &statements, protocol).await.unwrap();
            one.command("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
            one.command("SELECT * FROM conflicts").await.unwrap();
            assert_eq!(count(&mut two, 0, &[1.into()]).await, 1);
            let failure = fails(&mut one, 0, &[1.into()]).await;
            assert_eq!((failure.code.as_str(), failure.usable, failure.retry), ("40001", true, true));
            one.command("ROLLBACK").await.unwrap();
            assert_eq!(count(&mut one, 0, &[1.into()]).await, 1);
        }
    });
}

#[test]
fn a_killed_connection_says_so_and_another_can_be_opened() {
    let statements = [
        Statement::read("me", "SELECT pg_backend_pid()::text"),
        Statement::read("end", "SELECT pg_terminate_backend($1)"),
    ];
    block(async {
        for protocol in BOTH {
            let mut killer = open(&SERVER.url(), &statements, protocol).await.unwrap();
            let mut victim = open(&SERVER.url(), &statements, protocol).await.unwrap();
            let me = rows(&mut victim, 0, &[]).await;
            let pid: i64 = values_of(&me[0])[0].unwrap().parse().unwrap();
            // The session ends itself in a statement.
            let failure = fails(&mut victim, 1, &[pid.into()]).await;
            assert_eq!((failure.code.as_str(), failure.usable), ("57P01", false), "{failure}");
            let failure = fails(&mut victim, 0, &[]).await;
            assert_eq!((failure.code.as_str(), failure.usable), ("connection", false), "{failure}");
            // Another session ends it between statements.
            let mut victim = open(&SERVER.url(), &statements, protocol).await.unwrap();
            let me = rows(&mut victim, 0, &[]).await;
            let pid: i64 = values_of(&me[0])[0].unwrap().parse().unwrap();
            assert_eq!(count(&mut killer, 1, &[pid.into()]).await, 1);
            let failure = fails(&mut victim, 0, &[]).await;
            assert!(!failure.usable && ["57P01", "connection"].contains(&failure.code.as_str()), "{failure}");
            assert_eq!(count(&mut killer, 0, &[]).await, 1);
        }
    });
}

#[test]
fn errors_of_connecting_can_be_read_and_shown() {
    let place = format!("127.0.0.1:{}", SERVER.port());
    block(async {
        let closed = open("postgres://u:s3cr@t@127.0.0.1:1/d", &[], Protocol::Text).await.unwrap_err();
        assert!(closed.text.contains("127.0.0.1:1: ") && closed.text.contains("refused"), "{closed}");
        let url = format!("postgres://{}:s3cr@t@{place}/postgres", SERVER.superuser());
        let wrong = open(&url, &[], Protocol::Text).await.unwrap_err();
        assert!(wrong.code == "28P01" && !wrong.usable && wrong.text.starts_with(&place), "{wrong}");
        for mode in ["require", "verify-full"] {
            let tls = open(&format!("{}?sslmode={mode}", SERVER.url()), &[], Protocol::Text).await.unwrap_err();
            assert!(tls.text.contains("TLS"), "{tls}");
        }
        for failure in [closed, wrong] {
            assert!(!failure.text.contains("s3cr"), "{failure}");
        }
        for mode in ["disable", "prefer"] {
            open(&format!("{}?sslmode={mode}", SERVER.url()), &[], Protocol::Text).await.unwrap();
        }
    });
}

#[test]
fn a_dropped_connection_ends_as_the_protocol_wants() {
    let log = || std::fs::read_to_string(SERVER.log_path()).unwrap();
    block(async {
        let mut driver = open(&SERVER.url(), &[], Protocol::Text).await.unwrap();
        driver.command("BEGIN").await.unwrap();
        drop(driver);
        // The server logs the end of a session in a transaction without Terminate. It has handled the end once the session is not listed any more.
        let sessions = [Statement::read("open", "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'")];
        let mut other = open(&SERVER.url(), &sessions, Protocol::Text).await.unwrap();
        while count(&mut other, 0, &[]).await > 0 {}
    });
    assert!(!log().contains("unexpected EOF"), "{}", log());
}
