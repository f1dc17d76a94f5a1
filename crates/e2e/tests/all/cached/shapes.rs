//! For every form of statement and of its values: once Freshet has caught up with a commit, its answer is the database's.
//!
//! Each round caches all results that Freshet accepts, commits one write around it, waits until Freshet has caught up, and compares every answer
//! with the database's own, frame by frame. The dependencies of a result are derived from the statement's text and its parameters, so this is what
//! the test checks.

use anyhow::{Result, ensure};

use crate::support::frames::{query, sync, unnamed};
use crate::support::{Message, Pair, RawClient, Version, on_both, rest};

on_both!(shapes_of_statements, types_of_extensions, ways_to_write_a_value, ways_to_pass_a_value);

/// A statement with the values of its parameters.
type Read<'a> = (&'a str, &'a [&'a str]);

fn ask(client: &mut RawClient, (sql, values): Read<'_>) -> Result<Vec<Message>> {
    if values.is_empty() {
        return client.exchange(&query(sql), 1);
    }
    client.exchange(&[unnamed(sql, values), sync()].concat(), 1)
}

/// After each of the writes, each of the reads is answered as by the database.
fn stays_true(pair: &Pair, reads: &[Read<'_>], writes: &[&str]) -> Result<()> {
    let (mut direct, mut through) = (pair.database.connect()?, pair.connect()?);
    let before = pair.freshet.metrics()?.hits();
    for write in writes {
        for _ in 0..2 {
            for read in reads {
                ask(&mut through, *read)?;
            }
            rest();
        }
        pair.database.run(write)?;
        rest();
        let mut wrong = Vec::new();
        for read in reads {
            let (expected, got) = (ask(&mut direct, *read)?, ask(&mut through, *read)?);
            if expected != got {
                wrong.push(format!("{read:?}\n   expected {expected:?}\n   got      {got:?}"));
            }
        }
        ensure!(wrong.is_empty(), "after {write}:\n  {}", wrong.join("\n  "));
    }
    if pair.freshet.is_there() {
        let hits = pair.freshet.metrics()?.hits() - before;
        let asked = reads.len() * writes.len();
        ensure!(hits as usize > asked / 4, "only {hits} hits among {asked} reads: nothing was tested");
    }
    Ok(())
}

const STATEMENTS: &[&str] = &[
    "select * from film where id = 5",
    "SELECT F.Title FROM Film F WHERE F.ID = 5",
    "select \"title\" from public.\"film\" where film.id = 5",
    "select title as id from film where id = 5 order by id",
    "select a.title, b.title from film a join film b on b.id = a.prequel where a.id = 5",
    "select a.title, b.title from film a left join film b on b.id = a.prequel where b.id = 4",
    "select a.title from film a, film b where a.id = 5 and b.title = 'film 5'",
    "select f.title, p.actor from film f left join part p on p.film_id = f.id where f.id = 5 order by 2",
    "select f.title, p.actor from part p right join film f on p.film_id = f.id and p.actor = 'actor 5' order by 1, 2",
    "select f.title, p.actor from film f full join part p on p.film_id = f.id and f.id = 5 order by 1, 2",
    "select f.title from film f left join part p on p.film_id = f.id and f.id = 5 where p.actor is null order by 1",
    "select title from film natural join (select 5 as id) x",
    "select title, actor from film join part on id = film_id where id = 5 and actor = 'actor 5'",
    "select title from film where id in (select film_id from part where actor = 'actor 5') order by 1",
    "select title from film f where exists (select 1 from part p where p.film_id = f.id and p.actor = 'actor 5') order by 1",
    "select title from film f where not exists (select 1 from part p where p.film_id = f.id) order by 1",
    "select title from film where id not in (select film_id from part where actor = 'actor 5') order by 1",
    "select title, (select count(*) from part p where p.film_id = f.id) from film f where id = 5",
    "select title from film where id = (select prequel from film where id = 6)",
    "select title from film where votes > (select avg(votes) from film where genre = 'drama') order by id",
    "select count(*), sum(votes), min(title), max(id) from film where genre = 'drama'",
    "select genre, count(*) from film group by genre having count(*) > 3 order by 1",
    "select genre, count(*) from film where id = 5 group by genre",
    "select distinct genre from film order by 1",
    "select title from film order by votes desc limit 1 offset 1",
    "select title from film where id = 5 union select actor from part where film_id = 5 order by 1",
    "select id from film where id = 5 union all select id from film where title = 'film 6' order by 1",
    "select id from film except select film_id from part where actor = 'actor 5' order by 1",
    "with x as (select * from film where id = 5) select title from x",
    "with x as (select 5 as id) select f.title from film f join x using (id)",
    "with film as (select 5 as id, 'shadow' as title) select title from film where id = 5",
    "with film as (select * from film where genre = 'drama') select title from film where id = 6",
    "select title, row_number() over (order by votes desc) from film where id < 7 order by 1",
    "select x.title from (select * from film where genre = 'drama') x where x.id = 6",
    "select f.title, l.n from film f, lateral (select count(*) as n from part p where p.film_id = f.id) l where f.id = 5",
    "select title from film where id = 5 or title = 'film 6' order by 1",
    "select title from film where (id = 5 or id = 6) and genre = 'drama' order by 1",
    "select title from film where id = 5 and id = 6",
    "select title from film where not (id <> 5)",
    "select title from film where (id = 5) is true",
    "select title from film where (id = 5) is not true order by 1",
    "select title from film where case when id = 5 then true else genre = 'drama' end order by 1",
    "select title from film where coalesce(genre, 'none') = 'none' order by 1",
    "select title from film where genre is null order by 1",
    "select title from film where genre is not distinct from 'drama' order by 1",
    "select title from film where (id, title) = (5, 'film 5')",
    "select title from film where id = any (array[5, 6]) order by 1",
    "select title from film where id in (5, 6) order by 1",
    "select title from film where id between 5 and 6 order by 1",
    "select title from film where prequel = 4",
    "select title from film where id = prequel + 1 and id = 5",
    "select title from film where id = votes and votes = 5",
    "select \"select\" from \"Odd Name\" where \"Id\" = 5",
    "select count(*) from film, part",
    "select count(*) from film where false",
    "select title from only film where id = 5",
    "select id, ts_rank(to_tsvector(title), q) from film, to_tsquery('english', 'film & (5 | 6)') q where to_tsvector(title) @@ q order by 1",
    "select id from film where to_tsvector('english', title) @@ websearch_to_tsquery('english', 'films 5') order by 1",
    "select ts_headline(title, plainto_tsquery('drama')), strip(title::tsvector)::text from film where genre @@ 'drama' order by id",
    "select id from film where id = 5 and setweight(to_tsvector('simple'::regconfig, title), 'A') @@ '5:A'::tsquery",
    "table film",
];

fn shapes_of_statements(version: Version) -> Result<()> {
    let schema = "create table film (id int primary key, title text, genre text, votes int, prequel int);
        insert into film select i, 'film ' || i, case i % 3 when 0 then 'drama' when 1 then 'comedy' end, i, i - 1
            from generate_series(1, 12) i;
        create table part (film_id int, actor text, primary key (film_id, actor));
        insert into part select i % 12 + 1, 'actor ' || i % 7 from generate_series(1, 40) i;
        create table \"Odd Name\" (\"Id\" int primary key, \"select\" text); insert into \"Odd Name\" values (5, 'odd');
        alter table part replica identity full;";
    let pair = Pair::new(version, schema)?;
    let reads: Vec<Read<'_>> = STATEMENTS.iter().map(|sql| (*sql, &[][..])).collect();
    let writes = [
        "update film set title = title || '!' where id = 5",
        "update film set votes = 100 where id = 4",
        "update film set genre = 'drama' where id = 5",
        "update film set genre = null where id = 6",
        "insert into part values (5, 'actor 99'), (12, 'actor 5')",
        "delete from part where film_id = 5",
        "delete from part where actor = 'actor 5'",
        "update part set film_id = 5 where film_id = 7",
        "delete from film where id = 5",
        "insert into film values (5, 'film 5', 'western', 5, 4)",
        "update film set id = 50 where id = 5",
        "update film set id = 5 where id = 6",
        "update \"Odd Name\" set \"select\" = 'changed'",
        "truncate part",
    ];
    stays_true(&pair, &reads, &writes)
}

/// Values that are equal need not look alike, and no tag compares them.
const OF_EXTENSIONS: &[&str] = &[
    "select * from member where id = 3",
    "select id, email from member where email = 'MEMBER3@x'",
    "select n from login where email = 'Member4@X'",
    "select m.id, l.n from member m join login l on l.email = m.email where m.id = 3",
    "select m.id, l.n from login l join member m using (email) where l.email = 'member5@x'",
    "select id from member where email in ('nobody', 'MEMBER5@x') order by 1",
    "select id from member where email = any (array['MEMBER5@x', 'new@X']) order by 1",
    "select count(*) from member where email like 'MEMBER%'",
    "select email from member where email between 'M' and 'member4' order by email limit 2",
    "select email, count(*) from member group by email order by email limit 3",
    "select max(email), min(email) from member",
    "select distinct email from login order by 1",
    "select replace(email, 'MEMBER', 'x'), lower(email) from member where id = 3",
    "select id from member where tags -> 'a' = '3' order by id",
    "select id from member where tags @> 'a=>3' order by 1",
    "select id from member where path <@ 'top.x' order by id",
    "select id from member where 'member7@x' = any (also) order by 1",
    "select id from member m where exists (select from login l where l.email = m.email and l.n = 3) order by 1",
    "select l.email from login l left join member m on m.email = l.email where m.id is null order by 1",
    "select id from member where email not in (select email from login) order by 1",
    "select title from film f join member m on m.id = f.id where f.id = 3 and m.email is not null",
    // These are not the extension's.
    "select upper(email) from member where id = 3",
    "select id from member where id = 3 and (email || tags) = '12'",
];

fn types_of_extensions(version: Version) -> Result<()> {
    let schema = "create extension citext; create extension hstore; create extension ltree;
        create table member (id int primary key, email citext unique, tags hstore, path ltree, also citext[]);
        insert into member select i, 'Member' || i || '@x', hstore('a', i::text), ('top.' || chr(96 + i))::ltree, array['m' || i]::citext[]
            from generate_series(1, 12) i;
        create table login (email citext primary key, n int); insert into login select email, id from member where id < 9;
        create table film (id int primary key, title text); insert into film select i, 'film ' || i from generate_series(1, 9) i;
        create function upper(citext) returns text language sql stable as $$ select count(*)::text from login $$;
        create function logins(citext, hstore) returns text language sql stable as
            $$ select (3 + count(*))::text from login $$;
        create operator || (leftarg = citext, rightarg = hstore, function = logins);";
    let pair = Pair::new(version, schema)?;
    let reads: Vec<Read<'_>> = OF_EXTENSIONS.iter().map(|sql| (*sql, &[][..])).collect();
    let writes = [
        "update member set email = 'MeMbEr3@X' where id = 3",
        "update member set email = 'other@x' where id = 3",
        "insert into login values ('OTHER@x', 30)",
        "update login set email = 'mEMBER4@x' where email = 'member4@x'",
        "update login set n = 3 where email = 'MEMBER5@x'",
        "update member set email = 'MEMBER5@X' where id = 5",
        "delete from login where email = 'MEMBER5@X'",
        "insert into member values (20, 'member5@x.y', 'a=>3', 'top.x', null), (21, 'NEW@x', null, 'top.x.y', '{MEMBER7@x}')",
        "update member set tags = tags || 'a=>3', path = 'top.x.z' where id = 7",
        "update member set tags = 'a=>4', path = 'top', also = null where id in (20, 21)",
        "delete from member where id = 7",
    ];
    stays_true(&pair, &reads, &writes)
}

const VALUES: &str = "create table odd (id int primary key, mark int default 0, i int, b bigint, s smallint, n numeric,
        n2 numeric(10,2), t text, v varchar(10), c char(5), bo boolean, u uuid, d date, ts timestamptz, f float8, r real,
        by bytea, ip inet, iv interval);
    insert into odd values (1, 0, 7, 7, 7, 7.0, 7, 'abc', 'abc', 'ab', true, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        '2024-01-02', '2024-01-02 03:04:05+00', 7, 0.5, '\\xabcd', '10.0.0.1', '1 day'),
        (2, 0, 8, 8, 8, 8, 8, 'x', 'x', 'x', false, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2000-01-01',
        '2000-01-01 00:00:00+00', 8, 8, '', '10.0.0.2', '2 days');";

/// The row changes without moving, moves away from all that is asked for, comes back, goes, and is born again.
const VALUE_WRITES: &[&str] = &[
    "update odd set mark = mark + 1",
    "update odd set i = 9, b = 9, s = 9, n = 9, n2 = 9, t = 'y', v = 'y', c = 'y', bo = null, u = null, d = null, ts = null,
        f = 9, r = 9, by = null, ip = null, iv = null where id = 1",
    "update odd set i = 7, b = 7, s = 7, n = 7.000, n2 = 7, t = 'abc', v = 'abc', c = 'ab', bo = true,
        u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', d = '2024-01-02', ts = '2024-01-02 03:04:05+00', f = 7, r = 0.5,
        by = '\\xabcd', ip = '10.0.0.1', iv = '24 hours' where id = 1",
    "delete from odd where id = 1",
    "insert into odd values (3, 9, 7, 7, 7, 7.0, 7, 'abc', 'abc', 'ab', true, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        '2024-01-02', '2024-01-02 03:04:05+00', 7, 0.5, '\\xabcd', '10.0.0.1', '1 day')",
];

/// All of them are true of the first row.
const CONDITIONS: &[&str] = &[
    "i = 7",
    "7 = i",
    "i = '7'",
    "i = ' 7 '",
    "i = '+7'",
    "i = '007'",
    "i = 7.0",
    "i = 7::bigint",
    "i = int '7'",
    "i = +7",
    "-i = -7",
    "i + 0 = 7",
    "i = 6 + 1",
    "i = (select 7)",
    "i::text = '7'",
    "i = '7'::int",
    "i = cast('7' as int)",
    "b = 7",
    "b = '7'",
    "b = 7.0",
    "s = 7",
    "s = 7.00",
    "n = 7",
    "n = 7.0",
    "n = '7'",
    "n = '7e0'",
    "n = '0.7e1'",
    "n = 7e0",
    "n = .7e1",
    "n = 007",
    "n2 = 7",
    "n2 = '7.00'",
    "f = 7",
    "f = '7.0'",
    "r = 0.5",
    "r = '.5'",
    "r = 0.5::float8",
    "t = 'abc'",
    "t = 'a' 'bc'",
    "t = E'a\\x62c'",
    "t = E'\\141bc'",
    "t = U&'\\0061bc'",
    "t = $$abc$$",
    "t = $q$abc$q$",
    "t = 'abc'::varchar",
    "t = 'abc  '::char(5)::text",
    "t || '' = 'abc'",
    "lower(t) = 'abc'",
    "t like 'abc'",
    "t like 'a%'",
    "t ilike 'ABC'",
    "t ~ '^abc$'",
    "t = n'abc'",
    "v = 'abc'",
    "v = 'abc'::text",
    "c = 'ab'",
    "c = 'ab   '",
    "c = 'ab '::text",
    "c::text = 'ab'",
    "c = 'ab'::char(2)",
    "trim(c) = 'ab'",
    "bo",
    "bo is true",
    "bo = true",
    "bo = 't'",
    "bo = 'yes'",
    "bo = 'on'",
    "bo = '1'",
    "not bo is not true",
    "bo <> false",
    "u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
    "u = '{a0eebc999c0b4ef8bb6d6bb9bd380a11}'",
    "d = '2024-01-02'",
    "d = '20240102'",
    "d = date 'Jan 2, 2024'",
    "d = '2024-01-02'::timestamp",
    "ts = '2024-01-02 03:04:05+00'",
    "ts = '2024-01-02 04:04:05+01'",
    "by = '\\xABCD'",
    "by = '\\253\\315'",
    "ip = '10.0.0.1'",
    "ip = '10.0.0.1/32'",
    "iv = '24 hours'",
    "iv = '1 day'",
    "i = 7 and t = 'abc'",
    "i = 7 and t = 'nothing'",
    "i = 7 and n = 7 and c = 'ab'",
    "i in (7)",
    "i = any('{7}')",
    "i is not null and i = 7",
    "(i = 7) = true",
    "i = 7 or i is null",
    "i = null",
    "i = 7 and true",
];

fn ways_to_write_a_value(version: Version) -> Result<()> {
    let pair = Pair::new(version, VALUES)?;
    let texts: Vec<String> =
        CONDITIONS.iter().map(|c| format!("select id, mark from odd where {c} order by id")).collect();
    let reads: Vec<Read<'_>> = texts.iter().map(|sql| (sql.as_str(), &[][..])).collect();
    stays_true(&pair, &reads, VALUE_WRITES)?;
    pair.database.run("truncate odd; alter table odd replica identity full")?;
    pair.database.run(VALUES.split_once(';').map_or("", |(_, insert)| insert))?;
    stays_true(&pair, &reads, VALUE_WRITES)
}

/// Conditions, and ways to pass the value of the first row (and some that are not its value).
const PASSED: &[(&str, &[&str])] = &[
    ("i = $1", &["7", " 7", "7 ", "+7", "007"]),
    ("i = $1::bigint", &["7", "007"]),
    ("i = $1::text::int", &["7", "+7"]),
    ("i::text = $1", &["7", "007"]),
    ("i = $1::numeric", &["7", "7.0", "7e0"]),
    ("i + 1 = $1", &["8"]),
    ("b = $1", &["7", "+7"]),
    ("s = $1", &["7", "007"]),
    ("n = $1", &["7", "7.0", "7e0", "0.7e1", "+7", " 7 "]),
    ("n2 = $1", &["7", "7.00", "7.000"]),
    ("f = $1", &["7", "7.0", "7e0"]),
    ("r = $1", &["0.5", ".5", "5e-1"]),
    ("t = $1", &["abc", "ABC", "abc "]),
    ("v = $1", &["abc"]),
    ("c = $1", &["ab", "ab   ", "ab      "]),
    ("c = $1::text", &["ab", "ab   "]),
    ("c::text = $1", &["ab"]),
    ("bo = $1", &["t", "true", "TRUE", "yes", "y", "on", "1", " t "]),
    (
        "u = $1",
        &[
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
        ],
    ),
    ("d = $1", &["2024-01-02", "20240102", "Jan 2 2024"]),
    ("ts = $1", &["2024-01-02 03:04:05+00", "2024-01-02 04:04:05+01"]),
    ("by = $1", &["\\xabcd", "\\xABCD"]),
    ("ip = $1", &["10.0.0.1", "10.0.0.1/32"]),
    ("iv = $1", &["24 hours", "1 day"]),
    ("t like $1", &["abc", "a%"]),
    ("i = any($1)", &["{7}", "{7,8}"]),
    ("i = 7 and t = $1", &["abc", "other"]),
    ("$1 = i", &["7"]),
    ("i is not distinct from $1", &["7"]),
];

fn ways_to_pass_a_value(version: Version) -> Result<()> {
    let pair = Pair::new(version, VALUES)?;
    let texts: Vec<(String, &[&str])> = PASSED
        .iter()
        .flat_map(|(condition, values)| {
            values
                .chunks(1)
                .map(move |value| (format!("select id, mark from odd where {condition} order by id"), value))
        })
        .collect();
    let reads: Vec<Read<'_>> = texts.iter().map(|(sql, values)| (sql.as_str(), *values)).collect();
    stays_true(&pair, &reads, VALUE_WRITES)?;
    pair.database.run("truncate odd; alter table odd replica identity full")?;
    pair.database.run(VALUES.split_once(';').map_or("", |(_, insert)| insert))?;
    stays_true(&pair, &reads, VALUE_WRITES)
}
