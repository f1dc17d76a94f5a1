//! A statement's shape, parsed once: what it may do, and its syntax tree if it may be cacheable.
//!
//! The first word decides for everything but queries. Only queries are given to the SQL parser, with every string
//! constant it might read differently than the server replaced, and within bounds on length and depth: its tree
//! is walked and dropped recursively.

use std::sync::Arc;

use freshet_model::{Catalog, Reason, RelationKind};
use sqlparser::ast::{ObjectName, Query, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use crate::Footprint;
use crate::scanner::{Kind, Scanner, Token};
use crate::survey::Survey;
use crate::walk::Walk;

/// Longest shape that is analysed, in bytes.
const SHAPE_LEN_MAX: usize = 16 << 10;
/// Tokens of one query that may each make its syntax tree one level deeper.
const DEPTH_MAX: usize = 500;
/// Nesting of brackets and sub-queries (the parser's own bound).
const NESTING_MAX: usize = 60;
/// PostgreSQL cuts longer identifiers (`NAMEDATALEN - 1`), so that two spellings may mean one name.
const NAME_LEN_MAX: usize = 63;

/// What a statement may do to the database or the session; roughly in the order of what it takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It only reads: every function in it is a known built-in without side effects.
    Pure,
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT` …
    TransactionControl,
    /// It may write or fire triggers: INSERT, UPDATE, DELETE, MERGE, COPY, a locking SELECT, unknown functions (which
    /// may also change settings or create temporary tables).
    Write,
    /// `SET`, `RESET`, `set_config`.
    Settings,
    /// It may change the catalogue and all that [`Self::Write`] and [`Self::Settings`] may, but ends no prepared
    /// statement by itself: DDL, ANALYZE, DO, CALL …
    Definition,
    /// Everything else and everything not understood: also prepared statements may be gone.
    Forgets,
}

/// A parsed shape. The caller keeps it per shape.
#[derive(Debug)]
pub struct Template {
    effect: Effect,
    verdict: Result<Box<Parsed>, Reason>,
    survey: Survey,
    /// See [`Template::deallocates`].
    deallocates: Option<Box<str>>,
}

/// A query that may be cacheable.
#[derive(Debug)]
struct Parsed {
    query: Query,
    /// Names and keywords in the text: each may be a name in the tree.
    words: usize,
    /// A string constant that stayed in the shape contains a word such as `today`, or cannot be read here.
    clock_text: bool,
}

impl Template {
    /// Parses a shape. Never fails: a text that is not understood is given its strongest possible effect.
    pub fn parse(shape: &str) -> Self {
        let mut statements: Vec<Vec<Token<'_>>> = Vec::new();
        let mut current = Vec::new();
        for token in Scanner::new(shape) {
            if token.kind == Kind::Symbol(b';') {
                statements.push(std::mem::take(&mut current));
            } else {
                current.push(token);
            }
        }
        statements.push(current);
        statements.retain(|tokens| !tokens.is_empty());
        match statements.as_slice() {
            [] => Self::passing(Effect::Pure, Reason::NotSelect),
            [tokens] => match deallocated(tokens) {
                // It does nothing but end that one statement.
                Some(name) => Self { deallocates: Some(name), ..Self::passing(Effect::Pure, Reason::NotSelect) },
                None => Self::statement(tokens),
            },
            several => {
                let mut effects = several.iter().map(|tokens| Self::statement(tokens).effect);
                let effect = effects.next().unwrap_or(Effect::Forgets);
                Self::passing(effects.fold(effect, together), Reason::SeveralStatements)
            }
        }
    }

    /// Bytes it holds, about, and rather too many (measured on long lists of each kind).
    pub fn bytes(&self) -> usize {
        let survey = &self.survey;
        let names = survey.relations.len() + survey.functions.len() + survey.operators.len();
        let counts = survey.counts;
        let tree = self.verdict.as_ref().map_or(0, |parsed| {
            let blocks = 6_000 * counts.queries + 12_500 * counts.selects;
            blocks + 3_500 * counts.table_factors + 1_800 * counts.exprs + 500 * parsed.words
        });
        2_048 + 512 * names + tree
    }

    /// The prepared statement that it ends: `DEALLOCATE name`.
    pub fn deallocates(&self) -> Option<&str> {
        self.deallocates.as_deref()
    }

    /// Why it is never cached, under any catalogue; None: it depends.
    pub fn refusal(&self) -> Option<&Reason> {
        self.verdict.as_ref().err()
    }

    /// What the statement may do, as far as its text says: views, policies and user-defined functions of built-in
    /// names are not seen. See [`Self::effect_in`].
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// What the statement may do under this catalogue and search path: a pure statement over a view, a foreign
    /// table, a table with policies or user-defined types, or a relation that is not known, may write.
    pub fn effect_in(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Effect {
        if self.effect != Effect::Pure {
            return self.effect;
        }
        let known_relation = |name: &ObjectName| match table(catalog, schemas, name) {
            Some(table) => {
                let plain = !matches!(table.kind, RelationKind::View | RelationKind::Foreign | RelationKind::Other);
                plain && !table.row_security && !table.user_types
            }
            None => self.survey.is_cte(name),
        };
        let harmless = built_in_first(schemas)
            && self.survey.relations.iter().all(known_relation)
            && !self.survey.functions.iter().any(|name| catalog.user_functions.contains(name.as_str()))
            && !self.survey.operators.iter().any(|symbol| catalog.user_operators.contains(symbol.as_str()));
        if harmless { Effect::Pure } else { Effect::Write }
    }

    /// The tables and predicates the statement depends on under this catalogue and search path
    /// (`current_schemas(true)`), or why it is not cached. Valid for this catalogue version and search path only.
    pub fn resolve(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Result<Footprint, Reason> {
        let parsed = self.verdict.as_ref().map_err(Clone::clone)?;
        if !built_in_first(schemas) {
            return Err(Reason::Construct("a search_path that puts other schemas before pg_catalog"));
        }
        let mut walk = Walk::new(catalog, schemas);
        walk.query(&parsed.query)?;
        if walk.counts != self.survey.counts {
            return Err(Reason::Construct("a construct that is not analysed"));
        }
        walk.into_footprint(parsed.clock_text)
    }

    fn passing(effect: Effect, reason: Reason) -> Self {
        Self { effect, verdict: Err(reason), survey: Survey::default(), deallocates: None }
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
                "insert" | "update" | "delete" | "merge" | "copy" | "truncate" | "lock" | "notify" | "execute"
                | "declare" | "fetch" | "move" | "close" | "explain" | "prepare" | "listen" | "unlisten",
            ) => Effect::Write,
            (_, "set" | "reset") => Effect::Settings,
            (_, "show") => Effect::Pure,
            (
                _,
                "create" | "alter" | "drop" | "grant" | "revoke" | "comment" | "analyze" | "vacuum" | "reindex"
                | "refresh" | "cluster" | "checkpoint" | "reassign" | "do" | "call",
            ) => Effect::Definition,
            _ => Effect::Forgets,
        };
        Self::passing(effect, Reason::NotSelect)
    }

    /// A query. What is not understood of it may write, but nothing worse: no query ends a prepared statement.
    fn read(tokens: &[Token<'_>]) -> Self {
        let text_len: usize = tokens.iter().map(|token| token.text.len() + 1).sum();
        if text_len > SHAPE_LEN_MAX || tokens.iter().filter(|t| deepens(t)).count() > DEPTH_MAX || nests(tokens) {
            return Self::passing(Effect::Write, Reason::TooLong);
        }
        let unreadable = |token: &Token<'_>| match token.kind {
            Kind::Hopeless => true,
            Kind::Word => token.text.len() > NAME_LEN_MAX,
            Kind::Quoted => token.text.len() > NAME_LEN_MAX + 2 || token.text.len() == 2,
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
        let survey = Survey::of(&query);
        let verdict = survey.reason.clone().map_or_else(
            || {
                let words = tokens.iter().filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted)).count();
                Ok(Box::new(Parsed { query, words, clock_text: tokens.iter().any(clock_text) }))
            },
            Err,
        );
        Self { effect: survey.effect, verdict, survey, deallocates: None }
    }
}

/// The relation that a name means; None also for names of more than two parts.
pub(crate) fn table<'a>(
    catalog: &'a Catalog,
    schemas: &[Arc<str>],
    name: &ObjectName,
) -> Option<&'a Arc<freshet_model::Table>> {
    let ident = |at: usize| name.0.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match name.0.len() {
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
/// nor operators, and sessions with temporary tables are not cached).
fn built_in_first(schemas: &[Arc<str>]) -> bool {
    schemas.iter().find(|schema| !schema.starts_with("pg_temp")).is_some_and(|schema| &**schema == "pg_catalog")
}

/// The effect of two statements in a row.
fn together(a: Effect, b: Effect) -> Effect {
    match (a, b) {
        (Effect::Pure, other) | (other, Effect::Pure) => other,
        (a, b) if a == b => a,
        (Effect::Forgets, _) | (_, Effect::Forgets) => Effect::Forgets,
        (Effect::Write | Effect::Settings, Effect::Write | Effect::Settings) => Effect::Settings,
        _ => Effect::Definition,
    }
}

/// Whether a token may make the syntax tree deeper without a bracket.
fn deepens(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Symbol(byte) => !matches!(byte, b',' | b'.' | b'(' | b')'),
        Kind::Word => matches!(
            token.text,
            "and"
                | "or"
                | "not"
                | "is"
                | "isnull"
                | "notnull"
                | "between"
                | "like"
                | "ilike"
                | "similar"
                | "in"
                | "collate"
                | "at"
                | "union"
                | "intersect"
                | "except"
                | "minus"
                | "escape"
                | "overlaps"
                | "array"
        ),
        _ => false,
    }
}

/// Whether brackets nest too deeply.
fn nests(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0usize;
    tokens.iter().any(|token| {
        match token.kind {
            Kind::Symbol(b'(' | b'[') => depth += 1,
            Kind::Symbol(b')' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > NESTING_MAX
    })
}

/// `FOR UPDATE` and its kin, for texts the parser does not understand.
fn locks_rows(tokens: &[Token<'_>]) -> bool {
    let locks = |second: &str| matches!(second, "update" | "no" | "share" | "key");
    tokens.windows(2).any(|pair| matches!(pair, [first, second] if first.text == "for" && locks(second.text)))
}

/// A string constant in the shape that may be folded to a clock reading if it reaches a date type.
fn clock_text(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::OpaqueText => true,
        Kind::Text => crate::footprint::names_clock(token.text.as_bytes()),
        _ => false,
    }
}

fn parse_query(tokens: &[Token<'_>]) -> Option<Query> {
    let mut text = String::new();
    for token in tokens {
        if token.spaced {
            text.push(' ');
        }
        match token.kind {
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
