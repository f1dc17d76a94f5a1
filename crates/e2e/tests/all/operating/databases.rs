//! Several databases in one instance: each has its own cache and change stream, and none costs another anything.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Settings, StopMode};
use serde_json::Value;

use super::configuration::File;
use super::{rows, sqlstate};
use crate::mysql::support as mysql;
use crate::support::{
    Database, Freshet, LISTEN, Login, PATIENCE, RawClient, Version, eventually, get, program, undisturbed,
};

pub(super) const READ: &str = "select title from film where id = 1";

pub(super) fn schema(title: &str) -> String {
    format!(
        "create table film (id int primary key, title varchar(100) not null); insert into film values (1, '{title}')"
    )
}

pub(super) fn ready(freshet: &Freshet, database: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let (status, body) = get(freshet.http, &format!("/cachez?database={database}"))?;
        ensure!((status, body.as_str()) == (200, "ready\n"), "{database}: {body}; the log:\n{}", freshet.log());
        Ok(())
    })
}

/// Until a read in this database hits, with this answer.
pub(super) fn hits(
    freshet: &Freshet,
    database: &str,
    title: &str,
    mut read: impl FnMut() -> Result<String>,
) -> Result<()> {
    eventually(PATIENCE, || {
        let hits = || -> Result<f64> { Ok(freshet.metrics()?.of(database, "freshet_hits_total")) };
        let before = hits()?;
        let now = read()?;
        ensure!(now == title, "{database}: {now} instead of {title}");
        ensure!(hits()? > before, "no hit in {database}: {:?}", freshet.metrics()?);
        Ok(())
    })
}

pub(super) fn connect(freshet: &Freshet, database: &Database, name: &str) -> Result<RawClient> {
    RawClient::login(freshet.address, Login { database: name, ..database.login() })
}

pub(super) fn start(file: &File, database: &Database) -> Result<Option<Freshet>> {
    let Some(program) = program()? else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(["serve", "--config", file.path()]).args(LISTEN);
    Freshet::spawn(database.address(), Some(command)).map(Some)
}

/// Three PostgreSQL databases of two servers, one of which is down at first, and a MariaDB server.
struct Stage {
    shop: Database,
    other: Database,
    late: Database,
    maria: mysql::Database,
}

impl Stage {
    fn new() -> Result<Self> {
        let late = Database::create(Version::V15.start(&Settings::default())?)?;
        let (shop, other) = (Database::shared(Version::V18)?, Database::shared(Version::V18)?);
        let maria = mysql::Database::shared(mysql::Kind::Mariadb)?;
        for (database, title) in [(&shop, "shop"), (&other, "other"), (&late, "late")] {
            database.run(&schema(title))?;
        }
        maria.run("create table film (id int primary key, title varchar(100) not null)")?;
        maria.run("insert into film values (1, 'maria')")?;
        Ok(Self { shop, other, late, maria })
    }

    /// `shop` is an alias. `other` has the name of its database, which its upstream leaves out.
    fn file(&self, of_shop: &str) -> String {
        let (server, other) = (self.other.server.url_of(""), &self.other.name);
        format!(
            "admission = \"always\"\nmemory = \"256MiB\"\n\
             [[database]]\nname = \"shop\"\nupstream = \"{}\"\nmemory_min = \"160MiB\"\n{of_shop}\n\
             [[database]]\nname = \"{other}\"\nupstream = \"{server}\"\nmemory_max = \"32MiB\"\n\
             [[database]]\nname = \"late\"\nupstream = \"{}\"\n\
             [[database]]\nname = \"maria\"\nupstream = \"{}\"\nlisten = \"127.0.0.1:0\"\n",
            self.shop.url(),
            self.late.url(),
            self.maria.url(),
        )
    }

    fn start(&self, file: &File) -> Result<Option<Freshet>> {
        start(file, &self.shop)
    }

    fn in_maria(&self, address: SocketAddr) -> Result<mysql::RawClient> {
        mysql::RawClient::login(address, self.maria.login())
    }
}

/// A session that names the database as the server does, and not as its entry, is a session of that entry: its writes wait for the entry's stream.
#[test]
fn a_database_has_one_cache_under_all_its_names() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    database.run(&schema("shop"))?;
    let (others, shop) = (database.server.url_of("postgres"), database.url());
    let text = format!(
        "admission = \"always\"\nupstream = \"{others}\"\n[[database]]\nname = \"alias\"\nupstream = \"{shop}\"\n"
    );
    let file = File::new("names.toml", &text)?;
    let Some(freshet) = start(&file, &database)? else { return Ok(()) };
    ready(&freshet, "alias")?;
    let mut reader = connect(&freshet, &database, "alias")?;
    let mut writer = connect(&freshet, &database, &database.name)?;
    hits(&freshet, "alias", "shop", || reader.value(READ))?;
    for round in 0..20 {
        writer.run(&format!("update film set title = 'shop {round}' where id = 1"))?;
        let now = reader.value(READ)?;
        ensure!(now == format!("shop {round}"), "{now} in round {round}");
    }
    hits(&freshet, "alias", "shop 19", || writer.value(READ))
}

#[test]
fn each_has_its_own_cache_and_stream() -> Result<()> {
    let stage = Stage::new()?;
    let Stage { shop, other, late, .. } = &stage;
    late.server.stop(StopMode::Fast)?;
    let file = File::new("databases.toml", &stage.file(""))?;
    let Some(freshet) = stage.start(&file)? else { return Ok(()) };
    let maria = *freshet.others.first().context("a second address")?;
    for name in ["shop", &other.name, "maria"] {
        ready(&freshet, name)?;
    }
    // Who is down is named, and takes nobody out of the load balancer.
    eventually(PATIENCE, || {
        let (status, body) = freshet.health()?;
        let is_named = body.starts_with("not caching: late\n") && body.contains("\nshop: ready\n");
        ensure!(status == 503 && is_named, "{body}");
        Ok(())
    })?;
    ensure!(freshet.probes()? == [200, 200, 503]);
    ensure!(get(freshet.http, "/cachez?database=nobody")?.0 == 404);

    // The same statement is another one in each.
    let mut in_shop = connect(&freshet, shop, "shop")?;
    let mut in_other = connect(&freshet, other, &other.name)?;
    let mut in_maria = stage.in_maria(maria)?;
    let all = |shop_title: &str, in_shop: &mut RawClient, in_other: &mut RawClient| -> Result<()> {
        hits(&freshet, "shop", shop_title, || in_shop.value(READ))?;
        hits(&freshet, &other.name, "other", || in_other.value(READ))
    };
    all("shop", &mut in_shop, &mut in_other)?;
    hits(&freshet, "maria", "maria", || in_maria.value(READ))?;
    ensure!(in_shop.value("select current_database()")? == shop.name, "an alias");

    // A write invalidates in its own database alone.
    let invalidations = |name: &str| -> Result<f64> { Ok(freshet.metrics()?.of(name, "freshet_invalidations_total")) };
    undisturbed(&freshet, || {
        in_shop.run("update film set title = 'old' where id = 1")?;
        hits(&freshet, "shop", "old", || in_shop.value(READ))?;
        let before = invalidations("shop")?;
        in_shop.run("update film set title = 'new' where id = 1")?;
        ensure!(connect(&freshet, shop, "shop")?.value(READ)? == "new", "a stale answer");
        ensure!(invalidations("shop")? > before, "the write has invalidated nothing");
        Ok(())
    })?;
    all("new", &mut in_shop, &mut in_other)?;
    undisturbed(&freshet, || {
        in_maria.run("update film set title = 'alt' where id = 1")?;
        hits(&freshet, "maria", "alt", || in_maria.value(READ))?;
        let before = invalidations("maria")?;
        in_maria.run("update film set title = 'neu' where id = 1")?;
        ensure!(stage.in_maria(maria)?.value(READ)? == "neu", "a stale answer");
        ensure!(invalidations("maria")? > before, "the write has invalidated nothing");
        Ok(())
    })?;
    hits(&freshet, "maria", "neu", || in_maria.value(READ))?;
    ensure!(invalidations(&other.name)? == 0.0, "a write in another database has invalidated something");

    // SHOW tells of the database of its session.
    let status = rows(&in_other.query("SHOW FRESHET STATUS")?);
    let upstream = status.iter().find(|row| row[0] == "upstream").context("no upstream")?;
    ensure!(upstream[1].ends_with(&format!("/{}", other.name)), "{status:?}");
    told_of(&freshet)?;
    unknown_and_cancelled(&freshet, &stage)?;
    checked(&file)?;
    memory_is_divided(&freshet, &stage)?;
    comes_and_goes(&freshet, &stage, || all("new", &mut in_shop, &mut in_other))?;
    reloaded(&freshet, &stage, &file)
}

/// The API has all together, or one.
fn told_of(freshet: &Freshet) -> Result<()> {
    let status = |query: &str| -> Result<Value> {
        let (status, body) = get(freshet.http, &format!("/api/status{query}"))?;
        ensure!(status == 200, "{query}: {status} {body}");
        Ok(serde_json::from_str(&body)?)
    };
    let hits = |status: &Value| status.pointer("/totals/hits").and_then(Value::as_f64).unwrap_or_default();
    let names = |status: &Value, list: &str| -> BTreeSet<String> {
        let rows = status[list].as_array().into_iter().flatten();
        rows.filter_map(|row| Some(row["database"].as_str()?.to_owned())).collect()
    };
    let (all, shop, maria) = (status("")?, status("?database=shop")?, status("?database=maria")?);
    ensure!(all["database"].is_null() && all["databases"].as_array().is_some_and(|all| all.len() == 4), "{all}");
    ensure!(hits(&all) > hits(&shop) + hits(&maria) && hits(&shop) > 0.0 && hits(&maria) > 0.0, "{all}");
    ensure!(names(&all, "streams").len() == 4 && names(&all, "queries").contains("maria"), "{all}");
    ensure!(shop["database"] == "shop" && names(&shop, "streams").len() == 1, "{shop}");
    ensure!(names(&shop, "queries").iter().all(|name| name == "shop"), "{shop}");
    let limit = |status: &Value| status.pointer("/memory/limit_bytes").and_then(Value::as_u64).unwrap_or_default();
    ensure!(limit(&all) > 255 << 20 && limit(&shop) < limit(&all), "{all}");
    // One that is down is told by its name.
    ensure!(all["health"].to_string().contains("late: Nothing is served from the cache"), "{all}");
    ensure!(get(freshet.http, "/api/events?database=nobody")?.0 == 404);
    let Some(program) = program()? else { return Ok(()) };
    let top = |options: &[&str]| -> Result<String> {
        let http = freshet.http.to_string();
        let output = Command::new(&program).args(["top", "--once", "--http", &http]).args(options).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    ensure!(top(&[])?.contains("before 4 databases") && !top(&["--database", "shop"])?.contains("4 databases"));
    Ok(())
}

fn unknown_and_cancelled(freshet: &Freshet, stage: &Stage) -> Result<()> {
    let login = Login { database: "nobody", ..stage.shop.login() };
    let refused = RawClient::open(freshet.address)?.start(login)?;
    let message = refused.iter().find_map(|message| message.field(b'M')).unwrap_or_default();
    let said = (sqlstate(&refused), message.as_str());
    ensure!(said == (Some("3D000".to_owned()), "database \"nobody\" does not exist"), "{refused:?}");
    // A cancel request does not name its server; the one of the session is found.
    let mut sleeper = connect(freshet, &stage.other, &stage.other.name)?;
    let key = sleeper.key_data.clone();
    sleeper.send(&crate::support::frames::query("select pg_sleep(600)"))?;
    let cancelled = || -> Result<()> {
        let mut packet = [0, 0, 0, 0, 4, 210, 22, 46].to_vec();
        packet.extend_from_slice(&key);
        packet[3] = u8::try_from(packet.len())?;
        let mut other = RawClient::open(freshet.address)?;
        other.send(&packet)?;
        other.bytes_to_end()?;
        Ok(())
    };
    // It may come before the statement has begun.
    let mut watcher = stage.other.connect()?;
    let sleeping = "select count(*) from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active'";
    eventually(PATIENCE, || {
        ensure!(watcher.value(sleeping)? == "1", "not begun");
        Ok(())
    })?;
    cancelled()?;
    let answer = sleeper.until(b'Z')?;
    ensure!(sqlstate(&answer).as_deref() == Some("57014"), "{answer:?}");
    Ok(())
}

/// `freshet check` goes through all of them; that one cannot be checked is its exit code.
fn checked(file: &File) -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let output = Command::new(program).args(["check", "--config", file.path()]).output()?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let heads: Vec<&str> = said.lines().filter(|line| line.starts_with("database ")).collect();
    ensure!(heads.len() == 4 && heads[0] == "database shop" && heads[3] == "database maria", "{said}");
    ensure!(said.contains("publication") && said.contains("binlog"), "{said}");
    ensure!(output.status.code() == Some(2) && errors.contains("cannot be looked at"), "{errors}");
    Ok(())
}

/// The limits of the parts are in force, and they are the whole together.
fn memory_is_divided(freshet: &Freshet, stage: &Stage) -> Result<()> {
    const MIB: f64 = 1_048_576.0;
    let metrics = freshet.metrics()?;
    let part = |name: &str| metrics.of(name, "freshet_memory_limit_bytes") / MIB;
    let (shop, other) = (part("shop"), part(&stage.other.name));
    ensure!(shop >= 160.0 && other <= 32.0, "shop has {shop} MiB, other {other}");
    let all = metrics.value("freshet_memory_limit_bytes") / MIB;
    ensure!(all > 255.9 && all <= 256.0, "{all} MiB together");
    Ok(())
}

/// A server that starts late is used, and its end is nobody else's.
fn comes_and_goes(freshet: &Freshet, stage: &Stage, mut all: impl FnMut() -> Result<()>) -> Result<()> {
    let late = &stage.late;
    let refused = RawClient::open(freshet.address)?.start(Login { database: "late", ..late.login() })?;
    ensure!(sqlstate(&refused).as_deref() == Some("08006"), "{refused:?}");
    late.server.start()?;
    ready(freshet, "late")?;
    eventually(PATIENCE, || {
        let (status, body) = freshet.health()?;
        ensure!(status == 200 && body.starts_with("ready\n"), "{body}");
        Ok(())
    })?;
    let mut client = connect(freshet, late, "late")?;
    hits(freshet, "late", "late", || client.value(READ))?;
    late.server.stop(StopMode::Immediate)?;
    eventually(PATIENCE, || {
        let (status, body) = freshet.health()?;
        ensure!(status == 503 && body.starts_with("not caching: late\n"), "{body}");
        Ok(())
    })?;
    all()?;
    late.server.start()?;
    ready(freshet, "late")
}

/// A change of one database's promise holds for it alone.
fn reloaded(freshet: &Freshet, stage: &Stage, file: &File) -> Result<()> {
    let (mut shop, mut other) =
        (connect(freshet, &stage.shop, "shop")?, connect(freshet, &stage.other, &stage.other.name)?);
    let max = |client: &mut RawClient| -> Result<String> {
        let status = rows(&client.query("SHOW FRESHET STATUS")?);
        let row = status.into_iter().find(|row| row[0] == "staleness_max_seconds");
        Ok(row.context("no staleness_max_seconds")?.remove(1))
    };
    file.write(&stage.file("max_staleness = \"3s\"\nbypass = true"))?;
    eventually(PATIENCE, || {
        shop.query("RELOAD")?;
        ensure!(max(&mut shop)? == "3.000", "not followed: {}", freshet.log());
        Ok(())
    })?;
    ensure!(max(&mut other)? == "1.000", "the other database follows, too");
    let shown = rows(&other.query("SHOW CONFIG")?);
    let row = |key: &str| shown.iter().find(|row| row[0] == key).map(|row| row[1..4].join(" "));
    ensure!(row("database.shop.max_staleness").as_deref() == Some("3s 1s yes"), "{shown:?}");
    ensure!(row("max_staleness").as_deref() == Some("1s 1s yes"), "{shown:?}");
    let bypass = |name: &str| -> Result<f64> { Ok(freshet.metrics()?.of(name, "freshet_bypass")) };
    ensure!((bypass("shop")?, bypass(&stage.other.name)?) == (1.0, 0.0));
    let log = freshet.log();
    ensure!(log.contains("database.shop.max_staleness is \"3s\", it was \"1s\""), "{log}");
    Ok(())
}

/// A PostgreSQL database that is opened on demand may have the name of a server of MariaDB: asked for by name, both are told of together.
#[test]
fn a_name_of_both_families() -> Result<()> {
    let shop = Database::shared(Version::V18)?;
    let maria = mysql::Database::shared(mysql::Kind::Mariadb)?;
    shop.run(&schema("shop"))?;
    let file = File::new(
        "both.toml",
        &format!(
            "[[database]]\nname = \"*\"\nupstream = \"{}\"\n\
             [[database]]\nname = \"{}\"\nupstream = \"{}\"\nlisten = \"127.0.0.1:0\"\n",
            shop.server.url_of("postgres"),
            shop.name,
            maria.url()
        ),
    )?;
    let Some(freshet) = start(&file, &shop)? else { return Ok(()) };
    let address = *freshet.others.first().context("a second address")?;
    let mut client = connect(&freshet, &shop, &shop.name)?;
    ensure!(client.value(READ)? == "shop");
    let _in_maria = mysql::RawClient::login(address, maria.login())?;
    eventually(PATIENCE, || {
        let (_, body) = get(freshet.http, &format!("/api/status?database={}", shop.name))?;
        let status: Value = serde_json::from_str(&body)?;
        let history = status["history"].as_array().context("no samples")?;
        let times: Vec<u64> = history.iter().filter_map(|sample| sample["time"].as_u64()).collect();
        ensure!(times.len() > 3 && status["now"]["sessions"] == 2, "{body}");
        // One sample a second.
        ensure!(times.windows(2).all(|pair| pair[1] - pair[0] > 300), "{times:?}");
        Ok(())
    })
}
