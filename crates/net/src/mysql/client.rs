//! The client of Freshet's own connections.

use std::time::Duration;

use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::ok::{EOF_MARK, Eof, OK_MARK, Ok as OkPacket};
use freshet_wire::mysql::{command, error, result};
use freshet_wire::reader::{Malformed, Reader};
use tokio::time::{Instant, timeout};

use super::error::{ConnectError, Error, ServerError};
use super::login::{LoggedIn, login};
use super::packets::Packets;
use super::role;
use super::upstream::Upstream;
use super::version::ServerVersion;

/// Bytes that all rows of one answer may hold.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Memory of one row or value beside its text, counted so that the number of empty values is bounded too.
const VALUE_OVERHEAD_BYTES: usize = 24;
/// Time limit of what is not necessary: a COM_QUIT, and a KILL QUERY for a statement that no caller waits for.
const COURTESY_TIMEOUT: Duration = Duration::from_secs(1);

/// Rows in text form; None is NULL.
pub type Rows = Vec<Vec<Option<String>>>;
/// Rows whose values need not be text.
pub type ByteRows = Vec<Vec<Option<Vec<u8>>>>;

/// What the server expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A command.
    Ready,
    /// Nothing: a command is running. In this state at the start of a call, an earlier call was dropped.
    Busy,
    /// Nothing: the caller has sent a command and reads the answer.
    Raw,
    /// The connection is out of step or closed.
    Dead,
}

/// Interval of looks for the primary before there is a change stream.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// Time for the answer of a host that has not answered lately.
const SILENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection of Freshet's own.
pub struct Client {
    upstream: Upstream,
    /// The place of the host that it leads to.
    host: usize,
    packets: Packets,
    connection_id: u32,
    server: ServerVersion,
    state: State,
    answer_bytes_max: usize,
}

impl Client {
    /// Connects and logs in to the host in use, as soon as there is one, within the connect time-out.
    pub async fn connect(upstream: &Upstream) -> Result<Self, ConnectError> {
        loop {
            let host = Self::wait_for_primary(upstream).await?;
            if let Some(client) = upstream.hosts().while_chosen(host, Self::connect_to(upstream, host)).await {
                return client;
            }
        }
    }

    /// Returns once the host to use is known, or with an error after the connect time-out. While there has been no change stream, looks for it.
    pub async fn wait_for_primary(upstream: &Upstream) -> Result<usize, ConnectError> {
        let (hosts, until) = (upstream.hosts(), Instant::now() + upstream.connect_timeout());
        loop {
            let is_free = hosts.are_free();
            if is_free {
                Self::choose_before_stream(upstream).await;
            }
            let rest = until.saturating_duration_since(Instant::now());
            if let Some(host) = hosts.wait(if is_free { rest.min(SEARCH_EVERY) } else { rest }).await {
                return Ok(host);
            }
            if Instant::now() >= until {
                return Err(ConnectError::NoPrimary);
            }
        }
    }

    /// Nothing is cached yet. If several hosts can be written, the change stream must tell which is right.
    async fn choose_before_stream(upstream: &Upstream) {
        let hosts = upstream.hosts();
        let mut last = hosts.last_search().lock().await;
        if !hosts.are_free() || last.is_some_and(|last| last.elapsed() < SEARCH_EVERY) {
            return;
        }
        let (mut primaries, mut spare) = (Vec::new(), Vec::new());
        for host in hosts.candidates() {
            if let Ok(Ok(Some((client, receives)))) = timeout(SILENT_TIMEOUT, Self::ask_at(upstream, host)).await {
                client.close().await;
                // It may be a replica that lacks read_only.
                if receives { &mut spare } else { &mut primaries }.push(host);
            }
        }
        *last = Some(Instant::now());
        let found = if primaries.is_empty() { spare } else { primaries };
        if let [only] = found[..] {
            hosts.choose_before_stream(only);
        }
    }

    /// Connects and logs in to the primary, within the connect time-out for each host; it is the host in use from now on. One in use stays so until
    /// it is found not to be the primary. Only for the change stream before it begins, and for programs without one.
    pub async fn connect_to_primary(upstream: &Upstream) -> Result<Self, ConnectError> {
        if !upstream.has_several_hosts() {
            return Self::connect_to(upstream, 0).await;
        }
        if let Some(host) = upstream.chosen() {
            let found = upstream.hosts().while_chosen(host, Self::ask_at(upstream, host)).await;
            match found.transpose()? {
                Some(Some((client, _))) => return Ok(client),
                Some(None) => drop(upstream.reject(host)),
                None => {}
            }
        }
        let (mut last, mut spare) = (None, None);
        for host in upstream.hosts().candidates() {
            // One that was silent a moment ago must not hold up the others.
            let limit = if upstream.hosts().is_silent(host) { SILENT_TIMEOUT } else { Duration::MAX };
            let Ok(asked) = timeout(limit, Self::ask_at(upstream, host)).await else {
                last = Some(ConnectError::Timeout(limit));
                continue; // it has more time again behind its rest
            };
            match asked {
                // It may be a replica that lacks read_only.
                Ok(Some((client, true))) => spare = spare.or(Some(client)),
                Ok(Some((client, false))) if upstream.choose(host) => return Ok(client),
                Ok(_) => {}
                Err(error) => {
                    upstream.note_silent(host);
                    last = Some(error);
                }
            }
        }
        match spare {
            Some(client) if upstream.choose(client.host) => Ok(client),
            _ => Err(last.unwrap_or(ConnectError::NoPrimary)),
        }
    }

    /// The place of the host that it leads to.
    pub fn host(&self) -> usize {
        self.host
    }

    /// Connects and logs in to this host, whatever it is, within the connect time-out.
    pub async fn connect_to(upstream: &Upstream, host: usize) -> Result<Self, ConnectError> {
        let LoggedIn { packets, handshake } = login(upstream, host).await?;
        let server = ServerVersion::parse(&handshake.server_version);
        let (upstream, connection_id) = (upstream.clone(), handshake.connection_id);
        let (state, answer_bytes_max) = (State::Ready, ANSWER_BYTES_MAX);
        Ok(Self { upstream, host, packets, connection_id, server, state, answer_bytes_max })
    }

    /// Connects to a host, and asks whether it receives from another server; None: it is not the primary.
    async fn ask_at(upstream: &Upstream, host: usize) -> Result<Option<(Self, bool)>, ConnectError> {
        let mut client = Self::connect_to(upstream, host).await?;
        let limit = upstream.connect_timeout();
        if client.ask_for_primary(limit).await.map_err(ConnectError::Protocol)? {
            let (receives, _) = client.ask_for_source(limit).await.map_err(ConnectError::Protocol)?;
            return Ok(Some((client, receives)));
        }
        client.close().await;
        Ok(None)
    }

    /// Asks whether the server is the primary.
    pub async fn ask_for_primary(&mut self, limit: Duration) -> Result<bool, Error> {
        let rows = self.query_timeout(role::READ_ONLY, limit).await?;
        let is_writable = matches!(rows.first().map(Vec::as_slice), Some([Some(value)]) if role::is_off(value));
        Ok(is_writable && !self.ask_for_secondary(limit).await?)
    }

    /// Asks whether the server is a secondary of a group. An account that may not know it takes the server for no member: secondaries are read-only,
    /// too.
    pub async fn ask_for_secondary(&mut self, limit: Duration) -> Result<bool, Error> {
        if self.server.is_mariadb {
            return Ok(false);
        }
        match self.query_timeout(role::GROUP, limit).await {
            Err(Error::Server(_)) => Ok(false),
            rows => Ok(rows?.first().is_some_and(|member| role::is_secondary(member))),
        }
    }

    /// Asks whether the server receives from another one, and how many seconds it is behind it: empty if that is not known.
    pub async fn ask_for_source(&mut self, limit: Duration) -> Result<(bool, String), Error> {
        let is_mariadb = self.server.is_mariadb;
        match self.query_timeout(role::source_question(&self.server), limit).await {
            // MariaDB wants another right for it than for the rest.
            Err(Error::Server(_)) if is_mariadb => {
                let rows = self.query_timeout(role::REPLICAS_RUNNING, limit).await?;
                Ok((role::are_running(&rows), String::new()))
            }
            Err(Error::Server(_)) => Ok((false, String::new())),
            rows => Ok(role::source(&rows?)),
        }
    }

    /// The server's kind and version.
    pub fn server(&self) -> &ServerVersion {
        &self.server
    }

    /// The connection's id at the server, from the handshake (32 bits of it).
    pub fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// From now on, an answer of more bytes is refused and leaves the connection dead.
    pub fn limit_answers(&mut self, bytes_max: usize) {
        self.answer_bytes_max = bytes_max;
    }

    /// Whether the connection can take no further command.
    pub fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Runs a statement as text and returns the rows of its last result set.
    ///
    /// A server error leaves the connection usable; after anything else, and after a call that was dropped before it
    /// ended, it is dead.
    pub async fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        let rows = self.query_bytes(sql).await?;
        rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
    }

    /// As [`Self::query`], with values as bytes.
    pub async fn query_bytes(&mut self, sql: &str) -> Result<ByteRows, Error> {
        let mut payload = vec![command::QUERY];
        payload.extend_from_slice(sql.as_bytes());
        self.start(&payload, State::Busy).await?;
        let answer = self.answer().await;
        self.end(answer)
    }

    /// As [`Self::query`] with a time limit, after which the statement is killed and the connection is dead.
    pub async fn query_timeout(&mut self, sql: &str, limit: Duration) -> Result<Rows, Error> {
        let rows = self.query_bytes_timeout(sql, limit).await?;
        rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
    }

    /// As [`Self::query_timeout`], with values as bytes.
    pub async fn query_bytes_timeout(&mut self, sql: &str, limit: Duration) -> Result<ByteRows, Error> {
        if let Ok(answer) = timeout(limit, self.query_bytes(sql)).await {
            return answer;
        }
        self.state = State::Dead;
        let _ = timeout(COURTESY_TIMEOUT, self.kill_query()).await;
        Err(Error::Timeout(limit))
    }

    /// Sends a command that the server answers with OK or ERR alone.
    pub async fn command(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.start(payload, State::Busy).await?;
        let answer = match self.packets.receive().await {
            Ok(payload) => match payload.first() {
                Some(&(OK_MARK | EOF_MARK)) => Ok(()),
                _ => Err(unexpected(&payload)),
            },
            Err(error) => Err(error),
        };
        self.end(answer)
    }

    /// Sends a command. The caller reads the answer with [`Self::receive_packet`], and the connection cannot be used for anything else afterwards.
    /// Not cancel-safe: a dropped call leaves the connection dead.
    pub async fn send_command(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.start(payload, State::Raw).await
    }

    /// The payload of the next packet after [`Self::send_command`], joined if several packets carry it. Cancel-safe. An ERR packet is
    /// [`Error::Server`] and ends the answer.
    pub async fn receive_packet(&mut self) -> Result<Vec<u8>, Error> {
        if self.state != State::Raw {
            self.state = State::Dead;
            return Err(Error::Dead);
        }
        let failure = match self.packets.receive().await {
            Ok(payload) if payload.first() == Some(&error::MARK) => unexpected(&payload),
            Ok(payload) => return Ok(payload),
            Err(error) => error,
        };
        self.state = State::Dead;
        Err(failure)
    }

    /// Whether [`Self::receive_packet`] would return without waiting.
    pub fn has_packet_buffered(&self) -> bool {
        self.state == State::Raw && self.packets.has_buffered()
    }

    /// Sends a packet of the caller while it reads an answer, such as a semi-synchronous replica's acknowledgement. Not cancel-safe.
    pub async fn send_packet(&mut self, payload: &[u8]) -> Result<(), Error> {
        if self.state != State::Raw {
            self.state = State::Dead;
            return Err(Error::Dead);
        }
        self.state = State::Dead;
        self.packets.send_command(payload).await?;
        self.state = State::Raw;
        Ok(())
    }

    /// Sends COM_QUIT. If the client is dropped instead, the socket closes too, but the server counts an aborted connection.
    pub async fn close(mut self) {
        if self.state == State::Ready {
            let _ = timeout(COURTESY_TIMEOUT, self.packets.send_command(&[command::QUIT])).await;
        }
    }

    /// Kills the running statement, over a second connection. Best effort.
    async fn kill_query(&self) {
        // Boxed: this client's future would contain itself otherwise.
        if let Ok(mut other) = Box::pin(Self::connect_to(&self.upstream, self.host)).await {
            let _ = Box::pin(other.query(&format!("KILL QUERY {}", self.connection_id))).await;
        }
    }

    async fn start(&mut self, payload: &[u8], next: State) -> Result<(), Error> {
        let was_ready = self.state == State::Ready;
        self.state = State::Dead;
        if !was_ready {
            return Err(Error::Dead);
        }
        self.packets.send_command(payload).await?;
        self.state = next;
        Ok(())
    }

    fn end<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        self.state = match &answer {
            Ok(_) | Err(Error::Server(_)) => State::Ready,
            Err(_) => State::Dead,
        };
        answer
    }

    /// Reads all results of a COM_QUERY.
    async fn answer(&mut self) -> Result<ByteRows, Error> {
        let mut rows = ByteRows::new();
        let mut bytes = 0;
        loop {
            let first = self.receive().await?;
            let status = match first.first() {
                Some(&OK_MARK) => OkPacket::parse(&first, Capabilities::default())?.status,
                Some(0xfb) => return Err(Malformed::Invalid("request for a file").into()),
                _ => {
                    let mut reader = Reader::new(&first);
                    let columns = reader.lenenc("column count")?;
                    reader.finish()?;
                    rows.clear();
                    self.result_set(columns, &mut rows, &mut bytes).await?
                }
            };
            if !status.has(Status::MORE_RESULTS_EXISTS) {
                return Ok(rows);
            }
        }
    }

    async fn result_set(&mut self, columns: u64, rows: &mut ByteRows, bytes: &mut usize) -> Result<Status, Error> {
        for _ in 0..columns {
            self.receive().await?;
        }
        Eof::parse(&self.receive().await?)?;
        loop {
            let payload = self.receive().await?;
            if payload.first() == Some(&EOF_MARK) && payload.len() < Eof::LIMIT_BYTES {
                return Ok(Eof::parse(&payload)?.status);
            }
            let values = result::text_row(&payload, columns)?;
            *bytes = bytes.saturating_add(payload.len() + (values.len() + 1) * VALUE_OVERHEAD_BYTES);
            if *bytes > self.answer_bytes_max {
                return Err(Error::TooLarge(self.answer_bytes_max));
            }
            rows.push(values.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect());
        }
    }

    /// The next packet that is neither an error nor a progress report.
    async fn receive(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            let payload = self.packets.receive().await?;
            if payload.first() != Some(&error::MARK) {
                return Ok(payload);
            }
            let failure = unexpected(&payload);
            if failure.code() != Some(error::PROGRESS) {
                return Err(failure);
            }
        }
    }
}

/// The error of an ERR packet, or of an unexpected packet.
fn unexpected(payload: &[u8]) -> Error {
    match ServerError::decode(payload) {
        Ok(error) => Error::Server(Box::new(error)),
        Err(error) => Error::Malformed(error),
    }
}

/// A value as text. The connection's character set is UTF-8, and Freshet's own queries return text only.
fn text(value: Option<Vec<u8>>) -> Result<Option<String>, Error> {
    value.map(String::from_utf8).transpose().map_err(|_| Malformed::Invalid("value").into())
}
