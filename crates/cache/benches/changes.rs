//! What the dependency index costs: bytes for each entry, and changes applied in a second with a million entries.
//!
//! Run by `make bench-index`. Bytes are the difference in resident memory between entries with such a tag and entries on which
//! any row counts, both with the same keys; the store's own part is in both.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use freshet_cache::{Cache, CatalogLoad, Faults, FillRequest, Installed, Limits, Payload, Redefinition};
use freshet_types::{
    CatalogVersion, Cell, Change, ChangeSet, Columns, Commit, CommitId, ComparedColumn, End, Lsn, Relation, Row,
    RowSet, Snapshot, TableId, Tag, Term, Test, Value, ValueType, Visible,
};

const ENTRIES: i64 = 1_000_000;
const CHANGES: i64 = 400_000;
const TABLE: TableId = TableId(1);
const CATALOG: CatalogVersion = CatalogVersion(1);

#[derive(Debug)]
struct Nothing;

impl Payload for Nothing {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// What the entries depend on.
#[derive(Clone, Copy)]
enum Shape {
    Any,
    /// `id = n`
    Point,
    /// `kind = n / 100 AND id BETWEEN n AND n + 9`
    Range,
}

/// Those that one statement compares: its results share them.
struct Names {
    id: Arc<str>,
    kind: Arc<str>,
}

fn tag(shape: Shape, number: i64, names: &Names) -> Tag {
    let term = |name: &Arc<str>, test| Term {
        column: ComparedColumn { name: name.clone(), value_type: ValueType::Int },
        test,
    };
    let point = |name: &Arc<str>, value| term(name, Test::In(Box::new([Value::Int(value)])));
    let key = |value| Value::Int(value).order_key();
    let rows = match shape {
        Shape::Any => RowSet::Any,
        Shape::Point => RowSet::Where(Box::new([point(&names.id, number)])),
        Shape::Range => RowSet::Where(Box::new([
            term(&names.id, Test::Within { low: key(number), high: key(number + 9) }),
            point(&names.kind, number / 100),
        ])),
    };
    Tag { table: TABLE, rows, columns: Columns::All }
}

fn filled(shape: Shape) -> Arc<Cache<Nothing>> {
    let cache = Arc::new(Cache::new(Limits::with_memory(8 << 30), Faults::default()));
    let epoch = cache.connected();
    let proof = Visible::Snapshot(Snapshot::new(1, vec![]));
    let differs = Redefinition::Everything;
    let load = CatalogLoad { version: CATALOG, differs, proof: &proof, asked_at: 1, add_namesakes: None };
    assert!(cache.catalog_loaded(epoch, load));
    cache.publish(epoch, &[TABLE]);
    cache.offer_log_end(End { epoch, lsn: Lsn(10) }, 1);
    cache.advance(Lsn(10));
    let names = Names { id: "id".into(), kind: "kind".into() };
    for number in 0..ENTRIES {
        let key = format!("select * from t where id = {number:08}");
        let request = FillRequest {
            key: key.as_bytes(),
            tags: vec![tag(shape, number, &names)],
            catalog: CATALOG,
            now: 1,
            snapshot: None,
            join_until: 0,
        };
        let permit = cache.begin_fill(request).expect("a permit");
        assert!(matches!(permit.commit(Nothing, Some(&proof), Lsn(10)), Installed::Stored { .. }));
    }
    cache
}

/// Updates of single rows, each a transaction of its own, as the stream delivers them; changes in a second.
fn apply(cache: &Arc<Cache<Nothing>>, id_of: impl Fn(i64) -> i64) -> f64 {
    let relation = Arc::new(Relation { table: TABLE, columns: ["id", "kind", "v"].map(Arc::from).to_vec() });
    let row = |id: i64, v: i64| -> Row {
        [id, id / 100, v].iter().map(|value| Cell::Text(value.to_string().into_bytes().into())).collect()
    };
    let epoch = cache.epoch().expect("an epoch");
    let applied = cache.applied().0;
    let commits: Vec<Commit> = (0..CHANGES)
        .map(|number| {
            let id = id_of(number);
            let change = Change::Update { relation: relation.clone(), old: row(id, number), new: row(id, number + 1) };
            let number = number.unsigned_abs();
            Commit {
                id: CommitId::Xid(u32::try_from(applied + number).expect("few")),
                end: Lsn(applied + 1 + number),
                changes: ChangeSet::Rows(vec![change]),
                redefines: false,
            }
        })
        .collect();
    let begun = Instant::now();
    for (number, commit) in commits.into_iter().enumerate() {
        let end = commit.end.0;
        drop(cache.apply(commit));
        if number % 100 == 0 {
            // Its transaction's number is one less than where it ends.
            cache.prove(epoch, &Visible::Snapshot(Snapshot::new(end, vec![])));
        }
    }
    CHANGES as f64 / begun.elapsed().as_secs_f64()
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or_default() * 4096
}

/// Resident memory for each entry; the process has hardly anything else.
fn bytes_of(shape: Shape) -> u64 {
    let before = resident_bytes();
    let cache = filled(shape);
    let bytes = (resident_bytes().saturating_sub(before)) / ENTRIES.unsigned_abs();
    drop(cache);
    bytes
}

fn main() {
    // Each measurement of memory is a process of its own, since freed memory is used again.
    let shape_of = |name: &str| match name {
        "point" => Shape::Point,
        "range" => Shape::Range,
        _ => Shape::Any,
    };
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(name) = arguments.iter().find_map(|argument| argument.strip_prefix("bytes-of=")) {
        println!("{}", bytes_of(shape_of(name)));
        return;
    }
    let measured = |name: &str| -> u64 {
        let output = std::process::Command::new(&arguments[0]).arg(format!("bytes-of={name}")).output();
        String::from_utf8_lossy(&output.expect("a process").stdout).trim().parse().expect("a number")
    };
    let mut report = String::new();
    let any = measured("any");
    let _ = writeln!(report, "{ENTRIES} entries; any row: {any} bytes each, all in all");
    for name in ["point", "range"] {
        let bytes = measured(name);
        let _ = writeln!(report, "{name}: {bytes} bytes each, {} more than any row", bytes.saturating_sub(any));
        let cache = filled(shape_of(name));
        let passing = apply(&cache, |number| ENTRIES + 1000 + number);
        let _ =
            writeln!(report, "{name}: {passing:.0} changes/s that touch no entry, of one row and one transaction each");
        let hitting = apply(&cache, |number| number * 2 % ENTRIES);
        let _ = writeln!(report, "{name}: {hitting:.0} changes/s that evict");
    }
    print!("{report}");
}
