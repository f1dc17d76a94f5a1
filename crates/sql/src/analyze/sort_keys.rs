//! The first key of ORDER BY.

use freshet_types::{Column, Dialect, ValueType};
use sqlparser::ast::{
    Expr, Ident, OrderByExpr, OrderByKind, OrderBySort, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    Value as Constant,
};

use crate::analysis::Order;
use crate::analyze::Walk;
use crate::analyze::scope::{Block, Meaning, Reference, Source};
use crate::predicate::syntax::column_name;

/// A column of the answer.
pub(crate) struct Item<'b> {
    /// Its name; None if the server generates one.
    pub(crate) name: Option<&'b str>,
    /// The reference of the block and its column, if it is a plain column.
    pub(crate) column: Option<(usize, &'b Column)>,
    /// The derived table of the block and the number of its column.
    pub(crate) shown: Option<(usize, usize)>,
}

impl<'b> Item<'b> {
    fn of(name: Option<&'b str>, block: &'b Block, expr: &Expr) -> Self {
        let meaning = column_name(expr).map(|name| block.meaning(name));
        let column = match meaning {
            Some(Meaning::Column(place, column)) => Some((place, column)),
            _ => None,
        };
        let shown = match meaning {
            Some(Meaning::Shown(place, column)) => block.references[place].shown.at(column).map(|at| (place, at)),
            _ => None,
        };
        Self { name, column, shown }
    }
}

impl Walk<'_> {
    /// The reference whose order keys sort like a column of the innermost block, if no outer join may replace the column by NULL.
    pub(crate) fn sorted_place(&self, (in_block, column): (usize, &Column)) -> Option<usize> {
        let reference = self.scope.blocks.last()?.references.get(in_block).filter(|reference| !reference.nullable)?;
        let Source::Table { places, .. } = &reference.source else { return None };
        let place = Some(places.start).filter(|_| places.len() == 1)?;
        let same = self.found.references.get(place)?.table.column(&column.name) == Some(column);
        (same && !column.generated && is_exact(self.context.dialect, column.value_type)).then_some(place)
    }

    pub(crate) fn order_of(&self, OrderByExpr { options, .. }: &OrderByExpr) -> Order {
        let descending = matches!(options.sort, Some(OrderBySort::Desc));
        // NULL is greater than all values in PostgreSQL, and less in MySQL.
        Order { descending, nulls_first: options.nulls_first.unwrap_or(descending != self.is_mysql()) }
    }
}

/// The first sort key of a query, as a column of the block.
pub(crate) fn first_key<'q, 'b>(
    query: &'q Query,
    block: &'b Block,
    items: &[Item<'b>],
) -> Option<(&'q OrderByExpr, (usize, &'b Column))> {
    let OrderByKind::Expressions(order) = &query.order_by.as_ref()?.kind else { return None };
    let first = order.first()?;
    let key = match numbered(&first.expr) {
        Some(number) => items.get(number.checked_sub(1)?)?.column?,
        None => sorted_by(block, items, column_name(&first.expr)?)?,
    };
    Some((first, key))
}

/// The column number in ORDER BY.
fn numbered(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Constant::Number(number, false) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The column of the block that a name in ORDER BY means. Both families first take an unqualified name for a column of the answer.
fn sorted_by<'b>(block: &'b Block, items: &[Item<'b>], idents: &[Ident]) -> Option<(usize, &'b Column)> {
    let [name] = idents else { return named_column(block, idents) };
    if !name.value.is_ascii() || items.iter().any(|item| item.name.is_none()) {
        return None;
    }
    let mut of_name = items.iter().filter(|item| item.name.is_some_and(|other| block.same(other, &name.value)));
    match of_name.next() {
        Some(Item { column, .. }) => column.filter(|column| of_name.all(|other| other.column == Some(*column))),
        None => named_column(block, idents),
    }
}

/// Whether the answer contains exact values of the type, and their order keys sort as the server sorts them.
fn is_exact(dialect: Dialect, value_type: ValueType) -> bool {
    use ValueType::{Bool, Date, Int, Numeric, OrderedText, Timestamp, TimestampTz, Unsigned, Uuid};
    match value_type {
        Int | Unsigned | Numeric | Date | Timestamp => true,
        // MySQL prints a TIMESTAMP without its offset.
        TimestampTz | OrderedText | Bool | Uuid => !dialect.is_mysql_family(),
        _ => false,
    }
}

/// The columns of the answer; None if they are not known.
pub(crate) fn shown_items<'b>(block: &'b Block, select: &'b Select) -> Option<Vec<Item<'b>>> {
    let mut items = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                items.push(Item::of(Some(&alias.value), block, expr));
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = match expr {
                    // PostgreSQL's name of the column; in MySQL the name is the text, with parentheses.
                    Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()),
                    _ => column_name(expr).and_then(<[Ident]>::last),
                };
                items.push(Item::of(name.map(|name| &*name.value), block, expr));
            }
            SelectItem::Wildcard(_) => {
                for place in 0..block.references.len() {
                    items.extend(columns(block, place)?);
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let [alias] = name.0.as_slice() else { return None };
                let alias = alias.as_ident()?;
                let mut named =
                    block.references.iter().enumerate().filter(|(_, reference)| reference.alias == alias.value);
                let (Some((place, _)), None) = (named.next(), named.next()) else { return None };
                items.extend(columns(block, place)?);
            }
            _ => return None,
        }
    }
    Some(items)
}

/// The columns that `*` returns for a reference. If it returns fewer (those that USING merges, invisible ones), the answer has another width.
pub(crate) fn columns<'b>(block: &'b Block, place: usize) -> Option<Vec<Item<'b>>> {
    let Reference { source, shown, .. } = block.references.get(place)?;
    let items = match source {
        Source::Table { table, .. } => {
            let of =
                |column: &'b Column| Item { name: Some(&*column.name), column: Some((place, column)), shown: None };
            table.columns.iter().map(of).collect()
        }
        Source::Opaque => {
            let of = |(at, name)| Item { name: Some(name), column: None, shown: Some((place, at)) };
            shown.names()?.enumerate().map(of).collect()
        }
    };
    Some(items)
}

pub(crate) fn named_column<'b>(block: &'b Block, idents: &[Ident]) -> Option<(usize, &'b Column)> {
    match block.meaning(idents) {
        Meaning::Column(place, column) => Some((place, column)),
        _ => None,
    }
}
