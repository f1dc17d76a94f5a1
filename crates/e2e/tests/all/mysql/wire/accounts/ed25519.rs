//! MariaDB's accounts with the plugin ed25519: the proof of the password is a signature of the server's nonce.
//!
//! The server's part of the plugin is not in Debian's package of the server's programs; `script/setup` unpacks it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::super::SCHEMA;
use super::folder::Folder;
use super::{Account, passwords};
use crate::mysql::support::{Database, Kind, Login, Pair, RawClient};
use crate::support::Freshet;

const CLAUSE: &str = "IDENTIFIED VIA ed25519 USING PASSWORD('secret')";

/// A database on a server that has the plugin, and TLS if there is a certificate; none if this machine lacks the plugin.
fn database(certificate: Option<&Folder>) -> Result<Option<Database>> {
    let settings = Kind::settings();
    let settings = match certificate {
        Some(folder) => settings.with_tls(folder.tls()),
        None => settings,
    };
    let server = Kind::Mariadb.start(&settings)?;
    match server.sql("INSTALL SONAME 'auth_ed25519'") {
        Ok(_) => Database::create(server).map(Some),
        Err(error) => crate::clients::left_out(&format!("ed25519: {error:#}")).map(|()| None),
    }
}

/// What one side says goes to the other, encrypted or not.
#[test]
fn handed_on() -> Result<()> {
    let certificate = Folder::with_certificate("ed25519")?;
    let Some(first) = database(Some(&certificate))? else { return Ok(()) };
    for mode in ["disabled", "required"] {
        let database = Database::create(first.server.clone())?;
        let options = certificate.options();
        database.run(SCHEMA)?;
        let url = format!("{}?ssl-mode={mode}", database.url());
        let freshet = Freshet::start_unready(database.address(), &url, &options.each_ref().map(String::as_str))?;
        freshet.wait_ready()?;
        let pair = Pair { freshet, database };
        for option in ["--skip-ssl", "--ssl"] {
            passwords(&pair, CLAUSE, &[option]).with_context(|| format!("client {option}, server {mode}"))?;
        }
        // The server tries one way after the other.
        let account = Account::create(&pair, &format!("{CLAUSE} OR mysql_native_password USING PASSWORD('other')"))?;
        for (password, said) in [("secret", "item 1"), ("other", "item 1"), ("wrong", "Access denied")] {
            let printed = account.same(password, &[])?;
            ensure!(printed.contains(said), "{password}: {printed}");
        }
        account.drop()?;
    }
    Ok(())
}

/// A Freshet that knows the users' passwords, and whose own account is of this kind too.
struct Knowing {
    pair: Pair,
    user: String,
    _users: Folder,
}

impl Knowing {
    fn start(name: &str) -> Result<Option<Self>> {
        let Some(database) = database(None)? else { return Ok(None) };
        database.run(SCHEMA)?;
        let (own, user) = (format!("{}_own", database.name), format!("{}_user", database.name));
        database.run(&format!(
            "CREATE USER {own}@'%' {CLAUSE}; GRANT ALL ON *.* TO {own}@'%';
             CREATE USER {user}@'%' {CLAUSE}; GRANT SELECT ON {}.* TO {user}@'%'",
            database.name
        ))?;
        let users = Folder::create(name)?;
        let login = database.login();
        let file =
            users.write("users", &format!("\"{user}\" \"secret\"\n\"{}\" \"{}\"\n", login.user, login.password))?;
        let url = format!("mysql://{own}:secret@{}/{}", database.address(), database.name);
        let freshet = Freshet::start_unready(database.address(), &url, &["--users", &file])?;
        freshet.wait_ready()?;
        Ok(Some(Self { pair: Pair { freshet, database }, user, _users: users }))
    }

    /// The client proves the password by a plugin of old; the proof upstream is Freshet's.
    fn login(&self, address: SocketAddr) -> Result<RawClient> {
        let login = Login { user: &self.user, password: "secret", ..self.pair.login() };
        RawClient::login(address, login)
    }
}

#[test]
fn proven_by_freshet() -> Result<()> {
    let Some(knowing) = Knowing::start("ed25519-users")? else { return Ok(()) };
    let (pair, user) = (&knowing.pair, &knowing.user);
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let account = Account { pair, name: user.clone() };
    for (password, said) in [("secret", "item 1"), ("wrong", "Access denied")] {
        let printed = account.same(password, &[])?;
        ensure!(printed.contains(said), "{password}: {printed}");
    }
    // From one user to another and back, on one connection.
    let mut client = pair.connect()?;
    let own = client.value("SELECT CURRENT_USER()")?;
    for _ in 0..2 {
        client.change_user(Login { user, password: "secret", ..pair.login() })?;
        let changed = client.value("SELECT CURRENT_USER()")?;
        ensure!(changed == format!("{user}@%"), "{changed}");
        client.change_user(pair.login())?;
        ensure!(client.value("SELECT CURRENT_USER()")? == own, "not back");
    }
    client.expect_silence()?;
    pair.same_with_hits(1, |c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT name FROM item WHERE id = 1").map(drop)
    })
}

/// A nonce of this plugin is 32 bytes of any value: one in 256 ends in zero, as those of other plugins always do.
#[test]
fn many_nonces() -> Result<()> {
    let Some(knowing) = Knowing::start("ed25519-nonces")? else { return Ok(()) };
    if !knowing.pair.freshet.is_there() {
        return Ok(());
    }
    for number in 0..1000 {
        knowing.login(knowing.pair.address()).with_context(|| format!("login {number}"))?;
    }
    Ok(())
}
