//! Rows behind the last row of a LIMIT do not invalidate the answer; rows before it do.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::until_hit;
use crate::support::frames::{Bound, bind, describe_portal, execute, parse_typed, sync};
use crate::support::{
    Database, Freshet, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both_at_length, rest,
};

on_both_at_length!(what_is_behind_the_last_row, explained);

const SCHEMA: &str = "
    create table page (id int primary key, rank int, made timestamp, code text collate \"C\", body text);
    insert into page select i, i, timestamp '2026-01-01' + i * interval '1 minute', 'code ' || 100 + i, 'body ' || i
        from generate_series(1, 100) i;";

/// No row with this number or rank is in any of the answers, and every row with that one is.
const BEHIND: &str = "insert into page values (0, 1000, '2025-01-01', 'z', 'behind')";
const BEFORE: &str = "insert into page values (1000, 0, '2027-01-01', 'a', 'before')";

/// What [`BEHIND`] touches.
const TOUCHED: &str = "select body from page where id = 0";

/// How a statement is asked: its formats of parameters and results.
#[derive(Clone, Copy, Debug)]
enum Way {
    Simple,
    Prepared { binary: i16 },
}

/// Statements of one parameter, the number of rows.
const READS: [&str; 8] = [
    "select id, body from page order by id desc limit $1",
    "select * from page order by rank limit $1 offset 2",
    "select made as at, id from page order by at desc limit $1",
    "select id, code from page order by code, id limit $1",
    "select id, rank from page where body like '%o%' order by rank nulls last, id fetch first $1 rows only",
    "select p.id, p.rank, q.body from page p left join page q on q.id = p.rank and q.id < 50 and q.id > 1 order by p.rank limit $1",
    "select id from page where rank in (select max(rank) from page where rank < 50 and rank > 1) or id > 0 order by page.id desc limit $1",
    "select id, rank from page order by rank desc nulls last limit $1",
];
/// Of these the table that they join or ask beside has tags of its own, and the last is touched by either row.
const PRECISE: usize = 5;

const FOUR: i64 = 4;

fn ask(client: &mut RawClient, read: &str, way: Way) -> Result<Vec<Message>> {
    match way {
        Way::Simple => client.query(&read.replace("$1", &FOUR.to_string())),
        Way::Prepared { binary } => {
            let number = if binary == 1 { FOUR.to_be_bytes().to_vec() } else { FOUR.to_string().into_bytes() };
            let bound = Bound { formats: &[binary], values: &[Some(&number)], results: &[binary] };
            let messages =
                [parse_typed("", read, &[20]), bind("", "", bound), describe_portal(""), execute("", 0), sync()];
            client.exchange(&messages.concat(), 1)
        }
    }
}

fn invalidated(freshet: &Freshet) -> Result<u64> {
    Ok(freshet.metrics()?.count("freshet_invalidations_total"))
}

fn what_is_behind_the_last_row(version: Version) -> Result<()> {
    // Of its own: what other tests define and set flushes the cache.
    let database = Database::create(version.start(&Settings::default())?)?;
    let pair = Pair::over(database, SCHEMA, &["--refresh-share", "0", "--admission", "always"])?;
    let mut direct = pair.database.connect()?;
    let mut c = pair.connect()?;
    let ways = [Way::Simple, Way::Prepared { binary: 0 }, Way::Prepared { binary: 1 }];
    let all = || READS.iter().flat_map(|read| ways.map(|way| (*read, way)));
    let precise = || READS[..PRECISE].iter().flat_map(|read| ways.map(|way| (*read, way)));
    let same = |c: &mut RawClient, direct: &mut RawClient| {
        all().try_for_each(|(read, way)| {
            let (expected, got) = (ask(direct, read, way)?, ask(c, read, way)?);
            ensure!(expected == got, "{read} {way:?}\n  {expected:?}\n  {got:?}");
            Ok(())
        })
    };
    if !pair.freshet.is_there() {
        return same(&mut c, &mut direct);
    }
    let fill = |c: &mut RawClient, reads: &mut dyn Iterator<Item = (&str, Way)>| -> Result<()> {
        rest();
        for (read, way) in reads {
            eventually(PATIENCE, || {
                let before = pair.freshet.metrics()?.hits();
                ask(c, read, way)?;
                ensure!(pair.freshet.metrics()?.hits() > before, "{read} {way:?} does not hit");
                Ok(())
            })?;
        }
        Ok(())
    };
    // Once it is invalidated, the change has been applied.
    until_hit(&pair, &mut c, TOUCHED)?;
    fill(&mut c, &mut precise())?;
    let (fills, gone) = (pair.freshet.metrics()?.count("freshet_fills_total"), invalidated(&pair.freshet)?);
    c.run(BEHIND)?;
    eventually(PATIENCE, || {
        ensure!(invalidated(&pair.freshet)? > gone, "nothing invalidated");
        Ok(())
    })?;
    ensure!(
        invalidated(&pair.freshet)? == gone + 1,
        "{} invalidated behind the last row",
        invalidated(&pair.freshet)? - gone - 1
    );
    fill(&mut c, &mut precise())?;
    ensure!(pair.freshet.metrics()?.count("freshet_fills_total") == fills, "filled again");
    same(&mut c, &mut direct)?;
    fill(&mut c, &mut all())?;
    let gone = invalidated(&pair.freshet)?;
    for write in [
        BEFORE,
        "update page set rank = null where id = 1000",
        "update page set rank = 3, body = 'none' where id = 1000",
        "delete from page where id = 1000",
        "update page set id = 2000 where id = 50",
        "delete from page where id in (1, 2, 3, 99, 100)",
    ] {
        fill(&mut c, &mut all())?;
        c.run(write)?;
        same(&mut c, &mut direct)?;
    }
    eventually(PATIENCE, || {
        let gone = invalidated(&pair.freshet)? - gone;
        ensure!(gone as usize >= READS.len() * ways.len(), "only {gone} invalidated before the last row");
        Ok(())
    })
}

/// `EXPLAIN CACHE` says what bounds the rows.
fn explained(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    for (sql, rows) in [
        ("select id, body from page order by id desc limit 3", "public.page: id up to the last row's"),
        (
            "select * from page where body = 'x' order by id limit 3",
            "public.page: body = … and id up to the last row's, by the keys of the answer's rows",
        ),
        ("select id from page order by body limit 3", "public.page: body up to the page's last row's"),
        ("select id, count(*) over () from page order by id limit 3", "public.page: any row"),
    ] {
        let messages = c.query(&format!("EXPLAIN CACHE {sql}"))?;
        let text = |m: &Message| {
            m.columns()
                .into_iter()
                .flatten()
                .map(|cell| String::from_utf8_lossy(&cell).into_owned())
                .collect::<Vec<_>>()
        };
        let told: Vec<String> = messages.iter().filter(|m| m.tag == b'D').flat_map(text).collect();
        ensure!(told.iter().any(|cell| cell == rows), "{sql}: {told:?}");
    }
    Ok(())
}
