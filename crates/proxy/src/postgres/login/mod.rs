//! From a connection's first byte to AuthenticationOk: authentication, and the role of the upstream session.
//!
//! A cached answer may be returned only to a role that could have read it, so a session always runs as the client's own role in the database. There
//! are three ways:
//!
//! | way | when | how |
//! |---|---|---|
//! | `verify` | verifiers are known (users file, `auth_query`) | Freshet is the server of a SCRAM or MD5 exchange; the proof yields the ClientKey, with which it logs in upstream |
//! | `relay` | none are | the database authenticates the client itself; over TLS on both connections the password is forwarded, since an exchange bound to one cannot pass to the other |
//! | neither | `--auth trust`, `--auth cert` | the database trusts Freshet |
//!
//! With the first way, nobody reaches the database without having proven a password. Errors are the database's own or have its wording. An unknown
//! user goes through the same exchange as a known one.

mod cancel;
mod carried;
mod checks;
mod console;
mod exchange;
mod greet;
mod lookup;
mod relay;
mod sharing;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use freshet_net::Upstream;
use freshet_net::postgres::scram::ScramError;
use freshet_net::postgres::secret::Credentials;
use freshet_net::postgres::{ConnectError, SessionLogin, login_session};
use freshet_types::CatalogVersion;
use freshet_wire::postgres::backend;
use freshet_wire::postgres::startup::{self, Replication};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::login::greet::{Greeted, Hello};
use crate::postgres::login::lookup::Sources;
use crate::postgres::on_demand::Tenancy;
use crate::postgres::pooling::remembered::Beginning;
use crate::postgres::pooling::{Login, Obtained};
use crate::postgres::session::{Carried, first_question};
use crate::server::access::{AccessError, AccessRules, AccessSettings, Incoming, Method};
use crate::server::client_limit::ClientPlace;
use crate::server::databases::Databases;
use crate::shared::ServerIdentity;

pub(crate) use carried::admit_carried;
pub(crate) use console::Visitor;
pub(crate) use lookup::Question;

/// As PostgreSQL's `authentication_timeout`.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a role's name (`NAMEDATALEN - 1`).
const NAME_BYTES_MAX: usize = 63;

/// Access control.
#[derive(Debug)]
pub(crate) struct Access {
    method: Method,
    sources: Sources,
    pub(crate) rules: Arc<AccessRules>,
}

impl Access {
    /// Reads the files.
    pub(crate) fn new(
        settings: &AccessSettings,
        upstream: &Upstream,
        rules: Arc<AccessRules>,
    ) -> Result<Self, AccessError> {
        Ok(Self { method: settings.method, rules, sources: Sources::new(settings, upstream)? })
    }

    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// Whether a user may log in here, as far as the database need not be asked.
    fn may_know(&self, user: &str) -> bool {
        self.method != Method::Auto || self.sources.may_know(user)
    }

    /// Whether logins end at Freshet, and not at the database.
    pub(crate) fn has_logins(&self) -> bool {
        self.method != Method::Auto || self.sources.exist()
    }

    /// Reads the files again. A bad one is reported, and its previous contents stay in use.
    pub(crate) fn reload(&self) -> Vec<AccessError> {
        self.rules.reload(self.sources.reload())
    }

    /// The users to look up in the database.
    pub(crate) fn take_questions(&self) -> Option<tokio::sync::mpsc::Receiver<Question>> {
        self.sources.take_questions()
    }
}

/// Who has been let in.
pub(crate) enum Entered {
    /// A session with the database.
    Session(Box<Admitted>),
    /// An operator at the console.
    Console(Box<Visitor>, Arc<Pg>),
}

/// What a client's start-up packet names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) database: String,
    pub(crate) application_name: String,
}

impl Names {
    fn of(packet: &[u8]) -> Self {
        let text =
            |name: &[u8]| String::from_utf8_lossy(startup::parameter(packet, name).unwrap_or_default()).into_owned();
        let database = text(b"database");
        Self {
            database: if database.is_empty() { text(b"user") } else { database },
            application_name: text(b"application_name"),
        }
    }
}

/// An authenticated client and its upstream session: AuthenticationOk has arrived and is in the client's output buffer.
pub(crate) struct Admitted {
    /// The database that the client has named.
    pub(crate) shared: Arc<Pg>,
    pub(crate) client: Peer,
    pub(crate) upstream: Upstreams,
    /// Whether the connection is for replication.
    pub(crate) replication: Replication,
    /// The role that it logged in as; empty if the name is not UTF-8.
    pub(crate) user: String,
    pub(crate) names: Names,
    /// Of a database of the entry `*`: its place there.
    pub(crate) tenancy: Option<Tenancy>,
    /// Among all clients.
    pub(crate) place: ClientPlace,
}

impl Admitted {
    /// The session belongs to a database of the entry `*`, under the name that the server has read.
    fn move_in(&mut self, tenancy: Tenancy) {
        if let Some(opened) = tenancy.opened() {
            self.shared = opened.clone();
        }
        tenancy.name().clone_into(&mut self.names.database);
        self.tenancy = Some(tenancy);
    }
}

/// The server connection of a session.
pub(crate) enum Upstreams {
    /// Its own; and the catalogue in use when the query for the session's context was sent with the login, if it was.
    Own(Peer, Option<CatalogVersion>),
    /// Those that it shares.
    Shared(Arc<Login>, Box<First>),
    /// The same, of a session of another process, with its key for cancel requests.
    Carried(Arc<Login>, Box<[u8]>, Box<Carried>),
}

/// What a session has of the server connections that it shares, to begin with.
pub(crate) struct First {
    pub(crate) beginning: Beginning,
    /// None: it has none yet.
    pub(crate) obtained: Option<Obtained>,
}

/// Messages that read the session's context, sent with the login.
struct Asking {
    messages: Vec<u8>,
    under: CatalogVersion,
}

/// Without one of its own, a session's database has the name of the user.
fn database_of<'a>(session: &startup::Session<'a>) -> &'a [u8] {
    if session.database.is_empty() { session.user } else { session.database }
}

impl Asking {
    /// A session that cannot use the cache reads no context.
    fn of(session: &startup::Session<'_>, shared: &Pg) -> Self {
        let under = shared.catalog_version();
        let database = database_of(session);
        let same = |stream: &ServerIdentity| stream.database.as_bytes() == database;
        let reads = session.replication == Replication::No && !shared.switches.bypass();
        let asks = reads && shared.identity().is_some_and(|stream| same(&stream));
        Self { messages: if asks { first_question(&shared.named.names()) } else { Vec::new() }, under }
    }
}

/// An authenticated role.
struct LoggedIn {
    upstream: Upstreams,
    replication: Replication,
    user: String,
}

impl Upstreams {
    fn own(login: SessionLogin, under: CatalogVersion) -> Self {
        Self::Own(Peer::with_input(login.socket, &login.received), login.asked.then_some(under))
    }
}

/// Why a login failed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The client has closed its connection, or was answered already.
    Gone,
    /// An error of Freshet.
    Say(&'static str, String),
    /// The same for a wrong password: these are counted.
    Failed(&'static str, String),
    /// The same for a SASL message that is not valid.
    Scram(ScramError),
    /// An error of the database: the body of an ErrorResponse, and whether it means a wrong password.
    Relay(Box<[u8]>, bool),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        tracing::debug!(%error, "connection ended during login");
        Self::Gone
    }
}

impl Refusal {
    /// The wording of PostgreSQL (`auth_failed` in `auth.c`).
    fn wrong_password(user: &str) -> Self {
        Self::Failed("28P01", format!("password authentication failed for user \"{user}\""))
    }

    fn out_of_step(message: impl Into<String>) -> Self {
        Self::Say("08P01", message.into())
    }

    /// Whether the error means a wrong password.
    fn is_failed_proof(&self) -> bool {
        match self {
            Self::Gone | Self::Say(..) | Self::Scram(_) => false,
            Self::Failed(..) => true,
            Self::Relay(_, failed) => *failed,
        }
    }
}

/// Whether a SQLSTATE means a wrong password. Methods other than SCRAM and MD5 have no code of their own for it.
fn is_failed_proof(sqlstate: &str, asked: bool) -> bool {
    sqlstate == "28P01" || (asked && sqlstate == "28000")
}

/// The upstream refused, or cannot be reached; `asked`: the login used the client's password.
fn upstream_refusal(shared: &Pg, error: ConnectError, asked: bool) -> Refusal {
    match error {
        ConnectError::Refused(error) => {
            let failed = is_failed_proof(&error.code, asked);
            Refusal::Relay(error.body, failed)
        }
        ConnectError::Method(_) | ConnectError::PasswordMissing | ConnectError::Scram(_) => {
            shared.warn_rarely(|| format!("cannot log a client in to the database: {error}"));
            Refusal::Say("28000", format!("Freshet cannot log in to the database for this user: {error}"))
        }
        error => {
            shared.warn_rarely(|| format!("cannot open a session at {}: {error}", shared.own.upstream));
            Refusal::Say(
                "08006",
                match error {
                    // An unauthenticated client does not learn the database's address.
                    ConnectError::Tcp(_) | ConnectError::NotWanted(_) => "Freshet cannot reach the database".into(),
                    error => format!("Freshet cannot reach the database: {error}"),
                },
            )
        }
    }
}

/// Processes a connection up to AuthenticationOk; None if the login failed, with its reason sent.
pub(crate) async fn admit(socket: Incoming, databases: &Databases) -> Option<Entered> {
    databases.rules.pre_auth.login(Box::pin(admit_alone(socket, databases))).await?
}

async fn admit_alone(socket: Incoming, databases: &Databases) -> Option<Entered> {
    // PostgreSQL sends no error either to a client that does not send its start-up packet.
    let greeted = timeout(LOGIN_TIMEOUT, greet::greet(socket, databases));
    let Greeted { mut client, packet, tls } = match databases.rules.pre_auth.hello(greeted).await?.ok()?? {
        Hello::Cancel(mut client, packet) => {
            cancel::cancel(databases, &packet).await;
            // The end of this connection tells the client that the request was processed.
            let _ = timeout(LOGIN_TIMEOUT, client.shut_down()).await;
            return None;
        }
        Hello::Session(greeted) => greeted,
    };
    let names = Names::of(&packet);
    let is_console = names.database == console::DATABASE;
    // The users of the console are those of the first database.
    let routed = match databases.first_of_postgres().filter(|_| is_console) {
        Some(first) => Ok((first, packet)),
        None => route(packet, databases),
    };
    let (shared, packet) = match routed {
        Ok(routed) => routed,
        Err(refusal) => {
            say(&mut client, &refusal).await;
            return None;
        }
    };
    shared.metrics.connections.fetch_add(1, Relaxed);
    let timed_out = || Refusal::Say("57014", "canceling authentication due to timeout".into());
    if is_console {
        let login = timeout(LOGIN_TIMEOUT, console::log_in(&mut client, &packet, &tls, &shared)).await;
        return match login.unwrap_or_else(|_| Err(timed_out())) {
            Ok((user, is_admin)) => {
                let visitor = Visitor { client, user, is_admin, names };
                Some(Entered::Console(Box::new(visitor), shared))
            }
            Err(refusal) => {
                refuse(&mut client, &refusal, &shared).await;
                None
            }
        };
    }
    let Some(place) = databases.rules.clients.enter() else {
        // PgBouncer's words.
        say(&mut client, &Refusal::Say("08P01", "no more connections allowed (max_client_conn)".to_owned())).await;
        return None;
    };
    let login = timeout(LOGIN_TIMEOUT, log_in(&mut client, packet, &tls, &shared, &names.database)).await;
    match login.unwrap_or_else(|_| Err(timed_out())) {
        Ok(LoggedIn { upstream, replication, user }) => {
            backend::put_authentication(client.output.buffer(), 0, &[]);
            let mut admitted = Admitted { shared, client, upstream, replication, user, names, tenancy: None, place };
            // The entry `*` has no stream, so that its logins ask nothing.
            if let Some(on_demand) = admitted.shared.own.on_demand.clone()
                && replication != Replication::Physical
                && let Upstreams::Own(peer, _) = &mut admitted.upstream
                && is_in_database(peer).await
                && let Some(tenancy) = on_demand.enter(&admitted.names.database)
            {
                admitted.move_in(tenancy);
            }
            Some(Entered::Session(Box::new(admitted)))
        }
        Err(refusal) => {
            refuse(&mut client, &refusal, &shared).await;
            None
        }
    }
}

/// Whether the server has accepted the session in the database that it names. It looks for the database after the authentication.
async fn is_in_database(upstream: &mut Peer) -> bool {
    let more = std::future::poll_fn(|cx| {
        if upstream.input.bytes().is_empty() { upstream.poll_receive(cx) } else { Poll::Ready(Ok(())) }
    });
    let came = timeout(LOGIN_TIMEOUT, more).await.is_ok_and(|received| received.is_ok());
    // The session passes on what it is.
    came && upstream.input.bytes().first().is_some_and(|tag| *tag != backend::ERROR)
}

/// The database that the client has named, and its start-up packet with the name that the server knows.
fn route(packet: Vec<u8>, databases: &Databases) -> Result<(Arc<Pg>, Vec<u8>), Refusal> {
    let Ok(startup::Startup::Session(session)) = startup::parse(&packet) else { return Err(Refusal::Gone) };
    let name = if session.database.is_empty() { session.user } else { session.database };
    let Some(routed) = databases.postgres(name) else {
        // The wording of PostgreSQL (`InitPostgres` in `postinit.c`).
        let name = String::from_utf8_lossy(name);
        return Err(Refusal::Say("3D000", format!("database \"{name}\" does not exist")));
    };
    let packet = match &routed.at_server {
        Some(real) if real.as_bytes() != name => startup::with_database(&packet, real.as_bytes())
            .map_err(|error| Refusal::out_of_step(startup::BadStartup::from(error).to_string()))?,
        _ => packet,
    };
    Ok((routed.state, packet))
}

async fn refuse(client: &mut Peer, refusal: &Refusal, shared: &Pg) {
    if refusal.is_failed_proof() {
        shared.metrics.login_failures.fetch_add(1, Relaxed);
        shared.access.rules.login_rate.failed(client.socket().peer_ip(), shared.clock.now());
    }
    say(client, refusal).await;
}

async fn say(client: &mut Peer, refusal: &Refusal) {
    let out = client.output.buffer();
    match refusal {
        Refusal::Gone => return,
        Refusal::Say(sqlstate, message) | Refusal::Failed(sqlstate, message) => {
            backend::put_error(out, "FATAL", sqlstate, message);
        }
        Refusal::Scram(error) => {
            backend::put_detailed_error(out, "FATAL", error.sqlstate(), &error.message(), error.detail());
        }
        Refusal::Relay(body, _) => backend::put_message(out, backend::ERROR, body),
    }
    let end = async {
        client.flush().await?;
        client.shut_down().await
    };
    let _ = timeout(LOGIN_TIMEOUT, end).await;
}

/// Authenticates the client and opens its upstream session. `database`: the name that the client has sent.
async fn log_in(
    client: &mut Peer,
    mut packet: Vec<u8>,
    tls: &greet::TlsFacts,
    shared: &Arc<Pg>,
    database: &str,
) -> Result<LoggedIn, Refusal> {
    let session = match startup::parse(&packet) {
        Ok(startup::Startup::Session(session)) => session,
        Ok(_) => return Err(Refusal::Gone),
        Err(error) => return Err(Refusal::out_of_step(error.to_string())),
    };
    let replication = session.replication;
    let relays = !shared.access.has_logins();
    // The server truncates the name in the packet; the proven name must be the one that it reads.
    let name = session.user.get(..NAME_BYTES_MAX).unwrap_or(session.user);
    let user = String::from_utf8_lossy(name).into_owned();
    if user.as_bytes() != name && !relays {
        // Only the database knows whose name this is.
        return Err(Refusal::wrong_password(&user));
    }
    if user.is_empty() {
        return Err(Refusal::Say("28000", "no PostgreSQL user name specified in startup packet".into()));
    }
    checks::leg(client, &session, shared)?;
    checks::rate(client, shared)?;
    let access = &shared.access;
    // PAUSE: nothing reaches the database. It has the name that the client has sent.
    client.unless_gone(shared.sessions.pauses.resumed(database)).await.ok_or(Refusal::Gone)?;
    if relays {
        let asking = Asking::of(&session, shared);
        let is_text = user.as_bytes() == name;
        let login = relay::relay(client, &packet, &user, shared, &asking.messages).await?;
        let user = if is_text { user } else { String::new() };
        return Ok(LoggedIn { upstream: Upstreams::own(login, asking.under), replication, user });
    }
    if access.method != Method::Trust && name != user.as_bytes() {
        // The server would read another name than Freshet.
        return Err(Refusal::wrong_password(&user));
    }
    let minor = greet::negotiate(client, &session, shared);
    let asking = Asking::of(&session, shared);
    startup::set_minor(&mut packet, minor);
    let proven = match access.method {
        Method::Trust => exchange::Proven::default(),
        Method::Cert => {
            checks::certificate(&user, tls)?;
            exchange::Proven::default()
        }
        Method::Auto => exchange::prove(client, &user, tls, shared).await?,
    };
    if shared.pool_mode(Some(&user)).shares() && replication == Replication::No {
        let (user, last_words) = (user.clone(), proven.last_words);
        let login = Login::new(packet, (user.clone(), database), proven.credentials);
        let upstream = client.unless_gone(Box::pin(sharing::begin(shared, login))).await.ok_or(Refusal::Gone)??;
        client.output.put(&last_words);
        return Ok(LoggedIn { upstream, replication, user });
    }
    let login = log_in_upstream(shared, &packet, &user, &proven.credentials, &asking.messages);
    let login = client.unless_gone(login).await.ok_or(Refusal::Gone)??;
    client.output.put(&proven.last_words);
    Ok(LoggedIn { upstream: Upstreams::own(login, asking.under), replication, user })
}

async fn log_in_upstream(
    shared: &Pg,
    packet: &[u8],
    user: &str,
    credentials: &Credentials,
    behind: &[u8],
) -> Result<SessionLogin, Refusal> {
    let upstream = &shared.own.upstream;
    let opened = login_session(upstream, packet, user, credentials, behind).await;
    opened.map_err(|error| refused_upstream(shared, error, user))
}

/// The upstream has refused a client that has proven its password here, or cannot be reached.
fn refused_upstream(shared: &Pg, error: ConnectError, user: &str) -> Refusal {
    let other_verifier = matches!(error, ConnectError::OtherVerifier(_));
    if other_verifier || matches!(&error, ConnectError::Refused(error) if error.code == "28P01") {
        tracing::warn!("a user's proof was right here and is refused by the database: is the users file in step?");
    }
    if other_verifier { Refusal::wrong_password(user) } else { upstream_refusal(shared, error, false) }
}
