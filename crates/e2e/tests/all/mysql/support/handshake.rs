//! The start of a connection: the server's handshake, and the client's response.

use super::answer::Reader;
use super::packets::{capability, counted, integer};

/// The server's first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) version: String,
    pub(crate) connection: u32,
    pub(crate) nonce: Vec<u8>,
    pub(crate) capabilities: u32,
    pub(crate) collation: u8,
    pub(crate) status: u16,
    /// The six zero bytes and MariaDB's further capabilities.
    pub(crate) reserved: Vec<u8>,
    pub(crate) plugin: String,
}

impl Handshake {
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        if reader.fixed(1)? != 10 {
            return None;
        }
        let version = String::from_utf8_lossy(reader.text()?).into_owned();
        let connection = reader.fixed(4)? as u32;
        let mut nonce = reader.bytes(8)?.to_vec();
        reader.bytes(1)?;
        let low = reader.fixed(2)? as u32;
        let collation = reader.fixed(1)? as u8;
        let status = reader.fixed(2)? as u16;
        let capabilities = low | (reader.fixed(2)? as u32) << 16;
        let length = usize::try_from(reader.fixed(1)?).ok()?;
        let reserved = reader.bytes(10)?.to_vec();
        nonce.extend(reader.bytes(length.saturating_sub(8).max(13))?.strip_suffix(&[0])?);
        let plugin = String::from_utf8_lossy(reader.text()?).into_owned();
        Some(Self { version, connection, nonce, capabilities, collation, status, reserved, plugin })
    }

    /// The same, without what differs between two connections, and without what differs between a server and Freshet: encryption, and compression,
    /// which Freshet does not offer.
    pub(crate) fn comparable(&self) -> Self {
        let not_compared = capability::SSL | capability::COMPRESS | capability::ZSTD;
        Self { connection: 0, nonce: Vec::new(), capabilities: self.capabilities & !not_compared, ..self.clone() }
    }
}

/// How to log in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) database: Option<&'a str>,
    pub(crate) capabilities: u32,
    pub(crate) plugin: &'a str,
    pub(crate) collation: u8,
    pub(crate) attributes: &'a [(&'a str, &'a str)],
}

/// `utf8mb4_general_ci`
pub(crate) const UTF8MB4: u8 = 45;

impl Login<'_> {
    /// `HandshakeResponse41` with this answer to the nonce.
    pub(crate) fn response(&self, answer: &[u8]) -> Vec<u8> {
        let with_database = if self.database.is_some() { capability::CONNECT_WITH_DB } else { 0 };
        let capabilities = self.capabilities | with_database;
        let mut response = capabilities.to_le_bytes().to_vec();
        response.extend((64_u32 << 20).to_le_bytes());
        response.push(self.collation);
        response.extend([0; 23]);
        response.extend(zero_ended(self.user));
        response.extend(sized(capabilities, answer));
        response.extend(self.database.map(zero_ended).unwrap_or_default());
        response.extend(self.tail(capabilities));
        response
    }

    /// `COM_CHANGE_USER` on a connection with these capabilities.
    pub(crate) fn change_user(&self, capabilities: u32, answer: &[u8]) -> Vec<u8> {
        let mut command = vec![17];
        command.extend(zero_ended(self.user));
        command.push(answer.len() as u8);
        command.extend(answer);
        command.extend(zero_ended(self.database.unwrap_or_default()));
        command.extend(u16::from(self.collation).to_le_bytes());
        command.extend(self.tail(capabilities));
        command
    }

    fn tail(&self, capabilities: u32) -> Vec<u8> {
        let mut tail = Vec::new();
        if capabilities & capability::PLUGIN_AUTH != 0 {
            tail.extend(zero_ended(self.plugin));
        }
        if capabilities & capability::CONNECT_ATTRS != 0 {
            let pairs = self.attributes.iter().flat_map(|(name, value)| [name, value]);
            tail.extend(counted(&pairs.flat_map(|text| counted(text.as_bytes())).collect::<Vec<_>>()));
        }
        tail
    }
}

fn zero_ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn sized(capabilities: u32, answer: &[u8]) -> Vec<u8> {
    let length = if capabilities & capability::PLUGIN_AUTH_LENENC != 0 {
        integer(answer.len() as u64)
    } else {
        vec![answer.len() as u8]
    };
    [length.as_slice(), answer].concat()
}
