//! Keys that are retained after the entry that they were read for: a movie's rating is found by the movie's number in its title.

use std::sync::Arc;

use freshet_cache::{
    Cache, CatalogLoad, Faults, FillPermit, FillRequest, Installed, Limits, Lookup, Payload, Redefinition, Watermark,
};
use freshet_types::{
    CatalogVersion, Cell, Change, ChangeSet, Columns, Commit, CommitId, ComparedColumn, End, Epoch, Lsn, Relation,
    RowSet, Snapshot, TableId, Tag, Term, Test, ValueType, Visible,
};

#[derive(Debug)]
#[expect(dead_code, reason = "for people")]
struct Number(u32);

impl Payload for Number {
    fn heap_bytes(&self) -> usize {
        0
    }
}

const TITLE: TableId = TableId(1);
const RATING: TableId = TableId(2);
const CATALOG: CatalogVersion = CatalogVersion(1);

/// Rows of `table` with these numbers in `column`.
fn rows(table: TableId, column: &str, numbers: &[u32]) -> Tag {
    let column = ComparedColumn { name: column.into(), value_type: ValueType::Int };
    let value = |number: &u32| ValueType::Int.normalise_text(number.to_string().as_bytes()).unwrap();
    let test = Test::In(numbers.iter().map(value).collect());
    Tag { table, rows: RowSet::Where([Term { column, test }].into()), columns: Columns::All }
}

struct World {
    cache: Arc<Cache<Number>>,
    epoch: Epoch,
    commits: u32,
}

impl World {
    fn new(faults: Faults) -> Self {
        let cache = Arc::new(Cache::new(Limits::with_memory(1 << 20), faults));
        let epoch = cache.connected();
        let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
        let differs = Redefinition::Everything;
        let load = CatalogLoad { version: CATALOG, differs, proof: &proof, asked_at: 1, add_namesakes: None };
        assert!(cache.catalog_loaded(epoch, load));
        cache.publish(epoch, &[TITLE, RATING]);
        cache.offer_log_end(End { epoch, lsn: Lsn(10) }, 1);
        cache.advance(Lsn(10));
        Self { cache, epoch, commits: 0 }
    }

    fn begin(&self) -> FillPermit<Number> {
        let later = Tag { table: RATING, rows: RowSet::Later, columns: Columns::All };
        let tags = vec![rows(TITLE, "name", &[5]), later];
        let request = FillRequest { key: b"key", tags, catalog: CATALOG, now: 1, snapshot: None, join_until: 0 };
        self.cache.begin_fill(request).expect("a permit")
    }

    fn all(&self) -> Visible {
        Visible::Snapshot(Snapshot::new(100 + u64::from(self.commits), vec![]))
    }

    /// Commits with a proof that shows everything committed.
    fn keep(&self, permit: FillPermit<Number>) -> bool {
        let kept = permit.commit(Number(self.commits), Some(&self.all()), self.cache.applied());
        self.cache.validate();
        matches!(kept, Installed::Stored { .. })
    }

    /// Fills by reading the keys.
    fn read(&self, keys: &[u32]) {
        let mut permit = self.begin();
        assert!(permit.wants_deferred());
        permit.set_deferred(vec![rows(RATING, "title_id", keys)], Some([TITLE].into()));
        assert!(self.keep(permit));
    }

    fn change(&mut self, table: TableId, column: &str, number: u32) {
        let relation = Arc::new(Relation { table, columns: vec![column.into()] });
        let new = [Cell::Text(number.to_string().into_bytes().into())].into();
        let changes = ChangeSet::Rows(vec![Change::Insert { relation, new }]);
        let id = CommitId::Xid(100 + self.commits);
        self.commits += 1;
        let end = Lsn(self.cache.applied().0 + 10);
        self.cache.apply(Commit { id, end, changes, redefines: false });
    }

    fn hits(&self) -> bool {
        self.cache.validate();
        matches!(self.cache.lookup(b"key", &Watermark::default(), 2), Lookup::Hit(_))
    }
}

#[test]
fn keys_are_used_again_once_a_row_that_they_name_has_changed() {
    let mut world = World::new(Faults::default());
    world.read(&[7]);
    for _ in 0..3 {
        world.change(RATING, "title_id", 7);
        assert!(!world.hits());
        let permit = world.begin();
        assert!(!permit.wants_deferred() && permit.needs_proof(), "the change is pending");
        drop(permit);
        assert!(!world.hits());
        let permit = world.begin();
        assert!(!permit.wants_deferred(), "a fill that was given up gave them back");
        let unseen = Visible::Snapshot(Snapshot::new(1, vec![]));
        assert!(matches!(permit.commit(Number(0), Some(&unseen), world.cache.applied()), Installed::Stale));
        let permit = world.begin();
        world.change(RATING, "title_id", 8);
        assert!(world.keep(permit));
        world.change(RATING, "title_id", 8);
        assert!(world.hits());
    }
    assert_eq!(world.cache.levels(2).entries, 1);
}

#[test]
fn keys_go_with_the_rows_that_they_were_read_from() {
    let mut world = World::new(Faults::default());
    world.read(&[7]);
    world.change(TITLE, "name", 5);
    assert!(world.begin().wants_deferred());
    world.read(&[7]);
    world.change(RATING, "title_id", 7);
    world.change(TITLE, "name", 6);
    world.change(TITLE, "name", 5);
    assert!(world.begin().wants_deferred());
    // The same for everything that a new or continued stream may have missed.
    world.read(&[7]);
    world.change(RATING, "title_id", 7);
    world.cache.suspended();
    assert!(world.cache.resumed(world.epoch));
    world.cache.validate();
    assert!(world.begin().wants_deferred());
    world.read(&[7]);
    world.change(RATING, "title_id", 7);
    world.cache.unpublish(&[TITLE]);
    world.cache.publish(world.epoch, &[TITLE]);
    assert!(world.begin().wants_deferred());
}

/// Another title with this name is committed during the fill. Its query sees it; the keys do not.
#[test]
fn a_fill_fails_whose_keys_may_have_changed_meanwhile() {
    for trust_keys in [false, true] {
        let mut world = World::new(Faults { trust_keys, ..Faults::default() });
        world.read(&[7]);
        world.change(RATING, "title_id", 7);
        let permit = world.begin();
        world.change(TITLE, "name", 5);
        let kept = world.keep(permit);
        assert_eq!(kept, trust_keys);
        world.change(RATING, "title_id", 9);
        assert_eq!(world.hits(), trust_keys, "what the new title's rating changes is stale");
    }
}

#[test]
fn few_are_kept() {
    let mut world = World::new(Faults::default());
    for number in 0..3000_u32 {
        let key = number.to_be_bytes();
        let later = Tag { table: RATING, rows: RowSet::Later, columns: Columns::All };
        let tags = vec![rows(TITLE, "name", &[number]), later];
        let request = FillRequest { key: &key, tags, catalog: CATALOG, now: 1, snapshot: None, join_until: 0 };
        let mut permit = world.cache.begin_fill(request).expect("a permit");
        permit.set_deferred(vec![rows(RATING, "title_id", &[number])], Some([TITLE].into()));
        assert!(matches!(permit.commit(Number(0), Some(&world.all()), Lsn(10)), Installed::Stored { .. }));
        world.change(RATING, "title_id", number);
        world.cache.prove(world.epoch, &world.all());
    }
    world.cache.validate();
    assert_eq!(world.cache.levels(2).entries, 0);
}
