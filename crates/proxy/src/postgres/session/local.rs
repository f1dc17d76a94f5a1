//! Settings that a transaction block changes for itself, as PostgREST and applications with tenants do:
//! `BEGIN; SELECT set_config('role', 'anon', true), set_config('request.jwt.claims', '…', true); SELECT …; COMMIT`.
//!
//! The context is asked for behind them, so that the reads of the block are looked up under what is in force there: at once behind a query, behind `SET LOCAL`
//! (where the level can still be changed) ahead of the next read. The question must not fail, since that would abort the block. So it names no relation, and is asked in
//! READ COMMITTED only, where it leaves no snapshot to later statements. The earlier context is in force again when the block ends, whatever way it does. Where that is
//! not certain (savepoints, other settings) the rest of the block passes.

use std::sync::Arc;

use freshet_sql::{Effect, Isolation};
use freshet_types::CatalogVersion;

use crate::postgres::question::{Answer, IdleMax};
use crate::postgres::session::mark::Locally;
use crate::postgres::session::unit::Ask;
use crate::postgres::session::{Known, Session};
use crate::session::context::Context;

/// What is in force again when a block ends.
#[derive(Debug)]
pub(crate) struct Outer {
    context: Arc<Context>,
    under: CatalogVersion,
    named: Option<Box<[u8]>>,
    idle_max: IdleMax,
}

impl Session {
    /// The last unit changes settings for the open block alone. False: it is not known what they are then.
    pub(crate) fn sets_locally(&mut self, effect: Effect, locally: Locally) -> bool {
        if self.last_unit().effects.locally != Locally::Nothing {
            return true;
        }
        let settings = &self.server.settings;
        let follows = effect == Effect::Settings
            && self.pipeline.last_is_first_of_client()
            && settings.temporary.is_some()
            && self.shared.named.may_ask_in_blocks();
        let Some(block) = self.transaction.block_mut().filter(|block| follows && block.reads_committed()) else {
            return false;
        };
        match (&settings.known, block.has_local_settings()) {
            (Known::Context(context, under), is_again) => {
                let (named, idle_max) = (settings.named.clone(), settings.idle_max);
                let outer = Outer { context: context.clone(), under: *under, named, idle_max };
                self.server.statements.settings_may_change(Some(outer.context.id));
                if !is_again {
                    *block.outer_mut() = Some(Box::new(outer));
                }
            }
            // Not asked for yet, behind another of its kind.
            (Known::Nothing, true) => self.server.statements.settings_may_change(None),
            _ => return false,
        }
        (self.server.settings.known, self.server.settings.named) = (Known::Nothing, None);
        self.last_unit().effects.locally = locally;
        self.pipeline.taint_last();
        true
    }

    /// Asks for the context in a block that has changed it for itself.
    pub(crate) fn ask_local(&mut self) {
        self.waiting.looked();
        self.server.settings.known = Known::Asked { again: false };
        self.server.settings.asked_under = self.shared.catalog_version();
        self.ask(Ask::Local);
    }

    /// The answer; None: it failed, as it does behind a statement that has.
    pub(crate) fn local_known(&mut self, answer: Option<Answer>) {
        let isolation = answer.as_ref().map(|answer| answer.isolation);
        self.server.local_known(answer, &self.shared);
        let is_known = matches!(self.server.settings.known, Known::Context(..));
        if !(is_known && isolation == Some(Some(Isolation::ReadCommitted))) {
            self.lose_outer();
        }
    }

    /// What is in force is not known any more, nor what will be when the block ends.
    pub(crate) fn lose_outer(&mut self) {
        if let Some(block) = self.transaction.block_mut().filter(|block| block.has_local_settings()) {
            block.unsettle();
            self.settings_may_change();
        }
    }

    /// The block has ended.
    pub(crate) fn restore_outer(&mut self) {
        let Some(outer) = self.transaction.block_mut().and_then(|block| block.outer_mut().take()) else { return };
        let stays = stay(outer.named.as_deref(), self.server.settings.named.as_deref());
        self.settings_may_change();
        if !stays {
            return;
        }
        let settings = &mut self.server.settings;
        settings.known = Known::Context(outer.context, outer.under);
        (settings.named, settings.idle_max) = (outer.named, outer.idle_max);
    }
}

/// Whether no setting came to be within the block: that of an application which there was not before is empty behind it. Hashes, `-` for none; None: the
/// block has not asked for them.
fn stay(outer: Option<&[u8]>, local: Option<&[u8]>) -> bool {
    let split = |named: &'_ [u8]| -> Vec<Vec<u8>> { named.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect() };
    let mut local = local.map(split).unwrap_or_default().into_iter();
    outer.map(split).unwrap_or_default().iter().all(|outer| {
        let is_undefined = local.next().is_some_and(|local| local == b"-");
        outer != b"-" || is_undefined
    })
}
