//! The statements whose results a rule with `ttl` may serve for a time, and those for which no rule may.

mod fixture;

use std::collections::HashSet;
use std::sync::Arc;

use freshet_sql::Template;
use freshet_types::{Catalog, CatalogVersion, Dialect, Reason, RelationKind, Table, TableId, ValueType};

fn catalog() -> Catalog {
    let table = |id, name| fixture::table(id, "public", name, &[("id", ValueType::Int), ("name", ValueType::Text)]);
    let of_kind = |kind, table| Table { kind, ..table };
    let view =
        |id, name, text: &str| Table { definition: Some(text.into()), ..of_kind(RelationKind::View, table(id, name)) };
    let system = |id, schema, name| {
        let table = fixture::table(id, schema, name, &[("name", ValueType::Text), ("setting", ValueType::Text)]);
        of_kind(RelationKind::System, table)
    };
    let tables = vec![
        table(1, "t"),
        of_kind(RelationKind::Foreign, table(2, "far")),
        of_kind(RelationKind::NotLogged, table(3, "unlogged")),
        of_kind(RelationKind::Other, table(4, "numbers")),
        Table { row_security: true, ..table(5, "secret") },
        Table { user_types: true, ..table(6, "typed") },
        view(7, "fresh", "select t.id, now() as name from public.t"),
        view(8, "hidden", "select secret.id, secret.name from public.secret"),
        view(9, "calls", "select t.id, public.mine(t.name) as name from public.t"),
        system(10, "pg_catalog", "pg_class"),
        system(11, "pg_catalog", "pg_settings"),
        system(12, "pg_catalog", "pg_stat_xact_user_tables"),
        system(13, "information_schema", "TABLES"),
        system(14, "information_schema", "SESSION_VARIABLES"),
        system(15, "performance_schema", "session_variables"),
        system(16, "sys", "session"),
        view(17, "set", "select s.name, s.setting from pg_catalog.pg_settings s"),
    ];
    Catalog::new(CatalogVersion(1), tables, HashSet::from(["mine".into(), "random".into()]), HashSet::new())
}

fn by_ttl(dialect: Dialect, sql: &str) -> Result<Vec<u32>, Reason> {
    let normalized = freshet_sql::lex(dialect, sql).normalized;
    let mysql = dialect.is_mysql_family();
    let schemas: Vec<Arc<str>> = if mysql { vec!["public".into()] } else { vec!["pg_catalog".into(), "public".into()] };
    let found = Template::parse(dialect, &normalized).resolve_by_ttl(&normalized, &catalog(), &schemas);
    found.map(|tables| tables.into_iter().map(|TableId(id)| id).collect())
}

#[test]
fn what_only_reads_may_be_served_for_a_time() {
    for (sql, tables) in [
        ("select now(), id from t", vec![1]),
        ("select id from t where name > current_date::text", vec![1]),
        ("select id from far join unlogged using (id)", vec![2, 3]),
        ("select age(timestamp '2020-01-01'), id from t", vec![1]),
        ("select name::date from t", vec![1]),
        ("select id from fresh", vec![1, 7]),
        ("select 1 where localtimestamp > '2020-01-01'", vec![]),
        ("select name from pg_class", vec![10]),
    ] {
        assert_eq!(by_ttl(Dialect::Postgres, sql), Ok(tables), "{sql}");
    }
    for sql in
        ["select now(), id from t", "select id from t order by rand() limit 3", "select unix_timestamp(), id from t"]
    {
        assert_eq!(by_ttl(Dialect::MySql, sql), Ok(vec![1]), "{sql}");
    }
    assert_eq!(by_ttl(Dialect::MySql, "select name from information_schema.TABLES"), Ok(vec![13]));
}

/// A reason that is overruled hides none that is not.
#[test]
fn what_may_do_more_is_refused() {
    for sql in [
        "insert into t values (1)",
        "select now(), id from t for update",
        "select now(), nextval('numbers') from t",
        "select now(), pg_advisory_lock(1) from t",
        "select now(), set_config('a.b', 'c', false) from t",
        "select now(), pg_sleep(1) from t",
        "select now(), currval('numbers') from t",
        "select now(), gen_random_uuid() from t",
        "select now(), pg_backend_pid() from t",
        "select now(), txid_current() from t",
        "select now(), mine(name) from t",
        "select now(), other(name) from t",
        // User-defined, and first in the search path or not.
        "select random(), id from t",
        "select now(), id from numbers",
        "select now(), id from secret",
        "select now(), id from typed",
        "select now(), id from hidden",
        "select now(), id from calls",
        // State of the session.
        "select setting from pg_settings where name = 'work_mem'",
        "select name from pg_stat_xact_user_tables",
        "select setting from set",
        "select now(), id from nowhere",
        "select now(), id into copy from t",
        "with d as (delete from t returning id) select now(), id from d",
        "select now(); select 1",
        "select now(), id from t tablesample system (1)",
    ] {
        assert!(by_ttl(Dialect::Postgres, sql).is_err(), "{sql}");
    }
    for sql in [
        "select now(), id from t for update",
        "select now(), @x from t",
        "select now(), last_insert_id() from t",
        "select now(), found_rows() from t",
        "select now(), uuid() from t",
        "select now(), get_lock('a', 1) from t",
        "select now(), sleep(1) from t",
        "select now(), connection_id() from t",
        "select now(), stored(name) from t",
        "select now(), id into @a from t",
        "select sql_no_cache now(), id from t",
        "select setting from information_schema.SESSION_VARIABLES",
        "select setting from performance_schema.session_variables",
        "select name from sys.session",
    ] {
        assert!(by_ttl(Dialect::MySql, sql).is_err(), "{sql}");
    }
}
