//! Joins, and the clauses of a SELECT that the walk does not support.

use freshet_types::{Dialect, Reason};
use sqlparser::ast::{Join, JoinConstraint, JoinOperator, ObjectName, Select, SelectFlavor, TableWithJoins};

use crate::analyze::outer_joins::{Clause, Condition, Joined, Kind};
use crate::analyze::{Outcome, Walk, absent};

impl Walk<'_> {
    /// A FROM item with its joins. Collects the conditions with the references that each bounds.
    pub(crate) fn joined<'q>(&mut self, item: &'q TableWithJoins, conditions: &mut Vec<Condition<'q>>) -> Outcome {
        let places = |walk: &Self| walk.scope.blocks.last().map_or(0, |block| block.references.len());
        let start = places(self);
        self.factor(&item.relation, conditions)?;
        for Join { relation, global, join_operator } in &item.joins {
            absent(!global, "GLOBAL JOIN")?;
            let right = places(self);
            self.factor(relation, conditions)?;
            let end = places(self);
            let outer = matches!(
                join_operator,
                JoinOperator::Left(JoinConstraint::None)
                    | JoinOperator::LeftOuter(JoinConstraint::None)
                    | JoinOperator::Right(JoinConstraint::None)
                    | JoinOperator::RightOuter(JoinConstraint::None)
            );
            absent(!outer || !self.is_mysql(), "an outer join without a condition of its own")?;
            let constraint = match join_operator {
                JoinOperator::CrossJoin(on) | JoinOperator::StraightJoin(on) if self.is_mysql() => on,
                JoinOperator::Join(on)
                | JoinOperator::Inner(on)
                | JoinOperator::Left(on)
                | JoinOperator::LeftOuter(on)
                | JoinOperator::Right(on)
                | JoinOperator::RightOuter(on)
                | JoinOperator::FullOuter(on) => on,
                JoinOperator::CrossJoin(none @ JoinConstraint::None) => none,
                _ => return Err(Reason::Construct("a join of that kind")),
            };
            // Of joins without a condition before a RIGHT JOIN, the servers take all as its left side, the parser only the last one.
            let join = Joined { left: start..right, right: right..end, kind: Kind::of(join_operator) };
            let nullable = match join.kind {
                Kind::Left => right..end,
                Kind::Right => 0..right,
                Kind::Full => 0..end,
                Kind::Inner => 0..0,
            };
            let references = self.scope.blocks.last_mut().and_then(|block| block.references.get_mut(nullable));
            references.into_iter().flatten().for_each(|reference| reference.nullable = true);
            let clause = match constraint {
                JoinConstraint::On(condition) => Some(Clause::On(condition)),
                JoinConstraint::Using(columns) => Some(Clause::Using(self.merge(columns)?)),
                JoinConstraint::Natural => {
                    self.note_all_dates();
                    self.mentioned.all();
                    self.scope.blocks.last_mut().into_iter().for_each(|block| block.natural = true);
                    None
                }
                JoinConstraint::None => None,
            };
            conditions.extend(clause.map(|clause| Condition { clause, bounded: join.bounded(), join: Some(join) }));
        }
        Ok(())
    }

    fn merge(&mut self, columns: &[ObjectName]) -> Result<Vec<String>, Reason> {
        let names = columns.iter().map(|column| match column.0.as_slice() {
            [part] => part.as_ident().map(|ident| ident.value.clone()),
            _ => None,
        });
        let names: Option<Vec<String>> = names.collect();
        let names = names.ok_or(Reason::Construct("a USING clause of that form"))?;
        for name in &names {
            self.note_dates(name);
            self.mentioned.name(name);
        }
        self.scope.blocks.last_mut().into_iter().for_each(|block| block.merged.extend(names.iter().cloned()));
        Ok(names)
    }
}

/// Clauses of other dialects, which the server would parse differently.
pub(crate) fn only_standard_clauses(select: &Select, dialect: Dialect) -> Outcome {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    absent(into.is_none(), "SELECT INTO")?;
    let plain = optimizer_hints.is_empty()
        && (dialect.is_mysql_family() || select_modifiers.as_ref().is_none_or(|modifiers| !modifiers.is_any_set()))
        && top.is_none()
        && exclude.is_none()
        && lateral_views.is_empty()
        && prewhere.is_none()
        && connect_by.is_empty()
        && cluster_by.is_empty()
        && distribute_by.is_empty()
        && sort_by.is_empty()
        && qualify.is_none()
        && value_table_mode.is_none()
        && *flavor == SelectFlavor::Standard;
    absent(plain, "a clause of another database")
}
