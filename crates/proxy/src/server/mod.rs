//! The server side of Freshet: sockets, access control, limits, memory and shutdown.

pub(crate) mod access;
pub(crate) mod calendar;
pub(crate) mod carried;
pub(crate) mod client_limit;
pub(crate) mod console;
pub(crate) mod databases;
pub(crate) mod listener;
pub(crate) mod login_rate;
pub(crate) mod memory;
pub(crate) mod pauses;
pub(crate) mod pins;
pub(crate) mod pre_auth;
pub(crate) mod process_memory;
pub(crate) mod query_log;
pub(crate) mod scheduling_delay;
pub(crate) mod session_list;
pub(crate) mod sessions;
pub(crate) mod sockets;
pub(crate) mod stop_request;
pub(crate) mod switches;
pub(crate) mod traces;
