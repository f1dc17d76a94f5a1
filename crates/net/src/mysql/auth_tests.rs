//! Proofs against known values, and both sides against each other.

use base64::Engine;
use ed25519_dalek::Signature;

use super::*;

const NONCE: &[u8] = b"abcdefghijklmnopqrst";

#[test]
fn native_proofs_are_checked() {
    // As the server checks: SHA1(nonce + stored) XOR proof is a hash, and `stored` is the hash of this hash.
    let stored = Sha1::digest(Sha1::digest("secret"));
    let proof = native_proof("secret", NONCE);
    let mixed = Sha1::new_with_prefix(NONCE).chain_update(stored).finalize();
    assert_eq!(Sha1::digest(xor(&proof, &mixed)), stored);
    assert!(verify_native("secret", NONCE, &proof) && !verify_native("Secret", NONCE, &proof));
    assert!(!verify_native("secret", b"another nonce", &proof) && !verify_native("secret", NONCE, b""));
    assert!(verify_native("", NONCE, b"") && !verify_native("", NONCE, &proof));
    // SELECT PASSWORD('secret')
    assert_eq!(format!("{stored:X}"), "14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
}

#[test]
fn sha2_proofs_are_checked() {
    let proof = sha2_proof("secret", NONCE);
    let once = Sha256::digest("secret");
    let mixed = Sha256::new_with_prefix(Sha256::digest(once)).chain_update(NONCE).finalize();
    assert_eq!(xor(&proof, &mixed), once.as_slice());
    assert!(verify_sha2("secret", NONCE, &proof) && !verify_sha2("other", NONCE, &proof));
    assert!(verify_sha2("", NONCE, b"") && verify_sha2("", NONCE, &[0]) && !verify_sha2("secret", NONCE, &[0]));
}

#[test]
fn ed25519_proofs_are_mariadbs() {
    // SELECT ed25519_password('secret'), from MariaDB's manual.
    let stored = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY";
    let stored = base64::engine::general_purpose::STANDARD_NO_PAD.decode(stored).unwrap();
    let public = VerifyingKey::from_bytes(stored.as_slice().try_into().unwrap()).unwrap();
    let signature = |password| Signature::from_slice(&ed25519_proof(password, &[7; 32])).unwrap();
    assert!(public.verify_strict(&[7; 32], &signature("secret")).is_ok());
    assert!(public.verify_strict(&[7; 32], &signature("other")).is_err());
}

#[test]
fn passwords_come_out_of_the_envelope() {
    let key = RsaKey::generate().unwrap();
    let pem = format!("{}\0", key.public_pem());
    for password in ["secret", "", "pass wörd, longer than the nonce is"] {
        let sealed = encrypt(password, NONCE, pem.as_bytes()).unwrap();
        assert_eq!(key.decrypt(&sealed, NONCE), Some(Secret::new(password.into())));
        assert_ne!(key.decrypt(&sealed, b"tsrqponmlkjihgfedcba"), Some(Secret::new(password.into())));
    }
    assert_eq!(key.decrypt(b"", NONCE), None);
    assert_eq!(key.decrypt(&[0; 256], NONCE), None);
    assert_eq!(encrypt("secret", NONCE, b"no key"), Err(AuthError::Key));
    assert_eq!(encrypt(&"x".repeat(300), NONCE, pem.as_bytes()), Err(AuthError::Encrypt));
    assert_eq!((clear_text("a").as_slice(), read_clear_text(b"a\0")), (&b"a\0"[..], Some(Secret::new("a".into()))));
    assert_eq!(read_clear_text(b"a"), None);
}
