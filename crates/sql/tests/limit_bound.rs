//! The rows that matter to an answer with LIMIT, bounded by its last row.

mod fixture;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{Bound, Client, Field, JoinKeys, Parameter, ParameterValue, Template, lex};
use freshet_types::{
    Catalog, CatalogVersion, Dialect, RelationKind, RowSet, Table, TableId, Tag, Term, Test, Value, ValueType,
};

use Dialect::{MariaDb, MySql, Postgres};
use ValueType::{Float8, Int, Numeric, OrderedText, Text, Timestamp};

fn catalog(dialect: Dialect) -> Catalog {
    let text = if dialect.is_mysql_family() { ValueType::FoldedText } else { Text };
    let columns: &[(&str, ValueType)] =
        &[("id", Int), ("a", Int), ("n", Numeric), ("s", text), ("o", OrderedText), ("t", Timestamp), ("f", Float8)];
    let table = |id: u32, name: &str, kind: RelationKind, children: Vec<TableId>| Table {
        kind,
        definition: (kind == RelationKind::View).then(|| "SELECT * FROM s.x ORDER BY id LIMIT 3".into()),
        children,
        ..fixture::table(id, "s", name, columns)
    };
    let tables = vec![
        table(1, "x", RelationKind::Table, Vec::new()),
        table(2, "y", RelationKind::Table, Vec::new()),
        table(3, "parts", RelationKind::Partitioned, vec![TableId(1), TableId(2)]),
        table(4, "view", RelationKind::View, Vec::new()),
    ];
    Catalog::new(CatalogVersion(1), tables, HashSet::new(), HashSet::new())
}

fn bound(dialect: Dialect, sql: &str, own: &[Parameter<'_>]) -> Bound {
    let schemas: Vec<Arc<str>> =
        if dialect.is_mysql_family() { vec!["s".into()] } else { vec!["pg_catalog".into(), "s".into()] };
    let lexed = lex(dialect, sql);
    let read_set = Template::parse(dialect, &lexed.normalized).resolve(&catalog(dialect), &schemas).expect(sql);
    let literals = lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 });
    let params: Vec<Parameter<'_>> = own.iter().copied().chain(literals).collect();
    read_set.bind(&params, Client::PLAIN).expect(sql)
}

/// Whether the last row bounds the rows of a table.
fn is_cut(dialect: Dialect, sql: &str) -> bool {
    let bound = bound(dialect, sql, &[]);
    let later = bound.tags.iter().any(|tag| tag.rows == RowSet::Later);
    assert_eq!(bound.limit_bound.is_some() || bound.keys.is_some(), later, "{sql}");
    bound.limit_bound.is_some()
}

/// In a few words.
fn told(tags: &[Tag]) -> String {
    let number = |key: u64| match key {
        0 => "-".to_owned(),
        u64::MAX => "+".to_owned(),
        key => ((key ^ (1 << 63)).cast_signed()).to_string(),
    };
    let term = |Term { column, test }: &Term| match test {
        Test::Null => format!("{} null", column.name),
        Test::Within { low, high } => format!("{} {}..{}", column.name, number(*low), number(*high)),
        Test::In(values) => match values.as_ref() {
            [Value::Int(value)] => format!("{}={value}", column.name),
            other => panic!("{other:?}"),
        },
        Test::NotNull => format!("{} not null", column.name),
        Test::Not(_) => format!("{} not", column.name),
        Test::OrNull(_) => format!("{} or null", column.name),
        Test::Begins(_) | Test::Like(_) => format!("{} like", column.name),
        Test::Row(test) => format!("({})", test.columns.join(" ")),
    };
    let rows = |tag: &Tag| match &tag.rows {
        RowSet::Where(terms) => terms.iter().map(term).collect::<Vec<_>>().join(" and "),
        other => format!("{other:?}"),
    };
    tags.iter().map(rows).collect::<Vec<_>>().join(" | ")
}

#[test]
fn the_last_row_bounds() {
    let seven = [Field::Text(b"1"), Field::Text(b"7")];
    let null = [Field::Text(b"1"), Field::Null];
    for (dialect, sql, rows, last, expected) in [
        (Postgres, "select id, a from x order by a limit 3", 3, seven, "a -..7"),
        (Postgres, "select id, a from x order by a limit 3", 2, seven, "Any"),
        (Postgres, "select id, a from x where a <> 4 order by a limit 3", 3, seven, "a not and a -..7"),
        (
            Postgres,
            "select id, a from x where a is not null order by a desc limit 3",
            3,
            seven,
            "a not null and a 7..+",
        ),
        (
            Postgres,
            "select id, a from x where a <> 4 or a is null order by a desc limit 3",
            3,
            seven,
            "a or null and a 7..+ | a or null and a null",
        ),
        (Postgres, "select id, a from x order by a desc limit 3 offset 9", 3, seven, "a 7..+ | a null"),
        (Postgres, "select id, a from x order by a nulls first limit 3", 3, seven, "a -..7 | a null"),
        (Postgres, "select id, a from x order by a desc nulls last limit 3", 3, seven, "a 7..+"),
        (Postgres, "select id, a from x order by a limit 3", 3, null, "Any"),
        (Postgres, "select id, a from x order by a desc limit 3", 3, null, "a null"),
        (MySql, "select id, a from x order by a limit 3", 3, seven, "a -..7 | a null"),
        (MySql, "select id, a from x order by a limit 3", 3, null, "a null"),
        (MariaDb, "select id, a from x order by a desc limit 5, 3", 3, seven, "a 7..+"),
        (MariaDb, "select id, a from x order by a desc limit 5, 3", 3, null, "Any"),
        (Postgres, "select id, a from x where s like '%x' order by a limit 3", 3, seven, "a -..7 and s like"),
        (Postgres, "select id, a from x where id = 5 order by a limit 3", 3, seven, "a -..7 and id=5"),
        (Postgres, "select id, a from x where id = 5 order by a limit 3", 1, seven, "id=5"),
        (
            Postgres,
            "select id, a from x where id = 5 or n = 2 order by a limit 3",
            3,
            seven,
            "a -..7 and id=5 | a -..7 and n=2",
        ),
        (Postgres, "select id, a from x where a > 5 order by a limit 3", 3, seven, "a 6..7"),
        (Postgres, "select id, a from x where a is null order by a desc limit 3", 3, null, "a null"),
        (Postgres, "select id, a from x where (a = id) is null order by a desc limit 3", 3, null, "(a id) and a null"),
        (MySql, "select id, a from x where (a = id) is null order by a limit 3", 3, null, "(a id) and a null"),
        (Postgres, "select id, a from x order by a fetch first row only", 1, seven, "a -..7"),
        (Postgres, "select id, a from x order by a fetch first 3 rows with ties", 5, seven, "a -..7"),
        (Postgres, "select id, n from x order by n limit 3", 3, [Field::Text(b"1"), Field::Text(b"-7.5")], "n -..-7"),
        (Postgres, "select id, a from x order by a limit 3", 3, [Field::Null, Field::Text(b"x")], "Any"),
        (Postgres, "select id, a from x order by a limit 3", 3, [Field::Null, Field::Other], "Any"),
        (Postgres, "select id, a from x order by a limit 3", 3, [Field::Null, Field::Binary(&[0, 0, 0, 7])], "a -..7"),
    ] {
        let bound = bound(dialect, sql, &[]);
        let top = bound.limit_bound.unwrap_or_else(|| panic!("{sql}: {:?}", bound.tags));
        assert_eq!(told(&top.deferred_tags(rows, &last)), expected, "{sql} {rows} {last:?}");
        assert!(top.deferred_tags(rows, &last[..1]).iter().all(|tag| !told(std::slice::from_ref(tag)).contains("..7")));
    }
}

#[test]
fn a_name_alone_is_a_column_of_the_answer_first() {
    for (sql, column) in [
        ("select id, a from x order by a limit 3", Some(1)),
        ("select * from x order by a limit 3", Some(1)),
        ("select id as a, a as id from x order by a limit 3", Some(0)),
        ("select id as a, a as id from x order by x.a limit 3", Some(1)),
        ("select id, n as m from x order by n limit 3", Some(1)),
        ("select y.*, x.a from x join y on y.id = x.id order by x.a limit 3", Some(7)),
        ("select x.id + 1 as a, a from x order by a limit 3", None),
        ("select id as a, a from x order by a limit 3", None),
        ("select a::text, a as b from x order by a limit 3", None),
        ("select id from x order by a limit 3", None),
        ("select a from x order by a + 0 limit 3", None),
        ("select a from x order by 1 limit 3", Some(0)),
        ("select id, a as n, n as a from x order by 2 desc, 1 limit 3", Some(1)),
        ("select y.*, x.a from x join y on y.id = x.id order by 8 limit 3", Some(7)),
        ("select id, a + 1 from x order by 2 limit 3", None),
        ("select id, f from x order by 2 limit 3", None),
        ("select id from x order by 2 limit 3", None),
        ("select id from x order by 0 limit 3", None),
        ("select id from x order by '1' limit 3", None),
        ("select a, id from x order by (1) limit 3", None),
    ] {
        assert_eq!(bound(Postgres, sql, &[]).limit_bound.map(|top| top.column()), column, "{sql}");
    }
    assert!(is_cut(MySql, "select ID, A from x order by a limit 3"));
}

#[test]
fn not_where_rows_are_not_shown_as_they_are_sorted() {
    for (dialect, sql, cut) in [
        (Postgres, "select a from x order by a", false),
        (Postgres, "select a from x limit 3", false),
        (Postgres, "select a from x order by a limit all", false),
        (Postgres, "select a from x order by a limit null", false),
        (Postgres, "select a from x order by a limit 0", false),
        (Postgres, "select a from x order by a offset 3", false),
        (Postgres, "select distinct a from x order by a limit 3", true),
        (Postgres, "select distinct on (a) a from x order by a limit 3", false),
        (Postgres, "select a, count(*) from x group by a having max(n) > 1 order by a limit 3", true),
        (MySql, "select a, s, count(*) from x group by s, x.a order by a limit 3", true),
        (MySql, "select a, count(*) from x group by a with rollup order by a limit 3", false),
        (Postgres, "select id, a, count(*) from x group by id order by a limit 3", false),
        (Postgres, "select a, row_number() over (order by a) from x order by a limit 3", false),
        (Postgres, "select a, sum(count(*)) over () from x group by a order by a limit 3", false),
        (Postgres, "select a, lower(s), abs(n) from x order by a, upper(s) limit 3", true),
        (MySql, "select a, LOWER(s), ABS(n) from x order by a, upper(s) limit 3", true),
        (MySql, "select a, COUNT(*) from x order by a limit 3", false),
        (MySql, "select a from x order by a, 1 + Max(n) limit 3", false),
        (MySql, "select sql_calc_found_rows a from x order by a limit 3", false),
        (MySql, "select a from x having a > 1 order by a limit 3", false),
        (Postgres, "select a from x union all select a from y order by a limit 3", false),
        (Postgres, "(select a from x) order by a limit 3", false),
        (Postgres, "select q.a from (select a from x order by a limit 3) q order by q.a limit 3", true),
        (Postgres, "select q.a from (select a from x order by a offset 3) q order by q.a limit 3", false),
        (Postgres, "select a from parts order by a limit 3", false),
        (Postgres, "select a from view order by a limit 3", false),
        (Postgres, "select x.a from y left join x on x.id = y.id order by x.a limit 3", false),
        (Postgres, "select x.a from x left join y on x.id = y.id order by x.a limit 3", true),
        (Postgres, "select x.a from x, y where y.s = x.s order by x.a limit 3", true),
        (Postgres, "select a from x where exists (select max(a) from y where y.id = x.id) order by a limit 3", true),
        (Postgres, "with q as (select id from y order by id limit 2) select a from x order by a limit 3", true),
        (Postgres, "select s from x order by s limit 3", false),
        (Postgres, "select o from x order by o limit 3", true),
        (MySql, "select o from x order by o limit 3", false),
        (Postgres, "select f from x order by f limit 3", false),
        (Postgres, "select t from x order by t limit 3", true),
    ] {
        assert_eq!(is_cut(dialect, sql), cut, "{sql}");
    }
}

#[test]
fn the_limit_may_be_a_parameter() {
    let sql = "select id, a from x where id = $2 order by a limit $1";
    let full = |limit: ParameterValue<'_>, declared_type| {
        let own = [
            Parameter { value: limit, declared_type },
            Parameter { value: ParameterValue::Text(b"5"), declared_type: 0 },
        ];
        let top = bound(Postgres, sql, &own).limit_bound?;
        let last = [Field::Text(b"5"), Field::Text(b"7")];
        Some([2, 3].map(|rows| told(&top.deferred_tags(rows, &last))))
    };
    let at_three = Some(["id=5".to_owned(), "a -..7 and id=5".to_owned()]);
    assert_eq!(full(ParameterValue::Text(b"3"), 0), at_three);
    assert_eq!(full(ParameterValue::Binary(&3i64.to_be_bytes()), 0), at_three);
    assert_eq!(full(ParameterValue::Binary(&3i32.to_be_bytes()), 23), at_three);
    assert_eq!(full(ParameterValue::Integer(3), 0), at_three);
    for (limit, declared_type) in [
        (ParameterValue::Null, 0),
        (ParameterValue::Text(b"3.4"), 0),
        (ParameterValue::Text(b"-3"), 0),
        (ParameterValue::Text(b"0"), 0),
        (ParameterValue::Binary(&3f64.to_be_bytes()), 701),
        (ParameterValue::Opaque, 0),
    ] {
        assert_eq!(full(limit, declared_type), None, "{limit:?}");
    }
    // The type that the other use gave it is not known.
    let sql = "select f, a from x where f = $1 order by a limit $1";
    let own = [Parameter { value: ParameterValue::Binary(&3i64.to_be_bytes()), declared_type: 0 }];
    assert!(bound(Postgres, sql, &own).limit_bound.is_none());
}

#[test]
fn keys_of_others_are_read_all_the_same() {
    let sql = "select x.id, y.s from x join y on y.id = x.a where x.n = 3 order by x.id limit 2";
    let bound = bound(Postgres, sql, &[]);
    assert!(bound.join_keys.is_some());
    let later: Vec<TableId> = bound.tags.iter().filter(|tag| tag.rows == RowSet::Later).map(|tag| tag.table).collect();
    assert_eq!(later, [TableId(2), TableId(1)]);
    let tags = bound.limit_bound.unwrap().deferred_tags(2, &[Field::Text(b"9"), Field::Null]);
    assert_eq!(told(&tags), "id -..9 and n=3");
    // Rows that are found by keys have no bound of their own.
    let sql = "select x.id, y.id from x join y on y.id = x.a where x.n = 3 order by y.id limit 2";
    assert!(self::bound(Postgres, sql, &[]).limit_bound.is_none());
}

/// Join paths start at the rows within LIMIT, once the last one is known.
#[test]
fn keys_are_read_from_the_rows_that_are_shown() {
    let keys = |dialect, sql: &str, rows: u64, last: &[Field<'_>]| {
        let bound = bound(dialect, sql, &[]);
        let mut join_keys = bound.join_keys.expect(sql);
        let later = bound.tags.iter().filter(|tag| tag.rows == RowSet::Later).count();
        assert_eq!((later, bound.limit_bound.is_some()), (bound.tags.len(), true), "{sql}: {:?}", bound.tags);
        join_keys.bound_by_last(rows, last);
        let asked = JoinKeys::sql([&join_keys]);
        if asked.is_empty() {
            assert!(join_keys.deferred_tags(Some(&[])).iter().all(|tag| tag.rows == RowSet::Any), "{sql}");
            assert!(!join_keys.ask_only_of(|_| true, |_| true), "{sql}");
        }
        asked
            .split_once(" FROM ")
            .map(|(_, from)| from.replace("\"s\".", "").replace(['"', '`'], ""))
            .unwrap_or_default()
    };
    let joined = "select x.id, x.n, y.s from x left join y on y.id = x.a";
    let last = [Field::Text(b"9"), Field::Text(b"1.5"), Field::Null];
    for (more, rows, expected) in [
        ("order by x.id limit 2", 2, "x t0 WHERE (t0.id <= 9) LIMIT 1001)"),
        ("order by x.id limit 2", 1, ""),
        ("order by x.id desc limit 2 offset 7", 2, "x t0 WHERE (t0.id >= 9 OR t0.id IS NULL) LIMIT 1001)"),
        ("order by x.n limit 2", 2, "x t0 WHERE (t0.n <= 2) LIMIT 1001)"),
        ("where x.f > 3 order by x.id limit 2", 2, "x t0 WHERE t0.f >= 3e0 AND (t0.id <= 9) LIMIT 1001)"),
        ("where x.a < 3 order by x.id limit 2", 2, "x t0 WHERE t0.a <= 2 AND (t0.id <= 9) LIMIT 1001)"),
        ("where x.a < 3 order by x.id limit 2", 1, "x t0 WHERE t0.a <= 2 LIMIT 1001)"),
        (
            "where x.a < 3 or x.n = 7 order by x.id limit 2",
            2,
            "x t0 WHERE (t0.a <= 2 OR t0.n IN (7)) AND (t0.id <= 9) LIMIT 1001)",
        ),
    ] {
        assert_eq!(keys(Postgres, &format!("{joined} {more}"), rows, &last), expected, "{more}");
    }
    let none = [Field::Null, Field::Null, Field::Null];
    let descending = format!("{joined} order by x.id desc limit 2");
    assert_eq!(keys(Postgres, &descending, 2, &none), "x t0 WHERE (t0.id IS NULL) LIMIT 1001)");
    assert_eq!(keys(Postgres, &format!("{joined} order by x.id limit 2"), 2, &none), "");
    assert_eq!(keys(Postgres, &format!("{joined} order by x.id limit 2"), 2, &last[..2]), "", "another width");
    // Without an answer no key query is made.
    let join_keys = bound(Postgres, &descending, &[]).join_keys.unwrap();
    assert_eq!(JoinKeys::sql([&join_keys]), "");
}
