//! What a session knows of its own settings, and how certain that is.
//!
//! Functions can change settings unseen, and the server does not report most changes. So Freshet asks before a look-up, if a statement since the last
//! query is not proven to leave the settings as they were. Each such statement begins a new *era*; within an era nothing changes. Until Freshet may
//! ask again, it knows the default database from the statements that choose it, and how texts are read ([`super::reading`]).
//!
//! Settings are read by a query and not taken from the flags of answers. MySQL 8.0.15 reports AUTOCOMMIT in a session that has inherited the
//! opposite, and no flag of the login shows what `init_connect` sets.

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{Code, Modes, Quoting, Version};
use freshet_types::{CatalogVersion, Reason};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::ok::{Ok as OkPacket, StateChange, state_changes};
use freshet_wire::mysql::packet::{self, HEADER_BYTES, Header};
use freshet_wire::mysql::response::{Done, Kind};
use freshet_wire::mysql::{command, result};

use crate::mysql::login::About;
use crate::mysql::question::{Answer, Level, question, take_found_rows, take_server};
use crate::mysql::session::counted::Counts;
use crate::mysql::session::forward::To;
use crate::mysql::session::known::{Allowed, Known};
use crate::mysql::session::reading::{Readable, Reading, without_comments};
use crate::mysql::session::temporaries::Temporaries;
use crate::mysql::session::{Session, SessionError};
use crate::shared::{ServerIdentity, Shared};
use crate::statement::registry::{Statement, first_word};

/// Settings by which a session can see the statements that it runs: in reported state, SHOW PROFILES, OPTIMIZER_TRACE.
const WATCHING: [&str; 3] = ["session_track_transaction_info", "profiling", "optimizer_trace"];

/// A query for the context that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// It also asks which server it is.
    with_server: bool,
    /// The catalogue in use then.
    under: CatalogVersion,
}

/// A session's settings.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Settings {
    pub(crate) known: Known,
    /// Counts how often settings may have changed.
    pub(crate) era: u64,
    /// The default database; empty: none, or unknown.
    pub(crate) schemas: Vec<Arc<str>>,
    /// The isolation level of transactions that begin, in the era of the last query.
    level: Option<(Level, u64)>,
    pub(crate) temporaries: Temporaries,
    /// LOCK TABLES, or FLUSH … WITH READ LOCK.
    pub(crate) locked: bool,
    /// The next transaction may have a level of its own.
    pub(crate) one_shot: bool,
    /// The setting by which the session can see the statements that it runs, Freshet's queries too.
    pub(crate) watched: Option<&'static str>,
    /// The variable `timestamp` may be set, which sets the clock of the session.
    pub(crate) sets_clock: bool,
    /// How texts are read.
    pub(crate) reading: Reading,
    /// Autocommit is on, in the era of the last query.
    autocommit: Option<(bool, u64)>,
    /// The answer to the query for the context is due.
    pub(crate) asked: Option<Asked>,
    /// Only statements that open a session were sent so far: settings and the beginning of a transaction.
    pub(crate) opening: bool,
    /// The server that this connection leads to.
    pub(super) server: Option<ServerIdentity>,
    /// Which of the stream's identities `server` was compared with ([`Shared::identities`]), and the result.
    pub(super) compared: Option<(u64, Result<(), Reason>)>,
}

impl Settings {
    pub(crate) fn new(about: &About) -> Self {
        Self {
            known: Known::Nothing,
            era: 0,
            schemas: about.database.iter().map(|name| Arc::from(name.as_str())).collect(),
            level: None,
            temporaries: Temporaries::default(),
            locked: false,
            one_shot: false,
            watched: None,
            sets_clock: false,
            // `init_connect` may have set anything.
            reading: Reading::default(),
            autocommit: None,
            asked: None,
            opening: true,
            server: None,
            compared: None,
        }
    }

    /// Settings may have changed.
    pub(crate) fn doubt(&mut self) {
        self.era += 1;
        self.known = Known::Nothing;
    }

    /// The session continues on a connection where it is not known to have the same settings: those of its group may have been read before a change
    /// of global ones.
    pub(super) fn begin_on_another_connection(&mut self) {
        self.doubt();
        self.reading = Reading::default();
    }

    /// The state after COM_RESET_CONNECTION.
    pub(crate) fn reset(&mut self) {
        self.doubt();
        (self.locked, self.one_shot) = (false, false);
        self.watched = None;
        self.sets_clock = false;
        self.reading = Reading::default();
    }

    /// The default database has changed.
    pub(crate) fn use_database(&mut self, name: Option<&str>) {
        self.doubt();
        self.schemas = name.filter(|name| !name.is_empty()).map(Arc::from).into_iter().collect();
    }

    /// Whether this is the default database; empty: none.
    pub(crate) fn is_in(&self, schema: &[u8]) -> bool {
        match &*self.schemas {
            [] => schema.is_empty(),
            [current] => current.as_bytes() == schema,
            _ => false,
        }
    }

    /// The level of a transaction that begins now, or began in this era.
    pub(crate) fn level_in(&self, era: u64) -> Option<Level> {
        self.level.filter(|(_, known_in)| *known_in == era && era == self.era).map(|(level, _)| level)
    }

    /// How every text is read.
    pub(crate) fn quoting(&self) -> Quoting {
        if self.reading.is_known() { Quoting::Known(self.reading.modes().quotes()) } else { Quoting::Unknown }
    }

    /// Whether the server certainly reads the text as Freshet does.
    pub(crate) fn can_read(&self, text: &[u8]) -> bool {
        self.reading.of(text) == Readable::Yes
    }

    /// Whether autocommit is on, as read in this era; None: it was not read.
    pub(crate) fn autocommits(&self) -> Option<bool> {
        self.autocommit.filter(|(_, known_in)| *known_in == self.era).map(|(autocommits, _)| autocommits)
    }

    /// Notes what the last packet of an answer says of the session.
    pub(crate) fn told(&mut self, last: &[u8], done: &Done, capabilities: Capabilities) {
        let changed = done.status.is_some_and(|status| status.has(Status::SESSION_STATE_CHANGED));
        // PREPARE changes nothing, whatever the packet says for views of another database.
        if !changed || done.prepared.is_some() || !capabilities.has(Capabilities::SESSION_TRACK) {
            return;
        }
        let changes = OkPacket::parse(last, capabilities).and_then(|ok| state_changes(ok.state));
        let Ok(changes) = changes else { return self.doubt() };
        for change in changes {
            match change {
                // MariaDB also reports the database after reads of views of another one.
                StateChange::Schema(name) if self.is_in(name) => {}
                StateChange::Schema(name) => self.use_database(std::str::from_utf8(name).ok()),
                StateChange::SystemVariable { name, .. } if name != b"last_gtid" && name != b"autocommit" => {
                    self.doubt();
                }
                _ => {}
            }
        }
    }

    /// A statement that changes settings was answered, with this state (None: with an error): updates what is known without a query.
    pub(crate) fn changed_by(&mut self, text: &[u8], status: Option<Status>) {
        let text = String::from_utf8_lossy(&without_comments(text)).to_ascii_lowercase();
        let has = |word: &str| text.contains(word);
        self.reading.changed_by(&text, status);
        // `SET TRANSACTION …`, `SET @@transaction_isolation = …`; the word alone may be part of a value.
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$');
        let words: Vec<&str> = text.split(|letter| !is_part(letter)).filter(|word| !word.is_empty()).collect();
        let bare = words.windows(2).any(|pair| pair == ["set", "transaction"]);
        let commented = ["/*", "--", "#"].into_iter().any(has) && has("transaction");
        let of_next = ["@@transaction_", "@@tx_", "@@`transaction_", "@@`tx_", "@@\"transaction_", "@@\"tx_"];
        self.watched = self.watched.or(WATCHING.into_iter().find(|name| has(name)));
        self.sets_clock |= has("timestamp");
        self.one_shot |= bare || commented || of_next.into_iter().any(has);
    }

    /// Code was run of which only the words are known; None: not even these.
    pub(crate) fn ran(&mut self, code: Option<&Code>) {
        self.reading = Reading::default();
        let kind = code.filter(|code| !code.has_odd_names()).and_then(Code::single);
        if kind.is_some_and(|word| ["select", "with", "insert", "replace", "update", "delete"].contains(&word)) {
            return;
        }
        self.schemas.clear();
        let words = code.map(words).filter(|words| !words.contains("prepare") && !words.contains("execute"));
        let (Some(code), Some(words)) = (code, words) else {
            // The counters will show whether it may have.
            self.one_shot = true;
            if !self.temporaries.ran_unknown() {
                self.locked = true;
                self.doubt_variables();
            }
            return;
        };
        self.one_shot |= code.sets_next_transaction();
        self.locked |= locks_tables(&words);
        self.watched = self.watched.or_else(|| WATCHING.into_iter().find(|name| words.contains(name)));
        self.sets_clock |= words.contains("timestamp");
    }

    /// Any variable may be set.
    fn doubt_variables(&mut self) {
        self.watched = self.watched.or(WATCHING.first().copied());
        self.sets_clock = true;
    }

    /// The server has shown its counters: see [`Temporaries::counted`].
    pub(crate) fn counted(&mut self, counts: Option<Counts>, received: u64) {
        let may_have = self.temporaries.counted(counts, received);
        self.locked |= may_have.locked;
        if may_have.set {
            self.doubt_variables();
        }
    }

    /// The same for several statements in one text, whose SET statements [`Self::changed_by`] finds.
    pub(crate) fn ran_several(&mut self, code: &Code) {
        self.locked |= locks_tables(&words(code));
        self.reading = Reading::default();
        self.schemas.clear();
    }

    /// Whether this connection leads to the server of the change stream; None: not known yet.
    pub(crate) fn compare_server(&mut self, shared: &Shared) -> Option<Result<(), Reason>> {
        let current = shared.identities();
        if let Some((compared, verdict)) = &self.compared
            && *compared == current
        {
            return Some(verdict.clone());
        }
        let Some(stream) = shared.identity() else { return Some(Err(Reason::NoStream)) };
        let own = self.server.as_ref()?;
        let same = own.system_id == stream.system_id && own.postmaster_start == stream.postmaster_start;
        let verdict = if same { Ok(()) } else { Err(Reason::OtherServer) };
        self.compared = Some((current, verdict.clone()));
        Some(verdict)
    }
}

fn words(code: &Code) -> HashSet<&str> {
    code.words().collect()
}

/// Whether it may contain LOCK TABLES, FLUSH TABLES … WITH READ LOCK, or FLUSH TABLES … FOR EXPORT.
fn locks_tables(words: &HashSet<&str>) -> bool {
    let says = |word: &str| words.contains(word);
    (says("table") || says("tables")) && (says("lock") || (says("flush") && says("export")))
}

impl Session {
    /// Asks the server for the session's context.
    pub(crate) async fn ask_context(&mut self) -> Result<(), SessionError> {
        self.put_question();
        self.settle_question().await
    }

    /// Asks before the command that is sent next, in the same network packet, without waiting.
    pub(crate) fn put_question(&mut self) {
        let with_server = self.server.settings.server.is_none();
        self.server.settings.asked = Some(Asked { with_server, under: self.shared.catalog_version() });
        self.server.put_query(question(&self.server.about.version, with_server).as_bytes());
    }

    /// Takes the answer, if one is due.
    pub(crate) async fn settle_question(&mut self) -> Result<(), SessionError> {
        self.settle_sent_ahead().await?;
        let Some(Asked { with_server, under }) = self.server.settings.asked.take() else { return Ok(()) };
        let mut said = self.hear().await?;
        self.replay.displaced = said.as_mut().and_then(|said| take_found_rows(&mut said.row));
        if with_server {
            let run = said.as_mut().and_then(|said| take_server(&mut said.row));
            said = said.filter(|_| run.is_some());
            self.server.settings.server = run.map(|run| ServerIdentity {
                system_id: run.server,
                postmaster_start: run.start,
                database: String::new(),
            });
        }
        let answer = said.and_then(|said| {
            let row: Vec<Option<&[u8]>> = said.row.iter().map(|value| value.as_ref().map(String::as_bytes)).collect();
            Answer::read(&row, said.collation)
        });
        let Some(answer) = answer else {
            self.server.settings.known = Known::Unknowable(Reason::SettingsUnknown);
            return Ok(());
        };
        let settings = &mut self.server.settings;
        settings.schemas.clone_from(&answer.described.schemas);
        settings.level = Some((answer.level, settings.era));
        settings.reading = answer.reading;
        settings.autocommit = Some((answer.autocommits, settings.era));
        settings.known = match self.shared.contexts.intern(answer.described) {
            Ok(context) => Known::Context(context, under),
            Err(reason) => Known::Unknowable(reason),
        };
        if !self.autocommits() {
            self.transaction.begin_without_autocommit(self.server.settings.era);
        }
        Ok(())
    }

    /// Whether autocommit is on, as far as that is known without a query.
    pub(crate) fn autocommits(&self) -> bool {
        self.status.has(Status::AUTOCOMMIT) && self.server.settings.autocommits() != Some(false)
    }

    /// The answer to a query of Freshet's own; None if it failed, is not text, or has no row.
    pub(crate) async fn hear(&mut self) -> Result<Option<Said>, SessionError> {
        let (first, last_words) =
            (std::mem::replace(&mut self.server.answer_from, 1), std::mem::take(&mut self.server.last_words));
        let mut answer = Vec::new();
        let done = self.follow(Kind::Query, To::Own(&mut answer)).await;
        self.server.answer_from = first;
        if matches!(done, Err(SessionError::UpstreamEnded)) {
            self.client.output.put(&last_words); // they may say why the connection ended
        }
        let done = done?;
        if done.error.is_some() {
            self.server.last_words = answer;
            return Ok(None);
        }
        let definitions = if done.without_definitions { 0 } else { done.columns };
        let eof = u64::from(!self.capabilities().has(Capabilities::DEPRECATE_EOF));
        let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8(value.to_vec())).transpose().ok();
        let rows = packets(&answer).skip((1 + definitions + eof) as usize).take(done.rows as usize);
        let mut rows = rows.map(|payload| -> Option<Vec<_>> {
            result::text_row(payload, done.columns).ok()?.into_iter().map(text).collect()
        });
        let Some(row) = rows.next().flatten() else { return Ok(None) };
        let definition = packets(&answer).nth(1).filter(|_| definitions > 0);
        let collation = definition.and_then(result::collation_of);
        Ok(Some(Said { row, more: rows.flatten().collect(), collation }))
    }

    /// The values of the first row of the answer to a query of Freshet's own.
    pub(super) async fn hear_row(&mut self) -> Result<Option<Vec<Option<String>>>, SessionError> {
        Ok(self.hear().await?.map(|said| said.row))
    }

    /// Asks for the context if the text can be parsed only with it, and the query does no harm. `whole`: the text is complete.
    pub(crate) async fn ask_to_read(&mut self, text: &[u8], whole: bool) -> Result<(), SessionError> {
        if !matches!(self.server.settings.known, Known::Nothing) {
            return Ok(());
        }
        let reading = self.server.settings.reading;
        let can_read = if whole {
            let is_told = reading.tells_names(text) && reading.tells_operators(text);
            self.server.settings.can_read(text) && is_told
        } else {
            reading.is_known()
        };
        if can_read || self.is_after_something(text) {
            return Ok(());
        }
        let asks = match self.allowed() {
            Allowed::Pass(Reason::MayHaveTemporary) => matches!(self.allowed_if_known(), Allowed::Ask),
            allowed => matches!(allowed, Allowed::Ask),
        };
        if asks { self.ask_context().await } else { Ok(()) }
    }

    /// Whether a statement may read the diagnostics of the one before it, or is followed by one that reads those of an earlier SELECT.
    fn is_after_something(&self, text: &[u8]) -> bool {
        let head = text.to_ascii_lowercase();
        let says = |word: &str| head.windows(word.len()).any(|window| window == word.as_bytes());
        let start = String::from_utf8_lossy(head.get(..64).unwrap_or(&head));
        let word = first_word(&start);
        let leaves = if word == "select" { false } else { self.replay.has_selected() };
        let known = ["select", "insert", "replace", "update", "delete"].contains(&word);
        !known || leaves || ["found_rows", "row_count", "warning_count", "error_count"].into_iter().any(says)
    }

    /// The statement of a text, if the server certainly reads it as Freshet does.
    pub(crate) fn statement(&self, text: &[u8]) -> Result<Arc<Statement>, Reason> {
        let known = self.shared.known_text(text, freshet_sql::without_outer_comments(text));
        if !self.server.settings.can_read(&known) {
            return Err(Reason::NotParsed);
        }
        self.shared.registry.statement_under(self.modes(), &known)
    }

    /// The settings that determine how the session's texts are read.
    pub(crate) fn modes(&self) -> Modes {
        let version = &self.server.about.version;
        let version = version.number.map(|number| Version { is_mariadb: version.is_mariadb, number });
        Modes { version, ..self.server.settings.reading.modes() }
    }
}

/// The answer to a query of Freshet's own.
pub(crate) struct Said {
    /// The first row.
    pub(crate) row: Vec<Option<String>>,
    /// The other rows.
    pub(crate) more: Vec<Vec<Option<String>>>,
    /// The collation number of its first column, if the server has sent it.
    pub(crate) collation: Option<u16>,
}

impl Said {
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[Option<String>]> {
        std::iter::once(&*self.row).chain(self.more.iter().map(Vec::as_slice))
    }
}

/// Appends a COM_QUERY.
pub(crate) fn put_query(out: &mut Vec<u8>, capabilities: Capabilities, sql: &[u8]) {
    packet::put_with(out, &mut 0, |out| {
        out.push(command::QUERY);
        if capabilities.has(Capabilities::QUERY_ATTRIBUTES) {
            out.extend_from_slice(&[0, 1]); // no query attributes, in one set
        }
        out.extend_from_slice(sql);
    });
}

/// The payloads of small packets.
pub(crate) fn packets(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = Header::read(rest)?;
        let (packet, behind) = rest.split_at_checked(header.packet_bytes())?;
        rest = behind;
        packet.get(HEADER_BYTES..)
    })
}
