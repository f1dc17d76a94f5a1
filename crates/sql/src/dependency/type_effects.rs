//! Parameters and constants that are values of types with effects (`allowlist/type_effects.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use freshet_types::{Reason, TypeEffect};

use crate::allowlist::type_effects::NUMBERS;
use crate::allowlist::types::oid;
use crate::analysis::{ReadSet, Usage};
use crate::lex::literal::{Literal, LiteralKind};
use crate::predicate::parameters::{Parameter, ParameterValue};

impl ReadSet {
    /// Whether a parameter or a constant is a value of a type with effects.
    pub(crate) fn refuse_types(&self, params: &[Parameter<'_>]) -> Result<(), Reason> {
        self.refuse_named_zones(params)?;
        let in_views = self.constants.iter().map(of_literal);
        let brings = |effect: &&Arc<TypeEffect>| {
            params.iter().zip(1u32..).any(|(param, number)| brings(effect, param, number, &self.usages))
                || in_views.clone().any(|param| brings(effect, &param, 0, &self.usages))
        };
        self.effects.iter().find(brings).map_or(Ok(()), |effect| Err(effect.reason.clone()))
    }
}

pub(crate) fn of_literal(literal: &Literal) -> Parameter<'_> {
    Parameter { value: ParameterValue::Literal(literal), declared_type: 0 }
}

/// A value without a type gets the type of its counterpart, or text.
pub(crate) fn brings(effect: &TypeEffect, param: &Parameter<'_>, number: u32, usages: &BTreeMap<u32, Usage>) -> bool {
    if param.declared_type != 0 && effect.types.contains(&param.declared_type) {
        return true;
    }
    let may_be_text = || usages.get(&number).is_none_or(|usage| usage.loose) && effect.types.contains(&oid::TEXT);
    effect.runs_code
        && match param.value {
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, .. }) => {
                NUMBERS.iter().any(|number| effect.types.contains(number))
            }
            // Constants of views have casts.
            ParameterValue::Literal(_) => number > 0 && may_be_text(),
            ParameterValue::Text(_) | ParameterValue::Binary(_) => param.declared_type == 0 && may_be_text(),
            _ => false,
        }
}
