//! Conditions that are anti-joins (`dependency/anti_join.rs`).

use crate::analysis::{AntiJoin, Inside, ReferenceColumn};
use crate::analyze::Walk;
use crate::analyze::conditions::atom;
use crate::analyze::derived_limit::is_ungrouped;
use crate::analyze::limit_bound::calls;
use crate::analyze::scope::{Reference, Source};
use crate::analyze::shown::{Asks, Named, Origin, Reached};
use crate::predicate::UnboundTest;
use crate::predicate::column_expressions::{equality, unbound_test};
use crate::predicate::syntax::{column_name, conjuncts, parameter, unwrapped};
use freshet_types::{Column, ComparedColumn, ValueType};
use sqlparser::ast::{
    BinaryOperator, Distinct, Expr, JoinConstraint, JoinOperator, LimitClause, Query, Select, UnaryOperator,
};

impl Walk<'_> {
    /// All conditions of the innermost block's SELECT on its rows, if they are known.
    pub(crate) fn asks(&self, select: &Select) -> Option<Asks> {
        let distinct = matches!(select.distinct, None | Some(Distinct::Distinct));
        let plain = distinct && is_ungrouped(select);
        let block = self.scope.blocks.last().filter(|_| plain && self.scope.blocks.len() > 1)?;
        if calls(&select.projection, |_| true) {
            return None;
        }
        let mut all: Vec<&Expr> = select.selection.iter().flat_map(conjuncts).collect();
        let mut items = 0;
        for from in &select.from {
            items += 1 + from.joins.len();
            for join in &from.joins {
                match &join.join_operator {
                    JoinOperator::Join(JoinConstraint::On(on)) | JoinOperator::Inner(JoinConstraint::On(on)) => {
                        all.extend(conjuncts(on));
                    }
                    _ => return None,
                }
            }
        }
        let place = |reference: &Reference| match &reference.source {
            Source::Table { table, places } if places.len() == 1 && !reference.nullable => {
                self.found.references.get(places.start).filter(|of| of.table.id == table.id).map(|_| places.start)
            }
            _ => None,
        };
        let places: Vec<usize> = block.references.iter().map(place).collect::<Option<_>>()?;
        let inside = Inside { places, equal: Vec::new(), tests: Vec::new(), limit: None };
        let mut asks = Asks { inside, outer: None };
        (items == block.references.len() && all.into_iter().all(|one| self.add_asked(one, &mut asks).is_some()))
            .then_some(asks)
    }

    /// Adds a conjunct; None if it is not understood.
    pub(crate) fn add_asked(&self, conjunct: &Expr, asks: &mut Asks) -> Option<()> {
        let mysql = self.is_mysql();
        let tested = match conjunct {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                if let (Some(left), Some(right)) = (self.named_by_name(left), self.named_by_name(right)) {
                    match (self.reference_column(&left), self.reference_column(&right)) {
                        (Some(one), Some(two)) if one.column.value_type == two.column.value_type => {
                            asks.inside.equal.push([one, two]);
                        }
                        (Some(own), None) if asks.outer.is_none() => asks.outer = Some((own, right)),
                        (None, Some(own)) if asks.outer.is_none() => asks.outer = Some((own, left)),
                        _ => return None,
                    }
                    return Some(());
                }
                equality(left, right)
            }
            Expr::InList { negated: false, .. } => unbound_test(conjunct),
            _ => None,
        };
        let (name, unbound) = tested.filter(|(_, unbound)| matches!(unbound, UnboundTest::In(_)))?;
        let named = self.named_by(name)?;
        self.of_table(&named)?;
        asks.inside.tests.push(atom(mysql, named.rows.first()?, &unbound)?);
        Some(())
    }

    pub(crate) fn named_by_name(&self, expr: &Expr) -> Option<Named> {
        self.named_by(column_name(expr)?)
    }

    /// The column of a name, if it belongs to a table of the innermost block and its type allows it as a key.
    pub(crate) fn reference_column(&self, named: &Named) -> Option<ReferenceColumn> {
        let column = self.of_table(named).filter(|column| is_exact(self.is_mysql(), column.value_type))?;
        let place = named.rows.first()?.origin.place;
        Some(ReferenceColumn {
            place,
            column: ComparedColumn { name: column.name.clone(), value_type: column.value_type },
        })
    }

    pub(crate) fn of_table<'n>(&self, named: &'n Named) -> Option<&'n Column> {
        let [Reached { origin: Origin { column, through: false, .. }, nullable: false }] = named.rows.as_slice() else {
            return None;
        };
        (named.block + 1 == self.scope.blocks.len() && !column.generated).then_some(column)
    }

    /// Notes the anti-joins of a condition on the references that it bounds.
    pub(crate) fn note_anti_joins(&mut self, condition: &Expr, bounded: &std::ops::Range<usize>) {
        let found = conjuncts(condition).into_iter().filter_map(|conjunct| self.anti_join_of(conjunct));
        let found: Vec<(usize, AntiJoin)> = found.collect();
        self.found
            .limits
            .anti_joins
            .extend(found.into_iter().filter(|(item, _)| bounded.contains(item)).map(|(_, anti_join)| anti_join));
    }

    /// The item of the innermost block that is anti-joined by the conjunct.
    pub(crate) fn anti_join_of(&self, conjunct: &Expr) -> Option<(usize, AntiJoin)> {
        let (negated, inner) = match conjunct {
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => (true, unwrapped(expr)),
            other => (false, other),
        };
        // NOT (… AND c IS NOT NULL), which is true of every key.
        let (inner, beside) = match inner {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } if negated => match unwrapped(right) {
                Expr::IsNotNull(beside) => (unwrapped(left), Some(beside)),
                _ => return None,
            },
            inner => (inner, None),
        };
        let (subquery, is_not, value) = match inner {
            Expr::Exists { subquery, negated } => (subquery, *negated, None),
            Expr::InSubquery { subquery, negated, expr } => (subquery, *negated, Some(expr)),
            _ => return None,
        };
        let shown = self.told_by(subquery).filter(|_| is_not != negated)?;
        let Asks { inside, outer } = shown.asks.as_deref()?.clone();
        let (inner_key, named) = match (value, &outer, shown.columns.as_slice()) {
            (None, Some((inner_key, named)), _) => (inner_key.clone(), named.clone()),
            // LIMIT would exclude some of the keys.
            (Some(value), None, [column]) if inside.limit.is_none() => {
                let [Origin { place, column, through: false }] = column.origins.as_slice() else { return None };
                let (name, value_type) = (column.name.clone(), column.value_type);
                let inner_key = ReferenceColumn { place: *place, column: ComparedColumn { name, value_type } };
                (
                    Some(inner_key).filter(|inner_key| inside.places.contains(&inner_key.place))?,
                    self.named_by_name(value)?,
                )
            }
            _ => return None,
        };
        let column = self.of_table(&named)?;
        let same = |beside: &Expr| {
            self.named_by_name(beside).and_then(|other| self.reference_column(&other)) == self.reference_column(&named)
        };
        let exact = is_exact(self.is_mysql(), column.value_type) && column.value_type == inner_key.column.value_type;
        if !exact || !beside.is_none_or(|beside| same(beside)) {
            return None;
        }
        let column = ComparedColumn { name: column.name.clone(), value_type: column.value_type };
        Some((named.place, AntiJoin { place: named.rows.first()?.origin.place, column, inner_key, inside }))
    }
}

impl Asks {
    /// The same for the query that the SELECT belongs to.
    pub(crate) fn of_query(self, query: &Query) -> Option<Self> {
        let limit = match &query.limit_clause {
            None => None,
            Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by }) if limit_by.is_empty() => {
                Some(Some(parameter(unwrapped(limit))?))
            }
            Some(_) => return None,
        };
        let inside = Inside { limit, ..self.inside };
        (query.with.is_none() && query.fetch.is_none()).then_some(Self { inside, ..self })
    }
}

/// Whether columns of the type are equal exactly if their normal forms are.
pub(crate) fn is_exact(mysql: bool, value_type: ValueType) -> bool {
    use ValueType::{Int, OrderedText, Text, Unsigned, Uuid};
    matches!(value_type, Int | Unsigned) || (!mysql && matches!(value_type, OrderedText | Text | Uuid))
}
