//! Logins that Freshet decides: sources of verifiers, methods, refusals, limits.

mod carried;
mod guarded;
mod limits;
mod malformed;
mod mock;
mod refusals;
mod reload;
mod secrets;
mod sessions;
mod sources;
mod startup;
mod tls;
