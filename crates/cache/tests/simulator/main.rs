//! A seeded, deterministic simulator of the cache engine with a naive oracle.
//!
//! It drives the engine through races that a real server shows once in a thousand runs: commits that are delivered long before they are visible,
//! answers that arrive long after they were read, fills that race with deliveries, fills in transactions, new epochs, streams that continue, a
//! process that restarts, publication that is added and removed, a catalogue that changes in the stream and outside it. After every delivery and
//! every installed result the oracle compares each entry with the answer of its query on the history. Every hit is checked against D, against what
//! its session has seen and what was acknowledged to any session, or against the snapshot of its transaction.
//!
//! `FRESHET_SIM_SEEDS=5000` runs more seeds; `FRESHET_SIM_SEED=17` repeats one. A run is a function of its seed, except for which entry is evicted
//! first when the memory is full (the store hashes with a random seed).

mod catalogue;
mod database;
mod following;
mod oracle;
mod publishing;
mod query;
mod rng;
mod session;
mod set;
mod world;
mod writing;

use freshet_cache::Faults;

use crate::world::{Rules, Stats, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Names the seed if the run panics.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0} failed; repeat it with FRESHET_SIM_SEED={0}", self.0);
        }
    }
}

fn add(total: &mut Stats, run: &Stats) {
    total.hits += run.hits;
    total.misses += run.misses;
    total.bypasses += run.bypasses;
    total.stored += run.stored;
    total.stale_fills += run.stale_fills;
    total.commits += run.commits;
    total.invalidated += run.invalidated;
    total.evicted += run.evicted;
    total.epochs += run.epochs;
    total.resumed += run.resumed;
    total.restarts += run.restarts;
    total.fences += run.fences;
    total.wait_skipped += run.wait_skipped;
    total.loads += run.loads;
    total.refused_loads += run.refused_loads;
    total.early_loads += run.early_loads;
    total.snapshot_hits += run.snapshot_hits;
    total.stored_without_proof += run.stored_without_proof;
}

#[test]
fn the_engine_keeps_its_promises() {
    let seeds = match number("FRESHET_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FRESHET_SIM_SEEDS").unwrap_or(150),
    };
    let mut total = Stats::default();
    let several = seeds.end - seeds.start >= 100;
    for seed in seeds {
        let _running = Running(seed);
        match World::new(seed, Rules::default()).run() {
            Ok(stats) => add(&mut total, &stats),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("{total:?}");
    if several {
        for (what, count) in [
            ("hits", total.hits),
            ("hits in snapshots", total.snapshot_hits),
            ("stored", total.stored),
            ("stored without proof", total.stored_without_proof),
            ("stale fills", total.stale_fills),
            ("evictions by change", total.invalidated),
            ("evictions by size", total.evicted),
            ("epochs", total.epochs),
            ("slots that went on", total.resumed),
            ("starts of the process", total.restarts),
            ("fences", total.fences),
            ("writes without a commit wait", total.wait_skipped),
            ("loads of the catalogue", total.loads),
            ("refused loads", total.refused_loads),
            ("loads that miss a redefinition", total.early_loads),
        ] {
            assert!(count >= 30, "the simulation hardly exercises {what}: {count}");
        }
    }
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..5 {
        let runs = [0, 1].map(|_| World::new(seed, Rules::default()).run().unwrap_or_else(|v| panic!("{v}")));
        assert!(runs[0] == runs[1] || runs[0].evicted > 0, "seed {seed}: {runs:?}");
    }
}

/// The simulator detects what it exists for: a violation for each disabled rule of the engine, and of the code that uses it.
#[test]
fn a_broken_engine_is_found_out() {
    let engine = |switch: fn(&mut Faults)| {
        let mut rules = Rules::default();
        switch(&mut rules.faults);
        rules
    };
    let user = |switch: fn(&mut Rules)| {
        let mut rules = Rules::default();
        switch(&mut rules);
        rules
    };
    let table: Vec<(&str, Rules)> = vec![
        ("unproven commits are ignored", engine(|f| f.ignore_unproven = true)),
        ("deferred tags are taken as they are", engine(|f| f.trust_deferred = true)),
        ("rows that went are held against their keys alone", engine(|f| f.trust_members = true)),
        ("results are kept before the end behind their rows' keys", engine(|f| f.install_early = true)),
        ("rows that came are not named", engine(|f| f.ignore_entering = true)),
        ("keys outlive what they were read from", engine(|f| f.reuse_stale_keys = true)),
        ("deliveries do not taint flights", engine(|f| f.no_candidates = true)),
        ("read_end is ignored", engine(|f| f.ignore_read_end = true)),
        ("the lease is ignored", engine(|f| f.ignore_lease = true)),
        ("watermarks are ignored", engine(|f| f.ignore_watermark = true)),
        ("fences are ignored", engine(|f| f.ignore_fence = true)),
        ("lo is ignored", engine(|f| f.ignore_lo = true)),
        ("hi is ignored", engine(|f| f.ignore_hi = true)),
        ("redefinitions are ignored", engine(|f| f.ignore_redefinitions = true)),
        ("entries are not flushed with a new slot", engine(|f| f.skip_flush = true)),
        ("no commit wait", user(|r| r.no_commit_wait = true)),
        ("whether a commit wait is needed is decided before the commit", user(|r| r.free_too_early = true)),
        ("the flush position is taken for the end", user(|r| r.flushed_end = true)),
        ("the slot is confirmed beyond PENDING", user(|r| r.confirms_all = true)),
        ("the catalogue's proof is of another snapshot", user(|r| r.load_without_proof = true)),
        ("reads of an old snapshot are kept", user(|r| r.keeps_old_snapshots = true)),
        ("the last proof is taken for the snapshot's", user(|r| r.proves_in_blocks = true)),
    ];
    let seeds = number("FRESHET_SIM_SEEDS").unwrap_or(1500);
    let missed: Vec<&str> =
        table.iter().filter(|(name, rules)| !is_found_out(name, *rules, seeds)).map(|(name, _)| *name).collect();
    assert!(missed.is_empty(), "no violation found though {missed:?}");
}

fn is_found_out(name: &str, rules: Rules, seeds: u64) -> bool {
    // Seeds that found violations of the rules whose absence is seldom noticed; they may have to be replaced.
    let first = [572, 111, 107, 68, 43, 37, 859, 248, 112, 28, 84].into_iter().filter(|seed| *seed < seeds);
    let found =
        first.chain(0..seeds).find_map(|seed| World::new(seed, rules).run().err().map(|violation| (seed, violation)));
    if let Some((seed, violation)) = &found {
        println!("{name}: seed {seed} {violation}");
    }
    found.is_some()
}
