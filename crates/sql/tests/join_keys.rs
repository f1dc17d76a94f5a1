//! Key queries for rows of other tables, and the tags from their answers.

mod fixture;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{Bound, Client, JoinKeys, Parameter, ParameterValue, ReadSet, Template, lex};
use freshet_types::{Catalog, CatalogVersion, Dialect, RowSet, Table, TableId, Tag, Test, Value, ValueType};

use ValueType::{FoldedText, Int, Text};

/// A table's name and columns.
type Described<'d> = (&'d str, &'d [(&'d str, ValueType)]);

fn catalog(dialect: Dialect) -> Catalog {
    let text = if dialect.is_mysql_family() { FoldedText } else { Text };
    let tables: &[Described<'_>] = &[
        ("title", &[("title_id", Int), ("title", text), ("type", text)]),
        ("title_genre", &[("title_id", Int), ("genre", text)]),
        ("title_rating", &[("title_id", Int), ("average_rating", ValueType::Numeric)]),
        ("name", &[("name_id", Int), ("name", text)]),
        ("title_name_character", &[("title_id", Int), ("name_id", Int), ("character_name", text)]),
    ];
    let table = |(id, (name, columns)): (u32, &Described<'_>)| Table {
        // The key of `name` is known.
        key: if *name == "name" { vec!["name_id".into()] } else { Vec::new() },
        ..fixture::table(id, "s", name, columns)
    };
    Catalog::new(CatalogVersion(1), (1..).zip(tables).map(table).collect(), HashSet::new(), HashSet::new())
}

fn read_set(dialect: Dialect, sql: &str) -> (ReadSet, Bound) {
    let catalog = catalog(dialect);
    let schemas: Vec<Arc<str>> =
        if dialect.is_mysql_family() { vec!["s".into()] } else { vec!["pg_catalog".into(), "s".into()] };
    let lexed = lex(dialect, sql);
    let read_set = Template::parse(dialect, &lexed.normalized).resolve(&catalog, &schemas).expect(sql);
    let literals = lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 });
    let params: Vec<Parameter<'_>> = literals.collect();
    let bound = read_set.bind(&params, Client::PLAIN).expect(sql);
    (read_set, bound)
}

const CHARACTERS: &str = "select name.name, c.character_name from name join title_name_character c on \
    c.name_id = name.name_id join title t on t.title_id = c.title_id where t.title = 'It''s \\\\ a Wonder' and t.type = 'movie'";

#[test]
fn keys_are_read_from_the_constants_on() {
    let (read_set, bound) = read_set(Dialect::MySql, CHARACTERS);
    let join_keys = bound.join_keys.expect("join keys");
    assert_eq!(
        JoinKeys::sql([&join_keys]),
        "(SELECT DISTINCT '0.0', CAST(t0.`title_id` AS BINARY) FROM `s`.`title` t0 \
         WHERE t0.`title` IN ('It''s \\\\ a Wonder') AND t0.`type` IN ('movie') LIMIT 1001) UNION ALL \
         (SELECT DISTINCT '0.1', CAST(t1.`name_id` AS BINARY) FROM `s`.`title` t0 \
         JOIN `s`.`title_name_character` t1 ON t1.`title_id` = t0.`title_id` \
         WHERE t0.`title` IN ('It''s \\\\ a Wonder') AND t0.`type` IN ('movie') LIMIT 1001)"
    );
    assert_eq!(join_keys.tables(), [TableId(1), TableId(5)]);
    assert_eq!(
        read_set.describe(),
        [
            "s.name: name_id among the values of title_name_character.name_id",
            "s.title_name_character: title_id among the values of title.title_id",
            "s.title: title = … and type = …",
        ]
    );
    let later: Vec<TableId> = bound.tags.iter().filter(|tag| tag.rows == RowSet::Later).map(|tag| tag.table).collect();
    assert_eq!(later, [TableId(5), TableId(4)]);
}

/// The server decides what a text without a normal form equals.
#[test]
fn texts_beyond_ascii_are_asked_for_as_they_are() {
    let (read_set, bound) = read_set(Dialect::MySql, &CHARACTERS.replace("It''s \\\\ a Wonder", "The Café"));
    let join_keys = bound.join_keys.expect("join keys");
    let sql = JoinKeys::sql([&join_keys]);
    assert!(sql.contains("WHERE t0.`title` IN ('The Café') AND t0.`type` IN ('movie') LIMIT"), "{sql}");
    assert_eq!(read_set.describe()[2], "s.title: title = … and type = …");
    let title = bound.tags.iter().find(|tag| tag.table == TableId(1)).expect("a tag");
    let RowSet::Where(terms) = &title.rows else { panic!("{title:?}") };
    assert_eq!(terms[0].test, Test::Begins(b"the ca"[..].into()));
}

#[test]
fn postgresql_reads_the_same() {
    let (_, bound) = read_set(Dialect::Postgres, &CHARACTERS.replace("\\\\", "\\"));
    let join_keys = bound.join_keys.expect("join keys");
    assert!(
        JoinKeys::sql([&join_keys]).starts_with(
            "(SELECT DISTINCT '0.0', t0.\"title_id\"::pg_catalog.text FROM \"s\".\"title\" t0 \
             WHERE t0.\"title\" IN ('It''s \\ a Wonder') AND t0.\"type\" IN ('movie') LIMIT 1001) UNION ALL "
        ),
        "{}",
        JoinKeys::sql([&join_keys])
    );
}

#[test]
fn answers_become_tags() {
    let (_, bound) = read_set(Dialect::MySql, CHARACTERS);
    let join_keys = bound.join_keys.expect("join keys");
    let key = |part, key: &str| (part, Some(key.as_bytes().to_vec()));
    let keys = |tag: &Tag| match &tag.rows {
        RowSet::Where(terms) => match &terms[0].test {
            Test::In(values) => values.len(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let tags = join_keys.deferred_tags(Some(&[key(0, "7"), key(1, "70"), key(1, "70"), (1, None), key(1, "71")]));
    assert_eq!(tags.iter().map(|tag| (tag.table.0, keys(tag))).collect::<Vec<_>>(), [(5, 1), (4, 2)]);
    assert_eq!(join_keys.deferred_tags(Some(&[])), [], "no such title: nothing else matters");
    let any = |tags: &[Tag]| tags.iter().filter(|tag| tag.rows == RowSet::Any).count();
    assert_eq!(any(&join_keys.deferred_tags(None)), 2);
    let many: Vec<_> = (0..=1000).map(|number| key(1, &number.to_string())).chain([key(0, "7")]).collect();
    let tags = join_keys.deferred_tags(Some(&many));
    assert_eq!((any(&tags), keys(&tags[0])), (1, 1), "too many of one part");
    assert_eq!(any(&join_keys.deferred_tags(Some(&[key(0, "seven")]))), 1, "no number");
}

#[test]
fn keys_of_some_tables_alone() {
    let (_, bound) = read_set(Dialect::MySql, CHARACTERS);
    let whole = bound.join_keys.expect("join keys");
    let mut join_keys = whole.clone();
    assert!(join_keys.ask_only_of(|table| table == TableId(4), |_| true));
    let sql = JoinKeys::sql([&whole, &join_keys]);
    let numbers: Vec<&str> = sql.split("DISTINCT '").skip(1).filter_map(|part| part.split('\'').next()).collect();
    assert_eq!(numbers, ["0.0", "0.1", "1.1"]);
    let tags = join_keys.deferred_tags(Some(&[(1, Some(b"70".to_vec()))]));
    assert_eq!(
        tags.iter().map(|tag| (tag.table.0, tag.rows == RowSet::Any)).collect::<Vec<_>>(),
        [(5, true), (4, false)]
    );
    assert!(!join_keys.ask_only_of(|_| false, |_| true));
    assert_eq!(JoinKeys::sql([&join_keys]), "");
}

/// Without an equality, ranges are the start of a join path, with limits that exclude no row.
#[test]
fn keys_are_read_from_ranges_on() {
    let rated = "select * from title t join title_rating r on r.title_id = t.title_id where r.average_rating >= -1.5";
    for (more, expected) in [
        ("", "\"title_rating\" t0 WHERE t0.\"average_rating\" >= -2 LIMIT"),
        (
            " and r.average_rating < 7",
            "\"title_rating\" t0 WHERE t0.\"average_rating\" >= -2 AND t0.\"average_rating\" <= 8 LIMIT",
        ),
        (" and t.title = 'x'", "\"title\" t0 WHERE t0.\"title\" IN ('x') LIMIT"),
    ] {
        let (read_set, bound) = read_set(Dialect::Postgres, &format!("{rated}{more}"));
        let join_keys = bound.join_keys.expect(more);
        let sql = JoinKeys::sql([&join_keys]);
        assert!(sql.contains(expected) && !sql.contains("UNION"), "{sql}");
        let (place, line) = if more.contains("title =") {
            (1, "s.title_rating: average_rating within a range and title_id among the values of title.title_id")
        } else {
            (0, "s.title: title_id among the values of title_rating.title_id")
        };
        assert_eq!(read_set.describe()[place], line);
    }
}

/// The description of each table, without what is read for it.
fn described(dialect: Dialect, sql: &str) -> Vec<String> {
    read_set(dialect, sql).0.describe().iter().map(|line| line.replacen("s.", "", 1)).collect()
}

#[test]
fn beginnings_and_disjunctions_lead_on() {
    for (condition, expected) in [
        ("g.genre LIKE 'dra%'", "t0.\"genre\" LIKE 'dra%' LIMIT"),
        ("g.genre IS NULL", "t0.\"genre\" IS NULL LIMIT"),
        // As PostgreSQL writes conditions of a `varchar` in views.
        ("(g.genre)::text = 'x'::text", "t0.\"genre\" IN ('x') LIMIT"),
        ("'x' = g.genre::varchar", "t0.\"genre\" IN ('x') LIMIT"),
        (
            "((g.genre)::text = ANY ((ARRAY['x'::character varying, 'y'::character varying])::text[]))",
            "t0.\"genre\" IN ('x', 'y') LIMIT",
        ),
        ("g.genre IS NOT NULL", "t0.\"genre\" IS NOT NULL LIMIT"),
        ("g.genre::text <> 'x'", "t0.\"genre\" IS NOT NULL LIMIT"),
        ("(g.genre = 'x' OR g.title_id > 7)", "(t0.\"genre\" IN ('x') OR t0.\"title_id\" >= 8) LIMIT"),
    ] {
        let sql = format!("select * from title t join title_genre g on g.title_id = t.title_id where {condition}");
        let (_, bound) = read_set(Dialect::Postgres, &sql);
        let sql = JoinKeys::sql([&bound.join_keys.expect(condition)]);
        assert!(sql.contains(expected), "{sql}");
    }
    for condition in ["g.genre LIKE 'x\\_%'", "g.title_id::text = '1'", "g.genre::varchar(1) = 'x'"] {
        let sql = format!("select * from title t join title_genre g on g.title_id = t.title_id where {condition}");
        assert!(read_set(Dialect::Postgres, &sql).1.join_keys.is_none(), "{sql}");
    }
}

/// Conditions that test each row are the last choice of a start, as written in the statement.
#[test]
fn patterns_lead_on() {
    let rated = |condition: &str| {
        format!("select * from title t join title_genre g on g.title_id = t.title_id where {condition}")
    };
    let lower = "pg_catalog.lower(t0.\"genre\"::pg_catalog.text)";
    for (dialect, condition, expected) in [
        (Dialect::Postgres, "g.genre LIKE '%x'", "WHERE t0.\"genre\" LIKE '%x' LIMIT"),
        (Dialect::Postgres, "g.genre ILIKE '%x''y%'", "WHERE t0.\"genre\" ILIKE '%x''y%' LIMIT"),
        (
            Dialect::Postgres,
            "UPPER(g.genre::text) LIKE UPPER('%i%')",
            "WHERE pg_catalog.upper(t0.\"genre\"::pg_catalog.text) LIKE pg_catalog.upper('%i%') LIMIT",
        ),
        (
            Dialect::Postgres,
            "lower(g.genre::text) = lower('I')",
            &format!("WHERE {lower} IN (pg_catalog.lower('I')) LIMIT"),
        ),
        (Dialect::Postgres, "g.genre LIKE '%!_%' ESCAPE '!'", "WHERE t0.\"genre\" LIKE '%!_%' ESCAPE '!' LIMIT"),
        (
            Dialect::Postgres,
            "(g.genre LIKE '%x' OR g.title_id = 1)",
            "(t0.\"genre\" LIKE '%x' OR t0.\"title_id\" IN (1)) LIMIT",
        ),
        (Dialect::Postgres, "g.title_id::text LIKE '1%'", "WHERE t0.\"title_id\"::pg_catalog.text LIKE '1%' LIMIT"),
        (Dialect::MySql, "g.genre LIKE '%x'", "WHERE t0.`genre` LIKE '%x' LIMIT"),
        (Dialect::MySql, "g.genre LIKE BINARY '%i%'", "WHERE t0.`genre` LIKE BINARY '%i%' LIMIT"),
        (Dialect::MySql, "lower(g.genre) LIKE lower('%fiI_%')", "WHERE lower(t0.`genre`) LIKE lower('%f%%_%') LIMIT"),
        (Dialect::MySql, "lower(g.genre) LIKE '%i%'", "WHERE lower(t0.`genre`) LIKE '%i%' LIMIT"),
        (Dialect::MySql, "lower(g.genre) = lower('X')", "WHERE lower(t0.`genre`) IN (lower('X')) LIMIT"),
        (Dialect::MySql, "lower(g.genre) = 'i'", "WHERE lower(t0.`genre`) IN ('i') LIMIT"),
    ] {
        let (read_set, bound) = read_set(dialect, &rated(condition));
        let sql = JoinKeys::sql([&bound.join_keys.expect(condition)]);
        assert!(sql.contains(expected), "{sql}");
        assert_eq!(read_set.describe()[0], "s.title: title_id among the values of title_genre.title_id", "{condition}");
    }
    for (dialect, condition) in [
        (Dialect::Postgres, "UPPER(g.genre) LIKE UPPER('%\u{e9}%')"),
        (Dialect::Postgres, "g.genre LIKE '%x' ESCAPE 'y'"),
        (Dialect::Postgres, "UPPER(g.genre) NOT LIKE UPPER('%x%')"),
        (Dialect::MySql, "UPPER(g.genre) = UPPER('xi')"),
        (Dialect::MySql, "UPPER(g.genre) LIKE UPPER('%xi') ESCAPE '!'"),
        (Dialect::MySql, "UPPER(g.genre) LIKE BINARY '%x%'"),
        (Dialect::MySql, "g.genre LIKE '%\\_%'"),
        (Dialect::MySql, "g.title_id LIKE '%1%'"),
    ] {
        let join_keys = read_set(dialect, &rated(condition)).1.join_keys;
        let sql = join_keys.map_or_else(|| "IS NOT NULL LIMIT".to_owned(), |join_keys| JoinKeys::sql([&join_keys]));
        assert!(sql.contains("IS NOT NULL LIMIT"), "{condition}: {sql}");
    }
    // A beginning is preferred to a test of each row.
    let sql = "select * from name n join title_name_character c using (name_id) join title t using (title_id) \
        where t.title like 'x%' and n.name like '%x%'";
    let sql = JoinKeys::sql([&read_set(Dialect::Postgres, sql).1.join_keys.expect("join keys")]);
    assert!(!sql.contains("\"name\" t0"), "{sql}");
}

/// Texts of MySQL that are equal in another case: keys that were read are followed, constants are not propagated.
#[test]
fn folded_texts_lead_on_by_keys() {
    let sql = "select * from name n join title t on t.title = n.name where n.name_id = 1";
    let (read_set, bound) = read_set(Dialect::MySql, sql);
    let join_keys = bound.join_keys.expect("join keys");
    assert_eq!(read_set.describe()[1], "s.title: title among the values of name.name");
    let tags = |key: &str| join_keys.deferred_tags(Some(&[(0, Some(key.as_bytes().to_vec()))]));
    assert!(
        matches!(&tags("It")[0].rows, RowSet::Where(terms) if terms[0].test == Test::In([Value::Text(b"it"[..].into())].into()))
    );
    assert_eq!(tags("Caf\u{e9}")[0].rows, RowSet::Any);
    let sql = "select * from name n join title t on t.title = n.name where n.name = 'ss'";
    assert_eq!(described(Dialect::MySql, sql)[1], "title: title among the values of name.name");
}

/// A condition on a column of a block bounds the table behind it, if each row of the block comes from one row.
#[test]
fn conditions_reach_into_blocks() {
    let bounded = [
        "select * from (select g.title_id as n from title_genre g join title t using (title_id)) x where x.n = 1",
        "select * from (select distinct title_id from title_genre) x where title_id = 1",
        "select * from (select g.* from title_genre g left join title t on t.title_id = g.title_id) x where x.title_id = 1",
        "select * from (select g.title_id from title t left join title_genre g on g.title_id = t.title_id) x where x.title_id = 1",
        "select * from (select title_id, count(*) from title_genre group by title_id) x where x.title_id = 1",
        "select * from (select * from (select * from title_genre) y) x where x.title_id = 1",
        "with x as (select title_id as n from title_genre) select * from x where n = 1",
        "with x (n) as (select title_id from title_genre) select * from x where n = 1",
        "select * from (select title_id from title_genre union all select title_id from title_rating) x where x.title_id = 1",
        "select * from (select title_id from title_genre except select title_id from title_rating) x where x.title_id = 1",
        "select * from title_genre g where g.title_id in (select r.title_id from title_rating r) and g.title_id = 1",
    ];
    for sql in bounded {
        let lines = described(Dialect::Postgres, sql);
        let all = lines.iter().filter(|line| !line.starts_with("title:"));
        assert!(all.clone().count() > 0 && all.clone().all(|line| line.ends_with("title_id = …")), "{sql}: {lines:?}");
    }
    let unbounded = [
        "select * from (select title_id as n from title_genre limit 5) x where x.n = 1",
        "select * from (select title_id as n from title_genre offset 5) x where x.n = 1",
        "select * from (select title_id + 1 as n from title_genre) x where x.n = 1",
        "select * from (select distinct on (genre) title_id as n from title_genre) x where x.n = 1",
        "select * from (select title_id as n, rank() over (order by genre) from title_genre) x where x.n = 1",
        "select * from (select max(title_id) as n from title_genre) x where x.n = 1",
        "select * from (select genre, max(title_id) as n from title_genre group by genre) x where x.n = 1",
        "select * from (select title_id as n from title_genre group by rollup (title_id)) x where x.n = 1",
        "with recursive x as (select title_id as n from title_genre) select * from x where n = 1",
        "with x as (select title_id as n from title_genre) select * from x join x y on x.n < y.n where x.n = 1",
        "select * from (select title_id as n from title_genre union all select 1) x where x.n = 1",
        "select * from (select title_id as n from title_genre union all select title_id from title_rating limit 1) x where x.n = 1",
        "select * from title_genre g where g.title_id not in (select r.title_id from title_rating r) and g.genre = 'x'",
    ];
    for sql in unbounded {
        let lines = described(Dialect::Postgres, sql);
        assert!(lines.iter().any(|line| line.ends_with("any row")), "{sql}: {lines:?}");
    }
    let folded = "select * from (select title_id as n, count(*) from title_genre) x where x.n = 1";
    assert_eq!(described(Dialect::MariaDb, folded), ["title_genre: any row"]);
}

/// A WHERE that no row of NULLs satisfies turns an outer join into an inner one.
#[test]
fn outer_joins_that_are_inner_ones() {
    let chain = "select * from title t left join title_genre g on g.title_id = t.title_id \
        left join title_rating r on r.title_id = g.title_id where ";
    let on = "on g.title_id = t.title_id";
    for (sql, reached) in [
        (format!("select * from title t left join title_genre g {on} where g.genre = 'x'"), true),
        (format!("select * from title_genre g right join title t {on} where g.genre = 'x'"), true),
        (format!("select * from title t full join title_genre g {on} where g.genre = 'x'"), true),
        (format!("select * from title_genre g full join title t {on} where g.genre = 'x'"), true),
        (format!("select * from title t full join title_genre g {on} where g.genre = 'x' or t.type = 'y'"), true),
        (format!("select * from title t full join title_genre g {on} where g.genre = 'x' and t.type <> 'y'"), true),
        (format!("select * from title t left join title_genre g {on} where g.genre = 'x' or g.genre is null"), false),
        (
            format!(
                "select * from title t left join title_genre g {on} where not (g.genre <> 'x') and g.title_id in (1)"
            ),
            true,
        ),
        (format!("{chain} exists (select 1 from name n where n.name_id = r.title_id and n.name = 'x')"), true),
        (format!("{chain} r.title_id in (select name_id from name n where n.name = 'x') and t.type <> 'y'"), true),
        (format!("{chain} 1 in (select 1 from name n where n.name_id = r.title_id and n.name = 'x')"), true),
        (format!("{chain} not exists (select 1 from name n where n.name_id = r.title_id and n.name = 'x')"), false),
        (format!("{chain} exists (select count(*) from name n where n.name_id = r.title_id and n.name = 'x')"), false),
        (
            format!("{chain} exists (select 1 from name n where coalesce(r.title_id, 1) = n.name_id and n.name = 'x')"),
            false,
        ),
        (format!("{chain} r.average_rating = 7"), true),
        (format!("{chain} r.average_rating <=> 7"), false),
        (format!("{chain} coalesce(r.average_rating, 7) = 7"), false),
    ] {
        let dialect = if sql.contains("<=>") { Dialect::MySql } else { Dialect::Postgres };
        let lines = described(dialect, &sql);
        let title = lines.iter().find(|line| line.starts_with("title:")).expect("a table");
        assert_eq!(!title.ends_with("any row"), reached, "{sql}: {lines:?}");
    }
}

/// The same for outer joins in derived tables and conditions outside.
#[test]
fn outer_joins_within_that_are_inner_ones() {
    let inside = "select t.title_id, t.title, g.genre, g.title_id as h from title t left join title_genre g on g.title_id = t.title_id";
    let chain = "select t.title, r.average_rating as a from title t left join title_genre g using (title_id) \
        left join title_rating r on r.title_id = g.title_id";
    let ratings = "title_rating r where r.average_rating = 5";
    let other = "select name as title, null as genre from name";
    for (sql, reached) in [
        (format!("select * from ({inside}) q where q.genre = 'x'"), true),
        (format!("select * from ({inside}) q where genre in ('x', 'y') and title <> 'z'"), true),
        (
            format!("select * from ({inside}) q join name n on q.genre = n.name where n.name_id = 1 and q.genre = 'x'"),
            true,
        ),
        (format!("select * from name n left join ({inside}) q on q.genre = 'x'"), true),
        (format!("select * from (select * from ({inside}) p) q where genre = 'x'"), true),
        (format!("with q as ({inside}) select * from q where genre = 'x'"), true),
        (format!("select * from ({chain}) q where a = 7"), true),
        (format!("select * from name n left join (select * from ({chain}) p where a = 7) q on q.title = n.name"), true),
        (format!("select * from (select title, genre from ({inside}) p union all {other}) q where genre = 'x'"), true),
        (format!("select * from (select genre, count(*) from ({inside}) p group by genre) q where genre = 'x'"), true),
        (format!("select * from ({inside}) q where exists (select 1 from {ratings} and r.title_id = q.h)"), true),
        (format!("select * from ({inside}) q where q.genre = 'x' or q.title = 'y'"), false),
        (format!("select * from ({inside}) q where q.genre = 'x' or q.genre is null"), false),
        (format!("select * from ({inside}) q where coalesce(q.genre, 'x') = 'x'"), false),
        (format!("select * from ({inside} limit 5) q where q.genre = 'x'"), false),
        (format!("select * from (select max(genre) as genre from ({inside}) p) q where q.genre = 'x'"), false),
        (format!("select * from ({inside}) q left join title_rating r on q.genre = 'x'"), false),
        (
            format!("with q as ({inside}) select * from q join q p on q.title_id < p.title_id where q.genre = 'x'"),
            false,
        ),
        (
            "select * from title t left join (select * from title_genre) g on g.title_id = t.title_id and g.genre = 'x'".to_owned(),
            false,
        ),
    ] {
        let lines = described(Dialect::Postgres, &sql);
        let title = lines.iter().find(|line| line.starts_with("title:")).expect("a table");
        assert_eq!(!title.ends_with("any row"), reached, "{sql}: {lines:?}");
    }
}

/// If a sub-select has a row for an outer row, an inner equality bounds the outer reference.
#[test]
fn sub_selects_bound_outer_rows() {
    for (condition, reached) in [
        ("exists (select 1 from title_genre g where g.title_id = t.title_id and g.genre = 'x')", true),
        ("exists (select 1 from title_genre g where title_id = t.title_id and genre = 'x' limit 1)", true),
        ("exists (select genre from title_genre g where g.title_id = t.title_id and genre = 'x' group by genre)", true),
        (
            "exists (select 1 from name n where exists (select 1 from title_name_character c where c.name_id = n.name_id \
             and c.title_id = t.title_id) and n.name = 'x')",
            true,
        ),
        ("t.title_id in (select g.title_id from title_genre g where g.genre = 'x')", true),
        ("(t.title_id, t.type) in (select g.title_id, g.genre from title_genre g where g.genre = 'x')", true),
        ("t.title_id = (select max(g.title_id) from title_genre g where g.genre = 'x')", true),
        ("(select g.genre from title_genre g where g.title_id = t.title_id and g.title_id = 7) = 'x'", true),
        ("'x' = (select g.genre from title_genre g where t.title_id = g.title_id and g.title_id > 0)", true),
        ("not (select g.genre from title_genre g where g.title_id = t.title_id and g.title_id = 7) = 'x'", false),
        ("(select max(g.genre) from title_genre g where g.title_id = t.title_id and g.title_id = 7) = 'x'", false),
        ("(select g.genre from title_genre g where g.title_id = t.title_id and g.title_id = 7) is null", false),
        ("not exists (select 1 from title_genre g where g.title_id = t.title_id and g.genre = 'x')", false),
        ("exists (select count(*) from title_genre g where g.title_id = t.title_id and g.genre = 'x')", false),
        ("exists (select 1 from title_genre g where g.title_id = t.title_id or g.genre = 'x')", false),
        ("t.title_id not in (select g.title_id from title_genre g where g.genre = 'x')", false),
        ("t.title_id = (select count(g.title_id) from title_genre g where g.genre = 'x')", false),
    ] {
        let lines = described(Dialect::Postgres, &format!("select * from title t where {condition}"));
        let is_reached = !lines[0].ends_with("any row") && !lines[0].contains(" not among ");
        assert_eq!(is_reached, reached, "{condition}: {lines:?}");
    }
}

/// The key query reads the LIMIT boundary of a derived table that is not in the answer.
#[test]
fn ends_of_pages_are_asked_for() {
    let (asked, bound) =
        read_set(Dialect::Postgres, "select type from title order by title_id desc nulls last limit 3 offset 4");
    let join_keys = bound.join_keys.expect("join keys");
    assert_eq!(
        JoinKeys::sql([&join_keys]),
        "(SELECT '0.0', t0.\"title_id\"::pg_catalog.text FROM ONLY \"s\".\"title\" t0 ORDER BY t0.\"title_id\" DESC NULLS LAST \
         LIMIT 1 OFFSET 6)"
    );
    assert_eq!(join_keys.tables(), [TableId(1)]);
    assert_eq!(asked.describe(), ["s.title: title_id up to the page's last row's"]);
    let rows = |keys: &[Option<&str>]| {
        let keys: Vec<_> = keys.iter().map(|key| (0, key.map(|key| key.as_bytes().to_vec()))).collect();
        let [tag] = join_keys.deferred_tags(Some(&keys)).try_into().expect("one tag");
        tag.rows
    };
    let key = Value::Int(7).order_key();
    let RowSet::Where(terms) = rows(&[Some("7")]) else { panic!("no bound") };
    assert_eq!(terms[0].test, Test::Within { low: key, high: u64::MAX });
    for unknown in [&[][..], &[None], &[Some("7"), Some("8")], &[Some("seven")]] {
        assert_eq!(rows(unknown), RowSet::Any, "{unknown:?}");
    }
    for (statement, is_asked) in [
        ("select type from title order by title_id limit 3", true),
        ("select type from title where 1 = 1 order by title_id limit 3", true),
        ("select lower(type) from title t left join name n on n.name = t.type order by t.title_id limit 3", true),
        ("select name_id, count(*) from name group by name_id order by name_id limit 3", false),
        ("select count(*) from name group by name_id order by name_id limit 3", true),
        ("select count(*) from name group by name order by name limit 3", false),
        ("select type from title where 1 = 2 order by title_id limit 3", false),
        ("select type from title where type <> 'x' order by title_id limit 3", false),
        ("select distinct type from title order by type limit 3", false),
        ("select type from title t join name n on n.name = t.type order by t.title_id limit 3", false),
        ("select type from title t left join name n on n.name = t.type order by n.name_id limit 3", false),
        ("select type from title t right join name n on n.name = t.type order by t.title_id limit 3", false),
        ("select generate_series(1, title_id) from title order by title_id + 0, title_id limit 3", false),
        ("select generate_series(1, 2) from title t order by t.title_id limit 3", false),
        ("select count(*) from name n group by name_id, generate_series(1, name_id) order by n.name_id limit 3", false),
        ("select rank() over (order by type) from title order by title_id limit 3", false),
        ("select type from title order by title_id limit 0", false),
        ("select type from title order by title_id offset 3", false),
        ("select title_id from title order by title_id limit 3", false),
    ] {
        let (_, bound) = read_set(Dialect::Postgres, statement);
        let sql = bound.join_keys.map_or_else(String::new, |join_keys| JoinKeys::sql([&join_keys]));
        assert_eq!(sql.contains("LIMIT 1 OFFSET"), is_asked, "{statement}: {sql}");
    }
}

/// Join paths start at the rows of a derived table that is not in the answer, if its boundary is known.
#[test]
fn keys_lead_from_the_rows_of_a_page() {
    let statement = "select count(*) from (select t.title_id from title t order by t.title_id limit 2) p \
         join title_genre g on g.title_id = p.title_id";
    let (_, bound) = read_set(Dialect::MySql, statement);
    let mut join_keys = bound.join_keys.expect("join keys");
    assert_eq!(
        JoinKeys::sql([&join_keys]),
        "(SELECT DISTINCT '0.0', CAST(t0.`title_id` AS BINARY) FROM `s`.`title` t0 WHERE (t0.`title_id` <= (SELECT e0.`title_id` \
         FROM `s`.`title` e0 ORDER BY e0.`title_id` LIMIT 1 OFFSET 1) OR t0.`title_id` IS NULL) LIMIT 1001) UNION ALL \
         (SELECT '0.1', CAST(t0.`title_id` AS BINARY) FROM `s`.`title` t0 ORDER BY t0.`title_id` LIMIT 1 OFFSET 1)"
    );
    let key = |part, key: &str| (part, Some(key.as_bytes().to_vec()));
    let any = |join_keys: &JoinKeys, keys: &[freshet_sql::Key]| {
        let tags = join_keys.deferred_tags(Some(keys));
        tags.iter().filter(|tag| tag.rows == RowSet::Any).map(|tag| tag.table.0).collect::<Vec<_>>()
    };
    assert_eq!(any(&join_keys, &[key(0, "1"), key(0, "2"), key(1, "2")]), [0; 0]);
    assert_eq!(any(&join_keys, &[key(1, "2")]), [0; 0], "no key of the page's rows");
    assert_eq!(any(&join_keys, &[]), [2, 1], "fewer rows than the page may have");
    assert_eq!(any(&join_keys, &[key(0, "1"), key(1, "two")]), [2, 1], "a key that says nothing");
    assert_eq!(any(&join_keys, &[(1, None)]), [2], "those with NULL matter, and their keys are not known");
    assert!(join_keys.ask_only_of(|table| table == TableId(2), |_| true));
    assert!(JoinKeys::sql([&join_keys]).contains("SELECT '0.1'"), "the end is asked for with what it leads to");
}

/// Rows that NOT EXISTS drops because of keys of others.
#[test]
fn keys_that_others_hold_are_asked_for() {
    let (_, bound) = read_set(
        Dialect::Postgres,
        "select t.type from title t where not exists (select 1 from title_genre g, name n where g.title_id = t.title_id and \
         n.name_id = g.title_id and n.name in ('x', 'y') limit 1)",
    );
    let join_keys = bound.join_keys.expect("join keys");
    assert!(
        JoinKeys::sql([&join_keys]).contains(
            "'0.1', t0.\"title_id\"::pg_catalog.text FROM ONLY \"s\".\"title_genre\" t0, ONLY \"s\".\"name\" t1 WHERE \
             t1.\"name_id\" = t0.\"title_id\" AND t1.\"name\" IN ('x', 'y') LIMIT 1001"
        ),
        "{}",
        JoinKeys::sql([&join_keys])
    );
    let of_title = |keys: &[freshet_sql::Key]| {
        let tags = join_keys.deferred_tags(Some(keys));
        tags.into_iter().find(|tag| tag.table == TableId(1)).expect("a tag").rows
    };
    let RowSet::Where(terms) = of_title(&[(1, Some(b"7".to_vec())), (1, None)]) else { panic!("no keys") };
    assert_eq!(terms[0].test, Test::OrNull(Test::Not([Value::Int(7)].into()).into()));
    let many: Vec<_> = (0..=1000).map(|number: i32| (1, Some(number.to_string().into_bytes()))).collect();
    assert_eq!(of_title(&many), RowSet::Any);
    let genre = "g.title_id = t.title_id and g.genre = 'x'";
    for (condition, is_asked) in [
        (format!("not exists (select 1 from title_genre g where {genre})"), true),
        (format!("not (exists (select g.genre from title_genre g where {genre}) and t.title_id is not null)"), true),
        ("t.title_id not in (select g.title_id from title_genre g where g.genre = 'x')".to_owned(), true),
        ("t.title_id not in (select distinct g.title_id from title_genre g where g.genre = 'x')".to_owned(), true),
        ("t.title_id not in (select g.title_id from title_genre g where g.genre = 'x' limit 3)".to_owned(), false),
        (
            "t.title_id not in (select distinct on (genre) g.title_id from title_genre g where g.genre = 'x')"
                .to_owned(),
            false,
        ),
        (format!("exists (select 1 from title_genre g where {genre})"), false),
        (format!("not (exists (select 1 from title_genre g where {genre}) and t.type is not null)"), false),
        (format!("not exists (select count(*) from title_genre g where {genre})"), false),
        (format!("not exists (select 1 from title_genre g where {genre} limit 0)"), false),
        (format!("not exists (select 1 from title_genre g where {genre} limit 1 offset 1)"), false),
        (format!("not exists (select 1 from title_genre g where {genre} group by g.genre having count(*) > 1)"), false),
        (format!("not exists (select 1 from title_genre g where {genre} and g.genre like 'x%')"), false),
        (format!("not exists (select 1 from title_genre g where {genre} or g.genre = 'y')"), false),
        ("not exists (select 1 from title_genre g where g.title_id = t.title_id)".to_owned(), false),
        (format!("not exists (select 1 from title_genre g left join name n on n.name = g.genre where {genre})"), false),
        (format!("not exists (select 1 from title_genre g where {genre}) or t.type = 'y'"), false),
    ] {
        let (_, bound) = read_set(Dialect::Postgres, &format!("select t.type from title t where {condition}"));
        let sql = bound.join_keys.map_or_else(String::new, |join_keys| JoinKeys::sql([&join_keys]));
        assert_eq!(sql.contains("FROM ONLY"), is_asked, "{condition}: {sql}");
    }
    let nullable = "select t.type from name n left join title t on t.type = n.name where not exists (select 1 from title_genre g where \
         g.title_id = t.title_id and g.genre = 'x')";
    let (_, bound) = read_set(Dialect::Postgres, nullable);
    assert!(bound.join_keys.is_none(), "the row of NULLs is shown");
}

/// A constant that equals a sub-select of at most one row bounds the inner table, from which a join path leads to the outer one.
#[test]
fn scalar_sub_selects_equal_constants() {
    let bounded = "name: name = …";
    for (condition, expected) in [
        ("(select n.name from name n where n.name_id = t.title_id) = 'x'", bounded),
        (
            "'x' = (select name from name n where t.title_id = n.name_id and n.name <> 'y')",
            "name: name other than … and name = …",
        ),
        ("(select n.name from name n where n.name_id = t.title_id limit 1) = 'x'", "name: any row"),
        ("(select n.name from name n where n.name_id = t.title_id) <> 'x'", "name: any row"),
        ("(select max(n.name) from name n where n.name_id = t.title_id) = 'x'", "name: any row"),
        ("(select n.name from name n where n.name_id < t.title_id) = 'x'", "name: any row"),
        ("(select n.name from name n where n.name_id = 7 or n.name_id = t.title_id) = 'x'", "name: any row"),
        ("(select n.name from name n, title_rating r where n.name_id = t.title_id) = 'x'", "name: any row"),
        ("(select g.genre from title_genre g where g.title_id = t.title_id) = 'x'", "title_genre: any row"),
        ("coalesce((select n.name from name n where n.name_id = t.title_id) = 'x', true)", "name: any row"),
    ] {
        let lines = described(Dialect::Postgres, &format!("select * from title t where {condition}"));
        assert_eq!(lines[1], expected, "{condition}: {lines:?}");
        assert_eq!(!lines[0].ends_with("any row"), expected.ends_with("name = …"), "{condition}: {lines:?}");
    }
}

/// Each disjunct is walked separately.
#[test]
fn disjunctions_over_several_tables() {
    let described = |sql: &str| described(Dialect::Postgres, sql);
    let both = "select * from title t left join title_genre g on g.title_id = t.title_id left join title_rating r \
                on r.title_id = t.title_id where";
    let lines = described(&format!("{both} g.genre = 'x' or r.average_rating = 7"));
    let all = [
        "title: title_id among the values of title_rating.title_id",
        "title_genre: title_id among the values of title.title_id",
        "title_rating: average_rating = …",
        "title: title_id among the values of title_genre.title_id",
        "title_genre: genre = …",
        "title_rating: title_id among the values of title.title_id",
    ];
    assert_eq!(lines, all);
    for (condition, bounded) in [
        ("t.type = 'm' and (g.genre = 'x' or (t.title = 'y' and r.average_rating > 7) or t.title = 'z')", true),
        (
            "g.genre = 'x' or exists (select 1 from title_rating o where o.title_id = t.title_id and o.average_rating = 1)",
            true,
        ),
        ("(t.title = 'x' or t.type = 'y') and (g.genre = 'x' or r.average_rating = 7)", true),
        ("not (g.genre = 'x' or r.average_rating = 7)", false),
        ("g.genre = 'x' or r.average_rating is null", false),
        ("g.genre = 'a' or t.title = 'b' or r.average_rating = 1 or t.type = 'c' or r.title_id = 2", false),
    ] {
        let lines = described(&format!("{both} {condition}"));
        assert_eq!(!lines.iter().any(|line| line.ends_with("any row")), bounded, "{condition}: {lines:?}");
    }
    // One walk is enough if it bounds all tables.
    assert_eq!(described(&format!("{both} t.title = 'x' and (g.genre = 'x' or r.average_rating = 7)")).len(), 3);
}

/// A column of a set operation has the values of one of several columns: the keys of all are followed, or none.
#[test]
fn set_operations_lead_on() {
    let of =
        |union: &str| format!("select * from ({union}) u join title_genre g on g.title_id = u.n where g.genre <> 'y'");
    let (titles, names) =
        ("select title_id as n from title where title = 'x'", "select name_id from name where name = 'y'");
    let (_, bound) = read_set(Dialect::Postgres, &of(&format!("{titles} union {names}")));
    let join_keys = bound.join_keys.expect("join keys");
    assert_eq!(
        JoinKeys::sql([&join_keys]),
        "(SELECT DISTINCT '0.0', t0.\"title_id\"::pg_catalog.text FROM \"s\".\"title\" t0 \
         WHERE t0.\"title\" IN ('x') LIMIT 1001) UNION ALL \
         (SELECT DISTINCT '0.0', t0.\"name_id\"::pg_catalog.text FROM \"s\".\"name\" t0 \
         WHERE t0.\"name\" IN ('y') LIMIT 1001)"
    );
    assert_eq!(join_keys.tables(), [TableId(1), TableId(4)]);
    let key = |key: &str| (0, Some(key.as_bytes().to_vec()));
    let tags = join_keys.deferred_tags(Some(&[key("7"), key("70")]));
    let RowSet::Where(terms) = &tags[0].rows else { panic!("{tags:?}") };
    assert_eq!(terms.iter().filter(|term| term.test == Test::In([Value::Int(7), Value::Int(70)].into())).count(), 1);
    for (union, expected) in [
        (format!("{titles} union {names}"), "title_id among the values of name.name_id, title.title_id"),
        (format!("{titles} union all select null"), "title_id among the values of title.title_id"),
        (format!("{titles} except {names}"), "title_id among the values of name.name_id, title.title_id"),
        ("select title_id as n from title where title_id = 3 union select 4".to_owned(), "any row"),
        (
            "select title_id as n from title where title_id = 3 union select name_id from name where name_id = 5"
                .to_owned(),
            "title_id = …",
        ),
        (format!("{titles} union select name_id from name"), "any row"),
        (format!("{titles} union select average_rating from title_rating where title_id = 4"), "any row"),
    ] {
        let sql = of(&union).replace(" where g.genre <> 'y'", "");
        let line = described(Dialect::Postgres, &sql).into_iter().find(|line| line.starts_with("title_genre:"));
        assert_eq!(line, Some(format!("title_genre: {expected}")), "{sql}");
    }
}

/// If a branch of a set operation has NULL, the condition excludes all its rows.
#[test]
fn branches_of_null_do_not_matter() {
    let all = "(select t.title_id, t.title as a, cast(null as varchar(9)) as b from title t join title_rating r using (title_id) \
        union all select n.name_id, null, n.name from name n union all select c.title_id, null, null from title_name_character c) u";
    let (title, rating, name) =
        ("title: title = …", "title_rating: title_id among the values of title.title_id", "name: no row");
    let other = "title_name_character: no row";
    for (sql, expected) in [
        (format!("select * from {all} where a = 'x'"), vec![title, rating, name, other]),
        (
            format!("select * from {all} where a = 'x' and title_id > 0"),
            vec!["title: title = … and title_id within a range", rating, name, other],
        ),
        (
            format!("select * from {all} where b like 'x%'"),
            vec!["title: no row", "title_rating: no row", "name: any row", other],
        ),
        (format!("select * from {all} where a <> 'x'"), vec!["any row", "any row", name, other]),
        (format!("select * from {all} where not (a is null)"), vec!["title: title is not null", rating, name, other]),
        (format!("select * from {all} where a is null"), vec!["title is null", rating, "any row", "any row"]),
        (format!("select * from {all} where a = 'x' or b = 'y'"), vec![title, rating, "name: name = …", other]),
        (
            format!("select * from {all} where a = 'x' or a is null"),
            vec!["title is null", rating, "any row", "any row"],
        ),
        (format!("select * from {all} where a is distinct from 'x'"), vec!["any row"; 4]),
        // A parameter in its place may be NULL.
        (
            format!("select * from {all} where a is not distinct from 'x'"),
            vec![title, rating, "name: any row", "title_name_character: any row"],
        ),
        (format!("select * from {all} where coalesce(a, 'x') = 'x'"), vec!["any row"; 4]),
        (
            format!("select * from (select max(title_id), a from {all} group by a) v where a = 'x'"),
            vec![title, rating, name, other],
        ),
        (format!("select * from (select max(a) as a from {all} group by b) v where a = 'x'"), vec!["any row"; 4]),
        (format!("select * from (select * from {all} limit 3) v where a = 'x'"), vec!["any row"; 4]),
        (format!("select * from (select * from {all}) v where a = 'x'"), vec![title, rating, name, other]),
        (
            format!("select * from title_genre g join {all} on g.title_id = u.title_id where b = 'x' and a = 'y'"),
            vec!["title_genre: no row", "title: no row", "title_rating: no row", "name: no row", other],
        ),
    ] {
        let lines = described(Dialect::Postgres, &sql);
        let ends = |(line, expected): (&String, &&str)| line.ends_with(expected);
        assert!(lines.len() == expected.len() && lines.iter().zip(&expected).all(ends), "{sql}: {lines:?}");
    }
    // The definitions of the tables matter.
    let sql = "select * from (select title as a, 1 as b from title union select null, 2 from name) u where a = '1'";
    let tags = read_set(Dialect::Postgres, sql).1.tags;
    assert_eq!(tags.iter().filter(|tag| tag.rows == RowSet::Definition).count(), 1, "{tags:?}");
    // The other type decides about a conversion of the column; for MySQL's NULL, the connection does.
    for (dialect, null) in [(Dialect::Postgres, "null::numeric"), (Dialect::MySql, "cast(null as char(9))")] {
        let column = if dialect == Dialect::Postgres { "title_id" } else { "title" };
        let sql =
            format!("select * from (select {column} as a from title union select {null} from name) u where a = '1'");
        assert_eq!(described(dialect, &sql), ["title: any row", "name: no row"], "{sql}");
    }
}

#[test]
fn without_a_way_from_constants_any_row_matters() {
    for sql in [
        "select * from title t join title_genre g on g.title_id = t.title_id",
        "select * from title t join title_genre g on g.title_id = t.title_id + 1 where t.title = 'x'",
        "select * from title t left join title_genre g on g.title_id = t.title_id where g.genre is null",
        "select * from title t full join title_genre g on g.title_id = t.title_id where t.title = 'x' or g.genre <> t.type",
        "select * from title t join title_genre g using (title_id) where t.title = 'x' or g.genre = 'y' limit 1",
        "select * from title_genre g left join title t using (title_id) where t.title is null",
        "select * from title t join (select title_id from title_genre limit 5) g using (title_id) where t.title = 'x'",
    ] {
        let dialect = Dialect::Postgres;
        let (_, bound) = read_set(dialect, sql);
        assert!(bound.join_keys.is_none(), "{sql}: {:?}", bound.join_keys);
    }
    for sql in [
        "select * from title t join title_genre g using (title_id) where t.title = 'x'",
        "select * from title_genre g left join title t using (title_id) where t.title = 'x'",
        "select * from title t join (select title_id from title_genre) g using (title_id) where t.title = 'x'",
        "select * from title t left join title_genre g using (title_id) where t.title = 'x'",
        "select * from title_genre g right join title t using (title_id) where t.title = 'x'",
        "select * from title t left join title_genre g on g.title_id = t.title_id where t.title = 'x'",
        "select * from title t where t.title = 'x' and not exists (select 1 from title_genre g where g.title_id = t.title_id)",
        "select * from title_genre where title_id = (select max(t.title_id) from title t, title_rating r \
         where t.title = 'x' and r.title_id = t.title_id)",
    ] {
        assert!(read_set(Dialect::Postgres, sql).1.join_keys.is_some(), "{sql}");
    }
}

#[test]
fn too_many_keys_are_asked_how_far_they_reach() {
    let asked = |condition: &str| {
        let sql = format!("select * from title t join title_genre g on g.title_id = t.title_id where {condition}");
        let mut join_keys = read_set(Dialect::Postgres, &sql).1.join_keys.expect(condition);
        (join_keys.ask_for_ranges(), JoinKeys::sql([&join_keys]), join_keys)
    };
    let (is_asked, sql, join_keys) = asked("g.genre = 'x'");
    assert!(is_asked && join_keys.asks_for_ranges());
    let expected = |end: &str| {
        format!(
            "(SELECT '0.0', {end}(t0.\"title_id\")::pg_catalog.text FROM \"s\".\"title_genre\" t0 WHERE t0.\"genre\" IN ('x'))"
        )
    };
    assert_eq!(sql, format!("{} UNION ALL {}", expected("MIN"), expected("MAX")));
    let keys = [Some("40"), Some("7")].map(|key| (0, key.map(|key| key.as_bytes().to_vec())));
    let range = |tag: &Tag| match &tag.rows {
        RowSet::Where(terms) => terms.to_vec(),
        other => panic!("{other:?}"),
    };
    let [tag] = join_keys.deferred_tags(Some(&keys)).try_into().unwrap();
    let terms: Vec<freshet_types::Term> = range(&tag);
    let [freshet_types::Term { test: Test::Within { low, high }, .. }] = terms.as_slice() else { panic!("{tag:?}") };
    assert_eq!([*low, *high], [7, 40].map(|key| Value::Int(key).order_key()));
    // NULL: no key. A key that cannot be read: any row.
    assert!(join_keys.deferred_tags(Some(&[(0, None), (0, None)])).is_empty());
    let unreadable = [(0, Some(b"NaN".to_vec()))];
    assert!(matches!(join_keys.deferred_tags(Some(&unreadable)).as_slice(), [Tag { rows: RowSet::Any, .. }]));
    // If each row must be tested, most may pass.
    for condition in ["g.genre LIKE '%x%'", "g.genre <> 'x'"] {
        let (is_asked, sql, _) = asked(condition);
        assert!(!is_asked && sql.is_empty(), "{sql}");
    }
}
