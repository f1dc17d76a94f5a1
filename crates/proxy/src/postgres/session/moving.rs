//! Executions whose limits have moved: see [`crate::session::moving`].

use std::sync::Arc;

use freshet_sql::ReadSet;
use freshet_wire::postgres::backend::rows;
use freshet_wire::postgres::frontend::Bind;

use crate::postgres::session::batch::Describe;
use crate::postgres::session::execution::{Execution, Found, parameters};
use crate::postgres::session::shown::fields;
use crate::postgres::session::{Known, Session};
use crate::session::context::Context;
use crate::session::lookup::Decision;
use crate::session::moving::{Limits, Reached, put_text, put_without};
use crate::statement::registry::Statement;

/// The moving limits of a fill, and how its answer will be written.
#[derive(Debug)]
pub(crate) struct Moving {
    limits: Limits,
    entry: Arc<[u8]>,
    /// The columns of the answer that show them and are in binary format.
    binary: Vec<usize>,
}

impl Moving {
    /// `entry`: the key of the new entry.
    pub(crate) fn of(limits: Limits, execution: Execution<'_>, entry: &[u8]) -> Self {
        let is_binary = |column: &usize| match execution {
            Execution::Query(_) => false,
            Execution::Bound { tail, .. } => Bind::shows_binary(tail, *column).unwrap_or(true),
        };
        let binary = limits.read_set.moving_columns().filter(is_binary).collect();
        Self { limits, entry: entry.into(), binary }
    }

    /// The range of limits for which the whole answer is the same.
    pub(crate) fn reached(self, frames: &[u8]) -> Option<Box<Reached>> {
        let Self { limits, entry, binary } = self;
        limits.reached(entry, rows(frames), |row| fields(&binary, row))
    }
}

/// The moving limits of an execution.
pub(crate) fn limits(
    read_set: &Arc<ReadSet>,
    (statement, context): (&Statement, &Context),
    execution: Execution<'_>,
) -> Option<Limits> {
    let params = parameters(statement, execution).ok()?;
    Limits::of(read_set, &params, context, |key, numbers| write_key(key, numbers, statement, execution))
}

/// Writes the part of the key that does not depend on the parameters with these numbers.
fn write_key(key: &mut Vec<u8>, numbers: &[u32], statement: &Statement, execution: Execution<'_>) -> Option<()> {
    let Execution::Bound { tail, describe, rows_max, .. } = execution else {
        key.push(b'Q');
        return put_text(key, statement, numbers);
    };
    key.push(match describe {
        Describe::Nothing => b'E',
        Describe::Portal => b'D',
        Describe::Statement => b'S',
    });
    key.extend_from_slice(&rows_max.to_le_bytes());
    if numbers.iter().any(|number| *number > u32::from(statement.own_params)) {
        key.push(b't');
        put_text(key, statement, numbers)?;
        key.extend_from_slice(&(statement.types.len() as u32).to_le_bytes());
        key.extend_from_slice(&statement.types);
    } else {
        key.push(b'n');
        key.extend_from_slice(&statement.id.to_le_bytes());
    }
    let bound = Bind::parameters(tail).ok()?;
    let mut cuts = Vec::with_capacity(numbers.len());
    for number in numbers.iter().filter(|number| **number <= u32::from(statement.own_params)) {
        let value = (*bound.get(number.checked_sub(1)? as usize)?)?;
        let start = value.bytes.as_ptr().addr().checked_sub(tail.as_ptr().addr())?;
        // A value in binary format has the length that its type has on the server; a text may have any length.
        let from = if value.binary { start } else { start.checked_sub(size_of::<i32>())? };
        cuts.push((from, start + value.bytes.len()));
    }
    put_without(key, tail, &mut cuts)
}

impl Session {
    /// Looks up an execution that has missed: there may be an entry that differs only in its moving limits.
    pub(crate) fn look_up_moved(&mut self, statement: &Statement, execution: Execution<'_>) -> Found {
        if self.takes_snapshot() {
            return Decision::Fill(());
        }
        if matches!(execution, Execution::Query(_)) && !statement.query.template.settings().is_empty() {
            let Known::Context(context, _) = &self.server.settings.known else { return Decision::Fill(()) };
            self.write_key(context.id, statement, execution);
            return self.look_up_key(|_| true);
        }
        let Some(Limits { key, at, .. }) = self.limits_of(statement, execution) else { return Decision::Fill(()) };
        let Some(entry) = self.shared.latest.entry(&key).filter(|entry| **entry != *self.key) else {
            return Decision::Fill(()); // or the entry was found and must not be used
        };
        self.key.clear();
        self.key.extend_from_slice(&entry);
        self.look_up_key(|body| body.reached.as_ref().is_some_and(|reached| reached.covers(&at)))
    }

    /// The moving limits of an execution, if its statement is known to have any.
    pub(crate) fn limits_of(&self, statement: &Statement, execution: Execution<'_>) -> Option<Limits> {
        if !statement.query.moves() || !statement.query.template.settings().is_empty() {
            return None;
        }
        let Known::Context(context, known_under) = &self.server.settings.known else { return None };
        let catalog = self.shared.catalog.load();
        if catalog.version != *known_under || !(context.client.utf8 || statement.ascii) {
            return None;
        }
        let read_set = statement.query.moving(&catalog, context)?;
        limits(&read_set, (statement, context), execution)
    }
}
