//! Log positions and proofs that the services share with the sessions: the last proof, and the last transactions of the binlog.
//!
//! An application's account may not read the log end, nor what is visible, so a session cannot read them with its query as on PostgreSQL. Results
//! wait for the next log-end probe of a service connection ([`crate::shared::log_end`]). Service connections take proofs too, and the last one is
//! stored here for later fills.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshet_types::{Lsn, Visible};
use freshet_wire::mysql::track::Gtid;

/// Limit of stored transactions. A session looks for its own within milliseconds, and can do without.
const DELIVERED_MAX: usize = 8192;

/// The last transactions of the binlog, with their ends.
#[derive(Debug, Default)]
struct Delivered {
    ends: HashMap<Gtid, Lsn>,
    order: VecDeque<Gtid>,
}

/// Counts how often everything was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// The last proof, and the last transactions of the binlog that were delivered.
#[derive(Debug, Default)]
pub struct Ends {
    delivered: Mutex<Delivered>,
    proof: Mutex<(Generation, Option<Arc<Visible>>)>,
}

impl Ends {
    /// The last proof: any query sent from now on sees everything that it shows.
    pub(crate) fn proof(&self) -> Option<Arc<Visible>> {
        self.last().1.clone()
    }

    /// Must be read before a proof is requested.
    pub(crate) fn generation(&self) -> Generation {
        self.last().0
    }

    /// A proof was read from the stream's server, by a query sent in this generation.
    pub(crate) fn proven(&self, generation: Generation, proof: Arc<Visible>) {
        let mut last = self.last();
        if last.0 == generation {
            last.1 = Some(proof);
        }
    }

    /// There is no stream, or another one: nothing is proven. For a new stream this is called once its server is known, and before its epoch begins.
    pub fn forget(&self) {
        let mut last = self.last();
        *last = (Generation(last.0.0 + 1), None);
        drop(last);
        *self.groups() = Delivered::default();
    }

    /// The stream has delivered a transaction that ends at `end`, and its commit was applied.
    pub fn delivered(&self, gtid: Gtid, end: Lsn) {
        let mut groups = self.groups();
        if groups.ends.insert(gtid, end).is_some() {
            return;
        }
        groups.order.push_back(gtid);
        if groups.order.len() > DELIVERED_MAX
            && let Some(oldest) = groups.order.pop_front()
        {
            groups.ends.remove(&oldest);
        }
    }

    /// The end of the last of these transactions, if all of them are known to be delivered.
    pub(crate) fn end_of(&self, gtids: &[Gtid]) -> Option<Lsn> {
        let groups = self.groups();
        gtids.iter().try_fold(Lsn(0), |last, gtid| groups.ends.get(gtid).map(|end| last.max(*end)))
    }

    fn groups(&self) -> MutexGuard<'_, Delivered> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, (Generation, Option<Arc<Visible>>)> {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_groups_are_known() {
        let ends = Ends::default();
        let group = |number: u64| (7, number);
        (1..=DELIVERED_MAX as u64).for_each(|number| ends.delivered(group(number), Lsn(number * 10)));
        assert_eq!(ends.end_of(&[group(3), group(2)]), Some(Lsn(30)));
        assert_eq!(ends.end_of(&[group(3), (8, 3)]), None);
        // A repeated transaction adds nothing; a new one replaces the oldest.
        ends.delivered(group(3), Lsn(30));
        assert!(ends.end_of(&[group(1)]).is_some());
        ends.delivered(group(0), Lsn(90_000));
        assert_eq!((ends.end_of(&[group(1)]), ends.end_of(&[group(2)])), (None, Some(Lsn(20))));
        ends.forget();
        assert_eq!(ends.end_of(&[group(3)]), None);
    }

    #[test]
    fn a_proof_of_another_server_is_not_kept() {
        let ends = Ends::default();
        let proof = Arc::new(Visible::UpTo(Lsn(7)));
        let asked = ends.generation();
        ends.proven(asked, proof.clone());
        assert_eq!(ends.proof(), Some(proof.clone()));
        ends.forget();
        assert_eq!(ends.proof(), None);
        ends.proven(asked, proof);
        assert_eq!(ends.proof(), None);
    }
}
