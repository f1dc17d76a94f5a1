//! A connection with capabilities chosen by the test; [`Response`] follows its answers in small pieces.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use freshet_net::Socket;
use freshet_net::mysql::{Upstream, auth, open};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::handshake::{self, AuthReply, HandshakeResponse};
use freshet_wire::mysql::ok;
use freshet_wire::mysql::packet::{self, Whole};
use freshet_wire::mysql::response::{Answer, Done, Kind, Response, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The capabilities of every connection here.
const BASE: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0,
);

pub(crate) struct Raw {
    socket: Socket,
    inbound: Vec<u8>,
    pub(crate) capabilities: Capabilities,
    /// Determines where the next pieces end.
    seed: u64,
    password: String,
    /// Their largest size.
    pub(crate) piece_bytes_max: usize,
}

/// A whole answer.
pub(crate) struct Told {
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Done,
    /// Payload of the last packet.
    pub(crate) last: Vec<u8>,
}

impl Raw {
    pub(crate) async fn login(url: &str, wanted: Capabilities) -> Result<Self> {
        let upstream = Upstream::parse(url)?;
        let opened = open(&upstream).await?;
        let hello = opened.parse()?;
        let mut capabilities = BASE.with(wanted) & hello.capabilities;
        if hello.capabilities.has(Capabilities::MYSQL) {
            capabilities = capabilities.with(Capabilities::MYSQL);
        }
        let proof = auth::native_proof(upstream.password().expose(), &hello.nonce);
        let response = HandshakeResponse {
            capabilities,
            packet_bytes_max: 1 << 30,
            character_set: 45,
            user: upstream.user().as_bytes(),
            proof: &proof,
            database: upstream.database().map(str::as_bytes),
            plugin: Some(handshake::NATIVE),
            ..HandshakeResponse::default()
        };
        let mut payload = Vec::new();
        response.put(&mut payload);
        let password = upstream.password().expose().to_owned();
        let mut raw = Self {
            password,
            socket: opened.socket,
            inbound: Vec::new(),
            capabilities,
            seed: 1,
            piece_bytes_max: 100_000,
        };
        let mut sequence = 1;
        raw.send(&mut sequence, &payload).await?;
        loop {
            let (sequence, payload) = raw.packet().await?;
            match AuthReply::parse(&payload)? {
                AuthReply::Ok => return Ok(raw),
                AuthReply::Switch(switch) => {
                    let proof = auth::native_proof(upstream.password().expose(), switch.nonce());
                    raw.send(&mut sequence.wrapping_add(1), &proof).await?;
                }
                other => bail!("{other:?} {}", payload.escape_ascii()),
            }
        }
    }

    pub(crate) async fn send(&mut self, sequence: &mut u8, payload: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        packet::put(&mut out, sequence, payload);
        self.socket.write_all(&out).await?;
        Ok(())
    }

    async fn packet(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            if let Some(whole) = Whole::find(&self.inbound) {
                let payload = whole.payload(&self.inbound).into_owned();
                self.inbound.drain(..whole.bytes);
                return Ok((whole.sequence, payload));
            }
            ensure!(self.socket.read_buf(&mut self.inbound).await? > 0, "closed");
        }
    }

    /// Sends a command and follows its answer; sends `file` if one is requested.
    pub(crate) async fn ask_with_file(&mut self, payload: &[u8], file: &[&[u8]]) -> Result<Told> {
        self.send(&mut 0, payload).await?;
        let Answer::Packets(kind) = Answer::to(payload) else { bail!("{:#x} has no answer", payload[0]) };
        let mut response = Response::new(kind, self.capabilities);
        let mut bytes = Vec::new();
        let mut given = 0;
        loop {
            // The scanner gets the bytes in small and in large pieces.
            given = (given + self.piece()).min(self.inbound.len());
            let scanned = response.scan(&self.inbound[..given])?;
            ensure!(given - scanned.consumed <= 70_000, "{} bytes are held back", given - scanned.consumed);
            bytes.extend_from_slice(&self.inbound[..scanned.consumed]);
            let front: Vec<u8> = self.inbound.drain(..scanned.consumed).collect();
            given -= scanned.consumed;
            match scanned.step {
                Step::Continue if kind == Kind::Login && front.len() > 4 => self.prove(&front).await?,
                Step::Continue => {}
                Step::SendFile => {
                    ensure!(self.inbound.is_empty(), "more behind the request for a file");
                    let mut sequence = front[3].wrapping_add(1);
                    for part in file.iter().chain([&&b""[..]]) {
                        self.send(&mut sequence, part).await?;
                    }
                }
                Step::Done(done) => {
                    ensure!(self.inbound.is_empty(), "{} bytes behind the answer's end", self.inbound.len());
                    ensure!(done.bytes == bytes.len() as u64, "{} bytes counted of {}", done.bytes, bytes.len());
                    let last = front[done.last.clone()].to_vec();
                    return Ok(Told { bytes, done, last });
                }
            }
            if given == self.inbound.len() {
                let read = self.socket.read_buf(&mut self.inbound);
                let read = tokio::time::timeout(Duration::from_secs(30), read).await;
                ensure!(read.context("the answer has ended, and it was not seen")?? > 0, "closed");
            }
        }
    }

    /// Answers a request for another proof.
    async fn prove(&mut self, packets: &[u8]) -> Result<()> {
        let AuthReply::Switch(switch) = AuthReply::parse(&packets[4..])? else { bail!("{}", packets.escape_ascii()) };
        // For an unknown user MySQL claims another plugin.
        let is_native = switch.plugin == handshake::NATIVE;
        let proof = if is_native { auth::native_proof(&self.password, switch.nonce()) } else { Vec::new() };
        self.send(&mut packets[3].wrapping_add(1), &proof).await
    }

    fn piece(&mut self) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = (self.seed >> 33) as usize;
        if random.is_multiple_of(3) { 1 + random % 7 } else { 1 + random % self.piece_bytes_max }
    }

    /// Sends a command, follows its answer, and checks that the next command's answer is in the right place.
    pub(crate) async fn ask(&mut self, payload: &[u8]) -> Result<Told> {
        let told = self.ask_with_file(payload, &[]).await.with_context(|| payload.escape_ascii().to_string())?;
        check(&told, self.capabilities)?;
        let pong = self.ask_with_file(b"\x0e", &[]).await.with_context(|| payload.escape_ascii().to_string())?;
        ensure!(pong.done.error.is_none() && pong.done.results == 1, "{:?}", pong.done);
        Ok(told)
    }

    pub(crate) async fn query(&mut self, sql: &str) -> Result<Told> {
        self.ask(&command(0x03, sql.as_bytes())).await
    }
}

/// The conditions that every answer must meet.
fn check(told: &Told, capabilities: Capabilities) -> Result<()> {
    let words: Vec<Status> = told.done.status_places.iter().map(|at| status_at(&told.bytes, *at)).collect();
    if told.done.error.is_none() && told.done.status_places.len() < 4 {
        ensure!(words.last().copied() == told.done.status, "{words:?} {:?}", told.done);
    }
    ensure!(words.iter().all(|word| word.has(Status::AUTOCOMMIT)), "no status words: {words:?}");
    let is_ok = matches!(told.last.first(), Some(0x00 | 0xfe)) && told.last.len() >= 7;
    if is_ok && told.done.prepared.is_none() {
        let read = ok::Ok::parse(&told.last, capabilities).context("the OK packet")?;
        ensure!(Some(read.status) == told.done.status && read.warnings == told.done.warnings, "{read:?}");
        ok::state_changes(read.state).context("what changed in the session")?;
    }
    if told.done.error.is_some() {
        ensure!(told.last.first() == Some(&0xff), "{}", told.last.escape_ascii());
    }
    Ok(())
}

pub(crate) fn status_at(bytes: &[u8], place: u64) -> Status {
    let at = usize::try_from(place).expect("small");
    Status(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

pub(crate) fn command(tag: u8, rest: &[u8]) -> Vec<u8> {
    [&[tag], rest].concat()
}
