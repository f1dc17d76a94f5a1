//! MariaDB and MySQL: the same promises as for PostgreSQL, in this family's protocol.
//!
//! * `wire`: a conversation held directly and one held through Freshet are the same, packet by packet;
//! * `cached_reads`: what reads from the cache are told apart by, and that none is old;
//! * `binary_keys`: keys that are no text;
//! * `functions`: functions and clauses of these servers;
//! * `limits`: what is behind the last row of an answer that LIMIT cuts;
//! * `modes`: sessions that quote in other ways, or send bytes;
//! * `moving`: limits that move with the clock;
//! * `schema`: DDL, foreign keys, tables that are not to be cached; `checking`: `freshet check` and `uninstall`;
//! * `clients`: real programs and drivers, the same session direct and through Freshet;
//! * `outcomes`: what is said of answers that cannot be kept;
//! * `privileges`: what is taken away through Freshet is refused at once;
//! * `questions`: statements that read no table;
//! * `races`: single interleavings, made by holding or delaying what Freshet asks and is told;
//! * `snapshots`: transactions whose first reads find nothing;
//! * `stress`: the promises under concurrent writers, while things go wrong;
//! * `temporaries`: temporary tables, and code that may make some;
//! * `unheld`: writes that are acknowledged at once;
//! * `support`: both servers, Freshet in front of them, and a client that speaks packets.

mod binary_keys;
mod cached_reads;
mod checking;
mod clients;
mod functions;
mod joining;
mod limits;
mod modes;
mod moving;
mod outcomes;
mod privileges;
mod questions;
mod races;
mod schema;
mod skipped;
mod snapshots;
mod stress;
pub(crate) mod support;
mod temporaries;
mod turns;
mod wire;
