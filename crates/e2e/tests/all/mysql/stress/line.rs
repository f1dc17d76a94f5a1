//! A session with little overhead, as PostgreSQL's [`Line`](crate::stress::line): answers of integers only, and the forms of statements (text,
//! prepared, reused or used once) chosen one by one, not by a driver.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use crate::mysql::support::answer::Reader;
use crate::mysql::support::packets::{self, Value, capability, status};
use crate::mysql::support::{Login, RawClient};
use crate::stress::line::{Answer, Trouble};

/// No answer within this time is a failure. Commits may have to wait for a stopped server.
const PATIENCE: Duration = Duration::from_secs(60);

const LONG: u8 = 3;
const LONGLONG: u8 = 8;
const NEWDECIMAL: u8 = 246;

/// The connection.
pub(crate) struct Line {
    socket: TcpStream,
    received: Vec<u8>,
    taken: usize,
    /// Of the next packet that is sent.
    sequence: u8,
    deprecates_eof: bool,
    answer: Answer,
    /// The server's session.
    pub(crate) backend: i64,
    /// What is sent when the server asks for a local file.
    pub(crate) file: String,
}

impl Line {
    pub(crate) fn open(address: SocketAddr, login: Login<'_>) -> Result<Self, Trouble> {
        let lost = |error: &dyn fmt::Display| Trouble::Lost(error.to_string());
        let client = RawClient::login(address, login).map_err(|error| lost(&format!("{error:#}")))?;
        let socket = client.socket().map_err(|error| lost(&error))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(|error| lost(&error))?;
        let mut line = Self {
            socket,
            received: Vec::new(),
            taken: 0,
            sequence: 0,
            deprecates_eof: login.capabilities & capability::DEPRECATE_EOF != 0,
            answer: Answer::default(),
            backend: 0,
            file: String::new(),
        };
        line.simple("select connection_id()")?;
        line.backend = line.answer.rows(0).next().and_then(|row| row.first().copied().flatten()).unwrap_or_default();
        Ok(line)
    }

    /// Statements as text.
    pub(crate) fn simple(&mut self, sql: &str) -> Result<&Answer, Trouble> {
        self.command(&packets::query(sql))?;
        self.results(false)
    }

    /// A prepared statement's number.
    pub(crate) fn prepare(&mut self, sql: &str) -> Result<u32, Trouble> {
        self.command(&packets::prepare(sql))?;
        let first = self.packet()?;
        let (id, columns, parameters) = match &self.received[first] {
            [0, a, b, c, d, columns_low, columns_high, low, high, ..] => (
                u32::from_le_bytes([*a, *b, *c, *d]),
                u16::from_le_bytes([*columns_low, *columns_high]),
                u16::from_le_bytes([*low, *high]),
            ),
            other => return Err(trouble(other)),
        };
        for count in [parameters, columns] {
            let ends = usize::from(count > 0 && !self.deprecates_eof);
            for _ in 0..usize::from(count) + ends {
                self.packet()?;
            }
        }
        Ok(id)
    }

    /// Executes it with integers of 4 bytes, or of 8.
    pub(crate) fn execute(&mut self, statement: u32, values: &[i32], wide: bool) -> Result<&Answer, Trouble> {
        let value = |value: &i32| if wide { Value::Integer((*value).into()) } else { Value::Int(*value) };
        let values: Vec<_> = values.iter().map(value).collect();
        self.command(&packets::execute(statement, &values))?;
        self.results(true)
    }

    /// As after the login: without statements, variables and temporary tables, which Freshet suspects in any session that has
    /// called a procedure or has said what it does not know.
    pub(crate) fn reset(&mut self) -> Result<(), Trouble> {
        self.command(&packets::reset_connection())?;
        self.results(false).map(drop)
    }

    /// Prepares, executes and closes.
    pub(crate) fn execute_once(&mut self, sql: &str, values: &[i32]) -> Result<&Answer, Trouble> {
        let statement = self.prepare(sql)?;
        let refused = self.execute(statement, values, false).err();
        if !matches!(refused, Some(Trouble::Lost(_))) {
            self.command(&packets::close(statement))?;
        }
        refused.map_or(Ok(&self.answer), Err)
    }

    /// The last answer.
    pub(crate) fn answer(&self) -> &Answer {
        &self.answer
    }

    fn command(&mut self, payload: &[u8]) -> Result<(), Trouble> {
        self.sequence = 0;
        self.send(payload)
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), Trouble> {
        let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
        let packet = [&[a, b, c, self.sequence], payload].concat();
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.write_all(&packet).map_err(|error| Trouble::Lost(format!("sending: {error}")))
    }

    /// All results of a command.
    fn results(&mut self, binary: bool) -> Result<&Answer, Trouble> {
        self.answer.clear();
        loop {
            let packet = self.packet()?;
            let body = &self.received[packet];
            let flags = match body.first() {
                Some(0) => status_of(body).ok_or_else(|| odd(body))?,
                Some(0xff) | None => return Err(trouble(body)),
                Some(0xfb) => {
                    self.send_file()?;
                    continue;
                }
                Some(_) => {
                    let columns = Reader(body).integer().ok_or_else(|| odd(body))?;
                    self.rows(columns, binary)?
                }
            };
            self.answer.end_statement();
            if flags & status::MORE_RESULTS == 0 {
                return Ok(&self.answer);
            }
        }
    }

    fn send_file(&mut self) -> Result<(), Trouble> {
        let file = std::mem::take(&mut self.file);
        self.send(file.as_bytes())?;
        self.send(&[])
    }

    /// One result; returns the flags at its end.
    fn rows(&mut self, columns: u64, binary: bool) -> Result<u16, Trouble> {
        let mut types = Vec::new();
        for _ in 0..columns {
            let column = self.packet()?;
            let body = &self.received[column];
            types.push(type_of(body).ok_or_else(|| odd(body))?);
        }
        if !self.deprecates_eof {
            self.packet()?;
        }
        loop {
            let packet = self.packet()?;
            let body = &self.received[packet];
            match body.first() {
                Some(0xff) => return Err(trouble(body)),
                Some(0xfe) if self.deprecates_eof => return status_of(body).ok_or_else(|| odd(body)),
                Some(0xfe) if body.len() < 9 => {
                    // Warnings, then flags.
                    return Reader(&body[1..]).fixed(4).map(|both| (both >> 16) as u16).ok_or_else(|| odd(body));
                }
                _ => {
                    let row = if binary {
                        binary_row(&mut self.answer, body, &types)
                    } else {
                        text_row(&mut self.answer, body)
                    };
                    row.ok_or_else(|| odd(body))?;
                    self.answer.end_row();
                }
            }
        }
    }

    fn packet(&mut self) -> Result<Range<usize>, Trouble> {
        loop {
            if let Some(([a, b, c, sequence], rest)) = self.received[self.taken..].split_first_chunk::<4>() {
                let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
                if rest.len() >= length {
                    self.sequence = sequence.wrapping_add(1);
                    let start = self.taken + 4;
                    self.taken = start + length;
                    return Ok(start..self.taken);
                }
            }
            self.received.drain(..self.taken);
            self.taken = 0;
            let mut chunk = [0; 8192];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(Trouble::Lost("closed".into())),
                Ok(n) => self.received.extend(&chunk[..n]),
                Err(error) => return Err(Trouble::Lost(format!("reading: {error}"))),
            }
        }
    }
}

/// The flags of an OK.
fn status_of(body: &[u8]) -> Option<u16> {
    let mut reader = Reader(body.get(1..)?);
    reader.integer()?;
    reader.integer()?;
    reader.fixed(2).map(|flags| flags as u16)
}

/// Of a column definition.
fn type_of(body: &[u8]) -> Option<u8> {
    let mut reader = Reader(body);
    // Catalogue, schema, table, its alias, column, its alias.
    for _ in 0..6 {
        let length = usize::try_from(reader.integer()?).ok()?;
        reader.bytes(length)?;
    }
    // Length of the rest, collation, width.
    reader.bytes(1 + 2 + 4)?;
    reader.fixed(1).map(|kind| kind as u8)
}

fn number(reader: &mut Reader<'_>) -> Option<i64> {
    let length = usize::try_from(reader.integer()?).ok()?;
    std::str::from_utf8(reader.bytes(length)?).ok()?.parse().ok()
}

fn text_row(answer: &mut Answer, body: &[u8]) -> Option<()> {
    let mut reader = Reader(body);
    while let Some(first) = reader.0.first() {
        if *first == 0xfb {
            reader.bytes(1)?;
            answer.push(None);
        } else {
            answer.push(Some(number(&mut reader)?));
        }
    }
    Some(())
}

fn binary_row(answer: &mut Answer, body: &[u8], types: &[u8]) -> Option<()> {
    let mut reader = Reader(body.get(1..)?);
    let nulls = reader.bytes((types.len() + 9) / 8)?;
    for (at, kind) in types.iter().enumerate() {
        // The first two bits are not used.
        if nulls[(at + 2) / 8] & 1 << ((at + 2) % 8) != 0 {
            answer.push(None);
            continue;
        }
        answer.push(Some(match *kind {
            LONG => (reader.fixed(4)? as i32).into(),
            LONGLONG => reader.fixed(8)?.cast_signed(),
            NEWDECIMAL => number(&mut reader)?,
            _ => return None,
        }));
    }
    Some(())
}

fn odd(body: &[u8]) -> Trouble {
    Trouble::Lost(format!("odd packet {}", body.escape_ascii()))
}

/// What an error means; its code is the server's number. After some of them the connection is closed.
fn trouble(body: &[u8]) -> Trouble {
    let [0xff, low, high, b'#', rest @ ..] = body else { return odd(body) };
    let (state, message) = rest.split_at(rest.len().min(5));
    let code = u16::from_le_bytes([*low, *high]);
    let message = String::from_utf8_lossy(message).into_owned();
    // Shutdown, killed (of MariaDB, of MySQL, either), and troubles of the network.
    if matches!(code, 1053 | 1927 | 3169 | 1317) || state.starts_with(b"08") {
        return Trouble::Lost(format!("{code}: {message}"));
    }
    Trouble::Refused { code: code.to_string(), message }
}

/// Whether the statement, or the whole transaction, has to be tried again: a deadlock, in an XA transaction too, a wait
/// for a lock that took too long, or a table that is younger than the transaction's snapshot.
pub(crate) fn gives_way(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Refused { code, .. } if matches!(code.as_str(), "1213" | "1614" | "1205" | "1412"))
}
