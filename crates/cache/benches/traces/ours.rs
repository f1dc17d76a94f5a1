//! The cache itself: its look-ups, its admission, its fills, as the proxy calls them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use freshet_cache::admission::{self, Hits, Miss, Worth};
use freshet_cache::{
    Cache, CatalogLoad, Faults, FillRequest, Installed, Limits, Lookup, Payload, Redefinition, Watermark,
};
use freshet_types::{
    CatalogVersion, Columns, ComparedColumn, End, Lsn, RowSet, Snapshot, TableId, Tag, Term, Test, Value, ValueType,
    Visible,
};

use crate::policies::{Key, Policy, Results};

const TABLE: TableId = TableId(1);
const CATALOG: CatalogVersion = CatalogVersion(1);

/// What an entry holds; it takes no memory for the bytes that it counts.
#[derive(Debug)]
struct Answer {
    bytes: usize,
    nanos: u64,
    hits: AtomicU64,
    outweighed: AtomicBool,
    worth: Arc<Worth>,
}

impl Payload for Answer {
    fn heap_bytes(&self) -> usize {
        self.bytes
    }

    fn nanos(&self) -> u64 {
        self.nanos
    }

    fn is_served(&self) -> bool {
        self.worth.serves()
    }

    fn weighed(&self, bytes: u64) {
        self.worth.weighs(bytes);
    }

    fn outweighed(&self) {
        self.outweighed.store(true, Relaxed);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.outweighed.load(Relaxed) {
            self.worth.ended(self.hits.load(Relaxed));
        }
    }
}

/// All requests are of one statement, which is the hardest for an admission that judges by statements.
pub(crate) struct Ours<'a> {
    cache: Arc<Cache<Answer>>,
    worth: Arc<Worth>,
    proof: Visible,
    column: Arc<str>,
    /// As in [`Results`], but without what the store adds.
    answers: &'a Results,
    fills: u64,
    hits: u64,
    /// As if requests came one after the other.
    now: u64,
}

impl<'a> Ours<'a> {
    /// For so many bytes.
    pub(crate) fn new(answers: &'a Results, capacity: u64) -> Self {
        let cache = Arc::new(Cache::new(Limits::with_memory(capacity), Faults::default()));
        let epoch = cache.connected();
        let proof = Visible::Snapshot(Snapshot::new(1, vec![]));
        let differs = Redefinition::Everything;
        let load = CatalogLoad { version: CATALOG, differs, proof: &proof, asked_at: 1, add_namesakes: None };
        assert!(cache.catalog_loaded(epoch, load));
        cache.publish(epoch, &[TABLE]);
        cache.offer_log_end(End { epoch, lsn: Lsn(10) }, 1);
        cache.advance(Lsn(10));
        Self { cache, worth: Arc::default(), proof, column: "id".into(), answers, fills: 0, hits: 0, now: 0 }
    }

    /// What such answers weigh in the store.
    pub(crate) fn weighed(answers: &Results) -> Results {
        let ours = Ours::new(answers, 1 << 30);
        let Installed::Stored { entry, .. } = ours.fill(0) else { panic!("nothing was stored") };
        let own = entry.weight() - answers.bytes[0];
        Results { bytes: answers.bytes.iter().map(|bytes| bytes + own).collect(), nanos: answers.nanos.clone() }
    }

    /// How often the answer to a miss was to be kept.
    pub(crate) fn fills(&self) -> u64 {
        self.fills
    }

    fn fill(&self, key: Key) -> Installed<Answer> {
        let column = ComparedColumn { name: self.column.clone(), value_type: ValueType::Int };
        let point = Term { column, test: Test::In(Box::new([Value::Int(key.into())])) };
        let request = FillRequest {
            key: &key.to_le_bytes(),
            tags: vec![Tag { table: TABLE, rows: RowSet::Where(Box::new([point])), columns: Columns::All }],
            catalog: CATALOG,
            now: 1,
            snapshot: None,
            join_until: 0,
        };
        let permit = self.cache.begin_fill(request).expect("a permit");
        self.worth.answered(self.answers.nanos[key as usize], 0);
        let bytes = self.answers.bytes[key as usize] as usize;
        let answer = Answer {
            bytes,
            nanos: self.answers.nanos[key as usize],
            hits: AtomicU64::new(0),
            outweighed: AtomicBool::new(false),
            worth: self.worth.clone(),
        };
        permit.commit(answer, Some(&self.proof), Lsn(10))
    }
}

impl Policy for Ours<'_> {
    fn request(&mut self, key: Key) -> bool {
        self.now += self.answers.nanos[key as usize];
        match self.cache.lookup(&key.to_le_bytes(), &Watermark::default(), 1) {
            Lookup::Hit(entry) => {
                entry.payload.hits.fetch_add(1, Relaxed);
                self.hits += 1;
                true
            }
            Lookup::Miss => {
                let so_far = || (Hits { all: self.hits, after_own_write: 0, after_pass: 0 }, self.now);
                let (cache, worth, key_bytes) = (&self.cache, &self.worth, key.to_le_bytes());
                let miss = Miss { key: &key_bytes, after_own_write: false, known: false };
                if !admission::passes_suspended(cache, worth, miss, so_far)
                    && admission::admits(cache, worth, miss, so_far)
                {
                    self.fills += 1;
                    self.worth.fill();
                    self.fill(key);
                }
                false
            }
            Lookup::Bypass(reason) => panic!("{reason:?}"),
        }
    }
}
