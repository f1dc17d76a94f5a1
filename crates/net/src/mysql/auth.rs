//! The arithmetic of logins: what proves a password, made and checked.
//!
//! With `mysql_native_password` and the fast way of `caching_sha2_password` a client proves that it knows the password by a
//! hash of it mixed with the server's nonce. The full way of `caching_sha2_password` sends the password itself, and so
//! does `sha256_password`: over TLS or a Unix socket as it is, else encrypted with the server's public RSA key. Who sends that
//! key is not proven; an active attacker who can answer in the server's place can ask for the password with a key of its
//! own, as with every client that does not know the key beforehand. `ssl-mode=verify-ca` is the remedy.
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

/// Bits of a key made here; the servers' default.
const RSA_BITS: usize = 2048;

/// Client to server: show your public key (`request_public_key` of `caching_sha2_password`).
pub const SHA2_REQUEST_KEY: u8 = 2;
/// Server to client: the proof was right and the password's hash is known.
pub const SHA2_FAST_OK: u8 = 3;
/// Server to client: the hash is not known; send the password.
pub const SHA2_FULL: u8 = 4;
/// Client to server: show your public key (`sha256_password`).
pub const SHA256_REQUEST_KEY: u8 = 1;

/// Why a proof could not be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The key is no RSA key in PEM form.
    #[error("the server's public key cannot be read")]
    Key,
    /// A password that is too long for the key.
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

/// Whether this proves the password to `caching_sha2_password`. For an empty one clients send nothing or a zero.
pub fn verify_sha2(password: &str, nonce: &[u8], proof: &[u8]) -> bool {
    let proof = if proof == [0] { &[] } else { proof };
    sha2_proof(password, nonce).ct_eq(proof).into()
}

/// The proof of MariaDB's `client_ed25519`: a signature of the nonce. Unlike in RFC 8032 the password stands in the
/// place of the seed, whatever its length.
pub fn ed25519_proof(password: &str, nonce: &[u8]) -> Vec<u8> {
    let hash = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(password)));
    let key = ExpandedSecretKey::from_bytes(&hash);
    let public = VerifyingKey::from(&key);
    raw_sign::<Sha512>(&key, nonce, &public).to_bytes().to_vec()
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// The password with a zero at its end, as it goes over a private connection.
pub fn clear_text(password: &str) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(password.len() + 1));
    text.extend_from_slice(password.as_bytes());
    text.push(0);
    text
}

/// The password without the zero at its end, out of a full authentication over a private connection; None if it is none.
pub fn read_clear_text(text: &[u8]) -> Option<Secret> {
    let text = text.strip_suffix(&[0])?;
    String::from_utf8(text.to_vec()).ok().map(Secret::new)
}

/// The password as it goes over a connection that others can read: mixed with the nonce, and encrypted with the
/// server's public key (PEM).
pub fn encrypt(password: &str, nonce: &[u8], public_pem: &[u8]) -> Result<Vec<u8>, AuthError> {
    let pem = std::str::from_utf8(public_pem).map_err(|_| AuthError::Key)?;
    let key = RsaPublicKey::from_public_key_pem(pem.trim_end_matches('\0')).map_err(|_| AuthError::Key)?;
    let mixed = mix(&clear_text(password), nonce);
    key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), &mixed).map_err(|_| AuthError::Encrypt)
}

/// Mixes a text with a nonce, repeated as often as it takes; twice gives the text.
fn mix(text: &[u8], nonce: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.iter().zip(nonce.iter().cycle()).map(|(a, b)| a ^ b).collect())
}

/// A key pair, for clients that send their password encrypted.
pub struct RsaKey {
    private: RsaPrivateKey,
    public_pem: String,
}

impl RsaKey {
    /// Makes a pair. It takes seconds: not to be called where a session waits.
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
