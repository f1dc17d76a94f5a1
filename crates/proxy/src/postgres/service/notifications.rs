//! Listens for all sessions that share server connections: see [`crate::postgres::pooling::notifications`].

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use freshet_net::postgres::{Client, Error, Notification, quote_identifier};
use tokio::time::{MissedTickBehavior, interval};

use crate::postgres::Pg;
use crate::postgres::pooling::notifications::{Mail, Mailbox, Marker, Says, Wanted};
use crate::postgres::service::connection::{ServiceError, connect};
use crate::service::once::Once;
use crate::shared::ServerIdentity;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// So often it is looked whether the connection leads to the server of the change stream still.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure no connection is opened for this time.
const PAUSE: Duration = Duration::from_secs(1);
/// What the sessions are told whose notifications may be lost.
const LOST: &str = "the connection that listens for notifications was lost";

/// A session that listens to a channel.
struct Hearer {
    mailbox: Weak<Mailbox>,
    id: u64,
    /// With this marker the channel is handed over.
    marker: u64,
    is_open: bool,
}

/// Who listens to what.
#[derive(Default)]
struct Hearers {
    /// Those of the sessions that may listen.
    mailboxes: HashMap<u64, Weak<Mailbox>>,
    by_channel: HashMap<Box<[u8]>, Vec<Hearer>>,
    /// Those that leave with their next marker.
    leaving: HashSet<u64>,
}

impl Hearers {
    /// Gives a notification to those that listen to its channel. `markers`: the channel of the markers.
    fn hear(&mut self, body: &[u8], markers: &[u8]) {
        let Ok(Notification { channel, payload, .. }) = Notification::read(body) else { return };
        if channel != markers {
            let body: Arc<[u8]> = body.into();
            let hearers = self.by_channel.get(channel).into_iter().flatten().filter(|hearer| hearer.is_open);
            hearers.filter_map(|hearer| hearer.mailbox.upgrade()).for_each(|mailbox| {
                mailbox.put(Mail::Notification(body.clone()));
            });
            return;
        }
        let Some(marker) = Marker::read(payload) else { return };
        let Some(mailbox) = self.mailboxes.get(&marker.mailbox).and_then(Weak::upgrade) else { return };
        if marker.says == Says::Over {
            let opened = |hearer: &&mut Hearer| hearer.id == mailbox.id && hearer.marker == marker.number;
            self.by_channel.values_mut().flatten().filter(opened).for_each(|hearer| hearer.is_open = true);
            return;
        }
        let leaves = match marker.says {
            Says::BackIfCommitted => {
                self.leaving.insert(mailbox.id);
                false
            }
            Says::Nothing => self.leaving.remove(&mailbox.id),
            Says::Back | Says::Over => true,
        };
        if leaves {
            self.by_channel.values_mut().for_each(|hearers| hearers.retain(|hearer| hearer.id != mailbox.id));
        }
        mailbox.put(Mail::Marker(marker));
    }

    /// A session will listen to these channels. What it has wanted before and was not handed over is gone.
    fn add(&mut self, mailbox: &Arc<Mailbox>, marker: u64, channels: Vec<Box<str>>) {
        self.mailboxes.insert(mailbox.id, Arc::downgrade(mailbox));
        let is_given_up = |hearer: &Hearer| hearer.id == mailbox.id && !hearer.is_open;
        self.by_channel.values_mut().for_each(|hearers| hearers.retain(|hearer| !is_given_up(hearer)));
        for channel in channels {
            let hearer = Hearer { mailbox: Arc::downgrade(mailbox), id: mailbox.id, marker, is_open: false };
            self.by_channel.entry(channel.into_boxed_bytes()).or_default().push(hearer);
        }
    }

    /// The channels to which nobody listens any more: forgets them, and the sessions that have ended.
    fn deserted(&mut self) -> Vec<String> {
        self.mailboxes.retain(|_, mailbox| mailbox.strong_count() > 0);
        self.leaving.retain(|id| self.mailboxes.contains_key(id));
        for hearers in self.by_channel.values_mut() {
            hearers.retain(|hearer| hearer.mailbox.strong_count() > 0);
        }
        let deserted = self.by_channel.extract_if(|_, hearers| hearers.is_empty());
        deserted.map(|(channel, _)| String::from_utf8_lossy(&channel).into_owned()).collect()
    }

    /// Notifications may be lost.
    fn lose(&mut self) {
        self.by_channel.clear();
        self.leaving.clear();
        for mailbox in self.mailboxes.drain().filter_map(|(_, mailbox)| mailbox.upgrade()) {
            mailbox.put(Mail::Lost(LOST));
        }
    }
}

/// The connection that listens.
struct Listening {
    client: Client,
    identity: ServerIdentity,
}

/// Listens; never returns, unless no session shares connections.
pub async fn listen_for_sessions(shared: Arc<Pg>) {
    if !shared.settings.pool.may_share() {
        return;
    }
    let Some(mut wants) = shared.pooling.listener.take_wants() else { return };
    let Some(markers) = shared.pooling.listener.channel().map(str::to_owned) else { return };
    let (mut hearers, mut listening, mut once) = (Hearers::default(), None::<Listening>, Once::default());
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // After a failure, those that have waited for the same are told so at once.
    let mut resumes = Instant::now();
    loop {
        let outcome = tokio::select! {
            wanted = wants.recv() => match wanted {
                Some(_) if listening.is_none() && Instant::now() < resumes => Ok(()),
                Some(wanted) => serve(&shared, &mut listening, &mut hearers, wanted).await,
                None => return,
            },
            heard = hear(listening.as_mut()) => heard.map(|body| hearers.hear(&body, markers.as_bytes())).map_err(Into::into),
            _ = look.tick(), if listening.is_some() => look_after(&shared, listening.as_mut(), &mut hearers).await,
        };
        match &outcome {
            Ok(()) => once.clear(),
            Err(error) => {
                once.warn_of("cannot listen for sessions: those that LISTEN keep their server connections", error);
                resumes = Instant::now() + PAUSE;
            }
        }
        let is_dead = listening.as_ref().is_some_and(|listening| listening.client.is_dead());
        if is_dead || matches!(outcome, Err(ServiceError::OtherServer)) {
            listening = None;
            hearers.lose();
        }
    }
}

async fn hear(listening: Option<&mut Listening>) -> Result<Box<[u8]>, Error> {
    match listening {
        Some(listening) => listening.client.notification().await,
        None => pending().await,
    }
}

/// Whether the connection leads to the server of the change stream, as far as that is known; ends the listening to channels to which no session listens.
async fn look_after(shared: &Pg, listening: Option<&mut Listening>, hearers: &mut Hearers) -> Result<(), ServiceError> {
    let Some(listening) = listening else { return Ok(()) };
    if shared.identity().is_some_and(|stream| *stream != listening.identity) {
        return Err(ServiceError::OtherServer);
    }
    let deserted = hearers.deserted();
    if deserted.is_empty() { Ok(()) } else { run(listening, "UNLISTEN", &deserted).await }
}

async fn serve(
    shared: &Pg,
    listening: &mut Option<Listening>,
    hearers: &mut Hearers,
    wanted: Wanted,
) -> Result<(), ServiceError> {
    let Wanted { channels, marker, mailbox, answer } = wanted;
    let Some(mailbox) = mailbox.upgrade() else { return Ok(()) };
    let connected = match listening {
        Some(listening) => listening,
        None => listening.insert(open(shared).await?),
    };
    run(connected, "LISTEN", &channels).await?;
    hearers.add(&mailbox, marker, channels);
    let _ = answer.send(true);
    Ok(())
}

async fn open(shared: &Pg) -> Result<Listening, ServiceError> {
    let (mut client, identity) = connect(shared).await?;
    client.keep_notifications();
    let mut listening = Listening { client, identity };
    let markers = shared.pooling.listener.channel().unwrap_or_default();
    run(&mut listening, "LISTEN", &[markers]).await?;
    Ok(listening)
}

/// LISTEN or UNLISTEN.
async fn run(listening: &mut Listening, command: &str, channels: &[impl AsRef<str>]) -> Result<(), ServiceError> {
    let statements: Vec<String> =
        channels.iter().map(|channel| format!("{command} {}", quote_identifier(channel.as_ref()))).collect();
    listening.client.query_timeout(&statements.join(";"), ANSWER_TIMEOUT).await?;
    Ok(())
}
