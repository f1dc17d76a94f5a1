//! The eviction policies of the benchmark of traces, on traces short enough to follow by hand.

#[path = "../benches/traces/policies.rs"]
mod policies;

use policies::{Arc, Belady, Key, Learned, Lru, Policy, Results, S3Fifo, Top};

/// Results of ten bytes each.
fn equal(count: usize) -> Results {
    Results { bytes: vec![10; count], nanos: vec![1; count] }
}

/// The trace with a `+` behind each hit.
fn run(mut policy: impl Policy, trace: &[Key]) -> String {
    let told: Vec<String> =
        trace.iter().map(|key| format!("{key}{}", if policy.request(*key) { "+" } else { "" })).collect();
    told.join(" ")
}

#[test]
fn lru() {
    let results = equal(4);
    assert_eq!(run(Lru::new(&results, 20), &[0, 1, 0, 2, 1, 0, 2, 2]), "0 1 0+ 2 1 0 2 2+");
    // A loop larger than the cache never hits.
    assert_eq!(run(Lru::new(&results, 20), &[0, 1, 2, 0, 1, 2]), "0 1 2 0 1 2");
    // A large result evicts several; one larger than the cache evicts none.
    let results = Results { bytes: vec![10, 10, 20, 30], nanos: vec![1; 4] };
    assert_eq!(run(Lru::new(&results, 20), &[0, 1, 3, 0, 1, 2, 0, 1]), "0 1 3 0+ 1+ 2 0 1");
}

#[test]
fn arc() {
    let results = equal(10);
    // A result that was requested twice survives a scan, unlike under LRU.
    let scan = [0, 0, 1, 1, 2, 3, 4, 5, 0, 1];
    assert_eq!(run(Arc::new(&results, 30), &scan), "0 0+ 1 1+ 2 3 4 5 0+ 1+");
    assert_eq!(run(Lru::new(&results, 30), &scan), "0 0+ 1 1+ 2 3 4 5 0 1");
    // 1 was requested once, is evicted for 2 and is requested again: one of the two places moves to the list of results requested once, and 0 is
    // evicted from the other list. 3 takes this place from 1, which is requested again in turn: now the list of results requested twice has both
    // places.
    let again = [0, 0, 1, 2, 1, 3, 1, 0, 1, 0];
    assert_eq!(run(Arc::new(&results, 20), &again), "0 0+ 1 2 1 3 1 0 1+ 0+");
}

#[test]
fn s3_fifo() {
    let results = equal(20);
    // 0 was hit twice and moves to the main queue when it leaves the small one; the scan passes through the small one.
    let scan = [0, 0, 0, 1, 2, 3, 4, 5, 0, 1];
    assert_eq!(run(S3Fifo::new(&results, 30), &scan), "0 0+ 0+ 1 2 3 4 5 0+ 1");
    // 1 is remembered, so the second time it enters the main queue.
    let again = [0, 1, 2, 3, 1, 4, 5, 6, 1];
    assert_eq!(run(S3Fifo::new(&results, 30), &again), "0 1 2 3 1+ 4 5 6 1");
    let again = [0, 1, 2, 3, 0, 4, 5, 6, 0];
    assert_eq!(run(S3Fifo::new(&results, 30), &again), "0 1 2 3 0 4 5 6 0+");
}

#[test]
fn learned() {
    let results = equal(3);
    // Chosen after two requests each: nothing is known at first, then 0, then 1, which was requested more often until then.
    let trace = [0, 0, 0, 1, 1, 1, 1, 1, 1, 2];
    assert_eq!(run(Learned::new(&results, 10, 2, |_| 1.0), &trace), "0 0 0+ 1 1 1 1 1 1+ 2");
}

#[test]
fn top() {
    let results = equal(4);
    let trace = [0, 1, 1, 2, 2, 2, 3];
    assert_eq!(run(Top::new(&results, 20, &trace, |_| 1.0), &trace), "0 1+ 1+ 2+ 2+ 2+ 3");
    // By the value of a hit, and by the value for a byte.
    let results = Results { bytes: vec![10; 4], nanos: vec![10, 1, 1, 1] };
    let worth = |key: Key| results.nanos[key as usize] as f64;
    assert_eq!(run(Top::new(&results, 20, &trace, worth), &trace), "0+ 1 1 2+ 2+ 2+ 3");
    let results = Results { bytes: vec![1, 10, 20, 1], nanos: vec![1; 4] };
    assert_eq!(run(Top::new(&results, 20, &trace, |_| 1.0), &trace), "0+ 1+ 1+ 2 2 2 3+");
}

#[test]
fn belady() {
    let results = equal(4);
    // 2 is requested last, so it is not cached.
    assert_eq!(run(Belady::new(&results, 20, &[0, 1, 2, 0, 1, 2]), &[0, 1, 2, 0, 1, 2]), "0 1 2 0+ 1+ 2");
    // 0 is not requested again: 1 and 2 stay.
    assert_eq!(run(Belady::new(&results, 20, &[0, 1, 2, 1, 2, 3]), &[0, 1, 2, 1, 2, 3]), "0 1 2 1+ 2+ 3");
    let results = Results { bytes: vec![10, 10, 20, 30], nanos: vec![1; 4] };
    let trace = [0, 1, 3, 2, 2, 0, 1];
    assert_eq!(run(Belady::new(&results, 20, &trace), &trace), "0 1 3 2 2+ 0 1");
}
