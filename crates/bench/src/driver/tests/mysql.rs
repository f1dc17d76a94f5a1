//! MariaDB.

use std::sync::LazyLock;

use freshet_testbed::{Mariadb, MariadbSettings};

use super::*;

/// None if MariaDB is not installed.
static SERVER: LazyLock<Option<Mariadb>> = LazyLock::new(|| match Mariadb::start(&MariadbSettings::default()) {
    Ok(server) => Some(server),
    Err(error) => {
        peer::left_out(&format!("{error:#}"));
        None
    }
});

#[test]
fn values_arrive_as_they_were_and_both_protocols_bring_the_same_rows() {
    let Some(server) = &*SERVER else { return };
    server
        .sql(
            "CREATE TABLE kinds (id INT PRIMARY KEY, t TEXT CHARACTER SET utf8mb4, n BIGINT, u BIGINT UNSIGNED, d DECIMAL(9,2), \
             r DOUBLE, day DATE, at DATETIME, exact DATETIME(3), span TIME, b BLOB)",
        )
        .unwrap();
    let statements = [
        Statement::write("insert", "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"),
        Statement::read(
            "select",
            "SELECT t, n, u, d, r, day, at, exact, span, b, $2 FROM kinds WHERE id = $1 AND $1 >= 0",
        ),
        Statement::write("update", "UPDATE kinds SET n = n - 1 WHERE id >= $1 AND id < $2"),
        Statement::read("all", "SELECT id FROM kinds"),
    ];
    block(async {
        let mut prepared = open(&server.url(), &statements, Protocol::Prepared).await.unwrap();
        let mut text = open(&server.url().replace("mysql:", "mariadb:"), &statements, Protocol::Text).await.unwrap();
        for (id, letters) in (0i64..).zip(TEXTS.into_iter().chain(TEXTS)) {
            let writer = if id % 2 == 0 { &mut prepared } else { &mut text };
            let number = if id == 0 { i64::MIN + 1 } else { i64::MAX };
            let rest = ["18446744073709551615", "-12.50", "0.1", "2026-01-02", "2026-01-02 03:04:05"].map(Value::from);
            let last = [Value::from("2026-01-02 03:04:05.678"), "-30:00:01".into(), letters.into()];
            let values = [&[id.into(), letters.into(), number.into()], rest.as_slice(), &last].concat();
            assert_eq!(count(writer, 0, &values).await, 1);
            let (one, two) = (
                rows(&mut prepared, 1, &[id.into(), "x".into()]).await,
                rows(&mut text, 1, &[id.into(), "x".into()]).await,
            );
            assert_eq!(one, two);
            let number = number.to_string();
            let wanted = [
                letters,
                &number,
                "18446744073709551615",
                "-12.50",
                "0.1",
                "2026-01-02",
                "2026-01-02 03:04:05",
                "2026-01-02 03:04:05.678",
                "-30:00:01",
                letters,
                "x",
            ];
            assert_eq!(values_of(&one[0]), wanted.map(Some));
        }
        let nothing = [&[Value::Int(50)], vec![Value::Null; 10].as_slice()].concat();
        for driver in [&mut prepared, &mut text] {
            assert_eq!(count(driver, 2, &[1.into(), 4.into()]).await, 3);
            assert_eq!(count(driver, 1, &[51.into(), 0.into()]).await, 0);
            assert_eq!(count(driver, 3, &[]).await, 14);
        }
        assert_eq!(count(&mut text, 0, &nothing).await, 1);
        for driver in [&mut prepared, &mut text] {
            assert_eq!(rows(driver, 1, &[50.into()]).await, [vec![None; 11]]);
            assert_eq!(rows(driver, 1, &[50.into(), 7.into()]).await[0][10].as_deref(), Some(b"7".as_slice()));
            // An answer to a dropped request must not be taken for the next answer.
            give_up(driver, 3, &[]).await;
            let failure = fails(driver, 1, &[50.into()]).await;
            assert!(failure.code == "connection" && !failure.usable, "{failure}");
        }
    });
}

#[test]
fn failures_say_what_the_server_said() {
    let Some(server) = &*SERVER else { return };
    server
        .sql("CREATE TABLE unique_ones (id INT PRIMARY KEY, n INT); INSERT INTO unique_ones VALUES (1, 0), (2, 0)")
        .unwrap();
    let statements = [
        Statement::write("insert", "INSERT INTO unique_ones VALUES ($1, 0)"),
        Statement::write("update", "UPDATE unique_ones SET n = n + 1 WHERE id = $1"),
        Statement::read("me", "SELECT CONNECTION_ID()"),
    ];
    block(async {
        for protocol in BOTH {
            let mut driver = open(&server.url(), &statements, protocol).await.unwrap();
            let failure = fails(&mut driver, 0, &[1.into()]).await;
            assert_eq!((failure.code.as_str(), failure.usable, failure.retry), ("1062", true, false));
            let failure = driver.command("SELEC 1").await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.usable), ("1064", true));

            let mut other = open(&server.url(), &statements, protocol).await.unwrap();
            for (driver, id) in [(&mut driver, 1), (&mut other, 2)] {
                driver.command("BEGIN").await.unwrap();
                assert_eq!(count(driver, 1, &[id.into()]).await, 1);
            }
            let (ids, both) = ([[Value::Int(2)], [Value::Int(1)]], (Rows::Counted, Rows::Counted));
            let (one, two) = tokio::join!(driver.run(1, &ids[0], both.0), other.run(1, &ids[1], both.1));
            let failure = [one, two].into_iter().find_map(Result::err).unwrap();
            assert_eq!((failure.code.as_str(), failure.usable, failure.retry), ("1213", true, true));
            for driver in [&mut driver, &mut other] {
                driver.command("ROLLBACK").await.unwrap();
            }
            let me = rows(&mut driver, 2, &[]).await;
            other.command(&format!("KILL {}", values_of(&me[0])[0].unwrap())).await.unwrap();
            let failure = fails(&mut driver, 2, &[]).await;
            assert!(!failure.usable, "{failure}");
            assert!(!fails(&mut driver, 2, &[]).await.usable);
        }
        let missing = [statements[2].clone(), Statement::read("lost", "SELECT 1 FROM nowhere")];
        let failure = open(&server.url(), &missing, Protocol::Prepared).await.unwrap_err();
        assert!(failure.code == "1146" && failure.text.contains("\"lost\""), "{failure}");
        let url = format!("mysql://nobody:s3cr@t@127.0.0.1:{}/x", server.port());
        let failure = open(&url, &[], Protocol::Text).await.unwrap_err();
        let place = format!("127.0.0.1:{}: ", server.port());
        assert!(
            failure.code == "1045" && failure.text.starts_with(&place) && !failure.text.contains("s3cr"),
            "{failure}"
        );
        let failure = open("mysql://nobody:s3cr@t@127.0.0.1:1/x", &[], Protocol::Text).await.unwrap_err();
        assert!(failure.text.contains("127.0.0.1:1: ") && !failure.text.contains("s3cr"), "{failure}");
    });
}

#[test]
fn nothing_is_sent_that_nobody_asked_for() {
    let Some(server) = &*SERVER else { return };
    let statements =
        [Statement::read("mine", "SHOW SESSION STATUS LIKE 'Questions'"), Statement::read("one", "SELECT 1")];
    block(async {
        let mut driver = open(&server.url(), &statements, Protocol::Text).await.unwrap();
        assert_eq!(values_of(&rows(&mut driver, 0, &[]).await[0]), [Some("Questions"), Some("1")]);
        assert_eq!(count(&mut driver, 1, &[]).await, 1);
        assert_eq!(values_of(&rows(&mut driver, 0, &[]).await[0]), [Some("Questions"), Some("3")]);
    });
}
