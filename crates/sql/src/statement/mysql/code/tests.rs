//! Temporary tables that texts create, by themselves and with the code that they run.

use super::*;

fn own(text: &str, quoting: Quoting) -> String {
    match Code::of(text.as_bytes(), quoting).own {
        Temporaries::None => "none".into(),
        Temporaries::Named(names) => names.iter().map(|name| &**name).collect::<Vec<_>>().join(" "),
        Temporaries::Any => "any".into(),
    }
}

#[test]
fn what_a_text_makes_by_itself() {
    for (text, made) in [
        ("SELECT 1", "none"),
        ("CREATE TEMPORARY TABLE x (id INT)", "x"),
        ("begin create or replace temporary table if not exists `Db` . `X` select 1; end", "X"),
        ("CREATE TEMPORARY TABLE a.b; CREATE TEMPORARY TABLE c", "b c"),
        ("CREATE/*! TEMPORARY*/TABLE x", "x"),
        ("CREATE /*!40101 TEMPORARY */ TABLE x", "x"),
        ("CREATE /*!40101TEMPORARY */ TABLE x", "x"),
        ("CREATE /*!80018 TEMPORARY */ TABLE x", "any"),
        ("SELECT /*!80018 id, 'a' */ 1 /*M! + `b` */ /*M!*/ FROM t", "none"),
        ("/*!80018 ' */ CREATE TEMPORARY TABLE x (id INT) -- */", "any"),
        ("SELECT /*!80018 '\\' */ CREATE TEMPORARY TABLE x (id INT) -- '", "any"),
        ("SELECT /*!80018 '*/ TEMPORARY ' */", "any"),
        ("SELECT /*!80018 # */ \n TEMPORARY */", "any"),
        ("SELECT /*!80018 -- */ \n TEMPORARY */", "any"),
        ("SELECT /*!80018 /* */ 1 */", "any"),
        ("CREATE /*!80018 DROP */ TEMPORARY TABLE x (id INT)", "x"),
        ("CREATE TEMPORARY TABLE /*!80018 y */ x (id INT)", "any"),
        ("CREATE TEMPORARY TABLE x/*!80018 . y */ (id INT)", "any"),
        ("DROP TABLE x. /*!80018 y */", "any"),
        ("/*!999999\\- it's the sandbox */ SELECT 1", "none"),
        ("/*M! temporary */ SELECT 1", "any"),
        ("CREATE TEMPORARY /* y */ -- z\n TABLE x", "x"),
        ("CREATE TEMPORARY TABLE `my table` (id INT)", "any"),
        ("CREATE TEMPORARY TABLE `a``b` (id INT)", "any"),
        ("CREATE TEMPORARY TABLE \"x\" (id INT)", "any"),
        ("CREATE TEMPORARY TABLE caf\u{e9} (id INT)", "any"),
        ("CREATE TEMPORARY", "any"),
        ("BEGIN SET TRANSACTION ISOLATION LEVEL READ COMMITTED; END", Temporaries::NEXT_TRANSACTION),
        ("SET /* x */ Transaction READ ONLY", Temporaries::NEXT_TRANSACTION),
        ("SET @@transaction_isolation = 'SERIALIZABLE'", Temporaries::NEXT_TRANSACTION),
        ("START TRANSACTION READ ONLY; SELECT 'set isolation'", "none"),
        ("CREATE TEMPORARY SEQUENCE x", "x"),
        ("DROP TEMPORARY TABLE x", "none"),
        ("EXECUTE s", "any"),
        ("PREPARE s FROM @a", "any"),
        ("ALTER TABLE a RENAME TO b", "any"),
        ("INSERT INTO t VALUES ('temporary', \"it's execute\", 'a''prepare\\'rename', x'00')", "none"),
        ("SELECT `it's`, temporary", "any"),
        ("SELECT 1 -- it's\n, temporary", "any"),
        ("SELECT 1--'temporary", "none"),
        ("BEGIN\n--\nCREATE TEMPORARY TABLE x SELECT 1;\n--\r\nEND", "x"),
        ("SELECT 1--- it's\n, temporary", "any"),
        ("SELECT 1----\n, temporary", "any"),
        ("/*!99999 /* */ ' */ CREATE TEMPORARY TABLE x(id int) -- '", "any"),
        ("/*!99999 * / ' **/ CREATE TEMPORARY TABLE x(id int)", "x"),
        ("SELECT 1 # it's\n, temporary", "any"),
        ("SELECT 1 /* it's */, temporary", "any"),
        ("SELECT 1 /**/, /*/ temporary */", "none"),
        ("SELECT /*+ QB_NAME(`*/`) */ 1", "any"),
        ("SELECT 1 \0", "any"),
    ] {
        assert_eq!(own(text, Quoting::STANDARD), made, "{text}");
        let halves = text.char_indices().map(|(at, _)| text.split_at(at));
        for (first, second) in halves {
            let mut scanner = CodeScanner::new(Quoting::STANDARD);
            scanner.feed(first.as_bytes());
            scanner.feed(second.as_bytes());
            assert_eq!(scanner.finish(), Code::of(text.as_bytes(), Quoting::STANDARD), "{first}|{second}");
        }
    }
    assert_eq!(own("SELECT '\\' , temporary, '", Quoting::Unknown), "any");
    assert_eq!(own("INSERT INTO t VALUES ('x')", Quoting::Unknown), "none");
}

#[test]
fn what_a_text_leaves_with_all_that_it_runs() {
    let of = |text: &str| Code::of(text.as_bytes(), Quoting::STANDARD);
    let codes = [
        ("plain", of("BEGIN DECLARE EXIT HANDLER FOR NOT FOUND SET n = 0; INSERT INTO t VALUES (NEW.id, 'a@b'); END")),
        ("counts", of("SET NEW.n = NEW.n + 1")),
        ("remembers", of("SET @last = NEW.id")),
        ("audits", of("BEGIN INSERT INTO log VALUES (NEW.id, @who, @@server_id); SET NEW.by = @who; END")),
        ("compares", of("IF @off = 1 OR @off IS NULL THEN SELECT a, @b INTO x FROM t; END IF")),
        ("finds", of("SELECT a, b INTO x, @y FROM t")),
        ("finds_one", of("SELECT b INTO @y FROM t")),
        ("sets_two", of("SET x = 1, @y = 2")),
        ("sets_later", of("SET x = 1 /* y */ , @y /* @z */ = 2")),
        ("sets_inside", of("SELECT @y := 1")),
        ("sets_quoted", of("SET x = 1, @`y` = 2")),
        ("hands_out", of("CALL gets(@y)")),
        ("counts_up", of("SELECT @cur.total := @cur.total + 1")),
        ("sets_point", of("SET x = 1, @a.b = 2")),
        ("replaces", of("SELECT REPLACE('a', 'b', 'c') INTO @x")),
        ("ends", of("DROP DATABASE shop")),
        ("sets_setting", of("SET x = 1, @@session.big_tables = 1")),
        ("sets", of("BEGIN SET sql_mode = ''; END")),
        ("renames", of("UPDATE t SET names = 1, time_zone = 2")),
        ("charsets", of("BEGIN SET NAMES utf8mb4; END")),
        ("calls", of("BEGIN CALL remembers(); END")),
        ("locks", of("BEGIN SET n = GET_LOCK('x', 1); END")),
        ("opens", of("BEGIN HANDLER t OPEN; END")),
        ("numbers", of("BEGIN SELECT NEXT VALUE FOR s; END")),
        ("loadable", Code::with_state()),
    ];
    let variables: HashSet<Box<str>> = ["sql_mode", "time_zone"].map(Box::from).into();
    let stored = stored_code(codes.iter().map(|(name, code)| (*name, Some(code))), &variables, true);
    for (text, leaves) in [
        ("CALL plain()", false),
        ("INSERT INTO counts VALUES ('x@y.z', 'set names')", false),
        ("INSERT INTO remembers VALUES (1)", true),
        ("UPDATE audits SET a = 1", false),
        ("CALL compares()", true),
        ("CALL finds()", true),
        ("CALL finds_one()", true),
        ("CALL sets_two()", true),
        ("CALL sets_later()", true),
        ("CALL sets_inside()", true),
        ("CALL sets_quoted()", true),
        ("CALL counts_up()", true),
        ("CALL sets_point()", true),
        ("CALL replaces()", true),
        ("CALL ends()", true),
        ("CALL hands_out()", true),
        ("CALL sets_setting()", true),
        ("CALL sets()", true),
        ("CALL renames()", false),
        ("CALL charsets()", true),
        ("CALL calls()", true),
        ("SELECT locks()", true),
        ("CALL opens()", true),
        ("CALL numbers()", true),
        ("SELECT loadable(1)", true),
        ("INSERT INTO t VALUES (@a := 1)", true),
        ("INSERT INTO t VALUES (GET_LOCK('a', 1))", true),
        ("INSERT INTO t VALUES (1, @a)", false),
        ("UPDATE t SET role = 1", false),
    ] {
        let code = of(text);
        assert_eq!(code.may_leave_state() || code.temporaries(&stored).may_leave_state(), leaves, "{text}");
    }
}

#[test]
fn what_a_text_makes_with_all_that_it_runs() {
    let of = |text: &str| Code::of(text.as_bytes(), Quoting::STANDARD);
    let codes = [
        ("plain", of("BEGIN SELECT 1; END")),
        ("makes", of("CREATE TEMPORARY TABLE x (id INT)")),
        ("nests", of("CALL calls()")),
        ("calls", of("BEGIN CALL nests(); CALL `makes`(); END")),
        ("odd name", of("CALL any()")),
        ("$7", of("CREATE TEMPORARY TABLE y (id INT)")),
        ("any", of("EXECUTE s")),
        ("caller", of("CALL `odd name`()")),
    ];
    let variables: HashSet<Box<str>> = HashSet::new();
    let sources = || codes.iter().map(|(name, code)| (*name, Some(code))).chain([("unseen", None)]);
    let stored = stored_code(sources(), &variables, true);
    let x = Temporaries::Named(["x".into()].into());
    let y = Temporaries::Named(["y".into()].into());
    for (text, made) in [
        ("CALL plain()", Temporaries::None),
        ("CALL Makes()", x.clone()),
        ("CALL db.NESTS()", x.clone()),
        ("SELECT `caller`()", Temporaries::Any),
        ("SELECT `odd name`()", Temporaries::Any),
        ("CALL `1`()", Temporaries::Any),
        ("CALL 1e()", Temporaries::Any),
        ("CALL 0X1F()", Temporaries::Any),
        ("CALL db.1()", Temporaries::Any),
        (&format!("CALL {}()", "\u{436}".repeat(64)), Temporaries::Any),
        (&format!("SELECT {}", "x".repeat(257)), Temporaries::Any),
        ("SELECT 1, 1.5, 1e5, 2E5, 0x1F, .5, (1.5e5), db . plain", Temporaries::None),
        ("CALL $7()", y.clone()),
        ("CALL `$7`()", y.clone()),
        ("UPDATE unseen SET a = 1", Temporaries::Any),
        ("SELECT 'unseen'", Temporaries::None),
    ] {
        assert_eq!(of(text).temporaries(&stored), made, "{text}");
    }
    let joined = |texts: [&str; 2]| of(texts[0]).with(&of(texts[1])).temporaries(&stored);
    assert_eq!(joined(["CALL plain()", "CALL makes()"]), x);
    assert_eq!(joined(["CREATE TEMPORARY TABLE y (id INT)", "SELECT 1"]), y);
    assert_eq!(joined(["SELECT 1", "SELECT `odd name`()"]), Temporaries::Any);
    let words = |from: usize| (from..from + 3000).fold(String::from("SELECT"), |text, n| text + &format!(" w{n}"));
    assert_eq!(of(&words(0)).with(&of(&words(0))).temporaries(&stored), Temporaries::None);
    assert_eq!(of(&words(0)).with(&of(&words(3000))).temporaries(&stored), Temporaries::Any);
    let accents = stored_code(sources().filter(|(name, _)| !name.contains(' ')), &variables, true);
    assert_eq!(of("CALL m\u{e0}kes()").temporaries(&accents), x);
    assert_eq!(of("CALL plain()").temporaries(&stored_code(sources(), &variables, false)), Temporaries::Any);
    assert_eq!(of("INSERT INTO t VALUES (';'); -- x").single(), Some("insert"));
    assert_eq!(of("INSERT INTO t VALUES (1); `x`").single(), None);
}
