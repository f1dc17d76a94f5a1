//! TLS to the upstream: each `sslmode` with servers that support, require and refuse TLS, and the data over it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings, Tls};

use super::link::{Link, Negotiation, Terminator, Trust};
use super::programs::psql_output;
use super::workshop::{Authority, Workshop, text};
use super::{READ, SCHEMA, started, tls_options};
use crate::support::{
    Database, Freshet, Login, PATIENCE, RawClient, Version, ensure_same, eventually, frames, on_both_at_length, rest,
};

on_both_at_length!(modes, behind_a_terminator, unix_sockets);

/// Whether the session's connection is encrypted, as the server sees it.
const ENCRYPTED: &str = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
const PASSWORD: &str = "pencil";

/// A server with TLS, in which users differ by how they may connect.
pub(super) struct Encrypted {
    pub(super) database: Database,
    pub(super) authority: Authority,
    pub(super) workshop: Workshop,
}

impl Encrypted {
    pub(super) fn start() -> Result<Self> {
        let workshop = Workshop::open()?;
        let authority = workshop.authority("ca")?;
        let mut tls = workshop.leaf("server", &["localhost"], &authority)?;
        tls.client_ca = Some(authority.cert.clone());
        let lines = [
            "host all postgres 127.0.0.1/32 trust",
            "hostssl all tls_only 127.0.0.1/32 trust",
            "hostnossl all plain_only 127.0.0.1/32 trust",
            "hostssl all certified,uncertified 127.0.0.1/32 cert",
            "host all scram 127.0.0.1/32 scram-sha-256",
            "hostssl all clear 127.0.0.1/32 password",
            "hostssl all hashed 127.0.0.1/32 md5",
        ];
        let settings = lines.iter().fold(Settings::default(), |settings, line| settings.with_hba(*line));
        let server: Arc<Server> = Version::V15.start(&settings.with_tls(tls))?;
        for user in ["tls_only", "plain_only", "certified", "uncertified", "scram", "clear", "hashed"] {
            let encryption = if user == "hashed" { "md5" } else { "scram-sha-256" };
            server.psql(&format!(
                "set password_encryption to '{encryption}'; create role {user} superuser login password '{PASSWORD}'"
            ))?;
        }
        let database = Database::create(server)?;
        database.run(SCHEMA)?;
        Ok(Self { database, authority, workshop })
    }

    fn login<'a>(&'a self, user: &'a str) -> Login<'a> {
        Login { password: Some(PASSWORD), ..self.database.login_as(user) }
    }

    /// What a client of Freshet gets with these options for the upstream.
    fn attempt(&self, user: &str, options: &str) -> Result<std::result::Result<String, String>> {
        let url = url(&self.database, self.database.address(), user, options);
        attempt(self.database.address(), &url, self.login(user), &["--auth", "trust"])
    }
}

/// By the name `localhost`, whatever that is to the machine.
pub(super) fn url(database: &Database, address: SocketAddr, user: &str, options: &str) -> String {
    let at = format!("localhost:{}/{}?hostaddr={}", address.port(), database.name, address.ip());
    format!("postgres://{user}:{PASSWORD}@{at}&{options}")
}

/// Starts a Freshet with this upstream and asks through it whether the upstream is encrypted: `t` or `f`, or the error.
pub(super) fn attempt(
    direct: SocketAddr,
    upstream: &str,
    login: Login<'_>,
    options: &[&str],
) -> Result<std::result::Result<String, String>> {
    let freshet = match started(direct, upstream, options) {
        Ok(freshet) => freshet,
        Err(error) => return Ok(Err(error)),
    };
    let mut client = RawClient::open(freshet.address)?;
    let messages = client.start(login)?;
    let error = messages.iter().find(|message| message.tag == b'E');
    if let Some(error) = error {
        return Ok(Err(error.field(b'M').context("an error without text")?));
    }
    Ok(Ok(client.value(ENCRYPTED)?))
}

/// Whether there is a Freshet to be tested.
pub(super) fn is_absent() -> bool {
    std::env::var_os("FRESHET_BIN").is_some_and(|named| named == "none")
}

#[track_caller]
fn check(what: &str, outcome: &std::result::Result<String, String>, expected: std::result::Result<&str, &str>) {
    let good = match (outcome, expected) {
        (Ok(value), Ok(expected)) => value == expected,
        (Err(error), Err(words)) => error.to_lowercase().contains(&words.to_lowercase()),
        _ => false,
    };
    assert!(good, "{what}: {outcome:?}, not {expected:?}");
}

fn modes(version: Version) -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let workshop = Workshop::open()?;
    let authority = workshop.authority("ca")?;
    let settings = match version {
        Version::V15 => Settings::default().with_tls(workshop.leaf("server", &["localhost"], &authority)?),
        Version::V18 => Settings::default(),
    };
    let database = Database::create(version.start(&settings)?)?;
    let can = version == Version::V15;
    let root = format!("&sslrootcert={}", text(&authority.cert));
    let only_if_it_can = if can { Ok("t") } else { Err("does not support") };
    for (mode, root, expected) in [
        ("disable", "", Ok("f")),
        ("allow", "", Ok("f")),
        ("prefer", "", Ok(if can { "t" } else { "f" })),
        ("require", "", only_if_it_can),
        ("require", root.as_str(), only_if_it_can),
        ("verify-ca", &root, only_if_it_can),
        ("verify-full", &root, only_if_it_can),
        ("verify-ca", "", Err("sslrootcert")),
        ("verify-full", "", Err("sslrootcert")),
    ] {
        let url = url(&database, database.address(), "postgres", &format!("sslmode={mode}{root}"));
        let outcome = attempt(database.address(), &url, database.login(), &[])?;
        // A version without TLS has no view that says so.
        check(&format!("{mode}{root}"), &outcome, expected);
    }
    Ok(())
}

/// All of Freshet's own connections are encrypted too, the change stream among them, and reads come from the cache.
#[test]
fn everything_is_encrypted() -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let server = Encrypted::start()?;
    let options = format!("sslmode=verify-full&sslrootcert={}", text(&server.authority.cert));
    let url = url(&server.database, server.database.address(), "tls_only", &options);
    let freshet = Freshet::start_unready(server.database.address(), &url, &[])?;
    freshet.wait_ready()?;
    hits(&freshet, freshet.address, &server.database, server.login("tls_only"))?;
    let others = "from pg_stat_ssl join pg_stat_activity using (pid)
        where datname = current_database() and pid <> pg_backend_pid() and backend_type in ('client backend', 'walsender')";
    let mut direct = server.database.connect()?;
    // The direct connection of before may take a moment to go.
    eventually(PATIENCE, || {
        ensure!(direct.value(&format!("select count(*) filter (where not ssl) {others}"))? == "0");
        Ok(())
    })?;
    ensure!(direct.value(&format!("select count(*) > 2 {others}"))? == "t");
    ensure!(direct.value("select bool_and(ssl) from pg_stat_ssl join pg_stat_replication using (pid)")? == "t");
    Ok(())
}

/// A conversation is the same directly and here, in the end with a hit.
fn hits(freshet: &Freshet, address: SocketAddr, database: &Database, login: Login<'_>) -> Result<()> {
    let mut direct = database.connect()?;
    direct.query(READ)?;
    eventually(PATIENCE, || {
        let before = freshet.metrics()?;
        let mut client = RawClient::login(address, login)?;
        rest();
        client.query(READ)?;
        ensure_same(&direct.heard, &client.heard)?;
        let after = freshet.metrics()?;
        ensure!(after.hits() > before.hits(), "no hit; {:?}", after.passed_since(&before));
        Ok(())
    })
}

/// The server decides who may come how; its errors are forwarded.
#[test]
fn servers_that_insist() -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let server = Encrypted::start()?;
    let (no_tls, tls) = (Err("no encryption"), Err("SSL encryption"));
    for (user, mode, expected) in [
        ("tls_only", "disable", no_tls),
        ("tls_only", "allow", Ok("t")),
        ("tls_only", "prefer", Ok("t")),
        ("tls_only", "require", Ok("t")),
        ("plain_only", "disable", Ok("f")),
        ("plain_only", "allow", Ok("f")),
        ("plain_only", "prefer", Ok("f")),
        ("plain_only", "require", tls),
    ] {
        let outcome = server.attempt(user, &format!("sslmode={mode}"))?;
        check(&format!("{user} {mode}"), &outcome, expected);
    }
    Ok(())
}

/// `sslcert` and `sslkey`: Freshet shows itself to the server.
#[test]
fn certificates_shown_to_the_server() -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let server = Encrypted::start()?;
    let shown = |tls: &Tls| format!("sslmode=require&sslcert={}&sslkey={}", text(&tls.cert), text(&tls.key));
    let certified = server.workshop.leaf("certified", &[], &server.authority)?;
    let foreign = Workshop::open()?;
    let foreign_one = foreign.leaf("certified", &[], &foreign.authority("foreign")?)?;
    let failed = Err("certificate authentication failed for user \"uncertified\"");
    check("its own", &server.attempt("certified", &shown(&certified))?, Ok("t"));
    // What lets Freshet in must not let in whoever reaches Freshet, unless that is said.
    let unasked = url(&server.database, server.database.address(), "certified", &shown(&certified));
    let unasked = attempt(server.database.address(), &unasked, server.login("certified"), &[])?;
    check("a client that proved nothing", &unasked, Err("without asking"));
    check("another's", &server.attempt("uncertified", &shown(&certified))?, failed);
    check("none", &server.attempt("certified", "sslmode=require")?, Err("requires a valid client certificate"));
    check("a stranger's", &server.attempt("certified", &shown(&foreign_one))?, Err("UnknownCA"));
    let halves = format!("sslmode=require&sslcert={}", text(&certified.cert));
    check("no key", &server.attempt("certified", &halves)?, Err("key"));
    std::fs::set_permissions(&certified.key, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    check("an open key", &server.attempt("certified", &shown(&certified))?, Err("chmod 0600"));
    Ok(())
}

/// SCRAM-SHA-256-PLUS: no attacker can be between Freshet and the server, whatever certificate they have.
#[test]
fn channel_binding() -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let server = Encrypted::start()?;
    let direct = server.database.address();
    let own = tls_options(&server.workshop.leaf("freshet", &["localhost"], &server.authority)?);
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let trust = Trust::authority(&server.authority)?;
    // Who stands between has a certificate of the same authority for the same name.
    let onward = Link::to(direct, Negotiation::Request, &trust)?;
    let between = server.workshop.leaf("between", &["localhost"], &server.authority)?;
    let between = Terminator::before(onward.address, &between, Negotiation::Request, &[])?;

    let root = format!("sslmode=verify-full&sslrootcert={}", text(&server.authority.cert));
    for (address, binding, good) in [
        (direct, "require", true),
        (direct, "prefer", true),
        (direct, "disable", true),
        (between.address, "disable", true),
        (between.address, "prefer", false),
        (between.address, "require", false),
    ] {
        let url = url(&server.database, address, "scram", &format!("{root}&channel_binding={binding}"));
        let freshet = Freshet::start_unready(direct, &url, &own)?;
        let link = Link::to(freshet.address, Negotiation::Direct, &trust)?;
        if good {
            freshet.wait_ready().with_context(|| binding.to_owned())?;
            // With TLS on both legs the client's password is handed on, bound to the upstream's certificate.
            hits(&freshet, link.address, &server.database, server.login("scram"))
                .with_context(|| binding.to_owned())?;
        } else {
            let client = RawClient::open(link.address)?.start(server.login("scram"))?;
            ensure!(client.iter().all(|message| message.tag != b'Z'), "{binding}: {client:?}");
            ensure!(freshet.health()?.0 != 200, "{binding}");
        }
    }
    Ok(())
}

/// `channel_binding=require` is for whoever does not trust the way: nothing else may do, as in libpq.
#[test]
fn channel_binding_is_required_of_every_method() -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let server = Encrypted::start()?;
    let direct = server.database.address();
    for (user, mode) in [("tls_only", "require"), ("clear", "require"), ("hashed", "require"), ("scram", "disable")] {
        let url = url(&server.database, direct, user, &format!("sslmode={mode}&channel_binding=require"));
        let libpq = psql_output(&url, "select 1")?;
        let libpq = String::from_utf8_lossy(&libpq.stderr).into_owned();
        ensure!(libpq.contains("channel binding"), "libpq as {user}: {libpq}");
        // Neither Freshet's own connections nor its clients' get in.
        let freshet = Freshet::start_unready(direct, &url, &[])?;
        eventually(PATIENCE, || {
            let (status, body) = freshet.health()?;
            ensure!(status != 200 && body.contains("channel binding"), "{user}: {status} {body}");
            Ok(())
        })?;
        let messages = RawClient::open(freshet.address)?.start(server.login(user));
        let messages =
            messages.map_err(|error| anyhow::anyhow!("{user}: asked for a login all the same: {error:#}"))?;
        let error = messages.last().and_then(|message| message.field(b'M')).unwrap_or_default();
        ensure!(error.contains("channel binding"), "{user}: {messages:?}");
    }
    Ok(())
}

/// Direct TLS, and TLS on request, to a server of either version behind a terminator that speaks nothing but TLS.
fn behind_a_terminator(version: Version) -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let workshop = Workshop::open()?;
    let authority = workshop.authority("ca")?;
    let tls = workshop.leaf("terminator", &["localhost"], &authority)?;
    let database = Database::shared(version)?;
    database.run(SCHEMA)?;
    let direct = database.address();
    let root = format!("sslmode=verify-full&sslrootcert={}", text(&authority.cert));
    for (negotiation, name) in [(Negotiation::Direct, "direct"), (Negotiation::Request, "postgres")] {
        let terminator = Terminator::before(direct, &tls, negotiation, &[b"postgresql"])?;
        let url = url(&database, terminator.address, "postgres", &format!("{root}&sslnegotiation={name}"));
        let freshet = Freshet::start_unready(direct, &url, &[])?;
        freshet.wait_ready().with_context(|| name.to_owned())?;
        hits(&freshet, freshet.address, &database, database.login())?;
        cancels(&freshet, &database).with_context(|| name.to_owned())?;
    }
    // Direct TLS to a terminator that knows no protocols; on request that is no matter.
    for (negotiation, name, expected) in
        [(Negotiation::Direct, "direct", Err("ALPN")), (Negotiation::Request, "postgres", Ok("f"))]
    {
        let terminator = Terminator::before(direct, &tls, negotiation, &[])?;
        let url = url(&database, terminator.address, "postgres", &format!("{root}&sslnegotiation={name}"));
        check(name, &attempt(direct, &url, database.login(), &[])?, expected);
    }
    // To one that waits for SSLRequest, or knows no TLS.
    let request = Terminator::before(direct, &tls, Negotiation::Request, &[])?;
    for address in [request.address, direct] {
        let url = url(&database, address, "postgres", &format!("{root}&sslnegotiation=direct"));
        ensure!(attempt(direct, &url, database.login(), &[])?.is_err());
    }
    Ok(())
}

/// The cancel request goes the same way as its session.
fn cancels(freshet: &Freshet, database: &Database) -> Result<()> {
    let mut client = RawClient::login(freshet.address, database.login())?;
    client.send(&frames::query("select pg_sleep(60)"))?;
    let mut other = database.connect()?;
    eventually(PATIENCE, || {
        let sleeps =
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        ensure!(other.value(sleeps)? == "1", "it does not sleep yet");
        Ok(())
    })?;
    RawClient::open(freshet.address)?.send(&frames::cancel(&client.key_data))?;
    let messages = client.until(b'Z')?;
    let error = messages.iter().find(|message| message.tag == b'E').context("no error")?;
    ensure!(error.field(b'C').as_deref() == Some("57014"), "{error:?}");
    Ok(())
}

/// Over a Unix socket there is no TLS, whatever the mode says.
fn unix_sockets(version: Version) -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let database = Database::shared(version)?;
    let at = format!("host={} port={}", text(database.server.socket_directory()), database.server.port());
    for mode in ["require", "prefer", "disable"] {
        let conninfo = format!("{at} dbname={} user=postgres sslmode={mode}", database.name);
        let outcome = |options: &[&str]| attempt(database.address(), &conninfo, database.login(), options);
        check(mode, &outcome(&["--auth", "trust"])?, Ok("f"));
        // The socket may have told the server who Freshet is, which says nothing of its client.
        check(mode, &outcome(&[])?, Err("without asking"));
    }
    Ok(())
}
