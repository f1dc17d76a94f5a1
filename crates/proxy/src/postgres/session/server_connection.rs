//! The connection to the database that belongs to a session.
//!
//! It owns the socket and what is known of the server's side: the prepared statements, the settings in force, and which server it is. The session has
//! it in one field and reaches the server only through it, so that this state is always used together with the socket that it describes.

use std::sync::Arc;

use freshet_sql::{Isolation, Temporary};
use freshet_types::{CatalogVersion, Nanos, Reason};
use freshet_wire::postgres::frame::{HEADER_BYTES, Header};
use freshet_wire::postgres::{backend, frontend};

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::pooling::{Facts, PooledConnection};
use crate::postgres::question::{Answer, IdleMax};
use crate::postgres::session::own_statements::OwnStatements;
use crate::postgres::session::sharing::Sharing;
use crate::postgres::session::statements::{Statements, Unnamed};
use crate::rules::Who;
use crate::session::context::Context;
use crate::shared::ServerIdentity;

/// Longer reports are not parsed.
const REPORT_BYTES_MAX: usize = 1 << 10;

/// What is known of a session's context.
#[derive(Debug)]
pub(super) enum Known {
    /// It must be asked for.
    Nothing,
    /// The query failed once, perhaps by accident: it must be sent again.
    Failed,
    /// The query was sent, perhaps again; the client waits for its answer.
    Asked {
        /// The query failed before.
        again: bool,
    },
    /// This context, with this catalogue: a later catalogue may give the same settings another meaning.
    Context(Arc<Context>, CatalogVersion),
    /// It cannot be known.
    Unknowable(Reason),
}

/// What to do with a message's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// Forward them to the client.
    #[default]
    Forward,
    /// Forward them to the client, and add them to the fill in progress.
    Keep,
    /// Drop them.
    Swallow,
}

/// The settings in force on a connection, as far as they are known.
#[derive(Debug)]
pub(super) struct ServerSettings {
    pub(super) known: Known,
    /// The catalogue in use when the context was asked for.
    pub(super) asked_under: CatalogVersion,
    /// The columns of the last context that was read after a write, and what they said.
    pub(super) context_behind_write: Option<BehindWrite>,
    /// Since its context was last asked for after a write, the session has read, begun a transaction block, written without a commit wait, or ended a
    /// commit wait by a fence.
    pub(super) is_used: bool,
    pub(super) user: String,
    /// The database of its login, and `application_name`, for the rules.
    pub(super) database: String,
    pub(super) application: String,
    /// `standard_conforming_strings` is off, as last reported.
    pub(super) escapes: bool,
    /// `client_encoding` is UTF8, as last reported or asked.
    pub(super) is_utf8: bool,
    /// The temporary objects when the context was last asked for; None: there may be others.
    pub(super) temporary: Option<Temporary>,
    /// Hashes of the settings that statements read by name, from the same query: see [`crate::postgres::named`].
    pub(super) named: Option<Box<[u8]>>,
    /// When the server process last read its configuration, as of the last context.
    pub(super) configuration: Option<String>,
    /// A query that was sent at this time or later found the same.
    pub(super) configured_at: Nanos,
    /// The isolation level of blocks that name none.
    pub(super) default_isolation: Option<Isolation>,
    /// The server ends the connection after this idle time.
    pub(super) idle_max: IdleMax,
}

/// A context that was read after a write.
#[derive(Debug)]
pub(super) struct BehindWrite {
    columns: Box<[u8]>,
    context: Arc<Context>,
    /// [`ServerSettings::named`]
    named: Option<Box<[u8]>>,
}

/// A connection to the database.
#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) socket: Peer,
    /// Bytes of the server's current message still to come, and what to do with them.
    pub(super) rest: usize,
    pub(super) way: Way,
    /// The client's statements that are prepared there.
    pub(super) statements: Statements,
    /// Freshet's statements that are prepared there.
    pub(super) own: OwnStatements,
    pub(super) settings: ServerSettings,
    /// The server that this connection leads to.
    pub(super) identity: Option<Arc<ServerIdentity>>,
    /// Which of the stream's identities `identity` was compared with ([`crate::shared::Shared::identities`]), and the result.
    pub(super) compared: Option<(u64, Result<(), Reason>)>,
    /// Why statements pass as long as its database has no change stream.
    without_stream: Reason,
    /// When the server last reported that it is idle.
    pub(super) ready_at: Nanos,
    /// Process id and secret of the session's own connection, for cancel requests.
    pub(super) cancel_key: Option<Box<[u8]>>,
    /// None: the connection is the session's own.
    pub(super) sharing: Option<Box<Sharing>>,
}

impl ServerConnection {
    /// A connection on which this user has logged in.
    pub(super) fn new(socket: Peer, (user, database): (String, String), without_stream: Reason) -> Self {
        let settings = ServerSettings {
            known: Known::Nothing,
            asked_under: CatalogVersion::default(),
            context_behind_write: None,
            is_used: false,
            user,
            database,
            application: String::new(),
            escapes: false,
            is_utf8: false,
            temporary: Some(Temporary::default()),
            named: None,
            configuration: None,
            configured_at: 0,
            default_isolation: None,
            idle_max: IdleMax::default(),
        };
        Self {
            socket,
            rest: 0,
            way: Way::default(),
            statements: Statements::default(),
            own: OwnStatements::default(),
            settings,
            identity: None,
            compared: None,
            without_stream,
            ready_at: 0,
            cancel_key: None,
            sharing: None,
        }
    }

    /// The socket, for the loop that waits for both sides.
    pub(super) fn socket(&mut self) -> &mut Peer {
        &mut self.socket
    }

    /// Received bytes that are not consumed.
    pub(super) fn received(&self) -> &[u8] {
        self.socket.input.bytes()
    }

    /// The number of bytes received in total.
    pub(super) fn traffic(&self) -> u64 {
        self.socket.traffic
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.socket.input.consume(count);
    }

    /// The output buffer, to append to.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.socket.output.put(bytes);
    }

    /// The output.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.socket.output.buffer()
    }

    /// Whether the output has reached its limit.
    pub(super) fn is_high(&self) -> bool {
        self.socket.output.is_high()
    }

    pub(super) fn has_output(&self) -> bool {
        self.socket.has_output()
    }

    /// Whether the server has closed its direction.
    pub(super) fn has_ended(&self) -> bool {
        self.socket.ended
    }

    /// Notes what the message at the start of the input reports; false: the message is not complete yet.
    pub(super) fn note_report(&mut self, head: Header) -> bool {
        match head.tag {
            backend::PARAMETER_STATUS => self.setting_reported(head),
            backend::KEY_DATA => self.key_told(head),
            _ => true,
        }
    }

    /// The server reports a setting, in the message at the start of the input; false: the message is not complete yet.
    fn setting_reported(&mut self, head: Header) -> bool {
        if head.frame_bytes > REPORT_BYTES_MAX {
            return true;
        }
        let Some(message) = self.received().get(..head.frame_bytes) else { return false };
        match backend::parameter_status(message) {
            Some((b"standard_conforming_strings", value)) => self.settings.escapes = value != b"on",
            Some((b"application_name", value)) => {
                self.settings.application = String::from_utf8_lossy(value).into_owned();
            }
            Some((b"client_encoding", value)) => self.settings.is_utf8 = value == b"UTF8",
            _ => {}
        }
        true
    }

    /// The server tells the key for cancel requests, in the message at the start of the input; false: the message is not complete yet.
    fn key_told(&mut self, head: Header) -> bool {
        if head.frame_bytes > REPORT_BYTES_MAX {
            return true;
        }
        let Some(message) = self.received().get(..head.frame_bytes) else { return false };
        self.cancel_key = message.get(HEADER_BYTES..).map(Into::into);
        true
    }

    /// The user and the application of this connection, for the rules.
    pub(super) fn who(&self) -> Who<'_> {
        let ServerSettings { user, database, application, .. } = &self.settings;
        Who { user, database, application, sets_clock: false }
    }

    /// Whether the session's context, and all else that decides about statements, is what this connection has.
    pub(super) fn is_known(&self, connection: &PooledConnection) -> bool {
        let (settings, facts) = (&self.settings, &connection.facts);
        let (Known::Context(known, _), Some((there, _))) = (&settings.known, &facts.context) else { return false };
        known.settings == there.settings
            && settings.named == facts.named
            && (settings.default_isolation, settings.idle_max) == (facts.default_isolation, facts.idle_max)
            && self.identity == connection.identity
    }

    /// Makes the context the one for the rules in force.
    pub(super) fn follow_rules(&mut self, shared: &Pg) {
        if let Known::Context(context, _) = &self.settings.known
            && context.rules != shared.rules.of_contexts()
        {
            self.come_under_rules(shared);
        }
    }

    #[cold]
    fn come_under_rules(&mut self, shared: &Pg) {
        let Known::Context(context, under) = &self.settings.known else { return };
        self.settings.known = match shared.contexts.under_rules(context, &shared.rules, &self.who()) {
            Ok(context) => Known::Context(context, *under),
            Err(reason) => Known::Unknowable(reason),
        };
    }

    /// The number of the session's settings, if they are known: [`Context::settings`].
    pub(super) fn settings_number(&self) -> Option<u32> {
        match &self.settings.known {
            Known::Context(context, _) => Some(context.settings),
            _ => None,
        }
    }

    /// Sends the messages that restore the unnamed statement, if there are any.
    pub(super) fn catch_up_unnamed(&mut self) -> bool {
        let out = self.socket.output.buffer();
        match self.statements.catch_up() {
            None | Some((Unnamed::InStep, _)) => return false,
            Some((Unnamed::Unsent, parse)) => out.extend_from_slice(parse),
            Some((Unnamed::Dropped, _)) => frontend::put_close_statement(out, b""),
        }
        frontend::put_sync(out);
        true
    }

    /// Whether this connection leads to the server and database of the change stream; None: not known yet.
    pub(super) fn compare(&mut self, shared: &Pg) -> Option<Result<(), Reason>> {
        let current = shared.identities();
        if let Some((compared, verdict)) = &self.compared
            && *compared == current
        {
            return Some(verdict.clone());
        }
        let Some(stream) = shared.identity() else {
            return Some(Err(self.without_stream.clone()));
        };
        let own = self.identity.as_deref()?;
        let verdict = if own.database != stream.database {
            Err(Reason::OtherDatabase)
        } else if *own == *stream {
            Ok(())
        } else {
            Err(Reason::OtherServer)
        };
        self.compared = Some((current, verdict.clone()));
        Some(verdict)
    }

    /// The session's context has arrived with the log end; mostly it is the same as before.
    pub(super) fn context_came(&mut self, columns: &[Option<&[u8]>], shared: &Pg) {
        let mut bytes = Vec::with_capacity(512);
        for column in columns {
            bytes.extend_from_slice(&column.map_or(u32::MAX, |column| column.len() as u32).to_le_bytes());
            bytes.extend_from_slice(column.unwrap_or_default());
        }
        match &self.settings.context_behind_write {
            Some(last) if *last.columns == *bytes && self.settings.temporary.is_some() => {
                self.settings.known = Known::Context(last.context.clone(), self.settings.asked_under);
                // In the meantime a block may have had others.
                self.settings.named.clone_from(&last.named);
            }
            _ => {
                self.context_known(Answer::read(columns), shared);
                self.settings.context_behind_write = match &self.settings.known {
                    Known::Context(context, _) => Some(BehindWrite {
                        columns: bytes.into(),
                        context: context.clone(),
                        named: self.settings.named.clone(),
                    }),
                    _ => None,
                };
            }
        }
    }

    /// The settings that a transaction block has changed for itself; None: the query failed.
    pub(super) fn local_known(&mut self, answer: Option<Answer>, shared: &Pg) {
        let Some(mut answer) = answer else {
            self.settings.known = Known::Nothing;
            return;
        };
        self.settings.named = answer.named.take();
        self.settings.idle_max = answer.idle_max;
        self.settings.known = match answer.describe().and_then(|described| shared.contexts.intern(described)) {
            Ok(context) => Known::Context(context, self.settings.asked_under),
            Err(_) => Known::Nothing,
        };
    }

    /// The query for the context was answered; None: it failed.
    pub(super) fn context_known(&mut self, answer: Option<Answer>, shared: &Pg) {
        let Some(mut answer) = answer else {
            self.settings.known = self.settings.question_failed();
            return;
        };
        let configuration = Some(std::mem::take(&mut answer.configuration));
        if std::mem::replace(&mut self.settings.configuration, configuration) != self.settings.configuration
            && let Some(held) = self.sharing.as_mut().and_then(|sharing| sharing.held.as_mut())
        {
            // What was known under other labels may be otherwise now.
            held.facts = Facts::default();
            held.under_labels.forget();
        }
        if let Some((system_id, postmaster_start)) = answer.server.take() {
            let database = answer.database.clone();
            self.identity = Some(Arc::new(ServerIdentity { system_id, postmaster_start, database }));
        }
        let temporary = answer.temporary.take();
        if temporary.is_none() || self.settings.temporary != temporary {
            self.settings.temporary = temporary;
            // The server may have prepared a statement while a temporary table had the name of another table.
            self.statements.doubt_all();
        }
        self.settings.user.clone_from(&answer.session_user);
        self.settings.named = answer.named.take();
        if self.settings.named.is_some() {
            shared.named.answered();
        }
        self.settings.idle_max = answer.idle_max;
        self.settings.default_isolation = answer.isolation;
        self.settings.known = match answer.describe().and_then(|described| shared.contexts.intern(described)) {
            Ok(context) => Known::Context(context, self.settings.asked_under),
            Err(reason) => Known::Unknowable(reason),
        };
    }
}

impl ServerSettings {
    /// A session begins with these.
    pub(super) fn begin(&mut self, facts: Facts) {
        let Facts { context, named, configuration, configured_at, default_isolation, idle_max } = facts;
        if let Some((context, under)) = context {
            self.known = Known::Context(context, under);
        }
        (self.named, self.configuration, self.configured_at) = (named, configuration, configured_at);
        (self.default_isolation, self.idle_max) = (default_isolation, idle_max);
    }

    /// What a connection with these is known to have; `before`: without a context of the session's.
    pub(super) fn facts(&mut self, before: Facts) -> Facts {
        let known = match &self.known {
            Known::Context(context, under) => Facts {
                context: Some((context.clone(), *under)),
                named: self.named.clone(),
                default_isolation: self.default_isolation,
                idle_max: self.idle_max,
                ..Facts::default()
            },
            // What the session, or a block, has read for itself is not in force any more.
            _ => before,
        };
        let known = if known.context.is_some() { known } else { Facts::default() };
        Facts { configuration: self.configuration.take(), configured_at: self.configured_at, ..known }
    }

    /// What is known after the query for the context has failed.
    fn question_failed(&self) -> Known {
        match self.known {
            // The first time it may be an accident: a cancel request, or a function that dropped all prepared statements.
            Known::Asked { again: false } => Known::Failed,
            _ => Known::Unknowable(Reason::SettingsUnknown),
        }
    }
}
