//! Acknowledged writes under races, for sessions of either protocol.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::join_keys::stage::Session;

/// Tables that writers and readers share: `t0`, `t1` …
pub(crate) const TABLES: usize = 4;

/// Makes one of these tables.
pub(crate) fn table(number: usize) -> String {
    format!("create table t{number} (id int primary key, n int not null); insert into t{number} values (1, 0);")
}

/// Runs writers and readers of a row in each of the tables. At one moment there are cached results of a table, at the next there are none. Returns
/// how often an acknowledged write was not seen. `writers_read`: a query that a writer runs now and then, so that its session knows its context.
pub(crate) fn missed(connect: impl Fn() -> Result<Session> + Sync, writers_read: Option<&str>) -> Result<u64> {
    let acknowledged: [AtomicI32; TABLES] = std::array::from_fn(|_| AtomicI32::new(0));
    let missed = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(6);
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for t in 0..TABLES {
            let (connect, acknowledged) = (&connect, &acknowledged);
            threads.push(scope.spawn(move || -> Result<()> {
                let mut writer = connect()?;
                for n in 1.. {
                    if Instant::now() >= until {
                        break;
                    }
                    if let Some(read) = writers_read.filter(|_| n % 50 == 1) {
                        writer.run(read)?;
                    }
                    writer.run(&format!("update t{t} set n = {n} where id = 1"))?;
                    acknowledged[t].store(n, SeqCst);
                    super::pace(Duration::from_micros(u64::from(n.unsigned_abs() % 7) * 300));
                }
                Ok(())
            }));
        }
        for reader in 0..4 {
            let (connect, acknowledged, missed) = (&connect, &acknowledged, &missed);
            threads.push(scope.spawn(move || -> Result<()> {
                let mut client = connect()?;
                for round in reader.. {
                    if Instant::now() >= until {
                        break;
                    }
                    let t = round % TABLES;
                    let watermark = acknowledged[t].load(SeqCst);
                    let rows = client.rows(&format!("select n from t{t} where id = 1"))?;
                    let value = rows.first().and_then(|row| row.first()?.as_deref()).context("no value")?;
                    missed.fetch_add(u64::from(value.parse::<i32>()? < watermark), SeqCst);
                }
                Ok(())
            }));
        }
        for thread in threads {
            thread.join().expect("a thread panicked")?;
        }
        Ok(())
    })?;
    Ok(missed.into_inner())
}
