//! The open sessions: what an operator is shown of them, and what is ordered of them from outside.
//!
//! A session runs on its worker's thread and is asked nothing. It has a [`Link`] to the list, registered at its start. An operator's order is
//! a bit in the link, which the session reads where it looks for messages; its task is woken to see it. So an order costs a session one load of a
//! byte that nobody writes. The list has a lock, which sessions take at their start and at their end only.
//!
//! **PAUSE.** A session that has nothing to finish reads no more of its client, and says so in its link. PAUSE is complete when all sessions of the
//! database have said it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::SystemTime;

use freshet_types::Nanos;
use tokio::sync::Notify;

/// The session is to end at once.
const KILLED: u8 = 1;
/// It is to read no new statement.
const PAUSED: u8 = 2;
/// It has not looked since its last order.
const NEWS: u8 = 4;
/// It is to end as soon as it is at rest.
const LEAVING: u8 = 8;

/// The number of the last session of this process. Numbers differ between databases, too: an operator names a session by its number alone.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// What a session is.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) user: String,
    pub(crate) database: String,
    /// As of its login.
    pub(crate) application_name: String,
    /// A session of the console, which has no server.
    pub(crate) console: bool,
    pub(crate) replication: bool,
    /// The addresses of both ends of its client's connection; None: a Unix socket.
    pub(crate) client: Option<(SocketAddr, SocketAddr)>,
    /// The same of its server's.
    pub(crate) server: Option<(SocketAddr, SocketAddr)>,
    /// The client uses TLS, the server does.
    pub(crate) tls: (bool, bool),
}

/// A session's entry in the list.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) about: About,
    pub(crate) since: SystemTime,
    orders: AtomicU8,
    /// It reads no more of its client, and its server has nothing to do.
    parked: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Bytes that have come from the client, and from the server.
    traffic: [AtomicU64; 2],
    /// MySQL and MariaDB: the digest of the statement that the server executes (0: not known), and since when; 0: none.
    running: [AtomicU64; 2],
}

impl Link {
    /// Has the current task woken by orders, as long as it lives.
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

    /// Whether it has any order, or has not looked since the last.
    pub(crate) fn has_orders(&self) -> bool {
        self.orders.load(Acquire) != 0
    }

    /// An order has come since this was last asked.
    pub(crate) fn take_news(&self) -> bool {
        self.has(NEWS) && self.orders.fetch_and(!NEWS, AcqRel) & NEWS != 0
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.has(KILLED)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.has(PAUSED)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.has(LEAVING)
    }

    /// The session is to end as soon as it is at rest.
    pub(crate) fn dismiss(&self) {
        self.order(LEAVING, 0);
    }

    /// The session has nothing to finish, and reads no more of its client; or else it goes on.
    pub(crate) fn set_parked(&self, parked: bool) {
        self.parked.store(parked, Release);
    }

    /// So many bytes have come from the client and from the server in all.
    pub(crate) fn note_traffic(&self, client: u64, server: u64) {
        let [from_client, from_server] = &self.traffic;
        from_client.store(client, Relaxed);
        from_server.store(server, Relaxed);
    }

    /// The server executes a statement with this digest since this time.
    pub(crate) fn begin_running(&self, digest: u64, now: Nanos) {
        let [statement, since] = &self.running;
        statement.store(digest, Relaxed);
        since.store(now, Relaxed);
    }

    /// The server has answered.
    pub(crate) fn end_running(&self) {
        let [_, since] = &self.running;
        since.store(0, Relaxed);
    }

    /// The digest of the statement that the server executes, and since when. A moment later it may be another one.
    pub(crate) fn running(&self) -> Option<(u64, Nanos)> {
        let [statement, since] = self.running.each_ref().map(|cell| cell.load(Relaxed));
        (since > 0).then_some((statement, since))
    }

    /// Returns when the session is killed. For tasks that wait for nothing that looks at orders.
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
    /// How many sessions have begun, and how many were open at once at most.
    begun: u64,
    most: usize,
    /// All databases are paused.
    all_paused: bool,
    /// These are.
    paused: BTreeSet<String>,
    /// Bytes from clients and from servers of the sessions that have ended.
    ended: [u64; 2],
}

impl Open {
    fn is_paused(&self, database: &str) -> bool {
        self.all_paused || self.paused.contains(database)
    }

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
    resumed: Notify,
}

/// Removes its session from the list when it is dropped.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    sessions: &'a Sessions,
    pub(crate) link: Arc<Link>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut open = self.sessions.open();
        open.sessions.remove(&self.link.id);
        for (sum, bytes) in open.ended.iter_mut().zip(&self.link.traffic) {
            *sum += bytes.load(Relaxed);
        }
    }
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins.
    pub(crate) fn begin(&self, about: About) -> Listed<'_> {
        let mut open = self.open();
        open.begun += 1;
        let paused = !about.console && open.is_paused(&about.database);
        let link = Arc::new(Link {
            id: LAST_ID.fetch_add(1, Relaxed) + 1,
            about,
            since: SystemTime::now(),
            orders: AtomicU8::new(if paused { PAUSED } else { 0 }),
            parked: AtomicBool::new(false),
            waker: Mutex::default(),
            traffic: Default::default(),
            running: Default::default(),
        });
        open.sessions.insert(link.id, link.clone());
        open.most = open.most.max(open.sessions.len());
        Listed { sessions: self, link }
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.open().sessions.values().cloned().collect()
    }

    /// How many each user has, those with most first. Beyond so many users the others are counted together, under `(others)`.
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

    /// How many there were.
    pub(crate) fn begun(&self) -> u64 {
        self.open().begun
    }

    /// How many were open at once at most.
    pub(crate) fn most(&self) -> u64 {
        self.open().most as u64
    }

    /// Bytes that have come from clients and from servers.
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

    /// Ends a session; false: there is none of this number.
    pub(crate) fn kill(&self, id: u64) -> bool {
        let link = self.open().sessions.get(&id).cloned();
        link.inspect(|link| link.order(KILLED, 0)).is_some()
    }

    /// Ends all sessions of a database, or of all. Those of the console stay.
    pub(crate) fn kill_all(&self, database: Option<&str>) {
        self.open().clients(database).for_each(|link| link.order(KILLED, 0));
    }

    /// Ends the sessions of a database, each as soon as it is at rest.
    pub(crate) fn dismiss(&self, database: &str) {
        self.open().clients(Some(database)).for_each(|link| link.dismiss());
    }

    /// Whether the database has a session.
    pub(crate) fn has_any(&self, database: &str) -> bool {
        self.open().clients(Some(database)).next().is_some()
    }

    // --- pausing -------------------------------------------------------------------------------------------

    /// Pauses a database, or all. The orders are given under the lock, so that those of a RESUME at the same moment come all before or all behind.
    pub(crate) fn pause(&self, database: Option<&str>) {
        let mut open = self.open();
        match database {
            Some(database) => _ = open.paused.insert(database.to_owned()),
            None => open.all_paused = true,
        }
        open.clients(database).for_each(|link| link.order(PAUSED, 0));
    }

    /// Ends the pause of a database, or of all; false: there was none.
    pub(crate) fn resume(&self, database: Option<&str>) -> bool {
        let mut open = self.open();
        let was_paused = match database {
            Some(database) => open.paused.remove(database),
            // Those that were paused by name stay so, as in PgBouncer.
            None => std::mem::take(&mut open.all_paused),
        };
        let goes_on = |link: &&Arc<Link>| !open.is_paused(&link.about.database);
        open.clients(database).filter(goes_on).for_each(|link| link.order(0, PAUSED));
        drop(open);
        self.resumed.notify_waiters();
        was_paused
    }

    /// Whether all databases are paused.
    pub(crate) fn is_all_paused(&self) -> bool {
        self.open().all_paused
    }

    /// Whether the database is paused.
    pub(crate) fn is_paused(&self, database: &str) -> bool {
        self.open().is_paused(database)
    }

    /// Whether all sessions of the paused database, or of all, have nothing to finish. A connection for replication is not waited for.
    pub(crate) fn is_at_rest(&self, database: Option<&str>) -> bool {
        self.open().clients(database).all(|link| link.about.replication || link.parked.load(Acquire))
    }

    /// Returns when the database is not paused.
    pub(crate) async fn resumed(&self, database: &str) {
        loop {
            let mut resumed = std::pin::pin!(self.resumed.notified());
            resumed.as_mut().enable();
            if !self.is_paused(database) {
                return;
            }
            resumed.await;
        }
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
        sessions.pause(Some("a"));
        assert!(a.link.is_paused() && a.link.take_news() && !a.link.take_news());
        assert!(!b.link.is_paused() && !console.link.is_paused());
        assert!(!sessions.is_at_rest(Some("a")) && sessions.begin(about("a")).link.is_paused());
        a.link.set_parked(true);
        assert!(sessions.is_at_rest(Some("a")) && !sessions.is_at_rest(None));
        sessions.pause(None);
        assert!(b.link.is_paused() && !sessions.is_at_rest(Some("a")), "each order is answered anew");
        assert!(sessions.resume(Some("a")) && a.link.is_paused(), "all databases are still paused");
        assert!(
            !sessions.resume(Some("a"))
                && sessions.resume(None)
                && !a.link.is_paused()
                && !b.link.is_paused()
                && !sessions.resume(None)
        );
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
