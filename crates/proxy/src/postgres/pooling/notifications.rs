//! LISTEN of sessions that share server connections: one connection of Freshet's own listens for all of them.
//!
//! A session executes LISTEN on the connection that it has, as any statement. At rest, the channels are *handed over*: the listener listens to them,
//! too; then the session sends a *marker*, a notification to a channel of Freshet's own, on its connection, and ends the listening there. All
//! connections receive notifications in the same order. So the session forwards what comes on its connection before the marker, and the listener gives
//! it what comes behind: nothing is lost, twice, or out of order. To take channels back, a marker separates what the listener gives from what the
//! connection does. A marker within a transaction may be rolled back, and the connection may not hear it. So behind the transaction another one follows, which
//! separates the two, and the session knows what has become of the first.

use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;

use freshet_net::postgres::secret::random;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Limit of the bytes that wait for a session. A server keeps more for a client that reads nothing, at the cost of all others.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Limit of the sessions that wait for the listener.
const WANTED_MAX: usize = 4096;
/// Bytes of one that waits, beside its text.
const OVERHEAD_BYTES: usize = 32;

/// What a session wants of the listener: to listen to these channels, which will be handed over by this marker. The answer says whether it does.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) channels: Vec<Box<str>>,
    pub(crate) marker: u64,
    /// It is gone with the session.
    pub(crate) mailbox: Weak<Mailbox>,
    pub(crate) answer: oneshot::Sender<bool>,
}

/// What the listener gives to a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mail {
    /// The body of a notification.
    Notification(Arc<[u8]>),
    /// A marker of the session's own: if it has taken its channels back by it, nothing follows.
    Marker(Marker),
    /// The listener has lost its connection, or the session reads too slowly.
    Lost(&'static str),
}

/// What waits for one session.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// No other has it, and none can guess it.
    pub(crate) id: u64,
    has_mail: AtomicBool,
    mail: Mutex<(VecDeque<Mail>, usize)>,
    waker: Waker,
}

impl Mailbox {
    /// Of a session that this wakes. None: the system gives no random bytes.
    pub(crate) fn new(waker: Waker) -> Option<Arc<Self>> {
        let id: [u8; 8] = random().ok()?;
        let id = u64::from_le_bytes(id);
        Some(Arc::new(Self { id, has_mail: AtomicBool::new(false), mail: Mutex::default(), waker }))
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Acquire)
    }

    /// The next one.
    pub(crate) fn take(&self) -> Option<Mail> {
        let (mail, bytes) = &mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let next = mail.pop_front();
        *bytes -= next.as_ref().map_or(0, bytes_of);
        if mail.is_empty() {
            self.has_mail.store(false, Release);
        }
        next
    }

    /// Adds one.
    pub(crate) fn put(&self, new: Mail) {
        {
            let (mail, bytes) = &mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(mail.back(), Some(Mail::Lost(_))) {
                return; // the session ends
            }
            *bytes += bytes_of(&new);
            mail.push_back(new);
            if *bytes > WAITING_BYTES_MAX {
                mail.clear();
                *bytes = OVERHEAD_BYTES;
                mail.push_back(Mail::Lost("the client does not read its notifications"));
            }
            self.has_mail.store(true, Release);
        }
        self.waker.wake_by_ref();
    }
}

fn bytes_of(mail: &Mail) -> usize {
    OVERHEAD_BYTES + if let Mail::Notification(body) = mail { body.len() } else { 0 }
}

/// The listener of one database, as its sessions see it.
#[derive(Debug)]
pub(crate) struct Listener {
    wanted: Sender<Wanted>,
    wants: Mutex<Option<Receiver<Wanted>>>,
    markers: AtomicU64,
    channel: OnceLock<Box<str>>,
}

impl Default for Listener {
    fn default() -> Self {
        let (wanted, wants) = channel(WANTED_MAX);
        Self { wanted, wants: Mutex::new(Some(wants)), markers: AtomicU64::new(0), channel: OnceLock::new() }
    }
}

impl Listener {
    /// For the service: what sessions want.
    pub(crate) fn take_wants(&self) -> Option<Receiver<Wanted>> {
        self.wants.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// If there are too many, the session tries again later: it gets no answer.
    pub(crate) fn want(&self, wanted: Wanted) {
        let _ = self.wanted.try_send(wanted);
    }

    /// A new marker.
    pub(crate) fn marker(&self) -> u64 {
        self.markers.fetch_add(1, AcqRel) + 1
    }

    /// The channel of the markers, which nobody else knows; None: the system gives no random bytes.
    pub(crate) fn channel(&self) -> Option<&str> {
        if self.channel.get().is_none() {
            let secret: [u8; 16] = random().ok()?;
            let _ = self.channel.set(format!("freshet_{:032x}", u128::from_be_bytes(secret)).into());
        }
        self.channel.get().map(|channel| &**channel)
    }
}

/// What a marker says, as the payload of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) mailbox: u64,
    pub(crate) number: u64,
    pub(crate) says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Channels are handed over.
    Over,
    /// All channels are taken back.
    Back,
    /// The same, in a transaction of the client's: the listener goes on up to the next marker.
    BackIfCommitted,
    /// Nothing: the session wants to know what came before.
    Nothing,
}

impl Marker {
    pub(crate) fn payload(self) -> String {
        let says = match self.says {
            Says::Over => "over",
            Says::Back => "back",
            Says::BackIfCommitted => "later",
            Says::Nothing => "-",
        };
        format!("{says} {} {}", self.mailbox, self.number)
    }

    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(payload).ok()?.split(' ');
        let says = match words.next()? {
            "over" => Says::Over,
            "back" => Says::Back,
            "later" => Says::BackIfCommitted,
            "-" => Says::Nothing,
            _ => return None,
        };
        Some(Self { says, mailbox: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_read() {
        for says in [Says::Over, Says::Back, Says::BackIfCommitted, Says::Nothing] {
            let marker = Marker { mailbox: 7, number: 1 << 40, says };
            assert_eq!(Marker::read(marker.payload().as_bytes()), Some(marker));
        }
        for other in ["", "over", "over 1", "under 1 2", "over x 2"] {
            assert_eq!(Marker::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_session_that_reads_nothing_is_bounded() {
        let mailbox = Mailbox::new(Waker::noop().clone()).unwrap();
        assert!(!mailbox.has_mail() && mailbox.take().is_none());
        let body = || Mail::Notification(vec![0; 8000].into());
        for _ in 0..2 * WAITING_BYTES_MAX / 8000 {
            mailbox.put(body());
        }
        while mailbox.take().is_some_and(|mail| mail == body()) {}
        assert!(!mailbox.has_mail());
        mailbox.put(body());
        assert!(mailbox.has_mail() && mailbox.take() == Some(body()) && !mailbox.has_mail());
    }
}
