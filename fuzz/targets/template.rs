//! A statement's text the whole way to its tags, within the limits that the registry sets: it ends soon, holds no
//! more memory than it says, and what passes as cacheable is coherent.

#![no_main]

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use freshet_fuzz::{bounded, measured};
use freshet_sql::{AnswerEnd, Bound, Client, Effect, Field, Lexed, Parameter, ParameterValue, ReadSet, Template, lex};
use freshet_types::{
    Catalog, CatalogVersion, Column, Dialect, RelationKind, ReplicaIdentity, RowSet, Table, TableId, Tag, ValueType,
};
use libfuzzer_sys::fuzz_target;

/// In UTC, so that parts of moments are taken, too.
const CLIENT: Client = Client { utc: true, ..Client::PLAIN };

/// Bytes taken while parsing, at most: the least (one SELECT), and for each byte of the text.
const PEAK_BYTES: usize = 48 << 10;
const PEAK_BYTES_PER_BYTE: usize = 4000;
/// The registry's bound.
const TEXT_BYTES_MAX: usize = 64 << 10;

static CATALOG: LazyLock<Catalog> = LazyLock::new(catalog);
static SCHEMAS: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| ["pg_catalog".into(), "public".into()]);

fuzz_target!(|text: &str| {
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    for dialect in [Dialect::Postgres, Dialect::MySql] {
        analysed(dialect, text);
    }
});

fn analysed(dialect: Dialect, text: &str) {
    let lexed = lex(dialect, text);
    let peak = PEAK_BYTES + lexed.normalized.len() * PEAK_BYTES_PER_BYTE;
    let (template, held) = bounded(peak, || measured(|| Template::parse(dialect, &lexed.normalized)));
    let charged = lexed.normalized.len() + template.bytes();
    assert!(held <= charged, "{held} bytes held, {charged} charged");
    let schemas = &*SCHEMAS;
    if template.keeps_settings(&CATALOG, schemas) {
        assert!(!template.makes_temporary(&CATALOG, schemas));
    }
    let effect = template.effect_in(&CATALOG, schemas);
    assert!(template.effect() != Effect::Pure || matches!(effect, Effect::Pure | Effect::Write));
    if template.refusal().is_none() {
        assert_eq!(template.effect(), Effect::Pure, "what may be kept only reads");
    }
    let Ok(read_set) = template.resolve(&CATALOG, schemas) else { return };
    assert!(template.refusal().is_none());
    // Without a table or a view the session's context decides alone.
    assert_eq!(read_set.describe().is_empty(), read_set.is_empty());
    bind(&read_set, &lexed);
}

fn bind(read_set: &ReadSet, lexed: &Lexed) {
    let literals = lexed.literals.iter().map(|literal| ParameterValue::Literal(literal));
    for own in [ParameterValue::Null, ParameterValue::Text(b"7"), ParameterValue::Binary(&[0, 0, 0, 7])] {
        let own = std::iter::repeat_n(own, usize::from(lexed.own_params));
        let parameters: Vec<_> =
            own.chain(literals.clone()).map(|value| Parameter { value, declared_type: 0 }).collect();
        let Ok(bound) = read_set.bind(&parameters, CLIENT) else { continue };
        coherent(read_set, &bound);
        // With nothing known of the parameters the tags are wider, never others.
        if let Ok(wider) = read_set.bind(&[], CLIENT) {
            coherent(read_set, &wider);
        }
    }
}

/// Every table has a tag, and no other table.
fn coherent(read_set: &ReadSet, bound: &Bound) {
    let rows = bound.tags.iter().filter(|tag| tag.rows != RowSet::Definition);
    let tagged: HashSet<TableId> = rows.map(|tag| tag.table).collect();
    assert_eq!(tagged, read_set.tables.iter().copied().collect());
    // And what is told later is told: at the latest where the answer shows no row, and of no other table where it shows some.
    let later = bound.tags.iter().filter(|tag| tag.rows == RowSet::Later).map(|tag| tag.table).collect::<HashSet<_>>();
    assert_eq!(told(bound, 0), later);
    for rows in 1..3 {
        assert!(told(bound, rows).is_subset(&later));
    }
}

/// The tables of the deferred tags, behind an answer of so many rows.
fn told(bound: &Bound, rows: u64) -> HashSet<TableId> {
    let row = || vec![Field::Text(b"7"), Field::Null];
    let end = AnswerEnd::of(bound.derived_limit.as_ref(), 0..rows, |_| row());
    let mut join_keys = bound.join_keys.clone();
    if let Some(join_keys) = &mut join_keys {
        join_keys.bound_by_last(end.rows, &end.last);
    }
    let mut tags: Vec<Tag> = bound.limit_bound.iter().flat_map(|top| top.deferred_tags(end.rows, &end.last)).collect();
    let by_all = bound.keys.iter().flat_map(|keys| keys.deferred_tags(0..rows, |_| row(), &end, join_keys.as_mut()));
    tags.extend(by_all);
    tags.extend(join_keys.iter().flat_map(|join_keys| join_keys.deferred_tags(None)));
    tags.iter().map(|tag| tag.table).collect()
}

fn catalog() -> Catalog {
    let column = |name: &str, value_type| Column { name: name.into(), value_type, generated: false, composite: None };
    let table = |id, name: &str, kind| Table {
        id: TableId(id),
        schema: "public".into(),
        name: name.into(),
        kind,
        identity: if id == 1 { ReplicaIdentity::Columns(vec!["a".into()]) } else { ReplicaIdentity::Full },
        key: Vec::new(),
        row_security: false,
        user_types: false,
        datetime: id == 2,
        version: "1".into(),
        definition: (kind == RelationKind::View).then(|| " SELECT a, b FROM public.t WHERE c > 1;".into()),
        children: Vec::new(),
        runs_code: false,
        capacities: Vec::new(),
        columns: vec![
            column("a", ValueType::Int),
            column("b", ValueType::Text),
            column("c", ValueType::Numeric),
            column("d", if id == 2 { ValueType::DateTime } else { ValueType::Uuid }),
        ],
    };
    let tables =
        vec![table(1, "t", RelationKind::Table), table(2, "u", RelationKind::Table), table(3, "v", RelationKind::View)];
    Catalog::new(CatalogVersion(1), tables, HashSet::new(), HashSet::new())
}
