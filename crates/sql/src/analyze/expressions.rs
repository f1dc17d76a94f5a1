//! The walk over expressions; it accepts only constructs whose meaning is known here.

use freshet_types::{Column, Reason, ValueType};
use sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, CeilFloorKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, Value, WindowFrame, WindowFrameBound, WindowSpec,
    WindowType,
};

use crate::allowlist::functions::{
    class_of, function_class, is_bare_function, is_of_context, is_system_column, setting_read,
};
use crate::allowlist::names::built_in_name;
use crate::allowlist::operators::{binary_symbol, is_comparison, unary_symbol};
use crate::allowlist::types::{TypeClass, enum_name, type_class};
use crate::allowlist::{FunctionClass, mysql_functions};
use crate::analysis::Usage;
use crate::analyze::scope::{Meaning, parts};
use crate::analyze::{Outcome, Walk, absent};
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::syntax::{column_name, parameter, unwrapped};

/// The other side of a comparison: a column's type, and whether the comparison is an equality.
type Compared = Option<(ValueType, bool)>;

impl Walk<'_> {
    pub(crate) fn exprs(&mut self, exprs: &[Expr]) -> Outcome {
        exprs.iter().try_for_each(|expr| self.expr(expr))
    }

    pub(crate) fn optional(&mut self, expr: Option<&Expr>) -> Outcome {
        expr.map_or(Ok(()), |expr| self.expr(expr))
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> Outcome {
        self.counts.exprs += 1;
        match expr {
            Expr::Identifier(ident) => self.column(std::slice::from_ref(ident)),
            Expr::CompoundIdentifier(idents) => self.column(idents),
            Expr::Value(value) => self.value(&value.value, expr),
            Expr::Nested(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner)
            | Expr::Collate { expr: inner, collation: _ } => self.expr(inner),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::UnaryOp { op, expr } => {
                allowed(unary_symbol(self.context.dialect, *op))?;
                self.expr(expr)
            }
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.compared(left, right, true)
            }
            Expr::InList { .. } | Expr::InSubquery { .. } | Expr::Between { .. } => self.membership(expr),
            Expr::Like { any, expr, pattern, escape_char, negated: _ }
            | Expr::ILike { any, expr, pattern, escape_char, negated: _ } => {
                absent(!any, "LIKE ANY")?;
                self.compared(expr, pattern, false)?;
                self.optional(escape_char.as_deref())
            }
            Expr::SimilarTo { expr, pattern, escape_char, negated: _ } => {
                self.compared(expr, pattern, false)?;
                self.optional(escape_char.as_deref())
            }
            Expr::AnyOp { left, compare_op, right, is_some: _ } | Expr::AllOp { left, compare_op, right } => {
                allowed(binary_symbol(self.context.dialect, compare_op))?;
                self.expr(left)?;
                self.expr(right)
            }
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.optional(operand.as_deref())?;
                for when in conditions {
                    self.expr(&when.condition)?;
                    self.expr(&when.result)?;
                }
                self.optional(else_result.as_deref())
            }
            Expr::Exists { subquery, negated: _ } | Expr::Subquery(subquery) => {
                self.query(subquery)?;
                self.note_told(subquery);
                Ok(())
            }
            Expr::Tuple(exprs) => self.exprs(exprs),
            Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
                sets.iter().try_for_each(|set| self.exprs(set))
            }
            Expr::Array(array) => self.exprs(&array.elem),
            Expr::Function(function) => self.function(function),
            _ if self.is_mysql() => self.mysql_syntax(expr),
            _ => self.special_syntax(expr),
        }
    }

    /// An expression whose value is returned, sorted or grouped unchanged: a column there is not converted.
    pub(crate) fn unconverted(&mut self, expr: &Expr) -> Outcome {
        let (date_time, times) = (self.date_time, self.times);
        self.stays_time(expr)?;
        if self.is_mysql() && column_name(expr).is_some() {
            (self.date_time, self.times) = (date_time, times);
        }
        Ok(())
    }

    /// MySQL: notes that a column with this name is used in an expression. Whichever column it is, tables of this or an outer block have it, or a
    /// sub-query whose own columns were noted.
    pub(crate) fn note_dates(&mut self, name: &str) {
        self.note_types(|column| column.name.eq_ignore_ascii_case(name));
        if self.kept_times.names.iter().any(|given| given.eq_ignore_ascii_case(name)) {
            self.note_time();
        }
    }

    /// The same for all columns of all tables.
    pub(crate) fn note_all_dates(&mut self) {
        self.note_types(|_| true);
    }

    fn note_types(&mut self, wanted: impl Fn(&Column) -> bool) {
        if !self.is_mysql() {
            return;
        }
        let references = self.scope.blocks.iter().flat_map(|block| &block.references);
        let tables = references.filter_map(|reference| reference.table.as_ref());
        let types = || tables.clone().flat_map(|table| &table.columns).filter(|column| wanted(column));
        let dates = types().any(|column| column.value_type.is_date());
        let times = types().any(|column| column.value_type == ValueType::Time);
        self.date_time |= dates;
        if times {
            self.note_time();
        }
    }

    fn membership(&mut self, expr: &Expr) -> Outcome {
        match expr {
            Expr::InList { expr, list, negated: _ } => {
                let compared = self.column_type(expr).map(|value_type| (value_type, true));
                self.expr(expr)?;
                list.iter().try_for_each(|item| self.operand(item, compared))
            }
            Expr::InSubquery { expr, subquery, negated: _ } => {
                self.expr(expr)?;
                self.query(subquery)?;
                self.note_told(subquery);
                Ok(())
            }
            Expr::Between { expr, low, high, negated: _ } => {
                let compared = self.column_type(expr).map(|value_type| (value_type, false));
                self.kept_times.is_next = self.is_time(expr, &[low, high]);
                self.expr(expr)?;
                self.operand(low, compared)?;
                self.operand(high, compared)
            }
            _ => Err(Reason::Construct("an expression of that kind")),
        }
    }

    /// Functions and casts with special syntax.
    pub(crate) fn special_syntax(&mut self, expr: &Expr) -> Outcome {
        match expr {
            Expr::Cast { kind, expr, data_type, format } => {
                absent(
                    format.is_none() && matches!(kind, CastKind::Cast | CastKind::DoubleColon),
                    "a cast of that form",
                )?;
                match self.type_class(data_type) {
                    Some(TypeClass::DateTime) if !self.never_text(expr) => return Err(Reason::ClockLiteral),
                    Some(TypeClass::DateTime) => self.note_date(data_type),
                    Some(TypeClass::Plain | TypeClass::Tagged(_)) => {}
                    None => {
                        return Err(Reason::Construct(
                            "a cast to a type that is not built in, nor an enum without casts by functions (a cast to its base type may do)",
                        ));
                    }
                }
                self.expr(expr)
            }
            Expr::TypedString(typed) => {
                absent(!typed.uses_odbc_syntax, "ODBC syntax")?;
                self.note_date(&typed.data_type);
                absent(self.type_class(&typed.data_type).is_some(), "a literal of a type of that name")
            }
            Expr::Interval(interval) => {
                self.date_time = true;
                self.expr(&interval.value)
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                self.note_zone();
                self.expr(timestamp)?;
                self.expr(time_zone)
            }
            Expr::Extract { field: _, syntax: _, expr } => {
                self.date_time = true;
                self.expr(expr)
            }
            Expr::Ceil { expr, field } | Expr::Floor { expr, field } => {
                let plain = matches!(field, CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime));
                absent(plain, "CEIL or FLOOR of that form")?;
                self.expr(expr)
            }
            Expr::Position { expr, r#in } => {
                self.expr(expr)?;
                self.expr(r#in)
            }
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                self.expr(expr)?;
                self.optional(substring_from.as_deref())?;
                self.optional(substring_for.as_deref())
            }
            Expr::Trim { expr, trim_where: _, trim_what, trim_characters } => {
                self.expr(expr)?;
                self.optional(trim_what.as_deref())?;
                self.exprs(trim_characters.as_deref().unwrap_or_default())
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                self.expr(expr)?;
                self.expr(overlay_what)?;
                self.expr(overlay_from)?;
                self.optional(overlay_for.as_deref())
            }
            Expr::CompoundFieldAccess { root, access_chain } => self.accesses(root, access_chain),
            _ => Err(Reason::Construct("an expression of that kind")),
        }
    }

    /// See [`type_class`]; also accepts enums and arrays of them, which the catalogue watches.
    fn type_class(&self, data_type: &DataType) -> Option<TypeClass> {
        let element = match data_type {
            DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => element,
            data_type => data_type,
        };
        let is_enum = |(schema, name)| self.context.catalog.is_plain_enum(&self.context.schemas, schema, name);
        type_class(data_type).or_else(|| enum_name(element).filter(|name| is_enum(*name)).map(|_| TypeClass::Plain))
    }

    fn value(&mut self, value: &Value, expr: &Expr) -> Outcome {
        match value {
            Value::Number(..) | Value::SingleQuotedString(_) | Value::Boolean(_) | Value::Null => Ok(()),
            Value::Placeholder(_) => {
                let number = parameter(expr).ok_or(Reason::Construct("a parameter of that form"))?;
                self.use_parameter(number, None)
            }
            _ => Err(Reason::Construct("a literal of that kind")),
        }
    }

    fn column(&mut self, idents: &[Ident]) -> Outcome {
        let (_, qualifier, name) = parts(idents).ok_or(Reason::Construct("a name with a database"))?;
        if qualifier.is_none() {
            self.mentioned.bare(name, self.scope.blocks.last().is_some_and(|block| block.names_own_column(idents)));
        } else {
            self.mentioned.name(name);
        }
        if self.is_mysql() {
            self.note_dates(name);
        } else {
            absent(!is_system_column(name), "a system column")?;
        }
        if self.is_mysql() || qualifier.is_none() {
            let quoted = idents.iter().any(|ident| ident.quote_style.is_some());
            let bare = if self.is_mysql() { mysql_functions::is_bare(name) } else { is_bare_function(name) };
            // Otherwise it would be taken for a column with this name.
            let alone = || self.scope.blocks.iter().all(|block| block.references.is_empty());
            let calls = qualifier.is_none() && !quoted && bare && !(is_of_context(name) && alone());
            return if calls && !self.lasts(name) { Err(Reason::Function(name.into())) } else { Ok(()) };
        }
        // `alias.name` calls a function with this name if there is no such column.
        let mut outwards = self.scope.blocks.iter().rev().map(|block| block.meaning(idents));
        match outwards.find(|meaning| !matches!(meaning, Meaning::Elsewhere)) {
            Some(Meaning::Column(..) | Meaning::Shown(..)) => Ok(()),
            Some(Meaning::Opaque) => self.user_function(name),
            Some(Meaning::NoColumn) => Err(Reason::Construct("a name that is no column of its table")),
            Some(Meaning::Elsewhere) | None => Err(Reason::Construct("a qualified name that is not known")),
        }
    }

    /// The type of the table column that an expression names.
    pub(crate) fn column_type(&self, expr: &Expr) -> Option<ValueType> {
        self.named_column(expr).map(|column| column.value_type)
    }

    /// The table column that an expression names.
    pub(crate) fn named_column(&self, expr: &Expr) -> Option<&Column> {
        let idents = column_name(expr)?;
        let mut blocks = self.scope.blocks.iter().rev();
        let block = match idents {
            // If an inner item has unknown columns, the name may also be an outer column.
            [_] => blocks.next()?,
            _ => blocks.find(|block| !matches!(block.meaning(idents), Meaning::Elsewhere))?,
        };
        let Meaning::Column(_, column) = block.meaning(idents) else { return None };
        Some(column)
    }

    fn binary(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr) -> Outcome {
        allowed(binary_symbol(self.context.dialect, op))?;
        self.date_time |= *op == BinaryOperator::Overlaps;
        if is_comparison(op) {
            self.compared(left, right, *op == BinaryOperator::Eq)
        } else {
            self.expr(left)?;
            self.expr(right)
        }
    }

    fn compared(&mut self, left: &Expr, right: &Expr, equal: bool) -> Outcome {
        let with = |value_type: Option<ValueType>| value_type.map(|value_type| (value_type, equal));
        let (of_left, of_right) = (with(self.column_type(left)), with(self.column_type(right)));
        self.kept_times.is_next = self.is_time(left, &[right]);
        self.operand(left, of_right)?;
        self.kept_times.is_next = self.is_time(right, &[left]);
        self.operand(right, of_left)
    }

    pub(crate) fn operand(&mut self, expr: &Expr, compared: Compared) -> Outcome {
        match (expr, compared) {
            (Expr::Nested(inner), _) => {
                self.counts.exprs += 1;
                self.operand(inner, compared)
            }
            (_, Some(_)) => match parameter(expr) {
                Some(number) => {
                    self.counts.exprs += 1;
                    self.use_parameter(number, compared)
                }
                None => self.expr(expr),
            },
            (_, None) => self.expr(expr),
        }
    }

    fn use_parameter(&mut self, number: u32, compared: Compared) -> Outcome {
        absent((number <= VIEWS_BASE) == self.views.is_outside(), "a parameter of that form")?;
        self.usages.entry(number).or_default().note(compared);
        Ok(())
    }

    /// Whether a cast to a date type never receives a text from a table, such as `today`, or that does not matter.
    fn never_text(&self, expr: &Expr) -> bool {
        let expr = unwrapped(expr);
        match expr {
            _ if self.context.by_ttl => true,
            Expr::Value(_) | Expr::AtTimeZone { .. } | Expr::Interval(_) | Expr::TypedString(_) => true,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.column_type(expr).is_some_and(ValueType::is_date),
            Expr::Cast { data_type, .. } => type_class(data_type) == Some(TypeClass::DateTime),
            Expr::BinaryOp { op, .. } => matches!(op, BinaryOperator::Plus | BinaryOperator::Minus),
            Expr::Function(Function { name, args, .. }) => match (built_in_name(self.context.dialect, name), args) {
                (Some("coalesce" | "greatest" | "least" | "max" | "min"), FunctionArguments::List(list)) => {
                    list.args.iter().all(|arg| match arg {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => self.never_text(arg),
                        _ => false,
                    })
                }
                (Some("to_char") | None, _) => false,
                (Some(name), _) => function_class(name) == FunctionClass::Cacheable { date_time: true },
            },
            _ => false,
        }
    }

    fn user_function(&self, name: &str) -> Outcome {
        let shadowed = self.context.catalog.user_functions.contains(name);
        if shadowed { Err(Reason::UserDefined(name.into())) } else { Ok(()) }
    }

    /// Checks whether a function may be called.
    pub(crate) fn function_name(&mut self, name: &ObjectName) -> Outcome {
        let plain =
            built_in_name(self.context.dialect, name).map(|plain| (plain, class_of(self.context.dialect, plain)));
        let Some((plain, FunctionClass::Cacheable { date_time })) = plain else {
            return self.lasts_or_is_trusted(name);
        };
        self.date_time |= date_time;
        if matches!(plain, "make_time" | "timezone") {
            self.note_zone();
        }
        if self.is_mysql() && mysql_functions::makes_time(plain) {
            self.note_time();
        }
        Ok(())
    }

    fn function(&mut self, function: &Function) -> Outcome {
        let Function { name, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment, over } =
            function;
        absent(!uses_odbc_syntax && matches!(parameters, FunctionArguments::None), "a call of that form")?;
        absent(null_treatment.is_none(), "IGNORE NULLS")?;
        // In the statement itself, its value is part of the key.
        if self.is_mysql() || setting_read(function).is_none() || !self.views.is_outside() {
            self.function_name(name)?;
        }
        let plain = built_in_name(self.context.dialect, name).unwrap_or_default();
        self.refuse_field(function, plain)?;
        self.scope.folds.windows += usize::from(over.is_some());
        self.scope.folds.aggregates += usize::from(over.is_none() && self.aggregates(function));
        match args {
            // `name` without parentheses is a keyword that calls a function.
            FunctionArguments::None if self.lasts(plain) || (!self.is_mysql() && is_of_context(plain)) => {}
            FunctionArguments::None => return Err(Reason::Function(plain.into())),
            FunctionArguments::Subquery(query) => {
                absent(plain == "array", "a sub-query as argument")?;
                self.query(query)?;
            }
            FunctionArguments::List(list) => {
                if plain == "age" && list.args.len() != 2 && !self.context.by_ttl {
                    return Err(Reason::Function("age".into()));
                }
                if plain == "unix_timestamp" && list.args.is_empty() && !self.context.by_ttl {
                    return Err(Reason::Function("unix_timestamp".into()));
                }
                let counts = [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)];
                if self.is_mysql() && list.args != counts {
                    self.mysql_arguments(plain, &list.args)?;
                } else if plain != "count" || list.args != counts {
                    self.arguments(&list.args)?;
                }
                for clause in &list.clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(exprs) => self.order_by_exprs(exprs)?,
                        FunctionArgumentClause::Separator(_) if self.is_mysql() => {}
                        _ => return Err(Reason::Construct("a clause of a function call")),
                    }
                }
            }
        }
        self.order_by_exprs(within_group)?;
        self.optional(filter.as_deref())?;
        match over {
            Some(WindowType::WindowSpec(spec)) => self.window(spec),
            Some(WindowType::NamedWindow(_)) | None => Ok(()),
        }
    }

    pub(crate) fn arguments(&mut self, args: &[FunctionArg]) -> Outcome {
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.expr(expr)?,
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_)) => {
                    self.mentioned.all();
                }
                _ => return Err(Reason::Construct("a named argument")),
            }
        }
        Ok(())
    }

    pub(crate) fn window(&mut self, spec: &WindowSpec) -> Outcome {
        let WindowSpec { window_name: _, partition_by, order_by, window_frame } = spec;
        self.exprs(partition_by)?;
        self.order_by_exprs(order_by)?;
        let Some(WindowFrame { units: _, start_bound, end_bound }) = window_frame else { return Ok(()) };
        for bound in std::iter::once(start_bound).chain(end_bound) {
            match bound {
                WindowFrameBound::CurrentRow => {}
                WindowFrameBound::Preceding(expr) | WindowFrameBound::Following(expr) => {
                    self.optional(expr.as_deref())?;
                }
            }
        }
        Ok(())
    }
}

/// Checks whether an operator is on the list.
fn allowed(symbol: Result<Option<String>, String>) -> Outcome {
    symbol.map(|_| ()).map_err(|symbol| Reason::Operator(symbol.into()))
}

impl Usage {
    /// Notes one more use of a parameter.
    fn note(&mut self, compared: Compared) {
        self.count += 1;
        self.loose |= compared.is_none();
        let clear = |value_type: ValueType| !value_type.is_date() && value_type != ValueType::Other;
        self.may_be_date |= !compared.is_some_and(|(value_type, _)| clear(value_type));
        let equal = compared.filter(|(_, equal)| *equal).map(|(value_type, _)| value_type);
        match (self.count, self.equal_to, equal) {
            (1, _, equal) => self.equal_to = equal,
            (_, Some(before), Some(now)) if before == now => {}
            _ => self.equal_to = None,
        }
    }
}
