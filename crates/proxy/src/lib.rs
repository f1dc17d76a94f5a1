//! Sessions between clients and the upstream, and the services that keep the cache consistent.
//!
//! The path of a statement: `session::client` reads frames, `session::plan` decides, a hit is written directly, and everything else goes upstream;
//! `session::upstream` forwards the answer and fills the cache with it. The services (`service::lease`, `service::catalog`, `service::publishing`)
//! use their own connections to the upstream. This crate does not know how changes are received: the change stream drives the cache from outside.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod admin;
mod clock;
mod latency;
mod metrics;
pub mod mysql;
mod peer;
mod pool;
pub mod postgres;
mod rules;
mod server;
mod service;
mod session;
mod shared;
mod statement;

pub use freshet_cache::admission::Keep;
pub use latency::Histogram;
pub use metrics::{Metrics, PassedCount, Timed};
pub use pool::{LagMax, PoolFigures, PoolMode, PoolSettings, ReplicaLimits};
pub use rules::{Caching, RuleMatches, RuleText, RuleTexts, Way, hidden_rules, is_digest};
pub use server::access::{AccessError, AccessRules, AccessSettings, Method, UsersError};
pub use server::carried::CarriedSession;
pub use server::console::{AdminError, Console, NewCache};
pub use server::databases::{Database, Databases, Family};
pub use server::listener::{ListenError, Listener, Target, Workers};
pub use server::memory::{Member, Taken, keep_memory};
pub use server::pauses::Pauses;
pub use server::pins::PinFigures;
pub use server::process_memory::ProcessMemory;
pub use server::query_log::QueryLog;
pub use server::scheduling_delay::SchedulingDelay;
pub use server::session_list::{RunningStatement, SessionReport};
pub use server::sockets::{Inherited, ListenAddress};
pub use server::stop_request::StopRequest;
pub use server::switches::Switches;
pub use server::traces::{AnsweredBy, Span, Traces};
pub use service::tasks::Tasks;
pub use session::body::Body;
pub use session::verify::Verifier;
pub use session::wait_queue::Waits;
pub use shared::{Clock, Faults, KeyQueries, Leader, LogLag, ReadFigures, ServerIdentity, Servers, Settings, Shared};
pub use statement::report::{Advice, QueryReport, Rows};
