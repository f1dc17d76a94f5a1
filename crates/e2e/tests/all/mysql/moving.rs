//! A key and the clock in one condition: no text comes twice, but its answer is served from the cache up to the next row that the clock decides on.

use anyhow::{Context, Result, bail, ensure};

use super::support::answer::Answer;
use super::support::packets::Value;
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(
    sessions_of_django,
    caches_of_mediawiki,
    prepared_statements,
    time_stamps,
    answers_are_the_databases,
    hits_are_verified
);

const SCHEMA: &str = "CREATE TABLE django_session (session_key VARCHAR(40) NOT NULL PRIMARY KEY, session_data LONGTEXT NOT NULL, \
     expire_date DATETIME(6) NOT NULL, KEY (expire_date)); \
     INSERT INTO django_session VALUES ('k1', 'one', '2030-01-01 12:00:00.5'), ('k2', 'two', '2030-01-02'); \
     CREATE TABLE objectcache (keyname VARBINARY(255) NOT NULL PRIMARY KEY, value MEDIUMBLOB, exptime BINARY(14) NOT NULL, \
     number BIGINT NOT NULL); \
     INSERT INTO objectcache VALUES ('k1', 'one', '20300101120000', 1900000000); \
     CREATE TABLE token (id INT PRIMARY KEY, name VARCHAR(9), made TIMESTAMP NULL, ends TIMESTAMP(6) NULL); \
     INSERT INTO token VALUES (1, 'one', '2030-01-01 10:00:00', '2030-01-01 12:00:00.5'), (2, 'two', NULL, NULL)";

fn session(key: &str, now: &str) -> String {
    format!(
        "SELECT `django_session`.`session_key`, `django_session`.`session_data`, `django_session`.`expire_date` \
         FROM `django_session` WHERE (`django_session`.`expire_date` > '{now}' AND `django_session`.`session_key` = '{key}') \
         LIMIT 21"
    )
}

fn noon(micros: u32) -> String {
    format!("2030-01-01 11:{:02}:{:02}.{:06}", micros / 60_000_000, micros / 1_000_000 % 60, micros % 1_000_000)
}

/// Statements that all differ are read until one hits; all answers have so many rows, with this in each.
fn until_moved(pair: &Pair, mut read: impl FnMut() -> Result<Answer>, expected: &[&str]) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        let rows = payloads(&read()?);
        let holds = |(row, text): (&Vec<u8>, &&str)| String::from_utf8_lossy(row).contains(*text);
        assert!(rows.len() == expected.len() && rows.iter().zip(expected).all(holds), "{rows:?}, not {expected:?}");
        let after = pair.freshet.metrics()?;
        let hit = after.hits() > before.hits() || !pair.freshet.is_there();
        ensure!(hit, "no hit; {:?}", after.passed_since(&before));
        rest();
        Ok(())
    })
}

fn payloads(answer: &Answer) -> Vec<Vec<u8>> {
    answer.rows.iter().filter_map(|at| Some(answer.packets.get(*at)?.payload.clone())).collect()
}

fn sessions_of_django(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let mut now = 0;
    let mut next = move || {
        now += 1_007;
        noon(now)
    };
    until_moved(&pair, || c.query(&session("k1", &next())), &["one"])?;
    if pair.freshet.is_there() {
        // The catalogue may be read again at the moment.
        eventually(PATIENCE, || {
            let explained = format!("{:?}", c.query(&format!("EXPLAIN CACHE {}", session("k1", &next())))?.rows());
            ensure!(explained.contains("other values of $1, up to what its rows show"), "{explained}");
            Ok(())
        })?;
    }
    until_moved(&pair, || c.query(&session("k3", &next())), &[])?;
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        for _ in 0..50 {
            c.query(&session("k1", &next()))?;
        }
        let after = pair.freshet.metrics()?;
        let hits = after.hits() - before.hits();
        ensure!(hits >= 45 || !pair.freshet.is_there(), "{hits} hits; {:?}", after.passed_since(&before));
        Ok(())
    })?;
    writer.run("UPDATE django_session SET session_data = 'other' WHERE session_key = 'k1'")?;
    until_moved(&pair, || c.query(&session("k1", &next())), &["other"])?;
    writer.run("INSERT INTO django_session VALUES ('k3', 'three', '2030-01-03')")?;
    until_moved(&pair, || c.query(&session("k3", &next())), &["three"])?;
    writer.run("UPDATE django_session SET expire_date = '2029-01-01' WHERE session_key = 'k3'")?;
    until_moved(&pair, || c.query(&session("k3", &next())), &[])?;
    let at = |micros: u32| format!("2030-01-01 12:00:00.{micros:06}");
    until_moved(&pair, || c.query(&session("k1", &at(499_999))), &["other"])?;
    for (micros, rows) in [(499_998, 1), (499_999, 1), (500_000, 0), (500_001, 0), (0, 1)] {
        assert_eq!(payloads(&c.query(&session("k1", &at(micros)))?).len(), rows, "{micros}");
    }
    Ok(())
}

fn caches_of_mediawiki(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let mut second = 0;
    let mut read = |c: &mut RawClient| {
        second += 1;
        c.query(&format!(
            "SELECT keyname,value,exptime FROM `objectcache` WHERE keyname = 'k1' AND exptime >= '203001011100{:02}'",
            second % 60
        ))
    };
    until_moved(&pair, || read(&mut c), &["one"])?;
    writer.run("UPDATE objectcache SET value = 'other' WHERE keyname = 'k1'")?;
    until_moved(&pair, || read(&mut c), &["other"])?;
    // A column of seconds, as of Laravel's and Drupal's caches.
    let mut now = 1_800_000_000;
    let mut read = |c: &mut RawClient| {
        now += 1;
        c.query(&format!("SELECT value, number FROM objectcache WHERE keyname = 'k1' AND number > {now}"))
    };
    until_moved(&pair, || read(&mut c), &["other"])?;
    writer.run("DELETE FROM objectcache")?;
    until_moved(&pair, || read(&mut c), &[])
}

/// `--verify` asks the database for what an entry of other limits would answer, too, and finds it equal, also while rows change.
fn hits_are_verified(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &["--verify", "0.5", "--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let mut now = 0;
    let mut next = move || {
        now += 1_007;
        noon(now)
    };
    eventually(PATIENCE, || {
        for _ in 0..20 {
            c.query(&session("k1", &next()))?;
        }
        let metrics = pair.freshet.metrics()?;
        let (verified, hits) = (metrics.count("freshet_verified_total"), metrics.hits());
        ensure!(verified >= 20 && hits >= 20, "{verified} verified, {hits} hits");
        Ok(())
    })?;
    for round in 0..50 {
        writer.run(&format!("UPDATE django_session SET session_data = 'round {round}' WHERE session_key = 'k1'"))?;
        for _ in 0..3 {
            let rows = payloads(&c.query(&session("k1", &next()))?);
            ensure!(String::from_utf8_lossy(&rows[0]).contains(&format!("round {round}")), "{rows:?} in round {round}");
        }
    }
    ensure!(pair.freshet.metrics()?.count("freshet_verify_mismatches_total") == 0, "a right answer was found wrong");
    Ok(())
}

fn prepared_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    let by_date =
        c.prepare("SELECT session_data, expire_date FROM django_session WHERE session_key = ? AND expire_date > ?")?;
    let by_number = c.prepare("SELECT value, number FROM objectcache WHERE keyname = 'k1' AND number > ?")?;
    let mut now = 0;
    let mut next = move || {
        now += 1_007;
        now
    };
    until_moved(&pair, || c.execute(by_date, &[Value::Text("k1"), Value::Text(&noon(next()))]), &["one"])?;
    until_moved(&pair, || c.execute(by_number, &[Value::Integer(next().into())]), &["one"])?;
    // As a date of the binary protocol, and with two of them.
    let mut tick = 0;
    let mut second = move || {
        tick += 1;
        tick
    };
    until_moved(&pair, || c.execute(by_date, &[Value::Text("k1"), morning(second())]), &["one"])?;
    // A fraction of a second may be compared or not: a second later it has no part in it.
    let fraction = |micros: u32| Value::Fraction(1, 39_600 + micros / 1_000_000, micros % 1_000_000);
    until_moved(&pair, || c.execute(by_date, &[Value::Text("k1"), fraction(next() * 1_009)]), &["one"])?;
    for (seconds, rows) in [(43_198, 1), (43_199, 1), (43_200, 0)] {
        let at = Value::Fraction(1, seconds, 500_001);
        assert_eq!(payloads(&c.execute(by_date, &[Value::Text("k1"), at])?).len(), rows, "{seconds}");
    }
    let between =
        c.prepare("SELECT session_data, expire_date FROM django_session WHERE expire_date BETWEEN ? AND ?")?;
    let late = |second: u32| Value::January(3, 86_399 - second % 3_600);
    until_moved(&pair, || c.execute(between, &[morning(second()), late(second())]), &["one", "two"])?;
    pair.connect()?.run("UPDATE django_session SET session_data = 'other' WHERE session_key = 'k1'")?;
    until_moved(&pair, || c.execute(by_date, &[Value::Text("k1"), morning(second())]), &["other"])?;
    until_moved(&pair, || c.execute(between, &[morning(second()), late(second())]), &["other", "two"])?;
    for (second, rows) in [(43_200, 1), (43_201, 0), (43_199, 1)] {
        let at = Value::January(1, second);
        assert_eq!(payloads(&c.execute(by_date, &[Value::Text("k1"), at])?).len(), rows, "{second}");
    }
    Ok(())
}

/// So many seconds behind 11:00 on the first.
fn morning(seconds: u32) -> Value<'static> {
    Value::January(1, 39_600 + seconds % 3_600)
}

/// In zones of one offset they are in the order of what is shown.
fn time_stamps(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let mut now = 0;
    let mut next = move || {
        now += 1_007;
        now
    };
    for session in [&mut c, &mut writer] {
        session.run("SET time_zone = '+02:00'")?;
    }
    writer.run("UPDATE token SET ends = '2030-01-01 12:00:00.5'")?;
    let key = |now: &str| format!("SELECT name, ends FROM token WHERE id = 1 AND ends > '{now}'");
    let both =
        |low: &str| format!("SELECT name, ends FROM token WHERE id = 1 AND ends BETWEEN '{low}' AND '2030-01-05'");
    let prepared = c.prepare("SELECT name, ends FROM token WHERE id = 1 AND ends > ?")?;
    for name in ["one", "other", "third"] {
        writer.run(&format!("UPDATE token SET name = '{name}' WHERE id = 1"))?;
        until_moved(&pair, || c.query(&key(&noon(next()))), &[name])?;
        until_moved(&pair, || c.query(&both(&noon(next()))), &[name])?;
        until_moved(&pair, || c.execute(prepared, &[morning(next() / 1_007)]), &[name])?;
    }
    for (micros, rows) in [(499_999, 1), (500_000, 0), (0, 1)] {
        let at = format!("2030-01-01 12:00:00.{micros:06}");
        assert_eq!(payloads(&c.query(&key(&at))?).len(), rows, "{at}");
    }
    // The same moment has another name, and what is beyond all time stamps is compared in another way.
    c.run("SET time_zone = '+00:00'")?;
    for (now, rows) in
        [("2030-01-01 10:00:00.499999", 1), ("2030-01-01 11:00:00.1", 0), ("2039-01-01", 0), ("1960-01-01", 1)]
    {
        for _ in 0..3 {
            assert_eq!(payloads(&c.query(&key(now))?).len(), rows, "{now}");
        }
    }
    Ok(())
}

/// Small and the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[usize::try_from(self.below(items.len() as u64)).unwrap_or_default()]
    }
}

const TABLE: &str = "CREATE TABLE x (id INT PRIMARY KEY, k VARCHAR(9), d DATE, t DATETIME, p DATETIME(3), u DATETIME(6), z TIMESTAMP NULL, \
     s SMALLINT, n INT UNSIGNED, b BIGINT UNSIGNED, m DECIMAL(8,2), y BINARY(14), KEY (t), KEY (p), KEY (u), KEY (d), KEY (z), KEY (n), KEY (y))";
const COLUMNS: [&str; 10] = ["d", "t", "p", "u", "z", "s", "n", "b", "m", "y"];

/// A limit of a column: on a value that rows have, or next to one.
fn limit(random: &mut Random, column: &str) -> String {
    let (day, micros) = (random.below(3) + 1, random.below(4));
    match column {
        "d" if micros == 0 => format!("'2030-01-0{day} 00:00:00.00000{micros}'"),
        "d" => format!("'2030-01-0{day}'"),
        "t" | "p" | "u" | "z" if micros == 3 => format!("'2030-01-0{day} 10:00:00'"),
        "t" | "p" | "u" | "z" => format!("'2030-01-0{day} 10:00:00.{}0000{micros}'", random.below(2) * 5),
        "y" => format!("'2030010{day}10000{micros}'"),
        "m" => format!("{day}.{}", micros * 25),
        _ if micros == 0 => format!("'{day}'"),
        _ => format!("{day}"),
    }
}

fn statement(random: &mut Random) -> String {
    let column = random.one_of(&["d", "t", "t", "p", "p", "u", "u", "z", "s", "n", "b", "m", "y"]);
    let (one, two) = (limit(random, column), limit(random, column));
    let condition = match random.below(8) {
        0 => format!("x.{column} BETWEEN {one} AND {two}"),
        1 => format!("x.{column} >= {one} AND x.{column} < {two}"),
        2 => format!("{one} < x.{column}"),
        3 => format!("x.{column} > {one} AND x.n >= {}", random.below(4)),
        _ => format!("x.{column} {} {one}", random.one_of(&["<", "<=", ">", ">="])),
    };
    let key = random.one_of(&["x.k = 'a'", "x.k = 'b'", "x.id = 3", "x.id IN (1, 2, 5)", "TRUE"]);
    let rest = random.one_of(&[
        "ORDER BY x.id",
        "ORDER BY x.id LIMIT 2",
        "ORDER BY x.t DESC, x.id LIMIT 3",
        "ORDER BY x.d, x.id LIMIT 1",
    ]);
    match random.below(5) {
        0 => format!("SELECT x.*, y.id, y.n FROM x LEFT JOIN x y ON y.id = x.n WHERE {condition} AND {key} {rest}"),
        _ => format!("SELECT x.id, x.{column}, x.n FROM x WHERE {key} AND {condition} {rest}"),
    }
}

fn change(random: &mut Random) -> String {
    let id = random.below(8) + 1;
    if random.below(4) == 0 {
        return format!("DELETE FROM x WHERE id = {id}");
    }
    let mut row = Vec::new();
    for column in COLUMNS {
        let value = limit(random, column);
        row.push(if random.below(6) == 0 { "NULL".to_owned() } else { value });
    }
    format!("REPLACE INTO x VALUES ({id}, {}, {})", random.one_of(&["'a'", "'b'"]), row.join(", "))
}

fn answers_are_the_databases(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, TABLE)?;
    let login = pair.login();
    let mut direct = RawClient::login(pair.database.address(), login)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let mut random = Random(0x5EED_0001);
    let mut hits = 0;
    for _ in 0..16 {
        for _ in 0..2 + random.below(3) {
            let change = change(&mut random);
            writer.run(&change).with_context(|| change.clone())?;
        }
        let statements: Vec<String> = (0..6).map(|_| statement(&mut random)).collect();
        for _ in 0..2 {
            rest();
            let before = pair.freshet.metrics()?.hits();
            for sql in &statements {
                moves(&mut random, (&mut direct, &mut c), sql)?;
            }
            hits += pair.freshet.metrics()?.hits() - before;
        }
    }
    ensure!(hits > 100 || !pair.freshet.is_there(), "{hits} hits: nothing was tested");
    Ok(())
}

/// With its dates and times as parameters of the binary protocol.
fn with_dates(sql: &str) -> (String, Vec<Value<'static>>) {
    let (mut text, mut values) = (Vec::new(), Vec::new());
    for part in sql.split('\'') {
        match part.strip_prefix("2030-01-0").and_then(|rest| rest.split_once(" 10:00:00")) {
            Some((day, fraction)) => {
                let (day, micros) = (day.parse().unwrap_or_default(), fraction.trim_start_matches('.').parse());
                values.push(micros.map_or(Value::January(day, 36_000), |micros| Value::Fraction(day, 36_000, micros)));
                text.push("?");
            }
            None => text.push(part),
        }
    }
    // Where a parameter is, there are no quotes.
    (text.join("'").replace("'?'", "?"), values)
}

/// Reads a statement with limits that move; each answer must be the database's.
fn moves(random: &mut Random, (direct, c): (&mut RawClient, &mut RawClient), sql: &str) -> Result<()> {
    for _ in 0..8 {
        let (micros, day) = (random.below(8), random.below(4) + 1);
        let sql = match random.below(3) {
            0 => sql.replace(".00000", &format!(".0000{micros}")).replace(".50000", &format!(".5000{micros}")),
            1 => sql.replace("2030-01-02", &format!("2030-01-0{day}")).replace("> 1", &format!("> {day}")),
            _ => sql.replace("0100001", &format!("010000{micros}")).replace(">= 2", &format!(">= {day}")),
        };
        let (expected, got) = if random.below(4) == 0 {
            let (sql, values) = with_dates(&sql);
            let (there, here) = (direct.prepare(&sql)?, c.prepare(&sql)?);
            (direct.execute(there, &values)?, c.execute(here, &values)?)
        } else {
            (direct.query(&sql)?, c.query(&sql)?)
        };
        if let Some(error) = expected.error() {
            bail!("{sql}: {error:?}");
        }
        let (expected, got) = (payloads(&expected), payloads(&got));
        let text =
            |rows: &[Vec<u8>]| rows.iter().map(|row| String::from_utf8_lossy(row).into_owned()).collect::<Vec<_>>();
        ensure!(expected == got, "{sql}\n expected {:?}\n got      {:?}", text(&expected), text(&got));
    }
    Ok(())
}
