//! Writers: each owns its rows, and writes them directly or through Freshet, alone or in transactions with savepoints,
//! rollbacks and two phases, in one of the ways of [`changes`](super::changes).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::changes::{Change, columns, insert, name_of, owner_of, spoil, together, values};
use super::ledger::{KeyId, Row, Table};
use super::line::{Line, Trouble};
use super::own_rows::OwnRows;
use super::stage::{Random, Stage};
use crate::support::{Database, frames, pace};

/// A writer and its two connections.
pub(crate) struct Writer<'a> {
    own: OwnRows<'a, Database>,
    direct: Line,
    through: Line,
    /// Reads through Freshet, so that there are answers in memory while `through` is in a transaction.
    aside: Line,
    /// Names its prepared transactions.
    name: String,
    through_percent: u64,
}

type Outcome<T = ()> = Result<T, Trouble>;

impl<'a> Writer<'a> {
    pub(crate) fn new(stage: &'a Stage, random: Random, number: usize, keys: Vec<KeyId>) -> Outcome<Self> {
        let (direct, through, aside) = (stage.reconnect(false)?, stage.reconnect(true)?, stage.reconnect(true)?);
        let own = OwnRows::new(stage, random, keys);
        Ok(Self { own, direct, through, aside, name: format!("w{number}"), through_percent: 50 })
    }

    /// The same, but nothing is written through Freshet.
    pub(crate) fn around(self) -> Self {
        Self { through_percent: 0, ..self }
    }

    /// Writes until the stage is over.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.own.stage.is_over() {
            let through = self.own.random.percent(self.through_percent);
            match self.round(through) {
                Err(error) if Trouble::is_deadlock(&error) => self.give_way()?,
                Err(error) => {
                    self.own.stage.survive(error)?;
                    self.recover()?;
                }
                Ok(()) => {}
            }
            self.own.random.nap(40);
        }
        Ok(())
    }

    fn round(&mut self, through: bool) -> Result<()> {
        let what = self.own.random.below(16);
        let outcome = match what {
            0..=6 => self.single(through),
            7 | 8 => self.several(through),
            9 | 10 => self.transaction(through),
            11 => self.rolled_back(through),
            12 => self.prepared(through),
            13 => self.copy(through),
            14 => self.cascade(through),
            _ if self.own.stage.truncates() => self.truncate(through),
            _ => self.single(through),
        };
        outcome.with_context(|| format!("writing in way {what}, through Freshet: {through}"))
    }

    fn line(&mut self, through: bool) -> &mut Line {
        if through { &mut self.through } else { &mut self.direct }
    }

    fn execute(&mut self, through: bool, sql: &str) -> Outcome {
        let simple = sql.contains(';') || self.own.random.percent(50);
        let line = self.line(through);
        let outcome = if simple { line.simple(sql).map(drop) } else { line.extended(sql).map(drop) };
        outcome.map_err(|trouble| match trouble {
            Trouble::Refused { code, message } => Trouble::Refused { code, message: format!("{message} in: {sql}") },
            lost @ Trouble::Lost(_) => lost,
        })
    }

    /// Sends what commits the open versions.
    fn commit(&mut self, through: bool, sql: &str) -> Outcome {
        self.own.begin();
        self.execute(through, sql)?;
        self.own.acknowledged();
        Ok(())
    }

    fn single(&mut self, through: bool) -> Outcome {
        let key = self.own.pick();
        let change = self.own.write(key, through);
        let sql = change.statement(&mut self.own.random);
        self.commit(through, &sql)?;
        self.reread(through, &[change])
    }

    fn several(&mut self, through: bool) -> Outcome {
        let changes: Vec<_> = self.own.pick_some(true).into_iter().map(|key| self.own.write(key, through)).collect();
        self.commit(through, &together(&changes))?;
        self.reread(through, &changes)
    }

    /// A session sees at once what it has written itself.
    fn reread(&mut self, through: bool, changes: &[Change]) -> Outcome {
        for change in changes {
            if through && self.own.random.percent(40) {
                self.expect(change.key, change.row.map(|_| change.version), "written by this session")?;
            }
        }
        Ok(())
    }

    /// Reads a row of its own through Freshet: only this writer changes it.
    fn expect(&mut self, (table, id): KeyId, version: Option<i32>, why: &str) -> Outcome {
        let from = if table == Table::Item && self.own.random.percent(40) { "echo" } else { name_of(table) };
        let sql = format!("select id, grp, kind, ver from {from} where id = {id}");
        let simple = self.own.random.percent(50);
        let answer = if simple { self.through.simple(&sql)? } else { self.through.extended(&sql)? };
        self.own.check(&sql, answer, version, why);
        Ok(())
    }

    /// The same in an answer that another session has just been given: it does not hold this transaction's writes.
    fn expect_among_all(&mut self, (table, id): KeyId, version: Option<i32>) -> Outcome {
        let sql = format!("select id, grp, kind, ver from {}", name_of(table));
        // Time for the stream to pass what this session has read.
        self.own.random.nap(150);
        self.aside.simple(&sql)?;
        let answer = self.through.simple(&sql)?;
        self.own.check_among_all(&sql, answer, id, version);
        Ok(())
    }

    fn transaction(&mut self, through: bool) -> Outcome {
        self.execute(through, "begin")?;
        let savepoints = self.own.random.percent(60);
        for key in self.own.pick_some(false) {
            let (version, row) = self.own.stage.ledger().latest(key);
            let before = row.map(|_| version);
            if through && self.own.random.percent(50) {
                // Only while the transaction has written nothing can this come from the cache, and then an answer that is
                // right in a transaction of its own is right here. Its own earlier writes are acknowledged.
                self.peek(key)?;
            }
            if savepoints && self.own.random.percent(60) {
                self.execute(through, "savepoint a")?;
                self.execute(through, &spoil(key))?;
                if through && self.own.random.percent(50) {
                    let spoiled = before.map(|_| super::ROLLED_BACK);
                    self.expect(key, spoiled, "written in this transaction")?;
                }
                self.execute(through, "rollback to savepoint a")?;
                if through && self.own.random.percent(50) {
                    self.expect(key, before, "rolled back to")?;
                }
            }
            if savepoints {
                self.execute(through, "savepoint b")?;
            }
            let change = self.own.write(key, through);
            let sql = change.statement(&mut self.own.random);
            self.execute(through, &sql)?;
            if through && self.own.random.percent(15) {
                self.expect_among_all(key, change.row.map(|_| change.version))?;
            } else if through && self.own.random.percent(60) {
                self.expect(key, change.row.map(|_| change.version), "written in this transaction")?;
            }
            if savepoints && self.own.random.percent(50) {
                self.execute(through, "release savepoint b")?;
            }
        }
        if self.own.random.percent(20) {
            self.own.random.nap(300);
        }
        self.commit(through, "commit")
    }

    /// A read whose answer does not matter here: the same text is asked for by readers, who check it.
    fn peek(&mut self, (table, id): KeyId) -> Outcome {
        let sql = format!("select id, grp, kind, ver from {} where id = {id}", name_of(table));
        self.through.simple(&sql).map(drop)
    }

    fn rolled_back(&mut self, through: bool) -> Outcome {
        let key = self.own.pick();
        self.execute(through, "begin")?;
        self.execute(through, &spoil(key))?;
        self.execute(through, "rollback")
    }

    /// Commits in two phases, or rolls back in two phases.
    fn prepared(&mut self, through: bool) -> Outcome {
        let name = self.name.clone();
        if self.own.random.percent(20) {
            let spoiled = spoil(self.own.pick());
            self.execute(through, "begin")?;
            self.execute(through, &spoiled)?;
            self.execute(through, &format!("prepare transaction '{name}'"))?;
            return self.execute(through, &format!("rollback prepared '{name}'"));
        }
        self.execute(through, "begin")?;
        for key in self.own.pick_some(false) {
            let change = self.own.write(key, through);
            let sql = change.statement(&mut self.own.random);
            self.execute(through, &sql)?;
        }
        self.execute(through, &format!("prepare transaction '{name}'"))?;
        self.own.random.nap(60);
        self.commit(through, &format!("commit prepared '{name}'"))
    }

    /// Rows that are not there come by COPY.
    fn copy(&mut self, through: bool) -> Outcome {
        let mut keys = self.own.pick_some(true);
        keys.retain(|key| {
            self.own.stage.ledger().latest(*key).1.is_none() && key.0 != Table::Leaf && key.0 != Table::Kin
        });
        let Some((table, _)) = keys.first().copied() else { return self.single(through) };
        let mut data = String::new();
        for key in keys {
            let change = self.own.write(key, through);
            let row = change.row.unwrap_or(Row { grp: 0, kind: 0 });
            data.push_str(&values(key, row, change.version).replace(", ", "\t"));
            data.push('\n');
        }
        self.own.begin();
        let line = self.line(through);
        line.push(&frames::query(&format!("copy {} ({}) from stdin", name_of(table), columns(table))));
        line.push(&[frames::copy_data(data.as_bytes()), frames::copy_done()].concat());
        line.wait(1)?;
        self.own.acknowledged();
        Ok(())
    }

    /// A folder goes, and its leaves with it; then it comes back, with some of them.
    fn cascade(&mut self, through: bool) -> Outcome {
        let Some((folder, leaves)) = self.own.pick_folder() else { return self.single(through) };
        for leaf in &leaves {
            self.own.write_as(*leaf, None, through);
        }
        self.commit(through, &format!("delete from folder where id = {folder}"))?;
        self.own.random.nap(30);
        let mut sql = format!("insert into folder values ({folder})");
        for leaf in leaves {
            let change = self.own.write(leaf, through);
            if let Some(row) = change.row {
                sql.push_str("; ");
                sql.push_str(&insert(leaf, row, change.version));
            }
        }
        self.commit(through, &sql)
    }

    /// Empties a table or a partition whose rows all belong to this writer, and brings some of its rows back.
    fn truncate(&mut self, through: bool) -> Outcome {
        let (name, table, kind) = match self.own.random.below(3) {
            0 => ("event_0", Table::Event, Some(0)),
            1 => ("event_2", Table::Event, Some(2)),
            _ => ("note", Table::Note, None),
        };
        let keys = self.own.existing(table, kind);
        if keys.is_empty() {
            return self.single(through);
        }
        let mut statements = vec![format!("truncate {name}")];
        for key in keys {
            let row = if self.own.random.percent(60) { self.own.next(table, None) } else { None };
            let change = self.own.write_as(key, row, through);
            statements.extend(row.map(|row| insert(key, row, change.version)));
        }
        self.execute(through, "begin")?;
        for sql in &statements {
            self.execute(through, sql)?;
        }
        self.commit(through, "commit")
    }

    /// After a loss: whatever may still be done is waited for, then the database tells what was.
    fn recover(&mut self) -> Result<()> {
        let backends = format!("{}, {}", self.direct.backend, self.through.backend);
        self.direct = self.own.stage.reconnect(false)?;
        self.through = self.own.stage.reconnect(true)?;
        self.aside = self.own.stage.reconnect(true)?;
        // A connection that was not lost is closed now, and ends its transaction.
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match self.resolve(&backends) {
                Ok(true) => return Ok(()),
                Ok(false) => ensure!(Instant::now() < end, "the sessions {backends} do not end"),
                Err(Trouble::Lost(_)) => self.direct = self.own.stage.reconnect(false)?,
                Err(error) => return Err(error.into()),
            }
            pace(Duration::from_millis(20));
        }
    }

    /// After a deadlock: a TRUNCATE locks partitions in another order than reads of one transaction.
    fn give_way(&mut self) -> Result<()> {
        self.direct.simple("rollback")?;
        self.through.simple("rollback")?;
        ensure!(self.resolve("0")?, "no other session is busy");
        Ok(())
    }

    /// Whether it could be found out what was done.
    fn resolve(&mut self, backends: &str) -> Outcome<bool> {
        let busy = format!("select 1 from pg_stat_activity where pid in ({backends})");
        if self.direct.simple(&busy)?.rows(0).next().is_some() {
            return Ok(false);
        }
        let name = &self.name;
        let prepared = format!("select 1 from pg_prepared_xacts where gid = '{name}'");
        if self.direct.simple(&prepared)?.rows(0).next().is_some() {
            self.direct.simple(&format!("rollback prepared '{name}'"))?;
        }
        while let Some(key) = self.own.open.last().copied() {
            let (version, row) = self.own.stage.ledger().latest(key);
            let sql = format!("select ver from {} where id = {}", name_of(key.0), key.1);
            let rows = self.direct.simple(&sql)?.sorted(0);
            let expected: Vec<_> = row.map(|_| vec![Some(version.into())]).into_iter().collect();
            // A key that was not there, and whose deletion was lost, is not there: that is done, too.
            self.own.stage.ledger().resolve(key, rows == expected);
            self.own.open.pop();
        }
        // A cascade may have ended halfway.
        for (_, id) in self.own.keys.iter().filter(|(table, _)| *table == Table::Leaf) {
            self.direct.simple(&format!("insert into folder values ({}) on conflict do nothing", owner_of(*id)))?;
        }
        Ok(true)
    }
}
