//! Both sides of SCRAM-SHA-256: whatever the other side says there is no panic and nobody is let in, and an honest
//! exchange succeeds for any password, but not with a byte of any message changed.

#![no_main]

use freshet_fuzz::bounded;
use freshet_net::postgres::scram::{ScramClient, ScramError, ScramServer};
use freshet_net::postgres::secret::{ClientKeys, Credentials, ScramVerifier, Secret};
use freshet_net::tls::ChannelBinding;
use libfuzzer_sys::fuzz_target;

const BINDING: &[u8] = b"hash of the certificate";

fuzz_target!(|data: &[u8]| {
    // What the messages are taken for: which message to replace, where to change it, whether TLS is in between.
    let Some(([choice, at, change], data)) = data.split_first_chunk::<3>() else { return };
    let text = String::from_utf8_lossy(data);
    let (plus, end_point) = (choice & 1 != 0, (choice & 2 != 0).then_some(BINDING));
    let password = Credentials::Password(Secret::new(text.chars().take(32).collect()));
    let verifier = || ScramVerifier::derive(&text.chars().take(32).collect::<String>(), b"salt", 1);

    // A stranger's words, as first and as last message.
    let mut parts = data.splitn(2, |byte| *byte == b'|');
    let (first, last) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let started = bounded(data.len() * 16 + 4096, || ScramServer::start(verifier(), plus, end_point, first));
    if let Ok((server, challenge)) = started {
        assert!(challenge.starts_with(b"r="));
        assert!(bounded(data.len() * 16 + 4096, || server.finish(last)).is_err(), "a stranger is let in");
    }

    // An honest exchange, then one with the change.
    let honest = exchange(verifier(), &password, end_point, |_, message| message).expect("an honest exchange");
    exchange(verifier(), &Credentials::Scram(honest), end_point, |_, message| message).expect("with the keys alone");
    let changed = |number: u8, mut message: Vec<u8>| {
        if number == choice >> 2 & 3 && !message.is_empty() {
            let at = usize::from(*at) % message.len();
            message[at] ^= (*change).max(1);
        }
        message
    };
    assert!(exchange(verifier(), &password, end_point, changed).is_err(), "a changed message passed");

    // A server's words.
    let replaced = |number: u8, message| if number == 1 + 2 * (choice >> 2 & 1) { without_work(data) } else { message };
    assert!(exchange(verifier(), &password, end_point, replaced).is_err(), "a stranger is taken for the server");
});

/// The client and the server, with `between` on the line: the messages are 0 to 3.
fn exchange(
    verifier: ScramVerifier,
    credentials: &Credentials,
    end_point: Option<&[u8]>,
    between: impl Fn(u8, Vec<u8>) -> Vec<u8>,
) -> Result<ClientKeys, ScramError> {
    let offered = end_point.is_some();
    let (mut client, mechanism, first) = ScramClient::start(credentials, end_point, offered, ChannelBinding::Prefer)?;
    let plus = mechanism == freshet_net::postgres::scram::SCRAM_PLUS;
    assert_eq!(plus, offered);
    let (server, challenge) = ScramServer::start(verifier, plus, end_point, &between(0, first))?;
    let proof = client.proof(&between(1, challenge))?;
    let (words, keys) = server.finish(&between(2, proof))?;
    client.verify(&between(3, words))?;
    Ok(keys)
}

/// Without numbers of iterations that take seconds: those are meant to.
fn without_work(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    if let Some(at) = message.windows(3).position(|part| part == b",i=") {
        message.truncate(at + 6);
    }
    message
}
