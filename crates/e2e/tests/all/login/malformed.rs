//! Malformed messages of a client during a login, and the database's errors for them.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use super::guarded::{Attempt, Guarded, Kind, Refused};
use crate::support::{Message, RawClient, Version, frames, on_both_at_length};

on_both_at_length!(sasl_messages, md5_messages, announced_lengths);

/// A SASLResponse.
pub(super) fn response(data: &[u8]) -> Vec<u8> {
    frames::frame(b'p', data)
}

/// A SASLInitialResponse.
pub(super) fn initial(mechanism: &str, data: &[u8]) -> Vec<u8> {
    lying(mechanism, i32::try_from(data.len()).expect("a short message"), data)
}

fn lying(mechanism: &str, length: i32, data: &[u8]) -> Vec<u8> {
    response(&[mechanism.as_bytes(), &[0], &length.to_be_bytes(), data].concat())
}

/// A client that was asked to prove who it is, and how.
pub(super) fn sasl_first(address: SocketAddr, user: &str, database: &str) -> Result<(RawClient, Message)> {
    let mut client = RawClient::open(address)?;
    client.send(&frames::startup(&[("user", user), ("database", database)]))?;
    let offer = client.read()?;
    ensure!(offer.tag == b'R', "{offer:?}");
    Ok((client, offer))
}

/// What is sent when the client is asked to prove who it is, and then at each further request.
type Script = Vec<Vec<u8>>;

/// What is asked for, without what is drawn by chance: the salt of md5, the nonce of SCRAM.
fn request(message: &Message) -> String {
    let code = message.body.get(..4).unwrap_or_default().escape_ascii();
    format!("{}[{}] {code}", char::from(message.tag), message.body.len())
}

/// Says all of it, and what was heard until the connection was closed.
fn heard(address: SocketAddr, user: &str, database: &str, script: &[Vec<u8>]) -> Result<Vec<String>> {
    let (mut client, offer) = sasl_first(address, user, database)?;
    let mut heard = vec![request(&offer)];
    for message in script {
        // The other side may have hung up.
        let _ = client.send(message);
        match client.read_unheard()? {
            None => heard.push("end".into()),
            Some(message) if message.tag == b'E' => heard.push(format!("{:?}", Refused::of(&message))),
            Some(message) => heard.push(request(&message)),
        }
    }
    if client.read_unheard()?.is_some() {
        heard.push("more".into());
    }
    Ok(heard)
}

/// The same is heard directly and through Freshet, and Freshet lives on.
fn same(guarded: &Guarded, user: &str, scripts: &[Script]) -> Result<()> {
    let users = guarded.users_file(&[user])?;
    let freshet = guarded.freshet(&["--users", &users, "--login-failures-max", "1000"])?;
    let database = &guarded.database.name;
    let mut different = Vec::new();
    for script in scripts {
        let direct = heard(guarded.database.address(), user, database, script)?;
        let through = heard(freshet.address, user, database, script)?;
        if direct != through {
            let said: Vec<_> = script.iter().map(|m| m.get(..m.len().min(100)).unwrap_or(m).escape_ascii()).collect();
            let said: Vec<_> = said.into_iter().map(|said| said.to_string()).collect();
            different.push(format!("{said:?}\n direct:  {direct:?}\n through: {through:?}"));
        }
    }
    ensure!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    let outcome = Attempt { user, password: "pencil", database }.at(freshet.address)?;
    ensure!(outcome.as_deref() == Ok(user), "{outcome:?}");
    Ok(())
}

/// Data of a SASLInitialResponse that is no good.
const BAD_FIRSTS: &[&[u8]] = &[
    b"x,,n=,r=x",
    b"\xff\xfe",
    b"n",
    b"n;",
    b"y",
    b"p=tls-server-end-point,,n=,r=x",
    b"p=tls-unique,,n=,r=x",
    b"n,a=postgres,n=,r=x",
    b"n,b,n=,r=x",
    b"n,,m=x,n=,r=x",
    b"n,,r=x",
    b"n,,n",
    b"n,,n=",
    b"n,,n=,",
    b"n,,n=,r=a b",
    b"n,,n=,r=\xc3\xa4",
    b"n,,n=,r=x,1=x",
    b"n,,n=,r=x,x",
    b"n,,n=,r=x\0",
];

fn sasl_messages(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let first = |data: &[u8]| vec![initial("SCRAM-SHA-256", data)];
    let mut scripts: Vec<Script> = vec![
        vec![response(b"")],
        vec![response(b"SCRAM-SHA-256")],
        vec![response(b"SCRAM-SHA-256\0")],
        vec![response(b"SCRAM-SHA-256\0\0\0")],
        vec![initial("SCRAM-SHA-1", b"n,,n=,r=x")],
        vec![initial("scram-sha-256", b"n,,n=,r=x")],
        vec![initial("", b"n,,n=,r=x")],
        vec![initial("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=x")],
        vec![lying("SCRAM-SHA-256", 8, b"n,,n=,r=x")],
        vec![lying("SCRAM-SHA-256", 10, b"n,,n=,r=x")],
        vec![lying("SCRAM-SHA-256", i32::MAX, b"n,,n=,r=x")],
        vec![lying("SCRAM-SHA-256", -2, b"n,,n=,r=x")],
        vec![lying("SCRAM-SHA-256", -1, b"n,,n=,r=x")],
        // Nothing yet: the server's turn is empty.
        vec![lying("SCRAM-SHA-256", -1, b""), response(b"x")],
        vec![lying("SCRAM-SHA-256", -1, b""), response(b"")],
        vec![lying("SCRAM-SHA-256", 0, b"")],
        vec![frames::query("select 1")],
        vec![frames::terminate()],
        vec![frames::password("pencil")],
        vec![initial("SCRAM-SHA-256", b"n,,n=,r=x"), frames::query("select 1")],
        vec![initial("SCRAM-SHA-256", b"n,,n=,r=x"), frames::frame(b'd', b"c=biws,r=x,p=x")],
    ];
    scripts.extend(BAD_FIRSTS.iter().map(|data| first(data)));
    let proof = format!("{}=", "A".repeat(43));
    for last in [
        "",
        "c",
        "c=biws",
        "r=x,c=biws",
        &format!("c=eSws,r=x,p={proof}"),
        &format!("c=biws,r=x,p={proof}"),
        "c=biws,r=x",
        "c=biws,r=x,",
        "c=biws,r=x,p",
        "c=biws,r=x,p=",
        "c=biws,r=x,p=AAAA",
        "c=biws,r=x,p=*",
        &format!("c=biws,r=x,p={proof},x=x"),
        &format!("c=biws,r=x,3=3,p={proof}"),
        "c=biws,r=x,p=x\0",
    ] {
        scripts.push([first(b"n,,n=ignored,r=x"), vec![response(last.as_bytes())]].concat());
        scripts.push([first(b"y,,n=,r=x,q=extension"), vec![response(last.as_bytes())]].concat());
    }
    same(&guarded, &user, &scripts)
}

fn md5_messages(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Md5, "pencil")?;
    let verifier = guarded.verifier(&user)?;
    // The stored form differs from the one that is sent; otherwise its owner could log in.
    let scripts: Vec<Script> = [
        frames::password(&verifier),
        frames::password("pencil"),
        frames::password("md5"),
        frames::password(""),
        response(b""),
        response(verifier.as_bytes()),
        response(b"md5\0\0"),
        response(b"\xff\0"),
        initial("SCRAM-SHA-256", b"n,,n=,r=x"),
        frames::query("select 1"),
    ]
    .map(|message| vec![message])
    .into();
    same(&guarded, &user, &scripts)
}

/// Announced lengths that are wrong: nothing is waited for or reserved.
fn announced_lengths(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (scram, md5) = (guarded.role("scram", Kind::Scram, "pencil")?, guarded.role("md5", Kind::Md5, "pencil")?);
    let users = guarded.users_file(&[&scram, &md5])?;
    let freshet = guarded.freshet(&["--users", &users, "--login-failures-max", "1000"])?;
    let before = freshet.peak_memory()?;
    for user in [&scram, &md5] {
        for length in [0_u32, 3, 70_000, 1 << 30, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for address in [guarded.database.address(), freshet.address] {
                let (mut client, _) = sasl_first(address, user, &guarded.database.name)?;
                client.send(&[b"p".as_slice(), &length.to_be_bytes(), &[b'x'; 100]].concat())?;
                let end = client.bytes_to_end()?;
                ensure!(end.is_empty() || end.first() == Some(&b'E'), "{length}: {}", end.escape_ascii());
            }
        }
    }
    let grown = freshet.peak_memory()?.saturating_sub(before);
    ensure!(grown < 64 << 20, "{grown} bytes more");
    let outcome = Attempt { user: &scram, password: "pencil", database: &guarded.database.name }.at(freshet.address)?;
    ensure!(outcome.as_ref() == Ok(&scram), "{outcome:?}");
    Ok(())
}
