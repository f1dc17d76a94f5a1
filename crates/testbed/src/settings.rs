//! The settings of a server that a caller may choose; the others are fixed so that all tests have the same conditions.

use std::path::PathBuf;

/// Name of the superuser of every throw-away server.
pub(crate) const SUPERUSER: &str = "postgres";
/// Its password. It protects nothing: the server listens on the loopback interface and lives for minutes.
pub(crate) const PASSWORD: &str = "freshet";

/// The authentication method of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// None.
    #[default]
    Trust,
    /// SCRAM-SHA-256 with the superuser's password.
    Scram,
}

impl Auth {
    pub(crate) const fn initdb_name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Scram => "scram-sha-256",
        }
    }
}

/// Files for TLS, all PEM. The server gets copies that only it can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `ssl_cert_file`
    pub cert: PathBuf,
    /// `ssl_key_file`
    pub key: PathBuf,
    /// `ssl_ca_file`: the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
}

/// The settings of a server. The default has logical decoding and no authentication.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `wal_level`; Freshet needs `logical`, and must report any other value.
    pub wal_level: String,
    /// Lines for `postgresql.conf`, after the standard ones, which they override, such as `shared_buffers = 256MB`.
    pub config: Vec<String>,
    /// More arguments for `initdb`, after the standard ones, which they override, such as `--locale=C.UTF-8`.
    pub initdb: Vec<String>,
    /// The authentication method of clients.
    pub auth: Auth,
    /// The lines of `pg_hba.conf`; if empty, `initdb` writes them for [`Self::auth`].
    pub hba: Vec<String>,
    /// TLS; None: off.
    pub tls: Option<Tls>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wal_level: "logical".into(),
            config: Vec::new(),
            initdb: Vec::new(),
            auth: Auth::Trust,
            hba: Vec::new(),
            tls: None,
        }
    }
}

impl Settings {
    /// Adds one line to the server's configuration.
    #[must_use]
    pub fn with(mut self, config_line: impl Into<String>) -> Self {
        self.config.push(config_line.into());
        self
    }

    /// Asks for SCRAM-SHA-256 instead of trust.
    #[must_use]
    pub fn with_scram(mut self) -> Self {
        self.auth = Auth::Scram;
        self
    }

    /// Adds one line to `pg_hba.conf`, which then has no other lines than those added.
    #[must_use]
    pub fn with_hba(mut self, line: impl Into<String>) -> Self {
        self.hba.push(line.into());
        self
    }

    /// Turns TLS on.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The text appended to `postgresql.conf`.
    pub(crate) fn postgresql_conf(&self) -> String {
        let mut text = String::from("\n# set by the testbed\n");
        // Data need not survive a crash of the machine, only of the server: the kernel keeps everything written. synchronous_commit stays on, since
        // the tests depend on its order (acknowledgement after the WAL flush and after the synchronous standbys).
        text.push_str("fsync = off\nfull_page_writes = off\nsynchronous_commit = on\n");
        text.push_str("listen_addresses = '127.0.0.1'\nmax_connections = 300\n");
        text.push_str("max_wal_senders = 20\nmax_replication_slots = 20\n");
        // A scan begins at a table's first row, whatever other scans run.
        text.push_str("synchronize_seqscans = off\n");
        text.push_str("shared_buffers = 128MB\nlog_line_prefix = '%m [%p] %q%a '\nlogging_collector = off\n");
        text.push_str("wal_level = ");
        text.push_str(&self.wal_level);
        text.push('\n');
        if self.tls.is_some() {
            let ca = self.tls.as_ref().and_then(|tls| tls.client_ca.as_ref()).map_or("", |_| "root.crt");
            text.push_str("ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\n");
            text.push_str("ssl_ca_file = '");
            text.push_str(ca);
            text.push_str("'\n");
        }
        for line in &self.config {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_caller_come_last() {
        let text = Settings::default().with("fsync = on").postgresql_conf();
        assert!(text.rfind("fsync = on") > text.rfind("fsync = off"));
        assert!(text.contains("wal_level = logical\n"));
    }
}
