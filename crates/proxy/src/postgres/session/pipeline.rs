//! The answers that the server still has to give, in order: one [`Unit`] for each `ReadyForQuery`.
//!
//! It counts the units that are not pure, so that a look-up knows at once whether a unit before it may write, or open a transaction.

use std::collections::VecDeque;

use freshet_types::Nanos;

use crate::postgres::session::unit::{Ask, ClientUnit, Kind, Unit};

/// The units.
#[derive(Debug)]
pub(super) struct Pipeline {
    units: VecDeque<Unit>,
    /// How many of the client's units are not pure.
    impure: usize,
    /// The server, in COPY mode, ignores the next `Sync`.
    absorbs_sync: bool,
}

impl Pipeline {
    /// At the start of a session: the start-up is a unit of the client, and ends with the first `ReadyForQuery`.
    pub(super) fn new(kind: Kind) -> Self {
        let mut pipeline = Self::empty();
        pipeline.push(Unit::Client(ClientUnit::new(kind, false)));
        pipeline
    }

    /// At the start of a session that somebody else has begun.
    pub(super) fn empty() -> Self {
        Self { units: VecDeque::new(), impure: 0, absorbs_sync: false }
    }

    // --- the queue -----------------------------------------------------------------------------------------

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The unit that is answered next.
    pub(super) fn front(&self) -> Option<&Unit> {
        self.units.front()
    }

    /// The time limit of the unit that the server answers now.
    pub(super) fn next_timeout(&self) -> Option<Nanos> {
        match self.units.iter().find(|unit| !matches!(unit, Unit::Unseen { .. }))? {
            Unit::Client(unit) => unit.timeout,
            Unit::Own { .. } | Unit::Unseen { .. } => None,
        }
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Unit> {
        self.units.front_mut()
    }

    /// The unit after that.
    pub(super) fn second(&self) -> Option<&Unit> {
        self.units.get(1)
    }

    /// The unit that was opened last.
    pub(super) fn back(&self) -> Option<&Unit> {
        self.units.back()
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut Unit> {
        self.units.back_mut()
    }

    /// The client's units, the one that is answered next first.
    pub(super) fn client_units(&self) -> impl Iterator<Item = &ClientUnit> {
        self.units.iter().filter_map(|unit| match unit {
            Unit::Client(unit) => Some(unit),
            Unit::Own { .. } | Unit::Unseen { .. } => None,
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Unit> {
        self.units.iter_mut()
    }

    /// Adds a unit.
    pub(super) fn push(&mut self, unit: Unit) {
        self.impure += usize::from(is_impure(&unit));
        self.units.push_back(unit);
    }

    /// Adds a unit for a query of Freshet's own.
    pub(super) fn push_own(&mut self, ask: Ask) {
        self.push(Unit::own(ask));
    }

    /// The first unit has been answered.
    pub(super) fn pop_front(&mut self) -> Option<Unit> {
        let unit = self.units.pop_front();
        self.forget(unit.as_ref());
        unit
    }

    /// Removes the unit that was opened last.
    pub(super) fn pop_back(&mut self) -> Option<Unit> {
        let unit = self.units.pop_back();
        self.forget(unit.as_ref());
        unit
    }

    /// The unit after the first is not answered.
    pub(super) fn remove_second(&mut self) {
        let unit = self.units.remove(1);
        self.forget(unit.as_ref());
    }

    /// The number of answers after the first unit is unknown.
    pub(super) fn keep_first(&mut self) {
        self.units.truncate(1);
        self.impure = self.units.iter().filter(|unit| is_impure(unit)).count();
    }

    fn forget(&mut self, unit: Option<&Unit>) {
        self.impure -= usize::from(unit.is_some_and(is_impure));
    }

    // --- purity --------------------------------------------------------------------------------------------

    /// Whether no unit can write or change the session.
    pub(super) fn is_pure(&self) -> bool {
        self.impure == 0
    }

    /// Whether no unit but the last one can.
    pub(super) fn is_pure_before_last(&self) -> bool {
        self.impure == usize::from(self.units.back().is_some_and(is_impure))
    }

    /// Whether no unit of the client precedes the last one.
    pub(super) fn last_is_first_of_client(&self) -> bool {
        !self.units.iter().rev().skip(1).any(|unit| matches!(unit, Unit::Client(_)))
    }

    /// The last unit may write or change the session.
    pub(super) fn taint_last(&mut self) {
        if let Some(Unit::Client(unit)) = self.units.back_mut() {
            self.impure += usize::from(unit.taint());
        }
    }

    /// The batches may have executed other statements than expected: returns their number.
    pub(super) fn misread_batches(&mut self) -> usize {
        let mut misread = 0;
        for unit in self.units.iter_mut().filter_map(Unit::as_client).filter(|unit| unit.kind == Kind::Batch) {
            unit.fills.results.clear();
            unit.effects.tells = true;
            unit.effects.forgets = true;
            misread += 1;
            self.impure += usize::from(unit.taint());
        }
        misread
    }

    // --- COPY ----------------------------------------------------------------------------------------------

    /// The server ignores the next `Sync`, which ends the data of a COPY in the extended protocol.
    pub(super) fn absorb_sync(&mut self) {
        self.absorbs_sync = true;
    }

    /// Whether the server ignores a `Sync` that is sent now.
    pub(super) fn take_absorbed_sync(&mut self) -> bool {
        std::mem::take(&mut self.absorbs_sync)
    }
}

fn is_impure(unit: &Unit) -> bool {
    matches!(unit, Unit::Client(unit) if !unit.is_pure())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_are_not_pure_are_counted() {
        let mut pipeline = Pipeline::new(Kind::Startup);
        assert!(!pipeline.is_pure() && pipeline.is_pure_before_last());
        pipeline.push(Unit::Client(ClientUnit::new(Kind::Batch, true)));
        assert!(!pipeline.is_pure_before_last());
        pipeline.pop_front();
        assert!(pipeline.is_pure());
        pipeline.push_own(Ask::End);
        pipeline.taint_last();
        assert!(pipeline.is_pure());
        assert_eq!(pipeline.misread_batches(), 1);
        assert_eq!((pipeline.misread_batches(), pipeline.is_pure()), (1, false));
        pipeline.push(Unit::Client(ClientUnit::new(Kind::Query, true)));
        pipeline.taint_last();
        pipeline.taint_last();
        pipeline.pop_back();
        pipeline.keep_first();
        pipeline.pop_front();
        assert!(pipeline.is_pure() && pipeline.is_empty());
    }
}
