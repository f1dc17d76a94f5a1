//! Expressions of MySQL's own syntax.

use freshet_types::Reason;
use sqlparser::ast::{CastKind, DataType, Expr};

use crate::allowlist::mysql_functions::{CastClass, cast_class};
use crate::analyze::{Outcome, Walk, absent};

impl Walk<'_> {
    pub(crate) fn mysql_syntax(&mut self, expr: &Expr) -> Outcome {
        match expr {
            Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None } => {
                self.mysql_cast(data_type)?;
                self.expr(expr)
            }
            Expr::Convert { is_try: false, expr, data_type, charset: _, target_before_value: false, styles } => {
                absent(styles.is_empty(), "a conversion of that form")?;
                data_type.as_ref().map_or(Ok(()), |data_type| self.mysql_cast(data_type))?;
                self.expr(expr)
            }
            Expr::Cast { .. } | Expr::Convert { .. } => Err(Reason::Construct("a cast of that form")),
            Expr::TypedString(typed) => {
                absent(!typed.uses_odbc_syntax, "ODBC syntax")?;
                self.mysql_cast(&typed.data_type)
            }
            Expr::RLike { negated: _, expr, pattern, regexp: _ } => {
                self.expr(expr)?;
                self.expr(pattern)
            }
            // `_utf8mb4'text'`
            Expr::Prefixed { prefix, value } => {
                absent(prefix.value.starts_with('_'), "a literal of that form")?;
                self.expr(value)
            }
            Expr::MatchAgainst { columns, match_value: _, opt_search_modifier: _ } => {
                for column in columns {
                    match column.0.last().and_then(|part| part.as_ident()) {
                        Some(ident) => self.mentioned.name(&ident.value),
                        None => self.mentioned.all(),
                    }
                }
                Ok(())
            }
            Expr::Interval(_)
            | Expr::Extract { .. }
            | Expr::Ceil { .. }
            | Expr::Floor { .. }
            | Expr::Position { .. }
            | Expr::Substring { .. }
            | Expr::Trim { .. } => self.special_syntax(expr),
            _ => Err(Reason::Construct("an expression of that kind")),
        }
    }

    fn mysql_cast(&mut self, data_type: &DataType) -> Outcome {
        match cast_class(data_type) {
            Some(CastClass::Plain) => {}
            Some(CastClass::Date) => self.date_time = true,
            Some(CastClass::Time) => self.times = true,
            None => return Err(Reason::Construct("a cast to a type of that name")),
        }
        Ok(())
    }
}
