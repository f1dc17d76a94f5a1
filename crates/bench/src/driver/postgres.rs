//! PostgreSQL. tokio-postgres logs in; statements then use the socket directly.
//!
//! The server is measured, so the client must cost little. On two cores, each microsecond of the client is missing for the server. A client that
//! needs more of them than sysbench measures a lower throughput than sysbench. Through tokio-postgres a prepared point select took twice the
//! instructions of libpq and reached three quarters of its throughput. So a statement is one write of `Bind`, `Execute` and `Sync` (or `Query`), and
//! one read. Only the headers of the answer's messages are parsed, unless its rows are stored. The library still does the login with its password
//! exchanges.
//!
//! Values are sent and requested in text form for all types, as in libpq's simplest calls.

use std::fmt::{self, Write as _};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;
use tokio_postgres::{Config, Error, NoTls};

use super::{Column, Failure, Protocol, Row, Rows};
use crate::statement::Statement;
use crate::target::Family;
use crate::value::Value;

/// Time limit for a TCP connection and its login, unless the URL has another.
const CONNECT: Duration = Duration::from_secs(10);
/// Size of one read.
const READ_BYTES: usize = 8 * 1024;
/// The longest message that is accepted from the server (PostgreSQL's MaxAllocSize).
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Bytes of a message's tag and length.
const HEADER: usize = 5;

/// A connection.
pub struct Connection {
    stream: Box<dyn Stream>,
    statements: Arc<[Statement]>,
    /// Number of parameters of each statement. Empty for the text protocol.
    prepared: Vec<usize>,
    /// The output, and the number of its bytes that were sent.
    output: BytesMut,
    sent: usize,
    input: BytesMut,
    /// Number of outstanding answers. It is more than one if a statement's future was dropped before its answer arrived.
    owed: usize,
    /// The last text sent.
    text: String,
}

/// The stream of a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("prepared", &self.prepared.len()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, and prepares the statements unless the protocol is text.
    pub async fn open(url: &str, statements: &Arc<[Statement]>, protocol: Protocol) -> Result<Self, Failure> {
        let config = config(url)?;
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT);
        let late = |_| Failure::connection(&format!("{}: not connected after {limit:?}", place(&config)));
        let stream = tokio::time::timeout(limit, log_in(&config)).await.map_err(late)??;
        let mut opened = Self {
            stream,
            statements: Arc::clone(statements),
            prepared: Vec::new(),
            output: BytesMut::new(),
            sent: 0,
            input: BytesMut::new(),
            owed: 0,
            text: String::new(),
        };
        if protocol == Protocol::Prepared {
            opened.prepare().await?;
        }
        Ok(opened)
    }

    async fn prepare(&mut self) -> Result<(), Failure> {
        let statements = Arc::clone(&self.statements);
        for (index, statement) in statements.iter().enumerate() {
            let text = statement.prepared_text(Family::Postgres);
            frontend::parse(&name(index), &text, [], &mut self.output).map_err(|error| unsendable(&error))?;
            frontend::sync(&mut self.output);
            let named = |failure: Failure| Failure {
                text: format!("statement {:?}: {}", statement.name, failure.text),
                ..failure
            };
            self.answer(Rows::Counted).await.map_err(named)?;
            self.prepared.push(statement.mentions().max().map_or(0, |last| last + 1));
        }
        Ok(())
    }

    /// Runs a statement. Kept values are in text form.
    pub async fn run(&mut self, index: usize, values: &[Value], rows: Rows<'_>) -> Result<u64, Failure> {
        if let Some(count) = self.prepared.get(index) {
            let values = (0..*count).map(|number| values.get(number).unwrap_or(&Value::Null));
            frontend::bind("", &name(index), [], values, write_text, [], &mut self.output)
                .map_err(|_| Failure::connection(&"a value is too long to be sent"))?;
            frontend::execute("", 0, &mut self.output).map_err(|error| unsendable(&error))?;
            frontend::sync(&mut self.output);
        } else {
            let Some(statement) = self.statements.get(index) else { return Err(closed()) };
            self.text.clear();
            statement.write_text(Family::Postgres, values, &mut self.text);
            frontend::query(&self.text, &mut self.output).map_err(|error| unsendable(&error))?;
        }
        self.answer(rows).await
    }

    /// Runs a command.
    pub async fn command(&mut self, sql: &str) -> Result<(), Failure> {
        self.send_text(sql, None, Rows::Counted).await.map(|_| ())
    }

    /// Sends a text: as a simple query, or parsed, bound and executed at once without a name.
    pub async fn send_text(&mut self, sql: &str, values: Option<&[Value]>, rows: Rows<'_>) -> Result<u64, Failure> {
        let Some(values) = values else {
            frontend::query(sql, &mut self.output).map_err(|error| unsendable(&error))?;
            return self.answer(rows).await;
        };
        frontend::parse("", sql, [], &mut self.output).map_err(|error| unsendable(&error))?;
        frontend::bind("", "", [], values, write_text, [], &mut self.output)
            .map_err(|_| Failure::connection(&"a value is too long to be sent"))?;
        frontend::execute("", 0, &mut self.output).map_err(|error| unsendable(&error))?;
        frontend::sync(&mut self.output);
        self.answer(rows).await
    }

    /// Sends the output and reads up to the end of its answer; returns the number of rows returned or changed.
    async fn answer(&mut self, mut rows: Rows<'_>) -> Result<u64, Failure> {
        self.owed += 1;
        let broken = |error: io::Error| Failure::connection(&error);
        while self.sent < self.output.len() {
            self.sent += self.stream.write(&self.output[self.sent..]).await.map_err(broken)?;
        }
        self.output.clear();
        self.sent = 0;
        let (mut count, mut failed) = (0, None);
        loop {
            while let Some((tag, length)) = self.message()? {
                let body = &self.input[HEADER..length];
                // Earlier bytes are the end of an answer whose caller was dropped.
                let ours = self.owed == 1;
                match (tag, &mut rows) {
                    (b'D', Rows::Kept(kept) | Rows::Described(_, kept)) if ours => {
                        kept.push(row(body).ok_or_else(malformed)?);
                    }
                    (b'T', Rows::Described(columns, _)) if ours => **columns = described(body).ok_or_else(malformed)?,
                    (b'C', _) if ours => count += affected(body),
                    (b'E', _) if ours => failed = Some(said(body)),
                    (b'Z', _) => {
                        self.owed -= 1;
                        self.input.advance(length);
                        if ours {
                            return failed.map_or(Ok(count), Err);
                        }
                        continue;
                    }
                    _ => {}
                }
                self.input.advance(length);
            }
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await.map_err(broken)? == 0 {
                // A server that closes a connection sends the reason first.
                return Err(Failure { usable: false, ..failed.unwrap_or_else(closed) });
            }
        }
    }

    /// Tag and length, header included, of the next message if it is complete.
    fn message(&mut self) -> Result<Option<(u8, usize)>, Failure> {
        let Some((tag, rest)) = self.input.split_first() else { return Ok(None) };
        let Some(length) = rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) as usize) else { return Ok(None) };
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(malformed());
        }
        Ok((rest.len() >= length).then_some((*tag, 1 + length)))
    }
}

impl Drop for Connection {
    /// Sends Terminate if possible without waiting: some poolers count connections without it as broken.
    fn drop(&mut self) {
        let mut farewell = BytesMut::new();
        frontend::terminate(&mut farewell);
        let _ = Pin::new(&mut self.stream).poll_write(&mut Context::from_waker(std::task::Waker::noop()), &farewell);
    }
}

/// The name of a prepared statement.
fn name(index: usize) -> String {
    format!("s{index}")
}

/// Appends a value in text form.
fn write_text(value: &Value, buffer: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
    match value {
        Value::Null => return Ok(IsNull::Yes),
        Value::Int(number) => write!(buffer, "{number}")?,
        Value::Text(text) => buffer.extend_from_slice(text.as_bytes()),
    }
    Ok(IsNull::No)
}

/// The values of a `DataRow`; None if it is malformed.
fn row(mut body: &[u8]) -> Option<Row> {
    let count = body.try_get_u16().ok()?;
    let mut row = Row::with_capacity(usize::from(count));
    for _ in 0..count {
        let length = body.try_get_i32().ok()?;
        let value = match usize::try_from(length) {
            Err(_) => None,
            Ok(length) => {
                let (value, rest) = body.split_at_checked(length)?;
                body = rest;
                Some(value.to_vec())
            }
        };
        row.push(value);
    }
    Some(row)
}

/// The columns of a `RowDescription`; None if it is malformed.
fn described(mut body: &[u8]) -> Option<Vec<Column>> {
    /// Number in its table, length, modifier and format: the fields after and before the type.
    const TABLE_BYTES: usize = 6;
    const REST_BYTES: usize = 8;
    let count = body.try_get_u16().ok()?;
    let mut columns = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let end = body.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(body.get(..end)?).into_owned();
        body = body.get(end + 1 + TABLE_BYTES..)?;
        let kind = body.try_get_u32().ok()?;
        body = body.get(REST_BYTES..)?;
        let kind = Type::from_oid(kind).map_or_else(|| format!("type {kind}"), |kind| kind.name().to_owned());
        columns.push(Column { name, kind });
    }
    Some(columns)
}

/// The number at the end of a command tag: `SELECT 3`, `INSERT 0 3`, `BEGIN`.
fn affected(tag: &[u8]) -> u64 {
    let tag = tag.strip_suffix(b"\0").unwrap_or(tag);
    let number = tag.rsplit(|byte| *byte == b' ').next().and_then(|word| std::str::from_utf8(word).ok());
    number.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The failure that an `ErrorResponse` describes.
fn said(body: &[u8]) -> Failure {
    let (mut code, mut text, mut severity) = (String::new(), String::new(), String::new());
    for field in body.split(|byte| *byte == 0) {
        let Some((kind, value)) = field.split_first() else { break };
        let value = || String::from_utf8_lossy(value).into_owned();
        match kind {
            b'C' => code = value(),
            b'M' => text = value(),
            b'V' => severity = value(),
            _ => {}
        }
    }
    let retry = matches!(code.as_str(), "40001" | "40P01");
    Failure { usable: !matches!(severity.as_str(), "FATAL" | "PANIC"), code, text, retry }
}

fn malformed() -> Failure {
    Failure { code: "protocol".to_owned(), ..Failure::connection(&"the server sent something that is not a message") }
}

fn unsendable(error: &io::Error) -> Failure {
    Failure { code: "protocol".to_owned(), usable: true, ..Failure::connection(error) }
}

/// Connects to the first host that answers, and logs in with tokio-postgres.
async fn log_in(config: &Config) -> Result<Box<dyn Stream>, Failure> {
    let mut failed = Failure::connection(&"the URL names no host");
    for (number, host) in config.get_hosts().iter().enumerate() {
        let ports = config.get_ports();
        let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
        let stream = match host {
            Host::Tcp(host) => TcpStream::connect((host.as_str(), port)).await.map(|stream| {
                let _ = stream.set_nodelay(true);
                Box::new(stream) as Box<dyn Stream>
            }),
            Host::Unix(directory) => {
                let stream = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await;
                stream.map(|stream| Box::new(stream) as Box<dyn Stream>)
            }
        };
        match stream {
            Ok(stream) => return greet(config, stream).await,
            Err(error) => failed = Failure::connection(&format!("{}: {error}", place(config))),
        }
    }
    Err(failed)
}

/// Lends the stream to tokio-postgres until the server is ready for the first statement. tokio-postgres reads no further byte, since the server sends
/// nothing more before a request.
async fn greet(config: &Config, stream: Box<dyn Stream>) -> Result<Box<dyn Stream>, Failure> {
    let stream = Arc::new(Mutex::new(stream));
    let halves = config.connect_raw(Lent(Arc::clone(&stream)), NoTls).await;
    drop(halves.map_err(|error| failed_to_connect(config, &error))?);
    let stream = Arc::into_inner(stream).ok_or_else(closed)?;
    Ok(stream.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// A stream that its owner gets back after the loan.
struct Lent(Arc<Mutex<Box<dyn Stream>>>);

impl Lent {
    fn poll<T>(&self, poll: impl FnOnce(Pin<&mut Box<dyn Stream>>) -> Poll<T>) -> Poll<T> {
        poll(Pin::new(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(cx))
    }
}

/// Parses the URL. An `@` in a password is accepted: the last one ends the password, as everywhere in this program.
fn config(url: &str) -> Result<Config, Failure> {
    let wrong = |text: String| Failure { text, ..Failure::connection(&"") };
    let mut url = url.to_owned();
    if let Some((scheme, rest)) = url.split_once("://")
        && let Some((account, place)) = rest.rsplit_once('@')
    {
        url = format!("{scheme}://{}@{place}", account.replace('@', "%40"));
    }
    if url.contains("sslmode=verify") {
        return Err(no_tls());
    }
    let config: Config = url.parse().map_err(|error| wrong(chain(&error)))?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(no_tls());
    }
    Ok(config)
}

fn no_tls() -> Failure {
    Failure::connection(&"the URL asks for TLS, which this program does not speak; say sslmode=disable")
}

fn closed() -> Failure {
    Failure::connection(&"the connection is closed")
}

/// `host:port` of the first host.
fn place(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432))
}

/// An error with the address, and the message of the server or the system. It may name the user, but never the password.
fn failed_to_connect(config: &Config, error: &Error) -> Failure {
    let mut failure = failure(error);
    failure.text = format!("{}: {}", place(config), failure.text);
    failure.usable = false;
    failure
}

fn failure(error: &Error) -> Failure {
    let Some(said) = error.as_db_error() else { return Failure::connection(&chain(error)) };
    let code = said.code().code().to_owned();
    let ended = matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    let retry = matches!(code.as_str(), "40001" | "40P01");
    Failure { code, text: said.message().to_owned(), usable: !ended, retry }
}

/// An error with its causes, which tokio-postgres does not print with it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
