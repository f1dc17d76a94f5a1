//! The one integration-test binary: everything that is tested from outside, against real servers.
//!
//! One binary rather than one per file, because linking and starting servers is what costs time. The modules:
//!
//! * `wire`: a conversation held directly with PostgreSQL and one held through Freshet are the same, byte for byte;
//! * `clients`: real programs and drivers, the same session direct and through Freshet;
//! * `login`, `encryption`, `upstream`: who is let in, TLS on both legs, how the upstream is named;
//! * `cached`: what applications see when their reads come from memory: freshness, settings, privileges, admin replies;
//! * `stress`: the promises under concurrent writers;
//! * `tidy`: the rules of the code base that a compiler does not check;
//! * `support`: starting servers and Freshet, reading its metrics, and a client that speaks the protocol frame by frame.

mod cached;
mod clients;
mod encryption;
mod login;
mod stress;
mod support;
mod tidy;
mod upstream;
mod wire;
