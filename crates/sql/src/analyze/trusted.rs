//! Calls of user-defined functions that the operator trusts (`statement/trusted.rs`).

use crate::allowlist::functions::is_aggregate;
use crate::allowlist::names::{built_in_name, made_name};
use crate::analyze::{Outcome, Walk};
use freshet_types::Reason;
use sqlparser::ast::{Function, ObjectName};

impl Walk<'_> {
    /// Checks whether a function that is not built in may be called. It may take or return dates.
    pub(crate) fn trusted(&mut self, name: &ObjectName) -> Outcome {
        let trusted =
            !self.is_mysql() && made_name(name).is_some_and(|name| self.context.catalog.trusted.contains_key(name));
        self.date_time |= trusted;
        if trusted { Ok(()) } else { Err(Reason::Function(name.to_string().into())) }
    }

    /// Whether a call returns one value for several rows.
    pub(crate) fn aggregates(&self, function: &Function) -> bool {
        let made = || made_name(&function.name).and_then(|name| self.context.catalog.trusted.get(name)) == Some(&true);
        !function.within_group.is_empty()
            || built_in_name(self.context.dialect, &function.name).is_some_and(is_aggregate)
            || made()
    }
}
