//! What a read at a replica must show, and when its session may read at the primary again.

use std::sync::Arc;

use freshet_cache::{Cache, CatalogLoad, Faults, Limits, Payload, Redefinition, Watermark};
use freshet_types::{CatalogVersion, ChangeSet, Commit, CommitId, End, Epoch, Lsn, Reason, Snapshot, TableId, Visible};

#[derive(Debug)]
struct Nothing;

impl Payload for Nothing {
    fn heap_bytes(&self) -> usize {
        0
    }
}

const TABLE: TableId = TableId(1);

fn cache() -> (Arc<Cache<Nothing>>, Epoch) {
    let cache = Arc::new(Cache::new(Limits::with_memory(1 << 20), Faults::default()));
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
