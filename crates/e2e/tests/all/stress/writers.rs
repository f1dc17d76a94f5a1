//! Writers: each owns its rows, and writes them directly or through Freshet, alone or in transactions with savepoints,
//! rollbacks and two phases, in one of the ways of [`changes`](super::changes).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::changes::{Change, columns, insert, name_of, owner_of, spoil, together, values};
use super::ledger::{KeyId, Row, Table};
use super::line::{Line, Trouble};
use super::stage::{Random, Stage};
use super::{GROUPS, KINDS};
use crate::support::frames;
use crate::support::pace;

/// A writer and its two connections.
pub(crate) struct Writer<'a> {
    stage: &'a Stage,
    direct: Line,
    through: Line,
    /// Reads through Freshet, so that there are answers in memory while `through` is in a transaction.
    aside: Line,
    keys: Vec<KeyId>,
    random: Random,
    /// Keys with a version whose commit was not acknowledged.
    open: Vec<KeyId>,
    /// Names its prepared transactions.
    name: String,
    through_percent: u64,
}

type Outcome<T = ()> = Result<T, Trouble>;

impl<'a> Writer<'a> {
    pub(crate) fn new(stage: &'a Stage, random: Random, number: usize, keys: Vec<KeyId>) -> Outcome<Self> {
        let (direct, through, aside) = (stage.reconnect(false)?, stage.reconnect(true)?, stage.reconnect(true)?);
        Ok(Self {
            stage,
            direct,
            through,
            aside,
            keys,
            random,
            open: Vec::new(),
            name: format!("w{number}"),
            through_percent: 50,
        })
    }

    /// The same, but nothing is written through Freshet.
    pub(crate) fn around(self) -> Self {
        Self { through_percent: 0, ..self }
    }

    /// Writes until the stage is over.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.stage.is_over() {
            let through = self.random.percent(self.through_percent);
            match self.round(through) {
                Err(error) if Trouble::is_deadlock(&error) => self.give_way()?,
                Err(error) => {
                    self.stage.survive(error)?;
                    self.recover()?;
                }
                Ok(()) => {}
            }
            self.random.nap(40);
        }
        Ok(())
    }

    fn round(&mut self, through: bool) -> Result<()> {
        let what = self.random.below(16);
        let outcome = match what {
            0..=6 => self.single(through),
            7 | 8 => self.several(through),
            9 | 10 => self.transaction(through),
            11 => self.rolled_back(through),
            12 => self.prepared(through),
            13 => self.copy(through),
            14 => self.cascade(through),
            _ if self.stage.truncates() => self.truncate(through),
            _ => self.single(through),
        };
        outcome.with_context(|| format!("writing in way {what}, through Freshet: {through}"))
    }

    fn line(&mut self, through: bool) -> &mut Line {
        if through { &mut self.through } else { &mut self.direct }
    }

    fn execute(&mut self, through: bool, sql: &str) -> Outcome {
        let simple = sql.contains(';') || self.random.percent(50);
        let line = self.line(through);
        let outcome = if simple { line.simple(sql).map(drop) } else { line.extended(sql).map(drop) };
        outcome.map_err(|trouble| match trouble {
            Trouble::Refused { code, message } => Trouble::Refused { code, message: format!("{message} in: {sql}") },
            lost @ Trouble::Lost(_) => lost,
        })
    }

    fn pick(&mut self) -> KeyId {
        // A few rows are written often, most seldom.
        let among = if self.random.percent(50) { self.keys.len().min(8) } else { self.keys.len() };
        self.keys[self.random.below(among as u64) as usize]
    }

    /// Several keys of one table or of any.
    fn pick_some(&mut self, one_table: bool) -> Vec<KeyId> {
        let mut keys: Vec<KeyId> = (0..=self.random.below(4)).map(|_| self.pick()).collect();
        keys.sort_unstable();
        keys.dedup();
        if one_table {
            let table = keys[0].0;
            keys.retain(|key| key.0 == table);
        }
        keys
    }

    /// What the key becomes next.
    fn next(&mut self, table: Table, now: Option<Row>) -> Option<Row> {
        let other = |random: &mut Random, bound: i32| random.below(bound.unsigned_abs().into()) as i32;
        match now {
            None => Some(Row { grp: other(&mut self.random, GROUPS), kind: other(&mut self.random, KINDS) }),
            Some(_) if self.random.percent(15) => None,
            Some(mut row) => {
                if self.random.percent(30) {
                    row.grp = other(&mut self.random, GROUPS);
                }
                // A row of one table of a family cannot move to another.
                if self.random.percent(30) && table != Table::Kin {
                    row.kind = other(&mut self.random, KINDS);
                }
                Some(row)
            }
        }
    }

    /// Enters the next version of a key in the ledger, as part of an open transaction.
    fn write(&mut self, key: KeyId, through: bool) -> Change {
        let (_, now) = self.stage.ledger().latest(key);
        let row = self.next(key.0, now);
        self.write_as(key, row, through)
    }

    fn write_as(&mut self, key: KeyId, row: Option<Row>, through: bool) -> Change {
        let mut ledger = self.stage.ledger();
        let (_, now) = ledger.latest(key);
        let version = ledger.write(key, row, through);
        self.open.push(key);
        Change { key, now, row, version }
    }

    /// Sends what commits the open versions.
    fn commit(&mut self, through: bool, sql: &str) -> Outcome {
        self.stage.begin(&self.open);
        self.execute(through, sql)?;
        self.acknowledged();
        Ok(())
    }

    fn acknowledged(&mut self) {
        self.stage.acknowledge(&self.open);
        self.open.clear();
    }

    fn single(&mut self, through: bool) -> Outcome {
        let key = self.pick();
        let change = self.write(key, through);
        let sql = change.statement(&mut self.random);
        self.commit(through, &sql)?;
        self.reread(through, &[change])
    }

    fn several(&mut self, through: bool) -> Outcome {
        let changes: Vec<_> = self.pick_some(true).into_iter().map(|key| self.write(key, through)).collect();
        self.commit(through, &together(&changes))?;
        self.reread(through, &changes)
    }

    /// A session sees at once what it has written itself.
    fn reread(&mut self, through: bool, changes: &[Change]) -> Outcome {
        for change in changes {
            if through && self.random.percent(40) {
                self.expect(change.key, change.row.map(|_| change.version), "written by this session")?;
            }
        }
        Ok(())
    }

    /// Reads a row of its own through Freshet: only this writer changes it.
    fn expect(&mut self, (table, id): KeyId, version: Option<i32>, why: &str) -> Outcome {
        let from = if table == Table::Item && self.random.percent(40) { "echo" } else { name_of(table) };
        let sql = format!("select id, grp, kind, ver from {from} where id = {id}");
        let simple = self.random.percent(50);
        let answer = if simple { self.through.simple(&sql)? } else { self.through.extended(&sql)? };
        let shown: Vec<_> = answer.rows(0).map(|row| row.get(3).copied().flatten()).collect();
        self.stage.count_reads(1);
        if shown != version.map(|version| Some(version.into())).into_iter().collect::<Vec<_>>() {
            self.stage.violated(format!("{sql}\n  answered version {shown:?}, {why}: {version:?}"));
        }
        Ok(())
    }

    /// The same in an answer that another session has just been given: it does not hold this transaction's writes.
    fn expect_among_all(&mut self, (table, id): KeyId, version: Option<i32>) -> Outcome {
        let sql = format!("select id, grp, kind, ver from {}", name_of(table));
        // Time for the stream to pass what this session has read.
        self.random.nap(150);
        self.aside.simple(&sql)?;
        let answer = self.through.simple(&sql)?;
        let mut rows = answer.rows(0).filter(|row| row.first() == Some(&Some(id.into())));
        let shown = rows.next().map(|row| row.get(3).copied().flatten());
        self.stage.count_reads(1);
        if shown != version.map(|version| Some(version.into())) {
            let what = format!("row {id} has version {shown:?}, written in this transaction: {version:?}");
            self.stage.violated(format!("{sql}\n  {what}"));
        }
        Ok(())
    }

    fn transaction(&mut self, through: bool) -> Outcome {
        self.execute(through, "begin")?;
        let savepoints = self.random.percent(60);
        for key in self.pick_some(false) {
            let (version, row) = self.stage.ledger().latest(key);
            let before = row.map(|_| version);
            if through && self.random.percent(50) {
                // Only while the transaction has written nothing can this come from the cache, and then an answer that is
                // right in a transaction of its own is right here. Its own earlier writes are acknowledged.
                self.peek(key)?;
            }
            if savepoints && self.random.percent(60) {
                self.execute(through, "savepoint a")?;
                self.execute(through, &spoil(key))?;
                if through && self.random.percent(50) {
                    let spoiled = before.map(|_| super::ROLLED_BACK);
                    self.expect(key, spoiled, "written in this transaction")?;
                }
                self.execute(through, "rollback to savepoint a")?;
                if through && self.random.percent(50) {
                    self.expect(key, before, "rolled back to")?;
                }
            }
            if savepoints {
                self.execute(through, "savepoint b")?;
            }
            let change = self.write(key, through);
            let sql = change.statement(&mut self.random);
            self.execute(through, &sql)?;
            if through && self.random.percent(15) {
                self.expect_among_all(key, change.row.map(|_| change.version))?;
            } else if through && self.random.percent(60) {
                self.expect(key, change.row.map(|_| change.version), "written in this transaction")?;
            }
            if savepoints && self.random.percent(50) {
                self.execute(through, "release savepoint b")?;
            }
        }
        if self.random.percent(20) {
            self.random.nap(300);
        }
        self.commit(through, "commit")
    }

    /// A read whose answer does not matter here: the same text is asked for by readers, who check it.
    fn peek(&mut self, (table, id): KeyId) -> Outcome {
        let sql = format!("select id, grp, kind, ver from {} where id = {id}", name_of(table));
        self.through.simple(&sql).map(drop)
    }

    fn rolled_back(&mut self, through: bool) -> Outcome {
        let key = self.pick();
        self.execute(through, "begin")?;
        self.execute(through, &spoil(key))?;
        self.execute(through, "rollback")
    }

    /// Commits in two phases, or rolls back in two phases.
    fn prepared(&mut self, through: bool) -> Outcome {
        let name = self.name.clone();
        if self.random.percent(20) {
            let spoiled = spoil(self.pick());
            self.execute(through, "begin")?;
            self.execute(through, &spoiled)?;
            self.execute(through, &format!("prepare transaction '{name}'"))?;
            return self.execute(through, &format!("rollback prepared '{name}'"));
        }
        self.execute(through, "begin")?;
        for key in self.pick_some(false) {
            let change = self.write(key, through);
            let sql = change.statement(&mut self.random);
            self.execute(through, &sql)?;
        }
        self.execute(through, &format!("prepare transaction '{name}'"))?;
        self.random.nap(60);
        self.commit(through, &format!("commit prepared '{name}'"))
    }

    /// Rows that are not there come by COPY.
    fn copy(&mut self, through: bool) -> Outcome {
        let mut keys = self.pick_some(true);
        keys.retain(|key| self.stage.ledger().latest(*key).1.is_none() && key.0 != Table::Leaf && key.0 != Table::Kin);
        let Some((table, _)) = keys.first().copied() else { return self.single(through) };
        let mut data = String::new();
        for key in keys {
            let change = self.write(key, through);
            let row = change.row.unwrap_or(Row { grp: 0, kind: 0 });
            data.push_str(&values(key, row, change.version).replace(", ", "\t"));
            data.push('\n');
        }
        self.stage.begin(&self.open);
        let line = self.line(through);
        line.push(&frames::query(&format!("copy {} ({}) from stdin", name_of(table), columns(table))));
        line.push(&[frames::copy_data(data.as_bytes()), frames::copy_done()].concat());
        line.wait(1)?;
        self.acknowledged();
        Ok(())
    }

    /// A folder goes, and its leaves with it; then it comes back, with some of them.
    fn cascade(&mut self, through: bool) -> Outcome {
        let leaves: Vec<KeyId> = self.keys.iter().filter(|(table, _)| *table == Table::Leaf).copied().collect();
        if leaves.is_empty() {
            return self.single(through);
        }
        let folder = owner_of(leaves[self.random.below(leaves.len() as u64) as usize].1);
        let leaves: Vec<KeyId> = leaves.into_iter().filter(|(_, id)| owner_of(*id) == folder).collect();
        for leaf in &leaves {
            self.write_as(*leaf, None, through);
        }
        self.commit(through, &format!("delete from folder where id = {folder}"))?;
        self.random.nap(30);
        let mut sql = format!("insert into folder values ({folder})");
        for leaf in leaves {
            let change = self.write(leaf, through);
            if let Some(row) = change.row {
                sql.push_str("; ");
                sql.push_str(&insert(leaf, row, change.version));
            }
        }
        self.commit(through, &sql)
    }

    /// Empties a table or a partition whose rows all belong to this writer, and brings some of its rows back.
    fn truncate(&mut self, through: bool) -> Outcome {
        let (name, table, kind) = match self.random.below(3) {
            0 => ("event_0", Table::Event, 0),
            1 => ("event_2", Table::Event, 2),
            _ => ("note", Table::Note, -1),
        };
        let all: Vec<KeyId> = self.keys.iter().filter(|key| key.0 == table).copied().collect();
        let is_there = |key: &KeyId| self.stage.ledger().latest(*key).1.is_some_and(|r| kind < 0 || r.kind == kind);
        let keys: Vec<KeyId> = all.into_iter().filter(is_there).collect();
        if keys.is_empty() {
            return self.single(through);
        }
        let mut statements = vec![format!("truncate {name}")];
        for key in keys {
            let row = if self.random.percent(60) { self.next(table, None) } else { None };
            let change = self.write_as(key, row, through);
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
        self.direct = self.stage.reconnect(false)?;
        self.through = self.stage.reconnect(true)?;
        self.aside = self.stage.reconnect(true)?;
        // A connection that was not lost is closed now, and ends its transaction.
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match self.resolve(&backends) {
                Ok(true) => return Ok(()),
                Ok(false) => ensure!(Instant::now() < end, "the sessions {backends} do not end"),
                Err(Trouble::Lost(_)) => self.direct = self.stage.reconnect(false)?,
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
        while let Some(key) = self.open.last().copied() {
            let (version, row) = self.stage.ledger().latest(key);
            let sql = format!("select ver from {} where id = {}", name_of(key.0), key.1);
            let rows = self.direct.simple(&sql)?.sorted(0);
            let expected: Vec<_> = row.map(|_| vec![Some(version.into())]).into_iter().collect();
            // A key that was not there, and whose deletion was lost, is not there: that is done, too.
            self.stage.ledger().resolve(key, rows == expected);
            self.open.pop();
        }
        // A cascade may have ended halfway.
        for (_, id) in self.keys.iter().filter(|(table, _)| *table == Table::Leaf) {
            self.direct.simple(&format!("insert into folder values ({}) on conflict do nothing", owner_of(*id)))?;
        }
        Ok(true)
    }
}
