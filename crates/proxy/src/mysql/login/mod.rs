//! From a connection's first byte to the server's OK: authentication, and the user of the upstream session.
//!
//! A cached answer may be returned only to a user who could have read it, so a session always runs as the client's own user in the database. In this
//! protocol the server sends first, and the proof of the password depends on its nonce. So Freshet connects upstream first and forwards the server's
//! handshake, and then the messages of both sides ([`exchange`]): any plugin works, and Freshet needs no password. It removes capabilities that it
//! does not support: compression, and TLS unless Freshet has a certificate. With `--users` the exchange ends at Freshet instead ([`own`]), and nobody
//! reaches the database without having proven a password.
//!
//! Errors are the server's own or have its wording. If the server is down, the client gets an error in place of the handshake.

mod account;
mod exchange;
mod leg;
mod own;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use freshet_net::mysql::{Client, ConnectError, Opened, ServerVersion, Upstream, open, start_tls};
use freshet_net::postgres::secret::Secret;
use freshet_net::{Socket, Stream};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::handshake::{ClientHello, Handshake, HandshakeResponse, SSL_REQUEST_BYTES, set_capabilities};
use freshet_wire::mysql::ok::Ok as OkPacket;
use freshet_wire::mysql::packet::{self, HEADER_BYTES};
use freshet_wire::mysql::track::{Hidden, shown};
use tokio::time::timeout;

use crate::mysql::MySql;
use crate::mysql::kills::Thread;
use crate::peer::Peer;
use crate::pool::Patience;
use crate::server::access::{AccessError, AccessRules, AccessSettings, Incoming, Method, UsersFile};
use crate::server::client_limit::ClientPlace;

pub(crate) use account::Account;
pub(crate) use exchange::{Exchange, OwnKey, Plugin, is_failed_proof};
pub(crate) use leg::Leg;
pub(crate) use own::change_user;

/// As the servers' `connect_timeout`.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Capabilities that Freshet does not support.
const NOT_OFFERED: Capabilities = Capabilities(Capabilities::COMPRESS.0 | Capabilities::ZSTD_COMPRESSION.0);

/// Capabilities that are not offered to clients. Where sessions share prepared statements, a server does not know which column definitions a client has,
/// and types can be put into a message only if it does not name its parameters.
fn not_offered(shared: &MySql) -> Capabilities {
    let shares_statements = shares_connections(shared) && shared.settings.pool.prepared_max > 0;
    let not_shared = Capabilities::MARIADB_CACHE_METADATA.with(Capabilities::QUERY_ATTRIBUTES);
    if shares_statements { NOT_OFFERED.with(not_shared) } else { NOT_OFFERED }
}

/// Access control.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) rules: Arc<AccessRules>,
    /// None: the server decides.
    pub(crate) users: Option<UsersFile<Secret>>,
    pub(crate) key: OwnKey,
}

impl Access {
    /// Reads the files.
    pub(crate) fn new(settings: &AccessSettings, rules: Arc<AccessRules>) -> Result<Self, AccessError> {
        if settings.method != Method::Auto {
            return Err(AccessError::Unsupported("--auth: MySQL and MariaDB have passwords only"));
        }
        if settings.auth_query.is_some() {
            return Err(AccessError::Unsupported("--auth-query: not for MySQL and MariaDB; use --users, or neither"));
        }
        Ok(Self {
            rules,
            users: settings.users.as_deref().map(UsersFile::of_passwords).transpose()?,
            key: OwnKey::default(),
        })
    }

    /// Reads the files again. A bad one is reported, and its previous contents stay in use.
    pub(crate) fn reload(&self) -> Vec<AccessError> {
        self.rules.reload(self.users.as_ref().map_or(Ok(()), UsersFile::reload))
    }
}

/// An authenticated client and its upstream session. The server's OK is in the client's output buffer.
pub(crate) struct Admitted {
    pub(crate) client: Peer,
    pub(crate) upstream: Peer,
    pub(crate) about: About,
    /// The server, and its number of the connection.
    pub(crate) thread: Thread,
    /// With it the session can have other connections, too.
    pub(crate) account: Option<Account>,
    /// Among all clients.
    pub(crate) place: Option<ClientPlace>,
}

/// Facts about a session from its login.
#[derive(Debug)]
pub(crate) struct About {
    /// The capabilities that the client and the server agreed on.
    pub(crate) capabilities: Capabilities,
    /// The server reports changes of the session, to Freshet if not to the client.
    pub(crate) tracks: bool,
    pub(crate) version: ServerVersion,
    pub(crate) user: String,
    /// None: there is none.
    pub(crate) database: Option<String>,
    /// The attribute `program_name` of the client; empty if there is none.
    pub(crate) application: String,
    pub(crate) plugin: Plugin,
    /// Payload of the server's OK.
    pub(crate) ok: Vec<u8>,
}

impl About {
    /// The capabilities that Freshet and the server agreed on.
    pub(crate) fn upstream(&self) -> Capabilities {
        if self.tracks { self.capabilities.with(Capabilities::SESSION_TRACK) } else { self.capabilities }
    }
}

/// ER_SERVER_SHUTDOWN: drivers take it for a server that is down. MariaDB's drivers refuse numbers of client errors (2003) from a server.
const SERVER_SHUTDOWN: u16 = 1053;

/// Why a login failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client has closed its connection.
    Gone,
    /// No server takes connections.
    Absent(String),
    /// An error of Freshet.
    Say(u16, &'static str, String),
    /// The same for a wrong password: these are counted.
    Failed(String),
    /// An error of the server: the payload of an ERR packet, and whether it means a wrong password.
    Relay(Vec<u8>, bool),
}

impl std::convert::From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        tracing::debug!(%error, "connection ended during login");
        Self::Gone
    }
}

impl Refusal {
    /// A protocol error of either side (ER_HANDSHAKE_ERROR).
    pub(crate) fn internal(why: impl Into<String>) -> Self {
        Self::Say(1043, "08S01", format!("Bad handshake: {}", why.into()))
    }

    /// The server's ERR packet, or the packet in its place.
    pub(crate) fn of_server(payload: Vec<u8>) -> Self {
        let failed = is_failed_proof(&payload);
        Self::Relay(payload, failed)
    }

    /// The upstream refused, or cannot be reached. An unauthenticated client does not learn the database's address.
    fn of_upstream(error: &ConnectError, shared: &MySql) -> Self {
        shared.metrics.upstream_failures.fetch_add(1, Relaxed);
        let is_absence = error.is_absence();
        if let ConnectError::Refused(error) = error
            && !is_absence
        {
            let message = error.message.clone();
            // Without a SQLSTATE, as the servers send it in place of their handshake.
            return Self::Say(error.code, "HY000", message);
        }
        shared.warn_rarely(|| format!("cannot open a session at {}: {error}", shared.own.upstream));
        let text = match error {
            ConnectError::Tcp(_) => "Freshet cannot reach the database".to_owned(),
            error => format!("Freshet cannot reach the database: {error}"),
        };
        if is_absence { Self::Absent(text) } else { Self::Say(SERVER_SHUTDOWN, "08S01", text) }
    }

    /// Whether no server takes connections, rather than one that refuses this login.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Absent(_))
    }

    fn is_failed_proof(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Relay(_, true))
    }

    /// Appends the error to the client's output.
    pub(crate) fn put(&self, leg: &mut Leg<'_>) {
        let before = leg.sequence == 0;
        let sequence = &mut leg.sequence;
        let out = leg.peer.output.buffer();
        match self {
            Self::Gone => {}
            Self::Say(code, state, message) => put_error(out, sequence, *code, (!before).then_some(state), message),
            Self::Absent(message) => put_error(out, sequence, SERVER_SHUTDOWN, (!before).then_some("08S01"), message),
            // ER_ACCESS_DENIED_ERROR
            Self::Failed(message) => put_error(out, sequence, 1045, Some("28000"), message),
            Self::Relay(payload, _) => packet::put(out, sequence, payload),
        }
    }

    /// Counts a wrong password.
    pub(crate) fn count(&self, address: Option<IpAddr>, shared: &MySql) {
        if self.is_failed_proof() {
            shared.metrics.login_failures.fetch_add(1, Relaxed);
            shared.access.rules.login_rate.failed(address, shared.clock.now());
        }
    }
}

/// Processes a connection up to the server's OK; None if the login failed, with its reason sent.
pub(crate) async fn admit(socket: Incoming, shared: &Arc<MySql>) -> Option<Admitted> {
    shared.access.rules.pre_auth.login(Box::pin(admit_alone(socket, shared))).await?
}

async fn admit_alone(socket: Incoming, shared: &Arc<MySql>) -> Option<Admitted> {
    let client = accept(socket).inspect_err(|error| tracing::debug!(%error, "accept")).ok()?;
    let address = client.socket().peer_ip();
    let (mut slot, mut sequence) = (Some(client), 0);
    let place = shared.access.rules.clients.enter();
    let login = async {
        if place.is_none() {
            // ER_CON_COUNT_ERROR
            return Err(Refusal::Say(1040, "08004", "Too many connections".to_owned()));
        }
        let (opened, mut theirs) = open_upstream(slot.as_mut().ok_or(Refusal::Gone)?, shared).await?;
        let thread = Thread { host: opened.host, number: theirs.connection_id };
        theirs.capabilities = theirs.capabilities.without(not_offered(shared));
        if shares_connections(shared) {
            theirs.connection_id = shared.kills.number();
        }
        // Servers send no error either to a client that does not name its user.
        let login = timeout(LOGIN_TIMEOUT, log_in(&mut slot, &mut sequence, opened, theirs, shared)).await;
        let (upstream, about, account) = login.unwrap_or(Err(Refusal::Gone))?;
        Ok::<_, Refusal>((upstream, thread, about, account))
    }
    .await;
    let mut client = slot?;
    match login {
        Ok((upstream, thread, about, account)) => {
            let ok = login_ok(&about.ok, about.tracks, about.capabilities);
            packet::put(client.output.buffer(), &mut sequence, &ok);
            Some(Admitted { client, upstream, about, thread, account, place })
        }
        Err(refusal) => {
            refusal.count(address, shared);
            refusal.put(&mut Leg { peer: &mut client, sequence });
            let end = async {
                client.flush().await?;
                client.shut_down().await
            };
            let _ = timeout(LOGIN_TIMEOUT, end).await;
            None
        }
    }
}

/// Whether sessions may share connections: Freshet must be able to log in again.
fn shares_connections(shared: &MySql) -> bool {
    shared.access.users.is_some() && shared.settings.pool.may_share()
}

fn accept(incoming: Incoming) -> std::io::Result<Peer> {
    Ok(Peer::new(match incoming {
        Incoming::Unix(unix) => Socket::Unix(Stream::watched(unix)?),
        Incoming::Tcp(tcp) => {
            tcp.set_nodelay(true)?;
            freshet_net::set_keepalive(&tcp)?;
            Socket::Tcp(Stream::watched(tcp)?)
        }
    }))
}

/// Opens a client's upstream session, up to the server's handshake.
async fn open_upstream(client: &mut Peer, shared: &Arc<MySql>) -> Result<(Opened, Handshake), Refusal> {
    if let Err(seconds) = shared.access.rules.login_rate.allowed(client.socket().peer_ip(), shared.clock.now()) {
        // ER_HOST_IS_BLOCKED
        let text = format!("too many failed logins from this address; try again in {seconds} s");
        return Err(Refusal::Say(1129, "HY000", text));
    }
    let opened = open_once_possible(client, shared).await?;
    let theirs = opened.parse().map_err(|error| Refusal::of_upstream(&error, shared))?;
    if !opened.rest.is_empty() || !theirs.capabilities.has(Capabilities::PROTOCOL_41) {
        return Err(Refusal::Say(1043, "08S01", "Freshet does not understand the database's handshake".to_owned()));
    }
    Ok((opened, theirs))
}

/// A connection to the server. For a session that may share connections, it is tried again while the server takes none.
async fn open_once_possible(client: &mut Peer, shared: &Arc<MySql>) -> Result<Opened, Refusal> {
    let patience = Patience::of(shared.settings.pool.failover_timeout);
    loop {
        let opened = client.unless_gone(open_settled(&shared.own.upstream)).await.ok_or(Refusal::Gone)?;
        let refusal = match opened.map_err(|error| Refusal::of_upstream(&error, shared)) {
            Err(refusal) if refusal.is_absence() && shares_connections(shared) => refusal,
            opened => return opened,
        };
        client.unless_gone(patience.next()).await.ok_or(Refusal::Gone)?.ok_or(refusal)?;
    }
}

/// Opens a connection to the host in use, after it is known whether it will be encrypted.
async fn open_settled(upstream: &Upstream) -> Result<Opened, ConnectError> {
    Client::wait_for_primary(upstream).await?;
    if !upstream.tls_is_settled() {
        // The first connection determines it; other errors of it show below.
        let _ = Client::connect(upstream).await;
    }
    open(upstream).await
}

/// Relays the client's authentication. The slot is empty if TLS with the client failed.
async fn log_in(
    slot: &mut Option<Peer>,
    sequence: &mut u8,
    opened: Opened,
    theirs: Handshake,
    shared: &Arc<MySql>,
) -> Result<(Peer, About, Option<Account>), Refusal> {
    let access = &shared.access;
    let hello = access.rules.pre_auth.hello(greet(slot, sequence, &theirs, access));
    let response = hello.await.ok_or(Refusal::Gone)??;
    let client = slot.as_mut().ok_or(Refusal::Gone)?;
    let ClientHello::Response(hello) = parse(&response)? else {
        return Err(Refusal::internal("a second SSLRequest"));
    };
    if access.rules.tls_required && !client.socket().is_private() {
        // ER_SECURE_TRANSPORT_REQUIRED
        let text = "Connections using insecure transport are prohibited: Freshet accepts only TLS";
        return Err(Refusal::Say(3159, "HY000", text.to_owned()));
    }
    let tracking = theirs.capabilities & Capabilities::SESSION_TRACK;
    let capabilities = hello.capabilities.without(not_offered(shared)).without(Capabilities::SSL);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut plugin = Plugin { name: theirs.plugin.clone(), nonce: theirs.nonce.clone() };
    let mut about = About {
        capabilities: capabilities & theirs.capabilities,
        tracks: tracking == Capabilities::SESSION_TRACK,
        version: ServerVersion::parse(&theirs.server_version),
        user: text(hello.user),
        database: hello.database.filter(|name| !name.is_empty()).map(text),
        application: application(hello.attributes),
        plugin: Plugin::default(),
        ok: Vec::new(),
    };
    let mut client = Leg { peer: client, sequence: *sequence };
    let outcome = if let Some(users) = &access.users {
        own::log_in(&mut client, users, opened, &hello, shared).await
    } else {
        plugin.name = hello.plugin.filter(|name| !name.is_empty()).map_or(plugin.name, <[u8]>::to_vec);
        let capabilities = capabilities.with(tracking);
        relay(&mut client, &mut plugin, opened, Sending { response: &response, capabilities }, shared).await
    };
    let (upstream, ok) = outcome.inspect_err(|_| *sequence = client.sequence)?;
    *sequence = client.sequence;
    (about.ok, about.plugin) = (ok, plugin);
    let number = theirs.connection_id;
    let account = shares_connections(shared).then(|| Account::new(&response, &hello, about.capabilities, number));
    Ok((upstream, about, account))
}

/// The attribute `program_name` among these.
fn application(attributes: &[u8]) -> String {
    let attributes = freshet_wire::mysql::handshake::attributes(attributes).unwrap_or_default();
    let name = attributes.iter().find(|(name, _)| *name == b"program_name").map(|(_, value)| *value);
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}

/// A login's OK in the form for the client.
pub(crate) fn login_ok(payload: &[u8], tracks: bool, capabilities: Capabilities) -> Vec<u8> {
    let hidden = Hidden { all: tracks && !capabilities.has(Capabilities::SESSION_TRACK), commits: false };
    let plain = OkPacket::parse(payload, Capabilities::SESSION_TRACK);
    let tells = plain.is_ok_and(|ok| ok.status.has(Status::SESSION_STATE_CHANGED));
    let shown = if tells { shown(payload, hidden) } else { None };
    shown.unwrap_or_else(|| payload.to_vec())
}

/// The client's response, and the capabilities to write into it.
struct Sending<'a> {
    response: &'a [u8],
    capabilities: Capabilities,
}

async fn relay(
    client: &mut Leg<'_>,
    plugin: &mut Plugin,
    opened: Opened,
    sending: Sending<'_>,
    shared: &MySql,
) -> Result<(Peer, Vec<u8>), Refusal> {
    let (mut upstream, sequence, capabilities) =
        encrypt(opened, sending.response, sending.capabilities, shared).await?;
    let mut response = sending.response.to_vec();
    set_capabilities(&mut response, capabilities);
    let mut server = Leg { peer: &mut upstream, sequence };
    server.put(&response);
    let client_leg = Leg { peer: client.peer, sequence: client.sequence };
    let mut exchange = Exchange { client: client_leg, upstream: server, plugin, key: &shared.access.key };
    let outcome = exchange.run().await;
    client.sequence = exchange.client.sequence;
    Ok((upstream, outcome?))
}

/// TLS to the upstream if required. Returns the number of the next packet, and the capabilities to send.
async fn encrypt(
    opened: Opened,
    response: &[u8],
    capabilities: Capabilities,
    shared: &MySql,
) -> Result<(Peer, u8, Capabilities), Refusal> {
    let upstream = &shared.own.upstream;
    let failed = |error: ConnectError| Refusal::of_upstream(&error, shared);
    if !opened.wants_tls(upstream).map_err(failed)? {
        return Ok((Peer::new(opened.socket), 1, capabilities));
    }
    let capabilities = capabilities.with(Capabilities::SSL);
    let mut request = response.get(..SSL_REQUEST_BYTES).unwrap_or(response).to_vec();
    set_capabilities(&mut request, capabilities);
    let (mut peer, host) = (Peer::new(opened.socket), opened.host);
    Leg { peer: &mut peer, sequence: 1 }.put(&request);
    peer.flush().await?;
    let socket = start_tls(upstream, host, peer.into_socket()).await.map_err(failed)?;
    Ok((Peer::new(socket), 2, capabilities))
}

/// Sends the handshake and reads the client's response, over TLS if the client requests it.
async fn greet(
    slot: &mut Option<Peer>,
    sequence: &mut u8,
    theirs: &Handshake,
    access: &Access,
) -> Result<Vec<u8>, Refusal> {
    let client = slot.as_mut().ok_or(Refusal::Gone)?;
    let tls = access.rules.tls.as_ref().filter(|_| matches!(client.socket(), Socket::Tcp(_)));
    let offered = theirs.capabilities.without(Capabilities::SSL);
    let offered = if tls.is_some() { offered.with(Capabilities::SSL) } else { offered };
    let mut handshake = Vec::new();
    Handshake { capabilities: offered, ..theirs.clone() }.put(&mut handshake);
    let response = converse(client, sequence, &handshake).await?;
    let (Some(tls), Ok(ClientHello::SslRequest(_))) = (tls, ClientHello::parse(&response)) else {
        return Ok(response);
    };
    if !client.input.bytes().is_empty() {
        return Err(Refusal::internal("unencrypted data behind the request for TLS"));
    }
    let Some(Socket::Tcp(tcp)) = slot.take().map(Peer::into_socket) else { return Err(Refusal::Gone) };
    let stream = tls.accept(tcp).await?.stream;
    let client = slot.insert(Peer::new(Socket::Client(Box::new(stream))));
    converse(client, sequence, &[]).await
}

/// Sends a payload, if there is one, and receives the answer.
async fn converse(client: &mut Peer, sequence: &mut u8, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut leg = Leg { peer: client, sequence: *sequence };
    if !payload.is_empty() {
        leg.put(payload);
    }
    let response = leg.receive_of(HEADER_BYTES + SSL_REQUEST_BYTES).await?;
    *sequence = leg.sequence;
    Ok(response)
}

fn parse(response: &[u8]) -> Result<ClientHello<'_>, Refusal> {
    ClientHello::parse(response).map_err(|error| Refusal::internal(error.to_string()))
}

/// The response with another proof.
fn with_proof<'a>(hello: &HandshakeResponse<'a>, plugin: &'a [u8], proof: &'a [u8]) -> HandshakeResponse<'a> {
    HandshakeResponse { plugin: Some(plugin), proof, ..hello.clone() }
}
