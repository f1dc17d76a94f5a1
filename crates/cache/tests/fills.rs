//! Several fills of one key.

use std::sync::Arc;

use freshet_cache::{
    Cache, Faults, FillRequest, Installed, Limits, Lookup, Payload, Redefinition, SnapshotBounds, Watermark,
};
use freshet_types::{
    CatalogVersion, ChangeSet, Columns, Commit, CommitId, End, Lsn, Reason, RowSet, Snapshot, TableId, Tag, Visible,
};

#[derive(Debug, PartialEq)]
struct Number(u32);

impl Payload for Number {
    fn heap_bytes(&self) -> usize {
        0
    }
}

const TABLE: TableId = TableId(1);
const CATALOG: CatalogVersion = CatalogVersion(1);

fn cache() -> Arc<Cache<Number>> {
    let cache = Arc::new(Cache::new(Limits::with_memory(1 << 20), Faults::default()));
    let epoch = cache.connected();
    assert!(cache.catalog_loaded(
        epoch,
        CATALOG,
        Redefinition::Everything,
        &Visible::Snapshot(Snapshot::new(100, vec![])),
        1
    ));
    cache.publish(epoch, &[TABLE]);
    cache.offer_log_end(End { epoch, lsn: Lsn(10) }, 1);
    cache.advance(Lsn(10));
    cache
}

fn request() -> FillRequest<'static> {
    let tags = vec![Tag { table: TABLE, rows: RowSet::Any, columns: Columns::All }];
    FillRequest { key: b"key", tags, catalog: CATALOG, now: 1, snapshot: None, join_until: 0 }
}

/// Two sessions miss; the second begins its fill after the first has ended its own.
#[test]
fn a_later_fill_replaces_the_entry_of_an_earlier_one() {
    let cache = cache();
    let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
    for number in [1, 2] {
        let permit = cache.begin_fill(request()).expect("a permit");
        assert!(matches!(permit.commit(Number(number), Some(&proof), Lsn(10)), Installed::Stored { .. }));
        cache.validate();
        assert_eq!(cache.levels(2).entries, 1);
        let Lookup::Hit(entry) = cache.lookup(b"key", &Watermark::default(), 2) else { panic!("no hit") };
        assert_eq!(entry.payload, Number(number));
    }
    cache.apply(Commit { id: CommitId::Xid(100), end: Lsn(20), changes: ChangeSet::Everything, redefines: false });
    cache.validate();
    assert!(matches!(cache.lookup(b"key", &Watermark::default(), 2), Lookup::Miss));
    assert_eq!(cache.levels(2).bytes, 0);
}

/// By time alone, but under the lease, and until the epoch ends.
#[test]
fn a_result_by_time_is_served_until_then() {
    let cache = cache();
    let tags = vec![Tag { table: TABLE, rows: RowSet::Definition, columns: Columns::All }];
    let request = || FillRequest { tags: tags.clone(), ..request() };
    let permit = cache.begin_fill_until(request(), 100).expect("a permit");
    // The stream is not there yet.
    assert!(matches!(permit.commit(Number(1), None, Lsn(50)), Installed::Stored { .. }));
    let changes = ChangeSet::Rows(vec![]);
    cache.apply(Commit { id: CommitId::Xid(100), end: Lsn(20), changes, redefines: false });
    let late = Watermark { since: 50, ..Watermark::default() };
    assert!(matches!(cache.lookup(b"key", &late, 99), Lookup::Hit(_)));
    assert!(matches!(cache.lookup(b"key", &late, 100), Lookup::Miss));
    let lo = cache.proven().expect("a stream");
    let snapshot = Watermark { snapshot: Some(SnapshotBounds { lo, since: 1 }), ..Watermark::default() };
    assert!(matches!(cache.lookup(b"key", &snapshot, 99), Lookup::Bypass(Reason::Snapshot)));
    assert!(cache.begin_fill_until(FillRequest { snapshot: Some(lo), ..request() }, 100).is_err());
    cache.disconnected();
    assert!(matches!(cache.lookup(b"key", &late, 99), Lookup::Bypass(Reason::NoStream)));
}
