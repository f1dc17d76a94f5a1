//! Support for the tests of this family: both servers, Freshet in front of them, and a client that hides nothing.

pub(crate) mod answer;
pub(crate) mod handshake;
pub(crate) mod packets;
mod pair;
pub(crate) mod programs;
mod raw;
mod scramble;
mod server;

pub(crate) use handshake::Login;
pub(crate) use pair::{Pair, SESSION_MODE, ensure_same};
pub(crate) use raw::{Packet, RawClient, Statement};
pub(crate) use server::{Database, Kind, Server, on_both, on_both_at_length};
