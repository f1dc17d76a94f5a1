//! The open sessions, as the web endpoints list them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::server::databases::Family;
use crate::server::pins::PinFigures;
use crate::server::sessions::{Link, Sessions};

/// One session.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// Its number, by which the console's KILL_CLIENT names it.
    pub id: u64,
    /// The user, as of the login.
    pub user: String,
    /// The database, as of the login.
    pub database: String,
    /// The name of the application, as of the login.
    pub application_name: String,
    /// The client's address; None: a Unix socket.
    pub client: Option<SocketAddr>,
    /// The address of its server connection; None: a Unix socket, or the session has none.
    pub server: Option<SocketAddr>,
    /// The time since its login.
    pub open: Duration,
    /// `active`, `idle`, `idle in transaction`, `paused`, `replication`, or `console`.
    pub state: &'static str,
    /// The statement that the server executes.
    pub running: Option<RunningStatement>,
    /// What keeps it on a server connection that it shares, and for how long.
    pub pin: Option<(&'static str, Duration)>,
}

/// A statement that the server executes.
#[derive(Clone, Debug)]
pub struct RunningStatement {
    /// Its digest in hexadecimal; None: it has none, or it is not known.
    pub digest: Option<String>,
    /// Its text, with parameters in place of its constants.
    pub query: Option<String>,
    /// The time since it was sent, or since the answer before its own.
    pub lasts: Duration,
}

/// The digest of a statement that runs, and for how long.
type Running = (u64, Duration);

impl Family {
    fn sessions(&self) -> &Sessions {
        match self {
            Self::Postgres(pg) => &pg.sessions,
            Self::MySql(mysql) => &mysql.sessions,
        }
    }

    /// Open sessions by their user at login, those with most first. Beyond so many users the others are counted together.
    pub fn sessions_by_user(&self, max: usize) -> Vec<(String, u64)> {
        self.sessions().by_user(max)
    }

    /// What keeps sessions on the server connections that they share, by reason.
    pub fn pins(&self) -> Vec<PinFigures> {
        self.sessions().pins()
    }

    /// The open sessions, those first whose statement has been running for the longest time, then the oldest; and how many more there are.
    pub fn session_list(&self, max: usize) -> (Vec<SessionReport>, usize) {
        let now = self.shared().clock.now();
        let mut all: Vec<(Arc<Link>, Option<Running>)> = self
            .sessions()
            .all()
            .into_iter()
            .map(|link| {
                let running =
                    link.running().map(|(digest, since)| (digest, Duration::from_nanos(now.saturating_sub(since))));
                (link, running)
            })
            .collect();
        all.sort_by_key(|(_, running)| Reverse(running.map(|(_, lasts)| lasts)));
        let more = all.len().saturating_sub(max);
        all.truncate(max);
        let texts = self.texts_of(all.iter().filter_map(|(_, running)| running.map(|(digest, _)| digest)));
        (all.iter().map(|(link, running)| report(link, *running, &texts)).collect(), more)
    }

    /// The statements with these digests: each digest as it is shown, and the text.
    fn texts_of(&self, digests: impl Iterator<Item = u64>) -> BTreeMap<u64, (String, String)> {
        let mut texts: BTreeMap<u64, (String, String)> =
            digests.filter(|digest| *digest != 0).map(|digest| (digest, Default::default())).collect();
        if !texts.is_empty() {
            for query in self.shared().registry.each_query() {
                if let Some(text) = texts.get_mut(&query.digest) {
                    *text = (query.digest_text(), query.text.to_string());
                }
            }
        }
        // Some were evicted meanwhile.
        texts.retain(|_, (digest, _)| !digest.is_empty());
        texts
    }
}

fn report(link: &Link, running: Option<Running>, texts: &BTreeMap<u64, (String, String)>) -> SessionReport {
    let about = &link.about;
    let statement = |(digest, lasts)| {
        let (digest, query) = texts.get(&digest).cloned().unzip();
        RunningStatement { digest, query, lasts }
    };
    SessionReport {
        id: link.id,
        user: about.user.clone(),
        database: about.database.clone(),
        application_name: about.application_name.clone(),
        client: about.client.map(|(_, peer)| peer),
        server: about.server.map(|(_, peer)| peer),
        open: SystemTime::now().duration_since(link.since).unwrap_or_default(),
        state: link.state(),
        running: running.map(statement),
        pin: link.pin.get().map(|pinned| (pinned.reason, pinned.since.elapsed())),
    }
}
