//! The values of types with effects that a statement reads (`allowlist/type_effects.rs`).

use std::sync::Arc;

use freshet_types::{Reason, TypeEffect};

use crate::analyze::Walk;

impl Walk<'_> {
    /// The effects that parameters and constants may still cause; an error if a value that the statement reads or creates causes one.
    pub(crate) fn type_effects(&self) -> Result<Vec<Arc<TypeEffect>>, Reason> {
        let mut left = Vec::new();
        for effect in self.context.catalog.type_effects.iter().filter(|effect| self.handled.asks_for(effect)) {
            let mut rows = self.found.references.iter();
            let mut definitions = self.found.definitions.iter();
            let read = rows.any(|reference| self.handled.reads(effect, &reference.table, &reference.columns))
                || definitions.any(|relation| self.handled.reads(effect, relation, &self.mentioned.of(relation)));
            if read || self.handled.makes(effect) {
                return Err(effect.reason.clone());
            }
            left.push(effect.clone());
        }
        Ok(left)
    }
}
