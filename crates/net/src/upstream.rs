//! The address of an upstream as people write it: `postgres://user:password@host:port/database?…`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

/// PostgreSQL's registered port.
const PORT_DEFAULT: u16 = 5432;
/// Time for one connection, with its login.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Where the upstream is and how to log in to it.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The role that Freshet's own connections use.
    pub user: String,
    /// Its password, if one is given. Never shown.
    pub password: Option<String>,
    /// The database.
    pub database: String,
    /// `application_name`, if one is given.
    pub application_name: Option<String>,
    /// Time for one connection, with its login.
    pub connect_timeout: Duration,
}

/// Why an upstream's address is not usable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL at all.
    #[error("the upstream must look like postgres://user:password@host:port/database: {0}")]
    Syntax(url::ParseError),
    /// Another scheme.
    #[error("{0}:// is not supported: the upstream must start with postgres:// or postgresql://")]
    Scheme(String),
    /// No host, or a directory.
    #[error("the upstream needs a host name or address (Unix sockets are not supported yet)")]
    Host,
    /// No user.
    #[error("the upstream needs a user: postgres://user:password@host:port/database")]
    User,
    /// The path has more than one part.
    #[error("the upstream's path must be one database name, with / in it written as %2F")]
    Database,
    /// A part is not UTF-8, or holds a zero byte, after percent decoding.
    #[error("the upstream's {0} is not valid text")]
    Text(&'static str),
    /// An `sslmode` that insists on TLS.
    #[error("TLS to the upstream is not supported yet (sslmode={0}); use sslmode=disable, allow or prefer")]
    Tls(String),
    /// An option that Freshet does not know, and therefore must not drop silently.
    #[error("the upstream's option {0} is not supported (known: application_name, connect_timeout, sslmode)")]
    Option(String),
    /// An option whose value is not understood.
    #[error("the upstream's option {0} has no valid value")]
    Value(&'static str),
}

impl UpstreamUrl {
    /// Parses the text form. Parts are percent-decoded; the port defaults to 5432, the database to the user's name.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = Url::parse(text).map_err(UrlError::Syntax)?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(UrlError::Scheme(url.scheme().into()));
        }
        let host = decode(url.host_str().unwrap_or_default(), "host")?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(&host).to_owned();
        if host.is_empty() || host.starts_with('/') {
            return Err(UrlError::Host);
        }
        let user = decode(url.username(), "user")?;
        if user.is_empty() {
            return Err(UrlError::User);
        }
        let path = url.path().strip_prefix('/').unwrap_or_default();
        if path.contains('/') {
            return Err(UrlError::Database);
        }
        let database = if path.is_empty() { user.clone() } else { decode(path, "database")? };
        let password = url.password().map(|p| decode(p, "password")).transpose()?;
        let mut upstream = Self {
            host,
            port: url.port().unwrap_or(PORT_DEFAULT),
            user,
            password,
            database,
            application_name: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
        };
        for (name, value) in url.query_pairs() {
            upstream.set_option(&name, &value)?;
        }
        Ok(upstream)
    }

    fn set_option(&mut self, name: &str, value: &str) -> Result<(), UrlError> {
        match name {
            "application_name" if value.contains('\0') => return Err(UrlError::Text("application_name")),
            "application_name" => self.application_name = Some(value.to_owned()),
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|s| (1..=3600).contains(s));
                self.connect_timeout = Duration::from_secs(seconds.ok_or(UrlError::Value("connect_timeout"))?);
            }
            "sslmode" => match value {
                "disable" | "allow" | "prefer" => {}
                "require" | "verify-ca" | "verify-full" => return Err(UrlError::Tls(value.into())),
                _ => return Err(UrlError::Value("sslmode")),
            },
            _ => return Err(UrlError::Option(name.into())),
        }
        Ok(())
    }
}

fn decode(part: &str, what: &'static str) -> Result<String, UrlError> {
    let text = percent_decode_str(part).decode_utf8().map_err(|_| UrlError::Text(what))?;
    if text.contains('\0') { Err(UrlError::Text(what)) } else { Ok(text.into_owned()) }
}

impl FromStr for UpstreamUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

/// `host:port/database`, without user and password.
impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, database, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}/{database}") } else { write!(f, "{host}:{port}/{database}") }
    }
}

impl fmt::Debug for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("UpstreamUrl")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("password", &password)
            .field("database", &self.database)
            .field("application_name", &self.application_name)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> UpstreamUrl {
        UpstreamUrl::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn parts_are_decoded_and_have_defaults() {
        let full = parse("postgres://a%40b:p%2Fw%20%C3%A9@db.example:6543/my%2Fdb?application_name=x+y&sslmode=prefer");
        assert_eq!((full.host.as_str(), full.port), ("db.example", 6543));
        assert_eq!((full.user.as_str(), full.database.as_str()), ("a@b", "my/db"));
        assert_eq!(full.password.as_deref(), Some("p/w é"));
        assert_eq!(full.application_name.as_deref(), Some("x y"));
        let short = parse("postgresql://me@[::1]");
        assert_eq!((short.host.as_str(), short.port, short.database.as_str()), ("::1", 5432, "me"));
        assert_eq!(short.password, None);
        assert_eq!(short.to_string(), "[::1]:5432/me");
        assert_eq!(parse("postgres://me@h/?connect_timeout=3").connect_timeout, Duration::from_secs(3));
    }

    #[test]
    fn the_password_is_not_shown() {
        let url = parse("postgres://me:topsecret@h/d");
        assert!(!format!("{url:?} {url}").contains("topsecret"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = |text: &str| UpstreamUrl::parse(text).expect_err(text);
        assert_eq!(refused("postgres://me@h/d?sslmode=require"), UrlError::Tls("require".into()));
        assert!(refused("postgres://me@h/d?sslmode=verify-full").to_string().contains("TLS to the upstream is not"));
        assert_eq!(refused("postgres://me@h/d?options=-cx"), UrlError::Option("options".into()));
        assert_eq!(refused("mysql://me@h/d"), UrlError::Scheme("mysql".into()));
        assert_eq!(refused("postgres://h/d"), UrlError::User);
        assert_eq!(refused("postgres://me@%2Ftmp/d"), UrlError::Host);
        assert_eq!(refused("postgres://me@h/a/b"), UrlError::Database);
        assert_eq!(refused("postgres://me@h/%FF"), UrlError::Text("database"));
        assert!(matches!(refused("me@h"), UrlError::Syntax(_)));
    }
}
