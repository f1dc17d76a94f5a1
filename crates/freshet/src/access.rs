//! Access of clients: the options, and the files behind them, which are read again when they change.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use freshet_net::tls::ServerFiles;
use freshet_proxy::{AccessSettings, Method};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Running;
use crate::notify::{SERVING, ServiceManager};

/// How often the files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The number of open files below which the operator is warned.
const FILES_WANTED: usize = 4096;
/// Runs the function that docs/guide/authentication.md defines.
const AUTH_QUERY: &str = "SELECT usename, passwd FROM freshet.user_lookup($1)";

/// Options of `freshet serve` about logins and TLS.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Logins and TLS")]
pub(crate) struct AccessArgs {
    /// How clients authenticate
    #[arg(long, value_enum, default_value = "auto")]
    auth: Auth,
    /// File of lines "user" "verifier", as pg_authid shows verifiers (SCRAM-SHA-256$… or md5…)
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// Query that looks verifiers up in the database: $1 is the user, the answer is a name and a verifier; without a
    /// query it calls the function freshet.user_lookup (see the manual)
    #[arg(long, value_name = "SQL", num_args = 0..=1, default_missing_value = AUTH_QUERY)]
    auth_query: Option<String>,
    /// Limit of failed logins for each address and minute, after which the address must wait; 0: no limit
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) login_failures_max: u32,
    /// The most clients that may be connected, those of the console apart; 0: no limit
    #[arg(long, value_name = "N", default_value = "0")]
    max_client_conn: u32,
    /// Certificate (chain) that clients see, PEM; without it there is no TLS to clients
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Certificate authorities of client certificates, PEM
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Refuse clients without TLS (except on Unix sockets)
    #[arg(long)]
    tls_required: bool,
}

/// How clients authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Auth {
    /// By password: checked here if --users or --auth-query says how, else by the database
    Auto,
    /// Not at all: the database trusts Freshet, and Freshet whoever reaches it
    Trust,
    /// By a certificate whose common name is the user; the database trusts Freshet
    Cert,
}

impl AccessArgs {
    /// Whether Freshet itself logs in at the server for its clients.
    pub(crate) fn has_logins(&self) -> bool {
        self.auth != Auth::Auto || self.users.is_some() || self.auth_query.is_some()
    }

    /// Options that need another one, each with its key.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let (cert, key, client_ca) = (self.tls_cert.is_some(), self.tls_key.is_some(), self.tls_client_ca.is_some());
        let needs = |wrong: bool, key, other: &str| wrong.then(|| (key, format!("{other} must be given as well")));
        let faults = [
            needs(cert && !key, "tls_cert", "tls_key"),
            needs(key && !cert, "tls_key", "tls_cert"),
            needs(client_ca && !cert, "tls_client_ca", "tls_cert"),
            needs(self.tls_required && !cert, "tls_required", "tls_cert"),
            needs(self.auth == Auth::Cert && !client_ca, "auth", "tls_client_ca"),
        ];
        faults.into_iter().flatten().collect()
    }

    pub(crate) fn settings(&self, files_max: usize) -> AccessSettings {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        AccessSettings {
            method: match self.auth {
                Auth::Auto => Method::Auto,
                Auth::Trust => Method::Trust,
                Auth::Cert => Method::Cert,
            },
            tls: tls.map(|(cert, key)| ServerFiles { cert, key, client_ca: self.tls_client_ca.clone() }),
            tls_required: self.tls_required,
            users: self.users.clone(),
            auth_query: self.auth_query.clone(),
            failures_max: self.login_failures_max,
            clients_max: (self.max_client_conn > 0).then_some(self.max_client_conn as usize),
            files_max,
        }
    }

    /// Reads the configuration and the files again after each change from now on, and each SIGHUP, for ever.
    ///
    /// A look once a second costs less than notifications: no dependency, and a directory whose link is switched, as orchestrators do it, needs no
    /// special care.
    pub(crate) fn watch(
        self,
        running: Arc<Running>,
        manager: Arc<ServiceManager>,
    ) -> io::Result<impl Future<Output = ()> + Send> {
        let mut hangup = signal(SignalKind::hangup())?;
        let own: Vec<PathBuf> = [self.tls_cert, self.tls_key, self.tls_client_ca].into_iter().flatten().collect();
        let config: Vec<PathBuf> = running.path.iter().cloned().collect();
        let users = running.clone();
        let files = move || own.iter().cloned().chain(users.users_files()).collect::<Vec<_>>();
        let (mut seen, mut config_seen) = (states(&files()), states(&config));
        let mut told: Vec<String> = Vec::new();
        Ok(async move {
            loop {
                let asked = tokio::select! {
                    _ = hangup.recv() => true,
                    () = tokio::time::sleep(LOOK_EVERY) => false,
                };
                if asked {
                    manager.reloading();
                }
                running.examine_rules();
                let config_now = states(&config);
                if asked || config_now != config_seen {
                    config_seen = config_now;
                    running.reload_logged(if asked { "SIGHUP" } else { "the file has changed" });
                }
                let now = states(&files());
                // Files that cannot be used are tried again: they may be half written, or depend on another file.
                if asked || now != seen || !told.is_empty() {
                    seen = now;
                    let failures: Vec<String> = running.reload_access().iter().map(ToString::to_string).collect();
                    for failure in failures.iter().filter(|failure| asked || !told.contains(failure)) {
                        tracing::error!("not read again, the earlier one stays in use: {failure}");
                    }
                    if failures.is_empty() {
                        tracing::info!("users and certificates were read again");
                    }
                    told = failures;
                }
                if asked {
                    manager.ready(SERVING);
                }
            }
        })
    }
}

/// Changes with every write, rename and change of owner or mode.
pub(crate) type FileState = Option<(i64, i64, u64)>;

/// The states of these files.
pub(crate) fn states(files: &[PathBuf]) -> Vec<FileState> {
    let state = |path: &PathBuf| std::fs::metadata(path).ok().map(|meta| (meta.ctime(), meta.ctime_nsec(), meta.ino()));
    files.iter().map(state).collect()
}

/// Raises the limit of open files as far as permitted; each session needs two. Returns the limit.
pub(crate) fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // The limit stays if it may not be raised.
    let _ = setrlimit(Resource::Nofile, limit);
    let files_max = getrlimit(Resource::Nofile).current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    if files_max < FILES_WANTED {
        tracing::warn!(
            "at most {files_max} files may be open: enough for {} sessions (LimitNOFILE= of the service, ulimit -n)",
            files_max / 2
        );
    }
    files_max
}
