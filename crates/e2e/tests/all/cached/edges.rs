//! Constructs at the limits of the analysis: each is served from the cache in another session, and is invalidated by changes of its data.

use anyhow::{Result, ensure};

use super::{SEEN_WITHIN, never_hits, until_hit};
use crate::support::{Pair, Version, eventually, on_both};

on_both!(periods_that_overlap, records_of_json, times_with_zones);

/// Each of these reads hits in a second session, and shows what each of the changes, made beside Freshet, makes of it.
fn hit_and_follow(pair: &Pair, reads: &[&str], changes: &[&str]) -> Result<()> {
    let mut direct = pair.database.connect()?;
    let (mut first, mut second) = (pair.connect()?, pair.connect()?);
    for change in std::iter::once(&"select 1").chain(changes) {
        direct.run(change)?;
        for sql in reads {
            let expected = direct.query(sql)?;
            eventually(SEEN_WITHIN, || {
                ensure!(first.query(sql)? == expected, "{sql} is old after {change}");
                Ok(())
            })?;
            until_hit(pair, &mut first, sql)?;
            until_hit(pair, &mut second, sql)?;
            ensure!(second.query(sql)? == expected, "{sql} differs after {change}");
        }
    }
    Ok(())
}

fn periods_that_overlap(version: Version) -> Result<()> {
    let schema = "create table stay (id int primary key, room int, a date, b date, at timestamptz, lasts interval);
        insert into stay values (1, 1, '2024-01-01', '2024-01-05', '2024-01-01 10:00Z', '1 hour'),
            (2, 1, '2024-02-01', '2024-02-05', '2024-02-01 10:00Z', '2 hours'), (3, 2, null, '2024-02-05', null, null);";
    let pair = Pair::new(version, schema)?;
    let reads = [
        "select id from stay where (a, b) overlaps ('2024-01-03', '2024-01-10') order by id",
        "select id from stay where (at, lasts) overlaps (timestamptz '2024-02-01 11:00Z', interval '1 day') order by id",
        "select a.id, b.id from stay a join stay b on a.id < b.id and (a.a, a.b) overlaps (b.a, b.b) order by 1, 2",
        "select not (a, b) overlaps (date '2024-02-02', date '2024-02-03') from stay where id = 2",
    ];
    let changes = [
        "update stay set a = '2024-01-02', b = '2024-02-04' where id = 2",
        "update stay set a = '2023-12-24' where id = 3",
        "update stay set lasts = '1 minute', at = '2024-02-01 09:00Z' where id = 2",
    ];
    hit_and_follow(&pair, &reads, &changes)?;
    let clock = "select id from stay where (a, b) overlaps ('yesterday', 'tomorrow') order by id";
    never_hits(&pair, &mut pair.connect()?, clock, "clock_literal")
}

fn records_of_json(version: Version) -> Result<()> {
    let schema = r#"create table doc (id int primary key, d jsonb, j json);
        insert into doc values (1, '{"a": 1, "b": "x", "c": [1, 2]}', '[{"a": 1, "t": "2024-01-01"}, {"a": 2}]'), (2, '{"a": 2}', '[]');
        create domain positive as int check (value > 0);"#;
    let pair = Pair::new(version, schema)?;
    let reads = [
        "select d.id, x.a, x.b, x.c from doc d, jsonb_to_record(d.d) as x(a int, b text, c int[]) order by d.id",
        "select x.* from doc, json_to_recordset(j) as x(a numeric(5, 2), t varchar(20)) where id = 1 order by 1",
        "select sum(x.a) from doc d cross join lateral jsonb_to_record(d.d) x(a bigint) where x.a > 0",
        "select x.b from doc d left join jsonb_to_record(d.d) as x(b jsonb) on true where d.id = 1",
        r#"select * from jsonb_to_recordset('[{"a": 1}, {"a": null}]') as x(a int)"#,
    ];
    let changes = [
        r#"update doc set d = '{"a": 7, "b": {"k": 1}, "c": []}' where id = 1"#,
        r#"update doc set j = '[{"a": 3}]' where id = 1"#,
        "delete from doc where id = 2",
    ];
    hit_and_follow(&pair, &reads, &changes)?;
    let mut client = pair.connect()?;
    let dates = "select x.t from doc, json_to_recordset(j) as x(t date) where id = 1";
    never_hits(&pair, &mut client, dates, "construct")?;
    never_hits(
        &pair,
        &mut client,
        "select x.a from doc, jsonb_to_record(d) as x(a positive) where id = 1",
        "construct",
    )?;
    Ok(())
}

/// A `timetz` without an offset takes that of the session's zone today. With summer time that is another in half a year.
fn times_with_zones(version: Version) -> Result<()> {
    let schema = "create table slot (id int primary key, t timetz, ts timetz[], l time);
        insert into slot values (1, '10:00+01', '{10:00+01}', '10:00'), (2, '12:00+02', '{12:00+02}', '12:00');";
    let pair = Pair::new(version, schema)?;
    let reads = [
        "select id, t from slot where t >= '11:00+02' order by id",
        "select id, ts from slot where ts = '{12:00+02}'",
        "select id, t, ts from slot where id < 3 order by id",
        "select id, l from slot where l > '11:00' order by id",
        "select id, t from slot where t >= '08:00+01' and id + 1 > 1 order by id limit 10",
    ];
    hit_and_follow(&pair, &reads, &["update slot set t = '09:00+02', l = '13:00' where id = 1"])?;
    let mut client = pair.connect()?;
    client.run("set timezone = 'Europe/Vienna'")?;
    for sql in [
        "select id from slot where t >= '11:00'",
        r"select id from slot where t >= E'11:00\n'",
        "select id from slot where ts = '{12:00}'",
        "select t at time zone 'America/New_York' from slot",
        "select id from slot where l < t",
    ] {
        never_hits(&pair, &mut client, sql, "clock_literal")?;
    }
    Ok(())
}
