//! The benchmark program: what would this cache do for my database?
//!
//! It answers that from outside. It knows no cache, only addresses that speak PostgreSQL's or MySQL's protocol (and, as
//! peers, memcached's, Redis's and an echo), and sends each of them the same load through ordinary drivers. Three things
//! make such answers wrong more often than not, and shape the code:
//!
//! - **Machines drift.** A target measured at noon is not comparable with one measured at one. So the rounds of all targets
//!   take turns within a run (`run`), and what is reported is medians with their spread, and processor time per query,
//!   which survives a noisy machine best (`sample`).
//! - **A load generator that waits for answers is kind to slow servers**: during a stall it sends nothing, and so
//!   measures the stall once. The open loop (`load`) sends at fixed times and measures from the intended one.
//! - **A cache can be fast and wrong.** Whenever the load rests, answers are compared with the database's own (`answers`).
//!
//! The way of a run: `cli` (what was typed) → `run` (cells, rounds, targets in turn) → `load` (connections that run the
//! transactions of a `workload` in `session`s over a `driver`) → `result` (all of it, as one JSON document) → `report`.

pub mod answers;
mod beside;
pub mod card;
pub mod cli;
pub mod demo;
pub mod driver;
pub mod load;
pub mod peers;
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
