//! `ycsb` on real servers.

use super::*;

const SMALL: &str = "--records 300 --fields 4 --field-length 30";

#[tokio::test]
async fn reads_and_updates() {
    let expected: [&[&str]; 2] = [&["read", "update"], &["update"]];
    exercise(&format!("ycsb {SMALL}"), "ycsb --records 200", expected, "ycsb_a").await;
    let modify = format!("ycsb --workload f --transactions on {SMALL}");
    exercise(&modify, "ycsb --records 200", expected, "ycsb_f").await;
}

#[tokio::test]
async fn inserts() {
    let expected: [&[&str]; 2] = [&["insert", "read"], &["update"]];
    exercise(&format!("ycsb --workload d {SMALL}"), "ycsb --records 200", expected, "ycsb_d").await;
    let expected: [&[&str]; 2] = [&["insert", "scan"], &["update"]];
    exercise(&format!("ycsb --workload e {SMALL}"), "ycsb --records 200", expected, "ycsb_e").await;
}

/// Rows that a load inserted, and its failures.
async fn inserted(workload: &Arc<dyn Workload>, target: &Target) -> (u64, Vec<String>) {
    let round = Round {
        opening: opening(workload, target, Protocol::Prepared),
        workload: Arc::clone(workload),
        connections: 12,
        pace: Loop::Closed,
        writes: 0.0,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(700),
        cool_down: Duration::ZERO,
        seed: 1,
        threads: 2,
    };
    let outcome = run(round, Arc::new(Unmarked), Arc::new(AtomicBool::new(false))).await.unwrap();
    let failures = outcome.tally.failures.values().map(|(count, first)| format!("{count} times {first}"));
    (outcome.tally.statements[2].len(), failures.collect())
}

/// Connections insert concurrently and read the newest rows, in two consecutive rounds. No key is used twice, and every read finds its row.
#[tokio::test]
async fn many_connections_insert_and_read_the_newest() {
    let typed = format!("ycsb --read-share 50 --write-kind insert --distribution latest {SMALL}");
    let workload = workload(&typed).unwrap();
    for target in databases("ycsb_many") {
        load(&workload, &target).await;
        let mut sum = 300;
        for _ in 0..2 {
            let (rows, failures) = inserted(&workload, &target).await;
            assert!(failures.is_empty(), "{failures:?}");
            assert!(rows > 20, "{rows}");
            sum += rows;
        }
        let there: u64 = text(&target, "SELECT count(*) FROM usertable").await.parse().unwrap();
        // In each round, one insert of each connection may have ended outside the interval.
        assert!((sum..=sum + 24).contains(&there), "{sum} inserts were answered, {there} rows are there");
    }
}

#[tokio::test]
async fn stores_hold_the_same_bytes() {
    let same = workload(&format!("ycsb {SMALL}")).unwrap();
    let inserting = workload(&format!("ycsb --workload d {SMALL}")).unwrap();
    let database = databases("ycsb_stores").remove(0);
    load(&same, &database).await;
    let joined = |rows: Vec<Vec<Row>>| -> Vec<Vec<u8>> {
        let row = |rows: Vec<Row>| rows.into_iter().flatten().flatten().flatten().collect();
        rows.into_iter().map(row).collect()
    };
    let of_keys = |rows: Vec<Vec<Row>>| rows.into_iter().map(|rows| vec![rows[0][1..].to_vec()]).collect();
    let expected = joined(of_keys(answers(&same, &database, 50).await));
    for (scheme, peer) in [("memcached", peer::memcached()), ("redis", peer::redis(&[]))] {
        let Some(peer) = peer else { continue };
        let target = target(&format!("{scheme}://{}", peer.place));
        assert_eq!(load(&same, &target).await, 300);
        let first = joined(answers(&same, &target, 50).await);
        assert_eq!(first, expected, "{scheme}");
        let [counted, _] = counts(&same, &target, Protocol::Prepared).await;
        assert!(counted["read"] > 0 && counted["update"] > 0, "{counted:?}");
        let after = joined(answers(&same, &target, 50).await);
        assert!(after != first && after.iter().all(|value| value.len() == 120), "{scheme}: all of a value is set");
        let (rows, failures) = inserted(&inserting, &target).await;
        assert!(rows > 0 && failures.is_empty(), "{scheme}: {failures:?}");
    }
    let scans = workload(&format!("ycsb --workload e {SMALL}")).unwrap();
    assert!(scans.runs_on_stores().unwrap_err().to_string().contains("SQL servers only"));
}

#[test]
fn each_share_of_reads_is_a_cell() {
    let typed = ["bench", "ycsb", "--read-share", "10,50,90", "--write-kind", "insert"];
    let workloads = Typed::try_parse_from(typed).unwrap().workload.build_all().unwrap();
    let shares = workloads.iter().map(|workload| workload.settings().into_iter().collect::<BTreeMap<_, _>>());
    assert_eq!(shares.map(|settings| settings["read-share"].clone()).collect::<Vec<_>>(), ["10", "50", "90"]);
    assert!(workload("ycsb --read-share 101").is_err());
}
