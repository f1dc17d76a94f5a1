//! What a read at a replica must show, and when its session may read at the primary again.

use std::sync::Arc;

use freshet_cache::{Cache, CatalogLoad, Faults, Limits, Payload, Redefinition, Watermark};
use freshet_types::{
    CatalogVersion, Cell, Change, ChangeSet, Columns, Commit, CommitId, ComparedColumn, End, Epoch, Lsn, Reason,
    Relation, RowSet, Snapshot, TableId, Tag, Term, Test, Value, ValueType, Visible,
};

#[derive(Debug)]
struct Nothing;

impl Payload for Nothing {
    fn heap_bytes(&self) -> usize {
        0
    }
}

const TABLE: TableId = TableId(1);

fn cache() -> (Arc<Cache<Nothing>>, Epoch) {
    let cache = Arc::new(Cache::new(Limits::with_memory(1 << 28), Faults::default()));
    let epoch = cache.connected();
    let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
    let differs = Redefinition::Everything;
    let load = CatalogLoad { version: CatalogVersion(1), differs, proof: &proof, asked_at: 1, add_namesakes: None };
    assert!(cache.catalog_loaded(epoch, load));
    cache.publish(epoch, &[TABLE]);
    pass(&cache, epoch, 10, 1);
    (cache, epoch)
}

/// The stream passes a log end that was asked for at this time.
fn pass(cache: &Cache<Nothing>, epoch: Epoch, lsn: u64, asked_at: u64) {
    cache.offer_log_end(End { epoch, lsn: Lsn(lsn) }, asked_at);
    cache.advance(Lsn(lsn));
}

#[test]
fn the_floor_is_what_the_stream_has_passed_once_it_has_passed_enough() {
    let (cache, epoch) = cache();
    let floor = |since, written| {
        let watermark = Watermark { since, ..Watermark::default() };
        cache.replica_floor(&watermark, written, 60).map(|end| (end.epoch, end.lsn))
    };
    assert_eq!(floor(0, 0), Ok((epoch, Lsn(10))));
    assert_eq!(floor(1, 1), Ok((epoch, Lsn(10))));
    assert_eq!(floor(2, 0), Err(Reason::Watermark), "the session has read something since");
    assert_eq!(floor(0, 2), Err(Reason::Fence), "a write was acknowledged since");
    cache.fence_since(2);
    assert_eq!(floor(0, 0), Err(Reason::Fence));
    pass(&cache, epoch, 20, 2);
    assert_eq!(floor(2, 2), Ok((epoch, Lsn(20))));
    let known = Watermark { end: Some(End { epoch, lsn: Lsn(15) }), since: 50, ..Watermark::default() };
    assert_eq!(cache.replica_floor(&known, 0, 60).map(|end| end.lsn), Ok(Lsn(20)));
    cache.disconnected();
    assert_eq!(floor(0, 0), Err(Reason::NoStream));
}

#[test]
fn a_replica_is_ahead_of_the_primary_until_its_commits_are_proven() {
    let (cache, epoch) = cache();
    let visible = || cache.visible_end().map(|(end, has_unproven)| (end.epoch, end.lsn, has_unproven));
    assert_eq!(visible(), Some((epoch, Lsn(10), false)));
    let commit =
        |xid, lsn| Commit { id: CommitId::Xid(xid), end: Lsn(lsn), changes: ChangeSet::Everything, redefines: false };
    cache.apply(commit(100, 20));
    pass(&cache, epoch, 20, 2);
    assert!(visible().is_some_and(|(_, lsn, has_unproven)| lsn < Lsn(20) && has_unproven), "delivered, and not proven");
    cache.apply(commit(101, 30));
    cache.advance(Lsn(30));
    cache.prove(epoch, &Visible::Snapshot(Snapshot::new(101, vec![])));
    let first = visible().filter(|(_, lsn, has_unproven)| *lsn >= Lsn(20) && *lsn < Lsn(30) && *has_unproven);
    assert!(first.is_some(), "the later one does not matter");
    cache.prove(epoch, &Visible::Snapshot(Snapshot::new(102, vec![])));
    assert_eq!(visible(), Some((epoch, Lsn(30), false)));
    cache.disconnected();
    assert_eq!(visible(), None);
}

/// A change of the row with this key.
fn write(xid: u32, lsn: u64, table: TableId, key: i64) -> Commit {
    let relation = Arc::new(Relation { table, columns: vec!["id".into()] });
    let new = Box::new([Cell::Text(key.to_string().into_bytes().into())]);
    let changes = ChangeSet::Rows(vec![Change::Insert { relation, new }]);
    Commit { id: CommitId::Xid(xid), end: Lsn(lsn), changes, redefines: false }
}

/// The row with this key.
fn row(key: i64) -> Tag {
    let column = ComparedColumn { name: "id".into(), value_type: ValueType::Int };
    let term = Term { column, test: Test::In([Value::Int(key)].into()) };
    Tag { table: TABLE, rows: RowSet::Where([term].into()), columns: Columns::All }
}

/// Notes that everything is known behind this log end.
fn complete(cache: &Cache<Nothing>, epoch: Epoch, lsn: u64) {
    let known = cache.proven().expect("there is a stream");
    cache.note_complete(&known, End { epoch, lsn: Lsn(lsn) });
}

#[test]
fn a_replica_that_lags_answers_what_no_commit_behind_its_position_touches() {
    let (cache, epoch) = cache();
    complete(&cache, epoch, 10);
    let untouched = |tag: &Tag, position| {
        let floor = End { epoch, lsn: cache.applied() };
        cache.untouched_since(std::slice::from_ref(tag), CatalogVersion(1), floor, Lsn(position))
    };
    cache.apply(write(100, 20, TABLE, 1));
    cache.apply(write(101, 30, TABLE, 2));
    for is_proven in [false, true] {
        assert!(untouched(&row(1), 20) && !untouched(&row(1), 19), "proven: {is_proven}");
        assert!(untouched(&row(2), 30) && !untouched(&row(2), 29) && untouched(&row(3), 10), "proven: {is_proven}");
        // A position before everything was known, and rows that only the answer tells.
        assert!(!untouched(&row(3), 9), "proven: {is_proven}");
        let later = Tag { rows: RowSet::Later, ..row(3) };
        assert!(!untouched(&later, 29) && untouched(&later, 30), "proven: {is_proven}");
        cache.prove(epoch, &Visible::Snapshot(Snapshot::new(102, vec![])));
    }
    // One proven, one not; the later one is proven first.
    cache.apply(write(102, 40, TABLE, 4));
    cache.apply(write(103, 50, TABLE, 5));
    cache.prove(epoch, &Visible::Snapshot(Snapshot::new(104, vec![102])));
    assert!(!untouched(&row(4), 39) && untouched(&row(4), 40) && !untouched(&row(5), 49) && untouched(&row(6), 30));
    cache.disconnected();
    assert!(!untouched(&row(6), 50));
}

#[test]
fn what_a_replica_may_not_know_is_not_untouched() {
    let (cache, epoch) = cache();
    let floor = End { epoch, lsn: Lsn(10) };
    let untouched = |version, position| cache.untouched_since(&[row(1)], CatalogVersion(version), floor, Lsn(position));
    assert!(!untouched(1, 1000), "nothing is known yet");
    let early = cache.proven().expect("there is a stream");
    complete(&cache, epoch, 10);
    assert!(untouched(1, 10) && !untouched(2, 10) && !cache.untouched_since(&[], CatalogVersion(1), floor, Lsn(10)));
    // Writes before the table was published may be missing from the stream.
    cache.publish(epoch, &[TableId(2)]);
    cache.note_complete(&early, End { epoch, lsn: Lsn(15) });
    assert!(!untouched(1, 1000));
    complete(&cache, epoch, 20);
    complete(&cache, epoch, 30);
    assert!(untouched(1, 20) && !untouched(1, 19));
    cache.unpublish(&[TABLE]);
    assert!(!untouched(1, 1000));
    cache.publish(epoch, &[TABLE]);
    complete(&cache, epoch, 40);
    assert!(untouched(1, 40));
    // Under another catalogue the same text may read other tables.
    let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
    let differs = Redefinition::Tables(&[]);
    let load = CatalogLoad { version: CatalogVersion(2), differs, proof: &proof, asked_at: 2, add_namesakes: None };
    assert!(cache.catalog_loaded(epoch, load) && !untouched(1, 1000) && !untouched(2, 1000));
    complete(&cache, epoch, 50);
    assert!(!untouched(1, 1000) && untouched(2, 50));
    let changes = ChangeSet::Rows(vec![Change::Redefined { table: TABLE, name: "t".into() }]);
    cache.apply(Commit { id: CommitId::Xid(110), end: Lsn(60), changes, redefines: true });
    assert!(!untouched(2, 1000), "a redefinition that no catalogue shows");
}

#[test]
fn a_replica_that_lags_far_is_not_searched_for() {
    let (cache, epoch) = cache();
    complete(&cache, epoch, 10);
    for at in 0..1_500_u32 {
        cache.apply(write(1_000 + at, 100 + u64::from(at), TABLE, 7));
    }
    for is_proven in [false, true] {
        let untouched = |position| {
            let floor = End { epoch, lsn: cache.applied() };
            cache.untouched_since(&[row(1)], CatalogVersion(1), floor, Lsn(position))
        };
        assert!(untouched(599) && !untouched(598), "proven: {is_proven}");
        cache.prove(epoch, &Visible::Snapshot(Snapshot::new(5_000, vec![])));
    }
}
