//! Writes without a commit wait ([`crate::session::commit_wait`]).

use freshet_sql::{Defines, Effect};

use crate::postgres::session::Session;
use crate::session::commit_wait::Touched;

impl Session {
    /// A statement with this effect is about to be sent.
    pub(crate) fn note_defining(&mut self, effect: Effect, keeps_settings: bool) {
        // A statement that certainly keeps the settings runs no code that could define anything.
        let may_define = effect > Effect::TransactionControl && !(effect == Effect::Write && keeps_settings);
        if may_define {
            self.definitions.note_sent(&self.shared.defining);
        }
    }

    /// All statements sent are acknowledged, and none of them can still commit.
    pub(crate) fn end_defining(&mut self) {
        let acknowledged = self.is_between_transactions() && !self.waiting.is_in_commit_wait();
        if acknowledged {
            self.definitions.acknowledged();
        }
        // Nor is a definition visible as long as its transaction waits for the client.
        if acknowledged || (!self.transaction.is_idle() && self.pipeline.is_empty()) {
            self.definitions.none_becomes_visible();
        }
    }

    /// Whether only a check of the catalogue finds what the statement defines, and the stream does not show it.
    pub(crate) fn is_looked_for(&self, defines: Defines) -> bool {
        match defines {
            Defines::Nothing => false,
            Defines::Told => !self.shared.catalog.load().ddl_in_stream && !self.is_of_other_database(),
            Defines::Untold | Defines::Unused => true,
        }
    }

    fn is_of_other_database(&self) -> bool {
        let stream = self.shared.identity();
        self.server.identity.as_ref().zip(stream).is_some_and(|(own, stream)| own.database != stream.database)
    }

    /// A statement is about to be sent that may make such a definition visible. From now on, other sessions' answers may show it before the catalogue
    /// has been checked. Their next hits are as new only after that check (`spec/definitions.py`).
    pub(crate) fn note_redefining(&mut self) {
        self.definitions.note_visible(&self.shared.redefining);
    }

    /// A definition may have been acknowledged: hits wait until the catalogue has been checked.
    pub(crate) fn fence_catalog(&self) {
        self.shared.cache.fence_catalog(self.now());
        self.shared.want_catalog();
    }

    /// Whether the client's answers may show a definition, and the catalogue has not been checked since.
    pub(crate) fn lacks_look(&self) -> bool {
        self.watermark.get().catalog_since > self.shared.cache.catalog_as_of()
    }

    /// Whether a transaction that touched this needs no commit wait, as far as is known now.
    pub(crate) fn check_wait_skipped(&mut self, touched: &Touched) -> bool {
        matches!(self.server.compare(&self.shared), Some(Ok(()))) && self.shared.may_skip_commit_wait(touched)
    }

    /// All that the transaction has touched which the last unit ends.
    pub(crate) fn touched_with(&self, unit: &Touched) -> Touched {
        let mut touched = self.transaction.block().map(|block| block.touched().clone()).unwrap_or_default();
        touched.join(unit);
        touched
    }
}
