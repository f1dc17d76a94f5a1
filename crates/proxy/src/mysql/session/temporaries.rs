//! The temporary tables that a session may have.
//!
//! No server lists them, and a temporary table hides another one with its name, in views, too. So the session remembers the names: of those that it
//! creates, and of those that the code it ran may have made (`freshet_sql::Code`). Statements that read a table with such a name pass; all others are
//! served. After code that may have made a table with any name, everything passes until the server's counters show that it has made none
//! ([`super::counters`]); else until the session is reset.
//!
//! What stored code may make, the catalogue says, and it may be older than the code that was run, or lack that of locked tables. So such code is *pending* until
//! the catalogue shows all that was defined before the session's last answer; meanwhile nothing is served or kept. By then
//! the code may be gone again. So what was run makes what it makes by the catalogue before it or by the one behind it, if stored code
//! has changed once between them at most, and not by the session itself; else it may have made any.
//!
//! Sessions without temporary tables only check two empty lists at each hit.

use std::sync::Arc;

use freshet_sql::{Code, CodeScanner, Effect, Quoting, TableName};
use freshet_types::{Catalog, Reason, Temporaries as Made};
use freshet_wire::mysql::packet::HEADER_BYTES;

use crate::mysql::session::Session;
use crate::mysql::session::counted::{Counted, Counts, MayHave};
use crate::mysql::session::known::Known;
use crate::mysql::session::mark::Mark;
use crate::mysql::session::named::{Named, begins};
use crate::statement::registry::{NormalizedQuery, Statement, first_word};

/// Parses the words of a statement while it is forwarded.
#[derive(Debug)]
pub(crate) struct Reading {
    scanner: CodeScanner,
    /// Bytes of packet headers, which are not text.
    skip: usize,
}

impl Reading {
    /// `skip`: bytes after the first packet's header that are not text.
    pub(crate) fn new(quoting: Quoting, skip: usize) -> Self {
        Self { scanner: CodeScanner::new(quoting), skip }
    }

    /// A packet begins, with its header.
    pub(crate) fn packet(&mut self, bytes: &[u8]) {
        self.skip += HEADER_BYTES;
        self.feed(bytes);
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.scanner.feed(bytes.get(skipped..).unwrap_or_default());
    }

    pub(crate) fn finish(self) -> Code {
        self.scanner.finish()
    }
}

/// Limit of remembered names; with more, any name counts.
const NAMES_MAX: usize = 256;
/// Statements that are not counted as SET, or on one of the servers only.
const OTHER_SETS: [&str; 6] =
    ["set statement ", "set password ", "set role ", "set default ", "set resource ", "set session authorization "];
/// Limit of pieces of code that wait for the catalogue one by one; more of them count as one.
const PENDING_MAX: usize = 64;

/// Whether a definition with these words may make, change or drop code, or give a table the code of another.
fn names_code(code: &Code) -> bool {
    const KINDS: [&str; 9] =
        ["view", "procedure", "function", "trigger", "event", "package", "database", "schema", "rename"];
    code.words().any(|word| KINDS.contains(&word))
}

/// Whether a definition may have made or changed code: all but those of ordinary tables and their indexes.
pub(crate) fn may_define_code(statement: Option<&Arc<Statement>>, unread: Option<&Code>) -> bool {
    let of_tables =
        |word: &str| ["create", "alter", "drop", "truncate"].iter().any(|first| first.eq_ignore_ascii_case(word));
    match (statement, unread) {
        (Some(statement), _) => !of_tables(first_word(&statement.query.text)) || names_code(statement.query.code()),
        (None, Some(code)) => !code.single().is_some_and(of_tables) || names_code(code),
        (None, None) => true,
    }
}

/// A table that the session may have.
#[derive(Debug, PartialEq, Eq)]
struct Temporary {
    /// Its database; None: any.
    schema: Option<Arc<str>>,
    name: Box<str>,
}

/// Code that was run.
#[derive(Debug)]
struct Pending {
    code: Arc<Code>,
    /// The tables that it makes by the catalogue before it, if that was complete.
    made: Made,
    /// Of that catalogue: see [`Catalog::code_changes`].
    changes: u64,
}

impl Pending {
    fn new(code: Arc<Code>, before: &Catalog) -> Self {
        let stored = Some(&before.stored_code).filter(|stored| stored.is_complete);
        let made = stored.map_or(Made::None, |stored| code.temporaries(stored));
        Self { code, made, changes: before.code_changes }
    }

    /// Code that was run later counts as part of this.
    fn add(&mut self, later: &Self) {
        self.code = Arc::new(self.code.with(&later.code));
        self.made.add(&later.made);
    }

    /// The tables that it may have made.
    fn judged(&self, catalog: &Catalog) -> Made {
        if catalog.code_changes.saturating_sub(self.changes) > 1 {
            return Made::Any;
        }
        let mut made = self.code.temporaries(&catalog.stored_code);
        made.add(&self.made);
        made
    }
}

/// What a session knows of its temporary tables.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "doubts that are independent of each other")]
pub(crate) struct Temporaries {
    tables: Vec<Temporary>,
    pending: Vec<Pending>,
    /// Unknown code was run since the counters were read.
    unsure: bool,
    /// Its text is not even known to set nothing.
    may_set: bool,
    /// That code may have set something for the next transaction only.
    sets_next: bool,
    /// There may be a table with any name, whatever the counters show from now on.
    any: bool,
    pub(super) counted: Counted,
    pub(crate) named: Named,
}

impl Temporaries {
    /// A session begins, in which so many bytes have come from the server.
    pub(crate) fn since(received: u64) -> Self {
        Self { counted: Counted::from(received), ..Self::default() }
    }

    /// The connection goes to another session.
    pub(crate) fn take_counted(&mut self) -> Counted {
        std::mem::take(&mut self.counted)
    }

    /// The session has another connection, with these counters.
    pub(crate) fn count_on(&mut self, counted: Counted) {
        self.counted = counted;
    }

    /// Whether there are certainly none.
    pub(crate) fn are_none(&self) -> bool {
        self.tables.is_empty() && self.pending.is_empty() && !self.may_be_any()
    }

    /// Whether there may be a table with any name.
    pub(crate) fn may_be_any(&self) -> bool {
        self.any || self.unsure
    }

    /// Whether the server's counters may show that there is none.
    pub(crate) fn are_unsure(&self) -> bool {
        self.unsure && !self.any
    }

    /// Whether unknown code may have set something for the next transaction only, and no statement was sent since.
    pub(crate) fn may_set_next(&self) -> bool {
        self.sets_next
    }

    /// The server has shown its counters, if it has. `received`: the bytes that had come from it before.
    pub(crate) fn counted(&mut self, counts: Option<Counts>, received: u64) -> MayHave {
        let mut may_have = self.counted.read(counts, received);
        may_have.set &= std::mem::take(&mut self.may_set);
        self.any |= may_have.made;
        self.counted.had_tables |= !self.tables.is_empty();
        self.unsure = false;
        may_have
    }

    /// Whether there is, or may be, a table with this name; None: if its name is not known.
    pub(crate) fn may_hide(&self, name: Option<&str>) -> bool {
        !self.are_none() && (self.may_be_any() || !self.pending.is_empty() || name.is_none_or(|name| self.hide(name)))
    }

    /// Whether there may be a table with this name, as far as names are known.
    pub(crate) fn hide(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name.eq_ignore_ascii_case(name))
    }

    /// Code was run.
    fn ran(&mut self, code: Arc<Code>, before: Option<&Arc<Catalog>>) {
        // An older run of the same code came before more definitions.
        if self.any || self.pending.iter().any(|pending| pending.code == code) {
            return;
        }
        let Some(before) = before else { return self.become_unsure() };
        let ran = Pending::new(code, before);
        if ran.made == Made::Any {
            return self.become_unsure();
        }
        match self.pending.get_mut(PENDING_MAX - 1) {
            Some(last) => last.add(&ran),
            None => self.pending.push(ran),
        }
    }

    /// The session has defined something: code that was run before may have been dropped.
    fn defined(&mut self, code: &Code) {
        if !self.pending.is_empty() && names_code(code) {
            self.pending.clear();
            self.become_unsure();
        }
    }

    /// Unknown code was run. It may have prepared statements, too.
    fn become_unsure(&mut self) {
        (self.unsure, self.sets_next) = (true, true);
        self.named.forget();
    }

    /// Code was run of which not even the words are known; false: the counters will not be read after it.
    pub(crate) fn ran_unknown(&mut self) -> bool {
        self.become_unsure();
        self.may_set = true;
        !self.any
    }

    /// A table was created.
    fn created(&mut self, schemas: &[Arc<str>], (schema, name): &TableName) {
        self.counted.known += 1;
        let schema = schema.as_deref().map(Arc::from).or_else(|| schemas.first().cloned());
        self.add(Temporary { schema, name: name.clone() });
    }

    fn add(&mut self, table: Temporary) {
        // Case of letters beyond ASCII is not compared here.
        self.counted.had_tables = true;
        self.any |= !table.name.is_ascii() || self.tables.len() >= NAMES_MAX;
        if !self.any && !self.tables.contains(&table) {
            self.tables.push(table);
        }
    }

    /// These tables were dropped.
    fn dropped(&mut self, schemas: &[Arc<str>], names: &[TableName]) {
        for (schema, name) in names {
            let Some(schema) = schema.as_deref().or(schemas.first().map(|schema| &**schema)) else { continue };
            self.tables.retain(|table| table.schema.as_deref() != Some(schema) || table.name != *name);
        }
    }

    /// Tables were renamed; the new names are among the words of this code, if they are plain.
    fn renamed(&mut self, code: &Code) {
        if self.tables.is_empty() && self.pending.is_empty() {
            return;
        }
        self.any |= code.has_odd_names();
        for word in code.words() {
            self.add(Temporary { schema: None, name: word.into() });
        }
    }

    /// The catalogue shows what the pending code makes.
    fn judge(&mut self, catalog: &Catalog) {
        for pending in std::mem::take(&mut self.pending) {
            match pending.judged(catalog) {
                Made::None => {}
                Made::Named(mut names) => {
                    self.sets_next |= names.remove(Made::NEXT_TRANSACTION);
                    names.remove(Made::STATE);
                    for name in names {
                        self.add(Temporary { schema: None, name });
                    }
                }
                Made::Any => self.become_unsure(),
            }
        }
    }
}

impl Session {
    /// A statement is about to be sent: notes what is known of the code that it may run.
    pub(crate) fn note_code(&mut self, mark: Mark, statement: Option<&Arc<Statement>>) {
        // The earlier, the fewer definitions lie in between.
        let _ = self.judge_pending();
        if self.shows_own_definitions(self.shared.catalog_version()) {
            self.definitions.are_shown();
        }
        let runs = mark.makes_temporary() || statement.is_some_and(|statement| self.may_quote_names(statement));
        self.at_hand.code_before = runs.then(|| self.shared.catalog.load_full());
    }

    /// Strings, as Freshet reads them, may be names.
    fn may_quote_names(&self, statement: &Statement) -> bool {
        let is_known = self.server.settings.reading.ansi_quotes == Some(statement.modes.ansi_quotes);
        !is_known && statement.text().contains(&b'"')
    }

    /// A statement was answered: notes the tables that it may have made. `error`: it failed.
    pub(crate) fn note_temporaries(&mut self, mark: Mark, statement: Option<&Arc<Statement>>, error: Option<u16>) {
        let failed = error.is_some();
        let (unread, before) = (self.at_hand.unread.take(), self.at_hand.code_before.clone());
        let source = self.at_hand.source.take();
        let Some(statement) = statement else {
            self.server.settings.temporaries.named.sent_unknown(mark.effect != Effect::Pure);
            match unread {
                _ if !mark.makes_temporary() => {}
                Some(code) => {
                    self.server.settings.temporaries.defined(&code);
                    self.server.settings.temporaries.ran(code, before.as_ref());
                }
                None => self.server.settings.temporaries.become_unsure(),
            }
            return;
        };
        if mark.effect >= Effect::Definition {
            self.server.settings.temporaries.defined(statement.query.code());
        }
        if self.may_quote_names(statement) {
            let code = Arc::new(Code::of(statement.text(), Quoting::Unknown));
            self.server.settings.temporaries.ran(code, before.as_ref());
            self.raise_watermark(self.now());
        }
        let quoting = self.server.settings.quoting();
        // MySQL counts permanent tables as well.
        let is_counted = !self.server.about.version.is_mariadb && begins(statement, "create table ");
        let locks = begins(statement, "lock table ") || begins(statement, "lock tables ");
        let sets = begins(statement, "set ") && !OTHER_SETS.iter().any(|words| begins(statement, words));
        let (settings, query) = (&mut self.server.settings, &statement.query);
        let (temporaries, template) = (&mut settings.temporaries, &query.template);
        let is_one = !failed && query.code().single().is_some();
        temporaries.counted.known += u64::from(is_one && is_counted);
        temporaries.counted.known_locks += u64::from(is_one && locks);
        temporaries.counted.known_sets += u64::from(is_one && sets);
        temporaries.named.sent(statement, quoting, source, error);
        if mark.makes_temporary() {
            let created = template.creates_temporary();
            if let Some(name) = created.filter(|_| !failed) {
                temporaries.created(&settings.schemas, name);
            }
            if mark.runs_stored_code() || created.is_none() {
                let executed = temporaries.named.run().cloned();
                if let Some(code) = &executed {
                    temporaries.defined(code);
                }
                temporaries.ran(executed.unwrap_or_else(|| query.code().clone()), before.as_ref());
            }
        }
        if mark.effect >= Effect::Definition && !temporaries.are_none() {
            if !failed {
                temporaries.dropped(&settings.schemas, template.drops());
            }
            if query.code().words().any(|word| word == "rename") {
                temporaries.renamed(query.code());
            }
        }
    }

    /// Code was run, and it is not yet known which tables it has made, or it may have made any.
    pub(crate) fn undecided(&mut self) -> Option<Reason> {
        self.judge_pending().err()
    }

    fn judge_pending(&mut self) -> Result<(), Reason> {
        let settings = &mut self.server.settings;
        settings.one_shot |= std::mem::take(&mut settings.temporaries.sets_next);
        if !settings.temporaries.pending.is_empty() {
            let catalog = self.shared.catalog.load_full();
            if !self.shared.cache.reflects(self.watermark.get(), catalog.version) {
                return Err(Reason::Watermark);
            }
            if catalog.stored_code.has_unread {
                return Err(Reason::CatalogStale);
            }
            settings.temporaries.judge(&catalog);
            settings.one_shot |= std::mem::take(&mut settings.temporaries.sets_next);
        }
        if settings.one_shot {
            return Err(Reason::InTransaction);
        }
        if settings.temporaries.may_be_any() { Err(Reason::MayHaveTemporary) } else { Ok(()) }
    }

    /// The reason for which a result of this query must not be served or cached because of temporary tables.
    pub(crate) fn reads_temporary(&mut self, query: &NormalizedQuery) -> Result<(), Reason> {
        if self.server.settings.temporaries.are_none() {
            return Ok(());
        }
        self.judge_pending()?;
        let Known::Context(context, known_under) = &self.server.settings.known else {
            return Err(Reason::SettingsUnknown);
        };
        let catalog = self.shared.catalog.load();
        if catalog.version != *known_under {
            return Err(Reason::CatalogStale);
        }
        let temporaries = &self.server.settings.temporaries;
        if temporaries.tables.is_empty() {
            return Ok(());
        }
        match &query.resolve(&catalog, context).read_set {
            Ok(read_set) if read_set.names(&catalog, |name| temporaries.hide(name)) => Err(Reason::TemporaryTables),
            Ok(_) => Ok(()),
            Err(reason) => Err(reason.clone()),
        }
    }

    /// The code of a text that is not analysed.
    pub(crate) fn unread(&self, text: &[u8]) -> Arc<Code> {
        let known = self.server.settings.can_read(text);
        let quoting =
            if known { Quoting::Known(self.server.settings.reading.modes().quotes()) } else { Quoting::Unknown };
        Arc::new(Code::of(text, quoting))
    }
}
