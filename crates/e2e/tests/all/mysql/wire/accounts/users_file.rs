//! Passwords in a users file: Freshet checks the client's proof itself, and then proves the password upstream.

use std::process::Command;

use anyhow::{Result, ensure};

use super::super::SCHEMA;
use super::folder::Folder;
use super::{Account, clause_with};
use crate::mysql::support::packets::capability;
use crate::mysql::support::{Database, Kind, Login, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(who_is_let_in, another_user, read_again);

/// A Freshet with a users file.
struct Knowing {
    pair: Pair,
    users: Folder,
}

impl Knowing {
    /// Knows the account with all privileges, and these.
    fn start(kind: Kind, name: &str, more: &str) -> Result<Self> {
        let database = Database::shared(kind)?;
        let users = Folder::create(&format!("{name}-{kind:?}"))?;
        let more = more.replace("{}", &format!("{}_user", database.name));
        let file = users.write("users", &lines(&database, &more))?;
        Ok(Self { pair: Pair::over(database, SCHEMA, &["--users", &file])?, users })
    }
}

/// The lines of a users file.
fn lines(database: &Database, more: &str) -> String {
    format!("# users\n\"{}\" \"{}\"\n{more}\n", database.login().user, database.login().password)
}

/// Right and wrong passwords, by all plugins that the server has: the same answers as its own.
fn who_is_let_in(kind: Kind) -> Result<()> {
    let knowing = Knowing::start(kind, "let-in", "\"{}\" \"secret\"\n\"no_account\" \"secret\"")?;
    let pair = &knowing.pair;
    let clauses: &[&str] = match kind {
        Kind::Mariadb => &["IDENTIFIED BY 'secret'"],
        Kind::Mysql => &[
            "IDENTIFIED WITH mysql_native_password BY 'secret'",
            "IDENTIFIED WITH caching_sha2_password BY 'secret'",
            "IDENTIFIED WITH sha256_password BY 'secret'",
        ],
    };
    for clause in clauses {
        let account = Account::create(pair, clause)?;
        for (password, said) in [("secret", "item 1"), ("wrong", "Access denied")] {
            let printed = account.same(password, &[])?;
            ensure!(printed.contains(said), "{clause}, {password}: {printed}");
        }
        account.drop()?;
    }
    // In the file and not in the database; in neither; in the database with another password.
    for (name, password) in [("no_account", "secret"), ("nobody", "secret")] {
        let printed = Account { pair, name: name.to_owned() }.same(password, &[])?;
        ensure!(printed.contains("Access denied"), "{name}: {printed}");
    }
    let account = Account::create(pair, &clause_with(kind, "").replace("'secret'", "'changed'"))?;
    let printed = account.same("secret", &[])?;
    ensure!(printed.contains("Access denied"), "{printed}");
    account.drop()
}

/// `COM_CHANGE_USER`, and reads from the cache before and after.
fn another_user(kind: Kind) -> Result<()> {
    let knowing = Knowing::start(kind, "another", "\"{}\" \"secret\"")?;
    let pair = &knowing.pair;
    let account = Account::create(pair, &clause_with(kind, ""))?;
    let user = Login { user: &account.name, password: "secret", ..pair.login() };
    for capabilities in [capability::MODERN, capability::OLD] {
        let mut client = RawClient::login(pair.address(), Login { capabilities, ..pair.login() })?;
        for login in [user, pair.login(), user] {
            let last = client.change_user(Login { capabilities, ..login })?;
            ensure!(last.payload.first() == Some(&0), "{last:?}");
            let name = client.value("SELECT CURRENT_USER()")?;
            ensure!(name == format!("{}@%", login.user), "{name}");
            for _ in 0..2 {
                ensure!(client.value("SELECT name FROM item WHERE id = 1")? == "item 1", "another row");
            }
        }
        client.expect_silence()?;
        let last = client.change_user(Login { password: "wrong", ..user })?;
        ensure!(last.payload.first() == Some(&0xff), "{last:?}");
    }
    let mut client = RawClient::login(pair.address(), user)?;
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        ensure!(client.value("SELECT name FROM item WHERE id = 1")? == "item 1", "another row");
        let hits = pair.freshet.metrics()?.hits();
        ensure!(hits > before || !pair.freshet.is_there(), "never from the cache");
        Ok(())
    })?;
    account.drop()
}

/// The file is read again at a signal; what is wrong in it changes nothing.
fn read_again(kind: Kind) -> Result<()> {
    let knowing = Knowing::start(kind, "again", "")?;
    let pair = &knowing.pair;
    let Some(pid) = pair.freshet.pid() else { return Ok(()) };
    let account = Account::create(pair, &clause_with(kind, ""))?;
    let printed = account.run(pair.address(), "secret", &[])?;
    ensure!(printed.contains("Access denied"), "{printed}");
    let known = format!("\"{}\" \"secret\"", account.name);
    for (text, said) in [(known.as_str(), "item 1"), ("no line of a users file", "item 1"), ("", "Access denied")] {
        knowing.users.write("users", &lines(&pair.database, text))?;
        let status = Command::new("kill").args(["-HUP", &pid.to_string()]).status()?;
        ensure!(status.success(), "kill: {status}");
        eventually(PATIENCE, || {
            let printed = account.run(pair.address(), "secret", &[])?;
            ensure!(printed.contains(said), "{text}: {printed}");
            Ok(())
        })?;
    }
    account.drop()
}
