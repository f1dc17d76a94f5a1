//! The login of Freshet's own connections.
//!
//! The server proposes an authentication plugin in its handshake and may switch to the user's plugin afterwards. The plugin's exchange continues
//! until OK or ERR. Freshet sends the clear-text password over private connections only.

use std::borrow::Cow;

use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::handshake::{self, AuthReply, Handshake, HandshakeResponse, put_attribute};
use freshet_wire::reader::Malformed;
use tokio::time::timeout;

use super::auth;
use super::error::{ConnectError, Error};
use super::open::{open_unbounded, start_tls};
use super::packets::Packets;
use super::upstream::Upstream;

/// `utf8mb4_general_ci`, which both servers number alike.
const CHARACTER_SET: u8 = 45;
/// The largest packet that Freshet announces to accept; the servers' own limit.
const PACKET_BYTES_MAX: u32 = 1 << 30;
/// Limit of rounds; no plugin needs as many.
const ROUNDS_MAX: usize = 16;

/// Capabilities of Freshet's own connections: EOF packets, and nothing that changes the form of answers.
const WANTED: Capabilities = Capabilities(
    Capabilities::MYSQL.0
        | 1 << 2 // CLIENT_LONG_FLAG
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::PROTOCOL_41.0
        | Capabilities::SSL.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::PLUGIN_AUTH_LENENC_DATA.0
        | Capabilities::CONNECT_ATTRS.0,
);

/// A connection that is ready for commands.
pub(super) struct LoggedIn {
    pub(super) packets: Packets,
    pub(super) handshake: Handshake,
}

/// Opens a connection to this host and logs in, within the connect time-out.
pub(super) async fn login(upstream: &Upstream, host: usize) -> Result<LoggedIn, ConnectError> {
    let limit = upstream.connect_timeout();
    let login = async {
        match login_unbounded(upstream, host).await {
            // The server has no cipher in common with Freshet: the next attempt is plain.
            Err(ConnectError::Tls(_)) if !upstream.accepts_tls(host) => login_unbounded(upstream, host).await,
            other => other,
        }
    };
    timeout(limit, login).await.unwrap_or(Err(ConnectError::Timeout(limit)))
}

async fn login_unbounded(upstream: &Upstream, host: usize) -> Result<LoggedIn, ConnectError> {
    let opened = open_unbounded(upstream, host).await?;
    let handshake = opened.parse()?;
    if !handshake.capabilities.has(Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION)) {
        return Err(ConnectError::Method("mysql_old_password".to_owned()));
    }
    if !opened.rest.is_empty() {
        return Err(ConnectError::Protocol(Error::Malformed(Malformed::Trailing(opened.rest.len()))));
    }
    let encrypt = opened.wants_tls(upstream)?;
    let mut capabilities = WANTED & handshake.capabilities;
    if !encrypt {
        capabilities = capabilities.without(Capabilities::SSL);
    }
    if upstream.database().is_none() {
        capabilities = capabilities.without(Capabilities::CONNECT_WITH_DB);
    }
    let attributes = attributes();
    // The other plugins take an empty proof for an empty password, so the server has to switch to the user's plugin from them.
    let plugin = match Plugin::named(&handshake.plugin) {
        Some(plugin @ (Plugin::Native | Plugin::CachingSha2)) => plugin,
        _ => Plugin::Native,
    };
    let proof = plugin.first_proof(upstream.password().expose(), &handshake.nonce);
    let response = HandshakeResponse {
        capabilities,
        packet_bytes_max: PACKET_BYTES_MAX,
        character_set: CHARACTER_SET,
        user: upstream.user().as_bytes(),
        proof: &proof,
        database: upstream.database().map(str::as_bytes),
        plugin: Some(plugin.name()),
        attributes: &attributes,
        zstd_level: None,
    };
    // The server's handshake was packet 0.
    let mut packets = Packets::behind(1, opened.socket);
    if encrypt {
        let mut request = Vec::new();
        response.put_ssl_request(&mut request);
        packets.send(&request).await.map_err(ConnectError::Tcp)?;
        let (socket, _) = packets.into_parts();
        packets = Packets::behind(2, start_tls(upstream, host, socket).await?);
    }
    let mut payload = Vec::new();
    response.put(&mut payload);
    packets.send(&payload).await.map_err(ConnectError::Tcp)?;
    let nonce = handshake.nonce.clone();
    Exchange { packets: &mut packets, password: upstream.password().expose(), plugin, nonce }.run().await?;
    Ok(LoggedIn { packets, handshake })
}

fn attributes() -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in
        [("_client_name", "freshet"), ("_client_version", env!("CARGO_PKG_VERSION")), ("program_name", "freshet")]
    {
        put_attribute(&mut block, name, value);
    }
    block
}

/// The plugins that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    Native,
    CachingSha2,
    Sha256,
    Ed25519,
    Clear,
}

impl Plugin {
    const ALL: [Self; 5] = [Self::Native, Self::CachingSha2, Self::Sha256, Self::Ed25519, Self::Clear];

    fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    fn name(self) -> &'static [u8] {
        match self {
            Self::Native => handshake::NATIVE,
            Self::CachingSha2 => handshake::CACHING_SHA2,
            Self::Sha256 => handshake::SHA256,
            Self::Ed25519 => handshake::ED25519,
            Self::Clear => handshake::CLEAR,
        }
    }

    /// The proof that can be sent before it is known that the user has this plugin. A signature or the password itself is not sent.
    fn first_proof(self, password: &str, nonce: &[u8]) -> Vec<u8> {
        match self {
            Self::Native => auth::native_proof(password, nonce),
            Self::CachingSha2 => auth::sha2_proof(password, nonce),
            Self::Sha256 | Self::Ed25519 | Self::Clear => Vec::new(),
        }
    }
}

/// The exchange after the client's response.
struct Exchange<'a> {
    packets: &'a mut Packets,
    password: &'a str,
    plugin: Plugin,
    nonce: Vec<u8>,
}

impl Exchange<'_> {
    async fn run(mut self) -> Result<(), ConnectError> {
        for _ in 0..ROUNDS_MAX {
            let payload = self.receive().await?;
            match AuthReply::parse(&payload).map_err(malformed)? {
                AuthReply::Ok => return Ok(()),
                AuthReply::Error => return Err(ConnectError::refused(&payload)),
                AuthReply::Switch(switch) => {
                    let name = || String::from_utf8_lossy(switch.plugin).into_owned();
                    self.plugin = Plugin::named(switch.plugin).ok_or_else(|| ConnectError::Method(name()))?;
                    self.nonce = switch.nonce().to_vec();
                    let answer = self.answer_to_switch()?.into_owned();
                    self.send(&answer).await?;
                }
                AuthReply::MoreData(data) => self.more_data(data).await?,
            }
        }
        Err(malformed(Malformed::Invalid("authentication without end")))
    }

    fn answer_to_switch(&self) -> Result<Cow<'static, [u8]>, ConnectError> {
        Ok(match self.plugin {
            Plugin::Native | Plugin::CachingSha2 => self.plugin.first_proof(self.password, &self.nonce).into(),
            Plugin::Ed25519 => auth::ed25519_proof(self.password, &self.nonce).into(),
            Plugin::Clear if !self.packets.is_private() => return Err(ConnectError::ClearText),
            Plugin::Clear => auth::clear_text(self.password).to_vec().into(),
            Plugin::Sha256 if self.password.is_empty() => vec![0].into(),
            Plugin::Sha256 if self.packets.is_private() => auth::clear_text(self.password).to_vec().into(),
            Plugin::Sha256 => vec![auth::SHA256_REQUEST_KEY].into(),
        })
    }

    async fn more_data(&mut self, data: &[u8]) -> Result<(), ConnectError> {
        match (self.plugin, data) {
            (Plugin::CachingSha2, [auth::SHA2_FAST_OK]) => Ok(()),
            (Plugin::CachingSha2, [auth::SHA2_FULL]) if self.packets.is_private() => {
                let text = auth::clear_text(self.password);
                self.send(&text).await
            }
            (Plugin::CachingSha2, [auth::SHA2_FULL]) => self.send(&[auth::SHA2_REQUEST_KEY]).await,
            (Plugin::CachingSha2 | Plugin::Sha256, pem) => {
                let encrypted = auth::encrypt(self.password, &self.nonce, pem)?;
                self.send(&encrypted).await
            }
            _ => Err(malformed(Malformed::Invalid("authentication data"))),
        }
    }

    async fn receive(&mut self) -> Result<Vec<u8>, ConnectError> {
        self.packets.receive().await.map_err(ConnectError::Protocol)
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), ConnectError> {
        self.packets.send(payload).await.map_err(ConnectError::Tcp)
    }
}

fn malformed(error: Malformed) -> ConnectError {
    ConnectError::Protocol(Error::Malformed(error))
}
