//! Statements that handle values of types with effects ([`TypeEffect`]): values that run code through user-defined casts and operator classes, or
//! that print the names of other objects.
//!
//! The types of expressions are not known here. But a value of a type has a source: a column, a row, a built-in function or operator that returns the
//! type, a cast in the text, a constant, a parameter. If none of these can give such a value, the statement handles none.
//!
//! The code of some types runs only where a value is converted to the type: the check of a domain, a user-defined cast. It runs where the text names
//! the type, and where a parameter is declared with it. A value read from a column was already checked. But an array or a row that contains such a
//! column gives its type to a constant beside it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use freshet_types::{Catalog, Columns, Table, TypeEffect};
use sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, JsonTableColumn, ObjectName, TableFactor, Value, XmlTableColumnOption,
};

use crate::allowlist::types::{comparable_type, oid, type_class};

/// A number in the text has one of these types.
pub(crate) const NUMBERS: [u32; 3] = [oid::INT4, oid::INT8, oid::NUMERIC];

const INTERVAL: u32 = 1186;

/// User-defined types have OIDs from here on (`FirstNormalObjectId`).
pub(crate) const MADE_FROM: u32 = 16384;

/// Functions with the name of a type. They are casts if no function of the name takes the argument. Functions that return JSON look up casts too.
const LIKE_CASTS: &[&str] = &["int2", "int4", "int8", "float4", "float8", "numeric", "text"];

/// Functions that give the type of one argument to another one, besides those of arrays.
const SPREADING: &[&str] = &["lag", "lead", "percentile_disc", "width_bucket"];

/// A function that takes rows and gives their type to no other argument, besides the functions that return JSON.
const COUNTS: &str = "count";

/// Built-in types to which no cached statement may cast. `types.rs` classifies the others.
#[rustfmt::skip]
const OTHER_BUILT_IN: &[&str] = &[
    "circle", "line", "lseg", "money", "path", "pg_lsn", "polygon", "refcursor", "regclass", "regcollation", "regdictionary",
    "regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype", "time with time zone",
    "timetz", "xid", "xid8", "xml",
];

/// What the texts of a statement and of its views say about the types of its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handled {
    /// The functions and operators of the statement. For a single text: the functions that it names with their schema, `pg_catalog`.
    names: HashSet<String>,
    /// Types that it names; None stands for a type that is not known here.
    types: HashSet<Option<u32>>,
    /// The lower-case names of types that may not be built in.
    made: HashSet<Box<str>>,
    /// Field selections `row.name`, each with the row's name if it has one: they may be function calls.
    fields: HashSet<(Option<Box<str>>, Box<str>)>,
    /// Unqualified names, which may be whole rows, with their number of uses. Uses as arguments of functions that give the row's type to no constant
    /// do not count.
    alone: HashMap<Box<str>, isize>,
    /// The names of rows in FROM with their relations; `` for rows of no relation.
    rows: HashSet<(Box<str>, Box<str>)>,
    /// It may use casts.
    asks: bool,
    /// It may construct an array, or give the type of a column to a constant in another way.
    spreads: bool,
}

impl Handled {
    /// Adds the facts of an expression, without those of its sub-expressions.
    pub(crate) fn note(&mut self, expr: &Expr) {
        match expr {
            Expr::Cast { data_type, .. } => {
                self.asks = true;
                self.note_type(data_type);
            }
            Expr::TypedString(typed) => self.note_type(&typed.data_type),
            Expr::Array(_) => self.spreads = true,
            Expr::Identifier(name) => self.note_alone(&name.value, 1),
            Expr::CompoundIdentifier(names) => {
                if let [.., row, name] = names.as_slice() {
                    self.fields.insert((Some((&*row.value).into()), (&*name.value).into()));
                }
            }
            Expr::QualifiedWildcard(name, _) => self.note_row(name),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    if let AccessExpr::Dot(Expr::Identifier(name)) = access {
                        self.fields.insert((None, (&*name.value).into()));
                    }
                }
            }
            Expr::Function(function) => self.note_arguments(function),
            Expr::Interval(_) => drop(self.types.insert(Some(INTERVAL))),
            Expr::Value(value) => match value.value {
                Value::Number(..) => self.types.extend(NUMBERS.map(Some)),
                Value::Placeholder(_) | Value::Boolean(_) | Value::Null => {}
                _ => drop(self.types.insert(Some(oid::TEXT))),
            },
            _ => {}
        }
    }

    fn note_arguments(&mut self, function: &Function) {
        let FunctionArguments::List(list) = &function.args else { return };
        let name = function.name.0.last().and_then(|part| part.as_ident()).map_or("", |name| &*name.value);
        let takes_rows = name == COUNTS || name.contains("json");
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(row))) if takes_rows => {
                    self.note_alone(&row.value, -1);
                }
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(row)) if !takes_rows => self.note_row(row),
                _ => {}
            }
        }
        for clause in &list.clauses {
            if let FunctionArgumentClause::JsonReturningClause(returning) = clause {
                self.note_type(&returning.data_type);
            }
        }
    }

    fn note_alone(&mut self, name: &str, times: isize) {
        *self.alone.entry(name.into()).or_default() += times;
    }

    /// Adds `row.*` where it is one value.
    fn note_row(&mut self, row: &ObjectName) {
        if let Some(name) = row.0.last().and_then(|part| part.as_ident()) {
            self.note_alone(&name.value, 1);
        }
    }

    /// Adds a built-in function that the text names with its schema.
    pub(crate) fn note_qualified(&mut self, function: &str) {
        self.names.insert(function.to_owned());
    }

    /// Whether the text names functions with their schema.
    pub(crate) fn has_qualified(&self) -> bool {
        !self.names.is_empty()
    }

    /// Removes the unqualified names that are not rows. Called when the whole text was visited.
    pub(crate) fn settle(&mut self) {
        let rows = &self.rows;
        self.alone.retain(|name, times| *times > 0 && rows.iter().any(|(row, of)| row == name && !of.is_empty()));
    }

    /// Adds a value of unknown type.
    pub(crate) fn note_unknown(&mut self) {
        self.types.insert(None);
    }

    /// Adds the name of a relation's rows, and the types of a column definition list.
    pub(crate) fn note_factor(&mut self, factor: &TableFactor) {
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Some(relation) = name.0.last().and_then(|part| part.as_ident())
        {
            let row = alias.as_ref().map_or(relation, |alias| &alias.name);
            self.rows.insert(((&*row.value).into(), (&*relation.value).into()));
        }
        if let TableFactor::Derived { alias: Some(row), .. }
        | TableFactor::Table { alias: Some(row), args: Some(_), .. } = factor
        {
            self.rows.insert(((&*row.name.value).into(), "".into()));
        }
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

    /// Adds the type of a constant whose type is the last name in an expression. False if there is no such name.
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

    /// It names a type that the catalogue does not show: it was made since, and may run any code.
    pub(crate) fn names_new_type(&self, catalog: &Catalog) -> bool {
        // Names of several words are the language's own.
        let of_language = |name: &str| name.contains([' ', '(']) || OTHER_BUILT_IN.contains(&name);
        let is_known =
            |name: &str| of_language(name) || catalog.type_names.contains(name) || catalog.names_relation(name);
        !catalog.type_names.is_empty() && self.made.iter().any(|name| !is_known(name))
    }

    /// Whether it names a type whose code runs where a value is converted to it. A call by the name of a type may be a cast.
    pub(crate) fn names_code(&self, effect: &TypeEffect) -> bool {
        self.made.iter().any(|name| effect.names.contains(name))
            || self.names.iter().any(|name| effect.names.contains(name.as_str()))
    }

    /// The facts of a text, with the functions and operators in it.
    pub(crate) fn of(text: &Self, functions: &[String], operators: &[String]) -> Self {
        let mut handled = Self::default();
        handled.add(text, functions, operators);
        handled
    }

    /// Adds the facts of another text.
    pub(crate) fn add(&mut self, text: &Self, functions: &[String], operators: &[String]) {
        self.names.extend(functions.iter().chain(operators).chain(&text.names).cloned());
        self.types.extend(&text.types);
        self.made.extend(text.made.iter().cloned());
        self.alone.extend(text.alone.clone());
        self.rows.extend(text.rows.iter().cloned());
        let spread = |name: &String| name.starts_with("array") || SPREADING.contains(&name.as_str());
        self.spreads |= text.spreads || self.names.iter().any(spread);
        let casts = |name: &String| name.contains("json") || LIKE_CASTS.contains(&name.as_str());
        self.asks |= text.asks || functions.iter().chain(&text.names).any(casts);
    }

    /// Whether it may give the type of a column or a row to a constant.
    pub(crate) fn may_give_type(&self) -> bool {
        self.spreads || !self.alone.is_empty()
    }

    pub(crate) fn asks_for(&self, effect: &TypeEffect) -> bool {
        self.asks || !effect.explicit
    }

    /// Whether it may create a value that runs code. The value of a condition is known to be a boolean.
    pub(crate) fn makes(&self, effect: &TypeEffect) -> bool {
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
    /// Whether these columns of a relation hold values of the type, and the statement uses them so that it matters.
    pub(crate) fn reads(&self, effect: &TypeEffect, relation: &Table, columns: &Columns) -> bool {
        let by_row = || effect.rows.contains(&relation.id) && self.has_row(relation);
        ((effect.names.is_empty() || self.spreads) && holds(effect, relation, columns)) || by_row()
    }

    /// Whether it names a whole row of a relation, which may give its type to a constant. A column with this name takes precedence.
    fn has_row(&self, relation: &Table) -> bool {
        let is_row = |(row, of): &(Box<str>, Box<str>)| **of == *relation.name && self.alone.contains_key(row);
        self.rows.iter().any(|row| is_row(row) && relation.column(&row.0).is_none())
    }

    /// Whether it selects a field of a row that may be a function call. `relations` are those of the text; if empty, they are unknown.
    pub(crate) fn calls_by_row(&self, catalog: &Catalog, relations: &[Arc<Table>]) -> bool {
        let calls = |(row, name): &(Option<Box<str>>, Box<str>)| {
            let of_row = self.rows.iter().filter(|(of, _)| Some(of) == row.as_ref());
            let of_row: Vec<&str> = of_row.map(|(_, relation)| &**relation).collect();
            let is_in = |name: &&str| relations.iter().any(|relation| *relation.name == **name);
            let known = !of_row.is_empty() && of_row.iter().all(is_in);
            let mut all = relations.iter().filter(|relation| !known || of_row.contains(&&*relation.name));
            catalog.row_functions.contains(name)
                && (relations.is_empty() || all.any(|relation| relation.column(name).is_none()))
        };
        self.fields.iter().any(calls)
    }
}

/// The name of a type as written in the text, in lower case and without its schema; for an array, that of its elements.
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
        // A keyword that is a type in some database.
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
