//! A seeded, deterministic simulator of the cache engine against a naive oracle.
//!
//! The engine is driven through races that a real server shows once in a thousand runs: commits that are delivered
//! long before they are visible, answers that arrive long after they were read, fills that meet deliveries, new
//! epochs, coverage that comes and goes, a catalogue that changes. After every delivery and every installed result
//! the oracle compares each entry with what its query answers on the history; every hit is held against D and
//! against what its session has seen.
//!
//! `FRESHET_SIM_SEEDS=5000` runs more seeds; `FRESHET_SIM_SEED=17` repeats one. A run is a function of its seed,
//! but for which entry goes first when the memory is full (the store hashes with a random seed).

mod database;
mod oracle;
mod query;
mod rng;
mod session;
mod set;
mod world;

use freshet_cache::Faults;

use crate::world::{Stats, World};

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
    total.abandoned += run.abandoned;
    total.commits += run.commits;
    total.evicted_by_change += run.evicted_by_change;
    total.evicted_by_size += run.evicted_by_size;
    total.epochs += run.epochs;
}

#[test]
fn the_engine_keeps_its_promises() {
    let seeds = match number("FRESHET_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FRESHET_SIM_SEEDS").unwrap_or(300),
    };
    let mut total = Stats::default();
    let several = seeds.end - seeds.start >= 100;
    for seed in seeds {
        let _running = Running(seed);
        match World::new(seed, Faults::default()).run() {
            Ok(stats) => add(&mut total, &stats),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("{total:?}");
    if several {
        let Stats { hits, stored, stale_fills, abandoned, evicted_by_change, evicted_by_size, epochs, .. } = total;
        for (what, count) in [
            ("hits", hits),
            ("stored", stored),
            ("stale fills", stale_fills),
            ("abandoned fills", abandoned),
            ("evictions by change", evicted_by_change),
            ("evictions by size", evicted_by_size),
            ("epochs", epochs),
        ] {
            assert!(count >= 100, "the simulation hardly exercises {what}: {count}");
        }
    }
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..5 {
        let runs = [0, 1].map(|_| World::new(seed, Faults::default()).run().unwrap_or_else(|v| panic!("{v}")));
        assert!(runs[0] == runs[1] || runs[0].evicted_by_size > 0, "seed {seed}: {runs:?}");
    }
}

/// The simulator notices what it is there for.
#[test]
fn a_broken_engine_is_found_out() {
    let faults = [
        ("PENDING is ignored", Faults { ignore_pending: true, ..Faults::default() }),
        ("read_end is ignored", Faults { ignore_read_end: true, ..Faults::default() }),
    ];
    for (name, fault) in faults {
        let found = (0..200).find_map(|seed| World::new(seed, fault).run().err().map(|violation| (seed, violation)));
        let (seed, violation) = found.unwrap_or_else(|| panic!("{name}: no violation found"));
        println!("{name}: seed {seed} {violation}");
    }
}
