//! Authentication methods: creating and checking proofs of a password.
//!
//! With `mysql_native_password` and the fast authentication of `caching_sha2_password`, a client proves that it knows the password by a hash of it
//! mixed with the server's nonce. The full authentication of `caching_sha2_password`, and `sha256_password`, send the password itself: in clear text
//! over TLS or a Unix socket, else encrypted with the server's public RSA key. Nothing proves whose key it is: an active attacker who answers in
//! place of the server can ask for the password with a key of its own. This holds for every client that does not know the key beforehand;
//! `ssl-mode=verify-ca` prevents it.
//!
//! Sources: MySQL's `sql/auth/sha2_password.cc` and `sha2_password_common.cc`, MariaDB's `plugin/auth_ed25519`.

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use rsa::pkcs8::{DecodePublicKey, EncodePublicKey, LineEnding};
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey, RsaPublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::postgres::secret::Secret;

/// Bits of a generated key; the servers' default.
const RSA_BITS: usize = 2048;

/// Client to server: send the public key (`request_public_key` of `caching_sha2_password`).
pub const SHA2_REQUEST_KEY: u8 = 2;
/// Server to client: the proof is right. The server has the password's hash in its cache.
pub const SHA2_FAST_OK: u8 = 3;
/// Server to client: the server does not have the hash in its cache; send the password.
pub const SHA2_FULL: u8 = 4;
/// Client to server: send the public key (`sha256_password`).
pub const SHA256_REQUEST_KEY: u8 = 1;

/// Why a proof could not be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The key is not an RSA key in PEM form.
    #[error("the server's public key cannot be read")]
    Key,
    /// The password is too long for the key.
    #[error("the password cannot be encrypted with the server's public key")]
    Encrypt,
    /// A key could not be made.
    #[error("no RSA key can be made")]
    Generate,
}

/// The proof of `mysql_native_password`; empty for an empty password.
pub fn native_proof(password: &str, nonce: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Zeroizing::new(<[u8; 20]>::from(Sha1::digest(password)));
    let mixed = Sha1::new_with_prefix(nonce).chain_update(Sha1::digest(once.as_slice())).finalize();
    xor(once.as_slice(), &mixed)
}

/// Whether this proves the password to `mysql_native_password`.
pub fn verify_native(password: &str, nonce: &[u8], proof: &[u8]) -> bool {
    native_proof(password, nonce).ct_eq(proof).into()
}

/// The proof of `caching_sha2_password`; empty for an empty password.
pub fn sha2_proof(password: &str, nonce: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Zeroizing::new(<[u8; 32]>::from(Sha256::digest(password)));
    let mixed = Sha256::new_with_prefix(Sha256::digest(once.as_slice())).chain_update(nonce).finalize();
    xor(once.as_slice(), &mixed)
}

/// Whether this proves the password to `caching_sha2_password`. For an empty password clients send nothing or a zero byte.
pub fn verify_sha2(password: &str, nonce: &[u8], proof: &[u8]) -> bool {
    let proof = if proof == [0] { &[] } else { proof };
    sha2_proof(password, nonce).ct_eq(proof).into()
}

/// The proof of MariaDB's `client_ed25519`: a signature of the nonce. Unlike in RFC 8032, the password replaces the seed, whatever its length.
pub fn ed25519_proof(password: &str, nonce: &[u8]) -> Vec<u8> {
    let hash = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(password)));
    let key = ExpandedSecretKey::from_bytes(&hash);
    let public = VerifyingKey::from(&key);
    raw_sign::<Sha512>(&key, nonce, &public).to_bytes().to_vec()
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// The password with a zero byte at its end, for a private connection.
pub fn clear_text(password: &str) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(password.len() + 1));
    text.extend_from_slice(password.as_bytes());
    text.push(0);
    text
}

/// The password without the zero byte at its end, from a full authentication over a private connection; None if the zero byte is missing.
pub fn read_clear_text(text: &[u8]) -> Option<Secret> {
    let text = text.strip_suffix(&[0])?;
    String::from_utf8(text.to_vec()).ok().map(Secret::new)
}

/// The password for a connection that others can read: mixed with the nonce, and encrypted with the server's public key (PEM).
pub fn encrypt(password: &str, nonce: &[u8], public_pem: &[u8]) -> Result<Vec<u8>, AuthError> {
    let pem = std::str::from_utf8(public_pem).map_err(|_| AuthError::Key)?;
    let key = RsaPublicKey::from_public_key_pem(pem.trim_end_matches('\0')).map_err(|_| AuthError::Key)?;
    let mixed = mix(&clear_text(password), nonce);
    key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), &mixed).map_err(|_| AuthError::Encrypt)
}

/// XORs a text with the nonce, repeated to the text's length. Applied twice, it returns the text.
fn mix(text: &[u8], nonce: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.iter().zip(nonce.iter().cycle()).map(|(a, b)| a ^ b).collect())
}

/// A key pair, with which clients encrypt their password.
pub struct RsaKey {
    private: RsaPrivateKey,
    public_pem: String,
}

impl RsaKey {
    /// Generates a pair. This takes seconds: do not call it while a session waits.
    pub fn generate() -> Result<Self, AuthError> {
        let private = RsaPrivateKey::new(&mut OsRng, RSA_BITS).map_err(|_| AuthError::Generate)?;
        let public_pem = private.to_public_key().to_public_key_pem(LineEnding::LF).map_err(|_| AuthError::Generate)?;
        Ok(Self { private, public_pem })
    }

    /// The public key in PEM form, as servers send it.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// The password that a client encrypted with [`Self::public_pem`] and this nonce; None if it did not.
    pub fn decrypt(&self, bytes: &[u8], nonce: &[u8]) -> Option<Secret> {
        let mixed = self.private.decrypt_blinded(&mut OsRng, Oaep::new::<Sha1>(), bytes).ok().map(Zeroizing::new)?;
        read_clear_text(&mix(&mixed, nonce))
    }
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
