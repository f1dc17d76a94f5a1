//! A client for memcached, Redis and the echo server. Each request has one answer of known form.
//!
//! A SQL cache is compared with these peers, so their client must not dominate the cost. A request is one write, its answer is usually one read, and
//! buffers are reused. An announced length is accepted up to [`LONGEST`]. After a violation of the protocol the connection is not used again.
//!
//! Formats: memcached's `doc/protocol.txt` (text protocol); "Redis serialization protocol specification" (RESP2).

use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Failure, Rows};
use crate::statement::{Effect, Statement};
use crate::target::Kind;
use crate::value::Value;

/// Longest value in bytes, and longest message of the echo server.
const LONGEST: usize = 64 << 20;

/// Longest line of an answer in bytes; errors are lines too.
const LONGEST_LINE: usize = 8 << 10;

/// Longest key in bytes: memcached's `KEY_MAX_LENGTH`. No workload needs longer ones elsewhere.
const LONGEST_KEY: usize = 250;

/// Initial size of the input buffer in bytes; it grows for longer values.
const ROOM: usize = 16 << 10;

/// Time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    peer: Peer,
    key: Vec<u8>,
    value: Vec<u8>,
    /// For each statement, whether it stores a value. By default none does.
    stores: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Peer {
    Memcached,
    Redis,
    /// The length of an answer. The request stays in the wire's output.
    Echo(usize),
}

impl Connection {
    /// Connects. An echo server's address ends with the sizes of request and answer: `host:port/R/N`.
    pub async fn open(kind: &Kind) -> Result<Self, Failure> {
        let (wire, peer) = match kind {
            Kind::Memcached(place) => (Wire::open(place, 11211).await?, Peer::Memcached),
            Kind::Redis(place) => (Wire::open(place, 6379).await?, Peer::Redis),
            Kind::Echo(place) => {
                let (place, request, answer) = echo_sizes(place)?;
                let mut wire = Wire::open(place, 7).await?;
                wire.output.resize(request, b'.');
                (wire, Peer::Echo(answer))
            }
            Kind::Sql(_) => return Err(Failure::connection(&"an SQL server is not a key-value store")),
        };
        Ok(Self { wire, peer, key: Vec::new(), value: Vec::new(), stores: Vec::new() })
    }

    /// Sets the statements. Those that write store a value.
    #[must_use]
    pub fn running(mut self, statements: &[Statement]) -> Self {
        self.stores = statements.iter().map(|statement| statement.effect == Effect::Write).collect();
        self
    }

    /// Gets the value whose key is the first parameter. A statement that writes stores its other parameters as one value. An unknown key is a
    /// failure: the data was not loaded or was evicted, and the speed of misses is not measured here.
    pub async fn run(&mut self, index: usize, values: &[Value], rows: Rows<'_>) -> Result<u64, Failure> {
        let (key, rest) = values.split_at(values.len().min(1));
        written(key, &mut self.key);
        if self.stores.get(index) == Some(&true) {
            written(rest, &mut self.value);
            match self.peer {
                Peer::Memcached => self.wire.memcached_set(&self.key, &self.value).await?,
                Peer::Redis => self.wire.redis_set(&self.key, &self.value).await?,
                Peer::Echo(answer) => {
                    self.wire.echo(answer).await?;
                }
            }
            return Ok(1);
        }
        let found = match self.peer {
            Peer::Memcached => self.wire.memcached_get(&self.key).await?,
            Peer::Redis => self.wire.redis_get(&self.key).await?,
            Peer::Echo(answer) => Some(self.wire.echo(answer).await?),
        };
        let Some(place) = found else {
            let text = format!("there is no key {:?}", String::from_utf8_lossy(&self.key));
            return Err(Failure { code: "no value".to_owned(), text, usable: true, retry: false });
        };
        if let Rows::Kept(kept) | Rows::Described(_, kept) = rows {
            kept.push(vec![Some(self.wire.input[place].to_vec())]);
        }
        Ok(1)
    }

    /// Stores a value, to load the peer with data. The echo server stores nothing.
    pub async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Failure> {
        match self.peer {
            Peer::Memcached => self.wire.memcached_set(key.as_bytes(), value).await,
            Peer::Redis => self.wire.redis_set(key.as_bytes(), value).await,
            Peer::Echo(_) => Ok(()),
        }
    }
}

/// Appends the values as bytes.
fn written(values: &[Value], bytes: &mut Vec<u8>) {
    bytes.clear();
    for value in values {
        match value {
            Value::Int(number) => {
                let _ = write!(bytes, "{number}");
            }
            Value::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Value::Null => {}
        }
    }
}

/// A connection to a memcached that serves as look-aside cache.
#[derive(Debug)]
pub struct Memcached {
    wire: Wire,
}

impl Memcached {
    /// Connects to `host:port`.
    pub async fn open(address: &str) -> Result<Self, Failure> {
        Ok(Self { wire: Wire::open(address, 11211).await? })
    }

    /// The value of a key, if it exists.
    pub async fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        let found = self.wire.memcached_get(key.as_bytes()).await?;
        Ok(found.map(|place| self.wire.input[place].to_vec()))
    }

    /// Stores a value.
    pub async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Failure> {
        self.wire.memcached_set(key.as_bytes(), value).await
    }

    /// Removes a value, if it exists.
    pub async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        self.wire.memcached_delete(key.as_bytes()).await
    }
}

/// One socket, with one request and its answer at a time.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    output: Vec<u8>,
    /// The answer to the last request.
    input: BytesMut,
    /// The number of its bytes that were parsed.
    seen: usize,
    /// Whether an answer is outstanding. If its caller was dropped, a later answer could be taken for it.
    owed: bool,
}

/// memcached's commands.
impl Wire {
    /// The value's range in the input, if the key exists.
    async fn memcached_get(&mut self, key: &[u8]) -> Result<Option<Range<usize>>, Failure> {
        self.compose(&[b"get ", checked(key)?, b"\r\n"]);
        self.send().await?;
        let line = self.line().await?;
        let mut found = None;
        if &self.input[line.clone()] != b"END" {
            let Some(length) = announced(&self.input[line.clone()], key) else { return Err(self.refused(line)) };
            found = Some(self.value(length).await?);
            let end = self.line().await?;
            if &self.input[end.clone()] != b"END" {
                return Err(malformed("no END behind a value"));
            }
        }
        self.answered()?;
        Ok(found)
    }

    async fn memcached_set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let length = value.len().to_string();
        self.compose(&[b"set ", checked(key)?, b" 0 0 ", length.as_bytes(), b"\r\n", value, b"\r\n"]);
        self.confirmed(&[b"STORED"]).await
    }

    async fn memcached_delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.compose(&[b"delete ", checked(key)?, b"\r\n"]);
        self.confirmed(&[b"DELETED", b"NOT_FOUND"]).await
    }
}

/// Redis's commands.
impl Wire {
    /// The value's range in the input, if the key exists.
    async fn redis_get(&mut self, key: &[u8]) -> Result<Option<Range<usize>>, Failure> {
        self.compose_redis(&[b"GET", checked(key)?]);
        self.send().await?;
        let line = self.line().await?;
        let mut found = None;
        if &self.input[line.clone()] != b"$-1" {
            let length = self.input[line.clone()].strip_prefix(b"$").and_then(number);
            let Some(length) = length else { return Err(self.refused(line)) };
            found = Some(self.value(length).await?);
        }
        self.answered()?;
        Ok(found)
    }

    async fn redis_set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.compose_redis(&[b"SET", checked(key)?, value]);
        self.confirmed(&[b"+OK"]).await
    }

    fn compose_redis(&mut self, words: &[&[u8]]) {
        self.output.clear();
        let _ = write!(self.output, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.output, "${}\r\n", word.len());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }
}

/// Functions for all protocols.
impl Wire {
    async fn open(place: &str, usual: u16) -> Result<Self, Failure> {
        if place.contains('@') {
            return Err(Failure::connection(&"a user or a password in the address of a peer is not supported"));
        }
        let address = match place.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => place.to_owned(),
            _ => format!("{place}:{usual}"),
        };
        let failed = |reason: &dyn fmt::Display| Failure::connection(&format_args!("{address}: {reason}"));
        let connected = tokio::time::timeout(CONNECT, TcpStream::connect(&address)).await;
        let stream = connected.map_err(|_| failed(&"connection timed out"))?.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        Ok(Self { stream, output: Vec::new(), input: BytesMut::with_capacity(ROOM), seen: 0, owed: false })
    }

    async fn echo(&mut self, answer: usize) -> Result<Range<usize>, Failure> {
        self.send().await?;
        let place = self.take(answer).await?;
        self.answered()?;
        Ok(place)
    }

    fn compose(&mut self, parts: &[&[u8]]) {
        self.output.clear();
        for part in parts {
            self.output.extend_from_slice(part);
        }
    }

    /// Sends the output.
    async fn send(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.owed, true) {
            return Err(Failure::connection(&"an earlier request was dropped before its answer arrived"));
        }
        self.input.clear();
        self.seen = 0;
        self.stream.write_all(&self.output).await.map_err(|error| Failure::connection(&error))
    }

    /// Sends the output. The answer must be one of these lines.
    async fn confirmed(&mut self, answers: &[&[u8]]) -> Result<(), Failure> {
        self.send().await?;
        let line = self.line().await?;
        if !answers.contains(&&self.input[line.clone()]) {
            return Err(self.refused(line));
        }
        self.answered()
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<Range<usize>, Failure> {
        let begin = self.seen;
        loop {
            let rest = &self.input[begin..];
            if let Some(length) = rest.windows(2).position(|two| two == b"\r\n") {
                self.seen = begin + length + 2;
                return Ok(begin..begin + length);
            }
            if rest.len() > LONGEST_LINE {
                return Err(malformed("a line without an end"));
            }
            self.read().await?;
        }
    }

    /// Reads a value and the end of line after it.
    async fn value(&mut self, length: usize) -> Result<Range<usize>, Failure> {
        let value = self.take(length).await?;
        let end = self.take(2).await?;
        if &self.input[end] != b"\r\n" {
            return Err(malformed("a value that is longer than announced"));
        }
        Ok(value)
    }

    async fn take(&mut self, length: usize) -> Result<Range<usize>, Failure> {
        if length > LONGEST {
            return Err(malformed("a value of more than 64 MiB"));
        }
        let place = self.seen..self.seen + length;
        while self.input.len() < place.end {
            self.read().await?;
        }
        self.seen = place.end;
        Ok(place)
    }

    async fn read(&mut self) -> Result<(), Failure> {
        self.input.reserve(ROOM);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(Failure::connection(&"the server closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::connection(&error)),
        }
    }

    /// Checks that the answer is complete.
    fn answered(&mut self) -> Result<(), Failure> {
        self.owed = self.seen != self.input.len();
        if self.owed { Err(malformed("more than the requested answer")) } else { Ok(()) }
    }

    /// Handles an unexpected line. An error is counted by its first word. The connection is used again only if the server is known to be in step.
    fn refused(&mut self, line: Range<usize>) -> Failure {
        let text = String::from_utf8_lossy(&self.input[line]).into_owned();
        let word = text.split(' ').next().unwrap_or_default();
        let (code, in_step) = match (word, word.strip_prefix('-')) {
            ("SERVER_ERROR", _) => (word, true),
            ("ERROR" | "CLIENT_ERROR" | "NOT_STORED", _) => (word, false),
            (_, Some(code)) => (code, true),
            _ => return malformed(&text),
        };
        let usable = in_step && self.answered().is_ok();
        Failure { code: code.to_owned(), text: text.clone(), usable, retry: false }
    }
}

/// Checks that a key can be sent: memcached cannot quote blanks and line ends.
fn checked(key: &[u8]) -> Result<&[u8], Failure> {
    let sendable = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    if !key.is_empty() && key.len() <= LONGEST_KEY && key.iter().all(sendable) {
        return Ok(key);
    }
    let text = format!("no key: {:?} (1 to {LONGEST_KEY} bytes, no blanks)", String::from_utf8_lossy(key));
    Err(Failure { code: "protocol".to_owned(), text, usable: true, retry: false })
}

/// The length in a line `VALUE key flags length`.
fn announced(line: &[u8], key: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(b"VALUE ")?.strip_prefix(key)?.strip_prefix(b" ")?;
    let mut words = rest.split(|byte| *byte == b' ');
    let (_flags, length) = (words.next()?, words.next()?);
    number(length)
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Address and sizes of `host:port/R/N`.
fn echo_sizes(place: &str) -> Result<(&str, usize, usize), Failure> {
    let mut parts = place.split('/');
    let address = parts.next().unwrap_or_default();
    let mut size = || parts.next()?.parse().ok().filter(|size| (1..=LONGEST).contains(size));
    match (size(), size(), parts.next()) {
        (Some(request), Some(answer), None) => Ok((address, request, answer)),
        _ => Err(Failure::connection(&format_args!(
            "echo://{place}: want echo://host:port/R/N, bytes of a request and of its answer"
        ))),
    }
}

fn malformed(what: &str) -> Failure {
    Failure { code: "protocol".to_owned(), text: format!("malformed answer: {what}"), usable: false, retry: false }
}
