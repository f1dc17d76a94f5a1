//! The web endpoints with TLS and a token: who is let in, and what is too large.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::ClientConfig;

use super::handshakes::{Encrypted, encrypt, open};
use super::link::Trust;
use super::started;
use super::workshop::{Workshop, text};
use crate::support::{Database, Freshet, PATIENCE, Version, eventually, program};

const TOKEN: &str = "a-token-of-this-test";
/// Of any user, base64.
const AS_PASSWORD: &str = "Authorization: Basic YW55b25lOmEtdG9rZW4tb2YtdGhpcy10ZXN0\r\n";

struct Web {
    freshet: Freshet,
    config: Arc<ClientConfig>,
}

impl Web {
    /// The answer's head.
    fn ask(&self, path: &str, headers: &str) -> Result<String> {
        let mut stream = encrypt(open(self.freshet.http)?, self.config.clone())?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: freshet\r\nConnection: close\r\n{headers}\r\n")?;
        let mut answer = Vec::new();
        // Of a request that was refused, some may not have been read: then the end is a reset.
        let ended = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let head = answer.split_once("\r\n\r\n").map(|(head, _)| head.to_owned());
        head.with_context(|| format!("{path}: no answer: {ended:?}"))
    }

    fn status(&self, path: &str, headers: &str) -> Result<u16> {
        let head = self.ask(path, headers)?;
        head.split(' ').nth(1).context("no status")?.parse().with_context(|| head.clone())
    }

    fn answers(&self, path: &str, headers: &str, expected: u16) -> Result<()> {
        let status = self.status(path, headers)?;
        ensure!(status == expected, "{path}, {} bytes of headers: {status}, not {expected}", headers.len());
        Ok(())
    }
}

/// Freshet's options for these files.
fn options(cert: &Path, key: &Path, token: &Path) -> Vec<String> {
    let files = [("--http-tls-cert", cert), ("--http-tls-key", key), ("--http-token-file", token)];
    files.into_iter().flat_map(|(name, path)| [name.to_owned(), text(path)]).collect()
}

fn limits(web: &Web, token: &str) -> Result<()> {
    let long = "x".repeat(3000);
    web.answers(&format!("/api/queries?{long}"), token, 414)?;
    let wide = format!("X: {long}\r\n").repeat(8);
    web.answers("/api/queries", &format!("{token}{wide}"), 431)?;
    web.answers("/livez", &wide, 431)?;
    web.answers("/api/queries", &format!("{token}Content-Length: 100000\r\n"), 413)?;
    web.answers("/api/queries", &format!("{token}Transfer-Encoding: chunked\r\n"), 413)?;
    web.answers("/api/nothing", token, 404)
}

/// A request in many small pieces, which never ends: the connection is closed all the same.
fn slow_request(mut stream: Encrypted) -> Result<()> {
    stream.sock.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: freshet\r\nX: ")?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(15) {
        let waits = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        match stream.write_all(b"x").and_then(|()| stream.read(&mut [0])) {
            Err(error) if waits(error.kind()) => {}
            Ok(1..) => bail!("it is answered"),
            Ok(0) | Err(_) => return Ok(()),
        }
    }
    bail!("a request that never ends keeps its connection")
}

/// A database that is not there.
fn other_database(web: &Web, token: &str) -> Result<()> {
    for name in ["status", "events", "memory", "sessions", "streams"] {
        web.answers(&format!("/api/{name}?database=other"), token, 404)?;
    }
    Ok(())
}

/// `freshet top` with a certificate's authority and the token, and without.
fn top(web: &Web, authority: &Path, token_file: &Path) -> Result<()> {
    let program = program()?.context("no program")?;
    let (http, ca, token) = (format!("localhost:{}", web.freshet.http.port()), text(authority), text(token_file));
    let run = |options: &[&str]| -> Result<(bool, String)> {
        let output = Command::new(&program).args(["top", "--once", "--http", &http]).args(options).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
    };
    let (well, said) = run(&["--ca", &ca, "--token-file", &token])?;
    ensure!(well && said.starts_with("Freshet "), "{said}");
    let (well, said) = run(&["--ca", &ca])?;
    ensure!(!well && said.contains("it asks for a token"), "{said}");
    let (well, said) = run(&[])?;
    ensure!(!well && said.contains("no Freshet answers"), "{said}");
    Ok(())
}

#[test]
fn web_endpoints() -> Result<()> {
    let workshop = Workshop::open()?;
    let authority = workshop.authority("web")?;
    let tls = workshop.leaf("endpoints", &["localhost"], &authority)?;
    let token_file = workshop.write("token", &format!("{TOKEN}\n"))?;
    let database = Database::shared(Version::V15)?;
    let short = workshop.write("short", "guess me")?;
    let all = options(&tls.cert, &tls.key, &short);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    match started(database.address(), &database.url(), &all) {
        Ok(freshet) if freshet.is_there() => bail!("a short token is accepted"),
        Ok(_) => return Ok(()),
        Err(said) => ensure!(said.contains("less than 16 characters"), "{said}"),
    }

    let all = options(&tls.cert, &tls.key, &token_file);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let freshet = Freshet::start_unready(database.address(), &database.url(), &all)?;
    // As a browser does.
    let config = Trust::authority(&authority)?.offering(&[b"h2", b"http/1.1"]);
    let web = Web { freshet, config };
    let slow = encrypt(open(web.freshet.http)?, web.config.clone())?;
    let slow = thread::spawn(move || slow_request(slow));
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/", "/uPlot.js", "/metrics", "/api/queries", "/api/advice", "/api/status", "/api/nothing"] {
        web.answers(path, "", 401)?;
        web.answers(path, "Authorization: Bearer a-token-of-this-tesT\r\n", 401)?;
        web.answers(path, "Authorization: Bearer a-token\r\n", 401)?;
    }
    for path in ["/", "/uPlot.js", "/metrics", "/api/status", "/api/sessions", "/api/streams", "/api/memory"] {
        web.answers(path, &bearer, 200)?;
        web.answers(path, AS_PASSWORD, 200)?;
    }
    let asks = web.ask("/", "")?.to_lowercase();
    ensure!(asks.contains("www-authenticate: basic realm=\"freshet\""), "a browser does not ask: {asks}");
    let page = web.ask("/", &bearer)?.to_lowercase();
    ensure!(page.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{page}");
    web.answers("/livez", "", 200)?;
    web.answers("/readyz", "", 200)?;
    limits(&web, &bearer)?;
    other_database(&web, &bearer)?;

    top(&web, &authority.cert, &token_file)?;
    fs::write(&token_file, "another-token-of-this-test")?;
    eventually(PATIENCE, || web.answers("/api/status", &bearer, 401))?;
    web.answers("/api/status", "Authorization: bearer another-token-of-this-test\r\n", 200)?;
    slow.join().ok().context("the slow request panicked")?
}
