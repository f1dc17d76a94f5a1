//! The server's side of a session, and the connection on which the session reaches it.
//!
//! [`ServerSide`] belongs to the session: what was agreed at login, the prepared statements, and the settings in force. [`ServerConnection`] is the
//! socket. With transaction pooling a session may be without one (see [`super::pooling`]): then nothing can be received, and nothing may be sent.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use freshet_wire::mysql::response::Done;

use crate::mysql::login::About;
use crate::mysql::session::connection::ServerConnection;
use crate::mysql::session::execution::key_capabilities;
use crate::mysql::session::known::Known;
use crate::mysql::session::pooling::Pooling;
use crate::mysql::session::prepared::Prepareds;
use crate::mysql::session::settings::{Settings, put_query};
use crate::mysql::session::temporaries::Temporaries;
use crate::mysql::session::there::PreparedThere;
use crate::peer::Peer;
use crate::rules::Who;
use crate::server::sessions::Link;
use crate::shared::Shared;
use crate::statement::registry::Tracking;

/// The server's side of a session.
pub(super) struct ServerSide {
    /// None: the session needs none at present.
    pub(super) connection: Option<ServerConnection>,
    /// Bytes that have come on earlier connections.
    earlier_traffic: u64,
    /// The facts from the login; the user and the plugin change with COM_CHANGE_USER.
    pub(super) about: About,
    /// The session's entry in the list of sessions.
    pub(super) link: Arc<Link>,
    /// Those of `about.capabilities` on which the form of answers depends.
    pub(super) shaping: u8,
    /// The prepared statements of the client.
    pub(super) prepareds: Prepareds,
    /// The settings in force there.
    pub(super) settings: Settings,
    /// None: the session has its connection to its end.
    pub(super) pooling: Option<Box<Pooling>>,
    /// The number of the first packet of the answer to the current command.
    pub(super) answer_from: u8,
    /// The server's error for a query of Freshet's own: its last message, if it ends the connection.
    pub(super) last_words: Vec<u8>,
}

impl ServerSide {
    /// The state after a login.
    pub(super) fn new(connection: Option<ServerConnection>, about: About, link: Arc<Link>) -> Self {
        let mut side = Self {
            connection,
            earlier_traffic: 0,
            shaping: key_capabilities(about.capabilities),
            prepareds: Prepareds::default(),
            settings: Settings::new(&about),
            pooling: None,
            answer_from: 1,
            last_words: Vec::new(),
            about,
            link,
        };
        side.settings.temporaries = Temporaries::since(side.consumed());
        side
    }

    /// The socket, for the loops that wait for both sides.
    pub(super) fn peer(&mut self) -> Option<&mut Peer> {
        self.connection.as_mut().map(|connection| &mut connection.peer)
    }

    /// The connection stays with the session until it is reset.
    pub(super) fn keep_connection(&mut self) {
        if let Some(pooling) = &mut self.pooling {
            pooling.keep();
        }
    }

    /// Takes the connection away.
    pub(super) fn disconnect(&mut self) -> Option<ServerConnection> {
        let mut connection = self.connection.take()?;
        let received = std::mem::take(&mut connection.peer.traffic);
        self.earlier_traffic += received;
        connection.earlier_received += received;
        connection.facts.counted = self.settings.temporaries.take_counted();
        Some(connection)
    }

    /// Whether the numbers of its prepared statements are the session's own.
    pub(super) fn shares_statements(&self) -> bool {
        self.pooling.as_ref().is_some_and(|pooling| pooling.shares_statements())
    }

    /// Whether the session has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether the server reports the session's commits on this connection.
    pub(super) fn tracking(&self) -> Tracking {
        self.connection.as_ref().map_or(Tracking::Off, |connection| connection.tracking)
    }

    pub(super) fn set_tracking(&mut self, tracking: Tracking) {
        if let Some(connection) = &mut self.connection {
            connection.tracking = tracking;
        }
    }

    /// Bytes that have come from the server.
    pub(super) fn traffic(&self) -> u64 {
        self.earlier_traffic + self.connection.as_ref().map_or(0, |connection| connection.peer.traffic)
    }

    /// The user and the application of this connection, for the rules.
    pub(super) fn who(&self) -> Who<'_> {
        let database = self.settings.schemas.first().map_or("", |name| &**name);
        Who {
            user: &self.about.user,
            database,
            application: &self.about.application,
            sets_clock: self.settings.sets_clock,
        }
    }

    /// Makes the context the one for the rules in force.
    pub(super) fn follow_rules(&mut self, shared: &Shared) {
        if let Known::Context(context, _) = &self.settings.known
            && context.rules != shared.rules.of_contexts()
        {
            self.come_under_rules(shared);
        }
    }

    #[cold]
    fn come_under_rules(&mut self, shared: &Shared) {
        let Known::Context(context, under) = &self.settings.known else { return };
        self.settings.known = match shared.contexts.under_rules(context, &shared.rules, &self.who()) {
            Ok(context) => Known::Context(context, *under),
            Err(reason) => Known::Unknowable(reason),
        };
    }

    /// The socket and the facts from the login, for another login.
    pub(super) fn login(&mut self) -> Option<(&mut Peer, &mut About)> {
        self.connection.as_mut().map(|connection| (&mut connection.peer, &mut self.about))
    }

    /// Received bytes that are not consumed.
    pub(super) fn received(&self) -> &[u8] {
        self.connection.as_ref().map_or(&[], |connection| connection.peer.input.bytes())
    }

    pub(super) fn consume(&mut self, count: usize) {
        if let Some(peer) = self.peer() {
            peer.input.consume(count);
        }
    }

    /// The number of bytes that have come on this connection and are consumed.
    pub(super) fn consumed(&self) -> u64 {
        self.connection.as_ref().map_or(0, ServerConnection::consumed)
    }

    /// Appends to the output.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if let Some(output) = self.output() {
            output.extend_from_slice(bytes);
        }
    }

    /// Appends a COM_QUERY of Freshet's own.
    pub(super) fn put_query(&mut self, sql: &[u8]) {
        self.answer_from = 1;
        let bare = freshet_sql::without_outer_comments(sql);
        let is_set = bare.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"SET"));
        let sets = self.is_connected()
            && is_set
            && bare.get(3).is_some_and(|next| next.is_ascii_whitespace() || *next == b'@');
        self.settings.temporaries.counted.known_sets += u64::from(sets);
        let capabilities = self.about.capabilities;
        if let Some(output) = self.output() {
            put_query(output, capabilities, sql);
        }
    }

    /// The output.
    pub(super) fn output(&mut self) -> Option<&mut Vec<u8>> {
        self.peer().map(|peer| peer.output.buffer())
    }

    /// Whether the output has reached its limit.
    pub(super) fn is_high(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.peer.output.is_high())
    }

    /// Whether the server has closed its direction, or there is no connection: nothing more can be received.
    pub(super) fn has_ended(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.peer.ended)
    }

    /// The server reads nothing more. Its earlier messages are still to be read.
    pub(super) fn is_deaf(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.deaf)
    }

    /// Sends the output, as far as the server reads it.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) {
        if let Some(ServerConnection { peer, deaf, .. }) = &mut self.connection
            && peer.has_output()
            && let Poll::Ready(Err(_)) = peer.poll_send(cx)
        {
            *deaf = true;
            peer.output.buffer().clear();
        }
    }

    /// Receives once if there is space.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.peer().map_or(Poll::Pending, |peer| peer.poll_receive(cx))
    }

    /// An answer ends in the received bytes: notes what its last packet says of the settings.
    pub(super) fn answer_ends(&mut self, done: &Done) {
        let received = self.connection.as_ref().map_or(&[][..], |connection| connection.peer.input.bytes());
        let last = received.get(done.last.clone()).unwrap_or_default();
        self.settings.told(last, done, self.about.upstream());
    }

    /// The server has reset the session.
    pub(super) fn begin_anew(&mut self) {
        self.settings.reset();
        self.settings.temporaries = Temporaries::since(self.consumed());
        self.set_tracking(Tracking::default());
        self.prepareds.clear();
        if let Some(connection) = &mut self.connection {
            connection.prepared = PreparedThere::default();
        }
        if let Some(pooling) = &mut self.pooling {
            pooling.begin_anew();
        }
    }
}
