//! A statement's shape, parsed once: what it may do, and its syntax tree if it may be cacheable.
//!
//! The first word decides for everything but queries. Only queries are given to the SQL parser, with every string
//! constant it might read differently than the server replaced, and within bounds on length and depth: its tree
//! is walked and dropped recursively.

use std::sync::Arc;

use freshet_types::{Catalog, Dialect, Reason, RelationKind, Table};
use sqlparser::ast::{ObjectName, ObjectNamePart, Query, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use crate::Footprint;
use crate::allowlist::types;
use crate::allowlist::visitor::Survey;
use crate::analyze::Walk;
use crate::analyze::disjunctions::has_branches;
use crate::analyze::views::{add_views, effect_of_views};
use crate::dependency::derived_limit;
use crate::dependency::read_set::Parameter;
use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::predicate::parameters::Client;
use crate::statement::effect::{Defines, Effect, together};
use crate::statement::mysql::facts::{self, Facts, Snapshot};
use crate::statement::mysql::{self, certain_read};
use crate::statement::parser_bounds::{NESTING_MAX, is_too_long};
use crate::statement::transaction::Bracket;
use crate::statement::{show_setting, write_effects};

/// PostgreSQL cuts longer identifiers (`NAMEDATALEN - 1`), so that two spellings may mean one name.
pub(crate) const NAME_LEN_MAX: usize = 63;

/// A parsed shape. The caller keeps it per shape.
#[derive(Debug)]
pub struct Template {
    pub(crate) effect: Effect,
    /// PostgreSQL.
    pub(crate) defines: Defines,
    pub(crate) verdict: Result<Box<Parsed>, Reason>,
    pub(crate) survey: Survey,
    /// See [`Template::deallocates`].
    pub(crate) deallocates: Option<Box<str>>,
    /// See [`Template::bracket`].
    pub(crate) bracket: Option<Bracket>,
    /// See [`Template::asks_for_data`].
    pub(crate) asks_for_data: bool,
    /// PostgreSQL: what a write calls by name, if that may be all that it runs.
    pub(crate) calls: Option<Box<[Box<str>]>>,
    /// PostgreSQL: the relation that such a write names.
    pub(crate) target: Option<write_effects::Target>,
    /// MySQL and MariaDB.
    pub(crate) facts: Facts,
    pub(crate) dialect: Dialect,
}

/// What a statement of MySQL's dialect asks of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// `SQL_CACHE`
    Cache,
    /// `SQL_NO_CACHE`
    NoCache,
}

/// A query that may be cacheable.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) query: Query,
    /// Names and keywords in the text: each may be a name in the tree.
    pub(crate) words: usize,
    /// A string constant that stayed in the shape contains a word such as `today`, or cannot be read here.
    pub(crate) clock_text: bool,
    /// PostgreSQL: one that stayed may be a time without an offset.
    pub(crate) time_text: bool,
}

impl Template {
    /// Parses a shape. Never fails: a text that is not understood is given its strongest possible effect.
    pub fn parse(dialect: Dialect, shape: &str) -> Self {
        let mut statements: Vec<Vec<Token<'_>>> = Vec::new();
        let mut current = Vec::new();
        for token in Tokens::of(dialect, shape) {
            if token.kind == Kind::Symbol(b';') {
                statements.push(std::mem::take(&mut current));
            } else {
                current.push(token);
            }
        }
        statements.push(current);
        statements.retain(|tokens| !tokens.is_empty());
        if dialect.is_mysql_family() {
            return Self { dialect, ..mysql::template(&statements) };
        }
        match statements.as_slice() {
            [] => Self::passing(Effect::Pure, Reason::NotSelect),
            [tokens] => match deallocated(tokens) {
                // It does nothing but end that one statement.
                Some(name) => Self { deallocates: Some(name), ..Self::passing(Effect::Pure, Reason::NotSelect) },
                None => show_setting::template(tokens).unwrap_or_else(|| Self::statement(tokens)),
            },
            several => {
                let parts: Vec<Self> = several.iter().map(|tokens| Self::statement(tokens)).collect();
                let bracket = parts.iter().any(|part| part.bracket.is_some()).then_some(Bracket::Other);
                let effect = parts.iter().map(|part| part.effect).reduce(together).unwrap_or(Effect::Forgets);
                let defines = parts.iter().map(|part| part.defines).max().unwrap_or_default();
                Self { defines, bracket, asks_for_data: true, ..Self::passing(effect, Reason::SeveralStatements) }
            }
        }
    }

    /// Bytes it holds, about, and rather too many (measured on long lists of each kind).
    pub fn bytes(&self) -> usize {
        let survey = &self.survey;
        let names = survey.relations.len() + survey.made.len() + survey.functions.len() + survey.operators.len();
        let counts = survey.counts;
        let tree = self.verdict.as_ref().map_or(0, |parsed| {
            let blocks = 6_000 * counts.queries + 12_500 * counts.selects;
            blocks + 3_500 * counts.table_factors + 1_800 * counts.exprs + 500 * parsed.words
        });
        2_048 + 512 * names + tree + self.facts.bytes()
    }

    /// The prepared statement that it ends: `DEALLOCATE name`.
    pub fn deallocates(&self) -> Option<&str> {
        self.deallocates.as_deref()
    }

    /// It names relations, so that what it calls depends on views and policies.
    pub fn names_relations(&self) -> bool {
        !self.survey.relations.is_empty()
    }

    /// What it does to the transaction block; None: nothing.
    pub fn bracket(&self) -> Option<Bracket> {
        self.bracket
    }

    /// The server may ask for more before it says that it is ready: COPY, alone or among others.
    pub fn asks_for_data(&self) -> bool {
        self.asks_for_data
    }

    /// MySQL and MariaDB: `SQL_CACHE` or `SQL_NO_CACHE`.
    pub fn hint(&self) -> Option<Hint> {
        self.facts.hint
    }

    /// MySQL and MariaDB: its answer may depend on the statement before it: FOUND_ROWS, ROW_COUNT, the warnings. True for
    /// all that is not understood and for stored code.
    pub fn reads_diagnostics(&self) -> bool {
        self.facts.reads_diagnostics || self.facts.stored_code
    }

    /// MySQL and MariaDB: `SQL_CALC_FOUND_ROWS`. Whoever asks so asks for `FOUND_ROWS()` next, which is then the number of
    /// rows without LIMIT.
    pub fn counts_found_rows(&self) -> bool {
        self.facts.counts_found_rows
    }

    /// PostgreSQL: the numbers of the parameters that name settings which it reads (`current_setting`).
    pub fn settings(&self) -> &[u32] {
        &self.survey.settings
    }

    /// It leaves open which rows its answer shows: LIMIT without ORDER BY, its own or in FROM.
    pub fn leaves_rows_open(&self) -> bool {
        self.verdict.as_ref().is_ok_and(|parsed| derived_limit::leave_rows_open(&parsed.query))
    }

    /// MySQL and MariaDB: run in a REPEATABLE READ transaction without a snapshot, it takes one if it returns a row (a
    /// SELECT that must have read a base table), or at once (`START TRANSACTION WITH CONSISTENT SNAPSHOT`, which is the
    /// only one with a [`Self::bracket`]).
    pub fn takes_snapshot(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let base_table = |name| facts::resolve(catalog, schemas, name).is_some_and(|t| t.kind == RelationKind::Table);
        match &self.facts.snapshot {
            Snapshot::AtOnce => true,
            Snapshot::Reading(name) => base_table(name),
            Snapshot::Unknown => false,
        }
    }

    /// MySQL and MariaDB: the same, with these parameters, if it returns no row. `sql_select_limit` is not 0.
    pub fn surely_takes_snapshot(
        &self,
        catalog: &Catalog,
        schemas: &[Arc<str>],
        params: &[Parameter<'_>],
        client: Client,
    ) -> bool {
        let (Snapshot::Reading(name), Ok(parsed)) = (&self.facts.snapshot, &self.verdict) else { return false };
        let table = facts::resolve(catalog, schemas, name);
        let table = table.filter(|table| table.kind == RelationKind::Table && !table.capacities.is_empty());
        table.is_some_and(|table| certain_read::reads(&parsed.query, table, params, client))
    }

    /// MySQL and MariaDB: the session may have more temporary tables after it: `CREATE TEMPORARY TABLE`, and what
    /// [runs stored code](Self::runs_stored_code).
    pub fn makes_temporary(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        self.facts.temporary || self.runs_stored_code(catalog, schemas)
    }

    /// MySQL and MariaDB: the temporary table that this single statement creates.
    pub fn creates_temporary(&self) -> Option<&facts::Name> {
        self.facts.creates.as_ref()
    }

    /// MySQL and MariaDB: the tables that this single statement drops, temporary ones before others.
    pub fn drops(&self) -> &[facts::Name] {
        &self.facts.drops
    }

    /// MySQL and MariaDB: the table by which [`Self::takes_snapshot`] decides.
    pub fn reads_first(&self) -> Option<&str> {
        match &self.facts.snapshot {
            Snapshot::Reading((_, name)) => Some(name),
            Snapshot::AtOnce | Snapshot::Unknown => None,
        }
    }

    /// MySQL and MariaDB: it runs code that is not in its text, or may: CALL, EXECUTE, stored functions, triggers, what is not
    /// understood.
    pub fn runs_stored_code(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> bool {
        let only_reads =
            |view: &Arc<Table>| effect_of_views(self.dialect, std::slice::from_ref(view), catalog) == Effect::Pure;
        self.facts.runs_stored_code(catalog, schemas, only_reads)
    }

    /// Why it is never cached, under any catalogue; None: it depends.
    pub fn refusal(&self) -> Option<&Reason> {
        self.verdict.as_ref().err()
    }

    /// See [`built_in_first`]; MySQL's native functions always do.
    pub(crate) fn built_in_first(&self, schemas: &[Arc<str>]) -> bool {
        self.dialect.is_mysql_family() || built_in_first(schemas)
    }

    /// The tables and predicates the statement depends on under this catalogue and search path
    /// (`current_schemas(true)`), or why it is not cached. Valid for this catalogue version and search path only.
    pub fn resolve(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Result<Footprint, Reason> {
        let mut footprint = self.resolve_but_views(catalog, schemas, true)?;
        add_views(self.dialect, &mut footprint, catalog)?;
        footprint.refuse_completed_times()?;
        Ok(footprint)
    }

    /// The same, without what the views in it read, but for those that are walked where their names stand, if any are.
    pub(crate) fn resolve_but_views(
        &self,
        catalog: &Catalog,
        schemas: &[Arc<str>],
        opens_views: bool,
    ) -> Result<Footprint, Reason> {
        let parsed = self.verdict.as_ref().map_err(Clone::clone)?;
        if !self.built_in_first(schemas) {
            return Err(Reason::Construct("a search_path that puts other schemas before pg_catalog"));
        }
        let walked = |splits: bool| {
            let mut walk = Walk::new(self.dialect, catalog, schemas);
            walk.views.are_opened = opens_views;
            walk.splits = splits;
            walk.handled.add(&self.survey);
            walk.query(&parsed.query)?;
            if walk.counts != self.survey.counts {
                return Err(Reason::Construct("a construct that is not analysed"));
            }
            // Who counts the rows that LIMIT leaves out asks for all of them.
            if self.facts.counts_found_rows {
                walk.cut = None;
                walk.paged.clear();
                walk.keyed.clear();
                walk.moving.clear();
            }
            walk.into_footprint(parsed)
        };
        let whole = walked(false)?;
        types::user_defined(catalog, &self.survey)?;
        if !has_branches(&parsed.query) {
            return Ok(whole);
        }
        let open = whole.unbounded();
        let split = Some(()).filter(|()| !open.is_empty()).map(|()| walked(true)).transpose()?;
        let better = |split: &Footprint| split.unbounded().is_subset(&open) && split.unbounded() != open;
        Ok(split.filter(better).unwrap_or(whole))
    }

    pub(crate) fn passing(effect: Effect, reason: Reason) -> Self {
        let asks_for_data = effect == Effect::Forgets;
        let (survey, deallocates, bracket, facts) = (Survey::default(), None, None, Facts::default());
        let verdict = Err(reason);
        let (defines, dialect) = (Defines::of(&[], effect), Dialect::Postgres);
        let (calls, target) = (None, None);
        Self { effect, defines, verdict, survey, deallocates, bracket, asks_for_data, calls, target, facts, dialect }
    }

    fn statement(tokens: &[Token<'_>]) -> Self {
        let word = |at: usize| match tokens.get(at) {
            Some(Token { kind: Kind::Word, text, .. }) => *text,
            _ => "",
        };
        let brackets = tokens.iter().take_while(|token| token.kind == Kind::Symbol(b'(')).count();
        let effect = match (brackets, word(brackets)) {
            (_, "select" | "with" | "values" | "table") => return Self::read(tokens),
            (1.., _) => Effect::Forgets,
            (_, "commit" | "rollback") if word(1) == "prepared" => Effect::Write,
            (_, "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release") => {
                Effect::TransactionControl
            }
            (_, "prepare") if word(1) == "transaction" => Effect::TransactionControl,
            // PREPARE ends no other statement; reading its constants may run anything.
            (
                _,
                "insert" | "update" | "delete" | "merge" | "copy" | "truncate" | "lock" | "execute" | "declare"
                | "fetch" | "move" | "explain" | "prepare",
            ) => Effect::Write,
            (_, "notify" | "listen" | "unlisten" | "close") => Effect::Signal,
            (_, "set" | "reset") => Effect::Settings,
            (_, "show") => Effect::Pure,
            (
                _,
                "create" | "alter" | "drop" | "grant" | "revoke" | "comment" | "analyze" | "vacuum" | "reindex"
                | "refresh" | "cluster" | "checkpoint" | "reassign" | "do" | "call",
            ) => Effect::Definition,
            _ => Effect::Forgets,
        };
        let bracket = match effect {
            Effect::TransactionControl => Some(Bracket::read(tokens)),
            // What was prepared by the protocol may be COMMIT, too.
            _ => (word(brackets) == "execute").then_some(Bracket::Other),
        };
        let mut passing = Self::passing(effect, Reason::NotSelect);
        // Behind LISTEN a program reads what it is not going to be notified of.
        passing.survey.tells = word(brackets) == "listen";
        let calls = (effect == Effect::Write).then(|| write_effects::calls(tokens)).flatten();
        let words: Vec<&str> = (0..tokens.len()).map(word).collect();
        passing.defines =
            if makes_plain_index(tokens, &words) { Defines::Nothing } else { Defines::of(&words, effect) };
        let target = calls.as_ref().and_then(|_| write_effects::target(tokens));
        Self { bracket, calls, target, asks_for_data: passing.asks_for_data || word(brackets) == "copy", ..passing }
    }

    /// A query. What is not understood of it may write, but nothing worse: no query ends a prepared statement.
    fn read(tokens: &[Token<'_>]) -> Self {
        if is_too_long(Dialect::Postgres, tokens) {
            return Self::passing(Effect::Write, Reason::TooLong);
        }
        let unreadable = |token: &Token<'_>| match token.kind {
            Kind::Hopeless => true,
            Kind::Word => token.text.len() > NAME_LEN_MAX,
            Kind::Quoted => {
                token.text.len() > NAME_LEN_MAX + 2 || token.text.len() == 2 || token.text.contains('\u{1}')
            }
            _ => false,
        };
        if tokens.iter().any(unreadable) {
            return Self::passing(Effect::Write, Reason::NotParsed);
        }
        let Some(query) = parse_query(tokens) else {
            return Self::passing(
                Effect::Write,
                if locks_rows(tokens) { Reason::LocksRows } else { Reason::NotParsed },
            );
        };
        let survey = Survey::of(Dialect::Postgres, &query);
        let effect = survey.effect;
        let verdict = survey.reason.clone().map_or_else(|| Ok(Parsed::of(query, tokens)), Err);
        Self { verdict, survey, ..Self::passing(effect, Reason::NotParsed) }
    }
}

/// Stands in front of the name of a relation behind ONLY, which the parser does not know. A text that has its first
/// character in a name is not analysed, so nothing else is taken for it.
const ONLY: &str = "\u{1}only";

/// The parts of a relation's name, and whether ONLY stood before it: the relation without its children.
pub(crate) fn without_only(name: &ObjectName) -> (&[ObjectNamePart], bool) {
    match name.0.split_first() {
        Some((first, rest)) if first.as_ident().is_some_and(|ident| ident.value == ONLY) => (rest, true),
        _ => (&name.0, false),
    }
}

/// The relation that a name means; None also for names of more than two parts.
pub(crate) fn table<'a>(catalog: &'a Catalog, schemas: &[Arc<str>], name: &ObjectName) -> Option<&'a Arc<Table>> {
    let (parts, _) = without_only(name);
    let ident = |at: usize| parts.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match parts.len() {
        1 => catalog.resolve(schemas.iter().map(|schema| &**schema), ident(0)?),
        2 => catalog.in_schema(ident(0)?, ident(1)?),
        _ => None,
    }
}

/// The name in `DEALLOCATE [PREPARE] name`; None also for ALL and where the server might read another name.
fn deallocated(tokens: &[Token<'_>]) -> Option<Box<str>> {
    let is_word = |token: &Token<'_>, word| token.kind == Kind::Word && token.text == word;
    let name = match tokens {
        [first, name] if is_word(first, "deallocate") => name,
        [first, prepare, name] if is_word(first, "deallocate") && is_word(prepare, "prepare") => name,
        _ => return None,
    };
    let plain = match name.kind {
        Kind::Word if name.text != "all" => name.text.into(),
        Kind::Quoted => name.text.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\""),
        _ => return None,
    };
    (plain.is_ascii() && plain.len() <= NAME_LEN_MAX).then(|| plain.into())
}

/// Whether built-in types, functions and operators come before all others (temporary schemas hold neither functions
/// nor operators, and a statement that may name a temporary type is not cached: [`crate::Temporary`]).
fn built_in_first(schemas: &[Arc<str>]) -> bool {
    schemas.iter().find(|schema| !schema.starts_with("pg_temp")).is_some_and(|schema| &**schema == "pg_catalog")
}

/// CREATE INDEX of columns alone. One with expressions or a condition runs what is in them for each later write.
fn makes_plain_index(tokens: &[Token<'_>], words: &[&str]) -> bool {
    let mut depth = 0;
    let mut nests = |token: &Token<'_>| {
        match token.kind {
            Kind::Symbol(b'(') => depth += 1,
            Kind::Symbol(b')') => depth -= 1,
            _ => {}
        }
        depth > 1
    };
    matches!(words, ["create", "index", ..] | ["create", "unique", "index", ..])
        && !words.contains(&"where")
        && !tokens.iter().any(&mut nests)
}

/// `FOR UPDATE` and its kin, for texts the parser does not understand.
fn locks_rows(tokens: &[Token<'_>]) -> bool {
    let locks = |second: &str| matches!(second, "update" | "no" | "share" | "key");
    tokens.windows(2).any(|pair| matches!(pair, [first, second] if first.text == "for" && locks(second.text)))
}

/// A string constant in the shape that may be folded to a clock reading if it reaches a date type.
pub(crate) fn clock_text(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::OpaqueText => without_escapes(token.text).is_none_or(|text| crate::analyze::clock::names_clock(&text)),
        Kind::Text => crate::analyze::clock::names_clock(token.text.as_bytes()),
        _ => false,
    }
}

/// The text of an `E'constant'` with a blank for each escape; None if one of them may be a letter, or it is another constant.
pub(crate) fn without_escapes(constant: &str) -> Option<Vec<u8>> {
    let inner = constant.strip_prefix(['e', 'E'])?.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut bytes = inner.bytes();
    let mut text = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        text.push(match (byte, byte == b'\\' || byte == b'\'') {
            (_, false) => byte,
            (b'\'', _) => bytes.next().filter(|next| *next == b'\'').map(|_| b' ')?,
            _ => bytes.next().filter(|next| matches!(next, b'\'' | b'"' | b'\\' | b'n' | b'r' | b't')).map(|_| b' ')?,
        });
    }
    Some(text)
}

/// Whether ONLY behind this token is the one of FROM, not that of FETCH FIRST.
fn precedes_relation(token: &Token<'_>) -> bool {
    matches!(token.kind, Kind::Symbol(b',' | b'('))
        || (token.kind == Kind::Word && matches!(token.text, "from" | "join"))
}

pub(crate) fn parse_query(tokens: &[Token<'_>]) -> Option<Query> {
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.spaced {
            text.push(' ');
        }
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        match token.kind {
            Kind::Word if token.text == "only" && before.is_some_and(precedes_relation) => {
                text.extend(["\"", ONLY, "\"."]);
            }
            // The parser need not agree with the server on where such a constant ends.
            Kind::OpaqueText => text.push_str(" '?'"),
            _ => text.push_str(token.text),
        }
    }
    let parser = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(NESTING_MAX);
    let mut statements = parser.try_with_sql(&text).ok()?.parse_statements().ok()?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Statement::Query(query)), true) => Some(*query),
        _ => None,
    }
}
