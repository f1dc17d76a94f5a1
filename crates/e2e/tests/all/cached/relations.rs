//! Relations that stand for others: views, partitioned tables, inheritance parents, materialised views. Reads of them are served from the cache, and
//! are right after every change behind them: of rows, wherever they are stored, or of definitions.

use anyhow::{Context, Result, ensure};

use super::{SEEN_WITHIN, never_hits};
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Message, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    rows_behind_views,
    views_redefined,
    bases_redefined,
    views_that_are_not_cached,
    rows_of_partitions,
    partitions_that_come_and_go,
    rows_of_children,
    children_that_come_and_go,
    materialized_views,
    without_event_triggers,
    explained_by_what_they_stand_for,
);

/// A read with one parameter.
#[derive(Clone, Copy)]
struct Read {
    sql: &'static str,
    value: &'static str,
}

const fn read(sql: &'static str, value: &'static str) -> Read {
    Read { sql, value }
}

impl Read {
    /// As one text, and with the parameter bound.
    fn messages(self) -> [Vec<u8>; 2] {
        let text = self.sql.replace("$1", self.value);
        [query(&text), [unnamed(self.sql, &[self.value.trim_matches('\'')]), sync()].concat()]
    }

    fn direct(self, pair: &Pair) -> Result<Vec<String>> {
        outcome(&pair.database.connect()?.exchange(&self.messages()[0], 1)?)
    }

    /// Both reads through Freshet give this.
    fn gives(self, client: &mut RawClient, expected: &[String]) -> Result<()> {
        for message in self.messages() {
            let found = outcome(&client.exchange(&message, 1)?)?;
            ensure!(found == expected, "{} gives {found:?}, not {expected:?}", self.sql);
        }
        Ok(())
    }

    /// Both reads come from the cache at last.
    fn hits(self, pair: &Pair, client: &mut RawClient) -> Result<()> {
        for message in self.messages() {
            eventually(PATIENCE, || {
                let before = pair.freshet.metrics()?;
                client.exchange(&message, 1)?;
                let after = pair.freshet.metrics()?;
                let hit = !pair.freshet.is_there() || after.hits() > before.hits();
                ensure!(hit, "{} does not hit: {:?}", self.sql, after.passed_since(&before));
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The rows of an answer as text, or the SQLSTATE of a refusal.
fn outcome(messages: &[Message]) -> Result<Vec<String>> {
    if let Some(error) = messages.iter().find(|m| m.tag == b'E') {
        return Ok(vec![error.field(b'C').context("an error without SQLSTATE")?]);
    }
    let value = |value: Option<Vec<u8>>| value.map_or("NULL".into(), |v| String::from_utf8_lossy(&v).into_owned());
    let row = |m: &Message| m.columns().into_iter().map(value).collect::<Vec<_>>().join("|");
    Ok(messages.iter().filter(|m| m.tag == b'D').map(row).collect())
}

/// Each change, made directly, alters what the read gives; it is seen within D although the read came from the cache, and
/// stays seen once it comes from the cache again.
fn follows(pair: &Pair, read: Read, changes: &[&str]) -> Result<()> {
    let mut client = pair.connect()?;
    for change in changes {
        let before = read.direct(pair)?;
        read.hits(pair, &mut client).with_context(|| format!("before {change}"))?;
        read.gives(&mut client, &before).with_context(|| format!("before {change}"))?;
        pair.database.run(change)?;
        let after = read.direct(pair)?;
        ensure!(before != after, "{change} changes nothing of {}", read.sql);
        eventually(SEEN_WITHIN, || read.gives(&mut client, &after)).with_context(|| format!("after {change}"))?;
        read.gives(&mut pair.connect()?, &after).with_context(|| format!("in another session after {change}"))?;
    }
    let last = read.direct(pair)?;
    read.hits(pair, &mut client)?;
    read.gives(&mut client, &last)
}

const VIEWS: &str = "
    create table film (id int primary key, title text not null, genre text);
    insert into film select i, 'film ' || i, case i % 2 when 0 then 'drama' else 'comedy' end from generate_series(1, 20) i;
    create table note (film_id int not null, words text, primary key (film_id, words));
    create view seen as select f.id, f.title, n.words from film f left join note n on n.film_id = f.id
        where f.genre = 'drama';
    create view deep as select id, upper(title) as title, words, (select count(*) from note) as notes from seen
        where words is distinct from 'hidden';";

const DEEP: Read = read("select title, words, notes from deep where id = $1", "4");

fn rows_behind_views(version: Version) -> Result<()> {
    let pair = Pair::new(version, VIEWS)?;
    let rows = [
        "update film set title = 'new' where id = 4",
        "insert into note values (4, 'good')",
        "insert into note values (5, 'elsewhere')",
        "update note set words = 'hidden' where film_id = 4",
        "truncate note",
        "update film set genre = 'comedy' where id = 4",
        "update film set genre = 'drama' where id = 4",
        "delete from film where id = 4",
    ];
    follows(&pair, DEEP, &rows)?;
    // Writes through the view, by a session that then reads its own.
    let mut client = pair.connect()?;
    for (write, expected) in [
        ("insert into seen (id, title) values (31, 'x')", "0"),
        ("insert into film values (32, 'y', 'drama')", "1"),
        ("delete from film where id = 32", "0"),
    ] {
        client.run(write).or_else(|error| if write.contains("seen") { Ok(()) } else { Err(error) })?;
        read("select count(*) from seen where id = $1", "32").gives(&mut client, &[expected.to_owned()])?;
    }
    Ok(())
}

fn views_redefined(version: Version) -> Result<()> {
    let pair = Pair::new(version, VIEWS)?;
    let changes = [
        "create or replace view seen as select f.id, f.title, n.words from film f left join note n on n.film_id = f.id
            where f.genre = 'comedy'",
        "create or replace view seen as select f.id, 'all ' || f.title as title, n.words from film f
            left join note n on n.film_id = f.id",
        "alter view deep rename to deeper; create view deep as select 4 as id, 'other' as title, 'w' as words, 1 as notes",
        "drop view deep; create view deep as select id, title, genre as words, id as notes from film",
        "drop view deep; alter view deeper rename to deep",
        "drop view deep; create table deep (id int primary key, title text, words text, notes int);
            insert into deep values (4, 'a table', 'w', 4)",
        "begin; drop table deep; create view deep as select id, title, genre as words, id as notes from film; commit",
    ];
    follows(&pair, DEEP, &changes)?;
    pair.database.run("drop view deep")?;
    let mut client = pair.connect()?;
    eventually(SEEN_WITHIN, || DEEP.gives(&mut client, &["42P01".to_owned()]))
}

fn bases_redefined(version: Version) -> Result<()> {
    let pair = Pair::new(version, VIEWS)?;
    let changes = [
        // A view goes on with the table it was made over, whatever that is called.
        "alter table film rename column title to name; update film set name = 'renamed column' where id = 4",
        "update film set name = 'and later' where id = 4",
        "alter table film rename to movie; create table film as select * from movie;
            update movie set name = 'renamed table' where id = 4",
        "update movie set name = 'moved on' where id = 4",
        "create schema attic; alter table movie set schema attic; update attic.movie set name = 'moved' where id = 4",
        "begin; drop view deep, seen; alter table attic.movie alter column id type numeric using id + 0.0;
            create view seen as select id, name as title, 'w' as words from attic.movie;
            create view deep as select *, 2 as notes from seen; commit",
        "update attic.movie set name = 'by number' where id = 4.0",
        "alter table attic.movie replica identity full; update attic.movie set name = 'in full' where id = 4",
        "drop table attic.movie cascade; alter table film add primary key (id); create view deep as select id, name as title, 'last' as words, 1 as notes from film",
    ];
    follows(&pair, DEEP, &changes)
}

fn views_that_are_not_cached(version: Version) -> Result<()> {
    let schema = format!(
        "{VIEWS}
        create view clocked as select id, now() as read_at from film;
        create view dated as select id from film where current_date > date '2020-01-01';
        create view of_today as select id from film where ('today'::text)::date > date '2020-01-01';
        create sequence s;
        create view counting as select id, nextval('s') as n from film;
        create view over_counting as select id from counting;
        create view of_system as select oid::int8::int as id from pg_class;
        create table secret (id int primary key); alter table secret enable row level security;
        create view over_secret as select id from secret;
        create table keyless (id int);
        create view over_keyless as select id from keyless;
        create unlogged table fleeting (id int primary key);
        create table parts (id int primary key) partition by range (id);
        create unlogged table part_1 partition of parts for values from (0) to (10);
        create function twice(int) returns int language sql as 'select $1 * 2';
        create view doubled as select twice(id) as id from film;"
    );
    let pair = Pair::new(version, &schema)?;
    let mut client = pair.connect()?;
    let mut wrong = Vec::new();
    for (relation, reason) in [
        ("clocked", "function"),
        ("dated", "function"),
        ("of_today", "clock_literal"),
        ("counting", "function"),
        ("over_counting", "function"),
        ("of_system", "table_kind"),
        ("over_secret", "row_security"),
        ("over_keyless", "no_replica_identity"),
        ("parts", "table_kind"),
        ("doubled", "function"),
    ] {
        let sql = format!("select id from {relation} where id = 1");
        if let Err(error) = never_hits(&pair, &mut client, &sql, reason) {
            wrong.push(format!("{error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Two levels, default partitions, and leaves whose columns have another order.
const PARTS: &str = "
    create table parts (id int, day int, name text, primary key (id, day)) partition by range (id);
    create table part_a (name text, day int not null, id int not null, primary key (id, day));
    alter table parts attach partition part_a for values from (0) to (10);
    create table part_b partition of parts for values from (10) to (20) partition by list (day);
    create table part_b1 partition of part_b for values in (1);
    create table part_b_rest partition of part_b default;
    create table part_rest partition of parts default;
    insert into parts select i, i % 3, case when i % 5 = 0 then 'x' else 'y' end from generate_series(1, 40) i;
    create view over_parts as select name, count(*) as n, sum(id) as total from parts group by name;";

const BY_NAME: Read = read("select count(*), sum(id), sum(day) from parts where name = $1", "'x'");
const OVER_PARTS: Read = read("select n, total from over_parts where name = $1", "'x'");

fn rows_of_partitions(version: Version) -> Result<()> {
    let pair = Pair::new(version, PARTS)?;
    let rows = [
        "insert into part_a values ('x', 5, 6)",
        "insert into parts values (16, 2, 'x')",
        "update part_b1 set name = 'x' where id = 13",
        "update part_b_rest set name = 'x' where id = 12",
        "delete from part_rest where id = 25",
        "update parts set name = 'y' where id = 30",
        // Moves between leaves, near and far.
        "update parts set id = 18, day = 1 where id = 16 and day = 2",
        "update parts set id = 106 where id = 6",
        "update parts set id = 7, day = 5 where id = 35 and day = 2",
        "truncate part_b1",
        "update parts set name = 'x' where id between 1 and 3",
        "truncate part_b",
        "truncate parts",
        "insert into parts values (1, 1, 'x'), (11, 1, 'x'), (12, 0, 'x'), (99, 1, 'x')",
    ];
    for read in [BY_NAME, OVER_PARTS] {
        follows(&pair, read, &rows)?;
        pair.database.run(
            "truncate parts; insert into parts
            select i, i % 3, case when i % 5 = 0 then 'x' else 'y' end from generate_series(1, 40) i",
        )?;
    }
    Ok(())
}

fn partitions_that_come_and_go(version: Version) -> Result<()> {
    for read in [BY_NAME, OVER_PARTS] {
        let pair = Pair::new(version, PARTS)?;
        let changes = [
            "alter table parts detach partition part_a",
            "alter table parts attach partition part_a for values from (0) to (10)",
            "begin; create table part_far partition of parts for values from (1000) to (2000);
                insert into parts values (1001, 0, 'x'); commit",
            "insert into part_far values (1002, 0, 'x')",
            "create table part_b2 (like part_b1 including all); insert into part_b2 values (11, 7, 'x');
                alter table part_b attach partition part_b2 for values in (7)",
            "update part_b2 set name = 'y'; update part_b2 set id = 19, name = 'x'",
            "drop table part_far",
            "alter table part_b detach partition part_b2",
            "drop table part_b",
            "create table part_b partition of parts for values from (10) to (20); insert into part_b values (10, 1, 'x')",
            "alter table parts detach partition part_a",
            "begin; drop table parts cascade; create table parts (id int primary key, day int, name text);
                insert into parts values (1, 2, 'x');
                create view over_parts as select name, count(*) as n, sum(id) as total from parts group by name; commit",
        ];
        follows(&pair, read, &changes)?;
    }
    let pair = Pair::new(version, PARTS)?;
    let mut client = pair.connect()?;
    BY_NAME.hits(&pair, &mut client)?;
    // Not in a transaction block: for new statements the partition is detached from the first of its two commits on.
    pair.database.run("drop table part_rest")?;
    pair.database.run("alter table parts detach partition part_a concurrently")?;
    let after = BY_NAME.direct(&pair)?;
    eventually(SEEN_WITHIN, || BY_NAME.gives(&mut client, &after))
}

const FAMILY: &str = "
    create table parent (id int primary key, name text);
    create table child (extra int, primary key (id)) inherits (parent);
    create table grandchild (more text, primary key (id)) inherits (child);
    insert into parent values (1, 'x'); insert into child values (2, 'x', 2); insert into grandchild values (3, 'x', 3, '');
    create view over_parent as select name, count(*) as n, sum(id) as total from parent group by name;";

const OVER_PARENT: Read = read("select n, total from over_parent where name = $1", "'x'");
const OF_PARENT: Read = read("select id, name, row_to_json(p) from parent p where name = $1 order by id", "'x'");

fn rows_of_children(version: Version) -> Result<()> {
    let pair = Pair::new(version, FAMILY)?;
    let rows = [
        "insert into grandchild values (4, 'x', 4, 'm')",
        "update parent set name = 'y' where id = 2",
        "update only child set name = 'x' where id = 2",
        "update child set id = 40 where id = 4",
        "delete from parent where id = 1",
        "truncate grandchild",
        "insert into grandchild values (5, 'x', 5, 'm')",
        "truncate parent",
        "insert into parent values (1, 'x'); insert into child values (2, 'x', 2); insert into grandchild values (3, 'x')",
    ];
    follows(&pair, OVER_PARENT, &rows)?;
    follows(&pair, OF_PARENT, &rows)
}

fn children_that_come_and_go(version: Version) -> Result<()> {
    let pair = Pair::new(version, FAMILY)?;
    let changes = [
        "alter table grandchild no inherit child",
        "alter table grandchild inherit parent",
        "update grandchild set name = 'y'; update grandchild set id = 33, name = 'x'",
        "begin; create table late (primary key (id)) inherits (child); insert into late values (9, 'x', 9); commit",
        "insert into late values (10, 'x', 10)",
        "alter table late rename to later; update later set id = 11 where id = 9",
        "drop table child cascade",
        "alter table parent rename to elder; alter view over_parent rename to over_elder; create table parent
            (id int primary key, name text); insert into parent values (77, 'x');
            create view over_parent as select name, count(*) as n, sum(id) as total from parent group by name",
        "create table cousin (primary key (id)) inherits (parent); insert into cousin values (78, 'x')",
    ];
    follows(&pair, OVER_PARENT, &changes)?;
    // A temporary child is seen by its own session alone.
    let (mut owner, mut other) = (pair.connect()?, pair.connect()?);
    let before = OVER_PARENT.direct(&pair)?;
    owner.run("create temporary table passing () inherits (parent); insert into passing values (500, 'x')")?;
    let seen = outcome(&owner.exchange(&OVER_PARENT.messages()[0], 1)?)?;
    ensure!(seen != before, "its own child is not in {seen:?}");
    OVER_PARENT.hits(&pair, &mut other)?;
    OVER_PARENT.gives(&mut other, &before)?;
    OVER_PARENT.gives(&mut owner, &seen)
}

fn materialized_views(version: Version) -> Result<()> {
    let schema = format!(
        "{VIEWS}
        create materialized view kept as select id, title from film; create unique index on kept (id);
        create view over_kept as select id, title from kept"
    );
    let pair = Pair::new(version, &schema)?;
    for read in [
        read("select title from kept where id = $1", "4"),
        read("select count(*), max(title) from over_kept where id <= $1", "4"),
    ] {
        let changes = [
            "update film set title = 'zz 1' where id = 4; refresh materialized view kept",
            "update film set title = 'zz 2' where id = 4; refresh materialized view concurrently kept",
            "refresh materialized view kept with no data",
            "refresh materialized view kept",
            "begin; drop materialized view kept cascade; create materialized view kept as select id, 'again' as title from film;
                create unique index on kept (id); create view over_kept as select id, title from kept; commit",
        ];
        let (with_data, without) = (&changes[..2], &changes[2..]);
        follows(&pair, read, with_data)?;
        // Without data it cannot be read.
        let mut client = pair.connect()?;
        for change in without {
            pair.database.run(change)?;
            let after = read.direct(&pair)?;
            eventually(SEEN_WITHIN, || read.gives(&mut client, &after)).with_context(|| (*change).to_owned())?;
        }
        pair.database.run(
            "begin; drop materialized view kept cascade; create materialized view kept as select id, title from film;
            create unique index on kept (id); create view over_kept as select id, title from kept; commit",
        )?;
    }
    Ok(())
}

/// What a REFRESH does is in the stream with the event triggers alone; all else is found by polling.
fn without_event_triggers(version: Version) -> Result<()> {
    let schema = format!("{VIEWS} {PARTS} create materialized view kept as select id, title from film;");
    let pair = Pair::new(version, &schema)?;
    let mut client = pair.connect()?;
    read("select title from kept where id = $1", "4").hits(&pair, &mut client)?;
    let disable = "alter event trigger freshet_ddl_end disable; alter event trigger freshet_sql_drop disable";
    pair.database.run(disable)?;
    eventually(SEEN_WITHIN, || never_hits(&pair, &mut client, "select title from kept where id = 4", "table_kind"))?;
    let changes = [
        "create or replace view seen as select f.id, f.title || '!' as title, 'w' as words from film f",
        "update film set title = 'new' where id = 4",
        "drop view deep; create view deep as select id, title, 'v' as words, 3 as notes from film",
    ];
    follows(&pair, DEEP, &changes)?;
    let changes = [
        "create table part_b2 (like part_b1 including all); insert into part_b2 values (11, 7, 'x');
            alter table part_b attach partition part_b2 for values in (7)",
        "update part_b2 set id = 12",
        "drop table part_b2",
        "alter table parts detach partition part_a",
    ];
    follows(&pair, BY_NAME, &changes)
}

fn explained_by_what_they_stand_for(version: Version) -> Result<()> {
    let pair = Pair::new(version, &format!("{VIEWS} {PARTS} create view clocked as select id, now() from film;"))?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let mut explain = |sql: &str| anyhow::Ok(outcome(&client.query(&format!("EXPLAIN CACHE {sql}"))?)?.join("\n"));
    let deep = "select * from deep, over_parts where id = 4";
    // The session is not known before its first statement, and the tables are published once somebody has asked.
    eventually(PATIENCE, || {
        let text = explain(deep)?;
        ensure!(text.contains("cached|yes"), "{text}");
        for part in ["film", "note", "part_a", "part_b1", "part_b_rest", "part_rest"] {
            ensure!(text.contains(&format!("table|public.{part}")), "no table {part}: {text}");
            ensure!(text.contains(&format!("depends_on|public.{part}: ")), "no rows of {part}: {text}");
        }
        for relation in ["deep", "seen", "over_parts", "parts", "part_b"] {
            ensure!(text.contains(&format!("depends_on|public.{relation}: its definition")), "no {relation}: {text}");
        }
        Ok(())
    })?;
    let text = explain("select id from clocked")?;
    ensure!(text.contains("now in view public.clocked"), "the view is not named: {text}");
    Ok(())
}
