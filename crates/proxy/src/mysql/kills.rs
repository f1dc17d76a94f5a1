//! KILL of a session that changes its server connections.
//!
//! The number that a client has from its login names the session, not a connection: the numbers of the server would be those of other sessions soon.
//! They lie beyond those that a server reaches. So Freshet carries out a KILL of such a number itself: on a connection of its own, since the killed
//! session may have the last one of the pool. Until the server has answered, the killed session keeps its connection, so that no later user of it is
//! met.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::server::sessions::Link;

/// The first number, and how many there are. Clients take them for signed numbers of 32 bits.
const FIRST: u32 = 1 << 30;
const COUNT: u32 = 1 << 30;

/// A server's number of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    /// The place of the server among the upstream's hosts.
    pub(crate) host: usize,
    pub(crate) number: u32,
}

/// The sessions by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    last: AtomicU32,
    all: Mutex<HashMap<u32, Arc<Target>>>,
}

/// A session that can be killed.
#[derive(Debug)]
pub(crate) struct Target {
    number: u32,
    pub(crate) user: String,
    pub(crate) link: Arc<Link>,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// The server's number of its connection; None: it has none.
    thread: Option<Thread>,
    /// Those that are under way.
    kills: u32,
}

/// A KILL under way: the session keeps its connection.
#[derive(Debug)]
pub(crate) struct Aim {
    target: Arc<Target>,
    pub(crate) thread: Thread,
}

impl Drop for Aim {
    fn drop(&mut self) {
        self.target.now().kills -= 1;
    }
}

/// What to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) number: u32,
    /// Its statement alone.
    pub(crate) query: bool,
}

impl Kill {
    /// `KILL [CONNECTION | QUERY] number`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        const BYTES_MAX: usize = 64;
        let head = text.get(..4).filter(|_| text.len() <= BYTES_MAX)?;
        if !head.eq_ignore_ascii_case(b"kill") {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
        let words: Vec<&str> = text.trim_end_matches([';', ' ']).split_ascii_whitespace().collect();
        let (query, number) = match words.as_slice() {
            ["kill", number] | ["kill", "connection", number] => (false, number),
            ["kill", "query", number] => (true, number),
            _ => return None,
        };
        Some(Self { number: number.parse().ok()?, query })
    }
}

impl Target {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session has this connection.
    pub(crate) fn has(&self, thread: Thread) {
        self.now().thread = Some(thread);
    }

    /// The session gives its connection back; false: a KILL is under way.
    pub(crate) fn leaves(&self) -> bool {
        let mut now = self.now();
        if now.kills == 0 {
            now.thread = None;
        }
        now.kills == 0
    }

    /// Its connection, which it keeps for so long; None: it has none.
    pub(crate) fn aim(self: &Arc<Self>) -> Option<Aim> {
        let mut now = self.now();
        let thread = now.thread?;
        now.kills += 1;
        Some(Aim { target: self.clone(), thread })
    }
}

impl Kills {
    fn all(&self) -> MutexGuard<'_, HashMap<u32, Arc<Target>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a session that begins.
    pub(crate) fn number(&self) -> u32 {
        FIRST + self.last.fetch_add(1, Relaxed) % COUNT
    }

    /// The session has begun.
    pub(crate) fn begin(&self, number: u32, user: &str, link: &Arc<Link>) -> Arc<Target> {
        let now = Mutex::default();
        let target = Arc::new(Target { number, user: user.to_owned(), link: link.clone(), now });
        self.all().insert(number, target.clone());
        target
    }

    /// The session has ended.
    pub(crate) fn end(&self, target: &Arc<Target>) {
        let mut all = self.all();
        if all.get(&target.number).is_some_and(|other| Arc::ptr_eq(other, target)) {
            all.remove(&target.number);
        }
    }

    /// The session with this number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Target>> {
        self.all().get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_kill() {
        let query = |number| Some(Kill { number, query: true });
        let connection = |number| Some(Kill { number, query: false });
        assert_eq!(Kill::parse(b"KILL QUERY 1073741824"), query(1_073_741_824));
        assert_eq!(Kill::parse(b"kill  query 5 ;"), query(5));
        assert_eq!(Kill::parse(b"KILL 5"), connection(5));
        assert_eq!(Kill::parse(b"KILL CONNECTION 5"), connection(5));
        for text in
            [&b"KILL"[..], b"KILL SOFT 5", b"KILL @x", b"KILLER 5", b"KILL USER 5", b"KILL QUERY ID 5", b"SELECT 1"]
        {
            assert_eq!(Kill::parse(text), None);
        }
    }

    #[test]
    fn a_connection_stays_while_a_kill_is_under_way() {
        let sessions = crate::server::sessions::Sessions::default();
        let listed = sessions.begin(crate::server::sessions::About::default());
        let kills = Kills::default();
        let number = kills.number();
        let target = kills.begin(number, "a", &listed.link);
        assert!(kills.get(number).is_some() && kills.get(number + 1).is_none());
        assert!(target.aim().is_none());
        target.has(Thread { host: 1, number: 7 });
        let aim = target.aim().unwrap();
        assert!(aim.thread.number == 7 && !target.leaves());
        drop(aim);
        assert!(target.leaves() && target.aim().is_none());
        kills.end(&target);
        assert!(kills.get(number).is_none());
    }
}
