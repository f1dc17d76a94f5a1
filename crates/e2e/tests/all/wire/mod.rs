//! A conversation held directly with PostgreSQL and one held through Freshet are the same, frame by frame.
//!
//! Every test here is a conversation. It runs directly, through Freshet and, where its reads can be cached, again
//! until the metrics show that Freshet answered from memory; all transcripts must be equal to the direct one.

mod asynchronous;
mod cancel;
mod copying;
mod endings;
mod extended;
mod faults;
mod garbage;
mod hazards;
mod large;
mod pipeline;
mod portals;
mod replicating;
mod session;
mod simple;
mod transactions;

/// What the conversations read: a table that can be cached, and one that they write to.
const SCHEMA: &str = "
    create table item (id int primary key, name text, price numeric(10,2), born date, seen timestamptz);
    insert into item select i, case when i % 10 = 3 then null else 'item ' || i end, i * 1.5,
        date '2020-01-01' + i, timestamptz '2024-02-29 12:00:00+00' + i * interval '1 hour'
        from generate_series(1, 100) i;
    create table log (id int primary key, line text not null check (line <> 'bad'));
    insert into log select i, 'line ' || i from generate_series(1, 10) i;";
