//! The start of connections: what is refused, and that refused and unfinished ones do not affect others.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::Settings;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::link::{Negotiation, TIMEOUT, Trust, localhost};
use super::workshop::Workshop;
use super::{Front, serves, started};
use crate::support::{Database, Message, RawClient, Version, frames, on_both_at_length};

on_both_at_length!(
    requests_are_answered,
    plain_text_behind_the_request,
    direct_tls_names_the_protocol,
    garbage,
    handshakes_that_never_end,
    only_tls,
    old_versions,
);

pub(super) type Encrypted = StreamOwned<ClientConnection, TcpStream>;

pub(super) fn open(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

pub(super) fn encrypt(stream: TcpStream, config: Arc<ClientConfig>) -> Result<Encrypted> {
    let mut stream = StreamOwned::new(ClientConnection::new(config, localhost())?, stream);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

pub(super) fn read_byte(stream: &mut impl Read) -> Result<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

pub(super) fn read_message(stream: &mut impl Read) -> Result<Message> {
    let tag = read_byte(stream)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length))?.checked_sub(4).context("length")?];
    stream.read_exact(&mut body)?;
    Ok(Message { tag, body })
}

/// Reads to the end of the connection; returns what came before.
fn to_end(stream: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => bail!("it stays open"),
        _ => Ok(bytes),
    }
}

pub(super) fn startup(database: &Database) -> Vec<u8> {
    let login = database.login();
    frames::startup(&[("user", login.user), ("database", login.database)])
}

fn requests_are_answered(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    // GSSAPI encryption is refused before and after, and inside nothing more is offered.
    let mut stream = open(front.freshet.address)?;
    stream.write_all(&frames::gss_request())?;
    ensure!(read_byte(&mut stream)? == b'N');
    stream.write_all(&frames::ssl_request())?;
    ensure!(read_byte(&mut stream)? == b'S');
    let mut stream = encrypt(stream, Trust::authority(&front.authority)?.offering(&[]))?;
    stream.write_all(&startup(&front.database))?;
    let first = read_message(&mut stream)?;
    ensure!(first.tag == b'R', "{first:?}");
    // Plain connections are served as ever.
    serves(front.freshet.address, &front.database)
}

/// What came before the encryption must not count as if it had come under it (CVE-2021-23214).
fn plain_text_behind_the_request(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    // The only version here with TLS says what is said in that case.
    let workshop = Workshop::open()?;
    let authority = workshop.authority("ca")?;
    let tls = workshop.leaf("server", &["localhost"], &authority)?;
    let server = Version::V15.start(&Settings::default().with_tls(tls))?;
    let direct = SocketAddr::from((server.host(), server.port()));
    let stuffed = [frames::ssl_request(), startup(&front.database), frames::query("select 1")].concat();
    let mut errors = Vec::new();
    for (address, authority) in [(direct, &authority), (front.freshet.address, &front.authority)] {
        let mut stream = open(address)?;
        stream.write_all(&stuffed)?;
        let error = if read_byte(&mut stream)? == b'S' {
            let mut stream = encrypt(stream, Trust::authority(authority)?.offering(&[]))?;
            stream.write_all(&startup(&front.database))?;
            let error = read_message(&mut stream)?;
            ensure!(to_end(&mut stream)?.is_empty(), "more than an error");
            error
        } else {
            let error = read_message(&mut stream)?;
            ensure!(to_end(&mut stream)?.is_empty(), "more than an error");
            error
        };
        ensure!(error.tag == b'E', "{error:?}");
        errors.push([b'S', b'C', b'M'].map(|field| error.field(field)));
    }
    ensure!(errors[0] == errors[1], "{errors:?}");
    Ok(())
}

fn direct_tls_names_the_protocol(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let trust = Trust::authority(&front.authority)?;
    let mut stream = encrypt(open(front.freshet.address)?, trust.offering(&[b"postgresql"]))?;
    ensure!(stream.conn.alpn_protocol() == Some(b"postgresql".as_slice()));
    stream.write_all(&startup(&front.database))?;
    ensure!(read_message(&mut stream)?.tag == b'R');
    // Under TLS there is no second layer.
    let mut stream = encrypt(open(front.freshet.address)?, trust.offering(&[b"postgresql"]))?;
    stream.write_all(&frames::ssl_request())?;
    let answer = read_byte(&mut stream);
    ensure!(!matches!(answer, Ok(b'S')), "TLS in TLS: {answer:?}");

    for protocols in [&[][..], &[b"h2".as_slice(), b"http/1.1"]] {
        let refused = encrypt(open(front.freshet.address)?, trust.offering(protocols)).and_then(|mut stream| {
            stream.write_all(&startup(&front.database))?;
            read_message(&mut stream)
        });
        ensure!(refused.is_err(), "{protocols:?}: {refused:?}");
    }
    // After SSLRequest, naming none is usual, and naming others is not.
    for (protocols, good) in [(&[][..], true), (&[b"http/1.1".as_slice()], false)] {
        let mut stream = open(front.freshet.address)?;
        stream.write_all(&frames::ssl_request())?;
        ensure!(read_byte(&mut stream)? == b'S');
        let outcome = encrypt(stream, trust.offering(protocols)).and_then(|mut stream| {
            stream.write_all(&startup(&front.database))?;
            read_message(&mut stream)
        });
        ensure!(outcome.is_ok() == good, "{protocols:?}: {outcome:?}");
    }
    Ok(())
}

fn garbage(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let link = front.link(Negotiation::Request)?;
    let mut bystander = RawClient::login(link.address, front.database.login())?;
    let noise: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        noise.clone(),
        // Records of a handshake that hold nothing good, lie about their length, or are only announced.
        [&[0x16, 3, 1, 0, 200][..], &noise[..200]].concat(),
        [&[0x16, 3, 1, 0xff, 0xff][..], &noise].concat(),
        [&[0x16, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff][..], &noise].concat(),
        vec![0x16],
        vec![0x16, 3, 1, 0, 0],
        Vec::new(),
        // The start of a session, where the handshake is due.
        startup(&front.database),
    ] {
        for request in [true, false] {
            let mut stream = open(front.freshet.address)?;
            if request {
                stream.write_all(&frames::ssl_request())?;
                ensure!(read_byte(&mut stream)? == b'S');
            }
            // The other end may have enough of it before all is sent.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let answer = to_end(&mut stream)?;
            // An alert, an error or nothing, and never a session; a plain start is none of garbage.
            let plain_start = !request && bytes == startup(&front.database);
            ensure!(plain_start || !answer.starts_with(b"R"), "{:?}: {answer:?}", bytes.get(..20));
        }
    }
    ensure!(bystander.value("select 1")? == "1");
    serves(link.address, &front.database)?;
    ensure!(front.freshet.is_alive());
    Ok(())
}

fn handshakes_that_never_end(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let link = front.link(Negotiation::Direct)?;
    let mut hello = Vec::new();
    let trust = Trust::authority(&front.authority)?;
    ClientConnection::new(trust.offering(&[b"postgresql"]), localhost())?.write_tls(&mut hello)?;
    let mut unfinished = Vec::new();
    for i in 0..300_usize {
        let mut stream = open(front.freshet.address)?;
        let part = hello.get(..1 + i * (hello.len() - 2) / 300).unwrap_or_default();
        match i % 3 {
            0 => stream.write_all(part)?,
            1 => stream.write_all(&[frames::ssl_request(), Vec::new()].concat())?,
            _ => stream.write_all(&frames::ssl_request()[..i % 8])?,
        }
        unfinished.push(stream);
    }
    for _ in 0..5 {
        serves(link.address, &front.database)?;
        serves(front.freshet.address, &front.database)?;
    }
    // Those that continue in time are served: no other connection evicted them.
    let mut late = unfinished.remove(1);
    ensure!(read_byte(&mut late)? == b'S');
    let mut late = encrypt(late, trust.offering(&[]))?;
    late.write_all(&startup(&front.database))?;
    ensure!(read_message(&mut late)?.tag == b'R');
    Ok(())
}

fn only_tls(version: Version) -> Result<()> {
    let front = Front::start(version, &["--tls-required"])?;
    if front.is_absent() {
        return Ok(());
    }
    let messages = RawClient::open(front.freshet.address)?.start(front.database.login())?;
    let [error] = messages.as_slice() else { bail!("{messages:?}") };
    let fields = [b'S', b'C'].map(|field| error.field(field).unwrap_or_default());
    ensure!(error.tag == b'E' && fields == ["FATAL", "28000"], "{error:?}");
    for negotiation in [Negotiation::Request, Negotiation::Direct] {
        serves(front.link(negotiation)?.address, &front.database)?;
    }
    Ok(())
}

/// By openssl, since rustls knows nothing below 1.2.
fn old_versions(version: Version) -> Result<()> {
    let front = Front::start(version, &[])?;
    if front.is_absent() {
        return Ok(());
    }
    let connect = front.freshet.address.to_string();
    for (option, good) in [("-tls1", false), ("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)] {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &connect, "-starttls", "postgres", option]);
        // The client must be willing, or its own refusal would pass for the server's.
        openssl.args(["-cipher", "DEFAULT:@SECLEVEL=0", "-CAfile"]).arg(&front.authority.cert);
        let output = openssl.stdin(Stdio::null()).output().context("openssl")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let expected: &[&str] =
            if good { &["Verify return code: 0 (ok)"] } else { &["Cipher is (NONE)", "SSL alert number"] };
        ensure!(expected.iter().all(|words| text.contains(words)), "{option}: {text}");
    }
    Ok(())
}

/// Certificates that cannot be used are told at the start, with what to do.
#[test]
fn bad_files_at_the_start() -> Result<()> {
    let workshop = Workshop::open()?;
    let authority = workshop.authority("ca")?;
    let (one, other) = (workshop.leaf("one", &[], &authority)?, workshop.leaf("other", &[], &authority)?);
    let database = Database::shared(Version::V15)?;
    let start = |cert: &std::path::Path, key: &std::path::Path| {
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        let options = ["--tls-cert", cert.as_str(), "--tls-key", key.as_str()];
        started(database.address(), &database.url(), &options).map(|freshet| freshet.is_there())
    };
    if !start(&one.cert, &one.key).map_err(anyhow::Error::msg)? {
        return Ok(());
    }
    let missing = workshop.path("missing.key");
    for (key, words) in
        [(&other.key, "does not belong to the certificate"), (&missing, "missing.key"), (&one.cert, "one.crt")]
    {
        let error = start(&one.cert, key).err().context("it starts")?;
        ensure!(error.contains(words), "{error}");
    }
    let mut permissions = std::fs::metadata(&one.key)?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(&one.key, permissions)?;
    let error = start(&one.cert, &one.key).err().context("it starts")?;
    ensure!(error.contains("chmod 0600"), "{error}");
    Ok(())
}
