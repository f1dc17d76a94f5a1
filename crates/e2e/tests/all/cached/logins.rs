//! Passwords: Freshet admits the users whom the database admits, and no others.

use std::fs;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::{SCHEMA, never_hits};
use crate::support::{
    Database, Freshet, Login, PATIENCE, Pair, RawClient, Version, connect, eventually, eventually_async, on_both,
};

on_both!(scram, cleartext, md5, a_role_without_replication);

const READ: &str = "select title from film where id = 1";

/// A server that asks for passwords, with this method for the user `app`.
fn guarded(version: Version, method: &str) -> Result<Pair> {
    let server = version.start(&Settings::default().with_scram())?;
    let database = Database { name: "postgres".into(), server };
    let hba = database.server.data_dir().join("pg_hba.conf");
    let rules = fs::read_to_string(&hba)?;
    database.server.psql("set password_encryption = 'scram-sha-256'; create role app login password 'right'")?;
    database.server.psql(SCHEMA)?;
    database.server.psql("grant select on film to app")?;
    if method == "md5" {
        database.server.psql("set password_encryption = 'md5'; alter role app password 'right'")?;
    }
    fs::write(&hba, format!("host all app 127.0.0.1/32 {method}\n{rules}"))?;
    database.server.psql("select pg_reload_conf()")?;
    // The database asks for them, even where all tests share server connections, and clients are let in without.
    let freshet = Freshet::start(&database, &["--auth", "auto"])?;
    Ok(Pair { freshet, database })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn passwords_count(version: Version, method: &str) -> Result<()> {
    let pair = guarded(version, method)?;
    let login = |password| Login { user: "app", database: "postgres", password: Some(password), more: &[] };
    runtime()?.block_on(async {
        for wrong in ["wrong", "", "right ", "Right"] {
            let error = connect(pair.address(), login(wrong)).await.err().context("let in with a wrong password")?;
            let error = error.downcast::<tokio_postgres::Error>()?;
            let code = error.code().map(|c| c.code().to_owned());
            ensure!(wrong.is_empty() || code.as_deref() == Some("28P01"), "{wrong:?}: {error:?}");
        }
        let client = connect(pair.address(), login("right")).await.context("the right password")?;
        let read = client.prepare("select title from film where id = $1").await?;
        eventually_async(PATIENCE, async || {
            let row = client.query_one(&read, &[&1_i32]).await?;
            assert_eq!(row.get::<_, &str>(0), "film 1", "{row:?}");
            ensure!(!pair.freshet.is_there() || pair.freshet.metrics()?.hits() > 0, "no hits");
            Ok(())
        })
        .await?;
        // The cached result does not admit a client.
        ensure!(connect(pair.address(), login("wrong")).await.is_err(), "let in with a wrong password after hits");
        Ok(())
    })
}

fn scram(version: Version) -> Result<()> {
    passwords_count(version, "scram-sha-256")
}

fn cleartext(version: Version) -> Result<()> {
    passwords_count(version, "password")
}

fn md5(version: Version) -> Result<()> {
    passwords_count(version, "md5")
}

/// Freshet's own login may not follow the change stream: it serves uncached, and says why.
fn a_role_without_replication(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    let name = format!("{}_plain", database.name);
    database.run(&format!("create role {name} login; grant select on film to {name}"))?;
    let url = format!("postgres://{name}@{}/{}", database.address(), database.name);
    let freshet = Freshet::start_unready(database.address(), &url, &[])?;
    let pair = Pair { freshet, database };
    let outcome = (|| {
        let mut c = pair.connect()?;
        never_hits(&pair, &mut c, READ, "no_stream")?;
        let mut plain = RawClient::login(pair.address(), pair.database.login_as(&name))?;
        ensure!(plain.value(READ)? == "film 1", "a read without a stream");
        if pair.freshet.is_there() {
            eventually(crate::support::PATIENCE, || {
                // Those may ask who Freshet itself logs in as.
                let status = format!("{:?}", plain.query("SHOW FRESHET STATUS")?).to_lowercase();
                ensure!(status.contains("replication"), "SHOW FRESHET STATUS does not say why: {status}");
                ensure!(pair.freshet.log().to_lowercase().contains("replication"), "the log does not say why");
                Ok(())
            })?;
        }
        Ok(())
    })();
    let Pair { freshet, database } = pair;
    drop(freshet);
    database.run(&format!("drop owned by {name}; drop role {name}"))?;
    outcome
}
