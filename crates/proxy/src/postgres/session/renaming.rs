//! Prepared statements with names, where sessions share server connections.
//!
//! The client's name is the session's. On the connection the statement has the name of its entry ([`crate::postgres::pooling::entries`]), so the names
//! in the client's messages are replaced on their way. A `Parse` of the client is always sent on: what it does wrong is the server's to find. Where a
//! message uses a statement that its connection does not have, the `Parse` of the entry precedes it in the same batch: its answer is dropped, and its
//! error fails the batch as that of the client's message would. Each `Parse` follows a `Close` of the same name, since what lives there may be older
//! than the client's statement. A `Close` of the client closes a name that does not exist.
//!
//! What was sent counts as done, and is taken back if the server has skipped it ([`super::renamed`]). So a message that names a statement waits while
//! an earlier unit may still fail.
//!
//! **Settings.** The server reads a constant when it prepares the statement, and everything else again when settings or definitions have changed. So an
//! entry belongs to the settings under which it is prepared ([`crate::postgres::pooling::labels`]), and a session keeps its connection while it has a
//! statement of other settings than its own. A statement with constants is prepared before the session may change them, if its connection does not have
//! it ([`Session::prepare_ahead`]). The types of parameters are found once, too, by what names mean then. So a statement that the client itself prepares
//! amid settings that are not known keeps its own name, and with it the connection. What is prepared so, or in a transaction with DDL, does not stay on
//! the connection.

use std::cell::LazyCell;
use std::sync::Arc;

use freshet_sql::LiteralKind;
use freshet_wire::postgres::frame::{self, Header};
use freshet_wire::postgres::frontend::{self, Parse};

use crate::postgres::pooling::entries::{Entries, Entry};
use crate::postgres::pooling::prepared::Prepared;
use crate::postgres::session::Session;
use crate::postgres::session::decide::has_quotes;
use crate::postgres::session::names::{Defined, Name};
use crate::postgres::session::renamed::{Renamed, Undo};
use crate::postgres::session::server_connection::ServerConnection;
use crate::postgres::session::sharing::Sharing;
use crate::postgres::session::traces::{Amid, Traces};
use crate::postgres::session::unit::{Ask, ClientUnit, NAMES_MAX, Unit};
use crate::statement::registry::Statement;

/// A name that no statement has.
const NO_NAME: &[u8] = b"_freshet_none";

/// Whether the server answers the message with one of those that [`super::upstream`] counts, unless it skips the message.
pub(super) fn is_answered_once(tag: u8) -> bool {
    matches!(tag, frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE)
}

/// Whether settings may decide what the server makes of the text when it prepares it, and never again.
fn reads_settings(statement: &Statement) -> bool {
    let (text, query) = (statement.text(), &statement.query.text);
    let names_null = || query.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"null"));
    // client_encoding; standard_conforming_strings; DateStyle and others, for constants; transform_null_equals
    !statement.ascii
        || text.contains(&b'\\')
        || has_quotes(query)
        || statement.literals.iter().any(|literal| literal.kind == LiteralKind::String)
        || names_null()
}

/// Whether a statement that is prepared now must not stay for other sessions.
fn is_private(entry: &Entry, traces: &Traces) -> bool {
    traces.amid() != Amid::Label || entry.settings != *traces.of_preparing()
}

/// A message that is sent in a unit.
struct Sending<'s> {
    out: &'s mut Vec<u8>,
    unit: &'s mut Renamed,
    sharing: &'s mut Sharing,
    entries: &'s Entries,
    prepared_max: usize,
}

impl Session {
    /// Sends whole messages of the client, in the last unit.
    pub(super) fn put_messages(&mut self, messages: &[u8]) {
        if self.server.sharing.is_none() {
            return self.server.put(messages);
        }
        let mut rest = messages;
        while let Ok(Some(head)) = frame::header(rest)
            && let Some((message, behind)) = rest.split_at_checked(head.frame_bytes)
        {
            let sent = self.put_renamed(head, message);
            self.server.put(message.get(sent..).unwrap_or_default());
            rest = behind;
        }
        self.server.put(rest);
    }

    /// A message of the client is sent next, in the last unit; `bytes` is the message, or its beginning. Sends what must precede it, and its beginning
    /// with another name: returns the number of bytes for which that stands.
    pub(super) fn put_renamed(&mut self, head: Header, bytes: &[u8]) -> usize {
        if self.server.sharing.is_none() || !is_answered_once(head.tag) {
            return 0;
        }
        let entry = if head.tag == frontend::PARSE { self.shared_entry(bytes) } else { None };
        let Some(mut sending) = self.sending() else { return 0 };
        let sent = sending.message(head, bytes, entry).unwrap_or_default();
        sending.unit.note_sent();
        sent
    }

    fn sending(&mut self) -> Option<Sending<'_>> {
        let Some(Unit::Client(unit)) = self.pipeline.back_mut() else { return None };
        let ServerConnection { socket, sharing, .. } = &mut self.server;
        let pooling = &self.shared.pooling;
        Some(Sending {
            out: socket.output.buffer(),
            unit: &mut unit.renamed,
            sharing: sharing.as_deref_mut()?,
            entries: &pooling.entries,
            prepared_max: pooling.pools.settings().prepared_max,
        })
    }

    /// The entry for a `Parse` of the client; None if its statement cannot be shared.
    fn shared_entry(&self, bytes: &[u8]) -> Option<Arc<Entry>> {
        let parse = Parse::read(bytes).ok().filter(|parse| !parse.name.is_empty())?;
        let sharing = self.server.sharing.as_ref()?;
        let is_unseen =
            matches!(self.pipeline.back(), Some(Unit::Client(unit)) if unit.statements.parsed.len() >= NAMES_MAX);
        let is_amid_constants = sharing.traces.amid() == Amid::Constants;
        let is_off = self.shared.pooling.pools.settings().prepared_max == 0;
        if is_off || is_amid_constants || is_unseen || !sharing.names.may_grow() {
            return None;
        }
        let statement = self.statement(parse.query, parse.types).ok()?;
        let reads_settings = reads_settings(&statement);
        Some(self.shared.pooling.entries.intern(
            frontend::behind_name(bytes, &parse),
            reads_settings,
            sharing.traces.of_preparing(),
        ))
    }

    /// Whether a message that names a statement must wait, since an earlier unit may change what there is. `is_within`: it belongs to the last unit.
    pub(super) fn awaits_names(&mut self, is_within: bool) -> bool {
        let Some(sharing) = &self.server.sharing else { return false };
        // Otherwise what it prepares would be private.
        if sharing.traces.awaits_settings() {
            return true;
        }
        let earlier = self.pipeline.client_units().count().saturating_sub(usize::from(is_within));
        let is_uncertain =
            |unit: &ClientUnit| (unit.renamed.is_pending() || unit.effects.forgets) && !unit.copy.is_asked();
        if self.pipeline.client_units().take(earlier).any(is_uncertain) {
            return true;
        }
        // DISCARD ALL in the same batch: the server tells by its answer whether it has dropped all.
        let Some(Unit::Client(unit)) = self.pipeline.back_mut().filter(|_| is_within) else { return false };
        if !unit.effects.forgets || unit.copy.is_asked() || unit.has_failed() {
            return false;
        }
        let (waits, is_new) = unit.renamed.await_answers();
        if is_new {
            frontend::put_flush(self.server.output());
        }
        waits
    }

    /// All prepared statements were dropped.
    pub(super) fn statements_are_dropped(&mut self) {
        if let Some(sharing) = &mut self.server.sharing {
            sharing.names.clear();
            sharing.prepared.take_all();
        }
    }

    /// The session's statements with constants, as far as its connection does not have them, before a statement that may be the first to change what
    /// constants mean.
    pub(super) fn to_prepare_ahead(&self, statement: Option<&Arc<Statement>>) -> Vec<Defined> {
        let sharing = self.server.sharing.as_ref().filter(|sharing| sharing.traces.amid() != Amid::Constants);
        let Some(sharing) = sharing.filter(|_| self.nature(statement).sets == Amid::Constants) else {
            return Vec::new();
        };
        let lacks =
            |defined: &&Defined| defined.entry.reads_settings && !sharing.prepared.has(&defined.entry, defined.since);
        sharing.names.all_shared().map(|(_, defined)| defined).filter(lacks).cloned().collect()
    }

    /// Prepares a statement on the connection, with a `Sync` of its own.
    pub(super) fn prepare_ahead(&mut self, defined: &Defined) {
        let Some(sharing) = &mut self.server.sharing else { return };
        let entry = &defined.entry;
        if sharing.prepared.has(entry, defined.since) {
            return;
        }
        let out = self.server.socket.output.buffer();
        frontend::put_close_statement(out, &entry.name);
        frontend::put_parse_again(out, &entry.name, &entry.definition);
        frontend::put_sync(out);
        let at = self.shared.pooling.entries.tick();
        let is_private = is_private(entry, &sharing.traces);
        sharing.prepared.insert(Prepared::new(entry.clone(), at, is_private));
        self.pipeline.push_own(Ask::Prepare { entry: entry.number });
    }

    /// A statement of [`Self::prepare_ahead`] could not be prepared.
    pub(super) fn preparing_failed(&mut self, entry: u64) {
        if let Some(sharing) = &mut self.server.sharing {
            sharing.prepared.remove(entry);
        }
    }

    /// The messages of an execution as the connection knows its statement, which it has from here on.
    pub(super) fn renamed_execution(&mut self, messages: &[u8]) -> Option<Vec<u8>> {
        let (_, name) = frontend::statement_name(messages)?;
        let defined = self.server.sharing.as_ref()?.names.shared(name)?.clone();
        self.prepare_ahead(&defined);
        self.server.sharing.as_mut()?.note_use(&defined.entry);
        let head = frame::header(messages).ok()??;
        let mut renamed = Vec::with_capacity(messages.len() + defined.entry.name.len());
        let sent = frontend::put_renamed(&mut renamed, head, messages, &defined.entry.name)?;
        renamed.extend_from_slice(messages.get(sent..)?);
        Some(renamed)
    }
}

impl Sharing {
    /// A statement is used, and perhaps planned: text of numbers in constants depends on settings then, and the plan stays. Other statements that may
    /// have changed something do not matter: an application may set its own settings in each transaction.
    fn note_use(&mut self, entry: &Entry) {
        self.prepared.note_use(entry);
        if self.traces.amid() >= Amid::Definitions || entry.settings != *self.traces.of_preparing() {
            self.prepared.note_private(entry);
        }
    }
}

impl Sending<'_> {
    /// See [`Session::put_renamed`]; None: the message is sent as it is.
    fn message(&mut self, head: Header, bytes: &[u8], entry: Option<Arc<Entry>>) -> Option<usize> {
        let (_, name) = frontend::statement_name(bytes)?;
        let is_shared = self.sharing.names.shared(name).is_some();
        if !is_shared && self.sharing.names.take_superfluous(name) {
            self.close_ahead(name, Undo::Superfluous(name.into()));
        }
        match head.tag {
            frontend::PARSE => self.parse(name, entry).then_some(bytes.len()),
            frontend::CLOSE => {
                let before = self.sharing.names.set(name, None);
                let is_shared = matches!(before, Some(Name::Shared(_)));
                self.unit.change(Undo::Name(name.into(), before));
                if !is_shared {
                    self.sharing.traces.note_prepared();
                    return None;
                }
                frontend::put_renamed(self.out, head, bytes, NO_NAME)
            }
            _ => {
                let Defined { entry, since } = self.sharing.names.shared(name)?.clone();
                if !self.sharing.prepared.has(&entry, since) {
                    self.prepare(&entry);
                    self.put_parse(&entry);
                    self.unit.change_by_own(Undo::Prepared(entry.number, None));
                }
                self.sharing.note_use(&entry);
                frontend::put_renamed(self.out, head, bytes, &entry.name)
            }
        }
    }

    /// The client prepares a statement; false: its message is sent as it is.
    fn parse(&mut self, name: &[u8], entry: Option<Arc<Entry>>) -> bool {
        match (self.sharing.names.get(name), entry) {
            (None, Some(entry)) => {
                self.prepare(&entry);
                let since = self.put_parse(&entry);
                self.unit.change(Undo::Prepared(entry.number, None));
                let before = self.sharing.names.set(name, Some(Name::Shared(Defined { entry, since })));
                self.unit.change(Undo::Name(name.into(), before));
                true
            }
            // The server refuses it if the name exists there, unless it finds something else to be wrong.
            (Some(Name::Shared(_)), _) => {
                self.close_ahead(name, Undo::Nothing);
                frontend::put_parse(self.out, name, b"");
                self.unit.change_by_own(Undo::Nothing);
                self.sharing.names.note_superfluous(name);
                false
            }
            (None | Some(Name::Own), _) => {
                let before = self.sharing.names.set(name, Some(Name::Own));
                self.unit.change(Undo::Name(name.into(), before));
                self.sharing.traces.note_prepared();
                false
            }
        }
    }

    /// Makes room for a statement, and closes what the connection has under its name.
    fn prepare(&mut self, entry: &Entry) {
        let before = self.sharing.prepared.remove(entry.number);
        while self.sharing.prepared.len() >= self.prepared_max
            && let Some(oldest) = self.oldest()
            && let Some(other) = self.sharing.prepared.remove(oldest)
        {
            let name = other.entry().name.clone();
            self.close_ahead(&name, Undo::Prepared(oldest, Some(other)));
        }
        self.close_ahead(&entry.name, Undo::Prepared(entry.number, before));
    }

    /// The one to make room; not one of the session's that it would prepare in another way now.
    fn oldest(&self) -> Option<u64> {
        let Sharing { traces, names, prepared, .. } = &*self.sharing;
        let is_amid_others = traces.amid() == Amid::Constants;
        let has_misfit = LazyCell::new(|| names.has_misfit(traces.of_preparing()));
        let is_misfit = |entry: &Entry| entry.settings != *traces.of_preparing() && *has_misfit;
        prepared.oldest(|entry| !(is_amid_others && entry.reads_settings || is_misfit(entry)))
    }

    fn close_ahead(&mut self, name: &[u8], undo: Undo) {
        frontend::put_close_statement(self.out, name);
        self.unit.change_by_own(undo);
    }

    /// Returns when.
    fn put_parse(&mut self, entry: &Arc<Entry>) -> u64 {
        frontend::put_parse_again(self.out, &entry.name, &entry.definition);
        let at = self.entries.tick();
        let is_private = is_private(entry, &self.sharing.traces);
        self.sharing.prepared.insert(Prepared::new(entry.clone(), at, is_private));
        at
    }
}
