//! A refused client gets the database's own error, whatever the source of verifiers.

use anyhow::{Result, ensure};

use super::guarded::{Attempt, Guarded, Kind};
use crate::support::{Freshet, Version, on_both};

on_both!(by_users_file, by_auth_query, by_relay);

/// Roles with a reason to be refused.
fn troubled_roles(guarded: &Guarded) -> Result<()> {
    for kind in [Kind::Scram, Kind::Md5] {
        for (role, option) in [
            ("good", ""),
            ("expired", "valid until '2020-01-01'"),
            ("nologin", "nologin"),
            ("crowded", "connection limit 0"),
        ] {
            let name = guarded.role(&format!("{role}_{kind:?}"), kind, "pencil")?;
            if !option.is_empty() {
                guarded.database.run(&format!("alter role \"{name}\" {option}"))?;
            }
        }
    }
    guarded.database.run(&format!("create role \"{}\" login", guarded.name("passwordless")))?;
    for (database, statement) in
        [("closed", "alter database {} allow_connections false"), ("private", "revoke all on database {} from public")]
    {
        let name = guarded.name(database);
        guarded.database.run(&format!("create database {name}"))?;
        guarded.database.run(&statement.replace("{}", &name))?;
    }
    Ok(())
}

fn same_refusals(guarded: &Guarded, freshet: &Freshet) -> Result<()> {
    let own = guarded.database.name.clone();
    let mut cases = Vec::new();
    for role in ["passwordless", "unknown", "good_Scram'; --"] {
        cases.extend([(guarded.name(role), "pencil", own.clone()), (guarded.name(role), "", own.clone())]);
    }
    for kind in [Kind::Scram, Kind::Md5] {
        for role in ["good", "expired", "nologin", "crowded"] {
            let name = guarded.name(&format!("{role}_{kind:?}"));
            cases.extend(["pencil", "wrong", ""].map(|password| (name.clone(), password, own.clone())));
        }
        let good = guarded.name(&format!("good_{kind:?}"));
        for database in [guarded.name("closed"), guarded.name("private"), "no such database".into()] {
            cases.extend(["pencil", "wrong"].map(|password| (good.clone(), password, database.clone())));
        }
    }
    let (mut right, mut codes) = (0, Vec::new());
    for (user, password, database) in &cases {
        let attempt = Attempt { user, password, database };
        let direct = attempt.at(guarded.database.address())?;
        let through = attempt.at(freshet.address)?;
        ensure!(direct == through, "{attempt:?}\n direct:  {direct:?}\n through: {through:?}");
        match direct {
            Ok(_) => right += 1,
            Err(refused) => codes.push(refused.code),
        }
    }
    codes.sort();
    codes.dedup();
    // Wrong password, not permitted to log in, too many connections, no privilege, no such database, not accepting.
    ensure!(right == 2 && codes == ["28000", "28P01", "3D000", "42501", "53300", "55000"], "{right}, {codes:?}");
    Ok(())
}

fn drop_databases(guarded: &Guarded) -> Result<()> {
    guarded.database.run(&format!("drop database {}", guarded.name("closed")))?;
    guarded.database.run(&format!("drop database {}", guarded.name("private")))
}

/// Enough for all cases from one address.
const MANY: [&str; 2] = ["--login-failures-max", "1000"];

fn by_users_file(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    troubled_roles(&guarded)?;
    let names = ["good", "expired", "nologin", "crowded"]
        .iter()
        .flat_map(|role| [Kind::Scram, Kind::Md5].map(|kind| guarded.name(&format!("{role}_{kind:?}"))));
    let names: Vec<_> = names.collect();
    let users = guarded.users_file(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
    same_refusals(&guarded, &guarded.freshet(&[&["--users", &users], MANY.as_slice()].concat())?)?;
    drop_databases(&guarded)
}

fn by_auth_query(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    troubled_roles(&guarded)?;
    same_refusals(&guarded, &guarded.freshet_as_service(&[&["--auth-query"], MANY.as_slice()].concat())?)?;
    drop_databases(&guarded)
}

fn by_relay(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    troubled_roles(&guarded)?;
    same_refusals(&guarded, &guarded.freshet(&MANY)?)?;
    drop_databases(&guarded)
}
