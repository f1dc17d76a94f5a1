//! Parses a normalized query once; for everything but queries the first words decide.
//!
//! Only queries go to the SQL parser. String constants that it might read differently from the server are replaced first, and length and depth are
//! bounded: the tree is walked and dropped recursively.

use crate::allowlist::local_settings::sets_locally;
use crate::allowlist::silent_settings::Sets;
use crate::allowlist::visitor::Findings;
use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::statement::effect::{Defines, Effect, together};
use crate::statement::parser_bounds::{NAME_LEN_MAX, NESTING_MAX, is_too_long};
use crate::statement::relations::ONLY;
use crate::statement::template::{Parsed, Template};
use crate::statement::transaction::Bracket;
use crate::statement::{between_symmetric, mysql, show_setting, write_effects};
use freshet_types::{Dialect, Reason};
use sqlparser::ast::{Query, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

impl Template {
    /// Parses a normalized query. Never fails: a text that is not understood gets the strongest possible effect.
    pub fn parse(dialect: Dialect, normalized: &str) -> Self {
        let mut statements: Vec<Vec<Token<'_>>> = Vec::new();
        let mut current = Vec::new();
        for token in Tokens::of(dialect, normalized) {
            if token.kind == Kind::Symbol(b';') {
                statements.push(std::mem::take(&mut current));
            } else {
                current.push(token);
            }
        }
        statements.push(current);
        statements.retain(|tokens| !tokens.is_empty());
        if dialect.is_mysql_family() {
            return Self { dialect, ..mysql::template(dialect, &statements) };
        }
        match statements.as_slice() {
            [] => Self::passing(Effect::Pure, Reason::NotSelect),
            [tokens] => match deallocated(tokens) {
                // Its only effect is the end of this prepared statement.
                Some(name) => Self { deallocates: Some(name), ..Self::passing(Effect::Pure, Reason::NotSelect) },
                None => show_setting::template(tokens).unwrap_or_else(|| Self::statement(tokens)),
            },
            several => {
                let parts: Vec<Self> = several.iter().map(|tokens| Self::statement(tokens)).collect();
                let bracket = parts.iter().any(|part| part.bracket.is_some()).then_some(Bracket::Other);
                let effect = match parts.iter().map(|part| part.effect).reduce(together) {
                    // What these leave in the session outlives the transaction: LISTEN, an advisory lock, the state of a sequence.
                    Some(Effect::TransactionControl) if parts.iter().any(|part| part.effect == Effect::Signal) => {
                        Effect::Write
                    }
                    effect => effect.unwrap_or(Effect::Forgets),
                };
                let defines = parts.iter().map(|part| part.defines).max().unwrap_or_default();
                Self { defines, bracket, asks_for_data: true, ..Self::passing(effect, Reason::SeveralStatements) }
            }
        }
    }

    pub(crate) fn statement(tokens: &[Token<'_>]) -> Self {
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
            // PREPARE ends no other statement, but reading its constants may run anything.
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
            // A statement prepared by the protocol may be COMMIT, too.
            _ => (word(brackets) == "execute").then_some(Bracket::Other),
        };
        let mut passing = Self::passing(effect, Reason::NotSelect);
        // After LISTEN a program reads everything of which it will not be notified.
        passing.findings.reveals_commits = word(brackets) == "listen";
        let calls = (effect == Effect::Write).then(|| write_effects::calls(tokens)).flatten();
        let words: Vec<&str> = (0..tokens.len()).map(word).collect();
        passing.defines =
            if makes_plain_index(tokens, &words) { Defines::Nothing } else { Defines::of(&words, effect) };
        let target = calls.as_ref().and_then(|_| write_effects::target(tokens));
        passing.sets_locally = matches!(words.as_slice(), ["set", "local", ..]);
        passing.sets = Sets::of_set(tokens, &words);
        Self { bracket, calls, target, asks_for_data: passing.asks_for_data || word(brackets) == "copy", ..passing }
    }

    /// Reads a query. A query that is not understood may write, but nothing worse: no query ends a prepared statement.
    pub(crate) fn read(tokens: &[Token<'_>]) -> Self {
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
        let findings = Findings::of(Dialect::Postgres, &query);
        let effect = findings.effect;
        let sets_locally = effect == Effect::Settings && sets_locally(&query);
        let sets = if effect == Effect::Settings { Sets::of_query(&query) } else { Sets::Unknown };
        let verdict = findings.refusals.first.clone().map_or_else(|| Ok(Parsed::of(query, tokens)), Err);
        Self { verdict, findings, sets_locally, sets, ..Self::passing(effect, Reason::NotParsed) }
    }
}

/// The name in `DEALLOCATE [PREPARE] name`. None also for ALL, and where the server might read another name.
pub(crate) fn deallocated(tokens: &[Token<'_>]) -> Option<Box<str>> {
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

/// CREATE INDEX on columns only. Expressions or a condition in an index would run with each later write.
pub(crate) fn makes_plain_index(tokens: &[Token<'_>], words: &[&str]) -> bool {
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

/// Whether `FOR UPDATE` or the like is there, for texts that the parser does not understand.
pub(crate) fn locks_rows(tokens: &[Token<'_>]) -> bool {
    let locks = |second: &str| matches!(second, "update" | "no" | "share" | "key");
    tokens.windows(2).any(|pair| matches!(pair, [first, second] if first.text == "for" && locks(second.text)))
}

/// Whether ONLY behind this token belongs to FROM, not to FETCH FIRST.
pub(crate) fn precedes_relation(token: &Token<'_>) -> bool {
    matches!(token.kind, Kind::Symbol(b',' | b'('))
        || (token.kind == Kind::Word && matches!(token.text, "from" | "join"))
}

pub(crate) fn parse_query(tokens: &[Token<'_>]) -> Option<Query> {
    let (mut text, mut symmetric) = (String::new(), 0);
    for (at, token) in tokens.iter().enumerate() {
        if token.spaced {
            text.push(' ');
        }
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        match token.kind {
            Kind::Word if token.text == "only" && before.is_some_and(precedes_relation) => {
                text.extend(["\"", ONLY, "\"."]);
            }
            Kind::Word if between_symmetric::is_symmetric(token, before) => {
                text.push_str("not");
                symmetric += 1;
            }
            // The parser and the server may disagree on the end of this constant.
            Kind::OpaqueText => text.push_str(" '?'"),
            _ => text.push_str(token.text),
        }
    }
    let parser = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(NESTING_MAX);
    let mut statements = parser.try_with_sql(&text).ok()?.parse_statements().ok()?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Statement::Query(query)), true) => between_symmetric::expand(*query, symmetric),
        _ => None,
    }
}
