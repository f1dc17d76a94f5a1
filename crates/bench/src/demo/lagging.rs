//! Tests that the check can fail: a standby with delayed replay acts as a cache with outdated answers.

use std::sync::Arc;
use std::time::Duration;

use crate::workload::movies::{self, Size};
use freshet_testbed::{Postgres, Server, Settings};
use indicatif::ProgressBar;

use super::DATABASE;
use super::check::{AGE_MAX, Checked, Checkers, compare};
use super::ledger::Ledger;
use super::session::target;
use super::writer::{Plan, Writer};

const SIZE: Size = Size { movies: 20, seed: 3 };

async fn primary() -> Server {
    let server = Postgres::find(Some(15)).unwrap().start(&Settings::default().with("timezone = 'UTC'")).unwrap();
    server.psql("CREATE DATABASE movies").unwrap();
    movies::load(&target(&server.url_of(DATABASE)), SIZE, &ProgressBar::hidden()).await.unwrap();
    server
}

/// Writes to the primary for a while and checks the standby's answers.
async fn judge(primary: &Server, standby: &Server, ledger: &Arc<Ledger>) -> Checked {
    let plan = Plan { direct_url: primary.url_of(DATABASE), cached: None, per_second: 100.0, seed: 1 };
    let writer = Writer::start(plan, Arc::clone(ledger)).await.unwrap();
    let checkers = Checkers::start(&standby.url_of(DATABASE), ledger, &writer.latest()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let checked = checkers.finish().await.unwrap();
    assert!(writer.finish().await.unwrap() > 100);
    checked
}

#[tokio::test]
async fn stale_answers_are_found_and_fresh_ones_pass() {
    let primary = primary().await;
    let standby = primary.standby("late").unwrap();
    let titles: Arc<[String]> = SIZE.popular_titles().into();
    let ledger = Arc::new(Ledger::read(&primary.url_of(DATABASE), &titles).await.unwrap());

    let fresh = judge(&primary, &standby, &ledger).await;
    assert!(fresh.answers > 200, "{fresh:?}");
    assert_eq!(fresh.wrong, 0, "{fresh:?}");

    assert!(fresh.oldest < AGE_MAX, "{fresh:?}");
    let auto_conf = standby.data_dir().join("postgresql.auto.conf");
    let text = std::fs::read_to_string(&auto_conf).unwrap();
    std::fs::write(&auto_conf, format!("{text}recovery_min_apply_delay = '2s'\n")).unwrap();
    standby.restart().unwrap();
    let late = judge(&primary, &standby, &ledger).await;
    assert!(late.wrong > 10 && !late.examples.is_empty(), "{late:?}");

    // Right after a write the standby still has the old state. The comparison without load must detect that too.
    let compared = compare(&primary.url_of(DATABASE), &standby.url_of(DATABASE), &titles).await.unwrap();
    assert_eq!(compared.answers, 20 * 5 + 5 * 5);
    assert!(compared.wrong > 0, "{compared:?}");
}
