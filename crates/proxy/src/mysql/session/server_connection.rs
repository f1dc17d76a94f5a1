//! The connection to the database that belongs to a session.
//!
//! It owns the socket and what is known of the server's side: what was agreed at login, the prepared statements, and the settings in force. The
//! session has it in one field and reaches the server only through it, so that this state is always used together with the socket that it describes.

use std::sync::Arc;
use std::task::{Context, Poll};

use freshet_wire::mysql::response::Done;

use crate::mysql::login::About;
use crate::mysql::session::execution::key_capabilities;
use crate::mysql::session::known::Known;
use crate::mysql::session::prepared::Prepareds;
use crate::mysql::session::settings::{Settings, put_query};
use crate::peer::Peer;
use crate::rules::Who;
use crate::server::sessions::Link;
use crate::shared::Shared;
use crate::statement::registry::Tracking;

/// A connection to the database.
pub(super) struct ServerConnection {
    socket: Peer,
    /// The server reads nothing more.
    deaf: bool,
    /// The facts from the login; the user and the plugin change with COM_CHANGE_USER.
    pub(super) about: About,
    /// The session's entry in the list of sessions.
    pub(super) link: Arc<Link>,
    /// Those of `about.capabilities` on which the form of answers depends.
    pub(super) shaping: u8,
    /// The statements that are prepared there.
    pub(super) prepareds: Prepareds,
    /// The settings in force there.
    pub(super) settings: Settings,
    /// Whether the server reports the session's commits.
    pub(super) tracking: Tracking,
    /// The number of the first packet of the answer to the current command.
    pub(super) answer_from: u8,
    /// The server's error for a query of Freshet's own: its last message, if it ends the connection.
    pub(super) last_words: Vec<u8>,
}

impl ServerConnection {
    /// A connection after a login.
    pub(super) fn new(socket: Peer, about: About, link: Arc<Link>) -> Self {
        Self {
            socket,
            deaf: false,
            shaping: key_capabilities(about.capabilities),
            prepareds: Prepareds::default(),
            settings: Settings::new(&about),
            tracking: Tracking::default(),
            answer_from: 1,
            last_words: Vec::new(),
            about,
            link,
        }
    }

    /// The socket, for the loops that wait for both sides.
    pub(super) fn socket(&mut self) -> &mut Peer {
        &mut self.socket
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
            && context.rules != shared.rules.generation()
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
    pub(super) fn login(&mut self) -> (&mut Peer, &mut About) {
        (&mut self.socket, &mut self.about)
    }

    /// Received bytes that are not consumed.
    pub(super) fn received(&self) -> &[u8] {
        self.socket.input.bytes()
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.socket.input.consume(count);
    }

    /// The output buffer, to append to.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.socket.output.put(bytes);
    }

    /// Appends a COM_QUERY of Freshet's own.
    pub(super) fn put_query(&mut self, sql: &[u8]) {
        self.answer_from = 1;
        put_query(self.socket.output.buffer(), self.about.capabilities, sql);
    }

    /// The output.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.socket.output.buffer()
    }

    /// Whether the output has reached its limit.
    pub(super) fn is_high(&self) -> bool {
        self.socket.output.is_high()
    }

    /// Whether the server has closed its direction.
    pub(super) fn has_ended(&self) -> bool {
        self.socket.ended
    }

    /// The server reads nothing more. Its earlier messages are still to be read.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Sends the output, as far as the server reads it.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) {
        if self.socket.has_output()
            && let Poll::Ready(Err(_)) = self.socket.poll_send(cx)
        {
            self.deaf = true;
            self.socket.output.buffer().clear();
        }
    }

    /// An answer ends in the received bytes: notes what its last packet says of the settings.
    pub(super) fn answer_ends(&mut self, done: &Done) {
        let last = self.socket.input.bytes().get(done.last.clone()).unwrap_or_default();
        self.settings.told(last, done, self.about.upstream());
    }

    /// The server has reset the session.
    pub(super) fn begin_anew(&mut self) {
        self.settings.reset();
        self.tracking = Tracking::default();
        self.prepareds.clear();
    }
}
