//! Writers: each owns its rows, and writes them directly or through Freshet, alone or in transactions with
//! savepoints and rollbacks.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::ledger::{KeyId, Row};
use super::readers::{Rows, ask};
use super::{GROUPS, KINDS, ROLLED_BACK, Random, Stage};

/// Connections of one writer.
pub(crate) struct Writer {
    pub(crate) direct: Client,
    pub(crate) through: Client,
    pub(crate) keys: Vec<KeyId>,
    pub(crate) random: Random,
}

impl Writer {
    /// Writes until the stage is over.
    pub(crate) async fn run(mut self, stage: &Stage) -> Result<()> {
        self.direct.batch_execute("set application_name = 'stress writer'").await?;
        while !stage.is_over() {
            let through = self.random.percent(40);
            match self.random.below(10) {
                0..6 => self.single(stage, through).await?,
                6 | 7 => self.transaction(stage, through).await?,
                8 => self.rolled_back(through).await?,
                _ if stage.truncates() => self.truncate(stage, through).await?,
                _ => self.single(stage, through).await?,
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(60))).await;
        }
        Ok(())
    }

    fn client(&self, through: bool) -> &Client {
        if through { &self.through } else { &self.direct }
    }

    async fn execute(&self, through: bool, sql: &str) -> Result<()> {
        self.client(through).batch_execute(sql).await.with_context(|| sql.to_owned())
    }

    fn pick(&mut self) -> KeyId {
        // A few rows are written often, most seldom.
        let among = if self.random.percent(50) { self.keys.len().min(4) } else { self.keys.len() };
        self.keys[self.random.below(among as u64) as usize]
    }

    /// What the key becomes next.
    fn next(&mut self, now: Option<Row>) -> Option<Row> {
        match now {
            None => Some(Row { grp: self.random.below(GROUPS) as i32, kind: self.random.below(KINDS) as i32 }),
            Some(_) if self.random.percent(15) => None,
            Some(mut row) => {
                if self.random.percent(30) {
                    row.grp = self.random.below(GROUPS) as i32;
                }
                if self.random.percent(30) {
                    row.kind = self.random.below(KINDS) as i32;
                }
                Some(row)
            }
        }
    }

    /// Enters the next version of a key in the ledger; returns the statement that makes it.
    fn begin(&mut self, stage: &Stage, key: KeyId, through: bool) -> String {
        let (_, now) = stage.ledger().latest(key);
        let row = self.next(now);
        let version = stage.ledger().begin(key, row, through);
        statement(key, now, row, version)
    }

    async fn single(&mut self, stage: &Stage, through: bool) -> Result<()> {
        let key = self.pick();
        let sql = self.begin(stage, key, through);
        if self.random.percent(50) {
            self.client(through).execute(&sql, &[]).await.with_context(|| sql.clone())?;
        } else {
            self.execute(through, &sql).await?;
        }
        stage.ledger().acknowledge(key);
        stage.count_writes(1);
        self.reread(stage, through, &[key]).await
    }

    /// A session sees at once what it has written itself.
    async fn reread(&mut self, stage: &Stage, through: bool, keys: &[KeyId]) -> Result<()> {
        if !through || self.random.percent(50) {
            return Ok(());
        }
        for (table, id) in keys {
            let sql = format!("select ver from {table} where id = {id}");
            let rows = ask(&self.through, &sql, self.random.percent(50)).await?;
            stage.count_reads(1);
            let (version, row) = stage.ledger().latest((table, *id));
            let expected: Rows = row.map(|_| vec![Some(version.into())]).into_iter().collect();
            if rows != expected {
                stage.violated(format!("{sql}\n  answered {rows:?}, its session has written {expected:?}"));
            }
        }
        Ok(())
    }

    async fn transaction(&mut self, stage: &Stage, through: bool) -> Result<()> {
        let mut keys: Vec<KeyId> = (0..=self.random.below(3)).map(|_| self.pick()).collect();
        keys.sort_unstable();
        keys.dedup();
        self.execute(through, "begin").await?;
        for key in &keys {
            if self.random.percent(50) {
                self.execute(through, "savepoint a").await?;
                self.execute(through, &spoil(*key)).await?;
                self.execute(through, "rollback to savepoint a").await?;
            }
            self.execute(through, "savepoint b").await?;
            let sql = self.begin(stage, *key, through);
            self.execute(through, &sql).await?;
            if self.random.percent(50) {
                self.execute(through, "release savepoint b").await?;
            }
        }
        if self.random.percent(20) {
            tokio::time::sleep(Duration::from_millis(self.random.below(300))).await;
        }
        self.execute(through, "commit").await?;
        for key in &keys {
            stage.ledger().acknowledge(*key);
        }
        stage.count_writes(keys.len() as u64);
        self.reread(stage, through, &keys).await
    }

    async fn rolled_back(&mut self, through: bool) -> Result<()> {
        let key = self.pick();
        self.execute(through, "begin").await?;
        self.execute(through, &spoil(key)).await?;
        self.execute(through, "rollback").await
    }

    /// Empties the table whose rows all belong to this writer, and brings some of its rows back.
    async fn truncate(&mut self, stage: &Stage, through: bool) -> Result<()> {
        let keys: Vec<KeyId> = self.keys.iter().filter(|(table, _)| *table == "note").copied().collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.execute(through, "begin").await?;
        let mut statements = vec!["truncate note".to_owned()];
        for key in &keys {
            let row = if self.random.percent(60) { self.next(None) } else { None };
            let version = stage.ledger().begin(*key, row, through);
            if row.is_some() {
                statements.push(statement(*key, None, row, version));
            }
        }
        for sql in &statements {
            self.execute(through, sql).await?;
        }
        self.execute(through, "commit").await?;
        for key in &keys {
            stage.ledger().acknowledge(*key);
        }
        stage.count_writes(keys.len() as u64);
        Ok(())
    }
}

fn statement((table, id): KeyId, now: Option<Row>, row: Option<Row>, version: i32) -> String {
    match (now, row) {
        (_, None) => format!("delete from {table} where id = {id}"),
        (None, Some(Row { grp, kind })) if table == "part" => {
            let item = super::item_of(id);
            format!("insert into part (id, item_id, grp, kind, ver) values ({id}, {item}, {grp}, {kind}, {version})")
        }
        (None, Some(Row { grp, kind })) => {
            format!("insert into {table} (id, grp, kind, ver) values ({id}, {grp}, {kind}, {version})")
        }
        (Some(_), Some(Row { grp, kind })) => {
            format!("update {table} set grp = {grp}, kind = {kind}, ver = {version} where id = {id}")
        }
    }
}

/// A write that will be rolled back and must never show.
fn spoil((table, id): KeyId) -> String {
    format!("update {table} set ver = {ROLLED_BACK} where id = {id}")
}
