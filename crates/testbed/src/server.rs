//! A running server and its directory.
//!
//! ```text
//! <temporary directory>/freshet-pg-<process>-<number>/   everything, removed at the end
//!     data/    the data directory
//!     log      the server's output; its end is part of every error
//!     .s.PGSQL.<port>
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::installation::Installation;
use crate::process::{self, Process};
use crate::settings::{Auth, PASSWORD, SUPERUSER, Settings};
use crate::watch::Watch;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// An immediate stop takes milliseconds, or 5 s if the postmaster has to kill a child.
const IMMEDIATE_TIMEOUT: Duration = Duration::from_secs(8);
const PORT_TRIES: usize = 5;
const LOG_TAIL_BYTES: usize = 4096;

/// How to stop a server; the names are those of `pg_ctl stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for all sessions to end by themselves.
    Smart,
    /// Ends the sessions, rolls back, writes a checkpoint.
    Fast,
    /// Ends everything at once; the next start recovers from the write-ahead log.
    Immediate,
}

/// A PostgreSQL server on 127.0.0.1. Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub struct Server {
    pub(crate) installation: Installation,
    pub(crate) settings: Settings,
    directory: PathBuf,
    port: u16,
    postmaster: Mutex<Option<Child>>,
    _watch: Watch,
}

impl Installation {
    /// Creates a data directory and starts a server on it; returns once it accepts connections.
    pub fn start(&self, settings: &Settings) -> Result<Server> {
        Server::create(self, settings)
    }
}

impl Server {
    pub(crate) fn create(installation: &Installation, settings: &Settings) -> Result<Self> {
        let mut server = Self::reserve(installation, settings)?;
        server.initdb()?;
        server.start_on_free_port()?;
        Ok(server)
    }

    /// A directory with its watch, and nothing in it yet.
    pub(crate) fn reserve(installation: &Installation, settings: &Settings) -> Result<Self> {
        let directory = create_directory("freshet-pg")?;
        let owner = installation.owner;
        owner.take(&directory)?;
        let watch = Watch::start(owner, &directory, "data/postmaster.pid", "QUIT")?;
        Ok(Self {
            installation: installation.clone(),
            settings: settings.clone(),
            directory,
            port: 0,
            postmaster: Mutex::new(None),
            _watch: watch,
        })
    }

    fn initdb(&self) -> Result<()> {
        let password_file = self.directory.join("password");
        fs::write(&password_file, PASSWORD)?;
        self.installation.owner.take(&password_file)?;
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(self.data_dir()).args(["--no-sync", "--username", SUPERUSER]);
        initdb.args(["--encoding=UTF8", "--locale=C", "--auth", self.settings.auth.initdb_name()]);
        initdb.arg("--pwfile").arg(&password_file).args(&self.settings.initdb);
        run(initdb, "initdb")?;
        let path = self.data_dir().join("postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(&path).with_context(|| path.display().to_string())?;
        file.write_all(self.settings.postgresql_conf().as_bytes())?;
        if !self.settings.hba.is_empty() {
            self.write_hba(&self.settings.hba)?;
        }
        if let Some(tls) = &self.settings.tls {
            self.copy_tls(tls)?;
        }
        Ok(())
    }

    /// Starts on a port that was free a moment ago, and on another one if it was taken since.
    pub(crate) fn start_on_free_port(&mut self) -> Result<()> {
        for attempt in 1..=PORT_TRIES {
            self.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            match self.start() {
                Err(error) if attempt < PORT_TRIES && format!("{error:#}").contains("Address already in use") => {}
                outcome => return outcome,
            }
        }
        bail!("no free port in {PORT_TRIES} tries")
    }

    /// Starts the stopped server again, on its old port.
    pub fn start(&self) -> Result<()> {
        let mut postmaster = self.postmaster();
        ensure!(postmaster.is_none(), "the server on port {} is running", self.port);
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data_dir()).arg("-c").arg(format!("port={}", self.port));
        command.arg("-c").arg(format!("unix_socket_directories={}", self.directory.display()));
        // Its own process group: an interrupt typed at the terminal must not stop the server before its clients.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = command.spawn().context("starting postgres")?;
        let outcome = self.wait_until_ready(&mut child);
        *postmaster = Some(child);
        drop(postmaster);
        if outcome.is_err() {
            // The error at hand is reported, whatever this returns.
            let _ = self.kill9();
        }
        outcome
    }

    /// The eighth line of the lock file says when sessions are accepted (`pg_ctl -w` reads it).
    fn wait_until_ready(&self, child: &mut Child) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let pid = child.id().to_string();
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the server ended while starting ({status}); {}", self.log_tail());
            }
            let lock = fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap_or_default();
            let mut lines = lock.lines();
            let ours = lines.next() == Some(pid.as_str());
            if ours && matches!(lines.nth(6).map(str::trim), Some("ready" | "standby")) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the server is not up after {START_TIMEOUT:?}; {}", self.log_tail());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the server and keeps its data. Stopping a stopped server does nothing.
    pub fn stop(&self, mode: StopMode) -> Result<()> {
        let mut postmaster = self.postmaster();
        let Some(child) = postmaster.as_mut() else { return Ok(()) };
        let (signal, patience) = match mode {
            StopMode::Smart => (Signal::TERM, STOP_TIMEOUT),
            StopMode::Fast => (Signal::INT, STOP_TIMEOUT),
            StopMode::Immediate => (Signal::QUIT, IMMEDIATE_TIMEOUT),
        };
        if child.try_wait()?.is_none() {
            process::signal(child.id(), signal)?;
            // A stopped process would not react. All children are continued: a signal just sent may not show yet.
            for child in process::children(child.id())? {
                let _ = process::resume(child.pid);
            }
        }
        if wait_for(child, patience)? {
            *postmaster = None;
            return Ok(());
        }
        drop(postmaster);
        ensure!(mode == StopMode::Immediate, "the server still runs {patience:?} after a {mode:?} stop");
        self.kill9()
    }

    /// Stops (fast) and starts the server.
    pub fn restart(&self) -> Result<()> {
        self.stop(StopMode::Fast)?;
        self.start()
    }

    /// Kills the postmaster and all its children at once, like a crash of the machine; [`Self::start`] recovers.
    pub fn kill9(&self) -> Result<()> {
        let mut postmaster = self.postmaster();
        let Some(child) = postmaster.as_mut() else { return Ok(()) };
        // Stopped first, so that it starts no more children while they are listed.
        let _ = process::pause(child.id());
        let orphans = process::children(child.id())?;
        child.kill()?;
        child.wait()?;
        *postmaster = None;
        for orphan in &orphans {
            let _ = process::kill(orphan.pid);
        }
        // A new postmaster refuses the data directory while an old backend holds its shared memory.
        let deadline = Instant::now() + STOP_TIMEOUT;
        while orphans.iter().any(|orphan| Process::read(orphan.pid).is_ok_and(|process| process.state != 'Z')) {
            ensure!(Instant::now() < deadline, "killed backends are still there after {STOP_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Runs statements through psql, each in its own transaction, and returns the rows, unaligned, without headers.
    pub fn psql(&self, sql: &str) -> Result<String> {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-f", "-"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = psql.spawn().context("starting psql")?;
        let mut stdin = child.stdin.take().context("psql without standard input")?;
        let text = sql.to_owned();
        // On its own thread: otherwise a long script and a long answer would wait for each other.
        let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        // If psql has failed early, its own message is the better error.
        let _ = writer.join();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql: {}\nin: {sql}", errors.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// `ALTER SYSTEM SET name = value` and a reload; an empty value resets it.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        self.psql(&format!("ALTER SYSTEM SET {name} = '{}'; SELECT pg_reload_conf();", value.replace('\'', "''")))?;
        Ok(())
    }

    /// URL of the superuser and the database `postgres`, with the password.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// URL of the superuser and the named database, with the password.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}:{PASSWORD}@{}:{}/{database}", self.host(), self.port)
    }

    /// Always 127.0.0.1.
    pub fn host(&self) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }

    /// TCP port; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Name of the superuser.
    pub fn superuser(&self) -> &'static str {
        SUPERUSER
    }

    /// The superuser's password; not used with [`Auth::Trust`].
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The authentication method of clients.
    pub fn auth(&self) -> Auth {
        self.settings.auth
    }

    /// The programs this server was started from.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The directory of its Unix socket, `.s.PGSQL.` and the port.
    pub fn socket_directory(&self) -> &Path {
        &self.directory
    }

    /// The file with the server's log.
    pub fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Process id of the postmaster; `None` while the server is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.postmaster().as_ref().map(Child::id)
    }

    /// The server's processes other than the postmaster.
    pub fn children(&self) -> Result<Vec<Process>> {
        process::children(self.running_pid()?)
    }

    /// User and system time of the postmaster and of all its children, ended ones included, since the last start.
    pub fn cpu_seconds(&self) -> Result<f64> {
        process::family_cpu_seconds(self.running_pid()?)
    }

    fn running_pid(&self) -> Result<u32> {
        self.pid().with_context(|| format!("the server on port {} is stopped", self.port))
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        self.installation.owner.command(&self.installation.program(program))
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Child>> {
        // A panic of a test that held the lock leaves the child unchanged.
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_tail(&self) -> String {
        log_tail(&self.log_path())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The watch, dropped after this, removes the directory and tries to stop the server once more.
        let _ = self.stop(StopMode::Immediate);
    }
}

/// Runs a program to its end; its output is part of the error.
pub(crate) fn run(mut command: Command, name: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))?;
    let printed = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "{name} failed ({}):\n{}",
        output.status,
        String::from_utf8_lossy(&printed).trim()
    );
    Ok(())
}

/// The end of a server's log, as the last part of an error.
pub(crate) fn log_tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let tail = text.get(text.len().saturating_sub(LOG_TAIL_BYTES)..).unwrap_or_default();
    format!("its log ends with:\n{}", String::from_utf8_lossy(tail).trim_end())
}

pub(crate) fn wait_for(child: &mut Child, patience: Duration) -> Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory for one server and its log, removed by its watch.
pub(crate) fn create_directory(prefix: &str) -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Resolved, because the watch compares it with the postmaster's working directory.
    let parent = fs::canonicalize(std::env::temp_dir()).context("the temporary directory")?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // The start time distinguishes it from a directory of an earlier process with the same id.
    let started =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    let directory = parent.join(format!("{prefix}-{}-{number}-{started:08x}", std::process::id()));
    create_private(&directory)?;
    Ok(directory)
}

fn create_private(directory: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o755).create(directory).with_context(|| directory.display().to_string())?;
    // The caller owns the log and opens it for each start.
    File::create(directory.join("log"))?;
    Ok(())
}
