//! Nobody learns from an exchange whether a user exists.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::guarded::{Guarded, Kind, Refused, wrong_password};
use super::malformed::{initial, response, sasl_first};
use crate::support::{Message, Version, on_both};

on_both!(unknown_users_look_like_known_ones);

/// An exchange up to its end, with a proof that is none.
struct Exchange {
    salt: String,
    iterations: String,
    messages: Vec<Message>,
}

impl Exchange {
    fn with(address: SocketAddr, user: &str, database: &str) -> Result<Self> {
        const NONCE: &str = "abcdefghijklmnopqrstuvwx";
        let (mut client, offer) = sasl_first(address, user, database)?;
        client.send(&initial("SCRAM-SHA-256", format!("n,,n=,r={NONCE}").as_bytes()))?;
        let challenge = client.read()?;
        let text = String::from_utf8(challenge.body.get(4..).context("no challenge")?.to_vec())?;
        let attribute = |name: &str| text.split(',').find_map(|part| part.strip_prefix(name)).map(str::to_owned);
        let nonce = attribute("r=").context("no nonce")?;
        ensure!(nonce.starts_with(NONCE) && nonce.len() == NONCE.len() + 24, "{text}");
        let zeros = format!("{}=", "A".repeat(43));
        client.send(&response(format!("c=biws,r={nonce},p={zeros}").as_bytes()))?;
        let error = client.read()?;
        ensure!(Refused::of(&error) == wrong_password(user), "{error:?}");
        ensure!(client.read_unheard()?.is_none(), "the connection stays open");
        let salt = attribute("s=").context("no salt")?;
        let iterations = attribute("i=").context("no iterations")?;
        Ok(Self { salt, iterations, messages: vec![offer, challenge, error] })
    }

    fn sizes(&self) -> Vec<(u8, usize)> {
        self.messages.iter().map(|message| (message.tag, message.body.len())).collect()
    }
}

fn unknown_users_look_like_known_ones(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let known = guarded.role("known00", Kind::Scram, "pencil")?;
    guarded.database.run(&format!("create role \"{}\" login", guarded.name("empty00")))?;
    let unknown = ["nobody0", "nobody1", "empty00"].map(|role| guarded.name(role));
    let users = guarded.users_file(&[&known])?;
    for (source, freshet) in [
        ("users file", guarded.freshet(&["--users", &users])?),
        ("auth_query", guarded.freshet_as_service(&["--auth-query"])?),
    ] {
        let exchange = |user| Exchange::with(freshet.address, user, &guarded.database.name).context(source);
        let real = exchange(&known)?;
        let mut salts = vec![real.salt.clone()];
        for user in &unknown {
            let (first, second) = (exchange(user)?, exchange(user)?);
            ensure!(first.salt == second.salt, "{user}: the salt changes: {} {}", first.salt, second.salt);
            ensure!(first.sizes() == real.sizes(), "{user}: {:?} {:?}", first.messages, real.messages);
            ensure!(first.iterations == real.iterations, "{user}: {}", first.iterations);
            salts.push(first.salt);
        }
        ensure!(exchange(&known)?.salt == real.salt, "{source}");
        salts.sort();
        salts.dedup();
        ensure!(salts.len() == 1 + unknown.len(), "{source}: salts are shared: {salts:?}");
    }
    Ok(())
}
