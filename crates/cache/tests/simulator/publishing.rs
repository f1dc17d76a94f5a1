//! Publishing: adds tables to the publication in batches and waits for transactions that may have written before.

use freshet_types::Epoch;

use crate::database::{TABLES, table_id};
use crate::set::TxnSet;
use crate::world::{Event, MS, World};

pub(crate) enum Publishing {
    Idle,
    Barrier(Epoch, Vec<usize>, TxnSet),
    Answer(Epoch, Vec<usize>),
}

impl World {
    /// Adds tables to the publication in batches, waits for the barrier, publishes them; sometimes removes one.
    pub(crate) fn publish(&mut self) {
        let delay = self.publication_rng.between(1, 30) * MS;
        let epoch = self.cache.epoch();
        self.publishing = match std::mem::replace(&mut self.publishing, Publishing::Idle) {
            Publishing::Barrier(e, tables, holders) if self.db.running().is_disjoint(&holders) => {
                Publishing::Answer(e, tables)
            }
            Publishing::Answer(e, tables) => {
                let ids: Vec<_> = tables.iter().map(|t| table_id(*t)).collect();
                self.cache.publish(e, &ids);
                if epoch == Some(e) { self.barrier(e) } else { Publishing::Idle }
            }
            Publishing::Idle => match epoch {
                Some(epoch) if !self.quiet() && self.publication_rng.below(100) == 0 => {
                    let table = self.publication_rng.below(TABLES as u64) as usize;
                    self.cache.unpublish(&[table_id(table)]);
                    self.db.published[table] = false;
                    self.barrier(epoch)
                }
                Some(epoch) => self.barrier(epoch),
                None => Publishing::Idle,
            },
            waiting @ Publishing::Barrier(..) => waiting,
        };
        self.after(delay, Event::Publishing);
    }

    fn barrier(&mut self, epoch: Epoch) -> Publishing {
        let mut tables: Vec<usize> = (0..TABLES).filter(|t| !self.cache.is_published(table_id(*t))).collect();
        if tables.is_empty() || (!self.quiet() && self.publication_rng.percent(70)) {
            return Publishing::Idle;
        }
        tables.truncate(self.publication_rng.between(1, TABLES as u64) as usize);
        for table in &tables {
            self.db.published[*table] = true;
        }
        let mut holders = TxnSet::default();
        for table in &tables {
            holders.add(&self.db.writers(*table));
        }
        Publishing::Barrier(epoch, tables, holders)
    }
}
