//! The lexer compared with PostgreSQL's rules, and with arbitrary text.

use freshet_sql::{Admin, Lexed, LiteralKind, Template};
use freshet_types::Dialect;
use proptest::prelude::*;

fn lex(sql: &str) -> Lexed {
    freshet_sql::lex(Dialect::Postgres, sql)
}

fn admin(sql: &str) -> Option<Result<Admin, String>> {
    freshet_sql::admin(Dialect::Postgres, sql)
}

fn literals(sql: &str) -> Vec<String> {
    let written = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
    let show = |l: &freshet_sql::Literal| match l.kind {
        LiteralKind::String => format!("'{}", written(&l.text)),
        LiteralKind::Number => written(&l.text),
        LiteralKind::Bytes | LiteralKind::Bits => unreachable!("PostgreSQL has none"),
    };
    lex(sql).literals.iter().map(show).collect()
}

#[test]
fn shapes_and_literals() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("  SELECT  A,\tb\nFROM  T ;  ; ", "select a, b from t", &[]),
        (
            "SELECT 1, 1.5, .5, 1e3, 1.5E-3, 1.",
            "select $1, $2, $3, $4, $5, $6",
            &["1", "1.5", ".5", "1e3", "1.5E-3", "1."],
        ),
        ("SELECT 'it''s'", "select $1", &["'it's"]),
        ("SELECT''", "select $1", &["'"]),
        ("SELECT'a'b", "select $1 b", &["'a"]),
        ("SELECT 'a'\"b\"", "select $1\"b\"", &["'a"]),
        ("SELECT -1, a-1, a - -1", "select -$1, a-$2, a - -$3", &["1", "1", "1"]),
        ("SELECT a--1\n", "select a", &[]),
        ("SELECT a/*'*/+/* /* x */ */1", "select a + $1", &["1"]),
        ("SELECT a +/**/- 1", "select a + - $1", &["1"]),
        // Own parameters keep their numbers.
        ("SELECT 1, $2, 'x', $1", "select $3, $2, $4, $1", &["1", "'x"]),
        ("SELECT a$1, $1", "select a$1, $1", &[]),
        // Unusual constants are not replaced.
        ("SELECT E'a\\'b', 'c'", "select E'a\\'b', $1", &["'c"]),
        // Constants whose backslashes are certain are replaced.
        ("SELECT e'''x'''||'c'", "select $1||$2", &["''x'", "'c"]),
        ("SELECT E'\\\\', E'\\%', E'\\n'", "select $1, $2, E'\\n'", &["'\\", "'%"]),
        ("SELECT E'a'\n 'b', u&E'x'", "select E'a'\n 'b', u&E'x'", &[]),
        ("SELECT $$it's$$, $a$ $b$ $a$, 'c'", "select $$it's$$, $a$ $b$ $a$, $1", &["'c"]),
        ("SELECT U&'\\0061', B'01', x'1F', N'n', 'c'", "select U&'\\0061', B'01', x'1F', N'n', $1", &["'c"]),
        ("SELECT 'a'\n 'b', 'c'", "select 'a'\n 'b', $1", &["'c"]),
        ("SELECT 'a' -- x\n 'b', 'c'", "select 'a' -- x\n 'b', $1", &["'c"]),
        ("SELECT E'a'\n'b\\'c', 'd'", "select E'a'\n'b\\'c', $1", &["'d"]),
        ("SELECT 'a' 'b'", "select $1 'b'", &["'a"]),
        ("SELECT 0x1F, 1_000, 1_000.5, 1a, 1e'x\\''", "select 0x1f, 1_000, 1_000.5, 1a, 1e'x\\''", &[]),
        (
            "SELECT date '2020-01-01', interval '1 day', timestamp(3) 'x', t 'x'",
            "select date '2020-01-01', interval '1 day', timestamp(3) 'x', t 'x'",
            &[],
        ),
        (
            "SELECT a::varchar(10), cast(b as numeric(10, 2)), left(c, 3)",
            "select a::varchar(10), cast(b as numeric(10, 2)), left(c, $1)",
            &["3"],
        ),
        // The number of a column.
        ("SELECT a FROM t GROUP BY 1 ORDER BY 2 DESC", "select a from t group by 1 order by 2 desc", &[]),
        ("SELECT a FROM t ORDER BY 'x'", "select a from t order by $1", &["'x"]),
        ("SELECT a AT TIME ZONE 'UTC'", "select a at time zone 'UTC'", &[]),
        ("SELECT \"A\"\"b\", É FROM \"T 1\" LIMIT 5", "select \"A\"\"b\", É from \"T 1\" limit $1", &["5"]),
        (
            "SELECT * FROM t WHERE a = 'x' AND b IN (1,2)",
            "select * from t where a = $1 and b in ($2,$3)",
            &["'x", "1", "2"],
        ),
        ("SELECT 'a;b'; ;", "select $1", &["'a;b"]),
        ("SELECT 1; SELECT 2;", "select $1; select $2", &["1", "2"]),
        // What does not end.
        ("SELECT 'abc;", "select 'abc;", &[]),
        ("SELECT \"abc", "select \"abc", &[]),
        ("SELECT 1 /* x", "select $1 /* x", &["1"]),
        ("SELECT $a$ x", "select $a$ x", &[]),
        ("SELECT E'x\\", "select E'x\\", &[]),
        ("SELECT E'x\\é'", "select E'x\\é'", &[]),
        ("SELECT 'a\0b'", "select $1", &["'a\0b"]),
    ];
    for (sql, normalized, expected) in cases {
        assert_eq!(lex(sql).normalized, *normalized, "{sql}");
        assert_eq!(literals(sql), *expected, "{sql}");
    }
    assert_eq!(lex("SELECT $3, 1").own_params, 3);
    let beyond = lex("SELECT $99999999999, 1");
    assert!(beyond.literals.is_empty(), "{beyond:?}");
    assert_eq!(lex("select 1").digest, lex("SELECT\n2").digest);
    assert_ne!(lex("select 1").digest, lex("SELECT 1, 2").digest);
}

#[test]
fn keys_tell_kinds_of_literal_and_parameters_apart() {
    let key = |sql: &str| {
        let mut key = Vec::new();
        lex(sql).write_key(&mut key);
        key
    };
    let keys: std::collections::HashSet<Vec<u8>> =
        ["SELECT 1", "SELECT '1'", "SELECT $1", "SELECT 1.0", "SELECT 1, 1"].iter().map(|sql| key(sql)).collect();
    assert_eq!(keys.len(), 5);
    assert_eq!(key("SELECT 1"), key("select  /* x */ 1 ;"));
}

#[test]
fn admin_statements() {
    assert_eq!(admin("SHOW CACHES"), Some(Ok(Admin::ShowCaches)));
    assert_eq!(admin(" -- x\n show /* y */ caches ; "), Some(Ok(Admin::ShowCaches)));
    assert_eq!(admin("show proxied queries;"), Some(Ok(Admin::ShowProxiedQueries)));
    assert_eq!(admin("SHOW FRESHET STATUS"), Some(Ok(Admin::ShowStatus)));
    assert_eq!(admin("show freshet queries;"), Some(Ok(Admin::ShowQueries)));
    assert_eq!(admin("SHOW ADVICE"), Some(Ok(Admin::ShowAdvice)));
    assert_eq!(admin("SHOW REPLICATION;"), Some(Ok(Admin::ShowReplication)));
    assert!(matches!(admin("SHOW FRESHET"), Some(Err(_))));
    assert_eq!(admin("show config ;"), Some(Ok(Admin::ShowConfig)));
    assert_eq!(admin("/* x */ Reload;"), Some(Ok(Admin::Reload)));
    assert!(matches!(admin("RELOAD all"), Some(Err(_))) && admin("RELOADS").is_none() && admin("RELEASE x").is_none());
    assert_eq!(
        admin("explain cache SELECT 'a;b' FROM t;"),
        Some(Ok(Admin::ExplainCache("SELECT 'a;b' FROM t".to_owned())))
    );
    assert_eq!(admin("Explain last statement;"), Some(Ok(Admin::ExplainLast)));
    assert!(admin("EXPLAIN last").is_none() && admin("EXPLAIN last name").is_none());
    assert_eq!(admin("FRESHET BYPASS ON"), Some(Ok(Admin::Bypass(true))));
    assert_eq!(admin("/* x */ freshet bypass off ;"), Some(Ok(Admin::Bypass(false))));
    assert_eq!(admin("FRESHET MEMORY 1048576;"), Some(Ok(Admin::Memory(1 << 20))));
    assert_eq!(admin("freshet memory max 1048576"), Some(Ok(Admin::MemoryMax(1 << 20))));
    assert_eq!(admin("FRESHET MEMORY Min 0;"), Some(Ok(Admin::MemoryMin(0))));
    assert_eq!(admin("FRESHET PAUSE;"), Some(Ok(Admin::Pause(true))));
    assert_eq!(admin("freshet resume"), Some(Ok(Admin::Pause(false))));
    assert_eq!(admin("freshet Reconnect"), Some(Ok(Admin::Reconnect)));
    assert!(matches!(admin("FRESHET PAUSE shop"), Some(Err(_))));
    for wrong in ["MIN", "MAX 5", "MIN x", "5", "mid 1048576", "MAX 1048576 2"] {
        assert!(matches!(admin(&format!("FRESHET MEMORY {wrong}")), Some(Err(_))), "{wrong}");
    }
    for malformed in [
        "SHOW PROXIED",
        "SHOW FRESHET",
        "SHOW CACHES x",
        "EXPLAIN CACHE ;",
        "EXPLAIN LAST STATEMENT x",
        "SHOW PROXIED QUERIES; SELECT 1",
        "FRESHET BYPASS",
        "FRESHET BYPASS 1",
        "FRESHET BYPASS 'on'",
        "FRESHET BYPASS ON; SELECT 1",
        "FRESHET MEMORY",
        "FRESHET MEMORY 1048575",
        "FRESHET MEMORY -1048576",
        "FRESHET MEMORY 2e6",
        "FRESHET MEMORY 1048576 1",
    ] {
        assert!(matches!(admin(malformed), Some(Err(_))), "{malformed}");
    }
    for other in [
        "",
        "SHOW search_path",
        "EXPLAIN SELECT 1",
        "SELECT 'SHOW CACHES'",
        "-- SHOW CACHES",
        "show",
        "'",
        "freshet",
        "FETCH ALL",
    ] {
        assert_eq!(admin(other), None, "{other}");
    }
}

/// The text that a normalized query and its literals represent.
fn reassembled(sql: &str) -> String {
    let lexed = lex(sql);
    let mut text = lexed.normalized;
    for (index, literal) in lexed.literals.iter().enumerate().rev() {
        let value = std::str::from_utf8(&literal.text).unwrap();
        let written = match literal.kind {
            LiteralKind::String => format!("'{}'", value.replace('\'', "''")),
            LiteralKind::Number => value.to_owned(),
            LiteralKind::Bytes | LiteralKind::Bits => unreachable!("PostgreSQL has none"),
        };
        text = text.replacen(&format!("${}", usize::from(lexed.own_params) + index + 1), &written, 1);
    }
    text
}

/// Texts of pieces that are dangerous next to each other, without own parameters or dollars (which the simple re-assembly above could not distinguish
/// from placeholders).
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "select", "where", "a", "e", "E", "n", "u&", "b", "x", "'", "''", "'x'", "'it''s'", "\\", "\"", "\"q\"", "--",
        "/*", "*/", "\n", " ", "  ", "1", "1.5", ".5", "1e3", "0x1", "1_0", ".", "..", "-", "+", "=", "::", "varchar",
        "(", ")", ",", ";", "é", "\0", "date", "in", "5",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_lexed_and_parsed(text in any::<String>()) {
        let lexed = lex(&text);
        let _ = Template::parse(Dialect::Postgres, &lexed.normalized);
        let _ = admin(&text);
    }

    #[test]
    fn shape_and_literals_say_what_the_text_said(text in pieces()) {
        let lexed = lex(&text);
        let again = lex(&reassembled(&text));
        prop_assert_eq!(&again.normalized, &lexed.normalized);
        prop_assert_eq!(&again.literals, &lexed.literals);
        // The normalized query of a normalized query is the same, except for numbers that are literals only behind an own parameter.
        let _ = Template::parse(Dialect::Postgres, &lexed.normalized);
    }
}
