//! Writers whose connection was lost, or that lost a deadlock: the outcome of their last commits.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::writers::{Lines, Outcome, Writer};
use crate::stress::changes::{name_of, owner_of};
use crate::stress::ledger::Table;
use crate::stress::line::Trouble;
use crate::support::pace;

impl Writer<'_> {
    /// After a loss: whatever may still be done is waited for, then the database tells what was.
    pub(super) fn recover(&mut self) -> Result<()> {
        let Lines { direct, through, starts, .. } = &self.lines;
        let (backends, starts) = (format!("{}, {}", direct.backend, through.backend), *starts);
        // A connection that was not lost is closed by this, and ends its transaction.
        let end = Instant::now() + Duration::from_secs(30);
        while !self.own.stage.is_over() {
            let outcome = match Lines::open(self.own.stage, &mut self.own.random) {
                Ok(lines) => {
                    self.lines = lines;
                    // A restarted server has none of the old sessions.
                    let busy = if self.lines.starts == starts { backends.as_str() } else { "0" };
                    self.resolve(busy)
                }
                Err(trouble) => Err(trouble),
            };
            match outcome {
                Ok(true) => return Ok(()),
                Ok(false) => ensure!(Instant::now() < end, "the sessions {backends} do not end"),
                Err(Trouble::Lost(_)) => {}
                Err(error) => return Err(error.into()),
            }
            pace(Duration::from_millis(20));
        }
        Ok(())
    }

    /// After a deadlock or the like.
    pub(super) fn give_way(&mut self) -> Result<()> {
        let name = self.name.clone();
        let mut is_lost = false;
        for line in [&mut self.lines.direct, &mut self.lines.through] {
            for sql in [&format!("xa end '{name}'"), &format!("xa rollback '{name}'"), "rollback", "set autocommit = 1"]
            {
                match line.simple(sql) {
                    // In most cases there is no such transaction.
                    Ok(_) | Err(Trouble::Refused { .. }) => {}
                    Err(lost) => {
                        self.own.stage.survive(lost.into())?;
                        is_lost = true;
                    }
                }
            }
        }
        if is_lost {
            return self.recover();
        }
        match self.resolve("0") {
            Ok(done) => ensure!(done, "no other session is busy"),
            Err(trouble) => {
                self.own.stage.survive(trouble.into())?;
                self.recover()?;
            }
        }
        Ok(())
    }

    /// Whether it could be found out what was done.
    fn resolve(&mut self, backends: &str) -> Outcome<bool> {
        let line = &mut self.lines.direct;
        let busy = format!("select 1 from information_schema.processlist where id in ({backends})");
        if line.simple(&busy)?.rows(0).next().is_some() {
            return Ok(false);
        }
        match line.simple(&format!("xa rollback '{}'", self.name)) {
            Ok(_) | Err(Trouble::Refused { .. }) => {}
            Err(lost) => return Err(lost),
        }
        while let Some(key) = self.own.open.last().copied() {
            let (version, row) = self.own.stage.ledger().latest(key);
            let sql = format!("select ver from {} where id = {}", name_of(key.0), key.1);
            let rows = line.simple(&sql)?.sorted(0);
            let expected: Vec<_> = row.map(|_| vec![Some(version.into())]).into_iter().collect();
            // A key that was not there, and whose deletion was lost, is not there: that is done, too.
            self.own.stage.ledger().resolve(key, rows == expected);
            self.own.open.pop();
        }
        // A cascade may have ended halfway, and a house may exist without its owner.
        for (table, id) in &self.own.keys {
            let folder = owner_of(*id);
            let mends = match table {
                Table::Leaf => vec![
                    format!("insert ignore into cupboard values ({folder})"),
                    format!("insert ignore into folder values ({folder})"),
                ],
                Table::Kin => vec![format!("delete from house where id = {id} and id not in (select id from kin)")],
                _ => Vec::new(),
            };
            mends.iter().try_for_each(|sql| line.simple(sql).map(drop))?;
        }
        Ok(true)
    }
}
