//! `x BETWEEN SYMMETRIC a AND b`, which the parser does not know: `x BETWEEN a AND b OR x BETWEEN b AND a`, into which PostgreSQL, too, turns it.
//!
//! The parser reads NOT in place of SYMMETRIC. No other BETWEEN has NOT there, since the grammar allows none, and the parser takes for its operand what the
//! grammar does. Each use doubles the operands, so that the number of uses is bounded.

use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, Query, UnaryOperator, VisitMut, VisitorMut};

use crate::lex::postgres::{Kind, Token};

/// The tree becomes at most eight times as large.
const USES_MAX: usize = 3;

/// Whether the token is SYMMETRIC behind BETWEEN.
pub(crate) fn is_symmetric(token: &Token<'_>, before: Option<&Token<'_>>) -> bool {
    let is_word = |token: &Token<'_>, word: &str| token.kind == Kind::Word && token.text == word;
    is_word(token, "symmetric") && before.is_some_and(|before| is_word(before, "between"))
}

/// Expands all `uses` of SYMMETRIC in a query that was parsed with NOT in its place; None if the tree has not as many.
pub(crate) fn expand(mut query: Query, uses: usize) -> Option<Query> {
    let mut expansion = Expansion { uses: 0 };
    if uses <= USES_MAX {
        let _ = query.visit(&mut expansion);
    }
    (expansion.uses == uses).then_some(query)
}

struct Expansion {
    uses: usize,
}

impl VisitorMut for Expansion {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Between { expr: tested, negated, low, high } = expr
            && let Expr::UnaryOp { op: UnaryOperator::Not, expr: first } = &**low
        {
            self.uses += 1;
            let between = |low: &Expr, high: &Expr| {
                let (low, high) = (Box::new(low.clone()), Box::new(high.clone()));
                Box::new(Expr::Between { expr: tested.clone(), negated: *negated, low, high })
            };
            let (left, right) = (between(first, high), between(high, first));
            let op = if *negated { BinaryOperator::And } else { BinaryOperator::Or };
            *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right }));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use freshet_types::Dialect;

    use crate::lex::tokens::Tokens;
    use crate::statement::parse::parse_query;

    fn read(text: &str) -> Option<String> {
        let tokens: Vec<_> = Tokens::of(Dialect::Postgres, text).collect();
        parse_query(&tokens).map(|query| query.to_string())
    }

    #[test]
    fn both_orders_are_tried() {
        let same = |text: &str, meaning: &str| assert_eq!(read(text), read(meaning), "{text}");
        same(
            "select a from t where a between symmetric $1 and $2 and b",
            "select a from t where (a between $1 and $2 or a between $2 and $1) and b",
        );
        same(
            "select a not between symmetric b + 1 and c = d from t",
            "select (a not between b + 1 and c and a not between c and b + 1) = d from t",
        );
        same(
            "select a from t where a between symmetric (b between symmetric 1 and 2) and c",
            "select a from t where (a between ((b between 1 and 2 or b between 2 and 1)) and c or \
             a between c and ((b between 1 and 2 or b between 2 and 1)))",
        );
    }

    #[test]
    fn other_uses_are_not_read() {
        for text in [
            "select a from t where a between not b and c",
            "select a from t where a between symmetric exists (select 1) and c",
            "select between symmetric from t",
            &format!("select {}", ["a between symmetric 1 and 2"; 4].join(", ")),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
