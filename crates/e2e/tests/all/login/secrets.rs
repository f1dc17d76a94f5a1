//! No secret is ever logged.

use anyhow::{Result, ensure};

use super::guarded::{Attempt, Guarded, Kind};
use crate::support::{Freshet, Version, on_both};

on_both!(nothing_secret_is_logged);

/// Neither the secrets nor what is in base 64 or hexadecimal digits in their verifiers.
fn is_silent_about(freshet: &Freshet, secrets: &[String]) -> Result<()> {
    let log = freshet.log();
    let told = secrets.iter().find(|secret| log.contains(secret.as_str()));
    ensure!(told.is_none(), "{told:?} in the log:\n{log}");
    Ok(())
}

fn nothing_secret_is_logged(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let mut secrets: Vec<String> =
        ["hunter-scram", "hunter-md5", "hunter-wrong", "service secret", "service%20secret"].map(String::from).into();
    let roles = [
        (guarded.role("scram", Kind::Scram, "hunter-scram")?, "hunter-scram"),
        (guarded.role("md5", Kind::Md5, "hunter-md5")?, "hunter-md5"),
    ];
    for (user, _) in &roles {
        let verifier = guarded.verifier(user)?;
        secrets.extend(verifier.split(['$', ':']).filter(|part| part.len() > 20).map(str::to_owned));
        if let Some(digits) = verifier.strip_prefix("md5") {
            secrets.push(digits.to_owned());
        }
    }
    ensure!(secrets.len() >= 5 + 3 + 2, "{secrets:?}");
    let users = guarded.users_file(&[&roles[0].0, &roles[1].0])?;
    let log = ["--log", "info,freshet=trace,freshet_proxy=trace,freshet_net=trace"];
    for (options, as_service) in
        [(vec!["--users", users.as_str()], false), (vec![], false), (vec!["--auth-query"], true)]
    {
        let options = [options.as_slice(), &log].concat();
        let freshet = if as_service { guarded.freshet_as_service(&options)? } else { guarded.freshet(&options)? };
        for (user, right) in &roles {
            for password in [right, "hunter-wrong"] {
                let attempt = Attempt { user, password, database: &guarded.database.name };
                ensure!(attempt.at(freshet.address)?.is_ok() == (password == *right), "{attempt:?}");
                // Time for what is logged afterwards, such as the end of the session.
                let _ = Attempt { database: "hunter-database", ..attempt }.at(freshet.address)?;
                is_silent_about(&freshet, &secrets)?;
            }
        }
        ensure!(!freshet.is_there() || !freshet.log().is_empty(), "nothing is logged at all");
    }
    Ok(())
}
