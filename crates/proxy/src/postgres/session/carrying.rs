//! A session that goes on in another process: with what, and when.
//!
//! After a handover (SIGUSR2) the new process takes over sessions that share server connections, between two statements: those that have none, whose client
//! uses no TLS, and of which everything else can be written down. That is their login, the settings that they have set, and their prepared statements. The
//! client notices nothing: what it sends meanwhile stays in its connection. All others end here, as at a drain.
//!
//! The new process caches nothing before this one has ended, so a session needs no watermark there.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use freshet_net::postgres::secret::{Credentials, SecretBytes};
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frontend::{self, Parse};
use rustix::net::{SendFlags, Shutdown};
use tokio::time::timeout;

use crate::postgres::Pg;
use crate::postgres::pooling::Login;
use crate::postgres::pooling::labels::{self, Label};
use crate::postgres::pooling::rest_question::{LoginSettings, question};
use crate::postgres::session::drain::TERMINATED;
use crate::postgres::session::names::Defined;
use crate::postgres::session::server_connection::Known;
use crate::postgres::session::sharing::Sharing;
use crate::postgres::session::statements::Prepared;
use crate::postgres::session::{FAREWELL_TIMEOUT, Session};
use crate::server::carried::CarriedSession;

/// The form of what is written. Another version of Freshet that knows only another form ends the session.
const FORM: u8 = 1;
/// The same for the settings in it: which they are, and how the server is asked for them.
static SETTINGS_FORM: LazyLock<[u8; 8]> = LazyLock::new(|| {
    let text = format!("{} {:?}", question(), labels::SETTINGS);
    rapidhash::v3::rapidhash_v3(text.as_bytes()).to_le_bytes()
});
/// A session whose prepared statements are longer together ends here.
const STATEMENT_BYTES_MAX: usize = 4 << 20;

/// A prepared statement with a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CarriedStatement {
    pub(super) name: Vec<u8>,
    /// What follows the name in its `Parse`.
    pub(super) definition: Vec<u8>,
    pub(super) reads_settings: bool,
}

/// What a session takes to another process.
pub(crate) struct Carried {
    /// As the client has named it.
    pub(crate) database: String,
    /// See [`way_of`].
    pub(crate) way: String,
    pub(crate) user: String,
    pub(crate) packet: Vec<u8>,
    pub(super) credentials: Credentials,
    /// For cancel requests.
    pub(super) key: Vec<u8>,
    pub(super) began: LoginSettings,
    pub(super) label: Label,
    /// Whether a backslash in a constant is an escape.
    pub(super) escapes: bool,
    pub(super) application: String,
    /// It may have taken numbers of sequences.
    pub(super) has_sequences: bool,
    /// The `Parse` of its unnamed statement; empty: it has none.
    pub(super) unnamed: Vec<u8>,
    pub(super) statements: Vec<CarriedStatement>,
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried").field("database", &self.database).field("user", &self.user).finish_non_exhaustive()
    }
}

/// The servers and the database to which sessions of a database lead, as the configuration names them, and how their clients log in.
pub(crate) fn way_of(shared: &Pg) -> String {
    let conninfo = shared.own.upstream.conninfo();
    let hosts: Vec<_> = conninfo.hosts.iter().map(|host| &host.address).collect();
    format!("{hosts:?} {} {:?}", conninfo.database, shared.access.method())
}

/// Parts, each behind its length.
struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u32).to_le_bytes());
        self.0.extend_from_slice(part);
    }

    fn put_all<'p>(&mut self, parts: impl ExactSizeIterator<Item = &'p [u8]>) {
        self.put(&(parts.len() as u32).to_le_bytes());
        parts.for_each(|part| self.put(part));
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn part(&mut self) -> Option<&'b [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some(part)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.part()?.to_vec()).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.part()? == [1])
    }

    /// The number of parts that follow.
    fn count(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.part()?.try_into().ok()?) as usize)
    }

    fn settings(&mut self) -> Option<Vec<Arc<str>>> {
        (0..self.count()?).map(|_| self.text().map(Into::into)).collect()
    }
}

impl Carried {
    pub(super) fn write(&self) -> SecretBytes {
        // As much as is needed at once: an allocation that is left behind would hold the keys.
        let mut out = Writer(Vec::with_capacity(self.bytes_max()));
        let of_settings = |settings: &[Arc<str>]| -> Vec<Box<[u8]>> {
            settings.iter().map(|setting| setting.as_bytes().into()).collect()
        };
        out.put(&[FORM]);
        out.put(&*SETTINGS_FORM);
        for text in [&self.database, &self.way, &self.user, &self.application, &self.began.base] {
            out.put(text.as_bytes());
        }
        for bytes in [&self.packet, &self.key, &self.unnamed] {
            out.put(bytes);
        }
        out.put(self.credentials.to_bytes().expose());
        for settings in [&self.began.set[..], &self.label] {
            out.put_all(of_settings(settings).iter().map(|setting| &**setting));
        }
        out.put(&[u8::from(self.escapes)]);
        out.put(&[u8::from(self.has_sequences)]);
        out.put(&(self.statements.len() as u32).to_le_bytes());
        for statement in &self.statements {
            out.put(&statement.name);
            out.put(&statement.definition);
            out.put(&[u8::from(statement.reads_settings)]);
        }
        SecretBytes::new(out.0)
    }

    /// What it takes when it is written, at most.
    fn bytes_max(&self) -> usize {
        // The keys, and the lengths of what is not counted below.
        const OTHERS: usize = 4096;
        let texts = [&self.database, &self.way, &self.user, &self.application, &self.began.base];
        let settings = self.began.set.iter().chain(self.label.iter());
        let statement = |statement: &CarriedStatement| statement.name.len() + statement.definition.len() + 16;
        OTHERS
            + [&self.packet, &self.key, &self.unnamed].map(Vec::len).iter().sum::<usize>()
            + texts.map(String::len).iter().sum::<usize>()
            + settings.map(|setting| setting.len() + 8).sum::<usize>()
            + self.statements.iter().map(statement).sum::<usize>()
    }

    /// None: it was written in another form.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        if from.part()? != [FORM] || from.part()? != *SETTINGS_FORM {
            return None;
        }
        let [database, way, user] = [from.text()?, from.text()?, from.text()?];
        let [application, base] = [from.text()?, from.text()?];
        let [packet, key, unnamed] = [from.part()?.to_vec(), from.part()?.to_vec(), from.part()?.to_vec()];
        let credentials = Credentials::from_bytes(from.part()?)?;
        let (set, label) = (from.settings()?, from.settings()?.into());
        let (escapes, has_sequences) = (from.flag()?, from.flag()?);
        let statement = |from: &mut Reader<'_>| {
            let (name, definition) = (from.part()?.to_vec(), from.part()?.to_vec());
            Some(CarriedStatement { name, definition, reads_settings: from.flag()? })
        };
        let statements = (0..from.count()?).map(|_| statement(&mut from)).collect::<Option<_>>()?;
        let began = LoginSettings { base, set };
        from.0.is_empty().then_some(Self {
            database,
            way,
            user,
            packet,
            credentials,
            key,
            began,
            label,
            escapes,
            application,
            has_sequences,
            unnamed,
            statements,
        })
    }

    /// Its login to the server, and the key for cancel requests.
    pub(crate) fn login(&mut self) -> (Login, Box<[u8]>) {
        let packet = std::mem::take(&mut self.packet);
        let credentials = std::mem::replace(&mut self.credentials, Credentials::Nothing);
        let login = Login::new(packet, (self.user.clone(), &self.database), credentials);
        (login, std::mem::take(&mut self.key).into())
    }
}

/// The outcome of [`Session::leave_process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    Stays,
    /// Its client is told.
    Ends,
    /// Another process has it.
    IsCarried,
}

impl Session {
    /// Whether it can go on in another process now.
    pub(super) fn is_carriable(&self) -> bool {
        self.is_carriable_once_sent() && !self.client.has_output()
    }

    /// The same, once its client has received what was sent.
    pub(super) fn is_carriable_once_sent(&self) -> bool {
        let Some(sharing) = self.server.sharing.as_ref().filter(|sharing| sharing.has_nothing_there(&self.shared))
        else {
            return false;
        };
        self.may_leave()
            && self.client.is_plain()
            && !self.server.has_output()
            && !self.waiting.is_looking()
            && !self.link.has_orders()
            && !matches!(self.server.settings.known, Known::Asked { .. })
            && self.server.statements.are_all_known()
            && sharing.names.are_shared()
            && sharing.names.bytes() <= STATEMENT_BYTES_MAX
    }

    /// What a handover or a drain does to the session, which is at the end of a turn.
    pub(super) async fn leave_process(&mut self) -> Leaving {
        if self.are_carried() && self.is_carriable_once_sent() {
            // Its answers first, and nothing more of a client that has sent its next statement already. One that reads nothing is not waited for.
            let _ = timeout(FAREWELL_TIMEOUT, self.client.socket().flush()).await;
            if self.is_to_be_carried() && self.carry().await {
                return Leaving::IsCarried;
            }
        }
        if !self.is_to_leave() {
            return Leaving::Stays;
        }
        self.leave();
        Leaving::Ends
    }

    async fn carry(&mut self) -> bool {
        let shared = self.shared.clone();
        let Some(successor) = shared.switches.successor() else { return false };
        let mut reserving = pin!(successor.reserve());
        // Others may be before it.
        let reserved = poll_fn(|cx| match reserving.as_mut().poll(cx) {
            Poll::Pending if self.link.has_orders() => Poll::Ready(None),
            polled => polled.map(Some),
        });
        let place = match reserved.await {
            Some(Ok(place)) => place,
            Some(Err(_)) => {
                shared.switches.end_handover();
                return false;
            }
            None => return false,
        };
        // Something may have come meanwhile: an order, a cancel request.
        if !self.is_carriable() {
            return false;
        }
        let Some(state) = self.carried().map(|carried| carried.write()) else { return false };
        match self.client.take_descriptor() {
            Ok(socket) => place.send(CarriedSession { socket, state }),
            Err(error) => tracing::debug!(%error, "a session ends between two processes"),
        }
        true
    }

    fn carried(&self) -> Option<Carried> {
        let sharing = self.server.sharing.as_ref()?;
        let Login { packet, user, credentials, key, began, .. } = &*sharing.login;
        let statement = |(name, defined): (&[u8], &Defined)| CarriedStatement {
            name: name.to_vec(),
            definition: defined.entry.definition.to_vec(),
            reads_settings: defined.entry.reads_settings,
        };
        Some(Carried {
            database: key.database.clone(),
            way: way_of(&self.shared),
            user: user.clone(),
            packet: packet.clone(),
            credentials: credentials.clone(),
            key: sharing.cancel.key.to_vec(),
            began: began.get().cloned().unwrap_or_default(),
            label: sharing.traces.set_there().label,
            escapes: self.server.settings.escapes,
            application: self.server.settings.application.clone(),
            has_sequences: sharing.traces.has_sequences(),
            unnamed: self.server.statements.unsent().to_vec(),
            statements: sharing.names.all_shared().map(statement).collect(),
        })
    }

    /// The session goes on that another process has written.
    pub(super) fn begin_carried(&mut self, mut sharing: Sharing, carried: &Carried) {
        // It is the first: there is none yet.
        let _ = sharing.login.began.set(carried.began.clone());
        sharing.traces.begin_carried(&carried.label, carried.has_sequences);
        self.server.settings.escapes = carried.escapes;
        self.server.settings.application.clone_from(&carried.application);
        self.server.statements.move_unnamed();
        // All that its client has read is older.
        self.watermark.raise(self.shared.clock.now());
        self.server.sharing = Some(Box::new(sharing));
        for statement in &carried.statements {
            self.begin_statement(statement);
        }
        if !carried.unnamed.is_empty() {
            let prepared = self.prepared_before(&carried.unnamed);
            self.server.statements.expect_unnamed(prepared, &carried.unnamed);
        }
    }

    fn begin_statement(&mut self, CarriedStatement { name, definition, reads_settings }: &CarriedStatement) {
        let mut parse = Vec::new();
        frontend::put_parse_again(&mut parse, name, definition);
        let prepared = self.prepared_before(&parse);
        self.server.statements.sent(name, prepared);
        let entries = &self.shared.pooling.entries;
        let Some(sharing) = &mut self.server.sharing else { return };
        let entry = entries.intern(definition, *reads_settings, sharing.traces.of_preparing());
        sharing.names.set_shared(name, entry, entries.tick());
    }

    /// What is known of a statement that was prepared by this message, under the session's settings.
    fn prepared_before(&self, parse: &[u8]) -> Option<Prepared> {
        let Parse { query, types, .. } = Parse::read(parse).ok()?;
        let statement = self.statement(query, types).ok()?;
        Some(Prepared { catalog: Prepared::NOT_TAKEN, ..self.prepared(&statement) })
    }
}

impl Sharing {
    /// Whether no server connection has anything of the session, nor does it wait for one.
    fn has_nothing_there(&self, shared: &Pg) -> bool {
        self.held.is_none()
            && self.awaited.is_none()
            && self.arrived.is_none()
            && !self.is_wanted
            && !self.awaits_cancel
            && !self.cancel.target.is_under_way()
            && self.replica.current.is_none()
            && self.replica.debt.as_ref().is_none_or(|shown| shown.has_settled(shared))
            && self.traces.has_label_only()
            && self.listened.is_none()
            && !shared.pooling.reads_sequences.load(Relaxed)
    }
}

impl CarriedSession {
    /// No process takes it over: its client is told what a drain would have told it.
    pub fn end(self) {
        let (mut out, (sqlstate, message)) = (Vec::new(), TERMINATED);
        backend::put_error(&mut out, "FATAL", sqlstate, message);
        let _ = rustix::net::send(&self.socket, &out, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        // A duplicate may be on its way.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = |text: &str| text.to_owned();
        let carried = Carried {
            database: text("shop"),
            way: text("127.0.0.1:5432 shop"),
            user: text("u"),
            packet: b"packet".to_vec(),
            credentials: Credentials::Password(freshet_net::postgres::secret::Secret::new(text("geheim"))),
            key: vec![1; 8],
            began: LoginSettings { base: text("base"), set: vec!["a=b".into()] },
            label: ["TimeZone=UTC".into(), "jit=off".into()].into(),
            escapes: true,
            application: text("application"),
            has_sequences: false,
            unnamed: vec![b'u'; 100_000],
            statements: vec![
                CarriedStatement {
                    name: b"one".to_vec(),
                    definition: b"select 1\0\0\0".to_vec(),
                    reads_settings: true,
                },
                CarriedStatement { name: b"two".to_vec(), definition: vec![b'x'; 70_000], reads_settings: false },
            ],
        };
        let bytes = carried.write();
        assert!(bytes.expose().len() <= carried.bytes_max());
        let read = Carried::read(bytes.expose()).expect("what was written");
        assert_eq!(format!("{carried:?}"), r#"Carried { database: "shop", user: "u", .. }"#);
        assert_eq!((&read.way, &read.label, &read.statements), (&carried.way, &carried.label, &carried.statements));
        assert_eq!(read.write().expose(), bytes.expose());
        for length in 0..200 {
            assert!(Carried::read(bytes.expose().get(..length).expect("longer")).is_none(), "{length} bytes");
        }
        let mut other = bytes.expose().to_vec();
        other[4] = FORM + 1;
        assert!(Carried::read(&other).is_none(), "another form");
        let mut other = bytes.expose().to_vec();
        other[9] ^= 1;
        assert!(Carried::read(&other).is_none(), "another form of settings");
    }
}
