//! SCRAM-SHA-256 (RFC 5802 and 7677), both sides, without sockets: bytes in, bytes out.
//!
//! As the server, Freshet checks a client's proof against a verifier, and computes from it the key with which it logs in as this client. As the
//! client, Freshet logs in with a password or with this key. Both sides follow PostgreSQL (its manual, "SASL Authentication"; `auth-scram.c` and
//! `fe-auth-scram.c`), including the errors: the user name in the exchange is ignored, authorization identities and mandatory extensions are refused,
//! and `tls-server-end-point` is the only channel binding.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq;

use super::secret::{
    ClientKeys, Credentials, Key, ScramVerifier, Secret, client_key, decode_key, hmac, random, salted_password,
    server_key, sha256,
};
use crate::tls::ChannelBinding;

/// The mechanism without channel binding.
pub const SCRAM: &str = "SCRAM-SHA-256";
/// The mechanism with channel binding.
pub const SCRAM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Longest SASL message that PostgreSQL accepts (`PG_MAX_SASL_MESSAGE_LENGTH`).
pub const SASL_MESSAGE_BYTES_MAX: usize = 1024;
/// `SCRAM_RAW_NONCE_LEN` in PostgreSQL's `common/scram-common.h`.
const NONCE_BYTES: usize = 18;
/// Limit of iterations that a server may ask for: some tenths of a second of CPU. PostgreSQL derives verifiers with 4,096.
const ITERATIONS_MAX: u32 = 1_000_000;
/// The gs2 header with channel binding.
const GS2_PLUS: &str = "p=tls-server-end-point,,";

/// Why an exchange failed. Messages and codes of a client's error are PostgreSQL's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The proof does not match, or there is no such user.
    #[error("password authentication failed")]
    WrongPassword,
    /// A message that does not follow the grammar. The detail is safe to show.
    #[error("malformed SCRAM message: {0}")]
    Malformed(Cow<'static, str>),
    /// An authorization identity.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// `m=`
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    /// The nonce has characters that are not allowed.
    #[error("non-printable characters in SCRAM nonce")]
    Nonce,
    /// The nonce is not that of the exchange.
    #[error("invalid SCRAM response: Nonce does not match.")]
    NonceMismatch,
    /// A channel binding that is not `tls-server-end-point`.
    #[error("unsupported SCRAM channel-binding type \"{0}\"")]
    BindingType(String),
    /// The client believes that Freshet does not support channel binding: an attacker in between changed the offer.
    #[error("SCRAM channel binding negotiation error")]
    Downgrade,
    /// The client's channel binding data belongs to another connection.
    #[error("SCRAM channel binding check failed")]
    Binding,
    /// Binding data without channel binding, or another flag than in the first message.
    #[error("unexpected SCRAM channel-binding attribute in client-final-message")]
    BindingUnexpected,
    /// The operating system has no random numbers.
    #[error("could not generate nonce")]
    NoRandom,
    /// As the client: Freshet has no secret for SCRAM.
    #[error("the server asks for {SCRAM}, and there is neither a password nor a key for it")]
    NoSecret,
    /// As the client: `channel_binding=require` is not possible.
    #[error("channel binding is required, but it cannot be had with this server on this connection")]
    BindingRequired,
    /// As the client: the server asks for too many iterations.
    #[error("the server asks for {0} iterations, more than {ITERATIONS_MAX}")]
    Iterations(u32),
    /// As the client: the server reports that the exchange failed.
    #[error("error received from server in SCRAM exchange: {0}")]
    Refused(String),
    /// As the client: the server does not know the user's verifier, so it is another server.
    #[error("incorrect server signature")]
    ServerSignature,
}

impl ScramError {
    /// The primary message of the error sent to the client.
    pub fn message(&self) -> String {
        match self {
            Self::Malformed(_) => "malformed SCRAM message".into(),
            Self::NonceMismatch => "invalid SCRAM response".into(),
            other => other.to_string(),
        }
    }

    /// The detail of that error.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Malformed(detail) => Some(detail),
            Self::NonceMismatch => Some("Nonce does not match."),
            Self::Downgrade => Some(
                "The client supports SCRAM channel binding but thinks the server does not.  \
                 However, this server does support channel binding.",
            ),
            _ => None,
        }
    }

    /// The SQLSTATE of that error.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::WrongPassword => "28P01",
            Self::Downgrade | Self::Binding => "28000",
            Self::AuthorizationIdentity | Self::Extension => "0A000",
            Self::NoRandom => "XX000",
            _ => "08P01",
        }
    }
}

fn malformed(detail: impl Into<Cow<'static, str>>) -> ScramError {
    ScramError::Malformed(detail.into())
}

/// The server's side: the client's first message creates it, the client's last message consumes it.
pub struct ScramServer {
    verifier: ScramVerifier,
    /// The `c=` that the last message must have.
    binding: String,
    /// Whether `binding` holds channel binding data.
    plus: bool,
    nonce: Vec<u8>,
    /// client-first-message-bare and server-first-message, each followed by a comma.
    transcript: Vec<u8>,
}

impl ScramServer {
    /// Answers client-first-message (the data in SASLInitialResponse) with server-first-message.
    ///
    /// `plus`: the client chose [`SCRAM_PLUS`]. `end_point`: the tls-server-end-point data of Freshet's certificate; None if [`SCRAM_PLUS`] was not
    /// offered.
    pub fn start(
        verifier: ScramVerifier,
        plus: bool,
        end_point: Option<&[u8]>,
        client_first: &[u8],
    ) -> Result<(Self, Vec<u8>), ScramError> {
        Self::start_with(verifier, plus, end_point, (client_first, &nonce()?))
    }

    fn start_with(
        verifier: ScramVerifier,
        plus: bool,
        end_point: Option<&[u8]>,
        (client_first, own_nonce): (&[u8], &str),
    ) -> Result<(Self, Vec<u8>), ScramError> {
        let first = ClientFirst::parse(client_first, plus, end_point.is_some())?;
        let binding = if plus {
            [GS2_PLUS.as_bytes(), end_point.ok_or(ScramError::Binding)?].concat()
        } else {
            vec![first.flag, b',', b',']
        };
        let nonce = [first.nonce, own_nonce.as_bytes()].concat();
        let salt = BASE64.encode(&verifier.salt);
        let server_first =
            [b"r=", nonce.as_slice(), format!(",s={salt},i={}", verifier.iterations).as_bytes()].concat();
        let transcript = [first.bare, b",", server_first.as_slice(), b","].concat();
        Ok((Self { verifier, binding: BASE64.encode(binding), plus, nonce, transcript }, server_first))
    }

    /// Checks client-final-message. Returns server-final-message and the client's keys, if the client knows the password.
    pub fn finish(self, client_final: &[u8]) -> Result<(Vec<u8>, ClientKeys), ScramError> {
        let mut rest = Attributes::of(client_final)?;
        if rest.value(b'c')? != self.binding.as_bytes() {
            return Err(if self.plus { ScramError::Binding } else { ScramError::BindingUnexpected });
        }
        let nonce = rest.value(b'r')?;
        let (without_proof, proof) = rest.proof(client_final)?;
        if nonce != self.nonce {
            return Err(ScramError::NonceMismatch);
        }
        let transcript = [self.transcript.as_slice(), without_proof];
        let signature = hmac(self.verifier.stored_key.as_slice(), &transcript);
        let client_key = xor(&proof, &signature);
        // The work is the same for users that do not exist, so that the time does not reveal them.
        let right = sha256(client_key.as_slice()).ct_eq(self.verifier.stored_key.as_slice());
        let server_signature = BASE64.encode(hmac(self.verifier.server_key.as_slice(), &transcript));
        if !bool::from(right) || self.verifier.doomed {
            return Err(ScramError::WrongPassword);
        }
        let keys = ClientKeys { client_key, server_key: self.verifier.server_key };
        Ok((format!("v={server_signature}").into_bytes(), keys))
    }
}

/// client-first-message.
struct ClientFirst<'a> {
    /// gs2-cbind-flag
    flag: u8,
    bare: &'a [u8],
    nonce: &'a [u8],
}

impl<'a> ClientFirst<'a> {
    fn parse(message: &'a [u8], plus: bool, offered_plus: bool) -> Result<Self, ScramError> {
        let mut rest = Attributes::of(message)?;
        let flag = rest.peek();
        match flag {
            b'n' | b'y' if plus => {
                let why = "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel \
                           binding data.";
                return Err(malformed(why));
            }
            b'y' if offered_plus => return Err(ScramError::Downgrade),
            b'n' | b'y' => {
                rest.skip();
                rest.expect_comma(|found| format!("Comma expected, but found character \"{found}\"."))?;
            }
            b'p' if !plus => {
                let why = "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes \
                           channel binding data.";
                return Err(malformed(why));
            }
            b'p' => {
                let kind = rest.value(b'p')?;
                if kind != b"tls-server-end-point" {
                    return Err(ScramError::BindingType(sanitized(kind)));
                }
            }
            other => {
                return Err(malformed(format!("Unexpected channel-binding flag \"{}\".", shown(other))));
            }
        }
        if rest.peek() == b'a' {
            return Err(ScramError::AuthorizationIdentity);
        }
        rest.expect_comma(|found| format!("Unexpected attribute \"{found}\" in client-first-message."))?;
        let bare = rest.0;
        if rest.peek() == b'm' {
            return Err(ScramError::Extension);
        }
        rest.value(b'n')?;
        let nonce = rest.value(b'r')?;
        if !nonce.iter().all(u8::is_ascii_graphic) {
            return Err(ScramError::Nonce);
        }
        while !rest.0.is_empty() {
            rest.any()?;
        }
        Ok(Self { flag, bare, nonce })
    }
}

/// The client's side: it sends the first message, then the proof, and checks the server's proof.
pub struct ScramClient {
    credentials: Credentials,
    /// The gs2 header with the channel binding data, as `c=` repeats it.
    binding: String,
    bare: String,
    nonce: String,
    /// The signature that the server must send; set with the proof.
    server_signature: Option<Key>,
}

impl ScramClient {
    /// Chooses the mechanism and creates client-first-message.
    ///
    /// `end_point`: the tls-server-end-point data of the server's certificate, None without TLS. `offered_plus`: the server offers [`SCRAM_PLUS`].
    pub fn start(
        credentials: &Credentials,
        end_point: Option<&[u8]>,
        offered_plus: bool,
        binding: ChannelBinding,
    ) -> Result<(Self, &'static str, Vec<u8>), ScramError> {
        if !matches!(credentials, Credentials::Password(_) | Credentials::Scram(_)) {
            return Err(ScramError::NoSecret);
        }
        let end_point = end_point.filter(|_| binding != ChannelBinding::Disable);
        let (mechanism, gs2, data) = match end_point {
            Some(data) if offered_plus => (SCRAM_PLUS, GS2_PLUS, data),
            _ if binding == ChannelBinding::Require => return Err(ScramError::BindingRequired),
            // Freshet supports channel binding and the server did not offer it. If the server did, it detects an attacker in between.
            Some(_) => (SCRAM, "y,,", [].as_slice()),
            None => (SCRAM, "n,,", [].as_slice()),
        };
        let nonce = nonce()?;
        let bare = format!("n=,r={nonce}");
        let first = format!("{gs2}{bare}").into_bytes();
        let binding = BASE64.encode([gs2.as_bytes(), data].concat());
        Ok((Self { credentials: credentials.clone(), binding, bare, nonce, server_signature: None }, mechanism, first))
    }

    /// Answers server-first-message with client-final-message. The time grows with the server's number of iterations.
    pub fn proof(&mut self, server_first: &[u8]) -> Result<Vec<u8>, ScramError> {
        let mut rest = Attributes::of(server_first)?;
        let nonce = rest.value(b'r')?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(self.nonce.as_bytes()) {
            return Err(ScramError::NonceMismatch);
        }
        let salt = BASE64.decode(rest.value(b's')?).map_err(|_| malformed("The salt is not in base 64."))?;
        let iterations = std::str::from_utf8(rest.value(b'i')?).ok().and_then(|i| i.parse().ok());
        let iterations = iterations.filter(|i| *i > 0).ok_or_else(|| malformed("Invalid iteration count."))?;
        if !rest.0.is_empty() {
            return Err(malformed("Garbage found at the end of server-first-message."));
        }
        if iterations > ITERATIONS_MAX {
            return Err(ScramError::Iterations(iterations));
        }
        let keys = match &self.credentials {
            Credentials::Password(password) => keys_of(password, &salt, iterations),
            Credentials::Scram(keys) => keys.clone(),
            Credentials::Nothing | Credentials::Md5(_) => return Err(ScramError::NoSecret),
        };
        let mut last = format!("c={},r=", self.binding).into_bytes();
        last.extend_from_slice(nonce);
        let transcript = [self.bare.as_bytes(), b",", server_first, b",", last.as_slice()];
        let signature = hmac(sha256(keys.client_key.as_slice()).as_slice(), &transcript);
        self.server_signature = Some(hmac(keys.server_key.as_slice(), &transcript));
        let proof = BASE64.encode(xor(&keys.client_key, &signature));
        last.extend_from_slice(b",p=");
        last.extend_from_slice(proof.as_bytes());
        Ok(last)
    }

    /// Checks server-final-message: whether the server knows the user's verifier.
    pub fn verify(self, server_final: &[u8]) -> Result<(), ScramError> {
        let mut rest = Attributes::of(server_final)?;
        if rest.peek() == b'e' {
            return Err(ScramError::Refused(sanitized(rest.value(b'e')?)));
        }
        let signature = decode_key(rest.value(b'v')?).ok_or_else(|| malformed("Malformed server signature."))?;
        if !rest.0.is_empty() {
            return Err(malformed("Garbage found at the end of server-final-message."));
        }
        let right = self.server_signature.is_some_and(|own| own.ct_eq(signature.as_slice()).into());
        if right { Ok(()) } else { Err(ScramError::ServerSignature) }
    }
}

fn keys_of(password: &Secret, salt: &[u8], iterations: u32) -> ClientKeys {
    let salted = salted_password(password.expose(), salt, iterations);
    ClientKeys { client_key: client_key(&salted), server_key: server_key(&salted) }
}

/// The rest of a message, read attribute by attribute as PostgreSQL reads it.
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    fn of(message: &'a [u8]) -> Result<Self, ScramError> {
        match message {
            [] => Err(malformed("The message is empty.")),
            text if text.contains(&0) => Err(malformed("Message length does not match input length.")),
            text => Ok(Self(text)),
        }
    }

    /// The next character; 0 at the end, as in the C string that PostgreSQL reads.
    fn peek(&self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    fn skip(&mut self) {
        self.0 = self.0.get(1..).unwrap_or_default();
    }

    fn expect_comma(&mut self, detail: impl FnOnce(String) -> String) -> Result<(), ScramError> {
        if self.peek() != b',' {
            return Err(malformed(detail(shown(self.peek()))));
        }
        self.skip();
        Ok(())
    }

    /// The value of the next attribute, which must be this one.
    fn value(&mut self, attribute: u8) -> Result<&'a [u8], ScramError> {
        if self.peek() != attribute {
            let (expected, found) = (char::from(attribute), shown(self.peek()));
            return Err(malformed(format!("Expected attribute \"{expected}\" but found \"{found}\".")));
        }
        Ok(self.any()?.1)
    }

    /// The next attribute, with its value.
    fn any(&mut self) -> Result<(u8, &'a [u8]), ScramError> {
        let attribute = self.peek();
        if attribute == 0 {
            return Err(malformed("Attribute expected, but found end of string."));
        }
        if !attribute.is_ascii_alphabetic() {
            let found = shown(attribute);
            return Err(malformed(format!("Attribute expected, but found invalid character \"{found}\".")));
        }
        self.skip();
        if self.peek() != b'=' {
            return Err(malformed(format!("Expected character \"=\" for attribute \"{}\".", char::from(attribute))));
        }
        self.skip();
        let end = self.0.iter().position(|byte| *byte == b',').unwrap_or(self.0.len());
        let (value, rest) = self.0.split_at_checked(end).unwrap_or_default();
        self.0 = rest.get(1..).unwrap_or_default();
        Ok((attribute, value))
    }

    /// The end of client-final-message: the text before the proof, and the proof.
    fn proof(&mut self, message: &'a [u8]) -> Result<(&'a [u8], Key), ScramError> {
        let (before, proof) = loop {
            let before = message.len().saturating_sub(self.0.len() + 1);
            if let (b'p', proof) = self.any()? {
                break (before, proof);
            }
        };
        let proof = decode_key(proof).ok_or_else(|| malformed("Malformed proof in client-final-message."))?;
        if !self.0.is_empty() {
            return Err(malformed("Garbage found at the end of client-final-message."));
        }
        Ok((message.get(..before).unwrap_or_default(), proof))
    }
}

/// A character from the client, safe to show (`sanitize_char`).
fn shown(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("0x{byte:02x}") }
}

/// A text from the client, safe to show (`sanitize_str`).
fn sanitized(text: &[u8]) -> String {
    text.iter().take(30).map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '?' }).collect()
}

fn xor(one: &Key, other: &Key) -> Key {
    let mut sum = one.clone();
    sum.iter_mut().zip(other.iter()).for_each(|(sum, byte)| *sum ^= byte);
    sum
}

/// A nonce of printable characters.
fn nonce() -> Result<String, ScramError> {
    let bytes = random::<NONCE_BYTES>().map_err(|_| ScramError::NoRandom)?;
    Ok(BASE64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use postgres_protocol::authentication::sasl;

    use super::*;

    const END_POINT: &[u8] = &[0xa5; 32];

    /// A server's answer to a nonce.
    type Answer<'a> = &'a dyn Fn(&str) -> String;

    fn verifier() -> ScramVerifier {
        ScramVerifier::derive("pencil", b"0123456789abcdef", 4096)
    }

    fn password(password: &str) -> Credentials {
        Credentials::Password(Secret::new(password.into()))
    }

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_specifications_example() {
        const OWN: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let verifier = ScramVerifier::derive("pencil", &salt, 4096);
        let (server, answer) = ScramServer::start_with(verifier, false, None, (first, OWN)).unwrap();
        let expected = format!("r=rOprNGfwEbeRWgbNEkqO{OWN},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert_eq!(String::from_utf8(answer.clone()).unwrap(), expected);

        let mut client = ScramClient {
            credentials: password("pencil"),
            binding: "biws".into(),
            bare: "n=user,r=rOprNGfwEbeRWgbNEkqO".into(),
            nonce: "rOprNGfwEbeRWgbNEkqO".into(),
            server_signature: None,
        };
        let proof = client.proof(&answer).unwrap();
        let proof_text = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let expected = format!("c=biws,r=rOprNGfwEbeRWgbNEkqO{OWN},p={proof_text}");
        assert_eq!(String::from_utf8(proof.clone()).unwrap(), expected);
        let (last, _) = server.finish(&proof).unwrap();
        assert_eq!(last, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        client.verify(&last).unwrap();
    }

    /// One exchange of Freshet's client side with its server side; returns the keys that the server recovered.
    fn exchange(
        credentials: &Credentials,
        verifier: ScramVerifier,
        (client_end, server_end): (Option<&[u8]>, Option<&[u8]>),
        binding: ChannelBinding,
    ) -> Result<(&'static str, ClientKeys), ScramError> {
        let (mut client, mechanism, first) =
            ScramClient::start(credentials, client_end, server_end.is_some(), binding)?;
        let (server, answer) = ScramServer::start(verifier, mechanism == SCRAM_PLUS, server_end, &first)?;
        let (last, keys) = server.finish(&client.proof(&answer)?)?;
        client.verify(&last)?;
        Ok((mechanism, keys))
    }

    #[test]
    fn recovered_keys_log_in_again() {
        for end in [None, Some(END_POINT)] {
            let ends = (end, end);
            let (_, keys) = exchange(&password("pencil"), verifier(), ends, ChannelBinding::Prefer).unwrap();
            let keys = Credentials::Scram(keys);
            exchange(&keys, verifier(), ends, ChannelBinding::Prefer).unwrap();
            let other = ScramVerifier::derive("pencil", b"another salt", 4096);
            let error = exchange(&keys, other, ends, ChannelBinding::Prefer).unwrap_err();
            assert_eq!(error, ScramError::WrongPassword);
        }
    }

    #[test]
    fn channel_binding_is_chosen_as_libpq_does() {
        let run = |client, server, binding| {
            exchange(&password("pencil"), verifier(), (client, server), binding).map(|(mechanism, _)| mechanism)
        };
        let (some, other) = (Some(END_POINT), Some([0; 32].as_slice()));
        assert_eq!(run(None, None, ChannelBinding::Prefer), Ok(SCRAM));
        assert_eq!(run(some, some, ChannelBinding::Prefer), Ok(SCRAM_PLUS));
        assert_eq!(run(some, some, ChannelBinding::Require), Ok(SCRAM_PLUS));
        assert_eq!(run(some, some, ChannelBinding::Disable), Ok(SCRAM));
        // The server does not offer channel binding, and the client sends "y".
        assert_eq!(run(some, None, ChannelBinding::Prefer), Ok(SCRAM));
        assert_eq!(run(some, None, ChannelBinding::Require), Err(ScramError::BindingRequired));
        assert_eq!(run(None, None, ChannelBinding::Require), Err(ScramError::BindingRequired));
        // An attacker in between has another certificate.
        assert_eq!(run(some, other, ChannelBinding::Prefer), Err(ScramError::Binding));
        // An attacker in between removes the offer.
        let (_, _, first) = ScramClient::start(&password("pencil"), some, false, ChannelBinding::Prefer).unwrap();
        let error = ScramServer::start(verifier(), false, some, &first).err().unwrap();
        assert_eq!((&error, error.sqlstate()), (&ScramError::Downgrade, "28000"));
    }

    /// Freshet's server side with a client of another implementation.
    #[test]
    fn another_client() {
        let bindings: [(fn() -> sasl::ChannelBinding, _); 4] = [
            (sasl::ChannelBinding::unsupported, None),
            (sasl::ChannelBinding::unrequested, None),
            (sasl::ChannelBinding::unsupported, Some(END_POINT)),
            (|| sasl::ChannelBinding::tls_server_end_point(END_POINT.to_vec()), Some(END_POINT)),
        ];
        for (i, (binding, end_point)) in bindings.into_iter().enumerate() {
            for (password, right) in [("pencil", true), ("Pencil", false), ("", false)] {
                let mut client = sasl::ScramSha256::new(password.as_bytes(), binding());
                let (server, answer) = ScramServer::start(verifier(), i == 3, end_point, client.message()).unwrap();
                client.update(&answer).unwrap();
                match server.finish(client.message()) {
                    Ok((last, _)) => {
                        assert!(right);
                        client.finish(&last).unwrap();
                    }
                    Err(error) => assert_eq!((error, right), (ScramError::WrongPassword, false)),
                }
            }
        }
    }

    #[test]
    fn nobody_gets_past_a_mock() {
        let doomed = ScramVerifier { doomed: true, ..verifier() };
        for verifier in [doomed, ScramVerifier::mock(&[1; 32], "nobody", 4096)] {
            let error = exchange(&password("pencil"), verifier, (None, None), ChannelBinding::Prefer).unwrap_err();
            assert_eq!((&error, error.sqlstate()), (&ScramError::WrongPassword, "28P01"));
        }
    }

    #[test]
    fn first_messages_that_are_refused() {
        type Case<'a> = (&'a [u8], bool, Option<&'a [u8]>, &'a str);
        let cases: &[Case<'_>] = &[
            (b"", false, None, "08P01 malformed SCRAM message: The message is empty."),
            (b"n,,n=\0,r=x", false, None, "08P01 malformed SCRAM message: Message length does not match input length."),
            (b"x,,n=,r=x", false, None, "08P01 malformed SCRAM message: Unexpected channel-binding flag \"'x'\"."),
            (b"\xff", false, None, "08P01 malformed SCRAM message: Unexpected channel-binding flag \"0xff\"."),
            (b"n", false, None, "08P01 malformed SCRAM message: Comma expected, but found character \"0x00\"."),
            (b"y;", false, None, "08P01 malformed SCRAM message: Comma expected, but found character \"';'\"."),
            (b"n,a=root,n=,r=x", false, None, "0A000 client uses authorization identity, but it is not supported"),
            (
                b"n,b,",
                false,
                None,
                "08P01 malformed SCRAM message: Unexpected attribute \"'b'\" in client-first-message.",
            ),
            (b"n,,m=x,n=,r=x", false, None, "0A000 client requires an unsupported SCRAM extension"),
            (b"n,,r=x", false, None, "08P01 malformed SCRAM message: Expected attribute \"n\" but found \"'r'\"."),
            (b"n,,n", false, None, "08P01 malformed SCRAM message: Expected character \"=\" for attribute \"n\"."),
            (b"n,,n=", false, None, "08P01 malformed SCRAM message: Expected attribute \"r\" but found \"0x00\"."),
            (b"n,,n=,r=a b", false, None, "08P01 non-printable characters in SCRAM nonce"),
            (b"n,,n=,r=a\xc3", false, None, "08P01 non-printable characters in SCRAM nonce"),
            (
                b"n,,n=,r=a,1=",
                false,
                None,
                "08P01 malformed SCRAM message: Attribute expected, but found invalid character \"'1'\".",
            ),
            (
                b"n,,n=,r=a,x",
                false,
                None,
                "08P01 malformed SCRAM message: Expected character \"=\" for attribute \"x\".",
            ),
            (
                b"p=tls-server-end-point,,n=,r=x",
                false,
                Some(END_POINT),
                "08P01 malformed SCRAM message: The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.",
            ),
            (
                b"n,,n=,r=x",
                true,
                Some(END_POINT),
                "08P01 malformed SCRAM message: The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
            ),
            (b"y,,n=,r=x", false, Some(END_POINT), "28000 SCRAM channel binding negotiation error"),
            (
                b"p=tls-unique\xff,,n=,r=x",
                true,
                Some(END_POINT),
                "08P01 unsupported SCRAM channel-binding type \"tls-unique?\"",
            ),
        ];
        for (message, plus, end_point, expected) in cases {
            let error = ScramServer::start(verifier(), *plus, *end_point, message).err();
            let error = error.unwrap_or_else(|| panic!("accepted: {}", message.escape_ascii()));
            assert_eq!(&format!("{} {error}", error.sqlstate()), expected);
        }
        for good in [&b"n,,n=,r="[..], b"y,,n=a=b,r=x,", b"n,,n=\xff,r=x,q=,z=\xff"] {
            assert!(ScramServer::start(verifier(), false, None, good).is_ok(), "{}", good.escape_ascii());
        }
    }

    #[test]
    fn last_messages_that_are_refused() {
        let start = || ScramServer::start_with(verifier(), false, None, (b"n,,n=,r=CLIENT", "SERVER")).unwrap().0;
        let proof = BASE64.encode([1; 32]);
        let cases = [
            (String::new(), "malformed SCRAM message: The message is empty."),
            ("c".into(), "malformed SCRAM message: Expected character \"=\" for attribute \"c\"."),
            (
                format!("r=CLIENTSERVER,c=biws,p={proof}"),
                "malformed SCRAM message: Expected attribute \"c\" but found \"'r'\".",
            ),
            (
                format!("c=eSws,r=CLIENTSERVER,p={proof}"),
                "unexpected SCRAM channel-binding attribute in client-final-message",
            ),
            ("c=biws,r=CLIENTSERVER".into(), "malformed SCRAM message: Attribute expected, but found end of string."),
            (format!("c=biws,r=CLIENTSERVE,p={proof}"), "invalid SCRAM response: Nonce does not match."),
            (format!("c=biws,r=CLIENTSERVERS,p={proof}"), "invalid SCRAM response: Nonce does not match."),
            (format!("c=biws,r=,p={proof}"), "invalid SCRAM response: Nonce does not match."),
            ("c=biws,r=CLIENTSERVER,p=".into(), "malformed SCRAM message: Malformed proof in client-final-message."),
            (
                "c=biws,r=CLIENTSERVER,p=AAAA".into(),
                "malformed SCRAM message: Malformed proof in client-final-message.",
            ),
            (
                format!("c=biws,r=CLIENTSERVER,p={proof},x=1"),
                "malformed SCRAM message: Garbage found at the end of client-final-message.",
            ),
            (format!("c=biws,r=CLIENTSERVER,p={proof}"), "password authentication failed"),
            (format!("c=biws,r=CLIENTSERVER,x=extension,p={proof},"), "password authentication failed"),
        ];
        for (message, expected) in cases {
            let error = start().finish(message.as_bytes()).err().unwrap();
            assert_eq!(error.to_string(), expected, "{message}");
        }
    }

    /// No damaged message is accepted or panics.
    #[test]
    fn damaged_messages() {
        let (mut client, _, first) =
            ScramClient::start(&password("pencil"), None, false, ChannelBinding::Prefer).unwrap();
        let (server, answer) = ScramServer::start(verifier(), false, None, &first).unwrap();
        let last = client.proof(&answer).unwrap();
        let rebuilt = |server: &ScramServer| ScramServer {
            verifier: server.verifier.clone(),
            binding: server.binding.clone(),
            plus: server.plus,
            nonce: server.nonce.clone(),
            transcript: server.transcript.clone(),
        };
        for at in 0..last.len() {
            assert!(rebuilt(&server).finish(last.get(..at).unwrap()).is_err(), "cut at {at}");
            for byte in [0, b',', b'=', b'p', b'A', 0xff] {
                let mut damaged = last.clone();
                damaged[at] = byte;
                assert!(damaged == last || rebuilt(&server).finish(&damaged).is_err(), "{byte} at {at}");
            }
        }
        for at in 0..first.len() {
            // This may be accepted: a shorter nonce is valid.
            let _ = ScramServer::start(verifier(), false, None, first.get(..at).unwrap());
        }
        assert!(server.finish(&last).is_ok());
    }

    #[test]
    fn a_server_that_is_not_to_be_trusted() {
        let start = || ScramClient::start(&password("pencil"), None, false, ChannelBinding::Prefer).unwrap().0;
        let salt = BASE64.encode([1; 16]);
        let refused = |answer: Answer<'_>| {
            let mut client = start();
            let answer = answer(&client.nonce);
            client.proof(answer.as_bytes()).err().map(|error| error.to_string())
        };

        let cases: [(Answer<'_>, &str); 9] = [
            (&|_| String::new(), "The message is empty."),
            (&|_| format!("r=other,s={salt},i=1"), "Nonce does not match."),
            (&|nonce| format!("r={nonce},s={salt},i=1"), "Nonce does not match."),
            (&|nonce| format!("r={nonce}x,s=*,i=1"), "base 64"),
            (&|nonce| format!("r={nonce}x,s={salt},i=0"), "iteration count"),
            (&|nonce| format!("r={nonce}x,s={salt},i=-1"), "iteration count"),
            (&|nonce| format!("r={nonce}x,s={salt},i=99999999999"), "iteration count"),
            (&|nonce| format!("r={nonce}x,s={salt},i=10000001"), "10000001 iterations"),
            (&|nonce| format!("r={nonce}x,s={salt},i=1,x=1"), "Garbage"),
        ];
        for (answer, expected) in cases {
            let error = refused(answer).expect(expected);
            assert!(error.contains(expected), "{error} for {expected}");
        }
        assert!(refused(&|nonce| format!("r={nonce}x,s={salt},i=1")).is_none());

        let wrong = BASE64.encode([0; 32]);
        let verified = |last: &str| {
            let mut client = start();
            client.proof(format!("r={}x,s={salt},i=1", client.nonce).as_bytes()).unwrap();
            client.verify(last.as_bytes()).unwrap_err()
        };
        assert_eq!(verified(&format!("v={wrong}")), ScramError::ServerSignature);
        assert_eq!(verified("e=invalid-proof"), ScramError::Refused("invalid-proof".into()));
        for last in ["", "v=", "v=AAAA", "x=1"] {
            assert!(matches!(verified(last), ScramError::Malformed(_)), "{last}");
        }
        // No proof was sent, so no signature is accepted.
        assert_eq!(start().verify(format!("v={wrong}").as_bytes()).unwrap_err(), ScramError::ServerSignature);
    }

    #[test]
    fn secrets_that_are_not_good_for_scram() {
        let md5 = Credentials::Md5(super::super::secret::Md5Hash::of("x", "u"));
        for credentials in [Credentials::Nothing, md5] {
            let error = ScramClient::start(&credentials, None, false, ChannelBinding::Prefer).err();
            assert_eq!(error, Some(ScramError::NoSecret));
        }
    }
}
