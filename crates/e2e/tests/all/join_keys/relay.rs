//! A relay between Freshet and the server, which can hold the messages of the connections on which Freshet reads keys, in either direction.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::Result;

use crate::support::relaying::{listen, pass_on};

/// Words that only such connections begin with, on PostgreSQL and on the others.
const MARKS: [&[u8]; 2] = [b"SET row_security = off", b"READ COMMITTED, READ ONLY"];

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Nothing,
    /// Questions, which are then answered from a later state.
    Questions,
    /// Answers, which then tell of an earlier state.
    Answers,
}

struct Gate {
    hold: Mutex<Hold>,
    changed: Condvar,
    /// Times that something was held.
    held: AtomicUsize,
}

impl Gate {
    fn pass(&self, what: Hold) {
        let mut counted = false;
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(hold, |hold| {
            let held = *hold == what;
            if held && !std::mem::replace(&mut counted, true) {
                self.held.fetch_add(1, Relaxed);
            }
            held
        }));
    }
}

/// It listens until the process ends.
pub(crate) struct Relay {
    pub(super) address: SocketAddr,
    gate: Arc<Gate>,
}

impl Relay {
    pub(super) fn to(server: SocketAddr) -> Result<Self> {
        let gate =
            Arc::new(Gate { hold: Mutex::new(Hold::Nothing), changed: Condvar::new(), held: AtomicUsize::new(0) });
        let shared = Arc::clone(&gate);
        let address = listen(server, move |client, server| join(client, server, &shared))?;
        Ok(Self { address, gate })
    }

    pub(super) fn hold(&self, what: Hold) {
        *self.gate.hold.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.gate.changed.notify_all();
    }

    /// Times that something was held.
    pub(super) fn held(&self) -> usize {
        self.gate.held.load(Relaxed)
    }
}

fn join(client: TcpStream, server: TcpStream, gate: &Arc<Gate>) -> Result<()> {
    let marked = Arc::new(AtomicBool::new(false));
    let (seen, questions) = (Arc::clone(&marked), Arc::clone(gate));
    let of_client = move |bytes: &[u8]| {
        if seen.load(Relaxed) {
            questions.pass(Hold::Questions);
        } else if MARKS.iter().any(|mark| bytes.windows(mark.len()).any(|window| window == *mark)) {
            seen.store(true, Relaxed);
        }
    };
    let answers = Arc::clone(gate);
    let of_server = move |_: &[u8]| {
        if marked.load(Relaxed) {
            answers.pass(Hold::Answers);
        }
    };
    pass_on(client, server, of_client, of_server)
}
