//! A server that asks every user except its superuser for a password, with roles, and attempts to log in.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::{Server, Settings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use crate::support::{Database, Freshet, Message, PATIENCE, Version, eventually};

const MANUAL: &str = include_str!("../../../../../docs/guide/authentication.md");

/// The only server of its version that these tests start without TLS.
fn server(version: Version) -> Arc<Server> {
    static SERVERS: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
    SERVERS[version as usize].get_or_init(|| version.start(&settings()).expect("the server starts")).clone()
}

/// `md5` in pg_hba.conf means SCRAM for a role whose verifier is of that kind.
pub(super) fn settings() -> Settings {
    let lines = ["host all,replication postgres 127.0.0.1/32 trust", "host all,replication all 127.0.0.0/8 md5"];
    lines.into_iter().fold(Settings::default(), Settings::with_hba)
}

/// What a verifier is derived for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Scram,
    Md5,
}

impl Kind {
    fn setting(self) -> &'static str {
        match self {
            Self::Scram => "scram-sha-256",
            Self::Md5 => "md5",
        }
    }
}

/// A database on such a server, and a directory for files.
pub(super) struct Guarded {
    pub(super) database: Database,
    directory: PathBuf,
}

impl Guarded {
    /// On the server that these tests share.
    pub(super) fn new(version: Version) -> Result<Self> {
        Self::on(server(version))
    }

    pub(super) fn on(server: Arc<Server>) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("freshet-login-{}-{number}", std::process::id()));
        fs::create_dir(&directory)?;
        Ok(Self { database: Database::create(server)?, directory })
    }

    /// A role's full name: roles belong to the server, and so to all tests.
    pub(super) fn name(&self, role: &str) -> String {
        format!("{}_{role}", self.database.name)
    }

    /// Makes a role that can log in.
    pub(super) fn role(&self, role: &str, kind: Kind, password: &str) -> Result<String> {
        let name = self.name(role);
        self.database.run(&format!("create role \"{name}\" login"))?;
        self.set_password(&name, kind, password)?;
        Ok(name)
    }

    pub(super) fn set_password(&self, name: &str, kind: Kind, password: &str) -> Result<()> {
        let kind = kind.setting();
        let password = password.replace('\'', "''");
        self.database.run(&format!("set password_encryption = '{kind}'; alter role \"{name}\" password '{password}'"))
    }

    /// What pg_authid keeps of the role's password.
    pub(super) fn verifier(&self, name: &str) -> Result<String> {
        self.database.connect()?.value(&format!("select rolpassword from pg_authid where rolname = '{name}'"))
    }

    /// The lines of a users file for these roles.
    pub(super) fn user_lines(&self, names: &[&str]) -> Result<String> {
        let mut lines = String::from("# users\n");
        for name in names {
            writeln!(lines, "\"{}\" \"{}\"", name.replace('"', "\"\""), self.verifier(name)?)?;
        }
        Ok(lines)
    }

    /// A users file for these roles.
    pub(super) fn users_file(&self, names: &[&str]) -> Result<String> {
        self.write("users", &self.user_lines(names)?)
    }

    /// A file that only its owner can read, put into place at once; its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String> {
        let (path, fresh) = (self.directory.join(name), self.directory.join("new"));
        fs::write(&fresh, text)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
        fs::rename(&fresh, &path)?;
        path.into_os_string().into_string().ok().context("a path in UTF-8")
    }

    /// Where [`Self::write`] puts its files.
    pub(super) fn directory(&self) -> &str {
        self.directory.to_str().expect("a path in UTF-8")
    }

    /// A service account that is no superuser, and the function that it looks verifiers up with, as the manual
    /// defines it; its URL.
    pub(super) fn service_account(&self) -> Result<String> {
        let name = self.role("service", Kind::Scram, "service secret")?;
        let sql = MANUAL.split("```").find_map(|block| block.strip_prefix("sql\n")).context("no SQL in the manual")?;
        ensure!(sql.contains("TO freshet;"), "the manual grants nothing to the account:\n{sql}");
        let sql = sql.replace("TO freshet;", &format!("TO \"{name}\";"));
        // Another Freshet may be making the same schema for its event triggers at this moment.
        eventually(PATIENCE, || self.database.run(&sql))?;
        let (address, database) = (self.database.address(), &self.database.name);
        Ok(format!("postgres://{name}:service%20secret@{address}/{database}"))
    }

    /// Freshet with the superuser as its own account, as soon as it listens.
    pub(super) fn freshet(&self, options: &[&str]) -> Result<Freshet> {
        Freshet::start_unready(self.database.address(), &self.database.url(), &asking(options))
    }

    /// Freshet whose own account may do nothing but look verifiers up.
    pub(super) fn freshet_as_service(&self, options: &[&str]) -> Result<Freshet> {
        Freshet::start_unready(self.database.address(), &self.service_account()?, &asking(options))
    }
}

/// Clients are asked for passwords, even where all tests share server connections, and are let in without.
pub(super) fn asking<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let auto = ["--auth", "auto"];
    let auth: &[&str] = if options.contains(&"--auth") { &[] } else { &auto };
    [auth, options].concat()
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Left behind is a few files at most.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What a client hears when it is refused: the fields S, V, C, M and D of the error. File, line and routine are the
/// server's own and may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) severity: String,
    pub(super) severity_untranslated: Option<String>,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) detail: Option<String>,
}

impl Refused {
    pub(super) fn of(error: &Message) -> Self {
        let field = |field| error.field(field).unwrap_or_default();
        Self {
            severity: field(b'S'),
            severity_untranslated: error.field(b'V'),
            code: field(b'C'),
            message: field(b'M'),
            detail: error.field(b'D'),
        }
    }
}

/// How an attempt ended: as which user the session runs, or with which error.
pub(super) type Outcome = Result<String, Refused>;

/// One attempt of a real driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    pub(super) database: &'a str,
}

impl Attempt<'_> {
    pub(super) fn at(self, address: SocketAddr) -> Result<Outcome> {
        self.from(None, address)
    }

    /// From another address of this machine.
    pub(super) fn from(self, source: Option<IpAddr>, address: SocketAddr) -> Result<Outcome> {
        block_on(async {
            match self.connect(source, address).await? {
                Ok(client) => {
                    let row = client.query_one("select session_user::text, current_user::text", &[]).await?;
                    let (session, current): (String, String) = (row.get(0), row.get(1));
                    if session == current { Ok(Ok(session)) } else { bail!("{session} acts as {current}") }
                }
                Err(refused) => Ok(Err(refused)),
            }
        })
    }

    /// The session itself.
    pub(super) async fn connect(self, source: Option<IpAddr>, address: SocketAddr) -> Result<Result<Client, Refused>> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        if let Some(source) = source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        self.connect_on(socket.connect(address).await?).await
    }

    /// The session on a socket that stands already.
    pub(super) async fn connect_on<S>(self, stream: S) -> Result<Result<Client, Refused>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut config = Config::new();
        config.user(self.user).dbname(self.database).password(self.password);
        match config.connect_raw(stream, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                Ok(Ok(client))
            }
            Err(error) => match error.as_db_error() {
                Some(error) => Ok(Err(Refused {
                    severity: error.severity().into(),
                    severity_untranslated: error.parsed_severity().map(|severity| severity.to_string()),
                    code: error.code().code().into(),
                    message: error.message().into(),
                    detail: error.detail().map(Into::into),
                })),
                None => Err(error.into()),
            },
        }
    }
}

/// The error of PostgreSQL for a wrong password.
pub(super) fn wrong_password(user: &str) -> Refused {
    Refused {
        severity: "FATAL".into(),
        severity_untranslated: Some("FATAL".into()),
        code: SqlState::INVALID_PASSWORD.code().into(),
        message: format!("password authentication failed for user \"{user}\""),
        detail: None,
    }
}

pub(super) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
