//! Rows behind the last row of a LIMIT do not invalidate the answer; rows before it do.

use anyhow::{Context, Result, ensure};

use super::support::packets::{Value, capability};
use super::support::{Database, Kind, Login, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(what_is_behind_the_last_row, of_a_limit_in_no_order_the_rows_shown_matter);

const SCHEMA: &str = "CREATE TABLE page (id INT UNSIGNED PRIMARY KEY, place BIGINT, price DECIMAL(8,2), \
     made DATETIME(3), day DATE, ratio DOUBLE, body VARCHAR(20)); \
     INSERT INTO page WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 60) \
     SELECT i, i, i + 0.5, TIMESTAMPADD(MINUTE, i, '2026-01-01 00:00:00'), TIMESTAMPADD(DAY, i, '2026-01-01'), i / 7, \
     CONCAT('body ', i) FROM n";

const READS: [&str; 6] = [
    "SELECT id, body FROM page ORDER BY id DESC LIMIT ?",
    "SELECT * FROM page WHERE place > 0 ORDER BY place LIMIT 2, ?",
    "SELECT ratio, made AS at, id FROM page ORDER BY at DESC LIMIT ?",
    "SELECT id, NULL AS nothing, price FROM page WHERE price IS NOT NULL AND body LIKE '%o%' ORDER BY price, id LIMIT ? OFFSET 1",
    "SELECT page.day, page.id FROM page ORDER BY page.day DESC, page.id LIMIT ?",
    // NULL is first.
    "SELECT id, place FROM page ORDER BY place LIMIT ?",
];

const BEHIND: &str = "INSERT INTO page VALUES (0, 1000, 1000, '2025-01-01', '2025-01-01', 0, 'behind')";
const BEFORE: &str = "INSERT INTO page VALUES (1000, NULL, 0, '2027-01-01', '2027-01-01', 0, 'before')";

/// What [`BEHIND`] touches.
const TOUCHED: &str = "SELECT body FROM page WHERE id = 0";

fn until_hit(pair: &Pair, c: &mut RawClient, read: &str, is_prepared: bool) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        ask(c, read, is_prepared)?;
        ensure!(pair.freshet.metrics()?.hits() > before, "{read} ({is_prepared}) does not hit");
        Ok(())
    })
}

fn ask(c: &mut RawClient, read: &str, is_prepared: bool) -> Result<Vec<Vec<u8>>> {
    let answer = if is_prepared {
        let statement = c.prepare(read)?;
        c.execute(statement, &[Value::Integer(4)])?
    } else {
        c.query(&read.replace('?', "4"))?
    };
    ensure!(answer.error().is_none(), "{read}: {:?}", answer.error());
    Ok(answer.rows.iter().map(|at| answer.packets[*at].payload.clone()).collect())
}

fn what_is_behind_the_last_row(kind: Kind) -> Result<()> {
    // Of its own: what other tests define flushes the cache.
    let database = Database::create(kind.start(&Kind::settings())?)?;
    let pair = Pair::over(database, SCHEMA, &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    for capabilities in [capability::MODERN, capability::OLD] {
        behind_and_before(&pair, capabilities)?;
    }
    Ok(())
}

fn behind_and_before(pair: &Pair, capabilities: u32) -> Result<()> {
    let mut direct = pair.database.connect()?;
    let mut c = RawClient::login(pair.address(), Login { capabilities, ..pair.login() })?;
    let all = || READS.iter().flat_map(|read| [(*read, false), (*read, true)]);
    let invalidated = || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.count("freshet_invalidations_total"));
    let fill = |c: &mut RawClient| -> Result<()> {
        rest();
        all().try_for_each(|(read, is_prepared)| until_hit(pair, c, read, is_prepared))
    };
    // Once it is invalidated, the change has been applied.
    let gone_by = |gone: u64| {
        eventually(PATIENCE, || {
            ensure!(invalidated()? > gone, "nothing invalidated");
            Ok(())
        })
    };
    until_hit(pair, &mut c, TOUCHED, false)?;
    fill(&mut c)?;
    let (fills, gone) = (pair.freshet.metrics()?.count("freshet_fills_total"), invalidated()?);
    c.run(BEHIND)?;
    gone_by(gone)?;
    ensure!(invalidated()? == gone + 1, "{} invalidated behind the last row", invalidated()? - gone - 1);
    fill(&mut c)?;
    ensure!(pair.freshet.metrics()?.count("freshet_fills_total") == fills, "filled again");
    for write in [
        BEFORE,
        "UPDATE page SET place = 3, price = 3 WHERE id = 1000",
        "DELETE FROM page WHERE id IN (0, 1000)",
        "UPDATE page SET place = NULL WHERE id = 50",
        "UPDATE page SET place = 50 WHERE id = 50",
    ] {
        fill(&mut c)?;
        let gone = invalidated()?;
        c.run(write)?;
        gone_by(gone).with_context(|| write.to_owned())?;
        for (read, is_prepared) in all() {
            let (expected, got) = (ask(&mut direct, read, is_prepared)?, ask(&mut c, read, is_prepared)?);
            ensure!(expected == got, "{read} ({is_prepared}) after {write}\n  {expected:?}\n  {got:?}");
        }
    }
    Ok(())
}

/// Of four rows each, in no order.
const CUT: [&str; 3] = [
    "SELECT id, body FROM page WHERE body LIKE '%o%' LIMIT ?",
    "SELECT ratio, page.* FROM page LIMIT ?",
    "SELECT n.place, n.page_id, p.id FROM note n JOIN page p ON p.id = n.page_id LIMIT ?",
];

fn of_a_limit_in_no_order_the_rows_shown_matter(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    let schema = format!(
        "{SCHEMA}; CREATE TABLE note (page_id INT UNSIGNED, place BIGINT, body TEXT, PRIMARY KEY (place, page_id)); \
         INSERT INTO note SELECT id, place, body FROM page"
    );
    let pair = Pair::over(database, &schema, &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    for capabilities in [capability::MODERN, capability::OLD] {
        shown_and_not(&pair, capabilities)?;
    }
    Ok(())
}

fn shown_and_not(pair: &Pair, capabilities: u32) -> Result<()> {
    let mut direct = pair.database.connect()?;
    let mut c = RawClient::login(pair.address(), Login { capabilities, ..pair.login() })?;
    let all = || CUT.iter().flat_map(|read| [(*read, false), (*read, true)]);
    let invalidated = || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.count("freshet_invalidations_total"));
    let fill = |c: &mut RawClient| -> Result<()> {
        rest();
        all().try_for_each(|(read, is_prepared)| until_hit(pair, c, read, is_prepared))
    };
    let gone_by = |gone: u64, count: u64| {
        eventually(PATIENCE, || {
            ensure!(invalidated()? >= gone + count, "{} invalidated", invalidated()? - gone);
            Ok(())
        })
    };
    // Once it goes, the changes before it have been applied.
    until_hit(pair, &mut c, TOUCHED, false)?;
    fill(&mut c)?;
    let (fills, gone) = (pair.freshet.metrics()?.count("freshet_fills_total"), invalidated()?);
    for write in [
        "UPDATE page SET body = 'another one', ratio = 5 WHERE id BETWEEN 20 AND 40",
        "UPDATE note SET body = 'another one', place = place + 1000 WHERE place BETWEEN 20 AND 40",
        "UPDATE note SET place = place - 1000 WHERE place > 1000",
        "INSERT INTO note VALUES (50, 2000, 'another one')",
        "DELETE FROM note WHERE place = 2000",
        "INSERT INTO page VALUES (1000, 1000, 1000, '2025-01-01', '2025-01-01', 0, 'one more')",
        "DELETE FROM page WHERE id = 1000",
        "INSERT INTO page VALUES (0, 1000, 1000, '2025-01-01', '2025-01-01', 0, 'behind')",
    ] {
        c.run(write)?;
    }
    gone_by(gone, 1)?;
    ensure!(
        invalidated()? == gone + 1,
        "changes of rows outside the answer invalidated {} results, expected none",
        invalidated()? - gone - 1
    );
    fill(&mut c)?;
    ensure!(pair.freshet.metrics()?.count("freshet_fills_total") == fills, "filled again");
    c.run("DELETE FROM page WHERE id = 0")?;
    for (write, reads) in [
        ("UPDATE page SET body = 'some body' WHERE id <= 4", 2),
        ("UPDATE note SET place = -1 WHERE place = 1", 1),
        ("UPDATE note SET place = 1 WHERE place = -1", 1),
        ("DELETE FROM page WHERE id = 2", 3),
        ("INSERT INTO page VALUES (2, 2, 2, '2025-01-01', '2025-01-01', 0, 'body 2')", 0),
    ] {
        fill(&mut c)?;
        let gone = invalidated()?;
        c.run(write)?;
        gone_by(gone, reads * 2).with_context(|| write.to_owned())?;
        if reads == 0 {
            continue;
        }
        for (read, is_prepared) in all() {
            let (expected, got) = (ask(&mut direct, read, is_prepared)?, ask(&mut c, read, is_prepared)?);
            ensure!(expected == got, "{read} ({is_prepared}) after {write}\n  {expected:?}\n  {got:?}");
        }
    }
    Ok(())
}
