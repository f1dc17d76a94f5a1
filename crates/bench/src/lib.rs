//! The benchmark program. It measures the effect of a cache on a database.
//!
//! It measures from outside. It uses only addresses with PostgreSQL's or MySQL's protocol (for peers also memcached's, Redis's and an echo), and
//! sends each of them the same load through ordinary drivers. Three effects often make such measurements wrong, and determine the design:
//!
//! - **Machines drift.** A target measured at noon is not comparable with one measured an hour later. So the rounds of all targets are interleaved
//!   within a run (`run`). The report has medians with their spread, and processor time per query, which a noisy machine affects least (`sample`).
//! - **A load generator that waits for answers favours slow servers.** During a stall it sends nothing, so it measures the stall once. The open loop
//!   (`load`) sends at fixed times and measures from the intended one.
//! - **A cache can be fast and wrong.** Whenever there is no load, answers are compared with the database's own (`answers`).
//!
//! The path of a run: `cli` (arguments) → `run` (cells, rounds, interleaved targets) → `load` (connections that run the transactions of a `workload`
//! in `session`s over a `driver`) → `result` (one JSON document) → `report`.

pub mod answers;
mod calendar;
pub mod card;
pub mod cli;
pub mod demo;
pub mod driver;
pub mod load;
pub mod peers;
mod program;
pub mod random;
pub mod report;
pub mod result;
pub mod run;
mod run_args;
pub mod sample;
pub mod session;
pub mod sizing;
pub mod statement;
pub mod suite;
pub mod target;
pub mod value;
pub mod workload;
