//! A session with little overhead: one buffer in each direction, answers of integers only, any number of statements at once.
//!
//! A driver would do, but a soak needs a million checked reads, and the forms of statements (unnamed, named, text, binary, pipelined with one Sync or
//! many) must be chosen one by one, not by a driver.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use crate::support::{Login, RawClient, frames};

/// No answer within this time is a failure. Commits may have to wait for a stopped standby.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is lost; it is unknown whether the last statement was executed.
    Lost(String),
    /// The server refuses. It has done nothing.
    Refused { code: String, message: String },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(how) => write!(f, "the connection was lost: {how}"),
            Self::Refused { code, message } => write!(f, "{code}: {message}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl Trouble {
    /// Whether the server resolved a deadlock by this error.
    pub(crate) fn is_deadlock(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(Self::Refused { code, .. }) if code == "40P01")
    }
}

pub(crate) type Cells = [Option<i64>];

/// What the server answered, statement by statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    cells: Vec<Option<i64>>,
    /// Where each row ends in `cells`.
    rows: Vec<usize>,
    /// Where each statement ends in `rows`.
    statements: Vec<usize>,
}

impl Answer {
    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.rows.clear();
        self.statements.clear();
    }

    /// The rows of the n-th statement.
    pub(crate) fn rows(&self, statement: usize) -> impl Iterator<Item = &Cells> {
        let end_of = |ends: &[usize], at: usize| at.checked_sub(1).map_or(0, |before| ends[before]);
        let range = match self.statements.get(statement) {
            Some(end) => end_of(&self.statements, statement)..*end,
            None => 0..0,
        };
        range.map(move |row| &self.cells[end_of(&self.rows, row)..self.rows[row]])
    }

    /// The rows of the n-th statement, sorted, to be compared.
    pub(crate) fn sorted(&self, statement: usize) -> Vec<Vec<Option<i64>>> {
        let mut rows: Vec<_> = self.rows(statement).map(<[_]>::to_vec).collect();
        rows.sort();
        rows
    }

    /// The next cell of the row.
    pub(crate) fn push(&mut self, cell: Option<i64>) {
        self.cells.push(cell);
    }

    pub(crate) fn end_row(&mut self) {
        self.rows.push(self.cells.len());
    }

    pub(crate) fn end_statement(&mut self) {
        self.statements.push(self.rows.len());
    }

    fn push_row(&mut self, body: &[u8], binary: bool) -> Option<()> {
        let (count, mut rest) = body.split_first_chunk::<2>()?;
        for _ in 0..u16::from_be_bytes(*count) {
            let (length, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                self.cells.push(None);
                continue;
            };
            let (value, after) = rest.split_at_checked(length)?;
            rest = after;
            let number = match (binary, length) {
                (true, 4) => i32::from_be_bytes(value.try_into().ok()?).into(),
                (true, 8) => i64::from_be_bytes(value.try_into().ok()?),
                (true, _) => return None,
                (false, _) => std::str::from_utf8(value).ok()?.parse().ok()?,
            };
            self.cells.push(Some(number));
        }
        self.end_row();
        Some(())
    }
}

/// The connection.
pub(crate) struct Line {
    socket: TcpStream,
    out: Vec<u8>,
    received: Vec<u8>,
    taken: usize,
    /// Whether each statement on its way answers in binary.
    formats: Vec<bool>,
    answer: Answer,
    /// The server's process, if it was asked for.
    pub(crate) backend: i64,
}

impl Line {
    pub(crate) fn open(address: SocketAddr, login: Login<'_>) -> Result<Self, Trouble> {
        let lost = |error: &dyn fmt::Display| Trouble::Lost(error.to_string());
        let client = RawClient::login(address, login).map_err(|error| lost(&format!("{error:#}")))?;
        let socket = client.socket().map_err(|error| lost(&error))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(|error| lost(&error))?;
        Ok(Self {
            socket,
            out: Vec::new(),
            received: Vec::new(),
            taken: 0,
            formats: Vec::new(),
            answer: Answer::default(),
            backend: 0,
        })
    }

    /// Asks for the server's process. A session that knows it shares its server connection with no other.
    pub(crate) fn ask_backend(&mut self) -> Result<(), Trouble> {
        self.simple("select pg_backend_pid()")?;
        self.backend = self.answer.rows(0).next().and_then(|row| row.first().copied().flatten()).unwrap_or_default();
        Ok(())
    }

    /// Something to be sent as it is.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        self.out.extend(frame);
    }

    /// Bind and Execute of a statement with integers, all in binary or all as text.
    pub(crate) fn push_execute(&mut self, statement: &str, values: &[i32], binary: bool) {
        self.formats.push(binary);
        let start = self.out.len() + 1;
        self.out.extend([b'B', 0, 0, 0, 0, 0]);
        self.out.extend(statement.as_bytes());
        let format = [0, 1, 0, u8::from(binary)];
        self.out.push(0);
        self.out.extend(format);
        self.out.extend((values.len() as u16).to_be_bytes());
        for value in values {
            if binary {
                self.out.extend(4_u32.to_be_bytes());
                self.out.extend(value.to_be_bytes());
            } else {
                let text = value.to_string();
                self.out.extend((text.len() as u32).to_be_bytes());
                self.out.extend(text.as_bytes());
            }
        }
        self.out.extend(format);
        let length = (self.out.len() - start) as u32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        self.push(&frames::execute("", 0));
    }

    /// A simple query.
    pub(crate) fn simple(&mut self, sql: &str) -> Result<&Answer, Trouble> {
        self.push(&frames::query(sql));
        self.wait(1)
    }

    /// The same by the extended protocol.
    pub(crate) fn extended(&mut self, sql: &str) -> Result<&Answer, Trouble> {
        self.push(&[frames::unnamed(sql, &[]), frames::sync()].concat());
        self.wait(1)
    }

    /// Sends all that was pushed and reads up to the n-th ReadyForQuery.
    pub(crate) fn wait(&mut self, ready: usize) -> Result<&Answer, Trouble> {
        let outcome = self.socket.write_all(&self.out);
        self.out.clear();
        self.answer.clear();
        outcome.map_err(|error| Trouble::Lost(format!("sending: {error}")))?;
        let (mut refused, mut left) = (None, ready);
        while left > 0 {
            let (tag, body) = self.message()?;
            let body = &self.received[body];
            match tag {
                b'D' => {
                    let binary = self.formats.get(self.answer.statements.len()).is_some_and(|binary| *binary);
                    let odd = || Trouble::Lost(format!("odd row {}", body.escape_ascii()));
                    self.answer.push_row(body, binary).ok_or_else(odd)?;
                }
                b'C' => self.answer.end_statement(),
                b'E' => {
                    let error = trouble(body);
                    if matches!(error, Trouble::Lost(_)) {
                        return Err(error);
                    }
                    refused.get_or_insert(error);
                }
                b'Z' => left -= 1,
                _ => {}
            }
        }
        self.formats.clear();
        refused.map_or(Ok(&self.answer), Err)
    }

    fn message(&mut self) -> Result<(u8, Range<usize>), Trouble> {
        loop {
            if let Some((head, rest)) = self.received[self.taken..].split_first_chunk::<5>() {
                let [tag, length @ ..] = *head;
                let length = u32::from_be_bytes(length).saturating_sub(4) as usize;
                if rest.len() >= length {
                    let start = self.taken + 5;
                    self.taken = start + length;
                    return Ok((tag, start..self.taken));
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

/// What an ErrorResponse means. After some of them the connection is closed.
fn trouble(body: &[u8]) -> Trouble {
    let field = |name: u8| {
        let found = body.split(|byte| *byte == 0).find(|part| part.first() == Some(&name));
        String::from_utf8_lossy(found.and_then(|part| part.get(1..)).unwrap_or_default()).into_owned()
    };
    let (code, message) = (field(b'C'), field(b'M'));
    if code.starts_with("57P") || code.starts_with("08") || field(b'V') == "FATAL" {
        return Trouble::Lost(format!("{code}: {message}"));
    }
    Trouble::Refused { code, message }
}
