//! A Freshet in transaction mode, with an account whose sessions share connections.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::mysql::support::packets::capability;
use crate::mysql::support::{Database, Kind, Login, Pair, RawClient};

/// The tables of the tests.
pub(super) const SCHEMA: &[&str] = &[
    "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO item VALUES (1, 'kettle'), (2, 'pan'), (3, 'spoon')",
    "CREATE TABLE line (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
    "INSERT INTO line (n) VALUES (1), (2), (3)",
    "CREATE TABLE logged (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
    "CREATE TRIGGER remembers AFTER INSERT ON logged FOR EACH ROW SET @last = NEW.n",
    "CREATE PROCEDURE remember () SET @last = 7",
    "CREATE TABLE noted (id INT PRIMARY KEY AUTO_INCREMENT, n INT, who VARCHAR(20))",
    "CREATE TABLE notes (n INT)",
    "CREATE TRIGGER notes_it BEFORE INSERT ON noted FOR EACH ROW BEGIN INSERT INTO notes VALUES (NEW.n); SET NEW.who = @who; END",
    "CREATE TRIGGER counts_it BEFORE UPDATE ON noted FOR EACH ROW BEGIN INSERT INTO notes VALUES (NEW.n); SET NEW.n = twice(NEW.n); END",
    "CREATE FUNCTION twice (n INT) RETURNS INT DETERMINISTIC RETURN 2 * n",
    "CREATE PROCEDURE nothing (n INT) BEGIN DECLARE m INT DEFAULT 0; DECLARE CONTINUE HANDLER FOR NOT FOUND SET m = 1; SET m = n; SELECT m; END",
];
/// A read that can be cached.
pub(super) const READ: &str = "SELECT name FROM item WHERE id = 1";

/// Freshet and its database.
pub(super) struct Stage {
    pub(super) pair: Pair,
    /// The account of the sessions.
    pub(super) user: String,
    file: PathBuf,
}

impl Stage {
    /// With so many connections to share. A session that waits half a second for one is refused.
    pub(super) fn start(kind: Kind, size: usize) -> Result<Self> {
        Self::with(kind, &["--default-pool-size", &size.to_string(), "--query-wait-timeout", "500ms"])
    }

    pub(super) fn with(kind: Kind, options: &[&str]) -> Result<Self> {
        Self::over(Database::shared(kind)?, kind, options)
    }

    /// The account has this mode.
    pub(super) fn of_mode(kind: Kind, mode: &str, options: &[&str]) -> Result<Self> {
        let database = Database::shared(kind)?;
        let modes = format!("{}_pool={mode}", database.name);
        Self::over(database, kind, &[options, &["--pool-users", &modes]].concat())
    }

    /// The account is an operator, too.
    pub(super) fn over(database: Database, kind: Kind, options: &[&str]) -> Result<Self> {
        for statement in SCHEMA {
            database.run(statement)?;
        }
        let user = format!("{}_pool", database.name);
        let identified = match kind {
            Kind::Mariadb => "IDENTIFIED BY 'secret'",
            Kind::Mysql => "IDENTIFIED WITH mysql_native_password BY 'secret'",
        };
        database.run(&format!("CREATE USER {user}@'%' {identified}"))?;
        database.run(&format!("GRANT ALL ON {}.* TO {user}@'%'", database.name))?;
        let file = std::env::temp_dir().join(format!("freshet-pool-{}-{kind:?}-{user}", std::process::id()));
        let root = database.login();
        std::fs::write(&file, format!("\"{user}\" \"secret\"\n\"{}\" \"{}\"\n", root.user, root.password))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let users = file.display().to_string();
        let options = [&["--users", &users, "--pool", "transaction", "--admin-users", &user], options].concat();
        Ok(Self { pair: Pair::over(database, "DO 0", &options)?, user, file })
    }

    pub(super) fn login(&self) -> Login<'_> {
        Login { user: &self.user, password: "secret", capabilities: capability::MODERN, ..self.pair.login() }
    }

    /// A session through Freshet.
    pub(super) fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.pair.address(), self.login())
    }

    /// The connections of the account at the server.
    pub(super) fn connections(&self) -> Result<u64> {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}'", self.user);
        self.pair.database.connect()?.value(&sql)?.parse().context("a number")
    }

    /// Whether the only connection is free, so that another session can use it.
    pub(super) fn is_free(&self) -> Result<bool> {
        let mut other = self.connect()?;
        let answer = other.query("SELECT COUNT(*) FROM line")?;
        match answer.error() {
            None => Ok(true),
            Some((code, ..)) => {
                ensure!(code == 1040, "{:?}", answer.error());
                Ok(false)
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
        let _ = self.pair.database.run(&format!("DROP USER {}@'%'", self.user));
    }
}
