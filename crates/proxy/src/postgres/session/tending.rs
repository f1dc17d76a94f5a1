//! A session that shares server connections: it has one, or has none.
//!
//! It takes one for the first message that must reach the server, and gives it back at rest, once nothing of it lives there ([`super::traces`]). While it
//! has none, what is put for the server waits in the output. A session that waits in the queue of its pool reads nothing from its client.

use std::task::Context;
use std::time::Duration;

use freshet_sql::Temporary;
use freshet_wire::postgres::frame::Header;
use freshet_wire::postgres::{backend, frontend};
use tokio::time::{sleep, timeout};

use crate::peer::READ_BYTES_MAX;
use crate::pool::PoolMode;
use crate::postgres::login::First;
use crate::postgres::pooling::remembered::Beginning;
use crate::postgres::pooling::rest_question::Lives;
use crate::postgres::pooling::{Facts, Obtained, PooledConnection, obtain, obtain_at_once, parameters};
use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::sharing::{Arrived, Awaited, Held, Sharing};
use crate::postgres::session::unit::{Ask, ClientUnit, Kind, Unit};
use crate::postgres::session::{FAREWELL_TIMEOUT, Known, Session};

/// The longest wait for the rest of a message, while others wait for the connection.
const REST_MAX: Duration = Duration::from_secs(10);

/// The outcome of [`Session::tend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tended {
    /// There is something to do at once.
    Again,
    /// The session has ended, without a connection.
    Ended,
    /// The client has ended, and the connection ends with the session: the server is to be told that no more messages come.
    Leaves,
    Rests,
}

impl Session {
    /// Whether it has a server connection.
    pub(crate) fn has_connection(&self) -> bool {
        self.server.sharing.as_ref().is_none_or(|sharing| sharing.held.is_some())
    }

    /// The session begins, perhaps with a connection, and the client is told what the server has told at the login.
    pub(super) fn begin_shared(&mut self, sharing: Sharing, First { beginning, obtained }: First) {
        let Beginning { facts, identity, origin } = beginning;
        for (name, value) in parameters(&origin.greeting) {
            match name {
                b"standard_conforming_strings" => self.server.settings.escapes = value != b"on",
                b"application_name" => {
                    self.server.settings.application = String::from_utf8_lossy(value).into_owned();
                }
                _ => {}
            }
        }
        let out = self.client.output();
        out.extend_from_slice(&origin.greeting);
        backend::put_message(out, backend::KEY_DATA, &sharing.cancel.key);
        backend::put_ready(out, backend::STATUS_IDLE);
        self.server.identity = identity;
        self.server.settings.begin(facts);
        // It is the first: there is none yet.
        let _ = sharing.login.began.set(origin.lives.login_settings());
        self.server.sharing = Some(Box::new(sharing));
        match obtained {
            Some(obtained) => self.attach(obtained),
            // The first that it gets may have another session's unnamed statement.
            None => _ = self.server.statements.move_unnamed(),
        }
    }

    /// A message of the client needs a connection; false: it must wait, and is looked at again once there is one.
    pub(crate) fn get_connection(&mut self) -> bool {
        if !self.settle() {
            return false;
        }
        if self.channels_change_hands() {
            return false;
        }
        let Some(sharing) = &mut self.server.sharing else { return true };
        if sharing.held.is_some() {
            return true;
        }
        if sharing.awaited.is_none() && sharing.arrived.is_none() {
            match obtain_at_once(&self.shared, &sharing.login, &sharing.traces.set_there()) {
                None => sharing.is_wanted = true,
                Some(obtained) => {
                    sharing.arrived = Some(Arrived::Connection(Ok(obtained)));
                    return self.attach_if_known();
                }
            }
        }
        false
    }

    /// Takes the connection that has come, if what has been found out about the message at the start of the input holds there, too.
    fn attach_if_known(&mut self) -> bool {
        let arrived = self.server.sharing.as_mut().and_then(|sharing| sharing.arrived.take());
        match arrived {
            Some(Arrived::Connection(Ok(obtained))) if self.server.is_known(&obtained.connection) => {
                self.attach(obtained);
                true
            }
            arrived => {
                if let Some(sharing) = &mut self.server.sharing {
                    sharing.arrived = arrived;
                }
                false
            }
        }
    }

    /// Whether the rest of the message at the start of the input must come first: a message that is never finished takes no connection from others,
    /// as long as it fits the input.
    pub(super) fn waits_for_message(&self, head: Header) -> bool {
        !self.has_connection() && self.client.received().len() < head.frame_bytes.min(READ_BYTES_MAX)
    }

    /// Refuses a message of a kind that no server knows, as a server does at its first byte; false: it is of another kind, or the server is to refuse
    /// it.
    pub(super) fn refuse_kind(&mut self) -> bool {
        let kind = self.client.received().first().copied();
        let Some(kind) = kind.filter(|kind| !self.has_connection() && !frontend::is_kind(*kind)) else { return false };
        let message = format!("invalid frontend message type {kind}");
        backend::put_error(self.client.output(), "FATAL", "08P01", &message);
        self.client.say_goodbye();
        true
    }

    /// Whether it has a connection for a longer message, of which only a part has come. Transactions and COPY keep the connection as long as the
    /// client likes, messages or not.
    fn awaits_rest(&self) -> bool {
        self.client.is_within_message()
            && self.has_connection()
            && self.transaction.is_idle()
            && self.pipeline.len() <= 1
            && !self.server.is_high()
            && !self.client.is_high()
            && !matches!(self.pipeline.back(), Some(Unit::Client(unit)) if unit.copy.is_asked())
    }

    /// Whether nothing more of it has come for a while, and others wait.
    fn is_rest_overdue(&self) -> bool {
        let due = self.server.sharing.as_ref().and_then(|sharing| sharing.rest_due.as_ref());
        due.is_some_and(|due| due.is_elapsed()) && self.awaits_rest() && self.shared.pooling.pools.are_wanted()
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_rest_overdue() {
            return true;
        }
        let awaits = self.awaits_rest();
        let Some(sharing) = self.server.sharing.as_mut().filter(|_| awaits) else { return false };
        // It begins anew while nobody waits.
        let due = sharing.rest_due.take().filter(|due| !due.is_elapsed());
        let mut due = due.unwrap_or_else(|| Box::pin(sleep(REST_MAX)));
        let is_over = due.as_mut().poll(cx).is_ready();
        sharing.rest_due = Some(due);
        is_over
    }

    /// Whether a connection has come, or must not be waited for any more, or is kept for too long.
    pub(super) fn poll_sharing(&mut self, cx: &mut Context<'_>) -> bool {
        if self.server.sharing.is_none() {
            return false;
        }
        if self.poll_rest(cx) || self.poll_listening(cx) {
            return true;
        }
        let has_output = self.server.has_output();
        let Some(sharing) = &mut self.server.sharing else { return false };
        if sharing.awaits_cancel && !sharing.cancel.target.is_under_way() {
            sharing.awaits_cancel = false;
            return true;
        }
        let Some(awaited) = sharing.awaited.take() else { return false };
        if matches!(awaited, Awaited::Connection(_)) && !has_output && sharing.cancel.target.take_asked() {
            sharing.arrived = Some(Arrived::Cancel);
            return true;
        }
        match awaited.poll(!self.client.is_high(), cx) {
            Ok(arrived) => sharing.arrived = Some(arrived),
            Err(awaited) => sharing.awaited = Some(awaited),
        }
        sharing.arrived.is_some()
    }

    /// Takes a connection if one is needed, and gives it back if it is not.
    pub(super) fn tend(&mut self) -> Tended {
        let has_left = self.client_is_drained() && !self.server.has_output();
        let has_output = self.server.has_output();
        if self.is_rest_overdue() {
            let message = "the rest of a message did not come, and others waited for the connection to the server";
            backend::put_error(self.client.output(), "FATAL", "08P01", message);
            return Tended::Ended;
        }
        match self.deliver() {
            Ok(false) => {}
            Ok(true) => return Tended::Again,
            Err(why) => {
                backend::put_error(self.client.output(), "FATAL", "57P01", why);
                return Tended::Ended;
            }
        }
        let Some(sharing) = &mut self.server.sharing else { return Tended::Rests };
        if sharing.traces.has_lost_sequences() {
            let message =
                "the sequence was advanced on a server connection that other sessions have used since: connect again";
            backend::put_error(self.client.output(), "FATAL", "55000", message);
            return Tended::Ended;
        }
        match sharing.arrived.take() {
            Some(Arrived::Connection(Ok(obtained))) => {
                self.attach(obtained);
                return Tended::Again;
            }
            Some(Arrived::Connection(Err(error))) => {
                self.refuse(&error);
                return Tended::Ended;
            }
            Some(Arrived::Cancel) => {
                self.refuse_message("57014", "canceling statement due to user request");
                return Tended::Again;
            }
            Some(Arrived::Answer(outcome)) => return self.note_outcome(outcome),
            Some(Arrived::Room(reader)) => return self.read_on(reader),
            Some(Arrived::Primary(is_settled)) => return self.note_settled(is_settled),
            None => {}
        }
        if sharing.held.is_none() {
            if sharing.awaited.is_none() && (has_output || sharing.is_wanted) {
                sharing.is_wanted = false;
                sharing.cancel.target.wait(&sharing.cancel.waker);
                let obtaining = obtain(self.shared.clone(), sharing.login.clone(), sharing.traces.set_there());
                sharing.awaited = Some(Awaited::Connection(Box::pin(obtaining)));
            }
            let is_over = has_left && sharing.awaited.is_none();
            return if is_over { Tended::Ended } else { Tended::Rests };
        }
        if !self.is_free() {
            if self.pipeline.is_empty() && !self.transaction.is_idle() {
                if self.refuses_blocks() {
                    let message = "transaction blocks not allowed in statement pooling mode";
                    backend::put_error(self.client.output(), "FATAL", "08P01", message);
                    return Tended::Ended;
                }
                self.note_pin(Some("transaction"));
            }
            return if has_left { self.end_unfinished() } else { Tended::Rests };
        }
        self.tend_free(has_left)
    }

    /// The same at rest, with a connection.
    fn tend_free(&mut self, has_left: bool) -> Tended {
        if self.asks_behind_marker() || self.close_superfluous() {
            return Tended::Rests;
        }
        let Some(sharing) = &mut self.server.sharing else { return Tended::Rests };
        if sharing.traces.must_ask() {
            sharing.traces.asked();
            sharing.prepared_asked = sharing.prepared.len();
            self.ask(Ask::Rest);
            return Tended::Rests;
        }
        sharing.traces.rest();
        if !has_left && self.ask_behind_change() {
            return Tended::Rests;
        }
        let Some(sharing) = &mut self.server.sharing else { return Tended::Rests };
        let pin = sharing.pin(&self.shared.pooling.reads_sequences);
        self.note_pin(pin);
        if pin == Some("listen") && !has_left {
            self.hand_over();
        }
        if pin.is_some() {
            return if has_left { Tended::Leaves } else { Tended::Rests };
        }
        if self.close_private() {
            return Tended::Rests;
        }
        if !self.give_back() {
            return if has_left && !self.awaits_cancel() { Tended::Leaves } else { Tended::Rests };
        }
        if has_left { Tended::Ended } else { Tended::Rests }
    }

    /// Asks for the context behind a change of the label, while the session has the connection: the next read would have to take one for that, and without a
    /// context other statements may run any code.
    fn ask_behind_change(&mut self) -> bool {
        let Some(sharing) = &mut self.server.sharing else { return false };
        let changes = sharing.traces.label_changes();
        let is_due = std::mem::replace(&mut sharing.traces.asked_since, changes) != changes
            && matches!(self.server.settings.known, Known::Nothing);
        if is_due {
            self.ask_context();
        }
        is_due
    }

    /// Gives the connection back if nothing of the session lives there, and nothing has to be asked or closed first; false: the session keeps it.
    pub(super) fn leave_connection(&mut self) -> bool {
        if !self.has_connection() {
            return !self.server.has_output();
        }
        if !self.is_free() {
            return false;
        }
        let Some(sharing) = &mut self.server.sharing else { return false };
        if sharing.traces.must_ask() || sharing.pin(&self.shared.pooling.reads_sequences).is_some() {
            return false;
        }
        // What these close is answered first.
        !self.close_superfluous() && !self.close_private() && self.give_back()
    }

    /// What keeps the session on its connection, now that it is at rest.
    fn note_pin(&mut self, reason: Option<&'static str>) {
        if let Some(sharing) = &mut self.server.sharing
            && sharing.pinned != reason
        {
            sharing.pinned = reason;
            self.shared.sessions.note_pin(&self.link, reason);
        }
    }

    fn refuses_blocks(&self) -> bool {
        let user = self.server.sharing.as_ref().map(|sharing| sharing.login.user.as_str());
        user.is_some_and(|user| self.shared.settings.pool.mode_of(user) == PoolMode::Statement)
    }

    /// The client has ended in the middle of something. What will be answered is waited for; anything else ends with the connection, as the server
    /// does it for a client of its own.
    fn end_unfinished(&mut self) -> Tended {
        let will_be_answered = !self.pipeline.is_empty()
            && !self.client.passes_batch()
            && !self.client.is_within_message()
            && !matches!(self.pipeline.back(), Some(Unit::Client(unit)) if is_endless(unit));
        if will_be_answered || self.server.has_ended() { Tended::Rests } else { Tended::Leaves }
    }

    /// Whether the server owes nothing and has nothing to do for this session.
    fn is_free(&self) -> bool {
        self.transaction.is_idle()
            && self.pipeline.is_empty()
            && self.server.rest == 0
            && self.server.received().is_empty()
            && !self.server.has_output()
            && !self.server.has_ended()
            && *self.client.batch() == OpenBatch::None
            && !self.client.is_within_message()
            && !self.client.ends_by_itself()
            && !self.waiting.is_in_commit_wait()
            && self.complete.is_empty()
            && !self.transaction.has_fills()
    }

    /// What lives on the connection; None: the question has failed.
    pub(super) fn lives_known(&mut self, lives: Option<&Lives>) {
        let Some(sharing) = &mut self.server.sharing else { return };
        let Some(held) = &sharing.held else { return };
        if sharing.traces.answered(lives, &held.origin.lives) {
            self.statements_known(lives);
        }
        self.begin_listening_anew(lives.is_none_or(|lives| lives.has("listen")));
    }

    /// Takes the connection.
    fn attach(&mut self, Obtained { lease, connection }: Obtained) {
        let PooledConnection {
            socket,
            own,
            facts,
            identity,
            compared,
            prepared,
            set,
            under_labels,
            has_unnamed,
            ready_at,
            origin,
        } = *connection;
        let Facts { context, named, configuration, configured_at, default_isolation, idle_max } = facts;
        let server = &mut self.server;
        // What was put while there was none prepares its statements itself.
        if !server.has_output() {
            server.own = own;
            server.statements.meet_unnamed(has_unnamed);
        }
        server.socket().plug(socket);
        (server.identity, server.compared, server.ready_at) = (identity, compared, ready_at);
        let settings = &mut server.settings;
        if let Known::Context(before, _) = &settings.known {
            let is_same = context.as_ref().is_some_and(|(context, _)| context.settings == before.settings);
            if !is_same {
                // The server has read its configuration in the meantime.
                settings.known =
                    context.clone().map_or(Known::Nothing, |(context, under)| Known::Context(context, under));
                for unit in self.pipeline.iter_mut().filter_map(Unit::as_client) {
                    unit.fills.results.clear();
                }
            }
        }
        (settings.named, settings.configuration, settings.configured_at) = (named, configuration, configured_at);
        (settings.default_isolation, settings.idle_max) = (default_isolation, idle_max);
        settings.temporary = Some(Temporary::default());
        if let Some(sharing) = &mut server.sharing {
            sharing.cancel.target.set(origin.cancel_key.clone(), None);
            sharing.prepared.join(prepared);
            let facts = Facts { context, default_isolation, idle_max, ..Facts::default() };
            sharing.held = Some(Held { lease, origin, set, facts, under_labels });
        }
    }

    /// Gives the connection back; false: it must stay for now.
    fn give_back(&mut self) -> bool {
        let server = &mut self.server;
        let Some(sharing) = &mut server.sharing else { return false };
        if server.statements.has_unknown_unnamed() {
            return false;
        }
        if !sharing.cancel.target.release(&sharing.cancel.waker) {
            sharing.awaits_cancel = true;
            return false;
        }
        let Some(Held { mut lease, origin, set: before, facts, mut under_labels }) = sharing.held.take() else {
            return false;
        };
        let set = sharing.traces.set_there();
        lease.regroup(sharing.login.group.with(&set.names, &set.label));
        sharing.traces.left();
        let has_unnamed = server.statements.move_unnamed();
        let is_doubtful = sharing.cancel.target.take_doubt();
        let is_as_before = set.label == before.label;
        let facts = server.settings.facts(if is_as_before { facts } else { Facts::default() });
        if set.names != before.names {
            under_labels.forget_named();
        }
        server.settings.temporary = Some(Temporary::default());
        let mut socket = server.socket.unplug();
        let connection = Box::new(PooledConnection {
            own: std::mem::take(&mut server.own),
            facts,
            identity: server.identity.clone(),
            compared: server.compared.clone(),
            prepared: std::mem::take(&mut sharing.prepared),
            set,
            under_labels,
            has_unnamed,
            ready_at: server.ready_at,
            origin,
            socket: if socket.rest().is_ok() { socket } else { return true },
        });
        // Otherwise it is closed here, and its place is free.
        if !is_doubtful {
            lease.give_back(connection);
        }
        true
    }

    fn awaits_cancel(&self) -> bool {
        self.server.sharing.as_ref().is_some_and(|sharing| sharing.awaits_cancel)
    }

    /// The client has sent what no server understands: this connection serves no other session.
    pub(super) fn spoil_connection(&mut self) {
        if let Some(sharing) = &mut self.server.sharing {
            sharing.traces.note_garbage();
        }
    }

    /// Sends what the client is still to receive.
    pub(super) async fn end_shared(&mut self) {
        let client = self.client.socket();
        let farewell = async {
            client.flush().await?;
            client.shut_down().await
        };
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }
}

/// Whether the server may wait for more of the client, or the number of its answers is unknown.
fn is_endless(unit: &ClientUnit) -> bool {
    unit.kind == Kind::Raw || unit.copy.is_asked()
}
