//! Defaults of a connection string: environment variables, files in the home directory, the operating system's user.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The directory of the server's socket on Debian, Red Hat and in most containers.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
/// The directory of the service file of all users, in Debian's libpq.
const SYSTEM_DIRECTORY: &str = "/etc/postgresql-common";

/// The source of the defaults.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    home: Option<PathBuf>,
    user: Option<String>,
    socket_directory: PathBuf,
}

impl Environment {
    /// The environment of this process.
    pub fn process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("PG"))?;
            Some((name, value.to_string_lossy().into_owned()))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            user: system_user(),
            socket_directory: SOCKET_DIRECTORY.into(),
        }
    }

    /// An environment for tests: variables, home directory, operating system's user. It has no default socket.
    pub fn of(variables: &[(&str, &str)], home: Option<&Path>, user: Option<&str>) -> Self {
        Self {
            variables: variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            home: home.map(Into::into),
            user: user.map(Into::into),
            socket_directory: "/nonexistent".into(),
        }
    }

    /// The same with another default directory of sockets.
    #[must_use]
    pub fn with_socket_directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { socket_directory: directory.into(), ..self }
    }

    /// The same with a default for the database.
    #[must_use]
    pub fn with_database(mut self, name: &str) -> Self {
        self.variables.insert("PGDATABASE".to_owned(), name.to_owned());
        self
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// A file below the home directory.
    pub(super) fn in_home(&self, path: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(path))
    }

    /// A file for all users.
    pub(super) fn in_system(&self, path: &str) -> PathBuf {
        Path::new(self.variable("PGSYSCONFDIR").unwrap_or(SYSTEM_DIRECTORY)).join(path)
    }

    /// The directory in which a socket is looked for if no host is given.
    pub(super) fn socket_directory(&self) -> &Path {
        &self.socket_directory
    }
}

/// Shows names only: values may be passwords.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys())
            .field("home", &self.home)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The effective user's name. The user database is read as a file, because the C library's functions need unsafe code. Where users come from
/// elsewhere (LDAP), `USER` is set.
fn system_user() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let named = || {
        let id = std::fs::metadata("/proc/self").ok()?.uid().to_string();
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        users.lines().find_map(|line| {
            // name:password:id:…
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == id).then(|| name.to_owned())
        })
    };
    named().or_else(|| std::env::var("USER").ok()).filter(|name| !name.is_empty())
}
