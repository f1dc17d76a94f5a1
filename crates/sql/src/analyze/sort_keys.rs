//! The first key of ORDER BY.

use freshet_types::{Column, ComparedColumn, Dialect, Test, ValueType};
use sqlparser::ast::{Expr, Ident, OrderByExpr, OrderByKind, OrderBySort, Query, Value as Constant};

use crate::analyze::Walk;
use crate::analyze::scope::{Block, Source};
use crate::dependency::limit_bound::{Field, Item, named, value};
use crate::predicate::column_name;

/// How a sort key sorts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

impl Walk<'_> {
    /// The reference whose rows a column of the innermost block sorts as its order keys are, if no outer join may put a NULL in its place.
    pub(crate) fn sorted_place(&self, (in_block, column): (usize, &Column)) -> Option<usize> {
        let reference = self.blocks.last()?.references.get(in_block).filter(|reference| !reference.nullable)?;
        let Source::Table { places, .. } = &reference.source else { return None };
        let place = Some(places.start).filter(|_| places.len() == 1)?;
        let same = self.references.get(place)?.table.column(&column.name) == Some(column);
        (same && !column.generated && is_exact(self.dialect, column.value_type)).then_some(place)
    }

    pub(crate) fn order_of(&self, OrderByExpr { options, .. }: &OrderByExpr) -> Order {
        let descending = matches!(options.sort, Some(OrderBySort::Desc));
        // NULL is larger than all to PostgreSQL, and smaller to MySQL.
        Order { descending, nulls_first: options.nulls_first.unwrap_or(descending != self.is_mysql()) }
    }
}

/// The first sort key of a query and the column of the block that it is.
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

/// Where the rows are that are sorted no further than one with this key; None: anywhere.
pub(crate) fn up_to(column: &ComparedColumn, order: Order, last: Field<'_>, utf8: bool) -> Option<Vec<Test>> {
    let Order { descending, nulls_first } = order;
    if last == Field::Null {
        return nulls_first.then(|| vec![Test::Null]);
    }
    let key = value(column, last, utf8)?.order_key();
    let (low, high) = if descending { (key, u64::MAX) } else { (0, key) };
    Some(std::iter::once(Test::Within { low, high }).chain(nulls_first.then_some(Test::Null)).collect())
}

/// The number of a column of the answer that ORDER BY sorts by.
fn numbered(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Constant::Number(number, false) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The column of the block that a name in ORDER BY means. Both families take a name alone for that of a column of the answer
/// first.
fn sorted_by<'b>(block: &'b Block, items: &[Item<'b>], idents: &[Ident]) -> Option<(usize, &'b Column)> {
    let [name] = idents else { return named(block, idents) };
    if !name.value.is_ascii() || items.iter().any(|item| item.name.is_none()) {
        return None;
    }
    let mut of_name = items.iter().filter(|item| item.name.is_some_and(|other| block.same(other, &name.value)));
    match of_name.next() {
        Some(Item { column, .. }) => column.filter(|column| of_name.all(|other| other.column == Some(*column))),
        None => named(block, idents),
    }
}

/// Whether the answer shows values of the type as they are, and they are sorted as their order keys are.
fn is_exact(dialect: Dialect, value_type: ValueType) -> bool {
    use ValueType::{Bool, Date, Int, Numeric, OrderedText, Timestamp, TimestampTz, Unsigned, Uuid};
    match value_type {
        Int | Unsigned | Numeric | Date | Timestamp => true,
        // MySQL shows a TIMESTAMP without its offset.
        TimestampTz | OrderedText | Bool | Uuid => !dialect.is_mysql_family(),
        _ => false,
    }
}
