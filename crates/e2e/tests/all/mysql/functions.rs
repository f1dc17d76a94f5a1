//! Functions and clauses of these servers: each is served from the cache, and is invalidated when its data change.

use anyhow::{Result, ensure};

use super::support::{Kind, Pair, on_both};

on_both!(times_and_zones, shapes, json_tables, hints, partitions);

/// Each read hits, and shows what the change has made of it.
fn follow(pair: &Pair, reads: &[&str], changes: &[&str]) -> Result<()> {
    let (mut direct, mut c) = (pair.database.connect()?, pair.connect()?);
    for change in changes {
        for read in reads {
            pair.until_hit(&mut c, read)?;
        }
        c.run(change)?;
        for read in reads {
            let (expected, got) = (direct.query(read)?.packets, c.query(read)?.packets);
            ensure!(expected == got, "{read} after {change}: {got:?} rather than {expected:?}");
        }
    }
    Ok(())
}

/// None of these is answered from the cache.
fn pass(pair: &Pair, reads: &[&str]) -> Result<()> {
    let mut c = pair.connect()?;
    let before = pair.freshet.metrics()?.hits();
    for read in reads.iter().flat_map(|read| [read; 3]) {
        c.query(read)?;
    }
    ensure!(pair.freshet.metrics()?.hits() == before, "one of {reads:?} hits");
    Ok(())
}

fn times_and_zones(kind: Kind) -> Result<()> {
    let schema = "CREATE TABLE visit (id INT PRIMARY KEY, secs INT, at DATETIME, opens TIME); \
         INSERT INTO visit VALUES (1, 3700, '2024-01-02 03:04:05', '10:00'), (2, 50, '2024-06-07 18:09:10', '12:00')";
    let pair = Pair::new(kind, schema)?;
    let reads = [
        "SELECT TIME(at) AS t, DATE(at) FROM visit WHERE id = 1",
        "SELECT id, at FROM visit WHERE TIME(at) BETWEEN '03:00' AND '09:00' AND at > '2024-01-01'",
        "SELECT DATE(at), SEC_TO_TIME(SUM(secs)) FROM visit GROUP BY DATE(at) ORDER BY 1",
        "SELECT id FROM visit WHERE opens < '11:00' AND DATE(at) = '2024-01-02'",
        "SELECT CONVERT_TZ(at, '+00:00', '+05:30') FROM visit WHERE id = 1",
        "SELECT id FROM visit WHERE CONVERT_TZ(at, '+00:00', '-08:00') < '2024-01-02'",
    ];
    let changes = [
        "UPDATE visit SET at = '2024-01-02 23:04:05' WHERE id = 1",
        "UPDATE visit SET secs = 100, opens = '11:30' WHERE id = 1",
        "UPDATE visit SET at = '2024-01-01 03:04:06', opens = '09:00' WHERE id = 1",
        "DELETE FROM visit WHERE id = 1",
    ];
    follow(&pair, &reads, &changes)?;
    // What the day decides, and zones that are tables of the server's own.
    pass(
        &pair,
        &[
            "SELECT id FROM visit WHERE TIME(at) > at",
            "SELECT opens + INTERVAL 1 DAY FROM visit",
            "SELECT CONVERT_TZ(at, 'UTC', 'Europe/Berlin') FROM visit",
        ],
    )
}

fn shapes(kind: Kind) -> Result<()> {
    let schema = "CREATE TABLE place (id INT PRIMARY KEY, at POINT NOT NULL); \
         INSERT INTO place VALUES (1, POINT(1, 1)), (2, POINT(5, 5))";
    let pair = Pair::new(kind, schema)?;
    let reads = [
        "SELECT id, ST_X(at), ST_AsText(at) FROM place WHERE id = 1",
        "SELECT id FROM place WHERE MBRContains(ST_GeomFromText('POLYGON((0 0,3 0,3 3,0 3,0 0))'), at)",
        "SELECT id FROM place WHERE ST_Distance(at, POINT(0, 0)) < 3 ORDER BY id",
    ];
    let changes = [
        "UPDATE place SET at = POINT(2, 2) WHERE id = 1",
        "UPDATE place SET at = POINT(1, 2) WHERE id = 2",
        "DELETE FROM place WHERE id = 1",
    ];
    follow(&pair, &reads, &changes)
}

fn json_tables(kind: Kind) -> Result<()> {
    let schema = "CREATE TABLE doc (id INT PRIMARY KEY, body JSON); \
         INSERT INTO doc VALUES (1, '[{\"a\": 1}, {\"a\": 2}]'), (2, '[{\"a\": 3}]')";
    let pair = Pair::new(kind, schema)?;
    let reads = [
        "SELECT j.n, j.a FROM doc, JSON_TABLE(doc.body, '$[*]' COLUMNS (n FOR ORDINALITY, a INT PATH '$.a')) AS j \
         WHERE doc.id = 1 ORDER BY j.n",
        "SELECT doc.id, SUM(j.a) FROM doc JOIN JSON_TABLE(doc.body, '$[*]' COLUMNS (a INT PATH '$.a')) AS j ON TRUE \
         GROUP BY doc.id ORDER BY doc.id",
    ];
    let changes = [
        "UPDATE doc SET body = '[{\"a\": 7}]' WHERE id = 1",
        "INSERT INTO doc VALUES (3, '[{\"a\": 9}]')",
        "DELETE FROM doc WHERE id = 1",
    ];
    follow(&pair, &reads, &changes)
}

fn hints(kind: Kind) -> Result<()> {
    let schema =
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), KEY (name)); INSERT INTO item VALUES (1, 'cup')";
    let pair = Pair::new(kind, schema)?;
    let reads = [
        "SELECT /*+ MAX_EXECUTION_TIME(10000) */ name FROM item WHERE id = 1",
        "SELECT /*+ NO_INDEX_MERGE(item) QB_NAME(q) */ id FROM item WHERE name = 'cup'",
        "SELECT /*+ SET_VAR(sort_buffer_size = 100000) */ name FROM item WHERE id = 1",
        "SELECT /*+ SET_VAR(optimizer_switch = 'mrr=on,mrr_cost_based=off') BKA(item) */ id FROM item WHERE name = 'cup'",
    ];
    follow(&pair, &reads, &["UPDATE item SET name = 'pot' WHERE id = 1", "UPDATE item SET name = 'cup' WHERE id = 1"])?;
    pass(
        &pair,
        &[
            "SELECT /*+ SET_VAR(max_sort_length = 8) */ name FROM item WHERE id = 1",
            "SELECT /*+ SET_VAR(sql_mode = 'PIPES_AS_CONCAT') */ name || id FROM item WHERE id = 1",
        ],
    )
}

/// A row is shown or not by a column that the statement does not name.
fn partitions(kind: Kind) -> Result<()> {
    let schema = "CREATE TABLE part (id INT, place INT, name VARCHAR(20), PRIMARY KEY (id, place)) PARTITION BY RANGE (place) \
         (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20)); \
         INSERT INTO part VALUES (1, 1, 'a'), (2, 11, 'b')";
    let pair = Pair::new(kind, schema)?;
    let reads = [
        "SELECT name FROM part PARTITION (p0) WHERE id = 1",
        "SELECT COUNT(*) FROM part PARTITION (p0)",
        "SELECT name FROM part PARTITION (p0, p1) AS p ORDER BY id LIMIT 1",
    ];
    let changes = [
        "UPDATE part SET place = 12 WHERE id = 1",
        "UPDATE part SET place = 2 WHERE id = 1",
        "UPDATE part SET name = 'c' WHERE id = 1",
        "ALTER TABLE part TRUNCATE PARTITION p0",
        "INSERT INTO part VALUES (1, 3, 'd')",
    ];
    follow(&pair, &reads, &changes)
}
