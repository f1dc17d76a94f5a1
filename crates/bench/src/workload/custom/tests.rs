//! Files that are accepted, and mistakes that are reported.

use super::*;
use crate::target::Family;

/// The example in the documentation.
fn documented() -> String {
    let document = include_str!("../../../../../docs/guide/bench-custom.md");
    let (_, rest) = document.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("its end").0.to_owned()
}

fn error(text: &str) -> String {
    format!("{:#}", Custom::parse("x", text).expect_err(text))
}

#[test]
fn the_documented_example_is_read() {
    let custom = Custom::parse("shop", &documented()).unwrap();
    let texts: Vec<_> = custom.statements.iter().map(|statement| statement.prepared_text(Family::Postgres)).collect();
    assert_eq!(
        texts,
        [
            "SELECT name, price FROM product WHERE product_id = $1",
            "SELECT product_id, quantity FROM basket WHERE customer = $1 ORDER BY product_id",
            "SELECT count(*) FROM basket WHERE customer = $1 AND status = $2",
            "UPDATE basket SET quantity = quantity + 1 WHERE customer = $1 AND product_id = $2",
            "INSERT INTO note (note_id, note) VALUES ($1, $2::text)",
        ]
    );
    let effects: Vec<_> = custom.statements.iter().map(|statement| statement.effect).collect();
    assert_eq!(effects, [Effect::Read, Effect::Read, Effect::Read, Effect::Write, Effect::Write]);
    assert!(custom.statements[1].ordered && !custom.statements[2].ordered);
    assert!(custom.writer(Random::new(1)).is_some());
    // One transaction weighs nine times as much as the other, so its reads are drawn nine times as often.
    let mut random = Random::new(1);
    let first = (0..11_000).filter(|_| custom.draw_read(&mut random).0 == 0).count();
    assert!((8700..9300).contains(&first), "{first}");
}

#[test]
fn another_file_has_other_settings() {
    let text = documented();
    let settings = |text: &str| Custom::parse("x", text).unwrap().settings();
    assert_eq!(settings(&text), settings(&text));
    for (from, to) in [("weight = 9", "weight = 8"), ("zipf:0.99", "zipf:0.9"), ("quantity + 1", "quantity + 2")] {
        assert_ne!(settings(&text), settings(&text.replace(from, to)), "{from}");
    }
}

#[test]
fn mistakes_are_told_with_their_lines() {
    let good = "[params.a]\nrange = [1, 2]\n\n[[transactions]]\nstatements = [\n  { sql = \"SELECT :a\" },\n]\n";
    Custom::parse("x", good).unwrap();
    for (from, to, line, what) in [
        ("range = [1, 2]", "rang = [1, 2]", "line 2", "unknown field `rang`"),
        ("range = [1, 2]", "range = [2, 1]", "line ", "empty"),
        ("range = [1, 2]", "range = [1, 2]\nvalues = [1]", "line ", "exactly one of"),
        ("range = [1, 2]", "range = [1, 2]\ndistribution = \"zip:1\"", "line ", "none of uniform"),
        ("range = [1, 2]", "text = [1, 2]\ndistribution = \"zipf:1\"", "line ", "goes with"),
        ("range = [1, 2]", "values = []", "line ", "no rows to draw from"),
        ("SELECT :a", "SELECT :b", "line 6", "no [params.b]"),
        ("SELECT :a", "SELECT '", "line 6", "no end"),
        ("SELECT :a", "COMMIT", "line 6", "begin = true"),
        ("SELECT :a", "", "line 6", "empty"),
        ("{ sql", "{ kind = \"reads\", sql", "line 6", "unknown variant"),
        ("statements", "weight = 0\nstatements", "line ", "weight"),
        ("statements", "wait = 0\nstatements", "line 5", "unknown field `wait`"),
        ("SELECT :a", "SELECT 1", "", "a is used by no statement"),
        ("SELECT :a", "DELETE FROM t WHERE a = :a", "", "no statement reads"),
        ("range = [1, 2]", "sequence = 1", "", "no statement reads"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = error(&good.replace(from, to));
        assert!(error.contains(line) && error.contains(what), "{to}: {error}");
    }
}

#[test]
fn effects_are_guessed_by_the_first_word() {
    for (sql, effect) in [
        ("(SELECT 1)", Effect::Read),
        ("with x as (select 1) select * from x", Effect::Read),
        ("WITH x AS (DELETE FROM t RETURNING 1) SELECT * FROM x", Effect::Write),
        ("CALL p()", Effect::Write),
    ] {
        let text = format!("[[transactions]]\nstatements = [{{ sql = \"{sql}\" }}, {{ sql = \"SELECT 1\" }}]");
        assert_eq!(Custom::parse("x", &text).unwrap().statements[0].effect, effect, "{sql}");
    }
}

#[test]
fn values_are_drawn_within_their_bounds() {
    let text = "[params.r]\nrange = [-3, 3]\n[params.v]\nvalues = [\"x\", 2, 2.5, true]\n[params.t]\ntext = [2, 4]\n\
                [params.s]\nsequence = 7\n[[transactions]]\nstatements = [{ sql = \"SELECT :r, :v, :t\" }, { sql = \"SELECT :s\" }]";
    let custom = Custom::parse("x", text).unwrap();
    let mut random = Random::new(5);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let (0, values) = custom.draw_read(&mut random) else { panic!("a statement with a sequence is never drawn") };
        let [Value::Int(r), v, Value::Text(t)] = values.as_slice() else { panic!("{values:?}") };
        assert!((-3..=3).contains(r) && (2..=4).contains(&t.len()), "{values:?}");
        seen.insert(format!("{v:?}"));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["Int(2)", "Text(\"2.5\")", "Text(\"true\")", "Text(\"x\")"]);
    let sequence = custom.shared.parameters.iter().find(|parameter| parameter.is_sequence()).unwrap();
    assert_eq!([(); 2].map(|()| sequence.draw(&mut random)), [Value::Int(7), Value::Int(8)]);
}
