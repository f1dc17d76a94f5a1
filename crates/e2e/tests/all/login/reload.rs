//! The users file is read again while Freshet runs, and a bad one is not used.

use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::guarded::{Attempt, Guarded, Kind, wrong_password};
use crate::support::{Freshet, PATIENCE, Version, eventually, on_both_at_length};

on_both_at_length!(a_changed_file, sighup, a_file_that_is_bad_at_the_start);

/// Waits until the role is let in, or until it is not.
fn until(guarded: &Guarded, freshet: &Freshet, user: &str, good: bool) -> Result<()> {
    eventually(PATIENCE, || {
        let outcome = Attempt { user, password: "pencil", database: &guarded.database.name }.at(freshet.address)?;
        let expected = if good { Ok(user.to_owned()) } else { Err(wrong_password(user)) };
        ensure!(outcome == expected, "{outcome:?}; the log:\n{}", freshet.log());
        Ok(())
    })
}

const MANY: [&str; 2] = ["--login-failures-max", "100000"];

fn a_changed_file(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (old, new) = (guarded.role("old", Kind::Scram, "pencil")?, guarded.role("new", Kind::Md5, "pencil")?);
    let users = guarded.users_file(&[&old])?;
    let freshet = guarded.freshet(&[&["--users", &users], MANY.as_slice()].concat())?;
    if !freshet.is_there() {
        return Ok(());
    }
    until(&guarded, &freshet, &old, true)?;
    until(&guarded, &freshet, &new, false)?;
    guarded.users_file(&[&old, &new])?;
    until(&guarded, &freshet, &new, true)?;
    // Each bad file leaves the last good one in use, and the log says what is wrong with it.
    let lines = guarded.user_lines(&[&old])?;
    for (text, why) in [
        (format!("{lines}\"x\" \"hunter2\"\n"), "line 3"),
        (format!("{lines}\"x\" \"SCRAM-SHA-256$hunter2\"\n"), "line 3"),
        (format!("{lines}\n{lines}"), "line 5"),
        ("\"half".to_owned(), "line 1"),
    ] {
        guarded.write("users", &text)?;
        eventually(PATIENCE, || {
            let log = freshet.log();
            let last = log.lines().rfind(|line| line.contains("users file")).context("nothing logged")?;
            ensure!(last.contains(why), "{last}");
            Ok(())
        })?;
        ensure!(!freshet.log().contains("hunter2"), "{}", freshet.log());
        until(&guarded, &freshet, &new, true)?;
        until(&guarded, &freshet, &old, true)?;
    }
    fs::remove_file(&users)?;
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("No such file"), "{}", freshet.log());
        Ok(())
    })?;
    until(&guarded, &freshet, &new, true)?;
    // A session that stands is nobody's business; the next login is.
    guarded.users_file(&[&new])?;
    until(&guarded, &freshet, &old, false)?;
    until(&guarded, &freshet, &new, true)
}

/// Also when the file's time does not tell that it has changed.
fn sighup(version: Version) -> Result<()> {
    let guarded = Guarded::new(version)?;
    let (old, new) = (guarded.role("old", Kind::Scram, "pencil")?, guarded.role("new", Kind::Scram, "pencil")?);
    let users = guarded.users_file(&[&old])?;
    let modified = fs::metadata(&users)?.modified()?;
    let freshet = guarded.freshet(&[&["--users", &users], MANY.as_slice()].concat())?;
    let Some(pid) = freshet.pid() else { return Ok(()) };
    until(&guarded, &freshet, &old, true)?;
    let path = guarded.write("later", &guarded.user_lines(&[&old, &new])?)?;
    File::options().append(true).open(&path)?.set_modified(modified)?;
    fs::rename(&path, &users)?;
    // The signal handler is set up soon after the start.
    eventually(PATIENCE, || {
        let sent = Command::new("kill").args(["-HUP", &pid.to_string()]).status()?;
        ensure!(sent.success() && freshet.is_alive(), "SIGHUP ended it:\n{}", freshet.log());
        let outcome = Attempt { user: &new, password: "pencil", database: &guarded.database.name };
        ensure!(outcome.at(freshet.address)?.as_ref() == Ok(&new), "{}", freshet.log());
        Ok(())
    })
}

/// At the start there is no earlier file to fall back on.
fn a_file_that_is_bad_at_the_start(version: Version) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let guarded = Guarded::new(version)?;
    let user = guarded.role("app", Kind::Scram, "pencil")?;
    let good = guarded.user_lines(&[&user])?;
    if !guarded.freshet(&[])?.is_there() {
        return Ok(());
    }
    for (text, mode, why) in [
        ("\"app\" \"hunter2\"\n", 0o600, "line 1: neither a SCRAM-SHA-256 verifier nor an md5 hash"),
        (&format!("{good}{good}"), 0o600, "line 4: the same user as in line 2"),
        (&good, 0o644, "chmod 600"),
    ] {
        let users = guarded.write("users", text)?;
        fs::set_permissions(&users, fs::Permissions::from_mode(mode))?;
        // What a program says while it ends may come too late for the message that it has ended.
        eventually(PATIENCE, || {
            let error = guarded.freshet(&["--users", &users]).err().context("it starts with a bad users file")?;
            let error = format!("{error:#}");
            assert!(!error.contains("hunter2"), "{error}");
            ensure!(error.matches(why).count() == 1, "{error}");
            Ok(())
        })?;
    }
    Ok(())
}
