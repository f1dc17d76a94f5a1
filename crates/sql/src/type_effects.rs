//! Statements that handle values of types with effects ([`TypeEffect`]): whose values run code by casts and operator classes that somebody
//! made, or print the names of other objects.
//!
//! The types of expressions are not known here. But a value of a type has to come from somewhere: a column, a row, a built-in function or
//! operator that makes one, a cast in the text, a constant, a parameter. A statement in which none of these may give such a value
//! has none.
//!
//! The code of some types runs only where a value becomes one of the type: the check of a domain, a cast to a type that somebody made. It
//! runs where the text names the type, and where a parameter is declared to be of it. What is read from a column has been checked. But
//! an array or a row that holds such a column gives its type to a constant beside it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use freshet_types::{Catalog, Columns, Reason, Table, TypeEffect};
use sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType, Expr, FunctionArgumentClause, FunctionArguments, JsonTableColumn,
    TableFactor, Value, XmlTableColumnOption,
};

use crate::footprint::{Footprint, Parameter, ParameterValue, Usage};
use crate::functions::{oid, type_class};
use crate::predicate::comparable_type;
use crate::survey::Survey;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Literal, LiteralKind};

/// A number in the text is of one of these types.
const NUMBERS: [u32; 3] = [oid::INT4, oid::INT8, oid::NUMERIC];
const INTERVAL: u32 = 1186;
/// Types that somebody made have no lower OIDs (`FirstNormalObjectId`).
const MADE_FROM: u32 = 16384;

/// Functions named like types, which are casts if no function of the name takes the argument; those that make JSON look casts up, too.
const LIKE_CASTS: &[&str] = &["int2", "int4", "int8", "float4", "float8", "numeric", "text"];

/// Functions that give the type of one argument to another, beside those of arrays.
const SPREADING: &[&str] = &["lag", "lead", "width_bucket"];

/// Built-in types to which no cached statement casts; the classes of others are known (`functions.rs`).
#[rustfmt::skip]
const OTHER_BUILT_IN: &[&str] = &[
    "circle", "line", "lseg", "money", "path", "pg_lsn", "polygon", "refcursor", "regclass", "regcollation", "regdictionary",
    "regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype", "time with time zone",
    "timetz", "xid", "xid8", "xml",
];

/// What the texts of a statement and of its views say of the types of its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handled {
    /// The functions and operators in it.
    names: HashSet<String>,
    /// Types that it names; None: one that is not known here.
    types: HashSet<Option<u32>>,
    /// The names of those that may not be built in, in lower case.
    made: HashSet<Box<str>>,
    /// What it names of rows: `row.name` may call a function.
    fields: HashSet<Box<str>>,
    /// It may ask for casts.
    asks: bool,
    /// It may make an array, or give the type of a column to a constant in another way.
    spreads: bool,
}

impl Handled {
    /// Adds what an expression says, without those in it.
    pub(crate) fn note(&mut self, expr: &Expr) {
        match expr {
            Expr::Cast { data_type, .. } => {
                self.asks = true;
                self.note_type(data_type);
            }
            Expr::TypedString(typed) => self.note_type(&typed.data_type),
            Expr::Array(_) => self.spreads = true,
            Expr::CompoundIdentifier(names) => self.fields.extend(names.last().map(|name| (&*name.value).into())),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    if let AccessExpr::Dot(Expr::Identifier(name)) = access {
                        self.fields.insert((&*name.value).into());
                    }
                }
            }
            Expr::Function(function) => {
                if let FunctionArguments::List(list) = &function.args {
                    for clause in &list.clauses {
                        if let FunctionArgumentClause::JsonReturningClause(returning) = clause {
                            self.note_type(&returning.data_type);
                        }
                    }
                }
            }
            Expr::Interval(_) => drop(self.types.insert(Some(INTERVAL))),
            Expr::Value(value) => match value.value {
                Value::Number(..) => self.types.extend(NUMBERS.map(Some)),
                Value::Placeholder(_) | Value::Boolean(_) | Value::Null => {}
                _ => drop(self.types.insert(Some(oid::TEXT))),
            },
            _ => {}
        }
    }

    /// Adds a value of any type.
    pub(crate) fn note_unknown(&mut self) {
        self.types.insert(None);
    }

    /// Adds the types of a column definition list.
    pub(crate) fn note_defined(&mut self, factor: &TableFactor) {
        match factor {
            TableFactor::Table { alias: Some(alias), .. } | TableFactor::Function { alias: Some(alias), .. } => {
                alias.columns.iter().filter_map(|column| column.data_type.as_ref()).for_each(|t| self.note_type(t));
            }
            TableFactor::JsonTable { columns, .. } => self.note_json(columns),
            TableFactor::XmlTable { columns, .. } => {
                for column in columns {
                    if let XmlTableColumnOption::NamedInfo { r#type, .. } = &column.option {
                        self.note_type(r#type);
                    }
                }
            }
            _ => {}
        }
    }

    fn note_json(&mut self, columns: &[JsonTableColumn]) {
        for column in columns {
            match column {
                JsonTableColumn::Named(column) => self.note_type(&column.r#type),
                JsonTableColumn::ForOrdinality(_) => {}
                JsonTableColumn::Nested(nested) => self.note_json(&nested.columns),
            }
        }
    }

    fn note_type(&mut self, data_type: &DataType) {
        self.types.insert(comparable_type(data_type));
        if type_class(data_type).is_none() {
            let qualified = matches!(data_type, DataType::Custom(name, _) if name.0.len() > 1);
            let name = type_name(data_type);
            if qualified || !OTHER_BUILT_IN.contains(&&*name) {
                self.made.insert(name);
            }
        }
    }

    /// Adds the type of a constant whose type is the last name in an expression; false: it is not found.
    pub(crate) fn note_literal(&mut self, expr: &Expr) -> bool {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last(),
            Expr::BinaryOp { right, .. } => return self.note_literal(right),
            Expr::UnaryOp { expr, .. } => return self.note_literal(expr),
            _ => None,
        };
        self.made.extend(name.map(|name| name.value.to_lowercase().into()));
        name.is_some()
    }

    /// It names a type whose code runs where a value becomes one of the type.
    fn names_code(&self, effect: &TypeEffect) -> bool {
        self.made.iter().any(|name| effect.names.contains(name))
    }

    pub(crate) fn add(&mut self, survey: &Survey) {
        self.names.extend(survey.functions.iter().chain(&survey.operators).cloned());
        self.types.extend(&survey.handled.types);
        self.made.extend(survey.handled.made.iter().cloned());
        self.fields.extend(survey.handled.fields.iter().cloned());
        let spread = |name: &String| name.starts_with("array") || SPREADING.contains(&name.as_str());
        self.spreads |= survey.handled.spreads || self.names.iter().any(spread);
        let casts = |name: &String| name.contains("json") || LIKE_CASTS.contains(&name.as_str());
        self.asks |= survey.handled.asks || survey.functions.iter().any(casts);
    }

    fn asks_for(&self, effect: &TypeEffect) -> bool {
        self.asks || !effect.explicit
    }

    /// Whether it may make a value on which code runs. What a condition gives is known: a truth value.
    fn makes(&self, effect: &TypeEffect) -> bool {
        let by_name = !effect.names.is_empty();
        let named = |named: &Option<u32>| named.map_or(!by_name, |named| effect.types.contains(&named));
        effect.runs_code
            && (effect.types.contains(&oid::BOOL)
                || self.types.iter().any(named)
                || self.names_code(effect)
                || self.names.iter().any(|name| effect.makers.contains(name.as_str())))
    }
}

impl Handled {
    /// Whether these columns of a relation hold such values, and it handles them so that it matters.
    fn reads(&self, effect: &TypeEffect, relation: &Table, columns: &Columns) -> bool {
        (effect.names.is_empty() || self.spreads) && holds(effect, relation, columns)
    }
}

/// The name of a type as it stands in the text, in lower case and without its schema; that of the elements of an array.
fn type_name(data_type: &DataType) -> Box<str> {
    use ArrayElemTypeDef as Elements;
    match data_type {
        DataType::Array(
            Elements::AngleBracket(element)
            | Elements::SquareBracket(element, _)
            | Elements::Parenthesis(element)
            | Elements::Qualified(element, _),
        ) => type_name(element),
        DataType::Custom(name, _) => {
            let ident = name.0.last().and_then(|part| part.as_ident());
            ident.map_or_else(|| name.to_string(), |ident| ident.value.clone()).to_lowercase().into()
        }
        // A word that some database has a type for.
        other => other.to_string().to_lowercase().into(),
    }
}

fn holds(effect: &TypeEffect, relation: &Table, columns: &Columns) -> bool {
    let of = effect.columns.get(&relation.id);
    match columns {
        Columns::All => of.is_some() || effect.rows.contains(&relation.id),
        Columns::Only(names) => of.is_some_and(|of| of.iter().any(|name| names.contains(name))),
    }
}

/// Whether a statement over these relations may run code that somebody made for a type.
pub(crate) fn runs_code(catalog: &Catalog, survey: &Survey, relations: &[Arc<Table>]) -> bool {
    let calls = |name: &str| {
        catalog.row_functions.contains(name) && relations.iter().all(|relation| relation.column(name).is_none())
    };
    if survey.handled.fields.iter().any(|name| calls(name)) {
        return true;
    }
    let mut effects = catalog.type_effects.iter().filter(|effect| effect.runs_code).peekable();
    if effects.peek().is_none() {
        return false;
    }
    let mut handled = Handled::default();
    handled.add(survey);
    let read = |effect: &TypeEffect| relations.iter().any(|relation| handled.reads(effect, relation, &Columns::All));
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

impl Template {
    /// Whether its functions, operators and types may run code that somebody made, whatever the search path is.
    pub fn may_run_code(&self, catalog: &Catalog) -> bool {
        user_defined(catalog, &self.survey).is_err() || runs_code(catalog, &self.survey, &[])
    }

    /// Whether it names a type whose code may run, whatever the search path is: also when a constant is read, at `Parse`.
    pub fn names_code(&self, catalog: &Catalog) -> bool {
        catalog.type_effects.iter().any(|effect| self.survey.handled.names_code(effect))
    }

    /// An error if code may run when a parameter of a declared type is read, whatever else the statement does. Types: four bytes each, as
    /// `Parse` has them.
    pub fn refuse_declared(&self, catalog: &Catalog, types: &[u8]) -> Result<(), Reason> {
        let (declared, _) = types.as_chunks();
        for oid in declared.iter().map(|oid| u32::from_be_bytes(*oid)).filter(|oid| *oid >= MADE_FROM) {
            let runs = |effect: &&Arc<TypeEffect>| !effect.names.is_empty() && effect.types.contains(&oid);
            if let Some(effect) = catalog.type_effects.iter().find(runs) {
                return Err(effect.reason.clone());
            }
        }
        Ok(())
    }
}

impl Walk<'_> {
    /// The effects that values from outside may still bring; an error if what is read or made brings one.
    pub(crate) fn type_effects(&self) -> Result<Vec<Arc<TypeEffect>>, Reason> {
        let mut left = Vec::new();
        for effect in self.catalog.type_effects.iter().filter(|effect| self.handled.asks_for(effect)) {
            let mut rows = self.references.iter();
            let mut definitions = self.definitions.iter();
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
