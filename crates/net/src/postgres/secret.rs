//! Secrets: passwords, the verifiers that a server stores for them, and the keys that a login reveals.
//!
//! A verifier can check a password, but it cannot log in. A SCRAM verifier and one successful login together reveal the client's key (RFC 5802,
//! section 3). This key logs in elsewhere as the same user without the password: Freshet opens connections in a client's name with it. None of these
//! values is ever shown: `Debug` prints `***`, and the memory is wiped when they are dropped.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use md5::Md5;
use sha2::{Digest, Sha256};
use stringprep::tables;
use subtle::ConstantTimeEq;
use unicode_normalization::UnicodeNormalization;
use zeroize::{Zeroize, Zeroizing};

/// A key or a hash of SHA-256.
pub(super) type Key = Zeroizing<[u8; 32]>;

/// PostgreSQL's number of iterations of a verifier, unless `scram_iterations` says otherwise.
pub const ITERATIONS_DEFAULT: u32 = 4096;
/// `SCRAM_DEFAULT_SALT_LEN` in PostgreSQL's `common/scram-common.h`.
const SALT_BYTES: usize = 16;
/// The prefix of a SCRAM verifier, also in pg_authid.
const SCRAM_PREFIX: &str = "SCRAM-SHA-256$";

/// A password.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes ownership of a password.
    pub fn new(password: String) -> Self {
        Self(Zeroizing::new(password))
    }

    /// The password itself, for the code that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The keys with which a SCRAM login is possible without the password.
#[derive(Clone)]
pub struct ClientKeys {
    pub(super) client_key: Key,
    /// Checks that the server knows the user's verifier.
    pub(super) server_key: Key,
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The credentials with which Freshet logs in to the upstream.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// None: the upstream must not ask for any.
    Nothing,
    /// The password: for every method.
    Password(Secret),
    /// A client's keys: for SCRAM.
    Scram(ClientKeys),
    /// The password's hash: for md5.
    Md5(Md5Hash),
}

/// Bytes that hold a secret.
#[derive(Clone, Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes ownership of them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads this many. A part that comes before a failure is wiped as well.
    pub fn read_from(source: &mut impl io::Read, count: usize) -> io::Result<Self> {
        let mut bytes = Self::new(vec![0; count]);
        source.read_exact(&mut bytes.0)?;
        Ok(bytes)
    }

    /// The bytes themselves, for the code that needs them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Credentials {
    /// For another process of Freshet.
    pub fn to_bytes(&self) -> SecretBytes {
        let (kind, parts): (u8, [&[u8]; 2]) = match self {
            Self::Nothing => (b'n', [&[], &[]]),
            Self::Password(password) => (b'p', [password.expose().as_bytes(), &[]]),
            Self::Scram(keys) => (b's', [keys.client_key.as_slice(), keys.server_key.as_slice()]),
            Self::Md5(hash) => (b'm', [hash.0.as_slice(), &[]]),
        };
        SecretBytes::new([&[kind][..], parts[0], parts[1]].concat())
    }

    /// What [`Self::to_bytes`] has written.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, secret) = bytes.split_first()?;
        let key = |bytes: &[u8]| bytes.try_into().ok().map(Zeroizing::new);
        match kind {
            b'n' if secret.is_empty() => Some(Self::Nothing),
            b'p' => Some(Self::Password(Secret::new(String::from_utf8(secret.to_vec()).ok()?))),
            b's' => {
                let (client_key, server_key) = secret.split_at_checked(32)?;
                Some(Self::Scram(ClientKeys { client_key: key(client_key)?, server_key: key(server_key)? }))
            }
            b'm' => Some(Self::Md5(Md5Hash(key(secret)?))),
            _ => None,
        }
    }
}

/// `md5(password || user)` as 32 hexadecimal digits.
#[derive(Clone)]
pub struct Md5Hash(Zeroizing<[u8; 32]>);

impl Md5Hash {
    /// The hash that pg_authid stores for this password.
    pub fn of(password: &str, user: &str) -> Self {
        Self(hex_md5(&[password.as_bytes(), user.as_bytes()]))
    }

    /// A client's answer to this salt, with the prefix `md5`.
    pub fn answer(&self, salt: [u8; 4]) -> String {
        let hash = hex_md5(&[self.0.as_slice(), &salt]);
        format!("md5{}", String::from_utf8_lossy(hash.as_slice()))
    }

    /// Whether this is the right answer to the salt. The time is the same for every wrong answer.
    pub fn check(&self, salt: [u8; 4], answer: &[u8]) -> bool {
        self.answer(salt).as_bytes().ct_eq(answer).into()
    }

    fn parse(digits: &str) -> Option<Self> {
        let digits: [u8; 32] = digits.as_bytes().try_into().ok()?;
        // PostgreSQL does not take upper case for a hash either (get_password_type).
        digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f')).then(|| Self(Zeroizing::new(digits)))
    }
}

impl fmt::Debug for Md5Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A seed computed from a secret; it does not reveal the secret.
pub fn hash(secret: &[u8]) -> [u8; 32] {
    Sha256::new_with_prefix(b"freshet: users who do not exist\0").chain_update(secret).finalize().into()
}

/// Cryptographically secure random bytes.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| io::Error::other("no random numbers are to be had"))?;
    Ok(bytes)
}

/// The verifier that a server stores to check a password.
#[derive(Clone, Debug)]
pub enum Verifier {
    /// For SCRAM-SHA-256.
    Scram(ScramVerifier),
    /// For md5 only.
    Md5(Md5Hash),
}

/// A text that is not a verifier. The error does not repeat the text, which may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVerifier {
    /// The text has neither form; it may be a plain password.
    #[error(
        "neither a SCRAM-SHA-256 verifier nor an md5 hash; plain passwords are not taken: set the password in the \
         database (\\password in psql) and copy what SELECT rolpassword FROM pg_authid shows"
    )]
    Unknown,
    /// The text has the prefix of a SCRAM verifier and is not one.
    #[error("a damaged SCRAM-SHA-256 verifier: SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY is the form")]
    Scram,
}

impl Verifier {
    /// Parses the form of pg_authid: `SCRAM-SHA-256$4096:salt$stored:server` or `md5` and 32 digits.
    pub fn parse(text: &str) -> Result<Self, BadVerifier> {
        if let Some(rest) = text.strip_prefix(SCRAM_PREFIX) {
            return ScramVerifier::parse(rest).map(Self::Scram).ok_or(BadVerifier::Scram);
        }
        text.strip_prefix("md5").and_then(Md5Hash::parse).map(Self::Md5).ok_or(BadVerifier::Unknown)
    }

    /// A secret that is computed from the verifier.
    pub fn to_secret(&self) -> String {
        match self {
            Self::Scram(verifier) => verifier.to_string(),
            Self::Md5(hash) => hash.answer([0; 4]),
        }
    }

    /// Whether this is `user`'s password. The time grows with the verifier's number of iterations.
    #[cfg(test)]
    fn check_password(&self, password: &str, user: &str) -> bool {
        match self {
            Self::Scram(verifier) => verifier.check_password(password),
            Self::Md5(hash) => Md5Hash::of(password, user).0.ct_eq(hash.0.as_slice()).into(),
        }
    }
}

/// A verifier for SCRAM-SHA-256 (RFC 5803).
#[derive(Clone)]
pub struct ScramVerifier {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
    /// No password matches, even if the keys do: the verifier is a mock.
    pub(super) doomed: bool,
}

impl ScramVerifier {
    /// The verifier of a password.
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Self {
        let salted = salted_password(password, salt, iterations);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: sha256(client_key(&salted).as_slice()),
            server_key: server_key(&salted),
            doomed: false,
        }
    }

    /// A verifier that nothing matches, for a user that does not exist. It is the same at every attempt, because a changing salt would reveal that
    /// the user does not exist. `seed` is secret; `iterations` are those of real verifiers.
    pub fn mock(seed: &[u8; 32], user: &str, iterations: u32) -> Self {
        let part = |name: &[u8]| hmac(seed, &[name, user.as_bytes()]);
        let salt = part(b"salt").iter().copied().take(SALT_BYTES).collect();
        let (stored_key, server_key) = (part(b"stored"), part(b"server"));
        Self { iterations, salt, stored_key, server_key, doomed: true }
    }

    /// The number of iterations.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether this is the password.
    #[cfg(test)]
    fn check_password(&self, password: &str) -> bool {
        let key = server_key(&salted_password(password, &self.salt, self.iterations));
        bool::from(key.ct_eq(self.server_key.as_slice())) && !self.doomed
    }

    /// Parses the text behind the prefix.
    fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|i| (1..=i32::MAX as u32).contains(i))?;
        let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?;
        let (stored_key, server_key) = (decode_key(stored_key)?, decode_key(server_key)?);
        Some(Self { iterations, salt, stored_key, server_key, doomed: false })
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The form of pg_authid.
impl fmt::Display for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encode = |bytes: &[u8]| BASE64.encode(bytes);
        let (salt, stored, server) =
            (encode(&self.salt), encode(self.stored_key.as_slice()), encode(self.server_key.as_slice()));
        write!(f, "{SCRAM_PREFIX}{}:{salt}${stored}:{server}", self.iterations)
    }
}

/// Decodes a key or a signature in base 64.
pub(super) fn decode_key(text: impl AsRef<[u8]>) -> Option<Key> {
    let bytes = Zeroizing::new(BASE64.decode(text).ok()?);
    bytes.as_slice().try_into().ok().map(Zeroizing::new)
}

/// `ClientKey` of RFC 5802.
pub(super) fn client_key(salted_password: &Key) -> Key {
    hmac(salted_password.as_slice(), &[b"Client Key"])
}

/// `ServerKey` of RFC 5802.
pub(super) fn server_key(salted_password: &Key) -> Key {
    hmac(salted_password.as_slice(), &[b"Server Key"])
}

/// `SaltedPassword` of RFC 5802: PBKDF2 with one block of output.
pub(super) fn salted_password(password: &str, salt: &[u8], iterations: u32) -> Key {
    let prepared = sasl_prepared(password);
    let keyed = keyed_hmac(prepared.as_bytes());
    let mut last = finish_hmac(keyed.clone(), &[salt, &1_u32.to_be_bytes()]);
    let mut sum = last.clone();
    for _ in 1..iterations {
        last = finish_hmac(keyed.clone(), &[last.as_slice()]);
        sum.iter_mut().zip(last.iter()).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// The password in the form that is hashed: prepared by SASLprep (RFC 4013), or unchanged if SASLprep refuses it.
///
/// This follows PostgreSQL (`common/saslprep.c`), whose passwords may be in any encoding. PostgreSQL looks for prohibited characters before it
/// normalizes, not after. The order matters for characters that the normalization removes.
fn sasl_prepared(password: &str) -> Zeroizing<String> {
    if password.is_ascii() {
        return Zeroizing::new(password.to_owned());
    }
    let map = |c| if tables::non_ascii_space_character(c) { ' ' } else { c };
    let kept = |c: &char| !tables::commonly_mapped_to_nothing(*c);
    let mapped: Zeroizing<Vec<char>> = Zeroizing::new(password.chars().map(map).filter(kept).collect());
    let refused = mapped.is_empty() || mapped.iter().copied().any(is_prohibited) || is_mixed_in_direction(&mapped);
    Zeroizing::new(if refused { password.to_owned() } else { mapped.iter().copied().nfkc().collect() })
}

/// RFC 4013, sections 2.3 and 2.5.
fn is_prohibited(c: char) -> bool {
    tables::non_ascii_space_character(c)
        || tables::ascii_control_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::surrogate_code(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
        || tables::unassigned_code_point(c)
}

/// RFC 3454, section 6: if a text has right-to-left letters, all its letters are right-to-left, and so are its first and last characters.
fn is_mixed_in_direction(text: &[char]) -> bool {
    let leftward = |c: &char| tables::bidi_r_or_al(*c);
    text.iter().any(leftward)
        && (text.iter().any(|c| tables::bidi_l(*c))
            || !text.first().is_some_and(leftward)
            || !text.last().is_some_and(leftward))
}

pub(super) fn sha256(bytes: &[u8]) -> Key {
    Zeroizing::new(Sha256::digest(bytes).into())
}

pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    finish_hmac(keyed_hmac(key), parts)
}

fn keyed_hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of every length")
}

fn finish_hmac(mut keyed: Hmac<Sha256>, parts: &[&[u8]]) -> Key {
    for part in parts {
        keyed.update(part);
    }
    Zeroizing::new(keyed.finalize().into_bytes().into())
}

fn hex_md5(parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(part);
    }
    let mut hash: [u8; 16] = digest.finalize().into();
    let mut digits = Zeroizing::new([0; 32]);
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    hash.zeroize();
    digits
}

#[cfg(test)]
mod tests {
    use freshet_testbed::{Postgres, Settings};

    use super::*;

    /// Characters that SASLprep maps, normalizes or refuses, and those that PostgreSQL treats differently from RFC 4013.
    const PASSWORDS: &[&str] = &[
        "secret",
        " two  words ",
        "it's \"quoted\" \\back",
        "a\u{1}b",
        "pässwörd",
        "pa\u{308}sswo\u{308}rd",
        "I\u{ad}X",
        "\u{ad}\u{ad}",
        "\u{2168}",
        "a\u{2003}b\u{200b}c\u{a0}d",
        "ä\u{7}",
        "\u{627}1",
        "\u{627}1\u{628}",
        "a\u{627}",
        "a\u{2135}",
        "x\u{340}",
        "\u{1f130}\u{1f197}",
        "\u{2090}",
        "\u{e000}ä",
        "\u{1f642} ünï",
        "\u{221}ä",
    ];

    #[test]
    fn credentials_go_to_another_process() {
        let keys = ClientKeys { client_key: Zeroizing::new([1; 32]), server_key: Zeroizing::new([2; 32]) };
        for credentials in [
            Credentials::Nothing,
            Credentials::Password(Secret::new("geheim".to_owned())),
            Credentials::Scram(keys),
            Credentials::Md5(Md5Hash::of("geheim", "u")),
        ] {
            let bytes = credentials.to_bytes();
            let read = Credentials::from_bytes(bytes.expose()).expect("what was written");
            assert_eq!(read.to_bytes().expose(), bytes.expose());
            assert!(!format!("{bytes:?}").contains("geheim"));
        }
        assert!(Credentials::from_bytes(b"s123").is_none() && Credentials::from_bytes(b"").is_none());
    }

    /// For every password, the derived verifier is the one of a real server.
    #[test]
    fn postgresql_derives_the_same() -> anyhow::Result<()> {
        for major in [15, 18] {
            let server = Postgres::find(Some(major))?.start(&Settings::default())?;
            for (i, password) in PASSWORDS.iter().enumerate() {
                let quoted: Vec<_> = password.chars().map(|c| format!("\\+{:06x}", u32::from(c))).collect();
                let quoted = quoted.concat();
                server.psql(&format!(
                    "set password_encryption = 'scram-sha-256'; create role s{i} password U&'{quoted}';
                     set password_encryption = 'md5'; create role m{i} password U&'{quoted}'"
                ))?;
                let text =
                    |role| server.psql(&format!("select rolpassword from pg_authid where rolname = '{role}{i}'"));
                let (scram, md5) = (text('s')?, text('m')?);
                let Verifier::Scram(verifier) = Verifier::parse(&scram)? else { panic!("{scram}") };
                assert_eq!(verifier.to_string(), scram, "{password:?}");
                let derived = ScramVerifier::derive(password, &verifier.salt, verifier.iterations);
                assert_eq!(derived.to_string(), scram, "{password:?}");
                assert!(verifier.check_password(password) && !verifier.check_password("other"), "{password:?}");
                let md5 = Verifier::parse(&md5)?;
                assert!(md5.check_password(password, &format!("m{i}")), "{password:?}");
                assert!(!md5.check_password(password, &format!("s{i}")), "{password:?}");
            }
        }
        Ok(())
    }

    /// Compared with another implementation, whose result has the prefix `md5` too.
    #[test]
    fn md5_answers() {
        for (user, password) in [("md5_user", "password"), ("", ""), ("ü", "ß\0")] {
            let salt = [0x2a, 0x3d, 0x8f, 0xe0];
            let expected = postgres_protocol::authentication::md5_hash(user.as_bytes(), password.as_bytes(), salt);
            let hash = Md5Hash::of(password, user);
            assert_eq!(hash.answer(salt), expected);
            assert!(hash.check(salt, expected.as_bytes()));
            assert!(!hash.check([0; 4], expected.as_bytes()));
            assert!(!hash.check(salt, &expected.as_bytes()[3..]));
            assert!(!hash.check(salt, b"") && !hash.check(salt, expected.to_uppercase().as_bytes()));
        }
    }

    #[test]
    fn what_is_no_verifier_is_refused_and_not_repeated() {
        let good = ScramVerifier::derive("x", b"0123456789abcdef", 4096).to_string();
        assert!(Verifier::parse(&good).is_ok());
        let key = BASE64.encode([1; 32]);
        let (short, salt) = (BASE64.encode([1; 31]), BASE64.encode([2; 16]));
        for bad in [
            "",
            "md5",
            "plain text",
            "MD5d41d8cd98f00b204e9800998ecf8427e",
            "md5D41D8CD98F00B204E9800998ECF8427E",
            "md5d41d8cd98f00b204e9800998ecf8427",
            "md5d41d8cd98f00b204e9800998ecf8427ee",
            "scram-sha-256$4096:c2FsdA==$a:b",
        ] {
            assert_eq!(Verifier::parse(bad).unwrap_err(), BadVerifier::Unknown, "{bad:?}");
        }
        for bad in [
            "SCRAM-SHA-256$".to_owned(),
            format!("SCRAM-SHA-256$0:{salt}${key}:{key}"),
            format!("SCRAM-SHA-256$-1:{salt}${key}:{key}"),
            format!("SCRAM-SHA-256$2147483648:{salt}${key}:{key}"),
            format!("SCRAM-SHA-256$4096:${key}:{key}"),
            format!("SCRAM-SHA-256$4096:{salt}${short}:{key}"),
            format!("SCRAM-SHA-256$4096:{salt}${key}:{short}"),
            format!("SCRAM-SHA-256$4096:{salt}${key}"),
            format!("{good} "),
            good[..good.len() - 1].to_owned(),
        ] {
            assert_eq!(Verifier::parse(&bad).unwrap_err(), BadVerifier::Scram, "{bad:?}");
        }
        let shown = format!("{:?} {}", Verifier::parse("hunter2"), BadVerifier::Unknown);
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn mock_verifiers_are_the_same_every_time_and_match_nothing() {
        let seed = [7; 32];
        let one = ScramVerifier::mock(&seed, "nobody", 4096);
        assert_eq!(one.to_string(), ScramVerifier::mock(&seed, "nobody", 4096).to_string());
        assert_ne!(one.salt, ScramVerifier::mock(&seed, "nobody2", 4096).salt);
        assert_ne!(one.salt, ScramVerifier::mock(&[8; 32], "nobody", 4096).salt);
        let real = ScramVerifier::derive("x", &[0; SALT_BYTES], ITERATIONS_DEFAULT);
        assert_eq!((one.salt.len(), one.iterations), (real.salt.len(), real.iterations));
        let doomed = ScramVerifier { doomed: true, ..real };
        assert!(!doomed.check_password("x"));
    }

    #[test]
    fn nothing_secret_is_shown() {
        let keys = ClientKeys { client_key: sha256(b"c"), server_key: sha256(b"s") };
        let shown = format!(
            "{:?} {:?} {:?} {:?}",
            Secret::new("hunter2".into()),
            Credentials::Scram(keys),
            Credentials::Md5(Md5Hash::of("hunter2", "u")),
            Verifier::Scram(ScramVerifier::derive("hunter2", b"salt", 1)),
        );
        assert_eq!(shown, "*** Scram(***) Md5(***) Scram(***)");
    }
}
