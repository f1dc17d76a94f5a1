//! PostgreSQL: what the source of a routine says of the catalogue: whether the routine may change it, and which routines and relations it names.
//!
//! The server refuses DDL in a routine that is not volatile, but what such a routine calls may run DDL. DDL stands at the start of a statement, in the source
//! itself or in a string if the source runs text. Elsewhere a word such as `create` is data. DDL on temporary tables is no definition.
//! Text that PL/pgSQL runs may come from elsewhere: then the routine may do anything. It does not if a string with the beginning of a
//! statement stands in EXECUTE, or beside a variable of EXECUTE. A verb that is put together of pieces is not found.

use std::collections::HashSet;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

use crate::scanner::{Kind, Scanner, Token};
use crate::template::NAME_LEN_MAX;

/// Names in one routine, beyond which it may name any.
const NAMES_MAX: usize = 8_192;
/// Stands for all names with other letters than ASCII: a session may spell them in another encoding.
const FOREIGN: &str = "\u{80}";
/// What behind CREATE, ALTER or DROP begins DDL.
const OBJECTS: [&str; 41] = [
    "access",
    "aggregate",
    "cast",
    "collation",
    "constraint",
    "conversion",
    "database",
    "default",
    "domain",
    "event",
    "extension",
    "foreign",
    "function",
    "global",
    "group",
    "index",
    "language",
    "local",
    "materialized",
    "operator",
    "or",
    "owned",
    "policy",
    "procedure",
    "publication",
    "recursive",
    "role",
    "routine",
    "rule",
    "schema",
    "sequence",
    "server",
    "system",
    "table",
    "text",
    "trigger",
    "type",
    "unique",
    "unlogged",
    "user",
    "view",
];
/// Statements begin with one of these, or with a word of DDL.
const VERBS: [&str; 22] = [
    "alter", "analyze", "call", "comment", "copy", "create", "delete", "drop", "grant", "insert", "lock", "merge",
    "notify", "refresh", "reset", "revoke", "select", "set", "truncate", "update", "vacuum", "with",
];
/// Built-in functions that run a text.
const TEXT_RUNNERS: [&str; 4] = ["query_to_xml", "query_to_xml_and_xmlschema", "ts_rewrite", "ts_stat"];

/// The language of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// SQL.
    Sql,
    /// PL/pgSQL.
    PlPgSql,
    /// Its tokens are not known.
    Other,
}

/// What is known of a routine.
#[derive(Debug)]
pub struct Routine {
    /// It may change the catalogue by itself.
    pub defines: bool,
    /// What it may name, by [`name_hash`]; None: anything.
    pub names: Option<HashSet<u32>>,
}

impl Routine {
    /// Reads a source.
    pub fn read(source: &str, language: Language, volatile: bool) -> Self {
        if language == Language::Other {
            return Self::of_words(source, volatile);
        }
        let tokens: Vec<Token<'_>> = Scanner::new(source).collect();
        if tokens.iter().any(|token| token.kind == Kind::Hopeless) {
            return Self::unknown(volatile);
        }
        let runs = |token: &Token<'_>| is_one(token, &["execute"]) || is_one(token, &TEXT_RUNNERS);
        let runs_text = tokens.iter().any(runs);
        let mut hashes = HashSet::new();
        note_names(&tokens, &mut hashes);
        let mut defines = begins_ddl(&tokens, source) || (language == Language::Sql && makes_table(&tokens));
        for text in tokens.iter().filter_map(content).filter(|_| runs_text) {
            let within: Vec<Token<'_>> = Scanner::new(&text).collect();
            note_names(&within, &mut hashes);
            defines |= begins_ddl(&within, &text);
        }
        defines |= language == Language::PlPgSql && runs_unknown_text(&tokens);
        Self { defines: defines && volatile, names: bounded(hashes) }
    }

    /// One whose source is not known.
    pub fn unknown(volatile: bool) -> Self {
        Self { defines: volatile, names: None }
    }

    /// Any word of DDL counts.
    fn of_words(source: &str, volatile: bool) -> Self {
        let (mut defines, mut hashes) = (false, HashSet::new());
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
        for word in source.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
            let name = normal(word);
            defines |=
                matches!(&*name, "create" | "alter" | "drop" | "grant" | "revoke" | "refresh" | "import" | "reassign");
            hashes.insert(name_hash(&format!("{name}(")));
            hashes.insert(name_hash(&name));
        }
        Self { defines: defines && volatile, names: bounded(hashes) }
    }
}

fn bounded(names: HashSet<u32>) -> Option<HashSet<u32>> {
    (names.len() <= NAMES_MAX).then_some(names)
}

/// The name of a relation as texts are compared with it. That of a function has a bracket behind it, unless it may be called without.
pub fn name_of(name: &str, bracket: bool) -> Box<str> {
    let mut name = normal(name);
    if bracket {
        name.push('(');
    }
    name.into()
}

/// Stands for such a name.
pub fn name_hash(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

/// Names by which a text may run another that is not in it.
pub fn names_of_text_runners() -> impl Iterator<Item = Box<str>> {
    TEXT_RUNNERS.into_iter().map(|name| name_of(name, true)).chain(["execute".into()])
}

/// Whether a shape has one of these names; the empty one is in every shape.
pub fn mentions<S: BuildHasher>(shape: &str, names: &HashSet<Box<str>, S>) -> bool {
    if names.is_empty() || names.contains("") {
        return !names.is_empty();
    }
    let mut tokens = Scanner::new(shape).peekable();
    while let Some(token) = tokens.next() {
        let called = tokens.peek().is_some_and(|next| next.kind == Kind::Symbol(b'('));
        let named = |name: &str| names.contains(name) || (called && names.contains(&*format!("{name}(")));
        if token.kind == Kind::Hopeless || name(&token).is_some_and(|name| named(&name)) {
            return true;
        }
    }
    false
}

/// As the server compares it, but that case makes no difference.
fn normal(name: &str) -> String {
    if name.is_ascii() { name.get(..NAME_LEN_MAX).unwrap_or(name).to_ascii_lowercase() } else { FOREIGN.into() }
}

fn name(token: &Token<'_>) -> Option<String> {
    match token.kind {
        Kind::Word => Some(normal(token.text)),
        Kind::Quoted => Some(normal(&token.text.get(1..token.text.len() - 1)?.replace("\"\"", "\""))),
        _ => None,
    }
}

fn note_names(tokens: &[Token<'_>], hashes: &mut HashSet<u32>) {
    for (at, token) in tokens.iter().enumerate() {
        let Some(mut name) = name(token) else { continue };
        hashes.insert(name_hash(&name));
        if tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Symbol(b'(')) {
            name.push('(');
            hashes.insert(name_hash(&name));
        }
    }
}

fn is_one(token: &Token<'_>, words: &[&str]) -> bool {
    token.kind == Kind::Word && words.iter().any(|word| token.text.eq_ignore_ascii_case(word))
}

/// The text in a string constant.
fn content(token: &Token<'_>) -> Option<String> {
    if !matches!(token.kind, Kind::Text | Kind::OpaqueText) {
        return None;
    }
    let text = token.text;
    if text.starts_with('$') {
        let tag = text.get(1..)?.find('$')? + 2;
        return text.get(tag..text.len().checked_sub(tag)?).map(str::to_owned);
    }
    let text = text.get(text.find('\'')? + 1..text.rfind('\'')?)?.replace("''", "'");
    Some(if token.text.starts_with(['e', 'E']) {
        text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")
    } else {
        text
    })
}

/// Whether DDL stands at the start of a statement; in `text` the tokens stand.
fn begins_ddl(tokens: &[Token<'_>], text: &str) -> bool {
    let is_start = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        before.is_none_or(|token| token.kind == Kind::Symbol(b';') || is_one(token, &["begin", "then", "else", "loop"]))
    };
    tokens.iter().enumerate().any(|(at, token)| {
        token.kind == Kind::Word && is_start(at) && is_ddl(tokens.get(at..).unwrap_or_default(), text)
    })
}

/// A verb at the end of a string goes on in another if it has a blank behind it.
fn is_ddl(statement: &[Token<'_>], text: &str) -> bool {
    let [verb, rest @ ..] = statement else { return false };
    let Some(next) = rest.first() else {
        let verbs = ["create", "alter", "drop", "grant", "revoke", "refresh", "import", "reassign"];
        return is_one(verb, &verbs) && text.ends_with(|last: char| last.is_ascii_whitespace());
    };
    let open = next.kind == Kind::Symbol(b'%');
    if is_one(verb, &["create", "alter", "drop"]) {
        let mut words = rest.iter().filter(|token| !is_one(token, &["or", "replace", "local", "global"]));
        let temporary = words.next().is_some_and(|token| is_one(token, &["temp", "temporary"]));
        return !temporary && (open || is_one(next, &OBJECTS));
    }
    (is_one(verb, &["grant", "revoke"]) && (open || next.kind == Kind::Word))
        || (is_one(verb, &["refresh", "import", "reassign"])
            && (open || is_one(next, &["materialized", "foreign", "owned"])))
        || (is_one(verb, &["do"])
            && (open || matches!(next.kind, Kind::Text | Kind::OpaqueText) || is_one(next, &["language"])))
}

/// SELECT INTO of SQL.
fn makes_table(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let target = tokens.get(at + 1).is_some_and(|next| is_one(next, &["temp", "temporary", "local", "global"]));
        is_one(token, &["into"]) && !target && !before.is_some_and(|token| is_one(token, &["insert", "merge"]))
    })
}

/// Whether nothing tells what an EXECUTE of PL/pgSQL runs.
fn runs_unknown_text(tokens: &[Token<'_>]) -> bool {
    let begins = |token: &Token<'_>| {
        content(token).is_some_and(|text| {
            let first = Scanner::new(&text).find(|token| token.kind != Kind::Symbol(b'('));
            first.is_some_and(|first| is_one(&first, &VERBS))
        })
    };
    // Variables: words that are not called.
    let words = |tokens: &[Token<'_>]| -> HashSet<String> {
        let called = |at: usize| tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Symbol(b'('));
        tokens.iter().enumerate().filter(|(at, _)| !called(*at)).filter_map(|(_, token)| name(token)).collect()
    };
    let statements = || tokens.split(|token| token.kind == Kind::Symbol(b';'));
    let mut told = HashSet::new();
    for statement in statements().filter(|statement| statement.iter().any(begins)) {
        told.extend(words(statement));
    }
    statements().any(|statement| {
        let executes =
            (1..=statement.len()).filter(|at| statement.get(at - 1).is_some_and(|t| is_one(t, &["execute"])));
        executes.filter_map(|at| statement.get(at..)).any(|rest| {
            let ends = |token: &Token<'_>| is_one(token, &["into", "using", "loop"]);
            let run = rest.split(ends).next().unwrap_or_default();
            !run.iter().any(begins) && words(run).is_disjoint(&told)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defines(source: &str) -> bool {
        assert!(!Routine::read(source, Language::PlPgSql, false).defines, "{source}, stable");
        Routine::read(source, Language::PlPgSql, true).defines
    }

    #[test]
    fn routines_that_define() {
        for source in [
            "begin create table t (a int); end",
            "begin if a then\n Drop view v; end if; end",
            "begin /* x */ for i in 1..2 loop grant select on t to u; end loop; end",
            "begin execute 'create view v as select 1'; end",
            "begin execute format('alter table %I add x int', t); end",
            "begin execute E'\\n  create or replace view v as select 1'; end",
            "begin execute $q$ refresh materialized view m $q$; end",
            "begin execute 'select 1; drop table t'; end",
            "begin execute 'create ' || kind || ' v'; end",
            "begin execute format('drop %s v', kind); end",
            "declare s text := 'create unlogged table t ()'; begin execute s; end",
            "begin execute 'do $x$ begin end $x$'; end",
            "begin execute sql; end",
            "begin raise notice 'running %', $1; execute $1; end",
            "begin for r in select cmd from jobs loop execute r.cmd; end loop; end",
            "begin s := 'insert into t values (1)'; execute s; execute other; end",
            "begin refresh materialized view concurrently m; exception when others then drop schema s; end",
            "begin return query execute build(a); end",
        ] {
            assert!(defines(source), "{source}");
        }
        for source in ["select 1; create table t ()", "select * into t from u", "drop table t", "grant a to b;"] {
            assert!(Routine::read(source, Language::Sql, true).defines, "{source}");
            assert!(!Routine::read(source, Language::Sql, false).defines, "{source}");
        }
        assert!(Routine::read("spi_exec_query(\"CREATE TABLE t ()\")", Language::Other, true).defines);
    }

    #[test]
    fn routines_that_do_not() {
        for source in [
            "begin new.updated_at = now(); return new; end",
            "begin insert into audit values ('create', 'drop table', tg_op); return new; end",
            "begin -- create table t ()\n /* ; drop table t */ perform 1; end",
            "begin select a.create, drop into x from t; return case when a then alter end; end",
            "begin execute format('insert into %I.audit select ($1).*, ''create''', s) using new; return new; end",
            "begin act := 'create'; execute 'insert into log values ($1)' using 'drop it'; raise notice 'create order %', 1; end",
            "declare q text; begin q := 'update ' || t || ' set a = 1'; q := q || ' where b'; execute q using 'create x'; end",
            "begin execute '/* x */ (select 1)' into a; end",
            "begin create temp table t (a int); create local temporary table u (); create or replace temp view v as select 1; end",
            "begin execute 'create temp table t (a int) on commit drop'; end",
            "begin select 1 into a; insert into t values (1); alter := 1; end",
        ] {
            assert!(!defines(source), "{source}");
        }
        for source in ["insert into t select 'create table t'", "select 1 -- into t", "select a into temp t from u"] {
            assert!(!Routine::read(source, Language::Sql, true).defines, "{source}");
        }
        assert!(!Routine::read("return new.created", Language::Other, true).defines);
    }

    #[test]
    fn names_that_are_mentioned() {
        let names = |names: &[(&str, bool)]| {
            names.iter().map(|(name, call)| name_of(name, *call)).collect::<HashSet<Box<str>>>()
        };
        let (function, relation) = (names(&[("F", true)]), names(&[("f", false)]));
        let long = "a".repeat(70);
        for text in ["select F($1)", "select s.f ()", "select \"F\"($1)", "select u&\"\\0066\"()"] {
            assert!(mentions(text, &function) && mentions(text, &relation), "{text}");
            assert!(!mentions(text, &HashSet::<Box<str>>::new()), "{text}");
        }
        for text in ["insert into \"F\" values ($1)", "select f.a from f"] {
            assert!(!mentions(text, &function) && mentions(text, &relation), "{text}");
        }
        for text in ["select ff($1), 'f' from t -- f", "select $1"] {
            assert!(!mentions(text, &function) && !mentions(text, &relation), "{text}");
            assert!(mentions(text, &names(&[("", false)])), "{text}");
        }
        assert!(mentions("select GRÖSSE()", &names(&[("größe", true)])));
        assert!(mentions(&format!("select {long}()"), &names(&[(&long, true)])));
        let calls = |source, name: &str, call| {
            let names = Routine::read(source, Language::PlPgSql, false).names;
            names.is_none_or(|names| names.contains(&name_hash(&name_of(name, call))))
        };
        assert!(calls("begin perform s.f(1); insert into T values (1); end", "f", true));
        assert!(calls("begin perform f(1); insert into T values (1); end", "t", false));
        assert!(calls("begin execute 'select f(1)'; end", "f", true));
        assert!(!calls("begin perform 'f(1)', f.a; -- f(1)\n end", "f", true));
        assert!(calls("begin perform u&\"x\"; end", "f", true));
        let many = (0..NAMES_MAX).map(|n| format!("x{n};")).collect::<Vec<_>>().concat();
        assert!(calls(&format!("begin {many} end"), "f", true));
    }
}
