//! Fills while the stream has delivered redefinitions that the catalogue in use does not show.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::{
    Cache, CatalogLoad, Faults, FillRequest, Installed, Limits, Lookup, Payload, Redefinition, Watermark,
};
use freshet_types::{
    CatalogVersion, Change, ChangeSet, Columns, Commit, CommitId, End, Epoch, Lsn, Reason, RowSet, Snapshot, TableId,
    Tag, Visible,
};

#[derive(Debug)]
struct Nothing;

impl Payload for Nothing {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A cache over tables 1 to 3, with catalogue 1.
struct World {
    cache: Arc<Cache<Nothing>>,
    epoch: Epoch,
    end: u64,
}

impl World {
    fn new() -> Self {
        let cache = Arc::new(Cache::new(Limits::with_memory(1 << 20), Faults::default()));
        let epoch = cache.connected();
        let world = Self { cache, epoch, end: 10 };
        assert!(world.load(1, 100, Redefinition::Everything, None));
        world.cache.publish(epoch, &[1, 2, 3].map(TableId));
        world.cache.offer_log_end(End { epoch, lsn: Lsn(10) }, 1);
        world.cache.advance(Lsn(10));
        world
    }

    /// A catalogue whose snapshot shows all transactions before `before`.
    fn load(
        &self,
        version: u64,
        before: u64,
        differs: Redefinition<'_>,
        add_namesakes: Option<&dyn Fn(&mut ChangeSet)>,
    ) -> bool {
        let (version, proof) = (CatalogVersion(version), Visible::Snapshot(Snapshot::new(before, vec![])));
        let load = CatalogLoad { version, differs, proof: &proof, asked_at: 1, add_namesakes };
        self.cache.catalog_loaded(self.epoch, load)
    }

    fn deliver(&mut self, xid: u32, changes: ChangeSet) {
        self.end += 10;
        self.cache.apply(Commit { id: CommitId::Xid(xid), end: Lsn(self.end), changes, redefines: true });
    }

    /// Fills a result over this table, or over none, with a snapshot of all transactions so far.
    fn fill(&self, version: u64, table: Option<u32>) -> Result<bool, Reason> {
        let tag = |table| Tag { table: TableId(table), rows: RowSet::Any, columns: Columns::All };
        let key = [table.unwrap_or(0) as u8];
        let tags = table.map(tag).into_iter().collect();
        let catalog = CatalogVersion(version);
        let request = FillRequest { key: &key, tags, catalog, now: 1, snapshot: None, join_until: 0 };
        let permit = self.cache.begin_fill(request)?;
        let proof = Visible::Snapshot(Snapshot::new(10_000, vec![]));
        let installed = permit.commit(Nothing, Some(&proof), Lsn(self.end));
        self.cache.validate();
        Ok(matches!(installed, Installed::Stored { .. }))
    }

    fn hits(&self, table: u32) -> bool {
        matches!(self.cache.lookup(&[table as u8], &Watermark::default(), 2), Lookup::Hit(_))
    }
}

fn redefined(table: u32) -> ChangeSet {
    ChangeSet::Rows(vec![Change::Redefined { table: TableId(table), name: format!("t{table}").into() }])
}

const STALE: Result<bool, Reason> = Err(Reason::CatalogStale);
/// Names mean the same relations as before.
const SAME: Option<&dyn Fn(&mut ChangeSet)> = Some(&|_| ());

#[test]
fn what_a_redefinition_does_not_touch_is_filled() {
    let mut world = World::new();
    world.deliver(100, redefined(1));
    assert_eq!(world.fill(1, Some(1)), STALE);
    assert_eq!(world.fill(1, Some(2)), Ok(true));
    assert_eq!(world.fill(1, None), Ok(true));
    // Visible to all, but not shown by the catalogue.
    world.cache.prove(world.epoch, &Visible::Snapshot(Snapshot::new(10_000, vec![])));
    assert_eq!(world.fill(1, Some(1)), STALE);
    assert!(world.cache.wants_catalog() && world.hits(2));
    assert!(world.load(2, 101, Redefinition::Tables(&[TableId(1)]), None));
    assert_eq!(world.fill(2, Some(1)), Ok(true));
    assert!(!world.cache.wants_catalog() && world.hits(2));
}

/// What the catalogue takes away is counted apart from what changed data take.
#[test]
fn a_redefinition_counts_as_a_flush() {
    let mut world = World::new();
    assert_eq!([world.fill(1, Some(1)), world.fill(1, Some(2))], [Ok(true), Ok(true)]);
    let counted = |world: &World| {
        let counters = world.cache.counters();
        [&counters.invalidated, &counters.flushed].map(|counter| counter.load(Relaxed))
    };
    world.deliver(100, redefined(1));
    assert_eq!(counted(&world), [0, 1]);
    world.deliver(101, ChangeSet::Everything);
    assert_eq!(counted(&world), [0, 2]);
}

#[test]
fn what_may_touch_anything_stops_all_fills() {
    let mut world = World::new();
    world.deliver(100, ChangeSet::Everything);
    assert_eq!([world.fill(1, Some(1)), world.fill(1, None)], [STALE, STALE]);
    assert!(world.load(2, 101, Redefinition::Everything, None));
    // Names of which nothing is known: the transaction changed too many rows, or too many relations were redefined.
    for changes in
        [ChangeSet::Rows(vec![Change::AnyRow(TableId(2))]), (0..2000).map(redefined).fold(ChangeSet::none(), and)]
    {
        world.deliver(101, changes);
        assert_eq!([world.fill(2, Some(1)), world.fill(2, None)], [STALE, STALE]);
        assert!(world.load(2, 102, Redefinition::Everything, None));
    }
}

fn and(mut all: ChangeSet, more: ChangeSet) -> ChangeSet {
    if let ChangeSet::Rows(rows) = more {
        for row in rows {
            all.push(row);
        }
    }
    all
}

#[test]
fn a_catalogue_that_misses_a_redefinition_is_used_for_the_rest() {
    let mut world = World::new();
    assert_eq!(world.fill(1, Some(3)), Ok(true));
    world.deliver(100, redefined(1));
    world.deliver(101, redefined(2));
    assert!(!world.load(2, 101, Redefinition::Tables(&[TableId(1)]), None), "it must show all");
    assert_eq!([world.fill(1, Some(1)), world.fill(1, Some(2))], [STALE, STALE]);
    assert!(world.load(2, 101, Redefinition::Tables(&[TableId(1)]), SAME));
    assert!(world.cache.wants_catalog() && world.hits(3));
    assert_eq!([world.fill(2, Some(1)), world.fill(2, Some(2)), world.fill(1, Some(3))], [Ok(true), STALE, STALE]);
    assert!(world.load(3, 102, Redefinition::Tables(&[TableId(2)]), SAME));
    assert_eq!(world.fill(3, Some(2)), Ok(true));
    assert!(!world.cache.wants_catalog() && world.hits(1) && world.hits(3));
}

/// As on MySQL: catalogue 3 is built on catalogue 2, and its proof is of the rest alone.
#[test]
fn a_catalogue_that_is_not_used_counts_for_the_next() {
    let mut world = World::new();
    world.deliver(100, redefined(1));
    world.deliver(200, redefined(2));
    assert!(!world.load(2, 101, Redefinition::Tables(&[TableId(1)]), None));
    let rest = Visible::Snapshot(Snapshot::new(201, vec![100]));
    let differs = Redefinition::Tables(&[TableId(1), TableId(2)]);
    let load = CatalogLoad { version: CatalogVersion(3), differs, proof: &rest, asked_at: 1, add_namesakes: None };
    assert!(world.cache.catalog_loaded(world.epoch, load));
    assert!(!world.cache.wants_catalog());
    assert_eq!([world.fill(3, Some(1)), world.fill(3, Some(2))], [Ok(true), Ok(true)]);
}

/// Catalogue 2 has a relation, made by the first redefinition, with the name of what the second redefines.
#[test]
fn names_are_looked_up_in_the_catalogue_in_use() {
    let mut world = World::new();
    assert_eq!(world.fill(1, Some(3)), Ok(true));
    world.deliver(100, redefined(1));
    world.deliver(101, redefined(2));
    let namesakes = |changes: &mut ChangeSet| changes.push(Change::AnyRow(TableId(3)));
    assert!(world.load(2, 101, Redefinition::Tables(&[]), Some(&namesakes)));
    assert!(!world.hits(3));
    assert_eq!([world.fill(2, Some(3)), world.fill(2, Some(1))], [STALE, Ok(true)]);
    // It is also the name of a type.
    let everything = |changes: &mut ChangeSet| *changes = ChangeSet::Everything;
    assert!(world.load(3, 101, Redefinition::Tables(&[]), Some(&everything)));
    assert!(!world.hits(1));
    assert_eq!(world.fill(3, Some(1)), STALE);
}

/// So many that the change set does not keep the names.
#[test]
fn too_many_namesakes_are_everything() {
    let mut world = World::new();
    world.deliver(100, redefined(1));
    let many = |changes: &mut ChangeSet| (10..20_000).for_each(|table| changes.push(Change::AnyRow(TableId(table))));
    assert!(world.load(2, 100, Redefinition::Tables(&[]), Some(&many)));
    assert_eq!([world.fill(2, Some(1)), world.fill(2, Some(2))], [STALE, STALE]);
    assert!(world.load(3, 101, Redefinition::Everything, SAME));
    assert_eq!([world.fill(3, Some(1)), world.fill(3, Some(2))], [Ok(true), Ok(true)]);
}

#[test]
fn the_epoch_ends_if_no_catalogue_shows_any() {
    let mut world = World::new();
    for xid in 0..=10_000 {
        world.deliver(100 + xid, redefined(1));
        world.cache.prove(world.epoch, &Visible::Snapshot(Snapshot::new(u64::from(xid) + 101, vec![])));
        assert_eq!(world.cache.epoch().is_some(), xid < 10_000, "after {xid}");
    }
}
