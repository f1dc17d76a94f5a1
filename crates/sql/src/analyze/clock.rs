//! Dates and times of PostgreSQL that a statement handles: constants in such a statement may be read as the current time (`statement/clock_text.rs`).

use freshet_types::{Column, Columns, Reason, Table, ValueType};
use sqlparser::ast::{ArrayElemTypeDef, DataType};

use crate::allowlist::types::{TypeClass, type_class};
use crate::analyze::Walk;
use crate::statement::template::Parsed;

impl Walk<'_> {
    /// Notes that a value of this type is created, which may be a date or time.
    pub(crate) fn note_date(&mut self, data_type: &DataType) {
        self.date_time |= type_class(data_type) == Some(TypeClass::DateTime);
        self.times |= !self.is_mysql() && is_time(data_type);
    }

    /// Notes that a time is created, or the name of a zone is read.
    pub(crate) fn note_zone(&mut self) {
        self.date_time = true;
        self.times |= !self.is_mysql();
    }

    /// Whether the statement handles values of `timetz`. An error if it also handles something that may take its offset from the current date: a
    /// time, a zone, or a constant that is not a parameter of the normalized query.
    pub(crate) fn handles_timetz(&self, parsed: &Parsed) -> Result<bool, Reason> {
        let handles = self.mentions(ValueType::TimeTz);
        let completes = handles && (self.times || parsed.time_text || self.mentions(ValueType::DateTime));
        if completes { Err(Reason::ClockLiteral) } else { Ok(handles) }
    }

    /// Whether it mentions a column of this type.
    fn mentions(&self, wanted: ValueType) -> bool {
        let has = |relation: &Table, columns: &Columns| {
            let of_composite = |column: &Column| {
                let composite = column.composite.and_then(|of| self.context.catalog.composites.get(&of));
                wanted == ValueType::DateTime && composite.is_some_and(|composite| composite.dated)
            };
            let is_wanted = |column: &&Column| column.value_type == wanted || of_composite(column);
            relation.columns.iter().filter(is_wanted).any(|column| match columns {
                Columns::All => true,
                Columns::Only(names) => names.contains(&column.name),
            })
        };
        self.found.references.iter().any(|reference| has(&reference.table, &reference.columns))
            || self.found.definitions.iter().any(|relation| has(relation, &self.mentioned.of(relation)))
    }
}

/// Whether a type is `time` or an array of it.
pub(crate) fn is_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => is_time(element),
        DataType::Time(..) => true,
        DataType::Custom(name, _) => {
            name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| name.value == "time")
        }
        _ => false,
    }
}
