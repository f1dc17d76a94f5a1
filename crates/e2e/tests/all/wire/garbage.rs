//! Bytes that no client sends: malformed and truncated messages at every stage of a connection, wrong lengths, other protocols, and floods of
//! connections that never become sessions.
//!
//! Freshet must answer as the server itself does, so most tests compare the two. Meanwhile ordinary sessions continue: no client may affect another,
//! nor use more memory than it sent.

use std::fs;
use std::net::{Shutdown, SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::SCHEMA;
use crate::support::frames::{
    bind, bind_text, cancel, copy_data, copy_done, describe_portal, execute, frame, lying, parse, query, ssl_request,
    startup, startup_of, sync, terminate, unnamed,
};
use crate::support::{Database, Message, PATIENCE, Pair, RawClient, Version, eventually, files_max, on_both_at_length};

on_both_at_length!(
    before_a_session,
    while_the_password_is_asked_for,
    in_a_session,
    in_a_batch,
    in_a_copy,
    announced_and_never_sent,
    a_flood_of_half_open_connections,
);

const READ: &str = "select id, name from item where id = 1";
const MEGABYTE: u64 = 1 << 20;

/// A case: what it is, and what is sent.
type Case = (&'static str, Vec<u8>);

/// What one may compare of an answer: of an error what clients act on, of all else the kind. A message that Freshet
/// writes itself names no source file.
fn comparable(message: &Message) -> String {
    let field = |name| message.field(name).unwrap_or_default();
    match message.tag {
        b'E' => format!("[{} {} {}]", field(b'V'), field(b'C'), field(b'M')),
        tag => char::from(tag).to_string(),
    }
}

/// All that is said up to the end of the connection; what is no frame (as clients of protocol 2 are answered) as it is.
fn rest(client: &mut RawClient) -> Result<String> {
    let bytes = client.bytes_to_end()?;
    let mut heard = String::new();
    let mut pending = bytes.as_slice();
    while let Some(([tag, length @ ..], behind)) = pending.split_first_chunk::<5>() {
        let length = (u32::from_be_bytes(*length) as usize).checked_sub(4);
        let Some((body, tail)) = length.and_then(|length| behind.split_at_checked(length)) else { break };
        heard += &comparable(&Message { tag: *tag, body: body.to_vec() });
        pending = tail;
    }
    Ok(format!("{heard}{}", pending.escape_ascii()))
}

/// Sessions that must not notice anything: one reads from the cache, one is in the middle of a transaction.
struct Bystanders {
    reader: RawClient,
    holder: RawClient,
}

impl Bystanders {
    fn new(pair: &Pair) -> Result<Self> {
        let mut holder = pair.connect()?;
        // Nothing is written: Freshets of other tests on this server could not start their streams meanwhile.
        holder.run("begin; set local application_name = 'kept'")?;
        holder.run("declare mine scroll cursor for select line from log order by id")?;
        Ok(Self { reader: pair.connect()?, holder })
    }

    fn go_on(&mut self) -> Result<()> {
        let row = self.reader.query(READ)?;
        let columns = row.iter().find(|m| m.tag == b'D').map(Message::columns);
        ensure!(columns == Some(vec![Some(b"1".to_vec()), Some(b"item 1".to_vec())]), "the reader got {row:?}");
        ensure!(self.holder.value("fetch absolute 5 from mine")? == "line 5", "another cursor");
        ensure!(self.holder.value("show application_name")? == "kept", "the transaction is lost");
        Ok(())
    }

    fn end(mut self, pair: &Pair) -> Result<()> {
        self.go_on()?;
        self.holder.run("rollback")?;
        self.reader.expect_silence()?;
        self.holder.expect_silence()?;
        unharmed(pair)
    }
}

fn unharmed(pair: &Pair) -> Result<()> {
    ensure!(pair.freshet.is_alive(), "Freshet has ended");
    let log = pair.freshet.log();
    ensure!(!log.contains("panicked"), "{log}");
    Ok(())
}

/// Every case is the same directly and through Freshet, and affects no other session.
fn all_the_same(pair: &Pair, cases: Vec<Case>, say: impl Fn(SocketAddr, &[u8]) -> Result<String>) -> Result<()> {
    let mut bystanders = Bystanders::new(pair)?;
    let mut differences = Vec::new();
    for (name, bytes) in cases {
        let direct = say(pair.database.address(), &bytes).with_context(|| format!("{name}, directly"))?;
        let through = say(pair.address(), &bytes).unwrap_or_else(|error| format!("{error:#}"));
        if direct != through {
            differences.push(format!("{name}:\n   direct:  {direct}\n   through: {through}"));
        }
        bystanders.go_on().with_context(|| format!("after {name}"))?;
    }
    bystanders.end(pair)?;
    ensure!(differences.is_empty(), "{} differ:\n {}", differences.len(), differences.join("\n "));
    Ok(())
}

/// The same without a tag, as the start of a connection.
fn lying_start(length: u32) -> Vec<u8> {
    [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), b"user\0postgres\0\0"].concat()
}

/// Bytes without a pattern, the same in every run.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

const HTTP: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n";
/// The head of a TLS 1.3 ClientHello and some of its content.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefghijklmnopqrstuvwxyz012345\x20";

fn before_a_session(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let user = [("user", "postgres"), ("database", pair.database.name.as_str())];
    let whole = startup(&user);
    let body = |body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes()[..], &196_608_u32.to_be_bytes(), body].concat();
    let mut cases: Vec<Case> = vec![
        ("nothing", vec![]),
        ("one byte", vec![0]),
        ("three bytes", vec![0, 0, 0]),
        ("http", HTTP.to_vec()),
        ("a ClientHello", CLIENT_HELLO.to_vec()),
        ("a query", query(READ)),
        ("a cut packet", whole[..whole.len() / 2].to_vec()),
        ("a packet without its last byte", whole[..whole.len() - 1].to_vec()),
        ("a name without a value", body(b"user\0")),
        ("no terminator", body(b"user\0postgres\0")),
        ("bytes behind the terminator", body(b"user\0postgres\0\0xyz")),
        ("no parameters", body(b"\0")),
        ("no user", body(b"database\0postgres\0\0")),
        ("an empty user", body(b"user\0\0\0")),
        ("not a byte of content", body(b"")),
        ("protocol 4", startup_of(4 << 16, &user)),
        ("protocol 0", startup_of(0, &user)),
        ("an unknown request", startup_of(80_877_105, &[])),
        ("a cancel without a key", cancel(&[])),
        ("a cancel of nobody", cancel(&[0, 0, 0, 1, 1, 2, 3, 4])),
        ("a cancel with a long key", cancel(&[7; 300])),
        ("a password before the start", frame(b'p', b"secret\0")),
    ];
    for length in [0, 3, 4, 7, 8, 10_001, 0x3fff_ffff, 0x8000_0000, u32::MAX] {
        cases.push(("a length that lies", lying_start(length)));
    }
    cases.extend((1..=5).map(|seed| ("noise", noise(seed, 300))));
    all_the_same(&pair, cases.clone(), |address, bytes| {
        let mut client = RawClient::open(address)?;
        last_words(&mut client, bytes)
    })?;
    // The same behind refused encryption, which also leaves a state behind.
    cases.push(("TLS again", ssl_request()));
    all_the_same(&pair, cases, |address, bytes| {
        let mut client = RawClient::open(address)?;
        client.send(&ssl_request())?;
        ensure!(client.read_byte()? == b'N', "encryption is not refused");
        last_words(&mut client, bytes)
    })
}

/// Sends, says that nothing more will come, and hears all.
fn last_words(client: &mut RawClient, bytes: &[u8]) -> Result<String> {
    // A server that refuses early may have closed already.
    let _ = client.send(bytes);
    let _ = client.socket()?.shutdown(Shutdown::Write);
    rest(client)
}

fn while_the_password_is_asked_for(version: Version) -> Result<()> {
    for method in ["scram-sha-256", "password"] {
        let settings = Settings::default().with_scram();
        let settings = settings.with_hba("local all all trust").with_hba("host replication all 127.0.0.1/32 trust");
        // Bystanders, Freshet and the tests themselves come in without a password.
        let settings = settings.with_hba("host all postgres 127.0.0.1/32 trust");
        let server = version.start(&settings.with_hba(format!("host all all 127.0.0.1/32 {method}")))?;
        let pair = Pair::over(Database::create(server)?, SCHEMA, &["--auth", "auto"])?;
        pair.database.run("create user stranger password 'secret'")?;
        let hello = startup(&[("user", "stranger"), ("database", pair.database.name.as_str())]);
        let sasl = |mechanism: &str, length: i32, data: &[u8]| {
            frame(b'p', &[mechanism.as_bytes(), &[0], &length.to_be_bytes(), data].concat())
        };
        let cases: Vec<Case> = vec![
            ("a query", query(READ)),
            ("a batch", [unnamed(READ, &[]), sync()].concat()),
            ("the start again", hello.clone()),
            ("http", HTTP.to_vec()),
            ("terminate", terminate()),
            ("an empty answer", frame(b'p', b"")),
            ("an answer without its end", frame(b'p', b"secret")),
            ("an answer that goes on", frame(b'p', b"secret\0and more\0")),
            ("an unknown mechanism", sasl("SCRAM-MD5", 3, b"n,,")),
            ("a mechanism without data", sasl("SCRAM-SHA-256", -1, b"")),
            ("data that lies", sasl("SCRAM-SHA-256", 1000, b"n,,n=,r=abc")),
            ("no nonce", sasl("SCRAM-SHA-256", 5, b"n,,n=")),
            ("channel binding without TLS", sasl("SCRAM-SHA-256", 23, b"p=tls-unique,,n=,r=abcd")),
            ("noise in the exchange", sasl("SCRAM-SHA-256", 50, &noise(6, 50))),
            ("noise", noise(7, 300)),
        ];
        let say = |address, bytes: &[u8]| {
            let mut client = RawClient::open(address)?;
            client.send(&hello)?;
            let asked = client.read_unheard()?.context("no question")?;
            ensure!(asked.tag == b'R' && asked.body != [0; 4], "no password is asked for: {asked:?}");
            last_words(&mut client, bytes)
        };
        all_the_same(&pair, cases, say).context(method)?;
        // To one that leaves in the middle the server says sometimes this, sometimes nothing.
        let half = &frame(b'p', b"secret\0")[..7];
        let lies = [0, 3, 0x3fff_ffff, u32::MAX].map(|length| lying(b'p', length, b"secret\0"));
        for bytes in lies.iter().map(Vec::as_slice).chain([&b""[..], half]) {
            let heard = say(pair.address(), bytes)?;
            ensure!(heard.is_empty() || heard.starts_with("[FATAL "), "{method}: {bytes:?}: {heard}");
        }
        unharmed(&pair)?;
    }
    Ok(())
}

/// Messages that no client sends in a session, and none that the server would wait for.
fn malformed() -> Vec<Case> {
    let lies = |tag, length| lying(tag, length, b"select 1\0\0\0\0\0");
    vec![
        ("an unknown message", frame(b'~', b"")),
        ("a message of tag 0", frame(0, b"abc")),
        ("a message for the client", frame(b'Z', b"I")),
        ("a password", frame(b'p', b"secret\0")),
        ("a start-up packet", startup(&[("user", "postgres")])),
        ("http", HTTP.to_vec()),
        ("a query without its end", frame(b'Q', b"select 1")),
        ("a query that goes on", frame(b'Q', b"select 1\0select 2\0")),
        ("an empty query message", frame(b'Q', b"")),
        ("a query that is not UTF-8", frame(b'Q', b"select '\xff\xfe'\0")),
        ("a query of length 0", lies(b'Q', 0)),
        ("a query of length 3", lies(b'Q', 3)),
        ("a query of 4 GB", lies(b'Q', u32::MAX)),
        ("a query of 2 GB", lies(b'Q', 0x7fff_ffff)),
        ("a Sync of length 0", lies(b'S', 0)),
        ("a Sync of 4 GB", lies(b'S', u32::MAX)),
        ("a Sync with content", frame(b'S', b"content")),
        ("a Flush with content", frame(b'H', b"content")),
        ("a Parse without types", frame(b'P', b"\0select 1\0")),
        ("a Parse without text", frame(b'P', b"\0")),
        ("a Parse that lies about its types", frame(b'P', b"\0select 1\0\xff\xff\0\0\0\x19")),
        ("a Parse that goes on", frame(b'P', b"\0select 1\0\0\0more")),
        ("a Parse that is not UTF-8", frame(b'P', b"\0select '\xff'\0\0\0")),
        ("a Bind without content", frame(b'B', b"")),
        ("a Describe of nothing", frame(b'D', b"")),
        ("a Describe of an unknown kind", frame(b'D', b"Xname\0")),
        ("a Close of an unknown kind", frame(b'C', b"Xname\0")),
        ("an Execute without a limit", frame(b'E', b"\0")),
        ("an Execute that goes on", frame(b'E', b"\0\0\0\0\0more")),
        ("an unknown function", frame(b'F', &[0xff; 30])),
        ("copy data where there is no copy", [copy_data(b"x"), copy_done()].concat()),
        ("noise", noise(8, 300)),
    ]
}

/// Garbage behind a prefix, then what an honest client says, up to the end of the connection.
fn in_session(pair: &Pair, address: SocketAddr, prefix: &[u8], bytes: &[u8]) -> Result<String> {
    let mut client = RawClient::login(address, pair.login())?;
    let words = [prefix, bytes, &sync(), &query("select 'after'"), &terminate()].concat();
    // A server that refuses early may have closed already.
    let _ = client.send(&words);
    rest(&mut client)
}

fn in_a_session(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    all_the_same(&pair, malformed(), |address, bytes| in_session(&pair, address, &[], bytes))?;
    // Behind an answer that comes from the cache, and behind one that does not.
    let prefix = [query(READ), query("select 1"), query(READ)].concat();
    all_the_same(&pair, malformed(), |address, bytes| in_session(&pair, address, &prefix, bytes))
}

fn in_a_batch(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| c.exchange(&[unnamed(READ, &[]), sync()].concat(), 1).map(drop))?;
    let mut cases = malformed();
    // Names of the statement; then counts and lengths of formats, parameters and results that are not there.
    for (name, tail) in [
        ("no formats", &b""[..]),
        ("formats that are not there", b"\xff\xff"),
        ("no parameters", b"\0\0"),
        ("parameters that are not there", b"\0\0\xff\xff"),
        ("a parameter that is not there", b"\0\0\0\x01\x7f\xff\xff\xff"),
        ("a parameter of a negative length", b"\0\0\0\x01\x80\0\0\0\0\0"),
        ("a parameter that ends early", b"\0\0\0\x01\0\0\0\x05abc"),
        ("no result formats", b"\0\0\0\x01\0\0\0\x011"),
        ("result formats that are not there", b"\0\0\0\x01\0\0\0\x011\xff\xff"),
        ("an unknown format", b"\0\x01\0\x07\0\x01\0\0\0\x011\0\0"),
        ("more formats than parameters", b"\0\x03\0\0\0\0\0\0\0\x01\0\0\0\x011\0\0"),
        ("something behind it", b"\0\0\0\x01\0\0\0\x011\0\0more"),
        ("text that is not UTF-8", b"\0\0\0\x01\0\0\0\x02\xff\xfe\0\0"),
        ("a zero byte in text", b"\0\0\0\x01\0\0\0\x021\0\0\0"),
        ("a number of no size", b"\0\x01\0\x01\0\x01\0\0\0\x03\0\0\x01\0\0"),
    ] {
        let bound = frame(b'B', &[b"\0\0", tail].concat());
        let text = parse("", "select id, name from item where id = $1");
        cases.push((name, [text, bound, describe_portal(""), execute("", 0)].concat()));
    }
    cases.push(("fewer parameters", [parse("", "select $1::int"), bind("", "", <_>::default())].concat()));
    cases.push(("more parameters", [parse("", READ), bind_text("", "", &["1", "2"]), execute("", 0)].concat()));
    all_the_same(&pair, cases.clone(), |address, bytes| in_session(&pair, address, &[], bytes))?;
    let prefix = [unnamed(READ, &[]), sync(), unnamed(READ, &[])].concat();
    all_the_same(&pair, cases, |address, bytes| in_session(&pair, address, &prefix, bytes))
}

fn in_a_copy(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut cases = malformed();
    cases.push(("an unfinished line", [copy_data(b"50\tx\n51"), copy_done()].concat()));
    cases.push(("bytes that are not UTF-8", [copy_data(b"50\t\xff\n"), copy_done()].concat()));
    cases.push(("copy data of length 3", lying(b'd', 3, b"50\tx\n")));
    cases.push(("copy data of 4 GB", lying(b'd', u32::MAX, b"50\tx\n")));
    cases.push(("an end with content", frame(b'c', b"content")));
    cases.push(("a failure without its end", frame(b'f', b"no")));
    cases.push(("terminate", terminate()));
    all_the_same(&pair, cases, |address, bytes| {
        let mut client = RawClient::login(address, pair.login())?;
        client.send(&[query("copy log from stdin"), copy_data(b"40\tx\n")].concat())?;
        client.until(b'G')?;
        let words = [bytes, &copy_done(), &sync(), &query("select 'after'"), &terminate()].concat();
        let _ = client.send(&words);
        let heard = rest(&mut client)?;
        pair.database.run("delete from log where id between 40 and 60")?;
        Ok(heard)
    })
}

/// A message of a gigabyte is announced, and only its beginning comes: it may cost what came, not what was announced.
fn announced_and_never_sent(version: Version) -> Result<()> {
    const CLIENTS: usize = 40;
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    let mut bystanders = Bystanders::new(&pair)?;
    let before = pair.freshet.peak_memory()?;
    let mut waiting = Vec::new();
    for (at, tag) in (0..CLIENTS).zip(b"QPBQdF".iter().cycle()) {
        let mut client = pair.connect()?;
        client.run("set application_name = 'announcer'")?;
        // Large enough to be refused by nobody, at most what PostgreSQL takes.
        client.send(&lying(*tag, 0x3fff_fff0, &vec![b' '; 256 << 10]))?;
        waiting.push(client);
        if at % 10 == 0 {
            bystanders.go_on()?;
        }
    }
    bystanders.go_on()?;
    // The server is sent what came, so it holds that; what Freshet holds are buffers of its own.
    let growth = pair.freshet.peak_memory()?.saturating_sub(before);
    ensure!(growth < CLIENTS as u64 * MEGABYTE + 16 * MEGABYTE, "the process grew by {growth} bytes");
    drop(waiting);
    eventually(PATIENCE, || {
        let sql = "select count(*) from pg_stat_activity where application_name = 'announcer'";
        let left = pair.database.connect()?.value(sql)?;
        ensure!(left == "0", "{left} sessions are left over");
        Ok(())
    })?;
    bystanders.end(&pair)
}

/// How many descriptors a process may have, and how many it has.
fn descriptors(pair: &Pair) -> Result<usize> {
    let Some(pid) = pair.freshet.pid() else { return Ok(0) };
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

fn a_flood_of_half_open_connections(version: Version) -> Result<()> {
    const CONNECTIONS_MAX: usize = 3000;
    /// What a connection that has not said who it is may cost: its task, its buffers.
    const EACH_BYTES_MAX: u64 = 48 << 10;
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(()); // a database serves no more than max_connections
    }
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    let mut bystanders = Bystanders::new(&pair)?;
    let connections = CONNECTIONS_MAX.min(files_max()?.0 / 2);
    let (fds, memory) = (descriptors(&pair)?, pair.freshet.peak_memory()?);
    // Nothing, one byte, all but the last byte of the longest packet, and a TLS handshake that does not go on.
    let longest = [&10_000_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes(), &[b'x'; 9_991]].concat();
    let words: [&[u8]; 4] = [b"", b"\0", &longest, &ssl_request()];
    for round in 0..2 {
        let mut flood = Vec::new();
        for at in 0..connections {
            use std::io::Write;
            let mut socket = TcpStream::connect(pair.address()).with_context(|| format!("connection {at}"))?;
            // It may be closed already to make room for the next.
            let _ = socket.write_all(words[at % words.len()]);
            flood.push(socket);
            if at % 100 == 0 {
                bystanders.go_on().with_context(|| format!("beside {at} half-open connections"))?;
            }
        }
        bystanders.go_on()?;
        // Who has something to say is let in beside them.
        pair.connect()?.expect_silence()?;
        let growth = pair.freshet.peak_memory()?.saturating_sub(memory);
        let allowed = connections as u64 * EACH_BYTES_MAX + 16 * MEGABYTE;
        ensure!(growth < allowed, "round {round}: {connections} connections cost {growth} bytes, {allowed} allowed");
        drop(flood);
        eventually(PATIENCE, || {
            let now = descriptors(&pair)?;
            ensure!(now <= fds + 4, "{now} descriptors, {fds} before");
            Ok(())
        })?;
    }
    bystanders.end(&pair)
}
