//! A relay between Freshet and the server in some runs: it forwards all bytes, and can stop the server's bytes to the follower of the binary log or
//! to a session.
//!
//! PostgreSQL's walsender and backends are processes, which can be stopped one by one. Here they are threads of one process, so their output is
//! stopped on its way.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::Result;

use crate::support::relaying::{listen, pass_on};

/// `COM_BINLOG_DUMP` and `COM_BINLOG_DUMP_GTID`
const DUMPS: [u8; 2] = [0x12, 0x1e];

/// Which connections are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nobody,
    /// Those that follow the binary log.
    Stream,
    /// One of the others: the one with this number, counted around.
    Session(usize),
}

struct Gate {
    hold: Mutex<Hold>,
    changed: Condvar,
    connections: AtomicUsize,
}

impl Gate {
    fn pass(&self, number: usize, follows: &AtomicBool) {
        let is_held = |hold: &mut Hold| match *hold {
            Hold::Nobody => false,
            Hold::Stream => follows.load(Relaxed),
            Hold::Session(which) => !follows.load(Relaxed) && which % self.connections.load(Relaxed).max(1) == number,
        };
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(hold, is_held));
    }
}

/// It listens until the process ends.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    gate: Arc<Gate>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr) -> Result<Self> {
        let gate = Arc::new(Gate {
            hold: Mutex::new(Hold::Nobody),
            changed: Condvar::new(),
            connections: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&gate);
        let address = listen(server, move |client, server| {
            let number = shared.connections.fetch_add(1, Relaxed);
            join(client, server, &shared, number)
        })?;
        Ok(Self { address, gate })
    }

    pub(crate) fn hold(&self, what: Hold) {
        *self.gate.hold.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.gate.changed.notify_all();
    }
}

fn join(client: TcpStream, server: TcpStream, gate: &Arc<Gate>, number: usize) -> Result<()> {
    let follows = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&follows);
    let of_client = move |bytes: &[u8]| {
        if let [_, _, _, 0, command, ..] = bytes
            && DUMPS.contains(command)
            && is_one_packet(bytes)
        {
            told.store(true, Relaxed);
        }
    };
    let gate = Arc::clone(gate);
    pass_on(client, server, of_client, move |_: &[u8]| gate.pass(number, &follows))
}

fn is_one_packet(bytes: &[u8]) -> bool {
    let [a, b, c, _, rest @ ..] = bytes else { return false };
    u32::from_le_bytes([*a, *b, *c, 0]) as usize == rest.len()
}
