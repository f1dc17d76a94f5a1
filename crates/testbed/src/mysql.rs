//! A throw-away MySQL server.
//!
//! MySQL 8.0 takes five seconds to initialise a data directory. `script/setup` does it once, beside the programs; each server then starts on a copy.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::installation::unpacked;
use crate::mysqld::{DATABASE, MysqlSettings, Mysqld, SUPERUSER};
use crate::owner::Owner;
use crate::server::run;
use crate::settings::PASSWORD;

/// As for MariaDB; and with global transaction identifiers, which Freshet needs and which are off by default. The binary
/// log with whole rows is on by default.
const CONFIG: &str = "\
bind-address = 127.0.0.1
skip-name-resolve
mysqlx = OFF
max-connections = 300
performance-schema = OFF
innodb-flush-method = nosync
innodb-doublewrite = OFF
innodb-buffer-pool-size = 64M
innodb-log-file-size = 16M
innodb-flush-log-at-trx-commit = 1
sync-binlog = 0
log-bin = binlog
binlog-format = ROW
server-id = 1
gtid-mode = ON
enforce-gtid-consistency = ON
local-infile = ON
init-file = ../accounts.sql
";

/// A MySQL 8.0 server on 127.0.0.1. Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub struct Mysql(Mysqld);

impl Deref for Mysql {
    type Target = Mysqld;

    fn deref(&self) -> &Mysqld {
        &self.0
    }
}

impl Mysql {
    /// Creates a data directory and starts a server on it; returns once it accepts connections.
    pub fn start(settings: &MysqlSettings) -> Result<Self> {
        let owner = Owner::detect()?;
        let mysqld = find().context(
            "no MySQL that can be started here; run `script/setup test`, or set FRESHET_MYSQL_BIN to the folder with \
             mysqld",
        )?;
        let mut server = Mysqld::reserve(owner, mysqld.clone(), CONFIG, settings)?;
        let accounts = server.directory().join("accounts.sql");
        fs::write(&accounts, accounts_sql())?;
        install(&server, owner, &mysqld)?;
        server.start_on_free_port()?;
        // Later starts read the file too, and must not change the accounts back.
        fs::write(&accounts, "")?;
        Ok(Self(server))
    }
}

/// Looked for in the folder in `FRESHET_MYSQL_BIN`, else in the folder of `script/setup`.
fn find() -> Option<PathBuf> {
    let folders = match std::env::var_os("FRESHET_MYSQL_BIN") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => unpacked("mysql-8.0/bin"),
    };
    folders.into_iter().map(|folder| folder.join("mysqld")).find(|program| program.is_file())
}

/// One statement on each line, as `init_file` requires. The accounts of an installation have no password.
fn accounts_sql() -> String {
    format!(
        "SET sql_log_bin = 0;\nDROP USER IF EXISTS root@localhost;\n\
         CREATE USER IF NOT EXISTS {SUPERUSER}@'%' IDENTIFIED WITH mysql_native_password BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO {SUPERUSER}@'%' WITH GRANT OPTION;\nCREATE DATABASE IF NOT EXISTS {DATABASE};\n"
    )
}

/// A copy of the directory `template` beside the folder of the programs, if there is one.
fn install(server: &Mysqld, owner: Owner, mysqld: &Path) -> Result<()> {
    let template = mysqld.parent().and_then(Path::parent).map(|folder| folder.join("template"));
    if let Some(template) = template.filter(|template| template.is_dir()) {
        let mut copy = owner.command(Path::new("/bin/cp"));
        copy.args(["-R", "--reflink=auto"]).arg(template).arg(server.data_dir());
        return run(copy, "cp");
    }
    let mut initialize = owner.command(mysqld);
    initialize.arg(format!("--defaults-file={}", server.config_path().display())).arg("--initialize-insecure");
    run(initialize, "mysqld --initialize-insecure")
}
