//! LISTEN of a session that shares server connections: its channels are handed over to the listener
//! ([`crate::postgres::pooling::notifications`]), and taken back before a statement that may end or show the listening.
//!
//! A session with channels that are handed over sends one unit at a time, so that it is known at each statement whether a transaction is open. While
//! channels change hands, it sends nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use freshet_net::postgres::{Notification, quote_identifier};
use freshet_wire::postgres::frame::{HEADER_BYTES, Header};
use freshet_wire::postgres::{backend, frontend};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::pool::PoolFigures;
use crate::postgres::pooling::notifications::{Listener, Mail, Mailbox, Marker, Says, Wanted};
use crate::postgres::question::parse_name_array;
use crate::postgres::session::Session;
use crate::postgres::session::unit::{Ask, OfListening};
use crate::statement::registry::Statement;

/// The name of Freshet's statements that listen.
pub(super) const LISTENING: &[u8] = b"_freshet_listening";

/// The bytes of the process id, with which a notification begins.
const PROCESS_BYTES: usize = 4;
/// Behind a failure it is tried again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// The channels to which the connection listens, unless they are too many; whether code may end the listening, or show it, unseen; and the encoding of
/// what comes.
const CHANNELS: &str = "SELECT (SELECT CASE WHEN pg_catalog.length(c.all_of_them) OPERATOR(pg_catalog.<) 16000 THEN c.all_of_them END \
     FROM (SELECT ARRAY(SELECT pg_catalog.pg_listening_channels())::pg_catalog.text AS all_of_them) c), \
     EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid \
     AND p.prosrc OPERATOR(pg_catalog.~*) 'unlisten|listening_channels|discard'), \
     pg_catalog.current_setting('client_encoding')";

/// What is done to hand channels over.
#[derive(Debug, Default)]
enum Step {
    #[default]
    Nothing,
    /// The server is asked for the channels.
    Asks,
    /// The listener does not listen yet.
    Waits(HandedOver, oneshot::Receiver<bool>),
    /// It does.
    Ready(HandedOver),
    /// The marker was sent. `is_behind`: it has come.
    HandsOver { over: HandedOver, is_behind: bool },
    /// The connection still listens to these channels.
    Ends(Vec<Box<str>>),
    /// The statements that end it were sent.
    Ending,
    /// The channels stay on the connection until the server is asked again, or until this time.
    Stays(Option<Pin<Box<Sleep>>>),
}

#[derive(Debug)]
struct HandedOver {
    marker: Marker,
    /// Those of which the listener does not know yet.
    channels: Vec<Box<str>>,
    /// Those to which the connection listens.
    there: Vec<Box<str>>,
}

/// Channels that are being taken back.
#[derive(Debug)]
struct Back {
    /// The marker that was sent last.
    marker: Marker,
    /// It was sent within a transaction, which may be rolled back.
    in_block: bool,
    /// The last one has come on the connection: first the client gets what the listener has heard before it.
    drains: bool,
    /// The channels to which the connection listened behind that transaction.
    there: Option<Vec<Arc<str>>>,
    /// The listener has heard the marker of that transaction: it was committed.
    is_behind: bool,
}

/// What the listener does for a session.
#[derive(Debug)]
pub(super) struct Listened {
    listener: Arc<Listener>,
    figures: Arc<PoolFigures>,
    is_counted: bool,
    mailbox: Arc<Mailbox>,
    /// The channels that were handed over.
    channels: Vec<Box<str>>,
    step: Step,
    back: Option<Back>,
    /// Why the session must end.
    failure: Option<&'static str>,
}

impl Drop for Listened {
    fn drop(&mut self) {
        self.count(false);
    }
}

impl Listened {
    /// None: the system gives no random bytes.
    fn new(session: &Session) -> Option<Box<Self>> {
        let listener = session.shared.pooling.listener.clone();
        let mailbox = Mailbox::new(session.server.sharing.as_ref()?.cancel.waker.clone())?;
        let figures = session.shared.pool_figures.clone();
        let (channels, step, back, failure) = (Vec::new(), Step::Nothing, None, None);
        Some(Box::new(Self { listener, figures, is_counted: false, mailbox, channels, step, back, failure }))
    }

    /// Whether it is one of the sessions that listen without a connection of their own.
    fn count(&mut self, counts: bool) {
        match (std::mem::replace(&mut self.is_counted, counts), counts) {
            (false, true) => self.figures.listening.fetch_add(1, Relaxed),
            (true, false) => self.figures.listening.fetch_sub(1, Relaxed),
            _ => return,
        };
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.step {
            Step::Waits(_, answer) => {
                let Poll::Ready(answer) = Pin::new(answer).poll(cx) else { return false };
                if let Step::Waits(over, _) = std::mem::take(&mut self.step) {
                    self.step = if answer == Ok(true) { Step::Ready(over) } else { again() };
                }
                true
            }
            Step::Stays(Some(until)) => {
                let is_over = until.as_mut().poll(cx).is_ready();
                if is_over {
                    self.step = Step::Nothing;
                }
                is_over
            }
            _ => false,
        }
    }

    fn markers(&self) -> Option<String> {
        self.listener.channel().map(quote_identifier)
    }

    fn marker(&self, says: Says) -> Marker {
        Marker { mailbox: self.mailbox.id, number: self.listener.marker(), says }
    }

    /// A marker has come on the connection.
    fn marker_came(&mut self, marker: Option<Marker>) {
        if let Step::HandsOver { over, is_behind } = &mut self.step
            && Some(over.marker) == marker
        {
            *is_behind = true;
        }
        if let Some(back) = &mut self.back
            && Some(back.marker) == marker
        {
            back.drains = true;
        }
    }

    /// The listener has heard a marker.
    fn heard_marker(&mut self, marker: Marker) {
        let Some(back) = &mut self.back else { return };
        back.is_behind |= marker.says != Says::Nothing;
        if back.marker != marker {
            return;
        }
        if back.is_behind {
            self.channels.clear();
        }
        self.back = None;
        self.count(!self.channels.is_empty());
    }

    /// Whether what the listener has heard is the client's.
    fn is_clients(&self, body: &[u8]) -> bool {
        let Some(Back { is_behind: true, there: Some(there), .. }) = &self.back else { return true };
        let Ok(Notification { channel, .. }) = Notification::read(body) else { return false };
        there.iter().any(|other| other.as_bytes() == channel)
    }

    fn is_handing_over(&self) -> bool {
        matches!(self.step, Step::HandsOver { .. } | Step::Ends(_) | Step::Ending)
    }
}

fn again() -> Step {
    Step::Stays(Some(Box::pin(sleep(AGAIN))))
}

fn listen(channels: &[Box<str>]) -> Vec<String> {
    channels.iter().map(|channel| format!("LISTEN {}", quote_identifier(channel))).collect()
}

impl Session {
    fn listened(&self) -> Option<&Listened> {
        self.server.sharing.as_ref()?.listened.as_deref()
    }

    fn listened_mut(&mut self) -> Option<&mut Listened> {
        self.server.sharing.as_mut()?.listened.as_deref_mut()
    }

    // --- handing over --------------------------------------------------------------------------------------

    /// At rest, channels keep the session on its connection: the next step to hand them over.
    pub(super) fn hand_over(&mut self) {
        if self.listened().is_none() {
            let new = Listened::new(self);
            let Some(sharing) = &mut self.server.sharing else { return };
            sharing.listened = new;
        }
        let Some(listened) = self.listened_mut() else { return };
        let Some(markers) = listened.markers() else { return };
        match std::mem::take(&mut listened.step) {
            Step::Nothing => {
                listened.step = Step::Asks;
                self.run_own(&[CHANNELS.to_owned()], OfListening::Channels);
            }
            Step::Ready(over) => {
                let statements =
                    [format!("LISTEN {markers}"), format!("NOTIFY {markers}, '{}'", over.marker.payload())];
                listened.step = Step::HandsOver { over, is_behind: false };
                self.run_own(&statements, OfListening::HandOver);
            }
            Step::Ends(there) => {
                let mut statements: Vec<String> =
                    there.iter().map(|channel| format!("UNLISTEN {}", quote_identifier(channel))).collect();
                statements.push(format!("UNLISTEN {markers}"));
                listened.step = Step::Ending;
                self.run_own(&statements, OfListening::End);
            }
            step => listened.step = step,
        }
    }

    /// Sends statements of Freshet's own, in a transaction of theirs or in the client's.
    fn run_own(&mut self, statements: &[String], about: OfListening) {
        let out = self.server.output();
        for sql in statements {
            frontend::put_close_statement(out, LISTENING);
            frontend::put_parse(out, LISTENING, sql.as_bytes());
            frontend::put_bind_execute(out, LISTENING, &[]);
        }
        frontend::put_close_statement(out, LISTENING);
        frontend::put_sync(out);
        self.pipeline.push_own(Ask::Listening(about));
    }

    /// The server has answered.
    pub(super) fn listening_answered(&mut self, about: OfListening, columns: &[Option<&[u8]>]) {
        match about {
            OfListening::Channels => return self.channels_known(columns),
            OfListening::ChannelsBehind => return self.channels_behind_known(columns),
            _ => {}
        }
        let Some(sharing) = &mut self.server.sharing else { return };
        let Some(listened) = sharing.listened.as_deref_mut() else { return };
        match about {
            OfListening::HandOver => {
                if let Step::HandsOver { over, is_behind } = std::mem::take(&mut listened.step) {
                    // It has failed: the listener gives nothing, and the connection listens to the markers at most.
                    if is_behind {
                        listened.channels.extend(over.channels);
                        listened.count(!listened.channels.is_empty());
                    }
                    listened.step = if is_behind { Step::Ends(over.there) } else { again() };
                }
            }
            OfListening::End => {
                listened.step = Step::Nothing;
                sharing.traces.channels_changed();
            }
            OfListening::TakeBack => {
                let has_failed = listened.back.as_ref().is_some_and(|back| !back.drains && !back.in_block);
                if has_failed {
                    listened.failure = Some("the channels to which the session listens could not be taken back");
                }
            }
            OfListening::Channels | OfListening::ChannelsBehind | OfListening::EndMarkers => {}
        }
    }

    fn channels_behind_known(&mut self, row: &[Option<&[u8]>]) {
        let text = row.first().copied().flatten().and_then(|text| std::str::from_utf8(text).ok());
        let there = text.and_then(parse_name_array);
        let Some(listened) = self.listened_mut() else { return };
        match (&mut listened.back, there) {
            (Some(back), Some(there)) => back.there = Some(there),
            _ => listened.failure = Some("the channels to which the session listens could not be read"),
        }
    }

    fn channels_known(&mut self, row: &[Option<&[u8]>]) {
        let text = |at: usize| row.get(at).copied().flatten().and_then(|text| std::str::from_utf8(text).ok());
        let is_utf8 = text(2) == Some("UTF8");
        self.server.settings.is_utf8 = is_utf8;
        let Some(listened) = self.listened_mut() else { return };
        listened.step = Step::Stays(None);
        let (Some(there), Some("f"), true) = (text(0).and_then(parse_name_array), text(1), is_utf8) else { return };
        let is_clients = |channel: &&Arc<str>| listened.listener.channel().is_none_or(|markers| markers != &***channel);
        let there: Vec<Box<str>> = there.iter().filter(is_clients).map(|channel| (&**channel).into()).collect();
        let channels: Vec<Box<str>> =
            there.iter().filter(|channel| !listened.channels.contains(channel)).cloned().collect();
        if channels.is_empty() {
            listened.step = Step::Ends(there);
            return;
        }
        let marker = listened.marker(Says::Over);
        let (answer, answered) = oneshot::channel();
        let (number, mailbox) = (marker.number, listened.mailbox.clone());
        let wanted = Wanted { channels: channels.clone(), marker: number, mailbox: Arc::downgrade(&mailbox), answer };
        listened.listener.want(wanted);
        listened.step = Step::Waits(HandedOver { marker, channels, there }, answered);
    }

    /// The server has told whether the connection listens to anything: what was begun may be for other channels.
    pub(super) fn begin_listening_anew(&mut self, listens: bool) {
        let Some(sharing) = &mut self.server.sharing else { return };
        let Some(listened) = sharing.listened.as_deref_mut() else { return };
        if matches!(listened.step, Step::Waits(..) | Step::Ready(_) | Step::Stays(_)) {
            listened.step = Step::Nothing;
        }
        if !listens && listened.channels.is_empty() && listened.back.is_none() && !listened.is_handing_over() {
            sharing.listened = None;
        }
    }

    // --- taking back ---------------------------------------------------------------------------------------

    /// Whether nothing may be sent to the server now.
    pub(super) fn channels_change_hands(&self) -> bool {
        self.listened().is_some_and(|listened| {
            listened.is_handing_over()
                || (listened.back.is_some() && self.transaction.is_idle())
                || (!listened.channels.is_empty() && !self.pipeline.is_empty())
        })
    }

    /// Whether a statement that is sent next may end the listening, or show it.
    pub(super) fn takes_back(&self, statement: Option<&Statement>) -> bool {
        self.listened().is_some_and(|listened| {
            !listened.channels.is_empty() && listened.back.is_none() && statement.is_none_or(Statement::is_of_listening)
        })
    }

    /// Takes all channels back, ahead of it.
    pub(super) fn take_back(&mut self) {
        let in_block = !self.transaction.is_idle();
        let Some(sharing) = &mut self.server.sharing else { return };
        let Some(listened) = sharing.listened.as_deref_mut() else { return };
        let Some(markers) = listened.markers() else { return };
        let marker = listened.marker(if in_block { Says::BackIfCommitted } else { Says::Back });
        listened.step = Step::Nothing;
        listened.back = Some(Back { marker, in_block, drains: false, there: None, is_behind: false });
        sharing.traces.channels_changed();
        let mut statements = listen(&listened.channels);
        let sends = format!("NOTIFY {markers}, '{}'", marker.payload());
        if in_block {
            // The client may end the listening to all channels in the same transaction, and not see it: another marker follows behind.
            statements.push(sends);
            return self.run_own(&statements, OfListening::TakeBack);
        }
        statements.extend([format!("LISTEN {markers}"), sends]);
        self.run_own(&statements, OfListening::TakeBack);
        self.run_own(&[format!("UNLISTEN {markers}")], OfListening::EndMarkers);
    }

    /// At rest: whether the transaction in which channels were taken back was rolled back, another marker tells. False: none is needed.
    pub(super) fn asks_behind_marker(&mut self) -> bool {
        let Some(listened) = self.listened_mut() else { return false };
        let Some(markers) = listened.markers() else { return false };
        let marker = listened.marker(Says::Nothing);
        let Some(back) = listened.back.as_mut().filter(|back| back.in_block) else { return false };
        (back.marker, back.in_block) = (marker, false);
        self.run_own(&[CHANNELS.to_owned()], OfListening::ChannelsBehind);
        let statements = [format!("LISTEN {markers}"), format!("NOTIFY {markers}, '{}'", marker.payload())];
        self.run_own(&statements, OfListening::TakeBack);
        self.run_own(&[format!("UNLISTEN {markers}")], OfListening::EndMarkers);
        true
    }

    // --- notifications -------------------------------------------------------------------------------------

    /// Whether notifications on the connection are looked at.
    pub(super) fn looks_at_notifications(&self) -> bool {
        self.listened().is_some()
    }

    /// A notification comes on the connection: whether it is the client's; None: not all of it is here.
    pub(super) fn notified(&mut self, head: Header) -> Option<bool> {
        let message = self.server.received().get(..head.frame_bytes)?.to_vec();
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        let now = self.now();
        if let Some(listened) = self.listened_mut()
            && let Ok(Notification { channel, payload, .. }) = Notification::read(body)
        {
            if listened.listener.channel().is_some_and(|markers| markers.as_bytes() == channel) {
                listened.marker_came(Marker::read(payload));
                return Some(false);
            }
            let is_its = |other: &str| other.as_bytes() == channel;
            let is_behind = match &listened.step {
                Step::HandsOver { over, is_behind: true } => over.there.iter().any(|other| is_its(other)),
                _ => false,
            };
            if is_behind || listened.channels.iter().any(|other| is_its(other)) {
                return Some(false); // the listener hears it, too
            }
        }
        self.watermark.note_notification(now);
        Some(true)
    }

    /// Whether the server's messages wait for what the listener has heard before.
    pub(super) fn drains_notifications(&self) -> bool {
        self.listened().is_some_and(|listened| listened.back.as_ref().is_some_and(|back| back.drains))
    }

    fn may_deliver(&self) -> bool {
        let Some(sharing) = &self.server.sharing else { return false };
        let Some(listened) = &sharing.listened else { return false };
        let is_at_rest = listened.back.is_none() && self.transaction.is_idle() && self.pipeline.is_empty();
        (listened.mailbox.has_mail() || listened.failure.is_some())
            && self.server.rest == 0
            && !self.client.is_high()
            && !sharing.awaits_replica()
            && (self.drains_notifications() || is_at_rest)
    }

    /// Gives the client what the listener has heard; true if there was anything. An error: why the session must end.
    pub(super) fn deliver(&mut self) -> Result<bool, &'static str> {
        let mut has_delivered = false;
        while self.may_deliver() {
            has_delivered = true;
            let Some(listened) = self.listened_mut() else { break };
            if let Some(failure) = listened.failure {
                return Err(failure);
            }
            match listened.mailbox.take() {
                None => break,
                Some(Mail::Notification(body)) if !listened.is_clients(&body) => {}
                Some(Mail::Notification(body)) => self.tell(&body)?,
                Some(Mail::Marker(marker)) => listened.heard_marker(marker),
                Some(Mail::Lost(why)) => {
                    if !listened.channels.is_empty() || listened.is_handing_over() {
                        return Err(why);
                    }
                    // The connection still hears all.
                    listened.step = again();
                }
            }
        }
        Ok(has_delivered)
    }

    fn tell(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let is_ascii = body.get(PROCESS_BYTES..).is_some_and(<[u8]>::is_ascii);
        if !is_ascii && !self.server.settings.is_utf8 {
            return Err("a notification is not in the encoding that the client has set since");
        }
        backend::put_message(self.client.output(), backend::NOTIFICATION, body);
        let now = self.now();
        self.watermark.raise(now);
        Ok(())
    }

    /// Whether there is a next step: the listener has answered, or has heard something that can be given to the client.
    pub(super) fn poll_listening(&mut self, cx: &mut Context<'_>) -> bool {
        self.listened_mut().is_some_and(|listened| listened.poll(cx)) || self.may_deliver()
    }
}
