//! Statements and what becomes of them: the reason why one passes, or the tags of its result.
#![expect(clippy::too_many_lines, reason = "tables of cases")]

use std::collections::HashSet;
use std::sync::Arc;

use freshet_model::{
    Catalog, CatalogVersion, Column, RelationKind, ReplicaIdentity, RowSet, Table, TableId, Tag, Value, ValueType,
};
use freshet_sql::{Effect, Parameter, ParameterValue, Template, lex};

fn table(id: u32, name: &str, columns: &[(&str, ValueType)]) -> Table {
    Table {
        id: TableId(id),
        schema: "public".into(),
        name: name.into(),
        kind: RelationKind::Table,
        identity: ReplicaIdentity::Full,
        row_security: false,
        user_types: false,
        datetime: columns.iter().any(|(_, value_type)| *value_type == ValueType::DateTime),
        columns: columns
            .iter()
            .map(|(name, value_type)| Column {
                name: (*name).into(),
                value_type: *value_type,
                generated: *name == "generated",
            })
            .collect(),
    }
}

fn catalog() -> Catalog {
    use ValueType::{Bool, DateTime, Enum, Int, Numeric, Other, PaddedText, Text, Uuid};
    let odd = |id, name: &str, change: fn(&mut Table)| {
        let mut table = table(id, name, &[("id", Int), ("name", Text)]);
        change(&mut table);
        table
    };
    let tables = vec![
        table(
            1,
            "title",
            &[("title_id", Int), ("type", Text), ("title", Text), ("is_adult", Bool), ("updated", DateTime)],
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
        odd(20, "view", |t| t.kind = RelationKind::View),
        odd(21, "parts", |t| t.kind = RelationKind::Partitioned),
        odd(22, "secret", |t| t.row_security = true),
        odd(23, "shapes", |t| t.user_types = true),
        odd(24, "keyless", |t| t.identity = ReplicaIdentity::Missing),
        odd(25, "pg_class", |t| (t.schema, t.kind) = ("pg_catalog".into(), RelationKind::System)),
        odd(26, "title", |t| t.schema = "other".into()),
    ];
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
        RowSet::Point(columns) => {
            let value = |value: &Value| match value {
                Value::Int(int) => int.to_string(),
                Value::Decimal(digits) => digits.to_string(),
                Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Value::Bool(truth) => truth.to_string(),
                Value::Uuid(bits) => format!("{bits:032x}"),
            };
            columns.iter().map(|(c, v)| format!("{}={}", c.name, value(v))).collect::<Vec<_>>().join(",")
        }
    };
    format!("{schema}{}({rows})", table.name)
}

fn verdict_with(sql: &str, own: &[Parameter<'_>], utf8: bool) -> String {
    let catalog = catalog();
    let lexed = lex(sql);
    let footprint = match Template::parse(&lexed.shape).resolve(&catalog, &schemas()) {
        Ok(footprint) => footprint,
        Err(reason) => return reason.label().to_owned(),
    };
    let mut params = own.to_vec();
    params.extend(lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 }));
    match footprint.bind(&params, utf8) {
        Ok(tags) => {
            let mut tags: Vec<String> = tags.iter().map(|tag| show(&catalog, tag)).collect();
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
            format!("{sql}\n  expected {expected}\n  found    {found}\n  shape    {}", lex(sql).shape)
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
            format!("{POINT} title_genre(*)"),
        ),
        (
            format!(
                "SELECT t.title, r.average_rating, r.num_votes FROM title t JOIN title_rating r \
                 ON t.title_id = r.title_id WHERE {tail}"
            ),
            format!("{POINT} title_rating(*)"),
        ),
        (
            format!(
                "SELECT n.name, c.character_name FROM name n JOIN title_name_character c ON n.name_id = c.name_id \
                 JOIN title t ON t.title_id = c.title_id WHERE {tail};"
            ),
            format!("name(*) {POINT} title_name_character(*)"),
        ),
        (
            format!(
                "SELECT n.name, p.category FROM title_principal p, title t, name n \
                 WHERE p.title_id = t.title_id AND n.name_id = p.name_id AND {tail}"
            ),
            format!("name(*) {POINT} title_principal(*)"),
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
fn load_programs_and_object_mappers() {
    check(&[
        // sysbench
        ("SELECT c FROM sbtest1 WHERE id=5", "sbtest1(id=5)"),
        ("SELECT c FROM sbtest1 WHERE id BETWEEN 5 AND 104", "sbtest1(*)"),
        ("SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN 5 AND 104", "sbtest1(*)"),
        ("SELECT c FROM sbtest1 WHERE id BETWEEN 5 AND 104 ORDER BY c", "sbtest1(*)"),
        ("SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 5 AND 104 ORDER BY c", "sbtest1(*)"),
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
        (r#"SELECT COUNT(*) AS "__count" FROM "User" WHERE "User"."id" IN (1, 2, 3)"#, "User(*)"),
        (
            r#"SELECT "User"."id" FROM "User" LEFT OUTER JOIN "plain" T4 ON ("User"."id" = T4."id") WHERE T4."b" LIKE '%x%' AND NOT ("User"."email" = 'y')"#,
            "User(*) plain(*)",
        ),
        (r#"SELECT (1) AS "a" FROM "plain" WHERE "plain"."id" = 7 LIMIT 1"#, "plain(id=7)"),
        // SQLAlchemy
        ("SELECT plain.id AS plain_id, plain.a AS plain_a \nFROM plain \nWHERE plain.id = 5", "plain(id=5)"),
        (
            "SELECT anon_1.id FROM (SELECT plain.id AS id FROM plain WHERE plain.a = 3) AS anon_1 LEFT OUTER JOIN title_genre AS g_1 ON anon_1.id = g_1.title_id",
            "plain(a=3) title_genre(*)",
        ),
        // Hibernate
        (
            "select p1_0.id,p1_0.a from plain p1_0 left join title_genre g1_0 on g1_0.title_id=p1_0.id where p1_0.id=9 offset 0 rows fetch first 10 rows only",
            "plain(id=9) title_genre(*)",
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
        ("SELECT * FROM plain WHERE b = E'x'", "plain(*)"),
        ("SELECT * FROM plain WHERE b = $q$x$q$", "plain(*)"),
        ("SELECT * FROM plain WHERE b = 'a'\n'b'", "plain(*)"),
        ("SELECT * FROM plain WHERE b = N'x'", "plain(*)"),
        ("SELECT * FROM plain WHERE id = NULL", "plain(*)"),
        ("SELECT * FROM plain WHERE (id = 5) AND (((a = 6)))", "plain(a=6,id=5)"),
        ("SELECT * FROM plain WHERE id = 5 OR a = 6", "plain(*)"),
        ("SELECT * FROM plain WHERE NOT id = 5", "plain(*)"),
        ("SELECT * FROM plain WHERE (id = 5) IS NOT TRUE", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 5 IS NULL", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 5 AND a = 6 OR b = 'x'", "plain(*)"),
        ("SELECT * FROM plain WHERE id IN (5)", "plain(id=5)"),
        ("SELECT * FROM plain WHERE id NOT IN (5)", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 5 AND id = 6", "plain(id=6)"),
        ("SELECT * FROM plain WHERE id = ANY('{5}')", "plain(*)"),
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
            "plain(id=5) title_genre(genre=x)",
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
        ("SELECT * FROM title JOIN title_genre USING (title_id) WHERE genre = 'x'", "title(*) title_genre(genre=x)"),
        ("SELECT * FROM title JOIN title_genre USING (title_id) WHERE title_id = 5", "title(*) title_genre(*)"),
        (
            "SELECT * FROM title JOIN title_genre USING (title_id) WHERE title.title_id = 5",
            "title(title_id=5) title_genre(*)",
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
            "plain(id=5) title_genre(genre=x)",
        ),
        ("SELECT * FROM plain p WHERE EXISTS (SELECT 1 FROM title_genre g WHERE p.id = 5)", "plain(*) title_genre(*)"),
        ("SELECT * FROM plain p WHERE NOT EXISTS (SELECT 1 FROM title_genre WHERE id = 5)", "plain(*) title_genre(*)"),
        (
            "SELECT * FROM plain WHERE id = 5 AND a IN (SELECT title_id FROM title_genre WHERE genre = 'x')",
            "plain(id=5) title_genre(genre=x)",
        ),
        (
            "SELECT (SELECT max(num_votes) FROM title_rating WHERE title_id = p.id) FROM plain p WHERE p.id = 1",
            "plain(id=1) title_rating(*)",
        ),
        (
            "SELECT * FROM plain p, LATERAL (SELECT * FROM title_genre g WHERE g.title_id = p.id AND genre = 'x') q WHERE p.a = 1",
            "plain(a=1) title_genre(genre=x)",
        ),
        ("SELECT * FROM (SELECT * FROM plain) p WHERE p.id = 5", "plain(*)"),
        (
            "SELECT id FROM plain WHERE a = 1 UNION ALL SELECT title_id FROM title_genre WHERE genre = 'x'",
            "plain(a=1) title_genre(genre=x)",
        ),
        (
            "(SELECT id FROM plain WHERE a = 1) EXCEPT (SELECT id FROM plain WHERE a = 2) ORDER BY 1",
            "plain(a=1) plain(a=2)",
        ),
        // Common table expressions.
        ("WITH x AS (SELECT * FROM plain WHERE a = 1) SELECT * FROM x WHERE id = 5", "plain(a=1)"),
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
fn passes() {
    check(&[
        ("", "not_select"),
        (";", "not_select"),
        ("SELECT 1", "no_table"),
        ("VALUES (1), (2)", "no_table"),
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
        ("SELECT * FROM ONLY plain", "construct"),
        ("SELECT * FROM \"only\"", "only(*)"),
        ("SELECT * FROM db.public.plain", "construct"),
        ("SELECT * FROM nothing", "unknown_table"),
        ("SELECT * FROM nowhere.plain", "unknown_table"),
        ("SELECT * FROM view", "table_kind"),
        ("SELECT * FROM parts", "table_kind"),
        ("SELECT * FROM secret", "row_security"),
        ("SELECT * FROM shapes", "user_type"),
        ("SELECT * FROM keyless", "no_replica_identity"),
        ("SELECT relname FROM pg_class", "table_kind"),
        ("SELECT * FROM pg_catalog.pg_class", "table_kind"),
        ("SELECT * FROM information_schema.tables", "unknown_table"),
        ("SELECT ctid FROM plain", "construct"),
        ("SELECT p.xmin FROM plain p", "construct"),
        ("SELECT * FROM plain WHERE b = current_user", "function"),
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
        ("SELECT b <-> 'x' FROM plain", "operator"),
        ("SELECT p.fullname FROM plain p", "construct"),
        ("SELECT q.fullname FROM (SELECT * FROM plain) q", "user_defined"),
        ("SELECT (p).fullname FROM plain p", "construct"),
        ("SELECT * FROM generate_series(1, 3) g, plain WHERE id = 5", "plain(id=5)"),
        ("SELECT * FROM unnest(ARRAY[1,2]) u, plain", "plain(*)"),
        ("SELECT * FROM mine() m, plain", "function"),
        ("SELECT * FROM dblink('x') AS d(a int), plain", "function"),
        ("SELECT 'plain'::regclass, id FROM plain", "construct"),
        ("SELECT b::mood FROM plain", "construct"),
        ("SELECT age(updated) FROM title", "function"),
        ("SELECT age(updated, updated) FROM title", "title(*)"),
        ("SELECT * FROM title WHERE updated > 'yesterday'", "clock_literal"),
        ("SELECT * FROM title WHERE updated > '2020-01-01'", "title(*)"),
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
            "name(*) plain(id=3) title_genre(*)",
        ),
        ("SELECT * FROM (plain p JOIN title_genre g ON true) AS j", "construct"),
        ("SELECT id FROM plain WHERE (id, a) = (1, 2)", "plain(*)"),
        ("SELECT * FROM plain WHERE id = 1 FETCH FIRST ROW ONLY", "plain(id=1)"),
        ("SELECT * FROM plain WHERE id = 1 LIMIT 5 OFFSET 10", "plain(id=1)"),
        ("SELECT * FROM plain WHERE b SIMILAR TO 'x'", "user_defined"),
        ("SELECT * FROM plain WHERE a NOT BETWEEN 1 AND 2 AND id = 3", "plain(id=3)"),
        ("SELECT * FROM plain WHERE a BETWEEN 1 AND 2 AND id = 3", "plain(id=3)"),
        ("SELECT * FROM plain WHERE a = 1 AND b IS NULL AND (n > 2 OR n < 1)", "plain(a=1)"),
        ("SELECT * FROM plain WHERE CASE WHEN a = 1 THEN b = 'x' END", "plain(*)"),
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
        ("SELECT * FROM title WHERE title IN ('now', 'x') AND type LIKE '%now%'", "title(*)"),
        ("SELECT * FROM title WHERE title > 'now' AND updated > interval '1 day' + updated", "title(*)"),
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
        ("SHOW search_path", "not_select"),
    ]);
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
    assert_eq!(verdict(&list(2000)), "plain(*)");
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
        // The first use decides the type: equality with columns of one kind only.
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
fn effects() {
    use Effect::{Definition, Forgets, Pure, Settings, TransactionControl, Write};
    for (sql, effect) in [
        ("", Pure),
        ("SELECT 1", Pure),
        ("SELECT now(), random() FROM plain", Pure),
        ("SELECT * FROM plain; SELECT 2", Pure),
        ("(SELECT 1) UNION (SELECT 2)", Pure),
        ("SHOW work_mem", Pure),
        ("SELECT nextval('s')", Write),
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
        assert_eq!(Template::parse(&lex(sql).shape).effect(), effect, "{sql}");
    }
    for (sql, name) in [
        ("DEALLOCATE s", Some("s")),
        ("deallocate PREPARE \"A \"\"b\";", Some("A \"b")),
        ("DEALLOCATE all", None),
        ("DEALLOCATE PREPARE ALL", None),
        ("DEALLOCATE s; SELECT 1", None),
    ] {
        assert_eq!(Template::parse(&lex(sql).shape).deallocates(), name, "{sql}");
    }
    let catalog = catalog();
    for (sql, effect) in [
        ("SELECT * FROM plain", Pure),
        ("SELECT * FROM pg_class", Pure),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Pure),
        ("SELECT * FROM view", Write),
        ("SELECT * FROM secret", Write),
        ("SELECT * FROM nothing", Write),
        ("SELECT initcap('x')", Write),
        ("SELECT 'x' ~ 'y'", Write),
        ("SET x = 1", Settings),
    ] {
        assert_eq!(Template::parse(&lex(sql).shape).effect_in(&catalog, &schemas()), effect, "{sql}");
    }
}

#[test]
fn a_search_path_with_another_schema_before_the_built_in_one_passes() {
    let schemas: Vec<Arc<str>> = vec!["public".into(), "pg_catalog".into()];
    let template = Template::parse("select * from plain");
    assert_eq!(template.resolve(&catalog(), &schemas).unwrap_err().label(), "construct");
}

#[test]
fn the_footprint_is_described_for_people() {
    let sql = "SELECT * FROM title t JOIN title_genre g USING (title_id) WHERE t.type = 'movie' AND t.title = 'x'";
    let footprint = Template::parse(&lex(sql).shape).resolve(&catalog(), &schemas()).unwrap();
    assert_eq!(footprint.tables, [TableId(1), TableId(2)]);
    assert_eq!(footprint.describe(), ["public.title: title = … and type = …", "public.title_genre: any row"]);
}
