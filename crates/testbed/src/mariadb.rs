//! A throw-away MariaDB server.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::installation::{find_program, unpacked};
use crate::mysqld::{DATABASE, MysqlSettings, Mysqld, SUPERUSER};
use crate::owner::Owner;
use crate::server::run;
use crate::settings::PASSWORD;

/// Fast to start and to stop. The log is written at each commit but not synchronised with the disk: data need not survive a crash of the machine,
/// only of the server.
const CONFIG: &str = "\
bind-address = 127.0.0.1
skip-name-resolve
max-connections = 300
character-set-server = utf8mb4
performance-schema = OFF
debug-no-sync
innodb-buffer-pool-size = 64M
innodb-log-file-size = 64M
innodb-flush-log-at-trx-commit = 1
";

/// A MariaDB server on 127.0.0.1, without a binary log unless asked for ([`MysqlSettings::with_binlog`]). Dropping it stops
/// the server and removes its directory.
#[derive(Debug)]
pub struct Mariadb(Mysqld);

impl Deref for Mariadb {
    type Target = Mysqld;

    fn deref(&self) -> &Mysqld {
        &self.0
    }
}

impl Mariadb {
    /// Creates a data directory and starts a server on it; returns once it accepts connections.
    pub fn start(settings: &MysqlSettings) -> Result<Self> {
        let missing = "no MariaDB that can be started here; run `script/setup test`, or set FRESHET_MARIADB_BIN to the \
                       folder with mariadbd and mariadb-install-db";
        let owner = Owner::detect()?;
        let mariadbd = find("mariadbd").context("no program mariadbd").context(missing)?;
        let install_db = find("mariadb-install-db").context("no program mariadb-install-db").context(missing)?;
        let mut server = Mysqld::reserve(owner, mariadbd, &format!("{CONFIG}{}", plugins()), settings)?;
        install(&server, owner, &install_db)?;
        server.start_on_free_port()?;
        Ok(Self(server))
    }
}

/// Looked for in the folder in `FRESHET_MARIADB_BIN`, else in the usual folders.
fn find(name: &str) -> Option<PathBuf> {
    match std::env::var_os("FRESHET_MARIADB_BIN") {
        Some(folder) => Some(Path::new(&folder).join(name)).filter(|program| program.is_file()),
        None => find_program(name),
    }
}

/// Debian's package of the server's programs has no plugins: their folder is configured if `script/setup` has unpacked some.
fn plugins() -> String {
    let named = std::env::var_os("FRESHET_MARIADB_BIN").is_some();
    let unpacked = unpacked("mariadb-plugins/lib").into_iter().find(|folder| !named && folder.is_dir());
    unpacked.map(|folder| format!("plugin-dir = {}\n", folder.display())).unwrap_or_default()
}

fn install(server: &Mysqld, owner: Owner, install_db: &Path) -> Result<()> {
    // The accounts of an installation have no password and would match before the one with a password.
    let accounts = format!(
        "DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys';\nFLUSH PRIVILEGES;\n\
         CREATE USER {SUPERUSER}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO {SUPERUSER}@'%' WITH GRANT OPTION;\nCREATE DATABASE {DATABASE};\n"
    );
    let script = server.directory().join("accounts.sql");
    fs::write(&script, accounts)?;
    let mut install = owner.command(install_db);
    install.arg(format!("--defaults-file={}", server.config_path().display()));
    install.arg(format!("--extra-file={}", script.display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(install, "mariadb-install-db")
}
