//! Writes that run only built-in code do not change the context; all others may.

use anyhow::{Result, ensure};

use super::keys::asked;
use super::{READ, Twins, each, pair_of};
use crate::support::frames::query;
use crate::support::{Version, on_both};

on_both!(plain_writes_leave_the_context, writes_that_run_other_code);

/// Code that runs where other relations than `plain` are written to or read.
const CODE_ELSEWHERE: &str = "
    create function nothing() returns trigger language plpgsql as $$ begin return new; end $$;
    create function one(int default 0) returns int language sql immutable as 'select 1';
    create table elsewhere (id int primary key default one(), n int check (n > one()));
    create trigger on_elsewhere before update on elsewhere for each row execute function nothing();
    create index by_one on elsewhere ((n + one(n)));
    create view ones as select one(n), n from elsewhere;
    create rule other as on delete to elsewhere do also notify elsewhere;
    create policy those on elsewhere using (id > one())";

/// Types, operators, casts and operator classes of extensions, most of them with columns and indexes in `plain`.
const EXTENSIONS: &str = "
    create extension citext; create extension hstore; create extension pg_trgm; create extension btree_gist;
    create extension isn; create extension unaccent; create extension ltree; create extension earthdistance cascade;
    alter table plain add name citext default 'x', add tags hstore, add path ltree, add isbn isbn13,
        add check (tags -> 'a' is null), add check (name ~ 'x');
    create unique index on plain (name, id); create index on plain using gin (tags);
    create index on plain using gin ((name::text) gin_trgm_ops); create index on plain using gist (n, path);
    create index on plain (hstore(name::text, 'x'))";

/// If only built-in code can run in a write, the context is not read again.
fn plain_writes_leave_the_context(version: Version) -> Result<()> {
    let writes = [
        "insert into plain (id) values (1) on conflict (id) do update set n = plain.n + 1",
        "update plain set n = coalesce(n, 0) + abs(-1) where id in (1, 2) returning id",
        "delete from plain using sample where plain.id = sample.id and sample.id > 1",
    ];
    leave_the_context(version, "", &writes)?;
    leave_the_context(version, EXTENSIONS, &writes)?;
    // What is joined may be a view.
    leave_the_context(version, CODE_ELSEWHERE, &writes[..2])
}

fn leave_the_context(version: Version, more: &str, writes: &[&str]) -> Result<()> {
    let schema = format!("{} create table plain (id int primary key, n int default 7);", super::SCHEMA);
    let pair = pair_of(version, &(schema + more))?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    let all = |twins: &mut Twins<'_>| -> Result<u64> {
        Ok(asked(twins, "_freshet_context")? + asked(twins, "_freshet_end_context")?)
    };
    let before = all(&mut twins)?;
    for _ in 0..5 {
        for write in writes {
            twins.run(&[write])?;
            twins.known_key(READ)?;
        }
        twins.exchange(&[query("begin"), query(writes[0]), query("commit")].concat(), 3)?;
        twins.known_key(READ)?;
    }
    let more = all(&mut twins)? - before;
    // Behind the questions that count, which may be taken for writes.
    ensure!(more <= 2, "the context was asked for {more} times behind 15 or 20 transactions");
    Ok(())
}

/// Definitions under which a write that says nothing of it changes a setting of who writes, each with such a write.
const OTHER_CODE: &[(&str, &str)] = &[
    (
        "create function on_plain() returns trigger language plpgsql as $$ begin
            perform set_config('extra_float_digits', '-10', false); return new; end $$;
         create trigger on_plain before update on plain for each row execute function on_plain()",
        "update plain set n = 3",
    ),
    ("alter table plain alter w set default set_config('extra_float_digits', '-9', false)", "insert into plain (n) values (4)"),
    (
        "alter table plain add check (n < 9 or set_config('extra_float_digits', '-8', false) is not null)",
        "insert into plain (n, w) values (10, '')",
    ),
    (
        "create function digits() returns text language sql as $$ select set_config('extra_float_digits', '-7', false) $$;
         create domain digits as text default digits(); alter table plain add d digits",
        "insert into plain (n, w) values (5, '')",
    ),
    (
        "create function digits(plain) returns int language sql as $$
            select 0 * length(set_config('extra_float_digits', '-6', false)) $$",
        "update plain set n = plain.digits",
    ),
    (
        "create view seen as select n from plain where n > length(set_config('extra_float_digits', '-5', false))",
        "update seen set n = 6",
    ),
    (
        "create rule other as on insert to plain do also select set_config('extra_float_digits', '-4', false)",
        "insert into plain (n) values (2)",
    ),
    (
        "create index by_digits on plain ((n + length(digits_of(n))))",
        "insert into plain (n, w) values (8, '')",
    ),
    (
        "create view settings as select name, setting from pg_settings",
        "update settings set setting = '-2' where name = 'extra_float_digits'",
    ),
    (
        "create table heir (primary key (k)) inherits (plain); insert into heir (k, n) values (70, 70);
         create function on_heir() returns trigger language plpgsql as $$ begin
            perform set_config('extra_float_digits', '-11', false); return new; end $$;
         create trigger on_heir before update on heir for each row execute function on_heir()",
        "update plain set n = 70 where n = 70",
    ),
    (
        "create table child (k int references plain on update cascade); insert into child values (1);
         create function on_child() returns trigger language plpgsql as $$ begin
            perform set_config('extra_float_digits', '-12', false); return new; end $$;
         create trigger on_child before update on child for each row execute function on_child()",
        "update plain set k = -k where abs(k) = 1",
    ),
    (
        "create function plus(int, text) returns int language sql immutable as
            $$ select 0 * length(set_config('extra_float_digits', '-14', false)) $$;
         create operator + (leftarg = int, rightarg = text, function = plus)",
        "update plain set n = n + w",
    ),
    (
        "create function number_of(text) returns int language sql immutable as
            $$ select 0 * length(set_config('extra_float_digits', '-15', false)) $$;
         create cast (text as int) with function number_of(text) as assignment",
        "update plain set n = coalesce(w, 'x')",
    ),
    (
        "create function another_name(text, text, boolean) returns text language internal immutable as 'set_config_by_name';
         create index by_another_name on plain (another_name('extra_float_digits', (0 * k - 1)::text, false))",
        "insert into plain (n, w) values (4, '')",
    ),
    (
        "create view called as select set_config('extra_float_digits', '-13', false) as n",
        "update plain set n = 7 from called where plain.k = 1 and called.n is not null",
    ),
];

/// What a write runs besides its own text is found in the catalogue, also if it came there after the session had written.
fn writes_that_run_other_code(version: Version) -> Result<()> {
    run_other_code(version, "")?;
    run_other_code(version, CODE_ELSEWHERE)
}

fn run_other_code(version: Version, more: &str) -> Result<()> {
    let schema = format!(
        "{} create table plain (k serial primary key, n int, w text); insert into plain (n) values (7);
        create function digits_of(int) returns text language sql immutable as
            $$ select set_config('extra_float_digits', '-3', false) $$; {more}",
        super::SCHEMA
    );
    each(OTHER_CODE, |(definition, write)| {
        let pair = pair_of(version, &schema)?;
        let mut twins = Twins::new(&pair)?;
        twins.new_key(READ)?;
        twins.run(&["update plain set n = n where n = 77"])?;
        twins.known_key(READ)?;
        pair.database.run(&format!("{definition}; create table known_now (id int primary key)"))?;
        // Known to the catalogue: what is read before that may come from the cache for as long as D.
        twins.fills_until_hit(&query("select id from known_now"))?;
        twins.fills_until_hit(&query("select w, n, id from plain, sample where id = 2"))?;
        twins.run(&["update plain set n = n where n = 77"])?;
        twins.fills_until_hit(&query(READ))?;
        twins.exchange(&[query("begin"), query(write), query("rollback")].concat(), 3)?;
        twins.known_key(READ)?;
        twins.run(&[write])?;
        twins.new_key(READ)
    })
}
