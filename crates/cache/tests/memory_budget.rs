//! A change of the memory limit evicts entries together with their tags.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::admission::{self, Hits, Keep, Miss, Worth};
use freshet_cache::{
    Cache, CatalogLoad, Faults, FillPermit, FillRequest, Installed, Limits, Lookup, Payload, Redefinition, Watermark,
};
use freshet_types::{
    CatalogVersion, Cell, Change, ChangeSet, Columns, Commit, CommitId, End, Epoch, Lsn, Reason, Relation, RowSet,
    Snapshot, TableId, Tag, Visible,
};

/// A result of this size, and the key under which its misses are counted, if not its own.
#[derive(Debug)]
struct Block(usize, Option<&'static [u8]>);

impl Payload for Block {
    fn heap_bytes(&self) -> usize {
        self.0
    }

    fn counted_by(&self) -> Option<&[u8]> {
        self.1
    }
}

const TABLE: TableId = TableId(1);
const CATALOG: CatalogVersion = CatalogVersion(1);
const MIB: u64 = 1 << 20;

fn cache(memory: u64) -> Arc<Cache<Block>> {
    keeping(Keep::Always, memory)
}

fn keeping(keep: Keep, memory: u64) -> Arc<Cache<Block>> {
    let limits = Limits { keep, ..Limits::with_memory(memory) };
    let cache = Arc::new(Cache::new(limits, Faults::default()));
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

fn begin(cache: &Arc<Cache<Block>>, key: u32) -> FillPermit<Block> {
    let tags = vec![Tag { table: TABLE, rows: RowSet::Any, columns: Columns::All }];
    let key = key.to_be_bytes();
    cache.begin_fill(FillRequest { key: &key, tags, catalog: CATALOG, now: 1, snapshot: None, join_until: 0 }).unwrap()
}

fn fill(cache: &Arc<Cache<Block>>, key: u32, bytes: usize) -> bool {
    fill_with(cache, key, Block(bytes, None))
}

fn fill_with(cache: &Arc<Cache<Block>>, key: u32, block: Block) -> bool {
    let permit = begin(cache, key);
    let proof = Visible::Snapshot(Snapshot::new(100, vec![]));
    matches!(permit.commit(block, Some(&proof), Lsn(10)), Installed::Stored { .. })
}

/// The number of steps.
fn make_room(cache: &Cache<Block>) -> usize {
    let mut steps = 1;
    while !cache.make_room() {
        cache.validate();
        steps += 1;
    }
    cache.validate();
    steps
}

#[test]
fn less_memory_takes_entries_away_and_more_lets_others_in() {
    let cache = cache(32 * MIB);
    (0..4_000).for_each(|key| assert!(fill(&cache, key, 16 << 10)));
    let full = cache.levels(2);
    assert!(full.bytes > 28 * MIB && full.bytes <= 32 * MIB, "{full:?}");
    let evicted = cache.counters().evicted.load(std::sync::atomic::Ordering::Relaxed);

    assert_eq!(cache.set_memory(8 * MIB), 32 * MIB);
    assert_eq!(cache.limits().memory_bytes, 8 * MIB);
    let steps = make_room(&cache);
    assert!(steps > 4, "all in {steps} steps, with everybody waiting");
    let small = cache.levels(2);
    assert!(small.bytes > 6 * MIB && small.bytes <= 8 * MIB, "{small:?}");
    let more = cache.counters().evicted.load(std::sync::atomic::Ordering::Relaxed) - evicted;
    assert_eq!(more, full.entries - small.entries);
    // The limit of an entry's size depends on the memory limit.
    assert!(!fill(&cache, 10_000, 160 << 10) && cache.limits().entry_bytes_max == 128 << 10);

    assert_eq!(cache.set_memory(64 * MIB), 8 * MIB);
    assert_eq!(make_room(&cache), 1);
    assert!(fill(&cache, 10_000, 160 << 10));
    assert!(matches!(cache.lookup(&10_000u32.to_be_bytes(), &Watermark::default(), 2), Lookup::Hit(_)));
    (20_000..23_000).for_each(|key| assert!(fill(&cache, key, 16 << 10)));
    cache.validate();
    assert!(cache.levels(2).bytes > 40 * MIB, "{:?}", cache.levels(2));
}

/// A key with a clock in it never misses twice, but the results that it requests do.
#[test]
fn what_is_asked_for_by_ever_other_keys_finds_room_in_a_full_cache() {
    let cache = keeping(Keep::Worthwhile, 4 * MIB);
    for key in 0..1_000u32 {
        for _ in 0..4 {
            cache.missed(&key.to_be_bytes());
        }
        fill(&cache, key, 16 << 10);
    }
    let mut clock = 10_000u32;
    let mut kept = |counted_by: Option<&'static [u8]>| {
        let (from, to) = (clock, clock + 50);
        clock = to;
        let keys = (from..to).map(|key| {
            cache.missed(counted_by.unwrap_or(&key.to_be_bytes()));
            fill_with(&cache, key, Block(16 << 10, counted_by))
        });
        keys.filter(|kept| *kept).count()
    };
    let (unknown, known) = (kept(None), kept(Some(b"the question without the clock")));
    assert!(unknown < 5 && known > 40, "{unknown} and {known} of 50");
}

#[test]
fn what_others_take_is_not_there_for_entries() {
    let cache = cache(16 * MIB);
    (0..2_000).for_each(|key| assert!(fill(&cache, key, 16 << 10)));
    cache.set_overhead(4 * MIB);
    make_room(&cache);
    let bytes = cache.levels(2).bytes;
    assert!(bytes > 10 * MIB && bytes <= 12 * MIB, "{bytes}");
    // An eighth of it is always for entries; of a small limit half.
    cache.set_overhead(100 * MIB);
    make_room(&cache);
    let bytes = cache.levels(2).bytes;
    assert!(bytes > 3 * MIB / 2 && bytes <= 2 * MIB, "{bytes}");
    assert_eq!(cache.overhead(), 14 * MIB);
    cache.set_memory(MIB);
    assert_eq!(cache.overhead(), MIB / 2);
    cache.set_memory(64 * MIB);
    assert_eq!(cache.overhead(), 56 * MIB);
}

#[test]
fn results_that_are_being_read_have_their_share() {
    let cache = cache(16 * MIB);
    assert_eq!(begin(&cache, 0).grow(300 << 10), Err(Reason::TooLarge), "an entry may not be so large");
    assert_eq!(cache.counters().too_large.load(Relaxed), 1);
    let mut permits: Vec<_> = (0..100).map(|key| begin(&cache, key)).collect();
    let grown = permits.iter_mut().filter_map(|permit| permit.grow(200 << 10).ok()).count();
    assert_eq!(grown, 16, "a quarter of the limit, in blocks as vectors take them");
    assert!(permits[0].grow(250 << 10).is_ok(), "there is room in the block");
    assert!(permits.iter_mut().all(|permit| permit.grow(16 << 10).is_ok()), "little is not counted");
    permits.truncate(50);
    permits.remove(0);
    assert!(permits[40].grow(200 << 10).is_ok(), "who ends gives back");
    assert_eq!(permits[41].grow(200 << 10), Err(Reason::TooBusy));
    permits.clear();
    cache.set_overhead(20 << 20);
    let mut permits: Vec<FillPermit<Block>> = (1..40).map(|key| begin(&cache, key)).collect();
    let grown = permits.iter_mut().filter_map(|permit| permit.grow(200 << 10).ok()).count();
    assert_eq!(
        grown, 2,
        "a thirty-second of the limit, in blocks of 256 kB, where entries have no more than their least"
    );
}

#[test]
fn changes_that_are_remembered_have_their_share_however_wide_the_rows() {
    const ROW_BYTES: u64 = 100 << 10;
    let cache = cache(64 * MIB);
    let relation = Arc::new(Relation { table: TABLE, columns: vec!["document".into()] });
    let remembered = || (Arc::strong_count(&relation) as u64 - 1) * ROW_BYTES;
    let apply = |number: u64| {
        let new = Box::new([Cell::Text(vec![b'x'; ROW_BYTES as usize].into())]);
        let changes = ChangeSet::Rows(vec![Change::Insert { relation: relation.clone(), new }]);
        let id = CommitId::Xid(100 + number as u32);
        cache.apply(Commit { id, end: Lsn(10 + number), changes, redefines: false });
        cache.validate();
    };
    let is_share = |bytes: u64| (bytes / 2..=bytes).contains(&remembered());
    (1..=100).for_each(apply);
    assert!(is_share(4 * MIB), "{} bytes of commits that nothing has proven", remembered());
    for number in 101..=200 {
        apply(number);
        cache.prove(Epoch(1), &Visible::Snapshot(Snapshot::new(1_000, vec![])));
    }
    assert!(!cache.has_pending() && is_share(MIB), "{} bytes of commits that are proven", remembered());
}

/// One statement that requests results, of which some 1,500 fit.
struct Load {
    cache: Arc<Cache<Block>>,
    worth: Worth,
    hits: Hits,
    fills: u64,
    /// Hits directly follow a write.
    late: bool,
    /// The database's time for each.
    nanos: u64,
    now: u64,
    missed: bool,
    /// The statement is known before the key.
    known: bool,
    passed: u64,
    random: u64,
}

impl Load {
    fn new(keep: Keep) -> Self {
        Self {
            cache: keeping(keep, 2 * MIB),
            worth: Worth::default(),
            hits: Hits::default(),
            fills: 0,
            late: false,
            nanos: 60_000,
            now: 0,
            missed: true,
            known: false,
            passed: 0,
            random: 1,
        }
    }

    /// Requests this many random keys, this often; returns hits and fills in the second half.
    fn run(&mut self, keys: u64, times: u64) -> (u64, u64) {
        let mut half = (0, 0);
        for at in 0..times {
            if at == times / 2 {
                half = (self.hits.all, self.fills);
            }
            let key = u64::from(self.random()) % keys;
            self.ask(u32::try_from(key).unwrap());
        }
        (self.hits.all - half.0, self.fills - half.1)
    }

    /// Requests random keys until two of three hit; returns how often.
    fn reads_until_most_hit(&mut self, keys: u64) -> u64 {
        let chunk = 4_000;
        (1..200).find(|_| self.run(keys, chunk).0 > chunk / 2 * 2 / 3).map_or(u64::MAX, |chunks| chunks * chunk)
    }

    /// Requests 20,000 keys from `first` on, skewed to the first of them; returns the hits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 20,000")]
    fn run_skewed(&mut self, first: u32, times: u32) -> u64 {
        let before = self.hits.all;
        for _ in 0..times {
            let rank = 20_000.0 * (f64::from(self.random()) / f64::from(1u32 << 31)).powi(4);
            self.ask(first + rank as u32);
        }
        self.hits.all - before
    }

    /// 31 bits.
    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.random >> 33).unwrap()
    }

    fn ask(&mut self, key: u32) {
        self.now += self.nanos;
        if self.known && self.worth.skips_look_up(|| self.passed) {
            (self.missed, self.passed) = (true, self.passed + 1);
            return;
        }
        let Self { cache, worth, late, known, .. } = &*self;
        let so_far = || (self.hits, self.now);
        let bytes = key.to_be_bytes();
        let miss = Miss { key: &bytes, after_own_write: *late, known: *known };
        // As for a payload that belongs to a statement.
        let found = matches!(cache.lookup(&bytes, &Watermark::default(), 2), Lookup::Hit(_)) && worth.serves();
        let admits = !found
            && !admission::passes_suspended(cache, worth, miss, so_far)
            && admission::admits(cache, worth, miss, so_far);
        if found {
            self.hits.all += 1;
            self.hits.after_own_write += u64::from(self.late);
            self.hits.after_pass += u64::from(self.missed && !self.late);
        }
        self.missed = !found;
        self.passed += u64::from(!found && !admits);
        if admits {
            self.fills += 1;
            self.worth.fill();
            self.worth.answered(self.nanos, 0);
            self.worth.weighs(1_300);
            fill(&self.cache, key, 1_000);
        }
    }
}

#[test]
fn in_a_full_cache_what_hits_do_not_pay_for_takes_no_place() {
    let (hits, fills) = Load::new(Keep::Worthwhile).run(20_000, 100_000);
    assert!(hits > 1_000 && fills < 3_500, "{hits} hits, {fills} fills");
}

#[test]
fn others_are_asked_for_now_and_those_that_were_go_soon() {
    let mut load = Load { nanos: 1_000_000, ..Load::new(Keep::Worthwhile) };
    load.run_skewed(0, 300_000);
    let before = load.run_skewed(0, 20_000);
    let soon = load.run_skewed(100_000, 20_000);
    let then = load.run_skewed(100_000, 20_000);
    // 5,000 and 8,100 if each is counted by itself only.
    assert!(
        soon * 10 > before * 6 && then * 10 > before * 9,
        "of 20,000 {before} hit before, {soon} and {then} behind"
    );
}

#[test]
fn where_few_hit_of_what_is_cheap_and_no_more_can_be_kept_nothing_is_served() {
    where_few_hit_nothing_is_served(false);
    where_few_hit_nothing_is_served(true);
}

/// `known`: the statement is known before its key, so that few are even looked up.
fn where_few_hit_nothing_is_served(known: bool) {
    let mut load = Load { nanos: 25_000, known, ..Load::new(Keep::Worthwhile) };
    let (hits, fills) = load.run(20_000, 200_000);
    assert!(load.worth.is_suspended() && hits < 500 && fills < 500, "{hits} hits, {fills} fills");
    // The share that would hit is estimated from what is found. How soon depends on random eviction: after 140,000 reads on average, and at most
    // 260,000 in 400 runs.
    let reads = load.reads_until_most_hit(2_000);
    assert!(reads < 500_000, "{reads} reads");
    // A past share is no reason to continue.
    let (hits, _) = load.run(20_000, 400_000);
    assert!(load.worth.is_suspended() && hits < 500, "{hits} hits");
    // Expensive results pay even if few hit.
    let mut load = Load { nanos: 1_000_000, ..load };
    load.run(20_000, 100_000);
    let (hits, _) = load.run(20_000, 100_000);
    assert!(!load.worth.is_suspended() && hits > 2_000, "{hits} hits");
}

#[test]
fn where_all_is_kept_nothing_rests() {
    let mut load = Load { late: true, ..Load::new(Keep::Worthwhile) };
    let (_, fills) = load.run(20_000, 100_000);
    assert!(load.worth.is_suspended() && fills < 500, "{fills} fills");
    let mut load = Load { late: true, ..Load::new(Keep::Always) };
    let (hits, fills) = load.run(20_000, 100_000);
    assert!(!load.worth.is_suspended() && hits > 1_000 && hits + fills == 50_000, "{hits} hits, {fills} fills");
}
