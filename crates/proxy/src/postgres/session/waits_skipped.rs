//! Writes that are acknowledged at once ([`crate::session::commit_wait`]).

use freshet_sql::{Defines, Effect};

use crate::postgres::session::Session;
use crate::session::commit_wait::Touched;

impl Session {
    /// Something is about to be sent with this effect.
    pub(crate) fn note_defining(&mut self, effect: Effect, keeps_settings: bool) {
        // What keeps the settings for certain runs no code that could define anything.
        let may_define = effect > Effect::TransactionControl && !(effect == Effect::Write && keeps_settings);
        if may_define {
            self.definitions.note_sent(&self.shared.defining);
        }
    }

    /// All that was sent is acknowledged, and nothing of it can still commit.
    pub(crate) fn end_defining(&mut self) {
        let acknowledged = self.is_between_transactions() && !self.waiting.is_holding();
        if acknowledged {
            self.definitions.acknowledged();
        }
        // Nor is a definition visible as long as its transaction waits for its client.
        if acknowledged || (!self.transaction.is_idle() && self.pipeline.is_empty()) {
            self.definitions.none_becomes_visible();
        }
    }

    /// Whether what the statement defines is found by looking at the catalogue alone, and not told by the stream.
    pub(crate) fn is_looked_for(&self, defines: Defines) -> bool {
        match defines {
            Defines::Nothing => false,
            Defines::Told => !self.shared.catalog.load().ddl_in_stream && !self.is_of_other_database(),
            Defines::Untold => true,
        }
    }

    fn is_of_other_database(&self) -> bool {
        let stream = self.shared.identity();
        self.server.identity.as_ref().zip(stream).is_some_and(|(own, stream)| own.database != stream.database)
    }

    /// Something is about to be sent that may make a definition visible which is looked for. What others are answered from now on may show it
    /// before the catalogue has been looked at: it is no older than what they hit next only if that has been (`spec/definitions.py`).
    pub(crate) fn note_redefining(&mut self) {
        self.definitions.note_visible(&self.shared.redefining);
    }

    /// A definition may have been acknowledged: hits wait until the catalogue has been looked at.
    pub(crate) fn fence_catalog(&self) {
        self.shared.cache.fence_catalog(self.now());
        self.shared.want_catalog();
    }

    /// What the client was told may show a definition that has not been looked for since.
    pub(crate) fn lacks_look(&self) -> bool {
        self.watermark.get().catalog_since > self.shared.cache.catalog_as_of()
    }

    /// Whether a transaction that touched this needs no holding, as far as can be told now.
    pub(crate) fn check_free(&mut self, touched: &Touched) -> bool {
        matches!(self.server.compare(&self.shared), Some(Ok(()))) && self.shared.is_free(touched)
    }

    /// What the transaction has touched that the last unit ends, all of it.
    pub(crate) fn touched_with(&self, unit: &Touched) -> Touched {
        let mut touched = self.transaction.block().map(|block| block.touched().clone()).unwrap_or_default();
        touched.join(unit);
        touched
    }
}
