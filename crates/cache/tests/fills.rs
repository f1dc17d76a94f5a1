//! Several fills of one key.

use std::sync::Arc;

use freshet_cache::{
    Cache, CatalogLoad, Faults, FillRequest, Installed, Limits, Lookup, Payload, Redefinition, SnapshotBounds,
    Watermark,
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
    let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
    let differs = Redefinition::Everything;
    let load = CatalogLoad { version: CATALOG, differs, proof: &proof, asked_at: 1, add_namesakes: None };
    assert!(cache.catalog_loaded(epoch, load));
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

/// What the operator's rules no longer allow goes, and what is under way is not cached; other entries stay.
#[test]
fn discarded_entries_are_gone_and_fills_under_way_fail() {
    let cache = cache();
    let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
    let begin = |key| cache.begin_fill(FillRequest { key, ..request() }).expect("a permit");
    for (key, number) in [(b"one", 1), (b"two", 2)] {
        assert!(matches!(begin(key).commit(Number(number), Some(&proof), Lsn(10)), Installed::Stored { .. }));
    }
    let under_way = begin(b"key");
    cache.discard(|number| *number == Number(1));
    assert!(matches!(under_way.commit(Number(3), Some(&proof), Lsn(10)), Installed::Stale));
    cache.validate();
    let found = |key: &[u8]| matches!(cache.lookup(key, &Watermark::default(), 2), Lookup::Hit(_));
    assert!(!found(b"one") && found(b"two") && !found(b"key"));
    assert!(matches!(begin(b"key").commit(Number(3), Some(&proof), Lsn(10)), Installed::Stored { .. }));
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
