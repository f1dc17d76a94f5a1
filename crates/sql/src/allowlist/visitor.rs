//! The functions, operators and relations of a query, found by the parser's visitor wherever they are.
//!
//! The structural walk (`analyze/mod.rs`) knows scopes, but only the constructs that it was written for. This visitor knows no scopes, but visits
//! every node that the parser's derived visitor reaches. Both must count the same nodes; otherwise the query passes.

use std::ops::ControlFlow;

use freshet_types::{Dialect, Reason};
use sqlparser::ast::{Expr, ObjectName, Query, Select, SelectItem, Statement, TableFactor};

use crate::allowlist::functions::{class_of, is_lasting, setting_read};
use crate::allowlist::implicit_lookups::Lookups;
use crate::allowlist::names::{built_in_name, made_name};
use crate::allowlist::operators::{binary_symbol, unary_symbol};
use crate::allowlist::type_effects::Handled;
use crate::allowlist::{FunctionClass, mysql_functions};
use crate::statement::effect::Effect;
use crate::visit::{Visitor, visit};

/// Number of visited nodes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queries: usize,
    pub(crate) selects: usize,
    pub(crate) relations: usize,
    pub(crate) table_factors: usize,
    pub(crate) exprs: usize,
}

impl Counts {
    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            selects: self.selects + other.selects,
            relations: self.relations + other.relations,
            table_factors: self.table_factors + other.table_factors,
            exprs: self.exprs + other.exprs,
        }
    }

    /// The nodes visited since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            queries: self.queries - before.queries,
            selects: self.selects - before.selects,
            relations: self.relations - before.relations,
            table_factors: self.table_factors - before.table_factors,
            exprs: self.exprs - before.exprs,
        }
    }
}

/// The reasons not to cache a query.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The first that was found.
    pub(crate) first: Option<Reason>,
    /// The first that a rule with `ttl` does not overrule.
    pub(crate) not_by_ttl: Option<Reason>,
    /// There is one besides the functions that are not built in.
    pub(crate) is_refused: bool,
}

/// The facts of a query that do not depend on the catalogue.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) effect: Effect,
    /// Why the query is not cached.
    pub(crate) refusals: Refusals,
    pub(crate) counts: Counts,
    pub(crate) relations: Vec<ObjectName>,
    /// Includes functions that syntax looks up; excludes functions named with their schema.
    pub(crate) functions: Vec<String>,
    pub(crate) operators: Vec<String>,
    /// A function in it may reveal what other sessions have committed.
    pub(crate) reveals_commits: bool,
    /// PostgreSQL: the parameters that name the settings which the query reads.
    pub(crate) settings: Vec<u32>,
    /// PostgreSQL: the names of its functions that are not built in, or not known to be.
    pub(crate) made: Vec<String>,
    /// The query's effect without the functions in `made`.
    pub(crate) effect_but_made: Effect,
    /// PostgreSQL: the types that it names.
    pub(crate) handled: Handled,
    /// MySQL: it calls an unknown function.
    pub(crate) unknown_function: bool,
    ctes: Vec<String>,
    dialect: Dialect,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            effect: Effect::Pure,
            refusals: Refusals::default(),
            counts: Counts::default(),
            relations: Vec::new(),
            functions: Vec::new(),
            operators: Vec::new(),
            reveals_commits: false,
            settings: Vec::new(),
            made: Vec::new(),
            effect_but_made: Effect::Pure,
            handled: Handled::default(),
            unknown_function: false,
            ctes: Vec::new(),
            dialect: Dialect::Postgres,
        }
    }
}

impl Findings {
    pub(crate) fn of(dialect: Dialect, query: &Query) -> Self {
        let mut findings = Self { dialect, ..Self::default() };
        let _ = visit(query, &mut findings);
        findings.handled.settle();
        findings
    }

    /// What the text says about the types of its values.
    pub(crate) fn handled(&self) -> Handled {
        Handled::of(&self.handled, &self.functions, &self.operators)
    }

    /// Whether an unqualified name is the name of a common table expression anywhere in the query.
    pub(crate) fn is_cte(&self, name: &ObjectName) -> bool {
        match name.0.as_slice() {
            [part] => part.as_ident().is_some_and(|ident| self.ctes.contains(&ident.value)),
            _ => false,
        }
    }

    fn note(&mut self, effect: Effect, reason: Reason) {
        self.effect = stronger(self.effect, effect);
        self.effect_but_made = stronger(self.effect_but_made, effect);
        self.refusals.is_refused = true;
        if effect != Effect::Pure || !reason.yields_to_ttl() {
            self.refusals.not_by_ttl.get_or_insert_with(|| reason.clone());
        }
        self.refusals.first.get_or_insert(reason);
    }

    /// An unknown function may do anything, unless it is user-defined and the operator trusts it.
    fn unknown(&mut self, name: &ObjectName) {
        let reason = Reason::Function(name.to_string().into());
        match made_name(name).filter(|_| !self.dialect.is_mysql_family()) {
            Some(made) => {
                self.made.push(made.to_owned());
                self.handled.note_unknown();
                self.effect = stronger(self.effect, Effect::Write);
                self.refusals.not_by_ttl.get_or_insert_with(|| reason.clone());
                self.refusals.first.get_or_insert(reason);
            }
            None => self.note(Effect::Write, reason),
        }
    }

    fn function(&mut self, name: &ObjectName) {
        let plain = built_in_name(self.dialect, name);
        let class = plain.map_or(FunctionClass::Unknown, |plain| class_of(self.dialect, plain));
        let known = class != FunctionClass::Unknown || self.dialect.is_mysql_family();
        match plain.filter(|_| known) {
            Some(plain) if name.0.len() == 1 => self.functions.push(plain.to_owned()),
            Some(plain) if !self.dialect.is_mysql_family() => self.handled.note_qualified(plain),
            _ => {}
        }
        let counts = plain.is_some_and(mysql_functions::counts_sequence);
        self.unknown_function |= class == FunctionClass::Unknown && !counts;
        self.reveals_commits |= matches!(class, FunctionClass::Pure | FunctionClass::Signal { reveals_commits: true });
        let reason = || Reason::Function(name.to_string().into());
        match class {
            FunctionClass::Cacheable { .. } => {}
            FunctionClass::Pure => {
                if !plain.is_some_and(|plain| is_lasting(self.dialect, plain)) {
                    self.refusals.not_by_ttl.get_or_insert_with(reason);
                }
                self.note(Effect::Pure, reason());
            }
            FunctionClass::Signal { .. } => self.note(Effect::Signal, reason()),
            FunctionClass::Settings => self.note(Effect::Settings, reason()),
            FunctionClass::Unknown => self.unknown(name),
        }
    }

    fn look_up(&mut self, lookups: Lookups) {
        if !self.dialect.is_mysql_family() {
            self.operators.extend(lookups.operators.iter().map(ToString::to_string));
            self.functions.extend(lookups.functions.iter().map(ToString::to_string));
        }
    }

    /// PostgreSQL: the parser takes `type 'constant'` for a name with an alias; in fact it is a constant.
    fn typed_literal(&mut self, item: &SelectItem) {
        if let SelectItem::ExprWithAlias { expr, alias } = item
            && alias.quote_style == Some('\'')
            && !self.dialect.is_mysql_family()
        {
            let known = self.handled.note_literal(expr);
            self.note(if known { Effect::Pure } else { Effect::Write }, Reason::NotParsed);
        }
    }

    fn operator(&mut self, symbol: Result<Option<String>, String>) {
        match symbol {
            Ok(symbol) => self.operators.extend(symbol),
            Err(symbol) => self.note(Effect::Write, Reason::Operator(symbol.into())),
        }
    }
}

fn stronger(a: Effect, b: Effect) -> Effect {
    let rank = |effect: Effect| match effect {
        Effect::Pure => 0,
        Effect::Signal => 1,
        Effect::Settings => 2,
        Effect::TransactionControl | Effect::Write => 3,
        Effect::Definition => 4,
        Effect::Forgets => 5,
    };
    if rank(b) > rank(a) { b } else { a }
}

impl Visitor for Findings {
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.counts.queries += 1;
        if !query.locks.is_empty() {
            self.note(Effect::Write, Reason::LocksRows);
        }
        if let Some(with) = &query.with {
            self.ctes.extend(with.cte_tables.iter().map(|cte| cte.alias.name.value.clone()));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.counts.selects += 1;
        if select.into.is_some() {
            self.note(Effect::Definition, Reason::Construct("SELECT INTO"));
        }
        select.from.iter().for_each(|item| self.look_up(Lookups::of_joins(item)));
        select.projection.iter().for_each(|item| self.typed_literal(item));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.counts.relations += 1;
        self.relations.push(relation.clone());
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.counts.table_factors += 1;
        self.look_up(Lookups::of_factor(factor));
        if !self.dialect.is_mysql_family() {
            self.handled.note_factor(factor);
        }
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => self.function(name),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.counts.exprs += 1;
        self.look_up(Lookups::of_expr(expr));
        if !self.dialect.is_mysql_family() {
            self.handled.note(expr);
        }
        match expr {
            Expr::Function(function) => match setting_read(function).filter(|_| !self.dialect.is_mysql_family()) {
                Some(number) => {
                    self.functions.push("current_setting".to_owned());
                    self.settings.push(number);
                }
                None => self.function(&function.name),
            },
            Expr::BinaryOp { op, .. } => self.operator(binary_symbol(self.dialect, op)),
            Expr::AnyOp { compare_op, .. } | Expr::AllOp { compare_op, .. } => {
                self.operator(binary_symbol(self.dialect, compare_op));
            }
            Expr::UnaryOp { op, .. } => self.operator(unary_symbol(self.dialect, *op)),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Only data-modifying common table expressions contain statements.
    fn pre_visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
        self.note(Effect::Write, Reason::NotSelect);
        ControlFlow::Continue(())
    }
}
