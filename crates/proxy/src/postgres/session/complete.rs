//! Complete answers that are cached once the log end after them is known.

use std::sync::Arc;

use freshet_types::{Nanos, Visible};
use freshet_wire::postgres::backend;

use crate::postgres::session::Session;
use crate::postgres::session::unit::{Answer, Fill, Unit};
use crate::session::body::Body;
use crate::session::fill::{PendingFill, Read, Reading};

/// The answers, and the proof that was read before them.
#[derive(Debug, Default)]
pub(super) struct CompleteFills {
    fills: Vec<Fill>,
    /// The last proof that was read, for the fills of the next unit.
    proof: Option<Visible>,
}

impl CompleteFills {
    pub(super) fn is_empty(&self) -> bool {
        self.fills.is_empty()
    }

    /// When the first of their queries was sent.
    pub(super) fn started(&self) -> Option<Nanos> {
        self.fills.iter().map(|fill| fill.stage.started).min()
    }

    /// A unit has been answered: answers that were complete before are given up.
    pub(super) fn begin(&mut self) {
        self.fills.clear();
    }

    /// Adds answers that waited for the end of their block.
    pub(super) fn append(&mut self, fills: &mut Vec<Fill>) {
        self.fills.append(fills);
    }

    /// Adds answers of one unit.
    pub(super) fn extend(&mut self, fills: Vec<Option<Fill>>) {
        self.fills.extend(fills.into_iter().flatten().filter(Fill::is_complete));
    }

    /// A proof was read; None if it could not be read.
    pub(super) fn set_proof(&mut self, proof: Option<Visible>) {
        self.proof = proof;
    }

    /// Gives the answers up.
    pub(super) fn discard(&mut self) {
        self.proof = None;
        self.fills.clear();
    }

    /// The complete results, with the proof that was read before them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = PendingFill<Read>> {
        let proof = self.proof.take().map(Arc::new);
        self.fills.drain(..).map(move |fill| {
            let PendingFill { permit, mut join_keys, expected, stage, .. } = fill;
            let Reading { source, frames, started, answer } = stage;
            let Answer { shown, moving, took, .. } = answer;
            let told = shown.map(|shown| shown.tags(&frames, join_keys.as_deref_mut()));
            let reached = moving.and_then(|moving| moving.reached(&frames));
            let rows = backend::rows_of(&frames);
            source.query.figures.results.answered(rows, 0);
            let mut body = Body::new((rows, frames), source, (started, took));
            body.reached = reached;
            let stage = Read { told, body, refreshed: false };
            PendingFill { permit, join_keys, proof: proof.clone(), expected, stage }
        })
    }
}

impl Session {
    /// Whether answers are to be cached and the client does not read them, or what precedes them.
    pub(crate) fn stalled_fills(&mut self) -> impl Iterator<Item = &mut Option<Fill>> {
        let units = self.pipeline.iter_mut().take_while(|_| self.client.is_high());
        let fills =
            units.filter_map(|unit| if let Unit::Client(unit) = unit { Some(&mut unit.fills.results) } else { None });
        fills.flatten().filter(|fill| fill.is_some())
    }
}
