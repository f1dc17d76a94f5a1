//! A key and the clock in one condition: no text comes twice, but its answer is served from the cache up to the next row that the clock decides on.

use anyhow::{Context, Result, bail, ensure};

use crate::support::frames::{Bound, bind, describe_portal, execute, parse, parse_typed, query, sync, unnamed};
use crate::support::{Database, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both, rest};

on_both!(
    sessions_of_django,
    prepared_statements,
    lists_of_the_last_day,
    what_does_not_move,
    answers_are_the_databases,
    hits_are_verified
);

const SCHEMA: &str = "
    create table django_session (session_key varchar(40) not null primary key, session_data text not null,
        expire_date timestamp with time zone not null);
    create index on django_session (expire_date);
    insert into django_session values ('k1', 'one', '2030-01-01 12:00:00.5+00'), ('k2', 'two', '2030-01-02 00:00:00+00');
    create table event (id int primary key, kind text, at timestamp, n int);
    insert into event select i, case when i % 3 = 0 then 'a' else 'b' end, timestamp '2030-01-01' + i * interval '1 hour', i
        from generate_series(1, 40) i;";

/// The instant of so many microseconds after noon, as `psycopg` writes it.
fn noon(micros: u32) -> String {
    format!("2030-01-01 11:{:02}:{:02}.{:06}+00:00", micros / 60_000_000, micros / 1_000_000 % 60, micros % 1_000_000)
}

/// As Django sends it.
fn session(key: &str, now: &str) -> String {
    format!(
        "SELECT \"django_session\".\"session_key\", \"django_session\".\"session_data\", \"django_session\".\"expire_date\" \
         FROM \"django_session\" WHERE (\"django_session\".\"expire_date\" > '{now}'::timestamptz \
         AND \"django_session\".\"session_key\" = '{key}') LIMIT 21"
    )
}

fn values(answer: &[Message]) -> Vec<String> {
    let text = |column: &Option<Vec<u8>>| String::from_utf8_lossy(column.as_deref().unwrap_or(b"-")).into_owned();
    let rows = answer.iter().filter(|message| message.tag == b'D');
    rows.map(|row| row.columns().iter().map(text).collect::<Vec<_>>().join(" ")).collect()
}

/// Texts that all differ are read until one hits; all answers begin so.
fn until_moved(pair: &Pair, mut read: impl FnMut() -> Result<Vec<Message>>, expected: &[&str]) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        let got = values(&read()?);
        let same = got.len() == expected.len() && got.iter().zip(expected).all(|(got, begins)| got.starts_with(begins));
        assert!(same, "{got:?}, not {expected:?}");
        let after = pair.freshet.metrics()?;
        let hit = after.hits() > before.hits() || !pair.freshet.is_there();
        ensure!(hit, "no hit; {:?}", after.passed_since(&before));
        Ok(())
    })
}

/// `--verify` asks the database for what an entry of other limits would answer, too, and finds it equal, also while rows change.
fn hits_are_verified(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &["--verify", "0.5", "--admission", "always"])?;
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
        writer.run(&format!("update django_session set session_data = 'round {round}' where session_key = 'k1'"))?;
        for _ in 0..3 {
            let found = values(&c.query(&session("k1", &next()))?);
            ensure!(found[0].contains(&format!("round {round}")), "{found:?} in round {round}");
        }
    }
    ensure!(pair.freshet.metrics()?.count("freshet_verify_mismatches_total") == 0, "a right answer was found wrong");
    Ok(())
}

fn sessions_of_django(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    c.run("set timezone = 'UTC'")?;
    let mut now = 0;
    let mut next = move || {
        now += 1_007;
        noon(now)
    };
    until_moved(&pair, || c.query(&session("k1", &next())), &["k1 one"])?;
    until_moved(&pair, || c.query(&session("k2", &next())), &["k2 two"])?;
    until_moved(&pair, || c.query(&session("k3", &next())), &[])?;
    // The other spelling, which `psycopg2` sends, and a zone of its own.
    until_moved(&pair, || c.query(&session("k1", &next().replace(' ', "T"))), &["k1 one"])?;
    until_moved(
        &pair,
        || c.query(&session("k1", &next().replace(" 11", " 13").replace("+00:00", "+02:00"))),
        &["k1 one"],
    )?;
    // Many in a row: only the first is not found.
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
    // Whatever changes the row is seen at once.
    writer.run("update django_session set session_data = 'other' where session_key = 'k1'")?;
    until_moved(&pair, || c.query(&session("k1", &next())), &["k1 other"])?;
    writer.run("insert into django_session values ('k3', 'three', '2030-01-03 00:00:00+00')")?;
    until_moved(&pair, || c.query(&session("k3", &next())), &["k3 three"])?;
    writer.run("update django_session set expire_date = '2029-01-01 00:00:00+00' where session_key = 'k3'")?;
    until_moved(&pair, || c.query(&session("k3", &next())), &[])?;
    writer.run("update django_session set expire_date = '2031-01-01 00:00:00+00' where session_key = 'k3'")?;
    until_moved(&pair, || c.query(&session("k3", &next())), &["k3 three"])?;
    writer.run("delete from django_session where session_key = 'k2'")?;
    until_moved(&pair, || c.query(&session("k2", &next())), &[])?;
    // The row goes by time alone: at its very microsecond, not one before.
    let at = |micros: u32| format!("2030-01-01 12:00:00.{micros:06}+00:00");
    until_moved(&pair, || c.query(&session("k1", &at(499_999))), &["k1 other"])?;
    for micros in [499_998, 499_999] {
        assert_eq!(values(&c.query(&session("k1", &at(micros)))?).len(), 1, "{micros}");
    }
    for micros in [500_000, 500_001] {
        assert_eq!(values(&c.query(&session("k1", &at(micros)))?).len(), 0, "{micros}");
    }
    // And is there again for a clock that is late.
    assert_eq!(values(&c.query(&session("k1", &at(0)))?).len(), 1);
    Ok(())
}

fn prepared_statements(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    c.run("set timezone = 'UTC'")?;
    let sql =
        "select session_key, session_data, expire_date from django_session where session_key = $1 and expire_date > $2";
    let mut now = 0;
    let mut next = move || {
        now += 1_007;
        now
    };
    c.exchange(&[parse("s", sql), sync()].concat(), 1)?;
    c.exchange(&[parse_typed("t", sql, &[25, 1184]), sync()].concat(), 1)?;
    // 2030-01-01 11:00:00 in microseconds from 2000.
    let binary = |micros: u32| (946_810_800_000_000 + i64::from(micros)).to_be_bytes();
    for (name, formats, results) in
        [("s", &[0_i16, 0][..], &[][..]), ("s", &[0, 1], &[1]), ("t", &[0, 1], &[0]), ("t", &[0, 0], &[1])]
    {
        let run = || {
            let micros = next();
            let (text, bytes) = (noon(micros), binary(micros));
            let moment: &[u8] = if formats[1] == 0 { text.as_bytes() } else { &bytes };
            let bound = Bound { formats, values: &[Some(b"k1"), Some(moment)], results };
            c.exchange(&[bind("", name, bound), describe_portal(""), execute("", 0), sync()].concat(), 1)
        };
        until_moved(&pair, run, &["k1 one"]).with_context(|| format!("{name} {formats:?} {results:?}"))?;
    }
    // The text of the unnamed statement holds the limit, as some drivers write it.
    let run = || c.exchange(&[unnamed(&session("k1", &noon(next())), &[]), sync()].concat(), 1);
    until_moved(&pair, run, &["k1 one"])
}

fn lists_of_the_last_day(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    let mut second = 0;
    let mut recent = |c: &mut RawClient, rest: &str| {
        second += 1;
        let since = format!("2030-01-02 13:{:02}:{:02}", second / 60, second % 60);
        c.query(&format!("select id, at from event where kind = 'b' and at >= '{since}' {rest}"))
    };
    until_moved(&pair, || recent(&mut c, "order by id"), &["38", "40"])?;
    until_moved(&pair, || recent(&mut c, "order by at desc limit 1"), &["40"])?;
    writer.run("insert into event values (41, 'b', '2030-01-02 15:00:00')")?;
    until_moved(&pair, || recent(&mut c, "order by id"), &["38", "40", "41"])?;
    writer.run("update event set kind = 'a' where id = 38")?;
    until_moved(&pair, || recent(&mut c, "order by id"), &["40", "41"])?;
    writer.run("update event set at = '2030-01-02 16:30:00' where id = 41")?;
    until_moved(&pair, || recent(&mut c, "order by at desc limit 1"), &["41"])
}

/// Each new value is read from the database.
fn what_does_not_move(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    for (sql, why) in [
        ("select id from event where kind = 'a' and n > {}", "it does not show what is limited"),
        ("select id, n from event where kind = 'a' and n > {} order by id offset 1", "OFFSET"),
        ("select count(*), n from event where kind = 'a' and n > {} group by n", "GROUP BY"),
        ("select distinct kind, n from event where kind = 'a' and n > {}", "DISTINCT"),
        ("select id, n, row_number() over (order by id) from event where n > {}", "a window function"),
        ("select id, n from event where kind = 'a' and (n > {} or id = 5)", "OR"),
        ("select id, n from event where kind = 'a' and not n <= {}", "NOT"),
        ("select id, n, n > {} from event where kind = 'a'", "no condition"),
        ("select id, n from event where n > {} union all select 1, 1", "UNION"),
    ] {
        let before = pair.freshet.metrics()?.hits();
        for n in 1..30 {
            c.query(&sql.replace("{}", &n.to_string()))?;
        }
        let hits = pair.freshet.metrics()?.hits() - before;
        ensure!(hits == 0, "{why}: {hits} hits");
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

const TABLE: &str = "create table x (id int primary key, k text, d date, t timestamp, z timestamptz, s smallint, n int, b bigint, m numeric);";

/// A limit of a column: on a value that rows have, or next to one.
fn limit(random: &mut Random, column: &str) -> String {
    let (day, micros) = (random.below(4), random.below(3));
    match column {
        "d" => format!("'2030-01-0{}'", day + 1),
        "t" => format!("'2030-01-0{} 10:00:00.00000{micros}'", day + 1),
        "z" if day == 0 => format!("'2030-01-01 10:00:00.00000{micros}+00'::timestamptz"),
        "z" => format!("'2030-01-0{} 12:00:00.00000{micros}+02:00'", day + 1),
        "m" => format!("{}.{}", day, micros * 5),
        "b" if day == 0 => format!("{}", 3_000_000_000 + micros),
        _ if micros == 0 => format!("'{day}'"),
        _ => format!("{day}"),
    }
}

fn statement(random: &mut Random) -> String {
    let column = random.one_of(&["d", "t", "t", "z", "z", "s", "n", "b", "m"]);
    let one = limit(random, column);
    let two = limit(random, column);
    let condition = match random.below(8) {
        0 => format!("x.{column} BETWEEN {one} AND {two}"),
        1 => format!("x.{column} >= {one} AND x.{column} < {two}"),
        2 => format!("{one} < x.{column}"),
        3 => format!("x.{column} > {one} AND x.n >= {}", random.below(4)),
        _ => format!("x.{column} {} {one}", random.one_of(&["<", "<=", ">", ">="])),
    };
    let key = random.one_of(&["k = 'a'", "k = 'b'", "id = 3", "id in (1, 2, 5)", "true"]);
    let rest =
        random.one_of(&["order by id", "order by id limit 2", "order by t desc, id limit 3", "order by d, id limit 1"]);
    match random.below(6) {
        0 => format!(
            "select x.*, y.id, y.n from x left join x y on y.id = x.n where {condition} and x.{key} {}",
            rest.replace("by ", "by x.").replace(", id", ", x.id")
        )
        .replace("and x.true", ""),
        1 => format!(
            "select id, {column}, n, (select count(*) from x y where y.n < x.n) from x where {key} and {condition} {rest}"
        ),
        _ => format!("select id, {column}, n from x where {key} and {condition} {rest}"),
    }
}

fn change(random: &mut Random) -> String {
    let id = random.below(8) + 1;
    let null = |random: &mut Random, value: String| if random.below(6) == 0 { "null".to_owned() } else { value };
    let mut row = Vec::new();
    for column in ["d", "t", "z", "s", "n", "b", "m"] {
        let value = limit(random, column);
        row.push(null(random, value));
    }
    let kind = random.one_of(&["'a'", "'b'"]);
    match random.below(4) {
        0 => format!("delete from x where id = {id}"),
        1 => {
            let column = ["d", "t", "z", "s", "n", "b", "m"][usize::try_from(id % 7).unwrap_or_default()];
            format!("update x set {column} = {} where id = {id}", limit(random, column))
        }
        _ => format!(
            "insert into x values ({id}, {kind}, {}) on conflict (id) do update set (k, d, t, z, s, n, b, m) = ({kind}, {})",
            row.join(", "),
            row.join(", ")
        ),
    }
    .replace("'null'", "null")
}

fn answers_are_the_databases(version: Version) -> Result<()> {
    for identity in ["default", "full"] {
        let schema = format!("{TABLE} alter table x replica identity {identity}");
        let pair = Pair::new(version, &schema)?;
        let (mut direct, mut c, mut writer) = (pair.database.connect()?, pair.connect()?, pair.connect()?);
        for client in [&mut direct, &mut c] {
            client.run("set timezone = 'UTC'")?;
        }
        let mut random = Random(0x5EED_0001);
        let mut hits = 0;
        for _ in 0..12 {
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
    }
    Ok(())
}

/// Reads a statement with limits that move; each answer must be the database's.
fn moves(random: &mut Random, (direct, c): (&mut RawClient, &mut RawClient), sql: &str) -> Result<()> {
    for _ in 0..8 {
        let (micros, day) = (random.below(6), random.below(3) + 1);
        let sql = match random.below(3) {
            0 => sql.replace(".00000", &format!(".0000{micros}")),
            1 => sql.replace("2030-01-02", &format!("2030-01-0{day}")).replace("> 1", &format!("> {day}")),
            _ => sql.replace("00.000001", &format!("00.00000{micros}")).replace(">= 2", &format!(">= {day}")),
        };
        let message = if random.below(3) == 0 { [unnamed(&sql, &[]), sync()].concat() } else { query(&sql) };
        let (expected, got) = (direct.exchange(&message, 1)?, c.exchange(&message, 1)?);
        if expected.iter().any(|message| message.tag == b'E') {
            bail!("{sql}: {expected:?}");
        }
        ensure!(expected == got, "{sql}\n expected {:?}\n got      {:?}", values(&expected), values(&got));
    }
    Ok(())
}
