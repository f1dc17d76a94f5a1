//! A server's certificates and access rules; both can be changed while it runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::process;
use crate::server::Server;
use crate::settings::Tls;

const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);

impl Server {
    /// Gives the running server, started with TLS, other certificates for new connections. If it cannot use them, only its log shows it.
    pub fn replace_tls(&self, tls: &Tls) -> Result<()> {
        self.copy_tls(tls)?;
        self.reload()
    }

    /// Replaces all lines of `pg_hba.conf`, for new connections.
    pub fn replace_hba(&self, lines: &[String]) -> Result<()> {
        self.write_hba(lines)?;
        self.reload()
    }

    /// Makes the server read its configuration again; it applies to all later connections.
    pub fn reload(&self) -> Result<()> {
        let pid = self.pid().context("the server is stopped")?;
        let before = self.reloads()?;
        process::signal(pid, Signal::HUP)?;
        let deadline = Instant::now() + RELOAD_TIMEOUT;
        // The postmaster logs it, reads the files, and only then accepts the next connection.
        while self.reloads()? == before {
            ensure!(Instant::now() < deadline, "the server does not reload");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn reloads(&self) -> Result<usize> {
        let log = fs::read(self.log_path())?;
        Ok(String::from_utf8_lossy(&log).matches("received SIGHUP").count())
    }

    pub(crate) fn copy_tls(&self, tls: &Tls) -> Result<()> {
        self.copy_private(&tls.cert, "server.crt")?;
        self.copy_private(&tls.key, "server.key")?;
        match &tls.client_ca {
            Some(ca) => self.copy_private(ca, "root.crt"),
            None => Ok(()),
        }
    }

    /// PostgreSQL refuses a private key that others can read.
    fn copy_private(&self, from: &Path, name: &str) -> Result<()> {
        let bytes = fs::read(from).with_context(|| from.display().to_string())?;
        self.write_private(name, &bytes)
    }

    pub(crate) fn write_hba(&self, lines: &[String]) -> Result<()> {
        self.write_private("pg_hba.conf", format!("{}\n", lines.join("\n")).as_bytes())
    }

    /// Renamed into place: the server may read it at any time.
    fn write_private(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (path, fresh) = (self.data_dir().join(name), self.data_dir().join(format!("{name}.new")));
        fs::write(&fresh, bytes).with_context(|| fresh.display().to_string())?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
        self.installation.owner.take(&fresh)?;
        fs::rename(&fresh, &path).with_context(|| path.display().to_string())
    }
}
