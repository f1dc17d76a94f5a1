//! Workloads with more complex SQL than sysbench's on MySQL, which may reject what MariaDB accepts.

use freshet_testbed::{Mysql, MysqlSettings};

use super::*;

#[tokio::test]
async fn statements_run_on_mysql() {
    let server = match Mysql::start(&MysqlSettings::default()) {
        Ok(server) => server,
        Err(error) => return peer::left_out(&format!("{error:#}")),
    };
    let target = target(&server.url());
    for typed in [
        "title-5 --movies 60",
        "title-aggregates --movies 60",
        "taxi-trips --rows 6000",
        "ycsb --records 300 --workload a",
        "ycsb --records 300 --workload d",
        "ycsb --records 300 --workload e",
        "ycsb --records 300 --workload f --transactions on",
    ] {
        let workload = workload(typed).unwrap();
        load(&workload, &target).await;
        workload.ready(&target).await.unwrap();
        for protocol in [Protocol::Prepared, Protocol::Text] {
            counts(&workload, &target, protocol).await;
        }
        assert!(answers(&workload, &target, 50).await.iter().filter(|rows| rows.is_empty()).count() < 15, "{typed}");
    }
}
