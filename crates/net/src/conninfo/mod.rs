//! Connection strings as libpq understands them (manual, "Connection Strings").
//!
//! An operator who puts Freshet in front of a server already has a connection string, and it means the same here as for `psql`: the URL or the
//! `name=value` form, completed by a service file, by environment variables and by a password file. The rules are libpq's, in libpq's order, with
//! four differences. An attempt to connect ends after ten seconds unless `connect_timeout` says otherwise. Without a host, `localhost` is used if the
//! default socket does not exist. Options that Freshet cannot honour are refused instead of ignored. No error message repeats a text that may be a
//! password.
//!
//! Order of the modules: `url` or `keyvalue` fills `settings`; `service` and `environment` fill the options that are still unset; `hosts`,
//! `encryption` and `passfile` create the result.

mod address;
mod encryption;
mod environment;
mod error;
mod hosts;
mod keyvalue;
mod passfile;
mod service;
mod settings;
#[cfg(test)]
mod tests;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use address::Address;
pub use environment::Environment;
pub use error::ConninfoError;

pub use crate::postgres::secret::Secret;
use crate::tls::{SslMode, TlsOptions};
use passfile::Passfile;
use settings::Settings;

/// Default time limit of one connection, with its login.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// The limit where libpq would wait without limit.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Where the upstream is and how to log in to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conninfo {
    /// The servers to try, in order. At least one.
    pub hosts: Vec<Host>,
    /// The role that Freshet's own connections use.
    pub user: String,
    /// The database.
    pub database: String,
    /// `application_name`, or else `fallback_application_name`.
    pub application_name: Option<String>,
    /// `options`, for the start-up message.
    pub options: Option<String>,
    /// Time for one connection to one host, with its login.
    pub connect_timeout: Duration,
    /// Which of the hosts is acceptable.
    pub target_session_attrs: TargetSessionAttrs,
    /// Encryption.
    pub tls: TlsOptions,
    /// Warnings for the operator, such as a password file that was not used.
    pub warnings: Vec<String>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Where it listens.
    pub address: Address,
    /// The password for this host: the one given, or else the one in the password file.
    pub password: Option<Secret>,
}

/// `target_session_attrs`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// The first that answers.
    #[default]
    Any,
    /// Transactions may write by default.
    ReadWrite,
    /// Transactions may not write by default.
    ReadOnly,
    /// Not in hot standby.
    Primary,
    /// In hot standby.
    Standby,
    /// A standby, or any if none is there.
    PreferStandby,
}

impl TargetSessionAttrs {
    const ALL: &[(&str, Self)] = &[
        ("any", Self::Any),
        ("read-write", Self::ReadWrite),
        ("read-only", Self::ReadOnly),
        ("primary", Self::Primary),
        ("standby", Self::Standby),
        ("prefer-standby", Self::PreferStandby),
    ];

    /// Whether it leads to a primary: no hot standby may write.
    pub fn is_for_primaries(self) -> bool {
        matches!(self, Self::Primary | Self::ReadWrite)
    }

    /// Whether it leads to nothing but a standby.
    pub fn is_for_standbys(self) -> bool {
        matches!(self, Self::Standby | Self::ReadOnly)
    }
}

impl Conninfo {
    /// Parses a connection string. An empty one takes everything from the environment.
    pub fn parse(text: &str, environment: &Environment) -> Result<Self, ConninfoError> {
        let mut settings = Settings::default();
        if let Some(rest) = url::strip_scheme(text) {
            url::parse(rest, &mut settings)?;
        } else if let Some(scheme) = other_scheme(text) {
            return Err(ConninfoError::Scheme(scheme.into()));
        } else {
            keyvalue::parse(text, &mut settings)?;
        }
        service::apply(&mut settings, environment)?;
        settings.set_from(environment)?;
        settings.refuse_unsupported()?;
        Self::resolve(&settings, environment)
    }

    fn resolve(settings: &Settings, environment: &Environment) -> Result<Self, ConninfoError> {
        let addresses = hosts::addresses(settings, environment)?;
        let text = |name| settings.get(name).map(str::to_owned);
        let user = text("user").or_else(|| environment.user().map(Into::into)).ok_or(ConninfoError::NoUser)?;
        let tls = encryption::options(settings, environment)?;
        let over_tcp = addresses.iter().any(|address| matches!(address, Address::Tcp { .. }));
        if over_tcp && tls.mode >= SslMode::VerifyCa && tls.root_cert.is_none() {
            return Err(ConninfoError::NoRootCert(encryption::name_of(tls.mode)));
        }
        let without_password = |address| Host { address, password: None };
        let mut conninfo = Self {
            hosts: addresses.into_iter().map(without_password).collect(),
            database: text("dbname").unwrap_or_else(|| user.clone()),
            user,
            application_name: text("application_name").or_else(|| text("fallback_application_name")),
            options: text("options"),
            connect_timeout: connect_timeout(settings)?,
            target_session_attrs: settings.one_of("target_session_attrs", TargetSessionAttrs::ALL)?,
            tls,
            warnings: Vec::new(),
        };
        conninfo.set_passwords(settings, environment);
        Ok(conninfo)
    }

    fn set_passwords(&mut self, settings: &Settings, environment: &Environment) {
        if let Some(password) = settings.get("password") {
            for host in &mut self.hosts {
                host.password = Some(Secret::new(password.to_owned()));
            }
            return;
        }
        // A password file that is named must exist; the default one need not.
        let path = match settings.get("passfile") {
            Some(path) => PathBuf::from(path),
            None => match environment.in_home(".pgpass").filter(|path| path.exists()) {
                Some(path) => path,
                None => return,
            },
        };
        match Passfile::read(&path) {
            Ok(passfile) => {
                for host in &mut self.hosts {
                    host.password = passfile.password(&passfile::Login {
                        host: &host.address.name_in_passfile(environment),
                        port: host.address.port(),
                        database: &self.database,
                        user: &self.user,
                    });
                }
            }
            Err(warning) => self.warnings.push(warning),
        }
    }

    /// The first host.
    ///
    /// # Panics
    ///
    /// If there is none; [`Self::parse`] returns at least one.
    pub fn primary_host(&self) -> &Host {
        self.hosts.first().expect("there is at least one host")
    }
}

/// `db1:5432,db2:5432/database`, without user and password.
impl fmt::Display for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|host| host.address.to_string()).collect();
        write!(f, "{}/{}", hosts.join(","), self.database)
    }
}

/// The scheme of a URL that is not PostgreSQL's.
fn other_scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    (!scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))).then_some(scheme)
}

fn connect_timeout(settings: &Settings) -> Result<Duration, ConninfoError> {
    let Some(text) = settings.get("connect_timeout") else { return Ok(CONNECT_TIMEOUT_DEFAULT) };
    let value = || text.trim_ascii().parse::<i32>();
    let seconds = value().map_err(|_| ConninfoError::Value {
        name: "connect_timeout",
        value: text.into(),
        expected: "a number of seconds (0 waits an hour)".into(),
    })?;
    Ok(match u64::try_from(seconds) {
        Ok(seconds @ 1..) => Duration::from_secs(seconds).min(CONNECT_TIMEOUT_MAX),
        _ => CONNECT_TIMEOUT_MAX,
    })
}
