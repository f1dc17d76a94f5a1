//! Rows that leave an answer are found by its own keys: old rows are logged with their replica identity alone.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use crate::support::frames::{Bound, bind, describe_portal, execute, parse_typed, sync};
use crate::support::{Database, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(rows_of_others_do_not_matter, of_a_limit_in_no_order_the_rows_shown_matter, explained);

const SCHEMA: &str = "
    create table post (id bigint, author_id int, made timestamp, title text, primary key (id) include (title));
    insert into post select i, i % 20 + 1, timestamp '2026-01-01' + i * interval '1 hour', 'post ' || i
        from generate_series(1, 200) i;
    create table remark (post_id bigint, number int, body text, primary key (post_id, number));
    insert into remark select i, 1, 'remark' from generate_series(1, 200) i;
    create table item (id int primary key, kind uuid not null, code text not null, author_id int, unique (kind, code));
    alter table item replica identity using index item_kind_code_key;
    insert into item select i, ('00000000-0000-0000-0000-00000000000' || i % 3)::uuid, 'é ' || i, i % 20 + 1
        from generate_series(1, 200) i;";

/// Of one author each; the last by keys that another table gives, too.
const READS: [&str; 6] = [
    "select * from post where author_id = $1",
    "select made, title, id as number from post where author_id = $1 and title like '%o%' order by made",
    "select id, made from post where author_id = $1 order by made desc limit 3",
    "select kind, code from item where author_id = $1 order by id",
    "select p.id, i.code, i.kind from post p join item i on i.id = p.id where p.author_id = $1 and i.author_id = $1",
    "select p.id, r.body from post p join remark r on r.post_id = p.id where p.author_id = $1",
];

/// The rows with number 4 and 24 are of this one.
const AUTHOR: i32 = 5;

/// How a statement is asked: in text, or prepared with parameters and results in this format.
#[derive(Clone, Copy, Debug)]
enum Way {
    Simple,
    Prepared { binary: i16 },
}

const WAYS: [Way; 3] = [Way::Simple, Way::Prepared { binary: 0 }, Way::Prepared { binary: 1 }];

fn all(reads: &'static [&'static str]) -> impl Iterator<Item = (&'static str, Way)> {
    reads.iter().flat_map(|read| WAYS.map(|way| (*read, way)))
}

fn ask(client: &mut RawClient, (read, way): (&str, Way)) -> Result<Vec<Message>> {
    match way {
        Way::Simple => client.query(&read.replace("$1", &AUTHOR.to_string())),
        Way::Prepared { binary } => {
            let author = if binary == 1 { AUTHOR.to_be_bytes().to_vec() } else { AUTHOR.to_string().into_bytes() };
            let bound = Bound { formats: &[binary], values: &[Some(&author)], results: &[binary] };
            let messages =
                [parse_typed("", read, &[23]), bind("", "", bound), describe_portal(""), execute("", 0), sync()];
            client.exchange(&messages.concat(), 1)
        }
    }
}

/// Each statement in each way is served from the cache.
fn until_hits(pair: &Pair, client: &mut RawClient, reads: &'static [&'static str]) -> Result<()> {
    all(reads).try_for_each(|read| {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?.hits();
            ask(client, read)?;
            ensure!(pair.freshet.metrics()?.hits() > before, "{read:?} does not hit");
            Ok(())
        })
    })
}

/// Writes, and waits until the change is applied and `wanted` results are invalidated. Returns the number of invalidated results.
fn evicted_by(pair: &Pair, write: &str, wanted: usize) -> Result<u64> {
    let before = pair.freshet.metrics()?;
    pair.database.run(write)?;
    eventually(PATIENCE, || {
        let after = pair.freshet.metrics()?;
        let count = |name| after.count(name) - before.count(name);
        let gone = count("freshet_invalidations_total");
        ensure!(count("freshet_commits_total") > 0, "{write} is not delivered");
        ensure!(gone >= wanted as u64, "{write} invalidated {gone} results, expected {wanted}");
        Ok(gone)
    })
}

fn rows_of_others_do_not_matter(version: Version) -> Result<()> {
    // Of its own: what other tests define and set flushes the cache.
    let database = Database::create(version.start(&Settings::default())?)?;
    let pair = Pair::over(database, SCHEMA, &["--refresh-share", "0", "--admission", "always"])?;
    let mut direct = pair.database.connect()?;
    let mut c = pair.connect()?;
    let same = |c: &mut RawClient, direct: &mut RawClient, write: &str| {
        all(&READS).try_for_each(|read| {
            let (expected, got) = (ask(direct, read)?, ask(c, read)?);
            ensure!(expected == got, "{read:?} after {write}\n  {expected:?}\n  {got:?}");
            Ok(())
        })
    };
    if !pair.freshet.is_there() {
        return same(&mut c, &mut direct, "");
    }
    // For tables that were never written, join keys are not read.
    c.run("update post set title = title where id = 20")?;
    c.run("update remark set body = body where post_id = 20")?;
    until_hits(&pair, &mut c, &READS)?;
    let fills = pair.freshet.metrics()?.count("freshet_fills_total");
    for write in [
        "update post set title = 'another' where id = 7",
        "update post set author_id = 9 where id = 8",
        "update post set id = 1007, made = made + interval '9 years' where id = 7",
        "delete from post where id = 1007",
        "delete from post where author_id = 12",
        "insert into post values (1000, 6, '2027-01-01', 'more')",
        "update item set author_id = 9, code = 'another' where id = 7",
        "delete from item where id = 7",
        "insert into item values (1000, '00000000-0000-0000-0000-000000000001', 'more', 6)",
    ] {
        let gone = evicted_by(&pair, write, 0)?;
        ensure!(gone == 0, "{write} invalidated {gone} results, expected none");
    }
    until_hits(&pair, &mut c, &READS)?;
    ensure!(pair.freshet.metrics()?.count("freshet_fills_total") == fills, "filled again");
    same(&mut c, &mut direct, "those")?;
    for (write, reads) in [
        // What leaves, what goes, what comes, what changes; of the latest three and of the others.
        ("update post set author_id = 6 where id = 4", 4),
        ("update post set author_id = 6 where id = 184", 5),
        ("delete from post where id = 24", 4),
        ("delete from post where id = 164", 5),
        ("insert into post values (2000, 5, '2028-01-01', 'post 2000')", 5),
        ("update post set author_id = 5 where id = 6", 4),
        ("update post set title = 'post' where id = 2000", 2),
        ("update post set id = 3000 where id = 2000", 5),
        ("update item set author_id = 6 where id = 44", 2),
        ("delete from item where id = 64", 2),
        ("insert into item values (3000, '00000000-0000-0000-0000-000000000001', 'post 3000', 5)", 2),
        ("update item set code = 'changed' where id = 3000", 2),
    ] {
        evicted_by(&pair, write, reads * WAYS.len())?;
        same(&mut c, &mut direct, write)?;
        until_hits(&pair, &mut c, &READS)?;
    }
    Ok(())
}

/// Of five rows each, in no order.
const CUT: [&str; 5] = [
    "select * from post limit $1",
    "select id, title from post where title like 'p%' fetch first $1 rows only",
    "select number, body, post_id from whole_remark limit $1",
    "select p.id, r.post_id, r.number from post p join whole_remark r on r.post_id = p.id limit $1",
    // These are all.
    "select post_id, number from whole_remark where post_id < $1 limit $1",
];

fn of_a_limit_in_no_order_the_rows_shown_matter(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA} create table whole_remark (post_id bigint, number int, body text, primary key (post_id, number));
         insert into whole_remark select * from remark; alter table whole_remark replica identity full;"
    );
    let database = Database::create(version.start(&Settings::default())?)?;
    let pair = Pair::over(database, &schema, &["--refresh-share", "0", "--admission", "always"])?;
    let mut direct = pair.database.connect()?;
    let mut c = pair.connect()?;
    let same = |c: &mut RawClient, direct: &mut RawClient, write: &str| {
        // Which rows of a join are shown depends on how it is made.
        all(&CUT).filter(|(read, _)| !read.contains("join")).try_for_each(|read| {
            let sorted = |mut messages: Vec<Message>| {
                messages.sort_by_key(|message| format!("{message:?}"));
                messages
            };
            let (expected, got) = (sorted(ask(direct, read)?), sorted(ask(c, read)?));
            ensure!(expected == got, "{read:?} after {write}\n  {expected:?}\n  {got:?}");
            Ok(())
        })
    };
    if !pair.freshet.is_there() {
        return same(&mut c, &mut direct, "");
    }
    until_hits(&pair, &mut c, &CUT)?;
    let fills = pair.freshet.metrics()?.count("freshet_fills_total");
    for write in [
        "insert into post values (1000, 6, '2027-01-01', 'post 1000')",
        "update post set title = 'post' where id > 20",
        "update post set id = 3000 where id = 30",
        "delete from post where id > 100",
        "insert into whole_remark values (1000, 1, 'remark')",
        "update whole_remark set body = 'another' where post_id > 20",
        "update whole_remark set post_id = 2000, number = 2 where post_id = 30",
        "delete from whole_remark where post_id > 100",
    ] {
        let gone = evicted_by(&pair, write, 0)?;
        ensure!(gone == 0, "{write} invalidated {gone} results, expected none");
    }
    until_hits(&pair, &mut c, &CUT)?;
    ensure!(pair.freshet.metrics()?.count("freshet_fills_total") == fills, "filled again");
    for (write, reads) in [
        ("update post set title = 'post' where id = 3", 2),
        ("update post set id = 4000 where id = 2", 2),
        ("update whole_remark set body = 'another' where post_id = 1", 1),
        ("update whole_remark set number = 2 where post_id = 4", 2),
        ("insert into whole_remark values (0, 7, 'one more')", 1),
        ("delete from whole_remark where post_id = 1", 1),
        ("delete from post where id = 1", 2),
    ] {
        evicted_by(&pair, write, reads * WAYS.len())?;
        same(&mut c, &mut direct, write)?;
        until_hits(&pair, &mut c, &CUT)?;
    }
    Ok(())
}

/// `EXPLAIN CACHE` says which tables' rows are told by keys.
fn explained(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    for (sql, rows) in [
        ("select * from post where author_id = 5", "public.post: author_id = …, by the keys of the answer's rows"),
        ("select title from post where author_id = 5", "public.post: author_id = …, by the keys of these rows"),
        ("select * from post where id = 5", "public.post: id = …"),
        ("select * from post limit 5", "public.post: the keys of the answer's rows"),
        ("select count(*) from post where author_id = 5", "public.post: author_id = …, by the keys of these rows"),
        (
            "select * from item order by author_id limit 3",
            "public.item: author_id up to the last row's, by the keys of the answer's rows",
        ),
    ] {
        let messages = c.query(&format!("EXPLAIN CACHE {sql}"))?;
        let cells = messages.iter().filter(|m| m.tag == b'D').flat_map(Message::columns).flatten();
        let told: Vec<String> = cells.map(|cell| String::from_utf8_lossy(&cell).into_owned()).collect();
        ensure!(told.iter().any(|cell| cell == rows), "{sql}: {told:?}");
    }
    Ok(())
}
