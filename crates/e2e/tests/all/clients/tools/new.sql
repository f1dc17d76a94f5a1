-- What psql has had since version 18: the extended protocol by hand, and pipelines.
select title, votes from film where id = $1 \bind 1 \g
select title, votes from film where id = $1 \bind 1 \g
\! sleep 0.5
select title, votes from film where id = $1 \bind 1 \g
\! sleep 0.5
select title, votes from film where id = $1 \bind 1 \g
\! sleep 0.2
select title, votes from film where id = $1 \bind 1 \g
\! sleep 0.2
select title, votes from film where id = $1 \bind 1 \g
\! sleep 0.2
select title, votes from film where id = $1 \bind 1 \g
select title, votes from film where id = $1 \bind 1 \g
select $1::int / $2::int \bind 1 0 \g
select title, votes from film where id = $1 \parse named
\bind_named named 2 \g
\bind_named named 3 \g
\bind_named named 3 \g
\bind_named named 3 \gx
\close_prepared named
\bind_named named 3 \g
\startpipeline
select title from film where id = $1 \bind 1 \sendpipeline
update film set votes = votes + $1 where id = 2 \bind 10 \sendpipeline
select votes from film where id = $1 \bind 2 \sendpipeline
\syncpipeline
select nothing \bind \sendpipeline
select 'skipped' \bind \sendpipeline
\syncpipeline
select title from film where id = $1 \bind 3 \sendpipeline
\flushrequest
\getresults
\endpipeline
select title, votes from film where id = $1 \bind 2 \g
select id, title from film where id < $1 order by id \bind 2 \gset first_
\echo :first_id :first_title
\t on
select title from film where id = 4 \watch c=4 i=0.03
\t off
\conninfo
\df+ pg_sleep
\dconfig+ work_mem
