//! The proofs of a password.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The answer of a plugin to the server's nonce; None for those that this client does not know.
pub(crate) fn answer(plugin: &str, password: &str, nonce: &[u8]) -> Option<Vec<u8>> {
    let password = password.as_bytes();
    Some(match plugin {
        _ if password.is_empty() => Vec::new(),
        "mysql_native_password" => {
            let stage = Sha1::digest(password);
            mix(&stage, &Sha1::digest([nonce, &Sha1::digest(stage)].concat()))
        }
        "caching_sha2_password" => {
            let stage = Sha256::digest(password);
            mix(&stage, &Sha256::digest([&Sha256::digest(stage), nonce].concat()))
        }
        "mysql_clear_password" => [password, &[0]].concat(),
        _ => return None,
    })
}

fn mix(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(a, b)| a ^ b).collect()
}
