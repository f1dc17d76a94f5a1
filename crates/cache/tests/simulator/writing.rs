//! Writers: transactions whose commits are logged, flushed, visible and acknowledged in separate steps.
//!
//! An acknowledgement waits until the stream has passed a log end that was read after the commit, or until a time limit; then a fence is set first.
//! There is no wait if no entry depends on the tables that the transaction wrote to.

use freshet_types::{End, Nanos};

use crate::database::TxnId;
use crate::world::{Event, MS, World};

const HOLD_MAX: Nanos = 20 * MS;

impl World {
    pub(crate) fn writer(&mut self, writer: usize) {
        let quiet = self.quiet();
        let (rng, txn, writes) = &mut self.writers[writer];
        let Some(open) = *txn else {
            if !quiet {
                *writes = rng.between(1, 4);
                *txn = Some(self.db.begin());
                let delay = rng.between(0, 5) * MS;
                self.after(delay, Event::Writer(writer));
            }
            return;
        };
        if *writes > 0 {
            *writes -= 1;
            self.db.write(open, rng);
            let delay = if rng.percent(5) { rng.between(0, 600) } else { rng.between(0, 20) } * MS;
            let last = *writes == 0;
            if last && self.rules.free_too_early && !self.around && self.is_free(open) {
                self.wait_skipped.insert(open);
            }
            self.after(delay, Event::Writer(writer));
            return;
        }
        *txn = None;
        let pause = rng.between(0, if self.calm { 500 } else { 60 }) * MS;
        if rng.percent(5) {
            self.db.abort(open);
            self.after(pause, Event::Writer(writer));
            return;
        }
        self.db.log_commit(open);
        // With synchronous_commit=off a commit is visible before it is flushed; a synchronous standby may delay it for long.
        let (flush, visible) = if rng.percent(20) {
            (rng.between(1, 300) * MS, rng.between(0, 20) * MS / 10)
        } else {
            let flush = rng.between(1, 20) * MS / 10;
            let wait = match rng.below(100) {
                0..60 => rng.between(0, 10) * MS / 10,
                60..95 if self.calm => rng.between(0, 10) * MS,
                60..95 => rng.between(0, 60) * MS,
                _ if self.calm => 0,
                _ => rng.between(0, 2500) * MS,
            };
            (flush, flush + wait)
        };
        let answer = visible + rng.between(0, 10) * MS / 10;
        let end = self.db.insert;
        self.after(flush, Event::Flush(end));
        self.after(visible, Event::Visible(open));
        if !self.around {
            self.after(answer, Event::WriteEnd(open));
        }
        self.after(visible + pause, Event::Writer(writer));
    }

    /// Whether no entry depends on the tables that the transaction wrote to, as far as the catalogue shows.
    fn is_free(&self, txn: TxnId) -> bool {
        let is_free = |version| self.cache.is_free_of(&self.db.tables_of(txn), version);
        !self.db.txns[txn].redefines && self.catalog.is_some_and(|(version, _)| is_free(version))
    }

    /// The commit was answered: the log end is read after it, if it needs a commit wait.
    pub(crate) fn write_end(&mut self, txn: TxnId) {
        if self.wait_skipped.contains(txn) || self.is_free(txn) {
            self.stats.wait_skipped += 1;
            self.acknowledged.insert(txn);
            return;
        }
        let lsn = if self.rules.flushed_end { self.db.flushed } else { self.db.insert };
        let end = self.cache.epoch().map(|epoch| End { epoch, lsn });
        let delay = self.round_trip();
        self.after(delay, Event::Hold(txn, end, self.now + delay + HOLD_MAX));
    }

    pub(crate) fn hold(&mut self, txn: TxnId, end: Option<End>, until: Nanos) {
        // Without a stream nothing is served, and reads under a later stream see the write.
        let Some(end) = end.filter(|end| !self.cache.has_passed(*end)) else {
            self.acknowledged.insert(txn);
            return;
        };
        if !self.rules.no_commit_wait {
            if self.now < until {
                self.after(MS, Event::Hold(txn, Some(end), until));
                return;
            }
            self.stats.fences += 1;
            match self.rng.below(3) {
                0 => self.cache.fence(Some(&self.db.tables_of(txn)), end),
                1 => self.cache.fence(None, end),
                _ => self.cache.fence_since(self.now),
            }
        }
        self.acknowledged.insert(txn);
    }
}
