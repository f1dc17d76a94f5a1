//! Timestamps with a time zone in sessions in UTC, and in others.

mod fixture;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{Client, Parameter, ParameterValue, Template, lex};
use freshet_types::{
    Catalog, CatalogVersion, Cell, Change, Column, Dialect, Relation, RowSet, Table, TableId, ValueType,
};

const COLUMNS: [(&str, ValueType); 4] =
    [("id", ValueType::Int), ("z", ValueType::TimestampTz), ("t", ValueType::Timestamp), ("d", ValueType::Date)];

fn catalog() -> Catalog {
    let table = Table { key: vec!["id".into()], datetime: true, ..fixture::table(1, "public", "moments", &COLUMNS) };
    Catalog::new(CatalogVersion(1), vec![table], HashSet::new(), HashSet::new())
}

/// Whether a new row with these values may change the rows that satisfy a condition, or whether the answer determines it.
fn is_hit(condition: &str, own: &[Parameter<'_>], utc: bool, values: [&str; 3]) -> bool {
    let lexed = lex(Dialect::Postgres, &format!("SELECT id FROM moments WHERE {condition}"));
    let schemas: [Arc<str>; 2] = ["pg_catalog".into(), "public".into()];
    let read_set =
        Template::parse(Dialect::Postgres, &lexed.normalized).resolve(&catalog(), &schemas).expect(condition);
    let literals = lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 });
    let params: Vec<Parameter<'_>> = own.iter().copied().chain(literals).collect();
    let tags = read_set.bind(&params, Client { utc, ..Client::PLAIN }).expect(condition).tags;
    let columns = COLUMNS.iter().map(|(name, _)| Arc::from(*name)).collect();
    let relation = Arc::new(Relation { table: TableId(1), columns });
    let cell = |text: &str| if text == "null" { Cell::Null } else { Cell::Text(text.as_bytes().into()) };
    let new = std::iter::once("1").chain(values).map(cell).collect();
    let change = Change::Insert { relation, new };
    tags.iter().any(|tag| tag.rows == RowSet::Later || tag.may_be_hit(&change))
}

#[test]
fn in_utc_moments_have_parts() {
    let row = ["2026-03-31 23:30:00+00", "2026-03-31 10:00:00", "2026-03-31"];
    for (condition, in_utc) in [
        ("extract(month from z) = 3", true),
        ("extract(month from z) = 4", false),
        ("extract(hour from z) > 23", false),
        ("date_part('day', z) = 31", true),
        ("date_part('day', z) = 1", false),
        ("date_trunc('day', z) = z", false),
        ("date_trunc('hour', z) < z", true),
        ("date_trunc('day', z) = '2026-03-31'", true),
        ("date_trunc('day', z) = '2026-04-01'", false),
        ("date_trunc('day', z) = '2026-03-31 02:00:00+02'", true),
        ("z::date = '2026-03-31'", true),
        ("z::date = '2026-04-01'", false),
        ("z::date = d", true),
        ("z::date > d", false),
        ("z < t", false),
        ("z > t", true),
        // A date would become a timestamp in the session's time zone.
        ("date_trunc('day', d) = '2026-04-01'", true),
        ("extract(epoch from z) = 1", true),
        ("extract(timezone from z) = 1", true),
    ] {
        assert_eq!(is_hit(condition, &[], true, row), in_utc, "{condition}");
        assert!(is_hit(condition, &[], false, row), "{condition} in another zone");
    }
    let infinite = ["infinity", "2026-03-31 10:00:00", "2026-03-31"];
    assert!(is_hit("extract(month from z) = 4", &[], true, infinite));
    assert!(!is_hit("extract(month from z) = 4", &[], true, ["null", "null", "null"]));
}

#[test]
fn in_utc_constants_without_an_offset_are_exact() {
    let row = ["2026-03-31 23:30:00+00", "2026-03-31 10:00:00", "2026-03-31"];
    for (condition, in_utc) in [
        ("z = '2026-03-31 23:30:00'", true),
        ("z = '2026-03-31 22:30:00'", false),
        ("z = '2026-03-31 22:30:00'::timestamp", false),
        ("z in ('2026-03-31 22:30:00', '2026-03-31 21:30:00')", false),
        ("z > '2026-03-31 23:29:59'::timestamp", true),
        ("z > '2026-03-31 23:30:01'", false),
        ("z >= '2026-04-01'::date", false),
        ("z between '2026-03-01' and '2026-03-31'", false),
        ("z between '2026-03-01' and '2026-04-01'", true),
        ("not (z = '2026-03-31 23:30:00'::timestamp and z is not null)", false),
        ("not (z = '2026-03-31 23:31:00'::timestamp and z is not null)", true),
        ("z >= date '2026-03-31' + interval '1' day", false),
        ("t = '2026-03-31 10:00:01+00'::timestamptz", false),
        ("t = '2026-03-31 12:00:00+02'::timestamptz", true),
        ("d < '2026-03-30 00:00:00+00'::timestamptz", false),
    ] {
        assert_eq!(is_hit(condition, &[], true, row), in_utc, "{condition}");
        assert!(is_hit(condition, &[], false, row), "{condition} in another zone");
    }
    // Parameters of the declared types `timestamp` and `timestamptz`, and without a type.
    for declared_type in [0, 1114, 1184] {
        let of = |text: &'static str| [Parameter { value: ParameterValue::Text(text.as_bytes()), declared_type }];
        assert!(is_hit("z = $1", &of("2026-03-31 23:30:00"), true, row));
        assert!(!is_hit("z = $1", &of("2026-03-31 22:30:00"), true, row));
        assert!(is_hit("z = $1", &of("2026-03-31 22:30:00"), false, row));
    }
}

/// Whether a statement over a table with times, with and without a zone, reads the clock, with these parameters as texts.
fn reads_clock(sql: &str, own: &[(&str, u32)]) -> bool {
    use ValueType::{Date, DateTime, Int, Text, TimeTz};
    let columns = |types: &[(&str, ValueType)]| {
        let column = |(name, value_type): &(&str, ValueType)| Column {
            name: (*name).into(),
            value_type: *value_type,
            generated: false,
            composite: None,
        };
        types.iter().map(column).collect()
    };
    let known = catalog();
    let table = |id: u32, name: &str, types: &[(&str, ValueType)]| Table {
        id: TableId(id),
        name: name.into(),
        columns: columns(types),
        ..(**known.table(TableId(1)).unwrap()).clone()
    };
    let zoned = table(2, "zoned", &[("id", Int), ("t", TimeTz), ("d", Date), ("n", Text)]);
    let both = table(3, "timed", &[("id", Int), ("l", DateTime), ("u", TimeTz)]);
    let catalog = Catalog::new(CatalogVersion(1), vec![zoned, both], HashSet::new(), HashSet::new());
    let lexed = lex(Dialect::Postgres, sql);
    let schemas: [Arc<str>; 2] = ["pg_catalog".into(), "public".into()];
    let resolved = Template::parse(Dialect::Postgres, &lexed.normalized).resolve(&catalog, &schemas);
    let own = own
        .iter()
        .map(|(text, declared)| Parameter { value: ParameterValue::Text(text.as_bytes()), declared_type: *declared });
    let literals = lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 });
    let params: Vec<Parameter<'_>> = own.chain(literals).collect();
    let bound = resolved.and_then(|read_set| read_set.bind(&params, Client::PLAIN).map(drop));
    match bound {
        Ok(()) => false,
        Err(freshet_types::Reason::ClockLiteral) => true,
        Err(reason) => panic!("{sql}: {reason}"),
    }
}

#[test]
fn a_time_takes_the_current_offset_of_a_zone() {
    for (sql, expected) in [
        ("select id from zoned where t > '10:00'", true),
        ("select id from zoned where t in ('10:00+01', '11:00')", true),
        ("select id from zoned where t between '10' and '11:00:00.5+02'", true),
        ("select id from zoned where t = '10:00 Europe/Vienna'", true),
        ("select id from zoned where t = '10:00 CET-1CEST'", true),
        ("select id from zoned where t = any ('{10:00+01,11:00}')", true),
        ("select coalesce(t, '10:00') from zoned", true),
        ("select t at time zone 'Europe/Vienna' from zoned", true),
        ("select timezone(n, t) from zoned", true),
        ("select id from zoned where t > make_time(10, 0, 0)", true),
        ("select id from zoned where t > time '10:00'", true),
        ("select id from zoned where t > '10:00'::time", true),
        ("select id from timed where l < u", true),
        ("select t from zoned union all select l from timed", true),
        (r"select id from zoned where t >= E'11:00\n'", true),
        (r"select id from zoned where t = any (array[E'11:00\t+01', E'\n11'])", true),
        // An offset, or a date, which determines it.
        (r"select id from zoned where t >= E'11:00+01\n'", false),
        (r"select id, n || E'\n' from zoned", false),
        ("select t + interval '1 hour' from zoned where id = 1", false),
        ("select id from zoned where t > '10:00+01'", false),
        ("select id from zoned where t > '10:00:00.25 -05:30'", false),
        ("select id from zoned where t = any ('{10:00+01,11:00-02}')", false),
        ("select id from zoned where t > '2026-07-01 10:00'", false),
        // Numbers.
        ("select id, t from zoned order by id limit 10 offset 20", false),
        ("select id from zoned where t >= '11:00+01' limit 10", false),
        ("select round(id / 2.5, 2) from zoned where id + 1 > 1 and t is not null", false),
        // No time with a time zone.
        ("select id, t, extract(hour from t) from zoned where id = 1 and d >= '2026-07-01' and n = '10:00'", false),
        ("select t::time, t + interval '1 hour' from zoned where n like '1%'", true),
        ("select id from zoned where d > '20260701' and n = '7'", false),
        ("select id from timed where l > '10:00' and id = 7", false),
        ("select l, l::time from timed where l between '10:00' and time '11:00'", false),
    ] {
        assert_eq!(reads_clock(sql, &[]), expected, "{sql}");
    }
    for (text, declared, expected) in
        [("10:00", 0, true), ("10:00", 1266, true), ("10:00+01", 0, false), ("10:00+01", 1266, false)]
    {
        assert_eq!(
            reads_clock("select id from zoned where t > $1", &[(text, declared)]),
            expected,
            "{text} {declared}"
        );
    }
    for (sql, declared, expected) in [
        ("select id from zoned where t is not null and id + $1 > 1", 23, false),
        ("select id, t from zoned limit $1", 20, false),
        ("select id, t from zoned limit $1", 0, false),
        ("select id from zoned where t > $1", 25, true),
        ("select id from zoned where t > $1", 705, true),
        ("select id from zoned where t > $1", 16385, true),
        ("select id, t from zoned order by id offset $1 rows fetch first 5 rows only", 0, false),
        ("select id, t from zoned order by id fetch first $1 rows only", 0, false),
    ] {
        assert_eq!(reads_clock(sql, &[("10", declared)]), expected, "{sql} {declared}");
    }
    let of_others = "select id from timed where l > $1 and id = 7";
    assert!(!reads_clock(of_others, &[("10:00", 0)]));
    assert!(reads_clock(of_others, &[("10:00", 1266)]));
}
