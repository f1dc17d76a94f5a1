//! Tables that are made, written and read while the run goes on: a transaction that wrote to a table before it was
//! published, and commits after that, is never on the stream. Only the coverage barrier guards against it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::ledger::{KeyId, Row, Span};
use super::readers::{Rows, ask};
use super::{Random, Stage};

/// How long the reads go on after the commit: past D.
const AFTER: Duration = Duration::from_millis(2500);
/// Rows of one table, each with its own entry.
const ROWS: i32 = 2;
const ROW: Row = Row { grp: 0, kind: 0 };

/// Makes table after table.
pub(crate) struct Founder {
    pub(crate) direct: Client,
    pub(crate) through: Client,
    pub(crate) random: Random,
    /// Of the first table; those of other founders are far away.
    pub(crate) number: i32,
}

impl Founder {
    /// Makes tables until the stage is over.
    pub(crate) async fn run(mut self, stage: &Stage) -> Result<()> {
        while !stage.is_over() {
            self.number += 1;
            self.one_table(stage).await?;
        }
        Ok(())
    }

    async fn one_table(&mut self, stage: &Stage) -> Result<()> {
        let number = self.number;
        let keys: Vec<KeyId> = (0..ROWS).map(|row| ("young", number * ROWS + row)).collect();
        self.execute(&format!("create table young_{number} (id int primary key, ver int not null)")).await?;
        for key in &keys {
            self.execute(&format!("insert into young_{number} values ({}, 0)", key.1)).await?;
            stage.ledger().insert(*key, Some(ROW));
        }
        self.execute("begin").await?;
        for key in &keys {
            stage.ledger().begin(*key, Some(ROW), false);
        }
        self.execute(&format!("update young_{number} set ver = 1")).await?;
        // Long enough for Freshet to find the table and, without a barrier, to cache what it holds.
        let hold = Duration::from_millis(2500 + self.random.below(1500));
        self.read_for(stage, &keys, hold).await?;
        self.execute("commit").await?;
        for key in &keys {
            stage.ledger().acknowledge(*key);
        }
        stage.count_writes(keys.len() as u64);
        self.read_for(stage, &keys, AFTER).await?;
        self.execute(&format!("drop table young_{number}")).await
    }

    async fn execute(&self, sql: &str) -> Result<()> {
        self.direct.batch_execute(sql).await.with_context(|| sql.to_owned())
    }

    async fn read_for(&mut self, stage: &Stage, keys: &[KeyId], time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        for key in keys.iter().cycle() {
            if Instant::now() >= end || stage.has_violations() {
                break;
            }
            let (key, number) = (*key, self.number);
            let sql = format!("select ver from young_{number} where id = {}", key.1);
            let asked = Instant::now();
            let rows = ask(&self.through, &sql, true).await?;
            let span = Span { asked, answered: Instant::now() };
            stage.count_reads(1);
            if let Err(what) = check(stage, key, &rows, span) {
                stage.violated(format!("{sql}\n  {what}"));
            }
            // Patience: a session may hit only when the stream has caught up with its last read from the server.
            tokio::time::sleep(Duration::from_millis(80 + self.random.below(80))).await;
        }
        Ok(())
    }
}

fn check(stage: &Stage, key: KeyId, rows: &Rows, span: Span) -> Result<(), String> {
    let mut ledger = stage.ledger();
    let shown = rows.first().and_then(|row| row.first().copied().flatten());
    let shown = shown.and_then(|version| i32::try_from(version).ok()).unwrap_or(-1);
    if !ledger.may(key, span, 0, |version, _| version == shown) {
        return Err(format!("answered {rows:?}\n  {}", ledger.explain(key, span, 0)));
    }
    ledger.note(key, span, shown);
    Ok(())
}
