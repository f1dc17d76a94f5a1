//! What is kept: the share of requests, and of the database's time, that a cache of a given size saves, beside the policies
//! that others use.
//!
//! Run by `make bench-traces`. Options: `--quick` for small traces, `--only zipf` for some of them, `--output FILE`.
//!
//! The cache is the real one, with the admission in front of it. Nothing changes here, so every result stays true.

mod ours;
mod policies;
mod report;
mod workload;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ours::Ours;
use policies::{Arc, Belady, Key, Learned, Lru, Policy, Results, S3Fifo, Top};
use report::{Case, Saved};
use workload::{PATTERNS, Pattern, Scale};

const PERCENTS: [u64; 5] = [1, 5, 10, 25, 50];

/// What a policy saves once it has warmed up.
fn replay(policy: &mut dyn Policy, trace: &[Key], results: &Results, scale: Scale) -> Saved {
    let (mut hits, mut requests, mut nanos_saved, mut nanos) = (0u64, 0u64, 0u64, 0u64);
    for (at, key) in trace.iter().enumerate() {
        let hit = policy.request(*key);
        if at < scale.warm_up() {
            continue;
        }
        let took = results.nanos[*key as usize];
        requests += 1;
        nanos += took;
        if hit {
            hits += 1;
            nanos_saved += took;
        }
    }
    Saved { hits: hits as f64 / requests as f64, time: nanos_saved as f64 / nanos as f64 }
}

/// All policies on one trace at one size.
fn case(name: &'static str, pattern: Pattern, answers: &Results, percent: u64, scale: Scale) -> Case {
    let trace = &workload::trace(pattern, scale);
    let results = &Ours::weighed(answers);
    let mut distinct = trace.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let capacity = distinct.iter().map(|key| results.bytes[*key as usize]).sum::<u64>() * percent / 100;
    let saved = |policy: &mut dyn Policy| replay(policy, trace, results, scale);
    let mut cache = Ours::new(answers, capacity);
    let time = |key: Key| results.nanos[key as usize] as f64;
    Case {
        name,
        percent,
        lru: saved(&mut Lru::new(results, capacity)),
        arc: saved(&mut Arc::new(results, capacity)),
        s3_fifo: saved(&mut S3Fifo::new(results, capacity)),
        top_hits: saved(&mut Top::new(results, capacity, trace, |_| 1.0)),
        top_time: saved(&mut Top::new(results, capacity, trace, time)),
        learned_hits: saved(&mut Learned::new(results, capacity, scale.relearned(), |_| 1.0)),
        learned_time: saved(&mut Learned::new(results, capacity, scale.relearned(), time)),
        belady: saved(&mut Belady::new(results, capacity, trace)),
        ours: saved(&mut cache),
        fills: cache.fills() as f64 / trace.len() as f64,
    }
}

/// All traces at all sizes, on two threads.
fn cases(answers: &Results, scale: Scale, only: &str) -> Vec<Case> {
    let chosen: Vec<_> = PATTERNS.iter().filter(|(name, _)| name.contains(only)).collect();
    let jobs: Vec<_> = chosen.iter().flat_map(|pattern| PERCENTS.map(|percent| (*pattern, percent))).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(((name, pattern), percent)) = jobs.get(next.fetch_add(1, Relaxed)) {
                    let at = jobs.iter().position(|((other, _), of)| (other, of) == (name, percent));
                    let case = case(name, *pattern, answers, *percent, scale);
                    done.lock().expect("no panic").push((at, case));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, case)| case).collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let value_of = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let only = value_of("--only").map_or("", String::as_str);
    let scale = if quick { Scale::QUICK } else { Scale::FULL };
    let count = 2 * scale.keys;
    let equal = cases(&workload::equal(count), scale, only);
    let unequal = cases(&workload::unequal(count), scale, only);
    let page = report::page(scale, &equal, &unequal);
    match value_of("--output") {
        Some(file) => std::fs::write(file, page).expect("a file that can be written"),
        None => print!("{page}"),
    }
}
