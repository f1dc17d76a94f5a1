//! What a caller may choose about a server; the rest is fixed so that all tests mean the same thing.

use std::path::PathBuf;

/// Name of the superuser of every throw-away server.
pub(crate) const SUPERUSER: &str = "postgres";
/// Its password. It guards nothing: the server listens on the loopback interface and lives for minutes.
pub(crate) const PASSWORD: &str = "freshet";

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// Anyone is whom they say they are.
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

/// Files that a server encrypts with, all PEM. The server gets copies that it can read and nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `ssl_cert_file`
    pub cert: PathBuf,
    /// `ssl_key_file`
    pub key: PathBuf,
    /// `ssl_ca_file`: the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
}

/// How to start a server. `Settings::default()` has logical decoding on and trusts everyone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `wal_level`; Freshet needs `logical`, and must say so when it is less.
    pub wal_level: String,
    /// Lines for `postgresql.conf`, after the standard ones and so stronger, such as `shared_buffers = 256MB`.
    pub config: Vec<String>,
    /// More arguments for `initdb`, after the standard ones and so stronger, such as `--locale=C.UTF-8`.
    pub initdb: Vec<String>,
    /// How clients prove who they are.
    pub auth: Auth,
    /// The lines of `pg_hba.conf`; empty: what `initdb` writes for [`Self::auth`].
    pub hba: Vec<String>,
    /// TLS, which is off without it.
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
        // Data need not survive the machine, only the server: a killed server loses nothing the kernel holds.
        // synchronous_commit stays on, since what it orders (acknowledgement after the WAL flush and after the
        // synchronous standbys) is what the tests are about.
        text.push_str("fsync = off\nfull_page_writes = off\nsynchronous_commit = on\n");
        text.push_str("listen_addresses = '127.0.0.1'\nmax_connections = 300\n");
        text.push_str("max_wal_senders = 20\nmax_replication_slots = 20\n");
        // A scan begins at a table's first row, whoever else is scanning it.
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
