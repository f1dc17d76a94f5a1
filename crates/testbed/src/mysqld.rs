//! A running `mariadbd` or `mysqld`: the common part of [`Mariadb`](crate::Mariadb) and [`Mysql`](crate::Mysql).
//!
//! It gives the same guarantees as PostgreSQL's [`Server`](crate::Server): a new data directory, a free port of 127.0.0.1, never root, and nothing
//! left behind if a process dies. These servers write their process id to a file only when they are nearly started. So that the watch also finds a
//! starting server, the testbed writes the file as soon as it knows the id.
//!
//! ```text
//! <temporary directory>/freshet-<kind>-<process>-<number>/   everything, removed at the end
//!     my.cnf   all settings
//!     data/    the data directory
//!     log      the server's output; its end is part of every error
//!     pid      process id
//!     sock
//! ```

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use crate::installation::find_program;
use crate::owner::Owner;
use crate::process;
use crate::server::{create_directory, log_tail, wait_for};
use crate::settings::{PASSWORD, Tls};
use crate::watch::Watch;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const PORT_TRIES: usize = 5;
/// Name of the account with all privileges, and of the initial database.
pub(crate) const SUPERUSER: &str = "root";
pub(crate) const DATABASE: &str = "freshet";

/// The settings of a server of this family.
#[derive(Clone, Debug, Default)]
pub struct MysqlSettings {
    /// Lines of the option file, after the standard ones, which they override, such as `innodb-buffer-pool-size = 512M`.
    pub config: Vec<String>,
    /// TLS with these files. Without them MariaDB has no TLS, and MySQL generates a certificate.
    pub tls: Option<Tls>,
}

impl MysqlSettings {
    /// Adds one line to the option file.
    #[must_use]
    pub fn with(mut self, config_line: impl Into<String>) -> Self {
        self.config.push(config_line.into());
        self
    }

    /// Enables the binary log, with rows. MariaDB has none by default; [`Mysql`](crate::Mysql) always has one.
    #[must_use]
    pub fn with_binlog(self) -> Self {
        self.with("log-bin = binlog").with("binlog-format = ROW").with("server-id = 1")
    }

    /// TLS with these files.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}

/// A server of this family on 127.0.0.1. Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub struct Mysqld {
    owner: Owner,
    program: PathBuf,
    directory: PathBuf,
    port: u16,
    child: Mutex<Option<Child>>,
    /// The last second in which it ran, since 1970.
    up_second: AtomicU64,
    _watch: Watch,
}

impl Mysqld {
    /// A directory with its watch and the option file, and no data yet.
    pub(crate) fn reserve(owner: Owner, program: PathBuf, standard: &str, settings: &MysqlSettings) -> Result<Self> {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or("mysqld");
        let directory = create_directory(&format!("freshet-{name}"))?;
        owner.take(&directory)?;
        // Killed without a shutdown: its data are not needed any more.
        let watch = Watch::start(owner, &directory, "pid", "KILL")?;
        let (child, up_second) = (Mutex::new(None), AtomicU64::new(0));
        let server = Self { owner, program, directory, port: 0, child, up_second, _watch: watch };
        let place = server.directory.display();
        let mut config =
            format!("[mysqld]\ndatadir = {place}/data\nsocket = {place}/sock\ntmpdir = {place}\n{standard}");
        if let Some(tls) = &settings.tls {
            config.push_str(&server.copy_tls(tls)?);
        }
        config.push_str(&settings.config.join("\n"));
        fs::write(server.config_path(), config + "\n")?;
        Ok(server)
    }

    /// The lines that name the copies, which only the server can read.
    fn copy_tls(&self, tls: &Tls) -> Result<String> {
        let files = [("ssl-cert", Some(&tls.cert)), ("ssl-key", Some(&tls.key)), ("ssl-ca", tls.client_ca.as_ref())];
        let mut lines = String::new();
        for (option, from) in files {
            let Some(from) = from else { continue };
            let copy = self.directory.join(option);
            fs::copy(from, &copy).with_context(|| from.display().to_string())?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
            self.owner.take(&copy)?;
            writeln!(lines, "{option} = {}", copy.display())?;
        }
        Ok(lines)
    }

    /// Starts on a port that was free a moment ago, and on another one if it was taken since.
    pub(crate) fn start_on_free_port(&mut self) -> Result<()> {
        for attempt in 1..=PORT_TRIES {
            self.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            match self.start_again() {
                Err(error) if attempt < PORT_TRIES && format!("{error:#}").contains("Address already in use") => {}
                outcome => return outcome,
            }
        }
        bail!("no free port in {PORT_TRIES} tries")
    }

    /// Starts the stopped server again, on its old port, and in another second than before: only the second of its start distinguishes a server's
    /// runs.
    pub fn start_again(&self) -> Result<()> {
        let mut guard = self.child();
        ensure!(guard.is_none(), "the server on port {} is running", self.port);
        while this_second()? == self.up_second.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let said_before = log.metadata()?.len();
        let mut command = self.owner.command(&self.program);
        command.arg(format!("--defaults-file={}", self.config_path().display()));
        command.arg(format!("--port={}", self.port));
        // Its working directory is its data directory, by which the watch recognises it. It has its own process group: an interrupt typed at the
        // terminal must not stop the server before its clients.
        command.current_dir(self.data_dir()).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let written = fs::write(self.directory.join("pid"), format!("{}\n", child.id())).context("writing pid");
        let outcome = written.and_then(|()| self.wait_until_ready(&mut child, said_before));
        if outcome.is_err() {
            // The error at hand is reported, whatever this returns.
            let _ = child.kill();
            let _ = child.wait();
            return outcome;
        }
        *guard = Some(child);
        self.up_second.store(this_second()?, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for the message in the log, behind the output of earlier starts.
    fn wait_until_ready(&self, child: &mut Child, said_before: u64) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let said_before = usize::try_from(said_before)?;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the server ended while starting ({status}); {}", log_tail(&self.log_path()));
            }
            let log = fs::read(self.log_path())?;
            let new = log.get(said_before..).unwrap_or_default();
            if String::from_utf8_lossy(new).contains("ready for connections") {
                return Ok(());
            }
            let log = self.log_path();
            ensure!(Instant::now() < deadline, "the server is not up after {START_TIMEOUT:?}; {}", log_tail(&log));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the server with a shutdown. Its data stay until it is dropped. Stopping a stopped server does nothing.
    pub fn stop(&self) -> Result<()> {
        let mut guard = self.child();
        let Some(child) = guard.as_mut() else { return Ok(()) };
        if child.try_wait()?.is_none() {
            process::terminate(child.id())?;
            // A stopped process would not react.
            process::resume(child.id())?;
        }
        if !wait_for(child, STOP_TIMEOUT)? {
            child.kill()?;
            child.wait()?;
        }
        *guard = None;
        Ok(())
    }

    /// Stops and starts the server.
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Kills the server at once; [`Self::start_again`] recovers.
    pub fn kill9(&self) -> Result<()> {
        let mut guard = self.child();
        let Some(child) = guard.as_mut() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        *guard = None;
        Ok(())
    }

    /// Stops the server process (SIGSTOP): connections stay open, and nothing is answered.
    pub fn pause(&self) -> Result<()> {
        process::pause(self.running_pid()?)
    }

    /// Continues a stopped server.
    pub fn resume(&self) -> Result<()> {
        process::resume(self.running_pid()?)
    }

    /// Runs statements through the `mariadb` client and returns the rows, columns separated by tabs, without headers.
    pub fn sql(&self, sql: &str) -> Result<String> {
        self.sql_in(DATABASE, sql)
    }

    /// The same in another database.
    pub fn sql_in(&self, database: &str, sql: &str) -> Result<String> {
        let client = find_program("mariadb").context("no program mariadb; run `script/setup test`")?;
        let mut client = self.owner.command(&client);
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--protocol=tcp", "--host=127.0.0.1"]);
        client.arg(format!("--port={}", self.port)).arg(format!("--user={SUPERUSER}"));
        client.arg(format!("--password={PASSWORD}")).arg("--default-character-set=utf8mb4").arg(database);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = client.spawn().context("starting mariadb")?;
        let mut stdin = child.stdin.take().context("mariadb without standard input")?;
        let text = sql.to_owned();
        // On its own thread: otherwise a long script and a long answer would wait for each other.
        let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        // If the client has failed early, its own message is the better error.
        let _ = writer.join();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mariadb: {}\nin: {sql}", errors.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// URL of the account with all privileges and the database `freshet`, with the password.
    pub fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    /// URL of the account with all privileges and the named database, with the password.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://{SUPERUSER}:{PASSWORD}@{}/{database}", self.address())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// TCP port of 127.0.0.1; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Name of the account with all privileges; from any host, by `mysql_native_password`.
    pub fn superuser(&self) -> &'static str {
        SUPERUSER
    }

    /// The password of that account.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Process id; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// User and system time since the last start.
    pub fn cpu_seconds(&self) -> Result<f64> {
        process::cpu_seconds(self.running_pid()?)
    }

    fn running_pid(&self) -> Result<u32> {
        self.pid().with_context(|| format!("the server on port {} is stopped", self.port))
    }

    /// Its own directory, with its Unix socket `sock`; removed when the server is dropped.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The option file; appended lines apply from the next start on.
    pub fn config_path(&self) -> PathBuf {
        self.directory.join("my.cnf")
    }

    /// The file with the server's log.
    pub fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A panic of a test that held the lock leaves the child unchanged.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mysqld {
    fn drop(&mut self) {
        // The watch, dropped after this, removes the directory and tries to stop the server once more.
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn this_second() -> Result<u64> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}
