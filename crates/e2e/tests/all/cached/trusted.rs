//! Functions that are declared immutable are trusted if the operator says so (`--trust-immutable`), and no others.

use anyhow::{Result, ensure};

use super::{never_hits, until_hit};
use crate::support::{Database, PATIENCE, Pair, Version, eventually, on_both};

on_both!(calls_hit, without_the_option_they_pass);

const SCHEMA: &str = "
    create schema app;
    create table item (id int primary key, price int, title text, born date);
    insert into item values (1, 100, 'One', '2024-02-29'), (2, 250, 'Two', '2025-01-01'), (3, 300, 'Three', null);
    create function with_tax(int) returns int language sql immutable as $$ select $1 * 119 / 100 $$;
    create function app.slug(text) returns text language plpgsql immutable as $$ begin return lower($1) || '-x'; end $$;
    create function app.slug(text, int) returns text language sql immutable as $$ select $1 || $2::text $$;
    create function next_day(date) returns date language sql immutable as $$ select $1 + 1 $$;
    create function join_up(text, text) returns text language sql immutable as $$ select coalesce($1 || ',', '') || $2 $$;
    create aggregate joined(text) (sfunc = join_up, stype = text);
    create view taxed as select id, with_tax(price) as price from item;
    create function stable_one(int) returns int language sql stable as $$ select $1 $$;
    create function two_kinds(int) returns int language sql immutable as $$ select $1 $$;
    create function app.two_kinds(text) returns int language sql volatile as $$ select 1 $$;
    create function by_default(int, timestamptz default now()) returns timestamptz language sql immutable as $$ select $2 $$;
    create function name_of(regclass) returns text language sql immutable as $$ select $1::text $$;
    create function several(int) returns setof int language sql immutable as $$ select generate_series(1, $1) $$;
    create function row_of(int) returns item language sql immutable as $$ select 1, $1, 'x', null::date $$;
    create aggregate latest(int) (sfunc = stable_two, stype = int);";

/// Needed before the schema's last aggregate.
const BEFORE: &str = "create function stable_two(int, int) returns int language sql stable as $$ select $2 $$;";

const READS: [&str; 9] = [
    "select with_tax(100)",
    "select id, with_tax(price) from item where id = 1",
    "select id from item where with_tax(price) > 200 order by id",
    "select app.slug(title), app.slug(title, 2) from item order by id",
    "select joined(title order by id) from item",
    "select id, price from taxed order by id",
    "select next_day(born) from item where born = '2024-02-29'",
    "select count(*) from item where next_day('2024-02-28') = born",
    "select price from (select joined(title) as all_of_them from item limit 1) a, item order by id",
];

fn all_hit(pair: &Pair) -> Result<()> {
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    for read in READS {
        until_hit(pair, &mut c, read)?;
        let (expected, got) = (direct.query(read)?, c.query(read)?);
        ensure!(expected == got, "{read}: expected {expected:?}, got {got:?}");
    }
    Ok(())
}

fn calls_hit(version: Version) -> Result<()> {
    let schema = [BEFORE, SCHEMA].concat();
    let pair = Pair::over(Database::shared(version)?, &schema, &["--trust-immutable"])?;
    all_hit(&pair)?;
    let mut c = pair.connect()?;
    // Rows, functions, and what they call.
    let changes = [
        "update item set price = price + 1, title = title || '!' where id = 1",
        "create or replace function with_tax(int) returns int language sql immutable as $$ select $1 * 107 / 100 $$",
        "create or replace function join_up(text, text) returns text language sql immutable as $$ select coalesce($1 || ';', '') || $2 $$",
        "create or replace function app.slug(text) returns text language sql immutable as $$ select upper($1) $$",
        "insert into item values (4, 7, 'Four', '2024-02-29')",
    ];
    for change in changes {
        c.run(change)?;
        let mut direct = pair.database.connect()?;
        for read in READS {
            let (expected, got) = (direct.query(read)?, c.query(read)?);
            ensure!(expected == got, "{read}, {change}: expected {expected:?}, got {got:?}");
        }
        all_hit(&pair)?;
    }
    for (passes, reason) in [
        ("select name_of('item')", "function"),
        ("select stable_one(1)", "function"),
        ("select two_kinds(1)", "function"),
        ("select by_default(1)", "function"),
        ("select several(2)", "function"),
        ("select row_of(2)", "function"),
        ("select latest(id) from item", "function"),
        ("select next_day('today')", "clock_literal"),
    ] {
        never_hits(&pair, &mut pair.connect()?, passes, reason)?;
    }
    // In addition to the session's settings, which are read again.
    c.run("set extra_float_digits = 1")?;
    until_hit(&pair, &mut c, READS[0])?;
    // What is not what it was is not trusted any more.
    c.run("alter function with_tax(int) stable")?;
    eventually(PATIENCE, || never_hits(&pair, &mut pair.connect()?, READS[0], "function"))
}

fn without_the_option_they_pass(version: Version) -> Result<()> {
    let pair = Pair::new(version, &[BEFORE, SCHEMA].concat())?;
    let mut c = pair.connect()?;
    for read in [READS[0], READS[3], READS[4], READS[5]] {
        never_hits(&pair, &mut c, read, "function")?;
    }
    Ok(())
}
