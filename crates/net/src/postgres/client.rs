//! The client of service connections.

mod notifications;

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use freshet_wire::postgres::frontend;
use freshet_wire::reader::{Malformed, Reader};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::error::{ConnectError, Error, ServerError};
use super::frames::{Frames, MESSAGE_BYTES_MAX, frame};
use super::login::{LoggedIn, Purpose, login, login_at, parameter_status};
use super::open::send_cancel;
use crate::Upstream;
pub use notifications::Notification;

/// Bytes that all rows of one answer may hold.
const ANSWER_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// The cost of one row or value besides its text, so that empty values are bounded, too.
const VALUE_OVERHEAD_BYTES: usize = 24;
/// Time for a cancel request, which is a courtesy.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The prepared statements of a connection; beyond that all are closed.
const PREPARED_MAX: usize = 100;
/// CancelRequest's code ("Message Formats" in the manual).
const CANCEL_CODE: u32 = 80_877_102;

/// Rows in text form; None is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// The answer to one statement: whether it is a result set (without a description, whether it has rows), and its
/// rows.
type Answer = (bool, Rows);

/// The message that the server expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A statement.
    Ready,
    /// None: it answers a statement. At the start of a call this state means that an earlier call was dropped.
    Busy,
    /// Copy data, both ways.
    Copying,
    /// The connection is out of step or closed.
    Dead,
}

/// A service connection to PostgreSQL.
pub struct Client {
    upstream: Arc<Upstream>,
    frames: Frames,
    login: LoggedIn,
    state: State,
    answer_bytes_max: usize,
    prepared: Prepared,
    /// The last answer left a transaction that has failed.
    failed: bool,
    /// Bodies of notifications that have come, if they are kept.
    notifications: Option<VecDeque<Box<[u8]>>>,
}

/// The prepared statements.
#[derive(Default)]
struct Prepared {
    /// The numbers that are their names, by their text.
    names: HashMap<Box<str>, usize>,
    /// Numbers given so far.
    given: usize,
    /// It is uncertain which of them exist.
    uncertain: bool,
}

impl Prepared {
    /// The name of a statement, which is prepared by these messages first if need be.
    fn name(&mut self, sql: &str, messages: &mut Vec<u8>) -> String {
        let number = self.names.get(sql).copied().unwrap_or_else(|| {
            self.given += 1;
            frontend::put_parse(messages, self.given.to_string().as_bytes(), sql.as_bytes());
            self.names.insert(sql.into(), self.given);
            self.given
        });
        number.to_string()
    }

    /// Closes all of them, by these messages.
    fn close(&mut self, messages: &mut Vec<u8>) {
        self.names
            .drain()
            .for_each(|(_, number)| frontend::put_close_statement(messages, number.to_string().as_bytes()));
        self.uncertain = false;
    }
}

impl Client {
    /// Connects and logs in to the first host that fits, within the connect time-out for each.
    pub async fn connect(upstream: &Arc<Upstream>, purpose: Purpose) -> Result<Self, ConnectError> {
        let (frames, login) = login(upstream, purpose).await?;
        Self::logged_in(upstream, frames, login).await
    }

    /// Connects and logs in to this host, whatever it is, within the connect time-out.
    pub async fn connect_to(upstream: &Arc<Upstream>, host: usize) -> Result<Self, ConnectError> {
        let (frames, login) = login_at(upstream, host, Purpose::Sql).await?;
        Self::logged_in(upstream, frames, login).await
    }

    async fn logged_in(upstream: &Arc<Upstream>, frames: Frames, login: LoggedIn) -> Result<Self, ConnectError> {
        let mut client = Self {
            upstream: upstream.clone(),
            frames,
            login,
            state: State::Ready,
            answer_bytes_max: ANSWER_BYTES_MAX,
            prepared: Prepared::default(),
            failed: false,
            notifications: None,
        };
        // A start-up parameter that the server does not know refuses the login, and this one came with version 14.
        if client.server_version() >= 14 {
            let sql = "SELECT pg_catalog.set_config('idle_session_timeout', '0', false)";
            client.query(sql).await.map_err(ConnectError::Protocol)?;
        }
        Ok(client)
    }

    /// The settings that the server reports: `server_version`, `server_encoding`, `in_hot_standby` …
    pub fn parameters(&self) -> &HashMap<String, String> {
        &self.login.parameters
    }

    /// The major version as `server_version` says it, 0 if it does not.
    pub fn server_version(&self) -> u32 {
        let text = self.login.parameters.get("server_version").map(String::as_str).unwrap_or_default();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        text.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(0)
    }

    /// Refuses larger answers from now on; they leave the connection dead.
    pub fn limit_answers(&mut self, bytes_max: usize) {
        self.answer_bytes_max = bytes_max;
    }

    /// Whether the connection can take no further statement.
    pub fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Runs a simple query and returns the rows of its last result set.
    ///
    /// A server error of severity `ERROR` leaves the connection usable and outside a transaction: an open one is
    /// rolled back. After any other error, and after a call that was dropped before it ended, the connection is dead.
    pub async fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        self.start(sql).await?;
        self.end_last().await
    }

    /// Runs one statement with text parameters, by the extended protocol; otherwise as [`Self::query`].
    pub async fn query_with(&mut self, sql: &str, parameters: &[&str]) -> Result<Rows, Error> {
        let mut messages = Vec::new();
        frontend::put_parse(&mut messages, b"", sql.as_bytes());
        frontend::put_bind_execute(&mut messages, b"", parameters);
        frontend::put_sync(&mut messages);
        self.begin(&messages).await?;
        self.end_last().await
    }

    /// As [`Self::query`] with a time limit, after which the statement is cancelled and the connection is dead.
    pub async fn query_timeout(&mut self, sql: &str, limit: Duration) -> Result<Rows, Error> {
        let answer = timeout(limit, self.query(sql)).await;
        self.in_time(answer, limit).await
    }

    /// Runs statements with text parameters and returns the rows of each. Each is prepared the first time and has its
    /// own snapshot. An error of one is an error of all. Otherwise as [`Self::query_timeout`].
    pub async fn query_prepared(
        &mut self,
        statements: &[(&str, Vec<&str>)],
        limit: Duration,
    ) -> Result<Vec<Rows>, Error> {
        let answer = timeout(limit, self.ask_prepared(statements)).await;
        self.in_time(answer, limit).await
    }

    async fn ask_prepared(&mut self, statements: &[(&str, Vec<&str>)]) -> Result<Vec<Rows>, Error> {
        let mut messages = Vec::new();
        if self.prepared.uncertain || self.prepared.names.len() > PREPARED_MAX {
            self.prepared.close(&mut messages);
        }
        for (sql, parameters) in statements {
            let name = self.prepared.name(sql, &mut messages);
            frontend::put_bind_execute(&mut messages, name.as_bytes(), parameters);
        }
        frontend::put_sync(&mut messages);
        self.prepared.uncertain = true; // until all is answered
        self.begin(&messages).await?;
        let answers = self.end().await?;
        self.prepared.uncertain = false;
        if answers.len() != statements.len() {
            return Err(Malformed::Invalid("number of answers").into());
        }
        Ok(answers.into_iter().map(|(_, rows)| rows).collect())
    }

    async fn in_time<T>(&mut self, answer: Result<Result<T, Error>, Elapsed>, limit: Duration) -> Result<T, Error> {
        if let Ok(answer) = answer {
            return answer;
        }
        self.state = State::Dead;
        self.cancel().await;
        Err(Error::Timeout(limit))
    }

    /// Sends messages and passes the server's messages, tag and body, to `heard`, up to and with so many
    /// ReadyForQuery.
    ///
    /// A call that was dropped before it ended leaves the connection dead.
    pub async fn converse(
        &mut self,
        messages: &[u8],
        ready: usize,
        mut heard: impl FnMut(u8, &[u8]),
    ) -> Result<(), Error> {
        self.begin(messages).await?;
        let mut left = ready;
        while left > 0 {
            match self.frames.receive().await {
                Ok((tag, body)) => {
                    left -= usize::from(tag == b'Z');
                    heard(tag, body);
                }
                Err(error) => {
                    self.state = State::Dead;
                    return Err(error);
                }
            }
        }
        self.state = State::Ready;
        Ok(())
    }

    /// Runs a command that answers with CopyBoth, such as START_REPLICATION.
    pub async fn start_copy_both(&mut self, sql: &str) -> Result<(), Error> {
        self.start(sql).await?;
        let mut failure = None;
        let answer = loop {
            match self.receive().await {
                Ok((b'W', _)) if failure.is_none() => break Ok(State::Copying),
                Ok((b'E', body)) if failure.is_none() => match ServerError::decode(body) {
                    Ok(error) => failure = Some(Box::new(error)),
                    Err(error) => break Err(error.into()),
                },
                Ok((b'Z', _)) => match failure.take() {
                    Some(error) => {
                        self.state = State::Ready;
                        return Err(Error::Server(error));
                    }
                    None => break Err(Error::Unexpected(b'Z')),
                },
                Ok((tag, _)) => break Err(Error::Unexpected(tag)),
                Err(error) => break Err(failure.map_or(error, Error::Server)),
            }
        };
        self.state = *answer.as_ref().unwrap_or(&State::Dead);
        answer.map(|_| ())
    }

    /// The next piece of copy data, lent until the next call. Cancel-safe: a dropped call loses nothing.
    pub async fn recv_copy(&mut self) -> Result<&[u8], Error> {
        if self.state != State::Copying {
            return Err(Error::Dead);
        }
        // The state is set back once a whole message of copy data was seen, so every other way out leaves it dead
        // except a drop, which happens inside `receive` only.
        match Self::receive_on(&mut self.frames, &mut self.login.parameters, &mut self.notifications).await {
            Ok((b'd', body)) => Ok(body),
            other => {
                self.state = State::Dead;
                Err(match other {
                    // A walsender whose server shuts down says that the command is complete.
                    Ok((b'c' | b'C', _)) => Error::CopyDone,
                    Ok((b'E', body)) => {
                        ServerError::decode(body).map_or_else(Error::Malformed, |e| Error::Server(Box::new(e)))
                    }
                    Ok((tag, _)) => Error::Unexpected(tag),
                    Err(error) => error,
                })
            }
        }
    }

    /// Whether [`Self::recv_copy`] would return data without waiting.
    pub fn has_copy_buffered(&self) -> bool {
        self.state == State::Copying && matches!(self.frames.buffered_tag(), Ok(Some(b'd')))
    }

    /// Sends one piece of copy data. Not cancel-safe: a dropped call leaves the connection dead.
    pub async fn send_copy(&mut self, data: &[u8]) -> Result<(), Error> {
        if self.state != State::Copying {
            return Err(Error::Dead);
        }
        self.state = State::Dead;
        self.frames.send(&frame(b'd', data)).await?;
        self.state = State::Copying;
        Ok(())
    }

    /// Says goodbye. Dropping the client closes the socket too, which the server logs.
    pub async fn close(mut self) {
        if matches!(self.state, State::Ready | State::Copying) {
            let _ = timeout(CANCEL_TIMEOUT, self.frames.send(&frame(b'X', &[]))).await;
        }
    }

    /// Asks the server to cancel the running statement, on a connection of its own. Best effort.
    async fn cancel(&self) {
        let Some(key) = &self.login.cancel_key else { return };
        let mut message = (key.len() as u32 + 8).to_be_bytes().to_vec();
        message.extend_from_slice(&CANCEL_CODE.to_be_bytes());
        message.extend_from_slice(key);
        let send = send_cancel(&self.upstream, self.login.host, &message);
        let _ = timeout(CANCEL_TIMEOUT, send).await;
    }

    async fn start(&mut self, sql: &str) -> Result<(), Error> {
        if sql.contains('\0') || sql.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed::Invalid("statement").into());
        }
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        self.begin(&frame(b'Q', &body)).await
    }

    /// Sends messages that the server answers up to a ReadyForQuery.
    async fn begin(&mut self, messages: &[u8]) -> Result<(), Error> {
        if self.state != State::Ready {
            self.state = State::Dead;
            return Err(Error::Dead);
        }
        self.state = State::Busy;
        if let Err(error) = self.frames.send(messages).await {
            self.state = State::Dead;
            return Err(error.into());
        }
        Ok(())
    }

    /// The rows of the last result set.
    async fn end_last(&mut self) -> Result<Rows, Error> {
        let last = self.end().await?.into_iter().rfind(|(is_result_set, _)| *is_result_set);
        Ok(last.map(|(_, rows)| rows).unwrap_or_default())
    }

    async fn end(&mut self) -> Result<Vec<Answer>, Error> {
        let answer = self.answer().await;
        self.note_end(&answer);
        if self.state == State::Ready && self.failed {
            self.start("ROLLBACK").await?;
            let ended = self.answer().await;
            self.note_end(&ended);
            ended?;
        }
        answer
    }

    fn note_end(&mut self, answer: &Result<Vec<Answer>, Error>) {
        self.state = match answer {
            Ok(_) => State::Ready,
            Err(Error::Server(error)) if error.severity == "ERROR" => State::Ready,
            Err(_) => State::Dead,
        };
    }

    async fn receive(&mut self) -> Result<(u8, &[u8]), Error> {
        Self::receive_on(&mut self.frames, &mut self.login.parameters, &mut self.notifications).await
    }

    /// The next message that is neither a notice nor a report.
    async fn receive_on<'a>(
        frames: &'a mut Frames,
        parameters: &mut HashMap<String, String>,
        notifications: &mut Option<VecDeque<Box<[u8]>>>,
    ) -> Result<(u8, &'a [u8]), Error> {
        loop {
            frames.wait().await?;
            match frames.peek_tag() {
                Some(b'A') if notifications.is_some() => {
                    let (_, body) = frames.take()?;
                    notifications.get_or_insert_default().push_back(body.into());
                }
                Some(b'S') => {
                    let (_, body) = frames.take()?;
                    let (name, value) = parameter_status(body)?;
                    parameters.insert(name, value);
                }
                Some(b'N' | b'A') => drop(frames.take()?),
                _ => return frames.take(),
            }
        }
    }

    /// Reads an answer up to a ReadyForQuery.
    async fn answer(&mut self) -> Result<Vec<Answer>, Error> {
        let mut answers = Vec::new();
        let (mut is_result_set, mut rows) = (false, Rows::new());
        let mut failure = None;
        let mut bytes = 0_usize;
        loop {
            let (tag, body) = match self.receive().await {
                Ok(message) => message,
                // A FATAL error says why the connection closed.
                Err(error) => return Err(failure.map_or(error, Error::Server)),
            };
            match tag {
                b'T' => is_result_set = true,
                b'D' => {
                    is_result_set = true;
                    let row = data_row(body)?;
                    bytes = bytes.saturating_add(body.len() + (row.len() + 1) * VALUE_OVERHEAD_BYTES);
                    if bytes > self.answer_bytes_max {
                        return Err(Error::TooLarge(self.answer_bytes_max));
                    }
                    rows.push(row);
                }
                b'C' | b'I' => answers.push((mem::take(&mut is_result_set), mem::take(&mut rows))),
                b'1' | b'2' | b'3' => {}
                b'E' if failure.is_none() => failure = Some(Box::new(ServerError::decode(body)?)),
                b'Z' => {
                    self.failed = body == b"E";
                    return failure.map_or(Ok(answers), |error| Err(Error::Server(error)));
                }
                other => return Err(Error::Unexpected(other)),
            }
        }
    }
}

/// Decodes a DataRow whose values are text.
fn data_row(body: &[u8]) -> Result<Vec<Option<String>>, Error> {
    let mut reader = Reader::new(body);
    let columns = reader.u16("column count")?;
    let mut row = Vec::new();
    for _ in 0..columns {
        let length = reader.i32("value length")?;
        if length == -1 {
            row.push(None);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| Malformed::Invalid("value length"))?;
        let text = std::str::from_utf8(reader.bytes(length, "value")?);
        row.push(Some(text.map_err(|_| Malformed::Invalid("value"))?.to_owned()));
    }
    reader.finish()?;
    Ok(row)
}
