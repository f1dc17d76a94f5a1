//! A client that speaks the protocol packet by packet and records everything that it receives, so that the server's packets can be compared with
//! Freshet's.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::handshake::{Handshake, Login};
use super::packets::{self, Value, capability, status};
use super::{answer::Answer, scramble};

/// No answer within this time is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A packet of this length is continued by the next one.
const PIECE: usize = 0xff_ffff;

/// A packet of the server; if it came in several pieces, it has the number of the last one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) sequence: u8,
    pub(crate) payload: Vec<u8>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.payload.get(..200).unwrap_or(&self.payload);
        write!(f, "#{}[{}] {}", self.sequence, self.payload.len(), head.escape_ascii())
    }
}

impl Packet {
    /// The same without the number of a statement in an error's text: MariaDB numbers the statements of all connections.
    fn comparable(mut self) -> Self {
        if self.payload.first() == Some(&0xff) {
            for before in ["statement handler (", "The statement ("] {
                let found = self.payload.windows(before.len()).position(|window| window == before.as_bytes());
                let Some(start) = found.map(|at| at + before.len()) else { continue };
                let digits = self.payload.iter().skip(start).take_while(|byte| byte.is_ascii_digit()).count();
                self.payload.drain(start..start + digits);
            }
        }
        self
    }
}

/// A prepared statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub(crate) id: u32,
    pub(crate) columns: u16,
    pub(crate) parameters: u16,
}

/// A connection.
pub(crate) struct RawClient {
    stream: TcpStream,
    received: Vec<u8>,
    taken: usize,
    sequence: u8,
    capabilities: u32,
    /// The server's first packet.
    pub(crate) handshake: Handshake,
    /// All packets since the handshake, as they are compared.
    pub(crate) heard: Vec<Packet>,
    /// The contents that are sent when the server asks for a local file.
    pub(crate) file: Vec<u8>,
    /// The number of prepared statements.
    prepared: u32,
}

impl RawClient {
    /// A connection on which the server has sent its first packet.
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).context("connect")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream,
            received: Vec::new(),
            taken: 0,
            sequence: 0,
            capabilities: 0,
            handshake: Handshake::default(),
            heard: Vec::new(),
            file: Vec::new(),
            prepared: 0,
        };
        let first = client.read()?;
        client.handshake = Handshake::parse(&first.payload).with_context(|| format!("no handshake: {first:?}"))?;
        client.heard.clear();
        Ok(client)
    }

    /// A connection that is logged in and ready.
    pub(crate) fn login(address: SocketAddr, login: Login<'_>) -> Result<Self> {
        let mut client = Self::open(address)?;
        let last = client.start(login)?;
        ensure!(last.payload.first() == Some(&0), "login refused: {last:?}");
        Ok(client)
    }

    /// Logs in; returns the packet that ends it, an OK or an error.
    pub(crate) fn start(&mut self, login: Login<'_>) -> Result<Packet> {
        self.capabilities = login.capabilities;
        let answer = scramble::answer(login.plugin, login.password, &self.handshake.nonce).unwrap_or_default();
        self.reply(&login.response(&answer))?;
        self.authenticate(login)
    }

    /// `COM_CHANGE_USER`; returns the packet that ends it.
    pub(crate) fn change_user(&mut self, login: Login<'_>) -> Result<Packet> {
        let answer = scramble::answer(login.plugin, login.password, &self.handshake.nonce).unwrap_or_default();
        self.send(&login.change_user(self.capabilities, &answer))?;
        self.authenticate(login)
    }

    /// Answers the server's requests until it accepts or refuses.
    fn authenticate(&mut self, login: Login<'_>) -> Result<Packet> {
        loop {
            let packet = self.read_unheard()?;
            match packet.payload.split_first() {
                Some((0xfe, rest)) => {
                    let mut parts = rest.splitn(2, |byte| *byte == 0);
                    let plugin = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                    let nonce = parts.next().unwrap_or_default().strip_suffix(&[0]).context("a nonce")?;
                    let answer = scramble::answer(&plugin, login.password, nonce);
                    self.reply(&answer.with_context(|| format!("the server asks for {plugin}"))?)?;
                }
                // The fast authentication of caching_sha2_password has succeeded.
                Some((1, [3])) => {}
                // The full authentication needs TLS or RSA, which this client does not know. So it asks for the key as others do, and is then
                // refused.
                Some((1, [4])) => self.reply(&[2])?,
                Some((1, [b'-', ..])) => self.reply(&[0; 256])?,
                Some((1, rest)) => bail!("the server asks for more: {rest:?}"),
                _ => {
                    self.heard.push(packet.clone());
                    return Ok(packet);
                }
            }
        }
    }

    /// A command, which starts the count of packets anew.
    pub(crate) fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.sequence = 0;
        self.reply(payload)
    }

    /// A packet within an exchange.
    pub(crate) fn reply(&mut self, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 4);
        // A packet whose last piece is full is followed by an empty one.
        for piece in payload.chunks(PIECE).chain(payload.len().is_multiple_of(PIECE).then_some([].as_slice())) {
            let [a, b, c, _] = (piece.len() as u32).to_le_bytes();
            bytes.extend([a, b, c, self.sequence]);
            bytes.extend(piece);
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.send_bytes(&bytes)
    }

    /// Bytes as given.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// The next packet.
    pub(crate) fn read(&mut self) -> Result<Packet> {
        let packet = self.read_unheard()?;
        self.heard.push(packet.clone().comparable());
        Ok(packet)
    }

    /// The next packet; the end of the connection is recorded as an empty packet.
    pub(crate) fn read_or_end(&mut self) -> Result<Option<Packet>> {
        let packet = self.read_piece()?;
        self.heard.push(packet.clone().unwrap_or(Packet { sequence: 0, payload: Vec::new() }));
        Ok(packet)
    }

    fn read_unheard(&mut self) -> Result<Packet> {
        let mut whole = self.read_piece()?.context("the connection was closed")?;
        let mut last = whole.payload.len();
        while last == PIECE {
            let next = self.read_piece()?.context("the connection was closed")?;
            last = next.payload.len();
            whole.sequence = next.sequence;
            whole.payload.extend(next.payload);
        }
        self.sequence = whole.sequence.wrapping_add(1);
        Ok(whole)
    }

    fn read_piece(&mut self) -> Result<Option<Packet>> {
        loop {
            let pending = self.received.get(self.taken..).unwrap_or_default();
            if let Some(([a, b, c, sequence], rest)) = pending.split_first_chunk::<4>() {
                let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let packet = Packet { sequence: *sequence, payload: payload.to_vec() };
                    self.taken += 4 + length;
                    return Ok(Some(packet));
                }
            }
            self.received.drain(..self.taken);
            self.taken = 0;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) if self.received.is_empty() => return Ok(None),
                Ok(0) => bail!("the connection was closed within a packet"),
                Ok(n) => self.received.extend(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::ConnectionReset && self.received.is_empty() => return Ok(None),
                Err(e) => bail!("no answer: {e}; heard so far: {:?}", self.heard),
            }
        }
    }

    fn deprecates_eof(&self) -> bool {
        self.capabilities & capability::DEPRECATE_EOF != 0
    }

    /// A command and its whole answer, with all results.
    pub(crate) fn command(&mut self, payload: &[u8]) -> Result<Answer> {
        self.send(payload)?;
        self.answer()
    }

    /// `COM_QUERY`.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Answer> {
        self.command(&packets::query(sql))
    }

    /// Statements; the first error is returned.
    pub(crate) fn run(&mut self, sql: &str) -> Result<()> {
        let answer = self.query(sql)?;
        ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
        Ok(())
    }

    /// The first column of the first row, as text.
    pub(crate) fn value(&mut self, sql: &str) -> Result<String> {
        let answer = self.query(sql)?;
        let first = answer.rows().into_iter().next().and_then(|row| row.into_iter().next());
        first.flatten().with_context(|| format!("{sql}: no value: {answer:?}"))
    }

    /// `COM_STMT_PREPARE`; an error of the server is an error.
    pub(crate) fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.try_prepare(sql)?.with_context(|| format!("cannot prepare {sql}: {:?}", self.heard.last()))
    }

    /// `COM_STMT_PREPARE`; none if the server refuses.
    pub(crate) fn try_prepare(&mut self, sql: &str) -> Result<Option<Statement>> {
        self.send(&packets::prepare(sql))?;
        let first = self.read()?;
        let [0, a, b, c, d, columns_low, columns_high, low, high, ..] = first.payload[..] else { return Ok(None) };
        self.prepared += 1;
        let number = self.prepared.to_le_bytes();
        // As in the texts of errors.
        if let Some(id) = self.heard.last_mut().and_then(|heard| heard.payload.get_mut(1..5)) {
            id.copy_from_slice(&number);
        }
        let statement = Statement {
            id: u32::from_le_bytes([a, b, c, d]),
            columns: u16::from_le_bytes([columns_low, columns_high]),
            parameters: u16::from_le_bytes([low, high]),
        };
        for count in [statement.parameters, statement.columns] {
            let ends = usize::from(count > 0 && !self.deprecates_eof());
            for _ in 0..usize::from(count) + ends {
                self.read()?;
            }
        }
        Ok(Some(statement))
    }

    /// `COM_STMT_EXECUTE` without a cursor, with types.
    pub(crate) fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<Answer> {
        self.command(&packets::execute(statement.id, values))
    }

    /// The complete answer to the last message, with all results.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let mut all = Answer::default();
        loop {
            let packet = self.read()?;
            let flags = match packet.payload.first() {
                Some(0 | 0xff) | None => all.end(packet, true),
                Some(0xfb) => {
                    all.packets.push(packet);
                    self.send_file()?;
                    continue;
                }
                // The answer to COM_SET_OPTION.
                Some(0xfe) if packet.payload.len() < 9 => all.end(packet, self.deprecates_eof()),
                Some(_) => self.result(packet, &mut all)?,
            };
            if flags & status::MORE_RESULTS == 0 {
                return Ok(all);
            }
        }
    }

    /// Columns and rows; returns the flags at their end.
    fn result(&mut self, head: Packet, all: &mut Answer) -> Result<u16> {
        let count = super::answer::Reader(&head.payload).integer().context("a count of columns")?;
        all.packets.push(head);
        for _ in 0..count {
            let column = self.read()?;
            all.packets.push(column);
        }
        if !self.deprecates_eof() {
            let end = self.read()?;
            let flags = all.end(end, false);
            // Within a procedure's answer the cursor is the procedure's own.
            if flags & status::CURSOR_EXISTS != 0 && flags & status::MORE_RESULTS == 0 {
                return Ok(flags);
            }
        }
        self.rows(all)
    }

    /// Rows up to their end; returns the flags there.
    pub(crate) fn rows(&mut self, all: &mut Answer) -> Result<u16> {
        loop {
            let packet = self.read()?;
            match packet.payload.first() {
                Some(0xff) => return Ok(all.end(packet, true)),
                Some(0xfe) if packet.payload.len() < PIECE && self.deprecates_eof() => return Ok(all.end(packet, true)),
                Some(0xfe) if packet.payload.len() < 9 => return Ok(all.end(packet, false)),
                _ => {
                    all.rows.push(all.packets.len());
                    all.packets.push(packet);
                }
            }
        }
    }

    /// `COM_STMT_FETCH`, or another command whose answer has no column count.
    pub(crate) fn fetch(&mut self, payload: &[u8]) -> Result<Answer> {
        self.send(payload)?;
        let mut all = Answer::default();
        self.rows(&mut all)?;
        Ok(all)
    }

    fn send_file(&mut self) -> Result<()> {
        let file = std::mem::take(&mut self.file);
        for piece in file.chunks(8 * 1024) {
            self.reply(piece)?;
        }
        self.file = file;
        self.reply(&[])
    }

    /// All bytes up to the end of the connection.
    pub(crate) fn bytes_to_end(&mut self) -> Result<Vec<u8>> {
        let mut bytes = self.received.split_off(self.taken);
        match self.stream.read_to_end(&mut bytes) {
            Err(e) if e.kind() != ErrorKind::ConnectionReset => bail!("the connection stays open: {e}"),
            _ => Ok(bytes),
        }
    }

    /// A second handle to the socket.
    pub(crate) fn socket(&self) -> Result<TcpStream> {
        Ok(self.stream.try_clone()?)
    }

    /// Fails if more packets arrive: they would shift all later answers.
    pub(crate) fn expect_silence(&mut self) -> Result<()> {
        let answer = self.query("SELECT 'quiet'")?;
        ensure!(answer.rows() == [[Some("quiet".to_owned())]], "left over: {answer:?}");
        ensure!(self.taken == self.received.len(), "more than one answer");
        Ok(())
    }
}
