//! Every authentication method, with programs that support it: Freshet relays the messages of both sides.

mod ed25519;
mod folder;
mod pam;
mod users_file;

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::capability;
use crate::mysql::support::programs::mariadb;
use crate::mysql::support::{Database, Kind, Login, Pair, on_both};
use crate::support::Freshet;
use folder::Folder;

on_both!(native_passwords, accounts_without_a_password, locked_and_expired, several_hosts, clear_passwords);

/// An account of this name, made with this clause, that may read the table.
struct Account<'a> {
    pair: &'a Pair,
    name: String,
}

impl<'a> Account<'a> {
    fn create(pair: &'a Pair, clause: &str) -> Result<Self> {
        let name = format!("{}_user", pair.database.name);
        pair.database
            .run(&format!("CREATE USER {name}@'%' {clause}; GRANT SELECT ON {}.* TO {name}@'%'", pair.database.name))?;
        Ok(Self { pair, name })
    }

    /// What the program prints there.
    fn run(&self, address: SocketAddr, password: &str, more: &[&str]) -> Result<String> {
        let mut command = mariadb(address, &self.name, password, &self.pair.database.name);
        command.args(more).args(["-e", "SELECT CURRENT_USER(); SELECT name FROM item WHERE id = 1"]);
        let output = command.output().context("the mariadb program")?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// The program prints the same directly and through Freshet.
    fn same(&self, password: &str, more: &[&str]) -> Result<String> {
        let direct = self.run(self.pair.database.address(), password, more)?;
        for _ in 0..2 {
            let through = self.run(self.pair.address(), password, more)?;
            ensure!(direct == through, "\n direct:  {direct}\n through: {through}");
        }
        Ok(direct)
    }

    fn drop(self) -> Result<()> {
        self.pair.database.run(&format!("DROP USER {}@'%'", self.name))
    }
}

/// Right and wrong passwords.
fn passwords(pair: &Pair, clause: &str, more: &[&str]) -> Result<()> {
    let account = Account::create(pair, clause)?;
    let right = account.same("secret", more)?;
    ensure!(right.contains("item 1"), "{clause}: {right}");
    let wrong = account.same("wrong", more)?;
    ensure!(wrong.contains("Access denied"), "{clause}: {wrong}");
    let none = account.same("", more)?;
    ensure!(none.contains("Access denied"), "{clause}: {none}");
    account.drop()
}

fn native_passwords(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    match kind {
        Kind::Mariadb => passwords(&pair, "IDENTIFIED BY 'secret'", &[]),
        Kind::Mysql => passwords(&pair, "IDENTIFIED WITH mysql_native_password BY 'secret'", &[]),
    }
}

/// The first login needs the password itself, encrypted with the server's key; later ones its hash, until the server
/// forgets what it knows.
#[test]
fn caching_sha2_passwords() -> Result<()> {
    let pair = Pair::in_session_mode(Kind::Mysql, SCHEMA)?;
    passwords(&pair, "IDENTIFIED WITH caching_sha2_password BY 'secret'", &[])?;

    let account = Account::create(&pair, "IDENTIFIED WITH caching_sha2_password BY 'secret'")?;
    for _ in 0..2 {
        account.same("secret", &[])?;
        let login = Login { user: &account.name, password: "secret", plugin: "caching_sha2_password", ..pair.login() };
        for capabilities in [capability::MODERN, capability::OLD] {
            pair.same_as(Login { capabilities, ..login }, |c| {
                c.query("SELECT name FROM item WHERE id = 1")?;
                c.change_user(login)?;
                c.query("SELECT name FROM item WHERE id = 1")?;
                c.expect_silence()
            })?;
        }
        pair.database.run("FLUSH PRIVILEGES")?;
    }
    account.drop()
}

#[test]
fn sha256_passwords() -> Result<()> {
    passwords(&Pair::in_session_mode(Kind::Mysql, SCHEMA)?, "IDENTIFIED WITH sha256_password BY 'secret'", &[])
}

fn accounts_without_a_password(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let account = Account::create(&pair, "IDENTIFIED BY ''")?;
    let printed = account.same("", &[])?;
    ensure!(printed.contains("item 1"), "{printed}");
    let printed = account.same("secret", &[])?;
    ensure!(printed.contains("Access denied"), "{printed}");
    account.drop()
}

fn locked_and_expired(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    for (clause, said) in [("ACCOUNT LOCK", "locked"), ("PASSWORD EXPIRE", "must "), ("REQUIRE SSL", "Access denied")] {
        let account = Account::create(&pair, &clause_with(kind, clause))?;
        let printed = account.same("secret", &["--skip-ssl"])?;
        ensure!(printed.contains(said), "{clause}: {printed}");
        account.drop()?;
    }
    Ok(())
}

fn clause_with(kind: Kind, more: &str) -> String {
    match kind {
        Kind::Mariadb => format!("IDENTIFIED BY 'secret' {more}"),
        Kind::Mysql => format!("IDENTIFIED WITH mysql_native_password BY 'secret' {more}"),
    }
}

/// The server sees the address of Freshet, which here is that of the client: who comes from elsewhere stays out.
fn several_hosts(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let account = Account::create(&pair, &clause_with(kind, ""))?;
    let (user, clause) = (&account.name, clause_with(kind, "").replace("'secret'", "'other'"));
    pair.database.run(&format!("CREATE USER {user}@'127.0.0.1' {clause}; CREATE USER {user}@'10.0.0.1' {clause}"))?;
    let printed = account.same("secret", &[])?;
    ensure!(printed.contains("Access denied"), "{printed}");
    let printed = account.same("other", &[])?;
    ensure!(printed.contains("@127.0.0.1"), "{printed}");
    pair.database.run(&format!("DROP USER {user}@'127.0.0.1'; DROP USER {user}@'10.0.0.1'"))?;
    account.drop()
}

/// Who begins with the password itself has shown it already: Freshet hands it on only where nobody can read along.
fn clear_passwords(kind: Kind) -> Result<()> {
    let certificate = Folder::with_certificate(&format!("clear-{kind:?}"))?;
    let server = kind.start(&Kind::settings().with_tls(certificate.tls()))?;
    // The TLS of this MySQL is too old for Freshet.
    let modes: &[&str] = if kind == Kind::Mariadb { &["disabled", "required"] } else { &["disabled"] };
    for mode in modes {
        let database = Database::create(server.clone())?;
        database.run(SCHEMA)?;
        let (url, options) = (format!("{}?ssl-mode={mode}", database.url()), certificate.options());
        let freshet = Freshet::start_unready(database.address(), &url, &options.each_ref().map(String::as_str))?;
        freshet.wait_ready()?;
        let pair = Pair { freshet, database };
        let account = Account::create(&pair, &clause_with(kind, ""))?;
        for encryption in ["--skip-ssl", "--ssl"] {
            let options = ["--default-auth=mysql_clear_password", encryption];
            let private = (*mode, encryption) == ("required", "--ssl");
            if private || !pair.freshet.is_there() {
                let printed = account.same("secret", &options)?;
                ensure!(printed.contains("item 1"), "{printed}");
            } else {
                let printed = account.run(pair.address(), "secret", &options)?;
                ensure!(printed.contains("only where both its sides are encrypted"), "{mode} {encryption}: {printed}");
            }
        }
        account.drop()?;
    }
    Ok(())
}
