//! An upgrade without a refused connection: on SIGUSR2 a new process takes the listening sockets over, and this one ends after its sessions.
//!
//! The old process starts the program again, from the path and with the arguments of its own start. The two talk over a socket pair, which is the
//! standard input of the new process:
//!
//! | from | message | then |
//! |---|---|---|
//! | old | the listening sockets (`SCM_RIGHTS`), each with its configured address, and `end` | the new one reads its configuration and opens everything |
//! | new | `ready` | the old one switches its cache off |
//! | old | `go` | the new one reads again what a statement may have changed meanwhile |
//! | new | `taken` | it accepts from now on, the old one does not any more, and tells the service manager which process is the service |
//! | old | a session (`SCM_RIGHTS`), each when it is between two statements | it goes on in the new one ([`freshet_proxy::CarriedSession`]) |
//! | new | anything, if it cannot read what comes, or has no descriptor for it | the old one keeps the sessions that have not left it |
//! | old | the end of the stream: the process has ended | the new one follows the change stream, and caches |
//!
//! A new process that ends before `taken` changes nothing: it has not accepted a connection, and the old one goes on. If it is stuck there and is killed, it
//! may have: the old one goes on without its cache. If it fails later, while sessions of the old one go on, nobody accepts connections: the old one is the
//! service again and ends with a failure, so that the service manager starts another.
//!
//! *Why the new process caches nothing before the old one has ended*: no read may miss a write that was acknowledged through Freshet. Each process holds
//! the acknowledgement until its own stream has delivered the write. So a write through the old process could be missed by a hit of the new one, and the
//! other way round. One of them caches, or neither. That also settles who follows a lasting replication slot.

mod predecessor;
mod sessions;
mod successor;

pub(crate) use predecessor::{Predecessor, PredecessorEnd, WAITING};
pub(crate) use successor::{Handover, SuccessorEnd};

/// Set for the new process: its standard input is the socket pair.
const VARIABLE: &str = "FRESHET_HANDOVER";
const READY: &str = "ready";
const GO: &str = "go";
const TAKEN: &str = "taken";
/// Follows the last socket.
const END: &str = "end\n";
