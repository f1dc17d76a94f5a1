//! `taxi-trips` on real servers.

use super::*;

#[tokio::test]
async fn taxi_trips() {
    let all =
        ["fares by hour", "recent trips of a driver", "trip begins", "trip by key", "trip ends", "zone statistics"];
    let typed = "taxi-trips --rows 6000 --read-share 40";
    exercise(typed, "taxi-trips --rows 900", [&all, &["trip begins", "trip ends"]], "taxi").await;
    let typed = "taxi-trips --rows 6000 --transactions on --distribution uniform";
    exercise(typed, "taxi-trips --rows 900", [&all, &["trip begins", "trip ends"]], "taxi_transactions").await;
}

/// The tables contain each trip as the connections of a round recorded it.
#[tokio::test]
async fn trips_begin_before_they_end() {
    let workload = workload("taxi-trips --rows 500 --read-share 0").unwrap();
    for target in databases("taxi_rows") {
        load(&workload, &target).await;
        let [counted, _] = counts(&workload, &target, Protocol::Text).await;
        let number = async |sql: &str| text(&target, sql).await.parse::<u64>().unwrap();
        let ended = number("SELECT count(*) FROM taxi_trip WHERE trip_id > 500 AND dropoff_time > pickup_time").await;
        let open = number("SELECT count(*) FROM taxi_trip WHERE dropoff_time IS NULL AND total IS NULL").await;
        let all = number("SELECT count(*) FROM taxi_trip WHERE trip_id > 500").await;
        assert_eq!(ended + open, all);
        // There are no more unfinished trips than all connections, of the load and of the background, may have.
        assert!(ended > 0 && open <= 6 * 8, "{open} of {all}");
        assert!(all >= counted["trip begins"]);
    }
}
