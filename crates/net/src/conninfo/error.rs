//! Errors in a connection string, with their remedies.
//!
//! In a mistyped string the password may be in any place. So the messages quote only what cannot be a password: names that have the form of an
//! option's name, and values of options whose values are not secret.

use std::path::PathBuf;

/// Why a connection string of the upstream cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConninfoError {
    /// A URL with another scheme.
    #[error("{0}:// is not a PostgreSQL URL: begin with postgres:// or postgresql://")]
    Scheme(String),
    /// A word without `=`.
    #[error(
        "word {0} of the connection string has no \"=\": write postgres://user@host:port/database or \
         host=… port=… user=… dbname=…, with 'quotes' around values that are empty or hold spaces"
    )]
    NoEquals(usize),
    /// A quote without its end.
    #[error("the quoted value of \"{0}\" has no end: write \\' for a quote inside it, and close it with '")]
    Quote(String),
    /// `%` without two hexadecimal digits, or `%00`.
    #[error("the URL holds % without two hexadecimal digits after it (or %00): write % itself as %25")]
    Percent,
    /// Spaces within a URL's part.
    #[error("the URL holds spaces: write them as %20")]
    Spaces,
    /// A bracket without its counterpart, with nothing inside, or with an unexpected character behind.
    #[error("an IPv6 address in a URL must look like [::1] or [::1]:5432")]
    Bracket,
    /// `@` in a host's name, most likely part of a password.
    #[error("a host's name holds @: in a URL, write @ within the user or password as %40")]
    AtSign,
    /// A query that is not a list of pairs.
    #[error("what follows ? in the URL must be name=value pairs with & between them; write & as %26 and = as %3D")]
    Query,
    /// Not UTF-8, or a zero byte.
    #[error("the value of \"{0}\" is not valid UTF-8 text")]
    Text(String),
    /// An option that neither libpq nor Freshet knows.
    #[error("the connection option \"{0}\" does not exist; the manual's \"Parameter Key Words\" lists those that do")]
    Unknown(String),
    /// An option of PostgreSQL with a value that Freshet cannot honour and must not ignore.
    #[error("the connection option {name}{} is not supported with this value: {advice}", variable.map(|v| format!(" (or {v})")).unwrap_or_default())]
    Unsupported {
        /// The option.
        name: &'static str,
        /// Its environment variable.
        variable: Option<&'static str>,
        /// What to do instead.
        advice: &'static str,
    },
    /// An option with a value that is not allowed.
    #[error("{name} cannot be \"{value}\": it must be {expected}")]
    Value {
        /// The option.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// The allowed values.
        expected: String,
    },
    /// A port that is not valid.
    #[error(
        "a port must be a number from 1 to 65535; in a URL, write / : @ within the user or password as %2F, %3A, %40"
    )]
    Port,
    /// Lists of different lengths.
    #[error("there are {given} values of {name} for {hosts} hosts: give as many as hosts{}", if *name == "port" { ", or one for all" } else { "" })]
    Count {
        /// The option.
        name: &'static str,
        /// The number of its values.
        given: usize,
        /// The number of hosts.
        hosts: usize,
    },
    /// A `hostaddr` that is not valid.
    #[error("hostaddr must be an IP address, not a name; write names as host")]
    HostAddr,
    /// `@` in front of a socket's name.
    #[error("abstract sockets (host=@…) are not supported: use a directory (host=/…) or TCP")]
    AbstractSocket,
    /// Too many hosts.
    #[error("more than {0} hosts")]
    Hosts(usize),
    /// An `sslmode` that accepts a server without TLS.
    #[error("sslmode={mode} is too weak for {with}: set sslmode={needed}")]
    WeakMode {
        /// The mode.
        mode: String,
        /// The option that it contradicts.
        with: &'static str,
        /// The required mode.
        needed: &'static str,
    },
    /// Verification without root certificates.
    #[error(
        "sslmode={0} needs to know whom to trust: set sslrootcert to the authority's certificate file (or put it at \
         ~/.postgresql/root.crt), or to \"system\" for the operating system's authorities"
    )]
    NoRootCert(String),
    /// No user is given, and the operating system knows none.
    #[error("no user: set user=… or PGUSER")]
    NoUser,
    /// A service file that cannot be read.
    #[error("the service file {} cannot be read: {why}", path.display())]
    ServiceFile {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        why: String,
    },
    /// A line of a service file that is not understood.
    #[error("line {line} of the service file {} must be a known connection option, as in name=value", path.display())]
    ServiceLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// No such section.
    #[error(
        "there is no service \"{0}\": add a section [{0}] to ~/.pg_service.conf, or name the file with PGSERVICEFILE"
    )]
    Service(String),
}
