//! Writers: each owns its rows, and writes them directly or through Freshet, alone or in transactions with savepoints, rollbacks and two phases, in
//! one of the ways of [`changes`](super::changes).

use anyhow::{Context, Result};

use super::changes::{inserts, statements, together, with_parameters};
use super::line::{Line, gives_way};
use super::stage::Stage;
use crate::stress::changes::{Change, columns, name_of, owner_of, spoil, values};
use crate::stress::ledger::{KeyId, Row, Table};
use crate::stress::line::Trouble;
use crate::stress::stage::Random;
use crate::stress::{GROUPS, KINDS, ROLLED_BACK};

/// A writer and its connections.
pub(crate) struct Writer<'a> {
    pub(super) stage: &'a Stage,
    pub(super) lines: Lines,
    pub(super) keys: Vec<KeyId>,
    pub(super) random: Random,
    /// Keys with a version whose commit was not acknowledged.
    pub(super) open: Vec<KeyId>,
    /// Names its two-phase transactions.
    pub(super) name: String,
    through_percent: u64,
}

pub(super) struct Lines {
    pub(super) direct: Line,
    pub(super) through: Line,
    /// Reads through Freshet, so that there are answers in memory while `through` is in a transaction.
    pub(super) aside: Line,
    /// How often the server had been started.
    pub(super) starts: u64,
}

impl Lines {
    pub(super) fn open(stage: &Stage, random: &mut Random) -> Outcome<Self> {
        let starts = stage.starts();
        let (mut direct, mut through) = (stage.reconnect(false, random)?, stage.reconnect(true, random)?);
        for line in [&mut direct, &mut through] {
            if random.percent(50) {
                line.simple("set session transaction isolation level read committed")?;
            }
        }
        let aside = stage.reconnect(true, random)?;
        Ok(Self { direct, through, aside, starts })
    }
}

pub(super) type Outcome<T = ()> = Result<T, Trouble>;

impl<'a> Writer<'a> {
    pub(crate) fn new(stage: &'a Stage, mut random: Random, number: usize, keys: Vec<KeyId>) -> Outcome<Self> {
        let lines = Lines::open(stage, &mut random)?;
        Ok(Self { stage, lines, keys, random, open: Vec::new(), name: format!("w{number}"), through_percent: 50 })
    }

    /// The same, but nothing is written through Freshet.
    pub(crate) fn around(self) -> Self {
        Self { through_percent: 0, ..self }
    }

    /// Writes until the stage is over.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.stage.is_over() {
            let through = self.random.percent(self.through_percent);
            if let Err(error) = self.round(through) {
                match error.downcast_ref() {
                    Some(trouble) if gives_way(trouble) => self.give_way()?,
                    _ => {
                        self.stage.survive(error)?;
                        self.recover()?;
                    }
                }
            }
            self.random.nap(40);
        }
        Ok(())
    }

    /// Some of the writes make Freshet suspect temporary tables in the session; then nothing would come from the cache.
    fn forget(&mut self) -> Outcome {
        self.lines.through.reset()?;
        if self.random.percent(50) {
            self.lines.through.simple("set session transaction isolation level read committed")?;
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
            12 => self.two_phases(through),
            13 => self.load(through),
            14 => self.cascade(through),
            _ if self.stage.truncates() => self.truncate(through),
            _ => self.single(through),
        };
        let outcome = outcome.and_then(|()| if through && self.random.percent(30) { self.forget() } else { Ok(()) });
        outcome.with_context(|| format!("writing in way {what}, through Freshet: {through}"))
    }

    fn line(&mut self, through: bool) -> &mut Line {
        if through { &mut self.lines.through } else { &mut self.lines.direct }
    }

    /// A statement as text.
    pub(super) fn execute(&mut self, through: bool, sql: &str) -> Outcome {
        let outcome = self.line(through).simple(sql).map(drop);
        outcome.map_err(|trouble| told(trouble, sql))
    }

    /// A statement that changes rows, as text or prepared.
    fn change(&mut self, through: bool, sql: &str) -> Outcome {
        let (text, numbers) = match self.random.below(4) {
            0 | 1 => return self.execute(through, sql),
            2 => (sql.to_owned(), Vec::new()),
            _ => with_parameters(sql),
        };
        let outcome = self.line(through).execute_once(&text, &numbers).map(drop);
        outcome.map_err(|trouble| told(trouble, sql))
    }

    fn change_all(&mut self, through: bool, statements: &[String]) -> Outcome {
        if statements.len() > 1 && self.random.percent(50) {
            return self.execute(through, &statements.join("; "));
        }
        statements.iter().try_for_each(|sql| self.change(through, sql))
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

    /// A row and one of another table that belongs to it.
    fn pick_pair(&mut self) -> Vec<KeyId> {
        let is_part = |key: &&KeyId| key.0 == Table::Part;
        let parts: Vec<KeyId> = self.keys.iter().filter(is_part).copied().collect();
        match parts.get(self.random.below(parts.len().max(1) as u64) as usize) {
            Some(part) => vec![(Table::Item, owner_of(part.1)), *part],
            None => self.pick_some(true),
        }
    }

    /// What the key becomes next.
    pub(super) fn next(&mut self, table: Table, now: Option<Row>) -> Option<Row> {
        let other = |random: &mut Random, bound: i32| random.below(bound.unsigned_abs().into()) as i32;
        match now {
            None => Some(Row { grp: other(&mut self.random, GROUPS), kind: other(&mut self.random, KINDS) }),
            Some(_) if self.random.percent(15) => None,
            Some(mut row) => {
                if self.random.percent(30) {
                    row.grp = other(&mut self.random, GROUPS);
                }
                // Kin are changed by their house, which does not know their kind.
                if self.random.percent(30) && table != Table::Kin {
                    row.kind = other(&mut self.random, KINDS);
                }
                Some(row)
            }
        }
    }

    /// Enters the next version of a key in the ledger, as part of an open transaction.
    pub(super) fn write(&mut self, key: KeyId, through: bool) -> Change {
        let (_, now) = self.stage.ledger().latest(key);
        let row = self.next(key.0, now);
        self.write_as(key, row, through)
    }

    pub(super) fn write_as(&mut self, key: KeyId, row: Option<Row>, through: bool) -> Change {
        let mut ledger = self.stage.ledger();
        let (_, now) = ledger.latest(key);
        let version = ledger.write(key, row, through);
        self.open.push(key);
        Change { key, now, row, version }
    }

    /// Sends what commits the open versions.
    pub(super) fn commit(&mut self, through: bool, sql: &str) -> Outcome {
        self.stage.begin(&self.open);
        self.execute(through, sql)?;
        self.acknowledged();
        Ok(())
    }

    /// The same for statements that change rows, each a commit.
    fn commit_changes(&mut self, through: bool, statements: &[String]) -> Outcome {
        self.stage.begin(&self.open);
        self.change_all(through, statements)?;
        self.acknowledged();
        Ok(())
    }

    fn acknowledged(&mut self) {
        self.stage.acknowledge(&self.open);
        self.open.clear();
    }

    pub(super) fn single(&mut self, through: bool) -> Outcome {
        let key = self.pick();
        let change = self.write(key, through);
        let sql = statements(&change, &mut self.random);
        self.commit_changes(through, &sql)?;
        self.reread(through, &[change])
    }

    fn several(&mut self, through: bool) -> Outcome {
        let keys = if self.random.percent(30) { self.pick_pair() } else { self.pick_some(true) };
        let changes: Vec<_> = keys.into_iter().map(|key| self.write(key, through)).collect();
        if let Some(sql) = together(&changes) {
            self.commit_changes(through, &[sql])?;
        } else {
            self.execute(through, "begin")?;
            for change in &changes {
                let sql = statements(change, &mut self.random);
                self.change_all(through, &sql)?;
            }
            self.commit(through, "commit")?;
        }
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
        let line = &mut self.lines.through;
        let answer = if self.random.percent(50) { line.simple(&sql)? } else { line.execute_once(&sql, &[])? };
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
        self.lines.aside.simple(&sql)?;
        let answer = self.lines.through.simple(&sql)?;
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
        let beginnings =
            ["begin", "start transaction", "start transaction with consistent snapshot", "set autocommit = 0"];
        let beginning = beginnings[self.random.below(beginnings.len() as u64) as usize];
        self.execute(through, beginning)?;
        let savepoints = self.random.percent(60);
        for key in self.pick_some(false) {
            self.step(key, through, savepoints)?;
        }
        if self.random.percent(20) {
            self.random.nap(300);
        }
        self.commit(through, "commit")?;
        if beginning.starts_with("set") {
            self.execute(through, "set autocommit = 1")?;
        }
        Ok(())
    }

    /// One key in a transaction.
    fn step(&mut self, key: KeyId, through: bool, savepoints: bool) -> Outcome {
        let (version, row) = self.stage.ledger().latest(key);
        let before = row.map(|_| version);
        if through && self.random.percent(50) {
            // Only while the transaction has written nothing can this come from the cache, and then an answer that is
            // right in a transaction of its own is right here. Its own earlier writes are acknowledged.
            self.peek(key)?;
        }
        // What is spoiled here would be spoiled in the house too.
        if savepoints && key.0 != Table::Kin && self.random.percent(60) {
            self.execute(through, "savepoint a")?;
            self.change(through, &spoil(key))?;
            if through && self.random.percent(50) {
                self.expect(key, before.map(|_| ROLLED_BACK), "written in this transaction")?;
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
        let sql = statements(&change, &mut self.random);
        self.change_all(through, &sql)?;
        if through && self.random.percent(15) {
            self.expect_among_all(key, change.row.map(|_| change.version))?;
        } else if through && self.random.percent(60) {
            self.expect(key, change.row.map(|_| change.version), "written in this transaction")?;
        }
        if savepoints && self.random.percent(50) {
            self.execute(through, "release savepoint b")?;
        }
        Ok(())
    }

    /// A read whose answer does not matter here: the same text is asked for by readers, who check it.
    fn peek(&mut self, (table, id): KeyId) -> Outcome {
        let sql = format!("select id, grp, kind, ver from {} where id = {id}", name_of(table));
        self.lines.through.simple(&sql).map(drop)
    }

    fn rolled_back(&mut self, through: bool) -> Outcome {
        let key = self.pick();
        self.execute(through, "begin")?;
        if key.0 != Table::Kin {
            self.change(through, &spoil(key))?;
        }
        self.execute(through, "rollback")
    }

    /// Commits in two phases, or rolls back in one or in two.
    fn two_phases(&mut self, through: bool) -> Outcome {
        let name = self.name.clone();
        self.execute(through, &format!("xa start '{name}'"))?;
        if self.random.percent(30) {
            let key = self.pick();
            if key.0 != Table::Kin {
                self.change(through, &spoil(key))?;
            }
            self.execute(through, &format!("xa end '{name}'"))?;
            if self.random.percent(60) {
                self.execute(through, &format!("xa prepare '{name}'"))?;
            }
            return self.execute(through, &format!("xa rollback '{name}'"));
        }
        for key in self.pick_some(false) {
            let change = self.write(key, through);
            let sql = statements(&change, &mut self.random);
            self.change_all(through, &sql)?;
        }
        self.execute(through, &format!("xa end '{name}'"))?;
        if self.random.percent(20) {
            return self.commit(through, &format!("xa commit '{name}' one phase"));
        }
        self.execute(through, &format!("xa prepare '{name}'"))?;
        self.random.nap(60);
        self.commit(through, &format!("xa commit '{name}'"))
    }

    /// Rows come from a file of the client.
    fn load(&mut self, through: bool) -> Outcome {
        let replace = self.random.percent(50);
        let mut keys = self.pick_some(true);
        keys.retain(|key| {
            let is_new = self.stage.ledger().latest(*key).1.is_none();
            key.0 != Table::Kin && (is_new || replace && key.0 != Table::Event)
        });
        let Some((table, _)) = keys.first().copied() else { return self.single(through) };
        let mut data = String::new();
        for key in keys {
            let row = self.next(table, None);
            let change = self.write_as(key, row, through);
            let row = change.row.unwrap_or(Row { grp: 0, kind: 0 });
            data.push_str(&values(key, row, change.version).replace(", ", "\t"));
            data.push('\n');
        }
        let how = if replace { "replace " } else { "" };
        let sql = format!("load data local infile 'rows' {how}into table {} ({})", name_of(table), columns(table));
        self.line(through).file = data;
        self.commit(through, &sql)
    }

    /// A cupboard goes, its folder with it, and with that its leaves; then it comes back, with some of them.
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
        self.commit_changes(through, &[format!("delete from cupboard where id = {folder}")])?;
        self.random.nap(30);
        self.execute(through, "begin")?;
        self.execute(through, &format!("insert into cupboard values ({folder})"))?;
        self.execute(through, &format!("insert into folder values ({folder})"))?;
        for leaf in leaves {
            let change = self.write(leaf, through);
            if let Some(row) = change.row {
                self.change_all(through, &inserts(leaf, row, change.version))?;
            }
        }
        self.commit(through, "commit")
    }

    /// Empties a table or a partition whose rows all belong to this writer, or exchanges the partition for another table.
    fn truncate(&mut self, through: bool) -> Outcome {
        let (table, kind) = if self.random.percent(50) { (Table::Event, 0) } else { (Table::Note, -1) };
        let all: Vec<KeyId> = self.keys.iter().filter(|key| key.0 == table).copied().collect();
        let is_there = |key: &KeyId| self.stage.ledger().latest(*key).1.is_some_and(|r| kind < 0 || r.kind == kind);
        let keys: Vec<KeyId> = all.into_iter().filter(is_there).collect();
        if keys.is_empty() {
            return self.single(through);
        }
        let exchange = table == Table::Event && self.random.percent(60);
        if exchange {
            self.execute(through, "truncate event_side")?;
        }
        for key in keys {
            let row = Row { grp: self.random.below(10) as i32, kind };
            let stays = exchange && self.random.percent(60);
            let change = self.write_as(key, stays.then_some(row), through);
            if stays {
                let row = values(key, row, change.version);
                self.execute(through, &format!("insert into event_side (id, grp, kind, ver) values ({row})"))?;
            }
        }
        let sql = match table {
            Table::Event if exchange => "alter table event exchange partition p0 with table event_side",
            Table::Event => "alter table event truncate partition p0",
            _ if self.random.percent(30) => "delete from note",
            _ => "truncate note",
        };
        self.commit(through, sql)
    }
}

fn told(trouble: Trouble, sql: &str) -> Trouble {
    match trouble {
        Trouble::Refused { code, message } => Trouble::Refused { code, message: format!("{message} in: {sql}") },
        lost @ Trouble::Lost(_) => lost,
    }
}
