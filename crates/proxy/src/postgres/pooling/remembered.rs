//! Logins without a server connection: with what a session begins, as of the last login at the server with the same start-up parameters.
//!
//! Each login asks a service ([`crate::postgres::service`], `logins`) for everything that decides whether the server would let the user in, and with
//! which settings. If that is what it was ahead of the last real login, the client gets the answer that the server gave then, and the session has no
//! connection until it needs one. If the service has no answer, or after [`TIME_MAX`], there is a real login, with the server's own errors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshet_wire::postgres::startup;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::pool::{Group, PoolKey};
use crate::postgres::Pg;
use crate::postgres::pooling::connection::{Facts, Origin};
use crate::postgres::pooling::obtain::{Login, Obtained};
use crate::shared::ServerIdentity;

/// How long a login is remembered: what no catalogue shows, such as a changed password, is found after this time.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Limit of remembered logins.
const LOGINS_MAX: usize = 1000;
/// Limit of waiting questions.
const QUESTIONS_MAX: usize = 1000;
/// The longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What a session begins with.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    pub(crate) facts: Facts,
    pub(crate) identity: Option<Arc<ServerIdentity>>,
    pub(crate) origin: Arc<Origin>,
}

impl Beginning {
    pub(crate) fn of(obtained: &Obtained) -> Self {
        let connection = &obtained.connection;
        Self {
            facts: connection.facts.clone(),
            identity: connection.identity.clone(),
            origin: connection.origin.clone(),
        }
    }
}

/// A login to be checked.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) user: String,
    /// The database as the server knows it.
    pub(crate) database: String,
    /// Gets a text that changes with whatever decides about the login; dropped if there is none.
    pub(crate) answer: oneshot::Sender<String>,
}

#[derive(Debug)]
struct Remembered {
    /// The answer to the check ahead of the login.
    checked: String,
    at: Instant,
    beginning: Beginning,
}

/// The logins of one database.
#[derive(Debug)]
pub(crate) struct RememberedLogins {
    logins: Mutex<HashMap<(Arc<PoolKey>, Group), Remembered>>,
    checks: mpsc::Sender<Check>,
    receiver: Mutex<Option<mpsc::Receiver<Check>>>,
    renewals: AtomicU64,
}

impl Default for RememberedLogins {
    fn default() -> Self {
        let (checks, receiver) = mpsc::channel(QUESTIONS_MAX);
        Self { logins: Mutex::default(), checks, receiver: Mutex::new(Some(receiver)), renewals: AtomicU64::new(0) }
    }
}

impl RememberedLogins {
    /// The logins to check.
    pub(crate) fn take_checks(&self) -> Option<mpsc::Receiver<Check>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What decides about a login now; None if that cannot be known.
    pub(crate) async fn check(&self, login: &Login) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        let named = startup::parameter(&login.packet, b"database").filter(|name| !name.is_empty());
        let database = named.map_or_else(|| login.user.clone(), |name| String::from_utf8_lossy(name).into_owned());
        self.checks.try_send(Check { user: login.user.clone(), database, answer }).ok()?;
        timeout(ANSWER_TIMEOUT, answered).await.ok()?.ok()
    }

    /// What a session with this login begins with, if the last one at the server is known and would be the same now.
    pub(crate) fn find(&self, shared: &Pg, login: &Login, checked: &str) -> Option<Beginning> {
        let key = (login.key.clone(), login.group.clone());
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let found = logins.get(&key)?;
        let context = found.beginning.facts.context.as_ref();
        let is_known = context.is_none_or(|(_, under)| *under == shared.catalog_version());
        if found.checked != checked || found.at.elapsed() >= TIME_MAX || !is_known {
            logins.remove(&key);
            return None;
        }
        Some(found.beginning.clone())
    }

    /// A login at the server; `checked`: the answer ahead of it.
    pub(crate) fn note(&self, login: &Login, checked: String, beginning: Beginning) {
        // A trigger has set something at the login, and may set something else at the next one.
        if !beginning.origin.lives.settings.is_empty() {
            return;
        }
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        if logins.len() >= LOGINS_MAX {
            logins.retain(|_, login| login.at.elapsed() < TIME_MAX);
        }
        if logins.len() >= LOGINS_MAX {
            // A quarter at once, so that not each login looks for one.
            let mut times: Vec<Instant> = logins.values().map(|login| login.at).collect();
            let (_, last, _) = times.select_nth_unstable(LOGINS_MAX / 4);
            let last = *last;
            logins.retain(|_, login| login.at > last);
        }
        let key = (login.key.clone(), login.group.clone());
        logins.insert(key, Remembered { checked, at: Instant::now(), beginning });
    }

    /// The next login to this database, or to any, is one at the server, as the next check is on a new connection.
    pub(crate) fn forget(&self, database: Option<&str>) {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner).retain(|(key, _), _| !key.is_of(database));
        self.renewals.fetch_add(1, Relaxed);
    }

    /// How often connections were to be renewed.
    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Relaxed)
    }
}
