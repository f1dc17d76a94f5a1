//! A client that speaks the protocol frame by frame and records everything that it receives, so that the server's frames can be compared with
//! Freshet's.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::frames;

/// No answer within this time is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One message of the backend.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) tag: u8,
    pub(crate) body: Vec<u8>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.body.get(..200).unwrap_or(&self.body);
        write!(f, "{}[{}] {}", char::from(self.tag), self.body.len(), head.escape_ascii())
    }
}

impl Message {
    /// A field of an ErrorResponse or NoticeResponse: `C` is the SQLSTATE, `M` the text.
    pub(crate) fn field(&self, field: u8) -> Option<String> {
        let found = self.body.split(|b| *b == 0).find(|part| part.first() == Some(&field))?;
        Some(String::from_utf8_lossy(found.get(1..)?).into_owned())
    }

    /// The columns of a DataRow.
    pub(crate) fn columns(&self) -> Vec<Option<Vec<u8>>> {
        let mut rest = self.body.get(2..).unwrap_or_default();
        let mut columns = Vec::new();
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let taken = usize::try_from(i32::from_be_bytes(*head)).ok().and_then(|n| tail.split_at_checked(n));
            rest = taken.map_or(tail, |(_, tail)| tail);
            columns.push(taken.map(|(value, _)| value.to_vec()));
        }
        columns
    }

    /// The same RowDescription without the columns' origin: the OID of a table differs if it was created again.
    fn without_origin(mut self) -> Self {
        let mut at = 2;
        while let Some(name) = self.body.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0)) {
            if let Some(origin) = self.body.get_mut(at + name + 1..at + name + 7) {
                origin.fill(0);
            }
            // Then the type's OID, size and modifier and the format.
            at += name + 7 + 12;
        }
        self
    }

    /// The same, without the sender's process in a NotificationResponse, which differs between two connections.
    fn comparable(mut self) -> Self {
        if self.tag == b'A'
            && let Some(pid) = self.body.get_mut(..4)
        {
            pid.fill(0);
        }
        self
    }
}

/// How to log in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    pub(crate) password: Option<&'a str>,
    /// Further startup parameters.
    pub(crate) more: &'a [(&'a str, &'a str)],
}

/// A connection.
pub(crate) struct RawClient {
    stream: TcpStream,
    /// The received bytes; those up to `taken` were parsed.
    received: Vec<u8>,
    taken: usize,
    /// All messages since the login, as they are compared.
    pub(crate) heard: Vec<Message>,
    /// ParameterStatus messages of the login, sorted.
    pub(crate) parameters: Vec<Message>,
    /// The body of BackendKeyData.
    pub(crate) key_data: Vec<u8>,
    /// Whether the origin of columns is not compared, because the conversation makes tables.
    pub(crate) makes_tables: bool,
}

impl RawClient {
    /// A connection on which nothing was sent.
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).context("connect")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            received: Vec::new(),
            taken: 0,
            heard: Vec::new(),
            parameters: Vec::new(),
            key_data: Vec::new(),
            makes_tables: false,
        })
    }

    /// A connection that is logged in and ready.
    pub(crate) fn login(address: SocketAddr, login: Login<'_>) -> Result<Self> {
        let mut client = Self::open(address)?;
        let messages = client.start(login)?;
        ensure!(messages.last().is_some_and(|m| m.tag == b'Z'), "login refused: {messages:?}");
        Ok(client)
    }

    /// Logs in; returns the messages up to ReadyForQuery or ErrorResponse.
    pub(crate) fn start(&mut self, login: Login<'_>) -> Result<Vec<Message>> {
        let mut parameters = vec![("user", login.user), ("database", login.database)];
        parameters.extend(login.more);
        self.send(&frames::startup(&parameters))?;
        let mut messages = Vec::new();
        loop {
            let message = self.read()?;
            match message.tag {
                b'R' if message.body == [0, 0, 0, 3] => {
                    let password = login.password.context("the server asks for a password")?;
                    self.send(&frames::password(password))?;
                }
                // AuthenticationOk is 0; all others would wait for what this client cannot say.
                b'R' if message.body != [0; 4] => bail!("another kind of login is asked for: {message:?}"),
                b'S' => self.parameters.push(message.clone()),
                b'K' => self.key_data.clone_from(&message.body),
                _ => {}
            }
            let last = matches!(message.tag, b'Z' | b'E');
            messages.push(message);
            if last {
                break;
            }
        }
        self.heard.clear();
        self.parameters.sort_by(|a, b| a.body.cmp(&b.body));
        Ok(messages)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// A second handle to the socket, to write while another thread reads.
    pub(crate) fn socket(&self) -> Result<TcpStream> {
        Ok(self.stream.try_clone()?)
    }

    /// The next message.
    pub(crate) fn read(&mut self) -> Result<Message> {
        let message = self.read_unheard()?.context("the connection was closed")?;
        self.keep(message.clone());
        Ok(message)
    }

    fn keep(&mut self, message: Message) {
        let blur = self.makes_tables && message.tag == b'T';
        self.heard.push(if blur { message.without_origin() } else { message.comparable() });
    }

    /// The tag of the next message, which is recorded; the end of the stream is recorded as a message without a tag.
    pub(crate) fn read_or_end(&mut self) -> Result<Option<u8>> {
        let message = self.read_unheard()?;
        let tag = message.as_ref().map(|m| m.tag);
        self.keep(message.unwrap_or(Message { tag: 0, body: Vec::new() }));
        Ok(tag)
    }

    /// The next message without keeping it; None at the end of the stream.
    pub(crate) fn read_unheard(&mut self) -> Result<Option<Message>> {
        loop {
            let pending = self.received.get(self.taken..).unwrap_or_default();
            if let Some((head, rest)) = pending.split_first_chunk::<5>() {
                let [tag, length @ ..] = *head;
                let length = usize::try_from(i32::from_be_bytes(length))?.checked_sub(4).context("a length below 4")?;
                if let Some(body) = rest.get(..length) {
                    let message = Message { tag, body: body.to_vec() };
                    self.taken += 5 + length;
                    return Ok(Some(message));
                }
            }
            self.received.drain(..self.taken);
            self.taken = 0;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) if self.received.is_empty() => return Ok(None),
                Ok(0) => bail!("the connection was closed within a message"),
                Ok(n) => self.received.extend(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::ConnectionReset && self.received.is_empty() => return Ok(None),
                Err(e) => bail!("no answer: {e}; heard so far: {:?}", self.heard),
            }
        }
    }

    /// A single byte, as SSLRequest is answered.
    pub(crate) fn read_byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// All bytes up to the end of the connection.
    pub(crate) fn bytes_to_end(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(e) if e.kind() != ErrorKind::ConnectionReset => bail!("the connection stays open: {e}"),
            _ => Ok(bytes),
        }
    }

    /// Reads up to and including the first message with that tag; returns all of them.
    pub(crate) fn until(&mut self, tag: u8) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        while messages.last().is_none_or(|m: &Message| m.tag != tag) {
            messages.push(self.read()?);
        }
        Ok(messages)
    }

    /// Sends, then reads up to the n-th ReadyForQuery; returns all messages.
    pub(crate) fn exchange(&mut self, bytes: &[u8], ready: usize) -> Result<Vec<Message>> {
        self.send(bytes)?;
        let mut messages = Vec::new();
        for _ in 0..ready {
            messages.extend(self.until(b'Z')?);
        }
        Ok(messages)
    }

    /// A simple query up to its ReadyForQuery.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Message>> {
        self.exchange(&frames::query(sql), 1)
    }

    /// Simple statements; the first error is returned.
    pub(crate) fn run(&mut self, sql: &str) -> Result<()> {
        let messages = self.query(sql)?;
        let error = messages.iter().find(|m| m.tag == b'E');
        ensure!(error.is_none(), "{sql}: {error:?}");
        Ok(())
    }

    /// The first column of the first row of a simple query, as text.
    pub(crate) fn value(&mut self, sql: &str) -> Result<String> {
        let messages = self.query(sql)?;
        let row = messages.iter().find(|m| m.tag == b'D').with_context(|| format!("no row: {messages:?}"))?;
        let column = row.columns().into_iter().next().flatten().context("NULL")?;
        Ok(String::from_utf8(column)?)
    }

    /// Fails if more messages arrive: they would shift all later answers.
    pub(crate) fn expect_silence(&mut self) -> Result<()> {
        // The answer to a last query shows that everything before it was answered.
        let messages = self.query("select 'quiet'")?;
        let tags: String = messages.iter().map(|m| char::from(m.tag)).collect();
        ensure!(tags == "TDCZ" && self.taken == self.received.len(), "left over: {messages:?}");
        Ok(())
    }
}
