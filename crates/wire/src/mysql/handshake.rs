//! The packets of a login: the server's handshake (version 10), TLS, the client's response, and the data of
//! authentication plugins (manual: "Connection Phase Packets").
//!
//! A client's response is forwarded by patching it ([`set_capabilities`]), not by writing it anew. So the client's
//! reserved bytes stay unchanged.

use super::capabilities::{Capabilities, Status};
use super::integers::{put_cstr, put_lenenc_bytes};
use super::{error, ok};
use crate::reader::{Malformed, Reader};

/// Version of the handshake; all servers since 2003 send it.
const VERSION: u8 = 10;
/// Bytes of the server's nonce without the zero at its end.
pub const NONCE_BYTES: usize = 20;
/// Bytes of the nonce before the capabilities.
const NONCE_HEAD_BYTES: usize = 8;
/// Bytes of an SSLRequest, and of a response before the user's name.
pub const SSL_REQUEST_BYTES: usize = 32;
/// The largest response accepted from a client. Attributes have at most 64 KiB
/// (`MAX_CONNECTION_ATTR_STORAGE_LENGTH`).
pub const RESPONSE_BYTES_MAX: usize = 256 << 10;

/// `mysql_native_password`
pub const NATIVE: &[u8] = b"mysql_native_password";
/// `caching_sha2_password`
pub const CACHING_SHA2: &[u8] = b"caching_sha2_password";
/// `sha256_password`
pub const SHA256: &[u8] = b"sha256_password";
/// `client_ed25519` (MariaDB)
pub const ED25519: &[u8] = b"client_ed25519";
/// `mysql_clear_password`
pub const CLEAR: &[u8] = b"mysql_clear_password";
/// `dialog` (MariaDB's PAM)
pub const DIALOG: &[u8] = b"dialog";

/// The server's first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// `8.0.15`, `5.5.5-10.11.6-MariaDB-0+deb12u1`
    pub server_version: Vec<u8>,
    /// The session's number.
    pub connection_id: u32,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// Number of the default collation (its low byte).
    pub character_set: u8,
    /// The session's state.
    pub status: Status,
    /// The nonce for the proof of the password, without the zero at its end.
    pub nonce: Vec<u8>,
    /// The plugin of the nonce; empty if the server knows none.
    pub plugin: Vec<u8>,
}

impl Handshake {
    /// Reads a payload. An ERR packet may take its place ([`error::MARK`]).
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8("protocol version")? {
            VERSION => {}
            tag => return Err(Malformed::UnknownTag { what: "protocol version", tag }),
        }
        let server_version = reader.cstr("server version")?.to_vec();
        let connection_id = reader.le_u32("connection id")?;
        let mut nonce = reader.bytes(NONCE_HEAD_BYTES, "nonce")?.to_vec();
        reader.u8("filler")?;
        let low = reader.le_u16("capabilities")?;
        let character_set = reader.u8("character set")?;
        let status = Status(reader.le_u16("status")?);
        let high = reader.le_u16("capabilities")?;
        let nonce_bytes = usize::from(reader.u8("nonce length")?);
        reader.bytes(6, "reserved bytes")?;
        let capabilities =
            Capabilities::from_parts(u32::from(low) | u32::from(high) << 16, reader.le_u32("capabilities")?);
        if capabilities.has(Capabilities::SECURE_CONNECTION) {
            let tail = reader.bytes(nonce_bytes.saturating_sub(NONCE_HEAD_BYTES).max(13), "nonce")?;
            nonce.extend_from_slice(tail.strip_suffix(&[0]).unwrap_or(tail));
        }
        let plugin = if capabilities.has(Capabilities::PLUGIN_AUTH) { reader.rest() } else { b"" };
        // Some servers omit the zero at its end.
        let plugin = plugin.strip_suffix(&[0]).unwrap_or(plugin).to_vec();
        Ok(Self { server_version, connection_id, capabilities, character_set, status, nonce, plugin })
    }

    /// Appends the payload.
    pub fn put(&self, out: &mut Vec<u8>) {
        let (head, tail) = self.nonce.split_at_checked(NONCE_HEAD_BYTES).unwrap_or((&self.nonce, &[]));
        let capabilities = self.capabilities.basic().to_le_bytes();
        let [low_a, low_b, high_a, high_b] = capabilities;
        let names_plugin = self.capabilities.has(Capabilities::PLUGIN_AUTH);
        out.push(VERSION);
        put_cstr(out, &self.server_version);
        out.extend_from_slice(&self.connection_id.to_le_bytes());
        put_padded(out, head, NONCE_HEAD_BYTES);
        out.extend_from_slice(&[0, low_a, low_b, self.character_set]);
        out.extend_from_slice(&self.status.0.to_le_bytes());
        out.extend_from_slice(&[high_a, high_b]);
        out.push(if names_plugin { u8::try_from(self.nonce.len() + 1).unwrap_or(u8::MAX) } else { 0 });
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.capabilities.extended().to_le_bytes());
        if self.capabilities.has(Capabilities::SECURE_CONNECTION) {
            put_padded(out, tail, (tail.len() + 1).max(13));
        }
        if names_plugin {
            put_cstr(out, &self.plugin);
        }
    }
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8], length: usize) {
    out.extend(bytes.iter().copied().chain(std::iter::repeat(0)).take(length));
}

/// The client's answer to the handshake. With TLS it comes twice: as an SSLRequest before TLS, and whole within TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeResponse<'a> {
    /// The capabilities that the client wants of those that both have.
    pub capabilities: Capabilities,
    /// The largest packet that the client takes.
    pub packet_bytes_max: u32,
    /// Number of the session's collation.
    pub character_set: u8,
    /// The user's name.
    pub user: &'a [u8],
    /// The proof of the password; empty if there is none, or if another plugin must be used.
    pub proof: &'a [u8],
    /// The default database.
    pub database: Option<&'a [u8]>,
    /// The plugin that the proof is for.
    pub plugin: Option<&'a [u8]>,
    /// Attributes of the client, for [`attributes`].
    pub attributes: &'a [u8],
    /// The level of compression by zstd.
    pub zstd_level: Option<u8>,
}

/// The client's first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientHello<'a> {
    /// A request to begin TLS.
    SslRequest(Capabilities),
    /// A login.
    Response(HandshakeResponse<'a>),
}

impl<'a> ClientHello<'a> {
    /// Reads a payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let head = read_head(&mut reader)?;
        if reader.is_empty() && head.capabilities.has(Capabilities::SSL) {
            return Ok(Self::SslRequest(head.capabilities));
        }
        head.read_tail(&mut reader).map(Self::Response)
    }
}

fn read_head<'a>(reader: &mut Reader<'a>) -> Result<HandshakeResponse<'a>, Malformed> {
    let basic = reader.le_u32("capabilities")?;
    if !Capabilities(u64::from(basic)).has(Capabilities::PROTOCOL_41) {
        return Err(Malformed::Invalid("capabilities: a client from before version 4.1"));
    }
    let packet_bytes_max = reader.le_u32("packet limit")?;
    let character_set = reader.u8("character set")?;
    reader.bytes(19, "reserved bytes")?;
    let capabilities = Capabilities::from_parts(basic, reader.le_u32("capabilities")?);
    Ok(HandshakeResponse { capabilities, packet_bytes_max, character_set, ..HandshakeResponse::default() })
}

impl<'a> HandshakeResponse<'a> {
    fn read_tail(mut self, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        self.user = reader.cstr("user")?;
        self.proof = if self.capabilities.has(Capabilities::PLUGIN_AUTH_LENENC_DATA) {
            reader.lenenc_bytes("proof")?
        } else if self.capabilities.has(Capabilities::SECURE_CONNECTION) {
            let length = usize::from(reader.u8("proof length")?);
            reader.bytes(length, "proof")?
        } else {
            reader.cstr("proof")?
        };
        // Servers accept a response that ends early, and some clients depend on it.
        if self.capabilities.has(Capabilities::CONNECT_WITH_DB) && !reader.is_empty() {
            self.database = Some(reader.cstr("database")?);
        }
        if self.capabilities.has(Capabilities::PLUGIN_AUTH) && !reader.is_empty() {
            self.plugin = Some(cstr_or_rest(reader));
        }
        if self.capabilities.has(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
            self.attributes = reader.lenenc_bytes("attributes")?;
        }
        if self.capabilities.has(Capabilities::ZSTD_COMPRESSION) && !reader.is_empty() {
            self.zstd_level = Some(reader.u8("compression level")?);
        }
        Ok(self)
    }

    /// Appends an SSLRequest: the response up to the user's name. The capabilities must include
    /// [`Capabilities::SSL`].
    pub fn put_ssl_request(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.capabilities.basic().to_le_bytes());
        out.extend_from_slice(&self.packet_bytes_max.to_le_bytes());
        out.push(self.character_set);
        out.extend_from_slice(&[0; 19]);
        out.extend_from_slice(&self.capabilities.extended().to_le_bytes());
    }

    /// Appends the payload. The capabilities must include [`Capabilities::SECURE_CONNECTION`], and that of each
    /// optional part that is present.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.put_ssl_request(out);
        put_cstr(out, self.user);
        if self.capabilities.has(Capabilities::PLUGIN_AUTH_LENENC_DATA) {
            put_lenenc_bytes(out, self.proof);
        } else {
            // A longer proof needs the other capability.
            let proof = self.proof.get(..usize::from(u8::MAX)).unwrap_or(self.proof);
            out.push(u8::try_from(proof.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(proof);
        }
        if self.capabilities.has(Capabilities::CONNECT_WITH_DB) {
            put_cstr(out, self.database.unwrap_or_default());
        }
        if self.capabilities.has(Capabilities::PLUGIN_AUTH) {
            put_cstr(out, self.plugin.unwrap_or_default());
        }
        if self.capabilities.has(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, self.attributes);
        }
        if self.capabilities.has(Capabilities::ZSTD_COMPRESSION) {
            out.push(self.zstd_level.unwrap_or_default());
        }
    }
}

/// A string whose zero may be missing if it is the last field.
fn cstr_or_rest<'a>(reader: &mut Reader<'a>) -> &'a [u8] {
    reader.cstr("plugin").unwrap_or_else(|_| reader.rest())
}

/// Replaces the capabilities in the payload of a client's response or SSLRequest; the rest is unchanged.
pub fn set_capabilities(payload: &mut [u8], capabilities: Capabilities) {
    if let Some(field) = payload.get_mut(..4) {
        field.copy_from_slice(&capabilities.basic().to_le_bytes());
    }
    if let Some(field) = payload.get_mut(28..32).filter(|_| !capabilities.has(Capabilities::MYSQL)) {
        field.copy_from_slice(&capabilities.extended().to_le_bytes());
    }
}

/// Name and value of an attribute.
pub type Attribute<'a> = (&'a [u8], &'a [u8]);

/// All of [`HandshakeResponse::attributes`].
pub fn attributes(block: &[u8]) -> Result<Vec<Attribute<'_>>, Malformed> {
    let mut pairs = Vec::new();
    let mut reader = Reader::new(block);
    while !reader.is_empty() {
        pairs.push((reader.lenenc_bytes("attribute")?, reader.lenenc_bytes("attribute value")?));
    }
    Ok(pairs)
}

/// Appends one pair to a block of attributes.
pub fn put_attribute(block: &mut Vec<u8>, name: &str, value: &str) {
    put_lenenc_bytes(block, name.as_bytes());
    put_lenenc_bytes(block, value.as_bytes());
}

/// The server's messages during authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthReply<'a> {
    /// The login is complete; the payload is an OK packet.
    Ok,
    /// It failed; the payload is an ERR packet.
    Error,
    /// The server requests another plugin.
    Switch(AuthSwitch<'a>),
    /// The plugin's own data.
    MoreData(&'a [u8]),
}

/// AuthSwitchRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSwitch<'a> {
    /// The plugin; empty for the one from before version 4.1, which is not supported.
    pub plugin: &'a [u8],
    /// Its first data: mostly a nonce with a zero at its end.
    pub data: &'a [u8],
}

impl<'a> AuthSwitch<'a> {
    /// The data without the zero at its end. Data of ed25519 may lack the zero, and may end in a zero by chance.
    pub fn nonce(&self) -> &'a [u8] {
        const ED25519_BYTES: usize = 32;
        match self.plugin {
            ED25519 => self.data.get(..ED25519_BYTES).unwrap_or(self.data),
            _ => self.data.strip_suffix(&[0]).unwrap_or(self.data),
        }
    }
}

/// Mark of AuthMoreData.
const MORE_DATA: u8 = 0x01;

impl<'a> AuthReply<'a> {
    /// Reads a payload that came after the client's response (or after COM_CHANGE_USER).
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        Ok(match reader.u8("authentication mark")? {
            ok::OK_MARK => Self::Ok,
            error::MARK => Self::Error,
            ok::EOF_MARK if reader.is_empty() => Self::Switch(AuthSwitch { plugin: b"", data: b"" }),
            ok::EOF_MARK => Self::Switch(AuthSwitch { plugin: reader.cstr("plugin")?, data: reader.rest() }),
            MORE_DATA => Self::MoreData(reader.rest()),
            // Only data that could be mistaken for another message needs a mark.
            _ => Self::MoreData(payload),
        })
    }
}

/// Appends the payload of an AuthSwitchRequest with a nonce, and the zero at its end.
pub fn put_auth_switch(out: &mut Vec<u8>, plugin: &[u8], nonce: &[u8]) {
    out.push(ok::EOF_MARK);
    put_cstr(out, plugin);
    out.extend_from_slice(nonce);
    out.push(0);
}

/// Appends the payload of AuthMoreData.
pub fn put_more_data(out: &mut Vec<u8>, data: &[u8]) {
    out.push(MORE_DATA);
    out.extend_from_slice(data);
}

/// COM_CHANGE_USER, as far as the proxy decodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// The user's name.
    pub user: &'a [u8],
    /// What proves the password.
    pub proof: &'a [u8],
    /// The default database; empty for none.
    pub database: &'a [u8],
    /// The plugin that the proof is for, if it is named.
    pub plugin: Option<&'a [u8]>,
}

impl<'a> ChangeUser<'a> {
    /// Reads a payload, with the command's byte.
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        reader.u8("command")?;
        let user = reader.cstr("user")?;
        let proof = if capabilities.has(Capabilities::SECURE_CONNECTION) {
            let length = usize::from(reader.u8("proof length")?);
            reader.bytes(length, "proof")?
        } else {
            reader.cstr("proof")?
        };
        let database = reader.cstr("database")?;
        let mut plugin = None;
        if !reader.is_empty() {
            reader.le_u16("character set")?;
            if capabilities.has(Capabilities::PLUGIN_AUTH) && !reader.is_empty() {
                plugin = Some(cstr_or_rest(&mut reader));
            }
        }
        Ok(Self { user, proof, database, plugin })
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
