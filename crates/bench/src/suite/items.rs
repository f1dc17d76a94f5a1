//! The items of the suite. Each is a command line and the servers that it needs.

/// One measurement.
pub(super) struct Item {
    /// Name of its files.
    pub(super) name: &'static str,
    /// Title of the measurement.
    pub(super) title: &'static str,
    /// Names of the targets, the database first.
    pub(super) targets: &'static [&'static str],
    /// The rest of the command line.
    pub(super) command: &'static str,
}

pub(super) const ITEMS: [Item; 29] = [
    Item {
        name: "title-5",
        title: "A movie page: five SELECTs, four of them joins",
        targets: &["direct", "freshet", "pgbouncer", "pgpool"],
        command: "title-5 --movies 56000 --connections 4,16,64 --time 3s --warm-up 1s",
    },
    Item {
        name: "title-5-text",
        title: "The same, as text instead of prepared statements",
        targets: &["direct", "freshet", "pgpool"],
        command: "title-5 --movies 56000 --protocol text --connections 16 --time 3s --warm-up 1s",
    },
    Item {
        name: "point-select",
        title: "One row by its primary key",
        targets: &[
            "direct",
            "freshet",
            "pgbouncer",
            "haproxy",
            "pgpool",
            "mariadb",
            "mariadb-qcache",
            "memcached",
            "redis",
            "echo",
        ],
        command: "point-select --rows 100000 --distribution zipf:1 --connections 16 --time 3s --warm-up 1s",
    },
    Item {
        name: "point-select-connections",
        title: "The same at other numbers of connections",
        targets: &["direct", "freshet"],
        command: "point-select --rows 100000 --distribution zipf:1 --connections 1,4,64 --time 3s --warm-up 1s",
    },
    Item {
        name: "point-select-sweep",
        title: "25 rows per transaction, from a cold cache, by its size",
        targets: &["direct", "freshet-off", "freshet"],
        command: "point-select --rows 100000 --per-transaction 25 --distribution zipf:1 --connections 16 --cold \
                  --sizes 1MiB,4MiB,16MiB,64MiB --warm-up 0s --time 8s --rounds 1",
    },
    Item {
        name: "oltp-read-only",
        title: "sysbench's OLTP, read-only, in transactions",
        targets: &["direct", "freshet", "pgbouncer"],
        command: "oltp-read-only --rows 100000 --connections 16 --time 3s --warm-up 1s",
    },
    Item {
        name: "oltp-read-write",
        title: "sysbench's OLTP, read-write, in transactions",
        targets: &["direct", "freshet", "pgbouncer"],
        command: "oltp-read-write --rows 100000 --connections 16 --time 3s --warm-up 1s",
    },
    Item {
        name: "game-rows",
        title: "A game's rows: read, update, look up by email; with a look-aside cache for comparison",
        targets: &["direct", "lookaside", "freshet"],
        command: "game-rows --rows 100000 --connections 16 --time 3s --warm-up 1s",
    },
    Item {
        name: "changes-title-5",
        title: "A movie page under row changes, with a read-only cell for comparison",
        targets: CHANGES,
        command: "title-5 --movies 56000 --protocol text --connections 16 --writes 0,100,1000,5000 --time 4s --warm-up 3s \
                  --rounds 1",
    },
    Item {
        name: "changes-point-select",
        title: "One row by its primary key under row changes all over the table, as text",
        targets: CHANGES,
        command: "point-select --rows 100000 --distribution zipf:1 --writes-distribution uniform --protocol text \
                  --connections 16 --writes 0,100,1000,5000 --time 4s --warm-up 3s --rounds 1",
    },
    Item {
        name: "changes-point-select-hot",
        title: "The same, with changes to the rows that are read",
        targets: CHANGES,
        command: "point-select --rows 100000 --distribution zipf:1 --protocol text --connections 16 \
                  --writes 1000 --time 4s --warm-up 3s --rounds 1",
    },
    Item {
        name: "title-5-mysql",
        title: "A movie page on MySQL, prepared",
        targets: MYSQL,
        command: "title-5 --movies 56000 --connections 4,16 --time 3s --warm-up 1s --rounds 2",
    },
    Item {
        name: "oltp-read-only-mysql",
        title: "sysbench's OLTP on MySQL, read-only, in REPEATABLE READ transactions",
        targets: MYSQL,
        command: "oltp-read-only --rows 100000 --connections 16 --time 3s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-a",
        title: "YCSB A: half reads, half updates",
        targets: YCSB,
        command: "ycsb --workload a --records 20000 --connections 16 --time 2s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-b",
        title: "YCSB B: 95% reads, 5% updates",
        targets: YCSB,
        command: "ycsb --workload b --records 20000 --connections 16 --time 2s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-c",
        title: "YCSB C: reads only",
        targets: YCSB,
        command: "ycsb --workload c --records 20000 --connections 16 --time 2s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-d",
        title: "YCSB D: 95% reads of the newest rows, 5% inserts",
        targets: YCSB,
        command: "ycsb --workload d --records 20000 --connections 16 --time 2s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-e",
        title: "YCSB E: 95% short scans, 5% inserts",
        targets: BOTH,
        command: "ycsb --workload e --records 20000 --connections 16 --time 2s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-f",
        title: "YCSB F: half reads, half read-modify-writes",
        targets: YCSB,
        command: "ycsb --workload f --records 20000 --connections 16 --time 2s --warm-up 1s --rounds 2",
    },
    Item {
        name: "ycsb-read-share",
        title: "Reads and inserts, by the share of reads",
        targets: YCSB,
        command: "ycsb --read-share 10,20,30,40,50,60,70,80,90 --write-kind insert --records 20000 --connections 16 \
                  --time 2s --warm-up 1s --rounds 1",
    },
    Item {
        name: "ycsb-read-share-mysql",
        title: "Reads and updates on MySQL, by the share of reads",
        targets: MYSQL,
        command: "ycsb --read-share 10,30,50,70,90 --write-kind update --records 20000 --connections 16 \
                  --time 2s --warm-up 1s --rounds 1",
    },
    Item {
        name: "title-aggregates",
        title: "Six aggregations over movies, without and under row changes",
        targets: BOTH,
        command: "title-aggregates --movies 400 --connections 4 --writes 0,20 --time 3s --warm-up 2s --rounds 1",
    },
    Item {
        name: "taxi-trips",
        title: "Taxi trips that begin and end, and pages about them, by the share of reads",
        targets: BOTH,
        command: "taxi-trips --rows 50000 --read-share 20,50,80 --connections 16 --time 3s --warm-up 1s --rounds 1",
    },
    Item {
        name: "hits",
        title: "Reads that all come from the cache, prepared, by the number of connections",
        targets: HITS,
        command: "point-select --rows 5000 --connections 1,4,16,64,128 --time 2s --warm-up 2s --rounds 1",
    },
    Item {
        name: "hits-text",
        title: "The same as text",
        targets: HITS,
        command: "point-select --rows 5000 --protocol text --connections 16,64 --time 2s --warm-up 2s --rounds 1",
    },
    Item {
        name: "hits-512",
        title: "The same at 512 connections, prepared, on targets that accept them",
        targets: &["direct", "freshet", "memcached", "redis", "echo"],
        command: "point-select --rows 5000 --connections 512 --time 3s --warm-up 3s --rounds 1",
    },
    Item {
        name: "hits-in-turns",
        title: "The same, prepared, in many short rounds, with the server that does nothing",
        targets: &["direct", "freshet", "mariadb", "freshet-mariadb", "memcached", "redis", "echo"],
        command: "point-select --rows 5000 --connections 1,4,16,64,128 --time 1s --warm-up 300ms --cool-down 100ms --rounds 8",
    },
    Item {
        name: "passing",
        title: "Reads that pass, with the cache switched off, and through other proxies",
        targets: &["direct", "freshet-off", "pgbouncer", "haproxy"],
        command: "point-select --rows 5000 --connections 16,64 --time 1s --warm-up 300ms --cool-down 100ms --rounds 8",
    },
    Item {
        name: "game-rows-sizes",
        title: "A game's rows by the cache's size: about 10, 25, 50 and 100% of all results",
        targets: &["direct", "freshet-off", "freshet"],
        command: "game-rows --rows 100000 --connections 16 --sizes 16MiB,40MiB,80MiB,160MiB --time 3s --warm-up 2s --rounds 3",
    },
];

/// Caches with their databases, stores, and a server that does nothing.
const HITS: &[&str] =
    &["direct", "freshet", "pgpool", "mariadb", "mariadb-qcache", "freshet-mariadb", "memcached", "redis", "echo"];
/// YCSB's workloads on databases, caches and key-value stores.
const YCSB: &[&str] = &["direct", "freshet", "mariadb", "freshet-mariadb", "memcached", "redis"];
/// PostgreSQL and MariaDB, each with a Freshet. Scans need ordered keys, which stores do not have.
const BOTH: &[&str] = &["direct", "freshet", "mariadb", "freshet-mariadb"];
/// Caches under changes, each with its database. MariaDB is one server, and the account selects the query cache.
const CHANGES: &[&str] = &["direct", "freshet", "pgpool", "mariadb", "mariadb-qcache", "freshet-mariadb"];
const MYSQL: &[&str] = &["mysql", "freshet-mysql"];
