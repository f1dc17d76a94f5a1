//! PgBouncer's console: the database `pgbouncer`, which Freshet answers itself.
//!
//! Its users are operators and the collectors of monitoring systems, which read columns by their names. So commands, columns, their order and their types,
//! and the words of errors are those of PgBouncer 1.25. Where each session has a connection of its own, figures mean what they mean under
//! `pool_mode = session`. What Freshet adds stands to the right, except in SHOW CONFIG, whose readers count the columns.
//!
//! | part | where |
//! |---|---|
//! | messages, simple and extended protocol | here |
//! | the grammar | `command` |
//! | SHOW | `show`, `stats`, `sockets` |
//! | what changes something | `acts` |
//! | the databases that it is about | `served` |

mod acts;
mod command;
mod served;
mod show;
mod sockets;
mod stats;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame::{self, HEADER_BYTES};
use freshet_wire::postgres::frontend::{self, Bind, Execute, Parse, Target};
use freshet_wire::postgres::table::{self, Column};
use tokio::time::timeout;

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::console::command::Command;
use crate::postgres::console::served::{Instance, served};
use crate::postgres::login::Visitor;
use crate::server::databases::Databases;
use crate::server::sessions::About;

pub(crate) use stats::Averages;

/// The version of PgBouncer whose console this is.
const VERSION: &str = "1.25.2";
/// No command is longer.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Prepared statements and portals of a connection.
const NAMES_MAX: usize = 100;
/// Time for a last word.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// What clients are told at the start, as PgBouncer tells it.
const WELCOME: [(&str, &str); 7] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];
/// `BackendKeyData`. Nothing can be cancelled.
const KEY_DATA: u8 = b'K';

/// The rows of an answer; None: NULL.
type Rows = Vec<Vec<Option<String>>>;

/// An error: PgBouncer has one code for nearly all.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    sqlstate: &'static str,
    message: String,
}

impl Wrong {
    fn new(message: impl Into<String>) -> Self {
        Self { sqlstate: "08P01", message: message.into() }
    }
}

/// An answer.
enum Answer {
    Table(&'static [Column], Rows),
    /// The tag alone, behind a notice if there is one.
    Done(String, Option<&'static str>),
}

/// What an `Execute` runs, and the formats of its result.
struct Portal {
    command: String,
    tail: Vec<u8>,
}

impl Portal {
    fn is_binary(&self, column: usize) -> bool {
        Bind::shows_binary(&self.tail, column).unwrap_or(false)
    }
}

/// A connection to the console.
struct Console<'a> {
    first: &'a Arc<Pg>,
    databases: &'a Databases,
    user: &'a str,
    is_admin: bool,
    out: Vec<u8>,
    prepared: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, Portal>,
    /// A message of the extended protocol has failed: the rest is skipped up to `Sync`.
    failed: bool,
}

/// Serves an operator until either side ends.
pub(crate) async fn serve(visitor: Visitor, shared: &Arc<Pg>, databases: &Databases) {
    let Visitor { mut client, user, is_admin, names } = visitor;
    let about = About {
        user: user.clone(),
        database: names.database,
        application_name: names.application_name,
        console: true,
        client: client.socket().addresses(),
        tls: (client.socket().is_encrypted(), false),
        ..About::default()
    };
    let listed = shared.sessions.begin(about);
    let (prepared, portals) = (HashMap::new(), HashMap::new());
    let mut console =
        Console { first: shared, databases, user: &user, is_admin, out: Vec::new(), prepared, portals, failed: false };
    let converse = Box::pin(console.converse(&mut client));
    let last_words = tokio::select! {
        ended = converse => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to the console has ended");
            }
            None
        }
        () = listed.link.killed() => Some(("08P01", "admin forced disconnect")),
        () = shared.switches.drained() => Some(("57P01", "terminating connection due to administrator command")),
    };
    if let Some((sqlstate, message)) = last_words {
        backend::put_error(client.output.buffer(), "FATAL", sqlstate, message);
    }
    let farewell = async {
        client.flush().await?;
        client.shut_down().await
    };
    let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
}

impl Console<'_> {
    async fn converse(&mut self, client: &mut Peer) -> io::Result<()> {
        for (name, value) in WELCOME {
            backend::put_message(&mut self.out, backend::PARAMETER_STATUS, format!("{name}\0{value}\0").as_bytes());
        }
        backend::put_message(&mut self.out, KEY_DATA, &[0; 8]);
        backend::put_ready(&mut self.out, backend::STATUS_IDLE);
        loop {
            client.output.put(&std::mem::take(&mut self.out));
            client.flush().await?;
            let Some((tag, body)) = client.receive_message(MESSAGE_BYTES_MAX).await? else { return Ok(()) };
            let mut whole = Vec::with_capacity(HEADER_BYTES + body.len());
            frame::put(&mut whole, tag, |out| out.extend_from_slice(&body));
            match tag {
                frontend::TERMINATE => return Ok(()),
                frontend::QUERY => {
                    let text = frontend::query_text(&whole).map_err(invalid)?;
                    let text = String::from_utf8_lossy(text).into_owned();
                    let answered = client.unless_gone(self.run(&text)).await;
                    self.put_answer(answered.unwrap_or_else(|| Err(Wrong::new("client unexpected eof"))));
                    backend::put_ready(&mut self.out, backend::STATUS_IDLE);
                }
                frontend::SYNC => {
                    self.failed = false;
                    self.portals.clear();
                    backend::put_ready(&mut self.out, backend::STATUS_IDLE);
                }
                frontend::FLUSH => {}
                _ if self.failed => {}
                _ => {
                    if let Err(wrong) = self.extended(client, tag, &whole).await {
                        self.put_error(&wrong);
                        self.failed = true;
                    }
                }
            }
        }
    }

    fn put_error(&mut self, wrong: &Wrong) {
        backend::put_error(&mut self.out, "ERROR", wrong.sqlstate, &wrong.message);
    }

    /// An answer of the simple protocol.
    fn put_answer(&mut self, answer: Result<Option<Answer>, Wrong>) {
        match answer {
            Ok(None) => backend::put_message(&mut self.out, backend::EMPTY_QUERY, &[]),
            Ok(Some(answer)) => {
                if let Answer::Table(columns, _) = &answer {
                    table::put_columns(&mut self.out, columns, |_| false);
                }
                self.put_result(answer, |_| false);
            }
            Err(wrong) => self.put_error(&wrong),
        }
    }

    /// Rows, notice and tag.
    fn put_result(&mut self, answer: Answer, is_binary: impl Fn(usize) -> bool) {
        let tag = match answer {
            Answer::Table(columns, rows) => {
                for row in &rows {
                    table::put_row(&mut self.out, columns, row, &is_binary);
                }
                "SHOW".to_owned()
            }
            Answer::Done(tag, notice) => {
                if let Some(text) = notice {
                    let fields = format!("SNOTICE\0VNOTICE\0C00000\0M{}\0\0", text.replacen('\n', "\0D", 1));
                    backend::put_message(&mut self.out, backend::NOTICE, fields.as_bytes());
                }
                tag
            }
        };
        backend::put_message(&mut self.out, backend::COMMAND_COMPLETE, format!("{tag}\0").as_bytes());
    }

    /// A message of the extended protocol, which PgBouncer's console does not speak.
    async fn extended(&mut self, client: &mut Peer, tag: u8, whole: &[u8]) -> Result<(), Wrong> {
        let malformed = |_| Wrong::new("invalid message format");
        match tag {
            frontend::PARSE => {
                let parse = Parse::read(whole).map_err(malformed)?;
                let text = String::from_utf8_lossy(parse.query).into_owned();
                Command::parse(&text)?;
                limited(&mut self.prepared, parse.name, text)?;
                self.out.extend_from_slice(backend::PARSE_COMPLETE_FRAME);
            }
            frontend::BIND => {
                let bind = Bind::read(whole).map_err(malformed)?;
                let command = self.prepared.get(bind.statement).cloned().ok_or_else(unknown_statement)?;
                if !Bind::parameters(bind.tail).map_err(malformed)?.is_empty() {
                    return Err(Wrong::new("commands of the console have no parameters"));
                }
                limited(&mut self.portals, bind.portal, Portal { command, tail: bind.tail.to_vec() })?;
                self.out.extend_from_slice(backend::BIND_COMPLETE_FRAME);
            }
            frontend::DESCRIBE => self.describe(Target::read(whole).map_err(malformed)?)?,
            frontend::EXECUTE => {
                let execute = Execute::read(whole).map_err(malformed)?;
                let portal = self.portals.remove(execute.portal).ok_or_else(unknown_portal)?;
                match client.unless_gone(self.run(&portal.command)).await {
                    Some(answer) => match answer? {
                        Some(answer) => self.put_result(answer, |column| portal.is_binary(column)),
                        None => backend::put_message(&mut self.out, backend::EMPTY_QUERY, &[]),
                    },
                    None => return Err(Wrong::new("client unexpected eof")),
                }
            }
            frontend::CLOSE => {
                let target = Target::read(whole).map_err(malformed)?;
                match target.kind {
                    b'S' => _ = self.prepared.remove(target.name),
                    _ => _ = self.portals.remove(target.name),
                }
                self.out.extend_from_slice(backend::CLOSE_COMPLETE_FRAME);
            }
            other => return Err(Wrong::new(format!("unsupported packet type for admin console: {other}"))),
        }
        Ok(())
    }

    fn describe(&mut self, target: Target<'_>) -> Result<(), Wrong> {
        let columns = |text: &str| Ok(Command::parse(text)?.and_then(|command| command.columns()));
        if target.kind == b'S' {
            let text = self.prepared.get(target.name).ok_or_else(unknown_statement)?;
            table::put_no_parameters(&mut self.out);
            put_description(&mut self.out, columns(text)?, |_| false);
        } else {
            let portal = self.portals.get(target.name).ok_or_else(unknown_portal)?;
            put_description(&mut self.out, columns(&portal.command)?, |column| portal.is_binary(column));
        }
        Ok(())
    }

    /// Runs a command. None: there is none in the text.
    async fn run(&self, text: &str) -> Result<Option<Answer>, Wrong> {
        let Some(command) = Command::parse(text)? else { return Ok(None) };
        // A reload changes the list.
        let all = served(self.databases);
        let instance = Instance { first: self.first, served: &all, databases: self.databases };
        let answer = match command {
            Command::Show(show) => show.answer(instance, self.is_admin)?,
            command => acts::act(instance, (self.user, self.is_admin), &command).await?,
        };
        Ok(Some(answer))
    }
}

fn put_description(out: &mut Vec<u8>, columns: Option<&'static [Column]>, is_binary: impl Fn(usize) -> bool) {
    match columns {
        Some(columns) => table::put_columns(out, columns, is_binary),
        None => backend::put_message(out, backend::NO_DATA, &[]),
    }
}

/// Puts a name into a map of bounded size.
fn limited<T>(names: &mut HashMap<Vec<u8>, T>, name: &[u8], value: T) -> Result<(), Wrong> {
    if names.len() >= NAMES_MAX && !names.contains_key(name) {
        return Err(Wrong::new("too many prepared statements"));
    }
    names.insert(name.to_vec(), value);
    Ok(())
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn unknown_statement() -> Wrong {
    Wrong { sqlstate: "26000", message: "prepared statement does not exist".to_owned() }
}

fn unknown_portal() -> Wrong {
    Wrong { sqlstate: "34000", message: "portal does not exist".to_owned() }
}
