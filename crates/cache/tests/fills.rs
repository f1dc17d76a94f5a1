//! Fills that meet: what the engine does with the second one of a key.

use std::sync::Arc;

use freshet_cache::{Cache, Faults, Floor, Installed, Limits, Lookup, Payload};
use freshet_model::{CatalogVersion, ChangeSet, Commit, End, Lsn, RowSet, TableId, Tag, Visible};

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
    cache.catalog_loaded(CATALOG, 1);
    cache.cover(epoch, &[TABLE]);
    cache.offer_reading(End { epoch, lsn: Lsn(10) }, 1);
    cache.advance(Lsn(10));
    cache
}

fn tags() -> Vec<Tag> {
    vec![Tag { table: TABLE, rows: RowSet::Any }]
}

/// Two sessions miss; the second begins its fill when the first has ended its own.
#[test]
fn a_later_fill_replaces_the_entry_of_an_earlier_one() {
    let cache = cache();
    let proof = Visible::new(100, vec![]);
    for number in [1, 2] {
        let permit = cache.begin_fill(b"key", tags(), CATALOG, 1).expect("a permit");
        assert_eq!(permit.commit(Number(number), &proof, Lsn(10)), Installed::Stored);
        cache.validate();
        assert_eq!(cache.levels(2).entries, 1);
        let Lookup::Hit(entry) = cache.lookup(b"key", &Floor::default(), 2) else { panic!("no hit") };
        assert_eq!(entry.payload, Number(number));
    }
    cache.apply(Commit { xid: 100, end: Lsn(20), changes: ChangeSet::Everything });
    cache.validate();
    assert!(matches!(cache.lookup(b"key", &Floor::default(), 2), Lookup::Miss));
    assert_eq!(cache.levels(2).bytes, 0);
}
