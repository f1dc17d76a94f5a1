//! The catalogue: DDL of all kinds, foreign keys whose changes are not in the binlog, and tables whose changes are not logged.
//!
//! After a change was acknowledged, the answer through Freshet must be the server's, whether the result was cached before or not.

use anyhow::{Context, Result, ensure};

use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{Freshet, PATIENCE, eventually};

on_both!(
    definitions_change,
    foreign_keys_change_rows,
    foreign_keys_that_are_half_hidden,
    triggers_write_elsewhere,
    tables_that_are_never_cached,
    a_filtered_log,
    tables_that_the_account_may_not_see,
    what_hangs_on_a_definition,
    only_what_is_named_is_read,
    a_transaction_that_stays_prepared,
    a_table_that_stays_locked,
    a_table_that_is_made_for_long,
);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(40), price INT);
    INSERT INTO item VALUES (1, 'one', 10), (2, 'two', 20);
    CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 15";

/// Reads until a read comes from the cache.
fn hits(freshet: &Freshet, client: &mut RawClient, sql: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let before = freshet.metrics()?;
        client.run(sql)?;
        let after = freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "{sql} does not hit: {:?}", after.passed_since(&before));
        Ok(())
    })
    .with_context(|| freshet.log())
}

/// How many of five reads come from the cache.
fn hits_of_five(freshet: &Freshet, client: &mut RawClient, sql: &str) -> Result<u64> {
    let before = freshet.metrics()?.hits();
    for _ in 0..5 {
        client.run(sql)?;
    }
    Ok(freshet.metrics()?.hits() - before)
}

/// The reads come from the cache; the statement changes what they read; then they say what the server says.
fn is_seen(pair: &Pair, statement: &str, reads: &[&str]) -> Result<()> {
    let (mut reader, mut writer, mut direct) = (pair.connect()?, pair.connect()?, pair.database.connect()?);
    for read in reads {
        hits(&pair.freshet, &mut reader, read).with_context(|| format!("before {statement}"))?;
    }
    writer.run(statement)?;
    for read in reads {
        let (through, direct) = (reader.query(read)?, direct.query(read)?);
        let same = through.rows() == direct.rows() && through.error() == direct.error();
        ensure!(same, "after {statement}, {read}:\n through: {through:?}\n direct:  {direct:?}");
    }
    Ok(())
}

fn definitions_change(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (one, all, view) =
        ("SELECT name FROM item WHERE id = 1", "SELECT * FROM item WHERE id = 2", "SELECT * FROM cheap");
    is_seen(&pair, "UPDATE item SET name = 'eins', price = 11 WHERE id = 1", &[one, view])?;
    is_seen(&pair, "ALTER TABLE item ADD COLUMN stock INT DEFAULT 7", &[one, all])?;
    is_seen(&pair, "ALTER TABLE item MODIFY COLUMN stock INT AFTER id", &[all])?;
    is_seen(&pair, "UPDATE item SET price = 99 WHERE id = 2", &[all])?;
    is_seen(&pair, "UPDATE item SET stock = 3 WHERE id = 2", &[one, all])?;
    is_seen(&pair, "ALTER TABLE item DROP COLUMN stock", &[one, all])?;
    is_seen(&pair, "CREATE OR REPLACE VIEW cheap AS SELECT name FROM item WHERE price < 100", &[one, view])?;
    is_seen(&pair, "DROP VIEW cheap", &[one, view])?;
    is_seen(&pair, "CREATE INDEX by_name ON item (name)", &[one])?;
    is_seen(&pair, "TRUNCATE TABLE item", &[one, all])?;
    is_seen(&pair, "INSERT INTO item VALUES (1, 'uno', 1), (2, 'due', 2)", &[one, all])?;
    pair.database.run("CREATE TABLE fresh (id INT PRIMARY KEY, name VARCHAR(40), price INT)")?;
    pair.database.run("INSERT INTO fresh VALUES (1, 'un', 1)")?;
    is_seen(&pair, "RENAME TABLE item TO stale, fresh TO item", &[one, all])?;
    is_seen(&pair, "DROP TABLE item", &[one, all])?;
    pair.database.run("RENAME TABLE stale TO item")?;
    is_seen(&pair, "UPDATE item SET name = 'i' WHERE id = 1", &[one, all])
}

const FAMILY: &str = "CREATE TABLE parent (id INT PRIMARY KEY, name VARCHAR(40));
    CREATE TABLE child (id INT PRIMARY KEY, parent INT,
      FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE);
    CREATE TABLE grandchild (id INT PRIMARY KEY, child INT,
      FOREIGN KEY (child) REFERENCES child (id) ON DELETE SET NULL);
    INSERT INTO parent VALUES (1, 'a'), (2, 'b'), (3, 'c'); INSERT INTO child VALUES (1, 1), (2, 2), (3, 3);
    INSERT INTO grandchild VALUES (1, 1), (2, 2), (3, 3)";

/// What the binlog does not tell of: rows below a parent.
fn family_is_right(pair: &Pair) -> Result<()> {
    let reads = |id: u32| {
        [format!("SELECT parent FROM child WHERE id = {id}"), format!("SELECT child FROM grandchild WHERE id = {id}")]
    };
    let [child, grandchild] = reads(1);
    is_seen(pair, "DELETE FROM parent WHERE id = 1", &[&child, &grandchild])?;
    let [child, grandchild] = reads(2);
    is_seen(pair, "UPDATE parent SET id = 20 WHERE id = 2", &[&child, &grandchild])?;
    // A foreign key that came later; one that went.
    pair.database.run("CREATE TABLE late (id INT PRIMARY KEY, parent INT); INSERT INTO late VALUES (3, 3)")?;
    pair.connect()?.run("ALTER TABLE late ADD FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE")?;
    let [child, grandchild] = reads(3);
    is_seen(pair, "DELETE FROM parent WHERE id = 3", &[&child, &grandchild, "SELECT parent FROM late WHERE id = 3"])
}

fn foreign_keys_change_rows(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, FAMILY)?;
    if pair.freshet.is_there() { family_is_right(&pair) } else { Ok(()) }
}

/// MariaDB does not show the rules of foreign keys to who may only read.
fn foreign_keys_that_are_half_hidden(kind: Kind) -> Result<()> {
    let database = Database::shared(kind)?;
    database.run(FAMILY)?;
    let (pair, _account) = behind_account(database, "SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*")?;
    if pair.freshet.is_there() { family_is_right(&pair) } else { Ok(()) }
}

fn triggers_write_elsewhere(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    pair.database.run("CREATE TABLE log (id INT PRIMARY KEY, line INT); INSERT INTO log VALUES (1, 0)")?;
    let read = "SELECT line FROM log WHERE id = 1";
    let trigger = "CREATE TRIGGER note AFTER UPDATE ON item FOR EACH ROW UPDATE log SET line = line + 1 WHERE id = 1";
    is_seen(&pair, trigger, &[read])?;
    is_seen(&pair, "UPDATE item SET price = 5 WHERE id = 1", &[read, "SELECT price FROM item WHERE id = 1"])?;
    is_seen(&pair, "DROP TRIGGER note", &[read])
}

fn tables_that_are_never_cached(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    pair.database.run("CREATE TABLE isam (id INT PRIMARY KEY) ENGINE = MyISAM; INSERT INTO isam VALUES (1)")?;
    let mut tables = vec!["isam"];
    if kind == Kind::Mariadb {
        let sql = "CREATE TABLE history (id INT PRIMARY KEY) WITH SYSTEM VERSIONING; INSERT INTO history VALUES (1)";
        pair.database.run(sql)?;
        pair.database.run("CREATE SEQUENCE counting; CREATE TABLE memory (id INT) ENGINE = MEMORY")?;
        tables.extend(["history", "counting", "memory"]);
    }
    let mut client = pair.connect()?;
    for table in tables {
        hits(&pair.freshet, &mut client, "SELECT name FROM item WHERE id = 2")?;
        let found = hits_of_five(&pair.freshet, &mut client, &format!("SELECT * FROM {table}"))?;
        ensure!(found == 0, "{table} hits");
    }
    // One becomes fit.
    client.run("ALTER TABLE isam ENGINE = InnoDB")?;
    hits(&pair.freshet, &mut client, "SELECT id FROM isam WHERE id = 1")?;
    is_seen(&pair, "UPDATE isam SET id = 2 WHERE id = 1", &["SELECT id FROM isam WHERE id = 1"])
}

/// TRUNCATE is logged or not by the database in use, whichever table it names: there is no trusting such a log.
fn a_filtered_log(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings().with("binlog-ignore-db = hidden"))?)?;
    database.run(SCHEMA)?;
    let freshet = Freshet::start_unready(database.address(), &database.url(), &[])?;
    if !freshet.is_there() {
        return Ok(());
    }
    database.run("CREATE DATABASE hidden")?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("binlog"), "nothing said: {}", freshet.log());
        Ok(())
    })?;
    ensure!(hits_of_five(&freshet, &mut client, "SELECT name FROM item WHERE id = 1")? == 0, "hits");
    database.run(&format!("USE hidden; TRUNCATE {}.item", database.name))?;
    ensure!(client.query("SELECT name FROM item WHERE id = 1")?.rows().is_empty(), "it is not empty");
    Ok(())
}

/// MariaDB shows the commits of prepared transactions out of order: a new stream waits for them, and says so.
fn a_transaction_that_stays_prepared(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run(SCHEMA)?;
    database.run("XA START 'left'; DELETE FROM item WHERE id = 1; XA END 'left'; XA PREPARE 'left'")?;
    let freshet = Freshet::start_unready(database.address(), &database.url(), &[])?;
    if freshet.is_there() && kind == Kind::Mariadb {
        eventually(PATIENCE, || {
            let (_, said) = freshet.health()?;
            ensure!(said.contains("waits for the prepared transaction 'left' to end"), "/health: {said}");
            Ok(())
        })?;
        database.run("XA ROLLBACK 'left'")?;
    }
    freshet.wait_ready()?;
    if kind == Kind::Mysql {
        // Else the database cannot go.
        database.run("XA ROLLBACK 'left'")?;
    }
    Ok(())
}

fn tables_that_the_account_may_not_see(kind: Kind) -> Result<()> {
    let database = Database::shared(kind)?;
    database.run(SCHEMA)?;
    database.run("CREATE TABLE secret (id INT PRIMARY KEY, a INT, b INT); INSERT INTO secret VALUES (1, 2, 3)")?;
    database.run("CREATE TABLE part (id INT PRIMARY KEY, a INT, b INT); INSERT INTO part VALUES (1, 2, 3)")?;
    let name = database.name.clone();
    let (pair, account) = behind_account(database, "REPLICATION SLAVE, REPLICATION CLIENT ON *.*")?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    for right in ["SELECT ON {}.item", "SELECT (id, a) ON {}.part"] {
        pair.connect()?.run(&format!("GRANT {} TO {account}@'%'", right.replace("{}", &name)))?;
    }
    let mut client = pair.connect()?;
    hits(&pair.freshet, &mut client, "SELECT name FROM item WHERE id = 1")?;
    for table in ["secret", "part"] {
        let sql = format!("SELECT * FROM {table} WHERE id = 1");
        ensure!(hits_of_five(&pair.freshet, &mut client, &sql)? == 0, "{table} hits");
        client.run(&format!("UPDATE {table} SET b = b + 1"))?;
        let answer = client.query(&sql)?.rows();
        ensure!(answer.first().and_then(|row| row.last().cloned().flatten()).as_deref() == Some("4"), "{answer:?}");
    }
    Ok(())
}

/// DDL names one relation, and others are otherwise with it.
fn what_hangs_on_a_definition(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let elsewhere = format!("{}_Elsewhere", pair.database.name);
    pair.database.run(&format!("CREATE DATABASE {elsewhere}"))?;
    let outcome = views_and_children(&pair, &elsewhere);
    pair.database.run(&format!("DROP DATABASE {elsewhere}"))?;
    outcome
}

fn views_and_children(pair: &Pair, elsewhere: &str) -> Result<()> {
    // Views over views: the type of their column decides which strings it equals.
    let name = &pair.database.name;
    pair.database.run("CREATE VIEW Named AS SELECT name, price FROM item; CREATE VIEW top AS SELECT * FROM Named")?;
    let top = "SELECT price FROM top WHERE name = 'one'";
    is_seen(pair, "ALTER TABLE item MODIFY name VARBINARY(40)", &[top])?;
    is_seen(pair, "UPDATE item SET name = 'ONE' WHERE id = 1", &[top])?;
    is_seen(pair, "ALTER TABLE item MODIFY name VARCHAR(40)", &[top])?;
    is_seen(pair, "UPDATE item SET price = 12 WHERE id = 1", &[top, "SELECT * FROM cheap"])?;
    is_seen(pair, "CREATE OR REPLACE VIEW Named AS SELECT 'one' AS name, 1 AS price", &[top])?;
    // The children of a parent that gets another name, of two that change places, and of renamed columns.
    pair.database.run(&format!(
        "CREATE TABLE a (id INT PRIMARY KEY, k INT UNIQUE); CREATE TABLE b LIKE a; INSERT INTO a VALUES (1, 1), (2, 2);
         INSERT INTO b VALUES (1, 1), (2, 2);
         CREATE TABLE {elsewhere}.Child (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES {name}.a (k)
           ON DELETE CASCADE ON UPDATE CASCADE);
         INSERT INTO {elsewhere}.Child VALUES (1, 1), (2, 2)"
    ))?;
    let child = format!("SELECT a FROM {elsewhere}.Child WHERE id = 1");
    is_seen(pair, "UPDATE a SET k = 11 WHERE id = 1", &[&child])?;
    pair.connect()?.run("RENAME TABLE a TO c, b TO a, c TO b")?;
    is_seen(pair, "UPDATE b SET k = 12 WHERE id = 1", &[&child])?;
    pair.connect()?.run("ALTER TABLE b CHANGE k l INT, ADD COLUMN k INT")?;
    is_seen(pair, "UPDATE b SET l = 13 WHERE id = 1", &[&child])?;
    pair.connect()?.run(&format!("ALTER TABLE b ADD COLUMN m INT; RENAME TABLE b TO {elsewhere}.Moved"))?;
    is_seen(pair, &format!("DELETE FROM {elsewhere}.Moved WHERE id = 1"), &[&child])?;
    // An object that is created again under the name of a dropped one.
    let fresh = "SELECT id FROM fresh";
    pair.connect()?.run("CREATE TABLE fresh (id INT PRIMARY KEY); INSERT INTO fresh VALUES (1)")?;
    is_seen(pair, "CREATE OR REPLACE VIEW cheap AS SELECT id FROM fresh", &[fresh, "SELECT * FROM cheap"])?;
    is_seen(pair, "INSERT INTO fresh VALUES (2)", &[fresh, "SELECT * FROM cheap"])?;
    is_seen(pair, "DROP TABLE fresh", &[fresh, "SELECT * FROM cheap"])?;
    is_seen(pair, "CREATE VIEW fresh AS SELECT id FROM item", &["SELECT name FROM item WHERE id = 2"])?;
    is_seen(pair, "DELETE FROM item WHERE id = 2", &[fresh, "SELECT * FROM cheap"])
}

/// A server with many tables is not asked about all of them whenever one is altered.
fn only_what_is_named_is_read(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    let pair = Pair::over(database, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut client, mut direct) = (pair.connect()?, pair.database.connect()?);
    direct.run("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON")?;
    let mut asked = |what: &str| {
        let but_itself = "argument NOT LIKE '%general_log%'";
        let sql = format!("SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE '{what}' AND {but_itself}");
        direct.value(&sql).map(|count| count.parse::<u64>().unwrap_or_default())
    };
    let (one, all) = ("%information_schema.columns WHERE%= \\'item\\'%", "%information_schema.columns WHERE%NOT IN%");
    for statement in ["ALTER TABLE item ADD COLUMN more INT", "CREATE INDEX by_name ON item (name)"] {
        is_seen(&pair, statement, &["SELECT * FROM item WHERE id = 1"])?;
    }
    hits(&pair.freshet, &mut client, "SELECT * FROM item WHERE id = 1")?;
    ensure!(asked(one)? >= 2, "the table was not read");
    ensure!(asked(all)? == 0, "everything was read");
    is_seen(
        &pair,
        "CREATE FUNCTION nothing() RETURNS INT DETERMINISTIC RETURN 1",
        &["SELECT * FROM item WHERE id = 1"],
    )?;
    hits(&pair.freshet, &mut client, "SELECT * FROM item WHERE id = 1")?;
    ensure!(asked(all)? > 0, "after a statement that names no table, not everything was read");
    Ok(())
}

/// A Freshet whose own account has these rights; clients are others.
fn behind_account(database: Database, rights: &str) -> Result<(Pair, String)> {
    let account = format!("{}_reader", database.name);
    database.run(&format!("CREATE USER {account}@'%' IDENTIFIED BY 'secret'; GRANT {rights} TO {account}@'%'"))?;
    let url = format!("mysql://{account}:secret@{}/?ssl-mode=disabled", database.address());
    let freshet = Freshet::start_unready(database.address(), &url, &[])?;
    freshet.wait_ready()?;
    Ok((Pair { freshet, database }, account))
}

/// A lock that lasts holds up what MariaDB says of that table. DDL of other tables is read all the same, and their results are filled.
fn a_table_that_stays_locked(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.database.run("CREATE TABLE locked (id INT PRIMARY KEY, n INT); INSERT INTO locked VALUES (1, 1)")?;
    let (mut c, mut owner, mut direct) = (pair.connect()?, pair.database.connect()?, pair.database.connect()?);
    let (read, locked) = ("SELECT name FROM item WHERE id = 1", "SELECT n FROM locked WHERE id = 1");
    for sql in [read, locked] {
        hits(&pair.freshet, &mut c, sql)?;
    }
    owner.run("LOCK TABLES locked WRITE")?;
    direct.run("ALTER TABLE item ADD note VARCHAR(9)")?;
    direct.run("UPDATE item SET name = 'other' WHERE id = 1")?;
    eventually(PATIENCE, || {
        ensure!(c.value(read)? == "other", "an old row");
        Ok(())
    })?;
    hits(&pair.freshet, &mut c, read)?;
    owner.run("UPDATE locked SET n = 2")?;
    owner.run("UNLOCK TABLES")?;
    eventually(PATIENCE, || {
        ensure!(c.value(locked)? == "2", "an old row");
        Ok(())
    })?;
    hits(&pair.freshet, &mut c, locked)
}

/// MariaDB shows nothing of a table until it is made, and everything is to be read meanwhile: all but that table is cached again.
fn a_table_that_is_made_for_long(kind: Kind) -> Result<()> {
    if kind == Kind::Mysql {
        return Ok(()); // it refuses such a statement under GTIDs, and reads `information_schema` beside any
    }
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut direct, mut slow) = (pair.connect()?, pair.database.connect()?, pair.database.connect()?);
    let reads = ["SELECT name FROM item WHERE id = 1", "SELECT name FROM cheap WHERE id = 1"];
    direct.run("CREATE TABLE child (id INT PRIMARY KEY, item INT)")?;
    direct.run("ALTER TABLE child ADD FOREIGN KEY (item) REFERENCES item (id) ON DELETE CASCADE")?;
    direct.run("INSERT INTO child VALUES (2, 2)")?;
    for read in reads {
        hits(&pair.freshet, &mut c, read)?;
    }
    let id = slow.value("SELECT CONNECTION_ID()")?;
    let slow = std::thread::spawn(move || slow.query("CREATE TABLE slow SELECT SLEEP(1000) AS n").map(|_| ()));
    let sleeps =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id} AND state = 'User sleep'");
    eventually(PATIENCE, || {
        ensure!(direct.value(&sleeps)? == "1", "it does not sleep");
        Ok(())
    })?;
    // It names no table.
    direct.run("CREATE FUNCTION nothing() RETURNS INT DETERMINISTIC RETURN 1")?;
    direct.run("UPDATE item SET name = 'other' WHERE id = 1")?;
    for read in reads {
        eventually(PATIENCE, || {
            ensure!(c.value(read)? == "other", "an old row");
            Ok(())
        })?;
        hits(&pair.freshet, &mut c, read)?;
    }
    // Foreign keys are known.
    is_seen(&pair, "DELETE FROM item WHERE id = 2", &["SELECT item FROM child WHERE id = 2"])?;
    direct.run(&format!("KILL QUERY {id}"))?;
    slow.join().expect("no panic")?;
    direct.run("CREATE TABLE IF NOT EXISTS slow (n INT)")?;
    hits(&pair.freshet, &mut c, "SELECT n FROM slow WHERE n = 1")?;
    is_seen(&pair, "INSERT INTO slow VALUES (1)", &["SELECT n FROM slow WHERE n = 1"])
}
