-- A session of psql as people and scripts use it. It runs directly and through Freshet, and prints the same.
\pset pager off
\set VERBOSITY default
\conninfo
select current_database() = :'DBNAME' as "the database";

-- Reads: at first the tables are not known to Freshet, then they are registered for the change stream, then read.
select title, votes from film where id = 1;
select count(*) from role;
\! sleep 0.5
select title, votes from film where id = 1;
select count(*) from role;
\! sleep 0.5
select title, votes from film where id = 1;
select count(*) from role;
\! sleep 0.2
select title, votes from film where id = 1;
select count(*) from role;
\! sleep 0.2
select title, votes from film where id = 1;
select count(*) from role;
\! sleep 0.2
select title, votes from film where id = 1;
select count(*) from role;
select title, votes from film where id = 1;
select count(*) from role;
select title, votes from film where id = 1 \g
select title, votes from film where id = 1 \gx
select title as t, votes as v from film where id = 1 \gset got_
\echo :got_t :got_v
select title, votes from film where id = 1 \gdesc

-- Forms of output.
\x on
select * from film where id in (2, 3) order by id;
\x off
\a
\f '|'
select * from film where id in (2, 3) order by id;
\a
\t on
select * from film where id in (2, 3) order by id;
\t off
\pset null '(null)'
\pset border 2
\pset format csv
select id, genre from film where id < 4 order by id;
\pset format aligned
\pset border 1
select genre, votes % 2 as odd, count(*) from film where genre is not null group by 1, 2 order by 1, 2 \crosstabview
select format('select %L as made', title) from film where id < 3 order by id \gexec
\o /dev/null
select * from film;
\o

-- Descriptions.
create view drama as select * from film where genre = 'drama';
create function twice(int) returns int language sql immutable as 'select $1 * 2';
create type mood as enum ('sad', 'happy');
create domain positive as int check (value > 0);
comment on table film is 'what is shown';
\d
\d film
\d+ film
\d role
\d+ drama
\dt
\dt+ no*
\di
\dv+
\df twice
\df+ twice
\sf twice
\sv drama
\dT+ mood
\dD
\dn
\dp film
\du
\dx
\dO no
\l :DBNAME
\dRp no
\dconfig search_path
\encoding

-- Errors.
select nothing from film;
\errverbose
\set VERBOSITY verbose
select 1 / (votes - votes) from film where id = 1;
\set VERBOSITY sqlstate
insert into film values (1, 'again');
\set VERBOSITY default
\echo :ERROR :SQLSTATE :LAST_ERROR_MESSAGE :ROW_COUNT
selec 1;
select 1; select 1 / 0; select 2;
select 1 \; select title from film where id = 4 \; select 3;
\d nowhere
\nonsense

-- COPY.
create temporary table copied (like role);
\copy copied from stdin
1	one
2	two
\.
copy copied from stdin;
3	three
\.
\copy copied from program 'printf "4\\tfour\\n5\\tfive\\n"'
\copy (select * from copied order by 1) to stdout
\copy copied to '/dev/null' with (format csv, header)
copy copied to stdout with (format csv, header);
copy copied from stdin;
no number	x
\.
select count(*) from copied;
copy role from stdin;
1	copied
\.
select count(*) from role;
drop table copied;
discard temp;

-- Transactions.
\set AUTOCOMMIT off
update film set votes = 1000 where id = 5;
select votes from film where id = 5;
rollback;
select votes from film where id = 5;
update film set votes = 2000 where id = 5;
commit;
\set AUTOCOMMIT on
select votes from film where id = 5;
select votes from film where id = 5;
select votes from film where id = 5;
select votes from film where id = 5;
\set ON_ERROR_ROLLBACK on
begin;
select nothing;
select 'still in the transaction';
select nothing;
end;
\set ON_ERROR_ROLLBACK off
begin;
select nothing;
select 'not any more';
end;
\set FETCH_COUNT 7
select id from film where id <= 20 order by id;
select 1 / (id - 15) from film where id <= 20 order by id;
\unset FETCH_COUNT
\set SINGLELINE on
select 'a single line'
\set SINGLELINE off

-- Prepared statements and cursors in SQL.
prepare titled(int) as select title from film where id = $1;
execute titled(6);
execute titled(6);
execute titled(7);
deallocate titled;
begin;
declare c scroll cursor for select id from film order by id;
fetch 3 from c;
fetch backward 1 from c;
move absolute 50 in c;
fetch next from c;
close c;
commit;

-- Settings and variables.
\set wanted 8
select title from film where id = :wanted;
select title from film where title = :'got_t';
select :"got_t" from (select 1 as "film 1") x;
set datestyle = 'German';
select date '2024-02-29' as day, title from film where id = 8;
reset datestyle;
select date '2024-02-29' as day, title from film where id = 8;
set client_encoding to latin1;
select 'é' <> 'e' as "other bytes", title from film where id = 8;
\encoding utf8
\if :got_v
\echo the read was one
\else
\echo it was not
\endif
listen channel;
notify channel, 'hello';
do $$ begin raise notice 'noticed'; raise warning 'warned'; end $$;

-- Large objects go by function calls.
\set QUIET on
\lo_import /etc/passwd
\lo_export :LASTOID /dev/null
\lo_unlink :LASTOID
\set QUIET off

-- \watch, until the query fails.
create sequence left_over start 3 increment -1 minvalue 0 maxvalue 3;
\t on
select 6 / nextval('left_over') \watch 0.05

-- A new connection; a lost one.
\c -
select title from film where id = 9;
drop function twice;
drop view drama;
\timing off
select pg_terminate_backend(pg_backend_pid());
