//! Messages before the password, if Freshet decides the login: versions, options, names.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use super::guarded::{Guarded, Kind, Refused};
use crate::support::{Freshet, RawClient, Version, frames, on_both};

on_both!(versions_and_options, names);

/// What is heard up to the first question or to the end, without the salt.
fn heard(address: SocketAddr, packet: &[u8]) -> Result<Vec<String>> {
    let mut client = RawClient::open(address)?;
    client.send(packet)?;
    let mut heard = Vec::new();
    loop {
        match client.read_unheard()? {
            None => heard.push("end".to_owned()),
            Some(message) if message.tag == b'E' => {
                heard.push(format!("{:?}", Refused::of(&message)));
                continue;
            }
            Some(message) if message.tag == b'R' => heard.push(format!("R{:?}", message.body.get(..4))),
            Some(message) => {
                heard.push(format!("{message:?}"));
                continue;
            }
        }
        return Ok(heard);
    }
}

fn same(guarded: &Guarded, packets: &[Vec<u8>]) -> Result<()> {
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let users = guarded.users_file(&[&user])?;
    let freshet = Freshet::start(&guarded.database, &["--users", &users])?;
    let mut different = Vec::new();
    for packet in packets {
        let (direct, through) = (heard(guarded.database.address(), packet)?, heard(freshet.address, packet)?);
        if direct != through {
            different.push(format!("{}\n direct:  {direct:?}\n through: {through:?}", packet.escape_ascii()));
        }
    }
    ensure!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    Ok(())
}

fn versions_and_options(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (user, database) = (guarded.name("app"), guarded.database.name.clone());
    let mut packets = Vec::new();
    for minor in [0, 1, 2, 3, 9999] {
        for options in
            [vec![], vec![("_pq_.one", "1")], vec![("_pq_.one", "1"), ("_pq_.two", ""), ("DateStyle", "ISO")]]
        {
            let parameters = [vec![("user", user.as_str()), ("database", &database)], options].concat();
            packets.push(frames::startup_of((3 << 16) | minor, &parameters));
        }
    }
    same(&guarded, &packets)
}

fn names(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (user, database) = (guarded.name("app"), guarded.database.name.clone());
    let packets = [
        // No user, or none to speak of.
        frames::startup(&[]),
        frames::startup(&[("database", &database)]),
        frames::startup(&[("user", "")]),
        frames::startup(&[("user", ""), ("database", &database)]),
        // The database is that of the user's name.
        frames::startup(&[("user", &user)]),
        frames::startup(&[("user", &user), ("database", "")]),
        // The last one counts.
        frames::startup(&[("user", "nobody"), ("user", &user), ("database", &database)]),
        frames::startup(&[("user", &"x".repeat(100)), ("database", &database)]),
        frames::startup(&[("user", "\u{fffd}"), ("database", &database)]),
        frames::startup(&[("user", &user), ("database", &database), ("replication", "true")]),
        frames::startup(&[("user", &user), ("database", &database), ("no_such_setting", "1")]),
        frames::startup(&[("user", &user), ("database", &database), ("options", "-c no_such_setting=1")]),
    ];
    same(&guarded, &packets)
}
