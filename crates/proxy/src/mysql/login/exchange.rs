//! Relays an authentication: the messages of each side go to the other until the server sends OK or ERR.
//!
//! Freshet needs no password for it, and it knows only these plugins, whose exchange depends on whether others can read the connection, which may
//! differ between the two sides:
//!
//! | plugin | others can read the client's side only | … the upstream's side only |
//! |---|---|---|
//! | `caching_sha2_password`, full | the client encrypts its password with a key of Freshet's | Freshet encrypts it with the server's key |
//! | `sha256_password` | refused | refused |
//! | `mysql_clear_password`, `dialog` | refused | refused, and also if both can be read |

use std::sync::Arc;

use freshet_net::mysql::auth::{self, RsaKey};
use freshet_wire::mysql::error::ErrorPacket;
use freshet_wire::mysql::handshake::AuthReply;
use freshet_wire::mysql::handshake::{CACHING_SHA2, CLEAR, DIALOG, SHA256, put_more_data};
use tokio::sync::OnceCell;

use crate::mysql::login::Refusal;
use crate::mysql::login::leg::{From, Leg, receive_either};

/// Limit of packets of one authentication; no plugin needs as many.
const PACKETS_MAX: usize = 64;

/// The current plugin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plugin {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// The server's nonce for it.
    pub(crate) nonce: Vec<u8>,
}

/// Freshet's own key, for clients that encrypt their password. It is generated when first needed.
#[derive(Default)]
pub(crate) struct OwnKey(OnceCell<Arc<RsaKey>>);

impl std::fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnKey")
    }
}

impl OwnKey {
    pub(crate) async fn get(&self) -> Result<Arc<RsaKey>, Refusal> {
        let generate = || async {
            let made = tokio::task::spawn_blocking(RsaKey::generate).await;
            made.map_err(|_| Refusal::internal("no RSA key can be made"))?
                .map(Arc::new)
                .map_err(|error| Refusal::internal(error.to_string()))
        };
        self.0.get_or_try_init(generate).await.cloned()
    }
}

/// The two sides of an authentication.
pub(crate) struct Exchange<'a> {
    pub(crate) client: Leg<'a>,
    pub(crate) upstream: Leg<'a>,
    pub(crate) plugin: &'a mut Plugin,
    pub(crate) key: &'a OwnKey,
}

impl Exchange<'_> {
    /// Relays until the server has decided. Returns the payload of its OK packet, which the client has not received.
    pub(crate) async fn run(&mut self) -> Result<Vec<u8>, Refusal> {
        self.check_plugin()?;
        let mut full = false;
        for _ in 0..PACKETS_MAX {
            match receive_either(&mut self.client, &mut self.upstream).await? {
                From::Client(payload) if full => self.password(&payload).await?,
                From::Client(payload) => self.upstream.put(&payload),
                From::Upstream(payload) => {
                    match AuthReply::parse(&payload).map_err(|error| Refusal::internal(error.to_string()))? {
                        AuthReply::Ok => return Ok(payload),
                        AuthReply::Error => return Err(Refusal::of_server(payload)),
                        AuthReply::Switch(switch) => {
                            (self.plugin.name, self.plugin.nonce) = (switch.plugin.to_vec(), switch.nonce().to_vec());
                            self.check_plugin()?;
                        }
                        AuthReply::MoreData(data) => {
                            full = self.plugin.name == CACHING_SHA2 && data == [auth::SHA2_FULL] && self.differ();
                        }
                    }
                    self.client.put(&payload);
                }
            }
        }
        Err(Refusal::internal("authentication without end"))
    }

    /// Whether others can read one side and not the other.
    fn differ(&self) -> bool {
        self.client.peer.socket().is_private() != self.upstream.peer.socket().is_private()
    }

    fn check_plugin(&self) -> Result<(), Refusal> {
        let private = self.client.peer.socket().is_private() && self.upstream.peer.socket().is_private();
        let name = self.plugin.name.as_slice();
        if ([CLEAR, DIALOG].contains(&name) && !private) || (name == SHA256 && self.differ()) {
            let name = String::from_utf8_lossy(name);
            // ER_NOT_SUPPORTED_AUTH_MODE
            return Err(Refusal::Say(
                1251,
                "08004",
                format!("Freshet hands on {name} only where both its sides are encrypted (TLS or a Unix socket)"),
            ));
        }
        Ok(())
    }

    /// The client's part of a full authentication, converted for the other side.
    async fn password(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        let asks = payload == [auth::SHA2_REQUEST_KEY];
        if self.client.peer.socket().is_private() {
            if asks {
                self.upstream.put(payload); // it encrypts although it need not
                return Ok(());
            }
            let Some(password) = auth::read_clear_text(payload) else {
                self.upstream.put(payload);
                return Ok(());
            };
            self.upstream.put(&[auth::SHA2_REQUEST_KEY]);
            let reply = self.upstream.receive().await?;
            let Ok(AuthReply::MoreData(pem)) = AuthReply::parse(&reply) else {
                return Err(Refusal::of_server(reply));
            };
            let encrypted = auth::encrypt(password.expose(), &self.plugin.nonce, pem);
            self.upstream.put(&encrypted.map_err(|error| Refusal::internal(error.to_string()))?);
            return Ok(());
        }
        let key = self.key.get().await?;
        if asks {
            let mut reply = Vec::new();
            put_more_data(&mut reply, key.public_pem().as_bytes());
            self.client.put(&reply);
            return Ok(());
        }
        // A text that is not encrypted with this key is no password that the server would accept.
        let password = key.decrypt(payload, &self.plugin.nonce);
        let text = auth::clear_text(password.as_ref().map_or("", |password| password.expose()));
        self.upstream.put(&text);
        Ok(())
    }
}

/// Whether the error means a wrong password (ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR).
pub(crate) fn is_failed_proof(payload: &[u8]) -> bool {
    ErrorPacket::parse(payload).is_ok_and(|error| matches!(error.code, 1045 | 1698))
}
