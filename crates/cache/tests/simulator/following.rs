//! The stream: slots that are created and dropped, breaks after which the same slot continues from its confirmed position, and a process that dies
//! and starts again with its slot.

use std::sync::Arc;

use freshet_cache::Cache;
use freshet_types::{ChangeSet, Commit, Epoch, Lsn};

use crate::database::{TABLES, table_id};
use crate::oracle::Violation;
use crate::publishing::Publishing;
use crate::set::TxnSet;
use crate::world::{Event, MS, World};

pub(crate) enum Link {
    Down,
    /// A slot is being created: it waits for these transactions.
    Waiting(TxnSet),
    /// The slot begins behind this many commits of the log, of which some may not be visible.
    Exported(usize),
    Up(Epoch),
    /// The connection broke; the slot exists.
    Suspended(Epoch),
}

impl World {
    pub(crate) fn stream(&mut self) -> Result<(), Violation> {
        let (quiet, now) = (self.quiet(), self.now);
        let pause = self.stream_rng.between(1, 60) * MS / 10;
        self.after(pause, Event::Stream);
        match &self.link {
            Link::Down => {
                if quiet || self.stream_rng.percent(5) {
                    self.link = Link::Waiting(self.db.running());
                }
            }
            Link::Waiting(running) => {
                if self.db.running().is_disjoint(running) {
                    self.db.flushed = self.db.insert;
                    self.link = Link::Exported(self.db.log.len());
                }
            }
            Link::Exported(upto) => {
                let upto = *upto;
                if self.db.log[..upto].iter().all(|txn| self.db.visible_set.contains(*txn)) {
                    return self.new_slot(upto);
                }
            }
            Link::Suspended(epoch) => {
                let epoch = *epoch;
                if self.stream_rng.below(100) == 0 {
                    self.link = Link::Waiting(self.db.running()); // the slot was dropped meanwhile
                    self.publishing = Publishing::Idle;
                } else if quiet || self.stream_rng.percent(2) {
                    self.resume(epoch)?;
                }
            }
            Link::Up(_) if !quiet && self.stream_rng.below(3000 * self.steadiness) == 0 => {
                self.cache.disconnected();
                self.link = Link::Down;
                self.publishing = Publishing::Idle;
            }
            Link::Up(epoch) if !quiet && self.stream_rng.below(600 * self.steadiness) == 0 => {
                let epoch = *epoch;
                self.cache.suspended();
                self.link = Link::Suspended(epoch);
            }
            Link::Up(_) if !quiet && self.stream_rng.below(2000 * self.steadiness) == 0 => self.restart(),
            Link::Up(_) if !quiet && self.stream_rng.below(400 * self.steadiness) == 0 => {
                self.stalled_until = now + self.stream_rng.between(1, 2000) * MS;
            }
            Link::Up(_) if now < self.stalled_until => {}
            Link::Up(_) => return self.go_on(),
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), Violation> {
        for _ in 0..self.stream_rng.between(0, 4) {
            if self.deliver() {
                self.oracle.check_entries(self.now, &self.db, &self.cache)?;
            }
        }
        if self.stream_rng.percent(5) {
            self.cache.validate();
        }
        if self.stream_rng.percent(10) {
            let applied = self.cache.levels(self.now).applied.map(|end| end.lsn);
            let upto = if self.rules.confirms_all { applied } else { self.cache.confirmable() };
            self.confirmed = upto.map_or(self.confirmed, |lsn| lsn.max(self.confirmed));
        }
        Ok(())
    }

    /// Everything that the new slot will never deliver is visible: the epoch begins.
    fn new_slot(&mut self, upto: usize) -> Result<(), Violation> {
        let epoch = self.cache.connected();
        self.catalog = None;
        self.stats.epochs += 1;
        self.delivered = upto;
        self.confirmed = upto.checked_sub(1).map_or(Lsn(0), |last| self.db.txns[self.db.log[last]].end);
        self.oracle.pass(&self.db, self.delivered);
        self.publishing = Publishing::Idle;
        self.link = Link::Up(epoch);
        self.oracle.check_entries(self.now, &self.db, &self.cache)
    }

    /// The same slot continues from the passed position, or from an older one, and then delivers commits again.
    fn resume(&mut self, epoch: Epoch) -> Result<(), Violation> {
        if !self.cache.resumed(epoch) {
            return Err(Violation::new(self.now, "the slot goes on, but its epoch has ended".to_owned()));
        }
        self.stats.resumed += 1;
        if self.stream_rng.percent(50) {
            self.delivered = self.db.logged_up_to(self.confirmed);
        }
        self.link = Link::Up(epoch);
        self.oracle.check_entries(self.now, &self.db, &self.cache)
    }

    /// The process dies with all its connections; a new one continues with the slot.
    fn restart(&mut self) {
        let published: Vec<_> = (0..TABLES).map(table_id).filter(|table| self.cache.is_published(*table)).collect();
        self.cache = Arc::new(Cache::new(self.cache.limits(), self.rules.faults));
        let epoch = self.cache.connected();
        // The slot has had all writes to these tables for a long time.
        self.cache.publish(epoch, &published);
        self.stats.restarts += 1;
        self.begin_life();
        self.delivered = self.db.logged_up_to(self.confirmed);
        self.oracle.restart(&self.db, self.delivered);
        self.publishing = Publishing::Idle;
        self.link = Link::Up(epoch);
    }

    /// Delivers the next flushed commit (true), or else a keepalive.
    fn deliver(&mut self) -> bool {
        let next = self.db.log.get(self.delivered).copied();
        let Some(txn) = next.filter(|txn| self.db.txns[*txn].end <= self.db.flushed) else {
            self.cache.advance(self.db.flushed);
            return false;
        };
        self.delivered += 1;
        if self.delivered > self.oracle.passed() {
            self.oracle.pass(&self.db, self.delivered);
        }
        let t = &self.db.txns[txn];
        let everything = self.stream_rng.percent(1);
        let changes = if everything { ChangeSet::Everything } else { ChangeSet::Rows(t.published.clone()) };
        if changes.is_empty() && self.stream_rng.percent(50) {
            self.cache.advance(t.end);
        } else {
            self.cache.apply(Commit { id: self.db.commit_id(txn), end: t.end, changes, redefines: t.redefines });
        }
        true
    }
}
