//! MariaDB and MySQL: the same promises as for PostgreSQL, in this family's protocol.
//!
//! * `wire`: a direct conversation and one through Freshet are the same, packet by packet;
//! * `cached_reads`: reads from the cache are distinguished by everything that decides their answers, and none is stale;
//! * `binary_keys`: keys that are not text;
//! * `functions`: functions and clauses of these servers;
//! * `hosts`: a primary with replicas, and others;
//! * `limits`: rows behind the last row of an answer with LIMIT;
//! * `modes`: sessions with other quoting modes, or that send bytes;
//! * `moving`: limits that move with the clock;
//! * `schema`: DDL, foreign keys, tables that must not be cached; `checking`: `freshet check` and `uninstall`;
//! * `clients`: real programs and drivers, the same session direct and through Freshet;
//! * `outcomes`: the reasons of answers that cannot be cached;
//! * `privileges`: privileges that are revoked through Freshet count at once;
//! * `questions`: statements that read no table;
//! * `races`: single interleavings, created by delaying Freshet's own queries or their answers;
//! * `replica`: a replica as the upstream;
//! * `snapshots`: transactions whose first reads find nothing;
//! * `stress`: the promises under concurrent writers and faults;
//! * `temporaries`: temporary tables, and code that may create some; `computed`: code of which the text is computed;
//! * `skipped`: writes without a commit wait;
//! * `support`: both servers, Freshet in front of them, and a client that speaks packets.

mod binary_keys;
mod cached_reads;
mod checking;
mod clients;
mod computed;
mod functions;
mod hosts;
mod joining;
mod limits;
mod modes;
mod moving;
mod outcomes;
mod privileges;
mod questions;
mod races;
mod replica;
mod schema;
mod skipped;
mod snapshots;
mod stress;
pub(crate) mod support;
mod temporaries;
mod turns;
mod wire;
