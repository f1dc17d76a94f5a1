//! Writers: each owns its rows, and writes them directly or through Freshet, alone or in transactions with savepoints, rollbacks and two phases, in
//! one of the ways of [`changes`](super::changes).

use anyhow::{Context, Result};

use super::changes::{inserts, statements, together, with_parameters};
use super::line::{Line, gives_way};
use super::stage::{Place, Stage};
use crate::stress::ROLLED_BACK;
use crate::stress::changes::{Change, columns, name_of, owner_of, spoil, values};
use crate::stress::ledger::{KeyId, Row, Table};
use crate::stress::line::Trouble;
use crate::stress::own_rows::OwnRows;
use crate::stress::stage::Random;

/// A writer and its connections.
pub(crate) struct Writer<'a> {
    pub(super) own: OwnRows<'a, Place>,
    pub(super) lines: Lines,
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
        let own = OwnRows::new(stage, random, keys);
        Ok(Self { own, lines, name: format!("w{number}"), through_percent: 50 })
    }

    /// The same, but nothing is written through Freshet.
    pub(crate) fn around(self) -> Self {
        Self { through_percent: 0, ..self }
    }

    /// Writes until the stage is over.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.own.stage.is_over() {
            let through = self.own.random.percent(self.through_percent);
            if let Err(error) = self.round(through) {
                match error.downcast_ref() {
                    Some(trouble) if gives_way(trouble) => self.give_way()?,
                    _ => {
                        self.own.stage.survive(error)?;
                        self.recover()?;
                    }
                }
            }
            self.own.random.nap(40);
        }
        Ok(())
    }

    /// Some of the writes make Freshet suspect temporary tables in the session; then nothing would come from the cache.
    fn forget(&mut self) -> Outcome {
        self.lines.through.reset()?;
        if self.own.random.percent(50) {
            self.lines.through.simple("set session transaction isolation level read committed")?;
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
            12 => self.two_phases(through),
            13 => self.load(through),
            14 => self.cascade(through),
            _ if self.own.stage.truncates() => self.truncate(through),
            _ => self.single(through),
        };
        let outcome =
            outcome.and_then(|()| if through && self.own.random.percent(30) { self.forget() } else { Ok(()) });
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
        let (text, numbers) = match self.own.random.below(4) {
            0 | 1 => return self.execute(through, sql),
            2 => (sql.to_owned(), Vec::new()),
            _ => with_parameters(sql),
        };
        let outcome = self.line(through).execute_once(&text, &numbers).map(drop);
        outcome.map_err(|trouble| told(trouble, sql))
    }

    fn change_all(&mut self, through: bool, statements: &[String]) -> Outcome {
        if statements.len() > 1 && self.own.random.percent(50) {
            return self.execute(through, &statements.join("; "));
        }
        statements.iter().try_for_each(|sql| self.change(through, sql))
    }

    /// A row and one of another table that belongs to it.
    fn pick_pair(&mut self) -> Vec<KeyId> {
        let is_part = |key: &&KeyId| key.0 == Table::Part;
        let parts: Vec<KeyId> = self.own.keys.iter().filter(is_part).copied().collect();
        match parts.get(self.own.random.below(parts.len().max(1) as u64) as usize) {
            Some(part) => vec![(Table::Item, owner_of(part.1)), *part],
            None => self.own.pick_some(true),
        }
    }

    /// Sends what commits the open versions.
    pub(super) fn commit(&mut self, through: bool, sql: &str) -> Outcome {
        self.own.begin();
        self.execute(through, sql)?;
        self.own.acknowledged();
        Ok(())
    }

    /// The same for statements that change rows, each a commit.
    fn commit_changes(&mut self, through: bool, statements: &[String]) -> Outcome {
        self.own.begin();
        self.change_all(through, statements)?;
        self.own.acknowledged();
        Ok(())
    }

    pub(super) fn single(&mut self, through: bool) -> Outcome {
        let key = self.own.pick();
        let change = self.own.write(key, through);
        let sql = statements(&change, &mut self.own.random);
        self.commit_changes(through, &sql)?;
        self.reread(through, &[change])
    }

    fn several(&mut self, through: bool) -> Outcome {
        let keys = if self.own.random.percent(30) { self.pick_pair() } else { self.own.pick_some(true) };
        let changes: Vec<_> = keys.into_iter().map(|key| self.own.write(key, through)).collect();
        if let Some(sql) = together(&changes) {
            self.commit_changes(through, &[sql])?;
        } else {
            self.execute(through, "begin")?;
            for change in &changes {
                let sql = statements(change, &mut self.own.random);
                self.change_all(through, &sql)?;
            }
            self.commit(through, "commit")?;
        }
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
        let line = &mut self.lines.through;
        let answer = if self.own.random.percent(50) { line.simple(&sql)? } else { line.execute_once(&sql, &[])? };
        self.own.check(&sql, answer, version, why);
        Ok(())
    }

    /// The same in an answer that another session has just been given: it does not hold this transaction's writes.
    fn expect_among_all(&mut self, (table, id): KeyId, version: Option<i32>) -> Outcome {
        let sql = format!("select id, grp, kind, ver from {}", name_of(table));
        // Time for the stream to pass what this session has read.
        self.own.random.nap(150);
        self.lines.aside.simple(&sql)?;
        let answer = self.lines.through.simple(&sql)?;
        self.own.check_among_all(&sql, answer, id, version);
        Ok(())
    }

    fn transaction(&mut self, through: bool) -> Outcome {
        let beginnings =
            ["begin", "start transaction", "start transaction with consistent snapshot", "set autocommit = 0"];
        let beginning = beginnings[self.own.random.below(beginnings.len() as u64) as usize];
        self.execute(through, beginning)?;
        let savepoints = self.own.random.percent(60);
        for key in self.own.pick_some(false) {
            self.step(key, through, savepoints)?;
        }
        if self.own.random.percent(20) {
            self.own.random.nap(300);
        }
        self.commit(through, "commit")?;
        if beginning.starts_with("set") {
            self.execute(through, "set autocommit = 1")?;
        }
        Ok(())
    }

    /// One key in a transaction.
    fn step(&mut self, key: KeyId, through: bool, savepoints: bool) -> Outcome {
        let (version, row) = self.own.stage.ledger().latest(key);
        let before = row.map(|_| version);
        if through && self.own.random.percent(50) {
            // Only while the transaction has written nothing can this come from the cache, and then an answer that is
            // right in a transaction of its own is right here. Its own earlier writes are acknowledged.
            self.peek(key)?;
        }
        // What is spoiled here would be spoiled in the house too.
        if savepoints && key.0 != Table::Kin && self.own.random.percent(60) {
            self.execute(through, "savepoint a")?;
            self.change(through, &spoil(key))?;
            if through && self.own.random.percent(50) {
                self.expect(key, before.map(|_| ROLLED_BACK), "written in this transaction")?;
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
        let sql = statements(&change, &mut self.own.random);
        self.change_all(through, &sql)?;
        if through && self.own.random.percent(15) {
            self.expect_among_all(key, change.row.map(|_| change.version))?;
        } else if through && self.own.random.percent(60) {
            self.expect(key, change.row.map(|_| change.version), "written in this transaction")?;
        }
        if savepoints && self.own.random.percent(50) {
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
        let key = self.own.pick();
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
        if self.own.random.percent(30) {
            let key = self.own.pick();
            if key.0 != Table::Kin {
                self.change(through, &spoil(key))?;
            }
            self.execute(through, &format!("xa end '{name}'"))?;
            if self.own.random.percent(60) {
                self.execute(through, &format!("xa prepare '{name}'"))?;
            }
            return self.execute(through, &format!("xa rollback '{name}'"));
        }
        for key in self.own.pick_some(false) {
            let change = self.own.write(key, through);
            let sql = statements(&change, &mut self.own.random);
            self.change_all(through, &sql)?;
        }
        self.execute(through, &format!("xa end '{name}'"))?;
        if self.own.random.percent(20) {
            return self.commit(through, &format!("xa commit '{name}' one phase"));
        }
        self.execute(through, &format!("xa prepare '{name}'"))?;
        self.own.random.nap(60);
        self.commit(through, &format!("xa commit '{name}'"))
    }

    /// Rows come from a file of the client.
    fn load(&mut self, through: bool) -> Outcome {
        let replace = self.own.random.percent(50);
        let mut keys = self.own.pick_some(true);
        keys.retain(|key| {
            let is_new = self.own.stage.ledger().latest(*key).1.is_none();
            key.0 != Table::Kin && (is_new || replace && key.0 != Table::Event)
        });
        let Some((table, _)) = keys.first().copied() else { return self.single(through) };
        let mut data = String::new();
        for key in keys {
            let row = self.own.next(table, None);
            let change = self.own.write_as(key, row, through);
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
        let Some((folder, leaves)) = self.own.pick_folder() else { return self.single(through) };
        for leaf in &leaves {
            self.own.write_as(*leaf, None, through);
        }
        self.commit_changes(through, &[format!("delete from cupboard where id = {folder}")])?;
        self.own.random.nap(30);
        self.execute(through, "begin")?;
        self.execute(through, &format!("insert into cupboard values ({folder})"))?;
        self.execute(through, &format!("insert into folder values ({folder})"))?;
        for leaf in leaves {
            let change = self.own.write(leaf, through);
            if let Some(row) = change.row {
                self.change_all(through, &inserts(leaf, row, change.version))?;
            }
        }
        self.commit(through, "commit")
    }

    /// Empties a table or a partition whose rows all belong to this writer, or exchanges the partition for another table.
    fn truncate(&mut self, through: bool) -> Outcome {
        let (table, kind) = if self.own.random.percent(50) { (Table::Event, Some(0)) } else { (Table::Note, None) };
        let keys = self.own.existing(table, kind);
        if keys.is_empty() {
            return self.single(through);
        }
        let exchange = table == Table::Event && self.own.random.percent(60);
        if exchange {
            self.execute(through, "truncate event_side")?;
        }
        for key in keys {
            let row = Row { grp: self.own.random.below(10) as i32, kind: kind.unwrap_or(0) };
            let stays = exchange && self.own.random.percent(60);
            let change = self.own.write_as(key, stays.then_some(row), through);
            if stays {
                let row = values(key, row, change.version);
                self.execute(through, &format!("insert into event_side (id, grp, kind, ver) values ({row})"))?;
            }
        }
        let sql = match table {
            Table::Event if exchange => "alter table event exchange partition p0 with table event_side",
            Table::Event => "alter table event truncate partition p0",
            _ if self.own.random.percent(30) => "delete from note",
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
