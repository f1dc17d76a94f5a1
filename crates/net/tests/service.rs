//! Service connections to a real server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use freshet_net::Upstream;
use freshet_net::postgres::{Client, ConnectError, Error, Purpose};
use freshet_testbed::{Postgres, Server, Settings};
use tokio::runtime::{Builder, Runtime};

fn start() -> Result<(Server, String, Runtime)> {
    let server = Postgres::find(Some(15))?.start(&Settings::default())?;
    let url = server.url();
    Ok((server, url, Builder::new_current_thread().enable_all().build()?))
}

fn upstream(text: &str) -> Arc<Upstream> {
    Arc::new(Upstream::parse(text).expect("a good connection string"))
}

#[test]
fn every_login_method() -> Result<()> {
    let (server, url, runtime) = start()?;
    let hba = server.data_dir().join("pg_hba.conf");
    let local = format!("local all all trust\nhost all {} 127.0.0.1/32 trust\n", server.superuser());
    server.psql("SET password_encryption = 'md5'; CREATE ROLE by_md5 LOGIN REPLICATION PASSWORD 'pass wörd'")?;
    server.psql("SET password_encryption = 'scram-sha-256'; CREATE ROLE by_scram LOGIN PASSWORD 'pass wörd'")?;
    let rules = "host all by_md5 127.0.0.1/32 md5\nhost all by_scram 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&hba, format!("{local}{rules}"))?;
    server.reload()?;
    let connect = |user: &str, password: Option<&str>, purpose| {
        let password = password.map(|password| format!("&password={}", password.replace(' ', "%20")));
        let upstream = upstream(&format!("{url}?user={user}{}", password.unwrap_or("&password=".into())));
        runtime.block_on(Client::connect(&upstream, purpose))
    };
    for user in ["by_md5", "by_scram", server.superuser()] {
        let mut client = connect(user, Some("pass wörd"), Purpose::Sql).with_context(|| user.to_owned())?;
        let rows = runtime.block_on(client.query("SELECT session_user, current_setting('search_path')"))?;
        assert_eq!(rows, [[Some(user.to_owned()), Some("pg_catalog".to_owned())]]);
        assert_eq!(client.server_version(), 15);
    }
    connect(server.superuser(), None, Purpose::Sql)?;
    for user in ["by_md5", "by_scram"] {
        assert!(matches!(connect(user, None, Purpose::Sql), Err(ConnectError::PasswordMissing)));
        let wrong = connect(user, Some("wrong"), Purpose::Sql).err().context("a wrong password was taken")?;
        assert!(matches!(&wrong, ConnectError::Refused(error) if error.code == "28P01"), "{wrong}");
    }
    connect("by_md5", Some("pass wörd"), Purpose::Replication)?;

    // Cleartext comes last because it changes the rules.
    std::fs::write(&hba, format!("{local}host all by_scram 127.0.0.1/32 password\n"))?;
    server.reload()?;
    connect("by_scram", Some("pass wörd"), Purpose::Sql)?;
    Ok(())
}

#[test]
fn statements() -> Result<()> {
    let (_server, url, runtime) = start()?;
    runtime.block_on(async {
        let mut client = Client::connect(&upstream(&url), Purpose::Sql).await?;
        let rows = client.query("SELECT 1; SELECT NULL, 'é', ''; SET x.y = 'z'").await?;
        assert_eq!(rows, [[None, Some("é".to_owned()), Some(String::new())]], "the last result set");
        assert_eq!(client.query("SELECT WHERE false").await?, Vec::<Vec<Option<String>>>::new());
        assert_eq!(client.query("").await?.len(), 0);
        assert_eq!(client.query("SELECT repeat('x', 3000000) FROM generate_series(1, 3)").await?.len(), 3);

        let error = client.query("SELECT 1/0").await.err().context("no error")?;
        assert_eq!(error.sqlstate(), Some("22012"));
        assert!(error.to_string().contains("division by zero"), "{error}");
        assert_eq!(client.query("SELECT 2").await?, [[Some("2".to_owned())]], "usable after an error");
        for transaction in ["BEGIN; SELECT 1/0", "BEGIN; CREATE TABLE public.t (); SELECT 1/0; COMMIT"] {
            assert!(client.query(transaction).await.is_err());
            assert_eq!(client.query("SELECT 2").await?, [[Some("2".to_owned())]], "no transaction outlives an error");
        }
        client.query("BEGIN").await?;
        assert!(client.query_with("SELECT 1 / $1::int", &["0"]).await.is_err());
        let xact = "SELECT pg_current_xact_id_if_assigned() IS NULL AND to_regclass('public.t') IS NULL";
        client.query("CREATE TABLE public.u ()").await?;
        assert_eq!(client.query(xact).await?, [[Some("t".to_owned())]], "outside a transaction");
        let idle = "SHOW idle_in_transaction_session_timeout";
        assert_eq!(client.query(idle).await?, [[Some("30s".to_owned())]]);
        let mut replication = Client::connect(&upstream(&url), Purpose::Replication).await?;
        assert_eq!(replication.query(idle).await?, [[Some("0".to_owned())]]);
        assert!(client.query("COPY pg_type TO STDOUT").await.is_err(), "an answer in another shape");
        assert!(client.is_dead());
        assert!(matches!(client.query("SELECT 1").await, Err(Error::Dead)));
        anyhow::Ok(())
    })
}

#[test]
fn prepared_statements() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(10);
    const PREPARED: &str = "SELECT count(*) FROM pg_prepared_statements";
    let (_server, url, runtime) = start()?;
    let cell = |text: &str| vec![vec![Some(text.to_owned())]];
    runtime.block_on(async {
        let mut client = Client::connect(&upstream(&url), Purpose::Sql).await?;
        let add = "SELECT $1::int + $2::int";
        let none = "SELECT 1 WHERE $1::text IS NULL";
        for _ in 0..2 {
            let asked = [(add, vec!["1", "2"]), (none, vec!["x"]), (add, vec!["3", "4"])];
            assert_eq!(client.query_prepared(&asked, LIMIT).await?, [cell("3"), Vec::new(), cell("7")]);
            assert_eq!(client.query(PREPARED).await?, cell("2"), "once each");
        }

        let divided = "SELECT 1 / $1::int";
        let asked = [("SELECT 'new'", vec![]), (divided, vec!["0"]), ("SELECT 'not reached'", vec![])];
        let error = client.query_prepared(&asked, LIMIT).await.err().context("no error")?;
        assert_eq!(error.sqlstate(), Some("22012"));
        for (by, quotient) in [("1", "1"), ("-1", "-1")] {
            let asked = [("SELECT 'new'", vec![]), (divided, vec![by]), ("SELECT 'not reached'", vec![])];
            let answers = [cell("new"), cell(quotient), cell("not reached")];
            assert_eq!(client.query_prepared(&asked, LIMIT).await?, answers, "usable after an error");
        }

        for number in 0..250 {
            let sql = format!("SELECT {number}");
            assert_eq!(client.query_prepared(&[(&sql, vec![])], LIMIT).await?, [cell(&number.to_string())]);
        }
        let count = client.query(PREPARED).await?;
        let count: usize = count[0][0].as_deref().context("a count")?.parse()?;
        assert!((1..=101).contains(&count), "{count} are kept");
        anyhow::Ok(())
    })
}

#[test]
fn late_answers_are_never_read_as_the_next() -> Result<()> {
    let (server, url, runtime) = start()?;
    runtime.block_on(async {
        let mut client = Client::connect(&upstream(&url), Purpose::Sql).await?;
        let slow = client.query_timeout("SELECT pg_sleep(30)", Duration::from_millis(100)).await;
        assert!(matches!(slow, Err(Error::Timeout(_))));
        assert!(matches!(client.query("SELECT 1").await, Err(Error::Dead)));

        let mut client = Client::connect(&upstream(&url), Purpose::Sql).await?;
        let dropped = tokio::time::timeout(Duration::from_millis(100), client.query("SELECT pg_sleep(1)")).await;
        assert!(dropped.is_err());
        assert!(matches!(client.query("SELECT 1").await, Err(Error::Dead)));
        anyhow::Ok(())
    })?;
    let running = "SELECT count(*) FROM pg_stat_activity \
                   WHERE state = 'active' AND query LIKE '%sleep(30)%' AND pid <> pg_backend_pid()";
    assert_eq!(server.psql(running)?, "0", "the statement was cancelled");
    Ok(())
}

#[test]
fn a_connection_that_ends_says_why() -> Result<()> {
    let (server, url, runtime) = start()?;
    runtime.block_on(async {
        let mut client = Client::connect(&upstream(&url), Purpose::Sql).await?;
        let rows = client.query("SELECT pg_backend_pid()").await?;
        let pid = rows.first().and_then(|row| row.first()?.clone()).context("pid")?;
        server.psql(&format!("SELECT pg_terminate_backend({pid}, 5000)"))?;
        let error = client.query("SELECT 1").await.err().context("no error")?;
        assert!(matches!(error, Error::Server(_) | Error::Io(_) | Error::Closed), "{error:?}");
        assert!(client.is_dead());

        let nobody = Client::connect(&upstream(&format!("{url}?port=1")), Purpose::Sql).await;
        assert!(matches!(nobody, Err(ConnectError::Tcp(_))));
        let missing = Client::connect(&upstream(&format!("{url}?dbname=missing")), Purpose::Sql).await;
        let refused = missing.err().context("no error")?;
        assert!(refused.to_string().contains("3D000"), "{refused}");
        anyhow::Ok(())
    })
}
