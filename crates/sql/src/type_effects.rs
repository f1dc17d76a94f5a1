//! Statements that handle values of types with effects ([`TypeEffect`]): whose values run code by casts and operator classes that somebody
//! made, or print the names of other objects.
//!
//! The types of expressions are not known here. But a value of a type has to come from somewhere: a column, a row, a built-in function or
//! operator that makes one, a cast in the text, a constant, a parameter. A statement in which none of these may give such a value
//! has none.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use freshet_model::{Catalog, Columns, Reason, Table, TypeEffect};
use sqlparser::ast::{Expr, TableFactor, Value};

use crate::footprint::{Footprint, Parameter, ParameterValue, Usage};
use crate::functions::oid;
use crate::predicate::comparable_type;
use crate::survey::Survey;
use crate::walk::Walk;
use crate::{Literal, LiteralKind};

/// A number in the text is of one of these types.
const NUMBERS: [u32; 3] = [oid::INT4, oid::INT8, oid::NUMERIC];
const INTERVAL: u32 = 1186;

/// Functions named like types, which are casts if no function of the name takes the argument; those that make JSON look casts up, too.
const LIKE_CASTS: &[&str] = &["int2", "int4", "int8", "float4", "float8", "numeric", "text"];

/// What the texts of a statement and of its views say of the types of its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handled {
    /// The functions and operators in it.
    names: HashSet<String>,
    /// Types that it names; None: one that is not known here.
    types: HashSet<Option<u32>>,
    /// It may ask for casts.
    asks: bool,
}

impl Handled {
    /// Adds what an expression says, without those in it.
    pub(crate) fn note(&mut self, expr: &Expr) {
        match expr {
            Expr::Cast { data_type, .. } => {
                self.asks = true;
                self.types.insert(comparable_type(data_type));
            }
            Expr::TypedString(typed) => drop(self.types.insert(comparable_type(&typed.data_type))),
            Expr::Interval(_) => drop(self.types.insert(Some(INTERVAL))),
            Expr::Value(value) => match value.value {
                Value::Number(..) => self.types.extend(NUMBERS.map(Some)),
                Value::Placeholder(_) | Value::Boolean(_) | Value::Null => {}
                _ => drop(self.types.insert(Some(oid::TEXT))),
            },
            _ => {}
        }
    }

    /// Adds the types of a column definition list.
    pub(crate) fn note_defined(&mut self, factor: &TableFactor) {
        if let TableFactor::Table { alias: Some(alias), .. } | TableFactor::Function { alias: Some(alias), .. } = factor
        {
            let types = alias.columns.iter().filter_map(|column| column.data_type.as_ref());
            self.types.extend(types.map(comparable_type));
        }
    }

    pub(crate) fn add(&mut self, survey: &Survey) {
        self.names.extend(survey.functions.iter().chain(&survey.operators).cloned());
        self.types.extend(&survey.handled.types);
        let casts = |name: &String| name.contains("json") || LIKE_CASTS.contains(&name.as_str());
        self.asks |= survey.handled.asks || survey.functions.iter().any(casts);
    }

    fn asks_for(&self, effect: &TypeEffect) -> bool {
        self.asks || !effect.explicit
    }

    /// Whether it may make a value on which code runs. What a condition gives is known: a truth value.
    fn makes(&self, effect: &TypeEffect) -> bool {
        let named = |named: &Option<u32>| named.is_none_or(|named| effect.types.contains(&named));
        effect.runs_code
            && (effect.types.contains(&oid::BOOL)
                || self.types.iter().any(named)
                || self.names.iter().any(|name| effect.makers.contains(name.as_str())))
    }
}

/// Whether these columns of a relation hold such values.
fn holds(effect: &TypeEffect, relation: &Table, columns: &Columns) -> bool {
    let of = effect.columns.get(&relation.id);
    match columns {
        Columns::All => of.is_some() || effect.rows.contains(&relation.id),
        Columns::Only(names) => of.is_some_and(|of| of.iter().any(|name| names.contains(name))),
    }
}

/// Whether a statement over these relations may run code that somebody made for a type.
pub(crate) fn runs_code(catalog: &Catalog, survey: &Survey, relations: &[Arc<Table>]) -> bool {
    let mut effects = catalog.type_effects.iter().filter(|effect| effect.runs_code).peekable();
    if effects.peek().is_none() {
        return false;
    }
    let mut handled = Handled::default();
    handled.add(survey);
    let read = |effect: &TypeEffect| relations.iter().any(|relation| holds(effect, relation, &Columns::All));
    effects.any(|effect| handled.asks_for(effect) && (handled.makes(effect) || read(effect)))
}

/// Whether a function or operator in the text may be one that somebody made.
pub(crate) fn user_defined(catalog: &Catalog, survey: &Survey) -> Result<(), Reason> {
    let function = survey.functions.iter().find(|name| catalog.user_functions.contains(name.as_str()));
    let operator = || survey.operators.iter().find(|symbol| catalog.user_operators.contains(symbol.as_str()));
    match function.or_else(operator) {
        Some(name) => Err(Reason::UserDefined(name.as_str().into())),
        None => Ok(()),
    }
}

impl Walk<'_> {
    /// The effects that values from outside may still bring; an error if what is read or made brings one.
    pub(crate) fn type_effects(&self) -> Result<Vec<Arc<TypeEffect>>, Reason> {
        let mut left = Vec::new();
        for effect in self.catalog.type_effects.iter().filter(|effect| self.handled.asks_for(effect)) {
            let mut rows = self.references.iter();
            let mut definitions = self.definitions.iter();
            let read = rows.any(|reference| holds(effect, &reference.table, &reference.columns))
                || definitions.any(|relation| holds(effect, relation, &self.mentioned.of(relation)));
            if read || self.handled.makes(effect) {
                return Err(effect.reason.clone());
            }
            left.push(effect.clone());
        }
        Ok(left)
    }
}

impl Footprint {
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

fn of_literal(literal: &Literal) -> Parameter<'_> {
    Parameter { value: ParameterValue::Literal(literal), declared_type: 0 }
}

/// What is of no type becomes what it is compared with, or text.
fn brings(effect: &TypeEffect, param: &Parameter<'_>, number: u32, usages: &BTreeMap<u32, Usage>) -> bool {
    if param.declared_type != 0 && effect.types.contains(&param.declared_type) {
        return true;
    }
    let may_be_text = || usages.get(&number).is_none_or(|usage| usage.loose) && effect.types.contains(&oid::TEXT);
    effect.runs_code
        && match param.value {
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, .. }) => {
                NUMBERS.iter().any(|number| effect.types.contains(number))
            }
            // Those of views have casts.
            ParameterValue::Literal(_) => number > 0 && may_be_text(),
            ParameterValue::Text(_) | ParameterValue::Binary(_) => param.declared_type == 0 && may_be_text(),
            _ => false,
        }
}
