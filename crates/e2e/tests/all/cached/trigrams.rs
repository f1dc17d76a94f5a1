//! Searches by similarity (pg_trgm) are served from the cache, for each session by its own threshold; and the `%` of numbers.

use anyhow::{Result, ensure};

use super::{never_hits, until_hit};
use crate::support::{Pair, Version, on_both};

on_both!(searches_hit);

const SCHEMA: &str = "
    create extension pg_trgm;
    create table author (id int primary key, name text);
    insert into author values (1, 'Anna Seghers'), (2, 'Anne Frank'), (3, 'Thomas Mann'), (4, 'Heinrich Mann');
    create index on author using gin (name gin_trgm_ops);";

const READS: [&str; 6] = [
    "select id, name from author where name % 'Thomas Man' order by id",
    "select id from author order by similarity(name, 'Anne Seghers') desc, id limit 2",
    "select id from author where similarity(name, 'Heinrich') > 0.4 order by id",
    "select word_similarity('Mann', name), show_trgm(name) from author where id = 3",
    "select id from author where id % 2 = 1 order by id",
    "select id, name <-> 'Thomas Man' from author order by name <-> 'Thomas Man', id limit 2",
];

fn searches_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    let steps = [
        "select 1",
        "insert into author values (5, 'Thomas Manning'), (7, 'Anne Seghers')",
        "update author set name = 'Klaus Mann' where id = 3",
        "set pg_trgm.similarity_threshold = 0.9",
        "insert into author values (8, 'Thomas Man')",
        "select set_limit(0.1)",
        "reset pg_trgm.similarity_threshold",
        "delete from author where name % 'Thomas Man'",
    ];
    for step in steps {
        c.run(step)?;
        if step.contains("limit") || step.contains("threshold") {
            direct.run(step)?;
        }
        for read in READS {
            let (expected, got) = (direct.query(read)?, c.query(read)?);
            ensure!(expected == got, "{read} after {step}: expected {expected:?}, got {got:?}");
            until_hit(&pair, &mut c, read)?;
            ensure!(expected == c.query(read)?, "{read} hits wrongly after {step}");
        }
    }
    // The thresholds of these are not known.
    never_hits(&pair, &mut pair.connect()?, "select id from author where 'Mann' <% name", "")?;
    never_hits(&pair, &mut pair.connect()?, "select show_limit()", "function")?;
    // It is what it was before the extension is loaded, but to those who ask.
    let asked = "select current_setting('pg_trgm.similarity_threshold', true)";
    never_hits(&pair, &mut pair.connect()?, asked, "construct")?;
    // A user-defined operator is another one.
    pair.database.run(
        "create function near(text, text) returns boolean language sql as 'select true';
         create function far(text, text) returns float4 language sql as 'select 1::float4';
         create schema own; create operator own.% (leftarg = text, rightarg = text, function = near);
         create operator own.<-> (leftarg = text, rightarg = text, function = far)",
    )?;
    never_hits(&pair, &mut pair.connect()?, READS[0], "user_defined")?;
    never_hits(&pair, &mut pair.connect()?, READS[5], "user_defined")
}
