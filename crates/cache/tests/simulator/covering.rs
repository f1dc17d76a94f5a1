//! Coverage: adds tables to the publication in batches and waits for those who may have written before.

use freshet_types::Epoch;

use crate::database::{TABLES, table_id};
use crate::set::TxnSet;
use crate::world::{Event, MS, World};

pub(crate) enum Coverage {
    Idle,
    Barrier(Epoch, Vec<usize>, TxnSet),
    Answer(Epoch, Vec<usize>),
}

impl World {
    /// Adds tables to the publication in batches, waits for the barrier, covers; sometimes takes one out again.
    pub(crate) fn cover(&mut self) {
        let delay = self.coverage_rng.between(1, 30) * MS;
        let epoch = self.cache.epoch();
        self.coverage = match std::mem::replace(&mut self.coverage, Coverage::Idle) {
            Coverage::Barrier(e, tables, holders) if self.db.running().is_disjoint(&holders) => {
                Coverage::Answer(e, tables)
            }
            Coverage::Answer(e, tables) => {
                let ids: Vec<_> = tables.iter().map(|t| table_id(*t)).collect();
                self.cache.cover(e, &ids);
                if epoch == Some(e) { self.barrier(e) } else { Coverage::Idle }
            }
            Coverage::Idle => match epoch {
                Some(epoch) if !self.quiet() && self.coverage_rng.below(100) == 0 => {
                    let table = self.coverage_rng.below(TABLES as u64) as usize;
                    self.cache.uncover(&[table_id(table)]);
                    self.db.published[table] = false;
                    self.barrier(epoch)
                }
                Some(epoch) => self.barrier(epoch),
                None => Coverage::Idle,
            },
            waiting @ Coverage::Barrier(..) => waiting,
        };
        self.after(delay, Event::Coverage);
    }

    fn barrier(&mut self, epoch: Epoch) -> Coverage {
        let mut tables: Vec<usize> = (0..TABLES).filter(|t| !self.cache.is_covered(table_id(*t))).collect();
        if tables.is_empty() || (!self.quiet() && self.coverage_rng.percent(70)) {
            return Coverage::Idle;
        }
        tables.truncate(self.coverage_rng.between(1, TABLES as u64) as usize);
        for table in &tables {
            self.db.published[*table] = true;
        }
        let mut holders = TxnSet::default();
        for table in &tables {
            holders.add(&self.db.writers(*table));
        }
        Coverage::Barrier(epoch, tables, holders)
    }
}
