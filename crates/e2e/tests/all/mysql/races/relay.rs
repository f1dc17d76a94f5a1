//! A relay between Freshet and the server, which can hold any statement, and the binary log.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use crate::support::relaying::{listen, pass_on};
use crate::support::{PATIENCE, eventually};

/// `COM_BINLOG_DUMP` and `COM_BINLOG_DUMP_GTID`
const DUMPS: [u8; 2] = [0x12, 0x1e];

/// What can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// What the server says to those that follow the binary log.
    Stream,
    /// Packets to the server with this in them.
    Statement(&'static str),
}

#[derive(Default)]
struct Held {
    what: Vec<Hold>,
    /// What stands before the gate now, by its number.
    waiting: Vec<(u64, Hold)>,
    /// The number of the next to come.
    next: u64,
    /// All before this number may pass.
    let_go: u64,
}

#[derive(Default)]
struct Gate {
    held: Mutex<Held>,
    changed: Condvar,
}

impl Gate {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as this is held.
    fn pass(&self, is_it: impl Fn(&Hold) -> bool) {
        let mut held = self.held();
        let number = held.next;
        held.next += 1;
        while number >= held.let_go
            && let Some(what) = held.what.iter().copied().find(&is_it)
        {
            held.waiting.push((number, what));
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.waiting.retain(|(waiting, _)| *waiting != number);
        }
    }
}

/// It listens until the process ends.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    gate: Arc<Gate>,
}

impl Relay {
    pub(super) fn to(server: SocketAddr) -> Result<Self> {
        let gate = Arc::<Gate>::default();
        let shared = Arc::clone(&gate);
        let address = listen(server, move |client, server| join(client, server, &shared))?;
        Ok(Self { address, gate })
    }

    pub(super) fn hold(&self, what: Hold) {
        self.gate.held().what.push(what);
    }

    pub(super) fn release(&self, what: Hold) {
        self.gate.held().what.retain(|held| *held != what);
        self.gate.changed.notify_all();
    }

    /// What stands before the gate may pass; what comes later is held again.
    pub(super) fn let_go(&self) {
        let mut held = self.gate.held();
        held.let_go = held.next;
        self.gate.changed.notify_all();
    }

    /// Waits until something of this stands before the gate.
    pub(super) fn until_waiting(&self, what: Hold) -> Result<()> {
        eventually(PATIENCE, || {
            ensure!(
                self.gate.held().waiting.iter().any(|(_, waiting)| *waiting == what),
                "{what:?}: the relay holds no such statement"
            );
            Ok(())
        })
    }
}

fn join(client: TcpStream, server: TcpStream, gate: &Arc<Gate>) -> Result<()> {
    let follows = Arc::new(AtomicBool::new(false));
    let (told, questions) = (Arc::clone(&follows), Arc::clone(gate));
    let of_client = move |bytes: &[u8]| {
        if let [_, _, _, 0, command, ..] = bytes
            && DUMPS.contains(command)
        {
            told.store(true, Relaxed);
        }
        questions.pass(|hold| match hold {
            Hold::Stream => false,
            Hold::Statement(text) => bytes.windows(text.len()).any(|window| window == text.as_bytes()),
        });
    };
    let events = Arc::clone(gate);
    let of_server = move |_: &[u8]| events.pass(|hold| *hold == Hold::Stream && follows.load(Relaxed));
    pass_on(client, server, of_client, of_server)
}
