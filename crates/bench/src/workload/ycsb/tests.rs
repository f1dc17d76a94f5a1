//! Keys, mixes, and the requested rows.

use std::collections::HashMap;

use super::*;
use crate::target::Family;

fn workload(mix: Mix, distribution: Option<Distribution>) -> Ycsb {
    Ycsb::new(Records::new(1000, (3, 20), 1), mix, distribution, false).unwrap()
}

const fn core(workload: CoreWorkload) -> Mix {
    Mix::Core(workload)
}

#[test]
fn keys_are_those_of_ycsb() {
    // The first keys that YCSB's own client inserts into any store.
    let keys = ["user6284781860667377211", "user8517097267634966620", "user1820151046732198393"];
    assert_eq!([0, 1, 2].map(records::name), keys);
}

#[test]
fn statements_are_those_of_its_jdbc_binding() {
    let texts: Vec<_> = statements(2).iter().map(|s| s.prepared_text(Family::Mysql)).collect();
    let expected = [
        "SELECT * FROM usertable WHERE ycsb_key = ?",
        "SELECT * FROM usertable WHERE ycsb_key >= ? ORDER BY ycsb_key LIMIT ?",
        "INSERT INTO usertable (ycsb_key, field0, field1) VALUES (?, ?, ?)",
        "UPDATE usertable SET field0 = ? WHERE ycsb_key = ?",
        "UPDATE usertable SET field1 = ? WHERE ycsb_key = ?",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn operations_come_in_their_shares() {
    use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};
    for (mix, expected) in [
        (core(CoreWorkload::A), [(Read, 50), (Update, 50)]),
        (core(CoreWorkload::B), [(Read, 95), (Update, 5)]),
        (core(CoreWorkload::C), [(Read, 100), (Update, 0)]),
        (core(CoreWorkload::D), [(Read, 95), (Insert, 5)]),
        (core(CoreWorkload::E), [(Scan, 95), (Insert, 5)]),
        (core(CoreWorkload::F), [(Read, 50), (ReadModifyWrite, 50)]),
        (Mix::Share(10, WriteKind::Insert), [(Read, 10), (Insert, 90)]),
        (Mix::Share(90, WriteKind::Update), [(Read, 90), (Update, 10)]),
    ] {
        let mut random = Random::new(7);
        let drawn: Vec<_> = (0..100_000).map(|_| mix.draw(&mut random)).collect();
        for (operation, percent) in expected {
            let count = drawn.iter().filter(|one| **one == operation).count();
            assert!(count.abs_diff(percent * 1000) < 600, "{mix:?}: {operation:?} {count}");
        }
    }
}

#[test]
fn fields_are_printable_and_repeat_themselves() {
    let records = Records::new(10, (3, 25), 1);
    let row = records.row(5);
    assert_eq!(row, records.row(5));
    assert_ne!(row, records.row(6));
    assert!(row.iter().all(|field| field.len() == 25 && field.bytes().all(|byte| (b' '..=b'_').contains(&byte))));
    assert_ne!(row[0], row[1]);
    assert_ne!(row, Records::new(10, (3, 25), 2).row(5));
}

/// The number of requests for each row.
fn asked(workload: &Ycsb, ledger: &Ledger, draws: usize) -> HashMap<u64, usize> {
    let (mut random, mut counts) = (Random::new(3), HashMap::new());
    for _ in 0..draws {
        *counts.entry(workload.shared.number(ledger, &mut random)).or_default() += 1;
    }
    counts
}

#[test]
fn only_acknowledged_rows_are_asked_for_and_the_newest_most() {
    let (workload, ledger) = (workload(core(CoreWorkload::D), None), Ledger::new());
    let taken: Vec<_> = (0..100).map(|_| ledger.take()).collect();
    taken.iter().take(60).for_each(|one| ledger.acknowledge(*one));
    ledger.acknowledge(taken[80]);
    let counts = asked(&workload, &ledger, 20_000);
    let there = |number: &u64| *number < 1000 || (ledger.number(0)..ledger.number(60)).contains(number);
    assert!(counts.keys().all(there));
    let most = counts.iter().max_by_key(|(_, count)| **count).unwrap();
    // 1 / (1 + 1/2^0.99 + … + 1/1060^0.99) of the draws.
    assert!(*most.0 == ledger.number(59) && (2400..2900).contains(most.1), "{most:?}");
}

#[test]
fn hot_rows_stay_hot_while_others_are_inserted() {
    let (workload, ledger) = (workload(Mix::Share(50, WriteKind::Insert), None), Ledger::new());
    let hottest = |counts: HashMap<u64, usize>| counts.into_iter().max_by_key(|(_, count)| *count).unwrap().0;
    let before = asked(&workload, &ledger, 20_000);
    assert!(before.keys().all(|number| *number < 1000));
    for _ in 0..500 {
        ledger.acknowledge(ledger.take());
    }
    let after = asked(&workload, &ledger, 20_000);
    assert!(after.keys().any(|number| *number >= ledger.number(0)), "inserted rows are asked for");
    let (first, hot) = (before.clone(), hottest(before));
    assert!(first[&hot] > 200 && after[&hot] > 200);
}

#[test]
fn other_distributions_are_over_the_loaded_rows() {
    for distribution in [Distribution::Uniform, Distribution::Hotspot(0.2, 0.8)] {
        let (workload, ledger) = (workload(core(CoreWorkload::D), Some(distribution)), Ledger::new());
        ledger.acknowledge(ledger.take());
        let counts = asked(&workload, &ledger, 50_000);
        assert!(counts.keys().all(|number| *number < 1000));
        let hot: usize = counts.iter().filter(|(number, _)| **number < 200).map(|(_, count)| count).sum();
        let expected = if distribution == Distribution::Uniform { 10_000 } else { 40_000 };
        assert!(hot.abs_diff(expected) < 600, "{distribution}: {hot}");
    }
}

#[test]
fn a_round_begins_with_the_loaded_rows() {
    let workload = workload(core(CoreWorkload::D), None);
    let before = workload.ledger.get();
    before.acknowledge(before.take());
    workload.begin_round();
    assert_eq!(workload.ledger.get().rows(), 0);
    assert!(workload.ledger.get().number(0) > before.number(0));
}

#[test]
fn settings_name_the_mix() {
    let settings = |mix| workload(mix, None).settings().into_iter().collect::<HashMap<_, _>>();
    let share = settings(Mix::Share(30, WriteKind::Insert));
    assert_eq!((share["read-share"].as_str(), share["write-kind"].as_str()), ("30", "insert"));
    assert_eq!((share["records"].as_str(), share["distribution"].as_str()), ("1000", "zipfian"));
    let core = settings(core(CoreWorkload::D));
    assert_eq!((core["workload"].as_str(), core["distribution"].as_str()), ("d", "latest:0.99"));
}
