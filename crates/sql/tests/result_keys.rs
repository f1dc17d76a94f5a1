//! The rows that matter to an answer with the keys of its rows, if images of old rows have few columns.

mod fixture;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::{AnswerEnd, Bound, Client, Field, JoinKeys, Keys, Parameter, ParameterValue, ReadSet, Template, lex};
use freshet_types::{
    Catalog, CatalogVersion, Columns, Dialect, RelationKind, ReplicaIdentity, RowSet, Table, TableId, Tag, Term, Test,
    Value, ValueType,
};

use ValueType::{Float8, Int, OrderedText, Timestamp};

const COLUMNS: [(&str, ValueType); 6] =
    [("id", Int), ("author", Int), ("tenant", Int), ("code", OrderedText), ("made", Timestamp), ("f", Float8)];

fn catalog() -> Catalog {
    let table = |id: u32, name: &str, key: Option<&[&str]>| Table {
        identity: key.map_or(ReplicaIdentity::Full, |key| {
            ReplicaIdentity::Columns(key.iter().map(|name| Arc::from(*name)).collect())
        }),
        datetime: true,
        ..fixture::table(id, "public", name, &COLUMNS)
    };
    let tables = vec![
        table(1, "posts", Some(&["id"])),
        table(2, "notes", Some(&["id"])),
        table(3, "items", Some(&["tenant", "code"])),
        table(4, "whole", None),
        Table { key: vec!["tenant".into(), "code".into()], ..table(7, "full", None) },
        table(5, "floats", Some(&["f"])),
        Table { kind: RelationKind::Partitioned, children: vec![TableId(1), TableId(2)], ..table(6, "parts", None) },
    ];
    Catalog::new(CatalogVersion(1), tables, HashSet::new(), HashSet::new())
}

fn resolved(sql: &str) -> (ReadSet, Vec<freshet_sql::Literal>) {
    let lexed = lex(Dialect::Postgres, sql);
    let schemas: [Arc<str>; 2] = ["pg_catalog".into(), "public".into()];
    (Template::parse(Dialect::Postgres, &lexed.normalized).resolve(&catalog(), &schemas).expect(sql), lexed.literals)
}

fn bound(sql: &str, utf8: bool) -> Bound {
    let (read_set, literals) = resolved(sql);
    let params = literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 });
    read_set.bind(&params.collect::<Vec<_>>(), Client { utf8, ..Client::PLAIN }).expect(sql)
}

/// In a few words.
fn told(tags: &[Tag]) -> String {
    let number = |key: u64| match key {
        0 => "-".to_owned(),
        u64::MAX => "+".to_owned(),
        key => ((key ^ (1 << 63)).cast_signed()).to_string(),
    };
    let value = |value: &Value| match value {
        Value::Int(value) => value.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    };
    let term = |Term { column, test }: &Term| match test {
        Test::Null => format!("{} null", column.name),
        Test::Within { low, high } => format!("{} {}..{}", column.name, number(*low), number(*high)),
        Test::In(values) => format!("{}={}", column.name, values.iter().map(value).collect::<Vec<_>>().join(",")),
        other => panic!("{other:?}"),
    };
    let terms = |terms: &[Term]| terms.iter().map(term).collect::<Vec<_>>().join(" and ");
    let rows = |tag: &Tag| match &tag.rows {
        RowSet::Where(those) => format!("{}: {}", tag.table.0, terms(those)),
        RowSet::Enters(those) => format!("{}: enters {}", tag.table.0, terms(those)),
        other => format!("{}: {other:?}", tag.table.0),
    };
    tags.iter().map(rows).collect::<Vec<_>>().join(" | ")
}

/// The deferred tags of an answer with these rows, each in text form, with commas between its values.
fn late(sql: &str, rows: &[&str]) -> String {
    let bound = bound(sql, true);
    let keys = bound.keys.unwrap_or_else(|| panic!("{sql}: {:?}", bound.tags));
    assert!(bound.limit_bound.is_none() && bound.tags.iter().any(|tag| tag.rows == RowSet::Later), "{sql}");
    of_rows(&keys, rows.iter().map(|row| fields(row)))
}

/// The tags from the keys of these rows.
fn of_rows<'a>(keys: &Keys, rows: impl Iterator<Item = Vec<Field<'a>>> + Clone) -> String {
    let end = AnswerEnd::of(None, rows.clone(), Vec::clone);
    told(&keys.deferred_tags(rows, Vec::clone, &end, None))
}

fn fields(row: &str) -> Vec<Field<'_>> {
    row.split(',').map(|text| if text == "null" { Field::Null } else { Field::Text(text.as_bytes()) }).collect()
}

#[test]
fn rows_that_go_are_told_by_their_keys() {
    let posts = "select id, author from posts where author = 5";
    for (sql, rows, expected) in [
        (posts, &["7,5", "9,5", "7,5"][..], "1: enters author=5 | 1: id=7,9"),
        (posts, &[], "1: enters author=5"),
        ("select id from posts where id > 3 and author = 5", &["7"], "1: enters author=5 and id 4..+ | 1: id=7"),
        (
            "select id from posts where author in (5, 6) and made is null",
            &["7"],
            "1: enters author=5,6 and made null | 1: id=7",
        ),
        (
            "select id from posts where author = 5 or tenant = 6",
            &["7"],
            "1: enters author=5 | 1: enters tenant=6 | 1: id=7",
        ),
        ("select id from posts where id = 3 or author = 5", &["7"], "1: enters id=3 | 1: enters author=5 | 1: id=7"),
        ("select x.author, x.id as k from posts x where x.author = 5", &["5,7"], "1: enters author=5 | 1: id=7"),
        (
            "select author as id, id as author from posts where posts.author = 5",
            &["5,7"],
            "1: enters author=5 | 1: id=7",
        ),
        (
            "select *, id + 1 from posts where author = 5",
            &["7,5,1,a,2026-01-01 00:00:00,1,8"],
            "1: enters author=5 | 1: id=7",
        ),
        (
            "select id, (select count(*) from whole) from posts where author = 5",
            &["7,1"],
            "1: enters author=5 | 1: id=7",
        ),
        // All columns of a key must be read, each as a list of its own.
        (
            "select tenant, code from items where author = 5",
            &["1,b", "2,a"],
            "3: enters author=5 | 3: code=a,b and tenant=1,2",
        ),
        (
            "select tenant, code from items where tenant = 5 and author = 5",
            &["5,b"],
            "3: enters author=5 and tenant=5 | 3: code=b and tenant=5",
        ),
    ] {
        assert_eq!(late(sql, rows), expected, "{sql}");
    }
    // If a value cannot be read, the tags are those of an answer without keys: old images count, too.
    for rows in [&["7,5", "null,5"][..], &["7,5", "x,5"], &["7,5,3"], &["7"]] {
        assert_eq!(late(posts, rows), "1: author=5", "{rows:?}");
    }
    let many: Vec<String> = (0..=1_000).map(|id| format!("{id},5")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(late(posts, &many), "1: author=5");
    assert!(late(posts, &many[1..]).starts_with("1: enters author=5 | 1: id=1,2,3"));
    // In another encoding the same bytes are another text.
    let keys = bound("select tenant, code from items where author = 5", false).keys.unwrap();
    for (code, expected) in [("b", "3: enters author=5 | 3: code=b and tenant=1"), ("\u{e9}", "3: author=5")] {
        let row = [Field::Text(b"1"), Field::Text(code.as_bytes())];
        assert_eq!(of_rows(&keys, [row.to_vec()].into_iter()), expected);
    }
    let keys = bound(posts, true).keys.unwrap();
    assert_eq!(keys.columns().collect::<Vec<_>>(), [0]);
    let row = [Field::Binary(&[0, 0, 0, 7]), Field::Text(b"5")];
    assert_eq!(of_rows(&keys, [row.to_vec()].into_iter()), "1: enters author=5 | 1: id=7");
}

#[test]
fn a_limit_bounds_what_enters() {
    let sql = "select id, author from posts where tenant = 3 order by author limit 2";
    assert_eq!(late(sql, &["7,5", "9,8"]), "1: enters author -..8 and tenant=3 | 1: id=7,9");
    assert_eq!(late(sql, &["7,5"]), "1: enters tenant=3 | 1: id=7", "fewer rows than the limit");
    assert_eq!(late(sql, &["x,5", "9,8"]), "1: author -..8 and tenant=3", "no key");
    let sql = "select id, author from posts order by author desc limit 2";
    assert_eq!(late(sql, &["7,5", "9,8"]), "1: enters author 8..+ | 1: enters author null | 1: id=7,9");
    assert_eq!(late(sql, &["7,5"]), "1: Any");
    // The rows of another table are not bounded.
    let sql = "select x.id, y.id, x.author from posts x, notes y where x.tenant = 3 and y.author = 4 order by x.author limit 2";
    assert_eq!(
        late(sql, &["7,1,5", "9,2,8"]),
        "1: enters author -..8 and tenant=3 | 1: id=7,9 | 2: enters author=4 | 2: id=1,2"
    );
}

#[test]
fn of_a_limit_in_no_order_the_rows_that_are_shown_matter() {
    for (sql, rows, expected) in [
        ("select id from posts where tenant = 3 limit 2", &["7", "9"][..], "1: id=7,9"),
        ("select id from posts where tenant = 3 limit 2", &["7"], "1: enters tenant=3 | 1: id=7"),
        ("select id from posts where tenant = 3 limit 2", &["7", "x"], "1: tenant=3"),
        ("select id from posts limit 2", &["7", "9"], "1: id=7,9"),
        ("select id from posts limit 2", &["7"], "1: Any"),
        ("select id from posts where id > 3 fetch first row only", &["7"], "1: id=7"),
        ("select id from posts limit 0", &[], ""),
        ("select tenant, code from full where author = 5 limit 2", &["1,b", "2,a"], "7: code=a,b and tenant=1,2"),
        ("select tenant, code from full where author = 5 limit 2", &["1,b"], "7: author=5"),
        ("select tenant, code from full where author = 5 limit 2", &["1,b", "2"], "7: author=5"),
        ("select tenant, code from full limit 2", &[], "7: Any"),
        // Each table by itself.
        ("select x.id, y.id from posts x, notes y where y.author > 4 limit 2", &["7,1", "7,2"], "1: id=7 | 2: id=1,2"),
        ("select x.id from posts x, notes y where y.author > 4 limit 2", &["7", "9"], "1: id=7,9"),
        ("select x.id, y.id from posts x left join notes y on y.author = 4 limit 1", &["7,1"], "1: id=7"),
    ] {
        assert_eq!(late(sql, rows), expected, "{sql} {rows:?}");
    }
    for sql in [
        "select id from posts where id = 7 limit 1",
        "select id from posts limit 2 offset 0",
        "select id from posts limit all",
        "select id, count(*) over () from posts limit 2",
        "select id from (select id from posts offset 2) q",
    ] {
        assert!(bound(sql, true).keys.is_none(), "{sql}");
    }
}

#[test]
fn not_where_rows_are_made_of_others_or_keys_are_not_shown() {
    for sql in [
        "select * from whole where author = 5",
        "select * from posts",
        "select * from posts where id = 5",
        "select * from posts where id in (5, 6) and author = 5",
        "select * from posts where id > 5",
        "select id, author from posts where id > 5 order by id limit 2",
        "select author from posts where author = 5",
        "select id + 0 as id from posts where author = 5",
        "select id::text from posts where author = 5",
        "select f from floats where author = 5",
        "select tenant from items where author = 5",
        "select * from items where tenant = 5",
        "select * from items where tenant = 5 and code = 'a' and author = 5",
        "select count(*) from posts where author = 5",
        "select id from posts where author = 5 group by id",
        "select distinct id from posts where author = 5",
        "select distinct on (id) id from posts where author = 5",
        "select id, row_number() over (order by made) from posts where author = 5",
        "select id from posts where author = 5 order by rank() over (order by made)",
        "select id from posts where author = 5 order by made limit 3 offset 2",
        "select id from posts where author = 5 offset 2",
        "select id from posts where author = 5 union all select id from notes",
        "select id from (select id from posts where author = 5) q",
        "with q as (select id from posts where author = 5) select q.id from q",
        "select id from parts where author = 5",
        "select x.id from whole y left join posts x on x.author = y.author and x.author = 5",
        "select q.id, x.code from posts q(id, b, c, d, e, f), whole x where q.b = 5",
    ] {
        assert!(bound(sql, true).keys.is_none(), "{sql}");
    }
    // This holds for the table on the left; for the other one, old images count.
    let sql = "select x.id, y.id from posts x left join notes y on y.author = 4 where x.author = 5";
    assert_eq!(late(sql, &["7,null"]), "1: enters author=5 | 1: id=7");
    let join_keys = bound(sql, true).join_keys.expect("keys of its rows are read");
    assert_eq!(told(&join_keys.deferred_tags(None)), "2: author=4");
    assert_eq!(by_members(&join_keys, &[(0, "3")]), "2: enters author=4 | 2: id=3");
}

#[test]
fn keys_of_others_are_read_all_the_same() {
    let sql = "select x.id, y.id from posts x join notes y on y.author = x.id where x.author = 5";
    assert!(bound(sql, true).join_keys.is_some());
    assert_eq!(late(sql, &["7,1"]), "1: enters author=5 | 1: id=7");
}

#[test]
fn it_is_described() {
    let described = |sql: &str| {
        let (read_set, literals) = resolved(sql);
        read_set.describe_text(0, &literals, Client::PLAIN).unwrap().join("; ")
    };
    let by_keys = "public.posts: author = \u{2026}, by the keys of the answer's rows";
    assert_eq!(described("select id from posts where author = 5"), by_keys);
    assert_eq!(
        described("select author from posts where author = 5"),
        "public.posts: author = \u{2026}, by the keys of these rows"
    );
    assert_eq!(
        described("select * from posts order by made limit 3"),
        "public.posts: made up to the last row's, by the keys of the answer's rows"
    );
    assert_eq!(described("select * from posts order by id limit 3"), "public.posts: id up to the last row's");
    assert_eq!(described("select * from posts limit 3"), "public.posts: the keys of the answer's rows");
    assert_eq!(described("select author from posts limit 3"), "public.posts: the values of the answer's rows");
    assert_eq!(described("select * from posts limit 0"), "public.posts: any row");
    assert_eq!(described("select id from posts where author = 5 limit 3"), by_keys);
    assert_eq!(described("select * from posts where id = 3"), "public.posts: id = \u{2026}");
    assert_eq!(resolved("select id from posts where author = 5").0.describe(), [by_keys]);
}

/// The deferred tags of a derived table in an answer with these rows, and the conditions of the key query for join paths from its rows.
fn of_page(sql: &str, rows: &[&str]) -> String {
    let bound = bound(sql, true);
    let rows: Vec<Vec<Field<'_>>> = rows.iter().map(|row| fields(row)).collect();
    let end = AnswerEnd::of(bound.derived_limit.as_ref(), rows.iter(), |row| Vec::clone(row));
    let mut join_keys = bound.join_keys;
    if let Some(join_keys) = &mut join_keys {
        join_keys.bound_by_last(end.rows, &end.last);
    }
    let mut tags: Vec<Tag> = bound.limit_bound.iter().flat_map(|top| top.deferred_tags(end.rows, &end.last)).collect();
    tags.extend(
        bound
            .keys
            .iter()
            .flat_map(|keys| keys.deferred_tags(rows.iter(), |row| Vec::clone(row), &end, join_keys.as_mut())),
    );
    let asked = join_keys.as_ref().map(|join_keys| JoinKeys::sql([join_keys]));
    let asked =
        asked.as_deref().and_then(|sql| Some(sql.split_once(" WHERE ")?.1.split_once(" LIMIT ")?.0.replace('"', "")));
    format!("{}{}", told(&tags), asked.map(|conditions| format!(" ; {conditions}")).unwrap_or_default())
}

#[test]
fn a_page_in_from_is_told_by_an_answer_that_shows_all_of_it() {
    let page = "select p.id, p.made, n.id from (select id, made from whole order by id limit 2) p \
                left join notes n on n.author = p.id";
    let three = &["4,2020-01-01 00:00:00,7", "4,2020-01-01 00:00:00,8", "9,null,null"];
    assert_eq!(of_page(page, three), "4: id -..9 ; (t0.id <= 9)");
    assert_eq!(of_page(page, &three[..2]), "4: Any", "one row of two");
    assert_eq!(of_page(page, &["4,x,7", "9,x,8", "6,x,null"]), "4: id -..9 ; (t0.id <= 9)", "in any order");
    assert_eq!(of_page(page, &["4,x,7", "null,x,8"]), "4: Any", "a key that comes last");
    assert_eq!(of_page(page, &["4,x,7", "9,x"]), "4: Any", "a row of another width");
    assert_eq!(of_page(page, &[]), "4: Any");
    let descending = page.replace("order by id", "order by id desc");
    assert_eq!(of_page(&descending, three), "4: id 4..+ | 4: id null ; (t0.id >= 4 OR t0.id IS NULL)");
    let with = "with p (a, b) as (select id, made from whole order by id limit 2) \
                select n.made, p.a from p join notes n on n.author = p.a";
    assert_eq!(of_page(with, &["7,4", "7,9"]), "4: id -..9 ; (t0.id <= 9)");
    // Old rows hold the key alone.
    let posts = page.replace("whole", "posts").replace("order by id", "order by made desc");
    let told = "1: enters made 1577836800000000..+ | 1: enters made null | 1: id=4,9";
    assert!(of_page(&posts, three).starts_with(told), "{}", of_page(&posts, three));
    assert!(of_page(&posts, &three[..2]).starts_with("1: Any"));
    let ties = posts.replace("limit 2", "fetch first 2 rows with ties");
    assert!(
        of_page(&ties, three).starts_with("1: made 1577836800000000..+ | 1: made null"),
        "{}",
        of_page(&ties, three)
    );
    let unordered = "select p.id, n.id from (select id from posts limit 2) p left join notes n on n.author = p.id";
    assert_eq!(of_page(unordered, &["4,1", "9,1"]), "1: id=4,9 ; (t0.id IN (4, 9))");
    assert_eq!(of_page(unordered, &["4,1", "4,2"]), "1: Any");
}

#[test]
fn a_page_in_from_is_not_told_where_rows_of_the_answer_may_be_others() {
    let page = "(select id from whole order by id limit 1)";
    for sql in [
        format!("select p.id, n.id from notes n left join {page} p on n.author = p.id"),
        format!("select p.id, n.id from {page} p full join notes n on n.author = p.id"),
        format!("select p.id, count(*) from {page} p group by p.id"),
        format!("select max(p.id) from {page} p"),
        format!("select p.id + 1 from {page} p"),
        format!("select p.id from {page} p union all select 1"),
        format!("select p.id from (select * from {page} q) p"),
        format!("select id from notes where id in {page}"),
        "select p.id from notes n, lateral (select id from whole w where w.author = n.id order by id limit 1) p"
            .to_owned(),
        "select p.id from (select id from whole order by id) p".to_owned(),
        "select p.id from (select id from whole union select 1 order by id limit 1) p".to_owned(),
        "with p as (select id from whole order by id limit 1) select p.id from p join p q on q.id = p.id".to_owned(),
        "select p.id from (select distinct on (author) id from whole order by author, id limit 1) p".to_owned(),
    ] {
        let bound = bound(&sql, true);
        assert!(bound.limit_bound.is_none() && bound.keys.is_none(), "{sql}: {:?} {:?}", bound.limit_bound, bound.keys);
    }
}

#[test]
fn of_rows_that_nothing_bounds_those_matter_that_are_shown_or_enter() {
    let told = |sql: &str, rows: &[&str]| {
        let keys = bound(sql, true).keys.unwrap_or_else(|| panic!("{sql}"));
        let rows: Vec<Vec<Field<'_>>> = rows.iter().map(|row| fields(row)).collect();
        let end = AnswerEnd::of(None, rows.iter(), |row| Vec::clone(row));
        let tags = keys.deferred_tags(rows.iter(), |row| Vec::clone(row), &end, None);
        let columns = |tag: &Tag| match &tag.columns {
            Columns::Only(names) => names.join(","),
            Columns::All => "all".to_owned(),
        };
        let one = |tag: &Tag| format!("{} by {}", self::told(std::slice::from_ref(tag)), columns(tag));
        tags.iter().map(one).collect::<Vec<_>>().join(" | ")
    };
    let by_function = "select tenant, code, author from full where sqrt(f) > 3";
    let shown = "7: code=a,b and tenant=1 by author,code,f,tenant";
    assert_eq!(told(by_function, &["1,b,4", "1,a,5"]), format!("7: enters  by f | {shown}"));
    assert_eq!(told(by_function, &[]), "7: enters  by f");
    assert_eq!(told(by_function, &["1,b,4", "1"]), "7: Any by author,code,f,tenant");
    let sorted = "select *, tenant from full order by f limit 2";
    assert_eq!(
        told(&sorted.replace(", tenant", ""), &["0,4,1,b,x,2", "1,4,1,a,x,2"]),
        "7: enters  by f | 7: code=a,b and tenant=1 by all"
    );
    let joined =
        "select x.tenant, x.code, x.made from full x left join posts p on p.author = x.author order by x.f limit 2";
    assert_eq!(
        told(joined, &["1,a,x", "1,b,x"]),
        "7: enters  by author,f | 7: code=a,b and tenant=1 by author,code,f,made,tenant"
    );
    for sql in [
        "select tenant, code, author from full",
        "select tenant, code, author from full order by f",
        "select tenant, code, f from full where f + tenant + length(code) > 3",
        "select tenant, code, f + 1 as g from full order by g limit 2",
        "select tenant, code, f as author from full order by author limit 2",
        "select tenant, code, f from full order by 3 limit 2",
        "select tenant, code, author from full order by f limit 2 offset 1",
        "select code, author from full where sqrt(f) > 3",
        "select distinct tenant, code, author from full where sqrt(f) > 3",
        "select id, author from posts where sqrt(f) > 3",
    ] {
        assert!(bound(sql, true).keys.is_none(), "{sql}: {:?}", bound(sql, true).keys);
    }
    let (read_set, _) = resolved(by_function);
    assert_eq!(read_set.describe(), ["public.full: the keys of the answer's rows, and what enters by f"]);
}

#[test]
fn a_limit_in_no_order_leaves_rows_open_in_from_too() {
    for (sql, expected) in [
        ("select id from posts limit 2", true),
        ("select p.id from (select id from posts limit 2) p join notes n on n.author = p.id order by 1", true),
        ("with p as (select id from posts limit 2) select id from p", true),
        ("select p.id from (select id from posts order by id limit 2) p", false),
        ("select id from posts where exists (select 1 from notes limit 1)", false),
    ] {
        let template = Template::parse(Dialect::Postgres, &lex(Dialect::Postgres, sql).normalized);
        assert_eq!(template.leaves_rows_open(), expected, "{sql}");
    }
}

#[test]
fn what_full_old_rows_would_bring_is_said() {
    let hints = |sql: &str| resolved(sql).0.identity_hints();
    let found = hints("select count(*) from posts where author = 5");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("held in author") && found[0].contains("REPLICA IDENTITY FULL"), "{found:?}");
    assert!(hints("select count(*) from posts where id = 5").is_empty());
    assert!(hints("select count(*) from full where author = 5").is_empty());
}

#[test]
fn rows_in_no_order_are_told_by_what_they_show() {
    for (sql, rows, expected) in [
        ("select author from posts limit 2", &["5", "7"][..], "1: author=5,7"),
        ("select author, author as b from posts limit 2", &["5,5", "5,5"], "1: author=5"),
        ("select author, tenant from posts limit 2", &["5,1", "7,2"], "1: author=5,7 and tenant=1,2"),
        ("select author from posts limit 2", &["5"], "1: Any"),
        ("select author from posts limit 2", &["5", "null"], "1: Any"),
        ("select author + 1, tenant from posts limit 1", &["8,3"], "1: tenant=3"),
        ("select distinct author from posts limit 1", &["5"], "1: author=5"),
        ("select author, count(*) from posts group by author limit 1", &["5,9"], "1: author=5"),
        ("select count(*), id from posts group by 2, author, id having count(*) > 3 limit 1", &["9,5"], "1: id=5"),
        (
            "select p.author, n.tenant from posts p left join notes n on n.id < p.id limit 1",
            &["5,6"],
            "1: author=5 | 2: tenant=6",
        ),
        ("(select author from posts) union (select tenant from notes) limit 1", &["5"], "1: author=5 | 2: tenant=5"),
        ("select author from posts intersect select tenant from notes limit 1", &["5"], "1: author=5 | 2: tenant=5"),
        ("select author from posts except all select id from notes limit 1", &["5"], "1: author=5 | 2: id=5"),
        ("select x.id from whole y left join posts x on x.author = y.author limit 1", &["7"], "1: id=7"),
        ("(select id from posts) union all (select id from notes) limit 2", &["7", "7"], "1: id=7 | 2: id=7"),
        ("select code from full limit 2", &["a", "b"], "7: code=a,b"),
        ("select q.a from (select distinct author as a from posts) q limit 1", &["5"], "1: author=5"),
        ("with q as (select author as a from posts) select a from q fetch first row only", &["5"], "1: author=5"),
    ] {
        assert_eq!(late(sql, rows), expected, "{sql}");
    }
    for sql in [
        "select author from posts",
        "select author from posts limit 1 offset 1",
        "select author from posts order by f limit 1",
        "select author + 1 from posts limit 1",
        "select f from posts limit 1",
        "select author, count(*) over () from posts limit 1",
        "select count(author) from posts limit 1",
        "select max(author), count(*) from posts group by tenant limit 1",
        "select distinct on (tenant) author from posts limit 1",
        "select author from posts union select f from notes limit 1",
        "select q.a from (select author as a from posts offset 1) q limit 1",
        "with q as (select author as a from posts) select q.a from q, q p limit 1",
        // A condition tells as much.
        "select author from posts where tenant = 5 limit 1",
    ] {
        assert!(bound(sql, true).keys.is_none(), "{sql}");
    }
}

/// The tags of rows with member keys, if these keys were read, each with the number of its query.
fn by_members(join_keys: &JoinKeys, keys: &[(usize, &str)]) -> String {
    let keys: Vec<_> = keys.iter().map(|(number, key)| (*number, Some(key.as_bytes().to_vec()))).collect();
    join_keys.deferred_tags_of_members(&keys).map_or_else(|| "unknown".to_owned(), |tags| told(&tags))
}

#[test]
fn keys_of_rows_that_no_answer_shows_are_read() {
    let count = bound("SELECT count(*) FROM posts WHERE author = 5", true);
    let join_keys = count.join_keys.expect("keys");
    assert_eq!(
        JoinKeys::sql([&join_keys]),
        "(SELECT DISTINCT '0.0', t0.\"id\"::pg_catalog.text FROM \"public\".\"posts\" t0 WHERE t0.\"author\" IN (5) LIMIT 1001)"
    );
    assert_eq!(by_members(&join_keys, &[(0, "8"), (0, "7"), (0, "8")]), "1: enters author=5 | 1: id=7,8");
    assert_eq!(by_members(&join_keys, &[]), "1: enters author=5", "no row may leave");
    assert_eq!(by_members(&join_keys, &[(0, "seven")]), "unknown");
    let many: Vec<String> = (0..1_001).map(|key| key.to_string()).collect();
    let many: Vec<(usize, &str)> = many.iter().map(|key| (0, key.as_str())).collect();
    assert_eq!(by_members(&join_keys, &many), "unknown");
    assert_eq!(told(&join_keys.deferred_tags(None)), "1: author=5", "by images as they are");
    // Columns whose change makes a row enter, and columns whose change matters for a named row.
    let tags = join_keys.deferred_tags_of_members(&[(0, Some(b"7".to_vec()))]).expect("known");
    let columns: Vec<&Columns> = tags.iter().map(|tag| &tag.columns).collect();
    let of = Columns::Only(["author".into(), "id".into()].into());
    assert_eq!(columns, [&of, &of]);
}

#[test]
fn keys_of_several_columns_and_of_rows_that_others_lead_to() {
    let composite = bound("SELECT count(*) FROM items WHERE author = 5 OR author = 6", true);
    let join_keys = composite.join_keys.expect("keys");
    let sql = JoinKeys::sql([&join_keys]);
    assert!(sql.contains("'0.0', t0.\"tenant\"") && sql.contains("'0.1', t0.\"code\""), "{sql}");
    assert_eq!(
        by_members(&join_keys, &[(0, "1"), (1, "x"), (1, "y")]),
        "3: enters author=5,6 | 3: code=x,y and tenant=1"
    );
    assert_eq!(by_members(&join_keys, &[(0, "1")]), "3: enters author=5,6", "as if there were no row at all");
    let led = bound("SELECT count(*) FROM whole w JOIN posts p ON p.author = w.id WHERE w.tenant = 3", true);
    let join_keys = led.join_keys.expect("keys");
    let sql = JoinKeys::sql([&join_keys]);
    assert!(
        sql.contains("FROM \"public\".\"whole\" t0 JOIN \"public\".\"posts\" t1 ON t1.\"author\" = t0.\"id\" WHERE t0.\"tenant\" IN (3)"),
        "{sql}"
    );
    assert_eq!(by_members(&join_keys, &[(0, "70"), (1, "7")]), "1: enters author=70 | 1: id=7");
    assert_eq!(by_members(&join_keys, &[]), "unknown", "no row of the other matters at all");
}

#[test]
fn keys_are_not_read_where_old_images_or_answers_tell() {
    for sql in [
        "SELECT count(*) FROM posts WHERE id = 5",
        "SELECT count(*) FROM posts WHERE id > 5",
        "SELECT count(*) FROM items WHERE tenant = 1 AND code = 'x'",
        "SELECT id, made FROM posts WHERE author = 5",
        "SELECT count(*) FROM whole WHERE author = 5",
        "SELECT count(*) FROM floats WHERE author = 5",
        "SELECT count(*) FROM posts",
    ] {
        assert!(bound(sql, true).join_keys.is_none(), "{sql}");
    }
    let mut join_keys = bound("SELECT count(*) FROM posts WHERE author = 5", true).join_keys.expect("keys");
    assert!(!join_keys.ask_only_of(|_| true, |_| false), "nothing was updated or deleted");
    assert_eq!((JoinKeys::sql([&join_keys]), by_members(&join_keys, &[])), (String::new(), "unknown".to_owned()));
}
