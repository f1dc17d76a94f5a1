//! Authentication by Freshet (`--users`): the client proves its password to Freshet, and Freshet logs in upstream with the same password.
//!
//! The server's nonce is used for the client too. A client whose plugin is neither of the two that are checked here is asked for
//! `mysql_native_password`, which all clients know. An unknown user goes through the same exchange as a known one.

use std::sync::Arc;

use freshet_net::mysql::{Opened, auth};
use freshet_net::postgres::secret::{Secret, random};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::command;
use freshet_wire::mysql::handshake::{
    AuthReply, CACHING_SHA2, ChangeUser, ED25519, HandshakeResponse, NATIVE, NONCE_BYTES, SHA256, put_auth_switch,
    put_more_data, set_capabilities,
};

use crate::mysql::MySql;
use crate::mysql::login::leg::Leg;
use crate::mysql::login::{Plugin, Refusal, encrypt, not_offered, with_proof};
use crate::peer::Peer;
use crate::server::access::UsersFile;

/// `utf8mb4_general_ci`, which both servers number alike.
const UTF8MB4: u8 = 45;
/// Limit of rounds of a login upstream.
const ROUNDS_MAX: usize = 16;

/// Checks the client's proof and logs in upstream. Returns the payload of the server's OK.
pub(crate) async fn log_in(
    client: &mut Leg<'_>,
    users: &UsersFile<Secret>,
    opened: Opened,
    hello: &HandshakeResponse<'_>,
    shared: &Arc<MySql>,
) -> Result<(Peer, Vec<u8>), Refusal> {
    let theirs = opened.parse().map_err(|error| Refusal::internal(error.to_string()))?;
    let proven = Proven { user: hello.user, plugin: hello.plugin.unwrap_or(NATIVE), proof: hello.proof };
    let password = check(client, users, &theirs.nonce, proven).await?;
    enter(opened, hello, &password, shared).await
}

/// Logs in upstream with this password. Returns the payload of the server's OK.
pub(crate) async fn enter(
    opened: Opened,
    hello: &HandshakeResponse<'_>,
    password: &Secret,
    shared: &Arc<MySql>,
) -> Result<(Peer, Vec<u8>), Refusal> {
    let theirs = opened.parse().map_err(|error| Refusal::internal(error.to_string()))?;
    // Capabilities of the login alone do not affect the session.
    let needed =
        Capabilities::SECURE_CONNECTION.with(Capabilities::PLUGIN_AUTH).with(Capabilities::PLUGIN_AUTH_LENENC_DATA);
    let capabilities = hello.capabilities.without(not_offered(shared)).without(Capabilities::SSL).with(needed);
    let capabilities = capabilities.with(theirs.capabilities & Capabilities::SESSION_TRACK);
    let capabilities =
        if hello.database.is_some() { capabilities } else { capabilities.without(Capabilities::CONNECT_WITH_DB) };
    let plugin = Plugin { name: NATIVE.to_vec(), nonce: theirs.nonce.clone() };
    let plugin = if theirs.plugin == CACHING_SHA2 { Plugin { name: CACHING_SHA2.to_vec(), ..plugin } } else { plugin };
    let proof = proof_for(&plugin, password).unwrap_or_default();
    let mut response = Vec::new();
    with_proof(&HandshakeResponse { capabilities, ..hello.clone() }, &plugin.name, &proof).put(&mut response);
    let (mut upstream, sequence, capabilities) = encrypt(opened, &response, capabilities, shared).await?;
    set_capabilities(&mut response, capabilities);
    let mut server = Leg { peer: &mut upstream, sequence };
    server.put(&response);
    let ok = prove(&mut server, plugin, password).await?;
    Ok((upstream, ok))
}

/// COM_CHANGE_USER: checks the client's proof, and changes the user upstream. Returns the payload of the server's OK.
pub(crate) async fn change_user(
    client: &mut Leg<'_>,
    upstream: &mut Leg<'_>,
    users: &UsersFile<Secret>,
    payload: &[u8],
    capabilities: Capabilities,
) -> Result<Vec<u8>, Refusal> {
    let change = ChangeUser::parse(payload, capabilities).map_err(|error| Refusal::internal(error.to_string()))?;
    // The nonce of the login is not used twice.
    let proven = Proven { user: change.user, plugin: b"", proof: b"" };
    let nonce = nonce()?;
    let password = check(client, users, &nonce, proven).await?;
    let mut command = vec![command::CHANGE_USER];
    for part in [change.user, &[], change.database] {
        // An empty proof is a length of zero, or a terminator: a zero byte in both cases.
        command.extend_from_slice(part);
        command.push(0);
    }
    // Behind the database: the client's character set, the plugin, no attributes.
    let behind = 1 + change.user.len() + 1 + change.proof.len() + 1 + change.database.len() + 1;
    let unchanged = [UTF8MB4, 0];
    command.extend_from_slice(payload.get(behind..behind + 2).unwrap_or(&unchanged));
    command.extend_from_slice(NATIVE);
    command.extend_from_slice(&[0, 0]);
    upstream.put(&command);
    let plugin = Plugin { name: NATIVE.to_vec(), nonce };
    prove(upstream, plugin, &password).await
}

/// Twenty random bytes without zeros, as servers create them.
fn nonce() -> Result<Vec<u8>, Refusal> {
    let random: [u8; NONCE_BYTES] = random()?;
    Ok(random.iter().map(|byte| (byte & 0x7f).max(1)).collect())
}

/// A client's claim.
struct Proven<'a> {
    user: &'a [u8],
    plugin: &'a [u8],
    proof: &'a [u8],
}

/// The user's password, which the client has proven to know.
async fn check(
    client: &mut Leg<'_>,
    users: &UsersFile<Secret>,
    nonce: &[u8],
    claim: Proven<'_>,
) -> Result<Secret, Refusal> {
    let known = std::str::from_utf8(claim.user).ok().and_then(|name| users.get(name));
    let expected = known.as_ref().map_or("", Secret::expose);
    let proven = match claim.plugin {
        NATIVE => auth::verify_native(expected, nonce, claim.proof),
        CACHING_SHA2 => {
            let proven = auth::verify_sha2(expected, nonce, claim.proof);
            if proven && !expected.is_empty() {
                let mut fast = Vec::new();
                put_more_data(&mut fast, &[auth::SHA2_FAST_OK]);
                client.put(&fast);
            }
            proven
        }
        _ => {
            let mut switch = Vec::new();
            put_auth_switch(&mut switch, NATIVE, nonce);
            client.put(&switch);
            let proof = client.receive().await?;
            auth::verify_native(expected, nonce, &proof)
        }
    };
    match known {
        Some(password) if proven => Ok(password),
        _ => {
            let user = String::from_utf8_lossy(claim.user).into_owned();
            let host = client.peer.socket().peer_ip().map_or("localhost".to_owned(), |ip| ip.to_string());
            Err(Refusal::Failed(format!("Access denied for user '{user}'@'{host}' (using password: YES)")))
        }
    }
}

fn proof_for(plugin: &Plugin, password: &Secret) -> Option<Vec<u8>> {
    match plugin.name.as_slice() {
        NATIVE => Some(auth::native_proof(password.expose(), &plugin.nonce)),
        CACHING_SHA2 => Some(auth::sha2_proof(password.expose(), &plugin.nonce)),
        ED25519 => Some(auth::ed25519_proof(password.expose(), &plugin.nonce)),
        _ => None,
    }
}

/// `sha256_password` sends the password itself on a private connection; otherwise it requests the key first.
fn sha256(plugin: &Plugin, password: &Secret, private: bool) -> Option<Vec<u8>> {
    (plugin.name == SHA256).then(|| match password.expose() {
        "" => vec![0],
        password if private => auth::clear_text(password).to_vec(),
        _ => vec![auth::SHA256_REQUEST_KEY],
    })
}

/// Freshet's side of a login upstream, up to the server's OK.
async fn prove(server: &mut Leg<'_>, mut plugin: Plugin, password: &Secret) -> Result<Vec<u8>, Refusal> {
    for _ in 0..ROUNDS_MAX {
        let payload = server.receive().await?;
        match AuthReply::parse(&payload).map_err(|error| Refusal::internal(error.to_string()))? {
            AuthReply::Ok => return Ok(payload),
            AuthReply::Error => {
                tracing::warn!(
                    "a user's proof was right here and is refused by the database: is the users file in step?"
                );
                // This is not the client's failure, and is not counted.
                return Err(Refusal::Relay(payload, false));
            }
            AuthReply::Switch(switch) => {
                plugin = Plugin { name: switch.plugin.to_vec(), nonce: switch.nonce().to_vec() };
                let private = server.peer.socket().is_private();
                let Some(proof) = proof_for(&plugin, password).or_else(|| sha256(&plugin, password, private)) else {
                    let name = String::from_utf8_lossy(&plugin.name);
                    return Err(Refusal::Say(1251, "08004", format!("Freshet cannot log in upstream by {name}")));
                };
                server.put(&proof);
            }
            AuthReply::MoreData([auth::SHA2_FAST_OK]) => {}
            AuthReply::MoreData([auth::SHA2_FULL]) if server.peer.socket().is_private() => {
                server.put(&auth::clear_text(password.expose()));
            }
            AuthReply::MoreData([auth::SHA2_FULL]) => server.put(&[auth::SHA2_REQUEST_KEY]),
            AuthReply::MoreData(pem) => {
                let encrypted = auth::encrypt(password.expose(), &plugin.nonce, pem);
                server.put(&encrypted.map_err(|error| Refusal::internal(error.to_string()))?);
            }
        }
    }
    Err(Refusal::internal("authentication without end"))
}
