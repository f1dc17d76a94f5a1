//! TLS on both sides, depending on the client's request, Freshet's certificate and the server's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::programs::mariadb;
use crate::mysql::support::{Database, Kind, Pair, SESSION_MODE, on_both};

on_both!(clients_over_tls, plain_clients_of_a_freshet_with_a_certificate, a_server_over_tls, passwords_over_tls);

/// A certificate of 127.0.0.1 that is its own root, in a directory that is removed at the end.
struct Certificate {
    directory: PathBuf,
}

impl Certificate {
    fn make(name: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("freshet-mysql-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let certificate = Self { directory };
        std::fs::write(certificate.cert(), made.cert.pem())?;
        std::fs::write(certificate.key(), made.signing_key.serialize_pem())?;
        std::fs::set_permissions(certificate.key(), std::fs::Permissions::from_mode(0o600))?;
        Ok(certificate)
    }

    fn cert(&self) -> PathBuf {
        self.directory.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    fn tls(&self) -> freshet_testbed::Tls {
        freshet_testbed::Tls { cert: self.cert(), key: self.key(), client_ca: None }
    }

    /// Options for `freshet serve`.
    fn options(&self) -> [String; 4] {
        let path = |path: PathBuf| path.display().to_string();
        ["--tls-cert".into(), path(self.cert()), "--tls-key".into(), path(self.key())]
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // What stays lies in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn with_certificate(kind: Kind, certificate: &Certificate) -> Result<Pair> {
    with_options(kind, certificate, &[])
}

fn with_options(kind: Kind, certificate: &Certificate, more: &[&str]) -> Result<Pair> {
    let options = certificate.options();
    Pair::over(Database::shared(kind)?, SCHEMA, &[&options.each_ref().map(String::as_str), more].concat())
}

/// Whether the connection is encrypted as the client sees it, and a read.
fn ask(pair: &Pair, user: &str, more: &[&str]) -> Result<(bool, String)> {
    let mut command = mariadb(pair.address(), user, pair.login().password, &pair.database.name);
    command.args(more).args(["-e", "status; SELECT name FROM item WHERE id = 1"]);
    let output = command.output().context("the mariadb program")?;
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((printed.contains("Cipher in use"), printed))
}

fn clients_over_tls(kind: Kind) -> Result<()> {
    let certificate = Certificate::make(&format!("clients-{kind:?}"))?;
    let pair = with_certificate(kind, &certificate)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let ca = format!("--ssl-ca={}", certificate.cert().display());
    for options in [vec!["--ssl"], vec![ca.as_str(), "--ssl-verify-server-cert"]] {
        for _ in 0..3 {
            let (encrypted, printed) = ask(&pair, pair.login().user, &options)?;
            ensure!(encrypted && printed.contains("item 1"), "{options:?}: {printed}");
        }
    }
    Ok(())
}

fn plain_clients_of_a_freshet_with_a_certificate(kind: Kind) -> Result<()> {
    let certificate = Certificate::make(&format!("plain-{kind:?}"))?;
    let pair = with_certificate(kind, &certificate)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (encrypted, printed) = ask(&pair, pair.login().user, &["--skip-ssl"])?;
    ensure!(!encrypted && printed.contains("item 1"), "{printed}");
    pair.same_with_hits(1, |c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT name FROM item WHERE id = 1").map(drop)
    })
}

/// Freshet encrypts to the server and knows whom it speaks to.
fn a_server_over_tls(kind: Kind) -> Result<()> {
    let certificate = Certificate::make(&format!("server-{kind:?}"))?;
    let server = kind.start(&Kind::settings().with_tls(certificate.tls()))?;
    let database = Database::create(server)?;
    database.run(SCHEMA)?;
    let ca = certificate.cert().display().to_string();
    // MySQL 8.0.15 knows no key exchange that is thought safe today, so there it remains at the wish.
    let modes: &[&str] = match kind {
        Kind::Mariadb => &["required", "preferred", "verify-ca", "verify-identity"],
        Kind::Mysql => &["preferred"],
    };
    for mode in modes {
        let url = format!("{}?ssl-mode={mode}&ssl-ca={ca}", database.url());
        let freshet = crate::support::Freshet::start_unready(database.address(), &url, &[])?;
        freshet.wait_ready()?;
        let mut client = crate::mysql::support::RawClient::login(freshet.address, database.login())?;
        if freshet.is_there() && kind == Kind::Mariadb {
            let rows = client.query("SHOW STATUS LIKE 'Ssl_cipher'")?.rows();
            ensure!(
                rows.first().and_then(|row| row[1].as_deref()).is_some_and(|cipher| !cipher.is_empty()),
                "{mode}: {rows:?}"
            );
        }
        client.run("SELECT name FROM item WHERE id = 1")?;
    }
    Ok(())
}

/// Where a password may travel as it is, because the way is encrypted; the other leg is plain.
fn passwords_over_tls(kind: Kind) -> Result<()> {
    let certificate = Certificate::make(&format!("passwords-{kind:?}"))?;
    let pair = with_options(kind, &certificate, SESSION_MODE)?;
    if kind == Kind::Mariadb || !pair.freshet.is_there() {
        return Ok(());
    }
    let user = format!("{}_sha2", pair.database.name);
    pair.database.run(&format!(
        "CREATE USER {user} IDENTIFIED WITH caching_sha2_password BY 'freshet'; GRANT SELECT ON {}.* TO {user}",
        pair.database.name
    ))?;
    for _ in 0..2 {
        let (encrypted, printed) = ask(&pair, &user, &["--ssl"])?;
        ensure!(encrypted && printed.contains("item 1"), "{printed}");
        pair.database.run("FLUSH PRIVILEGES")?;
    }
    pair.database.run(&format!("DROP USER {user}"))
}
