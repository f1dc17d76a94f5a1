//! Statements and their verdicts: the reason why one passes, or the tags of its result.
#![expect(clippy::too_many_lines, reason = "tables of cases")]

mod fixture;
mod shown;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{AnswerEnd, Client, Effect, Lexed, Parameter, ParameterValue, Template};
use freshet_types::{
    Catalog, CatalogVersion, Columns, Dialect, RelationKind, ReplicaIdentity, RowSet, Table, TableId, Tag, ValueType,
};

use shown::show_terms;

fn lex(sql: &str) -> Lexed {
    freshet_sql::lex(Dialect::Postgres, sql)
}

fn parse(normalized: &str) -> Template {
    Template::parse(Dialect::Postgres, normalized)
}

fn table(id: u32, name: &str, columns: &[(&str, ValueType)]) -> Table {
    let mut table = Table {
        datetime: columns.iter().any(|(_, value_type)| value_type.is_date()),
        ..fixture::table(id, "public", name, columns)
    };
    for column in &mut table.columns {
        column.generated = &*column.name == "generated";
    }
    table
}

/// Views, in the form of `pg_get_viewdef` with an empty search path, and tables that stand for others.
fn relations() -> Vec<Table> {
    use ValueType::{DateTime, Enum, Int, Text};
    let id_name: &[(&str, ValueType)] = &[("id", Int), ("name", Text)];
    let of_kind = |kind, children: &[u32], table: Table| Table {
        kind,
        children: children.iter().copied().map(TableId).collect(),
        ..table
    };
    let view = |id, name: &str, columns: &[(&str, ValueType)], text: &str| Table {
        definition: Some(text.into()),
        identity: ReplicaIdentity::Missing,
        ..of_kind(RelationKind::View, &[], table(id, name, columns))
    };
    let parts = |id, name, children| Table {
        identity: ReplicaIdentity::Missing,
        ..of_kind(RelationKind::Partitioned, children, table(id, name, id_name))
    };
    let secret = Table { row_security: true, ..table(45, "secret_part", id_name) };
    let mut found = vec![
        parts(30, "parts", &[31, 32]),
        parts(31, "parts_1", &[33, 34]),
        table(32, "parts_2", &[("name", Text), ("id", Int)]),
        table(33, "parts_1a", id_name),
        table(34, "parts_1b", &[("id", Int), ("name", Enum)]),
        of_kind(RelationKind::Parent, &[36, 37], table(35, "parent", id_name)),
        of_kind(RelationKind::Parent, &[38], table(36, "child", &[("extra", Int), ("name", Text), ("id", Int)])),
        table(37, "step_child", &[("id", Int), ("name", Text), ("day", DateTime)]),
        of_kind(RelationKind::Table, &[], table(38, "grandchild", id_name)),
        parts(40, "no_parts", &[]),
        parts(41, "foreign_parts", &[33, 42]),
        of_kind(RelationKind::Foreign, &[], table(42, "foreign_part", id_name)),
        parts(43, "keyless_parts", &[24]),
        parts(44, "secret_parts", &[45]),
        secret,
        parts(46, "lost_parts", &[999]),
        of_kind(RelationKind::MaterializedView, &[], table(47, "kept", id_name)),
        parts(48, "many", &(1000..1101).collect::<Vec<_>>()),
        view(
            50,
            "plain_5",
            id_name,
            " SELECT plain.id,\n    plain.b AS name\n   FROM public.plain\n  WHERE (plain.id = 5);",
        ),
        view(
            51,
            "over_view",
            id_name,
            " SELECT v.id, v.name FROM (public.plain_5 v LEFT JOIN public.parts p ON ((v.id = p.id)));",
        ),
        view(
            52,
            "today",
            id_name,
            " SELECT plain.id FROM public.plain WHERE (('today'::text)::date > '2020-01-01'::date);",
        ),
        view(53, "who", id_name, " SELECT plain.id FROM public.plain WHERE (plain.b = CURRENT_USER);"),
        view(
            54,
            "next_one",
            id_name,
            " SELECT nextval('public.s'::regclass) AS id, plain.b AS name FROM public.plain;",
        ),
        view(55, "over_next", id_name, " SELECT next_one.id FROM public.next_one;"),
        view(56, "over_secret", id_name, " SELECT secret.id FROM public.secret;"),
        view(57, "itself", id_name, " SELECT itself.id FROM public.itself;"),
        view(
            58,
            "sums",
            &[("id", Int), ("total", Int)],
            " SELECT title_genre.title_id AS id, count(*) AS total\n   FROM public.title_genre\n  WHERE (title_genre.genre = ANY (ARRAY['a'::text, 'b'::text]))\n  GROUP BY title_genre.title_id\n HAVING (count(*) > 1)\n  ORDER BY (count(*)) DESC;",
        ),
        view(
            59,
            "recursive",
            id_name,
            " WITH RECURSIVE recursive(id, name) AS (\n         SELECT plain.id, plain.b FROM public.plain\n        UNION ALL\n         SELECT r.id, r.name FROM recursive r\n        )\n SELECT recursive.id, recursive.name FROM recursive;",
        ),
        view(60, "constant", id_name, " SELECT 1 AS id, 'x'::text AS name;"),
        view(61, "days", &[("day", DateTime)], " SELECT title.updated AS day FROM public.title;"),
        view(62, "over_kept", id_name, " SELECT kept.id FROM public.kept;"),
        view(63, "of_system", &[("id", Int)], " SELECT pg_class.oid AS id FROM pg_class;"),
        view(64, "path_bound", &[("id", Int)], " SELECT plain.id FROM plain;"),
        view(65, "locking", id_name, " SELECT plain.id FROM public.plain\n FOR UPDATE OF plain;"),
        view(66, "typed", id_name, " SELECT shapes.id FROM public.shapes;"),
        Table { user_types: true, ..view(67, "typed_itself", id_name, " SELECT plain.id FROM public.plain;") },
        view(68, "quoted", id_name, " SELECT \"User\".id, \"left\"(\"User\".email, 3) AS name FROM public.\"User\";"),
        view(69, "words", id_name, " SELECT plain.id, 'now'::text AS name FROM public.plain;"),
        view(
            72,
            "counts",
            &[("movie", Int), ("total", Int)],
            " SELECT g.title_id AS movie, count(*) AS total FROM public.title_genre g\n  WHERE (g.genre = ANY (ARRAY['a'::text, 'b'::text]))\n  GROUP BY g.title_id;",
        ),
        view(71, "backslash", id_name, " SELECT plain.id FROM public.plain WHERE (plain.b = 'a\\\\'::text);"),
        view(
            70,
            "dated_words",
            id_name,
            " SELECT title.title_id AS id FROM public.title WHERE (title.title > 'now'::text);",
        ),
    ];
    // Each reads the one before.
    let chain = |at: u32| {
        view(200 + at, &format!("chain_{at}"), &[("id", Int)], &format!(" SELECT c.id FROM public.chain_{} c;", at - 1))
    };
    found.push(view(200, "chain_0", &[("id", Int)], " SELECT plain.id FROM public.plain;"));
    found.extend((1..=32).map(chain));
    found.extend((1000..1101).map(|id| table(id, &format!("many_{id}"), id_name)));
    found
}

fn catalog() -> Catalog {
    use ValueType::{Bool, Enum, Int, Numeric, Other, PaddedText, Text, Timestamp, Uuid};
    let odd = |id, name: &str, change: fn(&mut Table)| {
        let mut table = table(id, name, &[("id", Int), ("name", Text)]);
        change(&mut table);
        table
    };
    let tables = vec![
        table(
            1,
            "title",
            &[("title_id", Int), ("type", Text), ("title", Text), ("is_adult", Bool), ("updated", Timestamp)],
        ),
        table(2, "title_genre", &[("title_id", Int), ("genre", Text)]),
        table(3, "title_rating", &[("title_id", Int), ("average_rating", Numeric), ("num_votes", Int)]),
        table(4, "name", &[("name_id", Int), ("nconst", Text), ("name", Text), ("born", Int), ("died", Int)]),
        table(5, "title_principal", &[("title_id", Int), ("ordering", Int), ("name_id", Int), ("category", Text)]),
        table(6, "title_name_character", &[("title_id", Int), ("name_id", Int), ("character_name", Text)]),
        table(7, "sbtest1", &[("id", Int), ("k", Int), ("c", PaddedText), ("pad", PaddedText)]),
        table(8, "pgbench_accounts", &[("aid", Int), ("bid", Int), ("abalance", Int), ("filler", PaddedText)]),
        table(9, "usertable", &[("ycsb_key", Text), ("field0", Text)]),
        table(10, "User", &[("id", Int), ("email", Text), ("Role", Enum), ("key", Uuid), ("generated", Int)]),
        table(11, "plain", &[("id", Int), ("a", Int), ("b", Text), ("n", Numeric)]),
        table(12, "ranges", &[("id", Int), ("r", Other)]),
        table(13, "only", &[("id", Int)]),
        odd(20, "unread", |t| t.kind = RelationKind::View),
        odd(21, "unlogged", |t| t.kind = RelationKind::NotLogged),
        odd(22, "secret", |t| t.row_security = true),
        odd(23, "shapes", |t| t.user_types = true),
        odd(24, "keyless", |t| t.identity = ReplicaIdentity::Missing),
        odd(25, "pg_class", |t| (t.schema, t.kind) = ("pg_catalog".into(), RelationKind::System)),
        odd(26, "title", |t| t.schema = "other".into()),
    ];
    let tables = tables.into_iter().chain(relations()).collect();
    let names = |names: &[&str]| names.iter().map(|n| Box::from(*n)).collect::<HashSet<Box<str>>>();
    Catalog::new(CatalogVersion(1), tables, names(&["mine", "initcap", "fullname"]), names(&["~", "@>"]))
}

fn schemas() -> Vec<Arc<str>> {
    vec!["pg_catalog".into(), "public".into()]
}

fn show(catalog: &Catalog, tag: &Tag) -> String {
    let table = catalog.table(tag.table).unwrap();
    let schema = if &*table.schema == "public" { String::new() } else { format!("{}.", table.schema) };
    let rows = match &tag.rows {
        RowSet::Any => "*".to_owned(),
        RowSet::Definition => "definition".to_owned(),
        RowSet::Later => "later".to_owned(),
        RowSet::Where(terms) => show_terms(terms, false),
        RowSet::Enters(terms) => format!("enters {}", show_terms(terms, false)),
    };
    format!("{schema}{}({rows})", table.name)
}

fn verdict_with(sql: &str, own: &[Parameter<'_>], utf8: bool) -> String {
    verdict_under(&catalog(), sql, own, utf8)
}

fn verdict_under(catalog: &Catalog, sql: &str, own: &[Parameter<'_>], utf8: bool) -> String {
    let lexed = lex(sql);
    let read_set = match parse(&lexed.normalized).resolve(catalog, &schemas()) {
        Ok(read_set) => read_set,
        Err(reason) => return reason.label().to_owned(),
    };
    let mut params = own.to_vec();
    params.extend(lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 }));
    match read_set.bind(&params, Client { utf8, ..Client::PLAIN }) {
        Ok(mut bound) => {
            // As if there were fewer rows than LIMIT says.
            let none = AnswerEnd { rows: 0, last: Vec::new() };
            let by_keys =
                bound.keys.iter().flat_map(|keys| keys.deferred_tags([(); 0].iter(), |()| Vec::new(), &none, None));
            let late: Vec<Tag> =
                bound.limit_bound.iter().flat_map(|top| top.deferred_tags(0, &[])).chain(by_keys).collect();
            for tag in late {
                bound.tags.retain(|other| other.rows != RowSet::Later || other.table != tag.table);
                bound.tags.push(tag);
            }
            let mut tags: Vec<String> = bound.tags.iter().map(|tag| show(catalog, tag)).collect();
            tags.sort_unstable();
            tags.join(" ")
        }
        Err(reason) => reason.label().to_owned(),
    }
}

fn verdict(sql: &str) -> String {
    verdict_with(sql, &[], true)
}

fn text(value: &str) -> Parameter<'_> {
    Parameter { value: ParameterValue::Text(value.as_bytes()), declared_type: 0 }
}

fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(sql, expected)| (sql, expected, verdict(sql)))
        .filter(|(_, expected, found)| *expected != found)
        .map(|(sql, expected, found)| {
            format!("{sql}\n  expected {expected}\n  found    {found}\n  normalized    {}", lex(sql).normalized)
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

const POINT: &str = "title(title=Heat,type=movie)";

#[test]
fn title_5() {
    let tail = "t.title = 'Heat' AND t.type = 'movie'";
    let cases = [
        (format!("SELECT t.* FROM title t WHERE {tail}"), POINT.to_owned()),
        (
            format!("SELECT g.genre FROM title_genre g JOIN title t ON t.title_id = g.title_id WHERE {tail}"),
            format!("{POINT} title_genre(later)"),
        ),
        (
            format!(
                "SELECT t.title, r.average_rating, r.num_votes FROM title t JOIN title_rating r \
                 ON t.title_id = r.title_id WHERE {tail}"
            ),
            format!("{POINT} title_rating(later)"),
        ),
        (
            format!(
                "SELECT n.name, c.character_name FROM name n JOIN title_name_character c ON n.name_id = c.name_id \
                 JOIN title t ON t.title_id = c.title_id WHERE {tail};"
            ),
            format!("name(later) {POINT} title_name_character(later)"),
        ),
        (
            format!(
                "SELECT n.name, p.category FROM title_principal p, title t, name n \
                 WHERE p.title_id = t.title_id AND n.name_id = p.name_id AND {tail}"
            ),
            format!("name(later) {POINT} title_principal(later)"),
        ),
    ];
    for (sql, expected) in cases {
        assert_eq!(verdict(&sql), expected, "{sql}");
        let prepared = sql.replace("'Heat'", "$1");
        assert_eq!(verdict_with(&prepared, &[text("Heat")], true), expected, "{prepared}");
    }
    // Titles with a clock word are compared with a text column.
    assert_eq!(
        verdict("SELECT * FROM title WHERE title = 'Apocalypse Now' AND type='movie'"),
        "title(title=Apocalypse Now,type=movie)"
    );
}

#[test]
fn columns_of_sub_selects_lead_to_other_rows() {
    let genres = |from: &str| format!("SELECT g.genre FROM {from}");
    let joined = |sub: &str| genres(&format!("({sub}) q JOIN title_genre g ON g.title_id = q.e"));
    let cases = [
        (joined("SELECT p.id AS e FROM plain p WHERE p.a = 3 ORDER BY p.b LIMIT 1"), "plain(a=3) title_genre(later)"),
        (
            joined("SELECT DISTINCT i.f AS e FROM (SELECT id AS f FROM plain WHERE a = 3) i"),
            "plain(a=3) title_genre(later)",
        ),
        (
            joined("SELECT p.id AS e, count(*) FROM plain p WHERE p.id = 3 GROUP BY p.id"),
            "plain(id=3) title_genre(title_id=3)",
        ),
        (
            genres("title_genre g WHERE g.title_id IN (SELECT id FROM plain WHERE a = 3)"),
            "plain(a=3) title_genre(later)",
        ),
        // Cases in which rows of the sub-select must not be deleted, or its column may have other values.
        (joined("SELECT p.id AS e FROM plain p LIMIT 3") + " WHERE g.title_id = 3", "plain(*) title_genre(title_id=3)"),
        (joined("SELECT p.id + 1 AS e FROM plain p WHERE p.a = 3"), "plain(a=3) title_genre(*)"),
        (joined("SELECT 1 AS f, 2 AS e, p.id AS e FROM plain p WHERE p.a = 3"), "plain(a=3) title_genre(*)"),
        (
            joined("SELECT id AS e FROM plain WHERE a = 3 UNION SELECT id AS e FROM plain WHERE a = 4"),
            "plain(a=3) plain(a=4) title_genre(later)",
        ),
        (joined("SELECT * FROM plain WHERE a = 3"), "plain(a=3) title_genre(*)"),
        (
            genres("(SELECT a, id FROM plain WHERE a = 3) q(id, a) JOIN title_genre g ON g.title_id = q.id"),
            "plain(a=3) title_genre(title_id=3)",
        ),
        (
            genres("(SELECT id FROM plain WHERE a = 3) q RIGHT JOIN title_genre g ON g.title_id = q.id"),
            "plain(a=3) title_genre(*)",
        ),
        (
            genres("title_genre g WHERE g.title_id NOT IN (SELECT id FROM plain WHERE a = 3)"),
            "plain(a=3) title_genre(later)",
        ),
        (
            genres("title_genre g WHERE g.title_id IN (SELECT id FROM plain WHERE a = 3) OR g.genre = 'x'"),
            "plain(a=3) title_genre(genre=x) title_genre(later)",
        ),
    ];
    let cases: Vec<(&str, &str)> = cases.iter().map(|(sql, expected)| (sql.as_str(), *expected)).collect();
    check(&cases);
}

#[test]
fn truth_of_a_column_is_a_test() {
    let of = |condition: &str| verdict(&format!("SELECT t.title FROM title t WHERE {condition}"));
    for condition in [
        "t.is_adult",
        "is_adult",
        "t.is_adult = true",
        "true = (t.is_adult)",
        "t.is_adult IS TRUE",
        "NOT (NOT t.is_adult)",
    ] {
        assert_eq!(of(condition), "title(is_adult=true)", "{condition}");
    }
    for condition in ["NOT t.is_adult", "NOT (t.is_adult)", "t.is_adult = false", "t.is_adult IS FALSE"] {
        assert_eq!(of(condition), "title(is_adult=false)", "{condition}");
    }
    // NULL passes these.
    for condition in ["t.is_adult IS NOT TRUE", "t.is_adult IS NOT FALSE", "NOT (t.is_adult IS TRUE)"] {
        assert_eq!(of(condition), "title((is_adult))", "{condition}");
    }
}

#[test]
fn load_programs_and_object_mappers() {
    check(&[
        // sysbench
        ("SELECT c FROM sbtest1 WHERE id=5", "sbtest1(id=5)"),
        ("SELECT c FROM sbtest1 WHERE id BETWEEN 5 AND 104", "sbtest1(id=5..104)"),
        ("SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN 5 AND 104", "sbtest1(id=5..104)"),
        ("SELECT c FROM sbtest1 WHERE id BETWEEN 5 AND 104 ORDER BY c", "sbtest1(id=5..104)"),
        ("SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 5 AND 104 ORDER BY c", "sbtest1(id=5..104)"),
        ("UPDATE sbtest1 SET k=k+1 WHERE id=5", "not_select"),
        // pgbench
        ("SELECT abalance FROM pgbench_accounts WHERE aid = 42;", "pgbench_accounts(aid=42)"),
        // YCSB
        ("SELECT * FROM usertable WHERE YCSB_KEY = 'user1'", "usertable(ycsb_key=user1)"),
        ("SELECT field0 FROM usertable WHERE ycsb_key >= 'user1' ORDER BY ycsb_key LIMIT 10", "usertable(*)"),
        // Django
        (
            r#"SELECT "User"."id", "User"."email" FROM "User" WHERE "User"."email" = 'a@b.c' LIMIT 21"#,
            "User(email=a@b.c)",
        ),
        (
            r#"SELECT "User"."id" FROM "User" WHERE ("User"."email" = 'x' AND "User"."id" IN (1)) ORDER BY "User"."id" ASC LIMIT 1"#,
            "User(email=x,id=1)",
        ),
        (r#"SELECT COUNT(*) AS "__count" FROM "User" WHERE "User"."id" IN (1, 2, 3)"#, "User(id=1|2|3)"),
        (
            r#"SELECT "User"."id" FROM "User" LEFT OUTER JOIN "plain" T4 ON ("User"."id" = T4."id") WHERE T4."b" LIKE '%x%' AND NOT ("User"."email" = 'y')"#,
            "User(later) plain(b~*x*)",
        ),
        (r#"SELECT (1) AS "a" FROM "plain" WHERE "plain"."id" = 7 LIMIT 1"#, "plain(id=7)"),
        // SQLAlchemy
        ("SELECT plain.id AS plain_id, plain.a AS plain_a \nFROM plain \nWHERE plain.id = 5", "plain(id=5)"),
        (
            "SELECT anon_1.id FROM (SELECT plain.id AS id FROM plain WHERE plain.a = 3) AS anon_1 LEFT OUTER JOIN title_genre AS g_1 ON anon_1.id = g_1.title_id",
            "plain(a=3) title_genre(later)",
        ),
        // Hibernate
        (
            "select p1_0.id,p1_0.a from plain p1_0 left join title_genre g1_0 on g1_0.title_id=p1_0.id where p1_0.id=9 offset 0 rows fetch first 10 rows only",
            "plain(id=9) title_genre(title_id=9)",
        ),
        // Prisma
        (
            r#"SELECT "public"."User"."id" FROM "public"."User" WHERE ("public"."User"."id" = 3 AND 1=1) LIMIT 1 OFFSET 0"#,
            "User(id=3)",
        ),
        (
            r#"SELECT "public"."User"."id", "public"."User"."Role"::text FROM "public"."User" WHERE 1=1 ORDER BY "public"."User"."id" ASC OFFSET 0"#,
            "User(*)",
        ),
        // Rails, Sequelize
        (r#"SELECT "plain".* FROM "plain" WHERE "plain"."id" = 1 LIMIT 1"#, "plain(id=1)"),
        (r#"SELECT 1 AS one FROM "plain" WHERE "plain"."b" = 'x' LIMIT 1"#, "plain(b=x)"),
        (r#"SELECT "id", "email" FROM "User" AS "User" WHERE "User"."id" = 2;"#, "User(id=2)"),
    ]);
}

#[test]
fn tags() {
    check(&[
        ("SELECT * FROM plain", "plain(*)"),
        ("SELECT * FROM plain WHERE 5 = id", "plain(id=5)"),
        ("SELECT * FROM plain WHERE id = -5", "plain(id=-5)"),
        ("SELECT * FROM plain WHERE id = 5.0", "plain(id=5)"),
        ("SELECT * FROM plain WHERE n = 5.50", "plain(n=5.5)"),
        ("SELECT * FROM plain WHERE n = '5.50'", "plain(n=5.5)"),
        ("SELECT * FROM plain WHERE id = '5'", "plain(id=5)"),
        ("SELECT * FROM plain WHERE id = -'5'", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 5e0", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 0x1F", "construct"),
        ("SELECT * FROM plain WHERE id = 5::int", "plain(*)"),
        ("SELECT * FROM plain WHERE id = '5'::int", "plain(id=5)"),
        ("SELECT * FROM plain WHERE b = CAST('x' AS varchar)", "plain(b=x)"),
        ("SELECT * FROM plain WHERE b = 'xyz'::varchar(1)", "plain(*)"),
        ("SELECT * FROM plain WHERE b = 5", "plain(*)"),
        ("SELECT * FROM plain WHERE b = 'it''s'", "plain(b=it's)"),
        ("SELECT * FROM plain WHERE b = E'x'", "plain(b=x)"),
        ("SELECT * FROM plain WHERE b = $q$x$q$", "plain(*)"),
        ("SELECT * FROM plain WHERE b = 'a'\n'b'", "plain(*)"),
        ("SELECT * FROM plain WHERE b = N'x'", "plain(*)"),
        ("SELECT * FROM plain WHERE id = NULL", "plain(*)"),
        ("SELECT * FROM plain WHERE (id = 5) AND (((a = 6)))", "plain(a=6,id=5)"),
        ("SELECT * FROM plain WHERE id = 5 OR a = 6", "plain(a=6) plain(id=5)"),
        ("SELECT * FROM plain WHERE NOT id = 5", "plain(id<>5)"),
        ("SELECT * FROM plain WHERE (id = 5) IS NOT TRUE", "plain((id))"),
        // True of a row of NULLs, which an outer join may add: it bounds nothing.
        (
            "SELECT * FROM title t LEFT JOIN plain p ON t.title_id = p.id WHERE (p.a > p.id) IS NOT TRUE",
            "plain(*) title(*)",
        ),
        ("SELECT * FROM title t LEFT JOIN plain p ON t.title_id = p.id WHERE p.a > p.id", "plain((a id)) title(*)"),
        ("SELECT * FROM plain WHERE id = 5 IS NULL", "plain((id))"),
        ("SELECT * FROM plain WHERE id = 5 AND a = 6 OR b = 'x'", "plain(a=6,id=5) plain(b=x)"),
        ("SELECT * FROM plain WHERE id IN (5)", "plain(id=5)"),
        ("SELECT * FROM plain WHERE id NOT IN (5)", "plain(id<>5)"),
        ("SELECT * FROM plain WHERE id = 5 AND id = 6", "plain(id=5)"),
        ("SELECT * FROM plain WHERE id = ANY('{5}')", "plain(id=5)"),
        ("SELECT a, count(*) FROM plain WHERE id = 5 GROUP BY a HAVING count(*) = 1", "plain(id=5)"),
        ("SELECT * FROM plain HAVING id = 5", "plain(*)"),
        ("SELECT rank() OVER (PARTITION BY a ORDER BY n DESC) FROM plain WHERE id = 5", "plain(id=5)"),
        (
            "SELECT sum(n) OVER w FROM plain WINDOW w AS (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            "plain(*)",
        ),
        // Outer joins.
        (
            "SELECT * FROM plain p LEFT JOIN title_genre g ON g.title_id = p.id AND g.genre = 'x' WHERE p.id = 5",
            "plain(id=5) title_genre(genre=x,title_id=5)",
        ),
        ("SELECT * FROM plain p LEFT JOIN title_genre g ON p.id = 5", "plain(*) title_genre(*)"),
        ("SELECT * FROM plain p RIGHT JOIN title_genre g ON p.id = 5", "plain(id=5) title_genre(*)"),
        ("SELECT * FROM plain p RIGHT JOIN title_genre g ON g.genre = 'x'", "plain(*) title_genre(*)"),
        ("SELECT * FROM plain p FULL JOIN title_genre g ON g.genre = 'x' AND p.id = 5", "plain(*) title_genre(*)"),
        ("SELECT * FROM plain p FULL JOIN title_genre g ON true WHERE p.id = 5", "plain(id=5) title_genre(*)"),
        ("SELECT * FROM plain p JOIN title_genre g ON g.genre = 'x' AND p.id = 5", "plain(id=5) title_genre(genre=x)"),
        (
            "SELECT * FROM name n LEFT JOIN (plain p JOIN title_genre g ON p.id = 5) ON g.genre = 'x' AND n.name_id = 1",
            "name(*) plain(id=5) title_genre(genre=x)",
        ),
        ("SELECT * FROM plain CROSS JOIN title_genre WHERE genre = 'x'", "plain(*) title_genre(genre=x)"),
        // Unqualified names, merged columns.
        (
            "SELECT * FROM title JOIN title_genre USING (title_id) WHERE genre = 'x'",
            "title(later) title_genre(genre=x)",
        ),
        ("SELECT * FROM title JOIN title_genre USING (title_id) WHERE title_id = 5", "title(*) title_genre(*)"),
        (
            "SELECT * FROM title JOIN title_genre USING (title_id) WHERE title.title_id = 5",
            "title(title_id=5) title_genre(title_id=5)",
        ),
        ("SELECT * FROM title NATURAL JOIN title_genre WHERE genre = 'x'", "title(*) title_genre(*)"),
        ("SELECT * FROM title, title_genre WHERE title_id = 5", "title(*) title_genre(*)"),
        ("SELECT * FROM plain AS p(x, id) WHERE id = 5", "plain(*)"),
        ("SELECT * FROM plain AS p(x, y) WHERE p.x = 5", "plain(*)"),
        // Self-joins.
        ("SELECT * FROM plain a, plain b WHERE a.id = 5 AND b.id = 6", "plain(id=5) plain(id=6)"),
        ("SELECT * FROM plain a, plain b WHERE a.id = 5 AND b.id = 5", "plain(id=5)"),
        ("SELECT * FROM plain a, plain b WHERE a.id = 5", "plain(*)"),
        // Sub-queries.
        (
            "SELECT * FROM plain p WHERE id = 5 AND EXISTS (SELECT 1 FROM title_genre g WHERE g.title_id = p.id AND g.genre = 'x')",
            "plain(id=5) title_genre(genre=x,title_id=5)",
        ),
        ("SELECT * FROM plain p WHERE EXISTS (SELECT 1 FROM title_genre g WHERE p.id = 5)", "plain(*) title_genre(*)"),
        ("SELECT * FROM plain p WHERE NOT EXISTS (SELECT 1 FROM title_genre WHERE id = 5)", "plain(*) title_genre(*)"),
        (
            "SELECT * FROM plain WHERE id = 5 AND a IN (SELECT title_id FROM title_genre WHERE genre = 'x')",
            "plain(id=5) title_genre(genre=x)",
        ),
        (
            "SELECT (SELECT max(num_votes) FROM title_rating WHERE title_id = p.id) FROM plain p WHERE p.id = 1",
            "plain(id=1) title_rating(title_id=1)",
        ),
        (
            "SELECT * FROM plain p, LATERAL (SELECT * FROM title_genre g WHERE g.title_id = p.id AND genre = 'x') q WHERE p.a = 1",
            "plain(a=1) title_genre(genre=x)",
        ),
        ("SELECT * FROM (SELECT * FROM plain) p WHERE p.id = 5", "plain(id=5)"),
        (
            "SELECT id FROM plain WHERE a = 1 UNION ALL SELECT title_id FROM title_genre WHERE genre = 'x'",
            "plain(a=1) title_genre(genre=x)",
        ),
        (
            "(SELECT id FROM plain WHERE a = 1) EXCEPT (SELECT id FROM plain WHERE a = 2) ORDER BY 1",
            "plain(a=1) plain(a=2)",
        ),
        // Common table expressions.
        ("WITH x AS (SELECT * FROM plain WHERE a = 1) SELECT * FROM x WHERE id = 5", "plain(a=1,id=5)"),
        ("WITH title AS (SELECT * FROM plain WHERE a = 1) SELECT * FROM title WHERE title = 'x'", "plain(a=1)"),
        ("WITH plain AS (SELECT * FROM plain WHERE a = 1) SELECT * FROM plain WHERE id = 5", "plain(a=1)"),
        ("WITH title AS (SELECT 1) SELECT * FROM public.title WHERE title = 'x'", "title(title=x)"),
        (
            "SELECT * FROM (WITH title AS (SELECT 1) SELECT * FROM title) q, title t WHERE t.title = 'x'",
            "title(title=x)",
        ),
        ("WITH name AS (SELECT 1 a) SELECT * FROM plain WHERE id = (SELECT a FROM name) AND plain.a = 3", "plain(a=3)"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM plain) SELECT * FROM a, b", "unknown_table"),
        (
            "WITH RECURSIVE r(id) AS (SELECT id FROM plain WHERE a = 1 UNION ALL SELECT p.id FROM plain p JOIN r ON r.id = p.a) SELECT * FROM r",
            "plain(*)",
        ),
        ("WITH x AS MATERIALIZED (SELECT * FROM plain) SELECT count(*) FROM x", "plain(*)"),
        // Names.
        ("SELECT * FROM PLAIN WHERE ID = 5", "plain(id=5)"),
        ("SELECT * FROM \"PLAIN\"", "unknown_table"),
        ("SELECT * FROM user", "unknown_table"),
        ("SELECT * FROM \"User\" WHERE \"Role\" = 'admin'", "User(Role=admin)"),
        ("SELECT * FROM \"User\" WHERE Role = 'admin'", "User(*)"),
        ("SELECT * FROM \"User\" WHERE generated = 5", "User(*)"),
        (
            "SELECT * FROM \"User\" WHERE key = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
            "User(key=a0eebc999c0b4ef8bb6d6bb9bd380a11)",
        ),
        ("SELECT * FROM other.title WHERE name = 'x'", "other.title(name=x)"),
        ("SELECT * FROM other.title, title WHERE title = 'x'", "other.title(*) title(title=x)"),
        ("SELECT * FROM title WHERE title.title = 'x' AND is_adult = 't'", "title(is_adult=true,title=x)"),
        ("SELECT * FROM sbtest1 WHERE c = 'x  '", "sbtest1(c=x)"),
        ("SELECT /* ' */ * FROM plain -- ;\nWHERE id = 5 /* /* nested */ */", "plain(id=5)"),
    ]);
}

#[test]
fn what_the_context_decides() {
    check(&[
        ("SELECT 1", ""),
        ("VALUES (1), (2)", ""),
        ("SELECT version()", ""),
        ("SELECT current_schema, current_schema(), USER", ""),
        ("SELECT * FROM plain WHERE b = current_user", "plain(*)"),
        ("SELECT * FROM plain WHERE b = current_schema() AND id = 1", "plain(id=1)"),
        ("SELECT current_schema, id FROM plain", "function"),
        ("SELECT (SELECT current_schema) FROM plain", "function"),
        ("SELECT current_schemas(false)", "function"),
        ("SELECT now()", "function"),
    ]);
}

#[test]
fn passes() {
    check(&[
        ("", "not_select"),
        (";", "not_select"),
        ("SELECT now()", "function"),
        ("INSERT INTO plain VALUES (1)", "not_select"),
        ("WITH x AS (DELETE FROM plain RETURNING *) SELECT * FROM x", "not_select"),
        ("SELECT * FROM plain; SELECT * FROM plain", "several_statements"),
        ("SELECT * FROM plain;;", "plain(*)"),
        ("SELECT * FROM plain FOR UPDATE", "locks_rows"),
        ("SELECT * FROM plain FOR NO KEY UPDATE", "locks_rows"),
        ("SELECT * FROM plain FOR SHARE OF plain SKIP LOCKED", "locks_rows"),
        ("SELECT * FROM (SELECT * FROM plain FOR UPDATE) x", "locks_rows"),
        ("SELECT * INTO x FROM plain", "construct"),
        ("SELECT * FROM plain TABLESAMPLE BERNOULLI (10)", "construct"),
        ("TABLE plain", "not_parsed"),
        ("SELECT * FROM ONLY plain", "plain(*)"),
        ("SELECT * FROM ONLY (plain)", "not_parsed"),
        ("SELECT * FROM \"\u{1}only\".plain", "not_parsed"),
        ("SELECT * FROM ONLY nothing", "unknown_table"),
        ("SELECT * FROM plain FOR READ ONLY", "not_parsed"),
        ("SELECT * FROM \"only\"", "only(*)"),
        ("SELECT * FROM db.public.plain", "construct"),
        ("SELECT * FROM nothing", "unknown_table"),
        ("SELECT * FROM nowhere.plain", "unknown_table"),
        ("SELECT * FROM unread", "table_kind"),
        ("SELECT * FROM unlogged", "table_kind"),
        ("SELECT * FROM secret", "row_security"),
        ("SELECT * FROM shapes", "user_type"),
        ("SELECT * FROM keyless", "no_replica_identity"),
        ("SELECT relname FROM pg_class", "table_kind"),
        ("SELECT * FROM pg_catalog.pg_class", "table_kind"),
        ("SELECT * FROM information_schema.tables", "unknown_table"),
        ("SELECT ctid FROM plain", "construct"),
        ("SELECT p.xmin FROM plain p", "construct"),
        ("SELECT current_schema, id FROM plain", "function"),
        ("SELECT current_date, id FROM plain", "function"),
        ("SELECT id FROM title WHERE updated > localtimestamp", "function"),
        ("SELECT random() FROM plain", "function"),
        ("SELECT nextval('s') FROM plain", "function"),
        ("SELECT public.lower(b) FROM plain", "function"),
        ("SELECT pg_catalog.lower(b) FROM plain", "plain(*)"),
        ("SELECT mine(b) FROM plain", "function"),
        ("SELECT initcap(b) FROM plain", "user_defined"),
        ("SELECT pg_catalog.initcap(b) FROM plain", "plain(*)"),
        ("SELECT b ~ 'x' FROM plain", "user_defined"),
        ("SELECT b <-> 'x' FROM plain", "plain(*)"),
        ("SELECT p.fullname FROM plain p", "construct"),
        ("SELECT q.fullname FROM (SELECT * FROM plain) q", "user_defined"),
        ("SELECT (p).fullname FROM plain p", "construct"),
        ("SELECT * FROM generate_series(1, 3) g, plain WHERE id = 5", "plain(id=5)"),
        ("SELECT * FROM unnest(ARRAY[1,2]) u, plain", "plain(*)"),
        ("SELECT * FROM mine() m, plain", "function"),
        ("SELECT * FROM dblink('x') AS d(a int), plain", "function"),
        ("SELECT 'plain'::regclass, id FROM plain", "construct"),
        (
            "SELECT id FROM plain WHERE to_tsvector('english'::regconfig, b) @@ websearch_to_tsquery('english', 'x')",
            "plain(*)",
        ),
        ("SELECT ts_rank(to_tsvector(b), 'x & y'::tsquery) FROM plain WHERE id = 3", "plain(id=3)"),
        ("SELECT ts_rewrite('a', 'SELECT 1'), b FROM plain", "function"),
        ("SELECT b::mood FROM plain", "construct"),
        ("SELECT age(updated) FROM title", "function"),
        ("SELECT age(updated, updated) FROM title", "title(*)"),
        ("SELECT * FROM title WHERE updated > 'yesterday'", "clock_literal"),
        ("SELECT * FROM title WHERE updated > '2020-01-01'", "title(updated=2020-01-01 00:00:00.000000..)"),
        ("SELECT * FROM title WHERE updated > date 'today'", "clock_literal"),
        ("SELECT * FROM title WHERE updated > E'now'", "clock_literal"),
        ("SELECT 'now', title FROM title", "clock_literal"),
        ("SELECT 'now', b FROM plain", "plain(*)"),
        ("SELECT 'now'::date, b FROM plain", "clock_literal"),
        ("SELECT CAST('Tomorrow' AS timestamp), b FROM plain", "clock_literal"),
        ("SELECT b::date FROM plain", "clock_literal"),
        ("SELECT updated::date FROM title", "title(*)"),
        ("SELECT max(updated)::date FROM title", "title(*)"),
        ("SELECT max(title)::date FROM title", "clock_literal"),
        ("SELECT to_char(updated, 'YYYY')::date FROM title", "clock_literal"),
        ("SELECT ceil(n), floor(n), round(n, 2), abs(-a), a % 2, a ^ 2, a & 1, ~a FROM plain", "user_defined"),
        ("SELECT ceil(n), floor(n), round(n, 2), abs(-a), a % 2, a ^ 2, a & 1, |/ a FROM plain", "plain(*)"),
        ("SELECT g.a FROM plain g, (SELECT g.a) q", "construct"),
        ("SELECT g.a FROM plain g, LATERAL (SELECT g.a) q WHERE g.id = 1", "plain(id=1)"),
        ("SELECT count(p.*), count(*) FILTER (WHERE a > 1) FROM plain p WHERE p.id = 3", "plain(id=3)"),
        (
            "SELECT * FROM plain p JOIN (title_genre g CROSS JOIN name n) ON g.title_id = p.id WHERE p.id = 3",
            "name(*) plain(id=3) title_genre(title_id=3)",
        ),
        ("SELECT * FROM (plain p JOIN title_genre g ON true) AS j", "construct"),
        ("SELECT id FROM plain WHERE (id, a) = (1, 2)", "plain(a=2,id=1)"),
        ("SELECT * FROM plain WHERE id = 1 FETCH FIRST ROW ONLY", "plain(id=1)"),
        ("SELECT * FROM plain WHERE id = 1 LIMIT 5 OFFSET 10", "plain(id=1)"),
        ("SELECT id, n FROM plain WHERE a = 1 ORDER BY b DESC NULLS LAST, id LIMIT 5", "plain(a=1)"),
        ("SELECT id FROM plain WHERE a = 1 AND id > 7 ORDER BY id FETCH FIRST 5 ROWS ONLY", "plain(a=1,id=8..)"),
        ("SELECT max(n) FROM plain WHERE a = 1", "plain(a=1)"),
        ("SELECT * FROM plain WHERE b SIMILAR TO 'x'", "user_defined"),
        ("SELECT * FROM plain WHERE a NOT BETWEEN 1 AND 2 AND id = 3", "plain(id=3)"),
        ("SELECT * FROM plain WHERE a BETWEEN SYMMETRIC 2 AND 1 AND id = 3", "plain(a=1..2,id=3) plain(id=3)"),
        ("SELECT * FROM plain WHERE a NOT BETWEEN SYMMETRIC 2 AND 1 AND id = 3", "plain(id=3)"),
        ("SELECT a BETWEEN SYMMETRIC 2 AND id FROM plain", "plain(*)"),
        ("SELECT * FROM title WHERE updated BETWEEN SYMMETRIC '2020-01-01' AND 'today'", "clock_literal"),
        ("SELECT * FROM title WHERE (updated, updated) OVERLAPS ('2024-01-01', '2024-01-02')", "title(*)"),
        ("SELECT * FROM title WHERE (updated, updated) OVERLAPS ('2024-01-01', 'today')", "clock_literal"),
        ("SELECT x.a FROM plain, jsonb_to_record('{}') AS x(a int, b text) WHERE id = 1", "plain(id=1)"),
        ("SELECT x.a FROM plain, jsonb_to_record('{}') AS x(a date) WHERE id = 1", "construct"),
        ("SELECT x.a FROM plain, jsonb_to_record('{}') AS x(a mood) WHERE id = 1", "construct"),
        ("SELECT * FROM plain WHERE a BETWEEN 1 AND 2 AND id = 3", "plain(a=1..2,id=3)"),
        (
            "SELECT * FROM plain WHERE a = 1 AND b IS NULL AND (n > 2 OR n < 1)",
            "plain(a=1,b null,n=..1) plain(a=1,b null,n=2..)",
        ),
        ("SELECT * FROM plain WHERE CASE WHEN a = 1 THEN b = 'x' END", "plain((a b))"),
        ("SELECT EXISTS (SELECT 1 FROM plain WHERE id = 5)", "plain(id=5)"),
        ("SELECT EXISTS(SELECT 1 FROM plain WHERE id = 5 LIMIT 1) AS x", "plain(id=5)"),
        ("SELECT lower(b), UPPER(b), md5(b) FROM plain", "plain(*)"),
        ("SELECT lag(a, 1) OVER (ORDER BY id) FROM plain", "plain(*)"),
        ("SELECT json_agg(row_to_json(p)) FROM plain p", "plain(*)"),
        ("SELECT jsonb_build_object('a', a) FROM plain", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 5 AND set_config('a', 'b', false) IS NULL", "function"),
        ("SELECT date_trunc('day', 'now') FROM plain", "clock_literal"),
        ("SELECT * FROM ranges WHERE r @> 'today'", "user_defined"),
        ("SELECT * FROM ranges WHERE r = '[today,)'", "clock_literal"),
        ("SELECT * FROM title WHERE title IN ('now', 'x') AND type LIKE '%now%'", "title(title=now|x,type~*now*)"),
        ("SELECT * FROM title WHERE title > 'now' AND updated > interval '1 day' + updated", "title((updated))"),
        ("SELECT extract(year FROM updated), updated AT TIME ZONE 'UTC' FROM title", "title(*)"),
        ("SELECT DATE_TRUNC('day', updated) FROM title", "title(*)"),
        ("SELECT CASE WHEN a > 1 THEN 'x' ELSE 'y' END, coalesce(b, ''), nullif(a, 0) FROM plain", "plain(*)"),
        ("SELECT string_agg(b, ',' ORDER BY a), array_agg(DISTINCT a) FILTER (WHERE a > 1) FROM plain", "plain(*)"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM plain", "plain(*)"),
        ("SELECT DISTINCT ON (a) a, b FROM plain ORDER BY a, b DESC NULLS LAST", "plain(*)"),
        ("SELECT a, b, sum(n) FROM plain GROUP BY ROLLUP (a, b)", "plain(*)"),
        ("SELECT a FROM plain GROUP BY GROUPING SETS ((a), ())", "plain(*)"),
        (
            "SELECT substring(b from 1 for 2), position('a' in b), trim(both 'x' from b), overlay(b placing 'x' from 1) FROM plain",
            "plain(*)",
        ),
        ("SELECT r ->> 'a', r -> 0, r #>> '{a,b}' FROM ranges", "ranges(*)"),
        ("SELECT b COLLATE \"C\", a::numeric(10,2), ARRAY(SELECT id FROM plain) FROM plain", "plain(*)"),
        ("SELECT a[1], (ARRAY[1,2])[1:2] FROM plain", "plain(*)"),
        ("SELECT ROW(a, b), (a, b) IN ((1, 'x'), (2, 'y')) FROM plain", "plain(*)"),
        ("SELECT b LIKE 'a!%' ESCAPE '!', b ILIKE 'x', a IS DISTINCT FROM 1 FROM plain", "plain(*)"),
        ("SELECT * FROM plain ORDER BY id LIMIT ALL", "plain(*)"),
        ("SELECT * FROM plain FETCH FIRST 5 ROWS WITH TIES", "plain(*)"),
        ("SELECT U&\"a\" FROM plain", "not_parsed"),
        ("SELECT * FROM plain WHERE b = 'unterminated", "not_parsed"),
        ("SELECT * FROM plain /* unterminated", "not_parsed"),
        ("SELECT * FROM plain QUALIFY id = 5", "construct"),
        ("nonsense", "not_select"),
        ("SELECT * FROM plain WHERE \"\" = 5", "not_parsed"),
        ("EXPLAIN SELECT * FROM plain", "not_select"),
        ("SHOW work_mem", "not_select"),
    ]);
}

#[test]
fn parents_stand_for_their_leaves() {
    let leaves = |point: &str| {
        format!("parts(definition) parts_1(definition) parts_1a({point}) parts_1b({point}) parts_2({point})")
    };
    let family = |point: &str| format!("child({point}) grandchild({point}) parent({point}) step_child({point})");
    check(&[
        ("SELECT * FROM parts", &leaves("*")),
        ("SELECT * FROM parts WHERE id = 5", &leaves("id=5")),
        (
            "SELECT * FROM parts p JOIN plain q ON p.id = q.a WHERE p.id = 5 AND q.id = 6",
            &format!("{} plain(id=6)", leaves("id=5")),
        ),
        // A leaf whose column has another type is not bounded by it.
        (
            "SELECT * FROM parts WHERE name = 'x'",
            "parts(definition) parts_1(definition) parts_1a(name=x) parts_1b(*) parts_2(name=x)",
        ),
        (
            "SELECT * FROM parts WHERE name = 'x' AND id = 5",
            "parts(definition) parts_1(definition) parts_1a(id=5,name=x) parts_1b(id=5) parts_2(id=5,name=x)",
        ),
        ("SELECT * FROM parts AS p(name, id) WHERE id = 5", &leaves("*")),
        ("SELECT * FROM parts_1 WHERE id = 5", "parts_1(definition) parts_1a(id=5) parts_1b(id=5)"),
        ("SELECT * FROM parts_1a WHERE id = 5", "parts_1a(id=5)"),
        (
            "SELECT count(*) FROM parts LEFT JOIN plain ON parts.id = 5 AND plain.id = 5",
            &format!("{} plain(id=5)", leaves("*")),
        ),
        ("SELECT * FROM no_parts", "no_parts(definition)"),
        ("SELECT * FROM parent", &family("*")),
        ("SELECT p FROM parent p WHERE p.id = 5", &family("id=5")),
        ("SELECT row_to_json(p) FROM parent p WHERE name = 'now'", &family("name=now")),
        ("SELECT * FROM child WHERE id = 5 AND extra = 6", "child(extra=6,id=5) grandchild(id=5)"),
        ("SELECT * FROM ONLY parent WHERE id = 5", "parent(id=5)"),
        ("SELECT p.name FROM plain, ONLY public.parent AS p WHERE p.id = 5", "parent(id=5) plain(*)"),
        (
            "SELECT * FROM (ONLY child c JOIN ONLY parent p ON p.id = 5) FETCH FIRST 5 ROWS ONLY",
            "child(*) parent(id=5)",
        ),
        ("SELECT * FROM ONLY parts WHERE id = 5", "parts(definition)"),
        ("SELECT * FROM ONLY foreign_parts", "foreign_parts(definition)"),
        ("SELECT * FROM ONLY plain_5", "plain(id=5) plain_5(definition)"),
        ("WITH child AS (SELECT * FROM plain) SELECT * FROM ONLY child", "plain(*)"),
        ("SELECT tableoid FROM parent", "construct"),
        ("SELECT p.extra FROM parent p", "construct"),
        ("SELECT * FROM foreign_parts", "table_kind"),
        ("SELECT * FROM keyless_parts", "no_replica_identity"),
        ("SELECT * FROM secret_parts", "row_security"),
        ("SELECT * FROM lost_parts", "table_kind"),
        ("SELECT * FROM many", "construct"),
    ]);
}

#[test]
fn views_stand_for_their_queries() {
    let over = "over_view(definition) parts(definition) parts_1(definition) parts_1a(id=5) parts_1b(id=5) parts_2(id=5) plain(id=5) \
                plain_5(definition)";
    check(&[
        ("SELECT * FROM plain_5", "plain(id=5) plain_5(definition)"),
        ("SELECT v.name FROM plain_5 v WHERE v.id = 5", "plain(id=5) plain_5(definition)"),
        (
            "SELECT * FROM plain_5 v JOIN title t ON t.title_id = v.id WHERE t.title = 'x'",
            "plain(id=5) plain_5(definition) title(title=x,title_id=5)",
        ),
        ("SELECT * FROM plain_5, plain WHERE plain.id = 7", "plain(id=5) plain(id=7) plain_5(definition)"),
        ("SELECT * FROM over_view WHERE id = 5", over),
        ("SELECT * FROM over_view, plain_5", over),
        ("WITH plain_5 AS (SELECT * FROM name WHERE name_id = 1) SELECT * FROM plain_5", "name(name_id=1)"),
        (
            "WITH plain AS (SELECT * FROM name WHERE name_id = 1) SELECT * FROM plain_5, plain",
            "name(name_id=1) plain(id=5) plain_5(definition)",
        ),
        (
            "SELECT (SELECT count(*) FROM plain_5) FROM name WHERE name_id = 1",
            "name(name_id=1) plain(id=5) plain_5(definition)",
        ),
        ("SELECT * FROM sums WHERE total > 3", "sums(definition) title_genre(genre=a|b)"),
        // Conditions outside bound the inside, and join paths lead through.
        ("SELECT * FROM counts WHERE movie = 3", "counts(definition) title_genre(genre=a|b,title_id=3)"),
        (
            "SELECT * FROM title_genre g JOIN chain_1 s ON s.id = g.title_id WHERE g.genre = 'x'",
            "chain_0(definition) chain_1(definition) plain(later) title_genre(genre=x)",
        ),
        (
            "SELECT * FROM title t WHERE t.title_id IN (SELECT movie FROM counts) AND t.title_id = 4",
            "counts(definition) title(title_id=4) title_genre(genre=a|b,title_id=4)",
        ),
        ("SELECT * FROM plain_5 AS v (a, name) WHERE a = 7 AND name = 'x'", "plain(b=x,id=5) plain_5(definition)"),
        (
            "SELECT * FROM chain_2 v WHERE v.id = 5",
            "chain_0(definition) chain_1(definition) chain_2(definition) plain(id=5)",
        ),
        (
            "SELECT * FROM chain_3 v WHERE v.id = 5",
            "chain_0(definition) chain_1(definition) chain_2(definition) chain_3(definition) plain(*)",
        ),
        // Each reference has constants of its own.
        (
            "SELECT * FROM plain_5 v JOIN counts s ON s.total = v.id JOIN plain_5 w ON w.name = 'x' WHERE s.movie = 3",
            "counts(definition) plain(b=x,id=5) plain(id=5) plain_5(definition) title_genre(genre=a|b,title_id=3)",
        ),
        // No name in a view is one of the statement's.
        (
            "SELECT * FROM name n WHERE EXISTS (SELECT FROM plain_5 v WHERE v.id = n.born) AND n.name_id = 7",
            "name(born=5,name_id=7) plain(id=5) plain_5(definition)",
        ),
        // A number that is not known to be a constant of a view.
        ("SELECT * FROM plain_5 v WHERE v.id = $65537", "construct"),
        ("SELECT * FROM backslash", "backslash(definition) plain(*)"),
        ("SELECT * FROM recursive", "plain(*) recursive(definition)"),
        ("SELECT * FROM constant", "constant(definition)"),
        ("SELECT * FROM quoted", "User(*) quoted(definition)"),
        ("SELECT v.fullname FROM plain_5 v", "construct"),
        ("SELECT * FROM itself", "itself(definition)"),
        ("SELECT * FROM chain_31", &{
            let mut all: Vec<String> = (0..32).map(|at| format!("chain_{at}(definition)")).collect();
            all.push("plain(*)".to_owned());
            all.sort_unstable();
            all.join(" ")
        }),
        ("SELECT * FROM chain_32", "construct"),
        ("SELECT * FROM today", "clock_literal"),
        ("SELECT * FROM who", "plain(*) who(definition)"),
        ("SELECT * FROM next_one", "function"),
        ("SELECT * FROM over_next", "function"),
        ("SELECT * FROM over_secret", "row_security"),
        ("SELECT * FROM of_system", "table_kind"),
        ("SELECT * FROM path_bound", "unknown_table"),
        ("SELECT * FROM locking", "locks_rows"),
        ("SELECT * FROM typed", "user_type"),
        ("SELECT * FROM typed_itself", "user_type"),
        // Clock words: in the view's text beside dates, and in the statement's compared with a date of the view.
        ("SELECT * FROM words", "plain(*) words(definition)"),
        ("SELECT * FROM dated_words", "clock_literal"),
        ("SELECT * FROM days WHERE day > '2020-01-01'", "days(definition) title(*)"),
        ("SELECT * FROM days WHERE day > 'today'", "clock_literal"),
        ("SELECT * FROM plain_5 WHERE name = 'today'", "plain(b=today,id=5) plain_5(definition)"),
        ("SELECT * FROM kept", "table_kind"),
        ("SELECT * FROM over_kept", "table_kind"),
    ]);
    let mut catalog = catalog();
    catalog.ddl_in_stream = true;
    assert_eq!(verdict_under(&catalog, "SELECT * FROM kept WHERE id = 5", &[], true), "kept(definition)");
    assert_eq!(verdict_under(&catalog, "SELECT * FROM over_kept", &[], true), "kept(definition) over_kept(definition)");
    let reason = |sql: &str| parse(sql).resolve(&catalog, &schemas()).unwrap_err().to_string();
    assert!(
        reason("select * from over_next").contains("nextval in view public.next_one"),
        "{}",
        reason("select * from over_next")
    );
    assert!(reason("select * from over_secret").contains("public.secret"));
}

#[test]
fn the_depth_of_a_statement_is_bounded() {
    let nested = format!("SELECT {}1{} FROM plain", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(verdict(&nested), "too_long");
    let chain = format!("SELECT * FROM plain WHERE {}", vec!["a = 1"; 5000].join(" OR "));
    assert_eq!(verdict(&chain), "too_long");
    let chain = format!("SELECT * FROM plain WHERE {}", vec!["a"; 499].join(" + "));
    assert_eq!(verdict(&chain), "plain(*)");
    let nested = format!("SELECT {}1{} FROM plain", "(".repeat(60), ")".repeat(60));
    assert!(["plain(*)", "not_parsed"].contains(&verdict(&nested).as_str()));
    let both = format!("{}SELECT {}{}", "SELECT (".repeat(50), vec!["a"; 440].join("+"), " FROM plain)".repeat(50));
    assert!(["plain(*)", "not_parsed", "construct"].contains(&verdict(&both).as_str()), "{}", verdict(&both));
    let list = |items: usize| format!("SELECT * FROM plain WHERE id IN ({})", vec!["1"; items].join(","));
    assert_eq!(verdict(&list(2000)), "plain(id=1)");
    assert_eq!(verdict(&list(5000)), "too_long");
}

#[test]
fn parameters() {
    let typed =
        |value: &'static str, declared_type| Parameter { value: ParameterValue::Text(value.as_bytes()), declared_type };
    let binary =
        |value: &'static [u8], declared_type| Parameter { value: ParameterValue::Binary(value), declared_type };
    let null = Parameter { value: ParameterValue::Null, declared_type: 0 };
    let int = "SELECT * FROM plain WHERE id = $1";
    let numeric = "SELECT * FROM plain WHERE n = $1";
    let string = "SELECT * FROM plain WHERE b = $1";
    let padded = "SELECT * FROM sbtest1 WHERE c = $1";
    let cases: &[(&str, Vec<Parameter<'_>>, &str)] = &[
        (int, vec![text("5")], "plain(id=5)"),
        (int, vec![null], "plain(*)"),
        (int, vec![], "plain(*)"),
        (int, vec![typed("5", 23)], "plain(id=5)"),
        (int, vec![typed("5.0", 1700)], "plain(id=5)"),
        (int, vec![typed("5", 701)], "plain(*)"),
        (int, vec![typed("5", 25)], "plain(*)"),
        (int, vec![binary(&[0, 0, 0, 5], 0)], "plain(id=5)"),
        (int, vec![binary(&[0, 0, 0, 0, 0, 0, 0, 5], 20)], "plain(id=5)"),
        (int, vec![binary(&[0, 5], 1700)], "plain(*)"),
        (numeric, vec![binary(&[0, 0, 0, 5], 23)], "plain(n=5)"),
        (numeric, vec![typed("5.50", 0)], "plain(n=5.5)"),
        (numeric, vec![typed("NaN", 0)], "plain(*)"),
        (string, vec![text("x ")], "plain(b=x )"),
        (string, vec![typed("x", 1043)], "plain(b=x)"),
        (string, vec![typed("x", 705)], "plain(b=x)"),
        (string, vec![typed("x", 1042)], "plain(*)"),
        (string, vec![typed("x", 19)], "plain(*)"),
        (string, vec![binary(b"x", 25)], "plain(b=x)"),
        (padded, vec![typed("x ", 1042)], "sbtest1(c=x)"),
        (padded, vec![typed("x ", 25)], "sbtest1(c=x)"),
        ("SELECT * FROM plain WHERE id = $1::INTEGER", vec![text("5")], "plain(id=5)"),
        ("SELECT * FROM plain WHERE b = $1::VARCHAR", vec![typed("x", 25)], "plain(b=x)"),
        ("SELECT * FROM plain WHERE id = $1::int", vec![typed("5.5", 1700)], "plain(*)"),
        ("SELECT * FROM plain WHERE id = -$1", vec![text("5")], "plain(*)"),
        // The first use decides the type: equality with columns of one type only.
        ("SELECT * FROM plain WHERE id = $1 AND a = $1", vec![text("5")], "plain(a=5,id=5)"),
        ("SELECT * FROM plain WHERE id = $1 AND n = $1", vec![text("5")], "plain(*)"),
        ("SELECT * FROM plain WHERE id = $1 AND n = $1", vec![typed("5", 23)], "plain(id=5,n=5)"),
        ("SELECT $1, id FROM plain WHERE id = $1", vec![text("5")], "plain(*)"),
        ("SELECT id FROM plain WHERE id = $1 LIMIT $1", vec![text("5")], "plain(*)"),
        // Literals come after the statement's own parameters.
        (
            "SELECT 'x', id FROM plain WHERE id = $2 AND b = $1 AND a = 7",
            vec![text("y"), text("5")],
            "plain(a=7,b=y,id=5)",
        ),
        // Clock words.
        ("SELECT * FROM title WHERE title = $1", vec![text("Now")], "title(title=Now)"),
        ("SELECT * FROM title WHERE updated > $1", vec![text("Now")], "clock_literal"),
        ("SELECT * FROM title WHERE updated > $1", vec![binary(b"today", 25)], "clock_literal"),
        ("SELECT * FROM title WHERE title = $1 AND updated > $1", vec![text("Now")], "clock_literal"),
        ("SELECT $1::date, b FROM plain", vec![text("tomorrow 12:00")], "clock_literal"),
    ];
    for (sql, params, expected) in cases {
        assert_eq!(verdict_with(sql, params, true), *expected, "{sql} {params:?}");
    }
    assert_eq!(verdict_with(string, &[text("é")], true), "plain(b=é)");
    assert_eq!(verdict_with(string, &[text("é")], false), "plain(*)");
    assert_eq!(verdict_with(string, &[text("e")], false), "plain(b=e)");
}

#[test]
fn predicates() {
    let many = |count: usize, connector: &str| {
        let tests: Vec<String> = (0..count).map(|at| format!("(id = {at} AND a > {at})")).collect();
        tests.join(connector)
    };
    check(&[
        // Rows.
        ("SELECT * FROM plain WHERE (id, a) IN ((5, 1), (4, 2), (5, 3))", "plain(a=1|2|3,id=4|5)"),
        ("SELECT * FROM plain WHERE (id, lower(b)) IN ((5, 'x'))", "plain(id=5)"),
        ("SELECT * FROM plain WHERE (id, a) IN ((5, n), (4, 2))", "plain(id=4|5)"),
        ("SELECT * FROM plain WHERE (id, b) IN ((5, 'x'), (4, NULL))", "plain(id=4|5)"),
        ("SELECT * FROM plain WHERE (id, a) NOT IN ((5, 1))", "plain(*)"),
        ("SELECT * FROM plain WHERE NOT (id, a) NOT IN ((5, 1))", "plain(a=1,id=5)"),
        ("SELECT * FROM plain WHERE (id, a) IN (SELECT 5, 1)", "plain(*)"),
        ("SELECT * FROM plain WHERE (id, a) < (6, 4)", "plain(id=..6)"),
        ("SELECT * FROM plain WHERE (id, a) <= (6, 4)", "plain(id=..6)"),
        ("SELECT * FROM plain WHERE (6, 4) < (id, a)", "plain(id=6..)"),
        ("SELECT * FROM plain WHERE (id, a) >= (6, 4) AND a = 1", "plain(a=1,id=6..)"),
        ("SELECT * FROM plain WHERE (6, a) > (id, 4)", "plain(id=..6)"),
        ("SELECT * FROM plain WHERE (b, a) < ('x', 4)", "plain(*)"),
        ("SELECT * FROM plain WHERE NOT (id, a) < (6, 4)", "plain(*)"),
        // Lists.
        ("SELECT * FROM plain WHERE id IN (7, 5, -6, 5)", "plain(id=-6|5|7)"),
        ("SELECT * FROM plain WHERE id IN (5, a)", "plain((id a))"),
        ("SELECT * FROM plain WHERE id IN (5, 5e0)", "plain(*)"),
        ("SELECT * FROM plain WHERE id IN (5, '6', 7.5)", "plain(id=5|6|7.5)"),
        ("SELECT * FROM plain WHERE b IN ('x', 'y') AND a = 1", "plain(a=1,b=x|y)"),
        ("SELECT * FROM plain WHERE id = ANY('{5, 7,NULL,\"6\"}')", "plain(id=5|6|7)"),
        ("SELECT * FROM plain WHERE id = ANY('{}')", "plain(*)"),
        ("SELECT * FROM plain WHERE id = ANY('{{5,6},{7,8}}')", "plain(*)"),
        ("SELECT * FROM plain WHERE id = ANY('[2:3]={5,6}')", "plain(*)"),
        ("SELECT * FROM plain WHERE id = ANY('{5,6}'::int[])", "plain(id=5|6)"),
        ("SELECT * FROM plain WHERE id = ANY('{5,6}'::float8[])", "plain(*)"),
        ("SELECT * FROM plain WHERE b = ANY('{a, \"b, \\\\c\" ,\"null\"}')", "plain(b=a|b, \\c|null)"),
        ("SELECT * FROM plain WHERE b = ANY('{a,}')", "plain(*)"),
        ("SELECT * FROM plain WHERE b = ANY('{\"a\"b}')", "plain(*)"),
        ("SELECT * FROM plain WHERE id = ANY(ARRAY[5, 6])", "plain(id=5|6)"),
        ("SELECT * FROM plain WHERE id = ANY(ARRAY[5, a])", "plain(*)"),
        ("SELECT * FROM plain WHERE id = ANY(SELECT 5)", "plain(*)"),
        ("SELECT * FROM plain WHERE id <> ANY('{5}') AND id = ALL('{5}')", "plain(*)"),
        // OR.
        ("SELECT * FROM plain WHERE id = 5 OR id = 7 OR id IN (6, 8)", "plain(id=5|6|7|8)"),
        ("SELECT * FROM plain WHERE (id = 5 OR b = 'x') AND a = 1", "plain(a=1,b=x) plain(a=1,id=5)"),
        ("SELECT * FROM plain WHERE id = 5 OR a + 1 = 2", "plain((a)) plain(id=5)"),
        ("SELECT * FROM plain WHERE (id = 5 OR true) AND a = 1", "plain(a=1)"),
        ("SELECT * FROM plain WHERE id = 5 OR id = 5e0", "plain(*)"),
        ("SELECT * FROM plain p, title_genre g WHERE p.id = 5 OR g.genre = 'x'", "plain(*) title_genre(*)"),
        (
            "SELECT * FROM plain p, title_genre g WHERE (p.id = 5 AND g.genre = 'x') OR (p.id = 6 AND g.genre = 'y')",
            "plain(id=5|6) title_genre(genre=x|y)",
        ),
        ("SELECT * FROM plain WHERE NOT (id = 5 OR id = 6)", "plain(id<>5,id<>6)"),
        (
            "SELECT * FROM plain p LEFT JOIN title_genre g ON p.id = 5 OR g.genre = 'x' WHERE g.genre = 'y' OR g.title_id = 1",
            "plain(*) title_genre(genre=y) title_genre(title_id=1)",
        ),
        (&format!("SELECT * FROM plain WHERE {}", many(17, " OR ")), "plain(*)"),
        (&format!("SELECT * FROM plain WHERE a = 1 AND ({})", many(17, " OR ")), "plain(a=1)"),
        (&format!("SELECT * FROM plain WHERE ({}) AND (b = 'x' OR n = 1)", many(9, " OR ")), "plain(b=x) plain(n=1)"),
        // Ranges.
        ("SELECT * FROM plain WHERE id < 5", "plain(id=..4)"),
        ("SELECT * FROM plain WHERE 5 <= id AND id <= '9'", "plain(id=5..9)"),
        ("SELECT * FROM plain WHERE id > 5 AND id < 9.5", "plain(id=6..9)"),
        ("SELECT * FROM plain WHERE n > 5 AND n < 9.5", "plain(n=5..9)"),
        ("SELECT * FROM plain WHERE id BETWEEN -3 AND 4 AND id > 0", "plain(id=1..4)"),
        ("SELECT * FROM plain WHERE id BETWEEN 4 AND 3", "plain(*)"),
        ("SELECT * FROM plain WHERE id BETWEEN 4 AND a", "plain((id a))"),
        ("SELECT * FROM plain WHERE id NOT BETWEEN 4 AND 5 OR id <> 3", "plain(id<>3) plain(id=..3) plain(id=6..)"),
        ("SELECT * FROM plain WHERE id < 5 AND id = 3 AND a IS NULL AND a < 3", "plain(a null,id=3)"),
        ("SELECT * FROM plain WHERE b < 'x' AND b BETWEEN 'a' AND 'b'", "plain(*)"),
        ("SELECT * FROM plain WHERE id > a", "plain((id a))"),
        (
            "SELECT * FROM title WHERE updated > '2020-01-01' AND is_adult < 'f'",
            "title(updated=2020-01-01 00:00:00.000000..)",
        ),
        ("SELECT * FROM title WHERE updated = '2020-01-01'::date", "title(updated=2020-01-01 00:00:00.000000)"),
        (
            "SELECT * FROM title WHERE updated = '2020-01-01 10:00:00'::date",
            "title(updated=2020-01-01 00:00:00.000000)",
        ),
        ("SELECT * FROM title WHERE updated IN ('2020-01-01', 'epoch')", "title(*)"),
        // The session's zone is not known.
        (
            "SELECT * FROM title WHERE updated = '2020-01-10 01:00:00+01'::timestamptz",
            "title(updated=2020-01-02 00:00:00.000000..2020-01-18 00:00:00.000000)",
        ),
        // NULL.
        ("SELECT * FROM title WHERE updated IS NULL", "title(updated null)"),
        ("SELECT * FROM plain WHERE b IS NULL OR b = 'x'", "plain(b null) plain(b=x)"),
        ("SELECT * FROM plain WHERE b IS NOT NULL", "plain(b not null)"),
        ("SELECT * FROM ranges WHERE r IS NULL", "ranges(*)"),
        ("SELECT * FROM plain p LEFT JOIN title_genre g ON true WHERE g.genre IS NULL", "plain(*) title_genre(*)"),
        (
            "SELECT * FROM plain p LEFT JOIN title_genre g ON g.genre IS NULL WHERE p.b IS NULL",
            "plain(b null) title_genre(*)",
        ),
        (
            "SELECT * FROM plain p RIGHT JOIN title_genre g ON true WHERE p.b IS NULL AND g.genre IS NULL",
            "plain(*) title_genre(genre null)",
        ),
        (
            "SELECT * FROM plain p FULL JOIN title_genre g ON true WHERE p.b IS NULL OR g.genre IS NULL",
            "plain(*) title_genre(*)",
        ),
        (
            "SELECT * FROM name n LEFT JOIN (plain p JOIN title_genre g ON g.genre IS NULL) ON p.b IS NULL WHERE n.name IS NULL",
            "name(name null) plain(*) title_genre(*)",
        ),
        (
            "SELECT * FROM plain p LEFT JOIN LATERAL (SELECT * FROM title_genre g WHERE g.genre IS NULL) q ON true",
            "plain(*) title_genre(genre null)",
        ),
        // LIKE.
        ("SELECT * FROM plain WHERE b LIKE 'Abc%'", "plain(b=Abc*)"),
        ("SELECT * FROM plain WHERE b LIKE 'a c %'", "plain(b=a c *)"),
        ("SELECT * FROM plain WHERE b LIKE 'a_c%'", "plain(b=a*)"),
        ("SELECT * FROM plain WHERE b LIKE 'a\\%c'", "plain(b=a%c)"),
        ("SELECT * FROM plain WHERE b LIKE '%a'", "plain(b~*a)"),
        ("SELECT * FROM plain WHERE b LIKE 'a!%' ESCAPE '!'", "plain(b=a%)"),
        ("SELECT * FROM plain WHERE b NOT LIKE 'a%' AND b ILIKE 'a%'", "plain(b!~a*,b=a*)"),
        ("SELECT * FROM sbtest1 WHERE c LIKE 'a%'", "sbtest1(c not null)"),
        // Equal columns.
        (
            "SELECT * FROM plain p JOIN title_genre g ON g.title_id = p.id JOIN title t ON t.title_id = g.title_id WHERE p.id IN (5, 6)",
            "plain(id=5|6) title(title_id=5|6) title_genre(title_id=5|6)",
        ),
        (
            "SELECT * FROM plain p LEFT JOIN title_genre g ON g.title_id = p.id AND g.title_id = 6 WHERE p.id = 5",
            "plain(id=5) title_genre(title_id=6)",
        ),
        (
            "SELECT * FROM plain p RIGHT JOIN title_genre g ON g.title_id = p.id WHERE p.n = g.title_id AND p.id = 5 OR false",
            "plain(*) title_genre(*)",
        ),
        (
            "SELECT * FROM plain p FULL JOIN title_genre g ON g.title_id = p.id WHERE p.id = 5",
            "plain(id=5) title_genre(title_id=5)",
        ),
        (
            "SELECT * FROM plain p, parts q WHERE p.id = q.id AND p.n = 4 AND q.id = 5",
            "parts(definition) parts_1(definition) parts_1a(id=5) parts_1b(id=5) parts_2(id=5) plain(n=4)",
        ),
        ("SELECT * FROM plain p, sbtest1 s WHERE p.b = s.c AND p.b = 'x'", "plain(b=x) sbtest1(*)"),
        (
            "SELECT * FROM plain p WHERE p.id = 5 AND NOT EXISTS (SELECT 1 FROM title_genre g WHERE g.title_id = p.id)",
            "plain(id=5) title_genre(title_id=5)",
        ),
        (
            "SELECT * FROM plain p WHERE p.id = 5 AND EXISTS (SELECT 1 FROM title_genre p WHERE p.title_id = p.id)",
            "construct",
        ),
        (
            "SELECT * FROM plain p, title_genre g WHERE p.id = 5 AND (g.title_id = p.id OR g.genre = p.b)",
            "plain(id=5) title_genre(*)",
        ),
    ]);
}

#[test]
fn array_parameters() {
    let binary = |element_type: u32, elements: &[&[u8]]| {
        let mut bytes = [1i32.to_be_bytes(), 0i32.to_be_bytes(), element_type.to_be_bytes()].concat();
        bytes.extend_from_slice(&i32::try_from(elements.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&1i32.to_be_bytes());
        for element in elements {
            bytes.extend_from_slice(&i32::try_from(element.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(element);
        }
        bytes
    };
    let of = |sql: &str, value: ParameterValue<'_>, declared_type: u32| {
        verdict_with(sql, &[Parameter { value, declared_type }], true)
    };
    let ids = "SELECT * FROM plain WHERE id = ANY($1)";
    let names = "SELECT * FROM plain WHERE b = ANY($1)";
    let five_six = binary(20, &[&5i64.to_be_bytes(), &6i64.to_be_bytes()]);
    assert_eq!(of(ids, ParameterValue::Text(b"{5,6}"), 0), "plain(id=5|6)");
    assert_eq!(of(ids, ParameterValue::Text(b"{5,6}"), 1231), "plain(id=5|6)");
    assert_eq!(of(ids, ParameterValue::Text(b"{5,6}"), 1022), "plain(*)");
    assert_eq!(of(ids, ParameterValue::Binary(&five_six), 1016), "plain(id=5|6)");
    assert_eq!(of(ids, ParameterValue::Binary(&five_six), 0), "plain(id=5|6)");
    assert_eq!(of(ids, ParameterValue::Binary(&five_six[..five_six.len() - 1]), 0), "plain(*)");
    assert_eq!(of(ids, ParameterValue::Binary(&[0; 12]), 0), "plain(*)");
    assert_eq!(of(ids, ParameterValue::Null, 0), "plain(*)");
    assert_eq!(
        of("SELECT * FROM plain WHERE id = ANY($1::bigint[])", ParameterValue::Binary(&five_six), 0),
        "plain(id=5|6)"
    );
    assert_eq!(of(names, ParameterValue::Binary(&binary(25, &[b"x", b"y"])), 1009), "plain(b=x|y)");
    assert_eq!(of(names, ParameterValue::Text(b"{x}"), 1014), "plain(*)");
    assert_eq!(
        of("SELECT * FROM plain WHERE id = ANY($1) OR n = ANY($1)", ParameterValue::Text(b"{5}"), 0),
        "plain(*)"
    );
    // Among decimals, a parameter without a type is a decimal, which in binary format looks like an integer.
    let own = [Parameter { value: ParameterValue::Binary(&[0, 0, 0, 0, 0, 0, 0, 2]), declared_type: 0 }];
    assert_eq!(verdict_with("SELECT * FROM plain WHERE id IN ($1, 5)", &own, true), "plain(id=2|5)");
    assert_eq!(verdict_with("SELECT * FROM plain WHERE id IN ($1, 5.5)", &own, true), "plain(*)");
    assert_eq!(verdict_with("SELECT * FROM plain WHERE id < $1", &own, true), "plain(id=..1)");
    let float = [Parameter { value: ParameterValue::Text(b"2"), declared_type: 701 }];
    assert_eq!(verdict_with("SELECT * FROM plain WHERE id < $1", &float, true), "plain(*)");
    assert_eq!(verdict_with("SELECT * FROM plain WHERE b LIKE $1", &[text("ab%")], true), "plain(b=ab*)");
    assert_eq!(verdict_with("SELECT * FROM plain WHERE b LIKE $1", &[text("é%")], false), "plain(b not null)");
}

/// The columns of each tag.
fn columns(sql: &str) -> String {
    let (catalog, lexed) = (catalog(), lex(sql));
    let read_set = parse(&lexed.normalized).resolve(&catalog, &schemas()).unwrap();
    let params: Vec<Parameter<'_>> =
        (lexed.literals.iter()).map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 }).collect();
    let shown =
        read_set.bind(&params, Client::PLAIN).unwrap().tags.into_iter().filter(|tag| tag.rows != RowSet::Definition);
    let mut shown: Vec<String> = shown
        .map(|tag| {
            let name = &catalog.table(tag.table).unwrap().name;
            match tag.columns {
                Columns::All => format!("{name}(*)"),
                Columns::Only(names) => format!("{name}({})", names.join(",")),
            }
        })
        .collect();
    shown.sort_unstable();
    shown.dedup();
    shown.join(" ")
}

#[test]
fn mentioned_columns() {
    for (sql, expected) in [
        ("SELECT count(*) FROM plain", "plain()"),
        ("SELECT count(*) FROM plain WHERE id = 5", "plain(id)"),
        ("SELECT b FROM plain WHERE id = 5 ORDER BY 1, n", "plain(b,id,n)"),
        ("SELECT id FROM plain WHERE a = 1 ORDER BY b DESC LIMIT 5", "plain(a,b,id)"),
        ("SELECT max(n) FROM plain WHERE a = 1", "plain(a,n)"),
        ("SELECT * FROM plain", "plain(*)"),
        ("SELECT p.* FROM plain p", "plain(*)"),
        ("SELECT (SELECT count(*) FROM name WHERE name_id = p.a) FROM plain p", "name(name_id) plain(a)"),
        ("SELECT EXISTS (SELECT * FROM name), id FROM plain", "name(*) plain(*)"),
        ("SELECT title FROM title WHERE type = 'x'", "title(title,type)"),
        ("SELECT title FROM title t", "title(title)"),
        ("SELECT title FROM title WHERE EXISTS (SELECT 1 FROM title WHERE title = 'x')", "title(*)"),
        ("SELECT p FROM plain p", "plain(*)"),
        ("SELECT plain IS NULL FROM plain", "plain(*)"),
        ("SELECT row_to_json(p) FROM plain p", "plain(*)"),
        ("SELECT genre, (SELECT max(g.genre) FROM title_genre g) FROM plain genre", "plain(*) title_genre(*)"),
        ("SELECT count(p.*) FROM plain p", "plain(*)"),
        ("SELECT q FROM (SELECT id, a FROM plain) q", "plain(a,id)"),
        (
            "SELECT t.type FROM title t JOIN title_genre g USING (title_id)",
            "title(title_id,type) title_genre(title_id)",
        ),
        ("SELECT type FROM title NATURAL JOIN title_genre", "title(*) title_genre(*)"),
        ("SELECT x FROM plain AS p(x)", "plain(*)"),
        ("SELECT sum(a) OVER w FROM plain WINDOW w AS (PARTITION BY b ORDER BY n)", "plain(a,b,n)"),
        ("SELECT string_agg(b, ',' ORDER BY n) FILTER (WHERE a > 1) FROM plain GROUP BY id", "plain(a,b,id,n)"),
        ("SELECT DISTINCT ON (n) a FROM plain GROUP BY a, n HAVING max(id) > 1", "plain(a,id,n)"),
        ("WITH x(y) AS (SELECT a FROM plain) SELECT y FROM x", "plain(a)"),
        ("SELECT a AS z FROM plain ORDER BY z", "plain(a)"),
        ("SELECT q.count FROM (SELECT count(*) FROM plain) q", "plain(*)"),
        ("SELECT id FROM \"User\"", "User(id)"),
        ("SELECT generated FROM \"User\"", "User(*)"),
        ("SELECT id FROM plain_5", "plain(b,id)"),
        ("SELECT id FROM plain WHERE id = 1 UNION SELECT id FROM plain_5", "plain(b,id)"),
        ("SELECT id FROM child", "child(id) grandchild(id)"),
    ] {
        assert_eq!(columns(sql), expected, "{sql}");
    }
}

#[test]
fn effects() {
    use Effect::{Definition, Forgets, Pure, Settings, Signal, TransactionControl, Write};
    for (sql, effect) in [
        ("", Pure),
        ("SELECT 1", Pure),
        ("SELECT now(), random() FROM plain", Pure),
        ("SELECT * FROM plain; SELECT 2", Pure),
        ("(SELECT 1) UNION (SELECT 2)", Pure),
        ("SHOW work_mem", Pure),
        ("SELECT nextval('s')", Signal),
        ("SELECT pg_notify('c', 'x'), pg_catalog.pg_advisory_lock(1)", Signal),
        ("SELECT pg_notify('c', mine())", Write),
        ("SELECT pg_notify('c', set_config('x', 'y', false))", Settings),
        ("SELECT txid_current() FROM plain FOR UPDATE", Write),
        ("NOTIFY c, 'x'", Signal),
        ("LISTEN c; SELECT 1", Signal),
        ("UNLISTEN *; RESET ALL", Settings),
        ("NOTIFY c; UPDATE plain SET a = 1", Write),
        ("SELECT mine()", Write),
        ("SELECT public.lower('x')", Write),
        ("SELECT * FROM mine()", Write),
        ("SELECT * FROM plain FOR UPDATE", Write),
        ("SELECT * FROM plain FOR NO KEY UPDATE", Write),
        ("SELECT this is (not parsed", Write),
        ("WITH x AS (INSERT INTO plain VALUES (1) RETURNING *) SELECT * FROM x", Write),
        ("insert into plain values (1)", Write),
        ("UPDATE plain SET a = 1", Write),
        ("DELETE FROM plain", Write),
        ("MERGE INTO plain USING x ON true WHEN MATCHED THEN DELETE", Write),
        ("COPY plain FROM STDIN", Write),
        ("COMMIT PREPARED 'x'", Write),
        ("EXPLAIN ANALYZE DELETE FROM plain", Write),
        ("EXECUTE s(1)", Write),
        ("BEGIN", TransactionControl),
        ("start transaction isolation level serializable", TransactionControl),
        ("/* x */ COMMIT;", TransactionControl),
        ("ROLLBACK TO SAVEPOINT a", TransactionControl),
        ("PREPARE TRANSACTION 'x'", TransactionControl),
        ("SET search_path = x", Settings),
        ("RESET ALL", Settings),
        ("SELECT set_config('search_path', 'x', false)", Settings),
        ("DISCARD ALL", Forgets),
        ("DEALLOCATE s", Pure),
        ("DEALLOCATE ALL", Forgets),
        ("PREPARE s AS SELECT 1", Write),
        ("DO $$ BEGIN END $$", Definition),
        ("CALL p()", Definition),
        ("CREATE TABLE x (a int)", Definition),
        ("SELECT * INTO x FROM plain", Definition),
        ("SELECT 1; DISCARD ALL", Forgets),
        ("BEGIN; UPDATE plain SET a = 1", Definition),
        ("??", Forgets),
    ] {
        assert_eq!(parse(&lex(sql).normalized).effect(), effect, "{sql}");
    }
    for (sql, name) in [
        ("DEALLOCATE s", Some("s")),
        ("deallocate PREPARE \"A \"\"b\";", Some("A \"b")),
        ("DEALLOCATE all", None),
        ("DEALLOCATE PREPARE ALL", None),
        ("DEALLOCATE s; SELECT 1", None),
    ] {
        assert_eq!(parse(&lex(sql).normalized).deallocates(), name, "{sql}");
    }
    let catalog = catalog();
    for (sql, effect) in [
        ("SELECT * FROM plain", Pure),
        ("SELECT * FROM pg_class", Pure),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Pure),
        ("SELECT * FROM unread", Write),
        ("SELECT * FROM over_view", Pure),
        ("SELECT * FROM itself", Pure),
        ("SELECT * FROM who", Pure),
        ("SELECT * FROM kept", Pure),
        ("SELECT * FROM next_one", Write),
        ("SELECT * FROM over_next", Write),
        ("SELECT * FROM over_secret", Write),
        ("SELECT * FROM locking", Write),
        ("SELECT * FROM chain_31", Pure),
        ("SELECT * FROM chain_32", Write),
        ("SELECT * FROM parts, parent, many", Pure),
        ("SELECT * FROM foreign_parts", Write),
        ("SELECT * FROM secret_parts", Write),
        ("SELECT nextval('s') FROM over_view", Signal),
        ("SELECT nextval('s') FROM next_one", Write),
        ("SELECT pg_notify('c', initcap('x'))", Write),
        ("NOTIFY c", Signal),
        ("SELECT * FROM secret", Write),
        ("SELECT * FROM nothing", Write),
        ("SELECT initcap('x')", Write),
        ("SELECT 'x' ~ 'y'", Write),
        ("SET x = 1", Settings),
    ] {
        assert_eq!(parse(&lex(sql).normalized).effect_in(&catalog, &schemas()), effect, "{sql}");
    }
}

#[test]
fn what_a_text_may_define() {
    use freshet_sql::Defines::{Nothing, Told, Untold, Unused};
    for (sql, defines) in [
        ("SELECT mine()", Nothing),
        ("INSERT INTO plain VALUES (1)", Nothing),
        ("TRUNCATE plain", Nothing),
        ("VACUUM FULL plain", Nothing),
        ("DISCARD ALL", Nothing),
        ("CLOSE ALL; UNLISTEN *; RESET ALL; DEALLOCATE ALL", Nothing),
        ("EXPLAIN ANALYZE SELECT 1", Nothing),
        ("EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", Told),
        ("CREATE TABLE x (a int)", Told),
        ("CREATE UNIQUE INDEX CONCURRENTLY i ON plain (a, b) INCLUDE (c) WITH (fillfactor = 90)", Nothing),
        ("CREATE INDEX ON plain USING gin (a)", Nothing),
        ("CREATE INDEX ON plain (mine(a))", Told),
        ("CREATE INDEX ON plain (a) WHERE mine(b)", Told),
        ("CREATE INDEX ON plain (a); CREATE VIEW v AS SELECT 1", Told),
        ("CREATE STATISTICS s ON a, b FROM plain", Nothing),
        ("DROP INDEX i", Told),
        ("ALTER TABLE p DETACH PARTITION q", Told),
        ("ALTER TABLE p DETACH PARTITION q CONCURRENTLY", Untold),
        ("SELECT * INTO x FROM plain", Told),
        ("REVOKE SELECT ON plain FROM r", Told),
        ("REVOKE r FROM s", Untold),
        ("GRANT r TO s", Untold),
        ("ALTER ROLE r NOSUPERUSER", Untold),
        ("alter database d set x = 1", Untold),
        ("alter database d rename to e", Unused),
        ("DROP DATABASE IF EXISTS d", Unused),
        ("create database d template e", Unused),
        ("create database d", Untold),
        ("DROP OWNED BY r", Told),
        ("REASSIGN OWNED BY r TO s", Untold),
        ("DROP EVENT TRIGGER x", Untold),
        ("DO $$ BEGIN END $$", Told),
        ("CALL p()", Told),
        ("COMMIT PREPARED 'x'", Told),
        ("SELECT 1; DROP VIEW v; ANALYZE", Told),
        ("SELECT 1; DROP VIEW v; DROP ROLE r", Untold),
        ("??", Told),
    ] {
        assert_eq!(parse(&lex(sql).normalized).defines(), defines, "{sql}");
    }
}

#[test]
fn a_search_path_with_another_schema_before_the_built_in_one_passes() {
    let schemas: Vec<Arc<str>> = vec!["public".into(), "pg_catalog".into()];
    let template = parse("select * from plain");
    assert_eq!(template.resolve(&catalog(), &schemas).unwrap_err().label(), "construct");
}

#[test]
fn the_read_set_is_described_for_people() {
    let sql = "SELECT * FROM title t JOIN title_genre g USING (title_id) WHERE t.type = 'movie' AND t.title = 'x'";
    let read_set = parse(&lex(sql).normalized).resolve(&catalog(), &schemas()).unwrap();
    assert_eq!(read_set.tables, [TableId(1), TableId(2)]);
    assert_eq!(
        read_set.describe(),
        ["public.title: title = … and type = …", "public.title_genre: title_id among the values of title.title_id"]
    );
    let sql = "SELECT * FROM plain p LEFT JOIN title_genre g ON g.title_id = p.id \
               WHERE p.id = 5 AND p.b LIKE 'x%' AND p.n IN (1, 2) OR p.id IN (5, 6) AND p.b IS NULL";
    let read_set = parse(&lex(sql).normalized).resolve(&catalog(), &schemas()).unwrap();
    assert_eq!(
        read_set.describe(),
        [
            "public.plain: the beginning of b and id = … and n in (…) or b is null and id in (…)",
            "public.title_genre: title_id in (…)",
        ]
    );
    let sql = "SELECT * FROM over_view v, parent p WHERE p.id = 5 AND v.id = 5";
    let read_set = parse(&lex(sql).normalized).resolve(&catalog(), &schemas()).unwrap();
    assert_eq!(read_set.tables, [11, 32, 33, 34, 35, 36, 37, 38].map(TableId));
    assert_eq!(
        read_set.describe(),
        [
            "public.plain: id = …",
            "public.parts_2: id = …",
            "public.parts_1a: id = …",
            "public.parts_1b: id = …",
            "public.parent: id = …",
            "public.child: id = …",
            "public.step_child: id = …",
            "public.grandchild: id = …",
            "public.parts: its definition",
            "public.parts_1: its definition",
            "public.plain_5: its definition",
            "public.over_view: its definition",
        ]
    );
}

#[test]
fn negatives_and_patterns_of_a_row() {
    check(&[
        // Django's exclude(), and NOT of all kinds.
        ("SELECT * FROM plain WHERE NOT (b = 'x' AND b IS NOT NULL)", "plain(b<>x?)"),
        ("SELECT * FROM plain WHERE NOT (b IN ('x', 'y')) AND a = 1", "plain(a=1,b<>x|y)"),
        ("SELECT * FROM plain WHERE NOT (a < 3 AND b = 'x')", "plain(a=3..) plain(b<>x)"),
        ("SELECT * FROM plain WHERE NOT (NOT a = 3)", "plain(a=3)"),
        ("SELECT * FROM plain WHERE (id, a) <> (1, 2)", "plain(a<>2) plain(id<>1)"),
        ("SELECT * FROM plain WHERE a IS DISTINCT FROM 1 AND b IS NOT DISTINCT FROM 'x'", "plain(a<>1?,b=x)"),
        ("SELECT * FROM plain WHERE a <> ALL(ARRAY[1, 2])", "plain(a<>1|2)"),
        ("SELECT * FROM plain WHERE a <> id", "plain((a id))"),
        ("SELECT * FROM plain WHERE NOT a IS NULL AND NOT (b IS NOT NULL)", "plain(a not null,b null)"),
        ("SELECT * FROM sbtest1 WHERE c <> 'a'", "sbtest1(c not null)"),
        // Rows of NULLs pass these.
        (
            "SELECT * FROM title t LEFT JOIN plain p ON t.title_id = p.id WHERE p.a IS DISTINCT FROM 1",
            "plain(*) title(*)",
        ),
        ("SELECT * FROM title t LEFT JOIN plain p ON t.title_id = p.id WHERE p.a <> 1", "plain(a<>1) title(later)"),
        // If one conjunction has an index, no other conjunctions are created from it.
        ("SELECT * FROM plain WHERE id = 3 AND (b LIKE '%x' OR a <> 2)", "plain(id=3)"),
        ("SELECT * FROM plain WHERE b LIKE '%x' OR a <> 2", "plain(a<>2) plain(b~*x)"),
        // Patterns.
        ("SELECT * FROM plain WHERE upper(b::text) LIKE upper('%x_y%') AND id > 5", "plain(b~*x?y*i,id=6..)"),
        ("SELECT * FROM plain WHERE UPPER(b) LIKE UPPER('aB%')", "plain(b=ab*)"),
        ("SELECT * FROM plain WHERE upper(b) = upper('x') OR lower(b) IN ('Y', lower('z'))", "plain(b=x) plain(b=y|z)"),
        ("SELECT * FROM plain WHERE upper(b) = 'é'", "plain(b not null)"),
        ("SELECT * FROM plain WHERE id::text LIKE '%5'", "plain(id~*5)"),
        ("SELECT * FROM plain WHERE left(id::text, 1) = '5' AND a::text || b = '1x'", "plain((a b),(id))"),
        ("SELECT * FROM plain WHERE left(n::text, 1) = '5'", "plain(*)"),
        ("SELECT * FROM plain WHERE b NOT ILIKE '%5'", "plain(b!~*5i)"),
        ("SELECT * FROM plain WHERE upper(b) NOT LIKE upper('%5')", "plain(b not null)"),
        ("SELECT * FROM plain WHERE b LIKE '%!%%' ESCAPE '!' AND b LIKE '%x%'", "plain(b~*%*,b~*x*)"),
        // Dates in the normalized query.
        (
            "SELECT title FROM title WHERE updated >= date '1994-01-01' AND updated < date '1994-01-31' + interval '1' month",
            "title(updated=1994-01-01 00:00:00.000000..1994-02-27 23:59:59.999999)",
        ),
        (
            "SELECT title FROM title WHERE updated = timestamp '2024-06-01 10:00:00'",
            "title(updated=2024-06-01 10:00:00.000000..2024-06-01 10:00:00.000000)",
        ),
        ("SELECT title FROM title WHERE updated > date '2024-06-01' + interval '1 hour'", "title(*)"),
        ("SELECT title FROM title WHERE NOT (updated > date '2024-06-01')", "title(updated not null)"),
    ]);
}

#[test]
fn casts_to_enums() {
    use freshet_types::EnumType::{Other, Plain};
    let mut known = catalog();
    let schemas =
        |of: &[(&str, freshet_types::EnumType)]| of.iter().map(|(schema, of)| ((*schema).into(), *of)).collect();
    known.enums.insert("Role".into(), schemas(&[("public", Plain)]));
    known.enums.insert("cast_by_function".into(), schemas(&[("public", Other)]));
    known.enums.insert("hidden".into(), schemas(&[("pg_catalog", Other), ("public", Plain)]));
    known.enums.insert("elsewhere".into(), schemas(&[("other", Plain)]));
    let cases = [
        ("SELECT id FROM \"User\" WHERE \"Role\" = CAST($1::text AS \"Role\")", "User(Role=ADMIN)"),
        ("SELECT id FROM \"User\" WHERE \"Role\" = $1::public.\"Role\"", "User(Role=ADMIN)"),
        (
            "SELECT id FROM \"User\" WHERE \"Role\" IN ('A'::\"Role\", CAST($1::varchar AS \"Role\"))",
            "User(Role=A|ADMIN)",
        ),
        ("SELECT id FROM \"User\" WHERE \"Role\" = CAST($1::varchar(3) AS \"Role\")", "User(*)"),
        ("SELECT id FROM \"User\" WHERE \"Role\" = ANY('{A,B}'::\"Role\"[])", "User(*)"),
        ("SELECT enum_range(NULL::\"Role\")", ""),
        ("SELECT 'a'::role", "construct"),
        ("SELECT 'a'::cast_by_function", "construct"),
        ("SELECT 'a'::hidden", "construct"),
        ("SELECT 'a'::public.hidden", ""),
        ("SELECT 'a'::elsewhere", "construct"),
        ("SELECT ARRAY['a']::other.elsewhere[]", ""),
        ("SELECT ('a'::\"Role\")::text::date", "clock_literal"),
        ("SELECT ('a'::\"Role\")::date", "clock_literal"),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .map(|(sql, expected)| (sql, *expected, verdict_under(&known, sql, &[text("ADMIN")], true)))
        .filter(|(_, expected, found)| found != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
