//! A conversation held directly with PostgreSQL and one held through Freshet are the same, frame by frame.
//!
//! Nearly every test here is a conversation. It runs directly, through Freshet and, where its reads can be cached, again
//! until the metrics show that Freshet served from the cache; all transcripts must be equal to the direct one. What
//! Freshet promises to pass or to keep, and where that is tested, on PostgreSQL 15 and 18:
//!
//! | promise | tests |
//! |---|---|
//! | SSLRequest, GSSENCRequest | `session::encryption_is_refused_politely`, `cancel::after_a_refused_encryption`; TLS: `encryption` |
//! | clear-text passwords, md5, SCRAM | `login` |
//! | ParameterStatus, BackendKeyData, protocols 3.0 and 3.2 | `session::the_same_start`, `newer_protocols_are_negotiated`, `refused_logins`; `asynchronous::reports_of_settings` |
//! | CancelRequest, long keys of 3.2 | `cancel`, `session::cancel_request`, `cancel_request_of_nobody` |
//! | simple queries with several statements | `simple` |
//! | pipelines, several Syncs in flight, hits between misses | `pipeline`, `portals::syncs_in_flight`, `hazards::a_local_answer_overtakes_replies_in_flight` |
//! | Flush | `portals::flush_at_every_place`, `extended::flush_instead_of_sync` |
//! | batches of drivers, and batches without an end | `batches` |
//! | unnamed and named statements and portals, Describe, Close | `extended`, `portals::closed_in_between`, `several_portals_at_once` |
//! | row limits, PortalSuspended | `portals::parts_between_hits`, `extended::row_limits` |
//! | text and binary mixed | `extended::binary_and_text`, `portals::formats_of_each_column` |
//! | errors in a pipeline | `portals::errors_at_every_place`, `pipeline`, `hazards::proxysql_5079_…` |
//! | COPY in and out, by both protocols | `copying`, `simple::copy`, `extended::copy_by_the_extended_protocol`, `cancel::copies` |
//! | COPY both, replication connections, BASE_BACKUP, `pg_basebackup`, `pg_recvlogical`, `pg_receivewal` | `replicating`, `session::replication` |
//! | NOTICE, NOTIFY at any time | `asynchronous`, `simple::notifications`, `notices_and_settings` |
//! | FunctionCall | `session::function_calls`, `pipeline::other_messages_within_a_batch` |
//! | SET, RESET, DISCARD, roles, PREPARE, EXECUTE, temporary tables, advisory locks, LISTEN | `cached::session_state`, `cached::settings`, `cached::privileges` |
//! | DECLARE, FETCH | `portals::cursors_of_sql_and_portals`, `simple::statements_and_cursors_of_sql` |
//! | two-phase commit, savepoints, isolation, the status byte | `transactions`, `simple::transactions` |
//! | disconnects of either side, Terminate | `faults`, `endings`, `copying::ended_by_the_client`, `pipeline::the_client_stops_writing`, `terminate_at_the_end` |
//! | ended by the server, time-outs | `endings`, `faults::a_session_is_terminated` |
//! | the upstream is down, dies or freezes | `faults`, `deaths` |
//! | gigabytes in bounded memory, slow readers | `volume`, `large` |
//! | half-open connections | `deaths::keepalive_on_both_legs` |
//! | a thousand sessions | `volume::a_thousand_idle_sessions`, `session::many_sessions` |
//! | malformed and unknown messages | `garbage`, `session::unknown_messages`, `broken_messages` |
//! | defects of other proxies | `hazards`, each under the name of its report |

mod asynchronous;
mod batches;
mod cancel;
mod copying;
pub(crate) mod deaths;
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
mod volume;

/// What the conversations read: a table that can be cached, and one that they write to.
const SCHEMA: &str = "
    create table item (id int primary key, name text, price numeric(10,2), born date, seen timestamptz);
    insert into item select i, case when i % 10 = 3 then null else 'item ' || i end, i * 1.5,
        date '2020-01-01' + i, timestamptz '2024-02-29 12:00:00+00' + i * interval '1 hour'
        from generate_series(1, 100) i;
    create table log (id int primary key, line text not null check (line <> 'bad'));
    insert into log select i, 'line ' || i from generate_series(1, 10) i;";
