//! Statements of MySQL's dialect: the first words decide their effect; queries are parsed.
//!
//! The input is the tokens of a normalized query; the output is a [`Template`], as for PostgreSQL. Its [`facts`] are what a session needs besides:
//! hints, temporary tables, stored code, snapshots.

pub(crate) mod certain_read;
pub(crate) mod code;
pub(crate) mod facts;
pub(crate) mod hints;
pub(crate) mod parse;
pub(crate) mod variables;

use freshet_types::{Dialect, Reason};
use sqlparser::ast::{GroupByExpr, JoinOperator, Query, SetExpr, TableFactor, TableWithJoins};

use crate::allowlist::mysql_functions::is_aggregate;
use crate::allowlist::visitor::Findings;
use crate::lex::postgres::{Kind, Token};
use crate::statement::effect::{Effect, together};
use crate::statement::mysql::facts::{Access, Facts, Hint, Name, Snapshot, unquoted};
use crate::statement::mysql::hints::is_harmless;
use crate::statement::mysql::variables::{are_known, is_global, polled};
use crate::statement::parser_bounds::is_too_long;
use crate::statement::template::{Parsed, Template};
use crate::statement::transaction::Bracket;

/// The template of a text with one statement or several.
pub(crate) fn template(dialect: Dialect, statements: &[Vec<Token<'_>>]) -> Template {
    match statements {
        [] => Template::passing(Effect::Pure, Reason::NotSelect),
        [tokens] => statement(dialect, tokens),
        // The statements of its body do not run now, and statements behind it cannot be distinguished from them.
        [first, ..] if defines_routine(&words(first)) => {
            let said = || statements.iter().flat_map(|tokens| words(tokens));
            let stored_code = said().any(|word| matches!(word.as_str(), "temporary" | "call" | "execute"));
            let calls = statements.iter().skip(1).any(|tokens| Facts::scan(tokens, None).stored_code);
            let facts = Facts { stored_code: stored_code || calls, reads_diagnostics: true, ..Facts::default() };
            let passing = Template::passing(Effect::Definition, Reason::SeveralStatements);
            Template { bracket: Some(Bracket::Other), asks_for_data: true, facts, ..passing }
        }
        several => {
            let parts = several.iter().map(|tokens| statement(dialect, tokens));
            let both = parts.reduce(|a, b| Template {
                bracket: a.bracket.or(b.bracket),
                facts: a.facts.and(b.facts),
                ..Template::passing(together(a.effect, b.effect), Reason::SeveralStatements)
            });
            let both = both.unwrap_or_else(|| Template::passing(Effect::Forgets, Reason::SeveralStatements));
            Template { bracket: both.bracket.map(|_| Bracket::Other), asks_for_data: true, ..both }
        }
    }
}

/// The unquoted words in lower case; other tokens are empty strings.
fn words(tokens: &[Token<'_>]) -> Vec<String> {
    let word = |token: &Token<'_>| match token.kind {
        Kind::Word => token.text.to_ascii_lowercase(),
        _ => String::new(),
    };
    tokens.iter().map(word).collect()
}

fn defines_routine(words: &[String]) -> bool {
    let routine = |word: &String| matches!(word.as_str(), "procedure" | "function" | "trigger" | "event" | "package");
    matches!(words.first().map(String::as_str), Some("create" | "alter")) && words.iter().any(routine)
}

/// The class of a statement other than a query, from its words.
struct Class {
    effect: Effect,
    bracket: Option<Bracket>,
    /// The position of the name of the table that it writes to.
    target: Option<usize>,
    asks_for_data: bool,
    facts: Facts,
}

impl Class {
    fn of(effect: Effect) -> Self {
        Self { effect, bracket: None, target: None, asks_for_data: effect == Effect::Forgets, facts: Facts::default() }
    }

    fn with(effect: Effect, facts: Facts) -> Self {
        Self { facts, ..Self::of(effect) }
    }

    /// A statement that may write to any table that it names.
    fn writing() -> Self {
        Self::with(Effect::Write, Facts { access: Access::Write, ..Facts::default() })
    }

    fn control(bracket: Bracket) -> Self {
        Self::of(Effect::TransactionControl).bracket(bracket)
    }

    /// DDL, which commits first.
    fn committing() -> Self {
        Self::of(Effect::Definition).bracket(Bracket::End)
    }

    fn unknown() -> Self {
        Self::with(Effect::Forgets, Facts::stored_code()).bracket(Bracket::Other)
    }

    fn bracket(self, bracket: Bracket) -> Self {
        Self { bracket: Some(bracket), ..self }
    }
}

fn statement(dialect: Dialect, tokens: &[Token<'_>]) -> Template {
    let words = words(tokens);
    let said: Vec<&str> = words.iter().map(String::as_str).collect();
    let brackets = tokens.iter().take_while(|token| token.kind == Kind::Symbol(b'(')).count();
    if matches!(said.get(brackets), Some(&("select" | "with" | "values" | "table"))) {
        return query(dialect, tokens, &said);
    }
    if let Some(template) = computed(tokens) {
        return template;
    }
    let Class { effect, bracket, target, asks_for_data, facts } = classify(tokens, &said);
    let mut scanned = Facts::scan(tokens, target);
    if effect == Effect::Definition {
        // Its parentheses enclose columns; it calls functions only in a SELECT.
        scanned.stored_code = tokens.iter().any(|token| token.kind == Kind::Hopeless);
    }
    let facts = Facts { snapshot: facts.snapshot, ..scanned.and(Facts { snapshot: Snapshot::Unknown, ..facts }) };
    let facts = Facts { creates: created(tokens, &said), drops: dropped(tokens, &said), ..facts };
    Template { bracket, asks_for_data, facts, ..Template::passing(effect, Reason::NotSelect) }
}

fn classify(tokens: &[Token<'_>], words: &[&str]) -> Class {
    let reads_diagnostics = || Facts { reads_diagnostics: true, ..Facts::default() };
    match words {
        ["insert" | "replace" | "update" | "delete", ..] => written(tokens, words),
        ["load", "data" | "xml", ..] => {
            let target = words.windows(2).position(|pair| pair == ["into", "table"]).map(|at| at + 2);
            Class { target, asks_for_data: true, ..Class::writing() }
        }
        ["begin", "not", ..] => Class::unknown(),
        ["begin" | "start" | "commit" | "rollback" | "savepoint" | "release" | "xa", ..] => control(words),
        ["lock" | "unlock", ..] => Class::control(Bracket::Other),
        ["set", ..] => setting(tokens, words),
        ["use", ..] => Class::of(Effect::Settings),
        ["show", ..] if words.contains(&"warnings") || words.contains(&"errors") => {
            Class::with(Effect::Pure, reads_diagnostics())
        }
        ["get", ..] => Class::with(Effect::Settings, reads_diagnostics()),
        // It may run the statement.
        ["explain" | "describe" | "desc" | "analyze", ..] if names_statement(words) => Class::writing(),
        ["drop", "prepare", ..] | ["deallocate" | "help" | "show" | "explain" | "describe" | "desc", ..] => {
            Class::of(Effect::Pure)
        }
        ["do" | "handler" | "prepare", ..] => Class::of(Effect::Write),
        ["call", ..] => Class::with(Effect::Definition, Facts::stored_code()),
        ["execute", ..] => {
            let executing = Class::with(Effect::Definition, Facts::stored_code()).bracket(Bracket::Other);
            Class { asks_for_data: true, ..executing }
        }
        _ => defined(words),
    }
}

/// DDL and unknown statements.
fn defined(words: &[&str]) -> Class {
    match words {
        ["create", "or", "replace", "temporary", ..] | ["create", "temporary", ..] => {
            let fills = words.iter().skip(1).any(|word| matches!(*word, "select" | "values" | "with" | "union"));
            let tables = words.iter().filter(|word| **word == "table").count();
            let stored_code = fills || tables > 1;
            Class::with(Effect::Definition, Facts { temporary: true, stored_code, ..Facts::default() })
        }
        ["drop", "temporary", ..] => Class::of(Effect::Definition),
        ["create" | "alter", "table", ..] if words.contains(&"select") => {
            Class::with(Effect::Definition, Facts::stored_code()).bracket(Bracket::End)
        }
        [
            "create" | "alter" | "drop" | "rename" | "truncate" | "grant" | "revoke" | "analyze" | "optimize"
            | "repair" | "check" | "cache" | "install" | "uninstall" | "reset" | "flush",
            ..,
        ] => Class::committing(),
        [
            "kill" | "checksum" | "load" | "purge" | "change" | "stop" | "shutdown" | "restart" | "backup" | "signal"
            | "resignal" | "binlog" | "import" | "clone",
            ..,
        ] => Class::of(Effect::Definition).bracket(Bracket::Other),
        _ => Class::unknown(),
    }
}

/// The table of `CREATE [OR REPLACE] TEMPORARY TABLE [IF NOT EXISTS] name`.
fn created(tokens: &[Token<'_>], words: &[&str]) -> Option<Name> {
    let at = match words {
        ["create", "or", "replace", "temporary", "table", ..] => 5,
        ["create", "temporary", "table", ..] => 3,
        _ => return None,
    };
    let at = if matches!(words.get(at..), Some(["if", "not", "exists", ..])) { at + 3 } else { at };
    name_at(tokens, at).map(|(name, _)| name)
}

/// The tables of `DROP [TEMPORARY] TABLE [IF EXISTS] name, …`; empty for any other form.
fn dropped(tokens: &[Token<'_>], words: &[&str]) -> Vec<Name> {
    let at = match words {
        ["drop", "temporary", "table" | "tables", ..] => 3,
        ["drop", "table" | "tables", ..] => 2,
        _ => return Vec::new(),
    };
    let mut at = if matches!(words.get(at..), Some(["if", "exists", ..])) { at + 2 } else { at };
    let mut names = Vec::new();
    while let Some((name, end)) = name_at(tokens, at) {
        names.push(name);
        match tokens.get(end) {
            Some(token) if token.kind == Kind::Symbol(b',') => at = end + 1,
            None => return names,
            Some(_) => break,
        }
    }
    Vec::new()
}

/// The name that begins at `at`, and the position behind it.
fn name_at(tokens: &[Token<'_>], at: usize) -> Option<(Name, usize)> {
    let word = |at: usize| tokens.get(at).filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted));
    let point = tokens.get(at + 1).is_some_and(|token| token.kind == Kind::Symbol(b'.'));
    // `a.1b` is a name, too.
    if tokens.get(at + 1).is_some_and(|token| matches!(token.kind, Kind::OddNumber | Kind::Number)) {
        return None;
    }
    let first = unquoted(word(at)?);
    Some(if point { ((Some(first), unquoted(word(at + 2)?)), at + 3) } else { ((None, first), at + 1) })
}

fn names_statement(words: &[&str]) -> bool {
    let begins = |word: &&str| {
        matches!(
            *word,
            "select" | "with" | "insert" | "replace" | "update" | "delete" | "table" | "values" | "connection"
        )
    };
    words.iter().skip(1).any(begins) && !matches!(words.get(1), Some(&"table" | &"local" | &"no_write_to_binlog"))
}

/// A statement that begins or ends a transaction, parsed to its last word.
fn control(words: &[&str]) -> Class {
    let bracket = match words {
        ["begin"] | ["begin", "work"] => Bracket::Begin(None),
        ["start", "transaction", modes @ ..] => {
            let known =
                |word: &&str| matches!(*word, "" | "with" | "consistent" | "snapshot" | "read" | "only" | "write");
            let bracket = if modes.iter().all(known) { Bracket::Begin(None) } else { Bracket::Other };
            if modes.contains(&"snapshot") {
                let facts = Facts { snapshot: Snapshot::AtOnce, ..Facts::default() };
                return Class::with(Effect::TransactionControl, facts).bracket(bracket);
            }
            bracket
        }
        ["start", ..] => return Class::of(Effect::Definition).bracket(Bracket::Other),
        ["savepoint" | "release", ..] | ["rollback", "to", ..] | ["rollback", "work", "to", ..] => Bracket::Savepoint,
        ["commit" | "rollback", rest @ ..] => match rest.strip_prefix(&["work"]).unwrap_or(rest) {
            [] | ["and", "no", "chain"] | ["no", "release"] | ["and", "no", "chain", "no", "release"] => Bracket::End,
            _ => Bracket::Other,
        },
        _ => Bracket::Other,
    };
    Class::control(bracket)
}

fn setting(tokens: &[Token<'_>], words: &[&str]) -> Class {
    // MariaDB: `SET STATEMENT variable = value FOR statement`.
    if words.get(1) == Some(&"statement") {
        return Class::unknown();
    }
    let of_transactions = |token: &Token<'_>| {
        let name = token.text.trim_matches('`').to_ascii_lowercase();
        matches!(token.kind, Kind::Word | Kind::Quoted | Kind::Variable)
            && ["autocommit", "transaction", "isolation", "read_only", "completion_type"]
                .iter()
                .any(|word| name.ends_with(word))
    };
    let bracket = tokens.iter().any(of_transactions).then_some(Bracket::Other);
    Class { bracket, ..Class::of(Effect::Settings) }
}

/// INSERT, REPLACE, UPDATE, DELETE.
fn written(tokens: &[Token<'_>], words: &[&str]) -> Class {
    let modifiers =
        |word: &&&str| matches!(**word, "low_priority" | "delayed" | "high_priority" | "quick" | "ignore" | "into");
    let mut at = 1 + words.iter().skip(1).take_while(modifiers).count();
    let verb = words.first().copied().unwrap_or_default();
    if verb == "delete" {
        if words.get(at) != Some(&"from") {
            return Class::writing();
        }
        at += 1;
    }
    let name = tokens.get(at).is_some_and(|token| matches!(token.kind, Kind::Word | Kind::Quoted));
    let qualified = tokens.get(at + 1).is_some_and(|token| token.kind == Kind::Symbol(b'.'));
    let behind = words.get(at + if qualified { 3 } else { 1 }..).unwrap_or_default();
    let single = matches!(
        (verb, behind),
        ("insert" | "replace", _)
            | ("update", ["set", ..] | ["as", _, "set", ..] | [_, "set", ..])
            | ("delete", [] | ["where" | "order" | "limit" | "returning", ..])
    );
    if name && single { Class { target: Some(at), ..Class::of(Effect::Write) } } else { Class::writing() }
}

/// Why a query is not cached, as far as single tokens say.
fn refusal(dialect: Dialect, tokens: &[Token<'_>], words: &[&str]) -> Option<Reason> {
    let says = |word: &str| words.contains(&word);
    let pair = |first: &str, seconds: &[&str]| {
        words.windows(2).any(|pair| matches!(pair, [a, b] if *a == first && seconds.contains(b)))
    };
    let bar = |token: &Token<'_>| token.kind == Kind::Symbol(b'|');
    let bars = |three: &[Token<'_>]| matches!(three, [a, b, c] if bar(a) && bar(b) && bar(c) && !b.spaced && !c.spaced);
    let is = |kind: Kind| tokens.iter().any(|token| token.kind == kind);
    if pair("for", &["update", "share"]) || pair("lock", &["in"]) {
        Some(Reason::LocksRows)
    } else if says("into") {
        Some(Reason::Construct("SELECT … INTO"))
    } else if polled(dialect, tokens).is_some() {
        None
    } else if tokens.iter().any(|token| is_global(dialect, token)) {
        Some(Reason::Construct("a global variable, whose changes no change stream tells of,"))
    } else if is(Kind::Variable) && !are_known(dialect, tokens) {
        Some(Reason::Construct("a user or system variable"))
    } else if says("procedure") {
        Some(Reason::Construct("PROCEDURE ANALYSE"))
    } else if tokens.windows(3).any(bars) {
        Some(Reason::Operator("||".into()))
    } else if tokens.iter().any(|token| token.kind == Kind::Hint && !is_harmless(token.text)) {
        Some(Reason::Construct("an optimizer hint"))
    } else if hint(words) == Some(Hint::NoCache) {
        Some(Reason::Construct("SQL_NO_CACHE"))
    } else {
        None
    }
}

fn hint(words: &[&str]) -> Option<Hint> {
    if words.contains(&"sql_no_cache") {
        Some(Hint::NoCache)
    } else {
        words.contains(&"sql_cache").then_some(Hint::Cache)
    }
}

fn query(dialect: Dialect, tokens: &[Token<'_>], words: &[&str]) -> Template {
    let scanned = Facts { hint: hint(words), ..Facts::scan(tokens, None) };
    let refusal = refusal(dialect, tokens, words);
    let too_long = is_too_long(Dialect::MySql, tokens);
    // The parser's visitor does not see the name of a TABLE statement.
    let parsed = if too_long || words.contains(&"table") { None } else { parse::query(tokens) };
    let Some(query) = parsed else {
        let reason = refusal.unwrap_or(if too_long { Reason::TooLong } else { Reason::NotParsed });
        // Without a table it reads nothing that could call code.
        let more = |word: &&str| matches!(*word, "from" | "into" | "next" | "with" | "table" | "update" | "delete");
        let pure = !scanned.stored_code && reason != Reason::LocksRows && !words.iter().any(more);
        let effect = if pure { Effect::Pure } else { Effect::Write };
        let effect = if assigns(tokens) { Effect::Settings } else { effect };
        let access = if words.contains(&"with") { Access::Write } else { Access::Read };
        return Template { facts: Facts { access, ..scanned }, ..Template::passing(effect, reason) };
    };
    let findings = Findings::of(Dialect::MySql, &query);
    let stored_code = findings.unknown_function;
    let facts = Facts {
        hint: scanned.hint,
        reads_diagnostics: stored_code || scanned.reads_diagnostics && !scanned.stored_code || calls_counts(&findings),
        counts_found_rows: words.contains(&"sql_calc_found_rows"),
        snapshot: first_table(&query, &findings).map_or(Snapshot::Unknown, Snapshot::Reading),
        stored_code,
        calls: findings.functions.iter().map(|name| name.as_str().into()).collect(),
        names: findings.relations.iter().filter_map(name).collect(),
        polled: polled(dialect, tokens),
        ..Facts::default()
    };
    let effect = if refusal == Some(Reason::LocksRows) { Effect::Write } else { findings.effect };
    let words = tokens.iter().filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted)).count();
    let verdict = match refusal.or_else(|| findings.refusals.first.clone()) {
        Some(reason) => Err(reason),
        None => Ok(Box::new(Parsed { query, words, clock_text: false, time_text: false })),
    };
    Template { effect, verdict, findings, facts, ..Template::passing(effect, Reason::NotParsed) }
}

/// `DO` with expressions that read no table and run built-in code only: it computes what SELECT would, and returns nothing.
fn computed(tokens: &[Token<'_>]) -> Option<Template> {
    let (first, rest) = tokens.split_first().filter(|(first, _)| first.text.eq_ignore_ascii_case("do"))?;
    if first.kind != Kind::Word || assigns(tokens) || is_too_long(Dialect::MySql, tokens) {
        return None;
    }
    let select: Vec<_> = std::iter::once(Token { text: "select", ..*first }).chain(rest.iter().copied()).collect();
    let findings = Findings::of(Dialect::MySql, &parse::query(&select)?);
    let scanned = Facts::scan(tokens, None);
    let computes = findings.effect == Effect::Pure && findings.relations.is_empty() && !findings.unknown_function;
    let passing = Template::passing(Effect::Signal, Reason::NotSelect);
    (computes && !scanned.stored_code).then(|| Template { findings, facts: scanned, ..passing })
}

/// `:=`
fn assigns(tokens: &[Token<'_>]) -> bool {
    tokens.windows(2).any(|pair| matches!(pair, [a, b] if a.kind == Kind::Symbol(b':') && b.kind == Kind::Symbol(b'=')))
}

fn calls_counts(findings: &Findings) -> bool {
    findings.functions.iter().any(|name| matches!(name.as_str(), "found_rows" | "row_count"))
}

fn name(name: &sqlparser::ast::ObjectName) -> Option<Name> {
    let part = |at: usize| name.0.get(at)?.as_ident().map(|ident| ident.value.as_str().into());
    match name.0.len() {
        1 => Some((None, part(0)?)),
        2 => Some((Some(part(0)?), part(1)?)),
        _ => None,
    }
}

/// The table that the server must have read if the query returns a row: the first of a FROM clause without outer joins, in a query that returns no
/// row for an empty table.
fn first_table(query: &Query, findings: &Findings) -> Option<Name> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let grouped =
        matches!(&select.group_by, GroupByExpr::Expressions(by, modifiers) if !by.is_empty() && modifiers.is_empty());
    let plain = matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
        && select.having.is_none()
        && !findings.functions.iter().any(|function| is_aggregate(function));
    let TableWithJoins { relation: TableFactor::Table { name: table, args: None, .. }, joins } = select.from.first()?
    else {
        return None;
    };
    let preserved = joins.iter().all(|join| {
        matches!(
            join.join_operator,
            JoinOperator::Join(_)
                | JoinOperator::Inner(_)
                | JoinOperator::CrossJoin(_)
                | JoinOperator::StraightJoin(_)
                | JoinOperator::Left(_)
                | JoinOperator::LeftOuter(_)
        )
    });
    ((grouped || plain) && preserved && !findings.is_cte(table)).then(|| name(table)).flatten()
}
