//! The registry of statements, each analysed once.
//!
//! Parsing costs as much as a thousand look-ups, so nothing is parsed twice: a text is lexed once, its normalized query (the text without its
//! literals) is parsed once, and a normalized query is resolved once for each catalogue and search path. A hit needs none of this: its key consists
//! of the text, or of the statement's number and the bytes of `Bind`.
//!
//! Both maps are bounded in bytes. A text that was dropped gets a new number when it is seen again, so entries under the old number are no longer
//! found and are evicted over time.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use freshet_sql::{Admin, Effect, Lexed, Literal, LiteralKind, Modes, ReadSet, Template};
use freshet_types::{Catalog, Dialect, Reason, TableId};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rapidhash::quality::RandomState;

use crate::rules::{Hint, Subject};

mod exclusions;
mod facts_at_first_use;
mod figures;
mod found_rows;
mod queries;
mod resolutions;
mod results;
mod says;
mod state_left;
mod tracking;

use exclusions::Exclusions;
use facts_at_first_use::FactsAtFirstUse;
pub(crate) use figures::StatementFigures;
pub(crate) use found_rows::{Finds, Leaves};
use queries::Queries;
use resolutions::Resolution;
use says::Says;
pub(crate) use says::{OfPrepared, reads_sequence, unaskable};
pub(crate) use state_left::StateLeft;
pub(crate) use tracking::Tracking;

/// Bytes of a text or a normalized query in addition to its text.
const OVERHEAD_BYTES: usize = 1024;
/// Bytes of a literal in addition to its text.
const LITERAL_BYTES: usize = 56;
/// Limits of the memory for texts, and for normalized queries.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);
/// Statements with longer texts pass without analysis.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// A statement without its literals.
#[derive(Debug)]
pub(crate) struct NormalizedQuery {
    pub(crate) digest: u64,
    pub(crate) text: Box<str>,
    pub(crate) template: Template,
    pub(crate) figures: StatementFigures,
    exclusions: Exclusions,
    /// MySQL and MariaDB: a SELECT, with or without parentheses.
    pub(crate) selects: bool,
    /// PostgreSQL: a query or a change of rows, which takes a snapshot.
    pub(crate) takes_snapshot: bool,
    at_first_use: FactsAtFirstUse,
    /// It has moving limits under some catalogue: see [`crate::session::moving`].
    pub(crate) moves: AtomicBool,
    resolutions: Mutex<Vec<Resolution>>,
    charge: Charge,
}

/// The analysis of a normalized query with one catalogue and context.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Its effect.
    pub(crate) effect: Effect,
    /// Its dependencies, or why it is not cached.
    pub(crate) read_set: Result<Arc<ReadSet>, Reason>,
    /// Its effects on a session.
    pub(crate) marks: Marks,
    /// See [`Template::written`].
    pub(crate) written: Option<Arc<[TableId]>>,
}

/// The effects of a statement of MySQL or MariaDB on a session, with one catalogue and schemas.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Marks {
    /// See [`Template::takes_snapshot`].
    pub(crate) takes_snapshot: bool,
    /// See [`Template::keeps_settings`].
    pub(crate) keeps_settings: bool,
    /// See [`Template::makes_temporary`].
    pub(crate) makes_temporary: bool,
    /// See [`Template::runs_stored_code`].
    pub(crate) runs_stored_code: bool,
}

impl Marks {
    pub(crate) fn of(template: &Template, catalog: &Catalog, schemas: &[Arc<str>]) -> Self {
        Self {
            takes_snapshot: template.takes_snapshot(catalog, schemas),
            keeps_settings: template.keeps_settings(catalog, schemas),
            makes_temporary: template.makes_temporary(catalog, schemas),
            runs_stored_code: template.runs_stored_code(catalog, schemas),
        }
    }
}

impl NormalizedQuery {
    fn new((dialect, trusts): (Dialect, bool), lexed: &Lexed, total: &Arc<AtomicU64>) -> Self {
        let word = first_word(lexed.normalized.trim_start_matches('(')).to_ascii_lowercase();
        let reads = matches!(word.as_str(), "select" | "with" | "values" | "table");
        let parse = if trusts { Template::parse_trusting } else { Template::parse };
        let template = parse(dialect, &lexed.normalized);
        let bytes = OVERHEAD_BYTES + size_of::<StatementFigures>() + lexed.normalized.len() + template.bytes();
        Self {
            digest: lexed.digest,
            template,
            text: lexed.normalized.as_str().into(),
            selects: word == "select",
            takes_snapshot: reads || matches!(word.as_str(), "insert" | "update" | "delete" | "merge"),
            figures: StatementFigures::default(),
            exclusions: Exclusions::default(),
            at_first_use: FactsAtFirstUse::default(),
            moves: AtomicBool::new(false),
            resolutions: Mutex::default(),
            charge: Charge::new(bytes, total),
        }
    }

    /// What rules look at. `hint`: what a statement says itself.
    pub(crate) fn subject(&self, hint: Option<Hint>) -> Subject<'_> {
        Subject { digest: self.digest, text: &self.text, candidates: &self.exclusions.candidates, hint }
    }

    /// Its digest in hexadecimal, as it is shown.
    pub(crate) fn digest_text(&self) -> String {
        format!("{:016x}", self.digest)
    }

    /// It will not be cached any more.
    pub(crate) fn disable(&self) {
        self.exclusions.disabled.store(true, Relaxed);
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.exclusions.disabled.load(Relaxed)
    }

    /// Whether caching is suspended for it, and this execution is not looked up.
    pub(crate) fn skips_look_up(&self) -> bool {
        self.figures.worth.skips_look_up(|| self.figures.passed.load(Relaxed))
    }

    /// Its size in bytes, estimated.
    fn bytes(&self) -> usize {
        self.charge.bytes
    }
}

/// Bytes of one statement or normalized query, counted as long as it is in memory.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    total_bytes: Arc<AtomicU64>,
    /// See [`queries`].
    is_pinned: AtomicBool,
}

impl Charge {
    fn new(bytes: usize, total: &Arc<AtomicU64>) -> Self {
        total.fetch_add(bytes as u64, Relaxed);
        Self { bytes, total_bytes: total.clone(), is_pinned: AtomicBool::new(false) }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.total_bytes.fetch_sub(self.bytes as u64, Relaxed);
    }
}

/// A statement's text.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Its number, which is never reused for another text or other declared types.
    pub(crate) id: u64,
    /// The text; then, behind a zero byte, the declared types or the modes, if there are any, and a mark if it was read in another way.
    key: Arc<[u8]>,
    text_bytes: usize,
    /// The modes by which it was read.
    pub(crate) modes: Modes,
    pub(crate) query: Arc<NormalizedQuery>,
    pub(crate) literals: Vec<Literal>,
    /// See [`Lexed::places`].
    pub(crate) places: Vec<(u32, u32)>,
    pub(crate) own_params: u16,
    charge: Charge,
    /// Bytes of the normalized query that it keeps in memory, if it was its first statement.
    query_bytes: usize,
    /// Four bytes for each type declared in `Parse`.
    pub(crate) types: Box<[u8]>,
    /// The text has ASCII characters only, so that its encoding does not matter.
    pub(crate) ascii: bool,
    /// It is a statement for Freshet itself.
    pub(crate) admin: Option<Result<Admin, String>>,
    /// It is one, or it does more than read, or it is never cached: its key is in no cache.
    pub(crate) is_never_cached: bool,
    /// PostgreSQL's.
    pub(crate) says: Says,
}

impl Statement {
    pub(crate) fn text(&self) -> &[u8] {
        self.key.get(..self.text_bytes).unwrap_or_default()
    }

    /// What rules look at.
    pub(crate) fn subject(&self) -> Subject<'_> {
        self.query.subject(Hint::behind(self.text()))
    }

    /// The string constant that stands for a parameter of the normalized query.
    pub(crate) fn constant(&self, number: u32) -> Option<&[u8]> {
        let at = (number as usize).checked_sub(1 + usize::from(self.own_params))?;
        self.literals.get(at).filter(|literal| literal.kind == LiteralKind::String).map(|literal| &*literal.text)
    }
}

/// All statements.
#[derive(Debug)]
pub(crate) struct Registry {
    dialect: Dialect,
    /// See [`Template::parse_trusting`].
    trusts: bool,
    texts: Cache<Arc<[u8]>, Arc<Statement>, ByBytes, RandomState>,
    queries: Queries,
    next_id: AtomicU64,
    /// See [`Registry::bytes`].
    total_bytes: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Arc<[u8]>, Arc<Statement>> for ByBytes {
    fn weight(&self, _key: &Arc<[u8]>, statement: &Arc<Statement>) -> u64 {
        (statement.charge.bytes + statement.query_bytes) as u64
    }
}

/// The limit for texts, or for normalized queries.
fn bytes_max(memory_bytes: u64) -> u64 {
    (memory_bytes / 8).clamp(*MEMORY_BYTES.start(), *MEMORY_BYTES.end())
}

/// The first word of a statement without its comments.
pub(crate) fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.bytes().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

impl Registry {
    /// The registry with an eighth of the cache's memory each for texts and normalized queries, within limits.
    pub(crate) fn new(memory_bytes: u64, dialect: Dialect) -> Self {
        let bytes = bytes_max(memory_bytes);
        let items = usize::try_from(bytes).unwrap_or(usize::MAX) / (4 * OVERHEAD_BYTES);
        Self {
            dialect,
            trusts: false,
            texts: Cache::with(items, bytes, ByBytes, RandomState::new(), DefaultLifecycle::default()),
            queries: Queries::new(items, bytes),
            next_id: AtomicU64::new(1),
            total_bytes: Arc::default(),
        }
    }

    /// Whether functions declared immutable may be trusted.
    pub(crate) fn trusting(self, trusts: bool) -> Self {
        Self { trusts, ..self }
    }

    /// The cache's memory has changed.
    pub(crate) fn set_memory(&self, memory_bytes: u64) {
        self.texts.set_capacity(bytes_max(memory_bytes));
        self.queries.set_capacity(bytes_max(memory_bytes));
    }

    /// Bytes of statements and normalized queries in memory, each counted once, whatever refers to it.
    pub(crate) fn bytes(&self) -> u64 {
        self.total_bytes.load(Relaxed)
    }

    /// The statement of a text and its declared types; None if it is too long or not UTF-8.
    pub(crate) fn statement(&self, text: &[u8], types: &[u8]) -> Result<Arc<Statement>, Reason> {
        self.statement_of(text, types, false)
    }

    /// The same. `escapes`: a backslash in a string constant is an escape (PostgreSQL, `standard_conforming_strings = off`).
    pub(crate) fn statement_of(&self, text: &[u8], types: &[u8], escapes: bool) -> Result<Arc<Statement>, Reason> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Reason::TooLong);
        }
        let escapes = escapes && text.contains(&b'\\');
        if types.is_empty() && !escapes {
            return self.lookup(text, text, (types, Modes::NONE, false));
        }
        let mut key = Vec::with_capacity(text.len() + types.len() + 2);
        key.extend_from_slice(text);
        key.push(0); // no text has a zero byte
        key.extend_from_slice(types);
        if escapes {
            key.push(b'E'); // types have four bytes
        }
        self.lookup(&key, text, (types, Modes::NONE, escapes))
    }

    /// The same for a session of MySQL or MariaDB with these quoting modes.
    pub(crate) fn statement_under(&self, modes: Modes, text: &[u8]) -> Result<Arc<Statement>, Reason> {
        let modes = modes.within(text);
        if text.len() > TEXT_BYTES_MAX {
            return Err(Reason::TooLong);
        }
        // No UTF-8 text has such a byte.
        if text.last().is_some_and(|last| *last >= 0xf8) {
            return Err(Reason::NotParsed);
        }
        if modes == Modes::NONE {
            return self.lookup(text, text, (&[], modes, false));
        }
        let mut key = [text, &[0]].concat();
        if let Some(version) = modes.version {
            key.extend_from_slice(format!("{}{}", u8::from(version.is_mariadb), version.number).as_bytes());
        }
        key.extend(modes.pipes_concat.map(|concat| if concat { b'|' } else { b'o' }));
        key.push(0xf8 | u8::from(modes.ansi_quotes) | u8::from(modes.plain_backslash) << 1);
        self.lookup(&key, text, (&[], modes, false))
    }

    fn lookup(&self, key: &[u8], text: &[u8], read: (&[u8], Modes, bool)) -> Result<Arc<Statement>, Reason> {
        if let Some(found) = self.texts.get(key) {
            return Ok(found);
        }
        let (types, modes, escapes) = read;
        let text_bytes = text.len();
        let (text, is_as_sent) = match std::str::from_utf8(text) {
            Ok(text) => (Cow::Borrowed(text), true),
            Err(_) if self.dialect == Dialect::Postgres => return Err(Reason::NotParsed),
            Err(_) => (freshet_sql::without_raw_bytes(modes, text).ok_or(Reason::NotParsed)?.into(), false),
        };
        let text = &*text;
        let mut lexed = if escapes {
            freshet_sql::lex(self.dialect, &freshet_sql::with_escapes_marked(text))
        } else {
            freshet_sql::lex_under(self.dialect, modes, text)
        };
        if escapes || !is_as_sent {
            // Positions in another text do not apply to this one.
            lexed.places = Vec::new();
        }
        let (query, new) = self.query(&lexed);
        // A text keeps its normalized query in memory, so the first text of a normalized query is charged for it.
        let query_bytes = if new { query.bytes() } else { 0 };
        let literal_bytes: usize = lexed.literals.iter().map(|literal| LITERAL_BYTES + literal.text.len()).sum();
        let bytes = OVERHEAD_BYTES + key.len() + types.len() + literal_bytes;
        let key: Arc<[u8]> = key.into();
        let admin = freshet_sql::admin(self.dialect, text);
        let template = &query.template;
        let may_read = template.effect() == Effect::Pure || template.may_be_trusted();
        let reads = may_read && template.deallocates().is_none();
        let is_never_cached = admin.is_some() || !reads || template.refusal().is_some();
        let statement = Arc::new(Statement {
            key: key.clone(),
            text_bytes,
            modes,
            id: self.next_id.fetch_add(1, Relaxed),
            query,
            charge: Charge::new(bytes, &self.total_bytes),
            query_bytes,
            admin,
            is_never_cached,
            own_params: lexed.own_params,
            literals: lexed.literals,
            places: lexed.places,
            types: types.into(),
            ascii: text.is_ascii(),
            says: if self.dialect == Dialect::Postgres { Says::of(text) } else { Says::default() },
        });
        self.texts.insert(key, statement.clone());
        Ok(statement)
    }

    /// The normalized query, and whether it is new.
    fn query(&self, lexed: &Lexed) -> (Arc<NormalizedQuery>, bool) {
        if let Some(found) = self.queries.get(lexed.normalized.as_str()) {
            return (found, false);
        }
        let query = Arc::new(NormalizedQuery::new((self.dialect, self.trusts), lexed, &self.total_bytes));
        self.queries.insert(query.clone());
        (query, true)
    }

    /// The normalized query with this digest.
    pub(crate) fn with_digest(&self, digest: u64) -> Option<Arc<NormalizedQuery>> {
        self.each_query().find(|query| query.digest == digest)
    }

    /// All normalized queries, in any order.
    pub(crate) fn each_query(&self) -> impl Iterator<Item = Arc<NormalizedQuery>> {
        self.queries.iter().map(|(_, query)| query)
    }

    /// Normalized queries that were evicted.
    pub(crate) fn queries_evicted(&self) -> u64 {
        self.queries.evicted()
    }

    /// All normalized queries, most used first.
    pub(crate) fn queries(&self) -> Vec<Arc<NormalizedQuery>> {
        let mut all: Vec<Arc<NormalizedQuery>> = self.each_query().collect();
        all.sort_by_key(|query| std::cmp::Reverse(query.figures.calls()));
        all
    }
}

#[cfg(test)]
mod tests;
