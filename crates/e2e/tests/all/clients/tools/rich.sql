-- A database with some of everything that pg_dump has to know.
create schema "Other Schema";
create extension if not exists plpgsql;
create type mood as enum ('sad', 'ok', 'happy');
create type pair as (a int, b text);
create domain positive as int check (value > 0);
create sequence counted start 42 increment 3;
create table film (id int primary key, title text not null, genre text, votes int not null default 0);
insert into film select i, 'film ' || i, case i % 3 when 0 then 'drama' when 1 then 'comedy' end, i
    from generate_series(1, 200) i;
create table role (film_id int not null references film on delete cascade, actor text not null,
    primary key (film_id, actor));
insert into role select i % 200 + 1, 'actor ' || i from generate_series(1, 5000) i;
create table "Odd Name" ("a ""quoted"" column" int generated always as identity primary key, mood mood default 'ok',
    size positive, pair pair, body jsonb, raw bytea, list text[], total numeric(10, 2),
    twice numeric generated always as (total * 2) stored, during tstzrange, exclude using gist (during with &&));
insert into "Odd Name" (mood, size, pair, body, raw, list, total, during) values
    ('happy', 1, (1, E'tab\there'), '{"a": [1, null, "é"]}', '\x00ff5c', '{a,NULL,"b,c"}', 1.5, '[2024-01-01, 2024-02-01)'),
    (null, null, null, null, null, null, null, null);
create table parted (id int, day date) partition by range (day);
create table parted_1 partition of parted for values from ('2024-01-01') to ('2024-07-01');
create table parted_2 partition of parted for values from ('2024-07-01') to ('2025-01-01');
insert into parted select i, date '2024-01-01' + i from generate_series(1, 300) i;
create unlogged table passing (id int primary key);
create table base (id int primary key);
create table "Other Schema".child (more text) inherits (base);
create index film_by_genre on film (genre, votes desc) where votes > 10;
create statistics film_stats on genre, votes from film;
create view drama with (security_barrier) as select * from film where genre = 'drama' with check option;
create materialized view by_genre as select genre, count(*) from film group by 1;
create function twice(i int) returns int language plpgsql stable as $$ begin return i * 2; end $$;
create procedure nothing_done() language sql as 'select 1';
create aggregate total_of(int) (sfunc = int4pl, stype = int, initcond = 0);
create function noted() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger note before update on film for each row execute function noted();
create rule quiet as on delete to passing do instead nothing;
alter table role enable row level security;
create policy everyone on role using (true);
comment on table film is 'what is shown; it''s "quoted"';
grant select on film to public;
select lo_from_bytea(4711, '\x6c61726765');
select nextval('counted');
