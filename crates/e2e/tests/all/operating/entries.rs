//! The list of databases changes while Freshet runs: entries come and go with the file, and sessions of the others notice nothing.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::configuration::File;
use super::databases::{READ, connect, hits, ready, schema, start};
use super::{ends_by_command, rows, sqlstate};
use crate::mysql::support as mysql;
use crate::support::{Database, Freshet, Login, PATIENCE, RawClient, Version, eventually, get, program, time_passes};

fn entry(name: &str, upstream: &str, more: &str) -> String {
    format!("[[database]]\nname = \"{name}\"\nupstream = \"{upstream}\"\n{more}\n")
}

fn created(title: &str) -> Result<Database> {
    let database = Database::shared(Version::V18)?;
    database.run(&schema(title))?;
    Ok(database)
}

/// The rows of RELOAD about the list; the error, if it refuses.
fn reload(admin: &mut RawClient) -> Result<Vec<Vec<String>>> {
    let answer = admin.query("RELOAD")?;
    let error = answer.iter().find(|message| message.tag == b'E').and_then(|message| message.field(b'M'));
    ensure!(error.is_none(), "{}", error.unwrap_or_default());
    Ok(rows(&answer))
}

/// Why a login is refused.
fn refused(freshet: &Freshet, database: &Database, name: &str) -> Result<Option<String>> {
    let login = Login { database: name, ..database.login() };
    Ok(sqlstate(&RawClient::open(freshet.address)?.start(login)?))
}

fn slots(database: &Database) -> Result<String> {
    let sql = format!("select count(*) from pg_replication_slots where database = '{}'", database.name);
    database.connect()?.value(&sql)
}

/// The address of a MySQL or MariaDB entry that was added, from the log.
fn address_of(freshet: &Freshet, name: &str) -> Result<SocketAddr> {
    let log = freshet.log();
    let line =
        log.lines().rev().find(|line| line.contains("serving") && line.contains(&format!("database=\"{name}\"")));
    let line = line.with_context(|| format!("no {name}: {log}"))?;
    let address = line.split_once("Tcp(").and_then(|(_, rest)| rest.split_once(')')).context("no address")?.0;
    Ok(address.parse()?)
}

#[test]
fn entries_come_and_go() -> Result<()> {
    let (shop, other) = (created("shop")?, created("other")?);
    let maria = mysql::Database::shared(mysql::Kind::Mariadb)?;
    maria.run("create table film (id int primary key, title varchar(100) not null)")?;
    maria.run("insert into film values (1, 'maria')")?;
    let first = format!("admission = \"always\"\n{}", entry("shop", &shop.url(), ""));
    let file = File::new("entries.toml", &first)?;
    let Some(freshet) = start(&file, &shop)? else { return Ok(()) };
    let mut admin = connect(&freshet, &shop, "shop")?;
    ready(&freshet, "shop")?;
    hits(&freshet, "shop", "shop", || admin.value(READ))?;
    ensure!(refused(&freshet, &other, "other")?.as_deref() == Some("3D000"));

    // All or nothing: a name twice; an address that is taken.
    let of_other = entry("other", &other.url(), "");
    let taken = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let holder = TcpListener::bind(taken)?;
    let of_maria = |listen: &str| entry("maria", &maria.url(), &format!("listen = \"{listen}\""));
    for broken in [format!("{of_other}{of_other}"), format!("{of_other}{}", of_maria(&taken.to_string()))] {
        file.write(&format!("{first}{broken}"))?;
        let said = reload(&mut admin).expect_err("a broken file").to_string();
        ensure!(said.contains("other") || said.contains(&taken.to_string()), "{said}");
        ensure!(refused(&freshet, &other, "other")?.as_deref() == Some("3D000"), "a part of it is in force");
    }
    drop(holder);

    let all = format!("{first}{of_other}{}", of_maria("127.0.0.1:0"));
    file.write(&all)?;
    let row = ["database", "shop", "shop, other, maria", "in force"].map(str::to_owned).to_vec();
    // Freshet may have followed the file by itself already.
    let changes = reload(&mut admin)?;
    ensure!(changes.is_empty() || changes.contains(&row), "{changes:?}");
    ready(&freshet, "other")?;
    ready(&freshet, "maria")?;
    let address = address_of(&freshet, "maria")?;
    let mut in_other = connect(&freshet, &other, "other")?;
    let mut in_maria = mysql::RawClient::login(address, maria.login())?;
    hits(&freshet, "other", "other", || in_other.value(READ))?;
    hits(&freshet, "maria", "maria", || in_maria.value(READ))?;
    // Those that come later have all of it, too.
    ensure!(rows(&in_other.query("SHOW CONFIG")?).len() > 10 && slots(&other)? == "1");

    let mut busy = connect(&freshet, &other, "other")?;
    busy.run("begin; update film set title = 'newer' where id = 1")?;
    // Freshet may follow the file before it is told to.
    file.write(&format!("drain_timeout = \"1s\"\n{first}"))?;
    reload(&mut admin)?;
    ends_by_command(&mut in_other)?;
    ensure!(refused(&freshet, &other, "other")?.as_deref() == Some("3D000"));
    let last = in_maria.read()?;
    ensure!(last.payload.starts_with(&[0xff, 0x1d, 0x04]), "not ER_SERVER_SHUTDOWN: {last:?}");
    // A transaction has the time of the drain.
    ends_by_command(&mut busy)?;
    eventually(PATIENCE, || {
        ensure!(slots(&other)? == "0", "its stream goes on: {}", freshet.log());
        ensure!(mysql::RawClient::open(address).is_err(), "its address is open");
        Ok(())
    })?;
    ensure!(!get(freshet.http, "/metrics")?.1.contains("database=\"other\""), "metrics of what is gone");
    hits(&freshet, "shop", "shop", || admin.value(READ))?;

    // It comes back, with nothing of before.
    other.run("update film set title = 'again'")?;
    file.write(&all)?;
    reload(&mut admin)?;
    ready(&freshet, "other")?;
    let mut in_other = connect(&freshet, &other, "other")?;
    hits(&freshet, "other", "again", || in_other.value(READ))?;
    admin.expect_silence()
}

/// From then on others may write to the database without waiting for its stream.
#[test]
fn the_cache_of_a_database_that_leaves_stays_off() -> Result<()> {
    let (shop, other) = (created("shop")?, created("other")?);
    let first = format!("admission = \"always\"\ndrain_timeout = \"3600s\"\n{}", entry("shop", &shop.url(), ""));
    let file = File::new("leaving.toml", &format!("{first}{}", entry("other", &other.url(), "")))?;
    let Some(freshet) = start(&file, &shop)? else { return Ok(()) };
    ready(&freshet, "other")?;
    let mut admin = connect(&freshet, &shop, "shop")?;
    let mut busy = connect(&freshet, &other, "other")?;
    hits(&freshet, "other", "other", || busy.value(READ))?;
    busy.run("begin")?;
    file.write(&first)?;
    reload(&mut admin)?;
    let answer = busy.query("freshet bypass off")?;
    ensure!(rows(&answer) == [["bypass", "on"]], "the cache is on: {answer:?}");
    busy.run("commit")?;
    ends_by_command(&mut busy)?;
    admin.expect_silence()
}

/// A session of the database that takes all names, in one that now has an entry: its writes would not wait for the entry's stream.
#[test]
fn sessions_move_to_an_entry_of_their_own() -> Result<()> {
    let database = created("shop")?;
    let at_top = format!("admission = \"always\"\nupstream = \"{}\"\n", database.server.url_of("postgres"));
    let file = File::new("moving.toml", &at_top)?;
    let Some(freshet) = start(&file, &database)? else { return Ok(()) };
    let login = || Login { database: "postgres", ..database.login() };
    let mut admin = RawClient::login(freshet.address, login())?;
    let (mut idle, mut busy) =
        (connect(&freshet, &database, &database.name)?, connect(&freshet, &database, &database.name)?);
    busy.run("begin; update film set title = 'new'")?;
    file.write(&format!("{at_top}{}", entry("alias", &database.url(), "")))?;
    reload(&mut admin)?;
    ends_by_command(&mut idle)?;
    // Its commit would not wait for the entry's stream.
    ensure!(slots(&database)? == "0", "the stream has begun");
    busy.run("commit")?;
    ends_by_command(&mut busy)?;
    ready(&freshet, "alias")?;
    let mut client = connect(&freshet, &database, &database.name)?;
    hits(&freshet, "alias", "new", || client.value(READ))?;
    admin.expect_silence()
}

/// A session that logs in while its database gets an entry of its own is none of the earlier one.
#[test]
fn a_login_meets_a_reload() -> Result<()> {
    let database = created("shop")?;
    let at_top = format!("upstream = \"{}\"\n", database.server.url_of("postgres"));
    let file = File::new("meeting.toml", &at_top)?;
    let Some(freshet) = start(&file, &database)? else { return Ok(()) };
    let mut console = connect(&freshet, &database, "pgbouncer")?;
    console.query("PAUSE")?;
    let (address, user, name) = (freshet.address, database.login().user.to_owned(), database.name.clone());
    let password = database.login().password.map(str::to_owned);
    let late = thread::spawn(move || {
        let login = Login { user: &user, database: &name, password: password.as_deref(), more: &[] };
        RawClient::login(address, login)
    });
    let before = freshet.metrics()?.of("postgres", "freshet_connections_total");
    eventually(PATIENCE, || {
        let now = freshet.metrics()?.of("postgres", "freshet_connections_total");
        ensure!(now >= before.max(2.0), "it has not come");
        Ok(())
    })?;
    file.write(&format!("{at_top}{}", entry("alias", &database.url(), "")))?;
    reload(&mut console)?;
    ready(&freshet, "alias")?;
    console.query("RESUME")?;
    ends_by_command(&mut late.join().expect("no panic")?)
}

/// Sessions that are busy all the time, while entries come and go: no error, no other answer, and hits go on.
#[test]
fn busy_sessions_notice_nothing() -> Result<()> {
    const CHANGES: usize = 20;
    let (shop, other) = (created("shop")?, created("other")?);
    let first = format!("admission = \"always\"\n{}", entry("shop", &shop.url(), ""));
    let file = File::new("busy.toml", &first)?;
    let Some(freshet) = start(&file, &shop)? else { return Ok(()) };
    let mut admin = connect(&freshet, &shop, "shop")?;
    ready(&freshet, "shop")?;
    hits(&freshet, "shop", "shop", || admin.value(READ))?;
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let read = || -> Result<()> {
        let mut client = connect(&freshet, &shop, "shop")?;
        while !stop.load(Relaxed) {
            ensure!(client.value(READ)? == "shop", "another answer");
            reads.fetch_add(1, Relaxed);
        }
        client.expect_silence()
    };
    let change = |admin: &mut RawClient| -> Result<()> {
        for round in 0..CHANGES {
            let (has_other, staleness) = (round % 2 == 0, round + 1);
            let of_other = if has_other { entry("other", &other.url(), "") } else { String::new() };
            file.write(&format!("max_staleness = \"{staleness}s\"\n{first}{of_other}"))?;
            let before = reads.load(Relaxed);
            reload(admin)?;
            if has_other {
                ready(&freshet, "other")?;
                ensure!(connect(&freshet, &other, "other")?.value(READ)? == "other");
            }
            eventually(PATIENCE, || {
                ensure!(reads.load(Relaxed) > before + 10, "nobody reads");
                Ok(())
            })?;
            hits(&freshet, "shop", "shop", || admin.value(READ))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        let changed = change(&mut admin);
        stop.store(true, Relaxed);
        for reader in readers {
            reader.join().expect("no panic")?;
        }
        changed
    })?;
    let log = freshet.log();
    ensure!(log.matches("database is \"shop, other\"").count() == CHANGES / 2, "{log}");
    admin.expect_silence()
}

/// The entry `*`: a database is opened at its first login, closed when idle, and beyond the bound it passes with a reason.
#[test]
fn any_database_of_a_server() -> Result<()> {
    let (one, other) = (created("one")?, created("other")?);
    let any = entry("*", &one.server.url_of("postgres"), "max_databases = 1\nidle_timeout = \"1s\"");
    let file = File::new("any.toml", &format!("admission = \"always\"\n{any}"))?;
    let Some(freshet) = start(&file, &one)? else { return Ok(()) };
    ensure!(freshet.probes()? == [200; 3], "an entry without databases is not ready");
    ensure!(refused(&freshet, &one, "nobody")?.as_deref() == Some("3D000"));
    ensure!(slots(&one)? == "0" && get(freshet.http, "/cachez?database=nobody")?.0 == 404);
    // A template stays as it is, and can be copied.
    let explained = rows(&connect(&freshet, &one, "template1")?.query("EXPLAIN CACHE select 1")?);
    ensure!(format!("{explained:?}").contains("never opens this database"), "{explained:?}");
    ensure!(!freshet.log().contains("database=\"template1\""), "{}", freshet.log());

    let mut first = connect(&freshet, &one, &one.name)?;
    ensure!(first.value(READ)? == "one", "it waits for nothing");
    ready(&freshet, &one.name)?;
    hits(&freshet, &one.name, "one", || first.value(READ))?;
    first.run("update film set title = 'new'")?;
    ensure!(connect(&freshet, &one, &one.name)?.value(READ)? == "new", "a stale answer");

    // Beyond the bound: the answers are the database's, with a reason.
    let mut beyond = connect(&freshet, &other, &other.name)?;
    ensure!(beyond.value(READ)? == "other" && slots(&other)? == "0");
    let passed = "freshet_passed_total{reason=\"too_many_databases\"}";
    ensure!(freshet.metrics()?.of("*", passed) > 0.0, "{:?}", freshet.metrics()?);
    let explained = rows(&beyond.query(&format!("EXPLAIN CACHE {READ}"))?);
    ensure!(format!("{explained:?}").contains("max_databases"), "{explained:?}");
    let advice = rows(&beyond.query("SHOW ADVICE")?);
    ensure!(format!("{advice:?}").contains("Raise max_databases"), "{advice:?}");

    // An idle one makes room. The sessions beyond the bound end, so that the other one is opened.
    drop(first);
    eventually(PATIENCE, || {
        ensure!(slots(&one)? == "0", "not closed: {}", freshet.log());
        Ok(())
    })?;
    ends_by_command(&mut beyond)?;
    let mut again = eventually(PATIENCE, || {
        let mut client = connect(&freshet, &other, &other.name)?;
        client.value(READ)?;
        ensure!(slots(&other)? == "1", "not opened");
        Ok(client)
    })?;
    hits(&freshet, &other.name, "other", || again.value(READ))?;

    // An entry of its own takes the database over.
    file.write(&format!("admission = \"always\"\n{any}{}", entry("own", &other.url(), "")))?;
    ends_by_command(&mut again)?;
    ready(&freshet, "own")?;
    let mut client = connect(&freshet, &other, &other.name)?;
    hits(&freshet, "own", "other", || client.value(READ))
}

/// A transaction beyond the bound is not cut off when there is a place, and its database's stream waits for its end: its writes would not wait for it.
#[test]
fn a_transaction_beyond_the_bound() -> Result<()> {
    let (one, other) = (created("one")?, created("other")?);
    let any = entry("*", &one.server.url_of("postgres"), "max_databases = 1\nidle_timeout = \"1s\"");
    let file = File::new("beyond.toml", &format!("admission = \"always\"\n{any}"))?;
    let Some(freshet) = start(&file, &one)? else { return Ok(()) };
    let mut first = connect(&freshet, &one, &one.name)?;
    ensure!(first.value(READ)? == "one", "it waits for nothing");
    let mut beyond = connect(&freshet, &other, &other.name)?;
    beyond.run("begin; update film set title = 'written'")?;
    drop(first);
    // A new session is one of the opened database.
    let opened = format!("database=\"{}\"", other.name);
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains(&opened), "not opened: {}", freshet.log());
        Ok(())
    })?;
    let mut reader = connect(&freshet, &other, &other.name)?;
    ensure!(reader.value(READ)? == "other" && slots(&other)? == "0", "the stream does not wait");
    beyond.run("update film set title = 'written twice'")?;
    beyond.run("commit")?;
    ensure!(reader.value(READ)? == "written twice", "a stale answer");
    ends_by_command(&mut beyond)?;
    hits(&freshet, &other.name, "written twice", || reader.value(READ))
}

/// A connection for logical replication runs SQL: it belongs to the database that the entry `*` has opened.
#[test]
fn replication_is_of_the_opened_database() -> Result<()> {
    let one = created("one")?;
    let any = entry("*", &one.server.url_of("postgres"), "");
    let file = File::new("walsender.toml", &format!("admission = \"always\"\n{any}"))?;
    let Some(freshet) = start(&file, &one)? else { return Ok(()) };
    let more = [("replication", "database")];
    let login = Login { more: &more, ..one.login() };
    let mut sender = RawClient::login(freshet.address, login)?;
    let (status, body) = get(freshet.http, &format!("/api/sessions?database={}", one.name))?;
    ensure!(status == 200 && body.contains("\"state\":\"replication\""), "{status} {body}");
    let mut reader = connect(&freshet, &one, &one.name)?;
    hits(&freshet, &one.name, "one", || reader.value(READ))?;
    for round in 0..20 {
        sender.run(&format!("update film set title = 'round {round}'"))?;
        let now = reader.value(READ)?;
        ensure!(now == format!("round {round}"), "{now} in round {round}");
    }
    // One for physical replication belongs to no database.
    let more = [("replication", "true")];
    let login = Login { more: &more, ..one.login() };
    let mut physical = RawClient::login(freshet.address, login)?;
    ensure!(super::tags(&physical.query("IDENTIFY_SYSTEM")?) == "TDCZ", "no answer");
    let (_, body) = get(freshet.http, "/api/sessions?database=*")?;
    ensure!(body.matches("\"state\":\"replication\"").count() == 1, "{body}");
    Ok(())
}

/// PAUSE is in force for databases that are opened, or added, later.
#[test]
fn a_pause_meets_new_databases() -> Result<()> {
    let (one, other) = (created("one")?, created("other")?);
    let any = entry("*", &one.server.url_of("postgres"), "");
    let file = File::new("pause.toml", &any)?;
    let Some(freshet) = start(&file, &one)? else { return Ok(()) };
    let mut admin = connect(&freshet, &one, "pgbouncer")?;
    let mut does = |command: &str| -> Result<()> {
        let answer = admin.query(command)?;
        ensure!(super::tags(&answer) == "CZ", "{command}: {answer:?}");
        Ok(())
    };
    // By a name that has no session yet.
    does(&format!("PAUSE {}", one.name))?;
    does("PAUSE")?;
    file.write(&format!("{any}{}", entry("own", &other.url(), "")))?;
    does("RELOAD")?;
    ready(&freshet, "own")?;
    let (address, login) =
        (freshet.address, (other.login().user.to_owned(), other.login().password.map(str::to_owned)));
    let late = |database: String| {
        let (user, password) = login.clone();
        thread::spawn(move || -> Result<String> {
            let login = Login { user: &user, database: &database, password: password.as_deref(), more: &[] };
            RawClient::login(address, login)?.value(READ)
        })
    };
    let (own, of_one) = (late("own".to_owned()), late(one.name.clone()));
    let waits = |what: &str| {
        time_passes("nobody is let in", Duration::from_millis(300));
        let of_name = |name: &str| -> Result<bool> {
            let (_, body) = get(freshet.http, &format!("/api/sessions?database={name}"))?;
            Ok(body.contains("\"open\":0"))
        };
        ensure!(
            of_name("own")? && of_name("*")? && !own.is_finished() && !of_one.is_finished(),
            "{what}: it is let in"
        );
        Ok(())
    };
    waits("paused")?;
    does("RESUME")?;
    ensure!(own.join().expect("no panic")? == "other", "of the added database");
    time_passes("nor is this one", Duration::from_millis(100));
    ensure!(!of_one.is_finished(), "its own pause is over");
    does(&format!("RESUME {}", one.name))?;
    ensure!(of_one.join().expect("no panic")? == "one", "of the opened database");
    Ok(())
}

/// More names of an entry: one cache, one stream.
#[test]
fn aliases() -> Result<()> {
    let (one, other) = (created("one")?, created("other")?);
    let Some(program) = program()? else { return Ok(()) };
    // As PgBouncer's users have it.
    let (address, login) = (one.address(), one.login());
    let leads = format!(
        "host={} port={} dbname={} user={} password={}",
        address.ip(),
        address.port(),
        one.name,
        login.user,
        login.password.unwrap_or_default()
    );
    let ini = File::new("aliases.ini", &format!("[databases]\nshop = {leads}\nold = {leads}\n"))?;
    let output = std::process::Command::new(program).args(["config", "import", ini.path()]).output()?;
    let toml = String::from_utf8(output.stdout)?;
    ensure!(output.status.success() && toml.contains("aliases = [\"old\"]"), "{toml}");
    let file = File::new("aliases.toml", &format!("admission = \"always\"\n{toml}"))?;
    let Some(freshet) = start(&file, &one)? else { return Ok(()) };
    ready(&freshet, "shop")?;
    let (mut reader, mut writer) = (connect(&freshet, &one, "shop")?, connect(&freshet, &one, "old")?);
    hits(&freshet, "shop", "one", || reader.value(READ))?;
    hits(&freshet, "shop", "one", || writer.value(READ))?;
    for round in 0..20 {
        writer.run(&format!("update film set title = 'round {round}'"))?;
        let now = reader.value(READ)?;
        ensure!(now == format!("round {round}"), "{now} in round {round}");
    }
    ensure!(slots(&one)? == "1", "another stream");
    // They come and go by a reload. What is open stays.
    ensure!(refused(&freshet, &one, "new")?.as_deref() == Some("3D000"));
    let others = entry("other", &other.url(), "aliases = [\"second\"]");
    file.write(&format!("admission = \"always\"\n{}{others}", toml.replace("\"old\"", "\"new\"")))?;
    let said = reload(&mut reader)?;
    ensure!(format!("{said:?}").contains("database.shop.aliases"), "{said:?}");
    ensure!(connect(&freshet, &one, "new")?.value(READ)? == "round 19");
    ensure!(connect(&freshet, &other, "second")?.value(READ)? == "other");
    ensure!(refused(&freshet, &one, "old")?.as_deref() == Some("3D000"), "the old name is still there");
    hits(&freshet, "shop", "round 19", || writer.value(READ))
}
