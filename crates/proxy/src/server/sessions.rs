//! The open sessions: what an operator sees of them, and the orders that an operator gives them.
//!
//! A session runs on its worker's thread and is never queried. It has a [`Link`] in the list, registered at its start. An operator's order is a bit
//! in the link. The session reads the bits where it looks for messages, and its task is woken for them. So an order costs a session one load of a
//! byte that is seldom written. The list has a lock, which sessions take only at their start and at their end.
//!
//! **PAUSE.** A session that has nothing to finish stops reading from its client and says so in its link. PAUSE is complete when all sessions of the
//! database have done so.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::SystemTime;

use freshet_types::Nanos;
use freshet_wire::postgres::startup::Replication;

use crate::server::pauses::Pauses;
use crate::server::pins::{Pin, PinFigures, Pins};

/// The session ends at once.
const KILLED: u8 = 1;
/// The session reads no new statement.
const PAUSED: u8 = 2;
/// The session has not looked since its last order.
const NEWS: u8 = 4;
/// The session ends as soon as it is at rest.
const LEAVING: u8 = 8;
/// The session sends nothing to the server.
const HELD: u8 = 16;

/// The number of the last session of this process. Numbers are unique over all databases, since an operator names a session by its number alone.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// The facts about a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) user: String,
    pub(crate) database: String,
    /// The name at its login.
    pub(crate) application_name: String,
    /// Whether it is a session of the console, which has no server.
    pub(crate) console: bool,
    pub(crate) replication: Replication,
    /// The addresses of both ends of its client's connection; None: a Unix socket.
    pub(crate) client: Option<(SocketAddr, SocketAddr)>,
    /// The addresses of both ends of the server's connection.
    pub(crate) server: Option<(SocketAddr, SocketAddr)>,
    /// Whether the client uses TLS, and whether the server does.
    pub(crate) tls: (bool, bool),
}

/// A session's entry in the list.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) about: About,
    pub(crate) since: SystemTime,
    orders: AtomicU8,
    /// Whether it has stopped reading from its client, and its server has nothing to do.
    parked: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Bytes received from the client, and from the server.
    traffic: [AtomicU64; 2],
    /// The digest of the statement that the server executes (0: not known), and since when; 0: none.
    running: [AtomicU64; 2],
    /// As the server's last answer said.
    in_transaction: AtomicBool,
    /// What keeps it on a server connection that it shares.
    pub(crate) pin: Pin,
    /// Since its login, RECONNECT has asked for another server connection, which only a new session has.
    close_needed: AtomicBool,
}

impl Link {
    /// Lets orders wake the current task, as long as it lives.
    pub(crate) async fn enlist(&self) {
        std::future::poll_fn(|cx| {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    }

    fn order(&self, set: u8, cleared: u8) {
        self.orders.fetch_and(!cleared, AcqRel);
        self.orders.fetch_or(set | NEWS, AcqRel);
        self.parked.store(false, Release);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }

    fn has(&self, order: u8) -> bool {
        self.orders.load(Acquire) & order != 0
    }

    /// Whether it has an order, or has not looked since the last one.
    pub(crate) fn has_orders(&self) -> bool {
        self.orders.load(Acquire) != 0
    }

    /// Whether an order has come since the last call.
    pub(crate) fn take_news(&self) -> bool {
        self.has(NEWS) && self.orders.fetch_and(!NEWS, AcqRel) & NEWS != 0
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.has(KILLED)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.has(PAUSED)
    }

    /// Whether there may be a reason to read no new statement.
    pub(crate) fn may_wait(&self) -> bool {
        self.has(PAUSED | HELD)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.has(HELD)
    }

    /// The session's own order: it runs a statement with a time limit ([`crate::session::time_limit`]).
    pub(crate) fn hold(&self) {
        self.orders.fetch_or(HELD, AcqRel);
    }

    /// It is not held any more.
    pub(crate) fn let_go(&self) {
        self.order(0, HELD);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.has(LEAVING)
    }

    pub(crate) fn is_close_needed(&self) -> bool {
        self.close_needed.load(Relaxed)
    }

    /// Ends the session as soon as it is at rest.
    pub(crate) fn dismiss(&self) {
        self.order(LEAVING, 0);
    }

    /// Notes whether the session has nothing to finish and has stopped reading from its client.
    pub(crate) fn set_parked(&self, parked: bool) {
        self.parked.store(parked, Release);
    }

    /// Notes the bytes received so far from the client and from the server.
    pub(crate) fn note_traffic(&self, client: u64, server: u64) {
        let [from_client, from_server] = &self.traffic;
        from_client.store(client, Relaxed);
        from_server.store(server, Relaxed);
    }

    /// Notes that the server executes a statement with this digest since this time.
    pub(crate) fn begin_running(&self, digest: u64, now: Nanos) {
        let [statement, since] = &self.running;
        statement.store(digest, Relaxed);
        since.store(now, Relaxed);
    }

    /// The statement that the server executes has this digest.
    pub(crate) fn name_running(&self, digest: u64) {
        let [statement, _] = &self.running;
        statement.store(digest, Relaxed);
    }

    /// The server has answered all statements.
    pub(crate) fn end_running(&self) {
        let [_, since] = &self.running;
        since.store(0, Relaxed);
    }

    /// A transaction is open, or none is.
    pub(crate) fn note_transaction(&self, is_open: bool) {
        self.in_transaction.store(is_open, Relaxed);
    }

    /// What the session does, in the words of `pg_stat_activity`, or what it is.
    pub(crate) fn state(&self) -> &'static str {
        if self.about.console {
            return "console";
        }
        if self.about.replication != Replication::No {
            return "replication";
        }
        match (self.running().is_some(), self.in_transaction.load(Relaxed)) {
            (true, _) => "active",
            (false, true) => "idle in transaction",
            (false, false) if self.is_paused() => "paused",
            (false, false) => "idle",
        }
    }

    /// The digest of the statement that the server executes, and since when. A moment later it may be another one.
    pub(crate) fn running(&self) -> Option<(u64, Nanos)> {
        let [statement, since] = self.running.each_ref().map(|cell| cell.load(Relaxed));
        (since > 0).then_some((statement, since))
    }

    /// Returns when the session is killed. For tasks that do not look at orders while they wait.
    pub(crate) async fn killed(&self) {
        std::future::poll_fn(|cx| {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            if self.is_killed() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[derive(Debug, Default)]
struct Open {
    sessions: BTreeMap<u64, Arc<Link>>,
    /// Number of sessions that have begun, and the largest number open at once.
    begun: u64,
    most: usize,
    /// Bytes from clients and from servers of the sessions that have ended.
    ended: [u64; 2],
}

impl Open {
    /// The sessions of a database, or of all, but those of the console.
    fn clients(&self, database: Option<&str>) -> impl Iterator<Item = &Arc<Link>> {
        let is_of = move |link: &&Arc<Link>| !link.about.console && database.is_none_or(|d| d == link.about.database);
        self.sessions.values().filter(is_of)
    }
}

/// The sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<Open>,
    pub(crate) pauses: Arc<Pauses>,
    pins: Pins,
}

/// Removes its session from the list when it is dropped.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    sessions: &'a Sessions,
    pub(crate) link: Arc<Link>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.sessions.note_pin(&self.link, None);
        let mut open = self.sessions.open();
        open.sessions.remove(&self.link.id);
        for (sum, bytes) in open.ended.iter_mut().zip(&self.link.traffic) {
            *sum += bytes.load(Relaxed);
        }
    }
}

impl Sessions {
    /// None, of an instance with these pauses.
    pub(crate) fn new(pauses: Arc<Pauses>) -> Self {
        Self { pauses, ..Self::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins.
    pub(crate) fn begin(&self, about: About) -> Listed<'_> {
        let mut open = self.open();
        open.begun += 1;
        let paused = !about.console && self.pauses.include(&about.database);
        let link = Arc::new(Link {
            id: LAST_ID.fetch_add(1, Relaxed) + 1,
            about,
            since: SystemTime::now(),
            orders: AtomicU8::new(if paused { PAUSED } else { 0 }),
            parked: AtomicBool::new(false),
            waker: Mutex::default(),
            traffic: Default::default(),
            running: Default::default(),
            in_transaction: AtomicBool::new(false),
            pin: Pin::default(),
            close_needed: AtomicBool::new(false),
        });
        open.sessions.insert(link.id, link.clone());
        open.most = open.most.max(open.sessions.len());
        Listed { sessions: self, link }
    }

    /// All sessions, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.open().sessions.values().cloned().collect()
    }

    /// Number of sessions of each user, the users with most first. Users beyond `max` are counted together, as `(others)`.
    pub(crate) fn by_user(&self, max: usize) -> Vec<(String, u64)> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for link in self.open().clients(None) {
            *counts.entry(link.about.user.clone()).or_default() += 1;
        }
        let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        let others: u64 = counts.split_off(max.min(counts.len())).iter().map(|(_, count)| count).sum();
        counts.extend((others > 0).then(|| ("(others)".to_owned(), others)));
        counts
    }

    /// Number of sessions so far.
    pub(crate) fn begun(&self) -> u64 {
        self.open().begun
    }

    /// The largest number of sessions open at once.
    pub(crate) fn most(&self) -> u64 {
        self.open().most as u64
    }

    /// Bytes received from clients and from servers.
    pub(crate) fn traffic(&self) -> [u64; 2] {
        let open = self.open();
        let mut sums = open.ended;
        for link in open.sessions.values() {
            for (sum, bytes) in sums.iter_mut().zip(&link.traffic) {
                *sum += bytes.load(Relaxed);
            }
        }
        sums
    }

    /// A session keeps its server connection for this reason, or has none that it must keep.
    pub(crate) fn note_pin(&self, link: &Link, reason: Option<&'static str>) {
        self.pins.note(&link.pin, reason);
    }

    /// The pins of all sessions, by reason.
    pub(crate) fn pins(&self) -> Vec<PinFigures> {
        let links = self.all();
        self.pins.figures(links.iter().map(|link| &link.pin))
    }

    /// Ends a session. False if no session has this number.
    pub(crate) fn kill(&self, id: u64) -> bool {
        let link = self.open().sessions.get(&id).cloned();
        link.inspect(|link| link.order(KILLED, 0)).is_some()
    }

    /// Ends all sessions of a database, or of all databases. Sessions of the console stay.
    pub(crate) fn kill_all(&self, database: Option<&str>) {
        self.open().clients(database).for_each(|link| link.order(KILLED, 0));
    }

    /// Ends the sessions of a database, each as soon as it is at rest.
    pub(crate) fn dismiss(&self, database: &str) {
        self.open().clients(Some(database)).filter(|link| !link.is_leaving()).for_each(|link| link.dismiss());
    }

    /// Ends the connections for replication of a database. They are never at rest.
    pub(crate) fn kill_replication(&self, database: &str) {
        let is_it = |link: &&Arc<Link>| link.about.replication != Replication::No;
        self.open().clients(Some(database)).filter(is_it).for_each(|link| link.order(KILLED, 0));
    }

    /// Whether the database has a session.
    pub(crate) fn has_any(&self, database: &str) -> bool {
        self.open().clients(Some(database)).next().is_some()
    }

    // --- server connections of their own --------------------------------------------------------------------

    /// RECONNECT: sessions that have their connection to their end are to be closed some time.
    pub(crate) fn note_close_needed(&self, database: Option<&str>, has_own: impl Fn(&Link) -> bool) {
        let open = self.open();
        open.clients(database).filter(|link| has_own(link)).for_each(|link| link.close_needed.store(true, Relaxed));
    }

    /// Whether any of them is still open.
    pub(crate) fn is_close_needed(&self, database: Option<&str>) -> bool {
        self.open().clients(database).any(|link| link.is_close_needed())
    }

    // --- pausing -------------------------------------------------------------------------------------------

    /// A database, or all, was paused, or the pause was ended: orders the sessions accordingly. The orders are given under the lock, by the pauses of this
    /// moment, so that those of a PAUSE and a RESUME at the same time agree with what is in force.
    pub(crate) fn follow_pauses(&self, database: Option<&str>) {
        for link in self.open().clients(database) {
            if self.pauses.include(&link.about.database) {
                link.order(PAUSED, 0);
            } else {
                link.order(0, PAUSED);
            }
        }
    }

    /// Number of sessions within a transaction or a statement.
    pub(crate) fn unfinished(&self) -> usize {
        self.open().clients(None).filter(|link| matches!(link.state(), "active" | "idle in transaction")).count()
    }

    /// Whether all sessions of the paused database, or of all, have nothing to finish. Connections for replication do not count.
    pub(crate) fn is_at_rest(&self, database: Option<&str>) -> bool {
        self.open().clients(database).all(|link| link.about.replication != Replication::No || link.parked.load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(database: &str) -> About {
        About { database: database.to_owned(), ..About::default() }
    }

    #[test]
    fn sessions_are_paused_by_database() {
        let sessions = Sessions::default();
        let (a, b) = (sessions.begin(about("a")), sessions.begin(about("b")));
        let console = sessions.begin(About { console: true, ..about("a") });
        assert!(!a.link.take_news());
        let pause = |database| {
            sessions.pauses.begin(database);
            sessions.follow_pauses(database);
        };
        let resume = |database| {
            let was_paused = sessions.pauses.end(database);
            sessions.follow_pauses(database);
            was_paused
        };
        pause(Some("a"));
        assert!(a.link.is_paused() && a.link.take_news() && !a.link.take_news());
        assert!(!b.link.is_paused() && !console.link.is_paused());
        assert!(!sessions.is_at_rest(Some("a")) && sessions.begin(about("a")).link.is_paused());
        assert!(Sessions::new(sessions.pauses.clone()).begin(about("a")).link.is_paused(), "of another database");
        a.link.set_parked(true);
        assert!(sessions.is_at_rest(Some("a")) && !sessions.is_at_rest(None));
        pause(None);
        assert!(b.link.is_paused() && !sessions.is_at_rest(Some("a")), "each order is answered anew");
        assert!(resume(Some("a")) && a.link.is_paused(), "all databases are still paused");
        assert!(!resume(Some("a")) && resume(None) && !a.link.is_paused() && !b.link.is_paused() && !resume(None));
    }

    #[test]
    fn sessions_are_counted_by_user() {
        let sessions = Sessions::default();
        let of = |user: &str| sessions.begin(About { user: user.to_owned(), ..about("a") });
        let _open = ["x", "y", "y", "z"].map(of);
        let counts = |max| sessions.by_user(max).into_iter().map(|(user, n)| format!("{user} {n}")).collect::<Vec<_>>();
        assert_eq!(counts(3), ["y 2", "x 1", "z 1"]);
        assert_eq!(counts(1), ["y 2", "(others) 2"]);
        assert_eq!(sessions.most(), 4);
    }

    #[test]
    fn sessions_are_listed_while_they_last() {
        let sessions = Sessions::default();
        let (a, b) = (sessions.begin(about("a")), sessions.begin(about("b")));
        a.link.note_traffic(1, 2);
        b.link.note_traffic(10, 20);
        assert!(sessions.kill(a.link.id) && a.link.is_killed() && !b.link.is_killed());
        let id = a.link.id;
        drop(a);
        assert!(!sessions.kill(id) && sessions.all().len() == 1 && sessions.begun() == 2);
        assert_eq!(sessions.traffic(), [11, 22]);
        sessions.kill_all(Some("a"));
        assert!(!b.link.is_killed());
        sessions.kill_all(None);
        assert!(b.link.is_killed());
    }
}
