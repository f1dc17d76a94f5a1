//! Writes that are acknowledged at once ([`crate::unheld`]).

use freshet_sql::Effect;

use crate::pg::session::Session;
use crate::unheld::{Counted, Touched};

impl Session {
    /// Something is about to be sent with this effect.
    pub(crate) fn note_defining(&mut self, effect: Effect, keeps_settings: bool) {
        // What keeps the settings for certain runs no code that could define anything.
        let may_define = effect > Effect::TransactionControl && !(effect == Effect::Write && keeps_settings);
        if may_define && self.defining.is_none() {
            self.defining = Some(Counted::new(&self.shared.defining));
        }
    }

    /// All that was sent is acknowledged, and nothing of it can still commit.
    pub(crate) fn end_defining(&mut self) {
        if self.defining.is_some() && self.is_between_transactions() && !self.waiting.is_holding() {
            self.defining = None;
        }
    }

    /// Whether a transaction that touched this needs no holding, as far as can be told now.
    pub(crate) fn is_free(&mut self, touched: &Touched) -> bool {
        matches!(self.compare_server(), Some(Ok(()))) && self.shared.is_free(touched)
    }

    /// What the transaction has touched that the last unit ends, all of it.
    pub(crate) fn touched_with(&self, unit: &Touched) -> Touched {
        let mut touched = self.block.as_ref().map(|block| block.touched.clone()).unwrap_or_default();
        touched.join(unit);
        touched
    }
}
