//! An exchange does not reveal whether a user exists.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::guarded::{Attempt, Guarded, Kind, Refused, wrong_password};
use super::malformed::{initial, response, sasl_first};
use crate::support::{Message, Version, on_both_at_length};

on_both_at_length!(unknown_users_look_like_known_ones, unknown_users_are_always_asked_alike);

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

/// What an unknown user is asked for does not change with the users who come before, as it does for no known one.
fn unknown_users_are_always_asked_alike(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (scram, md5) = (guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?);
    let nobody = guarded.name("nobody");
    let database = guarded.database.name.as_str();
    for known in [vec![&scram, &md5], vec![&scram], vec![&md5]] {
        let names: Vec<_> = known.iter().map(|name| name.as_str()).collect();
        let users = guarded.users_file(&names)?;
        let freshet = guarded.freshet(&["--users", &users])?;
        if !freshet.is_there() {
            continue;
        }
        let asked = |user: &str| -> Result<Vec<u8>> {
            let (_, offer) = sasl_first(freshet.address, user, database)?;
            Ok(offer.body.get(..4).unwrap_or_default().to_vec())
        };
        let first = asked(&nobody)?;
        let kinds = known.iter().map(|user| asked(user)).collect::<Result<Vec<_>>>()?;
        ensure!(kinds.contains(&first), "{first:?} is a method that no other user gets: {kinds:?}");
        for user in known.iter().cycle().take(4) {
            let outcome = Attempt { user, password: "pencil", database }.at(freshet.address)?;
            ensure!(outcome.as_ref() == Ok(*user), "{outcome:?}");
            ensure!(asked(&nobody)? == first, "after {user} the unknown user is asked otherwise");
        }
        for password in ["pencil", ""] {
            let direct = Attempt { user: &nobody, password, database }.at(guarded.database.address())?;
            let through = Attempt { user: &nobody, password, database }.at(freshet.address)?;
            let code = through.as_ref().err().map(|refused| refused.code.as_str());
            ensure!(code == Some("28P01"), "{known:?}: {direct:?} {through:?}");
        }
    }
    Ok(())
}
